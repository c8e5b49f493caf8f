"""The inputs and outputs of a plan's entries by path, over all ranks; an input path is one array for all entries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aotato.frontend import ir
from aotato.frontend.app import AppError

Row = tuple[ir.Node | None, ...]  # by rank; None on ranks that do not have it


@dataclass(frozen=True)
class Paths:
    """`inputs` are those of all entries together; the other tables are by entry."""

    inputs: Mapping[str, Row]
    reads: Mapping[str, frozenset[str]]  # paths of inputs, of any rank
    outputs: Mapping[str, Mapping[str, Row]]

    def reduced(self, entry: str) -> tuple[str, ...]:
        """The 0-dimensional outputs that are an allreduce result on every rank: the host knows them."""
        rows = self.outputs[entry].items()
        return tuple(path for path, row in rows
                     if all(isinstance(node, ir.Allreduce) and node.shape == () for node in row))

    def is_scalar(self, path: str) -> bool:
        return all(node is None or node.shape == () for node in self.inputs[path])

    def dtype(self, path: str) -> str:
        return str(next(node.dtype.name for node in self.inputs[path] if node is not None))


def collect(programs: Mapping[str, ir.Programs]) -> Paths:
    """Raises AppError where entries disagree about an input."""
    inputs: dict[str, list[ir.Node | None]] = {}
    first: dict[tuple[str, int], str] = {}  # the entry an input was met in
    reads = {}
    for entry, ranks in programs.items():
        reads[entry] = frozenset(node.path for program in ranks.ranks for _, node in program.of_type(ir.Input))
        for rank, program in enumerate(ranks.ranks):
            for _, node in program.of_type(ir.Input):
                row = inputs.setdefault(node.path, [None] * ranks.size)
                known = row[rank]
                if known is not None and ir.type_text(known) != ir.type_text(node):
                    raise AppError(
                        f"input {node.path!r} on rank {rank} is {ir.type_text(known)} in entry "
                        f"{first[node.path, rank]!r}, but {ir.type_text(node)} in entry {entry!r}: an input path is "
                        "one array for all entries of a plan"
                    )
                row[rank] = node
                first.setdefault((node.path, rank), entry)
    return Paths({path: tuple(row) for path, row in sorted(inputs.items())}, reads,
                 {entry: _outputs(ranks) for entry, ranks in programs.items()})


def _outputs(ranks: ir.Programs) -> dict[str, Row]:
    found: dict[str, list[ir.Node | None]] = {}
    for rank, program in enumerate(ranks.ranks):
        for output in program.outputs:
            found.setdefault(output.path, [None] * ranks.size)[rank] = program.arrays[output.array]
    return {path: tuple(row) for path, row in sorted(found.items())}


def unknown(what: str, name: str, known: Iterable[str]) -> AppError:
    """A sentence about a name that does not exist."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1)
    meant = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known) or 'none'}"
    return AppError(f"{what} {name!r}, which does not exist; {meant}")
