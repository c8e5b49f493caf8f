"""What partition returns: each rank's program as parts joined by batches of messages and reductions.

Part p of a rank runs after batches 0 .. p-1 have completed and before batch p starts. A batch has at most one
message for each ordered pair of ranks, and at most one collective per reduction operator and dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

from aotato.frontend.ir import Program


@dataclass(frozen=True)
class Parcel:
    """One array inside a message: `sent` on the source rank becomes `received` on the destination."""

    sent: str
    received: str
    tag: int


@dataclass(frozen=True)
class Message:
    """All arrays that `source` sends to `dest` in `batch`, in the order they lie in the message."""

    batch: int
    source: int
    dest: int
    parcels: tuple[Parcel, ...]


@dataclass(frozen=True)
class Reduction:
    """One collective of a batch: the same on every rank, which all name the same number of arrays in order."""

    batch: int
    op: str
    dtype: str
    results: tuple[str, ...]  # this rank's Allreduce nodes


@dataclass(frozen=True)
class Part:
    """What a rank computes between batch `number - 1` and batch `number`.

    `stores` are the computed arrays that get memory of their own here: those that later parts read, and outputs.
    Message contents and reduction operands are not among them unless something else needs them stored.
    """

    number: int
    stores: tuple[str, ...]
    sends: tuple[Message, ...]  # packed at the end of this part, sorted by dest
    reductions: tuple[Reduction, ...]


@dataclass(frozen=True)
class Partition:
    """One rank's program cut into parts; parts without work, messages and reductions are left out."""

    program: Program
    parts: tuple[Part, ...]  # ascending numbers
    recvs: tuple[Message, ...]  # sorted by (batch, source)
    batches: int  # the same on every rank
    aliases: dict[str, str]  # a Recv from the rank itself -> the array that is sent
    unstored_hints: tuple[str, ...]  # arrays the user tagged as stored that were not
