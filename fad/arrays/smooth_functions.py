"""Functions of jax.numpy, jax.lax and jax.nn with derivatives that are right wherever they are smooth.

See NOTE [smooth] in `fad.arrays.smooth`. Each function here takes a function of JAX, and returns one with the
same arguments and values. docs/singular-points.md has what was wrong, with a program for each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fad.arrays.lists import Function
from fad.arrays.smooth import all_axes, computed_as, for_real, is_real, with_rule, with_slopes
from fad.arrays.smooth_ratios import I0, I0E, I1E, bessel_i0, ratio_of_sine
from fad.core.avals import struct_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import run_jaxpr
from fad.core.jaxprs import with_programs
from fad.core.partition import partition
from fad.core.types import Array, ArrayFunction, Axes, JaxBody, JaxEquation, Outputs, PyTree

# Powers


@functools.cache
def _power(power: Function, n: int) -> Function:
    """The ``n``-th derivative of ``power(x, y)`` in ``x``: ``y (y - 1) ... (y - n + 1) power(x, y - n)``."""

    def factors(y: Array) -> list[Array]:
        return [y - k for k in range(n)]

    def value(x: Array, y: Array) -> Array:
        if n == 0:
            return power(x, y)
        raised = power(x, y - n)
        factor = jnp.asarray(math.prod(factors(y)), raised.dtype)
        return jnp.where(factor == 0, 0, factor * raised)

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

    def replaced(jaxpr: JaxBody) -> JaxBody:
        def one(eqn: JaxEquation) -> JaxEquation:
            if eqn.primitive is not lax.pow_p:
                return with_programs(eqn, replaced)
            (made,) = jax.make_jaxpr(power)(*[struct_of(v.aval) for v in eqn.invars]).jaxpr.eqns
            return made.replace(invars=eqn.invars, outvars=eqn.outvars)

        return jaxpr.replace(eqns=list(map(one, jaxpr.eqns)))

    def smooth(*args: Array, **options: object) -> Outputs:
        arrays, rest = partition((args, options), jax.Array)

        def flat(*arrays: Array) -> Outputs:
            args, options = rest.combine(arrays)
            return function(*args, **options)

        closed, shape = jax.make_jaxpr(flat, return_shape=True)(*arrays)
        outs = run_jaxpr(closed.replace(jaxpr=replaced(closed.jaxpr)), *arrays)
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
    def ratio(x: Array, y: Array) -> Array:
        """``x / hypot(x, y)``; JAX's value where there is none."""
        h = smooth(x, y)
        return jnp.where(h == 0, 0.5, jnp.where(jnp.isinf(h), 0, x / jnp.where(h == 0, 1, h)))

    def turn(x: Array, y: Array) -> Array:
        h = smooth(x, y)
        return cosine(y, x) * (1 / jnp.where(h == 0, 1, h))

    cosine = with_slopes(
        ratio, lambda _, x, y: cosine(y, x) * turn(x, y), lambda c, x, y: -c * turn(x, y)
    )
    smooth = with_slopes(hypot, lambda _, x, y: cosine(x, y), lambda _, x, y: cosine(y, x))
    return smooth


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
        if is_real(z):
            return angle(lax.stop_gradient(z), deg)  # 0 or pi

        def by_parts(z: Array) -> Array:
            found = arctan2(jnp.imag(z), jnp.real(z))
            return jnp.rad2deg(found) if deg else found

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
    """``1 / sqrt(square)`` of ``x**2`` and a constant: ``1 / size`` where the square may overflow."""

    def value(x: Array) -> Array:
        large = size(x) > math.sqrt(float(jnp.finfo(x.dtype).max)) / 4
        return jnp.where(large, 1 / size(x), lax.rsqrt(square(x)))

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
        found = jnp.log(jnp.abs(total)) + (top if keepdims else lax.squeeze(top, axes))
        return (found, sign) if return_sign else jnp.where(sign < 0, jnp.nan, found)

    return smooth


# jax.nn


def _cubic_slope(_: Array, x: Array) -> Array:
    """Where the square is larger, `gelu` is ``x`` or 0, and this is multiplied by 0."""
    limits = [jnp.asarray(v, x.dtype) for v in (0, 100)]
    return 1 + 3 * 0.044715 * lax.clamp(limits[0], x * x, limits[1])


_cubic = with_slopes(lambda x: x + 0.044715 * x**3, _cubic_slope)


def _gelu(gelu: Function) -> Function:
    """JAX's formula; the slope of the cube in it overflows."""

    def smooth(x: Array, approximate: bool = True) -> Outputs:
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
    "sinc": lambda f: computed_as(f, lambda x: ratio_of_sine(np.pi * x)),
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
}
