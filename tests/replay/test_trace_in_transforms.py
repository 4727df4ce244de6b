"""Laws of replay, in transforms: but for the time, results are those of single operations.

Each law is checked without replay, with programs that are compiled in the background, and with all of them
compiled at first sight.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replays import compiled_all, exact, info, replayed

import fad
import fad.numpy as fnp
from fad.core import exact_programs

X = jnp.array([0.3, -0.7, 1.1])
TIMES = 5  # enough for a function to repeat


pytestmark = pytest.mark.usefixtures("replay_mode", "fresh_traces")


def same(a, b):
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    for x, y in zip(a, b, strict=True):
        x, y = (v.array if isinstance(v, fad.Tensor) else v for v in (x, y))
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-5, atol=1e-6)


def law(ours, theirs, times=TIMES):
    """``ours()`` gives the same bits each time, those that it gives without replay; and what JAX gives."""
    with fad.autograd.compiled(False):
        expected = ours()
    same(expected, theirs())
    for k in range(times):
        assert exact(ours()) == exact(expected), f"call {k}"


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
    "jvp of grad": (
        lambda f, x: fad.jvp(fad.grad(f), (x,), (x,)),
        lambda f, x: jax.jvp(jax.grad(f), (x,), (x,)),
    ),
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
def test_every_call_gives_the_same_bits(name):
    ours, theirs = TRANSFORMS[name]
    law(lambda: ours(lambda x: net(fnp, x), X), lambda: theirs(lambda x: net(jnp, x), X))
    assert type(jax.tree.leaves(ours(lambda x: net(fnp, x), X))[0]) is type(X)
    assert replayed() or name == "linearize"  # its level defers nothing


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap"])
def test_a_function_that_repeats_is_one_program_for_all_values(name):
    f = lambda x: net(fnp, x)
    transform = TRANSFORMS[name][0]
    with fad.autograd.compiled(wait=True):
        for _ in range(TIMES):
            transform(f, X)
        hits, compiled = info("hits"), info("compiled")
        assert hits > 0 and compiled > 0
        for k in range(4):
            transform(f, X + k)
        assert (info("hits"), info("compiled")) == (hits + 4, compiled)


def test_the_cache_is_looked_at_and_cleared_in_one_place():
    w = fad.tensor(X, requires_grad=True)
    seen = []
    with fad.autograd.compiled(wait=True):
        for step in (
            lambda: net(fnp, w).backward(),
            lambda: fad.grad(lambda x: net(fnp, x))(X),
            lambda: derivative(X),
        ):
            for _ in range(2 * TIMES):
                step()
            seen.append(fad.autograd.compiled.cache_info())
    for before, after in itertools.pairwise(seen):
        assert all(after[name] > before[name] > 0 for name in ("structures", "compiled", "hits"))
    assert seen[-1]["queued"] == seen[-1]["refused"] == 0
    assert "replayed" in fad.autograd.compiled.explain()
    fad.autograd.compiled.clear_cache()
    assert set(fad.autograd.compiled.cache_info().values()) == {0}


def derivative(x):
    return fad.jvp(lambda x: net(fnp, x), (x,), (x,))


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap"])
def test_nothing_but_results_is_left(name):
    transform, f = TRANSFORMS[name][0], lambda x: net(fnp, x)
    for _ in range(2 * TIMES):
        transform(f, X)
    compiled_all()
    gc.collect()
    gc.disable()
    try:
        before = len(jax.live_arrays())
        results = [transform(f, X) for _ in range(TIMES)]
        assert len(jax.live_arrays()) == before + TIMES
        del results
        assert len(jax.live_arrays()) == before
    finally:
        gc.enable()


def test_switched_off():
    with fad.autograd.compiled(False):
        for _ in range(TIMES):
            same(fad.grad(lambda x: net(fnp, x))(X), jax.grad(lambda x: net(jnp, x))(X))
    assert set(fad.autograd.compiled.cache_info().values()) == {0}


def test_switched_off_and_on_in_the_middle():
    def f(x):
        y = fnp.sin(x) * 2
        with fad.autograd.compiled(False):
            z = fnp.cos(y) * y
            assert fad.stop_gradient(z)[0].item() == pytest.approx(float(expected[0]))
        return (z * y).sum()

    y = 2 * jnp.sin(X)
    expected = jnp.cos(y) * y
    law(
        lambda: fad.grad(f)(X),
        lambda: jax.grad(lambda x: (jnp.cos(2 * jnp.sin(x)) * (2 * jnp.sin(x)) ** 2).sum())(X),
    )


def test_host_reads_and_branches_in_the_middle():
    seen = []

    def f(x):
        y = fnp.sin(x) * 2
        seen.append((y[0].item(), repr(y), y.tolist()))
        if (y.sum() > 0).item():
            y = y * 3
        return (y * y).sum()

    for x in (X, -X) * TIMES:
        g = fad.grad(f)(x)
        y = 2 * np.sin(x)
        same(g, 2 * y * (9 if y.sum() > 0 else 1) * 2 * np.cos(x))
        assert seen[-1][0] == pytest.approx(float(y[0]))
        same(seen[-1][2], list(y))
    assert len({s[1].split("level=")[0] for s in seen}) == 2


def test_numpy_and_plain_jax_in_the_middle():
    def f(x):
        y = fnp.exp(x)
        outside = np.asarray(fad.stop_gradient(y)) + jnp.sin(fad.stop_gradient(y).array)
        return (y * outside).sum()

    law(lambda: fad.grad(f)(X), lambda: np.exp(X) * (np.exp(X) + np.sin(np.exp(X))))


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap"])
def test_errors_are_raised_where_they_are_made(name):
    transform = TRANSFORMS[name][0]
    reached = []

    def f(x):
        y = fnp.sin(x) + 1
        reached.append("before")
        if wrong:
            y = y + jnp.ones(4)
        reached.append("after")
        return y.sum()

    for k in range(2 * TIMES):
        wrong, reached[:] = k % 2, []
        if wrong:
            with pytest.raises((TypeError, ValueError), match="shape"):
                transform(f, X)
            assert reached == ["before"]
        else:
            transform(f, X)
            assert reached == ["before", "after"]


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
    for g in gradients:
        same(g, 2 * np.sin(X))


class Cube(fad.Function):
    """Its rules check what they are given."""

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
        assert type(x) is type(y) is type(g) is fad.Tensor
        return g * 3 * y / x


def test_functions_use_their_rules_with_operations_around_them():
    f = lambda x: (Cube.apply(fnp.sin(x)) * 2).sum()
    expected = lambda: 6 * np.sin(X) ** 2 * np.cos(X)
    law(lambda: fad.grad(f)(X), expected)
    law(lambda: fad.vmap(fad.grad(lambda x: f(x[None])))(X), expected)


def test_what_a_function_puts_aside_can_be_read_later():
    aside = []

    def f(x):
        aside.append(fnp.sin(x) * 2)
        return (x * x).sum()

    for _ in range(TIMES):
        fad.grad(f)(X)
        fad.vmap(lambda s: f(s * X))(jnp.ones(1))
        same(fad.stop_gradient(aside[-2]), 2 * np.sin(X))
        with pytest.raises(fad.errors.LevelError):
            np.asarray(aside[-1])
        fad.jvp(f, (X,), (X,))
        same(fad.stop_gradient(aside[-1]), 2 * np.sin(X))
    same(fnp.cos(fad.stop_gradient(aside[0])) + 1, np.cos(2 * np.sin(X)) + 1)


def test_a_vjp_is_called_later_and_in_another_thread():
    for _ in range(TIMES):
        _, pull = fad.vjp(lambda x: fnp.sin(x) * fnp.exp(x), X)
        (from_thread,) = on_thread(lambda pull=pull: pull(jnp.ones(3)))
        assert exact(pull(jnp.ones(3))) == exact(from_thread)
        same(from_thread, np.exp(X) * (np.sin(X) + np.cos(X)))


def on_thread(f):
    """``f()``, on another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(f()))
    thread.start()
    thread.join()
    return found[0]


