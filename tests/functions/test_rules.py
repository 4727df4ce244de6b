"""One call evaluated and differentiated: its body runs once, and what it kept is differentiated too."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from helpers import assert_close, leaf
from scaled_functions import OneMethod, Product, plain

import fad
import fad.numpy as fnp

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


def test_the_body_runs_once_at_first_order():
    f = lambda x: OneMethod.apply(x, Y).sum()

    def runs(g, *args):
        OneMethod.runs.clear()
        result = g(*args)
        return len(OneMethod.runs), result

    def eager(x):
        x = leaf(x)
        f(x).backward()
        return x.grad

    expected = jnp.cos(X) * Y
    for g in (eager, fad.grad(f)):
        count, result = runs(g, X)
        assert count == 1
        assert_close(result, expected)
    per_example = fad.vmap(fad.grad(lambda x, y: OneMethod.apply(x, y)), (0, None))
    count, result = runs(per_example, X, 2.0)
    assert count == 1
    assert_close(result, 2 * jnp.cos(X))
    count, result = runs(fad.grad(lambda x: fad.vmap(OneMethod.apply)(x, Y).sum()), X)
    assert count == 1
    assert_close(result, expected)
    assert runs(fad.jvp, f, (X,), (V,))[0] == 1


def test_a_second_derivative_through_a_saved_intermediate_value_is_right():
    f = lambda x, y: (OneMethod.apply(x, y) * x).sum()
    j = lambda x, y: (plain(x, y) * x).sum()
    x, y = leaf(X), leaf(Y)
    OneMethod.runs.clear()
    grads = fad.autograd.grad(f(x, y), (x, y), create_graph=True)
    assert len(OneMethod.runs) == 2  # once more, for the history of the cosine
    total = (grads[0] * V).sum() + (grads[1] * Y).sum()
    second = lambda x, y: (jax.grad(j)(x, y) * V).sum() + (jax.grad(j, 1)(x, y) * Y).sum()
    assert_close(fad.autograd.grad(total, (x, y)), jax.jit(jax.grad(second, (0, 1)))(X, Y))
    for ours, theirs in [
        (fad.hessian(f, (0, 1)), jax.hessian(j, (0, 1))),
        (fad.jacrev(fad.grad(f, (0, 1)), (0, 1)), jax.jacrev(jax.grad(j, (0, 1)), (0, 1))),
        (fad.jacfwd(fad.jacfwd(f, (0, 1)), (0, 1)), jax.jacfwd(jax.jacfwd(j, (0, 1)), (0, 1))),
        (fad.jacrev(fad.jacfwd(f, (0, 1)), (0, 1)), jax.jacrev(jax.jacfwd(j, (0, 1)), (0, 1))),
    ]:
        assert_close(ours(X, Y), jax.jit(theirs)(X, Y))
    f1, j1 = lambda x: OneMethod.apply(x, 2.0) * x, lambda x: plain(x, 2.0) * x
    assert_close(fad.grad(fad.grad(fad.grad(f1)))(0.3), jax.grad(jax.grad(jax.grad(j1)))(0.3))
    assert_close(fad.vmap(fad.grad(fad.grad(f1)))(X), jax.vmap(jax.grad(jax.grad(j1)))(X))


def test_setup_context_may_compute_what_it_saves():
    class Product2(Product):
        @staticmethod
        def setup_context(ctx, inputs, output):
            x, y = inputs
            ctx.save_for_backward(fnp.cos(x) * y, fnp.sin(x))

        @staticmethod
        def vjp(ctx, g):
            a, b = ctx.saved_tensors
            return g * a, g * b

    f = lambda x: (Product2.apply(x, Y) * x).sum()
    j = lambda x: (plain(x, Y) * x).sum()
    assert_close(fad.hessian(f)(X), jax.hessian(j)(X))
    assert_close(fad.jacrev(fad.grad(f))(X), jax.hessian(j)(X))
    x = leaf(X)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(fad.autograd.grad(g @ V, x)[0], jax.hessian(j)(X) @ V)


class Dropout(fad.Function):
    """Keeps each element or not, by a coin on the host; saves the mask and a product with it."""

    coins = iter(())

    @staticmethod
    def forward(ctx, x):
        mask = jnp.array(next(Dropout.coins))
        kept = x * mask
        ctx.save_for_backward(kept, fad.asarray(mask))
        return kept * x

    @staticmethod
    def vjp(ctx, g):
        kept, mask = ctx.saved_tensors
        return g * (kept + kept)


def test_a_body_that_is_not_deterministic_is_differentiated_as_it_ran():
    first, second = [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]
    Dropout.coins = iter([first, second])
    x = leaf(X)
    (g,) = fad.autograd.grad(Dropout.apply(x).sum(), x, create_graph=True)
    assert_close(g, 2 * X * jnp.array(first))  # although the body ran again, with other coins
