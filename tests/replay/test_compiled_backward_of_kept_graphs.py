"""Repeated backward passes through one graph: its layout is used as long as it is valid."""

from __future__ import annotations

import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = np.array([0.3, -0.7, 1.1], np.float32)
TIMES = 5  # enough for a pass to be compiled


@pytest.fixture(autouse=True)
def _at_once():
    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(wait=True):
        yield


class Graph:
    """Two leaves, what is computed of them, and what hooks have seen."""

    def __init__(self):
        self.w = fad.tensor(X, requires_grad=True)
        self.b = fad.tensor(X + 1, requires_grad=True)
        self.product = self.w * self.b
        self.tanh = fnp.tanh(self.product)
        self.row = self.tanh[1:]
        self.loss = (self.tanh * self.w).sum() + (self.row**2).sum()
        self.seen = []

    def passes(self, **options):
        """The gradients of a pass that keeps the graph, or its error; and what hooks saw in it."""
        self.w.grad = self.b.grad = None
        self.seen.clear()
        try:
            self.loss.backward(retain_graph=True, **options)
        except GradientError as error:
            return str(error).splitlines()[0]
        grads = [None if t.grad is None else t.grad.array for t in (self.w, self.b)]
        return [*grads, *self.seen]


def double(g):
    return g * 2


def note(graph):
    def hook(*args):
        grads = [g for a in args for g in (a if isinstance(a, tuple) else (a,))]
        graph.seen.extend([g.detach().array for g in grads if isinstance(g, fad.Tensor)])

    return hook


def hook_and_remove(g):
    handle = g.tanh.register_hook(double)
    handle.remove()


def write_and_look(g):
    with fad.no_grad():
        g.w.mul_(2.0)


def free_a_part(g):
    g.tanh.sum().backward()


def raw_hooks(g):
    node = (g.tanh * g.w).grad_fn.next_functions[0][0]
    node._raw_saved_result.register_hooks(lambda t: t * 3, lambda t: t / 2)


EVENTS = {
    "nothing": lambda g: None,
    "a hook on a value": lambda g: g.tanh.register_hook(double),
    "a hook that is gone": hook_and_remove,
    "a hook on a leaf": lambda g: g.w.register_hook(double),
    "a hook after a leaf": lambda g: g.w.register_post_accumulate_grad_hook(note(g)),
    "a hook before a node": lambda g: g.tanh.grad_fn.register_prehook(note(g)),
    "a hook after a node": lambda g: g.product.grad_fn.register_hook(note(g)),
    "a hook on the last node": lambda g: g.loss.grad_fn.register_hook(note(g)),
    "a retained gradient": lambda g: g.product.retain_grad(),
    "a write to a leaf": write_and_look,
    "a write to a saved output": lambda g: g.tanh.add_(1.0),
    "a write to a view of one": lambda g: g.row.add_(1.0),
    "a part that is freed": free_a_part,
    "a leaf that needs nothing any more": lambda g: g.b.requires_grad_(False),
    "hooks on a saved value": raw_hooks,
    "a number set by hand": lambda g: g.tanh.grad_fn._set_sequence_nr(10**9),
}


@pytest.mark.parametrize("name", EVENTS)
def test_what_changes_in_a_graph_is_seen_by_the_next_pass(name):
    graph, other = Graph(), Graph()
    before = graph.passes()
    for _ in range(TIMES):
        for a, b in zip(graph.passes(), before, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    EVENTS[name](graph)
    EVENTS[name](other)
    with fad.autograd.compiled(False):
        expected = other.passes()
    for _ in range(3):
        found = graph.passes()
        if isinstance(expected, str):
            assert found == expected
            continue
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            if b is None:
                assert a is None
            else:
                np.testing.assert_allclose(a, b, rtol=2e-6)


def test_other_ends_are_another_pass():
    graph = Graph()
    both = graph.passes()
    for _ in range(TIMES):
        (dw,) = fad.autograd.grad(graph.loss, graph.w, retain_graph=True)
        (db,) = fad.autograd.grad(graph.loss, graph.b, retain_graph=True)
        (inner,) = fad.autograd.grad(graph.loss, graph.tanh, retain_graph=True)
        np.testing.assert_allclose(dw.array, both[0], rtol=2e-6)
        np.testing.assert_allclose(db.array, both[1], rtol=2e-6)
        rest = 2 * np.asarray(graph.row.detach().array)
        np.testing.assert_allclose(inner.array, X + [0, *rest], rtol=2e-6)
        for a, b in zip(graph.passes(), both, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6)
    graph.passes(inputs=[graph.b])
    assert graph.w.grad is None
    np.testing.assert_allclose(graph.b.grad.array, both[1], rtol=2e-6)


def test_another_cotangent_is_the_same_pass():
    x = fad.tensor(X, requires_grad=True)
    y = fnp.sin(x) * x
    slope = np.cos(X) * X + np.sin(X)
    for k in range(2 * TIMES):
        (g,) = fad.autograd.grad(y, x, fad.tensor(X * k), retain_graph=True)
        np.testing.assert_allclose(g.array, slope * X * k, rtol=2e-5, atol=1e-6)


def test_several_outputs_of_one_operation_are_different_roots():
    x = fad.tensor(np.arange(4.0, dtype=np.float32), requires_grad=True)
    first, second = fnp.split(x * x, 2)
    for _ in range(TIMES):
        (a,) = fad.autograd.grad(first.sum(), x, retain_graph=True)
        (b,) = fad.autograd.grad(second.sum(), x, retain_graph=True)
        (c,) = fad.autograd.grad(first, x, fad.tensor([1.0, 1.0]), retain_graph=True)
        (d,) = fad.autograd.grad(second, x, fad.tensor([1.0, 1.0]), retain_graph=True)
        assert a.tolist() == c.tolist() == [0.0, 2.0, 0.0, 0.0]
        assert b.tolist() == d.tolist() == [0.0, 0.0, 4.0, 6.0]


def test_the_last_pass_frees_the_graph():
    graph = Graph()
    for _ in range(TIMES):
        graph.passes()
    graph.loss.backward()
    with pytest.raises(GradientError, match="a second time"):
        graph.loss.backward()
