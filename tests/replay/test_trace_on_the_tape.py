"""Laws of replay, on the eager tape: but for the time, results are those of single operations.

Each law is checked without replay, with programs that are compiled in the background, and with all of them
compiled at first sight.
"""

from __future__ import annotations

import copy
import gc
import pickle
import random
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Cube, cube_vjp
from lines import at_finalizers, at_interrupts, interrupt
from replays import compiled_all, exact, info, replayed

import fad
import fad.numpy as fnp
from fad.core.level import flush, state

X = np.array([0.3, -0.7, 1.1], np.float32)
TIMES = 8  # enough for a step to repeat


pytestmark = pytest.mark.usefixtures("replay_mode", "fresh_traces")


def same(a, b):
    a = a.array if isinstance(a, fad.Tensor) else a
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)


def variable(value=X):
    return fad.tensor(value, requires_grad=True)


def law(step, times=TIMES):
    """``step()`` gives the same bits each time, those that it gives without replay; it is returned."""
    with fad.autograd.compiled(False):
        expected = exact(step())
    for k in range(times):
        assert exact(step()) == expected, f"call {k}"
    return step()


def warm(f):
    """``f``, which computes with leaves of the tape, after steps that began so: it is deferred then."""
    for _ in range(TIMES):
        total = sum([v.sum() for v in jax.tree.leaves(f())])
        leaves = [n.variable for n in accumulators(total.grad_fn)]
        fad.autograd.grad(total, leaves)
    return f


def accumulators(node):
    """The nodes of leaves behind a node."""
    seen, todo = {node}, [node]
    while todo:
        for n, _ in todo.pop().next_functions:
            if n is not None and n not in seen:
                seen.add(n)
                todo.append(n)
    return [n for n in seen if isinstance(n, fad.autograd.AccumulateGrad)]


