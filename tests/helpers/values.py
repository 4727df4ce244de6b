"""Comparing values alone, whatever their dtypes."""

import jax
import numpy as np


def assert_close(got, expected):
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, 1e-5, 1e-6)
