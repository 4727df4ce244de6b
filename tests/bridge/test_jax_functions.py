"""``from_jax``: a JAX function as one operation."""

from __future__ import annotations

import jax.numpy as jnp

import fad


def test_from_jax_is_one_operation() -> None:
    f = fad.from_jax(lambda tree: {"y": jnp.sin(tree["x"]) @ tree["w"] + jnp.cos(tree["x"]).sum()})
    x = fad.tensor([0.3, -0.5], requires_grad=True)
    out = f({"x": x, "w": fad.tensor([1.0, 2.0], requires_grad=True)})["y"]
    assert [type(n).__name__ for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2
