"""``view_function``: views of one's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad

V = jnp.array([0.5, -1.0, 2.0])


def test_a_view_function_of_ones_own():
    diagonal = fad.autograd.view_function(lambda x: jnp.diagonal(x), name="diagonal")
    x = leaf(jnp.ones((3, 3)))
    y = x * 1.0
    diagonal(y)[1:] *= V[1:]
    expected = np.ones((3, 3), np.float32)
    expected[[1, 2], [1, 2]] = V[1:]
    assert_close(y.detach(), expected)
    (y * y).sum().backward()
    assert_close(x.grad, jnp.ones((3, 3)) * 2 * expected * np.where(expected != 1, expected, 1))
    halves = fad.autograd.view_function(lambda x, k: x / k, lambda x, view, k: view * k)
    y = fad.tensor(V)
    halves(y, 2.0).add_(1.0)
    assert_close(y, V + 2)
    f = lambda x: (lambda y: (halves(y, 2.0).mul_(y.clone()), y.sum())[1])(x * 1.0)
    assert_close(fad.grad(f)(V), jax.grad(lambda x: (x * x).sum())(V))
    assert_close(diagonal(jnp.eye(2)), jnp.ones(2))
    wrong = fad.autograd.view_function(lambda x: 2 * x, name="double")
    twice = fad.autograd.view_function(lambda x: jnp.concatenate([x, x]), name="twice")
    for f, words in ((wrong, "'double' does not only select"), (twice, "shows an element twice")):
        y = fad.tensor(V)
        v = f(y)
        with pytest.raises(ValueError, match=words):
            v.zero_()
        assert_close(y, V)
    with pytest.raises(TypeError, match="needs a write_back"):
        wrong(y, 2.0)
