"""The one exception whose text is meant for the user."""

from __future__ import annotations


class Refusal(Exception):
    """One sentence: what was expected, what was found, what to do.

    `agreed` says that every rank raises it, so that all may leave in the ordinary way instead of by MPI's Abort.
    """

    code = 1  # the process's exit status

    def __init__(self, sentence: str, *, code: int | None = None, agreed: bool = False) -> None:
        super().__init__(sentence)
        self.agreed = agreed
        if code is not None:
            self.code = code


class UsageError(Refusal):
    """The command line itself cannot be understood."""

    code = 2
