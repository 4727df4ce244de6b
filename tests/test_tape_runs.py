"""What the eager tape records waits too, and runs when it is read: a step of training is one program."""

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
from lines import before_line, interrupt

import fad
import fad.numpy as fnp
from fad import runs
from fad.dispatch import state
from fad.structures import Attempts
from fad.tape.record import RootLevel
from fad.tensor import Pending

STREAK = state.tape_waits.limit // runs.IDLE  # short runs in turn
X = np.array([0.3, -0.7, 1.1], np.float32)
TIMES = 5  # enough for a structure to be compiled


@pytest.fixture(autouse=True)
def _fresh():
    fad.autograd.compiled.clear_cache()
    runs.stop()
    yield
    runs.stop()


def same(a, b):
    a = a.array if isinstance(a, fad.Tensor) else a
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)


def variable():
    return fad.tensor(X, requires_grad=True)


@pytest.fixture
def without_scripts(monkeypatch):
    """Steps are recorded operation by operation, however often they have come."""
    monkeypatch.setattr(RootLevel, "begin_step", staticmethod(lambda op, args, plan: None))


def waits(t):
    return type(t._aux) is tuple or (type(t._value) is Pending and t._value.run is not None)


def warm(f):
    """``f``, whose operations have run once, so that they may wait."""
    f()
    runs.stop()
    return f


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


def test_operations_wait_until_something_is_read():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    y = f()
    assert waits(y) and y.shape == (3,) and y.dtype == "float32" and y.requires_grad
    assert waits(y)
    same(y, 2 * np.sin(X))
    assert not waits(y)


READS = {
    "item": lambda t: t.item(),
    "float": float,
    "repr": repr,
    "numpy": lambda t: np.asarray(t.detach()),
    "array": lambda t: t.array,
    "bool": bool,
    "tolist": lambda t: t.tolist(),
    "a leaf of a pytree in jit": lambda t: jax.jit(lambda v: v + 1)(t.detach()),
    "compiled code": lambda t: fad.jit(lambda v: v + 1)(t.detach()).array,
    "pickle": lambda t: pickle.loads(pickle.dumps(t.detach())).array,
    "deepcopy": lambda t: copy.deepcopy(t.detach()).array,
    "dlpack": lambda t: jnp.from_dlpack(t.detach()),
    "plain jax": lambda t: jnp.sin(t.detach().array),
    "block": lambda t: t.block_until_ready(),
}


@pytest.mark.parametrize("name", READS)
def test_every_way_to_read(name):
    w = variable()
    f = warm(lambda: fnp.sin(w).sum())
    t = f()
    assert waits(t)
    READS[name](t)
    assert not waits(t)
    same(t, np.sin(X).sum())


@pytest.mark.parametrize("compiling", [True, False])
def test_training_gives_the_same(compiling):
    with fad.autograd.compiled(compiling):
        same(train(8), expected_training(8))
        same(train(8, read=float), expected_training(8))
    assert state.run is None or compiling


def test_a_step_of_training_is_one_program(without_scripts):
    train(TIMES).numpy()
    before = runs.cache_info()
    train(4).numpy()
    after = runs.cache_info()
    assert after["compiled"] == before["compiled"] > 0
    assert after["hits"] - before["hits"] >= 4


def test_what_rules_compute_waits():
    class CubeVjp(Cube):
        vjp = cube_vjp(1.0)

    def step():
        x.grad = None
        fnp.sum(CubeVjp.apply(CubeVjp.apply(x) * 0.5)).backward()

    x = variable()
    warm(step)
    step()
    assert waits(x.grad)
    same(x.grad, 9 * 0.5**3 * x.array**8)


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
    same(seen[-1], 2 * np.exp(X))


def test_higher_derivatives():
    for _ in range(TIMES):
        w = variable()
        (g,) = fad.autograd.grad(fnp.sin(w).sum(), w, create_graph=True)
        (h,) = fad.autograd.grad((g * g).sum(), w)
        same(g, np.cos(X))
        same(h, -2 * np.cos(X) * np.sin(X))


def test_retained_graphs_and_gradients_of_inner_values():
    for _ in range(TIMES):
        w = variable()
        y = fnp.sin(w)
        y.retain_grad()
        out = (y * y).sum()
        out.backward(retain_graph=True)
        out.backward()
        same(y.grad, 4 * np.sin(X))
        same(w.grad, 4 * np.sin(X) * np.cos(X))


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
    for _ in range(TIMES):
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


