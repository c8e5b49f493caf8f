"""Taylor-Green vortex by a pseudo-spectral method: `python taylor_green_spectral.py --points 64 > reference.json`.

Compressible Navier-Stokes with constant viscosity in conservative variables on a periodic cube [-pi, pi]^3: Fourier
collocation, all fluxes truncated to two thirds of the wave numbers, the classical fourth-order Runge-Kutta scheme.
Prints JSON: time, E = integral of rho |u|^2 / 2 and Z = integral of rho |vorticity|^2 / 2. An independent reference
for `taylor_green.py`: it shares no code with the app.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
PAIRS = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]  # of the symmetric momentum flux


@dataclass(frozen=True)
class Flow:
    """A gas with density and velocity 1 at infinity, gas constant 1; length is the box's edge over 2 pi."""

    points: int
    reynolds: float = 100.0
    mach: float = 0.1
    gamma: float = 1.4
    prandtl: float = 0.71
    waves: list[Array] = field(init=False)
    kept: Array = field(init=False)  # which wave numbers survive dealiasing

    def __post_init__(self) -> None:
        whole = np.fft.fftfreq(self.points, 1 / self.points)
        half = np.arange(self.points // 2 + 1.0)
        waves = list(np.meshgrid(whole, whole, half, indexing="ij", sparse=True))
        object.__setattr__(self, "waves", waves)
        kept = np.broadcast_arrays(*(abs(k) < self.points / 3 for k in waves))
        object.__setattr__(self, "kept", np.all(kept, axis=0))

    @property
    def pressure(self) -> float:
        return 1 / (self.gamma * self.mach**2)

    def spectrum(self, values: Array) -> Array:
        return np.asarray(np.fft.rfftn(values) * self.kept)

    def values(self, spectrum: Array) -> Array:
        return np.asarray(np.fft.irfftn(spectrum, (self.points,) * 3, axes=(0, 1, 2)))

    def gradient(self, values: Array) -> list[Array]:
        spectrum = np.fft.rfftn(values)
        return [self.values(1j * k * spectrum * self.kept) for k in self.waves]


def start(flow: Flow) -> list[Array]:
    """Spectra of density, momentum and total energy; the temperature is uniform."""
    line = -np.pi + 2 * np.pi * np.arange(flow.points) / flow.points
    x, y, z = np.meshgrid(line, line, line, indexing="ij", sparse=True)
    u = [np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * (x + y + z)]
    pressure = flow.pressure + (np.cos(2 * x) + np.cos(2 * y)) * (np.cos(2 * z) + 2) / 16
    density = pressure / flow.pressure
    energy = pressure / (flow.gamma - 1) + density * sum(c * c for c in u) / 2
    return [flow.spectrum(a) for a in (density, *(density * c for c in u), energy)]


def rate(state: list[Array], flow: Flow) -> list[Array]:
    """Time derivatives of the spectra."""
    density, *momentum, energy = (flow.values(s) for s in state)
    u = [m / density for m in momentum]
    pressure = (flow.gamma - 1) * (energy - sum(m * c for m, c in zip(momentum, u, strict=True)) / 2)
    viscosity = 1 / flow.reynolds
    conductivity = viscosity * flow.gamma / ((flow.gamma - 1) * flow.prandtl)  # times the gas constant, 1
    du = [flow.gradient(c) for c in u]
    heat = [conductivity * g for g in flow.gradient(pressure / density)]
    dilatation = (du[0][0] + du[1][1] + du[2][2]) * (2 / 3)
    stress: dict[tuple[int, int], Array] = {}
    flux: dict[tuple[int, int], Array] = {}
    for i, j in PAIRS:
        shear = viscosity * (du[i][j] + du[j][i] - (dilatation if i == j else 0))
        stress[i, j] = stress[j, i] = shear
        whole = momentum[i] * u[j] + (pressure if i == j else 0) - shear
        flux[i, j] = flux[j, i] = flow.spectrum(whole)
    work = [sum(stress[i, j] * u[j] for j in range(3)) + heat[i] for i in range(3)]
    transport = [flow.spectrum((energy + pressure) * u[i] - work[i]) for i in range(3)]

    def divergence(rows: list[Array]) -> Array:
        return np.asarray(-1j * sum(k * row for k, row in zip(flow.waves, rows, strict=True)))

    rates = [divergence(state[1:4])]
    rates += [divergence([flux[i, j] for j in range(3)]) for i in range(3)]
    return [*rates, divergence(transport)]


def advance(state: list[Array], dt: float, flow: Flow) -> list[Array]:
    """One step of the classical Runge-Kutta scheme."""
    total = [0 * s for s in state]
    slope = rate(state, flow)
    for weight, reach in ((1 / 6, 0.5), (1 / 3, 0.5), (1 / 3, 1.0), (1 / 6, None)):
        total = [t + weight * s for t, s in zip(total, slope, strict=True)]
        if reach is not None:
            slope = rate([q + reach * dt * s for q, s in zip(state, slope, strict=True)], flow)
    return [q + dt * t for q, t in zip(state, total, strict=True)]


def integrals(state: list[Array], flow: Flow) -> tuple[float, float]:
    """Kinetic energy and enstrophy of the box."""
    density, *momentum, _ = (flow.values(s) for s in state)
    u = [m / density for m in momentum]
    du = [flow.gradient(c) for c in u]
    curl = [du[2][1] - du[1][2], du[0][2] - du[2][0], du[1][0] - du[0][1]]
    cell = (2 * np.pi / flow.points) ** 3
    return (float((density * sum(c * c for c in u)).sum() * cell / 2),
            float((density * sum(c * c for c in curl)).sum() * cell / 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=64, help="points along each edge")
    parser.add_argument("--until", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=20, help="steps in 0.1 units of time")
    chosen = parser.parse_args()
    flow = Flow(chosen.points)
    state, rows = start(flow), []
    for sample in range(round(10 * chosen.until) + 1):
        rows.append((sample / 10, *integrals(state, flow)))
        print(f"t = {rows[-1][0]:.1f}, E = {rows[-1][1]:.9f}, Z = {rows[-1][2]:.9f}", file=sys.stderr, flush=True)
        if sample < round(10 * chosen.until):
            for _ in range(chosen.steps):
                state = advance(state, 0.1 / chosen.steps, flow)
    time, energy, enstrophy = zip(*rows, strict=True)
    print(json.dumps({"command": " ".join(sys.argv), "points": flow.points, "reynolds": flow.reynolds,
                      "mach": flow.mach, "gamma": flow.gamma, "prandtl": flow.prandtl,
                      "steps_per_time": 10 * chosen.steps, "time": time, "kinetic_energy": energy,
                      "enstrophy": enstrophy}, indent=1))


if __name__ == "__main__":
    main()
