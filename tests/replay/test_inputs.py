"""Operands of what is replayed: none is taken for another, or for what it was before."""

from __future__ import annotations

import gc
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from repeated import TIMES, W, again, as_without, as_without_in_steps, hits, same

import fad
import fad.numpy as fnp
from fad.errors import GradientError
from fad.replay import inputs
from fad.replay import trace as traces
from fad.replay.program import worker

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


def test_a_new_number_is_an_operand():
    def g(rate):
        return fad.grad(lambda x: fnp.sum(fnp.sin(x) * rate))(X)

    for k in range(1, 2 * TIMES):
        same(g(k / 2), jnp.cos(X) * (k / 2))
        worker.wait()
    assert fad.autograd.compiled.cache_info()["compiled"] == 1


def test_one_object_for_two_arguments_is_not_taken_for_two():
    g = fad.grad(lambda x, a, b: fnp.sum(x * a - x * x * b))
    for _ in range(TIMES):
        same(g(X, X, X), X - 2 * X * X)
    for _ in range(TIMES):
        same(g(X, X, X + 1), X - 2 * X * (X + 1))


def test_a_numpy_array_may_change_between_two_uses():
    a = np.ones(4, np.float32)

    def f(x):
        y = x * a
        a[:] = 3.0
        z = fnp.sum(y + x * a)
        a[:] = 1.0
        return z

    again(fad.grad(f), X)


ONES = jnp.ones((2, 3))


def test_operands_that_another_thread_changes():
    def on_thread(f):
        t = threading.Thread(target=f)
        t.start()
        t.join()

    def scale(w):
        with fad.no_grad():
            w.mul_(1.5)

    def read(w, i):
        y = fnp.tanh(w * ONES)
        if i < 10:
            y.sum().backward()
            return None
        on_thread(lambda: scale(w))
        return round(float(y[0, 0]), 4)

    def saved(w, i):
        x = fad.tensor(W)
        loss = (w * x).sum()
        on_thread(x.zero_)
        loss.backward()

    for step in (read, saved):
        as_without_in_steps(step)

    def in_transform():
        v = fad.tensor([0.5, -1.0, 2.0])

        def f(x):
            y = fnp.sin(x) + v
            on_thread(lambda: v.add_(1.0))
            assert y.grad_fn
            return (y * x).sum()

        return fad.value_and_grad(f)(X[:3])[0].item()

    as_without(in_transform)


def test_an_operand_that_a_finalizer_uses_is_not_taken_for_another(monkeypatch):
    """The shape of the result is that of its own operand."""
    w, other = fad.tensor(X, requires_grad=True), fad.tensor(jnp.ones(2), requires_grad=True)
    wide = jnp.ones((3, 4))
    known, armed = inputs.small_aval, []

    def interrupted(value):
        if armed and value is armed[0]:
            armed.clear()
            fnp.sin(other)  # as the garbage collector may run it
        return known(value)

    monkeypatch.setattr(inputs, "small_aval", interrupted)

    def step(a, again):
        h = fnp.sin(w)
        armed[:] = [a] if again else []
        y = h * a
        shape = y.shape
        (g,) = fad.autograd.grad(fnp.sum(y), w)
        return shape, g.array

    with fad.autograd.compiled(wait=True):
        for again in (False, True):
            for _ in range(2 * TIMES):
                for a in (X, wide):
                    shape, g = step(a, again)
                    assert shape == jnp.broadcast_shapes(a.shape, X.shape)
                    same(g, jnp.cos(X) * (a if a.ndim == 1 else jnp.full(4, 3.0)))
                fad.autograd.grad(fnp.sum(fnp.sin(other)), other)
    assert hits() > 0


def test_what_an_inner_transform_computes_with_is_not_taken_for_an_operand():
    w, rows = fad.tensor([1.0, 2.0, 3.0, 4.0]), jnp.stack([X, X + 1.0])

    def f(x, inside):
        y = fnp.sin(x)
        if inside:
            return fnp.sum(fad.vmap(lambda row: fnp.sum(y * row))(rows))
        return fnp.sum(y * w)

    g = fad.grad(f)
    for inside in (False,) * TIMES + (True, False) * TIMES:
        expected = jnp.cos(X) * (rows.sum(0) if inside else w.array)
        np.testing.assert_allclose(g(X, inside), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "first", [2.0, 2, X, fad.tensor([3.0, 1.0, 2.0, 4.0]), np.ones(4)], ids=repr
)
@pytest.mark.parametrize(
    "second", [2.0, 2, X, fad.tensor([3.0, 1.0, 2.0, 4.0]), np.ones(4)], ids=repr
)
def test_operands_of_one_kind_are_not_taken_for_those_of_another(first, second):
    """A Python int as exponent is part of the operation, an array is not."""

    def f(x, p):
        return fnp.sum(fnp.sin(x) * p + fnp.power(fnp.cos(x), p))

    g = fad.grad(f)
    expected = {}
    with fad.autograd.compiled(False):
        for k, p in enumerate((first, second)):
            expected[k] = g(X - 1.2, p)
    for k in (0,) * TIMES + (1, 0) * TIMES:
        same(g(X - 1.2, (first, second)[k]), expected[k])


