"""Functions of jax.scipy.special with derivatives that are right wherever they are smooth."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fad.extend.types import Array, ArrayFunction, Outputs, PyTree
from fad.formulas.smooth_functions import (
    I0,
    I0E,
    I1,
    I1E,
    IN_NN,
    Function,
    any_of,
    for_real,
    mended,
    no_slope,
    over_power,
    polynomial,
    ratio_of_log,
    ratio_of_sine,
    series,
    with_rule,
    with_slopes,
)

# Functions around the gamma function with derivatives that are right wherever they are smooth.
#
# See NOTE [smooth] in `fad.formulas.smooth_functions`.

_over = over_power(1)

# Digamma: how far arguments are shifted for the asymptotic series of it, and coefficients of that.
_COEFFICIENTS = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)


def _circular(parity: int) -> ArrayFunction:
    """``sin(pi x)`` for 1, ``cos(pi x)`` for 0, where ``abs(x) <= 1 / 4``."""

    def coefficient(k: int) -> float:
        return (-1) ** (k // 2) * np.pi**k / math.factorial(k) if k % 2 == parity else 0.0

    return series(coefficient, 0.25)


_sine, _cosine = _circular(1), _circular(0)


def _reflected(x: Array) -> tuple[Array, Array, Array]:
    """Whether ``x`` is negative; ``z`` at the right of 0, and ``c``, with ``digamma(x) = digamma(z) - c``."""
    negative = x < -0.5
    rest = jnp.where(negative, x - jnp.floor(x + 0.5), 0.25)
    steep = jnp.abs(rest) <= 0.25  # otherwise the sine and cosine of what is left to a half
    angle = jnp.where(steep, rest, jnp.copysign(0.5, rest) - rest)
    sine, cosine = _sine(angle), _cosine(angle)
    cotangent = np.pi * jnp.where(steep, cosine, sine) / jnp.where(steep, sine, cosine)
    return negative, jnp.where(negative, 1 - x, x), jnp.where(negative, cotangent, 0)


@functools.cache
def _polygamma(n: int) -> Function:
    """The ``n``-th derivative of ``digamma``. JAX's has no right digit below -8.

    At the left of 0 by reflection: ``(-1)**n polygamma(n, 1 - x)``, less the ``n``-th derivative of
    ``pi cot(pi x)``, which is a polynomial in it. At poles it is JAX's.
    """
    coefficients = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        coefficients = coefficients.deriv() * np.polynomial.Polynomial([-(np.pi**2), 0.0, -1.0])

    def value(x: Array) -> Array:
        negative, z, part = _reflected(x)
        negative = negative & (x != jnp.floor(x))
        values = lax.polygamma(jnp.full_like(x, n), jnp.where(negative, z, x))
        reflected = (-1) ** n * values - polynomial([*coefficients.coef.tolist()], part)
        return jnp.where(negative, reflected, values)

    return with_slopes(value, lambda _, x: _polygamma(n + 1)(x))


def _digamma(digamma: Function) -> Function:
    return with_slopes(digamma, lambda _, x: _polygamma(1)(x))


def _gammaln(gammaln: Function) -> Function:
    return with_slopes(gammaln, lambda _, x: digamma(x))


digamma, lgamma = _digamma(lax.digamma), _gammaln(lax.lgamma)


def _gamma(gamma: Function) -> Function:
    return for_real(gamma, lambda out, x: out * digamma(x))


def _of_orders(n: Array, x: Array) -> Array:
    """Of orders that are known at run time, from 1. The sum of ``(x + k)**-(n + 1)`` for all integers ``k``
    is that of what is left of ``x`` to them, and without its part at the left of 0 a `polygamma` again.
    """
    n, x = jnp.broadcast_arrays(n, x)
    negative = (x < -0.5) & (x != jnp.floor(x)) & (n == jnp.floor(n))

    def reflected(n: Array, x: Array) -> Array:
        rest, sign = jnp.where(negative, x - jnp.floor(x), x), jnp.where(n % 2 == 0, -1, 1)
        every = lax.polygamma(n, rest) + jnp.where(negative, sign * lax.polygamma(n, 1 - rest), 0)
        left = lax.polygamma(n, jnp.where(negative, 1 - x, 1))
        return every - jnp.where(negative, sign * left, 0)

    return lax.cond(any_of(negative), reflected, lax.polygamma, n, x)


def _along_x(polygamma: Function) -> Function:
    by_order = no_slope("polygamma gradient with respect to m is not supported", ValueError)
    return with_slopes(polygamma, by_order, lambda out, n, x: _next(*_floats(out, n + 1, x)))


_next = _along_x(_of_orders)


def _of_order(polygamma: Function) -> Function:
    """The derivatives of an order that is a number are cheaper than those of an array."""
    smooth = _along_x(polygamma)

    def called(n: int | Array, x: Array) -> Outputs:
        if isinstance(n, (int, np.integer)) and n >= 0:
            return with_slopes(lambda x: polygamma(n, x), lambda _, x: _polygamma(int(n) + 1)(x))(x)
        return smooth(jnp.asarray(n), x)

    return called


polygamma = mended(_of_order, jax.scipy.special.polygamma)


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
    lambda _, x, h: _polygamma(1)(x + h),
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
        return jnp.where(at_zero & (m != 0), jnp.exp(lgamma(m)), poch(z, m) / divisor)

    def rise(z: Array, m: Array) -> Array:
        return digamma(z + m) - digamma(jnp.where(near(z, m), z + 1, z))

    def by_m(out: Array, z: Array, m: Array) -> Array:
        return out * digamma(z + m)

    factor = with_slopes(value, lambda out, z, m: out * rise(z, m), by_m)

    def by_z(_: Array, z: Array, m: Array) -> Array:
        slope = rise(z, m)
        return factor(z, m) * jnp.where(near(z, m), 1 + z * slope, slope)

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
    return _raised(a - 1, x, -x - lgamma(a))


def _beta_density(a: Array, b: Array, x: Array) -> Array:
    log_beta = lgamma(a) + lgamma(b) - lgamma(a + b)
    return _both_raised(a - 1, b - 1, x, -log_beta)


def _until_settled(
    step: Callable[[Array, tuple[Array, ...]], tuple[Array, ...]],
    state: tuple[Array, ...],
    least: Array | int = 1,
) -> tuple[Array, ...]:
    """``state`` after steps, which are given their number, until ``state[0]`` is small for all elements.

    At ``least`` so many, and half as many again: derivatives, which are those of the steps, settle later.
    """

    def goes_on(carried: tuple[Array, ...]) -> Array:
        k, last, *_ = carried
        return k < jnp.minimum(last + last // 2 + 8, 100_000)

    def after(carried: tuple[Array, ...]) -> tuple[Array, ...]:
        k, last, *before = carried
        new = step(k.astype(before[0].dtype), tuple(before))
        settled = jnp.all(jnp.abs(new[0]) <= 4 * jnp.finfo(new[0].dtype).eps)
        return k + 1, jnp.where(settled, last, jnp.maximum(last, k)), *new

    return tuple(lax.while_loop(goes_on, after, (jnp.array(1), jnp.asarray(least), *state))[2:])


def _gammainc_in_forward_mode(a: Array, x: Array) -> Array:
    """Derivatives of `gammainc` in ``a`` are those of its series, and where ``x`` is large of a fraction.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 6.5.29, and 6.5.31 by Lentz's method. The value
    is less by 1 where the fraction is used.
    """
    in_range = (x > 0) & (x < jnp.inf) & (a > 0)
    by_fraction = in_range & (x > 1) & (x > a)
    by_series = in_range & ~by_fraction

    def term(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        _, c, total = state
        c = c * low / (of_series + k)
        return c / total, c, total + c

    of_series, low = jnp.where(by_series, a, 1), jnp.where(by_series, x, 1)
    ones = jnp.ones_like(x)
    total = _until_settled(term, (ones, ones, ones))[-1]
    lower = total * jnp.exp(of_series * jnp.log(low) - low - lgamma(of_series + 1))

    def level(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        _, c, d, fraction = state
        numerator, b = k * (of_fraction - k), high - of_fraction + 1 + 2 * k
        c, d = b + numerator / c, 1 / (b + numerator * d)
        return c * d - 1, c, d, fraction * (c * d)

    of_fraction, high = jnp.where(by_fraction, a, 1), jnp.where(by_fraction, x, 2)
    first = 1 / (high - of_fraction + 1)
    eps = float(jnp.finfo(x.dtype).eps)
    large = jnp.full_like(x, 1 / eps**2)
    # The error is about ``exp(-4 sqrt(k x))``. That of a whole ``a`` is 0 after ``a`` steps, but not its
    # derivatives.
    smallest = jnp.min(jnp.where(by_fraction, x, jnp.inf), initial=jnp.inf)
    least = ((math.log(eps) / 4) ** 2 / smallest).astype(int)
    fraction = _until_settled(level, (ones, large, first, first), least)[-1]
    upper = fraction * jnp.exp(of_fraction * jnp.log(high) - high - lgamma(of_fraction))

    undefined = ~((x >= 0) & (a > 0))  # NaN is, too
    outside = jnp.where(undefined, jnp.nan, 0)
    return jnp.where(by_series, lower, jnp.where(by_fraction, -upper, outside))


def _in_a(n: int, function: Function) -> Function:
    """The ``n``-th derivative of a function of ``a`` and ``x`` in ``a``."""
    if n == 0:
        return function
    below = _in_a(n - 1, function)
    return lambda a, x: jax.jvp(lambda a: below(a, x), (a,), (jnp.ones_like(a),))[1]


@functools.cache
def _gammainc_by_a(n: int) -> Function:
    """The ``n``-th derivative of `gammainc` in ``a``; JAX has the first one."""
    return with_slopes(
        lax.igamma_grad_a if n == 1 else _in_a(n, _gammainc_in_forward_mode),
        lambda _, a, x: _gammainc_by_a(n + 1)(a, x),
        lambda _, a, x: _in_a(n, _gamma_density)(a, x),
    )


def _incomplete_gamma(sign: float, function: Function) -> Function:
    """``gammainc``, and ``gammaincc`` with the sign -1."""

    def by_a(out: Array, a: Array, x: Array) -> Array:
        return sign * _gammainc_by_a(1)(*jnp.broadcast_arrays(*_floats(out, a, x)))

    return with_slopes(function, by_a, lambda out, a, x: sign * _gamma_density(*_floats(out, a, x)))


def _betainc(betainc: Function) -> Function:
    unknown = no_slope("Betainc gradient with respect to a and b not supported.", ValueError)

    def by_x(out: Array, a: Array, b: Array, x: Array) -> Array:
        return _beta_density(*_floats(out, a, b, x))

    return with_slopes(betainc, unknown, unknown, by_x)


_GAMMAINC, _GAMMAINCC = [functools.partial(_incomplete_gamma, s) for s in (1.0, -1.0)]

IN_LAX: dict[str, Function] = {
    "betainc": _betainc,
    "digamma": _digamma,
    "igamma": _GAMMAINC,
    "igamma_grad_a": lambda _: _gammainc_by_a(1),
    "igammac": _GAMMAINCC,
    "lgamma": _gammaln,
    "polygamma": _of_order,
}
AROUND_GAMMA: dict[str, Function] = {
    "beta": _beta,
    "betainc": _betainc,
    "betaln": _betaln,
    "comb": _comb,
    "digamma": _digamma,
    "gamma": _gamma,
    "gammainc": _GAMMAINC,
    "gammaincc": _GAMMAINCC,
    "gammaln": _gammaln,
    "poch": _poch,
    "polygamma": _of_order,
}

# Functions of jax.scipy.special with derivatives that are right wherever they are smooth.
#
# See NOTE [smooth] in `fad.formulas.smooth_functions`.


def _nonzero(x: Array) -> Array:
    return jnp.where(x == 0, 1, x)


_cosine_over: Function = with_slopes(
    lambda x: jnp.where(x == 0, 0, jnp.cos(x) / _nonzero(x)),
    lambda out, x: jnp.where(x == 0, 0, -ratio_of_sine(x) - out / _nonzero(x)),
)
"""``cos(x) / x``, and 0 at 0."""


def _sici(sici: Function) -> Function:
    """The slope of the second result is 0 at 0: a cotangent of 0 times infinity would hide the first one."""

    def rule(_: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Outputs:
        (x,), (t,) = primals, tangents
        return t * ratio_of_sine(x), t * _cosine_over(x)

    return with_rule(sici, rule)


def _expn(expn: Function) -> Function:
    """JAX's rule keeps a tracer of ``n``. ``expn(n, x)' = -expn(n - 1, x)``, below 0 by recurrence."""

    def lower(n: Array, x: Array, steps: int) -> Array:
        """``expn(n - steps, x)``."""
        order = n - steps
        values = expn(jnp.maximum(order, 0), x)
        below = jnp.exp(-x) / x
        for k in range(1, steps + 1):
            below = (jnp.exp(-x) + k * below) / x
            values = jnp.where(order == -k, below, values)
        return jnp.where(n < 0, jnp.nan, values)

    @functools.cache
    def derivative(steps: int) -> Function:
        def value(n: Array, x: Array) -> Array:
            return expn(n, x) if steps == 0 else lower(n, x, steps)

        by_order = no_slope("expn has no derivative in n, which is an integer")
        return with_slopes(value, by_order, lambda _, n, x: -derivative(steps + 1)(n, x))

    return lambda n, x: derivative(0)(jnp.asarray(n), x)


# Of asymptotic series: that of `erfcx`, and the inverse of it.
_ODD = [math.prod(range(1, 2 * k, 2)) for k in range(12)]
_INVERSE = [1]
for _ in range(11):
    _INVERSE.append(
        sum((-1) ** k * c * v for k, (c, v) in enumerate(zip(_ODD[1:], _INVERSE[::-1])))
    )


def _far_series(coefficients: Sequence[float], z: Array) -> Array:
    """Where ``z`` is smaller than ``1 / 288``: as many terms as the digits of its dtype need."""
    eps = float(jnp.finfo(z.dtype).eps)
    return polynomial([c for k, c in enumerate(coefficients) if abs(c) > eps * 288**k], z)


def _with_series(function: Function, sign: int, scale: float) -> Function:
    """JAX's slope, a constant and ``x`` times the function, cancels where ``x`` is large."""

    def slope(out: Array, x: Array) -> Array:
        far = (x if sign < 0 else jnp.abs(x)) > 12
        half = 0.5 / jnp.where(far, x, 12)
        square = 2 * half * half
        series = -scale * square * _far_series(_ODD[1:], sign * square)
        return jnp.where(far, series, sign * (scale - 2 * x * out))

    return with_slopes(function, slope)


