"""The pipeline: app -> programs -> partitions -> kernels, schedules, drivers -> bundle."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from aotato.emit import bundle, dump
from aotato.emit.aliases import resolved
from aotato.emit.fast import fast
from aotato.emit.joined import Joined, joined
from aotato.emit.order import ALGEBRAS
from aotato.emit.owned import owned
from aotato.emit.plan import device_scalars, resolve
from aotato.emit.rewritten import FAST, PASSES, UNFUSED, Passes, rewritten
from aotato.emit.schedule import Emitted, emit
from aotato.emit.sharing import Cache
from aotato.emit.target import Target, chosen
from aotato.emit.view import Drawn, drawn
from aotato.frontend import interpret, ir
from aotato.frontend.adapter.trace import Traced, trace
from aotato.frontend.app import App, AppError, find, recorded
from aotato.frontend.app import options as option_values
from aotato.frontend.checks import check
from aotato.frontend.opaque_run import CallError, NoDevice
from aotato.frontend.partition import partition
from aotato.runtime_stub import format as fmt
from aotato.runtime_stub import plan_data
from aotato.runtime_stub.simulate import prove

DEFAULT_TARGETS = "gpu,cpu"
SELFTEST_ELEMENTS = 1 << 18  # of all inputs and outputs of a rank; a larger entry carries no self-test
DEEPEST_EXPRESSION = 20000  # Python frames: expressions are walked recursively

_KERNELS = Cache()  # for all entries, targets and builds of this process

Report = Callable[[str], None]


def build(
    app: Any,
    *,
    path: str | Path,
    ranks: int = 1,
    options: Mapping[str, Any] | None = None,
    targets: str = DEFAULT_TARGETS,
    contract: bool = False,
    overlap: bool = True,
    fuse: bool = True,
    algebra: str = "exact",
    progress: Report | None = None,
) -> Path:
    """Compile `app` for `ranks` ranks into the bundle `path`, and return that path.

    `app`: a built-in app's name, a Python file, a module, a callable of (rank, size) that returns arrays, or a dict
    of pytato arrays. `targets`: comma-separated, the first is the one `inspect` shows. `contract=True` lets the device
    compiler fuse multiplications and additions. `overlap=False` never launches a kernel in two halves, of which the
    first runs while messages travel. `fuse=False` gives every array memory and a kernel of its own: slow, but simple
    to follow. `algebra="fast"` allows what changes rounding: products with reciprocals instead of quotients, and of
    constant matrices instead of one after the other.

    Raises AppError, TraceError, ProgramErrors: one sentence a mistake.
    """
    say = progress or (lambda text: None)
    if ranks < 1:
        raise AppError(f"ranks must be at least 1, not {ranks}")
    if algebra not in ALGEBRAS:
        raise AppError(f"algebra must be one of {', '.join(ALGEBRAS)}, not {algebra!r}")
    sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEPEST_EXPRESSION))
    found = find(app)
    opt = option_values(found, options or {})
    wanted = chosen(targets)
    data = found.setup(ranks, opt) if found.setup else None
    traced = {}
    for name, function in found.entries.items():
        say(f"{name}: tracing {ranks} rank{'s' if ranks > 1 else ''}")
        traced[name] = trace(name, ranks, functools.partial(_call, function, ranks, opt, data))
    plan = _plan(found, opt, traced)
    view = _view(found, ranks, opt, data, traced)
    docs = {name: function.__doc__ or "" for name, function in found.entries.items()}
    head = {"app": found.name, "doc": found.doc, "options": recorded(found, opt)}
    assemble(traced, Path(path), wanted, head, docs, contract, say, plan, view, overlap, fuse, algebra)
    say(f"wrote {path}")
    return Path(path)


def assemble(
    traced: Mapping[str, Traced],
    path: Path,
    targets: Sequence[Target],
    head: Mapping[str, Any],
    docs: Mapping[str, str] = MappingProxyType({}),
    contract: bool = False,
    say: Report = lambda text: None,
    plan: plan_data.Plan | None = None,
    view: Drawn | None = None,
    overlap: bool = True,
    fuse: bool = True,
    algebra: str = "exact",
) -> str:
    """Everything after tracing: check, partition, emit and prove every entry, and write the bundle."""
    carries = {name: plan.carried(name) if plan else {} for name in traced}
    traced = {name: dataclasses.replace(t, programs=owned(t.programs, carries[name])) for name, t in traced.items()}
    if algebra == "fast":
        traced = {name: dataclasses.replace(t, programs=fast(t.programs)) for name, t in traced.items()}
    on_device = device_scalars(plan, {name: t.programs for name, t in traced.items()})
    mapped = [dataclasses.replace(t, approximate=algebra == "fast" and t.lockstep) for t in targets]
    passes = UNFUSED if not fuse else FAST if algebra == "fast" else PASSES
    entries = {
        name: _entry(
            name, docs.get(name, ""), t, mapped, passes, contract, overlap, fuse, say, on_device, carries[name]
        )
        for name, t in traced.items()
    }
    ranks = next(iter(traced.values())).programs.size
    facts = {"format": fmt.FORMAT, "abi": fmt.ABI, "ranks": ranks, "provenance": provenance(), "contract": contract}
    facts |= {"overlap": overlap, "fuse": fuse, "algebra": algebra}
    facts["plan"] = plan_data.to_json(plan) if plan else None
    return bundle.write(path, {**head, **facts}, entries, targets, view)


def _call(function: Any, size: int, opt: Any, data: Any, rank: int) -> Any:
    return function(rank, size, opt, data)


def _view(app: App, ranks: int, opt: Any, data: Any, traced: Mapping[str, Traced]) -> Drawn | None:
    entries = {name: t.programs for name, t in traced.items()}
    return drawn(functools.partial(_call, app.view, ranks, opt, data), ranks, entries) if app.view else None


def _plan(app: App, opt: Any, traced: Mapping[str, Traced]) -> plan_data.Plan | None:
    return resolve(app.plan(opt), {name: t.programs for name, t in traced.items()}) if app.plan else None


def _entry(
    name: str,
    doc: str,
    traced: Traced,
    targets: Sequence[Target],
    passes: Passes,
    contract: bool,
    overlap: bool,
    fuse: bool,
    say: Report,
    on_device: frozenset[str],
    carry: Mapping[str, str],
) -> bundle.EntryParts:
    programs = traced.programs
    dump.write(1, f"{name}-programs", dump.programs_text(programs))
    check(programs)
    say(f"{name}: rewriting")
    tests = _tests(traced, say)
    programs = rewritten(programs, passes)
    say(f"{name}: partitioning")
    partitions = [resolved(part) for part in partition(programs)]
    dump.write(2, f"{name}-partition", dump.partitions_text(partitions))
    together = [joined(part) if fuse else Joined(part) for part in partitions]
    emitted: dict[str, list[Emitted]] = {}
    for target in targets:
        say(f"{name}: writing kernels for target {target.name}")
        emitted[target.name] = emit(together, target, contract, overlap, on_device, _KERNELS, fuse)
        schedules = [e.schedule for e in emitted[target.name]]
        kernels = [kernel for e in emitted[target.name] for kernel in e.kernels]
        dump.write(3, f"{name}-{target.name}-kernels", dump.kernels_text(kernels))
        dump.write(4, f"{name}-{target.name}-schedules", "\n".join(map(dump.schedule_text, schedules)))
        prove(schedules, carry)
    return bundle.EntryParts(doc, dataclasses.replace(traced, programs=programs), emitted, on_device, tests)


def _tests(traced: Traced, say: Report) -> list[tuple[dict[str, Any], Mapping[str, interpret.Value]]]:
    """Inputs (defaults, or random numbers) and what the interpreter makes of them, where that is little data."""
    if any(_elements(program) > SELFTEST_ELEMENTS for program in traced.programs.ranks):
        return []
    inputs = [_test_inputs(program, traced, rank) for rank, program in enumerate(traced.programs.ranks)]
    try:
        results = interpret.run(traced.programs, inputs)
    except NoDevice as error:
        say(f"{traced.programs.entry}: the bundle has no self-test: {error}")
        return []
    except CallError as error:
        raise AppError(f"entry {traced.programs.entry!r}, {error}") from error
    except IndexError as error:
        if all(_has_defaults(program, traced, rank) for rank, program in enumerate(traced.programs.ranks)):
            raise AppError(f"entry {traced.programs.entry!r}, {error}") from error
        say(f"{traced.programs.entry}: the bundle has no self-test: with random inputs, {error}")
        return []
    return list(zip(inputs, results, strict=True))


def _has_defaults(program: ir.Program, traced: Traced, rank: int) -> bool:
    facts = (traced.inputs[rank].get(node.path) for _, node in program.of_type(ir.Input))
    return all(fact is not None and fact.default is not None for fact in facts)


def _elements(program: ir.Program) -> int:
    return sum(ir.size(node.shape) for node in program.arrays.values() if not isinstance(node, ir.Const))


def _test_inputs(program: ir.Program, traced: Traced, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _, node in program.of_type(ir.Input):
        facts = traced.inputs[rank].get(node.path)
        default = facts.default if facts else None
        if default is None:
            rng = np.random.default_rng((rank, len(found)))
            default = (rng.random(node.shape) * (1 if node.dtype.kind in "fc" else 4)).astype(node.dtype)
        found[node.path] = np.asarray(default)
    return found


def provenance() -> dict[str, str]:
    """Versions of what a bundle's contents depend on."""
    packages = ("aotato", "pytato", "loopy", "pymbolic", "numpy", "jinja2", "h5py")
    return {name: importlib.metadata.version(name) for name in packages}