@pytest.mark.parametrize("at_once", [False, True])
def test_one_leaf_for_two_operands(at_once):
    """A weight that is used twice is one input, also where two different ones came before."""
    x = fad.tensor(X, requires_grad=True)

    def gradients(tied):
        a = fad.tensor(X + 1.0, requires_grad=True)
        b = a if tied else fad.tensor(X + 2.0, requires_grad=True)
        y = x * 2.0
        loss = fnp.einsum("i,i,i", y, a, b) if at_once else (y * a * b).sum()
        return fad.autograd.grad(loss, [x, a] if tied else [x, a, b])

    for tied in (False,) * TIMES + (True, True, False) * TIMES:
        second = X + (1.0 if tied else 2.0)
        expected = [2.0 * (X + 1.0) * second, 2.0 * X * second * (2.0 if tied else 1.0)]
        for ours, theirs in zip(gradients(tied), expected, strict=False):
            np.testing.assert_allclose(ours.array, theirs, rtol=1e-5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda y: y.sum(initial=1), lambda y: y.sum(1)),
        (lambda y: fnp.max(y, initial=1), lambda y: fnp.max(y, 1)),
        (lambda y: fnp.clip(y, max=3.0), lambda y: fnp.clip(y, 3.0)),
        (lambda y: y.clip(max=3.0), lambda y: y.clip(3.0)),
        (lambda y: y - 2.0, lambda y: 2.0 - y),
        (lambda y: fnp.add(y, 3), lambda y: fnp.subtract(y, 3)),
        (lambda y: fnp.power(y, 2), lambda y: fnp.power(y, 2.0)),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_calls_of_one_form_are_not_taken_for_those_of_another(first, second, swap):
    calls = (second, first) if swap else (first, second)
    x = jnp.arange(6.0).reshape(2, 3)

    def f(x, k):
        z = calls[k](x * 2.0)
        return (z * z).sum()

    g = fad.value_and_grad(f)
    with fad.autograd.compiled(False):
        expected = [g(x, k) for k in (0, 1)]
    for k in (0,) * TIMES + (1, 0) * TIMES:
        same(g(x, k), expected[k])


def _view_of(change):
    base = fad.tensor([1.0, 2.0, 3.0, 4.0])
    view = base[:3]
    change(base)
    return view


def _alias(written):
    base = fad.tensor([1.0, 2.0, 3.0])
    other = base.detach()
    (base, other)[written].mul_(3.0)
    return (other, base)[written]


def _with_deferred_error(w):
    base = fad.tensor([1.0, 2.0, 3.0, 4.0])
    with fad.no_grad():
        view = base[:3]
    base.mul_(w)
    return view


BEHIND = {
    "view": lambda w: _view_of(lambda base: base.add_(10.0)),
    "history": lambda w: _view_of(lambda base: base.mul_(w)),
    "detached": lambda w: _alias(0),
    "base of detached": lambda w: _alias(1),
    "deferred error": _with_deferred_error,
}


@pytest.mark.parametrize("kind", BEHIND)
@pytest.mark.parametrize("on_tape", [False, True])
def test_operands_are_brought_up_to_date(kind, on_tape):
    x = fad.tensor(X[:3], requires_grad=True)
    w = fad.tensor(2.0, requires_grad=True)

    def g(x, v):
        z = x * 2.0 * v
        return (z * z).sum()

    def run(v):
        try:
            if not on_tape:
                grads = fad.grad(lambda x: g(x, v))(X[:3])
                if not isinstance(grads, fad.Tensor):
                    return [grads]
                return [grads.detach(), *fad.autograd.grad(grads.sum(), w)]
            loss = g(x, v)
            asked = fad.autograd.grad(loss, [x, w], materialize_grads=True)
            return [loss.detach(), *asked]
        except GradientError as error:
            return [str(error)]

    with fad.autograd.compiled(False):
        expected = run(BEHIND[kind](w)), run(fad.tensor([1.0, 2.0, 3.0]))
    assert (type(expected[0][0]) is str) == (kind == "deferred error")
    for behind in (False,) * TIMES + (True, False) * TIMES:
        found = run(BEHIND[kind](w) if behind else fad.tensor([1.0, 2.0, 3.0]))
        if behind and kind == "deferred error":
            assert found == expected[0]
        else:
            same(found, expected[0 if behind else 1])


def test_numbers_that_are_too_large_are_refused_as_ever():
    def f(x, n):
        return (fnp.sin(x) + n).sum()

    g = fad.grad(f)
    for n in range(TIMES):
        g(X, n)
    messages = []
    for mode in (True, False):
        with fad.autograd.compiled(mode), pytest.raises(OverflowError) as caught:
            g(X, 2**40)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_finalizer_while_inputs_are_captured(monkeypatch):
    """The collector runs one that appends to the same trace, between two lines."""

    def add(trace, given):
        if armed:
            armed.clear()
            gc.collect()
        return added(trace, given)

    added, armed = traces.Trace.add, []
    monkeypatch.setattr(traces.Trace, "add", add)
    side = []

    class Finalized:
        def __init__(self, y):
            self.own, self.y = self, y

        def __del__(self):
            side.append(fnp.sin(self.y))

    def f(x, c, d, finalizer):
        y = x * 2.0
        if finalizer:
            Finalized(y)
            armed.append(1)
        z = y * c
        armed.clear()
        return (z * d).sum()

    g = fad.value_and_grad(f)
    gc.disable()
    try:
        for _ in range(TIMES):
            expected = g(X, X + 1.0, X + 2.0, False)
        for _ in range(TIMES):
            same(g(X, X + 1.0, X + 2.0, True), expected)
            same(g(X, X + 1.0, X + 2.0, False), expected)
    finally:
        gc.enable()
    assert len(side) == TIMES
    for t in side:
        same(t, jnp.sin(X * 2.0))
