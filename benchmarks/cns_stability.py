"""Limits of the time step of the app `cns` beside its fits: `python cns_stability.py > results/cns_stability.json`.

Matrices of linear advection and of diffusion on a periodic box of a few cells; the longest step that keeps all
eigenvalues in the stability region of the Runge-Kutta scheme. A ratio above 1 is on the safe side.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend.apps._dg import elements, mesh
from aotato.frontend.apps._dg.domain import Domain, domains
from aotato.frontend.apps._flow import ldg, stability
from aotato.frontend.apps._flow.runge_kutta import STAGES

Array = np.ndarray[Any, Any]

ANGLES = (0.0, 0.3, 0.8, 2.0, 2.4)


@dataclass(frozen=True)
class Matrices:
    """Of a domain of N nodes and M face nodes: values inside and outside (M, N), derivatives (N, N), lift (N, M)."""

    inside: Array
    outside: Array
    derivative: list[Array]
    lift: Array
    normal: Array  # (M, dim)
    per_face: int


def matrices(domain: Domain) -> Matrices:
    element = domain.element
    count, nodes, dim = domain.nodes.shape
    faces = element.face_nodes.size
    per_face = element.face_nodes.shape[1]
    own = (np.arange(count)[:, None] * nodes + element.face_nodes.ravel()).ravel()
    identity = np.eye(count * nodes)
    local = np.zeros((nodes, faces)) if element.lift is None else element.lift
    if element.lift is None:
        assert element.lift_nodes is not None and element.lift_weights is not None
        for axis in range(dim):
            np.add.at(local, (np.arange(nodes), element.lift_nodes[:, axis]), element.lift_weights[:, axis])
    lift = np.zeros((count * nodes, count * faces))
    derivative = [np.zeros((count * nodes, count * nodes)) for _ in range(dim)]
    for i in range(count):
        place = slice(i * nodes, (i + 1) * nodes)
        lift[place, i * faces : (i + 1) * faces] = local * np.repeat(domain.scale[i], per_face)
        for axis in range(dim):
            derivative[axis][place, place] = np.einsum("r,rij->ij", domain.metric[i, :, axis], element.derivative)
    normal = np.repeat(domain.normals, per_face, axis=1).reshape(-1, dim)
    return Matrices(identity[own], identity[domain.outside.ravel()], derivative, lift, normal, per_face)


def advection(m: Matrices, velocity: Array, sound: bool) -> Array:
    """Upwind, or with the dissipation of waves that run in all directions."""
    speed = (m.normal @ velocity)[:, None]
    fastest = 1.0 if sound else np.abs(speed)
    agreed = 0.5 * speed * (m.inside + m.outside) + 0.5 * fastest * (m.inside - m.outside)
    inner = sum(v * d for v, d in zip(velocity, m.derivative, strict=True))
    return np.asarray(m.lift @ (speed * m.inside - agreed) - inner)


def diffusion(m: Matrices, domain: Domain, beta: float, tau: float) -> Array:
    found = ldg.weights(domain.side, domain.boundary >= 0, domain.h_face, domain.element.order, beta, tau)
    value, flux, penalty = (np.repeat(t, m.per_face, axis=1).reshape(-1, 1)
                            for t in (found.value, found.flux, found.penalty))
    normal = [m.normal[:, axis : axis + 1] for axis in range(m.normal.shape[1])]
    jump = m.outside - m.inside
    gradient = [d + m.lift @ (n * value * jump) for d, n in zip(m.derivative, normal, strict=True)]
    own = sum(n * (m.inside @ g) for n, g in zip(normal, gradient, strict=True))
    theirs = sum(n * (m.outside @ g) for n, g in zip(normal, gradient, strict=True))
    agreed = own + flux * (theirs - own) + penalty * jump
    inner = sum(d @ g for d, g in zip(m.derivative, gradient, strict=True))
    return np.asarray(inner - m.lift @ (own - agreed))


def longest_step(matrix: Array) -> float:
    """By bisection."""
    values = np.linalg.eigvals(matrix)
    low, high = 0.0, 20 / np.abs(values).max()
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if growth(values * middle).max() <= 1 + 1e-7 else (low, middle)
    return low


def growth(z: Array) -> Array:
    """Of one step of q' = z q."""
    q, kept = np.ones_like(z), np.zeros_like(z)
    for a, b, _ in STAGES:
        kept = a * kept + z * q
        q = q + b * kept
    return np.abs(q)


def limits(cell: str, order: int, beta: float, tau: float) -> dict[str, float]:
    """The longest step that the eigenvalues allow, over the one that `stability` does."""
    dim = elements.DIMENSIONS[cell]
    (domain,) = domains(mesh.box((3,) * dim if dim == 2 else (2,) * dim, periodic=True, cell=cell),
                        elements.element(cell, order), 1)
    m, height = matrices(domain), domain.height.min()
    directions = [np.array([np.cos(angle), np.sin(angle), 0.5])[:dim] for angle in ANGLES]
    wave = min(longest_step(advection(m, v / np.linalg.norm(v), sound)) for v in directions for sound in (False, True))
    rub = longest_step(diffusion(m, domain, beta, tau))
    return {"waves": float(wave * stability.waves(cell, order) / height),
            "friction": float(rub * stability.friction(cell, order, beta, tau) / height**2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", default="1,2,3,4,5")
    parser.add_argument("--cells", default="tri,quad,tet,hex")
    chosen = parser.parse_args()
    rows = []
    for cell in chosen.cells.split(","):
        for order in map(int, chosen.orders.split(",")):
            if elements.DIMENSIONS[cell] == 3 and order > 3:
                continue  # matrices too large for a benchmark
            for beta, tau in ((0.5, 0.0), (0.5, 1.0), (0.0, 1.0)):
                found = {"cell": cell, "order": order, "beta": beta, "tau": tau, **limits(cell, order, beta, tau)}
                print(found, file=sys.stderr, flush=True)
                rows.append(found)
    print(json.dumps({"command": " ".join(sys.argv), "limits": rows}, indent=1))


if __name__ == "__main__":
    main()