def _beyond(x: Array) -> tuple[Array, Array]:
    """Where ``x`` is far below 0, and what is added to ``-x`` there for the quotient by `ndtr`."""
    edge = -12 * math.sqrt(2)
    far = x < edge
    inverse = 1 / jnp.where(far, x, edge)
    return far, -inverse * _far_series(_INVERSE[1:], inverse * inverse)


def _density(log: Array, x: Array) -> Array:
    far, rest = _beyond(x)
    body = jnp.exp(-x * x / 2 - math.log(2 * math.pi) / 2 - log)
    return jnp.where(far, rest - x, body)


def _excess(log: Array, x: Array) -> Array:
    """``x`` and the quotient, in sum."""
    far, rest = _beyond(x)
    return jnp.where(far, rest, x + _over_ndtr(log, x))


_over_ndtr: Function = with_slopes(
    _density,
    lambda out, log, x: jnp.zeros_like(
        out
    ),  # `log` is a function of `x`, which has the whole slope
    lambda out, log, x: -out * _excess(log, x),
)
"""The quotient of the density and ``exp(log)``."""


def _log_ndtr(log_ndtr: Function) -> Function:
    """In JAX's slope, the exponents of the density and of ``ndtr`` cancel where both are tiny."""

    def smooth(x: Array, series_order: int = 3) -> Outputs:
        def slope(out: Array, x: Array) -> Array:
            return _over_ndtr(lax.stop_gradient(out), x)

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
    """``(p - 1) / lmbda`` with ``p = (x + shift)**lmbda``: it is smooth at ``lmbda == 0``.

    First and second derivatives share one exponential, that of a power half as high: where a power that is
    asked for is in range, so are the two factors that it is made of. One beside it may overflow, or be 0.
    """

    def power(x: Array, exponent: Array) -> Array:
        return jnp.exp(exponent * log(x))

    def raised(x: Array, lmbda: Array, k: int) -> Array:
        """``(x + shift)**(lmbda - k)``."""
        base, exponent = x + shift, lmbda - k
        if k > 2:
            powers = power(x, exponent)
        else:  # of the exponent of the least size: digits are lost in proportion to it
            shifted = lmbda > 0.5
            half = jnp.where(base == 0, 1, power(x, jnp.where(shifted, lmbda - 1, lmbda) / 2))
            if k == 0:
                powers = half * jnp.where(shifted, half * base, half)
            else:
                lowered = half / base
                powers = (half if k == 1 else lowered) * jnp.where(shifted, half, lowered)
        at_zero = jnp.where(exponent > 0, 0, jnp.where(exponent == 0, 1, jnp.inf))
        return jnp.where(base == 0, at_zero, powers)

    @functools.cache
    def by_both(n: int, k: int) -> Function:
        """That of ``(x + shift)**(lmbda - 1)``, ``n`` times by ``lmbda`` and ``k`` times by ``x``."""

        def value(x: Array, lmbda: Array) -> Array:
            at_zero = x + shift == 0
            # Taylor coefficients, in lmbda, of the factor (lmbda - 1) (lmbda - 2) ...
            factors = [jnp.ones_like(lmbda)] + [jnp.zeros_like(lmbda)] * n
            for i in range(1, k + 1):
                below = [jnp.zeros_like(lmbda), *factors[:-1]]
                factors = [(lmbda - i) * c + d for c, d in zip(factors, below, strict=True)]
            last = raised(x, lmbda, k + 1)
            logs = jnp.where(at_zero & (lmbda - 1 - k > 0), 0, log(x)) if n else x

            def term(j: int) -> Array:
                factor = math.perm(n, j) * factors[j]
                return jnp.where(factor == 0, 0, factor * (logs ** (n - j) * last))

            total = term(n)
            for j in reversed(range(n)):  # at 0 that of the highest power of the logarithm counts
                total = term(j) + jnp.where(at_zero & (factors[j] != 0), 0, total)
            return total

        return with_slopes(
            value,
            lambda _, x, lmbda: by_both(n, k + 1)(x, lmbda),
            lambda _, x, lmbda: by_both(n + 1, k)(x, lmbda),
        )

    @functools.cache
    def by_lmbda(n: int) -> Function:
        """The ``n``-th derivative: ``lmbda v[0] = p - 1`` gives ``lmbda v[n] + n v[n - 1] = log**n p``.

        So ``lmbda**(n + 1) v[n]`` is ``p`` times a polynomial in ``u = lmbda log``, and a constant.
        """
        radius = max(0.5, n / math.e)
        near = series(lambda k: 1 / math.factorial(k + 1), radius, n)
        signed = [(-1.0) ** (n - j) * math.perm(n, n - j) for j in range(n + 1)]

        def value(x: Array, lmbda: Array) -> Array:
            at_zero = x + shift == 0
            logs = jnp.where(at_zero, 0, log(x))
            inverse = 1 / jnp.where(lmbda == 0, 1, lmbda)
            u = jnp.maximum(lmbda * logs, jnp.finfo(x.dtype).min)  # the power is 0 there
            scale = inverse**n
            values = raised(x, lmbda, 0) * inverse * (polynomial(signed, u) * scale)
            values = values - signed[0] * inverse * scale
            values = jnp.where(at_zero & (lmbda <= 0), (-1.0) ** (n + 1) * jnp.inf, values)
            return jnp.where((jnp.abs(u) < radius) & ~at_zero, logs ** (n + 1) * near(u), values)

        return with_slopes(
            value,
            lambda _, x, lmbda: by_both(n, 0)(x, lmbda),
            lambda _, x, lmbda: by_lmbda(n + 1)(x, lmbda),
        )

    return with_slopes(
        boxcox,
        lambda out, x, lmbda: by_both(0, 0)(*_floats(out, x, lmbda)),
        lambda out, x, lmbda: by_lmbda(1)(*_floats(out, x, lmbda)),
    )


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
