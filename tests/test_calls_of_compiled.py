"""Calls of fad.jit by the short way, where JAX's own table finds the program; all others go the long one."""

from __future__ import annotations

import collections
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad import jaxapi
from fad.compilation import Compiled
from fad.errors import LevelError

X = jnp.array([0.3, -0.5, 0.7])
Point = collections.namedtuple("Point", "x y")


@pytest.fixture
def short(monkeypatch):
    """Calls a function, and fails where it does not go the short way."""

    def refuse(*_):
        raise AssertionError("the long way")

    def call(f, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(Compiled, "_run", refuse)
            patch.setattr(jaxapi._pjit, "_infer_params", refuse)  # what JAX's table does not know
            return f(*args, **kwargs)

    return call


def leaves(tree):
    return jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, fad.Tensor))


TREES = {
    "one": (lambda x: x * 2, lambda t: (t(X),)),
    "seven": (lambda *xs: sum(xs), lambda t: tuple(t(X) for _ in range(7))),
    "a pair": (lambda x, y: (x + y, x * y), lambda t: (t(X), t(X))),
    "a dict": (
        lambda p, x: {"out": p["w"] * x + p["b"][0], "same": p},
        lambda t: ({"w": t(X), "b": [t(X + 1.0)]}, t(X)),
    ),
    "a named tuple, None": (lambda p: (Point(p.y, p.x), None), lambda t: (Point(t(X), t(X * 2)),)),
    "nothing comes out": (lambda x: (), lambda t: (t(X),)),
    "a nested pair": (lambda x: ((x, x + 1), [x]), lambda t: (t(X),)),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("kind", ["tensors", "arrays"])
def test_structures_go_in_and_come_out(name, kind, short):
    f, make = TREES[name]
    args = make(fad.tensor if kind == "tensors" else lambda x: x)
    compiled = fad.jit(f)
    expected = f(*make(lambda x: x))
    compiled(*args)
    result = short(compiled, *args)
    wanted = fad.Tensor if kind == "tensors" else jax.Array
    assert all(isinstance(x, wanted) for x in leaves(result))
    bare = jax.tree.map(
        lambda x: x.array if isinstance(x, fad.Tensor) else x,
        result,
        is_leaf=lambda x: isinstance(x, fad.Tensor),
    )
    assert jax.tree.structure(bare) == jax.tree.structure(expected)
    assert_close(bare, expected)


def test_one_tensor_among_arrays_and_numbers_makes_tensors(short):
    f = fad.jit(lambda x, y, k, *, shift=0.0: x * k + y + shift)
    for args in ((fad.tensor(X), X, 2.0), (X, fad.tensor(X), 3), (X, np.ones(3, np.float32), 2.0)):
        f(*args, shift=1.0)
        out = short(f, *args, shift=2.0)
        assert isinstance(out, fad.Tensor) is any(isinstance(a, fad.Tensor) for a in args)
        assert_close(out, np.asarray(X) * args[2] + np.asarray(fad.numpy.asarray(args[1])) + 2.0)


def test_numbers_are_weak_and_are_no_constants(short):
    f = fad.jit(lambda x, k: x * k)
    half = jnp.ones(3, jnp.float16)
    assert f(half, 2.0).dtype == jnp.float16
    assert_close(short(f, half, 3.0), 3 * half)
    assert f(half, np.float32(2.0)).dtype == jnp.float32
    assert f(jnp.arange(3), True).dtype == jnp.int32
    assert f(jnp.arange(3), 1j).dtype == jnp.complex64
    with jax.enable_x64(True):
        assert f(jnp.ones(3), 2.0).dtype == jnp.float64
        assert short(f, jnp.ones(3), 2.0).dtype == jnp.float64
    assert short(f, half, 2.0).dtype == jnp.float16


def test_a_constant_array_is_handed_on(short):
    data = jnp.arange(3.0)
    f = fad.jit(lambda p, x: p["w"] * data + x)
    w = {"w": fad.tensor(X)}
    f(w, X)
    assert_close(short(f, w, X + 1), X * data + X + 1)


def test_a_tensor_that_is_closed_over_is_read_each_time():
    w = fad.tensor(X)
    f = fad.jit(lambda x: x * w)
    for _ in range(3):
        w += 1.0
        assert_close(f(X), X * w.array)


def test_arguments_that_are_written_to_are_so_for_the_caller():
    @fad.jit
    def f(p, x):
        p["w"] += x
        x *= 2.0
        return p["w"].sum()

    for _ in range(3):
        p, x = {"w": fad.tensor(X)}, fad.tensor(X)
        assert_close(f(p, x), (X + X).sum())
        assert_close(p["w"], X + X)
        assert_close(x, 2 * X)


def test_what_is_static_unasked(short):
    f = fad.jit(lambda x, mode, g=None: fnp.sin(x) if mode == "sin" else g(x))
    for _ in range(2):
        assert_close(f(X, "sin"), jnp.sin(X))
        assert_close(f(X, "cos", fnp.cos), jnp.cos(X))
        assert_close(f(X, "cos", g=fnp.tan), jnp.tan(X))


def test_static_arguments(short):
    f = fad.jit(lambda x, n, *, m=1: x**n + m, static_argnums=1, static_argnames="m")
    for n, m in ((2, 1), (3, 1), (2, 5)):
        f(X, n, m=m)
        assert_close(short(f, X, n, m=m), X**n + m)
    kinds = fad.jit(lambda x, k: (x, type(k).__name__ == "bool"), static_argnums=1)
    for k in (1, True, 1.0):
        kinds(X, k)
        assert bool(short(kinds, X, k)[1]) is isinstance(k, bool)
    by_name = fad.jit(lambda x, n: x * n, static_argnums=1)
    by_name(X, n=3)
    assert_close(short(by_name, X, n=3), X * 3)
    with pytest.raises(TypeError, match="must be hashable"):
        f(X, [2])


class Scaled:
    def __init__(self, k):
        self.k = k

    @fad.jit
    def __call__(self, x):
        return self.k * x


def test_methods():
    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(3):
        assert_close(two(X), 2 * X)
        assert_close(three(fad.tensor(X)), 3 * X)


def test_tracked_and_untracked_arguments_take_turns(short):
    f = fad.jit(lambda p, x: (p["w"] * x).sum())
    for _ in range(3):
        p = {"w": fad.tensor(X, requires_grad=True)}
        loss = f(p, fad.tensor(X))
        loss.backward()
        assert_close(p["w"].grad, X)
        w = fad.tensor(X, requires_grad=True)
        assert f({"w": X}, w).requires_grad
        assert not f({"w": fad.tensor(X)}, X).requires_grad
        assert_close(fad.grad(f, 1)({"w": fad.tensor(X)}, X), X)
        assert_close(fad.vmap(lambda x: f({"w": X}, x))(jnp.stack([X, X])), jnp.full(2, X @ X))
    assert_close(short(f, {"w": fad.tensor(X)}, X), X @ X)


def test_modes_of_the_thread(short):
    f = fad.jit(lambda x: x * (2.0 if fad.is_grad_enabled() else 3.0))
    x = fad.tensor(X)
    for _ in range(2):
        assert_close(f(x), 2 * X)
        with fad.no_grad():
            assert_close(f(x), 3 * X)
        with fad.inference_mode():
            assert f(x).is_inference()
        with fad.autograd.saved_tensors_hooks(lambda v: v, lambda v: v):
            assert_close(f(x), 2 * X)
    with fad.no_grad():
        assert_close(short(f, x), 3 * X)
    assert_close(short(f, x), 2 * X)


def test_in_a_trace_of_jax_and_out_of_it(short):
    f = fad.jit(lambda p: {"y": p["x"] * 2})

    @jax.jit
    def inside(x):
        return f({"x": X})["y"] + f({"x": x})["y"]  # once of a constant

    assert_close(inside(X), 4 * X)
    f({"x": X})
    assert_close(short(f, {"x": X})["y"], 2 * X)
    assert_close(inside(X + 1), 4 * X + 2)
    assert_close(jax.grad(lambda x: f({"x": x})["y"].sum())(X), 2 * jnp.ones(3))
    assert_close(jax.vmap(lambda x: f({"x": x})["y"])(X), 2 * X)


def test_an_error_in_a_trace_and_then_none(short):
    fails = True

    def f(x):
        if fails:
            raise KeyError("not yet")
        return x * 2

    compiled = fad.jit(f)
    for _ in range(2):
        with pytest.raises(KeyError, match="not yet"):
            compiled(X)
    fails = False
    compiled(X)
    assert_close(short(compiled, X), 2 * X)


def test_an_array_that_was_deleted(short):
    f = fad.jit(lambda x: x + 1)
    f(X)
    gone = jnp.array(X)
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(gone)
    f(X)
    assert_close(short(f, X), X + 1)


def test_settings_of_jax():
    f = fad.jit(lambda x: fnp.log(x))
    x = jnp.array([-1.0])
    for _ in range(2):
        assert np.isnan(np.asarray(f(x))).all()
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            f(x)
    product = fad.jit(lambda x: x @ x)
    square = jnp.ones((2, 2))
    for precision in ("highest", "default", "highest"):
        with jax.default_matmul_precision(precision):
            text = product.lower(square).as_text()
            product(square), product(square)
        assert ("HIGHEST" in text) == (precision == "highest")


def test_donated_arguments_and_what_waits_for_them(short):
    f = fad.jit(lambda p, x: {"w": p["w"] + x}, donate_argnums=0)
    p = {"w": fad.tensor(X)}
    for k in range(4):
        old = p["w"]
        p = f(p, X)
        assert_close(p["w"], X * (k + 2))
        assert old.array.is_deleted()
    p = short(f, p, X)

    w = fad.tensor(X, requires_grad=True)
    g = fad.jit(lambda x: x * 2, donate_argnums=0)
    for _ in range(4):
        a = fad.tensor(X + 1.0)
        loss = (w * a).sum()  # waits, and reads the array of a
        assert_close(g(a), 2 * X + 2)
        assert_close(loss, X @ (X + 1))


def test_views_and_values_that_wait(short):
    f = fad.jit(lambda x, p: x * 2 + p[0])
    base = fad.tensor(jnp.zeros((2, 3)))
    row = base[1]
    for k in range(3):
        base += 1.0
        assert_close(f(row, [row]), jnp.full(3, 3.0 * (k + 1)))
    assert_close(short(f, row, [fad.tensor(X)]), 6 + X)
    w = fad.tensor(X, requires_grad=True)
    for _ in range(4):
        y = w * 2
        z = y.detach()
        assert_close(f(z, [z]), 6 * X)
        y.sum().backward()


def test_threads_that_call_for_the_first_time_at_once():
    for _ in range(5):
        f = fad.jit(lambda p, x: fnp.sin(p["w"]) * x)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda k: f({"w": fad.tensor(X)}, X * k), range(8)))
        for k, y in enumerate(found):
            assert_close(y, jnp.sin(X) * X * k)


def test_caches_are_cleared(short):
    traces = []

    @fad.jit
    def f(x):
        traces.append(1)
        return x * 2

    f(X), short(f, X)
    f.clear_cache()
    f(X), short(f, X)
    assert len(traces) == 2
    jax.clear_caches()
    assert_close(f(X), 2 * X)
    assert_close(short(f, X), 2 * X)


def test_a_callback_runs_once_for_each_call():
    seen = []
    f = fad.jit(lambda x: fad.from_jax(lambda a: (jax.debug.callback(seen.append, a), a + 1)[1])(x))
    for k in range(4):
        f(jnp.float32(k))
    jax.effects_barrier()
    assert [int(x) for x in seen] == [0, 1, 2, 3]


def test_a_function_that_is_dropped_is_freed():
    def f(x):
        return x * 2

    compiled = fad.jit(f)
    compiled(X), compiled(fad.tensor(X))
    alive = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert alive() is None


def test_a_body_does_not_take_what_leaks_for_its_own():
    kept = []
    f = fad.jit(lambda x: kept.append(x) or x * 2)
    f(X), f(X)
    with pytest.raises(LevelError):
        kept[0] + 1
