"""Functions that select elements by their order: the derivative goes to what is selected, NaN too.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import computed_as, for_real
from fad.core.types import Array, Operand, Outputs, PyTree


def _greater(function: Function, sign: int) -> Function:
    """``maximum`` and ``minimum``: a NaN that is the result gets its gradient."""

    def share(x: Array, y: Array) -> Array:
        wins = ((x - y) * sign > 0) | (jnp.isnan(x) & ~jnp.isnan(y))
        ties = (x == y) | (jnp.isnan(x) & jnp.isnan(y))
        return jnp.where(wins, 1.0, jnp.where(ties, 0.5, 0.0))

    return for_real(function, lambda o, x, y: share(x, y), lambda o, x, y: share(y, x))


def _reduction(reduction: Function) -> Function:
    """``max``, ``median``, ``quantile`` and so on: those that are NaN share the gradient of a NaN."""
    names = tuple(inspect.signature(reduction).parameters)

    def smooth(*args: Array, **options: PyTree) -> Outputs:
        options.update(zip(names, args, strict=False))
        a = jnp.asarray(options.pop(names[0]))
        if not jnp.issubdtype(a.dtype, jnp.floating) or options.get("out") is not None:
            return reduction(a, **options)
        arrays = {name: v for name, v in options.items() if isinstance(v, jax.Array)}

        def reduced(a: Array, *values: Operand) -> Array:
            return reduction(a, **{**options, **dict(zip(arrays, values, strict=True))})

        def other(a: Array, *values: Operand) -> Array:
            axis = options.get("axis", options.get("axes"))
            where = options.get("where")
            nans = jnp.isnan(a) if where is None else jnp.isnan(a) & where
            count = jnp.sum(nans, axis, a.dtype, keepdims=True)
            share = jnp.where(nans, a, 0) / jnp.maximum(count, 1)
            total = jnp.sum(share, axis, keepdims=options.get("keepdims", False))
            without = reduced(jnp.where(count > 0, 0, a), *values)
            return jnp.where(jnp.isnan(total), total, without)

        return computed_as(reduced, other)(a, *arrays.values())

    return smooth


def _cumulative(function: Function) -> Function:
    """``cummax`` and ``cummin``: a NaN gets the gradients of the results that it makes NaN."""

    def smooth(operand: Array, axis: int = 0, reverse: bool = False) -> Outputs:
        if not jnp.issubdtype(operand.dtype, jnp.floating):
            return function(operand, axis, reverse)

        def other(a: Array) -> Array:
            size = a.shape[axis]
            place = lax.broadcasted_iota(int, a.shape, axis % a.ndim)
            nans = jnp.isnan(a)
            if reverse:
                last = lax.cummin(jnp.where(nans, place, size), axis, reverse=True)
            else:
                last = lax.cummax(jnp.where(nans, place, -1), axis)
            seen = (last >= 0) & (last < size)
            of_nan = jnp.take_along_axis(a, jnp.clip(last, 0, size - 1), axis)
            return jnp.where(seen, of_nan, function(jnp.where(seen, 0, a), axis, reverse))

        return computed_as(lambda a: function(a, axis, reverse), other)(operand)

    return smooth


_MAXIMUM, _MINIMUM = [functools.partial(_greater, sign=s) for s in (1, -1)]

IN_LAX: dict[str, Function] = {
    **dict.fromkeys(("cummax", "cummin"), _cumulative),
    **dict.fromkeys(("reduce_max", "reduce_min"), _reduction),
    "max": _MAXIMUM,
    "min": _MINIMUM,
}
IN_NUMPY: dict[str, Function] = {
    **dict.fromkeys("amax amin max median min percentile quantile".split(), _reduction),
    "maximum": _MAXIMUM,
    "minimum": _MINIMUM,
}
