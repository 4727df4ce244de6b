"""Functions of PyTorch on matrices, written in JAX; see `fad.arrays.torch_functions`."""

from __future__ import annotations

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array
from jax.typing import ArrayLike

from fad.arrays.dims import text
from fad.errors import ArgumentError


def _check_ndim(who: str, **arrays: tuple[Array, int]) -> None:
    for name, (x, ndim) in arrays.items():
        if jnp.ndim(x) != ndim:
            raise ArgumentError(
                f"{who}: {name} must have {ndim} dimension{'s' * (ndim > 1)}, got {text(x)}"
            )


def _plus(x: Array, product: Array, beta: ArrayLike, alpha: ArrayLike) -> Array:
    return jnp.add(beta * x, alpha * product)


def addbmm(
    x: Array, batch1: Array, batch2: Array, *, beta: ArrayLike = 1, alpha: ArrayLike = 1
) -> Array:
    """``beta * x + alpha * (batch1 @ batch2).sum(0)``."""
    _check_ndim("addbmm", batch1=(batch1, 3), batch2=(batch2, 3))
    return _plus(x, jnp.einsum("bij,bjk->ik", batch1, batch2), beta, alpha)


def addmm(
    x: Array, mat1: Array, mat2: Array, *, beta: ArrayLike = 1, alpha: ArrayLike = 1
) -> Array:
    """``beta * x + alpha * mat1 @ mat2``."""
    _check_ndim("addmm", mat1=(mat1, 2), mat2=(mat2, 2))
    return _plus(x, mat1 @ mat2, beta, alpha)


def addmv(x: Array, mat: Array, vec: Array, *, beta: ArrayLike = 1, alpha: ArrayLike = 1) -> Array:
    """``beta * x + alpha * mat @ vec``."""
    _check_ndim("addmv", mat=(mat, 2), vec=(vec, 1))
    return _plus(x, jnp.matmul(mat, vec), beta, alpha)


def addr(x: Array, vec1: Array, vec2: Array, *, beta: ArrayLike = 1, alpha: ArrayLike = 1) -> Array:
    """``beta * x + alpha * outer(vec1, vec2)``."""
    _check_ndim("addr", vec1=(vec1, 1), vec2=(vec2, 1))
    return _plus(x, jnp.outer(vec1, vec2), beta, alpha)


def baddbmm(
    x: Array, batch1: Array, batch2: Array, *, beta: ArrayLike = 1, alpha: ArrayLike = 1
) -> Array:
    """``beta * x + alpha * batch1 @ batch2``."""
    _check_ndim("baddbmm", batch1=(batch1, 3), batch2=(batch2, 3))
    return _plus(x, batch1 @ batch2, beta, alpha)


def bmm(x: Array, mat2: Array) -> Array:
    """The product of two batches of matrices."""
    _check_ndim("bmm", self=(x, 3), mat2=(mat2, 3))
    return x @ mat2


def mm(x: Array, mat2: Array) -> Array:
    """The product of two matrices."""
    _check_ndim("mm", self=(x, 2), mat2=(mat2, 2))
    return x @ mat2


def mv(x: Array, vec: Array) -> Array:
    """The product of a matrix and a vector."""
    _check_ndim("mv", self=(x, 2), vec=(vec, 1))
    return x @ vec


def cholesky(x: Array, upper: bool = False) -> Array:
    """The Cholesky factor of a positive definite matrix."""
    return jnp.linalg.cholesky(x, upper=upper)


def cholesky_inverse(x: Array, upper: bool = False) -> Array:
    """The inverse of the matrix that has ``x`` as its Cholesky factor."""
    return cholesky_solve(jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape), x, upper)


def cholesky_solve(x: Array, input2: Array, upper: bool = False) -> Array:
    """What ``a @ result = x`` is solved by, where ``a`` has ``input2`` as its Cholesky factor."""
    return jsl.cho_solve((input2, not upper), x)


def logdet(x: Array) -> Array:
    """The logarithm of the determinant; NaN where that is negative."""
    sign, value = jnp.linalg.slogdet(x)
    return jnp.where(sign < 0, jnp.nan, value)


def diag_embed(x: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    """Matrices with the last dimension of ``x`` as their diagonals."""
    n = x.shape[-1] + abs(offset)
    rows = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(max(-offset, 0), max(offset, 0))])
    out = jnp.where(jnp.eye(n, k=offset, dtype=bool), rows[..., None], jnp.zeros((), x.dtype))
    return jnp.moveaxis(out, (-2, -1), (dim1, dim2))
