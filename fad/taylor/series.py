"""Taylor series through programs of JAX: what `fad.jet` does with a jaxpr.

NOTE [series]

    found = fad.derivatives(lambda x: fnp.exp(2.0 * x), 0.0, 12)  # not 2**12 values, as by jvp of jvp of ...
    assert np.allclose(found, [2.0**k for k in range(13)], rtol=1e-4)

A value that moves is a *series*: the list of its Taylor coefficients ``c[0], ..., c[order]`` along a curve,
``x(t) = c[0] + c[1] t + ... + c[order] t**order``. A coefficient of None is zero; one with None in all
places but the first is a constant.

A primitive of JAX is evaluated on series by the first of these that fits:

* a rule by hand (`RULES`): products, and functions with a differential equation that gives one coefficient
  after the other from those before, in ``order**2`` operations;
* its derivative does not depend on the point, but for comparisons and integers (a sum, a slice, a
  ``select``, a maximum): the derivative is applied to each coefficient;
* else the chain rule, ``y' = df(x) x'``: the program of the derivative is evaluated on series of one order
  less, which ends at order 0. So everything that has a jvp has a series.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from fad.extend import (
    branches,
    called,
    depends_on_point,
    derivative_of,
    evaluate_equation,
    interpret,
    parameters,
    programs,
    run_program,
    scan_parts,
    trace,
    while_parts,
)
from fad.extend.types import Array, ArrayFunction, JaxEquation, JaxProgram

Coefficient = Array | None  # None is zero
# Of coefficients; the first one is an array.
Series = list[Any]


def series_of(
    flat: ArrayFunction,
    order: int,
    values: Sequence[Array],
    differentiated: Sequence[Series | None],
) -> tuple[list[Series], bool]:
    """The outputs of ``flat`` as series, and whether it returns one array, not a tuple.

    Arguments:
        flat: a function of arrays that returns an array or a tuple of them.
        order: of the series.
        values: the arguments.
        differentiated: for each argument, its coefficients from the first order on, or None for a constant.
    """
    closed, shape = trace(flat, values)
    constant = [None] * order
    inputs = [
        [v, *(constant if m is None else m)] for v, m in zip(values, differentiated, strict=True)
    ]
    return evaluate_series(closed, order, inputs), type(shape) is not tuple


def evaluate_series(closed: JaxProgram, order: int, inputs: Sequence[Series]) -> list[Series]:
    """The outputs of a closed jaxpr as series of ``order``."""
    rest: Series = [None] * order
    return interpret(
        closed, inputs, lambda eqn, x: _evaluate(eqn, order, x), lambda value: [value, *rest]
    )


def _varies(x: Series) -> bool:
    return any([c is not None for c in x[1:]])


def _evaluate(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    """One equation on series."""
    if not any(map(_varies, inputs)):
        return [[o, *[None] * order] for o in evaluate_equation(eqn, [x[0] for x in inputs])]
    closed = called(eqn)
    if closed is not None:
        return evaluate_series(closed, order, inputs[len(inputs) - len(closed.jaxpr.invars) :])
    closed = _by_hand_inside(eqn, inputs)
    if closed is not None:
        return evaluate_series(closed, order, inputs)
    rule = RULES.get(eqn.primitive.name)
    return _derived(eqn, order, inputs) if rule is None else rule(eqn, order, inputs)


def _by_hand_inside(eqn: JaxEquation, inputs: list[Series]) -> JaxProgram | None:
    """The jaxpr of a function with its own jvp rule, if it is one that has a rule by hand here: a division,
    or a power whose exponent moves.
    """
    if eqn.primitive.name != "custom_jvp_call":
        return None
    closed: JaxProgram = next(programs(eqn))
    inner = closed.jaxpr
    while len(inner.eqns) == 1 and (call := called(inner.eqns[0])) is not None:
        inner = call.jaxpr
    primitives = {e.primitive.name for e in inner.eqns} - {"convert_element_type"}
    return (
        closed if primitives == {"div"} or (primitives == {"pow"} and _varies(inputs[1])) else None
    )


# What has no rule


def _derived(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    """The series of an equation from its derivative; see NOTE [series]."""
    differentiated = [k for k, x in enumerate(inputs) if _varies(x)]
    point = [x[0] for x in inputs]
    outs = evaluate_equation(eqn, point)
    kept = [k for k, o in enumerate(outs) if jnp.issubdtype(o.dtype, jnp.inexact)]
    constants = [[o, *[None] * order] for o in outs]
    if not kept:
        return constants
    directions = [point[k] for k in differentiated]
    derivative = derivative_of(eqn, differentiated, kept, point)
    if not depends_on_point(derivative.jaxpr, range(len(point), len(point) + len(directions))):
        return constants  # zero in all directions, as that of `stop_gradient`
    if not depends_on_point(derivative.jaxpr, differentiated):
        results = _each(derivative, order, point, [inputs[k] for k in differentiated])
    else:
        short = [x[:order] for x in inputs]
        velocity = [
            [None if c is None else k * c for k, c in enumerate(inputs[m][1:], 1)]
            for m in differentiated
        ]
        for v, d in zip(velocity, directions, strict=True):
            v[0] = jnp.zeros_like(d) if v[0] is None else v[0]
        velocities = evaluate_series(derivative, order - 1, [*short, *velocity])
        results = [
            [None if c is None else c / k for k, c in enumerate(series, 1)] for series in velocities
        ]
    by_place = dict(zip(kept, results, strict=True))
    return [[o, *by_place.get(k, [None] * order)] for k, o in enumerate(outs)]


def _each(
    derivative: JaxProgram, order: int, point: list[Array], differentiated: list[Series]
) -> list[Series]:
    """A derivative that is the same at all points, applied to each coefficient."""
    coefficients: list[Sequence[Coefficient]] = []
    for k in range(1, order + 1):
        terms = [x[k] for x in differentiated]
        if all([t is None for t in terms]):
            coefficients.append([None] * len(derivative.jaxpr.outvars))
            continue
        terms = [
            jnp.zeros_like(x[0]) if t is None else t
            for t, x in zip(terms, differentiated, strict=True)
        ]
        coefficients.append(run_program(derivative, *point, *terms))
    return [list(c) for c in zip(*coefficients, strict=True)]


# Arithmetic of coefficients, where None is zero


def plus(a: Coefficient, b: Coefficient) -> Coefficient:
    """The sum."""
    return b if a is None else a if b is None else a + b


def _times(a: Coefficient, b: Coefficient) -> Coefficient:
    return None if a is None or b is None else a * b


def _scaled(n: float, a: Coefficient) -> Coefficient:
    return a if a is None or n == 1 else n * a


def _convolved(
    a: Series, b: Series, k: int, product: Callable[[Array, Array], Coefficient] = _times
) -> Coefficient:
    """Coefficient ``k`` of a product."""
    total: Coefficient = None
    for j in range(k + 1):
        if a[j] is not None and b[k - j] is not None:
            total = plus(total, product(a[j], b[k - j]))
    return total


def _solved(u: Series, slopes: Series, k: int) -> Coefficient:
    """Coefficient ``k`` of a function with the derivative ``slopes * u'``, from earlier ``slopes``."""
    total: Coefficient = None
    for j in range(1, k + 1):
        total = plus(total, _times(_scaled(j, u[j]), slopes[k - j]))
    return None if total is None else total / k


