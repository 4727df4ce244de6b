"""What depends and what does not, where a backward pass is itself recorded: as in PyTorch's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fad
import fad.nn
import fad.numpy as fnp

# Programs of x and a, which require grad, and c, which does not; `n` is torch or fad.numpy.
PROGRAMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "x a": lambda n, x, a, c: x * a,
    "a x": lambda n, x, a, c: a * x,
    "x c": lambda n, x, a, c: x * c,
    "3 x": lambda n, x, a, c: x * 3.0,
    "-x": lambda n, x, a, c: -x,
    "x + a": lambda n, x, a, c: x + a,
    "a - x": lambda n, x, a, c: a - x,
    "x": lambda n, x, a, c: x,
    "a": lambda n, x, a, c: a * a,
    "x x": lambda n, x, a, c: x * x,
    "x x a + 3 x": lambda n, x, a, c: x * x * a + x * 3.0,
    "x / a": lambda n, x, a, c: x / a,
    "a / x": lambda n, x, a, c: a / x,
    "abs": lambda n, x, a, c: abs(x),
    "sqrt": lambda n, x, a, c: n.sqrt(x),
    "floor": lambda n, x, a, c: n.floor(x),
    "x floor x": lambda n, x, a, c: x * n.floor(x),
    "detach": lambda n, x, a, c: x.detach() * a,
    "where": lambda n, x, a, c: n.where(x > 0, x, a),
    "sum": lambda n, x, a, c: (x * a).reshape(1).sum(),
    "mean": lambda n, x, a, c: (x * a * n.ones(3)).mean(),
    "dot": lambda n, x, a, c: n.dot(x.reshape(1), a.reshape(1)),
    "stack": lambda n, x, a, c: n.stack([x * c, a])[0],
    "other": lambda n, x, a, c: n.stack([x * c, a])[1] * a,
    "matmul": lambda n, x, a, c: (n.ones((2, 2)) @ n.stack([x, a]))[0] * a,
    "in place": lambda n, x, a, c: (x * 1.0).mul_(a).add_(c),
}
OPTIONS: dict[str, dict[str, bool]] = {
    "plain": {},
    "allow_unused": {"allow_unused": True},
    "materialize_grads": {"materialize_grads": True},
}


def derivatives(m: Any, n: Any, f: Callable[..., Any], options: dict[str, bool]) -> list[Any]:
    """Three derivatives in x, each of the one before: its number and whether it requires grad."""
    x, a = m.tensor(0.5, requires_grad=True), m.tensor(3.0, requires_grad=True)
    y = f(n, x, a, m.tensor(2.0))
    found: list[Any] = []
    for _ in range(3):
        try:
            (y,) = m.autograd.grad(y, x, create_graph=True, **options)
        except RuntimeError as error:
            words = ("does not require grad", "not have been used")
            return [*found, *[w for w in words if w in str(error)]]
        if y is None:
            return [*found, None]
        found.append((round(float(y.detach()), 5), y.requires_grad, y.is_leaf))
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_as_in_pytorch(options: str, torch: Any, replay_mode: None) -> None:
    for name, f in PROGRAMS.items():
        expected = derivatives(torch, torch, f, OPTIONS[options])
        assert derivatives(fad, fnp, f, OPTIONS[options]) == expected, name


def test_a_loop_of_derivatives(torch: Any, replay_mode: None) -> None:
    def run(m: Any) -> list[Any]:
        x, a = m.tensor(0.5, requires_grad=True), m.tensor(3.0, requires_grad=True)
        y, found = a * x, []
        for _ in range(4):
            (y,) = m.autograd.grad(
                y, x, create_graph=True, allow_unused=True, materialize_grads=True
            )
            found.append((float(y.detach()), y.requires_grad, y.is_leaf))
        return found

    for _ in range(3):
        assert run(fad) == run(torch)


@pytest.mark.parametrize("last", [False, True], ids=["recorded", "not recorded"])
def test_several_inputs_of_one_node(last: bool, torch: Any, replay_mode: None) -> None:
    """A node that gives several gradients: each depends on what it is computed from."""

    def run(m: Any) -> list[Any]:
        x, a, b = (m.tensor(v, requires_grad=True) for v in (0.5, 3.0, 2.0))
        y = x * a + b * b * a
        firsts = m.autograd.grad(y, [x, a, b], create_graph=True)
        found = []
        for g in firsts:
            seconds = m.autograd.grad(
                g, [x, a, b], allow_unused=True, retain_graph=True, create_graph=not last
            )
            found.append([s if s is None else float(s.detach()) for s in seconds])
        (firsts[0] * 2.0 + firsts[2]).backward()
        return [found, [v.grad if v.grad is None else float(v.grad) for v in (x, a, b)]]

    for _ in range(6):  # by the end, the passes are replayed
        assert run(fad) == run(torch)


def test_of_piecewise_linear_functions() -> None:
    """They compare x, so it is used in their derivative, with a derivative of zero; see docs/graph.md."""
    for f in (fad.nn.relu, fad.nn.leaky_relu, lambda x: fnp.clip(x, 0.0, 1.0), fnp.max):
        x = fad.tensor([0.5, -1.0], requires_grad=True)
        (g,) = fad.autograd.grad(f(x).sum(), x, create_graph=True)
        (h,) = fad.autograd.grad(g.sum(), x)
        assert h.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("wrap", [fad.jit, fad.checkpoint], ids=["jit", "checkpoint"])
def test_through_compiled_and_rerun_code(wrap: Any) -> None:
    x, a = fad.tensor(0.5, requires_grad=True), fad.tensor(3.0, requires_grad=True)
    (g,) = fad.autograd.grad(wrap(lambda x, a: x * a)(x, a), x, create_graph=True)
    assert float(g.detach()) == 3.0 and g.requires_grad
    assert fad.autograd.grad(g, x, allow_unused=True, retain_graph=True) == (None,)
    assert float(fad.autograd.grad(g, a)[0]) == 1.0


def test_inside_of_transforms(torch: Any) -> None:
    """The rule is that of every level."""

    def f(m: Any) -> Any:
        def loss(x: Any, a: Any) -> Any:
            y = m.func.vmap(lambda v: v * a)(x)
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            second = m.autograd.grad(g.sum(), x, allow_unused=True, create_graph=True)
            assert second == (None,)
            return (g * g * x).sum()

        return loss

    def run(m: Any) -> list[Any]:
        x = m.tensor([0.5, 2.0], requires_grad=True)
        a = m.tensor(3.0, requires_grad=True)
        f(m)(x, a).backward()
        return [x.grad.tolist(), a.grad.tolist()]

    assert run(fad) == run(torch)

    def inner(x: Any, a: Any) -> Any:
        (g,) = fad.autograd.grad((x * a).sum(), x, create_graph=True)
        assert fad.autograd.grad(g.sum(), x, allow_unused=True, create_graph=True) == (None,)
        return (g * g).sum()

    x, a = fnp.array([0.5, 2.0]), fnp.array(3.0)
    both = fad.grad(inner, (0, 1))
    for found in (both(x, a), [g[0] for g in fad.vmap(both, (None, 0))(x, a[None])]):
        assert [g.tolist() for g in found] == [[0.0, 0.0], 12.0]
