"""Find every mistake in what ranks send each other and reduce together, before anything runs.

A mistake is one sentence that names both ends: rank, array, dtype[shape], tag, and the user's line where known. All
mistakes of all ranks are reported in one go.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from aotato.frontend.cycles import cycles
from aotato.frontend.dependences import allreduces, dependences, receives_by_key, sends_by_key
from aotato.frontend.ir import Allreduce, Programs, Recv, Send, Where, type_text
from aotato.frontend.program_checks import InvalidProgram, check_program

SHOWN_TAGS = 4  # of many, in a hint


class MessageError(Exception):
    """A mistake in what ranks send, receive or reduce."""


class UnknownRank(MessageError):
    """A rank sends to, or receives from, a rank that does not exist."""


class MissingSend(MessageError):
    """A rank receives what no rank sends."""


class MissingReceive(MessageError):
    """A rank sends what no rank receives."""


class DuplicateSend(MessageError):
    """A rank sends two arrays to one rank with one tag."""


class DuplicateReceive(MessageError):
    """A rank receives two arrays from one rank with one tag."""


class DtypeMismatch(MessageError):
    """An array is sent with one dtype and received with another."""


class ShapeMismatch(MessageError):
    """An array is sent with one shape and received with another."""


class CommunicationCycle(MessageError):
    """Ranks wait for each other, so that none of them can be first."""


class CollectiveMismatch(MessageError):
    """Ranks do not call the same reductions over all ranks in the same order."""


class ProgramErrors(Exception):
    """All mistakes of one entry; `str` gives them one a line."""

    def __init__(self, errors: Iterable[MessageError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


def check(programs: Programs) -> None:
    """Raise ProgramErrors if users made mistakes, InvalidProgram if aotato did."""
    for rank, program in enumerate(programs.ranks):
        if program.rank != rank or program.entry != programs.entry:
            raise InvalidProgram(f"{program.entry!r} of rank {program.rank} stands for {programs.entry!r} of {rank}")
        check_program(program, len(programs.tags))
    errors = [
        *_check_ranks(programs),
        *_check_pairs(programs),
        *_check_types(programs),
        *_check_collectives(programs),
        *_check_cycles(programs),
    ]
    if errors:
        raise ProgramErrors(errors)


def _check_ranks(programs: Programs) -> Iterator[MessageError]:
    known = f"but the only rank is 0 of {programs.size}"
    if programs.size > 1:
        known = f"but ranks are 0 to {programs.size - 1}"
    for (source, dest, tag), sends in sends_by_key(programs).items():
        if not 0 <= dest < programs.size:
            for send in sends:
                array = _sent(programs, source, send)
                yield UnknownRank(f"rank {source} sends {array} to rank {dest} {_tag(programs, tag)}, {known}")
    for (source, dest, tag), recvs in receives_by_key(programs).items():
        if not 0 <= source < programs.size:
            for name, recv in recvs:
                array = _received(name, recv)
                yield UnknownRank(f"rank {dest} receives {array} from rank {source} {_tag(programs, tag)}, {known}")


def _check_pairs(programs: Programs) -> Iterator[MessageError]:
    all_sends, all_recvs = sends_by_key(programs), receives_by_key(programs)
    for source, dest, tag in dict.fromkeys([*all_sends, *all_recvs]):
        if not (0 <= source < programs.size and 0 <= dest < programs.size):
            continue
        sends, recvs = all_sends.get((source, dest, tag), []), all_recvs.get((source, dest, tag), [])
        if len(sends) == len(recvs) == 1:
            continue
        sent = _list(_sent(programs, source, send) for send in sends)
        received = _list(_received(name, recv) for name, recv in recvs)
        label = _tag(programs, tag)
        if not sends:
            others = _others(programs, tag, (t for s, d, t in all_sends if (s, d) == (source, dest)), "sends")
            yield MissingSend(
                f"rank {dest} receives {received} from rank {source} {label}, "
                f"but rank {source} sends nothing to rank {dest} with this tag{others}"
            )
        if not recvs:
            others = _others(programs, tag, (t for s, d, t in all_recvs if (s, d) == (source, dest)), "receives")
            yield MissingReceive(
                f"rank {source} sends {sent} to rank {dest} {label}, "
                f"but rank {dest} receives nothing from rank {source} with this tag{others}"
            )
        if len(sends) > 1:
            yield DuplicateSend(
                f"rank {source} sends {len(sends)} arrays to rank {dest} {label}: {sent}, "
                f"but rank {dest} receives {received or 'none'}"
            )
        if len(recvs) > 1:
            yield DuplicateReceive(
                f"rank {dest} receives {len(recvs)} arrays from rank {source} {label}: {received}, "
                f"but rank {source} sends {sent or 'none'}"
            )


def _check_types(programs: Programs) -> Iterator[MessageError]:
    all_recvs = receives_by_key(programs)
    for (source, dest, tag), sends in sends_by_key(programs).items():
        for send in sends:
            node = programs.ranks[source].arrays[send.array]
            for name, recv in all_recvs.get((source, dest, tag), ()):
                if (node.dtype, node.shape) == (recv.dtype, recv.shape):
                    continue
                sentence = (
                    f"rank {dest} receives {_received(name, recv)} {_tag(programs, tag)}, "
                    f"but rank {source} sends {_sent(programs, source, send)}"
                )
                if node.dtype != recv.dtype:
                    yield DtypeMismatch(f"{sentence}: dtypes differ")
                if node.shape != recv.shape:
                    yield ShapeMismatch(f"{sentence}: shapes differ")


def _check_collectives(programs: Programs) -> Iterator[MessageError]:
    ranks = allreduces(programs)
    most = max(range(len(ranks)), key=lambda rank: len(ranks[rank]))
    for rank, calls in enumerate(ranks):
        if len(calls) < len(ranks[most]):
            missing = _reduced(*ranks[most][len(calls)])
            yield CollectiveMismatch(
                f"rank {rank} calls {len(calls)} of the {len(ranks[most])} reductions over all ranks of rank {most}, "
                f"whose {missing} has no partner"
            )
        for k, (name, call) in enumerate(calls):
            if k < len(ranks[0]) and _kind(call) != _kind(ranks[0][k][1]):
                yield CollectiveMismatch(
                    f"reduction {k + 1} over all ranks is {_reduced(name, call)} on rank {rank}, "
                    f"but {_reduced(*ranks[0][k])} on rank 0"
                )


def _check_cycles(programs: Programs) -> Iterator[MessageError]:
    for cycle in cycles(programs, dependences(programs)):
        yield CommunicationCycle(cycle)


def _kind(call: Allreduce) -> tuple[str, str]:
    return call.op, type_text(call)


def _reduced(name: str, call: Allreduce) -> str:
    return f"{call.op} of {call.operand!r} as {type_text(call)} into {name!r}{_at(call.where)}"


def _sent(programs: Programs, source: int, send: Send) -> str:
    return f"{send.array!r} as {type_text(programs.ranks[source].arrays[send.array])}{_at(send.where)}"


def _received(name: str, recv: Recv) -> str:
    return f"{name!r} as {type_text(recv)}{_at(recv.where)}"


def _at(where: Where | None) -> str:
    return f" ({where})" if where else ""


def _tag(programs: Programs, tag: int) -> str:
    return f"with tag {programs.tags[tag]}"


def _list(texts: Iterable[str]) -> str:
    return " and ".join(texts)


def _others(programs: Programs, tag: int, tags: Iterable[int], verb: str) -> str:
    """A hint at tags that were perhaps meant: all if they are few, else those most alike."""
    texts = [programs.tags[other] for other in tags if other != tag]
    if len(texts) <= SHOWN_TAGS:
        return f" (it {verb} with {', '.join(texts)})" if texts else ""
    near = difflib.get_close_matches(programs.tags[tag], texts, SHOWN_TAGS, cutoff=0)
    return f" (it {verb} with {', '.join(near)} and {len(texts) - len(near)} others)"
