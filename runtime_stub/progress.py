"""No stall: all ranks' schedules, run together for two calls, come to their end.

One run for each mode of sending decides it, although real runs interleave otherwise. A rank is a fixed sequence
without choice: receives name their source and tag, and no step tests whether another has completed. A step, once
able to proceed, stays able until it is taken, since what it needs (a peer has started this send, posted this
receive, entered this collective) is never undone, and taking it removes no other rank's ability. So any two
steps that could be next commute (the diamond property), and all maximal runs take the same steps: if one reaches
the end, all do; if one stalls, all stall at the same place.

Sends are either eager (`settle` never waits) or rendezvous (`settle` waits until the peer has posted the receive).
An MPI library may decide for each message; every mixture waits for no more than rendezvous does, so it reaches the
end too. Steps not named here wait for the rank's own queues only, and these always drain: a command waits for
commands enqueued before it. A library that moves data inside MPI calls only still progresses: a rank is in one
(`wait`, `settle`, `reduce`) whenever it waits for a peer.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from aotato.runtime_stub.form import ScheduleError, name_step
from aotato.runtime_stub.schedule import Schedule, Step

CALLS = 2
Event = tuple[str, int, int, int, int]  # "post" or "send", source, destination, tag, call; "reduce", turn, 0, 0, call


@dataclass(frozen=True)
class Action:
    """One thing a rank does: make an event happen, or (count > 0) wait until it has happened `count` times."""

    event: Event
    count: int
    step: int
    call: int


def check_progress(schedules: Sequence[Schedule]) -> None:
    """Raises ScheduleError with the ranks that wait for each other. Linear in the number of steps."""
    for mode in ("eager", "rendezvous"):
        programs = [_actions(s, mode == "rendezvous") for s in schedules]
        stuck = _run(programs)
        if stuck:
            raise ScheduleError(f"with {mode} sends {_stall(schedules, stuck)}")


def _actions(s: Schedule, rendezvous: bool) -> list[Action]:
    actions: list[Action] = []
    for call in range(CALLS):
        turn = 0
        for number, step in enumerate(s.steps):
            if step.op == "reduce":
                event = ("reduce", turn, 0, 0, call)
                actions += [Action(event, 0, number, call), Action(event, s.size, number, call)]
                turn += 1
            elif step.op in ("post", "send"):
                actions.append(Action(_event(s, step, step.op, call), 0, number, call))
            elif step.op == "wait" or (step.op == "settle" and rendezvous):
                needed = "send" if step.op == "wait" else "post"
                actions.append(Action(_event(s, step, needed, call), 1, number, call))
    return actions


def _event(s: Schedule, step: Step, op: str, call: int) -> Event:
    m = s.messages[step.index]
    return (op, s.rank, m.peer, m.tag, call) if m.outgoing else (op, m.peer, s.rank, m.tag, call)


def _run(programs: Sequence[Sequence[Action]]) -> dict[int, Action]:
    """Let every rank go as far as it can; returns where each rank that did not finish waits."""
    happened: Counter[Event] = Counter()
    waiting: dict[Event, list[int]] = defaultdict(list)
    at = [0] * len(programs)
    ready = deque(range(len(programs)))
    while ready:
        rank = ready.popleft()
        program = programs[rank]
        while at[rank] < len(program):
            action = program[at[rank]]
            if not action.count:
                happened[action.event] += 1
                if happened[action.event] >= _awaited_count(programs, at, waiting.get(action.event, ())):
                    ready.extend(waiting.pop(action.event, ()))
            elif happened[action.event] < action.count:
                waiting[action.event].append(rank)
                break
            at[rank] += 1
    return {rank: programs[rank][at[rank]] for ranks in waiting.values() for rank in ranks}


def _awaited_count(programs: Sequence[Sequence[Action]], at: Sequence[int], waiters: Sequence[int]) -> int:
    # All who wait for one event wait for the same count; waking them only then keeps a collective linear
    return programs[waiters[0]][at[waiters[0]]].count if waiters else 1


def _stall(schedules: Sequence[Schedule], stuck: dict[int, Action]) -> str:
    """The circle of ranks that wait for each other, found by following whom each waits for."""
    path: list[int] = []
    rank = min(stuck)
    while rank in stuck and rank not in path:
        path.append(rank)
        rank = _awaited(schedules, stuck, rank)
    circle = path[path.index(rank):] if rank in path else path
    words = [f"{name_step(schedules[r], stuck[r].step)}, in call {stuck[r].call + 1}" for r in circle]
    more = f"; and {len(words) - 6} more" if len(words) > 6 else ""
    return f"ranks wait for each other and none can go on: {'; '.join(words[:6])}{more}"


def _awaited(schedules: Sequence[Schedule], stuck: dict[int, Action], rank: int) -> int:
    action = stuck[rank]
    step = schedules[rank].steps[action.step]
    if step.op != "reduce":
        return schedules[rank].messages[step.index].peer
    entered = {r for r, a in stuck.items() if a.event == action.event}
    return min(r for r in range(len(schedules)) if r not in entered)
