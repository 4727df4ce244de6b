"""Functions of jax.numpy, jax.lax and jax.nn with derivatives that are right wherever they are smooth."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from fad.errors import ArgumentError
from fad.extend import partition, run_program, with_programs
from fad.extend.types import (
    Array,
    ArrayFunction,
    DType,
    JaxEquation,
    Operand,
    Outputs,
    PyTree,
)

Function = Callable[..., PyTree]
Axes = int | Sequence[int] | None
Number = bool | int | float | complex

# Derivatives that are right wherever a function is smooth: what the rules below are made of.
#
# NOTE [smooth]
#
# JAX differentiates the formula by which a function is computed. The formula may break down where the
# function does not: ``x**1.0`` is smooth at 0, and its second derivative is computed as ``0 * 0**-1``. Such
# functions of JAX keep their values, bit by bit, and get the derivatives of another formula, or slopes that
# are given by hand: `IN_NUMPY`, `IN_LAX`, `IN_NN`. A slope is itself a function of this
# kind, so that derivatives of all orders are right, in both modes, and in whatever JAX does with them.
#
# A slope given by hand is a nonlinear function of the point alone, and the tangent is multiplied by it: a
# selection that hides a quotient by zero has to hide it from the transposed program too.


def _has_tangent(tangent: Any) -> bool:
    return not isinstance(tangent, SymbolicZero) and tangent.dtype != jax.dtypes.float0


def with_rule(function: Function, rule: Function) -> Function:
    """``function`` of arrays, with a hand-written derivative.

    Arguments:
        rule: called with the result, the arguments, and their tangents, of which those of arguments that have
            none are None; returns the tangent of the result.
    """
    made = jax.custom_jvp(function)

    def jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Outputs, Outputs]:
        out = made(*primals)
        return out, rule(out, primals, [t if _has_tangent(t) else None for t in tangents])

    made.defjvp(jvp, symbolic_zeros=True)
    return made


def with_slopes(function: Function, *slopes: Function) -> Function:
    """An elementwise function with a slope for each argument, called with the result and all arguments."""

    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        terms = [
            t.astype(out.dtype) * slope(out, *primals)
            for t, slope in zip(tangents, slopes, strict=True)
            if t is not None
        ]
        return jnp.broadcast_to(sum(terms[1:], terms[0]), out.shape).astype(out.dtype)

    return with_rule(function, rule)


def computed_as(function: Function, other: Function) -> Function:
    """``function``, with the derivatives of ``other``, which is another formula for it."""

    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        differentiated = [k for k, t in enumerate(tangents) if t is not None]

        def on_differentiated(*some: Array) -> Array:
            values = list(primals)
            for k, v in zip(differentiated, some, strict=True):
                values[k] = v
            return other(*values)

        point = tuple([primals[k] for k in differentiated])
        tangent = jax.jvp(on_differentiated, point, tuple([tangents[k] for k in differentiated]))[1]
        return jax.tree.map(lambda t, o: t.astype(o.dtype), tangent, out)

    return with_rule(function, rule)


def no_slope(why: str, error: type[Exception] = NotImplementedError) -> Function:
    """The slope by an argument that there is no derivative in: an error says ``why``."""

    def slope(*_: Array) -> Array:
        raise error(why)

    return slope


def is_inexact(dtype: DType) -> bool:
    """Whether values of this dtype have derivatives."""
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def is_real(*values: Operand) -> bool:
    """Whether no value is complex."""
    return not any(map(jnp.iscomplexobj, values))


def for_real(function: Function, *slopes: Function) -> Function:
    """`with_slopes`, where the arguments are real."""
    smooth = with_slopes(function, *slopes)
    return lambda *args: smooth(*args) if is_real(*args) else function(*args)


def divisor(out: Array) -> Array:
    """``out``, and where it is 0 a divisor by which quotients are 0."""
    return jnp.where(out == 0, jnp.inf, out)


def all_axes(ndim: int, axis: Axes) -> tuple[int, ...]:
    """The axes of a reduction, counted from 0."""
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple([k % ndim for k in axes])


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """That of an array, by Horner's rule; in the square of ``x`` if it is even or odd."""
    for rest, factor in ((0, x), (1, 1)):
        if len(coefficients) > 2 and not any(coefficients[rest::2]):
            return factor * polynomial(coefficients[1 - rest :: 2], x * x)
    value = jnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


