"""Functions around the gamma function with derivatives that are right wherever they are smooth.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import computed_as, no_slope, with_slopes
from fad.arrays.smooth_functions import over_power, smooth_power
from fad.core.types import Array, Outputs

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_power = smooth_power(lax.pow)
_over = over_power(1)


def _rise(x: Array, h: Array) -> Array:
    near = (x > -1) & (x + h > -1)
    start, step = jnp.where(near, x, 1), jnp.where(near, h, 0)
    shifts = 11
    total = jnp.zeros_like(start)
    for k in range(shifts):  # digamma(x + 1) = digamma(x) + 1 / x
        total = total + _over(_over(step, start + k + step), start + k)
    far = start + shifts  # the asymptotic series from here on
    inverse = _over(jnp.ones_like(far), far)
    log = jnp.log1p(_over(step, far))
    total = total + log - inverse / 2 * jnp.expm1(-log)
    for k, b in enumerate(_BERNOULLI, 1):
        total = total - b / (2 * k) * inverse ** (2 * k) * jnp.expm1(-2 * k * log)
    below, above = [jnp.where(near, 1, v) for v in (x, x + h)]
    return jnp.where(near, total, lax.digamma(above) - lax.digamma(below))


_along = with_slopes(
    _rise,
    lambda _, x, h: jax.jvp(lambda x: _rise(x, h), (x,), (jnp.ones_like(x),))[1],
    lambda _, x, h: lax.polygamma(jnp.ones_like(x), x + h),
)


def _digamma_rise(x: Array, h: Array) -> Array:
    """``digamma(x + h) - digamma(x)``, to all digits where ``h`` is small or ``x`` is large."""
    return _along(*jnp.broadcast_arrays(x, h))


def _floats(out: Array, *args: Array) -> list[Array]:
    return [jnp.asarray(v).astype(out.dtype) for v in args]


def _betaln(betaln: Function) -> Function:
    """JAX sorts the arguments; where they are equal, its second derivatives are averages of other ones."""

    def slope(out: Array, a: Array, b: Array) -> Array:
        return -_digamma_rise(*_floats(out, a, b))

    return with_slopes(betaln, slope, lambda out, a, b: slope(out, b, a))


def _beta(beta: Function) -> Function:
    def slope(out: Array, a: Array, b: Array) -> Array:
        return -out * _digamma_rise(*_floats(out, a, b))

    return with_slopes(beta, slope, lambda out, a, b: slope(out, b, a))


def _comb(comb: Function) -> Function:
    """With repetition, the result for ``k == 0`` is 1 for all ``N``, but not constant in ``k``."""

    def by_n(out: Array, n: Array, k: Array) -> Array:
        n, k = _floats(out, n, k)
        return out * jnp.where(n >= 1, _digamma_rise(jnp.where(n >= 1, n, 1), k), 0)

    def by_k(out: Array, n: Array, k: Array) -> Array:
        n, k = _floats(out, n, k)
        return out * jnp.where(n >= 1, _digamma_rise(k + 1, jnp.where(n >= 1, n, 1) - 1), 0)

    repeated = with_slopes(lambda n, k: comb(n, k, repetition=True), by_n, by_k)

    def smooth(N: Array, k: Array, *, repetition: bool = False) -> Outputs:
        return repeated(N, k) if repetition else comb(N, k)

    return smooth


def _poch(poch: Function) -> Function:
    """Near ``z == 0``, where the divisor ``gamma(z)`` has a pole, as ``z poch(z + 1, m - 1)``."""
    ratio = with_slopes(
        poch,
        lambda out, z, m: out * _digamma_rise(z, m),
        lambda out, z, m: out * lax.digamma(z + m),
    )

    def by_recurrence(z: Array, m: Array) -> Array:
        z, m = jnp.broadcast_arrays(z, m)
        near = (jnp.abs(z) < 0.5) & (m != 0)
        inside = z * ratio(jnp.where(near, z + 1, 1), jnp.where(near, m - 1, 1))
        return jnp.where(near, inside, ratio(jnp.where(near, 1, z), m))

    smooth = computed_as(poch, by_recurrence)
    return lambda z, m: smooth(*_floats(jnp.asarray(poch(z, m)), z, m))


# Incomplete integrals: the slope is the integrand


def _scale(x: Array) -> Array:
    """A constant by which ``x`` is divided under a power, so that it does not overflow; 1 near 0."""
    x = lax.stop_gradient(x)
    return jnp.where(x > jnp.finfo(x.dtype).tiny ** 0.25, x, 1)


def _gamma_density(a: Array, x: Array) -> Array:
    scale = _scale(x)
    rest = (a - 1) * jnp.log(scale) - x - lax.lgamma(a)
    return _power(x / scale, a - 1) * jnp.exp(rest)


def _beta_density(a: Array, b: Array, x: Array) -> Array:
    below, above = _scale(x), _scale(1 - x)
    scaled = above != 1
    log_above = jnp.where(scaled, jnp.log1p(-lax.stop_gradient(jnp.where(scaled, x, 0))), 0)
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    rest = (a - 1) * jnp.log(below) + (b - 1) * log_above - log_beta
    return _power(x / below, a - 1) * _power((1 - x) / above, b - 1) * jnp.exp(rest)


def _incomplete_gamma(sign: float, function: Function) -> Function:
    """``gammainc``, and ``gammaincc`` with the sign -1."""

    def mixed(_: Array, a: Array, x: Array) -> Array:
        return jax.jvp(lambda a: _gamma_density(a, x), (a,), (jnp.ones_like(a),))[1]

    by_a = with_slopes(lax.igamma_grad_a, no_slope("gammainc has no second derivative in a"), mixed)
    return with_slopes(
        function,
        lambda out, a, x: sign * by_a(*jnp.broadcast_arrays(*_floats(out, a, x))),
        lambda out, a, x: sign * _gamma_density(*_floats(out, a, x)),
    )


def _betainc(betainc: Function) -> Function:
    unknown = no_slope("Betainc gradient with respect to a and b not supported.", ValueError)

    def by_x(out: Array, a: Array, b: Array, x: Array) -> Array:
        return _beta_density(*_floats(out, a, b, x))

    return with_slopes(betainc, unknown, unknown, by_x)


_GAMMAINC, _GAMMAINCC = [functools.partial(_incomplete_gamma, s) for s in (1.0, -1.0)]

IN_LAX: dict[str, Function] = {"betainc": _betainc, "igamma": _GAMMAINC, "igammac": _GAMMAINCC}
IN_SPECIAL: dict[str, Function] = {
    "beta": _beta,
    "betainc": _betainc,
    "betaln": _betaln,
    "comb": _comb,
    "gammainc": _GAMMAINC,
    "gammaincc": _GAMMAINCC,
    "poch": _poch,
}
