"""Steps of the eager tape as one operation, with nothing else changed."""

from __future__ import annotations

import gc
import threading
import weakref

import jax.numpy as jnp
import numpy as np
import pytest
from lines import before_line, interrupt
from repeated import ENGINE, PROGRAMS, TIMES, W, cube, hits, same

import fad
import fad.numpy as fnp
from fad.core.level import state
from fad.errors import GradientError
from fad.replay import policy

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


def step_of(f, *arrays, times=3 * TIMES, before=None, after=None):
    """The gradients of ``f(*leaves)`` in each of some steps, and the leaves."""
    leaves = [fad.tensor(a, requires_grad=True) for a in arrays]
    found = []
    for _ in range(times):
        loss = f(*leaves)
        if before is not None:
            before(loss, leaves)
        loss.backward()
        if after is not None:
            after(loss, leaves)
        found.append([None if w.grad is None else w.grad.array for w in leaves])
        for w in leaves:
            w.grad = None
    return found


def steps_again(f, *arrays, replayed=True, **options):
    with fad.autograd.compiled(False):
        expected = step_of(f, *arrays, **options)
    seen = hits()
    found = step_of(f, *arrays, **options)
    assert (hits() > seen) == replayed
    for a, b in zip(found, expected, strict=True):
        same(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps(name):
    steps_again(PROGRAMS[name], X)


def test_steps_of_several_leaves_and_roots():
    def f(w, b, unused, x):
        h = fnp.tanh(w * x + b)
        return fnp.sum(h * h * w)

    steps_again(f, X, -X, X + 1.0, 2.0 * X)

    w = fad.tensor(X, requires_grad=True)
    for _ in range(3 * TIMES):
        y = fnp.sin(w)
        a, b = fnp.sum(y), fnp.sum(y * y)
        fad.autograd.backward([a, b])
        same(w.grad, jnp.cos(X) + 2.0 * jnp.sin(X) * jnp.cos(X))
        same((a.detach(), b.detach()), (jnp.sum(jnp.sin(X)), jnp.sum(jnp.sin(X) ** 2)))
        w.grad = None
    assert hits() > 0


def test_training():
    def train(steps):
        w, b = fad.tensor(X, requires_grad=True), fad.tensor(0.5, requires_grad=True)
        losses = []
        for k in range(steps):
            loss = fnp.sum((w * X + b - k * 0.1) ** 2)
            loss.backward()
            with fad.no_grad():
                for p in (w, b):
                    p -= 0.01 * p.grad
                    p.grad.zero_()
            losses.append(loss)
        return [float(x) for x in losses], w.detach(), b.detach()

    with fad.autograd.compiled(False):
        expected = train(20)
    same(train(20), expected)
    assert hits() > 5


def test_gradients_by_autograd_grad():
    """`fad.autograd.grad` with respect to all leaves, in any order, once or twice; or to some of them."""
    w, b = fad.tensor(X, requires_grad=True), fad.tensor(X + 1.0, requires_grad=True)
    unused = fad.tensor(X, requires_grad=True)

    def step(*inputs, **options):
        loss = fnp.sum(fnp.sin(w) * b) + 0.0 * fnp.sum(fad.stop_gradient(unused))
        found = fad.autograd.grad(loss, inputs, **options)
        same(loss.detach(), jnp.sum(jnp.sin(X) * (X + 1.0)))
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()
        assert (w.grad, b.grad, unused.grad) == (None, None, None)
        return found

    dw, db = jnp.cos(X) * (X + 1.0), jnp.sin(X)
    for _ in range(3 * TIMES):
        same(step(w, b), (dw, db))
    for given, expected in (((b, w), (db, dw)), ((w, b, w), (dw, db, dw))):
        seen = hits()
        same(step(*given), expected)
        assert hits() > seen
    calls = []
    b.register_post_accumulate_grad_hook(lambda t: calls.append(t))
    same(step(w, b), (dw, db))
    assert not calls

    seen = hits()
    for _ in range(TIMES):
        same(step(b), (db,))
        assert step(w, unused, b, allow_unused=True)[1] is None
        same(step(w, unused, b, materialize_grads=True)[1], 0.0 * X)
        with pytest.raises(GradientError, match="index 1 appears to not have been used"):
            step(w, unused, b)
    assert hits() == seen


def test_a_leaf_that_no_gradient_comes_to():
    w, b = fad.tensor(X, requires_grad=True), fad.tensor(X + 1.0, requires_grad=True)

    def step(**options):
        y = fnp.sin(w) * 2.0
        z = y * b
        found = fad.autograd.grad(fnp.sum(y), (w, b), **options)
        del z
        return found

    for _ in range(3 * TIMES):
        gw, gb = step(allow_unused=True)
        same(gw, 2.0 * jnp.cos(X))
        assert gb is None
        same(step(materialize_grads=True), (2.0 * jnp.cos(X), 0.0 * X))
        with pytest.raises(GradientError, match="index 1 appears to not have been used"):
            step()
    assert hits() > 0


def test_gradients_are_added_to_those_that_are_there():
    w = fad.tensor(X, requires_grad=True)
    for k in range(1, 3 * TIMES):
        fnp.sum(fnp.sin(w)).backward()
        same(w.grad, k * jnp.cos(X))
    assert hits() > 0


def test_a_step_that_is_looked_at():
    steps_again(cube, X, before=lambda loss, leaves: loss.item())
    steps_again(cube, X, replayed=False, before=lambda loss, leaves: loss.grad_fn.name())
    steps_again(
        cube, X, replayed=False, before=lambda loss, leaves: loss.register_hook(lambda g: 2.0 * g)
    )


def test_the_value_of_a_step_is_there_after_it():
    seen = []
    steps_again(cube, X, after=lambda loss, leaves: seen.append(loss.item()))
    assert len(set(np.round(seen, 4))) == 1


def test_hooks_of_leaves_run_in_each_step():
    calls = []

    def step(w, kind):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        loss.backward()
        w.grad = None

    for kind in ("hook", "post", "node"):
        calls.clear()
        w = fad.tensor(X, requires_grad=True)
        for _ in range(2 * TIMES):
            step(w, kind)
        if kind == "hook":
            w.register_hook(lambda g: calls.append(1))
        elif kind == "post":
            w.register_post_accumulate_grad_hook(lambda t: calls.append(1))
        else:
            node = fad.autograd.create_gradient_edge(w).node
            node.register_hook(lambda gi, go: calls.append(1))
        for _ in range(3):
            step(w, kind)
        assert len(calls) == 3, kind
    assert hits() > 0


def test_a_second_pass_through_a_step_is_refused():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(3 * TIMES):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        loss.backward()
        assert loss.grad_fn.name() == "SumBackward"
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()
        w.grad = None
    assert hits() > 0


def test_passes_that_keep_their_graph_and_higher_derivatives():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(3 * TIMES):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        loss.backward()
        w.grad = None
    for _ in range(3):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        loss.backward(retain_graph=True)
        loss.backward()
        same(w.grad, 4.0 * jnp.cos(X))
        w.grad = None
        loss = fnp.sum(fnp.sin(w) * 2.0)
        (g,) = fad.autograd.grad(loss, w, create_graph=True)
        g.sum().backward()
        same(w.grad, -2.0 * jnp.sin(X))
        w.grad = None


def test_writes_between_the_steps_and_in_them():
    w = fad.tensor(X, requires_grad=True)
    for k in range(3 * TIMES):
        y = fnp.sin(w) * 2.0
        if k % 4 == 3:
            y[0] = 0.0
        loss = fnp.sum(y)
        loss.backward()
        expected = 2.0 * jnp.cos(X)
        same(w.grad, expected.at[0].set(0.0) if k % 4 == 3 else expected)
        w.grad = None
    assert hits() > 0
    y = fnp.sum(fnp.sin(w) * w)
    with fad.no_grad():
        w += 1.0
    with pytest.raises(GradientError, match="modified by an inplace operation"):
        y.backward()


def test_a_leaf_that_is_donated_or_given_away():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(3 * TIMES):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        loss.backward()
        w.grad = None
    loss = fnp.sum(fnp.sin(w) * 2.0)
    assert state.trace is not None
    assert w.array is not None
    assert state.trace is None
    loss.backward()
    same(w.grad, 2.0 * jnp.cos(X))


def test_a_step_that_another_thread_finishes():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(3 * TIMES):
        fnp.sum(fnp.sin(w) * 2.0).backward()
        w.grad = None
    for finish in (lambda y: y.backward(), lambda y: fnp.sum(y * 1.0).backward()):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        assert state.trace is not None
        t = threading.Thread(target=finish, args=(loss,))
        t.start()
        t.join()
        same(w.grad, 2.0 * jnp.cos(X))
        w.grad = None


def test_steps_that_are_given_up_do_no_harm():
    w = fad.tensor(X, requires_grad=True)
    for k in range(6 * TIMES):
        loss = fnp.sum(fnp.sin(w) * 2.0)
        if k % 3:
            continue  # never read, never differentiated
        loss.backward()
        same(w.grad, 2.0 * jnp.cos(X))
        w.grad = None
    for _ in range(2 * policy.LONGEST):
        y = fnp.sin(w)
    same(y.detach(), jnp.sin(X))


def test_transforms_inside_of_steps():
    def f(w):
        inner = fad.grad(lambda x: fnp.sum(x**3 * w))(X)
        rows = fad.vmap(lambda x: x * w)(jnp.stack([X, X]))
        return fnp.sum(inner * rows)

    steps_again(f, X)


def test_nothing_of_a_finished_step_is_kept():
    gc.collect()
    gc.disable()
    try:
        w = fad.tensor(X, requires_grad=True)
        for _ in range(3 * TIMES):
            y = fnp.sin(w)
            seen = weakref.ref(y)
            loss = fnp.sum(y * y)
            del y
            loss.backward()
            w.grad = None
            assert seen() is None
        assert hits() > 0
        seen = weakref.ref(w)
        del w, loss
        assert seen() is None
    finally:
        gc.enable()


ONES = jnp.ones((2, 3))


def test_an_interrupt_at_any_line_of_a_step():
    w = fad.tensor(W, requires_grad=True)

    def step():
        w.grad = None
        loss = fnp.tanh(w * ONES).sum()
        loss.backward()
        return loss.item()

    def run(stop):
        try:
            with before_line(stop, ENGINE, interrupt) as lines:
                step()
        except KeyboardInterrupt:
            pass
        return lines.count

    for _ in range(2 * TIMES):
        expected = step()
    same(w.grad, 1.0 - jnp.tanh(W) ** 2)
    lines = run(0)
    assert hits() > 0 and lines > 30
    for stop in range(1, lines, 3):
        run(stop)
        np.testing.assert_allclose(step(), expected, rtol=1e-5)
        same(w.grad, 1.0 - jnp.tanh(W) ** 2)


def test_hooks_and_edges_of_the_inputs_of_autograd_grad():
    w = fad.tensor(X, requires_grad=True)

    def step(inputs):
        return fad.autograd.grad(fnp.sum(fnp.sin(w) * 2.0), inputs)[0]

    for _ in range(3 * TIMES):
        same(step(w), 2.0 * jnp.cos(X))
    seen = hits()
    assert seen > 0
    edge = fad.autograd.create_gradient_edge(w)
    same(step(edge), 2.0 * jnp.cos(X))
    calls = []
    handle = w.register_hook(lambda g: 3.0 * g)
    same(step(w), 6.0 * jnp.cos(X))
    handle.remove()
    handle = edge.node.register_prehook(lambda gs: calls.append(gs))
    same(step(w), 2.0 * jnp.cos(X))
    handle.remove()
    assert hits() >= seen
    same(step(w), 2.0 * jnp.cos(X))


def test_steps_inside_of_transforms_with_autograd_grad():
    w = fad.tensor(X, requires_grad=True)

    def inner(x):
        (g,) = fad.autograd.grad(fnp.sum(fnp.sin(w) * 2.0), w)
        return fnp.sum(g * x * x)

    for _ in range(3 * TIMES):
        same(fad.grad(inner)(X), 4.0 * jnp.cos(X) * X)
        same(fad.vmap(inner)(jnp.stack([X, X]))[1], jnp.sum(2.0 * jnp.cos(X) * X * X))
        fnp.sin(w)  # begun, and left open
        same(fad.grad(inner)(X), 4.0 * jnp.cos(X) * X)
