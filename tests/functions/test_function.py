"""Function: calling one, its bodies under fad's transforms and on the eager tape, and Functions together."""

from __future__ import annotations

import math
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf
from scaled_functions import SCALE, JvpOnly, OneMethod, Product, VjpOnly, cube, plain, scaled

import fad
from fad.errors import RuleError
from fad.functions.rules import RULES, SETTINGS
from tests.fuzzing.comparison import assert_same_program
from tests.fuzzing.stacks import TRANSFORMS

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


# Calling


@pytest.mark.parametrize("F", [Product, OneMethod])
def test_arrays_in_arrays_out_and_tensors_in_tensors_out(F):
    assert_close(F.apply(X, Y), plain(X, Y))
    assert isinstance(F.apply(X, Y), jax.Array)
    assert isinstance(F.apply(np.asarray(X), np.asarray(Y)), jax.Array)
    for args in [(fad.tensor(X), Y), (X, fad.tensor(Y)), (fad.tensor(X), fad.tensor(Y))]:
        assert isinstance(F.apply(*args), fad.Tensor)
    assert_close(F.apply(fad.tensor(X), Y), plain(X, Y))


@pytest.mark.parametrize("F", [Product, OneMethod])
def test_both_styles_under_every_first_order_transform(F):
    x, y = leaf(X), leaf(Y)
    out = F.apply(x, y)
    assert out.requires_grad and out.grad_fn.name() == f"{F.__name__}Backward"
    out.backward(V)
    expected = jax.vjp(plain, X, Y)[1](V)
    assert_close((x.grad, y.grad), expected)
    assert_close(fad.grad(lambda x, y: F.apply(x, y) @ V, (0, 1))(X, Y), expected)
    assert_close(fad.vmap(F.apply, (0, None))(X, Y), jax.vmap(plain, (0, None))(X, Y))
    stacks = [(), *[(name,) for name in TRANSFORMS]]
    assert_same_program(F.apply, plain, X, Y, stacks=stacks)