def test_another_thread_reads_and_computes_in_the_middle():
    def f(x):
        y = fnp.sin(x) * 3
        values, total = on_thread(lambda: (y.tolist(), (y * 2).sum().item()))
        same(values, list(3 * np.sin(X)))
        assert total == pytest.approx(float(6 * np.sin(X).sum()), rel=1e-5)
        return (y * y).sum()

    law(lambda: fad.grad(f)(X), lambda: 18 * np.sin(X) * np.cos(X))


def test_many_threads_at_once():
    functions = [
        lambda: fad.grad(lambda x: net(fnp, x))(X),
        lambda: fad.jvp(lambda x: net(fnp, x), (X,), (X,)),
        lambda: fad.vmap(lambda s: net(fnp, s * X))(X),
    ]
    with fad.autograd.compiled(False):
        expected = [exact(f()) for f in functions]
    failures = []

    def work():
        try:
            for _ in range(10):
                assert [exact(f()) for f in functions] == expected
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_settings_of_jax_apply_to_the_operations_under_them():
    def f(x):
        y = x * 2
        with jax.numpy_dtype_promotion("strict"):
            z = fnp.sin(y)
            with pytest.raises(Exception, match="[Pp]romotion"):
                z + jnp.ones(3, jnp.int32)
        return (z + jnp.ones(3, jnp.int32)).sum()

    law(lambda: fad.grad(f)(X), lambda: 2 * np.cos(2 * X))

    def mixed(x):
        y = fnp.sin(x) + jnp.ones(3, jnp.int32)
        with jax.numpy_dtype_promotion("strict"):  # it was called before
            same(fad.stop_gradient(y), np.sin(X) + 1)
        return y.sum()

    law(lambda: fad.grad(mixed)(X), lambda: np.cos(X))
    law(lambda: fad.jvp(mixed, (X,), (X,))[1], lambda: (np.cos(X) * X).sum())


