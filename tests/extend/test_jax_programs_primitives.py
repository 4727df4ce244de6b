"""A primitive of JAX with rules of its own has them under the transforms of fad and of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad import extend


def _product_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Of ``x y``, with 10 times the slope by ``x``, and with none by ``y``."""
    x, y = primals
    t = tangents[0]
    return PRODUCT.bind(x, y), [None] if t is None else SLOPE.bind(t, y)


def _product_batch(axis: Any, operands: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
    lanes = [
        jnp.broadcast_to(x, (axis.size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(operands, dims, strict=True)
    ]
    return PRODUCT.bind(*lanes), [0]


PRODUCT = extend.native_primitive(
    "product",
    lambda x, y: [x * y],
    lambda x, y: [jax.ShapeDtypeStruct(x.shape, x.dtype)],
    jvp=_product_jvp,
    batch=_product_batch,
)
SLOPE = extend.native_primitive(
    "slope",
    lambda t, y: [10.0 * t * y],
    lambda t, y: [t],
    jvp=lambda primals, tangents: (SLOPE.bind(*primals), [None]),
    batch=lambda axis, operands, dims: (SLOPE.bind(*operands), [0]),
    transpose=lambda cotangents, operands, linear: [
        SLOPE.bind(cotangents[0], operands[1])[0] if linear[0] else None,
        None,
    ],
)


def product(x: Any, y: Any) -> Any:
    return PRODUCT.bind(x, y)[0]


@pytest.mark.parametrize("transform", [jax.grad, lambda f: fad.grad(fad.from_jax(f))])
def test_the_rules_are_used(transform: Any) -> None:
    x, y = jnp.float32(2.0), jnp.float32(3.0)
    assert float(transform(product)(x, y)) == 30.0
    assert float(transform(lambda y, x: product(x, y))(y, x)) == 0.0
    assert float(jax.jit(transform(product))(x, y)) == 30.0


def test_lanes_and_tangents() -> None:
    xs, y = jnp.arange(3.0), jnp.float32(3.0)
    run = fad.from_jax(product)
    for vmap in (jax.vmap(product, (0, None)), fad.vmap(run, (0, None))):
        np.testing.assert_array_equal(np.asarray(vmap(xs, y)), [0.0, 3.0, 6.0])
    assert float(fad.jvp(run, (y, y), (y, y))[1]) == 90.0
    assert float(jax.jvp(product, (y, y), (y, y))[1]) == 90.0
    assert float(product(y, y)) == 9.0


def test_a_second_call_outside_of_compiled_code_compiles_nothing() -> None:
    """Parameters that are equal to Python, but differ in type, are others."""
    traced: list[Any] = []

    def run(x: Any, by: Any) -> Any:
        traced.append(by)
        return [x * by]

    scaled = extend.native_primitive(
        "scaled",
        run,
        lambda x, by: [x],
        jvp=lambda primals, tangents, by: (scaled.bind(*primals, by=by), [None]),
        batch=lambda axis, operands, dims, by: (scaled.bind(*operands, by=by), dims),
    )
    for by in (2.0, 2.0, 0.0, -0.0, 0.0):
        (out,) = scaled.bind(jnp.float32(3.0), by=by)
        assert float(out) == 3.0 * by and np.signbit(out) == np.signbit(by)
    assert traced == [2.0, 0.0, -0.0]
    unhashed = [scaled.bind(jnp.float32(3.0), by=np.full((), 2.0))[0] for _ in range(2)]
    assert unhashed == [6.0, 6.0]  # parameters without a hash


class Scale:
    """A product whose factor may change."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, point, vector):
        return [np.asarray(vector[0]) * self.factor]


def test_parameters_that_may_change_are_read_at_each_call():
    scale = Scale(2.0)
    scaled = extend.native_primitive(
        "scaled",
        lambda x, *, scale: [x * scale.factor],
        lambda x, *, scale: [x],
        jvp=lambda primals, tangents, **parameters: (primals, tangents),
        batch=lambda axis, operands, dims, **parameters: (operands, dims),
    )
    for factor in (2.0, 3.0):
        scale.factor = factor
        assert scaled.bind(jnp.ones(2), scale=scale)[0].tolist() == [factor, factor]
        # A product outside of compiled code is called as it is: it may read numbers.
        assert extend.linear_call(scale, [], [jnp.ones(2)])[0].tolist() == [factor, factor]
