"""Traces: functions in transforms and steps of the tape as one program, with nothing else changed."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lines import at_finalizers, before_line, interrupt
from repeated import (
    ENGINE,
    PROGRAMS,
    TIMES,
    W,
    again,
    as_without,
    as_without_in_steps,
    cube,
    hits,
    outcome,
    same,
    slope,
)

import fad
import fad.numpy as fnp
from fad.core.tensor import bottom
from fad.errors import GradientError
from fad.replay import policy, settings

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name):
    f = PROGRAMS[name]
    again(fad.value_and_grad(f), X)
    again(fad.jacrev(f), X)


NESTED = {
    "grad of grad": lambda f: lambda x: fad.grad(lambda x: fad.grad(f)(x) @ X)(x),
    "vmap of grad": lambda f: lambda x: fad.vmap(fad.grad(f))(jnp.stack([x, x + 0.1])),
    "jvp of grad": lambda f: lambda x: fad.jvp(fad.grad(f), (x,), (X,)),
    "hessian": fad.hessian,
}


@pytest.mark.sweep("case", list(itertools.product(PROGRAMS, NESTED)), sample=8, ids="-".join)
def test_nested_transforms(case):
    program, transform = case
    again(NESTED[transform](PROGRAMS[program]), X)


def test_against_jax():
    def f(np_):
        return lambda x: np_.sum(np_.sin(x) * x**3 * 2.0 + 1.0)

    for ours, theirs in ((fad.grad, jax.grad), (fad.value_and_grad, jax.value_and_grad)):
        for _ in range(TIMES):
            same(ours(f(fnp))(X), theirs(f(jnp))(X))
    for _ in range(TIMES):
        same(fad.hessian(f(fnp))(X), jax.hessian(f(jnp))(X))
    assert hits() > 0


def test_numbers_keep_their_weak_type_at_every_order():
    g, h = (lambda x: fnp.sin(x) * x), (lambda x: jnp.sin(x) * x)
    for _ in range(3):
        g, h = fad.grad(g), jax.grad(h)
        for _ in range(TIMES):
            same(g(2.0), h(2.0))


def test_several_arguments_pytrees_and_aux():
    def f(p, scale, y):
        h = fnp.tanh(p["w"] * scale + p["b"])
        return fnp.sum(h * y), {"h": h, "best": fnp.argmax(h), "scale": scale, "none": None}

    p = {"w": X, "b": -X}
    again(fad.grad(f, argnums=(0, 2), has_aux=True), p, 2.0, X)
    again(fad.value_and_grad(f, has_aux=True), p, 2.0, X)
    again(fad.grad(lambda x, y: fnp.sum(x * x), argnums=(0, 1)), X, X)
    again(fad.jacrev(lambda x: {"a": x * x, "b": (x.sum(), x[0] * x)}), X)
    again(fad.jacrev(lambda x: x * x, chunk_size=2), X)
    z = X + 1j * X
    again(fad.grad(lambda z: fnp.sum(fnp.abs(z * z))), z)


def test_branches_on_values_are_taken_as_they_are():
    def f(x):
        y = fnp.sum(x * x)
        return y * 2.0 if y > 7.0 else y * 3.0

    for _ in range(TIMES):
        same(fad.grad(f)(X), 4.0 * X)
        same(fad.grad(f)(X / 2), 3.0 * X)
    assert hits() > 0


def test_prints_and_other_effects_happen_each_time_and_in_order(capsys):
    seen = []

    def f(x):
        y = fnp.sin(x)
        seen.append(y.shape)
        print("once", y.dtype, y.ndim, y.aval.size)
        return fnp.sum(y * y)

    again(fad.grad(f), X)
    assert seen == [(4,)] * (TIMES + 1)
    assert capsys.readouterr().out == "once float32 1 4\n" * (TIMES + 1)


@pytest.mark.parametrize("where", ["input", "middle", "node"])
def test_hooks_run(where):
    calls = []

    def f(x):
        y = fnp.sin(x) * 2.0
        if where == "input":
            x.register_hook(lambda g: calls.append(1) or g * 3.0)
        elif where == "middle":
            y.register_hook(lambda g: calls.append(1) or g * 3.0)
        else:
            y.grad_fn.register_hook(
                lambda gi, go: calls.append(1) or tuple(g and None for g in ()) or None
            )
        return fnp.sum(y * y)

    again(fad.grad(f), X, replayed=where == "input")  # what comes after the hook
    assert len(calls) == TIMES + 1


def test_writes_in_place():
    def own(x):
        y = fnp.sin(x)
        y[0] = x[1] * 2.0
        y *= x
        return fnp.sum(y * y)

    def of_view(x):
        y = x * 1.0
        part = y[1:3]
        z = fnp.sum(part + x[0])
        part += 1.0
        return z + fnp.sum(y * part.sum())

    again(fad.grad(own), X)
    again(fad.grad(of_view), X)


def test_a_write_to_what_was_captured_comes_after_what_has_read_it():
    def g(w):
        def f(x):
            y = fnp.sum(x * (x + w))
            w.mul_(2.0)
            return y + fnp.sum(x * x + w)

        return fad.grad(f)(X)

    for _ in range(TIMES):
        same(g(fad.tensor(X)), 5.0 * X)
        v = fad.tensor(X, requires_grad=True)
        r = g(v * 1.0)
        same(r.detach(), 5.0 * X)
        r.sum().backward()
        same(v.grad, jnp.ones(4))


def test_modes_in_the_middle():
    def no_grad(x):
        with fad.no_grad():
            c = fnp.sin(x)
        return fnp.sum(c * x)

    def detached(x):
        return fnp.sum(fnp.sin(x).detach() * x)

    def packed(x):
        y = fnp.sin(x)
        with fad.autograd.saved_tensors_hooks(lambda t: t * 2.0, lambda t: t / 2.0):
            z = y * y
        return fnp.sum(z * x)

    def switched_off(x):
        y = fnp.sin(x)
        with fad.autograd.compiled(False):
            z = y * y
        return fnp.sum(z)

    def precise(x):
        y = fnp.sin(x)
        with jax.default_matmul_precision("highest"):
            return y @ y

    for f in (no_grad, packed, switched_off, precise):
        again(fad.grad(f), X, replayed=False)
    again(fad.grad(detached), X)  # whose value is read


def test_anomaly_mode_names_the_operation():
    def f(x):
        y = fnp.sum(fnp.sqrt(x))
        return y * 0.0

    g = fad.grad(f)
    for _ in range(TIMES):
        g(X)
    with fad.autograd.detect_anomaly(), pytest.raises(GradientError, match="SqrtBackward"):
        g(X * 0.0)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        g(X * 0.0 - 1.0)


def test_functions_inside_use_their_rules():
    class Scaled(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vjp(ctx, g):
            return g * 10.0

    again(fad.grad(lambda x: fnp.sum(Scaled.apply(fnp.sin(x)))), X, replayed=False)
    same(fad.grad(lambda x: fnp.sum(Scaled.apply(x)))(X), 10.0 * jnp.ones(4))


def test_errors_are_raised_where_they_were():
    lines = []

    def f(x):
        y = fnp.sin(x)
        lines.append("before")
        z = y @ fnp.ones(7)
        lines.append("after")
        return z

    for _ in range(TIMES):
        with pytest.raises(TypeError, match="contracting"):
            fad.grad(f)(X)
    assert lines == ["before"] * TIMES

    def vector(x):
        return fnp.sin(x) * 2.0

    for _ in range(TIMES):
        with pytest.raises(GradientError, match=r"shape \(4,\)"):
            fad.grad(vector)(X)


def test_an_infinite_derivative_of_what_is_not_differentiated_spoils_nothing():
    def f(x):
        slope, _ = fad.grad(lambda x: (fnp.sum(x * x), fnp.log(x)), has_aux=True)(x)
        return fnp.sum(slope)

    for _ in range(TIMES):
        same(fad.grad(f)(X.at[0].set(0.0)), 2.0 * jnp.ones(4))
    assert hits() > 0


def test_child_threads_and_other_threads():
    def f(x):
        y = fnp.sin(x)
        found = []
        t = threading.Thread(target=lambda: found.append(y * x))
        t.start()
        t.join()
        return fnp.sum(found[0] * y)

    again(fad.grad(f), X, replayed=False)
    failures = []

    def work(k):
        try:
            for _ in range(20):
                same(fad.grad(lambda x: fnp.sum(fnp.sin(x) * k))(X), jnp.cos(X) * k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(float(k),)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_a_tracer_or_traced_code_in_the_middle():
    def f(x):
        y = fnp.sin(x)
        return fnp.sum(y * jax.jit(lambda c: c * 2.0)(X))

    def mixed(x):
        y = fnp.sin(x)
        return fnp.sum(jax.jit(lambda c: c * (y * 2.0).value)(X) * y)

    again(fad.grad(f), X)
    again(fad.grad(mixed), X, replayed=False)

    def inner(x):
        y = fnp.sin(x)
        total = fad.jit(lambda a: fnp.sum(a * a))(y)
        return total + y[0]

    again(fad.grad(inner), X, replayed=False)
    same(fad.jit(fad.grad(cube))(X), fad.grad(cube)(X))
    same(jax.jit(fad.grad(cube))(X), fad.grad(cube)(X))
    same(jax.vmap(fad.grad(cube))(jnp.stack([X, X])), fad.vmap(fad.grad(cube))(jnp.stack([X, X])))


def test_under_the_tape():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(TIMES):
        g = fad.grad(lambda x: fnp.sum(x**3 * w))(w)
        g.sum().backward()
        same(w.grad, jax.grad(lambda w: jnp.sum(3 * w**2 * w))(X))
        w.grad = None
    assert hits() > 0


def test_large_arrays_are_not_deferred():
    x = jnp.ones(2 * settings.LARGE)
    for _ in range(TIMES):
        fad.grad(cube)(x)
    assert hits() == 0


def test_nothing_is_kept_by_cycles():
    class Big:
        pass

    def f(x):
        return fnp.sum(fnp.sin(x) * x)

    g = fad.grad(f)
    for _ in range(TIMES):
        g(X)
    gc.collect()
    gc.disable()
    try:
        found = []

        def watched(x):
            y = fnp.sin(x)
            found.append(weakref.ref(y))
            z = y * x
            del y
            return fnp.sum(z)

        for _ in range(TIMES):
            fad.grad(watched)(X)
            assert all(r() is None for r in found)
            found.clear()
        with pytest.raises(ZeroDivisionError):
            fad.grad(lambda x: watched(x) / (0 // 0))(X)
        assert all(r() is None for r in found)
    finally:
        gc.enable()


def test_an_interrupt_at_any_line_leaves_traces_right():
    """An interrupt in the middle of `append`, which the function catches, changes nothing."""

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
            w = z * x
            return fnp.sum(w + z)

        return fad.grad(f)(X), count

    expected = jax.grad(lambda x: jnp.sum(jnp.sin(x) * 2.0 * x + jnp.sin(x) * 2.0))(X)
    for _ in range(TIMES):
        result, lines = run(0)
        same(result, expected)
    assert hits() > 0 and lines > 10
    for stop in range(1, lines + 1):
        result, _ = run(stop)
        same(result, expected)
        same(run(0)[0], expected)


ONES = jnp.ones((2, 3))


# As without replay


def test_a_leaf_that_has_changed_before_its_graph_is_read():
    def step(w, i):
        y = fnp.tanh(w * ONES)
        (y * 2.0).sum().backward()
        with fad.no_grad():
            w.mul_(1.01)
        return [round(float(y[0, 0]), 4), y.grad_fn.name(), outcome(lambda: y.sum().backward())]

    as_without_in_steps(step)


def test_requires_grad_that_is_assigned():
    def on(w, i):
        x = fad.tensor(W)
        y = w * x
        x.requires_grad = True
        (y * x).sum().backward()
        return slope(x)

    def off(w, i):
        p = w * ONES
        y = fnp.tanh(p)
        if i < 10:
            y.sum().backward()
            return None
        w.requires_grad = False
        y.sum().backward()
        w.requires_grad = True
        return [p.is_leaf, p.grad is None]

    for step in (on, off):
        as_without_in_steps(step)

    def inside(x):
        y = x * 2.0
        x.requires_grad = False
        return (fnp.sin(y) + x * 3.0).sum()

    def captured():
        v = fad.tensor([0.5, -1.0, 2.0])

        def f(x):
            y = x * v
            v.requires_grad = True
            return (y * (x * v)).sum()

        return [type(fad.grad(f)(X[:3])) is fad.Tensor]

    as_without(lambda: fad.grad(inside)(X).tolist())
    as_without(captured)


def test_the_grad_mode_is_that_of_the_operations():
    def outer(v):
        def f(x):
            y = x * v
            assert y.grad_fn
            return (y * x).sum(), y

        with fad.no_grad():
            g, aux = fad.grad(f, has_aux=True)(X)
        return (g * v * aux).sum()

    def value():
        v = fad.tensor(X, requires_grad=True)
        with fad.no_grad():
            y = fad.value_and_grad(lambda x: (x * v * x).sum())(X)[0]
        return [type(y) is fad.Tensor]

    def switched():
        v = fad.tensor(X, requires_grad=True)

        def f(x):
            y = (fnp.sin(x) * v).sum()
            fad.set_grad_enabled(False)
            return y

        try:
            return [type(fad.value_and_grad(f)(X)[0]) is fad.Tensor]
        finally:
            fad.set_grad_enabled(True)

    as_without(lambda: fad.grad(outer)(X + 1.0).tolist())
    as_without(value)
    as_without(switched)


def test_traced_tangents_of_concrete_inputs():
    f = fad.grad(cube)
    as_without(lambda: jax.jit(lambda t: fad.jvp(f, (X,), (t,))[1])(X).tolist())
    as_without(lambda: jax.jit(lambda t: fad.hvp(cube, (X,), (t,))[1][0])(X).tolist())
    as_without(
        lambda: jax.jvp(lambda x: fad.grad(lambda y: cube(y * x))(X), (X,), (X,))[1].tolist()
    )


def test_no_outputs_and_callables_of_every_kind():
    def nothing(x):
        assert fnp.sin(x) is not None
        return ()

    class Odd:
        def __call__(self, x):
            return cube(x)

        def __getattr__(self, name):
            if name.startswith("__") and name != "__code__":
                raise AttributeError(name)
            return []

    as_without(lambda: list(fad.jacrev(nothing)(X)))
    as_without(lambda: fad.grad(Odd())(X).tolist())
    as_without(lambda: fad.grad(jax.tree_util.Partial(cube))(X).tolist())


def test_anomaly_mode_around_the_backward_pass_alone():
    def step(w, i):
        loss = fnp.log(w * 0.0 - 1.0).sum()
        with fad.autograd.detect_anomaly() if i == 13 else fad.enable_grad():
            loss.backward()
        return slope(w)

    as_without_in_steps(step)


def test_a_failure_does_not_end_replay_for_good():
    def call(c):
        return fad.grad(lambda x: (fnp.sin(x) * c * x).sum())(X)

    for _ in range(TIMES):
        call(X)
    gone = X * 2.0
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        call(gone)
    before = hits()
    for _ in range(TIMES):
        call(X)
    assert hits() > before


@pytest.mark.parametrize("captured", [True, False])
def test_another_thread_reads_at_any_line_of_an_append(captured):
    """``captured``: the operand of the operation that is being appended is an input already."""
    w, other = fad.tensor(W, requires_grad=True), fad.asarray(ONES * 3.0)

    def run(stop):
        found = []

        def read():
            reader = threading.Thread(target=lambda: found.append(y.detach().array))
            reader.start()
            reader.join(0.05)  # it may block until the operation is done

        w.grad = None
        y = fnp.tanh(w * other) if captured else fnp.tanh(w * 3.0)
        with before_line(stop, ENGINE, read) as lines:
            z = y * other
        loss = (z + y).sum()
        loss.backward()
        slope = 1.0 - jnp.tanh(W * 3.0) ** 2
        same(w.grad, 12.0 * slope)
        same(loss.array, (4.0 * jnp.tanh(W * 3.0)).sum())
        for value in found:
            same(value, jnp.tanh(W * 3.0))
        return lines.count

    for _ in range(2 * TIMES):
        lines = run(0)
    assert hits() > 0 and lines > 20
    for stop in range(1, lines + 1):
        run(stop)
        run(0)


def test_threads_that_read_what_is_being_traced():
    w = fad.tensor(W, requires_grad=True)
    latest, failures = [None], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    done = threading.Event()
    draw = random.Random(0)

    def read():
        seen = None
        while not done.is_set():
            y = latest[0]
            try:
                if y is not None and y is not seen:
                    for _ in range(
                        draw.randrange(300)
                    ):  # somewhere in the middle of what comes after it
                        pass
                    np.testing.assert_allclose(y.detach().array, np.tanh(W), rtol=1e-5)
                    seen = y
            except BaseException as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(400):
            w.grad = None
            y = z = latest[0] = fnp.tanh(w * ONES)
            for _ in range(20):
                z = z + w
            (y * 2.0 + z - y).sum().backward()
            same(w.grad, 22.0 - 2.0 * jnp.tanh(W) ** 2)
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(interval)
    assert not failures


def test_programs_for_the_top_level_are_not_run_under_traces():
    """XLA's options apply to whole programs."""
    f = fad.grad(cube)
    with fad.autograd.compiled(wait=True):
        for _ in range(TIMES):
            expected = f(X).array if isinstance(f(X), fad.Tensor) else f(X)
        constant = jax.jit(lambda y: jnp.sum(y) + jnp.sum(fad.to_jax(f)(X)))(X)
        same(constant, jnp.sum(X) + jnp.sum(expected))
        same(jax.jit(fad.to_jax(f))(X), expected)
        same(jax.vmap(fad.to_jax(f))(jnp.stack([X, X]))[0], expected)
        ones = jax.grad(lambda y: jnp.sum(y * fad.to_jax(f)(X)))(X)
        same(ones, expected)
        with jax.ensure_compile_time_eval():
            same(f(X), expected)


