"""The level of vmap: operations along its batches, axes with names, and random draws."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp

from fad.core.avals import aval_of, struct_of
from fad.core.dataflow import Dataflow
from fad.core.jaxapi import (
    axes_named,
    convert_constvars_jaxpr,
    define_primitive,
    extended_axes,
    flag_of,
    mapped_aval,
    new_primitive,
    trace_context,
)
from fad.core.jaxprs import calls_with_rules, equations_in, inner_jaxprs, trace
from fad.core.level import (
    LanesLevel,
    Level,
    bind,
    layers,
    map_tensors,
    modes,
    new_argument,
    state,
    traced_by_jax,
)
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import (
    Array,
    ArrayFunction,
    Aval,
    JaxBody,
    JaxEquation,
    Operand,
    Operation,
    OutputDims,
    Outputs,
    Value,
)
from fad.errors import HostValueError, LevelError, StructureError, describe
from fad.errors.advice import instead_of_a_number
from fad.tape.recorder import RecordingLevel

# The level of vmap, and operations along its batches.


class Draws(NamedTuple):
    """How lanes draw: ``strict``, not with a key that all share; ``by_lane``, with their number folded in."""

    strict: bool = False
    by_lane: bool = False


# From the ``randomness`` of a vmap.
RANDOMNESS = {"error": Draws(strict=True), "same": Draws(), "different": Draws(by_lane=True)}


class BatchLevel(RecordingLevel, LanesLevel):
    """vmap: ``value`` has an extra dimension at ``aux``; None is a value that all lanes share.

    Arguments:
        batch_size: the length of that dimension.
        axis_name: the name by which collectives refer to it.
        randomness: how lanes draw random numbers, by its name in `RANDOMNESS`; see `Draws`.
        first: the number of the first lane, where the batch is one chunk of a larger one.
    """

    __slots__ = ("axis_name", "batch_size", "first", "lanes", "randomness")

    kind = "vmap"
    maps = True

    def __init__(
        self, batch_size: int, axis_name: Hashable = None, randomness: str = "error", first: int = 0
    ) -> None:
        super().__init__()
        self.first = first
        self.batch_size = batch_size
        self.axis_name = axis_name
        self.randomness = randomness
        self.lanes: Tensor | None = None  # see `lanes_of`

    @property
    def draws(self) -> Draws:
        """How its lanes draw random numbers."""
        return RANDOMNESS[self.randomness]

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        values, dims, batched = self.unwrapped(args)
        if not batched:
            return map_tensors(lambda o: new_tensor(o, self), bind(op, values))
        return self._wrapped(*op.batch(values, tuple(dims), self))

    def _wrapped(self, out: Outputs, dims: OutputDims) -> Outputs:
        """What an operation gives for all lanes, as Tensors of this level."""
        if type(dims) is tuple:
            return tuple([new_tensor(o, self, d) for o, d in zip(out, dims, strict=True)])
        return new_tensor(out, self, dims)

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        return (t._value,), t._aux

    def unflatten(self, rest: Hashable, parts: Iterator[Operand]) -> Tensor:
        return new_tensor(next(parts), self, rest)

    @property
    def settings(self) -> tuple[Hashable, ...]:  # type: ignore[override]
        return self.batch_size, self.axis_name, self.randomness, self.first

    def aval(self, t: Tensor) -> Any:
        lazy = t._lazy
        if lazy is not None:
            return lazy.aval
        aval = t._value.aval
        return aval if t._aux is None else _without_dim(aval, t.aux)

    def readable(self, t: Tensor, what: str = "") -> Operand:
        if t.aux is not None:
            raise HostValueError(
                f"{what and f'{what} of '}a batched Tensor ({describe(t)} inside vmap), which has a value "
                f"for each lane, not one: {instead_of_a_number(what)}"
            )
        return super().readable(t, what)

    def constant(self, t: Tensor, stop: Callable[[Operand], Value]) -> Tensor:
        return new_tensor(stop(t.value), self, t.aux)

    def with_primal(self, value: Any, aux: Any, primal: Any) -> tuple[Any, Any, Any]:
        if isinstance(primal, Tensor) and primal.level is self:
            if primal.aux is None:
                primal = primal.value
            else:
                if aux is None:
                    value, aux = broadcast(value, self.batch_size, 0), 0
                return value, aux, move_axis(primal.value, primal.aux, aux)
        if aux is not None:
            primal = broadcast(primal, self.batch_size, aux)
        return value, aux, primal

    def outlive(self, t: Tensor) -> Value:
        if t.aux is None:
            value: Value = super().outlive(t)
            return value
        raise LevelError(
            f"a batched Tensor ({describe(t)}) was used after its vmap had finished: return it from "
            "the mapped function, which stacks it, rather than store it outside"
        )

    def mapped(self, value: Value, dim: int) -> Tensor:
        """An argument with the batch at ``dim``, a Tensor of this level."""
        return new_argument(value, self, dim)

    def unwrap(self, x: Value, out_dim: int | None, who: str = "vmap") -> Value:
        """``x`` one level down, with the batch at ``out_dim``; what is shared is broadcast."""
        value: Value
        value, dim = self.value_and_aux(x)
        if out_dim is None:
            if dim is not None:
                raise StructureError(
                    f"{who}: out_dims is None for an output that differs between lanes "
                    f"({describe(x)}): give the position where the batch dimension should go"
                )
            return value
        if dim is None:
            return broadcast(value, self.batch_size, out_dim)
        return move_axis(value, dim, out_dim)


@functools.lru_cache(maxsize=4096)
def _without_dim(aval: Aval, dim: int) -> Any:
    return mapped_aval(aval.shape[dim], dim, aval)


@functools.lru_cache(maxsize=1024)
def _move_axis(source: int, target: int) -> Primitive:
    return Primitive("moveaxis", lambda x: jnp.moveaxis(x, source, target), deferrable=True)


@functools.lru_cache(maxsize=1024)
def _broadcast(size: int, dim: int) -> Primitive:
    def spread(x: Value) -> Array:
        x = jnp.expand_dims(jnp.asarray(x), dim)
        at = dim % x.ndim
        return jnp.broadcast_to(x, (*x.shape[:at], size, *x.shape[at + 1 :]))

    return Primitive("broadcast", spread, deferrable=True)


def move_axis(x: Value, source: int, target: int) -> Value:
    """``x`` with dimension ``source`` moved to ``target``."""
    return x if source == target else bind(_move_axis(source, target), (x,))


def broadcast(x: Value, size: int, dim: int) -> Value:
    """``x`` repeated ``size`` times along a new dimension at ``dim``."""
    repeated: Value = bind(_broadcast(size, dim), (x,))
    return repeated


def batch_levels() -> list[BatchLevel]:
    """The vmaps that run in this thread, outermost first."""
    return [level for level in state.levels if isinstance(level, BatchLevel)]


def lanes_among(levels: Sequence[Any], x: Tensor) -> int | None:
    """The index of the vmap of which ``x`` is `lanes_of`; None if there is none."""
    return next((k for k, level in enumerate(levels) if x is level.lanes), None)


def lanes_of(level: BatchLevel) -> Tensor:
    """The number of each lane of ``level``; the same Tensor each time.

    Raises:
        LanesAsked: see `bind_among_lanes`.
    """
    if level in state.unreached:
        raise LanesAsked(level)
    if level.lanes is None:
        with jax.ensure_compile_time_eval():  # it outlives whatever is being traced now
            numbers = level.first + jnp.arange(level.batch_size)
        level.lanes = new_tensor(numbers, level, 0)
    return level.lanes


def lanes_inside(level: BatchLevel) -> Tensor:
    """`lanes_of`, where what is computed with them belongs: in a body that is kept, if any."""
    lanes, body = lanes_of(level), state.body
    if body is None or body.id < level.id:
        return lanes
    return new_tensor(body.lower(lanes), body)


class LanesAsked(BaseException):
    """The body of a call asks for the lanes of a vmap that no argument of the call belongs to."""

    def __init__(self, level: BatchLevel) -> None:
        super().__init__(level)
        self.level = level


_OF_LANES = Primitive("broadcast", lambda lanes, x: x)


def bind_among_lanes(
    op: Operation, args: Sequence[Operand], asked: set[Hashable]
) -> tuple[Outputs, Sequence[Operand]]:
    """`bind` for a call whose body may ask for the lanes of a vmap: to name its axis, or to draw by lane.

    Where no argument belongs to such a vmap, the body would run outside of it. So it is stopped when it asks,
    and runs again with the first argument given to all lanes.

    Arguments:
        asked: the names of the vmaps that calls with this body have asked for; they are not stopped again.

    Returns:
        What the call returns, and the arguments that it had.
    """
    apart = state.outside_jax_trace
    levels = [
        x for x in batch_levels() if x.id > apart and (x.axis_name is not None or x.draws.by_lane)
    ]
    if not levels:
        return bind(op, args), args
    reached = {t.level for a in args for t in layers(a) if t.aux is not None}
    missing = [x for x in levels if x not in reached and x not in state.unreached]
    wanted = [x for x in missing if x.axis_name in asked]
    for level in wanted if args else ():
        args = [bind(_OF_LANES, (lanes_inside(level), args[0])), *args[1:]]
    run = bind if args else functools.partial(_without_operands, wanted)
    missing = [x for x in missing if x not in wanted]
    if not missing:
        return run(op, args), args
    try:
        with modes(unreached=(*state.unreached, *missing)):
            return run(op, args), args
    except LanesAsked as request:
        if request.level not in missing:
            raise
        asked.add(request.level.axis_name)
    return bind_among_lanes(op, args, asked)


def _without_operands(
    levels: Sequence[BatchLevel], op: Operation, args: Sequence[Operand]
) -> Outputs:
    """`bind` for a call without arguments, at each of ``levels``."""
    if not levels:
        return bind(op, args)
    *outer, level = levels
    return level._wrapped(*op.batch(args, (), level, functools.partial(_without_operands, outer)))


# Calls that name axes of running vmaps, as ``psum`` does; JAX code that may do so.
#
# NOTE [named axes]
#
#     total = fad.from_jax(lambda x: jax.lax.psum(x, "i"))
#     assert fad.vmap(fad.grad(total), axis_name="i")(fnp.ones(3)).tolist() == [3.0, 3.0, 3.0]
#     assert fad.vmap(lambda x: total(2.0), axis_name="i")(fnp.ones(3)).tolist() == [6.0, 6.0, 6.0]
#
# Levels live on values, but a name reaches a vmap that none of the operands belongs to. So a call that names
# an axis gets one more operand, the numbers of the lanes of that vmap, which it does not read: its level then
# takes part, and gives JAX's vmap the name.
#
# Of JAX code nothing says what it names until it has been traced, and it can be traced only where JAX knows
# the names and their sizes. So it is traced once among the axes of the vmaps that run (`bind_code`): its
# program says which it names. All that depends on that trace is found again by these axes too.
#
# A body that JAX traces apart from the levels around it (`fad.core.level.traced_by_jax`) names axes that JAX
# knows, and no levels: the call around it is the one that names them.

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
    levels = named_levels()
    names = axis_name if isinstance(axis_name, (tuple, list, frozenset)) else (axis_name,)
    lanes = [lanes_inside(level) for name, level in levels.items() if name in names]
    if not lanes:
        return bind(op, args)
    return bind(_among(op, axes_of(levels), len(lanes), True), [*lanes, *args])


def bind_code(op: Primitive, args: Sequence[Operand]) -> Outputs:
    """`bind` for a Primitive of a user's JAX code, which may name axes of running vmaps."""
    levels = named_levels()
    if not levels:
        return bind(op, args)
    axes = axes_of(levels)
    find = functools.partial(_naming_of, op)
    naming = op.kept("naming", find, axes, tuple(map(aval_of, args)), trace_context())
    op.calls |= naming.calls
    if naming.names:
        return bind_collective(op, args, naming.names)
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
    return op.kept("among", functools.partial(_derive_among, op), axes, count, collective)


