"""Functions of PyTorch that read and write at indices, written in JAX; see `fad.arrays.torch_functions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fad.arrays.dims import dims_of, text
from fad.arrays.torch_functions import mask_of
from fad.core.types import DType, Number, PyTree
from fad.errors import ArgumentError
from fad.views.scatter_mul import combine_at

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


def _along(x: Array, dim: int, index: ArrayLike, who: str) -> Index:
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
    return x[_along(x, dim, index, "index_select")]


def masked_select(x: Array, mask: Array) -> Array:
    """The elements where ``mask`` is true, in one dimension."""
    x, mask = jnp.broadcast_arrays(x, mask)
    return x[mask_of(mask, "masked_select")]


def nonzero(x: Array, *, as_tuple: bool) -> Any:
    """Where the elements are not zero: an array for each dimension, or one row for each element."""
    return jnp.nonzero(jnp.atleast_1d(x)) if as_tuple else jnp.argwhere(x)


def repeat_interleave(x: Array, repeats: int | Array, dim: int | None = None) -> Array:
    """Each element (or each part along ``dim``) ``repeats`` times, or as often as its number there."""
    return jnp.repeat(x, repeats, dim)


def unique_consecutive(x: Array, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The elements, without those that are equal to the one before; where they went, and how many."""
    flat = x.reshape(-1)
    first = jnp.concatenate([jnp.ones(min(flat.size, 1), bool), flat[1:] != flat[:-1]])
    found: list[Array] = [flat[first]]
    if return_inverse:
        found.append((jnp.cumsum(first) - 1).reshape(x.shape))
    if return_counts:
        (starts,) = jnp.nonzero(first)
        found.append(jnp.diff(starts, append=flat.size))
    return tuple(found) if len(found) > 1 else found[0]


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
    return x.at[_along(x, dim, index, "index_add")].add(source.astype(x.dtype))


def index_copy(x: Array, dim: int, index: ArrayLike, source: ArrayLike) -> Array:
    """``x`` with the parts of ``source`` at the positions ``index`` along ``dim``."""
    source = jnp.asarray(source).astype(x.dtype)
    return x.at[_along(x, dim, index, "index_copy")].set(source)


def index_fill(x: Array, dim: int, index: ArrayLike, value: ArrayLike) -> Array:
    """``x`` with one value at the positions ``index`` along ``dim``."""
    if jnp.ndim(value):
        raise ArgumentError(
            f"index_fill: the value must have no dimensions, got {text(jnp.asarray(value))}"
        )
    value = jnp.asarray(value).astype(x.dtype)
    return x.at[_along(x, dim, index, "index_fill")].set(value)


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
    where = _along(x, dim, index, "index_reduce")
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
