"""Quotients that are smooth at a zero of the divisor, of which derivatives in `smooth_functions` are made."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import quotient, with_slopes
from fad.core.types import Array


def _log(n: int, x: Array) -> Array:
    if n == 0:
        return jnp.log(x)
    return (-1.0) ** (n - 1) * math.factorial(n - 1) / x**n


def _sine(n: int, x: Array) -> Array:
    sign = -1 if n % 4 >= 2 else 1
    return sign * (jnp.cos(x) if n % 2 else jnp.sin(x))


def _sine_coefficient(k: int) -> float:
    return 0.0 if k % 2 else (-1.0) ** (k // 2) / math.factorial(k + 1)


ratio_of_exp = quotient(
    lambda n, x: jnp.exp(x) if n else jnp.expm1(x),
    lambda k: 1 / math.factorial(k + 1),
    lambda n: max(1.0, n / math.e),
)
ratio_of_log = quotient(_log, lambda k: (-1.0) ** k / (k + 1), lambda n: 0.35, center=1.0)
ratio_of_sine = quotient(_sine, _sine_coefficient, lambda n: max(1.0, n / math.e))

# Modified Bessel functions


@functools.cache
def _scaled_bessel(n: int) -> Function:
    """``exp(-|x|) I_n(x) / x**n``, which is even: by its series, and by recurrence where that is stable."""
    radius = min(4.0 * max(n - 1, 0), 12.0)
    first = 1 / (2.0**n * math.factorial(n))
    coefficients = [first]
    while coefficients[-1] * (radius / 2) ** (2 * len(coefficients)) > 1e-17 * first:
        k = len(coefficients)
        coefficients.append(coefficients[-1] / (k * (n + k)))

    def value(x: Array) -> Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        near = jnp.abs(wide) <= radius
        divisor = jnp.where(near, 1, wide)
        before, last = lax.bessel_i0e(wide), lax.bessel_i1e(wide) / divisor
        for k in range(1, n):
            before, last = last, (before - 2 * k * last) / divisor / divisor
        if n == 1:  # the recurrence begins with it, and is stable up to 0
            return jnp.where(near, first, last).astype(x.dtype)
        inner = jnp.where(near, jnp.abs(wide), 0)
        series = jnp.zeros_like(wide)
        for c in reversed(coefficients):
            series = series * (inner * inner / 4) + c
        return jnp.where(near, jnp.exp(-inner) * series, last).astype(x.dtype)

    return with_slopes(value, lambda out, x: x * _scaled_bessel(n + 1)(x) - jnp.sign(x) * out)


@functools.cache
def _bessel(n: int) -> Function:
    """``I_n(x) / x**n``; its derivative is that of the next order times ``x``."""
    return with_slopes(
        lambda x: jnp.exp(jnp.abs(x)) * _scaled_bessel(n)(x), lambda _, x: x * _bessel(n + 1)(x)
    )


def I0(i0: Function) -> Function:
    return with_slopes(i0, lambda _, x: bessel_i1(x))


def I1(i1: Function) -> Function:
    return with_slopes(i1, lambda _, x: bessel_i0(x) - _bessel(1)(x))


def I0E(i0e: Function) -> Function:
    return with_slopes(i0e, lambda out, x: bessel_i1e(x) - jnp.sign(x) * out)


def I1E(i1e: Function) -> Function:
    def slope(out: Array, x: Array) -> Array:
        return _i0e_apart(x) - jnp.sign(x) * out - _scaled_bessel(1)(x)

    return with_slopes(i1e, slope)


# Of another argument at 0, so that XLA does not keep what this one shares with `i1e` in an array.
_i0e_apart = I0E(lambda x: lax.bessel_i0e(jnp.where(x == 0, jnp.finfo(x.dtype).tiny, x)))

bessel_i0, bessel_i1 = I0(jax.scipy.special.i0), I1(jax.scipy.special.i1)
bessel_i0e, bessel_i1e = I0E(lax.bessel_i0e), I1E(lax.bessel_i1e)
