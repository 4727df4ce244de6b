"""Indices: integers, bools, and positions that are known when code is traced."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad


def test_positions_are_constants_in_traced_code() -> None:
    def f(x):
        x[2:5] = x[1:4] * 2.0
        x[3] += x[0]
        return x

    def names(jaxpr: Any) -> list[str]:
        return [e.primitive.name for e in jaxpr.eqns]

    plain = names(jax.make_jaxpr(fad.to_jax(f))(jnp.zeros(8)).jaxpr)
    assert "slice" in plain and "dynamic_slice" not in plain
    batched = names(jax.make_jaxpr(jax.vmap(fad.to_jax(f)))(jnp.zeros((2, 8))).jaxpr)
    assert "gather" not in batched
    inside = names(jax.make_jaxpr(fad.to_jax(fad.vmap(f)))(jnp.zeros((2, 8))).jaxpr)
    assert "gather" not in inside and "dynamic_slice" not in inside


def test_what_is_remembered_of_an_index_holds_in_32_and_64_bits() -> None:
    """The numbers of an index are kept as arrays, whose dtype depends on JAX's setting."""
    data = np.arange(48.0, dtype=np.float32).reshape(6, 8)

    def run() -> None:
        x = fad.tensor(data)
        expected = data.copy()
        for _ in range(2):
            part, row = x[1:-1, 2:5], x[-1]
            assert np.array_equal(part, expected[1:-1, 2:5]) and np.array_equal(row, expected[-1])
            assert part.dtype == np.float32
            x[1:-1, 2:5] = -part
            expected[1:-1, 2:5] *= -1.0
            x[-1] += 1.0
            expected[-1] += 1.0
            assert np.array_equal(x, expected) and np.array_equal(row, expected[-1])

    for on in (False, True, False):
        with jax.enable_x64(on):
            run()


def test_an_index_is_remembered_by_the_types_of_its_numbers() -> None:
    x = fad.tensor(np.arange(6.0, dtype=np.float32))
    assert x[1:3].tolist() == [1.0, 2.0]
    with pytest.raises(TypeError):
        x[1.0:3]
    assert x[True].shape == (1, 6) and x[1].item() == 1.0


def test_views_of_values_are_seen_by_modes() -> None:
    """What has no history takes a shorter way, but not where a mode is on."""
    x = fad.tensor(np.arange(6.0, dtype=np.float32))
    assert x[1:3].tolist() == [1.0, 2.0]  # is remembered
    with fad.inference_mode():
        part = x[1:3]
    x[1:3] = 5.0
    assert part.tolist() == [5.0, 5.0] and part.base is x
    with fad.no_grad():
        part = x[1:3]
    leaf = fad.tensor([2.0, 3.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="no_grad"):
        part.mul_(leaf)
    double = fad.jit(lambda y: x[1:3] * y)  # captures x
    assert double(2.0).tolist() == [10.0, 10.0]
    x[1] = 1.0
    assert double(2.0).tolist() == [2.0, 10.0]
    assert fad.grad(lambda y: (x[1:3] * y).sum())(2.0) == 6.0