def series(coefficient: Callable[[int], float], limit: float, n: int = 0) -> ArrayFunction:
    """The ``n``-th derivative of a power series, where ``abs(u) < limit``: as many terms as digits need."""

    @functools.cache
    def coefficients(eps: float) -> list[float]:
        terms = [coefficient(k) * math.perm(k, n) for k in range(n, n + 60)]
        sizes = [abs(c) * limit**k for k, c in enumerate(terms)]
        last = max(k for k, size in enumerate(sizes) if size > eps / 8 * max(sizes))
        return terms[: last + 1]

    return lambda u: polynomial(coefficients(float(jnp.finfo(u.dtype).eps)), u)


def quotient(
    numerator: Callable[[int, Array], Array],
    coefficient: Callable[[int], float],
    radius: Callable[[int], float],
    center: float = 0.0,
) -> ArrayFunction:
    """``p(x) / (x - center)`` for a ``p`` that is zero there: a function of ``x``, smooth at the center too.

    Arguments:
        numerator: ``numerator(n, x)`` is the ``n``-th derivative of ``p``.
        coefficient: ``coefficient(k)`` is the ``k``-th Taylor coefficient of the quotient at the center.
        radius: how far from the center the series of the ``n``-th derivative is used. Outside, rounding
            errors grow to ``factorial(n) / radius(n)**n`` times those of ``p``.

    It takes an ``n`` besides: its ``n``-th derivative. ``u q = p`` gives ``u q[n] + n q[n - 1] = p[n]``.
    """

    @functools.cache
    def derivative(n: int) -> Function:
        limit = radius(n)
        near = series(coefficient, limit, n)

        def value(x: Array) -> Array:
            u = x - center
            quotients = numerator(0, x) / u
            for k in range(1, n + 1):
                quotients = (numerator(k, x) - k * quotients) / u
            return jnp.where(jnp.abs(u) < limit, near(u), quotients)

        return with_slopes(value, lambda _, x: derivative(n + 1)(x))

    return lambda x, n=0: derivative(n)(x)


def mended(make: Callable[[Function], Function], function: Function) -> Function:
    """``make(function)``, with the name, docstring and signature of ``function``, and its keywords."""
    smooth = make(function)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Array, **options: object) -> Outputs:
        bound = signature.bind(*args, **options)
        if not any(isinstance(v, jax.Array) for v in jax.tree.leaves((args, options))):
            return function(*args, **options)  # numbers
        return smooth(*bound.args, **bound.kwargs)

    return called


# Quotients that are smooth at a zero of the divisor, of which derivatives in `smooth_functions` are made.


def _log(n: int, x: Array) -> Array:
    if n == 0:
        return jnp.log(x)
    return (-1.0) ** (n - 1) * math.factorial(n - 1) / x**n


def _sine(n: int, x: Array) -> Array:
    sign = -1 if n % 4 >= 2 else 1
    return sign * (jnp.cos(x) if n % 2 else jnp.sin(x))


def _sine_coefficient(k: int) -> float:
    return 0.0 if k % 2 else (-1.0) ** (k // 2) / math.factorial(k + 1)


ratio_of_log = quotient(_log, lambda k: (-1.0) ** k / (k + 1), lambda n: 0.35, center=1.0)
ratio_of_sine = quotient(_sine, _sine_coefficient, lambda n: max(1.0, n / math.e))


def _sinc(sinc: Function) -> Function:
    """The first two slopes of real numbers are of the distance to the next integer, by series of few terms.

    ``x sinc(x)`` is ``sin(pi x) / pi``: its first derivative is a cosine, and its second one ``-pi**2`` times
    it. Slopes of higher order are those of a quotient.
    """
    near = [series(lambda k: np.pi**k * _sine_coefficient(k), 0.5, n) for n in range(3)]
    by_quotient = computed_as(sinc, lambda x: ratio_of_sine(np.pi * x))

    def nearest(x: Array) -> Array:
        return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)

    def rise(x: Array) -> Array:
        n = nearest(x)
        first = near[1](x - n)
        cosine = near[0](x - n) + (x - n) * first
        cosine = jnp.where(n == 2 * nearest(n / 2), cosine, -cosine)
        return jnp.where(n == 0, first, (cosine - sinc(x)) / jnp.where(n == 0, 1, x))

    def turn(x: Array) -> Array:
        n = nearest(x)
        far = -(np.pi**2) * sinc(x) - 2 * rise(x) / jnp.where(n == 0, 1, x)
        return jnp.where(n == 0, near[2](x - n), far)

    second = with_slopes(turn, lambda _, x: np.pi**3 * ratio_of_sine(np.pi * x, 3))
    first = with_slopes(rise, lambda _, x: second(x))
    smooth = with_slopes(sinc, lambda _, x: first(x))
    return lambda x, /: smooth(x) if is_real(x) else by_quotient(x)


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

