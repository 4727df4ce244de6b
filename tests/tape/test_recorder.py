"""What is recorded: Tensors that require grad, and what is computed from them."""

from __future__ import annotations

import jax.numpy as jnp
from helpers import leaf

import fad
import fad.numpy as fnp


def test_tensors_do_not_require_grad_unless_asked() -> None:
    assert not fad.tensor(1.0).requires_grad
    assert not fad.asarray(jnp.ones(2)).requires_grad
    x = leaf([1.0, 2.0])
    assert x.requires_grad and x.is_leaf and x.grad_fn is None and x.grad is None


def test_what_is_computed_from_a_tracked_tensor_is_tracked() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    assert y.requires_grad and not y.is_leaf and y.output_nr == 0
    assert type(y.grad_fn).__name__ and "Mul" in y.grad_fn.name()
    assert not fad.tensor(3.0).requires_grad and (fad.tensor(3.0) * x).requires_grad


def test_integer_results_are_not_tracked() -> None:
    x = leaf([1.0, 2.0])
    for y in (x > 1.0, fnp.argmax(x), x.astype(int), fnp.sign(x).astype(bool)):
        assert not y.requires_grad and y.is_leaf