def test_tables_of_avals_that_begin_anew(monkeypatch):
    monkeypatch.setattr(settings, "_KNOWN", 3)
    with fad.autograd.compiled(wait=True):
        for _ in range(TIMES):
            for n in range(1, 8):
                x = jnp.ones((n,))
                same(fad.grad(lambda x: fnp.sum(fnp.sin(x) * x))(x), jnp.sin(x) + jnp.cos(x))
    assert settings.aval_id(X.aval) == settings.aval_id((X + 1.0).aval) > 0
    large = jnp.zeros(settings.LARGE + 1)
    assert settings.aval_id(large.aval) == settings.aval_id((large + 1.0).aval) < 0


FINALIZERS = {
    "computes": lambda y: y * 1.25,
    "writes down": lambda y: (y * y).sum(),
    "reads": lambda y: np.asarray(bottom(y)),
}


@pytest.mark.parametrize("what", FINALIZERS)
@pytest.mark.parametrize("where", ["transform", "nested", "step", "without replay"])
@pytest.mark.sweep("part", range(48), sample=1)
def test_a_finalizer_at_any_place(part, where, what, monkeypatch):
    """It computes with values of the trace, or reads them, in the middle of all that fad does."""
    kept, found = [], []
    scales = [X + 1.0, X + 2.0]
    w = fad.tensor(X, requires_grad=True)

    def f(x):
        y = x * 2.0
        for c in scales:
            kept.append(y)
            y = y * c + c
        return (y * y).sum()

    def step(x):
        w.grad = None
        loss = f(w * x)
        loss.backward()
        return loss.array, w.grad.array

    if where == "without replay":
        monkeypatch.setattr(policy, "SEEN", 1 << 30)
    program = {
        "transform": fad.value_and_grad(f),
        "nested": fad.grad(lambda x: (fad.grad(f)(x) * x).sum()),
    }.get(where, step)

    def finalizer():
        if kept:
            found.append((len(kept), FINALIZERS[what](kept[-1])))

    def run(place):
        kept.clear()
        found.clear()
        with at_finalizers(place, finalizer) as moments:
            result = program(X)
        return result, moments.count

    def run_without():
        kept.clear()
        return program(X)

    for _ in range(TIMES):
        run_without()
    runs = [run(0) for _ in range(2 * TIMES)]
    expected = runs[-1][0]
    number = max([count for _, count in runs])  # less while something is compiled
    assert number > 500 and (where == "without replay" or hits() > 0)
    first = X * X * 2.0 if program is step else X * 2.0
    before = [first, first * scales[0] + scales[0]]
    for place in range(1 + part, number + 1, 48):
        same(run(place)[0], expected)
        for k, y in found:
            value, wanted = bottom(y), before[k - 1]
            wanted = {"computes": wanted * 1.25, "reads": wanted}.get(what, (wanted * wanted).sum())
            np.testing.assert_allclose(value, wanted, rtol=1e-5)
        for _ in range(2):
            same(run_without(), expected)
