"""Taylor mode: ``jet`` and ``derivatives``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.errors import ArgumentError, StructureError, describe
from fad.extend import Call, Tensor, flatten, has_tensor, restores_modes, unflatten, zeros_like
from fad.extend.types import PyTree, Value
from fad.taylor.level import JetLevel


def jet(
    f: Callable[..., PyTree], primals: Sequence[PyTree], series: Sequence[PyTree]
) -> tuple[PyTree, PyTree]:
    """The output of ``f`` and its derivatives along a curve, up to any order, in one pass.

    The curve ``x(t)`` goes through the primals at ``t = 0``; the series are its derivatives there: the first,
    the second, and so on. These are derivatives, not divided by factorials: the line ``x + t * v`` has the
    series ``[v, 0, 0]``. The results are the derivatives of ``f(x(t))``. The cost grows with the square of
    the order; that of nested `jvp` doubles with each order.

    Arguments:
        f: any function of the primals.
        primals: a tuple with the arguments of ``f``, each a pytree of arrays.
        series: a tuple with an entry for each argument. For an array it is a list of derivatives, each of the
            shape and dtype of the array, or None for zero. For a pytree it is the same pytree, with such
            a list at each array. All lists have the same length, the order; None in the place of a list or
            of an entry says that this argument stays where it is.

    Returns:
        ``(output, series)``: the series has the structure of the output, with a list of derivatives in the
        place of each array.

    Raises:
        StructureError: the series do not fit the primals: in structure, length, shape or dtype.

    Source: ``jax.experimental.jet.jet``.

    >>> import fad, fad.numpy as fnp
    >>> y, (first, second, third) = fad.jet(fnp.sin, (0.0,), ([1.0, 0.0, 0.0],))
    >>> float(first), float(second), float(third)
    (1.0, 0.0, -1.0)
    """
    return _jet(f, primals, series, "jet")


@restores_modes
def _jet(
    f: Callable[..., PyTree], primals: PyTree, series: PyTree, who: str
) -> tuple[PyTree, PyTree]:
    Call.check(f, who)
    call, curves, order = _call(primals, series, who)
    call.tensors = has_tensor((primals, series))
    with JetLevel(order) as level:
        level.arguments += [v for v in call.values if isinstance(v, Tensor)]
        inside = [
            level.curve(v, level.coefficients(c)) for v, c in zip(call.values, curves, strict=True)
        ]
        outs = call.outputs(call.run(f, level, inside))
        result = [(p, level.derivatives(c)) for p, c in [level.unpack(o) for o in outs]]
        changed = call.written(inside, lambda x: level.unpack(x)[0])
    call.write_back(changed)
    filled = []
    for p, d in result:
        zero = zeros_like(p)
        filled.append([*d, *[zero] * (order - len(d))])
    return call.result([p for p, _ in result]), call.result(filled)


def derivatives(
    f: Callable[[PyTree], PyTree], x: PyTree, order: int, direction: PyTree = None
) -> list[PyTree]:
    """The value of ``f`` at ``x``, and its derivatives up to ``order``.

    Arguments:
        f: any function of one array.
        x: the array, of floating or complex dtype.
        order: the order of the last derivative, an int, at least 0.
        direction: derivatives are those of ``f(x + t * direction)`` in ``t``, at 0. It has the shape and
            dtype of ``x``; None is a direction of ones, so that a function of each element by itself has
            its derivatives at each.

    Returns:
        A list of ``order + 1`` values; the first is ``f(x)``.

    Raises:
        ArgumentError: x is not an array, or the order is not such an int.
        StructureError: the direction does not fit x.

    >>> import fad
    >>> [float(y) for y in fad.derivatives(lambda x: x**3, 2.0, 4)]
    [8.0, 12.0, 12.0, 6.0, 0.0]
    """
    Call.check(f, "derivatives")
    if not isinstance(order, (int, np.integer)) or isinstance(order, bool) or order < 0:
        raise ArgumentError(f"derivatives: order must be an int, at least 0, got {describe(order)}")
    if not isinstance(x, (Tensor, jax.Array, np.ndarray, np.generic, int, float, complex)):
        raise ArgumentError(
            f"derivatives: x must be an array, got {describe(x)}. For a function of several arrays, "
            "write fad.jet(f, primals, series)."
        )
    (value,) = Call("derivatives", (x,), differentiated=False).values
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        raise ArgumentError(
            f"derivatives: x must have a floating or complex dtype, got {describe(x)}. "
            "Convert it: x.astype(float), or write 2.0 instead of 2."
        )
    if direction is None:
        direction = jnp.ones(value.shape, value.dtype)
    line = [direction, *[None] * (order - 1)] if order else []
    out, series = _jet(f, (x,), (line,), "derivatives")
    outs, structure = flatten(out)
    lists = structure.flatten_up_to(series)
    rows = [[c[k] for c in lists] for k in range(order)]
    return [unflatten(structure, row, like=out) for row in (outs, *rows)]


def _call(primals: PyTree, series: PyTree, who: str) -> tuple[Call, list[tuple[Value, ...]], int]:
    """The call with these primals, the derivatives of each of its values, and the order."""
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)):
        raise ArgumentError(
            f"{who}: primals and series must be tuples, one entry for each argument, got "
            f"{describe(primals)} and {describe(series)}. Write {who}(f, (x,), ([first, second],))."
        )
    if len(primals) != len(series):
        raise StructureError(
            f"{who}: series must have one entry for each of the {len(primals)} primals, got {len(series)}"
        )
    lists = _lists(primals, series, who)
    call = Call(who, primals, differentiated=False)
    order: int | None = None
    curves: list[tuple[Value, ...]] = []
    for k, (value, terms, name) in enumerate(zip(call.values, lists, call.names, strict=True)):
        if terms is None:
            curves.append(())
            continue
        if not isinstance(terms, (tuple, list)):
            raise StructureError(
                f"{who}: the series of {name} must be a list of derivatives, got {describe(terms)}. "
                f"Write [first, second, third]."
            )
        order = len(terms) if order is None else order
        if len(terms) != order:
            raise StructureError(
                f"{who}: the series must have the same length, got {order} for one argument and "
                f"{len(terms)} for {name}. Write None for derivatives that are zero."
            )
        curves.append(_moving(value, [call.tangent(k, t) for t in terms]))
    return call, curves, order or 0


def _lists(primals: Sequence[PyTree], series: Sequence[PyTree], who: str) -> list[PyTree]:
    """The list of derivatives for each leaf of the primals."""
    lists: list[PyTree] = []
    for k, (x, s) in enumerate(zip(primals, series, strict=True)):
        structure = flatten(x)[1]
        if s is None:
            lists += [None] * structure.num_leaves
            continue
        try:
            lists += structure.flatten_up_to(s)
        except (ValueError, TypeError) as error:
            raise StructureError(
                f"{who}: the series of argument {k} must have the structure of the argument, {structure}, "
                f"with a list of derivatives for each array, got {describe(s)}"
            ) from error
    return lists


def _moving(value: PyTree, terms: Sequence[Value | None]) -> tuple[Value, ...]:
    """Derivatives up to the last that is not None."""
    count = max([k for k, t in enumerate(terms, 1) if t is not None], default=0)
    return tuple([zeros_like(value) if t is None else t for t in terms[:count]])
