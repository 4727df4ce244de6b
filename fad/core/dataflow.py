"""Analyses of programs: facts about results from facts about inputs, and what depends on what."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fad.core.avals import struct_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import Literal, WhileParts, branches, called, loop_parts, programs, scan_parts
from fad.core.jaxprs import is_ref, opened, trace
from fad.core.types import ArrayFunction, Atom, Aval, JaxBody, JaxEquation, JaxProgram

# Analyses of programs: from facts about the inputs of a jaxpr to facts about its results.
#
# NOTE [analyses go through bodies]
#
#     turn = lambda i, c: (c[1], c[2], c[0])
#     f = fad.jit(lambda x: fad.lax.fori_loop(0, 2, turn, (0.0, 0.0, x))[0])
#     fad.grad(f)(2.0)  # 1.0
#
# No iteration alone takes ``x`` to the first place. So a body is analysed again and again until the facts
# about its carry are a fixed point. There is one: `Dataflow.union` only adds to a fact, and a fact can grow
# only a finite number of times.

V = TypeVar("V")


class Dataflow(Generic[V]):
    """One analysis: a fact of type ``V`` about each variable, forwards, equation by equation.

    Write `constant`, `union` and `equation`; `results` analyses a program. What an equation gets may be
    written to each Ref among its operands, and read from it later.

    ``chooses``: the results of a choice or a loop depend on what chooses the branch, or ends the loop.

    >>> import fad, jax
    >>> class Depth(fad.extend.Dataflow):  # the longest chain of operations that leads to a value
    ...     def constant(self, value):
    ...         return 0
    ...     def union(self, several):
    ...         return max(several)
    ...     def equation(self, eqn, operands):
    ...         return self.inside(eqn, operands) or [1 + max(operands)] * len(eqn.outvars)
    >>> program = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0.0, lambda x: x * x + x, abs, x))(1.0)
    >>> Depth().results(program, [0])
    [2]
    """

    chooses = False

    def constant(self, value: object) -> V:
        """The fact about a constant."""
        raise NotImplementedError

    def union(self, several: Sequence[V]) -> V:
        """The fact about a variable that may be any of several."""
        raise NotImplementedError

    def same(self, a: V, b: V) -> bool:
        """Whether ``b``, a union with ``a``, adds nothing to ``a``."""
        return a == b

    def equation(self, eqn: JaxEquation, operands: list[V]) -> list[V]:
        """The facts about the results of an equation; `inside` gives those of loops and branches."""
        raise NotImplementedError

    @staticmethod
    def not_taken(jaxpr: JaxBody) -> list[JaxEquation]:
        """The equations ``stop_gradient`` of which each result is only a choice beside what it was made of:
        JAX's vmap of a ``cond`` runs each branch on all lanes of ``select_n(taken, stop_gradient(x), x)``.
        """
        stops = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "stop_gradient"]
        if not stops:
            return stops
        uses: dict[Atom, list[JaxEquation]] = {}
        for eqn in jaxpr.eqns:
            for v in eqn.invars:
                if not isinstance(v, Literal):
                    uses.setdefault(v, []).append(eqn)

        def selects(eqn: JaxEquation) -> bool:
            x, out = eqn.invars[0], eqn.outvars[0]
            return out not in jaxpr.outvars and all(
                [e.primitive.name == "select_n" and x in e.invars[1:] for e in uses.get(out, ())]
            )

        return list(filter(selects, stops))

    def results(self, program: JaxProgram | JaxBody, inputs: Sequence[V]) -> list[V]:
        """The facts about the results of a jaxpr, from those about its ``inputs``."""
        jaxpr, consts = opened(program), getattr(program, "consts", ())
        env = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atoms: Sequence[Atom]) -> list[V]:
            return [self.constant(v.val) if isinstance(v, Literal) else env[v] for v in atoms]

        for eqn in jaxpr.eqns:
            operands = read(eqn.invars)
            env.update(zip(eqn.outvars, self.equation(eqn, operands), strict=True))
            refs = [v for v in eqn.invars if is_ref(v)]
            if refs:
                env.update(dict.fromkeys([*refs, *eqn.outvars], self.union(operands)))
        return read(jaxpr.outvars)

    def inside(self, eqn: JaxEquation, operands: list[V]) -> list[V] | None:
        """`equation` for a choice of branches or a loop, and None for others."""
        name = eqn.primitive.name
        if name == "cond":
            which, *of_branch = operands
            of_branches = [self.results(branch, of_branch) for branch in branches(eqn)]
            if self.chooses:
                of_branches.append([which] * len(eqn.outvars))
            return list(map(self.union, zip(*of_branches, strict=True)))
        if name == "scan":
            return self.scan(eqn, operands)
        loop = loop_parts(eqn)
        if loop is None:
            return None
        outs = self._while(loop, operands)
        return [*outs, *[self.union(operands)] * (len(eqn.outvars) - len(outs))]  # what it stores

    def scan(self, eqn: JaxEquation, operands: list[V]) -> list[V]:
        """`inside` for ``scan``; all elements of an array have one fact."""
        scan = scan_parts(eqn)
        first, last = scan.constants, scan.constants + scan.carried
        constants, elements = operands[:first], operands[last:]
        return self._repeated(
            lambda carry: self.results(scan.body, [*constants, *carry, *elements]),
            operands[first:last],
        )

    def _while(self, loop: WhileParts, operands: list[V]) -> list[V]:
        first, last = loop.cond_count, loop.cond_count + loop.body_count
        body = loop.body.jaxpr
        passed_on = [a is b for a, b in zip(body.invars[last - first :], body.outvars, strict=True)]

        def step(carry: list[V]) -> list[V]:
            outs = self.results(loop.body, [*operands[first:last], *carry])
            if not self.chooses:
                return outs
            ends = self.results(loop.cond, [*operands[:first], *carry])
            return [
                v if same else self.union([v, *ends])
                for v, same in zip(outs, passed_on, strict=True)
            ]

        return self._repeated(step, operands[last:])

    def _repeated(self, step: Callable[[list[V]], list[V]], carry: Sequence[V]) -> list[V]:
        """The fixed point of ``step``; see NOTE [analyses go through bodies]."""
        carry = [self.union([v]) for v in carry]
        while True:
            outs = step(carry)
            more = [self.union(pair) for pair in zip(carry, outs, strict=False)]
            if all(map(self.same, carry, more)):
                return [*carry, *outs[len(carry) :]]
            carry = more


# Which outputs of a program depend on which of its inputs, as far as derivatives go.
#
# NOTE [what depends is decided by the graph]
#
#     y, z = fad.jit(lambda x, a: (x * a, a * 2.0))(x, fad.tensor(3.0))
#     assert y.requires_grad and not z.requires_grad  # though one program computes both
#
# Whether a result requires grad, and whether an input counts as used, is read off the program, as PyTorch
# reads it off its graph; never off the numbers. A path leads from an input to an output, or none does.
#
# * What compiled code computes (`COMPUTED`): paths lead through values of floating or complex dtype. What is
#   computed of a comparison or of integers does not require grad, as in eager code.
# * What a derivative computes (`READ`): paths lead through all that it reads, so comparisons too. The
#   derivative of ``x * a`` in x is ``a``: there x is unused. That of ``relu`` compares x: there x is used,
#   with a derivative of zero.
#
# What is written to a Ref of JAX is read by all that uses the Ref afterwards.
#
# A path ends at ``stop_gradient``, and where nothing was recorded (NOTE [no_grad in traced code]). A call
# with rules of its own is not looked into: its outputs depend on all of its inputs.
#
# Where a program is to be transposed, what ends there matters: `flows` says which outputs depend on an input
# by a path that would have to go on (`DROPPED`).

# For each output, for each input, whether it depends on it.
DependenceRows = tuple[tuple[bool, ...], ...]

# What is a path: see the NOTE above.
COMPUTED, READ = "computed", "read"


def dependence_rows(
    flat: ArrayFunction, mask: Sequence[bool], avals: Sequence[Aval], paths: str
) -> DependenceRows:
    """On which of its masked inputs each output of ``flat`` depends."""
    closed, _ = trace(flat, map(struct_of, avals))
    return rows_of(closed, mask, paths)


def rows_of(program: JaxProgram, mask: Sequence[bool], paths: str) -> DependenceRows:
    """`dependence_rows` of a program."""
    results = _Dependence(paths).results(program, [m << k for k, m in enumerate(mask)])
    return tuple([tuple([bool(bits >> k & 1) for k in range(len(mask))]) for bits in results])


class _Dependence(Dataflow[int]):
    """The inputs that a value depends on: a set, as bits."""

    def __init__(self, paths: str) -> None:
        self.paths = paths

    def constant(self, value: object) -> int:
        return 0

    def union(self, several: Sequence[int]) -> int:
        return functools.reduce(operator.or_, several, 0)

    def results(self, program: JaxProgram | JaxBody, inputs: Sequence[int]) -> list[int]:
        return super().results(program, self._along_paths(opened(program).invars, inputs))

    def _along_paths(self, variables: Sequence[Atom], facts: Sequence[int]) -> list[int]:
        pairs = zip(variables, facts, strict=True)
        return [b if self.paths == READ or is_inexact(v.aval.dtype) else 0 for v, b in pairs]

    def equation(self, eqn: JaxEquation, operands: list[int]) -> list[int]:
        if not any(operands):
            return [0] * len(eqn.outvars)
        return self._along_paths(eqn.outvars, self._results_of(eqn, operands))

    def _results_of(self, eqn: JaxEquation, operands: list[int]) -> list[int]:
        name = eqn.primitive.name
        closed = called(eqn)
        if closed is not None:
            return self.results(closed, operands[len(operands) - len(closed.jaxpr.invars) :])
        if name == "stop_gradient":
            return [0]
        if name == "fad_unrecorded":
            return [operands[1] if len(operands) > 1 else 0]
        if name == "optimization_barrier":
            return operands
        if name == "remat2":
            return self.results(next(programs(eqn)), operands)
        facts = self.inside(eqn, operands)
        return [self.union(operands)] * len(eqn.outvars) if facts is None else facts


def tangent_rows(program: JaxProgram | JaxBody, mask: Sequence[bool]) -> tuple[bool, ...]:
    """Which results of a program have a tangent where the masked inputs have one."""
    return tuple(map(bool, _Tangents(COMPUTED).results(program, list(map(int, mask)))))


class _Tangents(_Dependence):
    """In forward mode: tangents pass where nothing was recorded."""

    def _results_of(self, eqn: JaxEquation, operands: list[int]) -> list[int]:
        if eqn.primitive.name == "fad_unrecorded":
            return [self.union(operands)]
        return super()._results_of(eqn, operands)


# How a value depends on what is transposed: by what is recorded, and by what is not.
RECORDED, DROPPED = 1, 2


def flows(flat: ArrayFunction, inputs: Sequence[int], avals: Sequence[Aval]) -> list[int]:
    """How each output of ``flat`` depends on what is transposed, if its inputs depend so (bits)."""
    closed, _ = trace(flat, map(struct_of, avals))
    return _Flow(COMPUTED).results(closed, inputs)


class _Flow(_Dependence):
    """`flows`: a value where a path ends has `DROPPED` in place of `RECORDED`."""

    def __init__(self, paths: str) -> None:
        super().__init__(paths)
        self.same_as_before: set[int] = set()  # equations, by id

    def results(self, program: JaxProgram | JaxBody, inputs: Sequence[int]) -> list[int]:
        body: JaxBody = opened(program)
        self.same_as_before.update(map(id, self.not_taken(body)))
        return super().results(program, inputs)

    def _results_of(self, eqn: JaxEquation, operands: list[int]) -> list[int]:
        if eqn.primitive.name == "fad_call":
            solved = eqn.params["rules"].solved
            operands = [*[0] * solved, *operands[solved:]]
        # The derivative of ``fad_unrecorded`` is that of its second operand, its value is not.
        if eqn.primitive.name in ("stop_gradient", "fad_unrecorded"):
            return operands if id(eqn) in self.same_as_before else [DROPPED]
        return super()._results_of(eqn, operands)
