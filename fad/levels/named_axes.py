"""Calls that name axes of running vmaps, as ``psum`` does; JAX code that may do so.

NOTE [named axes]

    total = fad.from_jax(lambda x: jax.lax.psum(x, "i"))
    assert fad.vmap(fad.grad(total), axis_name="i")(fnp.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert fad.vmap(lambda x: total(2.0), axis_name="i")(fnp.ones(3)).tolist() == [6.0, 6.0, 6.0]

Levels live on values, but a name reaches a vmap that none of the operands belongs to. So a call that names
an axis gets one more operand, the numbers of the lanes of that vmap, which it does not read: its level then
takes part, and gives JAX's vmap the name.

Of JAX code nothing says what it names until it has been traced, and it can be traced only where JAX knows the
names and their sizes. So it is traced once among the axes of the vmaps that run (`bind_code`): its program
says which it names. All that depends on that trace is found again by these axes too.

A body that JAX traces apart from the levels around it (`fad.core.level.traced_by_jax`) names axes that JAX
knows, and no levels: the call around it is the one that names them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from fad.core.avals import aval_of, struct_of
from fad.core.jaxapi import axes_named, extended_axes, trace_context
from fad.core.jaxprs import calls_with_rules, trace
from fad.core.level import bind, layers, state, traced_by_jax
from fad.core.primitive import Primitive
from fad.core.types import Array, ArrayFunction, Aval, Operand, Outputs
from fad.levels.batch import BatchLevel, batch_levels, lanes_inside

# Names of axes with their sizes, the outermost first.
Axes = tuple[tuple[Hashable, int], ...]


def named_levels() -> dict[Hashable, BatchLevel]:
    """The vmaps whose axes can be named here, by the names; an inner one hides an outer one."""
    if not state.levels:
        return {}
    apart = state.outside_jax_trace
    return {x.axis_name: x for x in batch_levels() if x.axis_name is not None and x.id > apart}


def axes_of(levels: dict[Hashable, BatchLevel]) -> Axes:
    """The names and sizes of `named_levels`."""
    return tuple([(name, level.batch_size) for name, level in levels.items()])


@contextmanager
def traced_in(axes: Axes) -> Iterator[None]:
    """A block in which JAX traces the body of a call that may name these axes."""
    with traced_by_jax(), extended_axes(axes):
        yield


def bind_collective(op: Primitive, args: Sequence[Operand], axis_name: Hashable) -> Outputs:
    """`bind` for a Primitive that names the axes of vmaps, one or several, as ``psum`` does.

    Each running vmap of that name takes part even where no argument is batched over it.
    """
    found = named_levels()
    names = axis_name if isinstance(axis_name, (tuple, list, frozenset)) else (axis_name,)
    lanes = [lanes_inside(level) for name, level in found.items() if name in names]
    if not lanes:
        return bind(op, args)
    return bind(_among(op, axes_of(found), len(lanes), True), [*lanes, *args])


def bind_code(op: Primitive, args: Sequence[Operand]) -> Outputs:
    """`bind` for a Primitive of a user's JAX code, which may name axes of running vmaps."""
    levels = named_levels()
    if not levels:
        return bind(op, args)
    axes = axes_of(levels)
    found = _found(op, axes, tuple(map(aval_of, args)), trace_context())
    if found.names:
        return bind_collective(op, args, found.names)
    op.calls |= found.calls
    return bind_program(op, args)


def bind_program(op: Primitive, args: Sequence[Operand]) -> Outputs:
    """`bind` for a Primitive whose rules may name axes that it does not name itself.

    They can where a derivative is taken inside of those vmaps, of what none of them differs in. Functions
    in it are traced again for that, so what is derived of the Primitive has to run where the axes are.
    """
    levels = named_levels() if op.calls or op.to_vjp is not op.flat else {}
    if not levels:
        return bind(op, args)
    axes = axes_of(levels)
    inside = [t.level for a in args for t in layers(a)]
    top = max([x.id for x in inside if not (x.maps or x.traces)], default=-1)
    lanes = [lanes_inside(level) for level in levels.values() if level.id < top]
    collective = op.collective or "fad_call" in op.calls
    return bind(_among(op, axes, len(lanes), collective), [*lanes, *args])


def _among(op: Primitive, axes: Axes, count: int, collective: bool) -> Primitive:
    """``op`` where JAX knows ``axes``, after ``count`` operands that it does not read."""
    key = (axes, count, collective)
    found: Primitive | None = op.named.get(key)
    if found is not None:
        return found

    def inside(f: ArrayFunction) -> ArrayFunction:
        def run(*values: Array) -> Outputs:
            with traced_in(axes):
                return f(*values[count:])

        return run

    shared = op.shared is not None
    made = Primitive(op.name, inside(op.flat), jit=op.jit, collective=collective, shared=shared)
    made.paths = op.paths
    if op.to_vjp is not op.flat:  # there are hand-written rules
        made.to_jvp, made.to_vjp = inside(op.to_jvp), inside(op.to_vjp)
    return op.named.setdefault(key, made)  # type: ignore[no-any-return]


class _Naming(NamedTuple):
    """Of a program: which axes it names, all of them if it reads a size; and see `Primitive.calls`."""

    names: frozenset[Hashable]
    calls: frozenset[str]


def _found(op: Primitive, axes: Axes, avals: tuple[Aval, ...], context: Hashable) -> _Naming:
    """What is found in the program of ``op`` among ``axes``; ``context`` is JAX's."""
    key = (axes, avals, context)
    known: _Naming | None = op.named.get(key)
    if known is not None:
        return known
    structs = list(map(struct_of, avals))
    with traced_in(axes):
        closed, _ = trace(op.flat, structs)
    every = frozenset([name for name, _ in axes])
    names = axes_named(closed.jaxpr) & every
    if not names:
        try:
            with traced_by_jax():
                trace(op.flat, structs)
        except NameError:
            names = every
    naming = _Naming(names, calls_with_rules(closed.jaxpr))
    return op.named.setdefault(key, naming)  # type: ignore[no-any-return]
