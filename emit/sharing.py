"""Write the kernels of all ranks: one text for all that differ in nothing, or in integers only."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aotato.emit import opencl
from aotato.emit.draft import Draft, expressions
from aotato.emit.parameters import differing, with_bounds, with_integers


@dataclass(frozen=True)
class Source:
    """A kernel ready to ship: OpenCL C, its digest, and what to pass and launch."""

    text: str
    digest: str
    arguments: tuple[tuple[str, str, str, int], ...]  # as in Draft
    parameters: tuple[tuple[str, int], ...]  # (dtype, value), after all arguments
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    local_bytes: int


class Cache:
    """Texts already written, the last MOST of them: what another target or build needs again is not written twice."""

    MOST = 500

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}
        self.calls: dict[Any, Any] = {}  # for `calls.launched`

    def write(
        self, drafts: Sequence[Sequence[tuple[str, bool, Draft]]], contract: bool, limit: int
    ) -> list[list[Source]]:
        """The sources of all kernels of every rank: (name, whether it is the second half of the one before, draft).

        `limit`: bytes of a launch's arguments, parameters included; kernels that would pass more are not shared.
        """
        groups: dict[Any, list[tuple[int, int, Draft, tuple[int, ...]]]] = {}
        for rank, row in enumerate(drafts):
            for position, (name, _, draft) in enumerate(row):
                key, integers = draft.split()
                # Kernels of one rank share a text only where nothing differs: their literals are worth more
                turn = sum(1 for earlier, half, _ in row[:position + 1] if earlier == name and not half)
                groups.setdefault((name, turn, key), []).append((rank, position, draft, integers))
        found: list[list[Source | None]] = [[None] * len(row) for row in drafts]
        for (_, _, key), members in groups.items():
            for rank, position, source in self._group(key, members, contract, limit):
                found[rank][position] = source
        return [[source for source in row if source is not None] for row in found]

    def _group(
        self, key: Any, members: list[tuple[int, int, Draft, tuple[int, ...]]], contract: bool, limit: int
    ) -> list[tuple[int, int, Source]]:
        shared = differing([integers for _, _, _, integers in members])
        if shared is None or (shared[0] and members[0][2].nbytes(shared[0]) > limit):
            return [found for member in members for found in self._group(key, [member], contract, limit)]
        parameters, columns = shared
        _, _, first, integers = members[0]
        kept = tuple(n if c is None else c.name for n, c in zip(integers, columns, strict=True))
        whole = (key, kept, tuple(p.dtype for p in parameters), contract)
        if whole not in self.texts:
            self.texts[whole] = opencl.code(_generic(first, parameters, columns), contract)
            if len(self.texts) > self.MOST:
                del self.texts[next(iter(self.texts))]
        text = self.texts[whole]
        digest = hashlib.sha256(text.encode()).hexdigest()
        return [
            (
                rank,
                position,
                Source(
                    text.replace("aotato_kernel", f"aotato_{digest[:12]}"),
                    digest,
                    draft.arguments,
                    tuple((p.dtype, p.values[number]) for p in parameters),
                    draft.global_size,
                    draft.local_size,
                    draft.local_bytes,
                ),
            )
            for number, (rank, position, draft, _) in enumerate(members)
        ]


def _generic(draft: Draft, parameters: Any, columns: list[Any]) -> Draft:
    """`draft` with a parameter wherever ranks differ."""
    if not parameters:
        return draft
    replacements = iter(columns)
    domains = tuple(with_bounds(domain, replacements) for domain in draft.domains)
    instructions = []
    for instruction in draft.instructions:
        assignee, expression, *predicates = with_integers(expressions(instruction), replacements)
        instructions.append(
            instruction.copy(assignee=assignee, expression=expression, predicates=frozenset(predicates))
        )
    return dataclasses.replace(draft, domains=domains, instructions=tuple(instructions), parameters=parameters)
