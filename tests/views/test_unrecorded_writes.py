"""Writes under ``no_grad``, at all levels: the value is new, the history is that of before."""

from __future__ import annotations

from typing import Any

import pytest

import fad
import fad.numpy as fnp


def program(m: Any) -> Any:
    def f(x: Any) -> Any:
        y = x * 2.0
        part = y[:1]
        with m.no_grad():
            y.mul_(3.0)
            part.add_(1.0)
        return (y * x).sum()

    return f


def test_as_in_pytorch(torch: Any, replay_mode: None) -> None:
    x, rows = [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]
    ours, theirs = program(fad), program(torch)

    def gradients(f: Any, m: Any, t: Any) -> list[Any]:
        func = m.func
        t_x, t_rows = t(x), t(rows)
        given = t_rows[0] * 1.0
        found = [
            func.grad(f)(t_x),
            func.grad(lambda a: func.vmap(f)(a).sum())(t_rows),
            func.grad(lambda a: func.vmap(lambda b: f(b * a))(t_rows).sum())(t_x),
            func.grad(lambda a: func.vmap(f, 1)(a).sum())(t_rows),
            func.grad(lambda a: func.jvp(f, (a,), (given,))[0])(t_x),
            func.jvp(f, (t_x,), (given,))[1],
            func.grad(lambda a: func.grad(lambda b: f(a) * b.sum())(a).sum())(t_x),
        ]
        return [v.tolist() for v in found]

    expected = gradients(theirs, torch, torch.tensor)
    for _ in range(3):
        assert gradients(ours, fad, fad.tensor) == expected
    assert gradients(fad.jit(ours), fad, fad.tensor) == expected


def test_an_unbatched_tensor_becomes_batched(replay_mode: None) -> None:
    """Where the new value has lanes and the old one has none, each lane has the history of the old one."""

    def f(w: Any) -> Any:
        def lane(x: Any) -> Any:
            y = w * fnp.ones(2)
            y = fad.func.vmap(lambda _: y)(fnp.ones(1))[0] + 0.0 * x
            with fad.no_grad():
                y.mul_(x)
            return (y * x).sum()

        return fad.vmap(lane)(fad.tensor([2.0, 3.0])).sum()

    assert float(fad.grad(f)(5.0)) == 2 * (2.0 + 3.0)


@pytest.mark.parametrize("wrap", [lambda f: f, fad.jit], ids=["eager", "jit"])
def test_straight_through(wrap: Any, replay_mode: None) -> None:
    """A value rounded in place keeps the gradient of what was rounded."""

    def f(x: Any) -> Any:
        y = x * 1.0
        with fad.no_grad():
            y.copy_(fnp.round(y))
        return (y * y).sum()

    x = fad.tensor([0.4, 1.6])
    for _ in range(3):
        assert fad.grad(wrap(f))(x).tolist() == [0.0, 4.0]
