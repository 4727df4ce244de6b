"""Quotients that are smooth at a zero of the divisor, of which derivatives in `smooth_functions` are made."""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import computed_as, quotient, with_slopes
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
    lambda n, x: jnp.exp(x) if n else jnp.expm1(x), lambda k: 1 / math.factorial(k + 1), radius=1.0
)
ratio_of_log = quotient(_log, lambda k: (-1.0) ** k / (k + 1), radius=0.35, center=1.0)
ratio_of_sine = quotient(_sine, _sine_coefficient, radius=3.0)

# Modified Bessel functions


@functools.cache
def _scaled_bessel(n: int) -> Function:
    """``exp(-|x|) I_n(x) / x**n``, which is even: by its series, and by recurrence where that is stable."""
    radius, terms = 8.0, 36

    def value(x: Array) -> Array:
        dtype = x.dtype
        a = jnp.abs(x.astype(jnp.promote_types(dtype, jnp.float32)))
        near = a < radius
        z = jnp.where(near, a, 0) ** 2 / 4
        series = jnp.zeros_like(a)
        for k in reversed(range(terms)):
            series = series * z + 1 / (2.0**n * math.factorial(k) * math.factorial(n + k))
        far = jnp.where(near, radius, a)
        before, last = lax.bessel_i0e(far), lax.bessel_i1e(far) / far
        for k in range(1, n):
            before, last = last, (before - 2 * k * last) / far / far
        by_recurrence = before if n == 0 else last
        return jnp.where(near, jnp.exp(-a) * series, by_recurrence).astype(dtype)

    return with_slopes(value, lambda out, x: x * _scaled_bessel(n + 1)(x) - jnp.sign(x) * out)


@functools.cache
def bessel(n: int) -> Function:
    """``I_n(x) / x**n``; its derivative is that of the next order times ``x``."""
    return with_slopes(
        lambda x: jnp.exp(jnp.abs(x)) * _scaled_bessel(n)(x), lambda _, x: x * bessel(n + 1)(x)
    )


I0 = functools.partial(computed_as, other=bessel(0))
I1 = functools.partial(computed_as, other=lambda x: x * bessel(1)(x))
I0E = functools.partial(computed_as, other=_scaled_bessel(0))
I1E = functools.partial(computed_as, other=lambda x: x * _scaled_bessel(1)(x))