def _derive_among(op: Primitive, axes: Axes, count: int, collective: bool) -> Primitive:
    def inside(f: ArrayFunction) -> ArrayFunction:
        def run(*values: Array) -> Outputs:
            with traced_in(axes):
                return f(*values[count:])

        return run

    shared = op.shared is not None
    made = Primitive(op.name, inside(op.flat), jit=op.jit, collective=collective, shared=shared)
    made.lineage, made.paths, made.calls = op.lineage, op.paths, op.calls
    if op.to_vjp is not op.flat:  # there are hand-written rules
        made.to_jvp, made.to_vjp = inside(op.to_jvp), inside(op.to_vjp)
    return made


class _Naming(NamedTuple):
    """Of a program: which axes it names, all of them if it reads a size; and see `Primitive.calls`."""

    names: frozenset[Hashable]
    calls: frozenset[str]


def _naming_of(op: Primitive, axes: Axes, avals: tuple[Aval, ...], _: Hashable) -> _Naming:
    """What is found in the program of ``op`` among ``axes``, in JAX's context."""
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
    return _Naming(names, calls_with_rules(closed.jaxpr))


# Random draws inside of vmap, and what a key that all lanes share draws.
#
# NOTE [keys in staged code]
#
#     key = fad.random.key(0)
#     draw = fad.jit(lambda key: fad.random.normal(key))
#     fad.vmap(draw)(fad.random.split(key, 3))
#     fad.vmap(lambda x: x + draw(key))(fnp.ones(3))  # raises LevelError: all lanes share the key
#
# Whether a key differs between the lanes of a vmap can be seen of a Tensor. It cannot of a tracer in the body
# of ``jit`` or ``scan`` inside of that vmap: there it depends on what the body is called with, and on what it
# does. So such a draw leaves a mark in the program, and when the body has been traced, the program is
# analysed for which values differ between lanes (`check_draws`).
#
# The body of a Function, or of `checkpoint`, on tracers is traced by JAX apart from the vmaps around
# (`fad.core.level.traced_by_jax`). It is marked and analysed in the same way; the numbers of lanes are not
# available there (`note_call`).

