"""Programs that are transposed: the calls of Functions in them, on what they are linear in.

A Primitive may call Functions in its program: so do a compiled rule (``jax_rules``), `jit` and the loops.
Where it is recorded in the transposition of a rule, those of its calls that depend on what it is linear in
become linear calls; see NOTE [linear calls]. The others keep their rules, for derivatives of higher order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fad.core.avals import aval_of
from fad.core.dataflow import Dataflow
from fad.core.jaxapi import ClosedJaxpr, called, run_jaxpr, with_parameters
from fad.core.jaxprs import inner_jaxprs, trace, with_programs
from fad.core.primitive import Primitive
from fad.core.types import Array, JaxBody, JaxEquation, JaxProgram, Mask, Operand, Outputs
from fad.functions.rules import CallRules

# The rules of a call that is linear in some of its inputs, from the rules of the call.
LinearCall: TypeAlias = Callable[[CallRules, Mask], CallRules]


def with_linear_calls(
    primitive: Primitive, mask: Mask, args: Sequence[Operand], linear_call: LinearCall
) -> Primitive:
    """``primitive``, which is linear in the masked arguments, with the calls in it that depend on these as
    linear calls; itself where there are none.
    """
    if not primitive.jit or primitive.to_vjp is not primitive.flat:  # it has rules of its own
        return primitive
    avals = tuple(map(aval_of, args))
    key, versions = (mask, avals), primitive.linear_versions
    if key not in versions:
        found = primitive.collective or _Linear().of(trace(primitive.flat, avals)[0], mask)
        versions[key] = _version(primitive, mask, linear_call) if found else None
    return versions[key] or primitive


def _version(primitive: Primitive, mask: Mask, linear_call: LinearCall) -> Primitive:
    flat = primitive.flat

    def linear(*values: Array) -> Outputs:
        closed, shape = trace(flat, map(aval_of, values))
        closed = ClosedJaxpr(_unshared(closed.jaxpr), closed.consts)
        jaxpr = _replaced(_Linear().of(closed, mask), linear_call, closed.jaxpr)
        out = run_jaxpr(ClosedJaxpr(jaxpr, closed.consts), *values)
        return tuple(out) if type(shape) is tuple else out[0]

    shared = primitive.shared is not None
    made = Primitive(primitive.name, linear, collective=primitive.collective, shared=shared)
    made.dependence, made.paths = primitive.dependence, primitive.paths
    made.primals, made.calls_host = primitive.primals, primitive.calls_host
    return made


def _unshared(jaxpr: JaxBody) -> JaxBody:
    """The same program, in which no two calls have the same equations: they may be of different values."""
    return jaxpr.replace(eqns=[with_programs(eqn.replace(), _unshared) for eqn in jaxpr.eqns])


def _replaced(calls: Mapping[int, Mask], linear_call: LinearCall, jaxpr: JaxBody) -> JaxBody:
    """A program in which these calls, by the ids of their equations, are linear in the masked inputs."""
    inside = functools.partial(_replaced, calls, linear_call)
    eqns = [
        with_parameters(eqn, rules=linear_call(eqn.params["rules"], calls[id(eqn)]))
        if id(eqn) in calls
        else with_programs(eqn, inside)
        for eqn in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=eqns)


class _Linear(Dataflow[bool]):
    """Which values depend on what a program is linear in.

    ``calls``: of the calls of Functions that get such values, which inputs these are, by the ids of their
    equations.
    """

    def __init__(self) -> None:
        self.calls: dict[int, Mask] = {}

    def of(self, program: JaxProgram, mask: Mask) -> Mapping[int, Mask]:
        """The calls in a program that is linear in its masked inputs."""
        self.results(program, mask)
        return self.calls

    def constant(self, value: object) -> bool:
        return False

    def union(self, found: Sequence[bool]) -> bool:
        return any(found)

    def equation(self, eqn: JaxEquation, given: list[bool]) -> list[bool]:
        if not any(given):
            return [False] * len(eqn.outvars)
        if eqn.primitive.name == "fad_call":  # in loops, each pass finds more
            self.calls[id(eqn)] = tuple(given)
        closed = called(eqn)
        if closed is not None:
            return self.results(closed, given[len(given) - len(closed.jaxpr.invars) :])
        found = self.inside(eqn, given)
        if found is not None:
            return found
        for inner in inner_jaxprs(eqn):
            count = len(inner.invars)
            self.results(inner, given if count == len(given) else [True] * count)
        return [True] * len(eqn.outvars)
