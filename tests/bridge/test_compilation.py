"""fad.jit: arguments, donation, what is refused, and a cache that never shows what is stale."""

from __future__ import annotations

import copy
import functools
import logging
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, is_idle

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError, LevelError, StructureError

X = jnp.array([0.3, -0.5, 0.7])


def counted(f, **options):
    """``fad.jit`` of f, and a list that grows with every trace."""
    traces = []

    @functools.wraps(f)
    def body(*args, **kwargs):
        traces.append(1)
        return f(*args, **kwargs)

    return fad.jit(body, **options), traces


# Arguments


def scaled(x, mode, k=2):
    return fnp.sin(x) * k if mode == "sin" else fnp.cos(x) * k


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1, 2)},
        {"static_argnums": (1, -1)},
        {"static_argnames": ("mode", "k")},
        {"static_argnums": 1, "static_argnames": "k"},
        {},  # a string is static without being named
    ],
)
def test_static_arguments_by_position_and_by_name(options):
    f, traces = counted(scaled, **options)
    assert_close(f(X, "sin"), 2 * jnp.sin(X))
    assert_close(f(X + 1, mode="sin"), 2 * jnp.sin(X + 1))
    assert_close(f(X, "cos", k=3), 3 * jnp.cos(X))
    before = len(traces)
    assert_close(f(X + 2, "cos", k=3), 3 * jnp.cos(X + 2))
    assert len(traces) == before
    assert_close(f(X, "cos", k=4), 4 * jnp.cos(X))
    assert len(traces) == before + (1 if options else 0)


def test_equal_static_values_of_different_types_are_different_programs():
    f = fad.jit(lambda x, k: x * (10 if k is True else 1), static_argnums=1)
    assert_close(f(X, 1), X)
    assert_close(f(X, True), 10 * X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"static_argnums": 3}, r"static_argnums=3 is out of range: .* 3 positional"),
        ({"static_argnames": "nope"}, "has no argument 'nope', it has k, mode, x"),
        ({"donate_argnums": -4}, "donate_argnums=-4 is out of range"),
        ({"static_argnums": 1, "donate_argnames": "mode"}, "'mode' is both static and donated"),
    ],
)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(StructureError, match=message):
        fad.jit(scaled, **options)


def test_a_static_argument_must_be_hashable():
    with pytest.raises(TypeError, match="a static argument must be hashable, got list"):
        fad.jit(scaled, static_argnums=1)(X, [1])
    with pytest.raises(TypeError, match="must be a function, got int 3"):
        fad.jit(3)


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


def test_closing_over_what_is_tracked():
    w = fad.tensor(X, requires_grad=True)
    f = fad.jit(lambda x: x * w)
    with pytest.raises(GradientError, match="closes over a Tensor .* the eager graph.*as an arg"):
        f(X)
    with pytest.raises(GradientError, match="closes over a Tensor .* grad level"):
        fad.grad(lambda w: fad.jit(lambda x: x * w)(X).sum())(X)
    with pytest.raises(GradientError, match="closes over"):
        fad.vmap(lambda w: fad.jit(lambda x: x * w)(2.0))(X)
    w.requires_grad_(False)
    assert_close(f(X), X * X)


def test_a_tensor_that_leaks_out_of_a_trace_says_so():
    kept = []

    def body(x):
        kept.append(x * 2)
        return x

    for run in (fad.jit(body), lambda x: fad.lax.map(body, x), jax.jit(fad.jit(body))):
        kept.clear()
        run(X)
        for use in (
            lambda t: t + 1,
            lambda t: fad.grad(lambda x: x * t)(1.0),
            lambda t: t.sum(),
            float,
            lambda t: t.numpy(),
            lambda t: fad.jit(lambda x: x * t)(X),
        ):
            with pytest.raises(LevelError, match=r"after its trace had finished.*return it from"):
                use(kept[0])
        assert "finished" in repr(kept[0])


def test_python_values_cannot_be_taken_in_a_trace():
    for use in (float, bool, lambda t: t.item(), lambda t: t.tolist(), np.asarray):
        with pytest.raises(HostValueError, match="where or fad.lax.cond|no value yet"):
            fad.jit(lambda x: use(x.sum()))(X)


def test_hooks_are_refused_and_not_left_out():
    def with_hook(x):
        y = fnp.sin(x)
        y.register_hook(lambda g: 2 * g)
        return y.sum()

    with pytest.raises(GradientError, match="a hook cannot be registered in code that is being"):
        fad.jit(fad.grad(with_hook))(X)
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


