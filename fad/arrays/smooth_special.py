"""Functions of jax.scipy.special with derivatives that are right wherever they are smooth."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fad.arrays.arguments import Function
from fad.arrays.smooth_functions import (
    I0,
    I0E,
    I1,
    I1E,
    IN_NN,
    computed_as,
    no_slope,
    over_power,
    ratio_of_exp,
    ratio_of_log,
    ratio_of_sine,
    smooth_power,
    with_rule,
    with_slopes,
)
from fad.core.types import Array, Outputs, PyTree

# Functions around the gamma function with derivatives that are right wherever they are smooth.
#
# See NOTE [smooth] in `fad.arrays.smooth_functions`, and `fad.arrays.smooth_functions`.

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
AROUND_GAMMA: dict[str, Function] = {
    "beta": _beta,
    "betainc": _betainc,
    "betaln": _betaln,
    "comb": _comb,
    "gammainc": _GAMMAINC,
    "gammaincc": _GAMMAINCC,
    "poch": _poch,
}

# Functions of jax.scipy.special with derivatives that are right wherever they are smooth.
#
# See NOTE [smooth] in `fad.arrays.smooth_functions`, and `fad.arrays.smooth_functions`.


def _sici(sici: Function) -> Function:
    """The slope of the second result is 0 at 0: a cotangent of 0 times infinity would hide the first one."""

    def rule(_: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Outputs:
        (x,), (t,) = primals, tangents
        safe = jnp.where(x == 0, 1, x)
        return t * ratio_of_sine(x), t * jnp.where(x == 0, 0, jnp.cos(safe) / safe)

    return with_rule(sici, rule)


def _expn(expn: Function) -> Function:
    """JAX's rule keeps a tracer of ``n``. ``expn(n, x)' = -expn(n - 1, x)``, below 0 by recurrence."""

    def lower(n: Array, x: Array, steps: int) -> Array:
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
        def value(n: Array, x: Array) -> Array:
            return expn(n, x) if steps == 0 else lower(n, x, steps)

        by_order = no_slope("expn has no derivative in n, which is an integer")
        return with_slopes(value, by_order, lambda _, n, x: -derivative(steps + 1)(n, x))

    return lambda n, x: derivative(0)(jnp.asarray(n), x)


def _series_far(x: Array, sign: int) -> Array:
    """``dawsn``, and ``erfcx`` times ``sqrt(pi) / 2``, where ``x`` is larger than 12."""
    z = 1 / x / 2
    series = jnp.zeros_like(x)
    for k in reversed(range(12)):
        series = series * (2 * sign * z * z) + float(math.prod(range(1, 2 * k, 2)))
    return z * series


def _with_series(function: Function, sign: int, scale: float) -> Function:
    """JAX's slope, a constant and ``x`` times the function, cancels where ``x`` is large."""

    near = with_slopes(function, lambda out, x: sign * (scale - 2 * x * out))

    def by_parts(x: Array) -> Array:
        far = (x if sign < 0 else jnp.abs(x)) > 12
        series = scale * _series_far(jnp.where(far, x, 12), sign)
        return jnp.where(far, series, near(jnp.where(far, 1, x)))

    return computed_as(function, by_parts)


def _log_ndtr(log_ndtr: Function) -> Function:
    """In JAX's slope, the exponents of the density and of ``ndtr`` cancel where both are tiny."""

    def slope(out: Array, x: Array) -> Array:
        y = -x / math.sqrt(2)
        far = y > 12
        tail = 1 / _series_far(jnp.where(far, y, 12), -1) / math.sqrt(2)
        inner, log = jnp.where(far, 0, x), jnp.where(far, 0, out)
        body = jnp.exp(-inner * inner / 2 - log) / math.sqrt(2 * math.pi)
        return jnp.where(far, tail, body)

    def smooth(x: Array, series_order: int = 3) -> Outputs:
        return with_slopes(lambda x: log_ndtr(x, series_order), slope)(x)

    return smooth


# Entropies


def _xlogy(xlogy: Function, log: Function, shift: float) -> Function:
    over = over_power(1)
    return with_slopes(xlogy, lambda _, x, y: log(y), lambda _, x, y: over(x, y + shift))


