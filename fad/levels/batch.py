"""The level of vmap, and operations along its batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fad.core.jaxapi import mapped_aval
from fad.core.level import bind, map_tensors, state
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


def bind_collective(op: Any, args: Sequence[Operand], axis_name: Hashable) -> Outputs:
    """`bind` for a Primitive that names vmap axes, such as ``psum``.

    Each running vmap of that name takes part even where no argument is batched over it: an operand
    that belongs to its level, and is not read, brings the call there.
    """
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    levels = [x for x in batch_levels() if x.axis_name is not None and x.axis_name in names]
    if not levels:
        return bind(op, args)
    lanes = [lanes_of(level) for level in levels]
    return bind(_ignoring_first(op, len(lanes)), [*lanes, *args])


def lanes_of(level: BatchLevel) -> Tensor:
    """The number of each lane of ``level``; the same Tensor each time."""
    if level.lanes is None:
        with jax.ensure_compile_time_eval():  # it outlives whatever is being traced now
            numbers = level.first + jnp.arange(level.batch_size)
        level.lanes = new_tensor(numbers, level, 0)
    return level.lanes


@functools.lru_cache(maxsize=1024)
def _ignoring_first(op: Primitive, count: int) -> Primitive:
    return Primitive(op.name, lambda *values: op.flat(*values[count:]), jit=op.jit, collective=True)
