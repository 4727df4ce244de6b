"""Write-back: a base made anew from a changed view of it, step by step, in plain JAX."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.jaxapi import parameters
from fad.core.jaxprs import inner_jaxprs
from fad.core.primitive import Primitive
from fad.core.tensor import bottom
from fad.core.types import Array, Aval, DType, JaxBody, JaxEquation, Operand, Value
from fad.errors import ArgumentError
from fad.views.chains import Step, ViewOp, Write, addresses_after, chain_addresses


def chain_put(
    ops: Sequence[ViewOp], parent: Array, view: Array, numbers: Sequence[Sequence[Operand]]
) -> Array:
    """``parent`` with ``view`` in the place of the view that the steps make of it, in plain JAX."""
    if not ops:
        return view
    op, own = ops[0], numbers[0]
    if op.write is Write.BROADCAST and len(ops) > 1:
        places = chain_addresses(ops, _numbered(parent), parent, numbers)
        if places is None:
            names = [later.primitive.name for later in ops if not later.whole]
            raise ArgumentError(
                f"cannot write through {names[-1]!r} of a broadcast view: clone() it first"
            )
        return _put_at(places, parent, view)
    if len(ops) > 1:
        view = chain_put(ops[1:], op.forward(parent, own), view, numbers[1:])
    return put(op, parent, view, own)


def put(op: ViewOp, parent: Array, view: Array, numbers: Sequence[Operand]) -> Array:
    """``parent`` with ``view`` written back through one step."""
    if op.put is not None:
        found: Array = op.put(parent, view, *numbers)
        return found
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
    if any([isinstance(bottom(n), jax.core.Tracer) for own in numbers for n in own]):
        return chain[-1].op.write is Write.BROADCAST
    with jax.ensure_compile_time_eval():
        places = _numbered(base)
        parent: Aval = jax.ShapeDtypeStruct(base.shape, base.dtype)
        for step in chain:
            own = [bottom(n) for n in step.numbers]
            found, parent = addresses_after(step.op, places, parent, own)
            if found is None:  # of parts: they overlap if what they are of does
                break
            places = found
        return bool(np.unique(places).size != places.size)
