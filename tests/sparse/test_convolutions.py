"""The rule of a convolution: exact by both operands, for each of its parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad

DIMENSIONS = ("NCHW", "OIHW", "NCHW")
# Shapes of both operands, and parameters.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 2, 4, 3), (3, 2, 2, 2), {}),
    "strides": ((2, 1, 5, 4), (1, 1, 2, 3), {"window_strides": (2, 3)}),
    "padding": ((1, 1, 3, 3), (1, 1, 2, 2), {"padding": [(2, 1), (-1, 2)]}),
    "dilation": ((1, 1, 3, 3), (1, 1, 2, 2), {"lhs_dilation": (2, 1), "rhs_dilation": (1, 2)}),
    "groups": ((1, 4, 3, 3), (2, 2, 2, 2), {"feature_group_count": 2}),
    "groups of a batch": ((4, 1, 3, 3), (2, 1, 2, 2), {"batch_group_count": 2}),
    "order": ((3, 4, 1, 2), (2, 2, 2, 3), {"dimension_numbers": ("HWNC", "HWIO", "CHWN")}),
}


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_pattern_is_that_of_the_derivative(name: str, operand: int) -> None:
    left, right, changed = CASES[name]
    given = {"window_strides": (1, 1), "padding": [(0, 0)] * 2, "dimension_numbers": DIMENSIONS}
    draw = np.random.default_rng(0)
    xs = [jnp.asarray(draw.uniform(1, 2, s).astype(np.float32)) for s in (left, right)]
    f = lambda x, w: jax.lax.conv_general_dilated(x, w, **{**given, **changed})
    dense = np.asarray(jax.jit(jax.jacfwd(f, operand))(*xs)) != 0
    found = np.asarray(fad.sparsity(fad.from_jax(f), operand)(*xs).todense()) != 0
    np.testing.assert_array_equal(found, dense)
