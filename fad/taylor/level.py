"""The level of Taylor mode."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from fad.extend import Operation, Primitive, RecordingLevel, Tensor, bind, map_outputs, new_tensor
from fad.extend.types import Array, ArrayFunction, Operand, Outputs, Value
from fad.taylor.series import Series, series_of


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

    Coefficients are those of `fad.taylor.series`: of ``x(scale * t)``, see NOTE [scale of a series].
    """

    __slots__ = ("order", "scale")

    kind = "jet"

    def __init__(self, order: int, scale: int | None = None) -> None:
        super().__init__()
        self.order = order
        self.scale = _scale_for(order) if scale is None else scale

    def evaluate(self, op: Operation, args: Sequence[Any]) -> Outputs:
        primals, series, differentiated = self.unwrapped(args)
        if not differentiated:
            return map_outputs(lambda o: new_tensor(o, self), bind(op, primals))
        if op.primitive is not None:
            return self._by_series(op.primitive, primals, series)
        body = op.body()
        if body is not None:
            return map_outputs(self.lift, body(args))
        if op.has_jet:
            return self._by_own_rule(op, primals, series)
        return self._by_chain_rule(op, primals, series)

    def _by_series(self, op: Primitive, primals: list[Operand], series: list[Any]) -> Outputs:
        """One Primitive for all coefficients; see NOTE [series] in `fad.taylor.series`."""
        counts = tuple([0 if s is None else len(s) for s in series])
        kinds = tuple([getattr(p, "dtype", type(p)) for p in primals])
        make = functools.partial(_derive, op, self.order, counts)
        derived = op.derived((self.kind, self.order, counts, kinds), "jet", make)
        flat = bind(derived, [*primals, *[c for s in series if s is not None for c in s]])
        outs = derived.unflatten(flat)
        wrapped = tuple([self.curve(o[0], o[1:]) for o in outs["series"]])
        return wrapped[0] if "single" in outs else wrapped

    def _by_own_rule(self, op: Operation, primals: list[Any], series: list[Any]) -> Outputs:
        """By the jet rule of the operation, which takes and returns derivatives."""
        derivatives = [s and self.derivatives(s[: self.order]) for s in series]
        out, pushed = op.jet(primals, derivatives, self.order)
        if type(out) is not tuple:
            return self.curve(out, self.coefficients(pushed or ()))
        pairs = zip(out, pushed, strict=True)
        return tuple([self.curve(o, self.coefficients(s or ())) for o, s in pairs])

    def _by_chain_rule(self, op: Operation, primals: list[Any], series: list[Any]) -> Outputs:
        """The derivative along the curve is that of ``op``, evaluated on series of one order less."""
        with JetLevel(self.order - 1, self.scale) as inner:
            at: list[Operand] = []
            velocities: list[Value | None] = []
            for p, s in zip(primals, series, strict=True):
                at.append(p if s is None else inner.curve(p, s[: inner.order]))
                v = [scaled(c, k) for k, c in enumerate(s or (), 1)]
                velocities.append(inner.curve(v[0], v[1:]) if v else None)
            outs, out_t = op.jvp(at, velocities)
            single = type(outs) is not tuple
            pairs = [(outs, out_t)] if single else zip(outs, out_t, strict=True)
            outputs = [(inner.unpack(o)[0], t if t is None else inner.unpack(t)) for o, t in pairs]
        wrapped = []
        for out, velocity in outputs:
            v = [] if velocity is None else [velocity[0], *velocity[1]]
            wrapped.append(self.curve(out, [scaled(c, 1 / k) for k, c in enumerate(v, 1)]))
        return wrapped[0] if single else tuple(wrapped)

    def tangent(self, t: Tensor) -> Value | None:
        return None if t.aux is None else t.aux[0]

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        coefficients = t._aux or ()
        return (t._value, *coefficients), len(coefficients)

    def unflatten(self, rest: Any, parts: Iterator[Operand]) -> Tensor:
        return self.curve(next(parts), [next(parts) for _ in range(rest)])

    @property
    def settings(self) -> tuple[Hashable, ...]:  # type: ignore[override]
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


def _derive(op: Primitive, order: int, counts: tuple[int, ...]) -> ArrayFunction:
    """The function from primals, and their coefficients, to the series of all outputs."""
    n = len(counts)

    def jet(*values: Array) -> dict[str, Any]:
        coefficients = iter(values[n:])
        series = [
            [next(coefficients) for _ in range(count)] + [None] * (order - count) if count else None
            for count in counts
        ]
        outs, single = series_of(op.to_jvp, order, values[:n], series)
        results = {"series": list(map(_filled, outs))}
        return {**results, "single": ()} if single else results

    return jet


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
