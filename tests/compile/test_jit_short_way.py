"""Calls of fad.jit by the short way, where JAX's own table finds the program; all others go the long one."""

from __future__ import annotations

import collections
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.compile.jit import Compiled
from fad.core import jaxapi
from fad.errors import LevelError

X = jnp.array([0.3, -0.5, 0.7])
Point = collections.namedtuple("Point", "x y")


@contextmanager
def only_short():
    """A block in which calls fail that do not go the short way."""

    def refuse(*_):
        raise AssertionError("the long way")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compiled, "_run", refuse)
        patch.setattr(jaxapi, "_infer_params", refuse)  # what JAX's table does not know
        yield


def short(f, *args, **kwargs):
    """The result of a call that has been made before."""
    f(*args, **kwargs)  # the first call traces, the second one is noted
    f(*args, **kwargs)
    with only_short():
        return f(*args, **kwargs)


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
def test_structures_go_in_and_come_out(name, kind):
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


def test_one_tensor_among_arrays_and_numbers_makes_tensors():
    f = fad.jit(lambda x, y, k, *, shift=0.0: x * k + y + shift)
    for args in ((fad.tensor(X), X, 2.0), (X, fad.tensor(X), 3), (X, np.ones(3, np.float32), 2.0)):
        f(*args, shift=1.0)
        out = short(f, *args, shift=2.0)
        assert isinstance(out, fad.Tensor) is any(isinstance(a, fad.Tensor) for a in args)
        assert_close(out, np.asarray(X) * args[2] + np.asarray(fad.numpy.asarray(args[1])) + 2.0)


def test_numbers_are_weak_and_are_no_constants():
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


@pytest.mark.parametrize("numbers", [(0.70101, 0.70102, 0.70103), (0.5, 0.25, float("nan"))])
def test_numbers_that_change_are_operands(numbers):
    """Also those that no operation has had before: see NOTE [numbers in bodies] in `fad.tape.staged`."""
    for k in numbers:
        assert_close(short(fad.jit(lambda x, k=k: x * k), X), X * np.float32(k))
        w = fad.tensor(X)
        step = fad.jit(lambda x, k=k, w=w: w.copy_(x * k))
        step(X), step(X)
        with only_short():
            step(X)
        assert_close(w, X * np.float32(k))


def test_a_constant_array_is_handed_on():
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


def test_what_is_static_unasked():
    f = fad.jit(lambda x, mode, g=None: fnp.sin(x) if mode == "sin" else g(x))
    for _ in range(2):
        assert_close(f(X, "sin"), jnp.sin(X))
        assert_close(f(X, "cos", fnp.cos), jnp.cos(X))
        assert_close(f(X, "cos", g=fnp.tan), jnp.tan(X))


def test_static_arguments():
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


def test_tracked_and_untracked_arguments_alternate():
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


def test_modes_of_the_thread():
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


@pytest.mark.parametrize("number", [float, np.float32, int])
def test_numbers_that_differ_from_trace_to_trace(number):
    numbers = [number(987654), number(987655)]  # no other test has these: no array of them is there
    f = fad.jit(lambda x: x * numbers[fad.is_grad_enabled()])
    x = fad.tensor(X)
    for _ in range(2):
        f(x)
        with fad.no_grad():
            f(x)
        with fad.autograd.saved_tensors_hooks(lambda v: v, lambda v: v):
            f(x)
    assert_close(short(f, x), numbers[1] * X)


def test_in_a_trace_of_jax_and_out_of_it():
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


def test_an_error_in_a_trace_and_then_none():
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


def test_an_array_that_was_deleted():
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


def test_donated_arguments_and_deferred_operations_on_them():
    f = fad.jit(lambda p, x: {"w": p["w"] + x}, donate_argnums=0)
    p = {"w": fad.tensor(X)}
    for k in range(4):
        old = p["w"]
        p = f(p, X)
        assert_close(p["w"], X * (k + 2))
        assert old.array.is_deleted()
    with only_short():
        p = f(p, X)
    assert_close(p["w"], 6 * X)

    w = fad.tensor(X, requires_grad=True)
    g = fad.jit(lambda x: x * 2, donate_argnums=0)
    for _ in range(4):
        a = fad.tensor(X + 1.0)
        loss = (w * a).sum()  # is deferred, and reads the array of a
        assert_close(g(a), 2 * X + 2)
        assert_close(loss, X @ (X + 1))


def test_views_and_deferred_values():
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


def test_caches_are_cleared():
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
    for _ in range(2):
        with pytest.raises(LevelError, match=r"kept\[\d\] is a (Tensor|value) of it"):
            f(X)
    assert kept == []


