"""Laws of traces whose values are read: they go on after it, and no bit, graph or error changes."""

from __future__ import annotations

import contextlib
import gc
import random
import re
import weakref

import jax.numpy as jnp
import numpy as np
import pytest
from lines import at_finalizers, at_interrupts, interrupt
from replays import (
    MODES,
    TIMES,
    assert_bits,
    assert_idle,
    compiled_all,
    in_thread,
    off,
    replay,
    replayed,
)

import fad
import fad.numpy as fnp
from fad.errors import GradientError
from fad.replay.program import worker

X = np.linspace(0.3, 1.2, 4).astype(np.float32)


def a_loop(x):
    y, t = x * 1.0, 0.0
    while t < 1.0:
        k = fnp.sin(y) * 0.5 + y * 0.1
        e = fnp.max(fnp.abs(k)).item()
        y = y + k * 0.1 if e > 0.4 else y + k * 0.05 + 0.01
        t += 0.1 + e * 0.2
    return (y * y).sum()


def the_loss_itself(x):
    loss = fnp.sum(fnp.tanh(x * 2.0) ** 2)
    loss.item()
    return loss


def the_loss_and_more(x):
    loss = fnp.sum(fnp.tanh(x * 2.0) ** 2)
    scale = loss.item()
    fnp.sum(x * scale)  # what nothing needs
    return loss


def an_earlier_value(x):
    y = fnp.exp(x) * x
    z = fnp.sin(y) + y
    if z.sum().item() > 0.0:
        z = z * y
    y.max().item()
    return (z * y + x).sum()


def branches(x):
    y = x * 1.0
    for k in range(5):
        s = y[k % 4] * y[0]
        y = y + s if s > 0.3 else y * 0.5 - s
    return y.sum()


def a_value_stored_outside(x, kept=None):
    kept = [] if kept is None else kept
    y = fnp.sin(x) * 2.0
    kept.append(y)
    bool(y[0] > 0)
    z = y * x
    kept.append(z)
    bool(z[1] > 0)
    return (z + y).sum()


def writes(x):
    u = x * 1.0
    v = u[1:]
    for k in range(3):
        u[k] = u[k + 1] * 2.0
        if u.sum().item() > 0.5:
            v += 0.25
        v[0].item()
    return (u * x).sum()


def a_constant(x):
    y = fnp.sin(x) + 1.0
    bool(y[0] > 0)
    return (fad.stop_gradient(y) * x * y.detach().sum().item()).sum()


def one_read_twice(x):
    y = fnp.sin(x) * x
    s = y.sum()
    return s * s.item() + float(s.item()) * y[1]


PROGRAMS = {
    f.__name__: f
    for f in (
        a_loop,
        the_loss_itself,
        the_loss_and_more,
        an_earlier_value,
        branches,
        a_value_stored_outside,
        writes,
        a_constant,
        one_read_twice,
    )
}


def _dual(f):
    with fad.dual_level():
        return list(fad.unpack_dual(f(fad.make_dual(jnp.asarray(X), jnp.ones(4)))))


def _tape(f):
    w = fad.tensor(X, requires_grad=True)
    found = []
    for _ in range(2):
        loss = f(w)
        loss.backward()
        found += [loss.detach(), w.grad.clone()]
        with fad.no_grad():
            w -= 0.1 * w.grad
    return [*found, w.detach()]


def _tape_twice(f):
    w = fad.tensor(X, requires_grad=True)
    (g,) = fad.autograd.grad(f(w * 1.5), w, create_graph=True)
    size = (g * g).sum()
    size.item()
    return [g.detach(), *fad.autograd.grad(size, w)]


def _kept_graph(f):
    w = fad.tensor(X, requires_grad=True)
    loss = f(w)
    loss.backward(retain_graph=True)
    loss.backward()
    return [loss.detach(), w.grad]


def _with_aux(f):
    def g(x):
        y = f(x)
        return y, (y * 2.0, x)

    return fad.grad(g, has_aux=True)(jnp.asarray(X))


