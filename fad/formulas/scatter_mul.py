"""Factors multiplied into an array at indices that may repeat, with derivatives of every order.

JAX differentiates `jax.lax.scatter_mul` for unique indices alone. Where indices repeat, an element of the
result is a product of several factors, and the derivative by one of them is the product of the others. Those
are found without a division, which would fail at 0: the factors are sorted by their places, and multiplied up
from both ends of each stretch that has one place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fad.extend import linear_call, scattered_to
from fad.extend.types import Operand, PyTree

Multiply = Callable[..., Array]


@dataclass(frozen=True)
class _Factors:
    """``multiply(x, v, *index)``, which is linear in ``x``, and its own transpose."""

    multiply: Multiply

    def __call__(self, point: Sequence[Array], vector: Sequence[Array]) -> list[Array]:
        return [_multiplied(self.multiply, *vector, *point)]

    @property
    def transposed(self) -> _Factors:
        return self


def _product(multiply: Multiply, x: Array, v: Array, places: Array, *index: Array) -> Array:
    """``multiply(x, v, *index)``; ``places`` has where in flat ``x`` each element of ``v`` goes."""
    return jnp.asarray(linear_call(_Factors(multiply), [v, places, *index], [x])[0])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _multiplied(multiply: Multiply, x: Array, v: Array, places: Array, *index: Array) -> Array:
    """`_product`, differentiated in ``v`` alone."""
    return multiply(x, v, *index)


@partial(_multiplied.defjvp, symbolic_zeros=True)
def _multiplied_jvp(
    multiply: Multiply, primals: Sequence[Array], tangents: Sequence[Array]
) -> tuple[Array, Array]:
    x, v, places, *index = primals
    at = places.reshape(-1)
    cast = v.astype(x.dtype).reshape(-1)
    before = x.reshape(-1).at[at].get(mode="fill", fill_value=0)
    part = tangents[1].astype(x.dtype).reshape(-1) * before * _of_others(at, cast)
    from_v = jnp.zeros(x.size, x.dtype).at[at].add(part, mode="drop").reshape(x.shape)
    return _product(multiply, x, v, places, *index), from_v


def _of_others(at: Array, v: Array) -> Array:
    """For each element of ``v`` the product of the other ones that have the same place."""
    order = jnp.argsort(at)
    there, factors = at[order], v[order]
    new = there[1:] != there[:-1]  # the place is not the one before
    one = jnp.ones(min(v.size, 1), v.dtype)
    edge = jnp.ones(min(v.size, 1), bool)

    def behind(a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, Array]:
        return a[0] | b[0], jnp.where(b[0], b[1], a[1] * b[1])

    first, last = jnp.concatenate([edge, new]), jnp.concatenate([new, edge])
    up = lax.associative_scan(behind, (first, factors))[1]
    down = lax.associative_scan(behind, (last, factors), reverse=True)[1]
    earlier = jnp.where(first, 1, jnp.concatenate([one, up[:-1]]))
    later = jnp.where(last, 1, jnp.concatenate([down[1:], one]))
    return jnp.zeros_like(v).at[order].set(earlier * later, unique_indices=True)


def _places(shape: tuple[int, ...]) -> Array:
    return lax.iota(jnp.int32, math.prod(shape)).reshape(shape)


def multiply_at(x: Array, index: PyTree, v: Array, **options: Any) -> Array:
    """``x.at[index].multiply(v, **options)``."""
    x = jnp.asarray(x)
    index = index if type(index) is tuple else (index,)
    arrays = [k for k, i in enumerate(index) if hasattr(i, "shape") or isinstance(i, (list, int))]
    dtypes = [jnp.asarray(index[k]).dtype for k in arrays]

    def multiply(x: Array, v: Array, *values: Array) -> Array:
        at = list(index)
        for k, value in zip(arrays, values, strict=True):
            at[k] = value
        return x.at[tuple(at)].multiply(v, **options)

    repeats = any([jnp.ndim(index[k]) for k in arrays]) and not options.get("unique_indices")
    if not repeats or bool in dtypes or not jnp.issubdtype(x.dtype, jnp.inexact):
        return multiply(x, v, *[index[k] for k in arrays])
    mode = options.get("mode")
    reading = {n: options[n] for n in ("wrap_negative_indices",) if n in options}
    mode = "fill" if mode in (None, "drop") else mode
    places = _places(x.shape).at[index].get(mode=mode, fill_value=x.size, **reading)
    v = jnp.broadcast_to(v, places.shape)
    return _product(multiply, x, v, places, *[index[k] for k in arrays])


def combine_at(method: str, x: Array, index: PyTree, v: Array, **options: Any) -> Array:
    """``x.at[index].method(v, **options)``, with derivatives where indices repeat."""
    if method in ("multiply", "mul"):
        return multiply_at(x, index, v, **options)
    if method in _BY_FACTORS and jnp.issubdtype(x.dtype, jnp.inexact):
        return _BY_FACTORS[method](x, multiply_at(jnp.ones_like(x), index, v, **options))
    out: Array = getattr(x.at[index], method)(v, **options)
    return out


# JAX's ``x.at[index].divide(v)`` divides by the product of all that is in ``v`` for an element.
_BY_FACTORS: dict[str, Callable[..., Array]] = {"divide": jnp.divide, "power": jnp.power}


@wraps(jnp.multiply.at)
def multiply_in(a: Any, indices: Any, b: Any, /, *, inplace: bool = True) -> Array:
    """``multiply.at``."""
    if inplace:
        return jnp.multiply.at(a, indices, b)  # which says what to write
    return multiply_at(a, indices, b)


@wraps(lax.scatter_mul)
def scatter_mul(
    operand: Operand,
    scatter_indices: Any,
    updates: Operand,
    dimension_numbers: lax.ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Array:
    """`jax.lax.scatter_mul`, with derivatives where indices repeat."""
    numbers = dimension_numbers

    def multiply(x: Array, v: Array, indices: Array) -> Array:
        return lax.scatter_mul(
            x,
            indices,
            v,
            numbers,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode=mode,
        )

    x, v = jnp.asarray(operand), jnp.asarray(updates)
    if unique_indices or not jnp.issubdtype(x.dtype, jnp.inexact):
        return multiply(x, v, scatter_indices)
    places = scattered_to(x.shape, v.shape, scatter_indices, numbers, mode, x.size)
    return _product(multiply, x, v, places, scatter_indices)