def on_thread(f):
    """``f()``, on another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(f()))
    thread.start()
    thread.join()
    return found[0]


def loss(m, w, x):
    return (m.tanh(w * x) ** 2).sum() + (w * 0.1).sum()


def train(steps, read=lambda value: None):
    """Parameters after steps of gradient descent."""
    w = variable()
    for k in range(steps):
        value = loss(fnp, w, X + k)
        read(value)
        value.backward()
        with fad.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
    return w.detach()


def expected_training(steps):
    w = jnp.asarray(X)
    for k in range(steps):
        w = w - 0.1 * jax.grad(lambda w, k=k: loss(jnp, w, X + k))(w)
    return w


def test_what_is_seen_before_the_value():
    w = variable()

    def step():
        y = fnp.sin(w) * 2
        s = y.sum()
        found = [(t.shape, t.ndim, t.dtype, t.requires_grad, t.is_leaf, t.version) for t in (y, s)]
        assert found[0] == ((3,), 1, "float32", True, False, 0)
        assert found[1] == ((), 0, "float32", True, False, 0)
        s.backward()
        w.grad = None
        same(y, 2 * np.sin(X))
        return y

    law(step)
    assert replayed()


READS = {
    "item": lambda t: t.item(),
    "float": float,
    "repr": lambda t: float(repr(t).split("(")[1].split(",")[0]),
    "numpy": lambda t: np.asarray(t.detach()),
    "array": lambda t: t.array,
    "bool": lambda t: np.sin(X).sum() if bool(t) else 0.0,
    "tolist": lambda t: t.tolist(),
    "a leaf of a pytree in jit": lambda t: jax.jit(lambda v: v + 1)(t.detach()) - 1,
    "compiled code": lambda t: fad.jit(lambda v: v + 1)(t.detach()).array - 1,
    "pickle": lambda t: pickle.loads(pickle.dumps(t.detach())).array,
    "deepcopy": lambda t: copy.deepcopy(t.detach()).array,
    "dlpack": lambda t: jnp.from_dlpack(t.detach()),
    "plain jax": lambda t: jnp.sin(t.detach().array) - jnp.sin(np.sin(X).sum()) + np.sin(X).sum(),
    "block": lambda t: t.block_until_ready().array,
}


@pytest.mark.parametrize("name", READS)
def test_every_way_to_read(name):
    w = variable()
    f = warm(lambda: fnp.sin(w).sum())
    for _ in range(3):
        t = f()
        np.testing.assert_allclose(READS[name](t), np.sin(X).sum(), rtol=1e-3)
        same(t, np.sin(X).sum())
        t.backward()
        same(w.grad, np.cos(X))
        w.grad = None
    assert replayed()


@pytest.mark.parametrize("read", [lambda value: None, float])
def test_training(read):
    same(law(lambda: train(8, read)), expected_training(8))
    assert replayed()


def test_a_step_of_training_is_one_program():
    train(TIMES)
    compiled_all()
    hits, compiled = info("hits"), info("compiled")
    train(4)
    assert info("hits") >= hits + 4 or not state.replaying
    assert info("compiled") == compiled
    assert compiled > 0 or not state.replaying


@pytest.mark.parametrize("traceable", [False, True])
def test_rules_of_functions(traceable):
    class CubeVjp(Cube):
        is_traceable = traceable
        vjp = cube_vjp(1.0)

    x = variable()

    def step():
        x.grad = None
        y = CubeVjp.apply(CubeVjp.apply(x) * 0.5)
        fnp.sum(y).backward()
        return y, x.grad

    y, g = law(step)
    same(y, 0.5**3 * X**9)
    same(g, 9 * 0.5**3 * X**8)


def test_gradients_are_accumulated_and_hooks_run():
    w = variable()
    seen = []
    for _ in range(TIMES):
        w.grad = None
        for _ in range(2):
            y = fnp.exp(w)
            y.register_hook(lambda g: seen.append(g.tolist()) or 2 * g)
            (y * y).sum().backward()
        same(w.grad, 2 * 4 * np.exp(2 * X))
    assert len(seen) == 2 * TIMES
    for g in seen:
        same(g, 2 * np.exp(X))


def test_higher_derivatives():
    def step():
        w = variable()
        (g,) = fad.autograd.grad(fnp.sin(w).sum(), w, create_graph=True)
        (h,) = fad.autograd.grad((g * g).sum(), w)
        return g, h

    g, h = law(step)
    same(g, np.cos(X))
    same(h, -2 * np.cos(X) * np.sin(X))


def test_retained_graphs_and_gradients_of_inner_values():
    def step():
        w = variable()
        y = fnp.sin(w)
        y.retain_grad()
        out = (y * y).sum()
        out.backward(retain_graph=True)
        out.backward()
        return y.grad, w.grad

    inner, g = law(step)
    same(inner, 4 * np.sin(X))
    same(g, 4 * np.sin(X) * np.cos(X))


def test_errors_are_raised_where_they_are_made():
    w = variable()
    for _ in range(TIMES):
        y = fnp.sin(w)
        with pytest.raises((TypeError, ValueError), match="shape"):
            y + jnp.ones(4)
        same(y, np.sin(X))
        y.sum().backward()
        with pytest.raises(fad.errors.GradientError, match="second time"):
            y.sum().backward()


def test_writes_and_views():
    def step():
        w = variable()
        y = w * 2
        v = y[1:]
        v *= 3
        assert y.version == 1
        same(y, 2 * X * [1, 3, 3])
        (y * y).sum().backward()
        same(w.grad, 8 * X * [1, 9, 9])
        with fad.no_grad():
            w[0] = 5.0
        same(w, [5.0, X[1], X[2]])
        return y, v, w.grad, w.detach()

    law(step)


def test_another_thread_reads():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    for _ in range(3):
        w.grad = None
        y = f()
        z = y * w
        a, b = on_thread(lambda z=z, y=y: (z.tolist(), y.tolist()))
        same(a, 2 * np.sin(X) * X)
        same(b, 2 * np.sin(X))
        z.sum().backward()
        same(w.grad, 2 * np.sin(X) + 2 * np.cos(X) * X)


def test_what_a_finished_thread_has_deferred():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    made = [on_thread(f) for _ in range(TIMES)]
    y = sum(made[1:], made[0])
    y.sum().backward()
    same(y, TIMES * 2 * np.sin(X))
    same(w.grad, TIMES * 2 * np.cos(X))


def test_threads_that_share_parameters():
    w = variable()
    failures = []

    def step():
        return fad.autograd.grad(loss(fnp, w, X), w)

    def work():
        try:
            for _ in range(10):
                assert exact(step()) == expected
        except BaseException as error:
            failures.append(error)

    with fad.autograd.compiled(False):
        expected = exact(step())
    same(step()[0], jax.grad(lambda w: loss(jnp, w, X))(jnp.asarray(X)))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_gradients_of_many_threads_are_all_added():
    w = variable()
    for _ in range(TIMES):
        loss(fnp, w, X).backward()
    (g,) = fad.autograd.grad(loss(fnp, w, X), w)
    w.grad = None
    threads = [
        threading.Thread(target=lambda: [loss(fnp, w, X).backward() for _ in range(10)])
        for _ in range(6)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_allclose(w.grad.array, 60 * g.array, rtol=1e-4)


def test_settings_of_jax_apply_to_what_is_under_them():
    w = variable()
    for _ in range(TIMES):
        y = fnp.sin(w) + jnp.ones(3, jnp.int32)
        with jax.numpy_dtype_promotion("strict"):
            with pytest.raises(Exception, match="[Pp]romotion"):
                fnp.sin(w) + jnp.ones(3, jnp.int32)
            same(y, np.sin(X) + 1)
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            (w * 0) / (w * 0)
        y.sum().backward()
        same(w.grad, np.cos(X))
        w.grad = None


def test_transforms_and_traces_of_jax_around_and_inside():
    w = variable()

    def step():
        y = fnp.sin(w)
        inner = fad.grad(lambda v: (fnp.cos(v) * y).sum())(X)
        lanes = fad.vmap(lambda v: (v * y).sum())(jnp.eye(3))
        traced = jax.jit(lambda v: v * fad.grad(lambda u: (u * y.detach()).sum())(v))(X)
        same(traced, X * np.sin(X))
        (inner.sum() + lanes.sum()).backward()
        g, w.grad = w.grad, None
        return traced, g

    same(law(step)[1], -np.sin(X) * np.cos(X) + np.cos(X))


def test_switching_off_and_on():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    for _ in range(3):
        y = f()
        with fad.autograd.compiled(False):
            hits = info("hits")
            same(y, 2 * np.sin(X))
            z = f() * y
            z.sum().backward(retain_graph=True)
            assert info("hits") == hits
        (z * f()).sum().backward()
        same(w.grad, 8 * np.sin(X) * np.cos(X) + 24 * np.sin(X) ** 2 * np.cos(X))
        w.grad = None


def test_steps_that_are_given_up_cost_no_memory():
    w = variable()
    f = warm(lambda: (fnp.sin(w * 2) ** 2).sum())
    compiled_all()
    gc.collect()
    gc.disable()
    try:
        before = len(jax.live_arrays())
        for _ in range(TIMES):
            f()
        flush()
        assert len(jax.live_arrays()) == before
    finally:
        gc.enable()


def test_nothing_is_kept_alive():
    w = variable()
    f = warm(lambda: (fnp.sin(w * 2) ** 2).sum())
    kept = []
    gc.collect()
    gc.disable()
    try:
        for k in range(TIMES):
            x = jnp.full(3, float(k))
            y = fnp.sin(w) * x
            kept += [weakref.ref(x), weakref.ref(y)]
            (y * y).sum().backward()
            w.grad = None
        del x, y
        f().item()
        compiled_all()
        assert all(r() is None for r in kept)
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [3, 1 << 15])
def test_what_is_being_compiled_keeps_no_arrays_alive(size):
    """The compiler takes long for this step: its arrays are freed all the same."""
    w = variable(jnp.full(size, 0.5))
    gc.collect()
    gc.disable()
    try:
        for _ in range(2 * TIMES):
            x = jnp.full(size, 0.3)
            kept = [weakref.ref(x)]
            y = w * x
            for _ in range(40):
                y = fnp.tanh(y) * fnp.sin(y) + y
            kept.append(weakref.ref(y))
            y.sum().backward()
            w.grad = None
            del x, y
            flush()
            assert all(r() is None for r in kept)
    finally:
        gc.enable()


def test_a_long_step():
    w = variable()

    def step():
        y = w
        for _ in range(300):
            y = y * 1.001
            y = y + 0.0
        y.sum().backward()
        g, w.grad = w.grad, None
        return y, g

    same(law(step, times=5)[1], np.full(3, 1.001**300))


@pytest.mark.parametrize("size", [1, 1 << 10, 1 << 14, (1 << 14) + 1, 40_000])
def test_arrays_of_all_sizes(size):
    w, small = variable(jnp.linspace(0.0, 1.0, size)), variable()

    def step():
        y = w * 2
        (y * y).mean().backward(retain_graph=True)
        (fnp.sin(y).mean() * fnp.tanh(small)).sum().backward()
        found = w.grad, small.grad
        w.grad = small.grad = None
        return found

    law(step)
    ((w * 2) ** 2).mean().backward()
    same(w.grad, 8 * w.array / size)


def test_new_shapes_in_the_middle_of_a_step():
    w, large = variable(), variable(jnp.ones(40_000))
    f = warm(lambda: fnp.sin(w) * 0.5)
    for n in range(1, 5):
        y = f()
        for m in range(1, 5):
            other = variable(jnp.ones((m, 41))) * (0.25 * n)
            same(other, np.full((m, 41), 0.25 * n))
        same(large * (n + 2.0), np.full(40_000, n + 2.0))
        y.sum().backward()
        same(w.grad, 0.5 * np.cos(X))
        w.grad = None


def test_settings_that_change_for_good_between_an_operation_and_its_reading():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    y = f()
    before = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        same(y, 2 * np.sin(X))
        y.sum().backward()
        same(w.grad, 2 * np.cos(X))
        w.grad = None
        warm(f)
    finally:
        jax.config.update("jax_default_matmul_precision", before)
    f().sum().backward()
    same(w.grad, 2 * np.cos(X))


def test_another_thread_reads_under_settings_and_traces_of_its_own():
    w = variable()
    warm(lambda: fnp.sin(w) * 2)
    f = lambda: (fnp.sin(w) * 2, ((w * 2.0) > 0.5).sum())
    other = jax.devices()[-1]

    def under(context):
        y, n = f()

        def read():
            with context:
                return y.array, n.array

        for found in (on_thread(read), (y.array, n.array)):
            same(found[0], 2 * np.sin(X))
            assert int(found[1]) == 2 and found[1].dtype == "int32"
            assert found[0].devices() == {jax.devices()[0]}

    under(jax.default_device(other))
    under(jax.enable_x64(True))
    y, _ = f()
    same(on_thread(lambda: jax.jit(lambda a: a + y.array)(X)), X + 2 * np.sin(X))
    assert not isinstance(y.array, jax.core.Tracer)


def test_an_interrupt_anywhere_in_an_operation_leaves_what_was_deferred():
    """An exception wherever Python lets an interrupt come."""
    w = variable()
    f = warm(lambda: [w * 2.0, w * 3.0, w + 1.0, w * w])
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
        a, b, c, d = f()
        for ours, theirs in (
            (kept, X + 1),
            (first, 2 * X),
            (d, X * X),
            (a, 2 * X),
            (c, X + 1),
            (b, 3 * X),
        ):
            same(ours, theirs)
        if not moments.reached:
            break
    assert 10 < reached < 999


@pytest.mark.sweep("part", range(8), sample=1)
def test_operations_of_finalizers_in_the_middle_of_a_call(part):
    """What the garbage collector runs may be deferred before what it has interrupted."""
    w = variable()
    f = warm(lambda: [w * 2.0, w * 3.0, w + 1.0])
    made = []
    for k, at in enumerate(range(1 + part, 2000, 8)):
        made.clear()
        if k % 2 == 0:  # this time and the next one, something is new
            fad.autograd.compiled.clear_cache()
        with at_finalizers(at, lambda: made.append(w + 1.0)) as moments:
            a, b, c = f()
        for ours, theirs in ((c, X + 1), (b, 3 * X), (a, 2 * X), *[(t, X + 1) for t in made]):
            same(ours, theirs)
        if moments.over:
            break
    assert not made and at > 50


DONATIONS = {
    "array": lambda t: jax.jit(lambda a: a + 1, donate_argnums=0)(t.array),
    "pytree": lambda t: jax.jit(lambda a: a + 1, donate_argnums=0)(t),
    "fad.jit": lambda t: fad.jit(lambda a: a + 1, donate_argnums=0)(t),
    "delete": lambda t: t.array.delete(),
}


@pytest.mark.parametrize("name", DONATIONS)
def test_arrays_may_be_given_up_after_an_operation_on_them(name):
    w = variable()
    f = lambda v: (w * 1.0 * v, v * w, v.clone(), v * 2.0)
    warm(lambda: f(fad.tensor(X))[:2])
    for _ in range(2):
        v = fad.tensor(X)
        results = f(v)
        DONATIONS[name](v)
        for ours, theirs in zip(results, (X * X, X * X, X, 2 * X), strict=True):
            same(ours, theirs)


def test_a_parameter_may_be_given_up_after_a_step():
    for _ in range(3):
        w = variable()
        for _ in range(TIMES):
            y = fnp.sin(w) * 2
            y.sum().backward()
            g, w.grad = w.grad, None
        w.array.delete()
        same(y, 2 * np.sin(X))
        same(g, 2 * np.cos(X))


def test_a_jacobian_may_be_given_up():
    x = jnp.arange(5.0)
    for _ in range(3):
        for transform in (fad.jacrev, fad.jacfwd):
            transform(lambda x: x)(x).delete()
            same(transform(lambda x: x * 2)(x), 2 * np.eye(5))


def test_numbers_are_checked_in_a_block_in_the_middle_of_a_step():
    w = variable()
    f = warm(lambda: fnp.log(-fnp.abs(w)))
    y = w * 2.0
    for _ in range(2):
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            f()
        same(f(), np.full(3, np.nan))
    same(y, 2 * X)


def test_operations_that_are_given_up_keep_few_arrays():
    n = 1 << 14
    w, ones = variable(jnp.ones(n)), jnp.ones(n)
    warm(lambda: w * ones)
    seen = []
    for k in range(2000):
        x = jnp.full(n, float(k))
        seen.append(weakref.ref(x))
        w * x
    del x
    assert sum(r() is not None for r in seen) <= 600
    flush()
    compiled_all()
    assert not any(r() is not None for r in seen)


def test_values_that_are_read_after_every_few_operations():
    w = variable()
    expected = float(np.sum(np.sin(X) * 0.5))
    for _ in range(6 * TIMES):
        assert float((fnp.sin(w) * 0.5).sum()) == pytest.approx(expected, rel=1e-6)
    y = fnp.sin(w) * 0.5
    y.sum().backward()
    same(w.grad, np.cos(X) * 0.5)


def _loops(count):
    """So many loops of which none is like another one."""
    draw = random.Random(0)
    for _ in range(count):
        steps = [draw.choice([fnp.sin, fnp.tanh, fnp.exp, fnp.negative]) for _ in range(6)]

        def loop(x, steps=steps):
            for step in steps:
                x = step(x) * 0.5
            return x.sum()

        yield loop


def test_steps_that_are_always_new():
    def step(loop):
        w = variable()
        value = loop(w)
        value.backward()
        return value, w.grad

    for loop in _loops(12):
        law(lambda loop=loop: step(loop), times=1)
    repeated = next(_loops(1))
    law(lambda: step(repeated), times=4 * TIMES)
    assert replayed()


def test_transforms_that_are_always_new():
    def lanes(loop):
        return fad.vmap(loop)(np.stack([X, 2 * X]))

    for loop in _loops(12):
        law(lambda loop=loop: lanes(loop), times=1)
    repeated = next(_loops(1))
    law(lambda: lanes(repeated), times=4 * TIMES)
    assert replayed()


def test_short_and_long_steps_alternate():
    w = variable()

    def step(count):
        y = w
        for _ in range(count):
            y = fnp.sin(y)
        y.sum().backward()
        g, w.grad = w.grad, None
        return y, g

    with fad.autograd.compiled(False):
        expected = {count: exact(step(count)) for count in (1, 2, 12)}
    for k in range(6 * TIMES):
        count = (1, 12, 2, 12)[k % 4]
        assert exact(step(count)) == expected[count]
    assert replayed()
