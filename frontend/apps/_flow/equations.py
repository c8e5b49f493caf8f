"""Compressible Euler and Navier-Stokes equations on one rank, discretised in space.

With q = (density, momentum, energy), dq/dt = lift(F . normal - F*) - divergence(F), where F is the inviscid flux minus
the viscous one and F* the numerical flux through faces: J. S. Hesthaven and T. Warburton, Nodal Discontinuous Galerkin
Methods (2008), chapters 6 and 7. Two exchanges between ranks: states, then viscous fluxes along the normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytato as pt

from aotato.frontend.apps._dg.operators import Operators
from aotato.frontend.apps._dg.overintegration import Overintegration
from aotato.frontend.apps._flow import ldg
from aotato.frontend.apps._flow.boundaries import Boundary, Face
from aotato.frontend.apps._flow.case import Case
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values, dot, spread
from aotato.frontend.apps._flow.gas import State
from aotato.frontend.apps._flow.inviscid import NumericalFlux, along, euler
from aotato.frontend.apps._flow.viscous import differentiated, viscous_flux

Array = Any  # of pytato


@dataclass(frozen=True)
class Equations:
    """`beta` and `tau` as in `ldg`; `viscous` false means Euler. Nodal arrays are (E, n), face arrays (E, K)."""

    ops: Operators
    flow: Flow
    case: Case
    flux: NumericalFlux
    viscous: bool
    beta: float
    tau: float
    fine: Overintegration | None = None  # where inviscid fluxes are integrated; None: at nodes

    def initial(self) -> Array:
        """The case's first state, (variables, E, n)."""
        x = self.ops.coordinates
        state = self.case.initial(x, self.flow)
        return pt.stack([spread(row, x[0]) for row in self.flow.gas.conserved(state)])

    def rate(self, q: Array, t: Values) -> Array:
        """dq/dt, (variables, E, n)."""
        across = self._neighbours(q)
        inviscid = None if self.fine is None else self._integrated(self.fine, q, across, t)
        rate = self._rate(q, across, t) if inviscid is None else self._with_friction(inviscid, q, across, t)
        if self.case.source is None:
            return rate
        source = self.case.source(self.ops.coordinates, t, self.flow)
        return rate + pt.stack([spread(row, q[0]) for row in source])

    def gradient(self, q: Array, t: Values) -> list[list[Array]]:
        """Derivatives of velocity and temperature along each axis: [axis][velocity..., temperature], (E, n)."""
        inner = self._inside(q)
        return self._gradient(self.flow.gas.state(_rows(q)), inner, self._values(self._neighbours(q), inner, t))

    def _rate(self, q: Array, across: Array, t: Values) -> Array:
        """Inviscid fluxes at nodes, and viscous ones."""
        gas, ops, inner = self.flow.gas, self.ops, self._inside(q)
        state, outer = gas.state(_rows(q)), self._outside(across, inner, self._face(t), ops)
        flux = [euler(state, d, gas) for d in range(ops.dim)]
        own = along(inner, ops.normal, gas)
        jump = _minus(own, self.flux(inner, outer, ops.normal, gas))
        if self.viscous:
            friction, dragged = self._friction(q, across, t)
            flux = [[row[0], *_minus(row[1:], rows)] for row, rows in zip(flux, friction, strict=True)]
            jump = [jump[0], *_minus(jump[1:], dragged)]
        return self._strong(flux, jump)

    def _integrated(self, fine: Overintegration, q: Array, across: Array, t: Values) -> Array:
        """What inviscid fluxes at the points of `fine` bring."""
        gas = self.flow.gas
        state = gas.state(_rows(fine.values(q)))
        inner = gas.state(_rows(fine.traces(self.ops.inside(q))))
        outer = self._outside(fine.traces(across), inner, Face(fine.normal, fine.face_coordinates, t, self.flow), fine)
        flux = [pt.stack(euler(state, d, gas)) for d in range(self.ops.dim)]
        return fine.rate(pt.stack(flux), pt.stack(self.flux(inner, outer, fine.normal, gas)))

    def _with_friction(self, inviscid: Array, q: Array, across: Array, t: Values) -> Array:
        if not self.viscous:
            return inviscid
        friction, dragged = self._friction(q, across, t)
        taken = self._strong(friction, dragged)
        return pt.stack([inviscid[0], *_minus(_rows(inviscid)[1:], _rows(taken))])

    def _strong(self, flux: list[list[Array]], jump: list[Array]) -> Array:
        """The rate from a flux [axis][row] and what the cell's own through faces has more than the numerical one."""
        return self.ops.lift(pt.stack(jump)) - self.ops.divergence(pt.stack([pt.stack(rows) for rows in flux]))

    def _friction(self, q: Array, across: Array, t: Values) -> tuple[list[list[Array]], list[Array]]:
        """The viscous flux [axis][row] and its jump, as `_strong` takes them; momentum and energy."""
        gas, inner = self.flow.gas, self._inside(q)
        state, values = gas.state(_rows(q)), self._values(across, inner, t)
        friction = viscous_flux(state, self._gradient(state, inner, values), gas)
        return friction, self._viscous_jump(friction, inner, values, t)

    def _inside(self, q: Array) -> State:
        return self.flow.gas.state(_rows(self.ops.inside(q)))

    def _neighbours(self, q: Array) -> Array:
        """Conserved variables across faces, (variables, E, K)."""
        return self.ops.outside(q, self.ops.exchange(q, "state"))

    def _outside(self, across: Array, inner: State, face: Face, at: Operators | Overintegration) -> State:
        """The state across each face, a condition's on boundaries."""
        outer = self.flow.gas.state(_rows(across))
        conditions = self._conditions()
        if not conditions:
            return outer
        given = {name: _listed(condition.outside(inner, face)) for name, condition in conditions.items()}
        density, *velocity, pressure = _selected(given, _listed(outer), at)
        return State(density, tuple(velocity), pressure)

    def _values(self, across: Array, inner: State, t: Values) -> list[Array]:
        """Velocity and temperature across each face, as gradients take them."""
        values = differentiated(self.flow.gas.state(_rows(across)), self.flow.gas)
        face = self._face(t)
        given = {name: condition.trace(inner, face) for name, condition in self._conditions().items()}
        return _selected(given, values, self.ops)

    def _gradient(self, state: State, inner: State, outer_values: Sequence[Array]) -> list[list[Array]]:
        gas, ops = self.flow.gas, self.ops
        values = pt.stack(differentiated(state, gas))
        jumps = _minus(outer_values, differentiated(inner, gas))
        taken = ops.faces(self._weights().value)
        inside = ops.gradient(values)
        found = []
        for d, normal in enumerate(ops.normal):
            lifted = ops.lift(pt.stack([taken * normal * jump for jump in jumps]))
            found.append([inside[d, v] + lifted[v] for v in range(len(jumps))])
        return found

    def _viscous_jump(self, friction: list[list[Array]], inner: State, outer_values: Sequence[Array],
                      t: Values) -> list[Array]:
        """The viscous flux through each face of the cell's own, minus the numerical one, of momentum and energy."""
        ops, gas, weights = self.ops, self.flow.gas, self._weights()
        rows = [pt.stack([axis[k] for axis in friction]) for k in range(len(friction[0]))]
        own = [dot(_rows(ops.inside(row)), ops.normal) for row in rows]
        ghost = ops.exchange_faces(pt.stack(own), "viscous flux")
        local = pt.stack([dot(_rows(ops.outside(row, None)), ops.normal) for row in rows])
        theirs = _rows(ops.outside_faces(local, None if ghost is None else -ghost))
        agreed = ldg.numerical_flux(own, theirs, ops.faces(weights.flux))
        factor = ops.faces(weights.penalty)
        agreed = _minus(agreed, ldg.penalty(differentiated(inner, gas), outer_values, factor, gas))
        conditions = self._conditions()
        if conditions:
            face = self._face(t)
            agreed = _selected({name: b.through(agreed, face) for name, b in conditions.items()}, agreed, ops)
        return _minus(own, agreed)

    def _weights(self) -> ldg.Weights:
        domain = self.ops.domain
        return ldg.weights(domain.side, domain.boundary >= 0, domain.h_face, domain.element.order, self.beta, self.tau)

    def _conditions(self) -> Mapping[str, Boundary]:
        """Of the boundaries that this rank has faces on."""
        if self.case.boundaries is None:
            return {}
        known, on = self.ops.domain.boundaries, self.ops.on
        found = self.case.boundaries(self.flow).items()
        return {name: condition for name, condition in found if name in known and on(name) is not None}

    def _face(self, t: Values) -> Face:
        return Face(self.ops.normal, self.ops.face_coordinates, t, self.flow)


def _selected(values: Mapping[str, Sequence[Values]], otherwise: Sequence[Array], at: Operators | Overintegration
              ) -> list[Array]:
    return [at.select({name: spread(rows[v], array) for name, rows in values.items()}, array)
            for v, array in enumerate(otherwise)]


def _rows(q: Array) -> list[Array]:
    return [q[v] for v in range(q.shape[0])]


def _listed(state: State) -> list[Values]:
    return [state.density, *state.velocity, state.pressure]


def _minus(first: Sequence[Array], second: Sequence[Array]) -> list[Array]:
    return [a - b for a, b in zip(first, second, strict=True)]