# Functions of jax.numpy, jax.lax and jax.nn with derivatives that are right wherever they are smooth.
#
# See NOTE [smooth]. Each function here takes a function of JAX, and returns one with the same arguments and
# values. docs/singular-points.md has what was wrong, with a program for each.

# Powers


@functools.cache
def _power(power: Function, n: int) -> Function:
    """The ``n``-th derivative of ``power(x, y)`` in ``x``: ``y (y - 1) ... (y - n + 1) power(x, y - n)``."""

    def factors(y: Array) -> list[Array]:
        return [y - k for k in range(n)]

    def value(x: Array, y: Array) -> Array:
        if n == 0:
            return power(x, y)
        factor = jnp.asarray(math.prod(factors(y)))
        raised = power(x, jnp.where(factor == 0, 0, y - n))
        return factor.astype(raised.dtype) * raised

    def by_exponent(out: Array, x: Array, y: Array) -> Array:
        """``x**y log(x)`` is zero at 0 for all ``y >= 0``, where ``0**y`` is taken as constant."""
        at_zero = x == 0
        infinite = (jnp.real(y) < n) & (math.prod(factors(y), start=jnp.ones_like(y)) != 0)
        log = jnp.log(jnp.where(at_zero, 1, x).astype(out.dtype))
        slope = out * jnp.where(at_zero, jnp.where(infinite, -jnp.inf, 0), log)
        if n == 0:
            return slope
        others = [math.prod(f for j, f in enumerate(factors(y)) if j != k) for k in range(n)]
        return slope + sum(others) * _power(power, 0)(x, y - n)

    return with_slopes(value, lambda _, x, y: _power(power, n + 1)(x, y), by_exponent)


def smooth_power(power: Function) -> Function:
    """``power``, ``float_power`` and ``lax.pow``."""

    def smooth(x: Array, y: Array) -> Outputs:
        if isinstance(y, (int, np.integer)):
            return power(x, y)  # by multiplications, whose derivatives are right
        x, y = jnp.asarray(x), jnp.asarray(y)
        if y.dtype == bool or not is_inexact(jnp.result_type(x, y)):
            return power(x, y)
        return _power(power, 0)(x, y)

    return smooth


def _with_powers(function: Function) -> Function:
    """A function in which ``lax.pow`` is computed; it is replaced there."""
    power = smooth_power(lax.pow)

    def replaced(jaxpr: PyTree) -> PyTree:
        def one(eqn: JaxEquation) -> JaxEquation:
            if eqn.primitive is not lax.pow_p:
                return with_programs(eqn, replaced)
            (made,) = jax.make_jaxpr(power)(*[v.aval for v in eqn.invars]).jaxpr.eqns
            return made.replace(invars=eqn.invars, outvars=eqn.outvars)

        return jaxpr.replace(eqns=list(map(one, jaxpr.eqns)))

    def smooth(*args: Array, **options: object) -> Outputs:
        arrays, rest = partition((args, options), jax.Array)

        def flat(*arrays: Array) -> Outputs:
            args, options = rest.combine(arrays)
            return function(*args, **options)

        closed, shape = jax.make_jaxpr(flat, return_shape=True)(*arrays)
        outs = run_program(closed.replace(jaxpr=replaced(closed.jaxpr)), *arrays)
        return jax.tree.unflatten(jax.tree.structure(shape), outs)

    return smooth


@functools.cache
def over_power(n: int) -> Function:
    """``x / y**n``. XLA would divide by ``y * y`` where it sees two divisions."""

    def value(x: Array, y: Array) -> Array:
        for _ in range(n):
            x = x * (1 / y)
        return x

    return with_slopes(
        value,
        lambda _, x, y: over_power(n)(jnp.ones_like(x), y),
        lambda _, x, y: -n * over_power(n + 1)(x, y),
    )


