"""What is fed back: received arrays, arrays reduced over ranks, swapped values; on real ranks, step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import aotato
from aotato.frontend import Call, Plan, allreduce, array_input, make_distributed_recv, staple_distributed_send
from aotato.runtime_stub import plan_data
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.verify import verify
from mpi import mpiexec


def module(step: Any, carry: dict[str, str]) -> ModuleType:
    app = ModuleType("fed_back")
    step.__name__ = "step"
    app.ENTRIES = (step,)  # type: ignore[attr-defined]
    app.plan = lambda opt: Plan(step=(Call("step"),), carry=carry)  # type: ignore[attr-defined]
    return app


def received(rank: int, size: int, opt: Any, data: Any) -> dict[str, Any]:
    u = array_input("u", (4,), "float64", default=np.arange(4) + 10.0 * rank)
    arrived = make_distributed_recv(1 - rank, "u", (4,), "float64")
    return {"u": staple_distributed_send(u + 1, 1 - rank, "u", arrived), "w": u + 100 * arrived}


def summed(rank: int, size: int, opt: Any, data: Any) -> dict[str, Any]:
    return {"u": allreduce(array_input("u", (4,), "float64", default=np.arange(4.0)) + rank, "sum")}


def swapped(rank: int, size: int, opt: Any, data: Any) -> dict[str, Any]:
    s, q = (array_input(name, (), "float64", default=value) for name, value in (("s", 1.0), ("q", 2.0)))
    x, y = (array_input(name, (3,), "float64", default=np.full(3, value)) for name, value in (("x", 3.0), ("y", 4.0)))
    return {"s": q, "q": s, "x": y, "y": x, "out": s + 10 * q + 100 * x + 1000 * y}


PROGRAMS = {
    "received": (received, {"u": "u"}),
    "summed": (summed, {"u": "u"}),
    "swapped": (swapped, {"s": "s", "q": "q", "x": "x", "y": "y"}),
}


def expected(name: str, steps: int) -> list[dict[str, Any]]:
    """By hand: outputs of the last of `steps` steps on ranks 0 and 1."""
    if name == "received":
        u = [np.arange(4) + 10.0 * rank for rank in range(2)]
        for _ in range(steps):
            arrived = [u[1 - rank] + 1 for rank in range(2)]
            w = [u[rank] + 100 * arrived[rank] for rank in range(2)]
            u = arrived
        return [{"u": u[rank], "w": w[rank]} for rank in range(2)]
    if name == "summed":
        v = np.arange(4.0)
        for _ in range(steps):
            v = 2 * v + 1
        return [{"u": v}, {"u": v}]
    s, q, x, y = (1.0, 2.0, 3.0, 4.0) if steps % 2 else (2.0, 1.0, 4.0, 3.0)
    ones = np.ones(3)
    return [{"s": q, "q": s, "x": y * ones, "y": x * ones, "out": (s + 10 * q + 100 * x + 1000 * y) * ones}] * 2


def main() -> None:
    """Run every bundle of a folder for 1, 3 and 5 further steps, comparing after each."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    for name in PROGRAMS:
        with aotato.load(Path(sys.argv[1], f"{name}.h5"), comm=comm, target=sys.argv[2]) as program:
            done = 0
            for more in (1, 2, 2):
                program.run(steps=more)
                done += more
                for path, value in expected(name, done)[comm.rank].items():
                    np.testing.assert_array_equal(program.outputs("step")[path], value, f"{name}.{path}, step {done}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where: Path = tmp_path_factory.mktemp("carry")
    for name, (step, carry) in PROGRAMS.items():
        aotato.build(module(step, carry), ranks=2, path=where / f"{name}.h5")
    return where


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_steps_feed_their_outputs_back(folder: Path, target: str) -> None:
    result = mpiexec(2, [Path(__file__), folder, target])
    assert result.returncode == 0, result.stderr


def test_verify_proves_the_carries_too(folder: Path) -> None:
    for name in PROGRAMS:
        with Bundle.open(folder / f"{name}.h5") as bundle:
            plan = plan_data.of(bundle.meta)
            assert plan is not None
            assert verify(bundle, {"step": plan.carried("step")})


if __name__ == "__main__":
    main()
