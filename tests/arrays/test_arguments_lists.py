"""Lists where a function takes arrays: what NumPy makes of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from numpy_calls import WITH_LISTS, check

import fad
import fad.numpy as fnp

X = np.array([0.3, 0.6, 0.9, 0.2], np.float32)


@pytest.mark.sweep("call", WITH_LISTS, sample=22)
def test_calls_with_lists_are_those_of_numpy(call: str) -> None:
    check(call)


def joined(np: Any, x: Any) -> Any:
    """Lists with Tensors in them, in every place that takes arrays."""
    rows = np.vstack([x, [x[1], 1.0, 2.0, x[0]], (3.0, 4.0, 5.0, 6.0)])
    both = np.concatenate([x, [x[0] * 2.0, 1.0], (x[3],)])
    return (
        np.sum([x[0], 2.0 * x[1]]) * np.mean(rows**2)
        + np.append(both, [x[2]] * 2) @ np.append([1.0, 2.0, 3.0, 4.0], both[:5])
        + np.dot([[x[0], 1.0], [2.0, x[1]]], [1.0, x[2]])[1]
        + np.reshape([x[0], x[1]], (2, 1))[1, 0] ** 2
    )


def test_derivatives_go_through_lists() -> None:
    with jax.enable_x64(True):
        x = X.astype(np.float64)
        assert fad.testing.gradcheck(lambda x: joined(fnp, x), (x,))
        assert_close(joined(fnp, fad.tensor(x)), joined(np, x))
        slope = fad.grad(lambda x: joined(fnp, x))
        assert_close(fad.jit(slope)(x), slope(x))
        assert_close(fad.vmap(slope)(np.stack([x, 2 * x]))[1], slope(2 * x))


def test_what_makes_a_tensor() -> None:
    """A list of numbers is an array of NumPy; a list of JAX's arrays is an array of JAX."""
    a = jnp.ones(2)
    assert isinstance(fnp.sin([1.0, 2.0]), fad.Tensor)
    assert isinstance(fnp.concatenate([a, [1.0]]), fad.Tensor)
    assert not isinstance(fnp.sum([a, a]), fad.Tensor)
    assert not isinstance(fnp.concatenate([[a[0], 1.0], a]), fad.Tensor)
    assert not isinstance(fnp.stack([1.0, 2.0]), fad.Tensor)


def test_a_view_of_a_list_is_a_view_of_no_tensor_in_it() -> None:
    x = fad.tensor(X)
    y = fnp.reshape([x[0], 2.0], (2, 1))
    y[0] = 9.0
    assert_close(x, X)
    assert y.tolist() == [[9.0], [2.0]]


def test_lists_that_are_no_arrays() -> None:
    with pytest.raises(ValueError, match="inhomogeneous"):
        fnp.sin([[1.0], [1.0, 2.0]])
    with pytest.raises(OverflowError):
        fnp.add([2**40], 1)
    with pytest.raises(TypeError):
        fnp.sin(["text"])
    with pytest.raises(ValueError, match="None"):
        fnp.sin([None, 1.0])
    assert fnp.einsum(fnp.ones((2, 2)), [0, 0]).item() == 2.0  # these are no operands


def test_new_numbers_in_a_list_compile_nothing() -> None:
    op = fnp.sin.op
    fnp.sin([0.5, 0.25, 2.0])
    known = len(op.primitives)
    for k in range(3):
        fnp.sin([float(k), 1.0, 2.0])
    assert len(op.primitives) == known


def test_lists_in_other_modules() -> None:
    x = fad.tensor(X)
    added = fnp.add.at(x, [0, 0], [1.0, 2.0], inplace=False)
    assert_close(added, x + fad.tensor([3.0, 0.0, 0.0, 0.0]))
    assert fnp.add.at(fnp.ones((2, 2)), ([0, 1], [1, 0]), 1.0, inplace=False).tolist() == [
        [1, 2],
        [2, 1],
    ]
    assert fad.scipy.stats.truncnorm.pdf(x, [-1.0] * 4, 1.0).shape == (4,)
    assert fad.scipy.linalg.toeplitz([1.0, x[0]])[1, 0].item() == X[0]
    assert fad.nn.relu([-1.0, 2.0]).tolist() == [0.0, 2.0]
    assert fad.random.categorical(fad.random.key(0), [0.0, 1.0]).shape == ()
