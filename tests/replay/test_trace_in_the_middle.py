"""Interrupts, finalizers and other threads at any place of what fad does: nothing else changes."""

from __future__ import annotations

import operator
import threading

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from lines import at_finalizers, at_interrupts, before_line, interrupt
from replays import (
    TIMES,
    TRANSFORMS,
    assert_interrupts,
    cube,
    hits,
    in_thread,
    law,
    off,
    outcome,
    ready,
    replay,
    same,
)

import fad
import fad.numpy as fnp
from fad.core.level import flush
from fad.core.tensor import bottom
from fad.replay import policy, segment, trace
from fad.replay.program import Program

ENGINE = {m.__file__ for m in (segment, trace)}
X = jnp.array([0.5, 1.0, 1.5, 2.0])
pytestmark = pytest.mark.usefixtures("fresh_traces")


def test_an_interrupt_at_any_line_of_an_append_that_is_caught_changes_nothing():
    def run(stop):
        count = 0

        def f(x):
            nonlocal count
            y = fnp.sin(x)
            try:
                with before_line(stop, ENGINE, interrupt) as lines:
                    z = y * 2.0
            except KeyboardInterrupt:
                z = y * 2.0
            count = lines.count
            return fnp.sum(z * x + z)

        return outcome(lambda: fad.grad(f)(X)), count

    with off():
        expected, _ = run(0)
    for _ in range(TIMES):
        result, lines = run(0)
        assert result == expected
    assert hits() > 0 and lines > 10
    for stop in range(1, lines + 1):
        assert run(stop)[0] == run(0)[0] == expected


def test_an_interrupt_anywhere_in_an_operation_leaves_what_was_deferred():
    w = leaf(X)
    f = ready(lambda: (w * 2.0, w * 3.0, w + 1.0, w * w))
    reached = 0
    for at in range(1, 1000):
        flush()
        kept = w + 1.0
        first = w * 2.0
        try:
            with at_interrupts(at, interrupt) as moments:
                first * 2.0
        except KeyboardInterrupt:
            reached += 1
        same([kept, first, *f()], [X + 1, 2 * X, 2 * X, 3 * X, X + 1, X * X])
        if not moments.reached:
            break
    assert 10 < reached < 999


@pytest.mark.parametrize(("owner", "name"), [(Program, "execute"), (segment.Stretch, "_evaluate")])
def test_a_hook_of_a_finalizer_in_the_middle_of_a_flush_is_called(owner, name, monkeypatch):
    """What it hooks has its node by then: what the flush computes must not take its place."""
    run, armed, seen = getattr(owner, name), [], []

    def then(*args):
        found = run(*args)
        if armed and (owner is Program or args[1].op.name == "multiply"):
            armed.pop().register_hook(seen.append)
        return found

    monkeypatch.setattr(owner, name, then)
    w = leaf(X)
    last = TIMES if owner is Program else policy.SEEN + 1  # the first that is deferred
    for step in range(1, last + 1):
        h = fnp.sin(w) * 2.0
        loss = fnp.sum(h * h)
        if step == last:
            armed.append(h)
        float(loss)
        if owner is Program:
            loss.backward()
        else:  # an error where the node of `h` is not that of the graph
            fad.autograd.grad(loss, h)
    assert not armed and len(seen) == 1


@pytest.mark.parametrize("transform", ["grad of a read grad", "tape"])
def test_interrupts(transform):
    """Of what reads, and of steps."""
    run = TRANSFORMS[transform](cube)
    assert_interrupts(lambda: run(X), 50, 2500)


@pytest.mark.parametrize("captured", [True, False])
def test_another_thread_reads_at_any_line_of_an_append(captured):
    """``captured``: the operand of the operation that is being appended is an input already."""
    w, other = leaf(X), fad.asarray(X * 3.0)

    def run(stop):
        found = []

        def read():
            reader = threading.Thread(target=lambda: found.append(outcome(y.detach)))
            reader.start()
            reader.join(0.05)  # it may block until the operation is done

        w.grad = None
        y = fnp.tanh(w * other) if captured else fnp.tanh(w * 3.0)
        with before_line(stop, ENGINE, read) as lines:
            z = y * other
        loss = (z + y).sum()
        loss.backward()
        return outcome(lambda: (loss, w.grad)), [*found, outcome(y.detach)], lines.count

    with off():
        expected, (value,), _ = run(0)
    for _ in range(2 * TIMES):
        lines = run(0)[2]
    assert hits() > 0 and lines > 20
    for stop in range(1, lines + 1):
        for at in (stop, 0):
            result, values, _ = run(at)
            assert result == expected and set(map(str, values)) == {str(value)}


