"""Derivatives of high order: Taylor mode, and jvp in jvp."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import fad
from benchmarks.libraries import Library
from benchmarks.scenarios import SMALL_NET, Scenario

__all__ = ["SCENARIOS"]

NESTED = 6  # the largest order at which nested jvp starts within seconds: 10 takes minutes, 9 one
ONES = np.ones_like(SMALL_NET.inputs[0])


def nested(f: Callable[[Any], Any], x: Any, order: int) -> Any:
    """The derivative of ``f`` along ones, by jvp in jvp."""
    if order == 0:
        return f(x)
    return fad.jvp(lambda x: nested(f, x, order - 1), (x,), (jnp.asarray(ONES),))[1]


def last(order: int) -> Callable[[Library], Callable[[], Any]]:
    """The derivative of this order."""

    def build(library: Library) -> Callable[[], Any]:
        function, (x, *weights) = SMALL_NET.on(library)

        def f(x: Any) -> Any:
            return function(x, *weights)

        if library.name == "plain":
            return lambda: nested(f, x, order)
        return lambda: fad.derivatives(f, x, order)[-1]

    return build


def seconds(order: int) -> Callable[[Library], Callable[[], float]]:
    """How long `last` takes, without replay in both; of nested jvp, at most.

    NOTE [how long nested jvp of order 10 takes]
    It is called at order 6, and each further order counts as twice the one before: it computes that one,
    and its tangent. This is less than it takes: the orders 3 to 9 took 3.2, 5.4, 8.2, 13, 24, 53 and 136 ms
    on one core, and their first calls 0.7, 1.9, 1.9, 2.4, 6.6, 17 and 77 s.
    """

    def build(library: Library) -> Callable[[], float]:
        run = min(order, NESTED) if library.name == "plain" else order
        call = last(run)(library)

        def timed() -> float:
            with fad.autograd.compiled(False):
                library.wait(call())
                start = time.perf_counter()
                library.wait(call())
                return (time.perf_counter() - start) * 2 ** (order - run)

        return timed

    return build


def scenarios() -> Iterator[Scenario]:
    work, both = SMALL_NET.name, ("fad", "plain")
    yield Scenario(work, "derivatives of order 3", last(3), both, {"plain": 1.0})
    what = "derivatives of order 10; nested: 16 times order 6"
    yield Scenario(work, what, seconds(10), both, {"plain": 0.05}, unit="ms", turns=5)


SCENARIOS: list[Scenario] = [*scenarios()]