def _divide(divide: Function) -> Function:
    """JAX's slope ``x y**-2`` overflows for small ``y``, and is zero for large ones."""

    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        x, y = [jnp.asarray(v).astype(out.dtype) for v in primals]
        x_t, y_t = [None if t is None else t.astype(out.dtype) for t in tangents]
        total = 0 if x_t is None else x_t / y
        if y_t is not None:
            total = total - y_t * over_power(2)(x, y)
        return jnp.broadcast_to(total, out.shape)

    return with_rule(divide, rule)


# Roots of sums of squares


def _hypot(hypot: Function) -> Function:
    """Beside it are the cosine and the sine of an angle, whose slopes are the other one over it.

    By divisions after the selections: XLA keeps an array for each quotient that is read twice.
    """

    def value(x: Array, y: Array) -> tuple[Array, Array, Array]:
        h = hypot(x, y)
        cosine, sine = [
            jnp.where(h == 0, jnp.full_like(h, 0.5), v) / jnp.where(h == 0, 1, h) for v in (x, y)
        ]
        return h, cosine, sine

    def rule(out: Sequence[Array], _: Sequence[Array], tangents: Sequence[Array]) -> Outputs:
        h, cosine, sine = out
        x_t, y_t = [0 if t is None else t.astype(h.dtype) for t in tangents]
        turn = (sine * x_t - cosine * y_t) * (1 / jnp.where(h == 0, 1, h))  # see `over_power`
        return cosine * x_t + sine * y_t, sine * turn, -cosine * turn

    smooth = with_rule(value, rule)
    return lambda x, y: smooth(x, y)[0]


def _inverse_sum(x: Array, y: Array) -> Array:
    """``x / (x**2 + y**2)``, of any size: the squares, which overflow, are not taken."""
    return 1 / (x + y * (y / x))


def _by_x(u: Array, x: Array, y: Array) -> Array:
    v = _over_squares(y, x)
    return (v - u) * (v + u)


_over_squares: Function = with_slopes(
    _inverse_sum, _by_x, lambda u, x, y: -2 * u * _over_squares(y, x)
)


def _arctan2(arctan2: Function) -> Function:
    return with_slopes(
        arctan2, lambda _, y, x: _over_squares(x, y), lambda _, y, x: -_over_squares(y, x)
    )


def _angle(angle: Function) -> Function:
    arctan2 = _arctan2(jnp.arctan2)

    def smooth(z: Array, deg: bool = False) -> Outputs:
        if is_real(z):  # 0 or pi
            return with_slopes(lambda z: angle(z, deg), lambda _, z: jnp.where(z == z, 0, z))(z)

        def by_parts(z: Array) -> Array:
            angles = arctan2(jnp.imag(z), jnp.real(z))
            return jnp.rad2deg(angles) if deg else angles

        return computed_as(lambda z: angle(z, deg), by_parts)(z)

    return smooth


def _length(z: Array) -> Array:
    """``abs(z)`` of a complex number; 1 at 0."""
    return _hypot(jnp.hypot)(jnp.where(z == 0, 1, z.real), z.imag)


def _abs(function: Function) -> Function:
    smooth = computed_as(function, lambda z: jnp.where(z == 0, 0, _length(z)))
    return lambda x, /: function(x) if is_real(x) else smooth(x)


def _sign(sign: Function) -> Function:
    """That of a complex number lies on the unit circle, and has the derivative of its angle."""

    def by_parts(z: Array) -> Array:
        length = _length(z)
        return lax.complex(z.real / length, z.imag / length)

    smooth = computed_as(sign, by_parts)
    return lambda x, /: sign(x) if is_real(x) else smooth(x)


def _inverse_root(square: ArrayFunction, size: ArrayFunction) -> ArrayFunction:
    """``1 / sqrt(square)`` of ``x**2`` and a constant: ``1 / size`` where the square may overflow.

    By one division, after the selection: XLA keeps an array for each quotient and root that is read twice.
    """

    def value(x: Array) -> Array:
        large = size(x) > math.sqrt(float(jnp.finfo(x.dtype).max)) / 4
        return 1 / jnp.where(large, size(x), jnp.sqrt(square(x)))

    return with_slopes(value, lambda out, x: -(x * out) * (out * out))


