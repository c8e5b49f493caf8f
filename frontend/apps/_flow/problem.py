"""What all entries of the app share: the mesh in pieces, one for each rank, and the equations on a piece."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend import AppError, View, array_input, vtk_node_order
from aotato.frontend.apps._dg import elements, mesh
from aotato.frontend.apps._dg.domain import Domain, domains
from aotato.frontend.apps._dg.operators import Operators
from aotato.frontend.apps._dg.overintegration import Overintegration
from aotato.frontend.apps._flow.equations import Equations
from aotato.frontend.apps._flow.flow import Flow, reference_pressure
from aotato.frontend.apps._flow.gas import Gas
from aotato.frontend.apps._flow.inviscid import FLUXES
from aotato.frontend.apps._flow.options import Settings, settle

VTK_CELLS = {"tri": "triangle", "quad": "quad", "tet": "tet", "hex": "hex"}


@dataclass(frozen=True)
class Problem:
    """Made once for all ranks."""

    settings: Settings
    domains: tuple[Domain, ...]

    def equations(self, rank: int, opt: Any) -> Equations:
        """The equations on a rank, with the case's numbers as inputs."""
        case = self.settings.case
        ops = Operators(self.domains[rank])
        fine = Overintegration(ops, opt.quadrature) if opt.quadrature else None
        return Equations(ops, self._flow(opt), case, FLUXES[opt.flux], self.settings.viscous, opt.ldg_beta,
                         opt.ldg_tau, fine)

    def shape(self, rank: int) -> tuple[int, int, int]:
        """(variables, elements, nodes) of a rank's state."""
        return (self.settings.dim + 2, *self.domains[rank].nodes.shape[:2])

    def _flow(self, opt: Any) -> Flow:
        settings = self.settings
        mach = array_input("mach", (), "float64", doc="Mach number of the reference state", default=settings.mach)
        re = array_input("re", (), "float64", doc="Reynolds number of the reference state", default=settings.re)
        reference = reference_pressure(opt.gamma, mach) / opt.gas_constant
        sutherland = opt.sutherland * reference if opt.viscosity == "sutherland" else None
        gas = Gas(opt.gamma, opt.gas_constant, opt.prandtl, 1 / re, reference, sutherland)
        parameters = {name: array_input(name, (), "float64", doc=f"of case {settings.case.name}", default=value)
                      for name, value in settings.case.parameters.items()}
        return Flow(gas, mach, settings.lengths, parameters)


def make(size: int, opt: Any) -> Problem:
    """Mesh, partition and tables for `size` ranks. Raises AppError."""
    settings = settle(opt)
    whole = _mesh(settings)
    if settings.case.warp is not None:
        whole = dataclasses.replace(whole, warp=settings.case.warp)
    found = domains(whole, elements.element(whole.cell, opt.order), size)
    _check_boundaries(found[0].boundaries, settings)
    return Problem(settings, found)


def view(domain: Domain, fields: Sequence[str]) -> View:
    """The rank's cells, each with points of its own."""
    count, nodes, dim = domain.nodes.shape
    cell, order = VTK_CELLS[domain.element.cell], domain.element.order
    cells = np.arange(count * nodes).reshape(count, nodes)
    return View(domain.nodes.reshape(-1, dim), cells, cell, order, vtk_node_order(cell, domain.element.lattice), fields)


def _mesh(settings: Settings) -> mesh.Mesh:
    if settings.counts:
        return mesh.box(settings.counts, settings.lengths, settings.origin, settings.periodic, settings.cell,
                        cut=settings.cut)
    from aotato.frontend.apps._dg import gmsh

    found = gmsh.read(settings.file)
    if found.dim != settings.dim:
        raise AppError(f"the mesh {settings.file} has {found.dim} dimensions, but dim is {settings.dim}")
    if settings.cell not in (None, found.cell):
        raise AppError(f"the mesh {settings.file} is of cells={found.cell}, but cells={settings.cell} was asked for: "
                       "leave cells out")
    for minus, plus in settings.joined:
        found = mesh.join(found, minus, plus)
    return found


def _check_boundaries(names: Sequence[str], settings: Settings) -> None:
    """The case says something about every boundary that the mesh has."""
    case = settings.case
    known = list(case.boundaries(_plain_flow(settings))) if case.boundaries else []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise AppError(f"the mesh has a boundary {name!r}, but case {case.name} says nothing of one; {meant}")


def _plain_flow(settings: Settings) -> Flow:
    """For names alone."""
    return Flow(Gas(1.4, 1.0, 0.71, 1.0), settings.mach, settings.lengths, settings.case.parameters)
