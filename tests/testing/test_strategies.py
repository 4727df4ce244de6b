"""What the strategies draw has the form that they promise."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fad
from fad.testing.strategies import arrays, broadcasting_shapes, in_dims, out_dims, pytrees, shapes


@given(broadcasting_shapes(3))
def test_shapes_broadcast(found: tuple[tuple[int, ...], ...]) -> None:
    assert len(found) == 3
    np.broadcast_shapes(*found)


@settings(max_examples=20)
@given(st.data())
def test_in_dims_and_out_dims_fit_a_vmap(data: st.DataObject) -> None:
    args = (data.draw(arrays(shapes(2), "float32")), data.draw(arrays(shapes(2), "float32")))
    dims = data.draw(in_dims(args))
    outs = data.draw(out_dims(args))
    given_ = [
        jnp.asarray(a if d is None else np.stack([a] * 2, d if d >= 0 else a.ndim))
        for a, d in zip(args, dims, strict=True)
    ]
    mapped = fad.vmap(lambda x, y: (x * 1.0, y * 1.0), in_dims=dims, out_dims=outs)(*given_)
    for out, a, d in zip(mapped, args, outs, strict=True):
        np.testing.assert_array_equal(np.moveaxis(np.asarray(out), d, 0)[1], a)


@settings(max_examples=20)
@given(pytrees())
def test_pytrees_go_through_a_function(tree: Any) -> None:
    got = fad.from_jax(lambda t: t)(tree)
    assert jax.tree.structure(got) == jax.tree.structure(tree)


@given(arrays())
def test_arrays_are_finite(x: np.ndarray) -> None:
    assert np.isfinite(x).all() and x.ndim <= 3
