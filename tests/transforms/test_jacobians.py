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


def test_jacobians_where_one_side_is_complex() -> None:
    x = jnp.array([0.4, -0.3])
    to_complex = lambda x: fnp.exp(1j * x) * x[0]
    to_real = lambda z: fnp.abs(z) * z.imag[0]

    def differences(f: Any, x: Any, unit: Any) -> Any:
        steps = 1e-2 * unit * jnp.eye(2)
        columns = [(f(fad.asarray(x + s)) - f(fad.asarray(x - s))).array / 2e-2 for s in steps]
        return jnp.stack(columns, 1)

    from_real = differences(to_complex, x, 1)  # dy = J dx
    from_complex = differences(to_real, Z, 1) - 1j * differences(to_real, Z, 1j)  # dy = Re(J dx)
    mixed = lambda x, z: (to_complex(x), to_real(z) * x, fnp.sum(z) * x)
    for jacobian in (fad.jacrev, fad.jacfwd):
        assert_close(jacobian(to_complex)(x), from_real, rtol=1e-3)
        assert_close(jacobian(to_real)(Z), from_complex, rtol=1e-3)
        assert_close(jacobian(to_real, chunk_size=1)(Z), jacobian(to_real)(Z))
        assert_close(fad.jit(jacobian(mixed, (0, 1)))(x, Z), fad.jacrev(mixed, (0, 1))(x, Z))
    gradient = fad.grad(lambda z: to_real(z).sum())(Z)
    assert_close(fad.jacfwd(to_real)(Z).sum(0), jnp.conj(gradient))


def test_complex_jacobians_are_the_derivative_itself() -> None:
    f = lambda z: fnp.exp(z) * z
    expected = jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True)(Z)
    assert_close(fad.jacfwd(f)(Z), expected)
    assert_close(fad.jacrev(f)(Z), expected)
    assert_close(
        fad.jacrev(fad.jacfwd(f))(Z),
        jax.jacfwd(jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True), holomorphic=True)(Z),
    )
