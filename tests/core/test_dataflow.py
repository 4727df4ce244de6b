"""Analyses of programs: one that counts what a value may come of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fad
from fad.core.dataflow import Dataflow


class Sources(Dataflow[frozenset[str]]):
    """The names of the inputs that a value comes of."""

    def constant(self, value: Any) -> frozenset[str]:
        return frozenset(["constant"])

    def union(self, found: Sequence[frozenset[str]]) -> frozenset[str]:
        return frozenset().union(*found)

    def equation(self, eqn: Any, given: list[frozenset[str]]) -> list[frozenset[str]]:
        found = self.inside(eqn, given)
        return [self.union(given)] * len(eqn.outvars) if found is None else found


class Choices(Sources):
    chooses = True


def sources(f: Any, names: str, kind: type[Sources] = Sources) -> list[str]:
    program = jax.make_jaxpr(f)(*[1.0] * len(names))
    found = kind().results(program, [frozenset([n]) for n in names])
    return ["".join(sorted(s - {"constant"})) for s in found]


def turned(a: Any, b: Any, c: Any) -> Any:
    return jax.lax.fori_loop(0, a.astype(int), lambda i, x: (x[1], x[2], x[0]), (a, b, c))


def ends(a: Any, b: Any, c: Any) -> Any:
    """A loop that ends by its first value, changes its second one, and passes the third one on."""
    step = lambda x: (x[0] - 1.0, x[1] * b, x[2])
    return jax.lax.while_loop(lambda x: x[0] > 0.0, step, (a, 1.0, c))


def summed(a: Any, b: Any, c: Any) -> Any:
    return jax.lax.scan(lambda s, x: (s + x, s * c), a, jnp.ones(3) * b)


def chosen(a: Any, b: Any, c: Any) -> Any:
    return jax.lax.cond(a > 0.0, lambda b, c: (b, b * 2), lambda b, c: (c, b * 3), b, c)


@pytest.mark.parametrize(
    ("f", "plain", "choosing"),
    [
        (lambda a, b, c: (a * b, c, 1.0), ["ab", "c", ""], ["ab", "c", ""]),
        (summed, ["ab", "abc"], ["ab", "abc"]),
        (chosen, ["bc", "b"], ["abc", "ab"]),
        (ends, ["a", "b", "c"], ["a", "ab", "c"]),
        (turned, ["abc", "abc", "abc"], ["abc", "abc", "abc"]),
    ],
    ids=["straight", "scan", "cond", "while", "several iterations"],
)
def test_what_results_come_of(f: Any, plain: list[str], choosing: list[str]) -> None:
    assert sources(f, "abc") == plain
    assert sources(f, "abc", Choices) == choosing


def test_constants_of_a_program() -> None:
    kept = jnp.arange(3.0)
    program = jax.make_jaxpr(lambda x: kept)(1.0)
    assert Sources().results(program, [frozenset("x")]) == [frozenset(["constant"])]


def test_what_only_several_iterations_move_is_differentiated() -> None:
    turn = lambda i, c: (c[1], c[2], c[0])
    f = fad.jit(lambda x: fad.lax.fori_loop(0, 2, turn, (0.0, 0.0, x))[0])
    assert float(fad.grad(f)(2.0)) == 1.0
