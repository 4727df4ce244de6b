"""Functions whose results are views, or their argument, in a way of their own; see also
`tests/views/test_make_view_addresses.py`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp


def test_reshape_without_a_copy_is_refused_where_it_needs_one() -> None:
    x = fad.zeros(2, 3)
    assert fnp.reshape(x, -1, copy=False).is_view and not fnp.reshape(x, -1, copy=True).is_view
    with pytest.raises(ValueError, match=r"copy=False.*x\.view\(shape\)"):
        fnp.reshape(x.T, -1, copy=False)
    x.T.view(-1)[1] = 5.0  # fad's views need no strides
    assert x.tolist() == [[0.0, 0.0, 0.0], [5.0, 0.0, 0.0]]


def test_results_of_several_arguments_are_views_of_each() -> None:
    x, y = fad.zeros(3), fad.zeros(2, 1)
    a, b, c = fnp.broadcast_arrays(x, y, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="repeat|several|broadcast"):
        a.fill_(5.0)
    y[1] = 7.0
    assert b.tolist() == [[0.0] * 3, [7.0] * 3] and a.base is x and c.shape == (2, 3)
    p, q = fnp.atleast_2d(x, y)
    p[0, 1] = 3.0
    assert q is y and x.tolist() == [0.0, 3.0, 0.0]
    plain = fnp.broadcast_arrays(jnp.ones(2), 1.0)
    assert not any([isinstance(v, fad.Tensor) for v in plain])


def test_views_are_differentiated_and_batched() -> None:
    def f(x: fad.Tensor) -> fad.Tensor:
        y = x * 1.0
        fnp.diag(y)[:] *= x[0]
        fnp.flip(y, 0)[0] += x[1]
        fnp.fliplr(y)[:, 0] *= 2.0
        fnp.rot90(y)[1] *= 3.0
        fnp.atleast_3d(y)[0] *= 2.0
        return (y * y).sum()

    def g(x: np.ndarray) -> float:
        y = x * 1.0
        y[[0, 1], [0, 1]] *= x[0]
        y[1] += x[1]
        y[:, 1] *= 2.0
        y[:, 0] *= 3.0
        y[0] *= 2.0
        return float((y * y).sum())

    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    step = 1e-6
    differences = [
        (g(x + step * e) - g(x - step * e)) / (2 * step) for e in np.eye(4).reshape(4, 2, 2)
    ]
    expected = np.reshape(differences, (2, 2)).astype(np.float32)
    assert_close(fad.grad(f)(jnp.asarray(x, jnp.float32)), expected, rtol=1e-4)
    batched = fad.jit(fad.vmap(fad.grad(f)))(jnp.asarray(x, jnp.float32)[None])
    assert_close(batched[0], expected, rtol=1e-4)
