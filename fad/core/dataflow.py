"""Analyses of programs: from facts about the inputs of a jaxpr to facts about its results.

NOTE [analyses go through bodies]

    turn = lambda i, c: (c[1], c[2], c[0])
    f = fad.jit(lambda x: fad.lax.fori_loop(0, 2, turn, (0.0, 0.0, x))[0])
    fad.grad(f)(2.0)  # 1.0

No iteration alone takes ``x`` to the first place. So a body is analysed again and again until the facts about
its carry are a fixed point. There is one: `Dataflow.union` only adds to a fact, and a fact can grow only a
finite number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fad.core.jaxapi import Literal, WhileParts, branches, loop_parts, scan_parts
from fad.core.jaxprs import is_ref, opened
from fad.core.types import Atom, JaxBody, JaxEquation, JaxProgram

V = TypeVar("V")


class Dataflow(Generic[V]):
    """One analysis: a fact of type ``V`` about each variable, forwards, equation by equation.

    What an equation gets may be written to each Ref among its operands, and read from it later.

    ``chooses``: the results of a choice or a loop depend on what chooses the branch, or ends the loop.
    """

    chooses = False

    def constant(self, value: object) -> V:
        """The fact about a constant."""
        raise NotImplementedError

    def union(self, found: Sequence[V]) -> V:
        """The fact about a variable that may be any of several."""
        raise NotImplementedError

    def same(self, a: V, b: V) -> bool:
        """Whether ``b``, a union with ``a``, adds nothing to ``a``."""
        return a == b

    def equation(self, eqn: JaxEquation, given: list[V]) -> list[V]:
        """The facts about the results of an equation; `inside` gives those of loops and branches."""
        raise NotImplementedError

    def results(self, program: JaxProgram | JaxBody, given: Sequence[V]) -> list[V]:
        """The facts about the results of a jaxpr, from the facts ``given`` about its inputs."""
        jaxpr, consts = opened(program), getattr(program, "consts", ())
        env = dict(zip(jaxpr.constvars, map(self.constant, consts), strict=True))
        env.update(zip(jaxpr.invars, given, strict=True))

        def read(atoms: Sequence[Atom]) -> list[V]:
            return [self.constant(v.val) if isinstance(v, Literal) else env[v] for v in atoms]

        for eqn in jaxpr.eqns:
            operands = read(eqn.invars)
            env.update(zip(eqn.outvars, self.equation(eqn, operands), strict=True))
            refs = [v for v in eqn.invars if is_ref(v)]
            if refs:
                env.update(dict.fromkeys([*refs, *eqn.outvars], self.union(operands)))
        return read(jaxpr.outvars)

    def inside(self, eqn: JaxEquation, given: list[V]) -> list[V] | None:
        """`equation` for a choice of branches or a loop, and None for others."""
        name = eqn.primitive.name
        if name == "cond":
            which, *operands = given
            found = [self.results(branch, operands) for branch in branches(eqn)]
            if self.chooses:
                found.append([which] * len(eqn.outvars))
            return list(map(self.union, zip(*found, strict=True)))
        if name == "scan":
            return self.scan(eqn, given)
        loop = loop_parts(eqn)
        if loop is None:
            return None
        outs = self._while(loop, given)
        return [*outs, *[self.union(given)] * (len(eqn.outvars) - len(outs))]  # what it stores

    def scan(self, eqn: JaxEquation, given: list[V]) -> list[V]:
        """`inside` for ``scan``; all elements of an array have one fact."""
        scan = scan_parts(eqn)
        first, last = scan.constants, scan.constants + scan.carried
        constants, elements = given[:first], given[last:]
        return self._repeated(
            lambda carry: self.results(scan.body, [*constants, *carry, *elements]),
            given[first:last],
        )

    def _while(self, loop: WhileParts, given: list[V]) -> list[V]:
        first, last = loop.cond_count, loop.cond_count + loop.body_count
        body = loop.body.jaxpr
        passed_on = [a is b for a, b in zip(body.invars[last - first :], body.outvars, strict=True)]

        def step(carry: list[V]) -> list[V]:
            outs = self.results(loop.body, [*given[first:last], *carry])
            if not self.chooses:
                return outs
            ends = self.results(loop.cond, [*given[:first], *carry])
            return [
                v if same else self.union([v, *ends])
                for v, same in zip(outs, passed_on, strict=True)
            ]

        return self._repeated(step, given[last:])

    def _repeated(self, step: Callable[[list[V]], list[V]], carry: Sequence[V]) -> list[V]:
        """The fixed point of ``step``; see NOTE [analyses go through bodies]."""
        carry = [self.union([v]) for v in carry]
        while True:
            outs = step(carry)
            more = [self.union(pair) for pair in zip(carry, outs, strict=False)]
            if all(map(self.same, carry, more)):
                return [*carry, *outs[len(carry) :]]
            carry = more
