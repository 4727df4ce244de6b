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

import jax
import jax.numpy as jnp
from jax import lax

from fad.core.avals import struct_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    Literal,
    branches,
    called,
    evaluate_equation,
    parameters,
    programs,
    run_jaxpr,
    scan_parts,
    while_parts,
    without_unused,
)
from fad.core.jaxprs import jvp_in, trace
from fad.core.types import (
    Array,
    ArrayFunction,
    Atom,
    JaxBody,
    JaxEquation,
    JaxProgram,
    Outputs,
)

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
    fixed: Series = [None] * order
    return evaluate_with(lambda eqn, x: _evaluate(eqn, order, x), closed, inputs, fixed)


def evaluate_with(
    equation: Callable[[JaxEquation, list[Series]], list[Series]],
    closed: JaxProgram,
    inputs: Sequence[Series],
    fixed: Series,
) -> list[Series]:
    """The outputs of a closed jaxpr on lists that begin with a value.

    Arguments:
        equation: evaluates an equation on such lists.
        closed: the jaxpr.
        inputs: its inputs.
        fixed: what stands behind the value of a constant.
    """
    jaxpr = closed.jaxpr
    env: dict[Atom, Series] = {}

    def read(atom: Atom) -> Series:
        return [atom.val, *fixed] if isinstance(atom, Literal) else env[atom]

    for v, c in zip(jaxpr.constvars, closed.consts, strict=True):
        env[v] = [c, *fixed]
    env.update(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        outs = equation(eqn, [read(v) for v in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


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
    found = {e.primitive.name for e in inner.eqns} - {"convert_element_type"}
    return closed if found == {"div"} or (found == {"pow"} and _varies(inputs[1])) else None


# What has no rule


def _derived(eqn: JaxEquation, order: int, inputs: list[Series]) -> list[Series]:
    """The series of an equation from its derivative; see NOTE [series]."""
    differentiated = [k for k, x in enumerate(inputs) if _varies(x)]
    point = [x[0] for x in inputs]
    outs = evaluate_equation(eqn, point)
    kept = [k for k, o in enumerate(outs) if is_inexact(o.dtype)]
    if not kept:
        return [[o, *[None] * order] for o in outs]
    directions = [point[k] for k in differentiated]
    derivative = derivative_of(eqn, differentiated, kept, point, directions)
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
        found = evaluate_series(derivative, order - 1, [*short, *velocity])
        results = [
            [None if c is None else c / k for k, c in enumerate(series, 1)] for series in found
        ]
    by_place = dict(zip(kept, results, strict=True))
    return [[o, *by_place.get(k, [None] * order)] for k, o in enumerate(outs)]


def derivative_of(
    eqn: JaxEquation,
    differentiated: list[int],
    kept: list[int],
    point: list[Array],
    directions: list[Array],
) -> JaxProgram:
    """The tangents of the outputs ``kept``, as a program of all inputs and the differentiated tangents."""

    mask = tuple([k in differentiated for k in range(len(point))])

    def outputs(*at: Array) -> list[Array]:
        outs = evaluate_equation(eqn, at)
        return [outs[k] for k in kept]

    def derivative(*values: Array) -> Outputs:
        return jvp_in(mask, outputs, values[: len(point)], values[len(point) :])[1]

    operands = [struct_of(jax.typeof(v)) for v in (*point, *directions)]
    return without_unused(trace(derivative, operands)[0])


def _each(
    derivative: JaxProgram, order: int, point: list[Array], differentiated: list[Series]
) -> list[Series]:
    """A derivative that is the same at all points, applied to each coefficient."""
    found: list[Sequence[Coefficient]] = []
    for k in range(1, order + 1):
        terms = [x[k] for x in differentiated]
        if all([t is None for t in terms]):
            found.append([None] * len(derivative.jaxpr.outvars))
            continue
        terms = [
            jnp.zeros_like(x[0]) if t is None else t
            for t, x in zip(terms, differentiated, strict=True)
        ]
        found.append(run_jaxpr(derivative, *point, *terms))
    return [list(c) for c in zip(*found, strict=True)]


# Their derivative is zero.
_STEPS = frozenset({"ceil", "floor", "round", "sign", "stop_gradient"})


def depends_on_point(jaxpr: JaxBody, differentiated: list[int]) -> bool:
    """Whether the tangents have a derivative in the differentiated inputs."""
    reached = {jaxpr.invars[k] for k in differentiated}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in _STEPS:
            continue
        if any([not isinstance(v, Literal) and v in reached for v in eqn.invars]):
            reached.update([v for v in eqn.outvars if is_inexact(v.aval.dtype)])
    return any([not isinstance(v, Literal) and v in reached for v in jaxpr.outvars])


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
        found = plus(u[k], _scaled(-1, rest))
        v.append(None if found is None else found / w[0])
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
        found = plus(u[k], _scaled(-1, rest))
        v.append(None if found is None else found / (2 * v[0]))
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
        found = plus(u[k], rest)
        log.append(None if found is None else found / base)
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
    if not is_inexact(x[0].dtype):
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
        return run_jaxpr(loop.cond, *cond_consts, *[x[0] for x in carry])[0]

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
