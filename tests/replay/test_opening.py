"""Where traces begin: with a function that repeats, with a step that repeats, and nowhere else."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import leaf
from repeated import TIMES, hits, same

import fad
import fad.numpy as fnp
from fad.replay.opening import _codes

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


def f(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * x * 2.0)


def replayed(run: Any) -> bool:
    """Whether programs run when ``run()`` is called again and again, each time with the same result."""
    with fad.autograd.compiled(False):
        expected = run()
    before = hits()
    with fad.autograd.compiled(wait=True):
        for _ in range(TIMES):
            same(run(), expected)
    return hits() > before


def test_a_function_is_found_again_by_its_code() -> None:
    def made(k: float) -> Any:
        return lambda x: f(x) * k

    assert replayed(lambda: [fad.grad(made(k))(X) for k in (1.0, 2.0)])

    @functools.wraps(f)
    def wrapped(x: Any) -> Any:
        return f(x)

    class Callable:
        def __call__(self, x: Any) -> Any:
            return f(x)

    assert replayed(lambda: fad.grad(wrapped)(X)) and replayed(lambda: fad.grad(Callable())(X))
    assert _codes(wrapped) == [wrapped.__code__, f.__code__]
    assert _codes(Callable()) == [Callable] and _codes(f) == [f.__code__]


def test_a_function_that_wraps_itself_ends() -> None:
    def loop(x: Any) -> Any:
        return f(x)

    loop.__wrapped__ = loop  # type: ignore[attr-defined]
    assert 0 < len(_codes(loop)) < 20
    same(fad.grad(loop)(X), jax.grad(lambda x: jnp.sum(jnp.sin(x) * x * 2.0))(X))


def test_an_instance_of_the_same_class_may_do_something_else() -> None:
    class Power:
        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, x: Any) -> Any:
            for _ in range(self.n):
                x = x * X
            return fnp.sum(x)

    with fad.autograd.compiled(wait=True):
        for n in (1, 2, 3, 1, 2, 3):
            same(fad.grad(Power(n))(X), X**n)


def test_a_step_begins_with_an_operation_on_leaves() -> None:
    def step() -> Any:
        w = leaf(X)
        (fnp.sin(w) * w * 2.0).sum().backward()
        return w.grad

    assert replayed(step)


@pytest.mark.parametrize("around", ["jax.jit", "anomaly mode", "off"])
def test_nothing_is_traced_where_operations_are_observed(around: str) -> None:
    run = lambda: fad.grad(f)(X)
    before = hits()
    for _ in range(TIMES):
        if around == "jax.jit":
            jax.jit(lambda x: fad.grad(f)(x))(X)
        elif around == "off":
            with fad.autograd.compiled(False):
                run()
        else:
            with fad.autograd.detect_anomaly():
                run()
    assert hits() == before
