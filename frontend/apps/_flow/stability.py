"""How long a time step may be: limits of the scheme of `runge_kutta` for waves and for friction, by cell and order.

Fits from above to eigenvalues of linear advection with the dissipation of sound in all directions, and of diffusion by
`ldg`, in periodic boxes (`benchmarks/cns_stability.py` prints both). Lengths are least heights of cells.
"""

from __future__ import annotations

REAL_LIMIT = 4.65  # of the stability region, along the negative real axis

# Steps for a wave to cross a cell: a + b order + c order^2
_WAVES = {
    "tri": (1.0, 0.9, 0.25),
    "quad": (0.32, 0.64, 0.32),
    "tet": (1.3, 2.3, 0.1),
    "hex": (0.42, 0.84, 0.42),
}
# Largest eigenvalue of diffusion, times height^2 over the diffusivity: (order + 1)^3 (a + b order) at beta = 1/2
_FRICTION = {"tri": (9.6, 1.0), "quad": (0.0, 3.0), "tet": (24.0, 0.3), "hex": (0.0, 4.4)}


def waves(cell: str, order: int) -> float:
    """At CFL number 1, steps are height / (waves speed)."""
    a, b, c = _WAVES[cell]
    return a + b * order + c * order**2


def friction(cell: str, order: int, beta: float, tau: float) -> float:
    """At CFL number 1, steps are height^2 / (friction diffusivity)."""
    a, b = _FRICTION[cell]
    largest = (order + 1) ** 3 * (a + b * order)
    # With beta = 0 a fraction of it; penalties add to both
    return largest * (0.4 + 1.2 * abs(beta) + 1.4 * tau) / REAL_LIMIT
