"""Outputs that are inputs, and what a body marks of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import RuleError

X = jnp.array([0.3, -0.5, 0.7])


def returns_input(what, jax_rules=False, dirty=False):
    """A Function that returns its input, saves it by one of its names, and has 5 x as its derivative."""
    pure = jax_rules

    class A(fad.Function):
        jax_rules = pure

        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward({"input": inputs[0], "output": output}[what])
            if dirty:
                ctx.mark_dirty(inputs[0])

        @staticmethod
        def vjp(ctx, g):
            return g * ctx.saved_tensors[0] * 5

    return A


@pytest.mark.parametrize(
    ("what", "dirty", "second"),
    [("input", False, 5.0), ("output", False, 50.0), ("input", True, 50.0), ("output", True, 50.0)],
)
@pytest.mark.parametrize("jax_rules", [False, True])
def test_an_input_that_is_returned_is_saved_as_what_it_is_named(what, dirty, second, jax_rules):
    """The derivative is 5 x; where x is the output, so that its own derivative is 5 x, the second is 25 x."""
    if dirty and jax_rules:
        return
    F = returns_input(what, jax_rules, dirty)
    f = lambda x: F.apply(x * 1)
    x = leaf(2.0)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert float(g) == 10.0
    assert float(fad.autograd.grad(g, x)[0]) == second
    rows = jnp.array([2.0, 2.0])
    assert float(fad.grad(fad.grad(f))(2.0)) == second
    assert float(fad.jacfwd(fad.grad(f))(2.0)) == second
    assert float(fad.jit(fad.grad(fad.grad(f)))(2.0)) == second
    assert float(jax.grad(jax.grad(lambda x: F.apply(x)))(2.0)) == second
    assert_close(fad.vmap(fad.grad(fad.grad(f)))(rows), jnp.full(2, second))
    lanes = fad.grad(lambda x: fad.grad(lambda x: fad.vmap(f)(x).sum())(x).sum())(rows)
    assert_close(lanes, jnp.full(2, second))


def marking(mark, result):
    class A(fad.Function):
        @staticmethod
        def forward(ctx, x):
            out = x * 2
            ctx.mark_dirty({"input": x, "output": out, "other": x * 1, "number": 3}[mark])
            return {"input": x, "output": out}[result]

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    return A


@pytest.mark.parametrize(
    ("mark", "lacks"), [("input", "output"), ("other", "input"), ("number", "input")]
)
def test_mark_dirty_needs_an_input_that_is_an_output(mark, lacks):
    with pytest.raises(RuleError, match=rf"A: ctx\.mark_dirty.*is not an {lacks}"):
        marking(mark, "output").apply(X)


def test_mark_dirty_of_an_output_that_is_no_input_warns():
    x = leaf(X)
    with pytest.warns(
        UserWarning, match=r"A: ctx\.mark_dirty\(\) received a tensor that was not an input"
    ):
        y = marking("output", "output").apply(x * 1)
    y.sum().backward()
    assert_close(y.detach(), 2 * X)
    assert_close(x.grad, jnp.full(3, 2.0))
