"""``linear_call``: products with transposes of their own, under every transform of JAX."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

from fad.extend import linear_call

MATRIX = jnp.array([[1.0, 2.0], [0.5, -1.0]])
VECTOR = jnp.array([0.3, -0.7])


@dataclasses.dataclass(frozen=True)
class OnHost:
    """A matrix times a vector, on the host: JAX knows neither a derivative nor a transpose of it."""

    of_transpose: bool = False

    def __call__(self, point: Any, vector: Any) -> list[Any]:
        turned = self.of_transpose

        def product(a: Any, v: Any) -> np.ndarray:
            a = np.swapaxes(a, -1, -2) if turned else np.asarray(a)
            return np.einsum("...ij,...j->...i", a, np.asarray(v)).astype(np.float32)

        like = vector[0]
        return [jax.pure_callback(product, like, point[0], like, vmap_method="broadcast_all")]

    @property
    def transposed(self) -> OnHost:
        return OnHost(not self.of_transpose)


@dataclasses.dataclass(frozen=True)
class Scaled:
    """sin(a) v, which is its own transpose, and has a derivative in the point."""

    def __call__(self, point: Any, vector: Any) -> list[Any]:
        return [jnp.sin(point[0]) * vector[0]]

    @property
    def transposed(self) -> Scaled:
        return self


def times(a: Any, v: Any) -> Any:
    return linear_call(OnHost(), [a], [v])[0]


FORMS = {
    "plain": lambda f: f(MATRIX, VECTOR),
    "jit": lambda f: jax.jit(f)(MATRIX, VECTOR),
    "jvp": lambda f: jax.jvp(lambda v: f(MATRIX, v), (VECTOR,), (VECTOR[::-1],))[1],
    "vjp": lambda f: jax.vjp(lambda v: f(MATRIX, v), VECTOR)[1](VECTOR)[0],
    "jacobian": lambda f: jax.jacrev(lambda v: f(MATRIX, v))(VECTOR),
    "vmap": lambda f: jax.vmap(f, (None, 0))(MATRIX, jnp.stack([VECTOR, 2 * VECTOR])),
    "vmap of the point": lambda f: jax.vmap(f, (2, None))(jnp.stack([MATRIX] * 3, 2), VECTOR),
    "vjp of vmap": lambda f: jax.vjp(
        lambda v: jax.vmap(f, (0, None))(jnp.stack([MATRIX] * 2), v), VECTOR
    )[1](jnp.ones((2, 2)))[0],
    "vmap of vjp": lambda f: jax.vmap(lambda a: jax.vjp(lambda v: f(a, v), VECTOR)[1](VECTOR)[0])(
        jnp.stack([MATRIX, MATRIX.T])
    ),
    "scan": lambda f: jax.grad(
        lambda v: jax.lax.scan(lambda c, _: (f(MATRIX, c), None), v, None, 3)[0].sum()
    )(VECTOR),
}


@pytest.mark.parametrize("name", FORMS)
def test_products_on_the_host(name: str) -> None:
    form = FORMS[name]
    assert_close(form(times), form(lambda a, v: a @ v))


def test_the_transpose_of_the_transpose() -> None:
    pull = lambda g: jax.linear_transpose(lambda v: times(MATRIX, v), VECTOR)(g)[0]
    (back,) = jax.linear_transpose(pull, VECTOR)(VECTOR)
    assert_close(back, MATRIX @ VECTOR)


@pytest.mark.parametrize("derivative", [jax.grad, jax.hessian])
def test_derivatives_in_the_point(derivative: Any) -> None:
    f = lambda a: linear_call(Scaled(), [a], [a * 2.0])[0].sum()
    assert_close(derivative(f)(VECTOR), derivative(lambda a: (jnp.sin(a) * a * 2.0).sum())(VECTOR))


def test_nothing_to_multiply_with() -> None:
    assert linear_call(Scaled(), [jnp.ones(0)], [jnp.ones(0)])[0].shape == (0,)
