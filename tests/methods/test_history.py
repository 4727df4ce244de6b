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


def test_data_is_the_value_without_history(torch: Any) -> None:
    """As old programs of PyTorch write it: their steps of optimizers, and results that are read."""

    def program(library: Any) -> list[Any]:
        p = library.tensor([1.0, 2.0, 3.0], requires_grad=True)
        p.data -= library.tensor([0.1, 0.2, 0.3])
        p.data = p.data * 2
        p.data.clamp_(0.0, 5.0)
        alias = p.data
        alias.add_(1.0)
        (p * p).sum().backward()
        y = p * 3
        y.data = library.tensor([1.0, 1.0, 1.0])
        (y * y).sum().backward()
        assert p.is_leaf and not alias.requires_grad and y.grad_fn is not None
        return [t.detach().numpy() for t in (p, p.grad, y, alias)]

    for got, want in zip(program(fad), program(torch), strict=True):
        assert_close(got, want)


def test_what_data_cannot_be() -> None:
    x = fad.tensor([1.0, 2.0])
    for value, words in (
        (fad.zeros(3), "keeps its shape"),
        (fad.tensor([1, 2]), "keeps its shape"),
    ):
        with pytest.raises(fad.errors.ArgumentError, match=words):
            x.data = value
    with pytest.raises(TypeError, match="must be a Tensor"):
        x.data = [1.0, 2.0]
    view = x[:1]
    x.data = x[::-1]
    assert x.tolist() == [2.0, 1.0] and view.tolist() == [2.0]
    w = fad.tensor(1.0, requires_grad=True)
    y = w * w
    w.data.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()  # PyTorch takes the changed value, silently


def test_pytorchs_names_of_the_version_and_of_the_base(torch: Any) -> None:
    def program(lib: Any) -> list[Any]:
        x = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
        row = x[0]
        seen = [x._version, row._base is x, x._base is None, row[1:]._base is x]
        row.mul_(2.0)
        x.detach().add_(1.0)
        with lib.inference_mode():
            y = lib.tensor([1.0]) * 1.0
        with pytest.raises(RuntimeError, match="do not track version counter"):
            _ = y._version
        return [*seen, x._version, row._version, x.clone()._version, x.tolist()]

    assert program(fad) == program(torch)
    x = fad.tensor([1.0, 2.0])[1:]
    assert x._version == x.version and x._base is x.base
    for name in ("_version", "_base"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
        assert name not in dir(fad)