def _rel_entr(rel_entr: Function, linear: float) -> Function:
    """``p log(p / q) - linear (p - q)``; as in JAX, the logarithm is left out where ``p == 0``."""
    over = over_power(1)

    def valid(p: Array, q: Array) -> tuple[Array, Array, Array]:
        taken = (p > 0) & (q > 0)
        return taken, jnp.where(taken, p, 1), jnp.where(taken, q, 1)

    def by_p(_: Array, p: Array, q: Array) -> Array:
        taken, p, q = valid(p, q)
        return jnp.where(taken, jnp.log(p) - jnp.log(q) + 1, 0) - linear

    def by_q(_: Array, p: Array, q: Array) -> Array:
        taken, p, q = valid(p, q)
        return linear - jnp.where(taken, over(p, q), 0)

    return with_slopes(rel_entr, by_p, by_q)


def _sph_harm_y(sph_harm_y: Function) -> Function:
    """JAX's formula has ``sqrt(1 - cos(theta)**2)``. The slopes are harmonics of the orders beside ``m``."""

    def smooth(
        n: Array, m: Array, theta: Array, phi: Array, diff_n: object = None, n_max: PyTree = None
    ) -> Outputs:
        n_max = np.max(n) if n_max is None else n_max

        def by_theta(_: Array, n: Array, m: Array, theta: Array, phi: Array) -> Array:
            turn = jnp.exp(1j * phi)
            up, down = [  # zero for orders that there are not
                jnp.sqrt(jnp.maximum(v, 0).astype(theta.dtype))
                for v in ((n - m) * (n + m + 1), (n + m) * (n - m + 1))
            ]
            above, below = harmonic(n, m + 1, theta, phi), harmonic(n, m - 1, theta, phi)
            return (up * jnp.conj(turn) * above - down * turn * below) / 2

        integer = no_slope("sph_harm_y has no derivative in n and m, which are integers")
        harmonic = with_slopes(
            lambda n, m, theta, phi: sph_harm_y(n, m, theta, phi, diff_n, n_max),
            integer,
            integer,
            by_theta,
            lambda out, n, m, theta, phi: 1j * m * out,
        )
        return harmonic(n, m, jnp.atleast_1d(theta), phi)

    return smooth


def _boxcox(boxcox: Function, log: Function, shift: float) -> Function:
    """``log(x) e(lmbda log(x))`` with ``e(u) = (exp(u) - 1) / u``: it is smooth at ``lmbda == 0``."""
    power = smooth_power(jnp.float_power)

    def by_x(_: Array, x: Array, lmbda: Array) -> Array:
        return power(x + shift, lmbda - 1)

    def by_lmbda(_: Array, x: Array, lmbda: Array) -> Array:
        at_zero = x + shift == 0
        logs = log(jnp.where(at_zero, 1 - shift, x))
        inside = logs * logs * ratio_of_exp(lmbda * logs, 1)
        at_edge = 1 / jnp.where(at_zero, lmbda, 1) ** 2
        return jnp.where(at_zero, jnp.where(lmbda > 0, at_edge, jnp.inf), inside)

    return with_slopes(boxcox, by_x, by_lmbda)


IN_SPECIAL: dict[str, Function] = {
    "boxcox": lambda f: _boxcox(f, jnp.log, 0.0),
    "boxcox1p": lambda f: _boxcox(f, jnp.log1p, 1.0),
    "dawsn": lambda f: _with_series(f, 1, 1.0),
    "erfcx": lambda f: _with_series(f, -1, 2 / math.sqrt(math.pi)),
    "exp1": lambda f: with_slopes(f, lambda _, x: -jnp.exp(-x) / x),
    "expn": _expn,
    "i0": I0,
    "i0e": I0E,
    "i1": I1,
    "i1e": I1E,
    "kl_div": lambda f: _rel_entr(f, 1.0),
    "log_ndtr": _log_ndtr,
    "logsumexp": IN_NN["logsumexp"],
    "rel_entr": lambda f: _rel_entr(f, 0.0),
    "sici": _sici,
    "sph_harm_y": _sph_harm_y,
    "spence": lambda f: with_slopes(f, lambda _, x: -ratio_of_log(x)),
    "xlog1py": lambda f: _xlogy(f, jnp.log1p, 1.0),
    "xlogy": lambda f: _xlogy(f, jnp.log, 0.0),
    **AROUND_GAMMA,
}
