"""NumPy in full: keyword arguments and functions of it that `jax.numpy` lacks, or has in part."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fad.arrays.arguments import Args, Function, Kwargs
from fad.core.types import ArrayFunction, Axes, DType, DTypeLike, PyTree
from fad.errors import ArgumentError, describe

if TYPE_CHECKING:
    from fad.arrays.operations import Op

# Keyword arguments of NumPy that functions of JAX lack, where a call has one.
#
# They have other names, or no effect on arrays that have no layout in memory, or mean another operation:
# ``dtype=`` of an elementwise function casts what it is given, and ``where=`` with ``out=`` keeps the
# elements of ``out`` that are not selected. docs/for-numpy-users.md has them as a table.

# Function -> NumPy's keyword -> JAX's; "" is its first argument.
_RENAMED: dict[str, dict[str, str]] = {
    "clip": {"a": "", "a_max": "max", "a_min": "min"},
    "cov": {"correction": "ddof"},
    "matrix_rank": {"A": "M"},
    "nanpercentile": {"interpolation": "method"},
    "nanquantile": {"interpolation": "method"},
    "nanstd": {"correction": "ddof"},
    "nanvar": {"correction": "ddof"},
    "percentile": {"interpolation": "method"},
    "quantile": {"interpolation": "method"},
}
_LAYOUTS = ("A", "C", "F", "K", None)
# Keyword -> its values that change nothing here.
_NO_EFFECT: dict[str, tuple[Any, ...]] = {
    "casting": ("equiv", "no", "safe", "same_kind", "unsafe"),
    "kind": ("heapsort", "introselect", "mergesort", "quicksort", "sort", "stable", "table", None),
    "like": (None,),
    "order": _LAYOUTS,
    "out": (None,),
    "signature": (None,),
    "subok": (False, True),
    "where": (True,),
}


# The same, whatever the value, of functions that have it and that refuse some values.
_IGNORED = {
    "copy": "meshgrid",
    "kind": "argsort sort",
    "order": "array asarray copy",
    "overwrite_input": "median nanmedian nanpercentile nanquantile percentile quantile",
}


@functools.cache
def _of_numpy(where: str, name: str) -> Any:
    """The function of NumPy with this name; None if there is none."""
    room = where.removeprefix("fad.numpy").strip(".")
    if not where.startswith("fad.numpy"):
        return None
    return getattr(getattr(np, room) if room else np, name, None)


def is_elementwise(where: str, name: str) -> bool:
    """Whether NumPy's function works element by element, so that it takes ``where=`` and ``dtype=``."""
    function = _of_numpy(where, name)
    return isinstance(function, np.ufunc) and function.signature is None


@functools.cache
def _keywords(where: str, name: str) -> frozenset[str]:
    """The keywords of NumPy's function."""
    function = _of_numpy(where, name)
    if isinstance(function, np.ufunc):
        names = frozenset("casting dtype order out signature subok".split())
        return names | {"where"} if function.signature is None else names
    if not callable(function):
        return frozenset()
    try:
        names = frozenset(inspect.signature(function).parameters)
    except ValueError:  # an older NumPy does not say it
        return frozenset(_NO_EFFECT)
    return names | {"casting", "dtype", "order"} if name == "einsum" else names


def adapted(op: Op, args: Args, kwargs: Kwargs) -> tuple[Op, Args, Kwargs] | None:
    """A call with keywords of NumPy as one without: the operation, its arguments and keywords.

    Returns:
        None if there are no such keywords, or if there are others that the function does not have.
    """
    parameters, takes = op.plan.named, _keywords(op.where, op.name)
    elementwise = is_elementwise(op.where, op.name)
    left, dtype, casting = {}, None, kwargs.get("casting", "same_kind")
    for name, value in kwargs.items():
        renamed = _RENAMED.get(op.name, {}).get(name)
        if renamed is not None and name not in parameters:
            if renamed:
                left[renamed] = value
            else:
                args = (value, *args)
        elif name == "where" and elementwise and value is not True and value is not None:
            raise ArgumentError(
                f"{op.where}.{op.name}: where= without out= leaves elements without a value: give out=, or "
                f"write fad.safe_where(mask, fad.numpy.{op.name}, ...)"
            )
        elif takes and op.name in _IGNORED.get(name, "").split():
            pass
        elif name in parameters and not (name == "where" and elementwise):
            left[name] = value
        elif name not in takes and name != "out":
            return None
        elif name == "dtype":
            dtype = value
        elif not any([value is v or value == v for v in _NO_EFFECT.get(name, ())]):
            return None
    if len(left) == len(kwargs) and left.keys() == kwargs.keys():
        return None
    if dtype is None:
        return op, args, left
    if not (isinstance(_of_numpy(op.where, op.name), np.ufunc) or op.name == "einsum"):
        return None
    for a in args:
        if not isinstance(a, (str, list, tuple)):
            _check_cast(op, a, dtype, casting)
    return _typed(op, np.dtype(dtype)), args, left


def _check_cast(op: Op, x: PyTree, dtype: DType, casting: Any) -> None:
    if isinstance(x, (bool, int, float, complex)):
        x = np.asarray(x)
        casting = "unsafe" if x.dtype.kind in "bi" else casting
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"{op.where}.{op.name}: cannot cast {describe(x)} to {np.dtype(dtype).name} by the rule "
            f"{casting!r}; casting='unsafe' does it"
        )


_others: dict[Hashable, Op] = {}  # operations by function, kind and dtype


def _other(op: Op, key: Hashable, function: ArrayFunction) -> Op:
    key = (op.where, op.name, key)
    if key not in _others:
        _others[key] = type(op)(op.name, op.where, function)
    return _others[key]


def _typed(op: Op, dtype: Any) -> Op:
    """The operation on operands of one dtype."""
    function = op.jax_function

    def typed(*args: PyTree, **kwargs: PyTree) -> PyTree:
        cast = [a if isinstance(a, str) else jnp.asarray(a, dtype) for a in args]
        return function(*cast, **kwargs)

    return _other(op, dtype, typed)


def masked(op: Op) -> Any:
    """The operation that takes ``(out, where, *args)`` and gives ``out`` where it is not selected.

    What is not selected has no derivative: see NOTE [why where is not enough].
    """
    function = op.jax_function

    def masked(out: PyTree, where: Any, *args: PyTree, **kwargs: Any) -> Any:
        where = jnp.asarray(where, bool)
        inside = [jnp.where(where, a, jax.lax.stop_gradient(a)) for a in map(jnp.asarray, args)]
        return jnp.where(where, function(*inside, **kwargs), out).astype(jnp.result_type(out))

    return _other(op, "where", masked)


# Functions of NumPy in full, written in JAX, where those of `jax.numpy` lack arguments or forms of them.


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


def at_lists(function: Function) -> Function:
    """The method ``at`` of a ufunc, with lists as arrays of indices."""

    @functools.wraps(function)
    def call(a: ArrayLike, indices: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if isinstance(indices, tuple):
            indices = tuple([jnp.asarray(i) if isinstance(i, list) else i for i in indices])
        elif isinstance(indices, list):
            indices = jnp.asarray(indices)
        return function(a, indices, *args, **kwargs)

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
