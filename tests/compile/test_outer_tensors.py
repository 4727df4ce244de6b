"""What stands in a body of `jit` for Tensors outside: views, aliases, arguments."""

from __future__ import annotations

import pytest

import fad
from fad.errors import GradientError, LevelError


def leaf(*numbers: float) -> fad.Tensor:
    return fad.tensor(list(map(float, numbers)), requires_grad=True)


def test_views_and_aliases_outside_see_what_is_written():
    base = fad.zeros(4)
    view, peer, held = base[1:3], base.detach(), base.array

    @fad.jit
    def step(x):
        view.add_(x)
        base[0] = view.sum()
        return peer * 1.0

    for k in (1.0, 2.0, 3.0):
        out = step(fad.tensor(1.0))
        assert base.tolist() == peer.tolist() == out.tolist() == [2 * k, k, k, 0.0]
        assert view.tolist() == [k, k] and base.version == view.version == 2 * k
    assert held.tolist() == [0.0] * 4
    y = (leaf(1.0, 1.0, 1.0, 1.0) * base).sum()
    step(fad.tensor(1.0))
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        y.backward()


def test_one_tensor_as_an_argument_and_from_outside():
    w = fad.tensor([1.0, 2.0])
    step = fad.jit(lambda x: (w.mul_(2.0), x + w)[1])
    assert step(fad.tensor([1.0, 1.0])).tolist() == [3.0, 5.0]
    assert step(w).tolist() == [8.0, 16.0] and w.tolist() == [4.0, 8.0]
    assert step(fad.tensor([1.0, 1.0])).tolist() == [9.0, 17.0]
    for bad in (w[:], w.detach()):
        with pytest.raises(LevelError, match="shares its storage with leaf 0"):
            step(bad)
    assert w.tolist() == [8.0, 16.0]
