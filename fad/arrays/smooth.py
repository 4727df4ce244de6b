"""Derivatives that are right wherever a function is smooth: what the rules below are made of.

NOTE [smooth]

JAX differentiates the formula by which a function is computed. The formula may break down where the
function does not: ``x**1.0`` is smooth at 0, and its second derivative is computed as ``0 * 0**-1``. Such
functions of JAX keep their values, bit by bit, and get the derivatives of another formula, or slopes that are
given by hand. `fad.arrays.smooth_functions` has the table of them. A slope is itself a function of this kind,
so that derivatives of all orders are right, in both modes, and in whatever JAX does with them.

A slope given by hand is a nonlinear function of the point alone, and the tangent is multiplied by it: a
selection that hides a quotient by zero has to hide it from the transposed program too.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from fad.arrays.lists import Function
from fad.core.types import Array, ArrayFunction, Axes, Operand, Outputs


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
        found = jax.jvp(on_differentiated, point, tuple([tangents[k] for k in differentiated]))[1]
        return jax.tree.map(lambda t, o: t.astype(o.dtype), found, out)

    return with_rule(function, rule)


def no_slope(why: str, error: type[Exception] = NotImplementedError) -> Function:
    """The slope by an argument that there is no derivative in: an error says ``why``."""

    def slope(*_: Array) -> Array:
        raise error(why)

    return slope


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

        @functools.cache
        def coefficients(eps: float) -> list[float]:
            """As many as the digits of a dtype need."""
            found = [coefficient(k) * math.perm(k, n) for k in range(n, n + 60)]
            sizes = [abs(c) * limit**k for k, c in enumerate(found)]
            last = max(k for k, size in enumerate(sizes) if size > eps / 8 * max(sizes))
            return found[: last + 1]

        def value(x: Array) -> Array:
            u = x - center
            quotients = numerator(0, x) / u
            for k in range(1, n + 1):
                quotients = (numerator(k, x) - k * quotients) / u
            near = jnp.abs(u) < limit
            return jnp.where(
                near, polynomial(coefficients(float(jnp.finfo(x.dtype).eps)), u), quotients
            )

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