draw_p = new_primitive("fad_draw")  # gives its key back
define_primitive(
    draw_p,
    lambda key, *, name: [key],
    lambda key, *, name: [key],
    jvp=lambda keys, tangents, *, name: (draw_p.bind(*keys, name=name), list(tangents)),
    batch=lambda _, keys, dims, *, name: (draw_p.bind(*keys, name=name), dims),
)


@functools.cache
def _marking(name: str) -> Primitive:
    return Primitive("draw", lambda key: draw_p.bind(key, name=name)[0])


_FOLD_IN = Primitive("fold_in", jax.random.fold_in)


def bind_random(op: Operation, args: Sequence[Operand]) -> Outputs:
    """`bind` for a Primitive that draws random numbers with the key ``args[0]``.

    Each running vmap has its ``randomness``. "same": a key that all lanes share draws once for all of them.
    "error": such a key raises. "different": the number of the lane is folded into the key, whatever it is.

    Raises:
        LevelError: in a vmap whose randomness is "error", all lanes share the key.

    Source: ``torch.func.vmap``'s randomness flag.
    """
    key = args[0]
    note_draw()
    marked = state.outside_jax_trace >= 0
    for level in drawing_levels():
        if level.draws.by_lane:
            key = bind(_FOLD_IN, (key, lanes_inside(level)))
        elif level.draws.strict:
            of_lanes = differs(key, level)
            marked = marked or of_lanes is None
            if of_lanes is False:
                _refuse(f"fad.random.{op.name}")
    if marked:
        key = bind(_marking(op.name), (key,))
    return bind(op, [key, *args[1:]])


