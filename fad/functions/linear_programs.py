"""Programs that are transposed: the calls of Functions in them, on what they are linear in.

A Primitive may call Functions in its program: so do a compiled rule (``jax_rules``), `jit` and the loops.
Where it is recorded in the transposition of a rule, those of its calls that depend on what it is linear in
become calls of `fad.functions.rules.LinearRules`; see NOTE [linear calls] there. The others keep their rules,
for derivatives of higher order.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

from fad.core.avals import aval_of
from fad.core.dataflow import Dataflow
from fad.core.jaxapi import ClosedJaxpr, called, run_jaxpr
from fad.core.jaxprs import inner_jaxprs, stops_of_untaken, trace, with_programs
from fad.core.primitive import Primitive
from fad.core.types import Array, JaxBody, JaxEquation, JaxProgram, Mask, Operand, Outputs
from fad.errors import GradientError


def with_linear_calls(
    primitive: Primitive, mask: Mask, args: Sequence[Operand], of_body: bool
) -> Primitive:
    """``primitive``, which is linear in the masked arguments, with the calls in it that depend on these as
    linear calls; itself where there are none.

    Arguments:
        of_body: it is called in the body of a Function, which is transposed as it computes: there no gradient
            is to be stopped.

    Raises:
        GradientError: one is.
    """
    if not primitive.jit or primitive.to_vjp is not primitive.flat:  # it has rules of its own
        return primitive
    avals = tuple(map(aval_of, args))
    found = primitive.linear_versions.get((mask, of_body, avals))
    if found is None:
        if primitive.collective or _Linear(of_body).of(trace(primitive.flat, avals)[0], mask):
            found = _version(primitive, mask, of_body)
        primitive.linear_versions[mask, of_body, avals] = found = found or primitive
    return found


def _version(primitive: Primitive, mask: Mask, of_body: bool) -> Primitive:
    flat = primitive.flat

    def linear(*values: Array) -> Outputs:
        closed, shape = trace(flat, map(aval_of, values))
        calls = _Linear(of_body).of(closed, mask)
        out = run_jaxpr(ClosedJaxpr(_replaced(calls, closed.jaxpr), closed.consts), *values)
        return tuple(out) if type(shape) is tuple else out[0]

    made = Primitive(primitive.name, linear, collective=primitive.collective)
    made.dependence, made.paths = primitive.dependence, primitive.paths
    made.primals, made.calls_host = primitive.primals, primitive.calls_host
    return made


def _replaced(calls: Collection[int], jaxpr: JaxBody) -> JaxBody:
    """A program in which these calls, by the ids of their equations, are linear."""
    inside = functools.partial(_replaced, calls)
    eqns = [
        eqn.replace(params={"rules": eqn.params["rules"].linear_call()})
        if id(eqn) in calls
        else with_programs(eqn, inside)
        for eqn in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=eqns)


class _Linear(Dataflow[bool]):
    """Which values depend on what a program is linear in.

    ``calls``: the calls of Functions that get such a value, by the ids of their equations.
    ``untaken``: the ids of equations that stop gradients where JAX does so for a vmap.
    """

    def __init__(self, of_body: bool) -> None:
        self.of_body = of_body
        self.calls: dict[int, JaxEquation] = {}
        self.untaken: set[int] = set()

    def of(self, program: JaxProgram, mask: Mask) -> Collection[int]:
        """The ids of the equations in a program, linear in its masked inputs, that are linear calls."""
        if self.of_body:
            self._note_untaken(program.jaxpr)
        self.results(program, mask)
        return self.calls.keys()

    def _note_untaken(self, jaxpr: JaxBody) -> None:
        self.untaken |= stops_of_untaken(jaxpr)
        for eqn in jaxpr.eqns:
            for inner in inner_jaxprs(eqn):
                self._note_untaken(inner)

    def constant(self, value: object) -> bool:
        return False

    def union(self, found: Sequence[bool]) -> bool:
        return any(found)

    def equation(self, eqn: JaxEquation, given: list[bool]) -> list[bool]:
        if not any(given):
            return [False] * len(eqn.outvars)
        name = eqn.primitive.name
        if name == "fad_call":
            self.calls[id(eqn)] = eqn
        if self.of_body and name in _STOPPING and id(eqn) not in self.untaken:
            raise GradientError(
                "compiled code in forward, which is transposed where it is called on a tangent, makes a "
                "constant of what it is given (stop_gradient, detach or no_grad): take that out of it"
            )
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


_STOPPING = frozenset({"stop_gradient", "fad_unrecorded"})
