"""Patterns of programs: calls, loops, choices, and what has no rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fad.sparse.patterns import pattern_of

SHIFT = np.roll(np.eye(4, dtype=int), 1, 0)


def matrix_of(f: Callable[[Any], Any], size: int = 4) -> np.ndarray:
    closed = jax.make_jaxpr(f)(jnp.ones(size))
    rows, cols = pattern_of(closed, [])
    dense = np.zeros((closed.out_avals[0].size, size), int)
    dense[rows, cols] = 1
    return dense


def unknown(t: Any) -> Any:
    return jax.pure_callback(lambda t: t, jax.ShapeDtypeStruct((4,), t.dtype), t)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "call": (jax.jit(lambda t: jnp.roll(t, 1)), SHIFT),
    "remat": (jax.checkpoint(lambda t: jnp.roll(t, 1)), SHIFT),
    "scan": (lambda t: jax.lax.scan(lambda c, v: (c, 2 * v), 0.0, t)[1], np.eye(4)),
    "scan in reverse": (
        lambda t: jax.lax.scan(lambda c, v: (v, c), 0.0, t, reverse=True)[1],
        np.eye(4, k=1),
    ),
    "while": (
        lambda t: jax.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1][::-1]), (0, t))[
            1
        ],
        np.eye(4) + np.eye(4)[::-1],
    ),
    "unknown": (unknown, np.ones((4, 4))),
    "nothing": (lambda t: jnp.ones(3), np.zeros((3, 4))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_pattern_of_a_program(name: str) -> None:
    f, expected = PROGRAMS[name]
    np.testing.assert_array_equal(matrix_of(f), expected)


def test_branches_on_values_that_are_not_known_all_count() -> None:
    closed = jax.make_jaxpr(lambda p, t: jax.lax.cond(p, lambda t: t, lambda t: t[::-1], t))(
        True, jnp.ones(4)
    )
    rows, cols = pattern_of(closed, [None])
    assert len(rows) == len(cols) == 8


def test_what_is_written_to_a_ref_counts() -> None:
    def f(t: Any) -> Any:
        ref = jax.new_ref(jnp.zeros(4))
        ref[...] = t
        return ref[...] * 2.0

    assert (matrix_of(f) == 1).all()
