"""Values that outlive the level they belong to."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import LevelError

X = jnp.array([0.3, -0.8, 1.2])


def test_a_value_that_outlives_grad_reads_as_its_primal() -> None:
    kept = []

    def f(x: Any) -> Any:
        kept.append(fnp.sin(x))
        return fnp.sum(kept[-1])

    fad.grad(f)(X)
    assert_close(kept[0] * 2.0, jnp.sin(X) * 2.0)
    assert isinstance(kept[0] + 1.0, fad.Tensor)
    assert not (kept[0] * 2.0).requires_grad
    # Used in a later transform it is a constant.
    assert_close(fad.grad(lambda x: fnp.sum(x * kept[0]))(X), jnp.sin(X))
    # One that was made inside of two levels.
    kept.clear()
    fad.jvp(lambda x: fad.grad(f)(x), (X,), (X,))
    assert_close(kept[0] + 0.0, jnp.sin(X))
    assert_close(fad.vmap(lambda x: x * 2.0)(kept[0]), jnp.sin(X) * 2.0)


def test_a_value_that_outlives_one_of_two_levels_keeps_the_other() -> None:
    def f(x: Any) -> Any:
        kept = []

        def inner(y: Any) -> Any:
            kept.append(y * x)
            return fnp.sum(y)

        fad.grad(inner)(x)
        return fnp.sum(kept[0])

    assert_close(fad.grad(f)(X), 2.0 * X)
    assert_close(fad.jacfwd(f)(X), 2.0 * X)


def test_a_value_that_outlives_vmap_raises() -> None:
    kept: list[Any] = []
    fad.vmap(lambda x: kept.append(x * 2.0) or x)(X)
    with pytest.raises(LevelError, match=r"batched Tensor.*after its vmap"):
        kept[0] + 1.0
    kept.clear()
    fad.vmap(lambda x: kept.append(fad.asarray(X) * 2.0) or x)(X)  # shared by all lanes
    assert_close(kept[0] + 0.0, X * 2.0)
