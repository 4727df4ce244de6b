"""Functions of PyTorch that JAX does not have, or has with another meaning, written in JAX.

Names, arguments and results are those of PyTorch; several results are a named tuple. The annotations say
what is an array and what is static, see `fad.extend.array_function`. Those of matrices come behind
the others, and those that index last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from fad.errors import ArgumentError
from fad.extend.types import ArrayFunction, DType, PyTree
from fad.formulas import smooth_norms, smooth_special
from fad.formulas.scatter_mul import combine_at
from fad.formulas.smooth_functions import Axes, Number
from fad.formulas.smooth_norms import matrix_norm, vector_norm
from fad.formulas.torch_dimensions import dims_of, text


class ValuesIndices(NamedTuple):
    """What `topk`, ``max(dim=...)``, ``sort(dim=...)`` and the like return."""

    values: Any
    indices: Any


class MinMax(NamedTuple):
    """What `aminmax` returns."""

    min: Any
    max: Any


# Elementwise


def add(x: ArrayLike, other: ArrayLike, *, alpha: ArrayLike = 1) -> Array:
    """``x + alpha * other``."""
    return jnp.add(x, jnp.multiply(alpha, other))


def sub(x: ArrayLike, other: ArrayLike, *, alpha: ArrayLike = 1) -> Array:
    """``x - alpha * other``."""
    return jnp.subtract(x, jnp.multiply(alpha, other))


def div(x: ArrayLike, other: ArrayLike, *, rounding_mode: str | None = None) -> Array:
    """``x / other``, rounded down (``"floor"``), towards zero (``"trunc"``), or not at all (None)."""
    if rounding_mode is None:
        return jnp.true_divide(x, other)
    if rounding_mode == "floor":
        return jnp.floor_divide(x, other)
    if rounding_mode != "trunc":
        raise ArgumentError(
            f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}"
        )
    if jnp.issubdtype(jnp.result_type(x, other), jnp.inexact):
        return jnp.trunc(jnp.true_divide(x, other))
    dtype = jnp.result_type(x, other)
    x, other = jnp.broadcast_arrays(x, other)
    return jax.lax.div(x.astype(dtype), other.astype(dtype))


def addcdiv(x: ArrayLike, a: ArrayLike, b: ArrayLike, *, value: ArrayLike = 1) -> Array:
    """``x + value * a / b``."""
    return jnp.asarray(x + value * a / b)


def addcmul(x: ArrayLike, a: ArrayLike, b: ArrayLike, *, value: ArrayLike = 1) -> Array:
    """``x + value * a * b``."""
    return jnp.asarray(x + value * a * b)


def clamp_max(x: ArrayLike, max: ArrayLike) -> Array:
    """``x``, at most ``max``."""
    return jnp.clip(x, None, max)


def clamp_min(x: ArrayLike, min: ArrayLike) -> Array:
    """``x``, at least ``min``."""
    return jnp.clip(x, min, None)


def frac(x: Array) -> Array:
    """The part of ``x`` behind the point, with its sign."""
    return x - jnp.trunc(x)


def hardshrink(x: Array, lambd: ArrayLike = 0.5) -> Array:
    """``x``, and 0 where ``abs(x) <= lambd``."""
    return jnp.where((x >= -lambd) & (x <= lambd), jnp.zeros((), x.dtype), x)  # type: ignore[operator]


def lerp(x: ArrayLike, end: ArrayLike, weight: ArrayLike) -> Array:
    """``x + weight * (end - x)``."""
    return jnp.asarray(x + weight * (end - x))  # type: ignore[operator]


def logit(x: Array, eps: ArrayLike | None = None) -> Array:
    """``log(x / (1 - x))``; with ``eps``, of ``x`` clamped to ``[eps, 1 - eps]``."""
    if eps is not None:
        x = jnp.clip(x, eps, 1 - eps)
    return jnp.log(x / (1 - x))


def mask_of(mask: ArrayLike, who: str) -> Array:
    """A mask, checked."""
    mask = jnp.asarray(mask)
    if mask.dtype != bool:
        raise ArgumentError(f"{who}: the mask must be of dtype bool, got {text(mask)}")
    return mask


def masked_fill(x: Array, mask: Array, value: ArrayLike) -> Array:
    """``x``, and ``value`` where ``mask`` is true."""
    mask = mask_of(mask, "masked_fill")
    return jnp.where(mask, jnp.asarray(value).astype(x.dtype), x)


def mvlgamma(x: ArrayLike, p: int) -> Array:
    """The logarithm of the multivariate gamma function with dimension ``p``."""
    return jax.scipy.special.multigammaln(x, p)


def polygamma(x: ArrayLike, n: int) -> Array:
    """The ``n``-th derivative of the digamma function."""
    return smooth_special.polygamma(n, x)


def prelu(x: Array, weight: Array) -> Array:
    """``x``, and ``weight * x`` where it is negative; one weight, or one for each place of dimension 1."""
    if weight.size > 1:
        weight = weight.reshape(weight.size, *[1] * max(x.ndim - 2, 0))
    return jnp.where(x > 0, x, weight.reshape(()) * x if weight.size == 1 else weight * x)


def rsqrt(x: ArrayLike) -> Array:
    """``1 / sqrt(x)``."""
    return jax.lax.rsqrt(jnp.asarray(x) * 1.0)


def where(x: ArrayLike, condition: ArrayLike, other: ArrayLike) -> Array:
    """``x`` where ``condition`` is true, else ``other``."""
    return jnp.where(condition, x, other)


# Reductions


def aminmax(x: Array, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The least and the greatest element."""
    return MinMax(jnp.min(x, dim, keepdims=keepdim), jnp.max(x, dim, keepdims=keepdim))