def test_64_bits_for_a_block():
    wide = lambda x: net(fnp, x.astype("float64"))
    for _ in range(TIMES):
        with jax.enable_x64(True):
            g = fad.grad(wide)(X)
            assert g.dtype == "float32"
            value, tangent = fad.jvp(wide, (X,), (X,))
            assert value.dtype == tangent.dtype == "float64"
        same(g, jax.grad(lambda x: net(jnp, x))(X))
        assert fad.jvp(lambda x: net(fnp, x), (X,), (X,))[0].dtype == "float32"


def test_numbers_are_checked_where_jax_checks_them():
    def f(x):
        y = x * 0
        reached.append(1)
        y = y / y
        reached.append(2)
        return y.sum()

    for _ in range(TIMES):
        for transform in (lambda x: fad.grad(f)(x), lambda x: fad.jvp(f, (x,), (x,))[1]):
            reached = []
            assert np.isnan(transform(X)).all()
            with jax.debug_nans(True), pytest.raises(FloatingPointError):
                transform(X)
            assert reached == [1, 2, 1]


@pytest.mark.parametrize("size", [1, 1 << 10, 1 << 14, (1 << 14) + 1, 40_000])
def test_arrays_of_all_sizes(size):
    """Large arrays alone, and together with small ones."""

    def f(m):
        def f(x):
            y = m.sin(x * 2)
            z = m.tanh(y[:3]) * 0.5
            return (y * y).mean() + z.sum()

        return f

    x = jnp.linspace(0.0, 1.0, size)
    law(lambda: fad.grad(f(fnp))(x), lambda: jax.grad(f(jnp))(x))
    law(lambda: fad.jvp(f(fnp), (x,), (x,)), lambda: jax.jvp(f(jnp), (x,), (x,)))


