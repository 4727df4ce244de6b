"""``once_differentiable``: first derivatives, and an error instead of second ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf
from scaled_functions import SCALE

import fad
from fad.errors import GradientError
from fad.functions.function import once_differentiable

X = jnp.array([0.3, -0.5, 0.7])

V = jnp.array([1.0, 0.5, -2.0])


class Once(fad.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.x = x
        return x**3

    @staticmethod
    @once_differentiable
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        assert not x.requires_grad and not ctx.x.requires_grad
        return SCALE * 3 * x * ctx.x * g


class OnceOnHost(fad.Function):
    @staticmethod
    def forward(x):
        return fad.asarray(x.numpy() ** 3)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def vjp(ctx, g):
        return SCALE * 3 * ctx.saved_tensors[0].numpy() ** 2 * g.numpy()


def jax_once_forward(ctx, x):
    ctx.save_for_backward(x)
    return x**3


@once_differentiable
def jax_once_vjp(ctx, g):
    return SCALE * 3 * ctx.saved_tensors[0] ** 2 * g


class OnceJax(fad.Function):
    jax_rules = True
    forward = staticmethod(jax_once_forward)
    vjp = staticmethod(jax_once_vjp)


TWICE = "@once_differentiable"


@pytest.mark.parametrize("F", [Once, OnceOnHost, OnceJax])
def test_once_differentiable(F):
    expected = SCALE * 3 * X**2
    f = lambda x: F.apply(x).sum()
    x = leaf(X)
    f(x).backward()
    assert_close(x.grad, expected)
    assert_close(fad.grad(f)(X), expected)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(g, expected)
    assert g.requires_grad
    with pytest.raises(GradientError, match=TWICE):
        fad.autograd.grad(g.sum(), x)
    for second in (
        fad.grad(lambda x: fad.grad(f)(x).sum()),
        fad.jacfwd(fad.grad(f)),
        fad.jacrev(fad.grad(f)),
        lambda x: fad.jvp(fad.grad(f), (x,), (V,)),
        lambda x: fad.linearize(fad.grad(f), x)[1](V),
    ):
        with pytest.raises(GradientError, match=TWICE):
            second(X)


@pytest.mark.parametrize("F", [Once, OnceJax])
def test_once_differentiable_under_vmap_and_native_jax(F):
    expected = SCALE * 3 * X**2
    f = lambda x: F.apply(x).sum()
    rows = jnp.stack([X, X])
    for grad in (
        fad.vmap(fad.grad(f)),
        fad.grad(lambda x: fad.vmap(f)(x).sum()),
        jax.vmap(jax.grad(f)),
        jax.jit(jax.vmap(jax.grad(f))),
        jax.grad(lambda x: jax.vmap(f)(x).sum()),
    ):
        assert_close(grad(rows), jnp.stack([expected, expected]))
    for grad in (
        jax.grad(f),
        jax.jit(jax.grad(f)),
        jax.grad(jax.checkpoint(f)),
        fad.jit(fad.grad(f)),
    ):
        assert_close(grad(X), expected)
    for second in (
        fad.vmap(fad.grad(lambda x: fad.grad(f)(x).sum())),
        fad.vmap(fad.jacfwd(fad.grad(f))),
        fad.grad(lambda x: fad.vmap(fad.grad(f))(x).sum()),
        jax.vmap(jax.jacfwd(jax.grad(f))),
    ):
        with pytest.raises(GradientError, match=TWICE):
            second(rows)
    for second in (jax.hessian(f), jax.jacrev(jax.grad(f)), jax.jit(jax.jacfwd(jax.grad(f)))):
        with pytest.raises(GradientError, match=TWICE):
            second(X)


def test_once_differentiable_gives_no_jvp_rule():
    with pytest.raises(GradientError, match=r"Once has no jvp rule.*write jvp\(ctx, x_t\)"):
        fad.jvp(Once.apply, (X,), (V,))
