"""Rules that differentiate: what they read is of one level, and their backward passes are recorded."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


def function_with(**rules):
    """A Function of sin whose rule gets x and what is to be transformed."""

    class Sin(fad.Function):
        @staticmethod
        def forward(x):
            return fnp.sin(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

    for name, rule in rules.items():
        setattr(Sin, name, staticmethod(lambda ctx, g, rule=rule: rule(*ctx.saved_tensors, g)))
    return Sin


def recorded(rule):
    """A rule that records a graph of its own, which begins at a detached copy of x."""

    def of(x, g):
        with fad.enable_grad():
            x = x.detach().requires_grad_()
            return rule(x, fnp.sin(x), g)

    return of


def backward_of_a_product(x, y, g):
    (y * g).sum().backward()
    return x.grad


def twice_backward(x, y, t):
    u = fnp.ones_like(x).requires_grad_()
    (v,) = fad.autograd.grad(y, x, u, create_graph=True)
    return fad.autograd.grad(v, u, t)[0]


@pytest.mark.parametrize(
    "rule",
    [
        backward_of_a_product,
        lambda x, y, g: fad.autograd.grad((y * g).sum(), x)[0],
        lambda x, y, g: fad.autograd.grad((y * g).sum(), x, create_graph=True)[0],
        lambda x, y, g: fad.autograd.grad(y, x, g)[0],
        lambda x, y, g: fad.autograd.functional.vjp(fnp.sin, x, g)[1],
    ],
)
def test_a_vjp_rule_with_a_backward_pass_of_its_own_is_a_function_of_the_cotangent(rule):
    f = function_with(vjp=recorded(rule)).apply
    assert_close(fad.grad(lambda x: f(x).sum())(X), jnp.cos(X))
    for jvp in (fad.jvp, jax.jvp, fad.jit(lambda f, x, v: fad.jvp(f, x, v), static_argnums=0)):
        assert_close(jvp(f, (X,), (V,))[1], jnp.cos(X) * V)
    assert_close(fad.linearize(f, X)[1](V), jnp.cos(X) * V)
    assert_close(fad.vmap(lambda x, v: fad.jvp(f, (x,), (v,))[1])(X, V), jnp.cos(X) * V)
    of = lambda w: fad.grad(lambda x: (w * f(x)).sum())(X)
    for jacobian in (fad.jacfwd(of), fad.jacrev(of), fad.jit(fad.jacrev(of))):
        assert_close(jacobian(Y), jnp.diag(jnp.cos(X)))
    native = lambda w: jax.grad(lambda x: (w * f(x)).sum())(X)
    assert_close(jax.jacrev(native)(Y), jnp.diag(jnp.cos(X)))
    assert_close(fad.vmap(of)(jnp.diag(Y)), jnp.diag(jnp.cos(X) * Y))
    x, w = leaf(X), leaf(Y)
    (g,) = fad.autograd.grad((w * f(x)).sum(), x, create_graph=True)
    assert_close(fad.autograd.grad(g @ V, w)[0], jnp.cos(X) * V)


def test_a_jvp_rule_with_backward_passes_of_its_own_has_a_transpose():
    f = function_with(jvp=recorded(twice_backward)).apply
    assert_close(fad.jvp(f, (X,), (V,))[1], jnp.cos(X) * V)
    for grad, vmap in ((fad.grad, fad.vmap), (jax.grad, jax.vmap)):
        assert_close(grad(lambda x: f(x).sum())(X), jnp.cos(X))
        assert_close(vmap(grad(f))(X), jnp.cos(X))


def without_recording(x, g):
    with fad.no_grad():
        return fnp.cos(x) * g


@pytest.mark.parametrize(
    "rule",
    [
        without_recording,
        lambda x, g: fnp.cos(x) * g.detach(),
        lambda x, g: fnp.cos(x) * fad.stop_gradient(g),
        recorded(lambda x, y, g: backward_of_a_product(x, y, g.detach())),
    ],
)
def test_a_rule_that_makes_a_constant_of_its_argument_cannot_be_transposed(rule):
    f, h = function_with(vjp=rule).apply, function_with(jvp=rule).apply
    assert_close(fad.grad(lambda x: f(x).sum())(X), jnp.cos(X))
    assert_close(fad.jvp(h, (X,), (V,))[1], jnp.cos(X) * V)
    for transform, missing in [
        (lambda: fad.jvp(f, (X,), (V,)), "no jvp rule"),
        (lambda: jax.jvp(f, (X,), (V,)), "no jvp rule"),
        (lambda: fad.grad(lambda x: h(x).sum())(X), "no vjp rule"),
        (lambda: jax.grad(lambda x: h(x).sum())(X), "no vjp rule"),
        (lambda: fad.vmap(fad.grad(h))(X), "no vjp rule"),
    ]:
        with pytest.raises(fad.errors.GradientError, match=missing):
            transform()


def test_a_rule_may_look_at_a_constant_beside_its_result():
    seen = []

    def rule(x, g):
        seen.append(g.detach())
        return fnp.cos(x) * g

    assert_close(fad.jvp(function_with(vjp=rule).apply, (X,), (V,))[1], jnp.cos(X) * V)
    zero = function_with(vjp=lambda x, g: fnp.zeros_like(x)).apply
    assert_close(fad.jvp(zero, (X,), (V,))[1], jnp.zeros(3))
