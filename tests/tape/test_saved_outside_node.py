"""Graphs of a body of `jit` that go on outside."""

from __future__ import annotations

import pytest

import fad
from fad.errors import GradientError


def leaf(*numbers: float) -> fad.Tensor:
    return fad.tensor(list(map(float, numbers)), requires_grad=True)


def test_what_is_returned_with_its_history_passes_gradients_on():
    w = leaf(1.0, 2.0)
    f = fad.jit(lambda x: (w * x).sum())
    for _ in range(2):
        w.grad = None
        loss = f(3.0)
        assert loss.requires_grad
        loss.backward()
        assert w.grad.tolist() == [3.0, 3.0]
    g = w * 2.0
    assert fad.autograd.grad(fad.jit(lambda x: (g * x).sum())(3.0), w)[0].tolist() == [6.0, 6.0]
    with pytest.raises(GradientError, match="whose history is outside"):
        fad.jit(lambda: (g * w).sum().backward())()
    assert w.grad.tolist() == [3.0, 3.0]
