"""The level of vmap, and operations along its batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fad.core.jaxapi import mapped_aval
from fad.core.level import bind, layers, map_tensors, modes, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Array, Aval, Operand, Operation, Outputs, Value
from fad.errors import HostValueError, LevelError, StructureError, describe
from fad.errors.advice import instead_of_a_number
from fad.tape.recorder import RecordingLevel


class Draws(NamedTuple):
    """How lanes draw: ``strict``, not with a key that all share; ``by_lane``, with their number folded in."""

    strict: bool = False
    by_lane: bool = False


# From the ``randomness`` of a vmap.
RANDOMNESS = {"error": Draws(strict=True), "same": Draws(), "different": Draws(by_lane=True)}


class BatchLevel(RecordingLevel):
    """vmap: ``value`` has an extra dimension at ``aux``; None is a value that all lanes share.

    Arguments:
        batch_size: the length of that dimension.
        axis_name: the name by which collectives refer to it.
        randomness: how lanes draw random numbers, by its name in `RANDOMNESS`; see `fad.levels.randomness`.
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
        if type(op) is Primitive and op.primals and dims[: op.primals] == [None] * op.primals:
            outs, shared = op.batch_tangents(values, tuple(dims), self)
            return tuple(
                [new_tensor(o, self, None if i < shared else 0) for i, o in enumerate(outs)]
            )
        out = op.batch(values, tuple(dims), self)
        return map_tensors(lambda o: new_tensor(o, self, 0), out)

    def layout(self, t: Tensor) -> Hashable:
        found: Hashable = t._aux
        return found

    def from_parts(self, parts: Sequence[Operand], layout: Any) -> Tensor:
        return new_tensor(parts[0], self, layout)

    def part_avals(self, aval: Any, layout: Any) -> tuple[Aval, ...]:
        return (aval,) if layout is None else (_with_dim(aval, layout, self.batch_size),)

    def settings(self) -> tuple[Hashable, ...]:
        return self.batch_size, self.axis_name, self.randomness, self.first

    def aval(self, t: Tensor) -> Any:
        lazy = t._lazy
        if lazy is not None:
            return lazy.aval
        aval = t._value.aval
        return aval if t._aux is None else _without_dim(aval, t.aux)

    def batch_dim(self, t: Tensor) -> int | None:
        dim: int | None = t.aux
        return dim

    def check_has_value(self, t: Tensor, what: str = "") -> None:
        if t.aux is not None:
            raise HostValueError(
                f"{what and f'{what} of '}a batched Tensor ({describe(t)} inside vmap), which has a value "
                f"for each lane, not one: {instead_of_a_number(what)}"
            )

    def constant(self, t: Tensor, stop: Callable[[Any], Value]) -> Tensor:
        return new_tensor(stop(t.value), self, t.aux)

    def with_primal(self, value: Value, aux: Any, primal: Any) -> tuple[Any, Any, Any]:
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
            found: Value = super().outlive(t)
            return found
        raise LevelError(
            f"a batched Tensor ({describe(t)}) was used after its vmap had finished: return it from "
            "the mapped function, which stacks it, rather than store it outside"
        )

    def mapped(self, value: Value, dim: int) -> Tensor:
        """An argument with the batch at ``dim``, a Tensor of this level."""
        self.note_argument(value)
        return new_tensor(value, self, dim)

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


@functools.lru_cache(maxsize=4096)
def _with_dim(aval: Any, dim: int, size: int) -> Any:
    return aval.update(shape=(*aval.shape[:dim], size, *aval.shape[dim:]))


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
    found: Value = bind(_broadcast(size, dim), (x,))
    return found


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
    return new_tensor(body.lower(lanes), body)  # type: ignore[attr-defined]  # a `StagedLevel`


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
    given = {t.level for a in args for t in layers(a) if t.aux is not None}
    missing = [x for x in levels if x not in given and x not in state.unreached]
    known = [x for x in missing if x.axis_name in asked]
    for level in known if args else ():
        args = [bind(_OF_LANES, (lanes_inside(level), args[0])), *args[1:]]
    run = bind if args else functools.partial(_without_operands, known)
    missing = [x for x in missing if x not in known]
    if not missing:
        return run(op, args), args
    try:
        with modes(unreached=(*state.unreached, *missing)):
            return run(op, args), args
    except LanesAsked as found:
        if found.level not in missing:
            raise
        asked.add(found.level.axis_name)
    return bind_among_lanes(op, args, asked)


def _without_operands(levels: Sequence[BatchLevel], op: Any, args: Sequence[Operand]) -> Outputs:
    """`bind` for a call without arguments, at each of ``levels``."""
    if not levels:
        return bind(op, args)
    *outer, level = levels
    out = op.batch(args, (), level, functools.partial(_without_operands, outer))
    return map_tensors(lambda o: new_tensor(o, level, 0), out)
