"""fad.jit: donation, what is refused, why it traces again, and a cache that never shows what is stale."""

from __future__ import annotations

import functools
import logging
import queue
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, counted

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError, LevelError

X = jnp.array([0.3, -0.5, 0.7])


# Arguments


def test_decorators_methods_and_names():
    @fad.jit
    def f(x):
        "Doubles."
        return 2 * x

    @fad.jit(static_argnames="k")
    def g(x, k=3):
        return k * x

    class Model:
        def __init__(self, w):
            self.w = w

        @functools.partial(fad.jit, static_argnums=0)
        def call(self, x):
            return self.w * x

    assert (f.__name__, f.__doc__) == ("f", "Doubles.")
    assert_close(f(X), 2 * X)
    assert_close(g(X, k=4), 4 * X)
    assert_close(Model(5.0).call(X), 5 * X)
    assert_close(Model(6.0).call(X), 6 * X)
    assert "fad.jit of f" in repr(f)


def test_tensors_in_and_out_under_transforms_and_on_the_tape():
    f = fad.jit(lambda tree, k: {"y": fnp.sin(tree["x"]) * k, "n": 3, "none": None})
    out = f({"x": X}, 2.0)
    assert isinstance(out["y"], jax.Array) and out["n"] == 3 and out["none"] is None
    x = fad.tensor(X, requires_grad=True)
    out = f({"x": x}, 2.0)
    assert isinstance(out["y"], fad.Tensor)
    out["y"].sum().backward()
    assert_close(x.grad, 2 * jnp.cos(X))
    second = fad.jit(fad.grad(lambda x: fad.jit(fad.grad(lambda x: f({"x": x}, x)["y"]))(x)))
    expected = jax.grad(jax.grad(lambda x: jnp.sin(x) * x))
    assert_close(second(0.4), expected(0.4))
    assert_close(fad.vmap(second)(X), jax.vmap(expected)(X))
    assert_close(jax.vmap(second)(X), jax.vmap(expected)(X))


# Donation


def test_donated_memory_is_given_up():
    step = fad.jit(lambda params, g: jax.tree.map(lambda p, g: p - g, params, g), donate_argnums=0)
    for make in (jnp.array, fad.tensor):
        params, g = {"w": make(X), "b": make(X)}, {"w": X, "b": X}
        out = step(params, g)
        assert_close(out, {"w": 0 * X, "b": 0 * X})
        for p in params.values():
            assert (p.array if isinstance(p, fad.Tensor) else p).is_deleted()
        assert not g["w"].is_deleted()
        out = step(out, g)
        assert_close(out["b"], -X)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):  # JAX raises either
        params["w"] + 1
    assert repr(params["w"]) == "Tensor(<Array float32[3], deleted>, dtype=float32)"


def test_donation_by_name_and_beside_static_arguments():
    f = fad.jit(
        lambda mode, x, *, y: x + y if mode == "+" else x,
        static_argnums=0,
        donate_argnames="y",
    )
    x, y = jnp.array(X), jnp.array(X)
    assert_close(f("+", x, y=y), 2 * X)
    assert y.is_deleted() and not x.is_deleted()


def test_what_is_tracked_keeps_its_memory():
    f = fad.jit(lambda x: fnp.sin(x) * x, donate_argnums=0)
    x = fad.tensor(X, requires_grad=True)
    f(x).sum().backward()
    expected = jax.grad(lambda x: (jnp.sin(x) * x).sum())(X)
    assert_close(x.grad, expected)
    value = jnp.array(X)
    assert_close(fad.grad(lambda x: f(x).sum())(value), expected)
    assert not value.is_deleted() and not x.array.is_deleted()


# What is refused


def test_a_tensor_that_leaks_out_of_a_trace_says_so():
    kept = queue.SimpleQueue()  # jit would find it in a list

    def body(x):
        kept.put(x * 2)
        return x

    for run in (fad.jit(body), lambda x: fad.lax.map(body, x), jax.jit(fad.jit(body))):
        run(X)
        leaked = kept.get()
        for use in (
            lambda t: t + 1,
            lambda t: fad.grad(lambda x: x * t)(1.0),
            lambda t: t.sum(),
            float,
            lambda t: t.numpy(),
            lambda t: fad.jit(lambda x: x * t)(X),
        ):
            with pytest.raises(LevelError, match=r"after its trace had finished.*return it from"):
                use(leaked)
        assert "finished" in repr(leaked)


def test_python_values_cannot_be_taken_in_a_trace():
    for use in (float, bool, lambda t: t.item(), lambda t: t.tolist(), np.asarray):
        with pytest.raises(HostValueError, match="where or fad.lax.cond|no value yet"):
            fad.jit(lambda x: use(x.sum()))(X)