def test_what_xla_does_not_compile_runs_operation_by_operation(monkeypatch):
    def refuse(f):
        def call(*values):
            raise RuntimeError("the compiler gives up")

        return call

    gradient = lambda: fad.grad(lambda x: net(fnp, x))(X)
    with fad.autograd.compiled(False):
        gradient()  # compiles single operations
    monkeypatch.setattr(exact_programs, "jit_of_small", refuse)
    law(gradient, lambda: jax.grad(lambda x: net(jnp, x))(X))
    assert info("compiled") == 0


def test_functions_that_do_something_else_each_time():
    def sines(m, n):
        def f(x):
            for _ in range(n):
                x = m.sin(x)
            return x.sum()

        return f

    for n in [*range(1, 8), *range(7, 0, -1)]:
        law(lambda: fad.grad(sines(fnp, n))(X), lambda: jax.grad(sines(jnp, n))(X), times=1)
        law(
            lambda: fad.jvp(sines(fnp, n), (X,), (X,)),
            lambda: jax.jvp(sines(jnp, n), (X,), (X,)),
            times=1,
        )


@pytest.mark.parametrize("name", ["grad", "jvp"])
def test_a_long_function(name):
    def f(m, x):
        for _ in range(100):
            x = m.sin(x) * 1.01
        return x.sum()

    ours, theirs = TRANSFORMS[name]
    law(
        lambda: ours(lambda x: f(fnp, x), X),
        jax.jit(lambda: theirs(lambda x: f(jnp, x), X)),
        times=3,
    )


@pytest.mark.parametrize("name", TRANSFORMS)
def test_writes_and_views_in_the_function(name):
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

    ours, theirs = TRANSFORMS[name]
    law(lambda: ours(f, X), lambda: theirs(g, X), times=3)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_a_function_sees_of_its_values(name):
    """Shapes, dtypes, weak types, whether they require grad, are leaves."""
    seen = []

    def f(x):
        for y in (x, fnp.sin(x), x * jnp.arange(3.0), 2 * x.sum(), x > 0.5, fnp.argmax(x)):
            dtype = (y.dtype, y.aval.weak_type)
            seen.append((y.shape, y.ndim, dtype, y.requires_grad, y.is_leaf, y.output_nr))
        return (x * x).sum()

    transform = TRANSFORMS[name][0]
    with fad.autograd.compiled(False):
        transform(f, X)
    expected = seen[:]
    for _ in range(TIMES):
        seen.clear()
        transform(f, X)
        assert seen == expected


def test_compiled_code_and_jax_transforms_in_the_function():
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

    law(lambda: fad.grad(f)(X), lambda: jax.grad(g)(X))


def test_under_transforms_of_jax():
    c = jnp.array([2.0, 3.0, 4.0])
    gradient = lambda x: fad.grad(lambda y: net(fnp, y))(x)
    expected = lambda x: jax.grad(lambda y: net(jnp, y))(x)
    law(lambda: jax.jit(lambda x: x * gradient(c))(X), lambda: X * expected(c))
    law(lambda: jax.jit(gradient)(X), lambda: expected(X))
    law(
        lambda: jax.vmap(lambda s: gradient(s * X))(X),
        lambda: jax.vmap(lambda s: expected(s * X))(X),
    )
    law(lambda: jax.jvp(gradient, (X,), (X,)), lambda: jax.jvp(expected, (X,), (X,)))
    law(lambda: gradient(X), lambda: expected(X))


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


