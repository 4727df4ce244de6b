"""Values cut off from their history: ``stop_gradient`` and ``detach``, at every level."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.8, 1.2])


@pytest.mark.parametrize("stop", [fad.stop_gradient, lambda x: x.detach()])
def test_detach_stops_every_derivative(stop: Any) -> None:
    f = lambda x: fnp.sum(x * stop(fnp.sin(x)))
    assert_close(fad.grad(f)(X), jnp.sin(X))
    assert_close(fad.jvp(f, (X,), (X,))[1], jnp.sum(jnp.sin(X) * X))
    assert_close(fad.linearize(f, X)[1](X), jnp.sum(jnp.sin(X) * X))
    assert_close(fad.jacrev(fad.jacfwd(f))(X), jnp.zeros((3, 3)))
    assert_close(fad.vmap(fad.grad(lambda x: x * stop(fnp.sin(x))))(X), jnp.sin(X))
    assert_close(fad.grad(fad.checkpoint(f))(X), jnp.sin(X))
    assert_close(fad.jit(fad.grad(f))(X), jnp.sin(X))


def test_detach_and_stop_gradient_cut_history() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    for cut in (y.detach(), fad.stop_gradient(y), fad.stop_gradient({"y": y})["y"]):
        assert not cut.requires_grad and cut.is_leaf
        assert_close(cut, y)
    (x * y.detach()).sum().backward()
    assert_close(x.grad, np.array([1.0, 4.0], np.float32))
