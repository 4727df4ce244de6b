"""The pattern of a linear program: a jaxpr, and the entries of its matrix that may differ from 0.

NOTE [a pattern is conservative]

It is found from the operations of a jaxpr, not from numbers: an entry is left out only if no value of the
arguments can make it differ from 0. Of a choice by a value (``where``, ``lax.cond``) all branches count. A
loop is run operation by operation if it has a known length, and until nothing is added if not. What is the
same at each call (positions of slices, constant matrices) is used as it is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fad.errors import RuleError, describe
from fad.extend import (
    Dataflow,
    body_of,
    evaluate_equation,
    function_call,
    is_elementwise,
    programs,
    scan_parts,
)
from fad.extend.types import Aval, JaxEquation, JaxProgram, PyTree
from fad.sparse.entries import Entries, send, take, unite
from fad.sparse.matrix_entries import pairs_of
from fad.sparse.rules import RULES, Constant, couples, elementwise

Value = tuple["Entries | None", "Constant | None"]


def pattern_of(
    closed: JaxProgram, constants: Sequence[Constant | None]
) -> tuple[np.ndarray, np.ndarray]:
    """The entries of the matrix of a program that is linear in its last operands.

    Arguments:
        closed: a jaxpr.
        constants: its other operands, where they are known.

    Returns:
        Their rows, among the elements of all results, and columns, among the elements of all last operands;
        by rows.

    Raises:
        StructureError: there are too many.
    """
    sizes = [v.aval.size for v in closed.jaxpr.invars[len(constants) :]]
    width = sum(sizes)
    operands: list[Value] = [(None, c) for c in constants]
    first = 0
    for size in sizes:
        each = np.arange(size, dtype=np.int64) * (width + 1) + first if size else None
        operands.append((each, None))
        first += size
    parts, above = [np.zeros(0, np.int64)], 0
    results = _Entries(width).results(closed, operands)
    for (entries, _), aval in zip(results, closed.out_avals, strict=True):
        if entries is not None:
            parts.append(entries + above * width)
        above += aval.size
    all_entries = np.concatenate(parts)
    return all_entries // max(width, 1), all_entries % max(width, 1)


def _constant(value: object) -> Constant | None:
    return None if isinstance(value, jax.core.Tracer) else Constant(lambda: value)


class _Entries(Dataflow[Value]):
    """The entries of a value's rows, or its value if it depends on no column."""

    def __init__(self, width: int) -> None:
        self.width = width

    def constant(self, value: object) -> Value:
        return None, _constant(value)

    def results(self, program: PyTree, inputs: Sequence[Value]) -> list[Value]:
        jaxpr: PyTree = getattr(program, "jaxpr", program)
        if any([_is_ref(v.aval) for eqn in jaxpr.eqns for v in (*eqn.invars, *eqn.outvars)]):
            coupled = couples(jaxpr, [entries for entries, _ in inputs], (), self.width)
            return [(entries, None) for entries in coupled]
        return super().results(program, inputs)

    def union(self, several: Sequence[Value]) -> Value:
        return unite([entries for entries, _ in several]), None

    def same(self, a: Value, b: Value) -> bool:
        return _size(a[0]) == _size(b[0])

    def equation(self, eqn: JaxEquation, operands: list[Value]) -> list[Value]:
        sets = [entries for entries, _ in operands]
        constants = [constant for _, constant in operands]
        if all([s is None for s in sets]):
            return _evaluated(eqn, constants)
        declared = _declared(eqn, sets, self.width)
        if declared is not None:
            return declared
        body = body_of(eqn)
        if body is not None:
            return self.results(body, operands)
        inside = self.inside(eqn, operands)
        if inside is not None:
            return inside
        for program in programs(eqn) if eqn.primitive.name in CALLS else ():
            jaxpr = getattr(program, "jaxpr", program)
            if (len(jaxpr.invars), len(jaxpr.outvars)) == (len(operands), len(eqn.outvars)):
                return self.results(program, operands)
        rule = RULES.get(eqn.primitive.name)
        if rule is None:
            rule = elementwise if is_elementwise(eqn) else couples
        return [(entries, None) for entries in rule(eqn, sets, constants, self.width)]

    def scan(self, eqn: JaxEquation, operands: list[Value]) -> list[Value]:
        """Step by step: what a step depends on may differ."""
        scan, width = scan_parts(eqn), self.width
        first, last = scan.constants, scan.constants + scan.carried
        consts, carry, xs = operands[:first], operands[first:last], operands[last:]
        outs = [v.aval for v in eqn.outvars[scan.carried :]]
        parts: list[list[Entries]] = [[] for _ in outs]
        steps = range(scan.length)
        for step in reversed(steps) if scan.reverse else steps:
            slices = [
                _step(x, v.aval, step, width) for x, v in zip(xs, eqn.invars[last:], strict=True)
            ]
            results = self.results(scan.body, [*consts, *carry, *slices])
            carry = results[: scan.carried]
            for part, (entries, _), aval in zip(parts, results[scan.carried :], outs, strict=True):
                if entries is not None:
                    part.append(entries + step * (aval.size // scan.length) * width)
        return [
            *[(entries, None) for entries, _ in carry],
            *[(unite(part), None) for part in parts],
        ]


def _is_ref(aval: Aval) -> bool:
    """Whether a variable is a Ref of JAX, which can be written to."""
    return hasattr(aval, "inner_aval")


# What Functions declare of the pattern of their derivatives, checked, and for a call under vmap.

# Elements of an output, and for each the element of an input on which it depends.
Pairs = tuple[np.ndarray, np.ndarray]


def _declared(eqn: JaxEquation, sets: Sequence[Entries | None], width: int) -> list[Value] | None:
    """What the Function's ``sparsity`` rule says; None if it has none, or it does not say enough."""
    call = function_call(eqn) if len(eqn.outvars) == 1 else None
    rule = None if call is None else getattr(call.function, "sparsity", None)
    if call is None or rule is None:
        return None
    avals = [v.aval for v in eqn.invars]
    pairs = _pairs(call, call.around, avals, eqn.outvars[0].aval)
    if any([p is None and s is not None for p, s in zip(pairs, sets, strict=True)]):
        return None
    parts = [
        send(take(s, p[1], width), p[0], width)
        for p, s in zip(pairs, sets, strict=True)
        if p is not None and s is not None
    ]
    return [(unite(parts), None)]


def _pairs(
    call: PyTree, around: Sequence[PyTree], avals: Sequence[Aval], out: Aval
) -> list[Pairs | None]:
    """For each operand, on which of its elements the output depends; None where nothing is known of it."""
    if not around:
        return list(_returned(call, avals, out))
    (kind, flags, more), *inner = around
    if kind == "derivative":
        pairs = _pairs(call, inner, avals[: len(flags)], out)
        of_tangents = itertools.compress(pairs, flags)
        return [*[None] * (len(flags) + len(more)), *of_tangents]
    lanes = [_lane(a, d) for a, d in zip(avals, flags, strict=True)]
    each = _pairs(call, inner, lanes, _lane(out, 0))
    size = out.size // max(more, 1)
    return [p and _batched(p, a, d, more, size) for p, a, d in zip(each, avals, flags, strict=True)]


def _lane(aval: Aval, dim: int | None) -> Aval:
    if dim is None:
        return aval
    shape = tuple([n for i, n in enumerate(aval.shape) if i != dim % len(aval.shape)])
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _batched(pairs: Pairs, aval: Aval, dim: int | None, lanes: int, size: int) -> Pairs:
    """The pairs of all lanes; the output has the batch in dimension 0, ``size`` elements in each lane."""
    outs, ins = pairs
    numbers = np.arange(aval.size).reshape(aval.shape)
    if dim is None:
        numbers = np.broadcast_to(numbers, (lanes, *aval.shape))
    else:
        numbers = np.moveaxis(numbers, dim, 0)
    rows = outs + size * np.arange(lanes)[:, None]
    return rows.ravel(), numbers.reshape(lanes, -1)[:, ins].ravel()


def _returned(call: PyTree, avals: Sequence[Aval], out: Aval) -> list[Pairs]:
    """What the rule says of a call."""
    who = f"{call.function.__name__}.sparsity"
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    args, kwargs = call.arguments(structs)
    patterns = call.function.sparsity(*args, **kwargs)
    if len(call.names) == 1 and type(patterns) is not tuple:
        patterns = (patterns,)
    if type(patterns) is not tuple or len(patterns) != len(call.names):
        raise RuleError(
            f"{who} returned {describe(patterns)}, expected {len(call.names)} patterns in a tuple: one for "
            f"each argument of forward ({', '.join(call.names)}), None where the output does not depend on it"
        )
    result: list[Pairs] = []
    for name, part, pattern in zip(call.names, call.parts, patterns, strict=True):
        if part.slots:
            what = f"{who}: the pattern for argument {name!r}"
            for x in part.collect(pattern, what):
                shape = structs[len(result)].shape
                result.append(pairs_of(what, x, tuple(out.shape), shape, error=RuleError))
    return result


def _evaluated(eqn: JaxEquation, constants: Sequence[Constant | None]) -> list[Value]:
    """Results that depend on no column. They are known if the operands are."""
    operands = [c for c in constants if c is not None]
    if len(operands) < len(constants) or eqn.effects or "callback" in eqn.primitive.name:
        return [(None, None)] * len(eqn.outvars)
    done: list[Any] = []  # the results, computed at most once

    def result(k: int) -> Any:
        if not done:
            done.extend(evaluate_equation(eqn, [jax.numpy.asarray(x.value()) for x in operands]))
        return done[k]

    return [(None, Constant(functools.partial(result, k))) for k in range(len(eqn.outvars))]


def _size(entries: Entries | None) -> int:
    return 0 if entries is None else entries.size


def _step(x: Value, aval: Aval, step: int, width: int) -> Value:
    entries, constant = x
    size = aval.size // aval.shape[0]
    row = take(entries, np.arange(step * size, (step + 1) * size), width)
    return row, None if constant is None else Constant(lambda: constant.value()[step])


CALLS = """jit pjit closed_call core_call remat remat2 checkpoint custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr xla_call eval_jaxpr
    call_hi_primitive""".split()
