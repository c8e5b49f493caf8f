"""Time one viscous DG Runge-Kutta stage: `python dg_stage.py --cells 56 --target gpu`.

A conservation law of five variables on affine tetrahedra with gradients by central fluxes, viscous and inviscid
fluxes, a dissipative face flux, and the 2N-storage update: the traffic and arithmetic of compressible Navier-Stokes.
DOF = elements x nodes x variables. Prints JSON; the floor is the larger of bytes over bandwidth and flops over rate,
kernel by kernel. `cpu_ms` is what all threads of this process take, the kernels of PoCL included (one thread with
POCL_MAX_PTHREAD_COUNT=1): on a machine that others use too, it says more than `ms`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt
from dg_mesh import Mesh, Piece, box, lattice

import aotato
from aotato.emit import target
from aotato.frontend import array_input, make_distributed_recv, staple_distributed_send, take
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

VARIABLES = 5


def stage(mesh: Mesh, order: int, piece: Piece | None = None) -> dict[str, Any]:
    """Outputs `q_new` and `residual_new` of one stage, from inputs `q`, `residual` and scalars.

    With a piece, `mesh` is its own: states are exchanged, then viscous fluxes along the normals.
    """
    n, m = len(lattice(order)), len(mesh.face_nodes)
    elements = len(mesh.outside)
    rng = np.random.default_rng(0)
    wrap = pt.make_data_wrapper
    derivative, lift = wrap(rng.standard_normal((3, n, n)) / n), wrap(rng.standard_normal((n, m)) / m)
    metric, normals = wrap(mesh.inverse_metric), wrap(mesh.scaled_normals)
    inner_nodes, outer_nodes = wrap(mesh.face_nodes.astype(np.int32)), wrap(mesh.outside.astype(np.int32))
    q = array_input("q", (VARIABLES, elements, n), "float64")
    residual = array_input("residual", (VARIABLES, elements, n), "float64")
    a, b, dt = (array_input(name, (), "float64", default=0.0) for name in ("a", "b", "dt"))
    normal = take(normals, wrap(np.repeat(np.arange(4, dtype=np.int32), m // 4)), axis=1)
    direction = [normal[:, :, d] for d in range(3)]

    def inside(x: Any) -> Any:
        return take(x, inner_nodes, axis=1)

    def local(x: Any) -> Any:
        return take(pt.reshape(x, (elements * n,)), outer_nodes, axis=0)

    def physical(reference: Any, axes: str) -> Any:
        return pt.einsum(f"erd,r{axes}->d{axes}", metric, reference)

    def along(flux: list[list[Any]], restrict: Any, v: int) -> Any:
        return sum(direction[d] * restrict(flux[d][v]) for d in range(3))

    states = [q[v] for v in range(VARIABLES)]
    ghosts = Ghosts(piece)
    outer = ghosts.joined("state", [local(s) for s in states], states)
    mean = pt.stack([0.5 * (o - inside(s)) for o, s in zip(outer, states, strict=True)], axis=0)
    lifted = pt.einsum("ik,ekd,vek->dvei", lift, normal, mean)
    gradient = physical(pt.einsum("rij,vej->rvei", derivative, q), "vei") + lifted
    flux = viscous_flux(states, gradient)
    stacked = pt.stack([pt.stack(row, axis=0) for row in flux], axis=0)
    stored = [[stacked[d, v] for v in range(VARIABLES)] for d in range(3)]
    inner_viscous = [along(stored, inside, v) for v in range(VARIABLES)]
    outer_viscous = [along(stored, local, v) for v in range(VARIABLES)]
    # A peer's normals point the other way; no mass diffuses
    outer_viscous[1:] = ghosts.joined("viscous", outer_viscous[1:], inner_viscous[1:], faces=True)
    total = pt.stack([pt.stack([euler(states, d, v) - flux[d][v] for v in range(VARIABLES)], axis=0)
                      for d in range(3)], axis=0)
    volume = pt.einsum("rij,rvej->vei", derivative, pt.einsum("erd,dvej->rvej", metric, total))
    inner = [inside(s) for s in states]
    face = pt.stack([face_flux(inner, outer, outer_viscous[v] - inner_viscous[v], direction, v)
                     for v in range(VARIABLES)], axis=0)
    rhs = volume - pt.einsum("ik,vek->vei", lift, face)
    residual_new = ghosts.sent(a * residual + dt * rhs)
    return {"q_new": q + b * residual_new, "residual_new": residual_new}


class Ghosts:
    """Values that lie on other ranks: one message to and from each peer."""

    def __init__(self, piece: Piece | None) -> None:
        self.piece = piece
        self.sends: list[tuple[Any, int, str]] = []

    def joined(self, tag: str, local: list[Any], own: list[Any], faces: bool = False) -> list[Any]:
        """`local` at face nodes, or what the peer sends: `own` at nodes; `faces`: minus `own` at face nodes."""
        piece = self.piece
        if piece is None or not piece.peers:
            return local
        for peer in piece.peers:
            picks = pt.make_data_wrapper((piece.face_sends if faces else piece.sends)[peer].astype(np.int32))
            flat = [take(pt.reshape(x, (int(np.prod(x.shape)),)), picks, axis=0) for x in own]
            self.sends.append((pt.stack(flat, axis=1), peer, tag))
        parts = [make_distributed_recv(p, tag, (count, len(own)), "float64") for p, count in piece.peers.items()]
        ghost = pt.concatenate(parts, axis=0)
        where, mask = pt.make_data_wrapper(piece.ghost.astype(np.int32)), pt.make_data_wrapper(piece.ghosts)
        theirs = [take(ghost[:, v], where, axis=0) for v in range(len(own))]
        return [pt.where(mask, -t if faces else t, x) for t, x in zip(theirs, local, strict=True)]

    def sent(self, x: Any) -> Any:
        """`x`, with all messages tied to it."""
        for data, peer, tag in self.sends:
            x = staple_distributed_send(data, peer, tag, stapled_to=x)
        return x


def euler(q: list[Any], d: int, v: int) -> Any:
    """The inviscid flux of variable v in direction d of an ideal gas; q = (rho, E, momentum)."""
    velocity = q[2 + d] / q[0]
    kinetic = 0.5 * (q[2] * q[2] + q[3] * q[3] + q[4] * q[4]) / q[0]
    pressure = 0.4 * (q[1] - kinetic)
    if v == 1:
        return (q[1] + pressure) * velocity
    return q[v] * velocity + pressure if v == 2 + d else q[v] * velocity


def viscous_flux(q: list[Any], gradient: Any) -> list[list[Any]]:
    """Stress and heat flux with constant coefficients: [direction][variable]; nothing for the mass."""
    mu, kappa = 1e-2, 2e-2
    u = [q[2 + i] / q[0] for i in range(3)]
    energy = q[1] / q[0]
    du = [[(gradient[d, 2 + i] - u[i] * gradient[d, 0]) / q[0] for i in range(3)] for d in range(3)]
    divergence = (du[0][0] + du[1][1] + du[2][2]) * (2 / 3)
    stress = [[mu * (du[d][i] + du[i][d]) - (mu * divergence if d == i else 0.0) for i in range(3)] for d in range(3)]
    heat = [(gradient[d, 1] - energy * gradient[d, 0]) / q[0] - (u[0] * du[d][0] + u[1] * du[d][1] + u[2] * du[d][2])
            for d in range(3)]
    work = [stress[d][0] * u[0] + stress[d][1] * u[1] + stress[d][2] * u[2] + kappa * heat[d] for d in range(3)]
    return [[0 * q[0], work[d], *stress[d]] for d in range(3)]


def face_flux(inner: list[Any], outer: list[Any], viscous: Any, direction: list[Any], v: int) -> Any:
    """Half the jump of the flux along the normal, `viscous` its viscous part, and dissipation by the fastest wave."""

    def along(states: list[Any]) -> Any:
        return sum(direction[d] * euler(states, d, v) for d in range(3))

    def speed(s: list[Any]) -> Any:
        normal = (s[2] * direction[0] + s[3] * direction[1] + s[4] * direction[2]) / s[0]
        size = pt.sqrt(direction[0] * direction[0] + direction[1] * direction[1] + direction[2] * direction[2])
        kinetic = 0.5 * (s[2] * s[2] + s[3] * s[3] + s[4] * s[4]) / s[0]
        return abs(normal) + size * pt.sqrt(1.4 * 0.4 * (s[1] - kinetic) / s[0])

    fastest = pt.maximum(speed(inner), speed(outer))
    return 0.5 * (along(outer) - along(inner) - viscous + fastest * (inner[v] - outer[v]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=8, help="cubes along each side; six tetrahedra a cube")
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--contract", action="store_true", help="let the device fuse multiplications and additions")
    parser.add_argument("--fast", action="store_true", help="algebra that changes rounding")
    parser.add_argument("--calls", type=int, default=20, help="calls in a timed block")
    parser.add_argument("--blocks", type=int, default=7, help="timed blocks; the median counts")
    parser.add_argument("--bandwidth", type=float, default=4.28e12, help="bytes per second, for the floor")
    parser.add_argument("--flops", type=float, default=33e12, help="double-precision operations per second")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=N", help="change the target: accumulators=60")
    chosen = parser.parse_args()
    changes = {name: int(number) for name, number in (item.split("=") for item in chosen.set)}
    target.TARGETS[chosen.target] = dataclasses.replace(target.TARGETS[chosen.target], **changes)
    mesh = box(chosen.cells, chosen.order)
    elements, n = len(mesh.outside), len(lattice(chosen.order))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        path = aotato.build(stage(mesh, chosen.order), path=Path(folder, "stage.h5"), targets=chosen.target,
                            contract=chosen.contract, algebra="fast" if chosen.fast else "exact")
        build = time.monotonic() - begin
        with Bundle.open(path) as bundle:
            row = report(bundle)["entries"]["step"]["per_rank"][0]
            launches = bundle.schedule("step", chosen.target, 0).launches
        begin = time.monotonic()
        seconds, cpu, device = timed(path, chosen, (VARIABLES, elements, n))
    floor = sum(max((k["bytes_read"] + k["bytes_written"]) / chosen.bandwidth, k["flops"] / chosen.flops)
                for k in row["kernels"])
    dof = elements * n * VARIABLES
    print(json.dumps({
        "command": " ".join(sys.argv), "device": device, "elements": elements, "order": chosen.order,
        "launches": row["launches"], "ms": 1e3 * seconds, "GDOF/s": dof / seconds / 1e9,
        "cpu_ms": 1e3 * cpu, "cpu_GDOF/s": dof / cpu / 1e9,
        "floor_ms": 1e3 * floor, "build_s": round(build, 1), "start_s": round(time.monotonic() - begin, 1),
        "kernels": [{key: k[key] / (1 if key == "local_bytes" else elements)
                     for key in ("bytes_read", "bytes_written", "flops", "local_bytes")} for k in row["kernels"]],
        "groups": [launch.local_size[0] for launch in launches],
        "versions": {p: importlib.metadata.version(p) for p in ("aotato", "pytato", "loopy", "numpy", "pyopencl")},
    }, indent=1))


def timed(path: Path, chosen: argparse.Namespace, shape: tuple[int, ...]) -> tuple[float, float, str]:
    """Median seconds of a call, state on the device: of the clock, and of this process's threads."""
    rng = np.random.default_rng(1)
    q = 1 + 0.1 * rng.random(shape)
    q[1] += 2
    with aotato.load(path, target=chosen.target) as program:
        program.call("step", q=q, residual=np.zeros(shape), dt=np.float64(1e-6), b=np.float64(0.1))
        times, busy = [], []
        for _ in range(chosen.blocks):
            program.queue.finish()
            begin, own = time.monotonic(), time.process_time()
            for _ in range(chosen.calls):
                program.perform("step")
            program.queue.finish()
            times.append((time.monotonic() - begin) / chosen.calls)
            busy.append((time.process_time() - own) / chosen.calls)
        return statistics.median(times), statistics.median(busy), program.device.name.strip()


if __name__ == "__main__":
    main()
