"""The error of a broken invariant of partitions, and the function that raises it."""

from __future__ import annotations


class InvalidPartition(AssertionError):
    """A partition breaks an invariant: a mistake of aotato, not of the user."""


def hold(condition: bool, otherwise: str, *values: object) -> None:
    """Raise InvalidPartition with `otherwise.format(*values)` unless `condition` is true."""
    if not condition:
        raise InvalidPartition(otherwise.format(*values))
