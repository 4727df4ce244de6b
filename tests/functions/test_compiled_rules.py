"""``jax_rules``: bodies on JAX arrays, compiled once each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf
from scaled_functions import Counted, scaled

import fad
from fad.errors import RuleError

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


def test_jax_rules_bodies_get_arrays_and_are_compiled_once():
    f = lambda x, y: Counted.apply(x, y).sum()
    j = lambda x, y: scaled(lambda x, y: jnp.sin(x) * jnp.exp(y))(x, y).sum()
    transforms = {
        "call": (f, j),
        "grad": (fad.grad(f, (0, 1)), jax.grad(j, (0, 1))),
        "jvp": (
            lambda x, y: fad.jvp(f, (x, y), (V, V))[1],
            lambda x, y: jax.jvp(j, (x, y), (V, V))[1],
        ),
        "vmap": (fad.vmap(Counted.apply), lambda x, y: jnp.sin(x) * jnp.exp(y)),
        "vmap grad": (fad.vmap(fad.grad(f)), jax.vmap(jax.grad(j))),
        "hessian": (fad.hessian(f), jax.jacfwd(jax.grad(j))),
        "grad grad": (
            fad.grad(lambda x, y: (fad.grad(f)(x, y) * V).sum()),
            jax.grad(lambda x, y: (jax.grad(j)(x, y) * V).sum()),
        ),
    }
    for name, (ours, theirs) in transforms.items():
        expected = theirs(X, Y)
        with fad.autograd.compiled(
            wait=True
        ):  # else it is traced some time later, in the background
            for _ in range(6):  # the backward pass is compiled as a whole when it repeats
                assert_close(ours(X, Y), expected)
        before = dict(Counted.runs)
        for k in range(3):
            ours(X + k, Y - k)
        assert Counted.runs == before, name


def test_jax_rules_save_intermediate_values_rather_than_compute_them_again():
    class Slow(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x):
            expensive = jnp.linalg.cholesky(x)
            ctx.save_for_backward(expensive)
            return jnp.log(jnp.diagonal(expensive)).sum() * 2

        @staticmethod
        def vjp(ctx, g):
            (factor,) = ctx.saved_tensors
            inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(2))
            return g * inverse

    m = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    x = leaf(m)
    out = Slow.apply(x)
    (factor,) = out.grad_fn.saved.extras
    assert_close(factor, jnp.linalg.cholesky(m))
    out.backward()
    assert_close(x.grad, jnp.linalg.inv(m))
    slogdet = lambda m: jnp.linalg.slogdet(m)[1]
    ours = fad.jacfwd(fad.grad(lambda s: Slow.apply(s * m)))(2.0)
    assert_close(ours, jax.hessian(lambda s: slogdet(s * m))(2.0))
    text = jax.jit(jax.grad(Slow.apply)).lower(m).as_text()
    assert text.count("cholesky") <= 2  # the call and, on CPU, its declaration


def test_jax_rules_take_python_floats_as_arrays():
    class Scale(fad.Function):
        jax_rules = True
        traces = 0

        @staticmethod
        def forward(x, rate, axis):
            Scale.traces += 1
            assert isinstance(rate, jax.Array) and rate.weak_type and type(axis) is int
            return x * rate

    Scale.apply(X, 1.0, 0)
    before = Scale.traces
    for rate in (0.5, 0.25, 0.125):
        assert_close(Scale.apply(X, rate, 0), X * rate)
    assert Scale.traces == before
    half = jnp.ones(2, jnp.bfloat16)
    assert Scale.apply(half, 2.0, 0).dtype == jnp.bfloat16


def test_jax_rules_keep_static_values_and_objects_on_ctx():
    class Box:
        def __init__(self, value):
            self.value = value

    class Keeps(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x, mode):
            ctx.mode, ctx.box, ctx.saved_data["n"] = mode, Box(2 * x), (3, [None])
            return x**2

        @staticmethod
        def vjp(ctx, g):
            assert ctx.mode == "m" and ctx.saved_data["n"] == (3, [None])
            return g * ctx.box.value, None

    f = lambda x: Keeps.apply(x, "m").sum()
    assert_close(fad.grad(f)(X), 2 * X)
    assert_close(fad.vmap(fad.grad(fad.grad(lambda x: Keeps.apply(x, "m"))))(X), jnp.full(3, 2.0))


def test_jax_rules_bodies_that_use_a_tensor_raise():
    w = leaf(Y)

    class Closes(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(x):
            return x * w

    with pytest.raises(
        RuleError, match=r"Closes\.forward closes over 'w'.*argument of Closes\.apply"
    ):
        Closes.apply(X)
    with pytest.raises(RuleError, match=r"Closes\.forward closes over 'w'"):
        fad.grad(lambda x: Closes.apply(x).sum())(X)


@pytest.mark.parametrize("extra", [False, True])
def test_a_node_shows_what_was_saved(extra):
    class Square(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, *([jnp.cos(x)] if extra else []))
            ctx.name = "square"
            return x * x

        @staticmethod
        def vjp(ctx, g):
            return 2.0 * g * ctx.saved_tensors[0]

    node = Square.apply(leaf(X)).grad_fn
    assert_close(node.saved_tensors, (X, jnp.cos(X))[: 1 + extra])
    assert node.name() == "SquareBackward" and node.needs_input_grad == (True,)
