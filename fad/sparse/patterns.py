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

from fad.core.jaxapi import (
    ClosedJaxpr,
    Literal,
    branches,
    evaluate_equation,
    flag_of,
    programs,
    rules_of,
    scan_parts,
    while_parts,
)
from fad.core.jaxprs import is_ref
from fad.sparse.declared import declared
from fad.sparse.entries import Entries, send, take, unite
from fad.sparse.rules import RULES, Constant, couples

__all__ = ["pattern_of"]

Value = tuple["Entries | None", "Constant | None"]


def pattern_of(closed: Any, constants: Sequence[Constant | None]) -> tuple[np.ndarray, np.ndarray]:
    """The entries of the matrix of a program that is linear in its last operand.

    Arguments:
        closed: a jaxpr with one result.
        constants: its operands but the last, where they are known.

    Returns:
        Their rows and columns, by rows.

    Raises:
        StructureError: there are too many.
    """
    width = closed.jaxpr.invars[-1].aval.size
    each = np.arange(width, dtype=np.int64) * (width + 1) if width else None
    operands: list[Value] = [*[(None, c) for c in constants], (each, None)]
    ((entries, _),) = _program(closed, operands, width)
    if entries is None:
        entries = np.zeros(0, np.int64)
    return entries // max(width, 1), entries % max(width, 1)


def _program(closed: Any, operands: Sequence[Value], width: int) -> list[Value]:
    """The results of a jaxpr."""
    if isinstance(closed, ClosedJaxpr):
        jaxpr, consts = closed.jaxpr, closed.consts
    else:
        jaxpr, consts = closed, ()
    if any([is_ref(v) for eqn in jaxpr.eqns for v in (*eqn.invars, *eqn.outvars)]):
        found = couples(jaxpr, [entries for entries, _ in operands], (), width)
        return [(entries, None) for entries in found]
    env: dict[Any, Value] = {}
    for var, c in zip(jaxpr.constvars, consts, strict=True):
        env[var] = (None, _constant(c))
    env.update(zip(jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Value:
        return (None, _constant(atom.val)) if isinstance(atom, Literal) else env[atom]

    for eqn in jaxpr.eqns:
        env.update(
            zip(eqn.outvars, _equation(eqn, [read(v) for v in eqn.invars], width), strict=True)
        )
    return [read(v) for v in jaxpr.outvars]


def _constant(value: Any) -> Constant | None:
    return None if isinstance(value, jax.core.Tracer) else Constant(lambda: value)


def _equation(eqn: Any, operands: list[Value], width: int) -> list[Value]:
    sets = [entries for entries, _ in operands]
    known = [constant for _, constant in operands]
    if all([s is None for s in sets]):
        return _evaluated(eqn, known)
    through = THROUGH.get(eqn.primitive.name)
    if through is not None:
        return through(eqn, operands, width)
    if (
        flag_of(eqn, "expensive") is not None
    ):  # of fad; a call of a Function: what it declares, or computes
        stated = _stated(eqn, sets, width)
        if stated is not None:
            return stated
        body = functools.partial(eqn.primitive.impl, **eqn.params)
        return _program(
            jax.make_jaxpr(body)(*[_struct(v.aval) for v in eqn.invars]), operands, width
        )
    for program in programs(eqn) if eqn.primitive.name in CALLS else ():
        counts = (len(_invars(program)), len(_outvars(program)))
        if counts == (len(operands), len(eqn.outvars)):
            return _program(program, operands, width)
    rule = RULES.get(eqn.primitive.name, couples)
    return [(entries, None) for entries in rule(eqn, sets, known, width)]


def _stated(eqn: Any, sets: Sequence[Entries | None], width: int) -> list[Value] | None:
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


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _invars(program: Any) -> Any:
    return (program.jaxpr if isinstance(program, ClosedJaxpr) else program).invars


def _outvars(program: Any) -> Any:
    return (program.jaxpr if isinstance(program, ClosedJaxpr) else program).outvars


def _evaluated(eqn: Any, known: Sequence[Constant | None]) -> list[Value]:
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


def _branches(eqn: Any, operands: list[Value], width: int) -> list[Value]:
    """``cond``: what any branch gives."""
    found = [_program(branch, operands[1:], width) for branch in branches(eqn)]
    return [(unite([r[k][0] for r in found]), None) for k in range(len(eqn.outvars))]


def _while(eqn: Any, operands: list[Value], width: int) -> list[Value]:
    """The body, until it adds nothing."""
    loop = while_parts(eqn)
    skipped, count = loop.cond_count, loop.body_count
    consts = operands[skipped : skipped + count]
    carry = [entries for entries, _ in operands[skipped + count :]]
    while True:
        given: list[Value] = [*consts, *[(entries, None) for entries in carry]]
        outs = _program(loop.body, given, width)
        more = [unite([old, new]) for old, (new, _) in zip(carry, outs, strict=True)]
        if all([_size(a) == _size(b) for a, b in zip(carry, more, strict=True)]):
            return [(entries, None) for entries in carry]
        carry = more


def _size(entries: Entries | None) -> int:
    return 0 if entries is None else entries.size


def _scan(eqn: Any, operands: list[Value], width: int) -> list[Value]:
    """Step by step: what a step depends on may differ."""
    scan = scan_parts(eqn)
    first, last = scan.constants, scan.constants + scan.carried
    consts, carry, xs = operands[:first], operands[first:last], operands[last:]
    outs = [v.aval for v in eqn.outvars[scan.carried :]]
    parts: list[list[Entries]] = [[] for _ in outs]
    steps = range(scan.length)
    for step in reversed(steps) if scan.reverse else steps:
        slices = [_step(x, v.aval, step, width) for x, v in zip(xs, eqn.invars[last:], strict=True)]
        results = _program(scan.body, [*consts, *carry, *slices], width)
        carry = results[: scan.carried]
        for part, (entries, _), aval in zip(parts, results[scan.carried :], outs, strict=True):
            if entries is not None:
                part.append(entries + step * (aval.size // scan.length) * width)
    return [*[(entries, None) for entries, _ in carry], *[(unite(part), None) for part in parts]]


def _step(x: Value, aval: Any, step: int, width: int) -> Value:
    entries, constant = x
    size = aval.size // aval.shape[0]
    row = take(entries, np.arange(step * size, (step + 1) * size), width)
    return row, None if constant is None else Constant(lambda: constant.value()[step])


CALLS = """jit pjit closed_call core_call remat remat2 checkpoint custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr xla_call eval_jaxpr
    call_hi_primitive""".split()
THROUGH = {"cond": _branches, "scan": _scan, "while": _while}