_of_sinh = _inverse_root(lambda x: x * x + 1, jnp.abs)
_of_cosh = _inverse_root(lambda x: (x - 1) * (x + 1), lambda x: x)


def _with_cut(x: Array) -> Array:
    """``1 / (sqrt(x - 1) sqrt(x + 1))`` by one root, whose sign is wrong in half of the complex plane."""
    root = lax.rsqrt((x - 1) * (x + 1))
    return jnp.where(x.real * root.real < x.imag * root.imag, -root, root)


_of_complex_cosh = with_slopes(_with_cut, lambda out, x: -(x * out) * (out * out))


def _inverse_cosh_slope(_: Array, x: Array) -> Array:
    return _of_cosh(x) if is_real(x) else _of_complex_cosh(x)


def _ldexp(ldexp: Function) -> Function:
    def slope(_: Array, x: Array, exponent: Array) -> Array:
        return ldexp(jnp.ones_like(x), exponent)

    return with_slopes(ldexp, slope, slope)  # the exponent is an integer


# Reductions


def _logaddexp(logaddexp: Function, scale: float = 1.0) -> Function:
    """JAX's slope for the smaller argument is not zero where the greater one is infinite."""

    def slope(_: Array, x: Array, y: Array) -> Array:
        return lax.logistic((x - y) * scale)

    return for_real(logaddexp, slope, lambda out, x, y: slope(out, y, x))


_times_exp = with_slopes(
    lambda x, b: jnp.where(b == 0, 0, jnp.exp(x) * b),
    lambda out, x, b: out,
    lambda _, x, b: jnp.exp(x),
)


def _logsumexp(logsumexp: Function) -> Function:
    """JAX leaves out what has the weight 0, and so its derivative in the weight."""

    def smooth(
        a: Array,
        axis: Axes = None,
        b: Array | None = None,
        keepdims: bool = False,
        return_sign: bool = False,
        where: Array | None = None,
    ) -> Outputs:
        options: dict[str, PyTree] = {
            "axis": axis,
            "keepdims": keepdims,
            "return_sign": return_sign,
        }
        if b is None or not is_real(a, b) or not is_inexact(jnp.result_type(a, b)):
            return logsumexp(a, b=b, where=where, **options)
        if where is not None:
            return smooth(jnp.where(where, a, 0), b=jnp.where(where, b, 0), **options)
        dtype = jnp.result_type(a, b)
        a, b = jnp.broadcast_arrays(*[jnp.asarray(v).astype(dtype) for v in (a, b)])
        axes = all_axes(a.ndim, axis)
        weighted = lax.stop_gradient(jnp.where(b == 0, -jnp.inf, a))
        top = jnp.max(weighted, axes, keepdims=True, initial=-jnp.inf)
        top = jnp.where(jnp.isfinite(top), top, 0)
        total = jnp.sum(_times_exp(a - top, b), axes, keepdims=keepdims)
        sign = jnp.sign(total)
        logs = jnp.log(jnp.abs(total)) + (top if keepdims else lax.squeeze(top, axes))
        return (logs, sign) if return_sign else jnp.where(sign < 0, jnp.nan, logs)

    return smooth


# jax.nn


def _cubic_slope(_: Array, x: Array) -> Array:
    """Where the square is larger, `gelu` is ``x`` or 0, and this is multiplied by 0."""
    limits = [jnp.asarray(v, x.dtype) for v in (0, 100)]
    return 1 + 3 * 0.044715 * lax.clamp(limits[0], x * x, limits[1])


_cubic = with_slopes(lambda x: x + 0.044715 * x**3, _cubic_slope)


def _gelu(gelu: Function) -> Function:
    """JAX's formula; the slope of the cube in it overflows."""

    def smooth(x: Array, approximate: bool | str = True) -> Outputs:
        if isinstance(approximate, str):  # PyTorch's
            if approximate not in ("none", "tanh"):
                raise ArgumentError(
                    f"gelu: approximate must be 'none' (False) or 'tanh' (True), got {approximate!r}"
                )
            approximate = approximate == "tanh"
        x = jnp.asarray(x)
        if not approximate or not jnp.issubdtype(x.dtype, jnp.floating):
            return gelu(x, approximate)
        root = np.sqrt(2 / np.pi).astype(x.dtype)
        return x * (0.5 * (1.0 + jnp.tanh(root * _cubic(x))))

    return smooth


