"""The determinant, with derivatives that are right for singular matrices too.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from fad.arrays.lists import Function
from fad.arrays.smooth import computed_as, with_rule
from fad.core.dtypes import is_inexact
from fad.core.types import Array, Outputs

_BLOCK = 3


def _triple_product(a: Array) -> Array:
    """The determinant of three rows."""
    x, y, z = a[..., 0, :], a[..., 1, :], a[..., 2, :]
    return jnp.sum(x * jnp.cross(y, z), -1)


def _minors(a: Array) -> list[Array]:
    """The determinants of two columns of two rows of four."""
    x, y = a[..., 0, :], a[..., 1, :]
    pairs = itertools.combinations(range(4), 2)
    return [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in pairs]


def _of_four(a: Array) -> Array:
    """The determinant of four rows: minors of the first two times minors of the last two (Laplace)."""
    p = _minors(a[..., :2, :])
    q = _minors(a[..., 2:, :])[::-1]
    return p[0] * q[0] - p[1] * q[1] + p[2] * q[2] + p[3] * q[3] - p[4] * q[4] + p[5] * q[5]


_inverse = with_rule(jnp.linalg.inv, lambda out, _, tangents: -out @ tangents[0] @ out)


def _by_blocks(det: Function, a: Array, u: Array, s: Array, vh: Array) -> Array:
    """The determinant as that of a regular block, times that of its Schur complement.

    The blocks are those of ``u.T @ a @ v``, with constant singular vectors of ``a``: the smallest
    singular values are in the complement. If more than ``_BLOCK`` are zero, so are all derivatives up
    to the order ``_BLOCK``.
    """
    # Its value is diagonal, to the last digit.
    values = s[..., None] * jnp.eye(a.shape[-1], dtype=a.dtype)
    turned = values + jnp.conj(u.mT) @ (a - lax.stop_gradient(a)) @ jnp.conj(vh.mT)
    k = a.shape[-1] - _BLOCK
    zero = s[..., k - 1] == 0
    regular = jnp.where(zero[..., None, None], jnp.eye(k, dtype=a.dtype), turned[..., :k, :k])
    right, left, rest = turned[..., :k, k:], turned[..., k:, :k], turned[..., k:, k:]
    complement = rest - left @ _inverse(regular) @ right
    return jnp.where(zero, 0, det(u) * det(vh) * det(regular) * _triple_product(complement))


@custom_vmap
def _any(singular: Array) -> Array:
    """Whether one is, of a batch too: so that a `cond` stays one under `vmap`."""
    return jnp.any(singular)


@_any.def_vmap
def _any_of_batch(size: int, batched: Sequence[bool], singular: Array) -> tuple[Array, bool]:
    return _any(singular), False


def _from_factors(a: Array, lu: Array, permutation: Array) -> Array:
    """The transposed inverse of ``a``, by its factorization."""
    solve = functools.partial(lax.linalg.triangular_solve, lu, transpose_a=True)
    places = jnp.arange(a.shape[-1])[:, None]
    permuted = (permutation[..., None, :] == places).astype(a.dtype)
    return solve(solve(permuted, lower=True, unit_diagonal=True))


_cofactors_by = with_rule(_from_factors, lambda out, _, tangents: -out @ tangents[0].mT @ out)


def _det(det: Function) -> Function:
    """JAX's derivative is zero where a pivot is zero that is not the last one.

    The slope is the matrix of cofactors: the determinant times the transposed inverse, by the factorization
    that the value is computed of. `lax.cond` takes another formula if a matrix is singular.
    """

    def regular(out: Array, a: Array, lu: Array, permutation: Array) -> Array:
        return out[..., None, None] * _cofactors_by(a, lu, permutation)

    def singular(which: Array, out: Array, a: Array, lu: Array, permutation: Array) -> Array:
        mask = which[..., None, None]
        eye = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
        rest = regular(out, jnp.where(mask, eye, a), jnp.where(mask, eye, lu), permutation)
        a = jnp.where(mask, a, eye)
        u, s, vh = jnp.linalg.svd(lax.stop_gradient(a), full_matrices=False)
        found, pullback = jax.vjp(lambda a: _by_blocks(det, a, u, s, vh), a)
        return jnp.where(mask, pullback(jnp.ones_like(found))[0], rest)

    def cofactors(a: Array) -> Array:
        lu, _, permutation = lax.linalg.lu(lax.stop_gradient(a))
        pivots = jnp.abs(jnp.diagonal(lu, axis1=-2, axis2=-1))
        small = a.shape[-1] * jnp.finfo(a.dtype).eps * 100
        which = jnp.min(pivots, -1) <= small * jnp.max(pivots, -1)
        return lax.cond(
            _any(which),
            functools.partial(singular, which),
            regular,
            smooth(a), a, lu, permutation,
        )  # fmt: skip

    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        return jnp.sum(cofactors(primals[0]) * tangents[0], (-2, -1))

    smooth = with_rule(det, rule)
    polynomials = {3: _triple_product, 4: _of_four}

    def without_options(a: Array) -> Array:
        return det(a)

    by_rows = {n: computed_as(without_options, of_n) for n, of_n in polynomials.items()}

    def called(a: Array, *options: Array) -> Outputs:
        a = jnp.asarray(a)
        if not (a.ndim >= 2 and a.shape[-1] == a.shape[-2] >= _BLOCK and is_inexact(a.dtype)):
            return det(a, *options)
        return by_rows.get(a.shape[-1], smooth)(a)

    return called


IN_LINALG: dict[str, Function] = {"det": _det}
