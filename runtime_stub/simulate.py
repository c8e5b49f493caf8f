"""Prove all ranks' schedules of one entry and target, over two consecutive calls, without running them.

joints, form -> every index, name, range and offset is right, every message, launch and reduction happens once, in order
matching -> both ends of every message agree, all ranks perform the same collectives
contents -> every read finds what this call wrote, temporaries that share bytes do not mix
progress -> no rank waits for ever, with eager and with rendezvous sends
hazards -> the order that contents relies on holds on asynchronous queues and networks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from aotato.runtime_stub.contents import check_contents
from aotato.runtime_stub.form import ScheduleError, check_form, check_joints, check_types
from aotato.runtime_stub.hazards import check_hazards
from aotato.runtime_stub.matching import check_collectives, check_messages, check_ranks
from aotato.runtime_stub.progress import check_progress
from aotato.runtime_stub.schedule import Schedule, expanded

__all__ = ("ScheduleError", "prove")

NO_CARRY: Mapping[str, str] = MappingProxyType({})


def prove(schedules: Sequence[Schedule], carry: Mapping[str, str] = NO_CARRY) -> None:
    """`schedules[r]` is rank r's. Raises ScheduleError, one sentence, at the first promise that is broken.

    `carry` maps output paths to the input paths of the next call that they become: an output in a recv or reduce
    buffer then is that input's memory. Time is linear in steps, arguments and ranks.
    """
    for s in schedules:
        check_types(s)
        check_joints(s)
    schedules = [expanded(s) for s in schedules]
    check_ranks(schedules)
    for s in schedules:
        check_form(s)
    check_messages(schedules)
    check_collectives(schedules)
    for s in schedules:
        check_contents(s, carry)
    check_progress(schedules)
    for s in schedules:
        check_hazards(s, carry)
