"""From arrays that a kernel must produce to the scalar statements that produce them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aotato.emit import groups
from aotato.emit.nest import Nest, Store
from aotato.emit.statements import statements
from aotato.emit.values import Values, Where, result
from aotato.frontend import expr as ex
from aotato.frontend import ir


def nest(program: ir.Program, results: tuple[str, ...], in_memory: Callable[[str], bool]) -> Nest:
    """The nest that computes `results`, arrays of one shape, from arrays that are `in_memory`."""
    shape = program.arrays[results[0]].shape
    own = ex.own_index(len(shape))

    def where(name: str, indices: tuple[ex.Expr, ...]) -> str | None:
        return name if in_memory(name) else None

    return nest_of(program, shape, tuple((name, own) for name in results), where)


def nest_of(
    program: ir.Program,
    shape: ir.Shape,
    results: tuple[tuple[str, tuple[ex.Expr, ...]], ...],
    where: Where,
    shared: bool = True,
) -> Nest:
    """The nest over `shape` that computes elements of arrays, each given by indices in terms of the nest's own.

    `where(array, indices)` names the memory from which that element is read rather than computed; a result never is,
    unless it was computed before: `where(array, ())`. `shared` allows a group to share a long reduction.
    """
    values = Values(program, where, shape)
    values.extents.update({f"_{axis}": (0, max(0, extent - 1)) for axis, extent in enumerate(shape)})
    stores = tuple(Store(name, indices, result(values, name, indices)) for name, indices in results)
    nest = statements(values, stores)
    return replace(nest, share=groups.kind(nest, program)) if shared else nest