def test_a_failure_in_the_function_leaves_nothing_behind():
    gradient = lambda: fad.grad(lambda x: net(fnp, x))(X)
    with fad.autograd.compiled(False):
        expected = exact(gradient())
    for _ in range(TIMES):
        with pytest.raises(ZeroDivisionError):
            fad.grad(lambda x: net(fnp, x) / (1 // 0))(X)
        with pytest.raises(ZeroDivisionError):
            fad.jvp(lambda x: net(fnp, x) / (1 // 0), (X,), (X,))
        assert exact(gradient()) == expected


@pytest.mark.parametrize("name", TRANSFORMS)
def test_nothing_is_kept_alive(name):
    transform = TRANSFORMS[name][0]
    kept = []

    def f(x):
        y = fnp.sin(x)
        kept.append(weakref.ref(y))
        return (y * y).sum()

    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            transform(f, X)
            assert all(r() is None for r in kept)
            x = X * 2
            kept.append(weakref.ref(x))
            transform(f, x)
            del x
            compiled_all()
            assert all(r() is None for r in kept)
    finally:
        gc.enable()


def test_arrays_on_another_device_stay_there():
    if len(jax.devices()) < 2:
        pytest.skip("one device")
    there = jax.devices()[1]
    x = jax.device_put(X, there)
    for name in ("grad", "jvp", "vmap", "hessian"):
        ours, theirs = TRANSFORMS[name]
        for _ in range(TIMES):
            g = ours(lambda x: net(fnp, x), x)
            assert g.devices() == {there}
            same(g, theirs(lambda x: net(jnp, x), X))
            assert ours(lambda x: net(fnp, x), X).devices() == X.devices()


def test_many_values_that_are_kept():
    def f(m, x):
        kept = []
        a, b, c = x[0], x[1], x[2]
        for k in range(6):
            a, b, c = m.sin(b) * c, a + c, m.sort(m.stack([a, b]))[k % 2] * 1.1
            kept += [a, c]
        return sum(kept[:-1], kept[-1]), kept

    law(
        lambda: fad.jvp(lambda x: f(fnp, x), (X,), (X,)),
        lambda: jax.jvp(lambda x: f(jnp, x), (X,), (X,)),
    )
    law(
        lambda: fad.grad(lambda x: f(fnp, x), has_aux=True)(X),
        lambda: jax.grad(lambda x: f(jnp, x), has_aux=True)(X),
    )
    law(
        lambda: fad.vmap(lambda s: f(fnp, s * X))(X),
        lambda: jax.vmap(lambda s: f(jnp, s * X))(X),
    )


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
    law(
        lambda: ours(lambda x: run_program(fnp, steps, x, repr), X),
        lambda: theirs(lambda x: run_program(jnp, steps, x, lambda a: None), X),
        times=4,
    )


COMPILED = {
    "grad": lambda g, x: fad.grad(g)(x),
    "value_and_grad": lambda g, x: fad.value_and_grad(g)(x),
    "grad of grad": lambda g, x: fad.grad(lambda y: fad.grad(g)(y).sum())(x),
    "jvp": lambda g, x: fad.jvp(g, (x,), (x,)),
    "jvp of jvp": lambda g, x: fad.jvp(lambda y: fad.jvp(g, (y,), (y,)), (x,), (x,)),
    "jvp of grad": lambda g, x: fad.jvp(fad.grad(g), (x,), (x,)),
    "hessian": lambda g, x: fad.hessian(g)(x),
    "jacfwd": lambda g, x: fad.jacfwd(lambda y: y * g(y))(x),
    "vmap of grad": lambda g, x: fad.vmap(fad.grad(g))(jnp.stack([x, x])),
    "tape": lambda g, x: g(fad.tensor(x, requires_grad=True)).backward(),
}


@pytest.mark.parametrize("name", COMPILED)
def test_what_is_replayed_is_compiled(name):
    """Programs that cannot be compiled give the right results too, so other tests would not fail."""

    def g(x):
        for _ in range(3):
            x = fnp.tanh(x * x) + fnp.sin(x)
        return fnp.sum(x)

    fad.autograd.compiled.clear_cache()
    with fad.autograd.compiled(wait=True):
        for _ in range(4):
            COMPILED[name](g, jnp.linspace(0.1, 1.0, 4))
    info = fad.autograd.compiled.cache_info()
    assert info["compiled"] > 0 and info["refused"] == 0, fad.autograd.compiled.explain()
