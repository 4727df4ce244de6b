"""Interval arithmetic as a transform: bounds of what a function can give, and of its derivatives.

    python examples/interval_arithmetic.py

``bounds(f)(low, high)`` gives arrays between which ``f(x)`` lies for every ``x`` from ``low`` to ``high``,
rounding errors included. ``bounds(fad.grad(f))`` encloses derivatives, ``fad.vmap(bounds(f))`` bounds many
boxes at once. It is written with public names alone; docs/contract.md says what they promise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.numpy as fnp
from fad import extend

Ends = tuple[Any, Any]  # the lower and the upper end of an interval
ULPS = 4  # XLA's elementary functions are right to so many units in the last place


class IntervalLevel(extend.Level):
    """The value of a Tensor is the lower end of an interval, its ``aux`` the upper end."""

    kind = "interval"

    def process(self, op: extend.Operation, args: Sequence[Any]) -> Any:
        if op.expands:  # a program: the operations that it consists of
            return op.expand(args)
        if op.primitive is None:  # a call of a Function: its body, on intervals
            body = op.body("value")
            if body is None:
                raise NotImplementedError(f"no bounds are known for {op.name}")
            return extend.map_outputs(self.lift, body(args))
        derived = op.primitive.derived("interval", "bounds", lambda: on_ends(op.primitive))
        outs = derived.unflatten(extend.bind(derived, [e for a in args for e in self.ends(a)]))
        if isinstance(outs, list):
            return tuple([extend.new_tensor(low, self, high) for low, high in outs])
        return extend.new_tensor(outs[0], self, outs[1])

    def ends(self, x: Any) -> Ends:
        is_interval = isinstance(x, extend.Tensor) and x.level is self
        return (x.value, x.aux) if is_interval and x.aux is not None else (x, x)

    def detach(self, x: Any) -> Any:
        return x

    def readable(self, t: Any, what: str = "") -> Any:
        if t.aux is not None and not np.array_equal(fad.asarray(t.value), fad.asarray(t.aux)):
            raise fad.errors.HostValueError(f"{what} of an interval, which has many values")
        return super().readable(t, what)


def bounds(f: Callable[..., Any]) -> Callable[..., Any]:
    """From ``(low, high)``, each an array or a tuple of the arguments of ``f``, to a pair of its results."""

    @extend.restores_modes
    def bounded(low: Any, high: Any) -> Any:
        lows, highs = [x if isinstance(x, tuple) else (x,) for x in (low, high)]
        with IntervalLevel() as level, extend.uncompiled():
            pairs = zip(map(fad.asarray, lows), map(fad.asarray, highs), strict=True)
            out = f(*[extend.new_argument(a, level, b) for a, b in pairs])
            leaves, structure = extend.flatten(out)
            ends = [level.ends(extend.outlived(x)) for x in leaves]
        sides = [extend.unflatten(structure, list(side)) for side in zip(*ends, strict=True)]
        return tuple([extend.leave(side, extend.has_tensor((low, high))) for side in sides])

    return bounded


def on_ends(primitive: extend.Primitive) -> Callable[..., Any]:
    """The function from the ends of all arguments to the ends of the result, or of each of several."""

    def run(*values: Any) -> Any:
        ends = list(zip(map(jnp.asarray, values[::2]), map(jnp.asarray, values[1::2]), strict=True))
        program, shape = extend.trace(primitive.to_jvp, [extend.aval_of(low) for low, _ in ends])
        outs = of_program(program, ends)
        return outs if isinstance(shape, tuple) else outs[0]

    return run


def of_program(program: Any, inputs: Sequence[Ends]) -> list[Ends]:
    return extend.interpret(program, inputs, of_equation, lambda value: (jnp.asarray(value),) * 2)


def of_equation(eqn: Any, operands: list[Ends]) -> list[Ends]:
    """What encloses the results of one operation of JAX."""
    name = eqn.primitive.name
    inner = (
        next(extend.programs(eqn)) if name.startswith(("custom_", "call_")) else extend.called(eqn)
    )
    if inner is not None:
        return of_program(inner, operands[len(operands) - len(inner.jaxpr.invars) :])

    def at(*values: Any) -> Any:
        return extend.evaluate_equation(eqn, list(values))[0]

    lows, highs = [low for low, _ in operands], [high for _, high in operands]
    if name in RULES:
        return [RULES[name](at, eqn, operands)]
    if name in INCREASING:  # in each operand
        return [outward(at(*lows), at(*highs))]
    if name in EXACT:  # elements are moved, or chosen
        ends = [extend.evaluate_equation(eqn, values) for values in (lows, highs)]
        return list(zip(*ends, strict=True))
    if not any([jnp.issubdtype(x.dtype, jnp.inexact) for x in lows]):
        return [(o, o) for o in extend.evaluate_equation(eqn, lows)]  # integers
    raise NotImplementedError(f"no bounds are known for {name}")


def outward(low: Any, high: Any, ulps: int = ULPS) -> Ends:
    """Ends that are so many units in the last place further out, with the derivatives of those given."""
    if not jnp.issubdtype(low.dtype, jnp.inexact):
        return low, high
    info = jnp.finfo(low.dtype)
    low, high = jnp.minimum(low, info.max), jnp.maximum(high, info.min)  # what overflows is finite
    by = [jax.lax.stop_gradient(ulps * info.eps * jnp.abs(x) + info.tiny) for x in (low, high)]
    return low - by[0], high + by[1]


def hull(values: Sequence[Any]) -> Ends:
    return outward(functools.reduce(jnp.minimum, values), functools.reduce(jnp.maximum, values))


def corners(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    (a, b), (c, d) = operands
    values = [at(x, y) for x in (a, b) for y in (c, d)]  # 0 * inf is 0 here
    return hull([jnp.where(jnp.isnan(v), 0.0, v) for v in values])


def quotient(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    c, d = operands[1]
    apart = (c > 0) | (d < 0)
    safe = (jnp.where(apart, c, 1), jnp.where(apart, d, 1))
    low, high = corners(at, eqn, [operands[0], safe])
    return jnp.where(apart, low, -jnp.inf), jnp.where(apart, high, jnp.inf)


def even(at: Any, low: Any, high: Any) -> Ends:
    """Of a function that is even, and increases from 0 on, or decreases."""
    least = jnp.where((low <= 0) & (high >= 0), 0.0, jnp.minimum(jnp.abs(low), jnp.abs(high)))
    return hull([at(least), at(jnp.maximum(jnp.abs(low), jnp.abs(high)))])


def power(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    ((low, high),), n = operands, dict(eqn.params)["y"]
    if n < 0:
        apart = (low > 0) | (high < 0)
        least, most = hull([at(jnp.where(apart, x, 1.0)) for x in (low, high)])
        return jnp.where(apart, least, -jnp.inf), jnp.where(apart, most, jnp.inf)
    return even(at, low, high) if n % 2 == 0 else outward(at(low), at(high))


def wave(peak: float) -> Callable[..., Ends]:
    """Of a sine or cosine, which is 1 at ``peak``."""

    def reaches(low: Any, high: Any, x: float) -> Any:
        slack = 1e-5 * (1.0 + jnp.maximum(jnp.abs(low), jnp.abs(high)))  # of 2 pi, and of the sum
        return x + 2 * np.pi * jnp.ceil((low - slack - x) / (2 * np.pi)) <= high + slack

    def rule(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
        ((low, high),) = operands
        least, most = hull([at(low), at(high)])
        least = jnp.where(reaches(low, high, peak + np.pi), -1.0, least)
        return least, jnp.where(reaches(low, high, peak), 1.0, most)

    return rule


def total(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    ((low, high),) = operands
    return outward_by(at(low), at(high), low.size, at(jnp.maximum(jnp.abs(low), jnp.abs(high))))


def outward_by(low: Any, high: Any, terms: int, size: Any) -> Ends:
    """The ends of a sum of so many terms, whose absolute values have the sum ``size``."""
    by = jax.lax.stop_gradient((terms + ULPS) * jnp.finfo(low.dtype).eps * size)
    return outward(low - by, high + by)


def product(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    """Of matrices, by their middles and radii."""
    (a, ra), (b, rb) = [((low + high) / 2, (high - low) / 2) for low, high in operands]
    ra, rb = [outward(r, r)[1] for r in (ra, rb)]
    size = at(jnp.abs(a) + ra, jnp.abs(b) + rb)
    middle, radius = at(a, b), at(jnp.abs(a), rb) + at(ra, jnp.abs(b)) + at(ra, rb)
    return outward_by(middle - radius, middle + radius, 2 * max(a.size, b.size), size)


def choice(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    """Where it is not certain which case is taken, what encloses both."""
    (sure, may), *cases = operands
    low, high = [at(sure, *[c[k] for c in cases]) for k in (0, 1)]
    least = functools.reduce(jnp.minimum, [c[0] for c in cases])
    most = functools.reduce(jnp.maximum, [c[1] for c in cases])
    return jnp.where(sure == may, low, least), jnp.where(sure == may, high, most)


def swapped(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    """Of a function that decreases in its last operand."""
    *first, (low, high) = operands
    return outward(at(*[a for a, _ in first], high), at(*[b for _, b in first], low), 1)


def compared(at: Any, eqn: Any, operands: list[Ends]) -> Ends:
    """Whether a comparison holds: certainly, and possibly."""
    (a, b), (c, d) = operands
    name = eqn.primitive.name
    if name in ("eq", "ne"):
        same, may = (a == b) & (c == d) & (a == c), (a <= d) & (c <= b)
        return (same, may) if name == "eq" else (~may, ~same)
    return (at(b, c), at(a, d)) if name in ("lt", "le") else (at(a, d), at(b, c))


RULES: dict[str, Callable[..., Ends]] = {
    **dict.fromkeys(("sub", "neg", "not"), swapped),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), compared),
    **dict.fromkeys(("reduce_sum", "cumsum"), total),
    **dict.fromkeys(
        ("abs", "cosh", "square", "one_minus_square"), lambda at, _, x: even(at, *x[0])
    ),
    "mul": corners,
    "div": quotient,
    "integer_pow": power,
    "sin": wave(np.pi / 2),
    "cos": wave(0.0),
    "dot_general": product,
    "select_n": choice,
}
# Functions that increase in each operand; and those that move or choose elements, without rounding.
INCREASING = set(
    """add add_any exp exp2 log log1p expm1 sqrt cbrt tanh atan asin asinh sinh erf logistic
    convert_element_type""".split()
)
EXACT = set(
    """broadcast_in_dim reshape transpose squeeze slice concatenate rev copy split pad stack unstack max min
    reduce_max reduce_min and or reduce_and reduce_or sign gather dynamic_slice""".split()
)

if __name__ == "__main__":
    print("tanh on [0, 0.5]:", bounds(fnp.tanh)(0.0, 0.5))
    print("its slopes there:", bounds(fad.grad(fnp.tanh))(0.0, 0.5))