TRANSFORMS = {
    "grad": lambda f: fad.grad(f)(jnp.asarray(X)),
    "value_and_grad": lambda f: fad.value_and_grad(f)(fad.tensor(X)),
    "grad with aux": _with_aux,
    "vjp": lambda f: fad.vjp(f, X)[1](jnp.float32(2.0)),
    "jacrev": lambda f: fad.jacrev(lambda x: f(x) * x)(jnp.asarray(X)),
    "jvp": lambda f: fad.jvp(f, (jnp.asarray(X),), (jnp.ones(4),)),
    "jvp of grad": lambda f: fad.jvp(fad.grad(f), (jnp.asarray(X),), (jnp.ones(4),)),
    "grad of grad": lambda f: fad.grad(lambda x: fad.grad(f)(x).sum())(jnp.asarray(X)),
    "grad of a read grad": lambda f: fad.grad(
        lambda x: fad.grad(f)(x).sum() * fad.grad(f)(x)[0].item()
    )(jnp.asarray(X)),
    "linearize": lambda f: fad.linearize(f, jnp.asarray(X))[1](jnp.ones(4)),
    "hvp": lambda f: fad.hvp(f, (jnp.asarray(X),), (jnp.ones(4),)),
    "dual_level": _dual,
    "tape": _tape,
    "gradients of gradients": _tape_twice,
    "a graph that is kept": _kept_graph,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.sweep("case", [(f, t) for f in PROGRAMS for t in TRANSFORMS], sample=30, ids=str)
def test_results_are_those_of_single_operations(case, mode):
    program, name = case
    f, transform = PROGRAMS[program], TRANSFORMS[name]
    with off():
        expected = transform(f)
    fad.autograd.compiled.clear_cache()
    with replay(mode):
        for k in range(TIMES):
            assert_bits(transform(f), expected, f"call {k}")
            assert_idle()
            if mode == "background":
                compiled_all()
    assert name not in ("grad", "value_and_grad") or replayed()


def test_a_loop_that_reads_is_replayed_whole():
    gradient = fad.grad(a_loop)
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            gradient(jnp.asarray(X))
        last = fad.autograd.compiled.explain().splitlines()[-1]
    assert "replayed, in " in last and " segments" in last


@pytest.mark.usefixtures("cleared_caches")
def test_segments_are_not_run_while_their_program_is_compiled(monkeypatch):
    with off():
        expected = fad.grad(a_loop)(X)
    submit, submitted = worker.submit, []

    def only_the_first(program, avals):
        submitted.append(program)
        return len(submitted) > 1 or submit(program, avals)

    monkeypatch.setattr(worker, "submit", only_the_first)
    for _ in range(TIMES):
        assert_bits(fad.grad(a_loop)(X), expected)
        compiled_all()
    assert len(submitted) > 1
    last = fad.autograd.compiled.explain().splitlines()[-1]
    assert re.search("a_loop .*recorded: .*is being compiled", last)


def test_a_step_whose_loss_is_read_is_replayed():
    w = fad.tensor(X, requires_grad=True)
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            w.grad = None
            loss = the_loss_itself(w)
            loss.item()
            loss.backward()
        last = fad.autograd.compiled.explain().splitlines()[-1]
        assert "replayed" in last
        assert loss.grad_fn.name() == "SumBackward"  # made when it is looked at
        with pytest.raises(GradientError, match="freed"):
            loss.backward()


def test_the_graph_is_that_of_single_operations():
    def names():
        w = fad.tensor(X, requires_grad=True)
        kept = []
        loss = a_value_stored_outside(w, kept)
        loss.item()
        return [re.sub(r"#\d+", "", str(fad.viz.graph(t))) for t in (loss, *kept)]

    with off():
        expected = names()
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            assert names() == expected


def test_what_nothing_reads_afterwards_is_freed():
    def f(x, dead):
        y = fnp.sin(x) * 2.0
        dead.append(weakref.ref(y))
        s = y.sum()
        del y
        s.item()
        return s * 2.0

    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            dead = []
            loss = f(fad.tensor(X, requires_grad=True), dead)
            assert dead[0]() is None
            loss.backward()


def test_an_operation_that_fails_after_a_read_raises_its_own_error():
    def f(x):
        y = fnp.sin(x) * x
        y.sum().item()
        return (y + jnp.ones(3)).sum()

    with fad.autograd.compiled(True, wait=True):
        for _ in range(4):
            with pytest.raises((TypeError, ValueError), match="shape|broadcast"):
                fad.grad(f)(jnp.asarray(X))
            assert_idle()
        assert_bits(fad.grad(a_loop)(X), fad.grad(a_loop)(X))


def test_other_reads_in_each_call_are_right():
    """What is read, and where, is drawn anew: no program fits for long."""
    draw = random.Random(11)

    def f(x, plan):
        y = x * 1.0
        for op, read in plan:
            y = [fnp.sin(y) + y, y * x, y - y[::-1], fnp.tanh(y) * 2.0][op]
            if read:
                y = y * (1.5 if y[read - 1].item() > 0.0 else 0.5)
        return y.sum()

    with fad.autograd.compiled(True, wait=True):
        for _ in range(25):
            plan = [(draw.randrange(4), draw.randrange(5)) for _ in range(draw.randrange(1, 7))]
            with off():
                expected = fad.value_and_grad(f)(jnp.asarray(X), plan)
            for _ in range(2):
                assert_bits(fad.value_and_grad(f)(jnp.asarray(X), plan), expected, str(plan))


def test_another_thread_reads():
    def f(x, elsewhere):
        y = fnp.sin(x) * x
        s = y.sum()
        value = in_thread(s.item) if elsewhere else s.item()
        return s * value

    with off():
        expected = fad.grad(f)(jnp.asarray(X), False)
    with fad.autograd.compiled(True, wait=True):
        for k in range(6):
            assert_bits(fad.grad(f)(jnp.asarray(X), k % 2 == 1), expected, str(k))


def test_finalizers_and_interrupts_in_the_middle_of_a_read(full):
    gradient = fad.grad(a_loop)
    with off():
        expected = gradient(jnp.asarray(X))
    with fad.autograd.compiled(True, wait=True):
        for _ in range(3):
            gradient(jnp.asarray(X))
        for number in range(1, 2500, 1 if full else 83):
            held = []

            def act():
                held.extend([fnp.sin(fad.tensor(X)).sum().item()])

            with at_finalizers(number, act):
                found = gradient(jnp.asarray(X))
            assert_bits(found, expected, f"finalizer {number}")
            with (
                at_interrupts(number, interrupt) as moments,
                contextlib.suppress(KeyboardInterrupt),
            ):
                gradient(jnp.asarray(X))
            assert_idle(f"interrupt {number}, {moments.count}")
            assert_bits(gradient(jnp.asarray(X)), expected, f"after interrupt {number}")
    gc.collect()


def _reads(x, times):
    for k in range(times):
        ((x * 2.0 + float(k)).sum() * 3.0).item()


ARGUMENTS = {
    "one is read": lambda x, y: [_reads(y, 6), (y * y).sum() * 2.0 + (x * 3.0).sum()][1],
    "both are": lambda x, y: [_reads(x, 6), _reads(y, 6), (y * y).sum() * 2.0 + x[0]][2],
    "one is only read": lambda x, y: [_reads(x, 6), _reads(y, 6), (y * y).sum() * 2.0][2],
    "a constant": lambda x, y: [_reads(x, 3), jnp.float32(2.0)][1],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_gradients_are_those_of_their_arguments(name):
    """Segments whose outputs are gone are freed, and with them what had the arguments as inputs."""
    gradient = fad.grad(ARGUMENTS[name], argnums=(0, 1))
    arguments = jnp.asarray(X), jnp.ones(3)
    with off():
        expected = gradient(*arguments)
    with fad.autograd.compiled(True, wait=True):
        for k in range(4):
            assert_bits(gradient(*arguments), expected, f"call {k}")


def test_a_hook_on_a_leaf_after_a_read_runs():
    def step():
        w, seen = fad.tensor(X, requires_grad=True), []
        loss = (fnp.sin(w) * w).sum()
        loss.item()
        w.register_hook(lambda g: seen.append(g.clone()) or g * 2.0)
        loss.backward()
        return seen, w.grad

    with off():
        expected = step()
    with fad.autograd.compiled(True, wait=True):
        for k in range(4):
            assert_bits(step(), expected, f"call {k}")


def test_a_loop_that_reads_and_has_no_backward_pass_does_not_grow():
    w = fad.tensor(X, requires_grad=True)

    def evaluate(times):
        for _ in range(times):
            h = fnp.tanh(w * 2.0)
            (h * h).sum().item()

    with fad.autograd.compiled(True, wait=True):
        evaluate(10)
        trace = fad.core.level.state.trace
        gc.collect()
        before = len(gc.get_objects())
        evaluate(200)
        gc.collect()
        assert len(gc.get_objects()) < before + 50
        assert len(trace.ended) <= 3


def test_a_loss_that_is_kept_keeps_no_batch():
    with fad.autograd.compiled(True, wait=True):
        losses = []
        for _ in range(4):
            w = fad.tensor(X, requires_grad=True)
            batch = jnp.asarray(X * 3.0) + 0.0
            reference = weakref.ref(batch)
            loss = (w * batch).sum() * 2.0
            loss.item()
            loss = loss * loss
            loss.item()
            loss.backward()
            losses.append(loss)
            del batch
            assert reference() is None


def test_a_value_of_a_step_keeps_what_its_nodes_save_and_no_more():
    """Without the collector: nothing is in a cycle."""
    gc.collect()
    gc.disable()
    try:
        with fad.autograd.compiled(True, wait=True):
            for _ in range(4):
                w = fad.tensor(X, requires_grad=True)
                batch = jnp.asarray(X * 3.0) + 0.0
                reference = weakref.ref(batch)
                loss = (w * batch).sum()
                loss.item()
                del loss, batch
                assert reference() is None
    finally:
        gc.enable()
