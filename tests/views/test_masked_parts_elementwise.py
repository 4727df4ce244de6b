"""Which functions work element by element."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from fad.extend import Primitive
from fad.views import masked_parts


def is_elementwise(f, avals):
    return masked_parts._is_elementwise(Primitive("f", f), avals)


SQUARE, ROW = jax.ShapeDtypeStruct((3, 3), "float32"), jax.ShapeDtypeStruct((3,), "float32")


@pytest.mark.parametrize(
    "f",
    [
        jnp.sin,
        jnp.sinc,
        jax.nn.gelu,
        jax.nn.relu,
        lambda x: jnp.clip(x, 0.0, 1.0),
        lambda x: jnp.where(x > 0, x, 2.0),
        lambda x: jnp.nan_to_num(x),
        lambda x: jax.scipy.special.erfinv(x) + 1,
    ],
)
def test_functions_that_are(f):
    assert is_elementwise(f, (SQUARE,))


@pytest.mark.parametrize("f", [jnp.add, jnp.arctan2, lambda x, y: jnp.where(x > 0, x, y)])
def test_functions_of_broadcast_operands_that_are(f):
    assert is_elementwise(f, (SQUARE, ROW))


TABLE = jnp.ones((3, 3))


@pytest.mark.parametrize(
    "f",
    [
        jnp.cumsum,
        jnp.sort,
        jnp.transpose,
        jnp.flip,
        jnp.tril,
        jnp.linalg.inv,
        jax.nn.softmax,
        lambda x: x - x.mean(),
        lambda x: x[0],
        lambda x: x[0][:, None] * jnp.ones((3, 3)),
        lambda x: x + TABLE,
        lambda x: x @ x,
        lambda x: x.reshape(-1),
        lambda x: x[None],
    ],
)
def test_functions_that_are_not(f):
    assert not is_elementwise(f, (SQUARE,))