def test_a_tracer_that_is_closed_over_is_not_kept():
    box = [2.0]
    f = fad.jit(lambda x: x * box[0])

    def inside(y):
        box[0] = y
        return f(X).sum()

    for y in (3.0, 4.0):
        assert_close(jax.jit(inside)(y), y * X.sum())
        assert_close(jax.grad(inside)(y), X.sum())
    assert_close(jax.vmap(inside)(X), X * X.sum())
    box[0] = 5.0
    assert_close(f(X + 0), 5.0 * X)


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


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((X,), {}, []),
        ((X[:2],), {}, ["argument 0['w'] is float32[2], was float32[3]"]),
        ((jnp.arange(3),), {}, ["argument 0['w'] is int32[3], was float32[3]"]),
        ((2.0,), {}, ["argument 0['w'] is a Python float, was float32[3]"]),
        ((jnp.asarray(2.0),), {}, ["is float32[] (weakly typed), was float32[3]"]),
        ((X,), {"mode": "b"}, ["argument 'mode' is static str 'b', was static str 'a'"]),
        ((X,), {"more": 1}, ["argument 'more' is a Python int, and was not there"]),
    ],
)
def test_explain_says_which_argument_changed_in_which_way(args, kwargs, expected):
    f = fad.jit(lambda tree, mode="a", **rest: tree["w"] * 2)
    (w,) = args
    assert "has compiled nothing yet" in f.explain({"w": w})
    f({"w": X}, mode="a")
    text = f.explain({"w": w}, **{"mode": "a", **kwargs})
    if not expected:
        assert "is compiled for these arguments" in text
    for part in expected:
        assert part in text
    before = text
    f({"w": w}, **{"mode": "a", **kwargs})
    text = f.explain({"w": w}, **{"mode": "a", **kwargs})
    assert "is compiled for these arguments" in text, before
    f.clear_cache()
    assert "has compiled nothing yet" in f.explain({"w": X}, mode="a")


def test_explain_names_modes_and_settings():
    f = fad.jit(lambda x: x * 2)
    f(X)
    with fad.no_grad():
        assert "the grad mode" in f.explain(X)
    with jax.default_matmul_precision("float32"):
        assert "JAX's configuration" in f.explain(X)
    fad.vmap(lambda x: f(x), axis_name="lanes")(X)


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


def test_a_tensor_that_compiled_code_closes_over_is_read_at_each_call():
    scale = fad.tensor([1.0, 2.0])
    part = scale[1:]
    double = fad.jit(lambda x: x * scale + part)
    x = jnp.ones(2)
    assert double(x).tolist() == [3.0, 4.0]
    part.mul_(10.0)
    assert double(x).tolist() == [21.0, 40.0]
    outer = fad.jit(lambda x: double(x) + 1.0)
    assert outer(x).tolist() == [22.0, 41.0]
    part += 1
    assert outer(x).tolist() == [23.0, 43.0]
    part -= 1
    assert isinstance(double(x), jax.Array)
    donating = fad.jit(lambda x: x * scale, donate_argnums=0)
    assert donating(jnp.ones(2)).tolist() == [1.0, 20.0]
    scale += 1
    assert donating(jnp.ones(2)).tolist() == [2.0, 21.0]
    scale.mul_(fad.tensor(2.0, requires_grad=True))
    with pytest.raises(GradientError, match="closes over a Tensor"):
        double(x)


