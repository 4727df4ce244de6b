"""Saved values in the memory of the host."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import fad
from fad import autograd


def test_values_on_the_host_are_copied_back() -> None:
    device = jax.devices("cpu")[3]
    x = fad.asarray(jax.device_put(jnp.arange(3.0), device)).requires_grad_()
    with autograd.save_on_cpu():
        y = (x * x).sum()
    assert y.grad_fn.next_functions[0][0]._saved_self.devices() == {device}
    y.backward()
    assert x.grad.devices() == {device} and x.grad.tolist() == [0.0, 2.0, 4.0]
