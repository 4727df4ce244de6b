"""The autograd attributes of a Tensor: ``requires_grad``, and a clone's history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import GradientError


def test_requires_grad_needs_a_dtype_with_derivatives() -> None:
    for data in ([1, 2], [True, False]):
        with pytest.raises(TypeError, match=r"floating or complex.*got (int32|bool)"):
            fad.tensor(data, requires_grad=True)
    assert fad.tensor([1j], requires_grad=True).requires_grad


def test_requires_grad_is_switched_on_leaves_only() -> None:
    x = fad.tensor([1.0])
    assert x.requires_grad_() is x and x.requires_grad
    assert not x.requires_grad_(False).requires_grad
    y = leaf([1.0]) * 2.0
    assert y.requires_grad_() is y
    with pytest.raises(GradientError, match=r"leaf.*detach"):
        y.requires_grad_(False)


def test_clone_keeps_history() -> None:
    x = leaf([1.0, 2.0])
    y = x.clone()
    assert y is not x and y.requires_grad and not y.is_leaf
    y.sum().backward()
    assert_close(x.grad, np.ones(2, np.float32))


def test_requires_grad_is_set_as_by_requires_grad_(torch: Any) -> None:
    for lib in (fad, torch):
        x = lib.tensor([1.0, 2.0])
        x.requires_grad = True
        assert x.requires_grad
        y = x * 2.0
        for bad in ("text", None, 1):
            with pytest.raises(RuntimeError, match="must be a bool"):
                x.requires_grad = bad
        for value in (True, False):
            with pytest.raises(RuntimeError, match="only change requires_grad"):
                y.requires_grad = value
        n = lib.tensor([1, 2])
        with pytest.raises(RuntimeError, match="floating"):
            n.requires_grad = True
        n.requires_grad = False
        assert (x.requires_grad, y.requires_grad, n.requires_grad) == (True, True, False)
