"""After the start a rank cannot leave alone: whatever ends one of them stops all, with one sentence."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from types import TracebackType
from typing import Any, NoReturn

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.world import World, describe, import_mpi, say

GRACE_SECONDS = 0.3  # within which failures of several ranks count as one; launchers kill 1 s after their SIGTERM
LEAVE_SECONDS = 3.0  # for the others to leave as well, after sys.exit inside the context
KILLED_SECONDS = 3.0  # for a rank that stays silent to be stopped by the one that speaks
_TAG = 1
_keyval: list[int] = []
_leaving: list[Any] = []  # started barriers, completed before MPI is finalised


class AbortHook:
    """Context manager, or `install` and `remove`: an exception, sys.exit, SIGTERM of one rank ends every rank.

    The sentence is printed by the first rank that fails (the lowest of those that fail together), then it calls
    Abort. A `Refusal` that all ranks agreed on passes through.

    With `script` the exceptions are a user's: one that leaves the context may still be caught outside; only if it
    reaches the top is its traceback printed, then the sentence, and Abort called. Ctrl-C stays Python's.
    Otherwise (the loader's own main) leaving by an exception is the end, and Ctrl-C is handled like SIGTERM.
    """

    def __init__(self, world: World, *, script: bool = False) -> None:
        self.world = world
        self.script = script
        self._comm: Any = None
        self._passing: BaseException | None = None
        self._once = threading.Lock()
        self._old_excepthook = sys.excepthook
        self._signals: _SignalWatch | None = None

    def install(self) -> AbortHook:
        """Collective over the world, as it makes a communicator for the failing ranks to talk on."""
        if self.world.size > 1:
            self._comm = _private_communicator(self.world.comm)
            self._old_excepthook, sys.excepthook = sys.excepthook, self._excepthook
        if self.world.size > 1 or not self.script:
            self._signals = _SignalWatch(self)
        return self

    def remove(self) -> None:
        """Undo `install`, and tell the others that this rank is through."""
        # Bound methods are made anew at each access: compare by equality
        if self._passing is None and sys.excepthook == self._excepthook:
            sys.excepthook = self._old_excepthook
        if self._signals is not None:
            self._signals.close()
            self._signals = None
        if self._comm is not None:
            if not _leaving:
                atexit.register(_finish_leaving)
            _leaving.append(self._comm.Ibarrier())

    __enter__ = install

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if error is None or (isinstance(error, Refusal) and error.agreed):
            self.remove()
        elif self.world.size == 1:
            self.remove()
            if not self.script and not isinstance(error, SystemExit):
                raise self._refusal(error) from error
        elif isinstance(error, SystemExit):
            self.remove()
            self._leave(error)
        elif self.script:
            self._passing = error
            self.remove()
        else:
            self.abort(self._sentence(error), self._code(error))

    def abort(self, sentence: str, code: int = 1) -> NoReturn:
        """Print the sentence if no other rank does, and end every process of the world."""
        with self._once:  # the second thread to come waits here until the process ends
            if self._comm is None:
                say(sentence)
            elif self._may_call_mpi():
                if self._claims():
                    say(sentence)
                else:
                    time.sleep(KILLED_SECONDS)
                self.world.comm.Abort(code or 1)
            elif self.world.rank == 0:
                say(sentence)
            os._exit(code or 1)

    def _claims(self) -> bool:
        """Whether this rank speaks. A rank that has heard of a failure is silent; the others tell everyone.

        Those tell at nearly the same time, so that within the grace time each hears of all, and the lowest speaks.
        """
        mpi, comm = import_mpi(), self._comm
        if comm.Iprobe(mpi.ANY_SOURCE, _TAG):
            return False
        told = [comm.Isend((bytearray(), mpi.BYTE), peer, _TAG) for peer in range(comm.size) if peer != comm.rank]
        heard, status, end = [], mpi.Status(), time.monotonic() + GRACE_SECONDS
        while time.monotonic() < end:
            mpi.Request.Testall(told)
            if comm.Iprobe(mpi.ANY_SOURCE, _TAG, status):
                comm.Recv((bytearray(), mpi.BYTE), status.source, _TAG)
                heard.append(status.source)
            else:
                time.sleep(0.01)
        return all(comm.rank < peer for peer in heard)

    def _leave(self, error: SystemExit) -> None:
        """Leave in the ordinary way if all ranks do."""
        end = time.monotonic() + LEAVE_SECONDS
        while not _leaving[-1].Test():
            if time.monotonic() > end:
                self.abort(self._sentence(error), self._code(error))
            time.sleep(0.01)

    def _excepthook(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._passing is not None and self._passing not in _chain(error):
            self._old_excepthook(kind, error, trace)
            return
        if not isinstance(error, Refusal | KeyboardInterrupt):
            self._old_excepthook(kind, error, trace)
        self.abort(self._sentence(error), self._code(error))

    def _may_call_mpi(self) -> bool:
        mpi = import_mpi()
        own = threading.current_thread() is threading.main_thread()
        return not mpi.Is_finalized() and (own or mpi.Query_thread() == mpi.THREAD_MULTIPLE)

    def _refusal(self, error: BaseException) -> Refusal:
        if isinstance(error, Refusal):
            return Refusal(str(error), code=error.code, agreed=True)
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"failed with {describe(error)}"
        return Refusal(what, code=self._code(error), agreed=True)

    def _sentence(self, error: BaseException) -> str:
        rank = f"rank {self.world.rank}"
        if isinstance(error, SystemExit):
            return f"{rank} left by sys.exit({error.code!r}) while others were still at work: all ranks are stopped"
        if isinstance(error, Refusal):
            return f"{rank}: {error}"
        return f"{rank} {self._refusal(error)}: all ranks are stopped"

    @staticmethod
    def _code(error: BaseException) -> int:
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) and error.code else 1
        return error.code if isinstance(error, Refusal) else 130 if isinstance(error, KeyboardInterrupt) else 1


class _SignalWatch:
    """A thread that hears of signals while the main thread is inside an MPI or OpenCL call and cannot."""

    def __init__(self, hook: AbortHook) -> None:
        self._hook = hook
        self._old: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        wanted = {signal.SIGTERM} if hook.script else {signal.SIGTERM, signal.SIGINT}
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in wanted:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                self._old[number] = signal.signal(number, lambda *_: None)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="aotato-signals")
        self._thread.start()

    def close(self) -> None:
        if threading.current_thread() is not threading.main_thread() or not hasattr(self, "_thread"):
            return
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _watch(self) -> None:
        while (number := os.read(self._read, 1)[0]) != 0:
            if number in self._old:
                name = signal.Signals(number).name
                self._hook.abort(f"stopped by {name}", 128 + number)


def _private_communicator(comm: Any) -> Any:
    """One duplicate for each communicator, however many bundles are loaded on it."""
    if not _keyval:
        _keyval.append(import_mpi().Comm.Create_keyval())
    private = comm.Get_attr(_keyval[0])
    if private is None:
        private = comm.Dup()
        comm.Set_attr(_keyval[0], private)
    return private


def _finish_leaving() -> None:
    if not import_mpi().Is_finalized():
        import_mpi().Request.Waitall(_leaving)


def _chain(error: BaseException | None) -> list[BaseException]:
    """The exception, what caused it, and what it was raised during."""
    found: list[BaseException] = []
    pending = [error]
    while pending:
        one = pending.pop()
        if one is not None and one not in found:
            found.append(one)
            pending += [one.__cause__, one.__context__]
    return found
