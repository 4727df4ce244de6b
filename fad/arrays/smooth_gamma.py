"""Functions around the gamma function with derivatives that are right wherever they are smooth.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import no_slope, with_slopes
from fad.arrays.smooth_functions import over_power
from fad.core.types import Array, Outputs

_over = over_power(1)

# Digamma: how far arguments are shifted for the asymptotic series of it, and coefficients of that.
_COEFFICIENTS = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def _reflected(x: Array) -> tuple[Array, Array, Array]:
    """Whether ``x`` is negative; ``z`` at the right of 0, and ``c``, with ``digamma(x) = digamma(z) - c``."""
    negative = x < -0.5
    angle = jnp.pi * jnp.where(negative, x - jnp.floor(x + 0.5), 0.25)
    return negative, jnp.where(negative, 1 - x, x), jnp.where(negative, jnp.pi / jnp.tan(angle), 0)


def _rise(x: Array, h: Array) -> Array:
    left, start, x_part = _reflected(x)
    end_left, end, end_part = _reflected(x + h)
    step = jnp.where(left == end_left, jnp.where(left, -h, h), end - start)
    shifts, terms = (11, 8) if x.dtype == jnp.float64 else (6, 3)
    total = _over(_over(step, end), start)  # digamma(z + 1) = digamma(z) + 1 / z
    for k in range(1, shifts):
        total = total + step / ((start + k) * (end + k))
    u, v = 1 / (start + shifts), 1 / (end + shifts)
    # The series is a polynomial in the square: its value at `u**2`, and its divided difference.
    value, difference = jnp.zeros_like(u), jnp.zeros_like(u)
    for c in reversed(_COEFFICIENTS[:terms]):
        value, difference = value * (u * u) + c, difference * (v * v) + value
    squares = (u + v) * (difference * (v * v) + value)
    total = total + jnp.log1p(step * u) + step * u * v * (0.5 + squares)
    return total - (end_part - x_part)


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
    """``poch(z, m)`` is ``F(z, m) = poch(z + 1, m - 1)`` times ``z``: near 0, the slopes are those of ``F``.

    Its divisor ``gamma(z)`` has a pole at 0.
    """

    def near(z: Array, m: Array) -> Array:
        return (jnp.abs(z) < 0.5) & (m != 0)

    def value(z: Array, m: Array) -> Array:
        at_zero = jnp.abs(z) < jnp.finfo(z.dtype).tiny
        divisor = jnp.where(near(z, m) & ~at_zero, z, 1)
        return jnp.where(at_zero & (m != 0), jnp.exp(lax.lgamma(m)), poch(z, m) / divisor)

    def rise(z: Array, m: Array) -> Array:
        return lax.digamma(z + m) - lax.digamma(jnp.where(near(z, m), z + 1, z))

    def by_m(out: Array, z: Array, m: Array) -> Array:
        return out * lax.digamma(z + m)

    factor = with_slopes(value, lambda out, z, m: out * rise(z, m), by_m)

    def by_z(_: Array, z: Array, m: Array) -> Array:
        found = rise(z, m)
        return factor(z, m) * jnp.where(near(z, m), 1 + z * found, found)

    smooth = with_slopes(poch, by_z, by_m)
    return lambda z, m: smooth(*jnp.broadcast_arrays(*_floats(jnp.asarray(poch(z, m)), z, m)))


# Incomplete integrals: the slope is the integrand, a product of powers that is computed by logarithms


def _log(x: Array) -> Array:
    """Finite at 0, so that the power 0 of 0 is 1."""
    return jnp.maximum(jnp.log(x), jnp.finfo(x.dtype).min)


def _log_of_rest(x: Array) -> Array:
    """That of ``1 - x``."""
    return jnp.maximum(jnp.log1p(-x), jnp.finfo(x.dtype).min)


_raised: Function = with_slopes(
    lambda p, x, rest: jnp.exp(p * _log(x) + rest),
    lambda out, p, x, rest: out * _log(x),
    lambda _, p, x, rest: p * _raised(p - ((p != 0) | (x != 0)), x, rest),
    lambda out, p, x, rest: out,
)
"""``x**p exp(rest)``."""


def _both_by_x(_: Array, p: Array, q: Array, x: Array, rest: Array) -> Array:
    """The powers are lowered, but those of 0 that are 0."""
    below, above = (p != 0) | (x != 0), (q != 0) | (x != 1)
    factor = p * jnp.where(above, 1 - x, 1) - q * jnp.where(below, x, 1)
    return factor * _both_raised(p - below, q - above, x, rest)


_both_raised: Function = with_slopes(
    lambda p, q, x, rest: jnp.exp(p * _log(x) + q * _log_of_rest(x) + rest),
    lambda out, p, q, x, rest: out * _log(x),
    lambda out, p, q, x, rest: out * _log_of_rest(x),
    _both_by_x,
    lambda out, p, q, x, rest: out,
)
"""``x**p (1 - x)**q exp(rest)``."""


def _gamma_density(a: Array, x: Array) -> Array:
    return _raised(a - 1, x, -x - lax.lgamma(a))


def _beta_density(a: Array, b: Array, x: Array) -> Array:
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    return _both_raised(a - 1, b - 1, x, -log_beta)


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
