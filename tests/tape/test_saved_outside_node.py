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


# Of leaves p and q, of h, computed of p outside, and of what else is: loss, inputs.
LOST = {
    "a leaf and what is computed of it": lambda p, q, h: ((h * p).sum(), [p]),
    "only what is computed of it": lambda p, q, h: (h.sum(), [p]),
    "both are inputs": lambda p, q, h: ((h * p).sum(), [h, p]),
    "among others": lambda p, q, h: ((h * q).sum(), [q, p]),
    "behind operations": lambda p, q, h: (fad.numpy.sin(h * q).sum() + q.sum(), [p]),
    "a view of it": lambda p, q, h: ((h[:1] * p).sum(), [p]),
    "an edge": lambda p, q, h: ((h * p).sum(), [fad.autograd.graph.get_gradient_edge(p)]),
}
KEPT = {
    "of another leaf": lambda p, q, h: ((h * q).sum(), [q]),
    "itself": lambda p, q, h: ((h * 3.0).sum(), [h]),
    "itself, squared": lambda p, q, h: ((h * h).sum(), [h]),
    "itself and another": lambda p, q, h: ((h * q).sum(), [q, h]),
    "detached": lambda p, q, h: ((h.detach() * p).sum(), [p]),
    "not reached": lambda p, q, h: (h.sum() * 0.0, [q]),
    "a part": lambda p, q, h: (lambda v: ((v * 2.0).sum(), [v]))(h[:1]),
}
# These with `backward(inputs=...)`.
LOSES = "accumulated, through what is computed of it"
INTO = {
    LOSES: lambda p, q, h: ((h * p * q).sum(), [p]),
    "accumulated, of another leaf": lambda p, q, h: ((h * q).sum(), [q]),
    "accumulated, detached": lambda p, q, h: ((h.detach() * p).sum(), [p]),
}
CALLS = {
    "closed over": lambda f, p, q, h: fad.jit(lambda: f(p, q, h))(),
    "arguments": lambda f, p, q, h: fad.jit(f)(p, q, h),
    "leaves are arguments": lambda f, p, q, h: fad.jit(lambda p, q: f(p, q, h))(p, q),
    "the other is an argument": lambda f, p, q, h: fad.jit(lambda h: f(p, q, h))(h),
    "two bodies": lambda f, p, q, h: fad.jit(lambda: fad.jit(lambda: f(p, q, h))())(),
    "two bodies, arguments": lambda f, p, q, h: fad.jit(lambda *a: fad.jit(f)(*a))(p, q, h),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [*LOST, *KEPT, *INTO])
def test_a_pass_loses_no_path_that_goes_through_the_graph_outside(call, name):
    program = {**LOST, **KEPT, **INTO}[name]

    def f(p, q, h):
        loss, inputs = program(p, q, h)
        if name not in INTO:
            return fad.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True)
        loss.backward(inputs=inputs, retain_graph=True)
        return [(fad.zeros(2) if x.grad is None else x.grad * 1.0) for x in (p, q)]

    p, q = leaf(2.0, 3.0), leaf(5.0, 7.0)
    h = fad.numpy.exp(p * p * 0.1)
    if name in LOST or name == LOSES:
        with pytest.raises(GradientError, match="whose history is outside"):
            CALLS[call](f, p, q, h)
        assert p.grad is None and q.grad is None
        return
    got = CALLS[call](f, p, q, h)
    p.grad = q.grad = None
    for ours, theirs in zip(got, f(p, q, h), strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or ours.tolist() == pytest.approx(theirs.tolist())


def test_a_body_in_a_body_loses_no_path_through_an_argument():
    p = fad.tensor([2.0], requires_grad=True)

    @fad.jit
    def f():
        h = p * p
        return fad.jit(lambda h: fad.autograd.grad((h * p).sum(), p)[0])(h)

    with pytest.raises(GradientError, match="whose history is outside of it"):
        f()
    assert p.grad is None
