"""Chains: the steps that lead from a base to a view, and from a changed view back to its base."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import jaxapi
from fad.core.jaxapi import parameters
from fad.core.jaxprs import inner_jaxprs
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import bottom
from fad.core.types import Array, ArrayFunction, Aval, DType, JaxBody, JaxEquation, Operand, Value
from fad.errors import ArgumentError

# Chains: the steps that lead from a base to a view, as data and as one function.


class Write(enum.Enum):
    """How the base is made anew from a changed view, for one step."""

    RESHAPE = "reshape"
    PERMUTE = "permute"
    INDICES = "indices"
    SELECTION = "selection"  # INDICES, for a function of the user's, which is checked
    BROADCAST = "broadcast"
    FUNCTION = "function"


BROADCAST = Write.BROADCAST  # a look-up in the Enum takes longer
_view_primitives: weakref.WeakSet[Primitive] = weakref.WeakSet()


def makes_views(primitive: Primitive) -> bool:
    """Whether there is a kind of view that ``primitive`` makes."""
    return primitive in _view_primitives


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ViewOp:
    """One kind of step.

    Attributes:
        primitive: the view of its parent, from the parent and the step's numbers.
        write: how to put a changed view back.
        put: for ``Write.FUNCTION``, ``put(parent, view, *numbers)`` in plain JAX.
        add: ``add(parent, v, *numbers)`` in plain JAX, the parent with ``v`` added to the view, where
            that is better than to put back the sum; else None.
        selects: each element of the view is one of the parent, so that a gradient of the parent is
            viewed and written to as the parent is.
        whole: the elements of the view are whole elements of the parent, not parts of them.
        places: for a view of parts, ``places(addresses, parent, *numbers)``: where its elements are,
            counted in elements of its own dtype, from where those of the parent are, whose shape and dtype
            are ``parent``'s; None from it, or in place of it, if they are not at places of their own.
        pieces: how many views there are of the parent that only differ in the kind of step.
    """

    primitive: Primitive
    write: Write
    put: ArrayFunction | None = None
    add: ArrayFunction | None = None
    selects: bool = True
    whole: bool = True
    places: Callable[..., Array | None] | None = None
    pieces: int = 1

    def __post_init__(self) -> None:
        _view_primitives.add(self.primitive)

    def forward(self, parent: Array, numbers: Sequence[Operand]) -> Array:
        """The view, in plain JAX."""
        view: Array = self.primitive.flat(parent, *numbers)
        return view


@functools.lru_cache(maxsize=4096)
def view_op(primitive: Primitive, write: Write, pieces: int = 1) -> ViewOp:
    """The ViewOp around a Primitive."""
    return ViewOp(primitive, write, pieces=pieces)


IDENTITY = ViewOp(Primitive("alias", lambda x: x, deferrable=True), Write.RESHAPE)


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """One view of a chain: its kind, and the numbers (indices, starts of windows) of this one.

    ``constants``: the numbers as arrays, for a step that is used again and again; else empty.
    """

    op: ViewOp
    numbers: tuple[Operand, ...] = ()
    constants: tuple[Operand, ...] = ()


def same_chain(ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Whether two chains make the same view, as far as can be told without a look at values."""
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        if a is b:
            continue
        if a.op is not b.op or len(a.numbers) != len(b.numbers):
            return False
        for i, j in zip(a.numbers, b.numbers, strict=True):
            if i is not j and not (isinstance(i, int) and isinstance(j, int) and i == j):
                return False
    return True


# Chains as functions


Form = tuple[tuple[ViewOp, int], ...]


def form_of(chain: Sequence[Step]) -> Form:
    """What is static of a chain: the kinds of its steps, and how many numbers each takes."""
    return tuple([(step.op, len(step.numbers)) for step in chain])


def numbers_of(chain: Sequence[Step]) -> list[Any]:
    """The numbers of all steps, in order."""
    return [n for step in chain for n in step.numbers]


def split_numbers(form: Form, numbers: Sequence[Operand]) -> list[Sequence[Operand]]:
    """The numbers of each step."""
    it = iter(numbers)
    return [[next(it) for _ in range(count)] for _, count in form]