def test_hooks_are_code_of_the_program_or_refused_and_not_left_out():
    def with_hook(x, hook=lambda g: 2 * g):
        y = fnp.sin(x)
        y.register_hook(hook)
        return y.sum()

    assert_close(fad.jit(fad.grad(with_hook))(X), 2 * jnp.cos(X))
    with pytest.raises(
        HostValueError, match=r"hook '<lambda>' needs a number.*fnp\.where.*hooks=True"
    ):
        fad.jit(fad.grad(lambda x: with_hook(x, lambda g: g if g.sum() > 0 else -g)))(X)
    with pytest.raises(GradientError, match="a hook cannot be registered in code that is being"):
        jax.jit(fad.grad(with_hook))(X)
    f = fad.jit(fad.grad(lambda x: (fnp.sin(x) * x).sum()))
    expected = f(X)
    with fad.autograd.saved_tensors_hooks(lambda t: t.numpy(), lambda a: fad.tensor(a)):
        for _ in range(2):
            with pytest.raises(GradientError, match="a hook for saved tensors cannot be"):
                f(X)
        # On the tape around compiled code they run.
        x = fad.tensor(X, requires_grad=True)
        y = fad.jit(lambda x: (fnp.sin(x) * x).sum())(x)
    y.backward()
    assert_close(x.grad, expected)
    assert_close(f(X), expected)
    # So do hooks on what goes in and comes out.
    seen = []
    x = fad.tensor(X, requires_grad=True)
    x.register_hook(lambda g: seen.append("in"))
    y = fad.jit(fnp.sin)(x)
    y.register_hook(lambda g: seen.append("out"))
    y.sum().backward()
    assert seen == ["out", "in"]


# The cache


def test_the_modes_around_a_trace_are_part_of_its_key():
    def body(x):
        x = x.detach().requires_grad_()
        y = (x * x).sum()
        return fad.autograd.grad(y, x)[0] if y.requires_grad else x

    f = fad.jit(body)
    with fad.no_grad():
        assert_close(f(X), X)
    assert_close(f(X), 2 * X)
    with fad.no_grad():
        assert_close(f(X), X)


def test_jaxs_settings_are_part_of_the_key():
    f = fad.jit(lambda x: x + fnp.asarray(np.arange(3.0)))
    assert f(X).dtype == jnp.float32
    with jax.enable_x64(True):
        assert f(X).dtype == jnp.float64
    assert f(X).dtype == jnp.float32


def test_levels_of_one_call_are_not_seen_by_the_next():
    """One compiled function under all transforms in turn, nested in itself, and in threads."""
    f, traces = counted(lambda x: fnp.sin(x) * x)
    plain = lambda x: jnp.sin(x) * x
    for _ in range(2):
        for ours, theirs in (
            (fad.grad(f), jax.grad(plain)),
            (fad.grad(fad.grad(f)), jax.grad(jax.grad(plain))),
            (jax.grad(fad.grad(f)), jax.grad(jax.grad(plain))),
            (fad.jit(fad.grad(f)), jax.grad(plain)),
            (jax.jit(fad.grad(f)), jax.grad(plain)),
            (lambda x: fad.jvp(f, (x,), (x,))[1], lambda x: jax.jvp(plain, (x,), (x,))[1]),
        ):
            x = jnp.float32(0.4)
            assert_close(ours(x), theirs(x))
            assert_close(fad.vmap(fad.from_jax(ours))(X), jax.vmap(theirs)(X))
            assert_close(jax.vmap(ours)(X), jax.vmap(theirs)(X))
    before = len(traces)
    with ThreadPoolExecutor(4) as pool:
        slopes = list(pool.map(fad.grad(f), [jnp.float32(k) for k in range(8)]))
    assert_close(jnp.stack(slopes), jax.vmap(jax.grad(plain))(jnp.arange(8.0)))
    assert len(traces) == before


def test_python_state_read_under_a_trace_is_not_mixed_up():
    """Whether a value is tracked lives on the value: compiled code is right for both."""
    f = fad.jit(lambda x, y: (x * y).sum())
    x, y = fad.tensor(X), fad.tensor(X, requires_grad=True)
    assert not f(x, x).requires_grad
    for a, b in ((x, y), (y, x), (y, y)):
        y.grad = None
        f(a, b).backward()
        assert_close(y.grad, 2 * X if a is b else X)
    with fad.no_grad():
        assert not f(x, y).requires_grad
    with fad.dual_level():
        out = f(fad.make_dual(x, X), x)
        assert_close(fad.unpack_dual(out).tangent, (X * X).sum())
    assert not f(x, x).requires_grad


def test_named_axes_around_a_call_are_part_of_the_key():
    f = fad.jit(lambda x: x - fad.lax.pmean(x, "lanes"))
    for size in (3, 2):
        x = jnp.arange(float(size))
        mapped = fad.vmap(f, axis_name="lanes")
        assert_close(mapped(x), x - x.mean())
        assert_close(fad.jvp(mapped, (x,), (x,))[1], x - x.mean())
        assert_close(fad.grad(lambda x: (mapped(x) ** 2).sum())(x), 2 * (x - x.mean()))
        assert_close(fad.vmap(mapped)(jnp.stack([x, 2 * x]))[1], 2 * (x - x.mean()))


