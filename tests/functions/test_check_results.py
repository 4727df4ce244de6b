"""What rules return: what is accepted, what is cast, and errors that name the rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda x: x, r"must return a pair \(output, out_dims\)"),
        (lambda x: (x, 2), r"output 0 has shape \(2, 3\).*batch of 2 at out_dims 2"),
        (lambda x: (x, 1), r"output 0 has shape \(2, 3\).*batch of 2 at out_dims 1"),
        (lambda x: (x, (0, 0)), r"out_dims must be"),
        (lambda x: (x, "0"), r"out_dims '0'"),
    ],
)
def test_what_a_vmap_rule_returns_is_checked(returned, message):
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def vmap(info, in_dims, x):
            return returned(x)

    with pytest.raises(RuleError, match=rf"Bad\.vmap:? ?.*{message}"):
        fad.vmap(Bad.apply)(jnp.stack([X, Y]))


def returning(value, n_out=1):
    """A Function of (x, tree) with ``n_out`` outputs whose vjp returns ``value(g)``."""

    class Bad(fad.Function):
        @staticmethod
        def forward(x, tree):
            out = x * tree["w"]
            return out if n_out == 1 else (out,) * n_out

        @staticmethod
        def vjp(ctx, g):
            return value(g)

    return lambda x, w: Bad.apply(x, {"w": w})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda g: g, r"Bad\.vjp returned 1 gradients, expected 2: .*\(x, tree\)"),
        (lambda g: (g, None, g), r"Bad\.vjp returned 3 gradients, expected 2"),
        (
            lambda g: (g.sum(), None),
            r"the gradient for argument 'x' has shape \(\), expected \(3,\)",
        ),
        (lambda g: (None, {"w": g[:2]}), r"argument 'tree' has shape \(2,\), expected \(3,\)"),
        (
            lambda g: (None, {"v": g}),
            r"argument 'tree' must have the structure \{'w': \*\}, got \{'v'",
        ),
        (lambda g: (None, [g]), r"argument 'tree' must have the structure"),
        (
            lambda g: ("g", None),
            r"argument 'x' must be an array of shape \(3,\) or None, got str 'g'",
        ),
    ],
)
def test_what_a_vjp_returns_is_checked(value, message):
    f = returning(value)
    with pytest.raises(
        RuleError, match=rf"Bad\.vjp.*{message}" if "Bad" not in message else message
    ):
        fad.grad(lambda x, w: f(x, w).sum(), (0, 1))(X, Y)
    with pytest.raises(RuleError, match=message):
        f(leaf(X), Y).sum().backward()
    with pytest.raises(RuleError, match=message):
        jax.grad(lambda x, w: f(x, w).sum(), (0, 1))(X, Y)


def test_a_vjp_with_another_number_of_outputs_says_so():
    f = returning(lambda g: (g, None), n_out=2)
    with pytest.raises(
        RuleError, match=r"Bad\.vjp takes 2 arguments, but is called with ctx and 2"
    ):
        fad.grad(lambda x: f(x, Y)[0].sum())(X)


def test_trailing_nones_and_lists_of_gradients_are_accepted():
    for value in (lambda g: (g, None, None, None), lambda g: [g, None]):
        assert_close(fad.grad(lambda x, f=returning(value): f(x, Y).sum())(X), jnp.ones(3))


def test_one_pytree_argument_takes_its_gradient_with_or_without_a_tuple_around():
    def make(value):
        class One(fad.Function):
            @staticmethod
            def forward(pair):
                return pair[0] * pair[1]

            @staticmethod
            def vjp(ctx, g):
                return value(g)

        return lambda x, y: One.apply((x, y)).sum()

    for value in (lambda g: (g, 2 * g), lambda g: ((g, 2 * g),), lambda g: [(g, 2 * g)]):
        assert_close(fad.grad(make(value), (0, 1))(X, Y), (jnp.ones(3), jnp.full(3, 2.0)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda t: t.sum(), r"the tangent of output 0 has shape \(\), expected \(3,\)"),
        (lambda t: "t", r"the tangent of output 0 must be an array"),
        (
            lambda t: (t, t),
            r"the tangent of output 0 must be an array of shape \(3,\) or None, got tuple",
        ),
    ],
)
def test_what_a_jvp_returns_is_checked(value, message):
    class Bad(fad.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def jvp(ctx, x_t):
            return value(x_t)

    for push in (
        lambda: fad.jvp(Bad.apply, (X,), (V,)),
        lambda: fad.linearize(Bad.apply, X)[1](V),
        lambda: jax.jvp(Bad.apply, (X,), (V,)),
        lambda: fad.grad(lambda x: Bad.apply(x).sum())(X),
    ):
        with pytest.raises(RuleError, match=rf"Bad\.jvp: {message}"):
            push()


def test_gradients_and_tangents_are_cast_to_the_dtype_of_their_primal():
    class Casts(fad.Function):
        @staticmethod
        def forward(x):
            return x * 1

        @staticmethod
        def vjp(ctx, g):
            return fnp.ones(3, jnp.int32) * 2

        @staticmethod
        def jvp(ctx, x_t):
            return x_t.astype(jnp.float32) + 1j * x_t.astype(jnp.float32)

    half = X.astype(jnp.float16)
    for grad in (fad.grad, jax.grad):
        assert_close(grad(lambda x: Casts.apply(x).sum())(half), jnp.full(3, 2, jnp.float16))
    for jvp in (fad.jvp, jax.jvp):
        assert jvp(Casts.apply, (half,), (half,))[1].dtype == jnp.float16


def test_a_gradient_that_is_not_summed_over_broadcast_dimensions_says_so():
    class Broadcast(fad.Function):
        @staticmethod
        def forward(x, y):
            return x + y

        @staticmethod
        def vjp(ctx, g):
            return g, g

    with pytest.raises(RuleError, match=r"argument 'y'.*sum the gradient over the broadcast"):
        fad.grad(lambda y: Broadcast.apply(X, y).sum())(jnp.float32(1.0))
