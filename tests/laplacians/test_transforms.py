"""``laplacian`` and ``value_and_laplacian``: arguments, results, and what they nest with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])
W = jnp.array([[0.5, -1.0, 0.2], [1.5, 0.7, -0.4], [0.3, -0.6, 0.9]])


def net(xp: Any, w: Any, x: Any) -> Any:
    return xp.sum(xp.tanh(xp.tanh(x @ w) @ w + x) ** 2)


def trace(w: Any, x: Any) -> Any:
    return jnp.trace(jax.hessian(lambda x: net(jnp, w, x))(x))


of_net = fad.laplacian(lambda w, x: net(fnp, w, x), 1)
BATCH = jnp.stack([X, 2.0 * X])
NESTS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "grad in the parameters": (lambda: fad.grad(of_net)(W, X), lambda: jax.grad(trace)(W, X)),
    "grad in the coordinates": (
        lambda: fad.grad(of_net, 1)(W, X),
        lambda: jax.grad(trace, 1)(W, X),
    ),
    "training of a batch, compiled": (
        lambda: fad.jit(fad.grad(lambda w: fnp.mean(fad.vmap(of_net, (None, 0))(w, BATCH) ** 2)))(
            W
        ),
        lambda: jax.grad(lambda w: jnp.mean(jax.vmap(trace, (None, 0))(w, BATCH) ** 2))(W),
    ),
    "jax.jit of to_jax": (
        lambda: jax.jit(jax.vmap(fad.to_jax(of_net), (None, 0)))(W, BATCH),
        lambda: jax.vmap(trace, (None, 0))(W, BATCH),
    ),
    "jax.grad of to_jax": (
        lambda: jax.grad(fad.to_jax(of_net))(W, X),
        lambda: jax.grad(trace)(W, X),
    ),
    "laplacian of a laplacian": (
        lambda: fad.laplacian(lambda x: of_net(W, x))(X),
        lambda: jnp.trace(jax.hessian(lambda x: trace(W, x))(X)),
    ),
    "laplacian of a gradient": (
        lambda: fad.laplacian(fad.grad(lambda x: net(fnp, W, x)))(X),
        lambda: jax.grad(lambda x: trace(W, x))(X),
    ),
    "jvp": (
        lambda: fad.jvp(lambda x: of_net(W, x), (X,), (X,))[1],
        lambda: jax.jvp(lambda x: trace(W, x), (X,), (X,))[1],
    ),
    "laplacian of a vmap": (
        lambda: fad.laplacian(lambda x: fad.vmap(lambda s: net(fnp, W, s * x))(X))(X),
        lambda: jax.vmap(lambda s: jnp.trace(jax.hessian(lambda x: net(jnp, W, s * x))(X)))(X),
    ),
    "checkpoint": (
        lambda: fad.grad(fad.checkpoint(of_net))(W, X),
        lambda: jax.grad(trace)(W, X),
    ),
}


@pytest.mark.parametrize("name", NESTS)
def test_nests(name: str) -> None:
    ours, theirs = NESTS[name]
    assert_close(ours(), jax.jit(theirs)(), rtol=1e-3, atol=1e-4)


def test_repeated_calls_are_replayed(replay_mode: None) -> None:
    for k in range(4):
        assert_close(of_net(W, X + k), trace(W, X + k), rtol=1e-3)


def test_the_tape_goes_through() -> None:
    w = fad.tensor(W, requires_grad=True)
    found = of_net(w, X)
    found.backward()
    assert_close(w.grad.array, jax.grad(trace)(W, X), rtol=1e-3, atol=1e-4)


def test_coordinates_in_several_arguments_and_outputs_in_a_pytree() -> None:
    f = lambda xp: (
        lambda p, y, scale: {"a": p["u"] * xp.sum(y * y) * scale, "b": (xp.sum(p["v"] ** 3), 2)}
    )
    p = {"u": X, "v": jnp.ones((2, 2))}
    value, found = fad.value_and_laplacian(f(fnp), (0, 1))(p, X, scale=2.0)
    assert_close(value["a"], f(jnp)(p, X, 2.0)["a"])
    assert_close(found, {"a": 12.0 * X, "b": (jnp.float32(24.0), jnp.int32(0))})
    assert_close(fad.laplacian(f(fnp), -3)(p, X, 2.0)["b"][0], jnp.float32(24.0))


def test_views_and_writes_in_place() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[1:] *= x[:-1] ** 2
        part = y[::2]
        part += fnp.sin(part)
        return fnp.sum(y**2)

    def in_jax(x: Any) -> Any:
        y = x.at[1:].multiply(x[:-1] ** 2)
        return jnp.sum(y.at[::2].add(jnp.sin(y[::2])) ** 2)

    assert_close(fad.laplacian(f)(X), jnp.trace(jax.jit(jax.hessian(in_jax))(X)), rtol=1e-3)


def test_tensors_give_tensors_and_an_argument_is_written() -> None:
    def f(x: Any) -> Any:
        x *= 2.0
        return fnp.sum(x**3)

    x = fad.tensor([1.0, 2.0])
    value, found = fad.value_and_laplacian(f)(x)
    assert isinstance(value, fad.Tensor) and isinstance(found, fad.Tensor)
    assert (value.item(), found.item(), x.tolist()) == (72.0, 144.0, [2.0, 4.0])


def test_of_a_number_of_nothing_and_of_a_constant() -> None:
    assert_close(fad.laplacian(lambda x: x**3)(2.0), jnp.float32(12.0))
    assert_close(fad.laplacian(lambda x: fnp.sum(x) + 1.0)(jnp.zeros(0)), jnp.float32(0.0))
    assert_close(fad.laplacian(lambda x: 3.0)(X), jnp.float32(0.0))
    assert fad.laplacian(fnp.sum)(np.ones(2, np.float16)).dtype == jnp.float16
