"""Functions that are made anew in each step: what is compiled for them is shared, and nothing is kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.core.primitive import _all

X = jnp.linspace(0.1, 1.0, 5)


def from_jax(k: float, w: Any) -> Callable[..., Any]:
    return fad.from_jax(lambda x: (jnp.sin(x) * k * w).sum())


def operation(k: float, w: Any) -> Callable[..., Any]:
    return fad.extend.operation(lambda x: (jnp.sin(x) * k * w).sum())


def operation_with_rules(k: float, w: Any) -> Callable[..., Any]:
    return fad.extend.operation(
        jvp=lambda p, t: ((jnp.sin(*p) * k * w).sum(), (t[0] * jnp.cos(*p) * k * w).sum()),
        vjp=(
            lambda x: ((jnp.sin(x) * k * w).sum(), x),
            lambda x, g: (g * jnp.cos(x) * k * w,),
        ),
        batch=lambda size, dims, x: ((jnp.sin(x) * k * w).sum(1 - dims[0]), 0),
    )(lambda x: (jnp.sin(x) * k * w).sum())


def custom_vjp(k: float, w: Any) -> Callable[..., Any]:
    @fad.custom_rules
    def f(x: Any) -> Any:
        return (jnp.sin(x) * k * w).sum()

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * jnp.cos(x) * k * w,))
    return f


def custom_jvp(k: float, w: Any) -> Callable[..., Any]:
    f = fad.custom_rules(lambda x: (jnp.sin(x) * k * w).sum())
    f.defjvp(lambda p, t: ((jnp.sin(*p) * k * w).sum(), (t[0] * jnp.cos(*p) * k * w).sum()))
    return f


def calls_itself(k: float, w: Any) -> Callable[..., Any]:
    f = fad.custom_rules(lambda x: x * k * w)
    f.defjvp(lambda p, t: (f(*p), f(*t)))
    return lambda x: f(fnp.sin(x)).sum()


def function_calls_itself(k: float, w: Any) -> Callable[..., Any]:
    class F(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * k * w

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return F.apply(t)

    return lambda x: F.apply(fnp.sin(x)).sum()


def compiled_function(k: float, w: Any) -> Callable[..., Any]:
    class F(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(x: Any) -> Any:
            return (jnp.sin(x) * k * w).sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * jnp.cos(ctx.saved_tensors[0]) * k * w

    return F.apply


def function(k: float, w: Any) -> Callable[..., Any]:
    class F(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return (fnp.sin(x) * k * w).sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * fnp.cos(ctx.saved_tensors[0]) * k * w

    return F.apply


def jax_custom_vjp(k: float, w: Any) -> Callable[..., Any]:
    f = jax.custom_vjp(lambda x: (jnp.sin(x) * k * w).sum())
    f.defvjp(lambda x: (f(x), x), lambda x, g: (g * jnp.cos(x) * k * w,))
    return fad.from_jax(f)


def jax_jit(k: float, w: Any) -> Callable[..., Any]:
    return fad.from_jax(lambda x: k * jax.jit(lambda y: (jnp.sin(y) * w).sum())(x))


def reduced(k: float, w: Any) -> Callable[..., Any]:
    return lambda x: fad.lax.reduce(fnp.sin(x) * k * w, 0.0, lambda a, b: a + b, (0,))


MADE = [
    from_jax,
    operation,
    operation_with_rules,
    custom_vjp,
    custom_jvp,
    calls_itself,
    function_calls_itself,
    compiled_function,
    function,
    jax_custom_vjp,
    jax_jit,
    reduced,
]


def check_compiles_nothing(step: Callable[[int], Any], caplog: pytest.LogCaptureFixture) -> None:
    """After its first calls."""
    for k in range(5):
        step(k)
    caplog.clear()
    with jax.log_compiles():
        for k in range(5, 8):
            step(k)
    assert not [r for r in caplog.records if r.getMessage().startswith("Compiling")]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("around", [fad.grad, lambda f: fad.grad(fad.jit(f))], ids=["grad", "jit"])
def test_functions_made_anew_compile_nothing(
    make: Callable[..., Any], around: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def step(k: int) -> None:
        number, array = 0.5 + k, X + k
        assert_close(around(make(number, array))(X), jnp.cos(X) * number * array)

    check_compiles_nothing(step, caplog)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.grad(f),
        lambda f: fad.jacfwd(f),
        lambda f: lambda x: fad.vmap(fad.grad(f))(x[None])[0],
        lambda f: fad.grad(fad.checkpoint(f)),
        lambda f: lambda x: fad.linearize(f, x)[1](1.0 * fnp.ones(5)) * fnp.ones(5),
    ],
    ids=["native", "jacfwd", "vmap", "checkpoint", "linearize"],
)
@pytest.mark.parametrize("make", [operation_with_rules, custom_vjp, calls_itself])
def test_transforms_of_functions_made_anew_compile_nothing(
    make: Callable[..., Any], transform: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    check_compiles_nothing(lambda k: transform(make(2.0 + k, X + k))(X), caplog)


@pytest.mark.parametrize("transform", [lambda f: f, fad.grad], ids=["call", "grad"])
def test_jax_functions_made_anew_inside_of_a_named_axis_compile_nothing(
    transform: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def step(k: int) -> None:
        f = jax.custom_jvp(jnp.sin)
        f.defjvp(lambda p, t: (jnp.sin(*p), t[0] * jnp.cos(*p)))
        total = transform(lambda x: fad.from_jax(f)(x).sum())
        fad.vmap(total, axis_name="i")(X[None])

    check_compiles_nothing(step, caplog)


def collective(k: float, kind: str) -> Callable[..., Any]:
    total = lambda v: jax.lax.psum(v, "i")
    if kind == "function":

        class F(fad.Function):
            jax_rules = True

            @staticmethod
            def forward(x: Any) -> Any:
                return total(x) * x * k

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(*inputs)

            @staticmethod
            def vjp(ctx: Any, g: Any) -> Any:
                (x,) = ctx.saved_tensors
                return (g * total(x) + total(g * x)) * k

        return F.apply
    f = lambda x: total(x) * x * k
    if kind == "from_jax":
        return fad.from_jax(f)
    made = fad.custom_rules(f)
    if kind == "vjp":
        made.defvjp(lambda x: (f(x), x), lambda x, g: ((g * total(x) + total(g * x)) * k,))
    else:
        made.defjvp(lambda p, t: (f(*p), (t[0] * total(*p) + p[0] * total(*t)) * k))
    return made


@pytest.mark.parametrize("kind", ["from_jax", "vjp", "jvp", "function"])
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: f,
        fad.grad,
        lambda f: lambda x: fad.jvp(f, (x,), (x,))[1],
        lambda f: fad.jit(fad.grad(f)),
        lambda f: fad.grad(
            lambda x: fad.vmap(f, in_dims=None, axis_size=2, axis_name="k")(x).sum()
        ),
    ],
    ids=["call", "grad", "jvp", "jit", "vmap inside"],
)
def test_rules_made_anew_that_name_an_axis_compile_nothing(
    kind: str, transform: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def step(k: int) -> Any:
        return fad.vmap(transform(collective(2.0, kind)), axis_name="i")(X)

    expected = fad.vmap(
        transform(collective(2.0, "vjp" if kind != "jvp" else "jvp")), axis_name="i"
    )(X)
    assert_close(step(0), expected)
    check_compiles_nothing(step, caplog)


def test_rules_made_anew_with_other_axes() -> None:
    """Programs are equal up to the size of the axis that they name, and to its name."""
    for size in (2, 3, 2):
        for name in ("i", "k"):
            f = fad.from_jax(lambda x, name=name: x * jax.lax.psum(jnp.ones(()), name))
            x = jnp.arange(1.0, size + 1.0)
            assert_close(fad.vmap(f, axis_name=name)(x), x * size)
            assert_close(fad.vmap(fad.grad(f), axis_name=name)(x), jnp.full(size, 1.0 * size))


def test_small_constants_of_numpy_compile_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def step(k: int) -> None:
        w = np.full(5, k, np.float32)
        assert_close(fad.from_jax(lambda x: x * w)(X), X * k)

    check_compiles_nothing(step, caplog)


def test_an_operation_that_refers_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    def step(k: int) -> None:
        @fad.extend.operation(
            vjp=(lambda x: (f(x), x), lambda x, g: (g * jnp.cos(x),)),
        )
        def f(x: Any) -> Any:
            return jnp.sin(x)

        assert_close(fad.grad(lambda x: f(x).sum())(X), jnp.cos(X))

    for k in range(8):
        step(k)
    check_compiles_nothing(step, caplog)


def test_operations_that_are_kept_are_replayed() -> None:
    f, g = (fad.extend.operation(lambda x, k=k: x * k) for k in (2.0, 3.0))
    f(X), g(X)
    assert all(p.deferrable for op in (f, g) for p in op.primitives.values())


class Settings:
    scale = 1.0


def test_what_the_function_reads_is_read_anew() -> None:
    settings, numbers = Settings(), [0.0]
    for k in range(3):
        settings.scale, numbers[0] = 2.0 + k, 3.0 + k
        f = fad.from_jax(lambda x: x * settings.scale * numbers[0])
        assert_close(f(X), X * (2.0 + k) * (3.0 + k))


def test_equal_programs_keep_their_own_rules() -> None:
    for k in (5.0, 7.0):  # the same function, with other derivatives
        f = fad.custom_rules(jnp.sin)
        f.defvjp(lambda x: (jnp.sin(x), ()), lambda _, g, k=k: (g * k,))
        for grad in (fad.grad, jax.grad, lambda f: fad.grad(fad.jit(f))):
            assert float(grad(f)(0.5)) == k
        assert_close(fad.vmap(fad.grad(fad.jit(fad.from_jax(f))))(X), jnp.full(5, k))


def test_zeros_of_both_signs_and_dtypes_are_told_apart() -> None:
    for k in (0.0, -0.0, 0.0, -0.0):
        out = fad.from_jax(lambda x, k=k: x * k)(X)
        assert np.signbit(out[0]) == np.signbit(k)
    for k in (2, 2.0, 2, 2.5j):
        out = fad.from_jax(lambda x, k=k: x * k)(jnp.arange(3))
        assert out.dtype == (jnp.arange(3) * k).dtype


@pytest.mark.parametrize("outer", [jax.grad, jax.jit, lambda f: lambda x: jax.vmap(f)(x[None])[0]])
def test_closures_over_tracers(outer: Callable[..., Any]) -> None:
    for _ in range(2):
        found = outer(lambda w: fad.from_jax(lambda x: (x * w).sum())(X))(jnp.float32(2.0))
        assert_close(found, outer(lambda w: (X * w).sum())(jnp.float32(2.0)))


def test_a_held_function_in_a_trace_and_outside() -> None:
    f = fad.from_jax(lambda x: (x * 2.0).sum())
    for _ in range(2):
        assert_close(f(X), 2.0 * X.sum())
        assert_close(jax.jit(lambda w: f(X) * w)(2.0), 4.0 * X.sum())
    with jax.disable_jit():
        assert_close(f(X), 2.0 * X.sum())


def test_nan_is_reported_where_it_is_made() -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        fad.from_jax(lambda x: jnp.log(x - 5.0))(X)


def test_effects_are_those_of_each_function() -> None:
    found: list[int] = []
    for k in range(3):
        f = fad.from_jax(lambda x, k=k: [jax.debug.callback(lambda: found.append(k)), x][1])
        f(X), f(X)
        jax.effects_barrier()
    assert found == [0, 0, 1, 1, 2, 2]


def test_jit_of_functions_made_anew_called_twice(caplog: pytest.LogCaptureFixture) -> None:
    def step(k: int) -> None:
        f = fad.jit(fad.grad(custom_vjp(2.0 + k, X)))
        f(X), f(X)  # the second call takes the fast path

    check_compiles_nothing(step, caplog)


def test_jit_with_donated_arguments_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    check_compiles_nothing(lambda k: fad.jit(lambda x: x + 1.0, donate_argnums=0)(X + k), caplog)


# From JAX 0.11 on, its caches keep the functions of the last 2,048 calls of a custom_jvp.
@pytest.mark.parametrize("make", [m for m in MADE if m is not operation_with_rules])
def test_functions_made_anew_are_freed(make: Callable[..., Any]) -> None:
    def step() -> None:
        fad.grad(make(2.0, X))(X)
        fad.vmap(make(2.0, X))(X[None])

    for _ in range(4):
        step()
    gc.collect()
    before = len(_all)
    for _ in range(10):
        step()
    gc.collect()
    assert len(_all) <= before + 12  # cycles of the last steps, through JAX's caches


@pytest.mark.parametrize("make", [custom_vjp, compiled_function, function])
def test_classes_made_anew_are_freed(make: Callable[..., Any]) -> None:
    made = []
    with fad.autograd.compiled(False):  # replay remembers passes
        for _ in range(12):
            f = make(2.0, X)
            made.append(weakref.ref(f))
            jax.grad(f)(X)
            fad.grad(f)(X)
            del f
    gc.collect()
    assert sum(r() is not None for r in made) <= 4
