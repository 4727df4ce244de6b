"""``checkpoint``: bodies that close over values of other levels, differentiate, and switch recording off."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import LevelError
from tests.fuzzing.functions import OneMethodWave

X = jnp.array([0.3, -0.8, 1.2])


def test_checkpoint_closes_over_outer_variables() -> None:
    def f(xp: Any, checkpoint: Any, w: Any) -> Any:
        return xp.sum(checkpoint(lambda x: xp.sin(x) * w * w)(w * X))

    got = functools.partial(f, fnp, fad.checkpoint)
    expected = functools.partial(f, jnp, jax.checkpoint)
    assert_close(fad.grad(got)(X), jax.grad(expected)(X))
    assert_close(fad.hessian(got)(X), jax.hessian(expected)(X))


def test_a_checkpointed_body_may_differentiate_a_function_that_saves_an_intermediate_value() -> (
    None
):
    f, plain = (
        lambda x, g=g: g(x, 0.5 * x) for g in (OneMethodWave.apply, lambda x, y: jnp.sin(x) * y)
    )
    expected = jax.jvp(jax.jacrev(plain), (X,), (X,))[1]
    again = fad.checkpoint(fad.jacrev(f))
    assert_close(fad.jvp(again, (X,), (X,))[1], expected)
    assert_close(fad.linearize(again, X)[1](X), expected)
    assert_close(
        fad.vmap(fad.grad(fad.checkpoint(fad.grad(f))))(X), jax.vmap(jax.grad(jax.grad(plain)))(X)
    )


def test_no_grad_inside_of_checkpoint() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            y = fnp.sin(x)
        return fnp.sum(x * y)

    assert_close(fad.grad(fad.checkpoint(f))(X), jnp.sin(X))


def test_checkpoint_in_a_vmap_that_is_over_computes_with_what_it_closes_over() -> None:
    lanes = jnp.arange(6.0).reshape(3, 2)

    def f(x):
        def lane(s):
            return fad.checkpoint(lambda y: y * fnp.sin(s[0]) + s[1])(x)

        return fad.vmap(lane)(lanes).sum()

    expected = jnp.sin(lanes[:, 0]).sum()
    np.testing.assert_allclose(fad.grad(f)(2.0), expected, rtol=1e-6)
    _, pull = fad.vjp(f, jnp.float32(2.0))
    np.testing.assert_allclose(pull(jnp.float32(1.0))[0], expected, rtol=1e-6)
    kept: list[Any] = []

    def leaking(s):
        kept.append(s)
        return fad.checkpoint(lambda y: y * s[0])(s[1])

    fad.grad(lambda lanes: fad.vmap(leaking)(lanes).sum())(lanes)
    with pytest.raises(LevelError, match="vmap had finished"):
        kept[0] + 1.0
