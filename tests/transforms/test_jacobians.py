"""Jacobians, Hessians and their products, of pytrees and of complex numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close
from pytree_functions import PARAMS, f_layer, f_loss, j_layer, j_loss

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_jacobians_of_pytrees(name: str, argnums: Any) -> None:
    got = getattr(fad, name)(f_layer, argnums)(PARAMS, X)
    assert_close(got, jax.jit(getattr(jax, name)(j_layer, argnums))(PARAMS, X))


def test_gradients_and_hessians_of_pytrees() -> None:
    for name, argnums in (("grad", (0, 1)), ("hessian", 0), ("hessian", (0, 1))):
        got = getattr(fad, name)(f_loss, argnums)(PARAMS, X)
        assert_close(got, jax.jit(getattr(jax, name)(j_loss, argnums))(PARAMS, X))


def test_hvp() -> None:
    tangents = (jax.tree.map(jnp.cos, PARAMS), jnp.sin(X))
    got = fad.hvp(f_loss, (PARAMS, X), tangents)
    expected = jax.jvp(jax.grad(j_loss, (0, 1)), (PARAMS, X), tangents)
    assert_close(got, expected)
    # Against the whole Hessian.
    (h,) = fad.hessian(lambda x: f_loss(PARAMS, x), (0,))(X)
    _, (product,) = fad.hvp(lambda x: f_loss(PARAMS, x), (X,), (X,))
    assert_close(product, h[0] @ X)


Z = jnp.array([0.5 + 1.0j, -0.7 + 0.2j])


def test_complex_jacobians_are_the_derivative_itself() -> None:
    f = lambda z: fnp.exp(z) * z
    expected = jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True)(Z)
    assert_close(fad.jacfwd(f)(Z), expected)
    assert_close(fad.jacrev(f)(Z), expected)
    assert_close(
        fad.jacrev(fad.jacfwd(f))(Z),
        jax.jacfwd(jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True), holomorphic=True)(Z),
    )
