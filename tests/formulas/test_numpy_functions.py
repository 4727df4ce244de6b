"""Functions of NumPy whose arguments JAX refuses: their derivatives, and what they refuse themselves."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError

X = np.array([0.3, 0.6, 0.9, 0.2, 0.7])


def test_derivatives() -> None:
    """By finite differences, in values, spacings, coordinates and what is padded with."""
    places = np.array([0.0, 0.5, 0.75, 2.0, 3.0])
    with jax.enable_x64(True):
        for f, args in (
            (lambda x, h: fnp.gradient(x, h, edge_order=2), (X, np.float64(0.5))),
            (lambda x, at: fnp.gradient(x, at, edge_order=2), (X, places)),
            (lambda x, a: fnp.pad(x, (1, 3), "linear_ramp", end_values=(a, 2.0)), (X, X[0])),
            (lambda x: fnp.pad(x, 2, "mean", stat_length=2), (X,)),
            (lambda x: fnp.partition(x, [1, 2]), (X,)),
        ):
            assert fad.testing.gradcheck(f, args)


def test_slopes_of_second_order_are_exact_for_parabolas() -> None:
    at = np.float32([0.0, 0.5, 0.75, 2.0, 3.0])
    np.testing.assert_allclose(fnp.gradient(fad.tensor(at**2), at, edge_order=2), 2 * at, atol=1e-5)
    for wrong, words in (
        (lambda: fnp.gradient(at, edge_order=3), "edge_order must be 1 or 2"),
        (lambda: fnp.gradient(at[:2], edge_order=2), "at least 3 elements"),
        (lambda: fnp.gradient(at, at[:2], edge_order=2), "coordinates"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()


def test_take_that_raises() -> None:
    x = fad.tensor(X)
    assert fnp.take(x, [0, -1], mode="raise").tolist() == x[[0, -1]].tolist()
    with pytest.raises(IndexError, match="index 5 is out of bounds for 5 elements"):
        fnp.take(x, [0, 5], mode="raise")
    with pytest.raises(fad.errors.HostValueError):
        fad.vmap(lambda i: fnp.take(x, i, mode="raise"))(np.array([0, 1]))


def test_nan_to_num_without_a_copy_writes() -> None:
    x, y = fad.tensor([np.nan, 1.0]), np.array([np.nan, 1.0])
    view = x[:1]
    assert fnp.nan_to_num(x, copy=False) is x
    np.nan_to_num(y, copy=False)
    assert x.tolist() == y.tolist() and view.tolist() == [0.0]


def test_numbers_that_are_static_to_jax() -> None:
    x, n, s = fad.tensor(X), fad.tensor(2), fad.tensor(0.5)
    assert fnp.round(x, n).shape == (5,) and fnp.diff(x, n).shape == (3,)
    assert fnp.linalg.matrix_power(fnp.eye(2), n).shape == (2, 2)
    with pytest.raises(
        TypeError, match=r"norm: .* Python number: ord is Tensor .*\. Write float\(x\)"
    ):
        fnp.linalg.norm(x, ord=s)
    with pytest.raises(ValueError, match="memory"):
        fnp.ravel(x, order="K")
    with pytest.raises(ValueError, match="density=True"):
        fnp.histogram(x, 3, (0.0, 1.0), True)


def test_a_shape_may_be_an_array() -> None:
    x, shape = fad.arange(6.0), np.array([2, 3])
    for found in (fnp.reshape(x, shape), fnp.reshape(x, shape, "C"), x.reshape(shape)):
        assert found.shape == (2, 3)
    with pytest.raises(ArgumentError, match="order='K' asks for the layout"):
        fnp.reshape(x, shape, "K")


def test_a_histogram_with_given_edges_is_compiled() -> None:
    edges = np.linspace(-1.0, 1.0, 5, dtype=np.float32)
    expected = np.histogram(X, edges)[0]
    for f in (
        lambda x, e: fnp.histogram(x, e)[0],
        lambda x, e: fnp.histogram(x, edges)[0],
        lambda x, e: fnp.histogram(x, bins=e, density=False)[0],
    ):
        assert fad.jit(f)(X, edges).tolist() == expected.tolist()
