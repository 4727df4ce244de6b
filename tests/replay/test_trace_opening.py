"""Where traces begin: with a function that repeats, with a step that repeats, and nowhere else."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from replays import Table, law

import fad
import fad.numpy as fnp
from fad.replay.trace import _codes

X = jnp.array([0.5, 1.0, 1.5, 2.0])
pytestmark = pytest.mark.usefixtures("fresh_traces")
CALLS = Table()


def f(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * x * 2.0)


@functools.wraps(f)
def wrapped(x: Any) -> Any:
    return f(x)


def wraps_itself(x: Any) -> Any:
    return f(x)


wraps_itself.__wrapped__ = wraps_itself  # type: ignore[attr-defined]


class Power:
    """Another instance may do something else."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: Any) -> Any:
        for _ in range(self.n):
            x = x * X
        return fnp.sum(x)


@CALLS.row()
def functions_are_found_by_their_code() -> Any:
    scaled = [lambda x, k=k: f(x) * k for k in (1.0, 2.0)]
    return [fad.grad(g)(X) for g in (*scaled, wrapped, wraps_itself, *map(Power, (1, 2, 3, 1, 2)))]


CALLS["a wrapped function"] = lambda: fad.grad(wrapped)(X), True
CALLS["an instance"] = lambda: fad.grad(Power(2))(X), True
CALLS["under jit"] = lambda: jax.jit(lambda x: fad.grad(f)(x))(X), False
CALLS["switched off"] = lambda: fad.autograd.compiled(False)(fad.grad(f))(X), False
CALLS["in anomaly mode"] = lambda: fad.autograd.detect_anomaly()(fad.grad(f))(X), False


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_as_without_replay(name: str) -> None:
    law(*CALLS[name])


def test_the_codes_of_a_function() -> None:
    assert _codes(wrapped) == [wrapped.__code__, f.__code__] and _codes(f) == [f.__code__]
    assert _codes(Power(1)) == [Power] and 0 < len(_codes(wraps_itself)) < 20
