"""Writes under ``no_grad``, at all levels: the value is new, the history is that of before."""

from __future__ import annotations

from collections.abc import Callable
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


# At dual levels: a Tensor of the eager tape becomes a dual, and is the leaf, or has the history, of before.

WRITES: dict[str, Callable[[Any, Any], object]] = {
    "sub_": lambda p, d: p.sub_(d),
    "copy_": lambda p, d: p.copy_(d),
    "an element": lambda p, d: p.__setitem__(0, d[0]),
    "a view": lambda p, d: p[1:].mul_(d[1:]),
}


def _facts(lib: Any, t: Any) -> list[Any]:
    primal, tangent = lib.autograd.forward_ad.unpack_dual(t)
    numbers = None if tangent is None else tangent.tolist()
    return [primal.tolist(), numbers, t.requires_grad, t.is_leaf]


def _writes_to_a_leaf(lib: Any, write: Callable[[Any, Any], object]) -> list[Any]:
    p, seen = lib.tensor([1.0, 2.0], requires_grad=True), []
    with lib.autograd.forward_ad.dual_level():
        d = lib.autograd.forward_ad.make_dual(lib.tensor([3.0, 4.0]), lib.tensor([1.0, 2.0]))
        with lib.no_grad():
            write(p, d)
        seen += _facts(lib, p)
        (p * p).sum().backward()
        seen += _facts(lib, p.grad)
        (g,) = lib.autograd.grad((p * p * d).sum(), p)
        seen += _facts(lib, g)
        with lib.no_grad():
            p.mul_(lib.tensor([3.0, 3.0]))
        seen += _facts(lib, p)
    seen += [p.tolist(), p.requires_grad, p.is_leaf]
    for _ in range(2):
        p.grad = None
        (p * p).sum().backward()
        seen += _facts(lib, p.grad)
        with lib.no_grad():
            p.sub_(p.grad)
        seen += [p.tolist(), p.requires_grad, p.is_leaf]
    return seen


def _writes_to_a_result(lib: Any, write: Callable[[Any, Any], object]) -> list[Any]:
    q = lib.tensor([1.0, 2.0], requires_grad=True)
    z, seen = q * 2.0, []
    with lib.autograd.forward_ad.dual_level():
        d = lib.autograd.forward_ad.make_dual(lib.tensor([3.0, 4.0]), lib.tensor([1.0, 2.0]))
        with lib.no_grad():
            write(z, d)
        seen += _facts(lib, z)
        (g,) = lib.autograd.grad((z * z).sum(), q, retain_graph=True)
        seen += _facts(lib, g)
        with lib.no_grad():
            write(z, d)
        seen += _facts(lib, z)
        y = (z * 3.0).sum()
    (y * y).backward()
    return [*seen, *_facts(lib, q.grad), z.tolist(), z.requires_grad, z.is_leaf]


def _writes_to_a_dual(lib: Any, write: Callable[[Any, Any], object]) -> list[Any]:
    q = lib.tensor([1.0, 2.0], requires_grad=True)
    z = q * 2.0
    with lib.autograd.forward_ad.dual_level():
        d = lib.autograd.forward_ad.make_dual(lib.tensor([3.0, 4.0]), lib.tensor([1.0, 2.0]))
        e = lib.autograd.forward_ad.make_dual(z, lib.tensor([1.0, 1.0]))
        with lib.no_grad():
            write(e, d)
        seen = [*_facts(lib, e), z.requires_grad, z.is_leaf, z.tolist()]
        (e * 3.0).sum().backward()
    return [*seen, *_facts(lib, q.grad)]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("program", [_writes_to_a_leaf, _writes_to_a_result, _writes_to_a_dual])
def test_a_dual_written_to_the_tape(program: Any, name: str, torch: Any) -> None:
    expected = program(torch, WRITES[name])
    for _ in range(3):  # what repeats is replayed
        assert program(fad, WRITES[name]) == expected


def test_a_dual_written_to_a_leaf_at_nested_levels() -> None:
    p = fad.tensor(2.0, requires_grad=True)
    with fad.dual_level() as outer:
        a = fad.make_dual(fad.tensor(3.0), fad.tensor(1.0))
        with fad.dual_level() as inner:
            b = fad.make_dual(a * a, fad.tensor(1.0))
            with fad.no_grad():
                p.mul_(b)
            (g,) = fad.autograd.grad(p * p, p)
            assert fad.unpack_dual(g, inner).tangent.item() == 4.0
        (g,) = fad.autograd.grad(p * p, p)
        assert fad.unpack_dual(g, outer).tangent.item() == 24.0 and p.is_leaf
    (p * p).backward()
    assert p.requires_grad and p.is_leaf and p.item() == 18.0 and p.grad.item() == 36.0
