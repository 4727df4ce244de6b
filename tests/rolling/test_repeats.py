"""Programs in numbers, and the stretches of them that repeat."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.rolling.repeats import Numbered, PythonLoop, candidates, find_loops


def numbered(f: Any, *args: Any) -> Numbered:
    return Numbered(jax.make_jaxpr(f)(*args))


def test_equal_operations_are_one_and_unused_ones_none() -> None:
    def f(x: Any) -> Any:
        jnp.cos(x)
        return jnp.sin(x) + jnp.sin(x) * 2.0

    assert [e.primitive.name for e in numbered(f, 1.0).eqns] == ["sin", "mul", "add"]


def test_kinds_do_not_tell_numbers_and_places() -> None:
    def f(x: Any) -> Any:
        return x[0:2] * 3.0 + x[1:3] * 4.0

    kinds = numbered(f, jnp.ones(3)).kinds.tolist()
    assert kinds == [kinds[0], kinds[1], kinds[0], kinds[1], kinds[4]]


def test_periods_are_found() -> None:
    kinds = np.array([7, 7, *[1, 2, 3] * 10, 8, *[4] * 9, 9])
    found = candidates(kinds)
    assert found[0] == (3, 2, 32) and (1, 33, 42) in found


def test_a_loop_may_begin_in_the_middle_of_a_repeat() -> None:
    """What the first repeat computes for all is not in the others."""

    def f(x: Any, c: Any) -> Any:
        for _ in range(40):
            x = jnp.sin(x * jnp.exp(c)) + x
            x = x - jnp.cos(x)
        return x

    program = numbered(f, 1.0, 2.0)
    (loop,) = find_loops(program)
    assert loop.period == 5 and loop.count >= 39
    assert isinstance(loop, PythonLoop) and loop.saved == (loop.count - 1) * 5


def test_finding_costs_some_calls_for_each_equation() -> None:
    """Few, and not more in a long program; tracing an equation takes hundreds."""

    def calls_of(count: int) -> float:
        def f(x: Any) -> Any:
            for k in range(count):
                x = jnp.sin(x) * float(k) + x * 0.5 - 1.0
            return x

        closed = jax.make_jaxpr(f)(1.0)
        calls = 0

        def note(frame: object, event: str, arg: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            (loop,) = find_loops(Numbered(closed))
        finally:
            sys.setprofile(before)
        assert loop.count == count
        return calls / len(closed.jaxpr.eqns)

    few, many = calls_of(200), calls_of(1000)
    assert many < 1.1 * few and many < 60
