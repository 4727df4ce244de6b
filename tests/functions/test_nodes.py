"""The node of a call of a Function: what it keeps, and what it finds out of it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = jnp.array([0.3, -0.5, 0.7])


class Exp(fad.Function):
    """exp(x); what it keeps is its output."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = fnp.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return g * ctx.saved_tensors[0]


class PureExp(Exp):
    jax_rules = True

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        out = jnp.exp(x)
        ctx.save_for_backward(out)
        return out


def test_an_output_that_was_saved_and_then_changed_is_an_error(replay_mode: None) -> None:
    for F in (Exp, PureExp):
        for change in (
            lambda y: y.mul_(2.0),
            lambda y: y[:1].zero_(),
            lambda y: y.detach().zero_(),
        ):
            for _ in range(3):
                x = leaf(X)
                y = F.apply(x)
                total = y.sum()
                change(y)
                with pytest.raises(
                    GradientError, match=r"output 0 of \w*ExpBackward, is at version 1; expected"
                ):
                    total.backward()
                with pytest.raises(GradientError, match="modified by an inplace operation"):
                    y.sum().backward()
        x = leaf(X)
        with fad.autograd.allow_mutation_on_saved_tensors():
            y = F.apply(x)
        y.mul_(2.0)
        y.sum().backward()
        assert_close(x.grad, 2 * jnp.exp(X))

        def f(x: Any, F: Any = F) -> Any:
            y = F.apply(x)
            y.mul_(2.0)
            return y.sum()

        with pytest.raises(GradientError, match="modified by an inplace operation"):
            fad.grad(f)(X)


def test_an_output_that_was_changed_may_have_been_kept_in_another_way() -> None:
    class Attribute(fad.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.out = fnp.exp(x)
            return ctx.out

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * ctx.out

    x = leaf(X)
    Attribute.apply(x).mul_(2.0).sum().backward()
    assert_close(x.grad, 2 * jnp.exp(X))