def dist(x: Array, other: Array, p: float = 2) -> Array:
    """The ``p``-norm of ``x - other``."""
    return norm(x - other, p)


def histc(x: Array, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """How many elements there are in each of ``bins`` parts of the range; that of ``x`` if it is empty."""
    limits = None if min == max == 0 else (min, max)
    return jnp.histogram(x, bins, limits)[0].astype(x.dtype)


def logsumexp(x: ArrayLike, dim: Axes = None, keepdim: bool = False) -> Array:
    """``log(sum(exp(x)))``."""
    return jax.nn.logsumexp(x, dim, keepdims=keepdim)


def norm(
    x: Array, p: float | str = "fro", dim: Axes = None, keepdim: bool = False, dtype: Any = None
) -> Array:
    """The ``p``-norm of the elements along ``dim``, of all if it is None; ``"nuc"`` is that of matrices."""
    x = x if dtype is None else x.astype(dtype)
    axes = dims_of(x, dim, "norm")
    if p == "nuc":
        return matrix_norm(jnp.moveaxis(x, axes, (-2, -1)), ord="nuc", keepdims=keepdim)
    return vector_norm(x, axis=axes, keepdims=keepdim, ord=2 if p == "fro" else p)


def renorm(x: Array, p: float, dim: int, maxnorm: ArrayLike) -> Array:
    """``x``, each part along ``dim`` scaled down to the ``p``-norm ``maxnorm`` where it is larger."""
    if x.ndim < 2:
        raise ArgumentError(f"renorm: the input needs at least 2 dimensions, got {text(x)}")
    (dim,) = dims_of(x, dim, "renorm")
    others = [d for d in range(x.ndim) if d != dim]
    size = norm(x, p, others, keepdim=True)
    return x * jnp.where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


def _along(f: ArrayFunction, what: str) -> ArrayFunction:
    """A function of all elements along a dimension."""

    def function(x: Array, dim: int | None = -1, dtype: DTypeLike | None = None) -> Array:
        return f(x if dtype is None else x.astype(dtype), dim)

    function.__doc__ = what
    return function


softmax = _along(jax.nn.softmax, "``exp(x)``, scaled so that the sum along ``dim`` is 1.")
log_softmax = _along(jax.nn.log_softmax, "The logarithm of `softmax`.")


# Selections: values, and where they are


def _selected(x: Array, indices: Array, dim: int | None, keepdim: bool) -> ValuesIndices:
    """The elements at ``indices``, which has length 1 along ``dim``; None is for flat ``x``."""
    values = jnp.take_along_axis(x, indices, dim)
    if keepdim:
        return ValuesIndices(values, indices)
    return ValuesIndices(jnp.squeeze(values, dim), jnp.squeeze(indices, dim))


def _extreme(find: ArrayFunction, where: ArrayFunction, what: str) -> ArrayFunction:
    def function(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return find(x, keepdims=keepdim)
        (dim,) = dims_of(x, dim, find.__name__)
        return _selected(x, where(x, dim, keepdims=True), dim, keepdim)

    function.__doc__ = f"The {what} elements along ``dim``, and where; without ``dim``, of all."
    return function


max_ = _extreme(jnp.max, jnp.argmax, "greatest")
min_ = _extreme(jnp.min, jnp.argmin, "least")


def _median(x: Array, dim: int | None, keepdim: bool, skip: bool) -> Any:
    if dim is None:
        shape = (1,) * x.ndim if keepdim else ()
        values: Array = _median(x.reshape(-1), 0, False, skip).values
        return values.reshape(shape)
    (dim,) = dims_of(x, dim, "nanmedian" if skip else "median")
    order = jnp.argsort(x, dim)
    missing = jnp.isnan(x)
    count = x.shape[dim] - jnp.sum(missing, dim, keepdims=True)
    middle = jnp.maximum(count - 1, 0) // 2
    if not skip:
        middle = jnp.where(count < x.shape[dim], count, (x.shape[dim] - 1) // 2)
    return _selected(x, jnp.take_along_axis(order, middle, dim), dim, keepdim)


def median(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the medians along ``dim``, and where it is; without ``dim``, of all."""
    return _median(x, dim, keepdim, skip=False)


def nanmedian(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """`median` of what is not NaN."""
    return _median(x, dim, keepdim, skip=True)


def sort(x: Array, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The elements in order, and where they were."""
    indices = jnp.argsort(x, dim, stable=stable, descending=descending)
    return ValuesIndices(jnp.take_along_axis(x, indices, dim), indices)


def msort(x: Array) -> Array:
    """The elements in order along the first dimension."""
    return jnp.sort(x, 0)


def topk(
    x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The ``k`` greatest elements along ``dim`` (or the least), in order, and where they are."""
    (dim,) = dims_of(x, dim, "topk")
    if not 0 <= k <= x.shape[dim]:
        raise ArgumentError(f"topk: k must be from 0 to {x.shape[dim]}, got {k} for {text(x)}")
    if largest:
        return ValuesIndices(*jax.lax.top_k(x, k, axis=dim))
    indices = jax.lax.slice_in_dim(jnp.argsort(x, dim), 0, k, axis=dim)
    return ValuesIndices(jnp.take_along_axis(x, indices, dim), indices)


def kthvalue(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The ``k``-th least element along ``dim``, counted from 1, and where it is."""
    (dim,) = dims_of(x, dim, "kthvalue")
    if not 1 <= k <= x.shape[dim]:
        raise ArgumentError(f"kthvalue: k must be from 1 to {x.shape[dim]}, got {k} for {text(x)}")
    indices = jax.lax.slice_in_dim(jnp.argsort(x, dim), k - 1, k, axis=dim)
    return _selected(x, indices, dim, keepdim)


def mode(x: Array, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The element that is there most often along ``dim``, the least of several; and where it is last."""
    (dim,) = dims_of(x, dim, "mode")
    last = jnp.moveaxis(x, dim, -1)
    same = last[..., :, None] == last[..., None, :]
    often = jnp.sum(same, -1)
    most = often == jnp.max(often, -1, keepdims=True)
    order = jnp.argsort(last, -1)
    first = jnp.argmax(jnp.take_along_axis(most, order, -1), -1, keepdims=True)
    value = jnp.take_along_axis(last, jnp.take_along_axis(order, first, -1), -1)
    places = jnp.arange(x.shape[dim])
    indices = jnp.max(jnp.where(last == value, places, -1), -1, keepdims=True)
    return _selected(x, jnp.moveaxis(indices, -1, dim), dim, keepdim)


def _cumulative(f: ArrayFunction, what: str) -> ArrayFunction:
    def function(x: Array, dim: int) -> ValuesIndices:
        (dim,) = dims_of(x, dim, f.__name__)
        here = (x == f(x, dim)) | jnp.isnan(x)
        places = jax.lax.broadcasted_iota(jnp.asarray(0).dtype, x.shape, dim)
        indices = jax.lax.cummax(jnp.where(here, places, 0), dim)
        return ValuesIndices(jnp.take_along_axis(x, indices, dim), indices)

    function.__doc__ = f"The {what} element so far along ``dim``, and where it is."
    return function


cummax = _cumulative(jax.lax.cummax, "greatest")
cummin = _cumulative(jax.lax.cummin, "least")


def logcumsumexp(x: Array, dim: int) -> Array:
    """``log(cumsum(exp(x)))``."""
    (dim,) = dims_of(x, dim, "logcumsumexp")
    return jax.lax.cumlogsumexp(x, dim)


def _spread(f: ArrayFunction, what: str) -> ArrayFunction:
    def function(
        x: Array,
        dim: Axes = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float = 1,
    ) -> Array:
        correction = correction if unbiased is None else int(unbiased)
        return f(x, dim, correction=correction, keepdims=keepdim)

    function.__doc__ = (
        f"The {what}: the sum of squares is divided by their number less ``correction``."
    )
    return function


std, var = (
    _spread(smooth_norms.std, "standard deviation"),
    _spread(smooth_norms.var, "variance"),
)


# Shapes: the results of these are views


def chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    """At most ``chunks`` parts of one length along ``dim``; the last may be shorter."""
    (dim,) = dims_of(x, dim, "chunk")
    if chunks < 1:
        raise ArgumentError(f"chunk: chunks must be at least 1, got {chunks}")
    return split(x, -(-x.shape[dim] // chunks) or 1, dim)


def split(x: Array, split_size: int | Sequence[int], dim: int = 0) -> list[Array]:
    """Parts of the length ``split_size`` along ``dim`` (the last may be shorter), or of several lengths."""
    (dim,) = dims_of(x, dim, "split")
    n = x.shape[dim]
    if isinstance(split_size, int):
        if split_size < 1:
            raise ArgumentError(f"split: split_size must be at least 1, got {split_size}")
        return jnp.split(x, list(range(split_size, n, split_size)), dim)
    if sum(split_size) != n:
        raise ArgumentError(
            f"split: the sizes {list(split_size)} do not add up to {n}, of {text(x)}"
        )
    ends = [sum(split_size[: k + 1]) for k in range(len(split_size) - 1)]
    return jnp.split(x, ends, dim)


def squeeze(x: Array, dim: Axes = None) -> Array:
    """Without those of the dimensions ``dim`` that have length 1; of all if it is None."""
    dims = dims_of(x, dim, "squeeze")
    return jnp.squeeze(x, tuple([d for d in dims if x.ndim and x.shape[d] == 1]))


def movedim(x: Array, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Dimensions at other places."""
    moved = dims_of(x, source, "movedim"), dims_of(x, destination, "movedim")
    return jnp.moveaxis(x, *moved) if x.ndim else x


def swapdims(x: Array, dim0: int, dim1: int) -> Array:
    """Two dimensions swapped."""
    (dim0,), (dim1,) = dims_of(x, dim0, "swapdims"), dims_of(x, dim1, "swapdims")
    return jnp.swapaxes(x, dim0, dim1) if x.ndim else x


def unflatten(x: Array, dim: int, sizes: Sequence[int]) -> Array:
    """The dimension ``dim`` as several, of the lengths ``sizes``; one of them may be -1."""
    (dim,) = dims_of(x, dim, "unflatten")
    part = jax.eval_shape(lambda: jnp.zeros(x.shape[dim]).reshape(tuple(sizes)))
    return x.reshape(*x.shape[:dim], *part.shape, *x.shape[dim + 1 :])


def unfold(x: Array, dimension: int, size: int, step: int) -> Array:
    """All windows of length ``size`` along a dimension, one every ``step``; in a new last dimension."""
    if x.ndim == 0:
        return unfold(x[None], dimension, size, step)[0]
    (dim,) = dims_of(x, dimension, "unfold")
    if step < 1 or not 0 <= size <= x.shape[dim]:
        raise ArgumentError(
            f"unfold: expected a size from 0 to {x.shape[dim]} and a step of at least 1, got size "
            f"{size} and step {step} for {text(x)}"
        )
    count = (x.shape[dim] - size) // step + 1
    if size <= step:  # they do not overlap
        moved = jnp.moveaxis(x, dim, -1)
        missing = [(0, 0)] * (x.ndim - 1) + [(0, max(0, count * step - x.shape[dim]))]
        cut = jnp.pad(moved, missing)[..., : count * step]
        windows = cut.reshape(*moved.shape[:-1], count, step)[..., :size]
        return jnp.moveaxis(windows, -2, dim)
    starts = jnp.arange(count) * step
    windows = jnp.take(x, starts[:, None] + jnp.arange(size), dim, mode="clip")
    return jnp.moveaxis(windows, dim + 1, -1)


# Functions on matrices.


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
    if (dim1 - dim2) % (x.ndim + 1) == 0:
        raise ArgumentError(
            f"diag_embed: dim1 and dim2 must not be the same, got {dim1} and {dim2}"
        )
    n = x.shape[-1] + abs(offset)
    rows = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(max(-offset, 0), max(offset, 0))])
    out = jnp.where(jnp.eye(n, k=offset, dtype=bool), rows[..., None], jnp.zeros((), x.dtype))
    return jnp.moveaxis(out, (-2, -1), (dim1, dim2))


# Functions that read and write at indices.

Index = tuple[PyTree, ...]

# PyTorch's name -> the method of ``x.at[...]``, and what leaves an element as it is.
REDUCTIONS: dict[str, tuple[str, Callable[[DType], Number]]] = {
    **dict.fromkeys(("sum", "add", "mean"), ("add", lambda dtype: 0)),
    **dict.fromkeys(("prod", "multiply"), ("multiply", lambda dtype: 1)),
    "amax": ("max", lambda dtype: _limits(dtype)[0]),
    "amin": ("min", lambda dtype: _limits(dtype)[1]),
}


def _limits(dtype: DType) -> tuple[Number, Number]:
    if jnp.issubdtype(dtype, jnp.inexact):
        return -jnp.inf, jnp.inf
    if jnp.issubdtype(dtype, jnp.bool_):
        return False, True
    return jnp.iinfo(dtype).min, jnp.iinfo(dtype).max


def _index_along(x: Array, dim: int, index: ArrayLike, who: str) -> Index:
    """An index of ``index`` along ``dim`` and everything else."""
    (dim,) = dims_of(x, dim, who)
    index = jnp.asarray(index)
    if index.ndim > 1 or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ArgumentError(
            f"{who}: the index must be integers in one dimension, got {text(index)}"
        )
    return (*[slice(None)] * dim, index.reshape(-1))


def _pointwise(x: Array, dim: int, index: ArrayLike, who: str) -> Index:
    """For each element of ``index`` the element of ``x`` at its place, and at its value along ``dim``."""
    (dim,) = dims_of(x, dim, who)
    index = jnp.asarray(index)
    if index.ndim != x.ndim or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ArgumentError(
            f"{who}: the index must be integers in the {x.ndim} dimensions of {text(x)}, got "
            f"{text(index)}"
        )
    if any([n > m for d, (n, m) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim]):
        raise IndexError(f"{who}: the index {text(index)} is larger than {text(x)}")
    if x.ndim == 0:
        return ()
    where = list(jnp.indices(index.shape, sparse=True))
    where[dim] = index
    return tuple(where)


def _source(x: Array, src: ArrayLike, index: ArrayLike, who: str) -> Array:
    """The part of ``src`` that ``index`` asks for, in the dtype of ``x``."""
    shape, src = jnp.shape(index), jnp.asarray(src)
    if src.ndim == 0:
        return jnp.broadcast_to(src, shape).astype(x.dtype)
    if src.ndim != len(shape) or any([s < n for s, n in zip(src.shape, shape, strict=True)]):
        raise ArgumentError(
            f"{who}: src must be at least as large as the index, got {text(src)} for an index of "
            f"shape {list(shape)}"
        )
    return src[tuple([slice(0, n) for n in shape])].astype(x.dtype)


def _reduced(
    x: Array, where: Index, src: Array, reduce: str, include_self: bool, who: str
) -> Array:
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"{who}: reduce must be one of {list(REDUCTIONS)}, got {reduce!r}")
    method, neutral = REDUCTIONS[reduce]
    before = x
    if not include_self:
        before = x.at[where].set(neutral(x.dtype))
    out = combine_at(method, before, where, src)
    if reduce != "mean":
        return out
    count = jnp.zeros(x.shape, x.dtype).at[where].add(jnp.ones_like(src)) + int(include_self)
    count = jnp.maximum(count, 1)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return out // count
    return out / count


# Reading


def compress(
    x: Array,
    condition: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: float = 0,
) -> Array:
    """The parts of ``x`` along ``axis`` where ``condition`` is true; NumPy's method."""
    return jnp.compress(condition, x, axis, size=size, fill_value=fill_value)


def gather(x: Array, dim: int, index: ArrayLike) -> Array:
    """The elements of ``x`` at the places of ``index``, and at its values along ``dim``."""
    return x[_pointwise(x, dim, index, "gather")]


def index_select(x: Array, dim: int, index: ArrayLike) -> Array:
    """The parts of ``x`` at the positions ``index`` along ``dim``."""
    return x[_index_along(x, dim, index, "index_select")]


def masked_select(x: Array, mask: Array) -> Array:
    """The elements where ``mask`` is true, in one dimension."""
    x, mask = jnp.broadcast_arrays(x, mask)
    return x[mask_of(mask, "masked_select")]


def nonzero(x: Array, *, as_tuple: bool) -> Any:
    """Where the elements are not zero: an array for each dimension, or one row for each element."""
    return jnp.nonzero(jnp.atleast_1d(x)) if as_tuple else jnp.argwhere(x)


def repeat_interleave(x: Array, repeats: int | Array, dim: int | None = None) -> Array:
    """Each element (or each part along ``dim``) ``repeats`` times, or as often as its number there."""
    if dim is not None and x.ndim == 0:  # of which JAX makes one dimension
        raise IndexError(f"repeat_interleave: dim {dim} is out of range for {text(x)}")
    if not isinstance(repeats, jax.core.Tracer) and np.any(np.asarray(repeats) < 0):
        raise ArgumentError(f"repeat_interleave: repeats must not be negative, got {repeats}")
    return jnp.repeat(x, repeats, dim)


def unique_consecutive(x: Array, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The elements, without those that are equal to the one before; where they went, and how many."""
    flat = x.reshape(-1)
    first = jnp.concatenate([jnp.ones(min(flat.size, 1), bool), flat[1:] != flat[:-1]])
    results: list[Array] = [flat[first]]
    if return_inverse:
        results.append((jnp.cumsum(first) - 1).reshape(x.shape))
    if return_counts:
        (starts,) = jnp.nonzero(first)
        results.append(jnp.diff(starts, append=flat.size))
    return tuple(results) if len(results) > 1 else results[0]


# Writing


def diagonal_scatter(
    x: Array, src: ArrayLike, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    """``x`` with ``src`` as its diagonal."""
    places = jnp.arange(x.size).reshape(x.shape)
    where = jnp.diagonal(places, offset, dim1, dim2)
    src = jnp.broadcast_to(jnp.asarray(src), where.shape).astype(x.dtype)
    return x.reshape(-1).at[where.reshape(-1)].set(src.reshape(-1)).reshape(x.shape)


def fill_diagonal(x: Array, fill_value: ArrayLike, wrap: bool = False) -> Array:
    """``x`` with one value on its main diagonal; with ``wrap``, again and again below."""
    return jnp.fill_diagonal(x, fill_value, wrap=wrap, inplace=False)


def index_add(
    x: Array, dim: int, index: ArrayLike, source: ArrayLike, *, alpha: ArrayLike | None = None
) -> Array:
    """``x`` with ``alpha`` times the parts of ``source`` added at the positions ``index`` along ``dim``."""
    source = jnp.asarray(source) if alpha is None else jnp.multiply(source, alpha)
    return x.at[_index_along(x, dim, index, "index_add")].add(source.astype(x.dtype))


def index_copy(x: Array, dim: int, index: ArrayLike, source: ArrayLike) -> Array:
    """``x`` with the parts of ``source`` at the positions ``index`` along ``dim``."""
    source = jnp.asarray(source).astype(x.dtype)
    return x.at[_index_along(x, dim, index, "index_copy")].set(source)


def index_fill(x: Array, dim: int, index: ArrayLike, value: ArrayLike) -> Array:
    """``x`` with one value at the positions ``index`` along ``dim``."""
    if jnp.ndim(value):
        raise ArgumentError(
            f"index_fill: the value must have no dimensions, got {text(jnp.asarray(value))}"
        )
    value = jnp.asarray(value).astype(x.dtype)
    return x.at[_index_along(x, dim, index, "index_fill")].set(value)


def index_reduce(
    x: Array,
    dim: int,
    index: ArrayLike,
    source: ArrayLike,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    """``x`` with ``prod``, ``mean``, ``amax`` or ``amin`` of the parts of ``source`` for each position."""
    where = _index_along(x, dim, index, "index_reduce")
    shape = (*x.shape[: len(where) - 1], where[-1].size, *x.shape[len(where) :])
    source = jnp.broadcast_to(jnp.asarray(source).astype(x.dtype), shape)
    return _reduced(x, where, source, reduce, include_self, "index_reduce")


def masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    """``x`` with the elements of ``source``, in order, where ``mask`` is true."""
    mask = jnp.broadcast_to(mask_of(mask, "masked_scatter"), x.shape)
    places = jnp.cumsum(mask.reshape(-1)).reshape(x.shape) - 1
    source = jnp.asarray(source).reshape(-1).astype(x.dtype)
    return jnp.where(mask, source.at[places].get(mode="clip"), x)


def put(x: Array, index: ArrayLike, source: ArrayLike, accumulate: bool = False) -> Array:
    """``x`` with ``source`` at the positions ``index`` of its elements in one row."""
    at = x.reshape(-1).at[jnp.asarray(index)]
    source = jnp.asarray(source).astype(x.dtype)
    return (at.add(source) if accumulate else at.set(source)).reshape(x.shape)


def scatter(
    x: Array,
    dim: int,
    index: ArrayLike,
    src: ArrayLike | None = None,
    *,
    value: ArrayLike | None = None,
    reduce: str | None = None,
) -> Array:
    """``x`` with ``src`` (or one value) at the places of ``index``, and at its values along ``dim``."""
    if (src is None) == (value is None):
        raise ArgumentError("scatter: expected either src or value")
    where = _pointwise(x, dim, index, "scatter")
    src = _source(x, value if src is None else src, index, "scatter")  # type: ignore[arg-type]
    if reduce is None:
        return x.at[where].set(src)
    return _reduced(x, where, src, reduce, True, "scatter")


def scatter_add(x: Array, dim: int, index: ArrayLike, src: ArrayLike) -> Array:
    """``x`` with ``src`` added at the places of ``index``, and at its values along ``dim``."""
    where = _pointwise(x, dim, index, "scatter_add")
    return x.at[where].add(_source(x, src, index, "scatter_add"))


def scatter_reduce(
    x: Array, dim: int, index: ArrayLike, src: ArrayLike, reduce: str, *, include_self: bool = True
) -> Array:
    """``x`` with ``sum``, ``prod``, ``mean``, ``amax`` or ``amin`` of what ``src`` has for each element."""
    where = _pointwise(x, dim, index, "scatter_reduce")
    source = _source(x, src, index, "scatter_reduce")
    return _reduced(x, where, source, reduce, include_self, "scatter_reduce")


def select_scatter(x: Array, src: ArrayLike, dim: int, index: ArrayLike) -> Array:
    """``x`` with ``src`` as the part at ``index`` along ``dim``."""
    return _with_part(x, src, dim, index, "select_scatter")


def slice_scatter(
    x: Array,
    src: ArrayLike,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    """``x`` with ``src`` as the slice ``start:end:step`` along ``dim``."""
    return _with_part(x, src, dim, slice(start, end, step), "slice_scatter")


def _with_part(x: Array, src: ArrayLike, dim: int, index: PyTree, who: str) -> Array:
    (dim,) = dims_of(x, dim, who)
    return x.at[(*[slice(None)] * dim, index)].set(jnp.asarray(src).astype(x.dtype))


def take_along_dim(x: Array, indices: ArrayLike, dim: int | None = None) -> Array:
    """``x`` at ``indices`` along ``dim``, where the other dimensions are broadcast; flat if it is None."""
    return jnp.take_along_axis(x, jnp.asarray(indices), dim)