_log1mexp_slope = with_slopes(
    lambda x: -jnp.exp(-x) / jnp.expm1(-x), lambda slope, _: -slope * (1 + slope)
)


def _kaiser(kaiser: Function) -> Function:
    def smooth(M: int, beta: Array) -> Outputs:
        if M < 2 or not is_inexact(jnp.asarray(beta).dtype):
            return kaiser(M, beta)
        place = np.sqrt(1 - (2 * np.arange(M) / (M - 1) - 1) ** 2)

        def by_bessel(beta: Array) -> Array:
            return bessel_i0(beta * place.astype(beta.dtype)) / bessel_i0(beta)

        return computed_as(lambda beta: kaiser(M, beta), by_bessel)(beta)

    return smooth


_INVERSE: dict[str, Function] = {
    "asinh": lambda f: for_real(f, lambda _, x: _of_sinh(x)),
    "acosh": lambda f: with_slopes(f, _inverse_cosh_slope),
}
IN_NUMPY: dict[str, Function] = {
    **_INVERSE,
    **{f"arc{name[1:]}": make for name, make in _INVERSE.items()},
    **dict.fromkeys(("float_power", "pow", "power"), smooth_power),
    **dict.fromkeys(("polyfit", "vander"), _with_powers),
    **dict.fromkeys(("divide", "true_divide"), _divide),
    **dict.fromkeys(("arctan2", "atan2"), _arctan2),
    **dict.fromkeys(("abs", "absolute"), _abs),
    "angle": _angle,
    "hypot": _hypot,
    "i0": I0,
    "kaiser": _kaiser,
    "ldexp": _ldexp,
    "logaddexp": _logaddexp,
    "logaddexp2": lambda f: _logaddexp(f, math.log(2)),
    "sign": _sign,
    "sinc": _sinc,
}
IN_LAX: dict[str, Function] = {
    **_INVERSE,
    "bessel_i0e": I0E,
    "bessel_i1e": I1E,
    "pow": smooth_power,
}
IN_NN: dict[str, Function] = {
    "gelu": _gelu,
    "log1mexp": lambda f: with_slopes(f, lambda _, x: _log1mexp_slope(x)),
    "logsumexp": _logsumexp,
    "soft_sign": lambda f: for_real(f, lambda _, x: jnp.square(1 / (1 + jnp.abs(x)))),
}

# The determinant, with derivatives that are right for singular matrices too; see NOTE [smooth].

_BLOCK = 3


def _triple_product(a: Array) -> Array:
    """The determinant of three rows."""
    x, y, z = a[..., 0, :], a[..., 1, :], a[..., 2, :]
    return jnp.sum(x * jnp.cross(y, z), -1)


def _minors(a: Array) -> list[Array]:
    """The determinants of two columns of two rows of four."""
    x, y = a[..., 0, :], a[..., 1, :]
    pairs = itertools.combinations(range(4), 2)
    return [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in pairs]


def _of_four(a: Array) -> Array:
    """The determinant of four rows: minors of the first two times minors of the last two (Laplace)."""
    p = _minors(a[..., :2, :])
    q = _minors(a[..., 2:, :])[::-1]
    return p[0] * q[0] - p[1] * q[1] + p[2] * q[2] + p[3] * q[3] - p[4] * q[4] + p[5] * q[5]


@custom_vmap
def any_of(singular: Array) -> Array:
    """Whether one is, of a batch too: so that a `cond` stays one under `vmap`."""
    return jnp.any(singular)


@any_of.def_vmap
def _any_of_batch(size: int, batched: Sequence[bool], singular: Array) -> tuple[Array, bool]:
    return any_of(singular), False


def _thin_product(a: Array, b: Array) -> Array:
    """A product with three terms for each element, as XLA fuses it."""
    x, y, z = [a[..., :, k, None] * b[..., None, k, :] for k in range(_BLOCK)]
    return x + y + z


