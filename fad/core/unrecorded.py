"""Results without a history, in traced code: what ``no_grad`` means there.

NOTE [no_grad in traced code]

    def f(x):
        with fad.no_grad():
            c = x * x
        return c * x

    assert fad.grad(fad.jit(f))(2.0) == fad.grad(f)(2.0) == 4.0  # not 12.0

A program of JAX has no grad mode: what differentiates it, differentiates all of it. So each result that the
body of a staged function (`jit`, `scan`, `cond`, ...) computes under ``no_grad`` goes through a primitive
that gives it back. That is linear: tangents pass, as ``no_grad`` lets them; but its transpose gives no
cotangent, so that a reverse mode stops there, whatever the order of the transforms around.

A write in place under ``no_grad`` leaves the history of its Tensor as it was: it has the old value as a
second operand, and that gets the cotangent.

Where a function is transposed for its own sake (`linear_transpose`), a transpose without a part of the value
would be wrong: there the primitive ``refuses``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    Zero,
    define_primitive,
    instantiate_zeros,
    is_undefined_primal,
    new_primitive,
)
from fad.core.types import Array
from fad.errors import GradientError
from fad.errors.advice import AS_RECORDED

unrecorded_p = new_primitive("fad_unrecorded")


def unrecorded(new: Array, old: Array | None = None) -> Array:
    """The array ``new``, without a history, or with that of ``old``."""
    if not is_inexact(new.dtype):
        return new
    operands = (new,) if old is None else (new, old)
    found: Array = unrecorded_p.bind(*operands, refuses=False)[0]
    return found


def _first(*values: Array, refuses: bool) -> list[Array]:
    return [values[0]]


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Array], *, refuses: bool
) -> tuple[list[Array], list[Array]]:
    out = unrecorded_p.bind(*primals, refuses=refuses)
    if all([type(t) is Zero for t in tangents]):
        return out, [tangents[0]]
    return out, unrecorded_p.bind(*map(instantiate_zeros, tangents), refuses=False)


def _transpose(
    cotangents: Sequence[Array], new: object, *old: object, refuses: bool
) -> list[Array | None]:
    if refuses and type(cotangents[0]) is not Zero:
        raise GradientError(
            "linear_transpose: the result of the function depends on its arguments by what is computed under "
            f"no_grad, which has no transpose. Compute it with recorded operations ({AS_RECORDED})"
        )
    return [None, *[cotangents[0] if is_undefined_primal(x) else None for x in old]]


def _batch(
    axis: Any, values: Sequence[Array], dims: Sequence[int | None], *, refuses: bool
) -> tuple[list[Array], list[int]]:
    moved = [
        jnp.broadcast_to(v, (axis.size, *v.shape)) if d is None else jnp.moveaxis(v, d, 0)
        for v, d in zip(values, dims, strict=True)
    ]
    return unrecorded_p.bind(*moved, refuses=refuses), [0]


define_primitive(unrecorded_p, _first, _first, jvp=_jvp, transpose=_transpose, batch=_batch)
