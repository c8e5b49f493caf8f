"""The five-stage fourth-order Runge-Kutta scheme in two arrays of storage.

M. H. Carpenter and C. A. Kennedy, Fourth-Order 2N-Storage Runge-Kutta Schemes, NASA TM 109112 (1994), "solution 3".
Stage k: residual = A[k] residual + dt rate(q, t + C[k] dt); q = q + B[k] residual.
"""

from __future__ import annotations

A = (
    0.0,
    -567301805773 / 1357537059087,
    -2404267990393 / 2016746695238,
    -3550918686646 / 2091501179385,
    -1275806237668 / 842570457699,
)
B = (
    1432997174477 / 9575080441755,
    5161836677717 / 13612068292357,
    1720146321549 / 2090206949498,
    3134564353537 / 4481467310338,
    2277821191437 / 14882151754819,
)
C = (
    0.0,
    1432997174477 / 9575080441755,
    2526269341429 / 6820363962896,
    2006345519317 / 3224310063776,
    2802321613138 / 2924317926251,
)
STAGES = tuple(zip(A, B, C, strict=True))