def _parts_rule(
    out: Sequence[Array], primals: Sequence[Array], tangents: Sequence[Array]
) -> tuple[Array, ...]:
    inverse, left, right, _, rest = out
    weights, t = primals[1], tangents[0]
    both, n = jnp.concatenate([inverse, left], -1), t.shape[-1]
    rows, columns = -inverse @ t.mT @ both, -both.mT @ (t @ right)
    along = jnp.sum(inverse * t, (-2, -1))
    block = weights * columns[..., n:, :]
    return rows[..., :n], rows[..., n:], columns[..., :n, :], block, rest * along


# Parts of a determinant and of an inverse; the matrix is there for their derivatives alone.
_parts = with_rule(lambda a, weights, *parts: parts, _parts_rule)


def _transposed_inverse(triangles: Array, permutation: Array, factors: Array) -> Array:
    solve = functools.partial(lax.linalg.triangular_solve, triangles, transpose_a=True)
    places = jnp.arange(triangles.shape[-1])[:, None]
    permuted = (permutation[..., None, :] == places).astype(triangles.dtype)
    return solve(solve(permuted, lower=True, unit_diagonal=True) * factors[..., None, :])


def _parts_of(lu: Array, swaps: Array, permutation: Array) -> tuple[Array, ...]:
    """Of ``a = P L U``, where ``d`` are its three smallest pivots, at the places ``E``.

    With ``p``, the largest, in place of each it is another matrix, ``b = a + P L E (p - d) E.T``. The parts
    are finite for a singular matrix too, and so are their derivatives, which are polynomials in them:

        weights = (d - p) / p, inverse = inv(b).T, left = p inv(b).T E, right = p inv(b) P L E,
        block = p + weights p E.T inv(U of b) E, rest = det(b) / p**3
    """
    n = lu.shape[-1]
    pivots = jnp.diagonal(lu, axis1=-2, axis2=-1)
    sizes = jnp.abs(pivots)
    largest = jnp.max(sizes, -1, keepdims=True).astype(lu.dtype)
    largest = jnp.where(largest == 0, 1, largest)
    smallest = lax.top_k(-sizes, _BLOCK)[1]
    places = smallest[..., None, :] == jnp.arange(n)[:, None]
    is_small = jnp.any(places, -1)
    replaced = jnp.where(is_small | (pivots == 0), largest, pivots)
    triangles = jnp.where(jnp.eye(n, dtype=bool), replaced[..., None], lu)
    inverse = _transposed_inverse(triangles, permutation, jnp.ones_like(replaced))
    right = lax.linalg.triangular_solve(triangles, places * largest[..., None], left_side=True)
    left = jnp.take_along_axis(inverse, smallest[..., None, :], -1) * largest[..., None]
    small = jnp.take_along_axis(pivots, smallest, -1)
    weights = (small / largest - 1)[..., None]
    block = weights * largest[..., None] * jnp.take_along_axis(right, smallest[..., None], -2)
    block = jnp.where(jnp.eye(_BLOCK, dtype=bool), small[..., None], block)
    sign = 1 - 2 * (jnp.sum(swaps != jnp.arange(n), -1) % 2)
    rest = sign * jnp.prod(jnp.where(is_small, 1, pivots), -1)
    return weights, inverse, left, right, block, rest.astype(lu.dtype)


def _of_parts(weights: Array, *parts: Array) -> Array:
    """The cofactors, which divide by none of the small pivots."""
    inverse, left, right, block, rest = parts
    x, y, z = [block[..., k, :] for k in range(_BLOCK)]
    minors = jnp.stack([jnp.cross(y, z), jnp.cross(z, x), jnp.cross(x, y)], -1)
    rest = rest[..., None, None]
    determinant = rest * jnp.sum(x * minors[..., 0], -1)[..., None, None]
    columns = rest * _thin_product(right, minors * weights.mT)
    return determinant * inverse - _thin_product(left, columns.mT)


def _products(ratios: Array) -> tuple[Array, Array, Array]:
    """The products of all numbers before each, of all behind each, and of all between two."""
    n = ratios.shape[-1]
    rows = jnp.arange(-1, n)

    def step(product: Array, column: tuple[Array, Array]) -> tuple[Array, Array]:
        m, ratio = column
        return jnp.where(m > rows, product * ratio[..., None], 1), product

    ones = jnp.ones((*ratios.shape[:-1], n + 1), ratios.dtype)
    behind, columns = lax.scan(step, ones, (jnp.arange(n), jnp.moveaxis(ratios, -1, 0)))
    between = jnp.moveaxis(columns, 0, -1)
    return between[..., 0, :], behind[..., 1:], between[..., 1:, :]


