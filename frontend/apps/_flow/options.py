"""Options of the app `cns`: what the command line may say, and the settings that follow from it and the case."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotato.frontend import AppError, Option, positive
from aotato.frontend.apps._dg.elements import SIMPLICES
from aotato.frontend.apps._dg.mesh import CUTS
from aotato.frontend.apps._flow import case as cases
from aotato.frontend.apps._flow.case import Case
from aotato.frontend.apps._flow.inviscid import FLUXES

AXES = ("x", "y", "z")
CELLS = {"tri": 2, "quad": 2, "tet": 3, "hex": 3}
ALIKE = {"tri": "tet", "tet": "tri", "quad": "hex", "hex": "quad"}  # in the other dimension
LARGEST_ORDER = 7
LARGEST_QUADRATURE = 21  # of triangles: beyond, rules of simplices have negative weights

Check = Callable[[Any], str | None]


def lengths(text: str) -> tuple[float, ...]:
    """Numbers, separated by commas; pi, 2pi and -pi count. Raises ValueError."""
    return tuple(_number(word) for word in text.split(","))


lengths.__name__ = "numbers separated by commas, such as 1,0.5 or 2pi"


def _number(word: str) -> float:
    factor, pi, rest = word.strip().partition("pi")
    if rest:
        raise ValueError(word)
    return float({"": "1", "-": "-1"}.get(factor, factor) if pi else factor) * (math.pi if pi else 1)


def one_of(*names: str) -> Check:
    def check(value: Any) -> str | None:
        if value is None or value in names:
            return None
        near = difflib.get_close_matches(str(value), names, 1)
        return f"is none of {', '.join(names)}" + (f"; did you mean {near[0]!r}?" if near else "")

    return check


def _between(least: float, most: float) -> Check:
    return lambda value: None if value is None or least <= value <= most else f"must lie between {least} and {most}"


def _positive(value: Any) -> str | None:
    return None if value is None else positive(value)


def _not_negative(value: Any) -> str | None:
    return None if value >= 0 else f"must not be negative, as {value} is"


def _all_positive(values: Any) -> str | None:
    return None if values is None or min(values) > 0 else "must be positive"


def _of_the_case(name: str) -> str:
    """The default of an option that cases set."""
    default = cases.find("tgv").defaults.get(name, FALLBACK.get(name))
    return f"default: the case's (tgv: {default})"


# Where neither the user nor the case says something
FALLBACK: dict[str, Any] = {"physics": "ns", "lengths": "1", "origin": "0", "periodic": "x,y,z", "re": 100.0,
                            "mach": 0.1, "end": 1.0, "mesh": "box:16"}

OPTIONS = (
    Option("case", str, "tgv", doc=f"{', '.join(cases.names())}, or a Python file", check=cases.wrong_name,
           file=cases.is_file),
    Option("mesh", str, None, doc="box:16,16,16 (cells an axis; box:16 is the same along all) or a file of Gmsh; "
                                  + _of_the_case("mesh"), file=lambda text: text is not None and not _is_box(text)),
    Option("dim", int, None, doc="2 or 3; default: the mesh's, the cells', else the case's (tgv: 2)",
           check=_between(2, 3)),
    Option("cells", str, None, doc="tri, quad, tet or hex; a box's cubes are cut into simplices, or left. Default: the "
                                   "file's, else simplices", check=one_of(*CELLS)),
    Option("cut", str, "diagonal", doc="of a box's cubes into simplices: diagonal (2 triangles, 6 tetrahedra), or "
                                       "middle (4, 24), which prefer no direction", check=one_of(*CUTS)),
    Option("order", int, 3, doc=f"degree of the polynomials, 1 to {LARGEST_ORDER}", check=_between(1, LARGEST_ORDER)),
    Option("lengths", lengths, None, unit="length", doc="edges of the box, one or one an axis, as in 2pi,1; "
                                                        + _of_the_case("lengths"), check=_all_positive),
    Option("origin", lengths, None, unit="length", doc="the box's least coordinates; " + _of_the_case("origin")),
    Option("periodic", str, None, doc="axes along which the box is closed, as in x,y, or pairs of a file's boundaries, "
                                      "as in bottom:top; or none; " + _of_the_case("periodic")),
    Option("physics", str, None, doc="ns (Navier-Stokes) or euler; " + _of_the_case("physics"),
           check=one_of("ns", "euler")),
    Option("flux", str, "hllc", doc="inviscid numerical flux: llf (local Lax-Friedrichs) or hllc",
           check=one_of(*FLUXES)),
    Option("quadrature", int, 0, doc="integrate inviscid fluxes exactly up to this degree of polynomials; 0: take them "
                                     "at nodes", check=_between(0, LARGEST_QUADRATURE)),
    Option("re", float, None, doc="Reynolds number of density, velocity and length 1 (--set re= of a run); "
                                  + _of_the_case("re"), check=_positive),
    Option("mach", float, None, doc="Mach number of velocity 1 in the reference state (--set mach= of a run); "
                                    + _of_the_case("mach"), check=_positive),
    Option("gamma", float, 1.4, doc="ratio of specific heats",
           check=lambda value: None if value > 1 else f"must be greater than 1, not {value}"),
    Option("gas_constant", float, 1.0, unit="velocity^2/temperature", doc="p = density gas_constant T", check=positive),
    Option("prandtl", float, 0.71, doc="Prandtl number", check=positive),
    Option("viscosity", str, "constant", doc="constant, or sutherland: with the temperature",
           check=one_of("constant", "sutherland")),
    Option("sutherland", float, 0.404, unit="reference temperature", doc="Sutherland's temperature (air at 273 K)",
           check=positive),
    Option("cfl", float, 0.8, doc="time step, over what waves and friction allow (--set cfl= of a run)",
           check=positive),
    Option("dt", float, None, unit="time", doc="a fixed time step instead (--set dt= of a run)", check=_positive),
    Option("dt_every", int, 10, unit="steps", doc="between computations of the time step", check=positive),
    Option("end", float, None, unit="time", doc="where the run ends (--set end= of a run); " + _of_the_case("end"),
           check=_positive),
    Option("observe_every", int, 50, unit="steps", doc="between lines of integrals and extremes", check=positive),
    Option("ldg_beta", float, 0.5, doc="viscous terms: 0.5 takes values from one side and fluxes from the other, 0 "
                                       "both from the middle (BR1)", check=_between(-0.5, 0.5)),
    Option("ldg_tau", float, 0.0, doc="penalty on jumps: ldg_tau mu (order + 1)^2 / height", check=_not_negative),
)


@dataclass(frozen=True)
class Settings:
    """All that the options and the case settle."""

    case: Case
    dim: int
    cell: str | None  # None: the file's
    counts: tuple[int, ...]  # cells of a box an axis; () for a file
    file: str
    lengths: tuple[float, ...]
    origin: tuple[float, ...]
    periodic: tuple[bool, ...]
    viscous: bool
    re: float
    mach: float
    end: float
    cut: str = CUTS[0]
    joined: tuple[tuple[str, str], ...] = ()  # boundaries of a file that are one another's periodic images


def settle(opt: Any) -> Settings:
    """Raises AppError where options do not fit each other, or the case."""
    case = cases.find(opt.case)
    mesh = _given(opt, case, "mesh")
    box = _is_box(mesh)
    counts = _counts(mesh) if box else ()
    dim = _dim(opt, case, counts)
    counts = counts * dim if len(counts) == 1 else counts
    if not box and not mesh:
        raise AppError(f"case {case.name} has no mesh of its own: give mesh=FILE")
    for name in ("lengths", "origin"):
        if not box and getattr(opt, name) is not None:
            raise AppError(f"option {name} is for mesh=box:..., but the mesh is the file {mesh}: leave it out")
    re, mach, end = (float(_given(opt, case, name)) for name in ("re", "mach", "end"))
    settings = Settings(
        case, dim, _cell(opt, dim, box), counts, "" if box else mesh,
        _each_axis(_numbers(opt, case, "lengths"), dim, "lengths") if box else (),
        _each_axis(_numbers(opt, case, "origin"), dim, "origin") if box else (),
        _periodic(opt, case, dim) if box else (False,) * dim, _given(opt, case, "physics") == "ns",
        re, mach, end, opt.cut, () if box else _joined(opt.periodic, mesh),
    )
    _check_used(opt, settings)
    return settings


def _given(opt: Any, case: Case, name: str) -> Any:
    value = getattr(opt, name)
    return case.defaults.get(name, FALLBACK[name]) if value is None else value


def _numbers(opt: Any, case: Case, name: str) -> tuple[float, ...]:
    value = _given(opt, case, name)
    return lengths(value) if isinstance(value, str) else tuple(value)


def _is_box(mesh: str) -> bool:
    return mesh.startswith("box")


def _counts(mesh: str) -> tuple[int, ...]:
    words = mesh.removeprefix("box:").split(",")
    if not mesh.startswith("box:") or not all(word.isdecimal() and int(word) > 0 for word in words) or len(words) > 3:
        raise AppError(f"expected mesh=box:16,16,16 (cells along each axis) or a file, but found mesh={mesh}")
    return tuple(map(int, words))


def _dim(opt: Any, case: Case, counts: tuple[int, ...]) -> int:
    of_cells = CELLS[opt.cells] if opt.cells and counts else case.dim[0]
    dim = opt.dim or (len(counts) if len(counts) > 1 else of_cells)
    if len(counts) > 1 and len(counts) != dim:
        raise AppError(f"dim={dim}, but mesh=box:{','.join(map(str, counts))} has {len(counts)} axes: leave dim out")
    if dim not in case.dim:
        raise AppError(f"case {case.name} is for {' or '.join(map(str, case.dim))} dimensions, but the mesh or dim "
                       f"has {dim}")
    return int(dim)


def _cell(opt: Any, dim: int, box: bool) -> str | None:
    if opt.cells is not None and CELLS[opt.cells] != dim:
        raise AppError(f"cells={opt.cells} have {CELLS[opt.cells]} dimensions, but the mesh has {dim}; did you mean "
                       f"cells={ALIKE[opt.cells]}?")
    simplices = "tri" if dim == 2 else "tet"
    return str(opt.cells) if opt.cells else simplices if box else None


def _each_axis(values: tuple[float, ...], dim: int, name: str) -> tuple[float, ...]:
    if len(values) not in (1, dim):
        raise AppError(f"{name} has {len(values)} numbers, but the mesh has {dim} axes: give one number, or one an "
                       "axis")
    return values * dim if len(values) == 1 else values


def _periodic(opt: Any, case: Case, dim: int) -> tuple[bool, ...]:
    text = _given(opt, case, "periodic")
    axes = [] if text == "none" else text.split(",")
    known = AXES if opt.periodic is None else AXES[:dim]
    for axis in axes:
        if axis not in known:
            raise AppError(f"expected periodic=none or axes such as {','.join(known)}, but found periodic={text}")
    return tuple(axis in axes for axis in AXES[:dim])


def _joined(text: str | None, mesh: str) -> tuple[tuple[str, str], ...]:
    """Pairs of names; what a case says of axes is for boxes."""
    pairs = [] if text in (None, "none") else [word.split(":") for word in str(text).split(",")]
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise AppError(f"the mesh is the file {Path(mesh).name}: expected periodic=none or pairs of its boundaries "
                       f"such as bottom:top, but found periodic={text}")
    return tuple((minus, plus) for minus, plus in pairs)


def _check_used(opt: Any, settings: Settings) -> None:
    """Options that would have no effect are mistakes."""
    defaults = {option.name: option.default for option in OPTIONS}
    frictional = ("re", "prandtl", "viscosity", "ldg_beta", "ldg_tau")
    given = [name for name in frictional if getattr(opt, name) != defaults[name]]
    if given and not settings.viscous:
        raise AppError(f"option {given[0]} is for physics=ns, but the physics is euler (physics=ns turns friction on)")
    if opt.sutherland != defaults["sutherland"] and opt.viscosity != "sutherland":
        raise AppError("option sutherland is for viscosity=sutherland, but the viscosity is constant")
    if opt.cut != CUTS[0] and not (settings.counts and settings.cell in SIMPLICES):
        found = f"cells are {settings.cell}" if settings.counts else f"mesh is the file {settings.file}"
        raise AppError(f"option cut is for the simplices of a box, but the {found}: leave it out")
    if opt.dt is not None and opt.cfl != defaults["cfl"]:
        raise AppError("options dt and cfl were both given: a fixed time step knows no CFL number; keep one of them")