def note_draw() -> None:
    """Note in the levels of bodies being traced that the body draws."""
    for level in state.levels:
        level.note("draw")


def note_call(name: str) -> None:
    """Note a call of a Function that is traced apart from outer levels, and whose body draws.

    Raises:
        LevelError: it is in a vmap whose lanes are to draw different numbers.
    """
    note_draw()
    if any([level.draws.by_lane for level in drawing_levels()]):
        raise LevelError(
            f"vmap: {name} draws random numbers in code that is compiled, where the numbers of the lanes "
            "of a vmap with randomness='different' cannot reach it: draw outside of it, and pass the "
            "numbers in; or map over keys, vmap(f)(fad.random.split(key, n)), without that randomness."
        )


def _refuse(name: str) -> NoReturn:
    raise LevelError(
        f"vmap: {name} was called with a key that all lanes share. Pass "
        "randomness='different' (each lane draws its own) or 'same' to vmap, or map over "
        "keys: vmap(f)(fad.random.split(key, n))."
    )


def drawing_levels() -> list[BatchLevel]:
    """The running vmaps, without those outside of what JAX traces now."""
    return [level for level in batch_levels() if level.id > state.outside_jax_trace]


def differs(x: Operand, level: Level) -> bool | None:
    """Whether a value differs between the lanes of a vmap; None for one of a body staged inside of it."""
    staged = False
    while isinstance(x, Tensor):
        if x.level is level:
            return x.aux is not None
        staged = staged or (x.level.traces and x.level.id > level.id)
        x = x.value
    return None if staged and isinstance(x, jax.core.Tracer) else False