def _cofactors(det: Function) -> Function:
    """The determinant times the transposed inverse, by the factorization that the value is computed of.
    Where a pivot is small beside the largest, at ``100 n eps``, `lax.cond` takes a formula that does not
    divide by it.

    Differentiated, it is computed by parts: its derivative would have ``eps`` over the pivot as its error,
    the next one ``eps`` over its square.
    """

    def regular(value: Array, lu: Array, *_: Array) -> tuple[Array, ...]:
        ones = jnp.ones(lu.shape[:-1], lu.dtype)
        return value, lu, ones, ones

    def singular(value: Array, lu: Array, pivots: Array, is_small: Array) -> tuple[Array, ...]:
        """With ones in place of pivots that are small.

        The minors of a triangular matrix are those of one with other numbers on its diagonal, where elements
        over it, rows and columns are multiplied by products of old numbers over new ones.
        """
        diagonal = jnp.diagonal(lu, axis1=-2, axis2=-1)
        before, behind, between = _products(jnp.where(is_small, diagonal, 1))
        replaced = jnp.where(is_small, 1, diagonal)
        sizes = jnp.abs(replaced)
        swaps = jnp.sum(pivots != jnp.arange(lu.shape[-1]), -1)
        sign = jnp.prod(replaced / sizes, -1) * (1 - 2 * (swaps % 2))
        scale = (sign * jnp.exp(jnp.sum(jnp.log(sizes), -1))).astype(value.dtype)
        on_diagonal = jnp.eye(lu.shape[-1], dtype=bool)
        triangles = jnp.where(on_diagonal, replaced[..., None], lu * between)
        return jnp.where(jnp.any(is_small, -1), scale, value), triangles, behind, before

    @jax.custom_jvp
    def cofactors(a: Array) -> Array:
        lu, pivots, permutation = lax.linalg.lu(a)
        sizes = jnp.abs(jnp.diagonal(lu, axis1=-2, axis2=-1))
        small = a.shape[-1] * float(jnp.finfo(a.dtype).eps) * 100
        is_small = sizes <= small * jnp.max(sizes, -1, keepdims=True)
        scale, triangles, behind, before = lax.cond(
            any_of(is_small), singular, regular, det(a), lu, pivots, is_small
        )
        inverse = _transposed_inverse(triangles, permutation, behind)
        return inverse * (scale[..., None] * before)[..., None, :]

    @cofactors.defjvp
    def by_parts(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
        weights, *parts = _parts_of(*lax.linalg.lu(lax.stop_gradient(primals[0])))

        def moved(a: Array) -> Array:
            return _of_parts(weights, *_parts(a, weights, *parts))

        return jax.jvp(moved, primals, tangents)

    return cofactors


def _det(det: Function) -> Function:
    """JAX's derivative is zero where a pivot is zero that is not the last one, and its second derivative
    is not finite where one is zero. Here all derivatives have all digits where up to three pivots are zero
    or small. If more are zero, so are all derivatives up to the third; the fourth is too, which is not right.
    """
    cofactors = _cofactors(det)

    def rule(out: Array, primals: Sequence[Array], tangents: Sequence[Array]) -> Array:
        return jnp.sum(cofactors(primals[0]) * tangents[0], (-2, -1))

    smooth = with_rule(det, rule)
    polynomials = {3: _triple_product, 4: _of_four}

    def without_options(a: Array) -> Array:
        return det(a)

    by_rows = {n: computed_as(without_options, of_n) for n, of_n in polynomials.items()}

    def called(a: Array, *options: Array) -> Outputs:
        a = jnp.asarray(a)
        if a.shape[-2:] == (0, 0):
            return det(jax.lax.stop_gradient(a), *options)  # 1
        if not (a.ndim >= 2 and a.shape[-1] == a.shape[-2] >= _BLOCK and is_inexact(a.dtype)):
            return det(a, *options)
        return by_rows.get(a.shape[-1], smooth)(a)

    return called


IN_LINALG: dict[str, Function] = {"det": _det}