@functools.lru_cache(maxsize=4096)
def chain_primitive(form: Form) -> Primitive:
    """All steps of a chain as one Primitive of (base, *numbers)."""
    if len(form) == 1:
        return form[0][0].primitive
    ops = [op for op, _ in form]

    def view(x: Array, *numbers: Operand) -> Array:
        return chain_forward(ops, x, split_numbers(form, numbers))

    deferrable = all([op.primitive.deferrable for op in ops])
    return Primitive(ops[-1].primitive.name, view, positions=True, deferrable=deferrable)


def chain_forward(ops: Sequence[ViewOp], x: Array, numbers: Sequence[Sequence[Operand]]) -> Array:
    """The view that the steps make of the array ``x``, in plain JAX."""
    for op, step_numbers in zip(ops, numbers, strict=True):
        x = op.forward(x, step_numbers)
    return x


def addresses_after(
    op: ViewOp, addresses: Array, parent: Aval, numbers: Sequence[Operand]
) -> tuple[Array | None, Aval]:
    """Where the elements of a step's view are, and its shape and dtype; see NOTE [addresses].

    Arguments:
        op: the step.
        addresses: where the elements of its parent are.
        parent: shape and dtype of the parent.
        numbers: those of the step.

    Returns:
        None for the addresses, if the elements are not at places of their own.
    """
    if op.whole:
        places = op.forward(addresses, numbers)
        return places, jax.ShapeDtypeStruct(places.shape, parent.dtype)
    kind = jax.eval_shape(lambda x: op.forward(x, numbers), parent)
    return None if op.places is None else op.places(addresses, parent, *numbers), kind


def chain_addresses(
    ops: Sequence[ViewOp], addresses: Array, parent: Aval, numbers: Sequence[Sequence[Operand]]
) -> Array | None:
    """`addresses_after` all steps; None if they lead to no places."""
    for op, step_numbers in zip(ops, numbers, strict=True):
        places, parent = addresses_after(op, addresses, parent, step_numbers)
        if places is None:
            return None
        addresses = places
    return addresses


def replay(base: Value, chain: Sequence[Step]) -> Any:
    """The view that a chain makes of ``base``."""
    numbers = numbers_of(chain)
    forward = chain_primitive(form_of(chain))
    if jaxapi.is_tracing() and not isinstance(bottom(base), jax.core.Tracer):
        with jax.ensure_compile_time_eval():
            return bind(forward, [base, *numbers])
    return bind(forward, [base, *numbers])


# Write-back: a base made anew from a changed view of it, step by step, in plain JAX.


def chain_put(
    ops: Sequence[ViewOp], parent: Array, view: Array, numbers: Sequence[Sequence[Operand]]
) -> Array:
    """``parent`` with ``view`` in the place of the view that the steps make of it, in plain JAX."""
    if not ops:
        return view
    op, step_numbers = ops[0], numbers[0]
    if op.write is Write.BROADCAST and len(ops) > 1:
        places = chain_addresses(ops, _numbered(parent), parent, numbers)
        if places is None:
            names = [later.primitive.name for later in ops if not later.whole]
            raise ArgumentError(
                f"cannot write through {names[-1]!r} of a broadcast view: clone() it first"
            )
        return _put_at(places, parent, view)
    if len(ops) > 1:
        view = chain_put(ops[1:], op.forward(parent, step_numbers), view, numbers[1:])
    return put(op, parent, view, step_numbers)


def put(op: ViewOp, parent: Array, view: Array, numbers: Sequence[Operand]) -> Array:
    """``parent`` with ``view`` written back through one step."""
    if op.put is not None:
        changed: Array = op.put(parent, view, *numbers)
        return changed
    if op.write is Write.PERMUTE:
        order = _permutation(op.primitive, parent.ndim)
        return jnp.transpose(view, np.argsort(order).tolist())
    if op.write is Write.RESHAPE and keeps_order(op.primitive, parent.shape, parent.dtype):
        return jnp.reshape(view, parent.shape)
    if op.write is Write.SELECTION:
        _check_selects(op, parent.shape)
    return _put_at(op.forward(_numbered(parent), numbers), parent, view)