def test_without_jit():
    f = fad.jit(lambda x, k=1.0: x * 2 * k)
    for _ in range(3):
        with jax.disable_jit():
            assert_close(f(X), 2 * X)
            assert_close(f(x=fad.tensor(X), k=2.0), 4 * X)
        assert_close(f(X), 2 * X)
    assert_close(short(f, X), 2 * X)


def test_what_a_graph_has_keeps_its_memory_in_a_pytree_too():
    f = fad.jit(lambda p: {"w": p["w"] * 2}, donate_argnums=0)
    w = leaf = fad.tensor(X, requires_grad=True)
    y = (w * w).sum()
    for _ in range(3):
        with fad.no_grad():
            f({"w": fad.tensor(X + 0.0)})
            assert_close(f({"w": w})["w"], 2 * X)
        f({"w": fad.tensor(X + 0.0)})
        assert_close(f({"w": w})["w"], 2 * X)
    y.backward()
    assert_close(leaf.grad, 2 * X)


def test_keys_of_random_numbers_go_in_and_come_out():
    make = fad.jit(lambda seed: fad.random.key(seed))
    both = fad.jit(lambda seed, x: (x, fad.random.split(fad.random.key(seed))))
    use = fad.jit(lambda key, p: fad.random.normal(key, (3,)) * p["w"])
    seed, p = fad.tensor(3), {"w": fad.tensor(X)}
    for _ in range(3):
        assert isinstance(make(seed), fad.Tensor)
        assert [type(x) for x in both(seed, fad.tensor(X))] == [fad.Tensor] * 2
        assert isinstance(both(jnp.int32(3), X)[1], jax.Array)
        expected = jax.random.normal(jax.random.key(3), (3,)) * X
        assert_close(use(make(seed), p), expected)
        assert_close(use(jax.random.key(3), p), expected)
    assert_close(short(use, jax.random.key(3), p), expected)


def test_errors_of_bodies_have_no_other_context():
    f = fad.jit(lambda p: p["a"] @ fnp.ones(7))
    for requires_grad in (True, False):
        with pytest.raises(Exception) as caught:
            f({"a": fad.tensor(X, requires_grad=requires_grad)})
        assert "_NotQuick" not in repr(caught.value.__context__)
        assert "_NotQuick" not in repr(caught.value.__cause__)


def test_parameters_that_require_grad_where_nothing_is_recorded():
    f = fad.jit(lambda p, x: p["w"] * x)
    p = {"w": fad.tensor(X, requires_grad=True)}
    for _ in range(2):
        assert f(p, X).requires_grad
        with fad.no_grad():
            assert not f(p, X).requires_grad
            assert_close(short(f, p, X), X * X)
            assert_close(short(f, p, p["w"]), X * X)
            assert_close(short(f, {"w": fad.tensor(X)}, X), X * X)


def test_shapes_without_end_do_not_end_the_short_way():
    f = fad.jit(lambda p: p["w"] * 2)
    for n in range(1, 40):
        f({"w": jnp.ones(n)})
    assert_close(short(f, {"w": X}), 2 * X)


def test_a_function_that_is_dropped_is_freed_at_once():
    gc.collect()
    gc.disable()
    try:
        alive = []
        for k in range(3):
            data = jnp.ones(4) + k
            f = fad.jit(lambda x, data=data: (x * data).sum())
            for _ in range(3):
                f(fad.tensor(1.0))
            alive.append(weakref.ref(f))
            del f
        assert [r() for r in alive] == [None] * 3
    finally:
        gc.enable()


def test_clearing_lets_go_of_static_arguments():
    class Static:
        pass

    f = fad.jit(lambda x, k: x * 2, static_argnums=1)
    static = Static()
    for _ in range(3):
        f(X, static)
    alive = weakref.ref(static)
    del static
    f.clear_cache()
    gc.collect()
    assert alive() is None


def test_clearing_while_others_call():
    f = fad.jit(lambda x, k: x * k, static_argnums=1)
    done = threading.Event()

    def clear():
        while not done.is_set():
            f.clear_cache()

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for k in range(60):
            assert_close(f(X, k % 7), X * (k % 7))
    finally:
        done.set()
        thread.join()


def test_a_body_whose_thread_calls_the_same_function():
    results = []

    def body(x):
        if not results:
            results.append(None)
            thread = threading.Thread(target=lambda: results.append(f(X)))
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        return x * 2

    f = fad.jit(body)
    assert_close(f(X), 2 * X)
    assert_close(results[1], 2 * X)