def test_another_thread_reads_what_waits():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    y = f()
    z = y * w
    seen = []
    thread = threading.Thread(target=lambda: seen.append((z.tolist(), y.tolist())))
    thread.start()
    thread.join()
    same(seen[0][0], 2 * np.sin(X) * X)
    same(seen[0][1], 2 * np.sin(X))
    z.sum().backward()
    same(w.grad, 2 * np.sin(X) + 2 * np.cos(X) * X)


def test_what_a_finished_thread_left_waiting():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    made = []
    for _ in range(TIMES):
        thread = threading.Thread(target=lambda: made.append(f()))
        thread.start()
        thread.join()
    y = sum(made[1:], made[0])
    y.sum().backward()
    same(y, TIMES * 2 * np.sin(X))
    same(w.grad, TIMES * 2 * np.cos(X))


def test_threads_that_share_parameters():
    w = variable()
    failures = []

    def work():
        try:
            for _ in range(10):
                (g,) = fad.autograd.grad(loss(fnp, w, X), w)
                same(g, expected)
        except BaseException as error:
            failures.append(error)

    expected = jax.grad(lambda w: loss(jnp, w, X))(jnp.asarray(X))
    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_settings_of_jax_hold_for_what_is_under_them():
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


def test_inside_and_around_of_transforms_and_traces():
    w = variable()
    for _ in range(TIMES):
        y = fnp.sin(w)
        inner = fad.grad(lambda v: (fnp.cos(v) * y).sum())(X)
        lanes = fad.vmap(lambda v: (v * y).sum())(jnp.eye(3))
        traced = jax.jit(lambda v: v * fad.grad(lambda u: (u * y.detach()).sum())(v))(X)
        same(traced, X * np.sin(X))
        (inner.sum() + lanes.sum()).backward()
        same(w.grad, -np.sin(X) * np.cos(X) + np.cos(X))
        w.grad = None


def test_switching_off_runs_what_waits():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    y = f()
    with fad.autograd.compiled(False):
        assert not waits(y)
        assert not waits(f())
    assert waits(f())


def test_nothing_is_computed_that_nobody_holds(monkeypatch):
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    ran = []
    monkeypatch.setattr(runs, "step_by_step", lambda *a: ran.append(a))
    f()
    runs.stop()
    assert not ran


def test_arrays_are_given_back():
    w = variable()
    f = warm(lambda: (fnp.sin(w * 2) ** 2).sum())
    kept = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            y = fnp.sin(w)
            kept.append(weakref.ref(y._value))
            (y * y).sum().backward()
            w.grad = None
        del y
        f().item()
        assert all(r() is None for r in kept)
    finally:
        gc.enable()