def _multiplied(u: Series, w: Series) -> Series:
    return [_convolved(u, w, k) for k in range(len(u))]


# Rules by hand: of an equation, the order, and its inputs

Rule = Callable[[JaxEquation, int, list[Series]], list[Series]]


def _bilinear(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    def product(a: Array, b: Array) -> Array:
        return evaluate_equation(eqn, [a, b])[0]

    u, w = inputs
    return [[_convolved(u, w, k, product) for k in range(order + 1)]]


def _quotient(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    u, w = inputs
    v: Series = evaluate_equation(eqn, [u[0], w[0]])
    for k in range(1, order + 1):
        rest = _convolved([*v, None], w, k)
        numerator = plus(u[k], _scaled(-1, rest))
        v.append(None if numerator is None else numerator / w[0])
    return [v]


def _square(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    return [_multiplied(inputs[0], inputs[0])]


def _integer_pow(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    u, (n,) = inputs[0], parameters(eqn)
    v: Series = evaluate_equation(eqn, [u[0]])
    if n < 0:  # u v' = n v u'
        for k in range(1, order + 1):
            total: Coefficient = None
            for j in range(1, k + 1):
                total = plus(total, _times(_scaled((n * j - k + j) / k, u[j]), v[k - j]))
            v.append(None if total is None else total / u[0])
        return [v]
    power: Series | None = None  # u[0] may be zero
    factor, left = u, n
    while left:
        if left % 2:
            power = factor if power is None else _multiplied(power, factor)
        left //= 2
        factor = _multiplied(factor, factor) if left else factor
    return [[*v, *([None] * order if power is None else power[1:])]]


def _sqrt(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    (u,) = inputs
    v: Series = evaluate_equation(eqn, [u[0]])
    for k in range(1, order + 1):
        rest = _convolved([None, *v[1:], None], [None, *v[1:], None], k)
        numerator = plus(u[k], _scaled(-1, rest))
        v.append(None if numerator is None else numerator / (2 * v[0]))
    return [v]


def _power(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    """``exp(w log(u))`` where the exponent moves: each derivative of a power has two powers in it.

    At ``u[0] = 0`` a coefficient is that of ``u[1]**w[0]``, times zero, one or infinity.
    """
    u, w = inputs
    if not _varies(w):
        return _derived(eqn, order, inputs)
    v: Series = evaluate_equation(eqn, [u[0], w[0]])
    at_zero = u[0] == 0
    base = jnp.where(at_zero, 1, u[0])
    log: Series = [jnp.log(base)]
    for k in range(1, order + 1):
        rest = _scaled(-1, _solved([None, *log[1:], None], u, k))
        numerator = plus(u[k], rest)
        log.append(None if numerator is None else numerator / base)
    powers = _multiplied(w, log)
    for k in range(1, order + 1):
        v.append(_solved(powers, v, k))
    first = jnp.zeros_like(base) if u[1] is None else u[1]
    for k in range(1, order + 1):
        there = lax.pow(jnp.zeros_like(v[0]), w[0] - k) * first**k
        v[k] = jnp.where(at_zero, there, 0 if v[k] is None else v[k])
    return [v]


def _by_its_value(slope: Callable[[Series], Coefficient]) -> Rule:
    """The rule of a function ``v`` whose derivative is ``slope(v)``: the newest coefficient of it."""

    def rule(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
        (u,) = inputs
        v: Series = evaluate_equation(eqn, [u[0]])
        slopes: Series = []
        for k in range(1, order + 1):
            slopes.append(slope(v))
            v.append(_solved(u, slopes, k))
        return [v]

    return rule


def _one_plus(v: Series, sign: int) -> Coefficient:
    """The newest coefficient of ``1 + sign * v**2``."""
    k = len(v) - 1
    c = _scaled(sign, _convolved(v, v, k))
    return 1 + c if k == 0 and c is not None else c


def _pair(other: Callable[[Array], Array], signs: tuple[int, int]) -> Rule:
    """The rule of a function whose derivative is another one, and back, with these signs."""

    def rule(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
        (u,) = inputs
        v: Series = evaluate_equation(eqn, [u[0]])
        w: Series = [other(u[0])]
        for k in range(1, order + 1):
            v_k = _scaled(signs[0], _solved(u, w, k))
            w.append(_scaled(signs[1], _solved(u, v, k)))
            v.append(v_k)
        return [v]

    return rule


# Control flow: the body is evaluated on series


def _filled(x: Series) -> Series:
    """``x`` with zeros for None, if its dtype has derivatives; else its value alone."""
    if not jnp.issubdtype(x[0].dtype, jnp.inexact):
        return [x[0]]
    return [jnp.zeros_like(x[0]) if c is None else c for c in x]


def _series(parts: Series, order: int) -> Series:
    """`_filled` undone."""
    return list(parts) if len(parts) > 1 else [parts[0], *[None] * order]


def _cond(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    index, *operands = inputs

    def branch(closed: JaxProgram) -> Callable[[], list[Series]]:
        return lambda: list(map(_filled, evaluate_series(closed, order, operands)))

    outs = lax.switch(index[0], [branch(b) for b in branches(eqn)])
    return [_series(o, order) for o in outs]


def _while(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    loop = while_parts(eqn)
    of_cond, of_body = loop.cond_count, loop.body_count
    cond_consts = [x[0] for x in inputs[:of_cond]]
    consts, start = inputs[of_cond : of_cond + of_body], inputs[of_cond + of_body :]

    def goes_on(carry: list[Series]) -> Array:
        return run_program(loop.cond, *cond_consts, *[x[0] for x in carry])[0]

    def body(carry: list[Series]) -> list[Series]:
        values = [_series(x, order) for x in carry]
        return list(map(_filled, evaluate_series(loop.body, order, [*consts, *values])))

    outs = lax.while_loop(goes_on, body, list(map(_filled, start)))
    return [_series(o, order) for o in outs]


def _scan(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    scan = scan_parts(eqn)
    n, carried = scan.constants, scan.carried
    consts, start, xs = inputs[:n], inputs[n : n + carried], inputs[n + carried :]

    def body(carry: list[Series], x: list[Series]) -> tuple[list[Series], list[Series]]:
        values = [_series(v, order) for v in (*carry, *x)]
        outs = list(map(_filled, evaluate_series(scan.body, order, [*consts, *values])))
        return outs[:carried], outs[carried:]

    carry, ys = lax.scan(
        body,
        list(map(_filled, start)),
        list(map(_filled, xs)),
        length=scan.length,
        reverse=scan.reverse,
        unroll=scan.unroll,
    )
    return [_series(o, order) for o in (*carry, *ys)]


RULES: dict[str, Rule] = {
    **dict.fromkeys(("mul", "dot_general", "conv_general_dilated"), _bilinear),
    "div": _quotient,
    "square": _square,
    "integer_pow": _integer_pow,
    "pow": _power,
    "sqrt": _sqrt,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    "exp": _by_its_value(lambda v: v[-1]),
    "exp2": _by_its_value(lambda v: _times(v[-1], jnp.log(jnp.asarray(2, v[0].dtype)))),
    "expm1": _by_its_value(lambda v: v[0] + 1 if len(v) == 1 else v[-1]),
    "tanh": _by_its_value(lambda v: _one_plus(v, -1)),
    "tan": _by_its_value(lambda v: _one_plus(v, 1)),
    "logistic": _by_its_value(lambda v: plus(v[-1], _scaled(-1, _convolved(v, v, len(v) - 1)))),
    "sin": _pair(lax.cos, (1, -1)),
    "cos": _pair(lax.sin, (-1, 1)),
    "sinh": _pair(lax.cosh, (1, 1)),
    "cosh": _pair(lax.sinh, (1, 1)),
}


def rule_of(eqn: JaxEquation) -> Rule | None:
    """The rule by hand of an equation; None where it has none.

    A rule takes the equation, the order and the series of its operands, see NOTE [series], and returns those
    of its results.

    >>> import fad.taylor
    >>> eqn = jax.make_jaxpr(jnp.exp)(0.0).eqns[0]
    >>> (series,) = fad.taylor.rule_of(eqn)(eqn, 2, [[jnp.zeros(()), 1.0, None]])
    >>> list(map(float, series))
    [1.0, 1.0, 0.5]
    """
    return RULES.get(eqn.primitive.name)