def _check_selects(op: ViewOp, shape: tuple[int, ...]) -> None:
    """Refuse to write through a function of the user's that does more than select."""
    with jax.ensure_compile_time_eval():
        size = math.prod(shape)
        indices = np.asarray(op.forward(jnp.arange(size).reshape(shape), ()))
        probe = np.sin(1.0 + np.arange(size, dtype=np.float32))
        seen = np.asarray(op.forward(jnp.asarray(probe).reshape(shape), ()))
    selected = indices.dtype.kind in "iu" and (not indices.size or indices.max() < size)
    if not selected or not np.array_equal(seen, probe[indices]):
        raise ArgumentError(
            f"the view {op.primitive.name!r} does not only select elements, so how a write goes back "
            "cannot be derived: give view_function a write_back(x, view)"
        )
    if np.unique(indices).size != indices.size:
        raise ArgumentError(
            f"the view {op.primitive.name!r} shows an element twice, so it cannot be written to: "
            "clone() it first"
        )


def _numbered(x: Value) -> Array:
    return jnp.arange(x.size).reshape(x.shape)


def _put_at(places: Array, parent: Array, view: Array) -> Array:
    """The general write-back of a view whose elements are at ``places``, counted in its own dtype."""
    flat = _read_as(parent.ravel(), view.dtype)
    flat = flat.at[places.ravel()].set(view.ravel())
    return _read_as(flat, parent.dtype).reshape(parent.shape)


def _read_as(flat: Array, dtype: DType) -> Array:
    """The bytes of a vector as another dtype; as real and imaginary parts they have derivatives."""
    if flat.dtype == dtype:
        return flat
    if jnp.zeros((), flat.dtype).real.dtype == dtype:
        return jnp.stack([flat.real, flat.imag], -1).ravel()
    if jnp.zeros((), dtype).real.dtype == flat.dtype:
        return jax.lax.complex(flat[::2], flat[1::2])
    return flat.view(dtype)


_LENGTHS = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@functools.lru_cache(maxsize=1024)
def _permutation(primitive: Primitive, ndim: int) -> tuple[int, ...]:
    """The order of dimensions that a transpose gives, read off shapes."""
    struct = jax.ShapeDtypeStruct(_LENGTHS[:ndim], np.float32)
    return tuple([_LENGTHS.index(n) for n in jax.eval_shape(primitive.flat, struct).shape])


_ORDERLY = frozenset(["reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy"])


def _permutes(eqn: JaxEquation) -> bool:
    return eqn.primitive.name == "reshape" and parameters(eqn) != (None,)


@functools.lru_cache(maxsize=1024)
def keeps_order(primitive: Primitive, shape: tuple[int, ...], dtype: DType) -> bool:
    """Whether a reshape keeps elements in row-major order, as ``order="C"`` does."""
    closed = jax.make_jaxpr(primitive.flat)(jax.ShapeDtypeStruct(shape, dtype))

    def orderly(jaxpr: JaxBody) -> bool:
        for eqn in jaxpr.eqns:
            inner = list(inner_jaxprs(eqn))
            if inner:
                if not all([orderly(j) for j in inner]):
                    return False
            elif eqn.primitive.name not in _ORDERLY or _permutes(eqn):
                return False
        return True

    return orderly(closed.jaxpr)


def overlaps(chain: Sequence[Step], base: Value) -> bool:
    """Whether two elements of the view are one of the base, as in what ``broadcast_to`` returns."""
    if not any([step.op.write is Write.BROADCAST for step in chain]):
        return False
    numbers = [step.numbers for step in chain]
    if any(
        [isinstance(bottom(n), jax.core.Tracer) for step_numbers in numbers for n in step_numbers]
    ):
        return chain[-1].op.write is Write.BROADCAST
    with jax.ensure_compile_time_eval():
        places = _numbered(base)
        parent: Aval = jax.ShapeDtypeStruct(base.shape, base.dtype)
        for step in chain:
            step_numbers = [bottom(n) for n in step.numbers]
            after, parent = addresses_after(step.op, places, parent, step_numbers)
            if after is None:  # parts of elements: they overlap if the elements do
                break
            places = after
        return bool(np.unique(places).size != places.size)