def test_an_exception_in_a_trace_leaves_nothing():
    fails = [True]

    def body(x):
        if fails[0]:
            raise ValueError("no")
        return x * 2

    f = fad.jit(body)
    with pytest.raises(ValueError, match="no"):
        f(X)
    fails[0] = False
    assert_close(fad.grad(lambda x: f(x).sum())(X), jnp.full(3, 2.0))


# Why it traces again


def test_retracing_is_logged_on_request(caplog):
    f = fad.jit(lambda x: x * 2, explain=True)
    with caplog.at_level(logging.WARNING, "fad.jit"):
        f(X)
        f(X + 1)
        assert not caplog.messages
        f(X[:2])
    (message,) = caplog.messages
    assert "argument 0 is float32[2], was float32[3]" in message


# Lowering


def test_lower_trace_compile_and_eval_shape():
    def body(params, x, mode, *, k=1):
        assert mode == "m"
        return {"y": fnp.sin(x) @ params["w"] * k}

    f = fad.jit(body, static_argnames="k")
    params = {"w": fad.tensor(X, requires_grad=True)}
    expected = jnp.sin(X) @ X * 3
    lowered = f.lower(params, X, "m", k=3)
    assert "sine" in lowered.as_text() and "fad" not in lowered.as_text()
    with fad.no_grad():
        assert_close(lowered.compile()(params, X)["y"], expected)
    traced = f.trace({"w": X}, jax.ShapeDtypeStruct((3,), jnp.float32), "m", k=3)
    assert [a.shape for a in traced.jaxpr.out_avals] == [()]
    assert_close(traced.lower().compile()({"w": X}, X)["y"], expected)
    shape = f.eval_shape(params, X, "m")
    assert shape == {"y": jax.ShapeDtypeStruct((), jnp.float32)}
    donated = fad.jit(lambda x, y: x + y, donate_argnums=1).lower(X, X)
    assert "donor" in donated.as_text() or "aliasing" in donated.as_text()


def test_a_compiled_gradient_of_a_function_is_plain_hlo():
    class Twice(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return 5.0 * g

    f = fad.jit(fad.value_and_grad(lambda x: fnp.sin(Twice.apply(x)).sum()))
    assert "fad" not in f.lower(X).as_text()
    assert_close(f(X)[1], 5.0 * jnp.cos(2 * X))


def test_numbers_in_traced_code_keep_their_type_and_value():
    numbers = [True, 1, 1.0, 1 + 0j, 2, 2.5, 0.0, -0.0, float("inf"), float("nan"), -3]
    x = jnp.array([1, -2])

    def f(m, x):
        return [m.multiply(x, c) for c in numbers], [m.divide(c, m.abs(x) + 0.5) for c in numbers]

    for traced in (fad.jit(lambda x: f(fnp, x)), jax.jit(lambda x: f(fnp, x))):
        for a, b in zip(jax.tree.leaves(traced(x)), jax.tree.leaves(f(jnp, x)), strict=True):
            assert (a.dtype, a.weak_type) == (b.dtype, b.weak_type)
            np.testing.assert_array_equal(np.signbit(a.real), np.signbit(b.real))
            np.testing.assert_array_equal(a, b)


def test_settings_inside_of_a_trace_reach_the_operations_under_them():
    def f(x):
        y = fnp.dot(x, x)
        with jax.default_matmul_precision("highest"):
            z = fnp.dot(x, x)
        with jax.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank"):
            z + fnp.ones(3)
        return y + fnp.dot(x, x), z + fnp.ones(3)

    text = fad.jit(f).lower(jnp.ones((3, 3))).as_text()
    assert text.count("HIGHEST, HIGHEST") == 1 or text.count("HIGHEST") == 2
    assert text.count("dot_general") == 3


def test_a_trace_inside_of_a_trace_and_of_native_transforms():
    f = lambda x: fnp.sin(x) * 2.0
    x = jnp.array([0.3, 0.6])
    inner = fad.jit(f)
    both = jax.jit(lambda x: inner(x) + jax.jit(f)(x) + jax.vmap(f)(x) + jax.jvp(f, (x,), (x,))[1])
    expected = 3 * 2 * np.sin(x) + 2 * x * np.cos(x)
    for g in (both, fad.jit(fad.from_jax(both)), jax.checkpoint(both)):
        np.testing.assert_allclose(g(x), expected, rtol=1e-5)
    np.testing.assert_allclose(
        jax.grad(lambda x: jax.lax.scan(lambda c, v: (c * f(v), c), x[0], x)[0])(x),
        jax.grad(lambda x: jax.lax.scan(lambda c, v: (c * jnp.sin(v) * 2.0, c), x[0], x)[0])(x),
        rtol=1e-5,
    )


def test_constants_made_in_compiled_code_do_not_trace_it_twice() -> None:
    runs: list[int] = []

    @fad.jit
    def f(x):
        runs.append(1)
        buffer = fad.asarray(fnp.zeros(3))
        buffer[1:] += x
        return buffer

    np.testing.assert_array_equal(f(jnp.ones(2)), [0.0, 1.0, 1.0])
    assert len(runs) == 1
