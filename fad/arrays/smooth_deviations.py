"""Variances and standard deviations, with the derivative 0 where elements are equal.

See NOTE [kinks] in `fad.arrays.smooth_norms`: a deviation is the distance from the mean.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from fad.arrays.lists import Function
from fad.arrays.smooth import all_axes, computed_as, divisor, mended, with_rule
from fad.core.dtypes import is_inexact
from fad.core.types import Array, Axes, Number, Operand, Outputs, PyTree


def _spread(function: Function, root: bool = True, of_nan: bool = False) -> Function:
    """`std` and `nanstd`; without ``root`` `var` and `nanvar`."""
    names = tuple(inspect.signature(function).parameters)

    def smooth(*args: Array, **options: PyTree) -> Outputs:
        options.update(zip(names, args, strict=False))
        a = jnp.asarray(options.pop("a"))
        if not is_inexact(a.dtype):
            return function(a, **options)
        arrays = {name: v for name, v in options.items() if isinstance(v, jax.Array)}

        def value(a: Array, *values: Operand) -> Array:
            return function(a, **{**options, **dict(zip(arrays, values, strict=True))})

        def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
            a, *values = primals
            given = {**options, **dict(zip(arrays, values, strict=True))}
            moved: dict[str, Array | None] = dict(zip(("a", *arrays), tangents, strict=True))
            variance = out * out if root else out
            found = _tangent(a, variance, moved, ~jnp.isnan(a) if of_nan else None, **given)
            if root:
                found = found / (2 * divisor(out).astype(found.dtype))
            return found.astype(out.dtype)

        return with_rule(value, rule)(a, *arrays.values())

    return smooth


def _tangent(
    a: Array,
    variance: Array,
    tangents: dict[str, Array | None],
    valid: Array | None,
    axis: Axes = None,
    dtype: PyTree = None,
    out: None = None,
    ddof: Number | Array = 0,
    keepdims: bool = False,
    where: Array | None = None,
    mean: Array | None = None,
    correction: Number | Array | None = None,
) -> Array:
    """The tangent of a variance. It is NaN where there are too few elements, as the variance is."""
    dtype = a.dtype if dtype is None else jax.dtypes.canonicalize_dtype(dtype)
    dtype = jnp.promote_types(dtype, jnp.float32)
    real = jnp.finfo(dtype).dtype
    counted = valid if where is None else where if valid is None else valid & where
    a, moved = a.astype(dtype), _moved(tangents, dtype)
    if counted is None:
        number = jnp.asarray(math.prod([a.shape[k] for k in all_axes(a.ndim, axis)]))
    else:
        counted = jnp.broadcast_to(counted, a.shape)
        a, moved = [jnp.where(counted, v, 0) for v in (a, moved)]
        number = jnp.sum(counted, axis, keepdims=True)
    if mean is None:
        mean = jnp.mean(a, axis, dtype, keepdims=True, where=counted)
    number = number - jnp.asarray(ddof if correction is None else correction)
    number = jnp.where(number > 0, number, jnp.nan).astype(real)
    slope = (a - jnp.asarray(mean).astype(dtype)) * (2 / number)
    found = jnp.sum(jnp.real(jnp.conj(slope) * moved), axis, keepdims=keepdims)
    for t in (tangents.get("ddof"), tangents.get("correction")):
        if t is not None:
            of_each = number if keepdims or number.ndim == 0 else jnp.squeeze(number, axis)
            found = found + variance.astype(real) / of_each * t.astype(real)
    return found


def _moved(tangents: dict[str, Array | None], dtype: PyTree) -> Array:
    """The tangent of ``a - mean``; that of a mean which is computed adds nothing to the sum."""
    a, mean = [tangents.get(name) for name in ("a", "mean")]
    found = jnp.zeros((), dtype) if a is None else a.astype(dtype)
    return found if mean is None else found - mean.astype(dtype)


IN_NUMPY: dict[str, Function] = {
    "nanstd": lambda f: _spread(f, of_nan=True),
    "nanvar": lambda f: _spread(f, root=False, of_nan=True),
    "std": _spread,
    "var": lambda f: _spread(f, root=False),
}
std, var, nanstd = [mended(IN_NUMPY[name], getattr(jnp, name)) for name in ("std", "var", "nanstd")]


def _sem(sem: Function) -> Function:
    """The deviation, divided by the root of the number of elements."""

    def smooth(
        a: Array,
        axis: Axes = 0,
        ddof: int = 1,
        nan_policy: str = "propagate",
        *,
        keepdims: bool = False,
    ) -> Outputs:
        def value(a: Array) -> Array:
            return sem(a, axis, ddof, nan_policy, keepdims=keepdims)

        def other(a: Array) -> Array:
            valid = ~jnp.isnan(a) if nan_policy == "omit" else jnp.ones(a.shape, bool)
            deviation = nanstd if nan_policy == "omit" else std
            number = jnp.sum(valid, axis, a.dtype, keepdims=keepdims)
            return deviation(a, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(number)

        a = jnp.asarray(a)
        return computed_as(value, other)(a) if is_inexact(a.dtype) else value(a)

    return smooth


IN_STATS: dict[str, Function] = {"sem": _sem}
