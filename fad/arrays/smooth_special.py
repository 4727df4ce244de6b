"""Functions of jax.scipy.special with derivatives that are right wherever they are smooth.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from fad.arrays.smooth import computed_as, with_rule, with_slopes
from fad.arrays.smooth_functions import IN_NN, smooth_power
from fad.arrays.smooth_ratios import I0, I0E, I1, I1E, ratio_of_exp, ratio_of_log, ratio_of_sine

__all__ = ["IN_SPECIAL"]

Function = Callable[..., Any]


def _sici(sici: Function) -> Function:
    """The slope of the second result is 0 at 0: a cotangent of 0 times infinity would hide the first one."""

    def rule(_: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        (x,), (t,) = primals, tangents
        safe = jnp.where(x == 0, 1, x)
        return t * ratio_of_sine(x), t * jnp.where(x == 0, 0, jnp.cos(safe) / safe)

    return with_rule(sici, rule)


def _expn(expn: Function) -> Function:
    """JAX's rule keeps a tracer of ``n``. ``expn(n, x)' = -expn(n - 1, x)``, below 0 by recurrence."""

    def lower(n: Any, x: Any, steps: int) -> Any:
        """``expn(n - steps, x)``."""
        order = n - steps
        found = expn(jnp.maximum(order, 0), x)
        below = jnp.exp(-x) / x
        for k in range(1, steps + 1):
            below = (jnp.exp(-x) + k * below) / x
            found = jnp.where(order == -k, below, found)
        return jnp.where(n < 0, jnp.nan, found)

    @functools.cache
    def derivative(steps: int) -> Function:
        def value(n: Any, x: Any) -> Any:
            return expn(n, x) if steps == 0 else lower(n, x, steps)

        def by_order(*_: Any) -> Any:
            raise NotImplementedError("expn has no derivative in n, which is an integer")

        return with_slopes(value, by_order, lambda _, n, x: -derivative(steps + 1)(n, x))

    return lambda n, x: derivative(0)(jnp.asarray(n), x)


def _exp1(exp1: Function) -> Function:
    return with_slopes(exp1, lambda _, x: -jnp.exp(-x) / x)


def _dawsn(dawsn: Function) -> Function:
    """``1 - 2 x dawsn(x)`` cancels where ``x`` is large."""

    def by_parts(x: Any) -> Any:
        far = jnp.abs(x) > 12
        z = 1 / jnp.where(far, x, 12) / 2
        series = jnp.zeros_like(x)
        for k in reversed(range(12)):
            series = series * (2 * z * z) + float(math.prod(range(1, 2 * k, 2)))
        return jnp.where(far, z * series, dawsn(jnp.where(far, 1, x)))

    return computed_as(dawsn, by_parts)


def _boxcox(boxcox: Function, log: Function, shift: float) -> Function:
    """``log(x) e(lmbda log(x))`` with ``e(u) = (exp(u) - 1) / u``: it is smooth at ``lmbda == 0``."""
    power = smooth_power(jnp.float_power)

    def by_x(_: Any, x: Any, lmbda: Any) -> Any:
        return power(x + shift, lmbda - 1)

    def by_lmbda(_: Any, x: Any, lmbda: Any) -> Any:
        at_zero = x + shift == 0
        logs = log(jnp.where(at_zero, 1 - shift, x))
        inside = logs * logs * ratio_of_exp(lmbda * logs, 1)
        at_edge = 1 / jnp.where(at_zero, lmbda, 1) ** 2
        return jnp.where(at_zero, jnp.where(lmbda > 0, at_edge, jnp.inf), inside)

    return with_slopes(boxcox, by_x, by_lmbda)


IN_SPECIAL: dict[str, Function] = {
    "boxcox": lambda f: _boxcox(f, jnp.log, 0.0),
    "boxcox1p": lambda f: _boxcox(f, jnp.log1p, 1.0),
    "dawsn": _dawsn,
    "exp1": _exp1,
    "expn": _expn,
    "i0": I0,
    "i0e": I0E,
    "i1": I1,
    "i1e": I1E,
    "logsumexp": IN_NN["logsumexp"],
    "sici": _sici,
    "spence": lambda f: with_slopes(f, lambda _, x: -ratio_of_log(x)),
}
