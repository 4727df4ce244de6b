"""Small operations inside of a transform wait and run together: nobody can tell, but for the time."""

from __future__ import annotations

import gc
import threading
import weakref

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import fusion, runs, structures
from fad.dispatch import state
from fad.tensor import Pending

X = jnp.array([0.3, -0.7, 1.1])
TIMES = 5  # enough for a structure to be compiled


@pytest.fixture(autouse=True)
def _fresh():
    fad.autograd.compiled.clear_cache()
    runs.stop()
    yield
    runs.stop()
    assert state.run is None


def same(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=1e-6)


def net(m, x):
    for _ in range(3):
        x = m.tanh(x * 1.3) + x / 2
    return (x * x).sum()


TRANSFORMS = {
    "grad": (lambda f, x: fad.grad(f)(x), lambda f, x: jax.grad(f)(x)),
    "grad of grad": (
        lambda f, x: fad.grad(lambda x: fad.grad(f)(x).sum())(x),
        lambda f, x: jax.grad(lambda x: jax.grad(f)(x).sum())(x),
    ),
    "jvp": (lambda f, x: fad.jvp(f, (x,), (x,))[1], lambda f, x: jax.jvp(f, (x,), (x,))[1]),
    "vmap": (
        lambda f, x: fad.vmap(lambda s: f(s * x))(x),
        lambda f, x: jax.vmap(lambda s: f(s * x))(x),
    ),
    "vmap of grad": (
        lambda f, x: fad.vmap(lambda s: fad.grad(f)(s * x))(x),
        lambda f, x: jax.vmap(lambda s: jax.grad(f)(s * x))(x),
    ),
    "hessian": (lambda f, x: fad.hessian(f)(x), lambda f, x: jax.hessian(f)(x)),
    "vjp": (lambda f, x: fad.vjp(f, x)[1](2.0)[0], lambda f, x: jax.vjp(f, x)[1](2.0)[0]),
    "linearize": (
        lambda f, x: fad.linearize(f, x)[1](x),
        lambda f, x: jax.linearize(f, x)[1](x),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_repetition_gives_the_same(name):
    ours, theirs = TRANSFORMS[name]
    expected = theirs(lambda x: net(jnp, x), X)
    for _ in range(TIMES):
        result = ours(lambda x: net(fnp, x), X)
        assert type(result) is type(X)
        same(result, expected)


def derivative(x):
    """Of `net`, by operations that wait one by one: a ``fad.grad`` would be a script."""
    return fad.jvp(lambda x: net(fnp, x), (x,), (x,))


def test_a_structure_that_comes_back_is_one_program():
    gradient = derivative
    for _ in range(TIMES):
        gradient(X)
    before = runs.cache_info()
    assert before["compiled"] >= 1
    for _ in range(4):
        gradient(X + 1)
    after = runs.cache_info()
    assert after["hits"] == before["hits"] + 4
    assert after["compiled"] == before["compiled"]


def test_the_cache_is_looked_at_and_cleared_in_one_place():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(TIMES):
        net(fnp, w).backward()
        fad.grad(lambda x: net(fnp, x))(X)
    info = fad.autograd.compiled.cache_info()
    own = runs.cache_info()
    assert all(info[name] > own[name] > 0 for name in ("structures", "compiled", "hits"))
    fad.autograd.compiled.clear_cache()
    assert fad.autograd.compiled.cache_info() == {"structures": 0, "compiled": 0, "hits": 0}


def test_only_what_is_held_is_computed(monkeypatch):
    held = []
    whole = runs.held
    monkeypatch.setattr(runs, "held", lambda cells: held.append(whole(cells)) or held[-1])
    for _ in range(TIMES):
        derivative(X)
    assert len(held[-1]) > 12  # every operation and its tangent
    assert sum(held[-1]) <= 2  # the value and the tangent


def test_switched_off():
    with fad.autograd.compiled(False):
        for _ in range(TIMES):
            same(fad.grad(lambda x: net(fnp, x))(X), jax.grad(lambda x: net(jnp, x))(X))
    assert runs.cache_info() == {"structures": 0, "compiled": 0, "hits": 0}


def test_host_reads_and_branches_in_the_middle():
    seen = []

    def f(x):
        y = fnp.sin(x) * 2
        seen.append((float(y[0]), repr(y), y.tolist()))
        if (y.sum() > 0).item():
            y = y * 3
        return (y * y).sum()

    for _ in range(TIMES):
        g = fad.grad(f)(X)
        y = 2 * np.sin(X)
        same(g, 2 * y * (9 if y.sum() > 0 else 1) * 2 * np.cos(X))
    assert all(s[0] == pytest.approx(float(y[0])) for s in seen)
    same(seen[-1][2], y)
    assert len({s[1].split("level=")[0] for s in seen}) == 1


def test_numpy_and_plain_jax_read_what_waits():
    def f(x):
        y = fnp.exp(x)
        outside = np.asarray(fad.stop_gradient(y)) + jnp.sin(fad.stop_gradient(y).array)
        return (y * outside).sum()

    for _ in range(TIMES):
        same(fad.grad(f)(X), np.exp(X) * (np.exp(X) + np.sin(np.exp(X))))


def test_errors_are_raised_where_they_are_made():
    for k in range(TIMES):
        reached = []

        def f(x, reached=reached):
            y = fnp.sin(x) + 1
            reached.append("before")
            y = y + jnp.ones(4)
            reached.append("after")
            return y.sum()

        with pytest.raises((TypeError, ValueError), match="shape"):
            fad.grad(f)(X)
        assert reached == ["before"], k
        assert state.run is None


def test_side_effects_and_hooks_happen_every_time():
    calls, gradients = [], []

    def f(x):
        calls.append(1)
        y = fnp.sin(x)
        y.register_hook(lambda g: gradients.append(np.asarray(g)) or g * 2)
        return (y * y).sum()

    for _ in range(TIMES):
        same(fad.grad(f)(X), 2 * 2 * np.sin(X) * np.cos(X))
    assert len(calls) == len(gradients) == TIMES
    same(gradients[-1], 2 * np.sin(X))


class Cube(fad.Function):
    """Its rules check that they are given arrays, or Tensors of a level that is running."""

    @staticmethod
    def forward(x):
        assert type(x) is fad.Tensor
        return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        assert all(not isinstance(v, Pending) for v in (x, y, g))
        return g * 3 * y / x


def test_rules_of_functions_are_given_values():
    f = lambda x: (Cube.apply(fnp.sin(x)) * 2).sum()
    for _ in range(TIMES):
        same(fad.grad(f)(X), 6 * np.sin(X) ** 2 * np.cos(X))
        same(fad.vmap(fad.grad(lambda x: f(x[None])))(X), 6 * np.sin(X) ** 2 * np.cos(X))


def test_what_a_body_puts_aside_can_be_read_later():
    aside = []

    def f(x):
        aside.append(fnp.sin(x) * 2)
        return (x * x).sum()

    for _ in range(TIMES):
        fad.grad(f)(X)
        same(fad.stop_gradient(aside[-1]), 2 * np.sin(X))
    same(fnp.cos(fad.stop_gradient(aside[0])) + 1, np.cos(2 * np.sin(X)) + 1)


def test_a_vjp_is_called_later_and_elsewhere():
    results = []
    for _ in range(TIMES):
        _, pull = fad.vjp(lambda x: fnp.sin(x) * fnp.exp(x), X)
        thread = threading.Thread(target=lambda pull=pull: results.append(pull(jnp.ones(3))[0]))
        thread.start()
        thread.join()
        same(pull(jnp.ones(3))[0], results[-1])
        same(results[-1], np.exp(X) * (np.sin(X) + np.cos(X)))


def test_another_thread_reads_what_waits():
    def f(x):
        y = fnp.sin(x) * 3
        seen = []
        thread = threading.Thread(target=lambda: seen.append((y.tolist(), (y * 2).sum().item())))
        thread.start()
        thread.join()
        same(seen[0][0], 3 * np.sin(X))
        assert seen[0][1] == pytest.approx(float(6 * np.sin(X).sum()), rel=1e-5)
        return (y * y).sum()

    for _ in range(TIMES):
        same(fad.grad(f)(X), 18 * np.sin(X) * np.cos(X))


def test_many_threads_at_once():
    gradient = fad.grad(lambda x: net(fnp, x))
    expected = jax.grad(lambda x: net(jnp, x))(X)
    failures = []

    def work():
        try:
            for _ in range(10):
                same(gradient(X), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_settings_of_jax_hold_for_the_operations_under_them():
    def f(x):
        y = x * 2
        with jax.numpy_dtype_promotion("strict"):
            z = fnp.sin(y)
            with pytest.raises(Exception, match="[Pp]romotion"):
                z + jnp.ones(3, jnp.int32)
        return (z + jnp.ones(3, jnp.int32)).sum()

    for _ in range(TIMES):
        same(fad.grad(f)(X), 2 * np.cos(2 * X))

    def mixed(x):
        y = fnp.sin(x) + jnp.ones(3, jnp.int32)
        with jax.numpy_dtype_promotion("strict"):  # what waits was called before
            same(fad.stop_gradient(y), np.sin(X) + 1)
        return y.sum()

    for _ in range(TIMES):
        same(fad.grad(mixed)(X), np.cos(X))
        with jax.enable_x64(True):
            g = fad.grad(lambda x: net(fnp, x.astype("float64")))(X)
            assert g.dtype == "float32"
        same(g, jax.grad(lambda x: net(jnp, x))(X))


def test_numbers_are_checked_where_jax_checks_them():
    def f(x):
        y = x * 0
        reached.append(1)
        y = y / y
        reached.append(2)
        return y.sum()

    for _ in range(TIMES):
        reached = []
        assert np.isnan(fad.grad(f)(X)).all()
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            fad.grad(f)(X)
        assert reached == [1, 2, 1]


def test_large_arrays_do_not_wait():
    assert runs.LARGE < 20_000
    large = jnp.ones(20_000)

    def f(x):
        y = x * 2
        assert type(y._value) is not Pending
        return (y * y).mean()

    for _ in range(TIMES):
        same(fad.grad(f)(large), 8 * large / 20_000)


def test_a_run_that_does_not_compile_goes_step_by_step(monkeypatch):
    def refuse(steps, held):
        def run(*operands):
            raise RuntimeError("the compiler gives up")

        return run

    monkeypatch.setattr(runs, "fuse", refuse)
    for _ in range(TIMES):
        same(fad.grad(lambda x: net(fnp, x))(X), jax.grad(lambda x: net(jnp, x))(X))
    assert runs.cache_info()["compiled"] == 0


def test_compiling_stops_where_it_does_not_pay(monkeypatch):
    monkeypatch.setattr(structures, "ALLOWANCE", 0.0)
    monkeypatch.setattr(structures, "SHARE", 0.0)
    for _ in range(TIMES):
        same(fad.grad(lambda x: net(fnp, x))(X), jax.grad(lambda x: net(jnp, x))(X))
    assert runs.cache_info()["compiled"] <= 1


def test_structures_that_change_each_time():
    for n in range(1, 8):

        def f(x, n=n):
            for _ in range(n):
                x = fnp.sin(x)
            return x.sum()

        def g(x, n=n):
            for _ in range(n):
                x = jnp.sin(x)
            return x.sum()

        same(fad.grad(f)(X), jax.grad(g)(X))


def test_a_long_body(monkeypatch):
    monkeypatch.setattr(runs, "LONGEST", 16)

    def f(m, x):
        for _ in range(20):
            x = m.sin(x) * 1.01
        return x.sum()

    for _ in range(3):
        same(fad.grad(lambda x: f(fnp, x))(X), jax.jit(jax.grad(lambda x: f(jnp, x)))(X))


def test_writes_and_views_in_the_body():
    def f(x):
        y = fnp.zeros(4) + x.sum()
        y[1:] = x * 2
        v = y[2:]
        v *= x[1:]
        return (y * y).sum()

    def g(x):
        y = (jnp.zeros(4) + x.sum()).at[1:].set(x * 2)
        y = y.at[2:].multiply(x[1:])
        return (y * y).sum()

    for _ in range(TIMES):
        same(fad.grad(f)(X), jax.grad(g)(X))
        same(fad.hessian(f)(X), jax.hessian(g)(X))


def test_compiled_code_and_jax_transforms_inside_of_the_body():
    doubled = fad.jit(lambda a, b: fnp.sin(a) * b)
    native = jax.jit(lambda a: a * 2)

    def f(x):
        y = fnp.exp(x) * 2
        z = doubled(y, x)
        constant = native(fad.stop_gradient(y).array)
        total, _ = fad.lax.scan(lambda c, v: (c + v * y[0], None), x[0], z)
        return (z * constant).sum() + total

    def g(x):
        y = jnp.exp(x) * 2
        z = jnp.sin(y) * x
        return (z * jax.lax.stop_gradient(y) * 2).sum() + x[0] + (z * y[0]).sum()

    for _ in range(TIMES):
        same(fad.grad(f)(X), jax.grad(g)(X))


def test_under_a_trace_of_jax():
    c = jnp.array([2.0, 3.0, 4.0])
    for _ in range(TIMES):
        f = jax.jit(lambda x: x * fad.grad(lambda y: net(fnp, y))(c))
        same(f(X), X * jax.grad(lambda y: net(jnp, y))(c))
        f = jax.jit(fad.grad(lambda y: net(fnp, y)))
        same(f(X), jax.grad(lambda y: net(jnp, y))(X))


def test_the_eager_graph_inside_of_a_transform():
    w = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for _ in range(TIMES):
        g = fad.grad(lambda x: (fnp.sin(x) * w * w).sum())(X)
        assert isinstance(g, fad.Tensor)
        assert g.requires_grad
        same(g.detach(), np.cos(X) * w.array**2)
        (dw,) = fad.autograd.grad(g.sum(), w, retain_graph=True)
        same(dw, 2 * np.cos(X) * w.array)
        (g * 2).sum().backward()
        same(w.grad, 4 * np.cos(X) * w.array)
        w.grad = None


def test_dual_level():
    for _ in range(TIMES):
        with fad.dual_level():
            d = fad.make_dual(X, jnp.ones(3))
            y = fnp.sin(d) * d
            primal, tangent = fad.unpack_dual(y)
            same(primal, np.sin(X) * X)
            same(tangent, np.cos(X) * X + np.sin(X))


def test_a_failure_in_the_body_leaves_nothing_behind():
    for _ in range(TIMES):
        with pytest.raises(ZeroDivisionError):
            fad.grad(lambda x: fnp.sin(x).sum() / (1 // 0))(X)
        assert state.run is None


def test_nothing_is_kept():
    kept = []

    def f(x):
        y = fnp.sin(x)
        kept.append(weakref.ref(y._value))
        return (y * y).sum()

    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            fad.grad(f)(X)
        assert all(r() is None for r in kept)
    finally:
        gc.enable()


def test_arrays_elsewhere_stay_there():
    if len(jax.devices()) < 2:
        pytest.skip("one device")
    there = jax.devices()[1]
    x = jax.device_put(X, there)
    for _ in range(TIMES):
        g = fad.grad(lambda x: net(fnp, x))(x)
        assert g.devices() == {there}
        same(g, jax.grad(lambda x: net(jnp, x))(X))


UNARY = ["sin", "tanh", "negative", "square", "flip", "cumsum"]


@st.composite
def programs(draw):
    """Operations on earlier values, with reads of some of them in between."""
    count = draw(st.integers(2, 9))
    steps = []
    for n in range(count):
        kind = draw(st.sampled_from(["unary", "binary", "number", "read", "index", "drop"]))
        i = draw(st.integers(0, n))
        j = draw(st.integers(0, n))
        steps.append((kind, i, j, draw(st.sampled_from(UNARY)), draw(st.sampled_from([0.5, 2.0]))))
    return tuple(steps)


def run_program(m, steps, x, read):
    values = [x]
    for kind, i, j, name, number in steps:
        a, b = values[i], values[j]
        if kind == "unary":
            a = getattr(m, name)(a)
        elif kind == "binary":
            a = a * b + a
        elif kind == "number":
            a = number * a - number
        elif kind == "index":
            a = a + a[0] * b[1:2]
        elif kind == "read":
            read(a)
        else:
            values[i] = values[j]
        values.append(a)
    total = values[-1].sum()
    return total + values[len(values) // 2].sum()


@hypothesis.settings(max_examples=9, deadline=None)
@hypothesis.given(programs(), st.sampled_from(sorted(TRANSFORMS)))
def test_random_programs(steps, name):
    ours, theirs = TRANSFORMS[name]
    expected = theirs(lambda x: run_program(jnp, steps, x, lambda a: None), X)
    for _ in range(4):
        reads = []
        result = ours(lambda x, r=reads: run_program(fnp, steps, x, lambda a: r.append(repr(a))), X)
        same(result, expected)


def test_a_run_of_which_much_is_held_is_compiled_in_parts(monkeypatch):
    monkeypatch.setattr(fusion, "WIDEST", 3)
    made = []
    fuse = runs.fuse
    monkeypatch.setattr(runs, "fuse", lambda *a: made.append(len(fusion.parts_of(*a))) or fuse(*a))

    def f(m, x):
        kept = []
        a, b, c = x[0], x[1], x[2]
        for k in range(6):
            a, b, c = m.sin(b) * c, a + c, m.sort(m.stack([a, b]))[k % 2] * 1.1
            kept += [a, c]
        return sum(kept[:-1], kept[-1]), kept

    for _ in range(TIMES):
        value, kept = fad.jvp(lambda x: f(fnp, x), (X,), (X,))
        expected, others = jax.jvp(lambda x: f(jnp, x), (X,), (X,))
        for ours, theirs in zip(
            jax.tree.leaves((value, kept)), jax.tree.leaves((expected, others)), strict=True
        ):
            same(ours, theirs)
    assert max(made) > 3
