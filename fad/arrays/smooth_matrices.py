"""The determinant, with derivatives that are right for singular matrices too.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import computed_as, with_rule
from fad.core.dtypes import is_inexact
from fad.core.types import Array, Outputs

_BLOCK = 3


def _triple_product(a: Array) -> Array:
    """The determinant of three rows."""
    x, y, z = a[..., 0, :], a[..., 1, :], a[..., 2, :]
    return jnp.sum(x * jnp.cross(y, z), -1)


_inverse = with_rule(jnp.linalg.inv, lambda out, _, tangents: -out @ tangents[0] @ out)


def _by_blocks(det: Function, a: Array, u: Array, s: Array, vh: Array) -> Array:
    """The determinant as that of a regular block, times that of its Schur complement.

    The blocks are those of ``u.T @ a @ v``, with constant singular vectors of ``a``: the smallest
    singular values are in the complement. If more than ``_BLOCK`` are zero, so are all derivatives up
    to the order ``_BLOCK``.
    """
    turned = jnp.conj(u.mT) @ a @ jnp.conj(vh.mT)
    k = a.shape[-1] - _BLOCK
    zero = s[..., k - 1] == 0
    regular = jnp.where(zero[..., None, None], jnp.eye(k, dtype=a.dtype), turned[..., :k, :k])
    right, left, rest = turned[..., :k, k:], turned[..., k:, :k], turned[..., k:, k:]
    complement = rest - left @ _inverse(regular) @ right
    return jnp.where(zero, 0, det(u) * det(vh) * det(regular) * _triple_product(complement))


def _det(det: Function) -> Function:
    """JAX's derivative is zero where a pivot is zero that is not the last one."""

    def vectors(a: Array) -> Outputs:
        return tuple(jnp.linalg.svd(a, full_matrices=False))

    def other(a: Array) -> Array:
        constant = lax.stop_gradient(a)
        eye = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
        pivots = jnp.abs(jnp.diagonal(lax.linalg.lu(constant)[0], axis1=-2, axis2=-1))
        small = a.shape[-1] * jnp.finfo(a.dtype).eps * 100
        singular = jnp.min(pivots, -1) <= small * jnp.max(pivots, -1)
        mask = singular[..., None, None]
        # No more than these are in the cond: under vmap, one with tangents has no transpose.
        constants = lax.cond(
            jnp.any(singular),
            vectors,
            lambda a: (eye, jnp.ones_like(pivots), eye),
            jnp.where(mask, constant, eye),
        )
        by_blocks = _by_blocks(det, jnp.where(mask, a, eye), *constants)
        return jnp.where(singular, by_blocks, det(jnp.where(mask, eye, a)))

    def smooth(a: Array, *options: Array) -> Outputs:
        a = jnp.asarray(a)
        if not (a.ndim >= 2 and a.shape[-1] == a.shape[-2] >= _BLOCK and is_inexact(a.dtype)):
            return det(a, *options)
        formula = _triple_product if a.shape[-1] == _BLOCK else other
        return computed_as(lambda a: det(a, *options), formula)(a)

    return smooth


IN_LINALG: dict[str, Function] = {"det": _det}
