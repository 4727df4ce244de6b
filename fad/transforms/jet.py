"""Taylor mode: ``jet`` and ``derivatives``, and their level."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.dtypes import is_inexact
from fad.core.level import bind, map_tensors, restores_modes
from fad.core.primitive import Primitive
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor, is_operand, new_tensor
from fad.core.types import Array, Aval, MaybeValue, Operand, Operation, Outputs, PyTree, Value
from fad.errors import ArgumentError, StructureError, describe
from fad.tape.recorder import RecordingLevel
from fad.transforms.boundary import (
    check_callable,
    has_tensor,
    leave,
    lower,
    names_of,
    stand_for,
    was_written,
    write_back_to,
)
from fad.transforms.jvp import tangent_of, zeros_like
from fad.transforms.series import Series, series_of

# The level of Taylor mode.


def _scale_for(order: int) -> int:
    """The scale of series of this order.

    NOTE [scale of a series]

        values = fad.derivatives(fnp.exp, 0.5, 40)  # 40! is no float32
        assert all([abs(float(v) - 1.64872) < 1e-3 for v in values])

    The coefficients of ``x(t)`` are derivatives, divided by factorials, which leave the range of a dtype long
    before the derivatives do: that of 9 float16, that of 35 float32. Those of ``x(scale * t)`` are the
    derivatives times ``scale**k / k!``. With a scale near ``order! ** (1 / order)`` this is about 1 at the
    last order. As a power of two it changes no digit. Arithmetic of series is the same for every scale.
    """
    if order < 8:
        return 1
    scale: int = 2 ** int(math.lgamma(order + 1) / order / math.log(2))
    return scale


def _ratio(a: int, b: int) -> float:
    """``a / b``, infinite where no float is as large."""
    return math.inf if a.bit_length() - b.bit_length() > 1022 else a / b


class JetLevel(RecordingLevel):
    """Taylor mode: each Tensor has a primal (``value``), and a tuple of the next coefficients of its series
    (``aux``), as many as may not be zero, at most ``order``; None if it does not move.

    Coefficients are those of `fad.transforms.series`: of ``x(scale * t)``, see NOTE [scale of a series].
    """

    __slots__ = ("order", "scale")

    kind = "jet"

    def __init__(self, order: int, scale: int | None = None) -> None:
        super().__init__()
        self.order = order
        self.scale = _scale_for(order) if scale is None else scale

    def evaluate(self, op: Any, args: Sequence[Any]) -> Outputs:
        primals, series, differentiated = self.unwrapped(args)
        if not differentiated:
            return map_tensors(lambda o: new_tensor(o, self), bind(op, primals))
        if type(op) is not Primitive and op.rules.direct is not None:
            return tuple([self.lift(o) for o in op.rules.direct(args)[0]])
        if type(op) is not Primitive and op.rules.has_jet:
            return self._by_own_rule(op, primals, series)
        if type(op) is Primitive and op.jit:
            return self._by_series(op, primals, series)
        return self._by_chain_rule(op, primals, series)

    def _by_series(self, op: Primitive, primals: list[Operand], series: list[Any]) -> Outputs:
        """One Primitive for all coefficients; see NOTE [series] in `fad.transforms.series`."""
        counts = tuple([0 if s is None else len(s) for s in series])
        kinds = tuple([getattr(p, "dtype", type(p)) for p in primals])
        key = (self.order, counts, kinds)
        derived = op._jvps.get(key)
        if derived is None:
            derived = op._jvps[key] = _derive(op, self.order, counts)
        found = bind(derived, [*primals, *[c for s in series if s is not None for c in s]])
        outs = derived.unflatten(found)
        wrapped = tuple([self.curve(o[0], o[1:]) for o in outs["series"]])
        return wrapped[0] if "single" in outs else wrapped

    def _by_own_rule(self, op: Any, primals: list[Any], series: list[Any]) -> Outputs:
        """By the jet rule of a Function, which takes and returns derivatives."""
        given = [s and self.derivatives(s[: self.order]) for s in series]
        outs, found = op.jet(primals, given, self.order)
        pairs = zip(outs, found, strict=True)
        return tuple([self.curve(o, self.coefficients(s or ())) for o, s in pairs])

    def _by_chain_rule(self, op: Operation, primals: list[Any], series: list[Any]) -> Outputs:
        """The derivative along the curve is that of ``op``, evaluated on series of one order less."""
        with JetLevel(self.order - 1, self.scale) as inner:
            at: list[Operand] = []
            velocities: list[MaybeValue] = []
            for p, s in zip(primals, series, strict=True):
                at.append(p if s is None else inner.curve(p, s[: inner.order]))
                v = [scaled(c, k) for k, c in enumerate(s or (), 1)]
                velocities.append(inner.curve(v[0], v[1:]) if v else None)
            outs, out_t = op.jvp(at, velocities)
            single = type(outs) is not tuple
            pairs = [(outs, out_t)] if single else zip(outs, out_t, strict=True)
            found = [(inner.unpack(o)[0], t if t is None else inner.unpack(t)) for o, t in pairs]
        wrapped = []
        for out, velocity in found:
            v = [] if velocity is None else [velocity[0], *velocity[1]]
            wrapped.append(self.curve(out, [scaled(c, 1 / k) for k, c in enumerate(v, 1)]))
        return wrapped[0] if single else tuple(wrapped)

    def tangent(self, t: Tensor) -> MaybeValue:
        return None if t.aux is None else t.aux[0]

    def parts(self, t: Tensor) -> tuple[MaybeValue, ...]:
        return (t._value, *(t._aux or ()))

    def layout(self, t: Tensor) -> Hashable:
        return len(t._aux or ())

    def from_parts(self, parts: Sequence[Operand], layout: Any) -> Tensor:
        return self.curve(parts[0], parts[1:])

    def part_avals(self, aval: Aval, layout: Any) -> tuple[Aval, ...]:
        found: tuple[Aval, ...] = (aval,) * (1 + layout)
        return found

    def part_count(self, layout: Any) -> int:
        return 1 + int(layout)

    def settings(self) -> tuple[Hashable, ...]:
        return (self.order, self.scale)

    def derivatives(self, coefficients: Sequence[Value]) -> list[Value]:
        """Coefficients from the first order on, as derivatives."""
        factors = [_ratio(math.factorial(k), self.scale**k) for k in range(len(coefficients) + 1)]
        return [scaled(c, factors[k]) for k, c in enumerate(coefficients, 1)]

    def coefficients(self, derivatives: Sequence[Value]) -> list[Value]:
        """`derivatives` undone."""
        factors = [_ratio(self.scale**k, math.factorial(k)) for k in range(len(derivatives) + 1)]
        return [scaled(d, factors[k]) for k, d in enumerate(derivatives, 1)]

    def curve(self, primal: Operand, coefficients: Sequence[Any]) -> Tensor:
        """A Tensor of this level."""
        return new_tensor(primal, self, tuple(coefficients) or None)

    def unpack(self, x: Operand) -> tuple[Any, tuple[Any, ...]]:
        """Primal of ``x`` at this level, and the coefficients after it; those left out are zero."""
        value, coefficients = self.value_and_aux(x)
        return value, coefficients or ()


def _derive(op: Primitive, order: int, counts: tuple[int, ...]) -> Primitive:
    """The Primitive from primals, and their coefficients, to the series of all outputs."""
    n = len(counts)

    def jet(*values: Array) -> dict[str, Any]:
        given = iter(values[n:])
        series = [
            [next(given) for _ in range(count)] + [None] * (order - count) if count else None
            for count in counts
        ]
        outs, single = series_of(op.to_jvp, order, values[:n], series)
        found = {"series": list(map(_filled, outs))}
        return {**found, "single": ()} if single else found

    return Primitive(f"{op.name}_jet", jet, **op._options())


def _filled(x: Series) -> Series:
    """``x`` up to its last coefficient that is not None, with zeros for None before that."""
    count = max([k for k, c in enumerate(x) if c is not None])
    return [jnp.zeros_like(x[0]) if c is None else c for c in x[: count + 1]]


@functools.lru_cache(maxsize=256)
def _scale(factor: float) -> Primitive:
    return Primitive("multiply", lambda x: x * factor, deferrable=True)


def scaled(x: Value, factor: float) -> Value:
    """``factor * x``, in the dtype of ``x``."""
    return x if factor == 1 else bind(_scale(factor), (x,))


# Taylor mode: ``jet`` and ``derivatives``.


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
    check_callable(f, who)
    values, curves, order, structure = _leaves(primals, series, who)
    tensors = has_tensor((primals, series))
    with JetLevel(order) as level:
        for v in values:
            level.note_argument(v)
        inside = [
            level.curve(v, level.coefficients(c)) for v, c in zip(values, curves, strict=True)
        ]
        if tensors:
            stand_for(inside, tuple(primals))
        begin_trace(level, inside, f)
        out = f(*trees.unflatten(structure, inside, like=tuple(primals)))
        outs, out_structure = trees.flatten(out)
        result = [(p, level.derivatives(c)) for p, c in [level.unpack(o) for o in outs]]
        changed = [level.unpack(x)[0] if was_written(x) else None for x in inside]
    write_back_to(primals, changed, who)
    found = []
    for p, d in result:
        zero = zeros_like(p)
        found.append([*d, *[zero] * (order - len(d))])
    return (
        leave(trees.unflatten(out_structure, [p for p, _ in result], like=out), tensors),
        trees.unflatten(out_structure, [leave(c, tensors) for c in found], like=out),
    )


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
    check_callable(f, "derivatives")
    if not isinstance(order, (int, np.integer)) or isinstance(order, bool) or order < 0:
        raise ArgumentError(f"derivatives: order must be an int, at least 0, got {describe(order)}")
    if not is_operand(x):
        raise ArgumentError(
            f"derivatives: x must be an array, got {describe(x)}. For a function of several arrays, "
            "write fad.jet(f, primals, series)."
        )
    value = lower(x)
    if not is_inexact(value.dtype):
        raise ArgumentError(
            f"derivatives: x must have a floating or complex dtype, got {describe(x)}. "
            "Convert it: x.astype(float), or write 2.0 instead of 2."
        )
    if direction is None:
        direction = jnp.ones(value.shape, value.dtype)
    line = [direction, *[None] * (order - 1)] if order else []
    out, series = _jet(f, (x,), (line,), "derivatives")
    outs, structure = trees.flatten(out)
    lists = structure.flatten_up_to(series)
    rows = [[c[k] for c in lists] for k in range(order)]
    return [trees.unflatten(structure, row, like=out) for row in (outs, *rows)]


def _leaves(
    primals: PyTree, series: PyTree, who: str
) -> tuple[list[Value], list[tuple[Value, ...]], int, trees.PyTreeDef]:
    """Leaves of the primals, the derivatives of each, the order, and the structure of the primals."""
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)):
        raise ArgumentError(
            f"{who}: primals and series must be tuples, one entry for each argument, got "
            f"{describe(primals)} and {describe(series)}. Write {who}(f, (x,), ([first, second],))."
        )
    if len(primals) != len(series):
        raise StructureError(
            f"{who}: series must have one entry for each of the {len(primals)} primals, got {len(series)}"
        )
    leaves, structure = trees.flatten(tuple(primals))
    names = names_of(range(len(primals)), tuple(primals))
    lists = _lists(primals, series, who)
    order: int | None = None
    values: list[Value] = []
    curves: list[tuple[Value, ...]] = []
    for x, terms, name in zip(leaves, lists, names, strict=True):
        if not is_operand(x):
            raise ArgumentError(f"{who}: {name} must be an array, got {describe(x)}")
        value = lower(x)
        values.append(value)
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
        given = [tangent_of(value, t, who, name) for t in terms]
        curves.append(_moving(value, given))
    return values, curves, order or 0, structure


def _lists(primals: Sequence[PyTree], series: Sequence[PyTree], who: str) -> list[PyTree]:
    """The list of derivatives for each leaf of the primals."""
    found: list[PyTree] = []
    for k, (x, s) in enumerate(zip(primals, series, strict=True)):
        structure = trees.flatten(x)[1]
        if s is None:
            found += [None] * structure.num_leaves
            continue
        try:
            found += structure.flatten_up_to(s)
        except (ValueError, TypeError) as error:
            raise StructureError(
                f"{who}: the series of argument {k} must have the structure of the argument, {structure}, "
                f"with a list of derivatives for each array, got {describe(s)}"
            ) from error
    return found


def _moving(value: PyTree, terms: Sequence[Value]) -> tuple[Value, ...]:
    """Derivatives up to the last that is not None."""
    count = max([k for k, t in enumerate(terms, 1) if t is not None], default=0)
    return tuple([zeros_like(value) if t is None else t for t in terms[:count]])
