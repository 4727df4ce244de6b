"""Segments of long programs: few programs for a long loop."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from replays import assert_bits, off

import fad
import fad.numpy as fnp

X = jnp.array([0.5, 1.0, 1.5])
pytestmark = pytest.mark.usefixtures("cleared_caches")


def test_the_segments_of_a_loop_are_the_same_wherever_it_begins() -> None:
    """Few programs, though the loop is long and something comes before it."""

    def f(x: Any) -> Any:
        x = fnp.cos(x) + x * 2.0
        for _ in range(400):
            x = fnp.sin(x) * 0.9 + fnp.exp(-x)
        return fnp.sum(x)

    gradient = fad.grad(f)
    with off():
        expected = gradient(X)
    with fad.autograd.compiled(wait=True):
        assert_bits([gradient(X) for _ in range(3)], [expected] * 3)
    # The first segment, those in the middle and the last one, which is another in the first call; both ways.
    assert fad.autograd.compiled.cache_info()["compiled"] <= 8
