"""The pattern of a linear program: a jaxpr, and the entries of its matrix that may differ from 0.

NOTE [a pattern is conservative]

It is found from the operations of a jaxpr, not from numbers: an entry is left out only if no value of the
arguments can make it differ from 0. Of a choice by a value (``where``, ``lax.cond``) all branches count. A
loop is run operation by operation if it has a known length, and until nothing is added if not. What is the
same at each call (positions of slices, constant matrices) is used as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fad.core.avals import struct_of
from fad.core.dataflow import Dataflow
from fad.core.jaxapi import flag_of, rules_of
from fad.core.jaxprs import is_ref, opened
from fad.extend import evaluate_equation, programs, scan_parts
from fad.extend.types import Aval, JaxBody, JaxEquation, JaxProgram
from fad.sparse.declared import declared
from fad.sparse.entries import Entries, send, take, unite
from fad.sparse.rules import RULES, Constant, couples

Value = tuple["Entries | None", "Constant | None"]


def pattern_of(
    closed: JaxProgram, constants: Sequence[Constant | None]
) -> tuple[np.ndarray, np.ndarray]:
    """The entries of the matrix of a program that is linear in its last operands.

    Arguments:
        closed: a jaxpr.
        constants: its other operands, where they are known.

    Returns:
        Their rows, among the elements of all results, and columns, among those of all last operands; by rows.

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
    found = np.concatenate(parts)
    return found // max(width, 1), found % max(width, 1)


def _constant(value: object) -> Constant | None:
    return None if isinstance(value, jax.core.Tracer) else Constant(lambda: value)


class _Entries(Dataflow[Value]):
    """The entries of a value's rows, or its value if it depends on no column."""

    def __init__(self, width: int) -> None:
        self.width = width

    def constant(self, value: object) -> Value:
        return None, _constant(value)

    def results(self, program: JaxProgram | JaxBody, given: Sequence[Value]) -> list[Value]:
        jaxpr = opened(program)
        if any([is_ref(v) for eqn in jaxpr.eqns for v in (*eqn.invars, *eqn.outvars)]):
            found = couples(jaxpr, [entries for entries, _ in given], (), self.width)
            return [(entries, None) for entries in found]
        return super().results(program, given)

    def union(self, found: Sequence[Value]) -> Value:
        return unite([entries for entries, _ in found]), None

    def same(self, a: Value, b: Value) -> bool:
        return _size(a[0]) == _size(b[0])

    def equation(self, eqn: JaxEquation, operands: list[Value]) -> list[Value]:
        sets = [entries for entries, _ in operands]
        known = [constant for _, constant in operands]
        if all([s is None for s in sets]):
            return _evaluated(eqn, known)
        if flag_of(eqn, "expensive") is not None:
            # Of fad; a call of a Function: what it declares, or computes.
            stated = _stated(eqn, sets, self.width)
            if stated is not None:
                return stated
            body = functools.partial(eqn.primitive.impl, **eqn.params)
            structs = [struct_of(v.aval) for v in eqn.invars]
            return self.results(jax.make_jaxpr(body)(*structs), operands)
        found = self.inside(eqn, operands)
        if found is not None:
            return found
        for program in programs(eqn) if eqn.primitive.name in CALLS else ():
            jaxpr = opened(program)
            if (len(jaxpr.invars), len(jaxpr.outvars)) == (len(operands), len(eqn.outvars)):
                return self.results(program, operands)
        rule = RULES.get(eqn.primitive.name, couples)
        return [(entries, None) for entries in rule(eqn, sets, known, self.width)]

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


def _stated(eqn: JaxEquation, sets: Sequence[Entries | None], width: int) -> list[Value] | None:
    """What the Function's ``sparsity`` rule says; None if it has none, or it does not say enough."""
    rules = rules_of(eqn)
    if len(eqn.outvars) != 1 or rules is None:
        return None
    pairs = declared(rules, [v.aval for v in eqn.invars], eqn.outvars[0].aval)
    if pairs is None or any(
        [p is None and s is not None for p, s in zip(pairs, sets, strict=True)]
    ):
        return None
    found = [
        send(take(s, p[1], width), p[0], width)
        for p, s in zip(pairs, sets, strict=True)
        if p is not None and s is not None
    ]
    return [(unite(found), None)]


def _evaluated(eqn: JaxEquation, known: Sequence[Constant | None]) -> list[Value]:
    """Results that depend on no column. They are known if the operands are."""
    operands = [k for k in known if k is not None]
    if len(operands) < len(known) or eqn.effects or "callback" in eqn.primitive.name:
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