def test_backward_is_another_name_of_vjp():
    class Double(fad.Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return SCALE * g

    assert_close(fad.grad(lambda x: Double.apply(x).sum())(X), jnp.full(3, SCALE))
    assert_close(fad.jvp(Double.apply, (X,), (V,))[1], SCALE * V)


def test_a_function_is_called_by_apply_alone():
    with pytest.raises(TypeError, match=r"Product\.apply"):
        Product(X, Y)

    class Empty(fad.Function):
        pass

    with pytest.raises(RuleError, match="Empty has no forward"):
        Empty.apply(X)


# Functions together


def test_a_function_in_a_function_keeps_its_own_rules():
    class Outer(fad.Function):
        """Its rules are derived from its body, which calls a Function whose rules are scaled."""

        @staticmethod
        def forward(x):
            return VjpOnly.apply(x) * 2.0

    class WithRules(fad.Function):
        @staticmethod
        def forward(x):
            return VjpOnly.apply(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            return g * JvpOnly.apply(ctx.saved_tensors[0])

    j = scaled(cube)
    f = lambda x: 2.0 * j(x)
    assert_close(fad.grad(lambda x: Outer.apply(x).sum())(X), jax.grad(lambda x: f(x).sum())(X))
    assert_close(fad.jvp(Outer.apply, (X,), (V,)), jax.jvp(f, (X,), (V,)))
    assert_close(fad.vmap(fad.grad(fad.grad(Outer.apply)))(X), jax.vmap(jax.grad(jax.grad(f)))(X))
    assert_close(fad.vmap(fad.grad(WithRules.apply))(X), X**3)
    assert_close(fad.vmap(fad.grad(fad.grad(WithRules.apply)))(X), jax.vmap(jax.grad(j))(X))
    assert_close(fad.vmap(fad.jacfwd(fad.grad(WithRules.apply)))(X), jax.vmap(jax.grad(j))(X))


def test_a_vjp_may_use_transforms_and_the_tape():
    class Inner(fad.Function):
        @staticmethod
        def forward(x):
            return x**4

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx, g):
            (x,) = ctx.saved_tensors
            return g * fad.grad(lambda v: (v**4).sum())(x)

    class OnTape(Inner):
        @staticmethod
        def vjp(ctx, g):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with fad.enable_grad():
                return g * fad.autograd.grad((x**4).sum(), x)[0]

    assert_close(fad.grad(lambda x: Inner.apply(x).sum())(X), 4 * X**3)
    assert_close(fad.vmap(fad.grad(fad.grad(Inner.apply)))(X), 12 * X**2)
    assert_close(fad.grad(lambda x: OnTape.apply(x).sum())(X), 4 * X**3)
    x = leaf(X)
    OnTape.apply(x).sum().backward()
    assert_close(x.grad, 4 * X**3)


def test_no_grad_records_nothing_and_tangents_go_on():
    x = leaf(X)
    with fad.no_grad():
        assert not Product.apply(x, Y).requires_grad
    stopped = fad.no_grad(Product.apply)
    assert_close(fad.jvp(lambda x: stopped(x, Y), (X,), (V,))[1], jnp.cos(X) * Y * V)
    assert_close(fad.grad(lambda x: (stopped(x, Y) * x).sum())(X), plain(X, Y))


def test_two_threads_share_a_function_and_its_graph():
    x = leaf(X)
    out = OneMethod.apply(x, Y).sum()
    total = lambda x: (Product.apply(x, Y) * V).sum()
    j = lambda x: (plain(x, Y) * V).sum()
    barrier = threading.Barrier(2)

    def work(k):
        barrier.wait()
        results = []
        for _ in range(10):
            out.backward(retain_graph=True)
            results.append(fad.grad(total)(k * X))
            with fad.dual_level():
                dual = fad.make_dual(fad.tensor(k * X), fad.tensor(V))
                results.append(fad.unpack_dual(Product.apply(dual, Y)).tangent)
        return results

    with ThreadPoolExecutor(2) as pool:
        for k, results in zip((1.0, 2.0), pool.map(work, (1.0, 2.0))):
            for gradient, tangent in zip(results[::2], results[1::2]):
                assert_close(gradient, jax.grad(j)(k * X))
                assert_close(tangent, jnp.cos(k * X) * Y * V)
    assert_close(x.grad, 20 * jnp.cos(X) * Y)


def test_an_exception_in_a_body_leaves_no_trace():
    class Fails(fad.Function):
        where = ""

        @staticmethod
        def forward(x):
            if Fails.where == "forward":
                raise ZeroDivisionError
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            if Fails.where == "setup":
                raise ZeroDivisionError

        @staticmethod
        def vjp(ctx, g):
            if Fails.where == "vjp":
                raise ZeroDivisionError
            return 2 * g

    f = lambda x: Fails.apply(x).sum()
    for where in ("forward", "setup", "vjp"):
        for transform in (
            fad.grad(f),
            fad.vmap(fad.grad(f)),
            fad.jacfwd(fad.grad(f)),
            lambda x: f(leaf(x)).backward(),
        ):
            Fails.where = where
            with pytest.raises(ZeroDivisionError):
                transform(X[:, None])
            Fails.where = ""
            assert math.isclose(float(fad.grad(lambda x: f(x))(X)[0]), 2.0)


# Rules that are set, replaced or deleted after the class was made


def twice(**settings):
    """A Function that doubles, whose vjp says 7."""

    class Twice(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 7

    for name, value in settings.items():
        setattr(Twice, name, value)
    return Twice


def results(F):
    """What a call of ``F`` gives: the value, vjps under fad, the tape and JAX, jvps, and a batched value."""
    x = leaf(3.0)
    y = F.apply(x)
    y.backward()
    return [
        float(y),
        float(fad.grad(F.apply)(3.0)),
        float(x.grad),
        float(jax.grad(F.apply)(3.0)),
        float(fad.jvp(F.apply, (3.0,), (1.0,))[1]),
        float(jax.jvp(F.apply, (3.0,), (1.0,))[1]),
        float(fad.vmap(F.apply)(jnp.array([3.0]))[0]),
    ]


@pytest.mark.parametrize("jax_rules", [False, True])
@pytest.mark.parametrize("inherited", [False, True, "mixed in"])
def test_rules_added_to_a_class_after_it_was_made_are_used(inherited, jax_rules):
    F = G = twice(jax_rules=jax_rules)
    if inherited == "mixed in":  # of a class that is no Function
        F = type(
            "Rules", (), {name: v for name, v in vars(F).items() if name in (*RULES, *SETTINGS)}
        )
        G = types.new_class("Twice", (F, fad.Function))
    elif inherited:
        G = type("G", (F,), {})
    assert results(G) == [6, 7, 7, 7, 7, 7, 6]
    F.backward = lambda ctx, g: g * 8
    assert results(G) == [6, 8, 8, 8, 8, 8, 6]
    F.jvp = staticmethod(lambda ctx, t: t * 9)
    assert results(G) == [6, 8, 8, 8, 9, 9, 6]
    F.vmap = staticmethod(lambda info, in_dims, x: (x * 100, in_dims[0]))
    assert results(G) == [6, 8, 8, 8, 9, 9, 300]
    F.forward = staticmethod(lambda x: x * 3)
    assert results(G) == [9, 8, 8, 8, 9, 9, 300]
    del F.vmap, F.jvp, F.backward
    assert results(G) == [9, 3, 3, 3, 3, 3, 9]
    F.setup_context = staticmethod(lambda ctx, inputs, output: ctx.save_for_backward(output))
    F.vjp = staticmethod(lambda ctx, g: g * ctx.saved_tensors[0])
    assert results(G) == [9, 9, 9, 9, 9, 9, 9]


def test_the_style_of_forward_may_change():
    F = twice()
    results(F)
    del F.setup_context
    F.forward = staticmethod(lambda ctx, x: (setattr(ctx, "k", 5), x * 4)[1])
    F.backward = staticmethod(lambda ctx, g: g * ctx.k)
    assert results(F) == [12, 5, 5, 5, 5, 5, 12]


def test_rules_that_change_in_code_that_repeats(replay_mode):
    F = twice(is_traceable=True)

    def step():
        x = leaf(3.0)
        (F.apply(x) * x).backward()
        return float(x.grad)

    assert [step() for _ in range(4)] == [27.0] * 4
    F.backward = staticmethod(lambda ctx, g: g * 8)
    assert [step() for _ in range(4)] == [30.0] * 4


def test_rules_that_are_set_are_checked_at_the_next_call():
    F = twice()
    F.vjp = staticmethod(lambda ctx, g: g)
    with pytest.raises(RuleError, match="Twice defines both vjp and backward"):
        F.apply(3.0)
    del F.vjp
    assert results(F)[1] == 7
    F.jvp = staticmethod(lambda ctx: 0)
    with pytest.raises(RuleError, match=r"Twice\.jvp\(ctx\) takes 1 positional parameters"):
        F.apply(3.0)
    F.generate_vmap_rule = False
    del F.jvp
    with pytest.raises(RuleError, match="generate_vmap_rule is False"):
        fad.vmap(F.apply)(jnp.ones(2))