def check_draws(jaxpr: JaxBody, values: Sequence[Operand]) -> None:
    """Refuse a staged body that draws with a key which all lanes of a vmap around it share.

    Arguments:
        jaxpr: the body, whose constants and inputs together are ``values``.

    Raises:
        LevelError: it does so.
    """
    levels = [level for level in drawing_levels() if level.draws.strict]
    if not levels or not has_draws(jaxpr):
        return
    for level in levels:
        differing = [differs(v, level) for v in values]
        if None in differing:
            continue  # a part of another body, which is analysed as a whole
        analysis = _Differing()
        analysis.results(convert_constvars_jaxpr(jaxpr), list(map(bool, differing)))
        if analysis.refused:
            _refuse(analysis.refused[0])


def has_draws(jaxpr: JaxBody) -> bool:
    """Whether there is a mark in a program."""
    return any(map(_draws, equations_in(jaxpr)))


def _draws(eqn: JaxEquation) -> bool:
    drawing = flag_of(eqn, "drawing")
    return eqn.primitive is draw_p or (drawing is not None and drawing(eqn) is not None)


class _Differing(Dataflow[bool]):
    """Whether a value differs between lanes. ``refused``: what draws with keys that do not, in order.

    Where lanes take different branches, or end a loop in different iterations, what it changes differs.
    """

    chooses = True

    def __init__(self) -> None:
        self.refused: list[str] = []

    def constant(self, value: Any) -> bool:
        return False

    def union(self, several: Sequence[bool]) -> bool:
        return any(several)

    def equation(self, eqn: Any, operands: list[bool]) -> list[bool]:
        if eqn.primitive is draw_p:
            if not operands[0]:
                self.refused.append(f"fad.random.{eqn.params['name']}")
            return operands
        drawing = flag_of(eqn, "drawing")
        if drawing is not None:
            body = drawing(eqn)
            return self._joined(eqn, operands) if body is None else self.results(body, operands)
        results = self.inside(eqn, operands)
        if results is not None:
            return results
        inner = list(inner_jaxprs(eqn))
        if len(inner) == 1 and len(inner[0].invars) == len(operands) and not inner[0].constvars:
            results = self.results(inner[0], operands)
            if len(results) == len(eqn.outvars):
                return results
        # Which operand is which input is not known: refuse too little rather than too much.
        for jaxpr in map(convert_constvars_jaxpr, inner):
            self.results(jaxpr, [any(operands)] * len(jaxpr.invars))
        return self._joined(eqn, operands)

    def _joined(self, eqn: Any, operands: list[bool]) -> list[bool]:
        return [any(operands)] * len(eqn.outvars)
