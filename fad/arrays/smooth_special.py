"""Functions of jax.scipy.special with derivatives that are right wherever they are smooth.

See NOTE [smooth] in `fad.arrays.smooth`, and `fad.arrays.smooth_functions`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import no_slope, polynomial, with_rule, with_slopes
from fad.arrays.smooth_functions import IN_NN, over_power, smooth_power
from fad.arrays.smooth_gamma import IN_SPECIAL as AROUND_GAMMA
from fad.arrays.smooth_ratios import I0, I0E, I1, I1E, ratio_of_exp, ratio_of_log, ratio_of_sine
from fad.core.types import Array, Outputs, PyTree


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
    no_slope("it is the logarithm of ndtr(x)"),
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
