"""Functions of NumPy in full, written in JAX, where those of `jax.numpy` lack arguments or forms of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from fad.errors import ArgumentError
from fad.extend.types import DType, PyTree
from fad.formulas.smooth_functions import Axes, Function


@functools.wraps(jnp.argpartition)
def argpartition(a: ArrayLike, kth: PyTree, axis: int = -1) -> Array:
    """`jax.numpy.argpartition`, for several ``kth`` too."""
    return jnp.argpartition(a, kth, axis) if np.ndim(kth) == 0 else jnp.argsort(a, axis)


@functools.wraps(jnp.partition)
def partition(a: ArrayLike, kth: PyTree, axis: int = -1) -> Array:
    """`jax.numpy.partition`, for several ``kth`` too."""
    return jnp.partition(a, kth, axis) if np.ndim(kth) == 0 else jnp.sort(a, axis)


@functools.wraps(jnp.einsum)
def einsum(*args: PyTree, optimize: PyTree = "auto", **kwargs: PyTree) -> Array:
    """`jax.numpy.einsum`, with paths as NumPy's ``einsum_path`` gives them too."""
    if isinstance(optimize, (list, tuple)) and optimize and optimize[0] == "einsum_path":
        optimize = optimize[1:]
    path = list(optimize) if isinstance(optimize, tuple) else optimize
    return jnp.einsum(*args, optimize=path, **kwargs)


@functools.wraps(jnp.fromfunction)
def fromfunction(
    function: Function, shape: PyTree, *, dtype: DTypeLike = float, **kwargs: PyTree
) -> PyTree:
    """`jax.numpy.fromfunction`, with keywords that are the same at each index."""
    return jnp.fromfunction(functools.partial(function, **kwargs), shape, dtype=dtype)


@functools.wraps(jnp.gradient)
def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: Axes = None, edge_order: int | None = None
) -> Array | list[Array]:
    """`jax.numpy.gradient`, with ``edge_order``."""
    if edge_order not in (None, 1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    if edge_order != 2:
        return jnp.gradient(f, *varargs, axis=axis)
    x = jnp.asarray(f)
    x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    axes = [a % x.ndim for a in axes]
    spacings = list(varargs) or [1.0]
    if len(spacings) == 1:
        spacings *= len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(
            f"gradient: expected one spacing, or one for each of {len(axes)} axes, got {len(varargs)}"
        )
    slopes = [_slope(x, h, a) for h, a in zip(spacings, axes, strict=True)]
    return slopes[0] if len(axes) == 1 else slopes


def _slope(x: Array, spacing: ArrayLike, axis: int) -> Array:
    """The derivative along an axis, of second order at the edges too."""
    n = x.shape[axis]
    if n < 3:
        raise ArgumentError(
            f"gradient: edge_order=2 needs at least 3 elements along the axis, got {n}"
        )
    y = jnp.moveaxis(x, axis, -1)
    spacing = jnp.asarray(spacing)
    if spacing.ndim == 0:
        h = jnp.broadcast_to(spacing, (n - 1,))
    elif spacing.shape == (n,):
        h = jnp.diff(spacing)
    else:
        raise ArgumentError(
            f"gradient: the coordinates along an axis of length {n} have the shape {spacing.shape}"
        )
    rise = jnp.diff(y, axis=-1) / h
    left, right = h[:-1], h[1:]
    inner = (rise[..., :-1] * right + rise[..., 1:] * left) / (left + right)
    bend = (rise[..., 1:] - rise[..., :-1]) / (left + right)
    first = rise[..., :1] - bend[..., :1] * h[:1]
    last = rise[..., -1:] + bend[..., -1:] * h[-1:]
    return jnp.moveaxis(jnp.concatenate([first, inner, last], -1), -1, axis)


def _edges(function: Function) -> Function:
    """``histogram`` and its like, with rules for the bins by name, which NumPy follows, on values."""

    @functools.wraps(function)
    def call(
        a: ArrayLike,
        bins: PyTree = 10,
        range: PyTree = None,
        weights: PyTree = None,
        **kwargs: object,
    ) -> PyTree:
        if isinstance(bins, str):
            bins = jnp.asarray(np.histogram_bin_edges(np.asarray(a), bins, range))
        return function(a, bins, range, weights, **kwargs)

    return call


@functools.wraps(jnp.ix_)
def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """`jax.numpy.ix_`, for bools too."""
    arrays = map(jnp.asarray, args)
    return jnp.ix_(*[jnp.nonzero(a)[0] if a.dtype == bool else a for a in arrays])


@functools.wraps(jnp.pad)
def pad(array: ArrayLike, pad_width: PyTree, mode: PyTree = "constant", **kwargs: PyTree) -> Array:
    """`jax.numpy.pad`, with widths as a dict, and with any ``end_values``."""
    x = jnp.asarray(array)
    if isinstance(pad_width, dict):
        widths = [(0, 0)] * x.ndim
        for axis, width in pad_width.items():
            widths[axis] = (width, width) if np.ndim(width) == 0 else tuple(width)
        pad_width = widths
    if mode != "linear_ramp" or kwargs.keys() - {"end_values"}:
        return jnp.pad(x, pad_width, mode, **kwargs)
    ends = kwargs.get("end_values", 0)
    ends = jnp.asarray(ends, jnp.result_type(x, *jax.tree.leaves(ends)))
    ends = jnp.broadcast_to(ends, (x.ndim, 2))
    pairs = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    for axis, (before, after) in enumerate(pairs):
        first, last = jnp.take(x, 0, axis), jnp.take(x, -1, axis)

        def ramp(
            end: Array, edge: Array, count: int, axis: int = axis, dtype: DType = x.dtype
        ) -> Array:
            return jnp.linspace(end, edge, count, endpoint=False, dtype=dtype, axis=axis)

        up = ramp(ends[axis, 0], first, before)
        down = jnp.flip(ramp(ends[axis, 1], last, after), axis)
        x = jnp.concatenate([up, x, down], axis)
    return x


@functools.wraps(jnp.unravel_index)
def unravel_index(indices: ArrayLike, shape: PyTree, order: str = "C") -> tuple[Array, ...]:
    """`jax.numpy.unravel_index`, with ``order``."""
    if order == "C":
        return jnp.unravel_index(indices, shape)
    if order != "F":
        raise ArgumentError(f"unravel_index: order must be 'C' or 'F', got {order!r}")
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    return jnp.unravel_index(indices, shape[::-1])[::-1]


def _in_order(function: Function) -> Function:
    """``ravel`` and its like: a message for the layouts in memory, which arrays of JAX do not have."""

    @functools.wraps(function)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        texts = [v for v in (*args[1:], kwargs.get("order")) if isinstance(v, str)]
        order = texts[0] if texts else "C"
        if order in ("A", "K"):
            raise ArgumentError(
                f"{function.__name__}: order={order!r} asks for the layout in memory, which arrays here do "
                "not have: write order='C', or order='F'"
            )
        return function(*args, **kwargs)

    return call


@functools.wraps(jnp.take)
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    **options: PyTree,
) -> Array:
    """`jax.numpy.take`; the mode ``"raise"`` reads the indices."""
    if mode != "raise":
        return jnp.take(a, indices, axis, out, mode, **options)
    read = np.asarray(indices)
    count = jnp.size(a) if axis is None else jnp.shape(a)[axis]
    wrong = read[(read < -count) | (read >= count)]
    if wrong.size:
        raise IndexError(f"take: index {wrong[0]} is out of bounds for {count} elements")
    return jnp.take(a, indices, axis, out, **options)