def test_long_programs_are_cut():
    w = variable()
    for _ in range(3):
        y = w
        for _ in range(2 * runs.LONGEST // 3):
            y = y * 1.001
            y = y + 0.0
        y.sum().backward()
        same(w.grad, np.full(3, 1.001 ** (2 * runs.LONGEST // 3)))
        w.grad = None


def test_large_arrays_do_not_wait():
    w = fad.tensor(jnp.ones(2 * runs.LARGE), requires_grad=True)
    for _ in range(TIMES):
        y = w * 2
        assert type(y._value) is not Pending
        (y * y).mean().backward()
        same(w.grad, np.full(2 * runs.LARGE, 8 / (2 * runs.LARGE)))
        w.grad = None


def test_settings_that_change_for_good_between_an_operation_and_its_reading():
    w = variable()
    f = warm(lambda: fnp.sin(w) * 2)
    y = f()
    before = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        assert waits(y)
        same(y, 2 * np.sin(X))
        y.sum().backward()
        same(w.grad, 2 * np.cos(X))
    finally:
        jax.config.update("jax_default_matmul_precision", before)


def test_operations_that_do_not_wait_leave_nothing_in_the_run(without_scripts):
    w = variable()
    y = warm(lambda: fnp.sin(w) * 0.5)()
    run = state.run
    tables = (run.steps, run.operands, run.avals, run.scalars, run.places)
    before = [len(t) for t in tables]
    for n in range(1, 5):
        fad.tensor(jnp.ones((n, 41)), requires_grad=True) * (0.25 * n)  # new shapes
    large = fad.tensor(jnp.ones(2 * runs.LARGE), requires_grad=True)
    for n in range(3):
        large * (n + 2.0)
    assert state.run is run and waits(y)
    assert [len(t) for t in tables] == before


# What the world does between a call and its reading


def elsewhere(f):
    """``f()`` on another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(f()))
    thread.start()
    thread.join()
    return found[0]


def test_another_thread_reads_under_settings_and_traces_of_its_own():
    w = variable()
    f = warm(lambda: (fnp.sin(w) * 2, ((w * 2.0) > 0.5).sum()))
    other = jax.devices()[-1]

    def under(context):
        y, n = f()

        def read():
            with context:
                return y.array, n.array

        for found in (elsewhere(read), (y.array, n.array)):
            same(found[0], 2 * np.sin(X))
            assert int(found[1]) == 2 and found[1].dtype == "int32"
            assert found[0].devices() == {jax.devices()[0]}

    under(jax.default_device(other))
    under(jax.enable_x64(True))
    y, _ = f()
    same(elsewhere(lambda: jax.jit(lambda a: a + y.array)(X)), X + 2 * np.sin(X))
    assert not isinstance(y.array, jax.core.Tracer)


def test_an_interrupt_anywhere_in_a_call_leaves_the_run_as_it_was(without_scripts):
    """An exception before each line of the writing down, as an interrupt would come."""
    w = variable()
    f = warm(lambda: [w * 2.0, w * 3.0, w + 1.0, w * w])
    code = {runs.Run.call.__code__, runs._pending.__code__}
    reached = 0
    for at in range(1, 200):
        runs.stop()
        kept = w + 1.0
        try:
            with before_line(at, code, interrupt) as lines:
                w * 2.0
        except KeyboardInterrupt:
            reached += 1
        a, b, c, d = f()
        for ours, theirs in ((kept, X + 1), (d, X * X), (a, 2 * X), (c, X + 1), (b, 3 * X)):
            same(ours, theirs)
        if not lines.reached:
            break
    assert 30 < reached < 199


def test_operations_of_finalizers_in_the_middle_of_a_call(monkeypatch, without_scripts):
    """What the garbage collector runs may be written down before what it has interrupted."""
    w = variable()
    f = warm(lambda: [w * 2.0, w * 3.0, w + 1.0])
    made = []
    pending = runs._pending

    def interrupted(*args):
        if not made:
            made.append(None)
            made.append(w + 1.0)
        return pending(*args)

    monkeypatch.setattr(runs, "_pending", interrupted)
    a, b, c = f()
    for ours, theirs in ((made[1], X + 1), (c, X + 1), (b, 3 * X), (a, 2 * X)):
        same(ours, theirs)


DONATIONS = {
    "array": lambda t: jax.jit(lambda a: a + 1, donate_argnums=0)(t.array),
    "pytree": lambda t: jax.jit(lambda a: a + 1, donate_argnums=0)(t),
    "fad.jit": lambda t: fad.jit(lambda a: a + 1, donate_argnums=0)(t),
    "delete": lambda t: t.array.delete(),
}


@pytest.mark.parametrize("name", DONATIONS)
def test_arrays_may_be_given_up_after_an_operation_on_them(name):
    f = lambda v, w: (v.clone(), v * 2.0, v * w)
    w = variable()
    warm(lambda: f(fad.tensor(X), w))
    v = fad.tensor(X)
    results = f(v, w * 1.0)
    DONATIONS[name](v)
    for ours, theirs in zip(results, (X, 2 * X, X * X), strict=True):
        same(ours, theirs)


def test_a_jacobian_may_be_given_up():
    x = jnp.arange(5.0)
    for _ in range(3):
        for transform in (fad.jacrev, fad.jacfwd):
            transform(lambda x: x)(x).delete()
            same(transform(lambda x: x * 2)(x), 2 * np.eye(5))


def test_numbers_are_checked_in_a_block_inside_of_a_run():
    w = variable()
    f = warm(lambda: fnp.log(-fnp.abs(w)))
    y = w * 2.0
    for _ in range(2):
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            f()
        assert waits(w * 2.0)
        same(f(), np.full(3, np.nan))
    same(y, 2 * X)


def test_a_run_does_not_keep_much():
    w = fad.tensor(jnp.ones(runs.LARGE), requires_grad=True)
    warm(lambda: w * jnp.ones(runs.LARGE))
    seen = []
    for k in range(400):
        x = jnp.full(runs.LARGE, float(k))
        seen.append(weakref.ref(x))
        w * x
    del x
    assert sum(r() is not None for r in seen) <= runs.HEAVY // runs.LARGE + 2


def test_values_that_are_read_after_every_few_operations_are_computed_at_once():
    w = variable()

    def read_once():
        return float((fnp.sin(w) * 0.5).sum())

    expected = float(np.sum(np.sin(X) * 0.5))
    for _ in range(STREAK + 2):
        assert read_once() == pytest.approx(expected, rel=1e-6)
    y = fnp.sin(w) * 0.5
    assert not waits(y)
    assert state.run is None
    y.sum().backward()
    same(w.grad, np.cos(X) * 0.5)


def test_short_runs_are_tried_again_and_long_ones_wait(without_scripts):
    w = variable()

    def long(w):
        y = w
        for _ in range(runs.EVEN + 2):
            y = fnp.sin(y)
        return y

    for _ in range(STREAK + 1):
        float(fnp.sin(w).sum())
    assert not waits(long(w))
    for _ in range(state.tape_waits.rest):
        y = fnp.sin(w)
    for _ in range(
        5000
    ):  # until it has been tried as often as it takes to be compiled, and has paid
        y = long(w)
        found = waits(y) and not state.tape_waits.losses
        float(y.sum())
        if found:
            break
    assert waits(long(w))
    for _ in range(2):  # a few short ones among long ones change nothing
        float(fnp.sin(w).sum())
        float(long(w).sum())
    assert waits(long(w))


def _structures(count):
    """So many loops of which none is like another one."""
    draw = random.Random(0)
    for _ in range(count):
        steps = [draw.choice([fnp.sin, fnp.tanh, fnp.exp, fnp.negative]) for _ in range(24)]

        def loop(x, steps=steps):
            for step in steps:
                x = step(x) * 0.5
            return x.sum()

        yield loop


def test_structures_that_are_always_new_wait_more_and_more_rarely(without_scripts):
    def step(loop):
        w = variable()
        loss = loop(w)
        waited = waits(loss)
        loss.backward()
        with fad.autograd.compiled(False):
            same(w.grad, fad.grad(loop)(X))
        return waited

    waited = [step(loop) for loop in _structures(250)]
    assert all(waited[:10]) and sum(waited[-60:]) < 30
    repeated = next(_structures(1))
    for _ in range(400):
        waited = step(repeated)
        if waited and not state.tape_waits.losses:
            break
    assert step(repeated)


def test_transforms_whose_structure_is_always_new_wait_more_and_more_rarely(monkeypatch):
    def waited(loop):
        seen = []

        def f(x):
            y = loop(x)
            seen.append(state.run is not None)
            return y

        same(fad.vmap(f)(np.stack([X, X]))[1], loop(fad.tensor(X)))
        return seen[0]

    monkeypatch.setattr(state, "waits", Attempts(limit=1024, rest=256, grace=128))  # sooner
    found = [waited(loop) for loop in _structures(150)]
    assert all(found[:10]) and sum(found[-60:]) < 30
    repeated = next(_structures(1))
    for _ in range(400):
        if waited(repeated) and not state.waits.losses:
            break
    assert waited(repeated)


def test_passes_whose_structure_is_always_new_are_looked_at_more_and_more_rarely(without_scripts):
    from fad.tape import compiled

    def hits():
        return compiled._structures.info()["hits"]

    for loop in _structures(60):
        w = variable()
        loop(w).backward()
    assert state.passes.losses > 0
    repeated = next(_structures(1))
    before = hits()
    for _ in range(200):
        w = variable()
        repeated(w).backward()
    assert hits() > before + 20
    with fad.autograd.compiled(False):
        same(w.grad, fad.grad(repeated)(X))


def test_short_runs_in_one_thread_say_nothing_of_another():
    w = variable()
    for _ in range(STREAK + 2):
        float(fnp.sin(w).sum())
    seen = []

    def work():
        v = variable()
        fnp.sin(v) * 2.0
        seen.append(waits(fnp.sin(v)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
    assert not waits(fnp.sin(w))


def test_transforms_after_short_runs_wait_as_ever():
    w = variable()
    for _ in range(STREAK + 2):
        float(((w * 2) + 1).sum())
    waited = []

    def f(x):
        y = x
        for _ in range(8):
            y = fnp.sin(y) * 0.5
        waited.append(state.run is not None and len(state.run.steps) > 0)
        return y.sum()

    fad.vmap(f)(np.stack([X, X]))
    for _ in range(3):
        fad.vmap(f)(np.stack([X, X]))
    assert waited[1:] == [True] * 3
