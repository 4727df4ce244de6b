"""Views among JAX's pytrees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import GradientError

X = jnp.arange(1.0, 7.0).reshape(2, 3)


def test_views_are_pytrees_and_arguments_of_jax():
    x = fad.tensor(X)
    v = x[0]
    x += 1
    assert_close(jax.jit(lambda v: v.array * 2)(v), 2 * (X[0] + 1))
    assert_close(jax.tree.map(lambda a: a * 2, {"v": v})["v"], 2 * (X[0] + 1))
    assert "Tensor(" in repr(v)


V = jnp.array([1.0, 2.0, 3.0])


def test_writes_to_leaves_of_a_pytree_are_writes_to_its_tensors():
    x = leaf(V)
    y = x * 1
    view = y[1:]
    tree = {"y": y, "v": view}
    jax.tree.map(lambda p: p.mul_(2), tree)
    assert y.tolist() == [2.0, 8.0, 12.0] and view.tolist() == [8.0, 12.0]
    leaves = jax.tree.leaves(tree)
    leaves[1][:1] += 1
    y += 1
    assert leaves[0].tolist() == view.tolist() and leaves[1].tolist() == y.tolist()
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 4.0]
    (p,) = jax.tree.leaves({"x": x})
    with pytest.raises(GradientError, match="a leaf Variable"):
        p += 1
    with pytest.raises(GradientError, match="a view of a leaf Variable"):
        p[0] = 1.0
    with fad.no_grad():
        p -= 1
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_functions_of_numpy_that_are_mapped_over_a_tree_give_tensors() -> None:
    tree = {"a": fad.tensor([1.0, 2.0]), "b": fad.tensor(3.0)}
    for f in (np.asarray, lambda x: np.square(x), lambda x: np.full(np.shape(x), 2), np.sum):
        found = jax.tree.map(f, tree)
        for name, x in found.items():
            assert isinstance(x.array, jax.Array)
            np.testing.assert_array_equal(x, f(tree[name].array))
        assert fad.jit(lambda t: t["a"] * 2)(found).shape == found["a"].shape
    found["a"].add_(1)  # its own memory
    assert jax.tree.map(lambda x: np.array("text"), tree["a"]) is not None


def test_a_leaf_of_the_graph_is_a_leaf_of_it_in_a_tree_too() -> None:
    x = leaf(V)
    y = x * 2.0
    x_here, y_here = jax.tree.leaves([x, y])
    assert x_here.is_leaf and x_here.grad_fn is None and x_here.grad is None  # without a warning
    assert not y_here.is_leaf and y_here.grad_fn is y.grad_fn
    with pytest.warns(UserWarning, match="not a leaf Tensor"):
        assert y_here.grad is None
    y.sum().backward()
    assert jax.tree.leaves([x])[0].grad is x.grad
