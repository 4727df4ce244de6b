"""Programs that copy Tensors: fad does as PyTorch, eagerly and in the body of `jit`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import fad

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

PROGRAMS: dict[str, Callable[[Any], Callable[[], Any]]] = {}


def program(make: Callable[[Any], Callable[[], Any]]) -> Callable[[Any], Callable[[], Any]]:
    PROGRAMS[make.__name__] = make
    return make


def leaf(lib: Any, *numbers: float) -> Any:
    return lib.tensor(list(numbers), requires_grad=True)


class Net:
    def __init__(self, lib: Any) -> None:
        self.w, self.b, self.seen = leaf(lib, 1.0, 2.0), leaf(lib, 0.5), lib.tensor([0.0])
        self.tied = self.w

    def loss(self, x: Any) -> Any:
        return ((self.w * x * self.tied).sum() + self.b) ** 2


@program
def of_a_leaf(lib):
    w = leaf(lib, 1.0)

    def step():
        old = copy.deepcopy(w)
        ((w - old) * 3.0).sum().backward()
        g, h, w.grad = w.grad, old.grad, None
        return [g, h, old.is_leaf, old.requires_grad]

    return step


@program
def shallow_of_a_leaf(lib):
    w = leaf(lib, 1.0)

    def step():
        c = copy.copy(w)
        (c * 2.0).sum().backward()
        with lib.no_grad():
            w.add_(1.0)
        return [c.grad, w.grad is None, c.is_leaf, c.requires_grad, c.detach()]

    return step


@program
def of_a_leaf_that_was_written_to(lib):
    w = leaf(lib, 1.0)

    def step():
        with lib.no_grad():
            w.add_(1.0)
        old = copy.deepcopy(w)
        with lib.no_grad():
            old.mul_(3.0)
            w.add_(1.0)
        return [old.detach() * 1.0, w.detach() * 1.0]

    return step


@program
def with_a_gradient(lib):
    w = leaf(lib, 1.0)
    w.grad = lib.tensor([5.0])

    def step():
        c = copy.deepcopy(w)
        c.grad.add_(1.0)
        (c * w).sum().backward()
        g, w.grad = w.grad, w.grad * 0.5
        return [g, c.grad]

    return step


@program
def with_attributes(lib):
    w = leaf(lib, 1.0)
    w.momentum, w.group = lib.tensor([2.0]), "weights"

    def step():
        c = copy.deepcopy(w)
        c.momentum.add_(1.0)
        return [c.momentum * 1.0, w.momentum * 1.0, c.group == "weights"]

    return step


@program
def of_a_view_after_its_base(lib):
    b = lib.tensor([1.0, 1.0])
    v = b[:1]

    def step():
        c = copy.deepcopy({"b": b, "v": v})
        c["b"].add_(1.0)
        return [c["v"] * 1.0, c["b"] * 1.0, b * 1.0]

    return step


@program
def of_a_view_before_its_base(lib):
    b = lib.tensor([1.0, 1.0])
    v = b[:1]

    def step():
        v.add_(1.0)
        v2, b2 = copy.deepcopy((v, b))
        v2.mul_(3.0)
        return [v2 * 1.0, b2 * 1.0, b * 1.0]

    return step


@program
def of_what_was_detached(lib):
    w = leaf(lib, 1.0)
    d = w.detach()

    def step():
        w2, d2 = copy.deepcopy([w, d])
        d2.add_(1.0)
        (w2 * w2).sum().backward()
        return [w2.grad, d2 * 1.0, w.detach() * 1.0, d2.requires_grad]

    return step


@program
def of_a_leaf_made_inside(lib):
    w = lib.tensor([2.0])

    def step():
        p = w.detach().requires_grad_()
        old = copy.deepcopy(p)
        ((p - old) * 3.0).sum().backward()
        q = copy.copy(p)
        (q * 5.0).sum().backward()
        return [p.grad, old.grad, q.grad]

    return step


@program
def of_what_is_computed(lib):
    w = leaf(lib, 1.0)
    return lambda: [copy.deepcopy(w * 2.0)]


@program
def of_what_was_computed_outside(lib):
    h = leaf(lib, 1.0) * 2.0
    return lambda: [copy.deepcopy(h)]


@program
def of_a_constant(lib):
    w, x = leaf(lib, 3.0), lib.tensor([2.0])

    def step():
        y = copy.deepcopy(x * 2.0)
        (y * w).sum().backward()
        g, w.grad = w.grad, None
        return [g, y, y.requires_grad]

    return step


@program
def reptile(lib):
    net, x = Net(lib), lib.tensor([1.0, -2.0])

    def step():
        fast = copy.deepcopy(net)
        for _ in range(2):
            params = [fast.w, fast.b]
            fast.loss(x).sum().backward()
            with lib.no_grad():
                for p in params:
                    p.sub_(p.grad * 0.01)
                    p.grad = None
                fast.seen.add_(1.0)
        with lib.no_grad():
            for p, q in ((net.w, fast.w), (net.b, fast.b)):
                p.add_((q - p) * 0.5)
        return [net.w.detach() * 1.0, net.b.detach() * 1.0, fast.seen, net.seen * 1.0]

    return step


@program
def maml_first_order(lib):
    net, x = Net(lib), lib.tensor([1.0, -2.0])

    def step():
        fast = copy.deepcopy(net)
        grads = lib.autograd.grad(fast.loss(x).sum(), [fast.w, fast.b])
        with lib.no_grad():
            for p, g in zip([fast.w, fast.b], grads):
                p.sub_(g * 0.01)
        fast.loss(x * 2.0).sum().backward()
        with lib.no_grad():
            for p, q in ((net.w, fast.w), (net.b, fast.b)):
                p.sub_(q.grad * 0.01)
        return [net.w.detach() * 1.0, fast.tied is fast.w, net.w.grad is None]

    return step


@program
def averaged_weights(lib):
    net, x = Net(lib), lib.tensor([1.0, -2.0])
    kept = copy.deepcopy(net)

    def step():
        before = copy.deepcopy(net.w)
        net.loss(x).sum().backward()
        with lib.no_grad():
            net.w.sub_(net.w.grad * 0.01)
            kept.w.mul_(0.9).add_(net.w * 0.1)
            net.w.grad = net.b.grad = None
        return [before.detach() * 1.0, kept.w.detach() * 1.0, net.w.detach() * 1.0]

    return step


def outcome(step: Callable[[], Any], calls: int = 3) -> Any:
    try:
        return [[x.tolist() if hasattr(x, "tolist") else x for x in step()] for _ in range(calls)]
    except RuntimeError as error:
        return "only leaves" if "deepcopy protocol" in str(error) else str(error)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("compiled", [False, True])
def test_copies_are_as_in_torch(name: str, compiled: bool) -> None:
    expected = outcome(PROGRAMS[name](torch))
    step = PROGRAMS[name](fad)
    got = outcome(fad.jit(step) if compiled else step)
    if isinstance(expected, str) or isinstance(got, str):
        assert got == expected
        return
    for ours, theirs in zip(got, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a == (pytest.approx(b, rel=1e-5) if isinstance(b, list) else b)