@functools.wraps(jnp.vectorize)
def vectorize(
    pyfunc: Function,
    *,
    otypes: Sequence[DTypeLike] | None = None,
    doc: object = None,
    cache: bool = False,
    **options: PyTree,
) -> Function:
    """`jax.numpy.vectorize`, with ``otypes``."""
    made: Function = jnp.vectorize(pyfunc, **options)
    if otypes is None:
        return made

    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out = made(*args, **kwargs)
        if isinstance(out, tuple):
            return tuple([o.astype(t) for o, t in zip(out, otypes, strict=True)])
        return out.astype(otypes[0])

    return call


def _weighted(function: Function) -> Function:
    """``histogramdd`` and its like: JAX's order of arguments is not NumPy's."""

    @functools.wraps(function)
    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        bound = inspect.signature(function).bind(*args, **kwargs).arguments
        if bound.get("weights") is not None and jnp.ndim(bound["weights"]) == 0:
            raise ArgumentError(
                f"{function.__name__}: weights is one number, where an array is expected: the order of "
                "arguments is JAX's, so write density=True and weights=w by name"
            )
        return function(*args, **kwargs)

    return call


# By NumPy's name: what takes the place of the function of `jax.numpy`.
OWN: dict[str, Function] = {
    "argpartition": argpartition,
    "einsum": einsum,
    "fromfunction": fromfunction,
    "gradient": gradient,
    "histogram": _edges(_weighted(jnp.histogram)),
    "histogram2d": _weighted(jnp.histogram2d),
    "histogram_bin_edges": _edges(jnp.histogram_bin_edges),
    "histogramdd": _weighted(jnp.histogramdd),
    "ix_": ix_,
    "pad": pad,
    "partition": partition,
    "ravel": _in_order(jnp.ravel),
    "reshape": _in_order(jnp.reshape),
    "take": take,
    "unravel_index": unravel_index,
    "vectorize": vectorize,
}