class Product(fad.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def vjp(ctx, g):
        return None, None


def newton(s):
    """A step towards s, from a leaf made in the body."""
    p = fad.tensor([1.0, 1.0], requires_grad=True)
    ((p - s) ** 2).sum().backward()
    return p.grad


# Functions of s, and of x, a vector of two numbers like it; for each s a function of x is compiled.
OF_OUTSIDE = {
    "with a number": lambda s: lambda x: x * (s * 2),
    "sum": lambda s: lambda x: x * s.sum(),
    "view": lambda s: lambda x: x * (s[1:] * 2),
    "view made outside": lambda s: (lambda v: lambda x: x * (v + 1))(s[:1]),
    "iterated": lambda s: lambda x: x * list(s)[1],
    "index": lambda s: lambda x: x * s[fnp.argmax(-s)],
    "mask": lambda s: lambda x: fnp.where(s > 3, x, 2 * x),
    "copy": lambda s: lambda x: x * (s.clone() + fad.tensor(s) + copy.deepcopy(s)),
    "detached": lambda s: lambda x: x * (s.detach() * 2) + fad.stop_gradient(s),
    "numpy": lambda s: lambda x: x * np.sin(s),
    "tree": lambda s: lambda x: x * jax.tree.map(lambda a: a * 2, {"s": s})["s"],
    "from_jax": lambda s: lambda x: x * fad.from_jax(jnp.sin)(s),
    "Function": lambda s: lambda x: x * Product.apply(s, s),
    "returned": lambda s: lambda x: s * 2,
    "written": lambda s: lambda x: x * fad.tensor([1.0, 1.0]).mul_(s),
    "functionalized": lambda s: lambda x: x * fad.functionalize(lambda t: t.mul_(2))(s),
    "no_grad": lambda s: lambda x: x * fad.no_grad()(lambda: s * 2)(),
    "nested": lambda s: lambda x: fad.jit(lambda y: y * (s * 2))(x),
    "nested, computed outside": lambda s: lambda x: (lambda t: fad.jit(lambda y: y * t)(x))(s * 2),
    "nested, argument": lambda s: lambda x: x * fad.jit(fnp.sin)(s),
    "nested, no argument": lambda s: lambda x: x * fad.jit(lambda: s * 2)(),
    "scan": lambda s: lambda x: fad.lax.scan(lambda c, _: (c + s * 2, None), x, None, length=2)[0],
    "scan, alone": lambda s: lambda x: fad.lax.scan(lambda c, _: (c * s, c), s, None, length=2)[1],
    "while": lambda s: (
        lambda x: fad.lax.while_loop(lambda c: (c < s * 3).any(), lambda c: c + s, x)
    ),
    "grad": lambda s: fad.grad(lambda x: (x * s).sum()),
    "grad, computed": lambda s: fad.grad(lambda x: (x * x * (s * 2)).sum()),
    "grad of it": lambda s: lambda x: x * fad.grad(lambda t: (t**3).sum())(s),
    "hessian of it": lambda s: lambda x: x @ fad.hessian(lambda t: (t**3).sum())(s),
    "jvp along it": lambda s: lambda x: fad.jvp(fnp.sin, (x,), (s,))[1],
    "jvp of it": lambda s: lambda x: x * fad.jvp(fnp.sin, (s,), (s,))[1],
    "pulled back": lambda s: lambda x: fad.vjp(fnp.sin, x)[1](s)[0],
    "linearized at it": lambda s: lambda x: fad.linearize(fnp.sin, s)[1](x),
    "vmap": lambda s: fad.vmap(fad.grad(lambda x: x * (x * s).sum())),
    "vmap over it": lambda s: lambda x: x * fad.vmap(fnp.sin, chunk_size=1)(s),
    "checkpoint": lambda s: fad.grad(fad.checkpoint(lambda x: (x * (s * 2) * x).sum())),
    "checkpoint of it": lambda s: lambda x: x * fad.checkpoint(lambda t: t * 2)(s),
    "a leaf made inside": lambda s: lambda x: x * newton(s) + newton(x),
}


@pytest.mark.parametrize("make", OF_OUTSIDE.values(), ids=OF_OUTSIDE)
def test_what_a_body_computes_from_a_tensor_outside_follows_it(make):
    s = fad.tensor([1.0, 2.0])
    f = make(s)
    compiled, traces = counted(f)
    x = jnp.array([0.5, -0.25])
    for change in (lambda: None, lambda: s.mul_(3.0), lambda: s[1:].add_(1.0)):
        change()
        expected = f(fad.asarray(x))
        assert_close(compiled(x), expected)
    assert len(traces) <= 2  # one to find what is captured, one with it
    assert is_idle() and fad.core.level.bodies.traced == 0


def test_what_a_body_makes_of_numbers_is_constant():
    scale = fad.tensor([1.0, 2.0])

    def f(x):
        y = fad.tensor([0.0, 0.0])
        y[1] = 5.0
        return x * scale[1:] + y + fad.tensor([1.0, 1.0])

    compiled = fad.jit(f)
    x = jnp.ones(2)
    assert compiled(x).tolist() == [3.0, 8.0]
    scale.mul_(10.0)
    assert compiled(x).tolist() == [21.0, 26.0]


def test_branches_on_what_is_computed_from_a_tensor_outside_raise():
    scale = fad.tensor([1.0, 2.0])
    with pytest.raises(HostValueError, match=r"where or fad.lax.cond instead of a Python branch"):
        fad.jit(lambda x: x if scale.sum() > 2 else -x)(X)
    with pytest.raises(HostValueError, match="bool mask"):
        fad.jit(lambda x: x[scale > 1])(X[:2])
    assert scale.tolist() == [1.0, 2.0] and is_idle()
    repeat = fad.tensor(3)  # the Tensor itself has a number, which is that of the trace
    assert_close(fad.jit(lambda x: sum(x for _ in range(repeat)))(X), 3 * X)


def test_a_detached_tensor_is_as_old_as_what_it_shares():
    scale = fad.tensor([1.0, 2.0])
    with pytest.raises(LevelError, match="from outside was written to in the body of jit"):
        fad.jit(lambda x: scale.detach().mul_(2.0) * x)(jnp.ones(2))
    assert scale.tolist() == [1.0, 2.0] and scale.version == 0


def test_stop_gradient_in_a_body_follows_a_tracked_tensor():
    w = fad.tensor([1.0, 2.0], requires_grad=True)
    f = fad.jit(lambda x: x * (fad.stop_gradient(w) * 2) + w.detach())
    assert f(jnp.ones(2)).tolist() == [3.0, 6.0]
    with fad.no_grad():
        w.mul_(10.0)
    assert f(jnp.ones(2)).tolist() == [30.0, 60.0]
    with pytest.raises(GradientError, match="closes over a Tensor .* tracked by the eager graph"):
        fad.jit(lambda x: x * fad.no_grad()(lambda: w * 2)())(jnp.ones(2))


def test_views_of_tensors_outside_are_brought_up_to_date_where_they_are():
    scale = fad.tensor([1.0, 2.0])
    part = scale[1:]
    peer = scale.detach()
    scale.mul_(3.0)  # both are behind when the trace meets them
    f = fad.jit(lambda x: x * part + peer)
    assert f(jnp.ones(2)).tolist() == [9.0, 12.0]
    assert part.tolist() == [6.0] and peer.tolist() == [3.0, 6.0]
    assert part.level.kind == "eager" and peer.level.kind == "eager"


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