def test_another_thread_reads_a_node_before_a_trace_is_closed():
    kept = []

    def f(x):
        kept[:] = [fnp.sin(x)]
        return fnp.sum(X)

    def run():
        read = lambda: in_thread(lambda: kept[0].grad_fn)
        with before_line(1, {trace.Trace.close.__code__}, read):
            return fad.grad(f)(X), kept

    law(run)


@pytest.mark.sweep("part", range(12), sample=1)
@pytest.mark.parametrize("mode", ["background", "at once"])
def test_operations_of_finalizers_in_the_middle_of_a_call(part, mode):
    """What the garbage collector runs may be deferred before what it has interrupted."""
    w = leaf(X)
    with replay(mode):
        f = ready(lambda: (w * 2.0, w * 3.0, w + 1.0))
        made = []
        for k, at in enumerate(range(1 + part, 2000, 12)):
            made.clear()
            if k % 2 == 0:  # this time and the next one, something is new
                fad.autograd.compiled.clear_cache()
            with at_finalizers(at, lambda: made.append(w + 1.0)) as moments:
                found = f()
            same([*found, *made], [2 * X, 3 * X, X + 1, *[X + 1] * len(made)])
            if moments.over:
                break
    assert not made and at > 50


@pytest.mark.parametrize("operation", [operator.mul, operator.imul])
def test_a_finalizer_that_flushes_in_the_middle_of_an_operation(operation):
    """It records what is deferred then, and with that the operation, also if it is a write."""
    w, places = leaf(X), iter(range(1, 1000))

    def run(place=0):
        w.grad, y = None, w * 2.0
        with at_finalizers(place, flush) as moments:
            y = operation(y, w)
        assert not moments.reached or y._lazy is None
        y.sum().backward()
        return moments.reached, outcome(lambda: (y, w.grad))

    with off():
        expected = run()
    for _ in range(TIMES):
        assert run() == expected
    assert operation is operator.imul or hits() > 0
    while run(next(places)) == (True, expected[1]):
        assert run() == expected
    assert run(next(places)) == expected and next(places) > 50


FINALIZERS = {
    "computes": (lambda y: y * 1.25, lambda y: y * 1.25),
    "writes down": (lambda y: (y * y).sum(), lambda y: (y * y).sum()),
    "reads": (lambda y: np.asarray(bottom(y)), lambda y: y),
}


@pytest.mark.parametrize("what", FINALIZERS)
@pytest.mark.parametrize("where", ["transform", "nested", "step", "read", "without replay"])
@pytest.mark.sweep("part", range(120), sample=1)
def test_a_finalizer_at_any_place(part, where, what, monkeypatch):
    """It computes with values of the trace, tracked or not, or reads them, wherever fad is."""
    kept, found = [], []
    act, wanted = FINALIZERS[what]
    w, scales = leaf(X), fad.tensor(jnp.stack([X + 1.0, X + 2.0]))

    def f(x):
        y = x * 2.0
        for c in scales:
            kept.append(c)
            y = y * c
            kept.append(y)
            y = y + c
            if where == "read":
                y = y * fnp.sum(y).item()
        return (y * y).sum()

    def step(x):
        w.grad = None
        loss = f(w * x)
        loss.backward()
        return loss.detach(), w.grad

    if where == "without replay":
        monkeypatch.setattr(policy, "SEEN", 1 << 30)
    program = {
        "transform": fad.value_and_grad(f),
        "nested": fad.grad(lambda x: (fad.grad(f)(x) * x).sum()),
        "read": fad.value_and_grad(f),
    }.get(where, step)

    def finalizer():
        if kept:
            found.append((len(kept), act(kept[-1])))

    def run(place=None):
        kept.clear()
        found.clear()
        if place is None:
            return outcome(lambda: program(X)), 0
        with at_finalizers(place, finalizer) as moments:
            result = outcome(lambda: program(X))
        return result, moments.count

    with off():
        expected, _ = run()
    before = [np.asarray(bottom(y)) for y in kept]
    for _ in range(TIMES):
        assert run()[0] == expected
    number = max([run(0)[1] for _ in range(2 * TIMES)])  # less while something is compiled
    assert number > 500 and (where == "without replay" or hits() > 0)
    for place in range(1 + part, number + 1, 120):
        assert run(place)[0] == expected, place
        for k, y in found:
            np.testing.assert_allclose(bottom(y), wanted(before[k - 1]), rtol=1e-5)
        assert run()[0] == run()[0] == expected, place
