"""Finite differences, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fad.testing.finite_differences import directional, inner, jacobian


def test_finite_differences_by_hand() -> None:
    f = lambda v: [v[0] ** 2 * v[1], np.sum(v[1])]
    x = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    t = directional(f, x, [np.array([1.0, 0.0]), None])
    np.testing.assert_allclose(t[0], [6.0, 0.0], atol=1e-8)
    assert inner([None, np.ones(2)], [np.ones(2), np.ones(2)]) == 2.0
    np.testing.assert_allclose(jacobian(f, x, 1)[0], np.diag([1.0, 4.0]), atol=1e-8)
    exact = directional(
        lambda v: [np.exp(v[0])], [np.array(1.0)], [np.array(2.0)], complex_step=True
    )
    assert float(exact[0]) == pytest.approx(2.0 * np.e, rel=1e-15)
    z = jacobian(lambda v: [v[0] * v[0]], [np.array([1.0 + 2.0j])], 0)[0]
    np.testing.assert_allclose(z, [[2.0, 4.0], [-4.0, 2.0]], atol=1e-8)
    assert jacobian(lambda v: [v[0]], [np.zeros(0)], 0)[0].shape == (0, 0)
