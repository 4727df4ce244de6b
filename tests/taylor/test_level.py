"""The level of Taylor mode: Functions, and what it says of its Tensors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.taylor.level import JetLevel
from tests.fuzzing.functions import FUNCTIONS

X = jnp.array([0.3, -0.8, 1.2])


def test_flatten_and_unflatten() -> None:
    with JetLevel(3) as level:
        for coefficients in ([], [X], [X, 2 * X, 3 * X]):
            t = level.curve(X, coefficients)
            parts, rest = level.flatten(t)
            again = level.unflatten(rest, iter(parts))
            assert_close(level.unpack(again), (X, tuple(coefficients)))
            assert len(parts) == 1 + len(coefficients)
            assert (level.tangent(t) is None) == (not coefficients)
        assert level.unpack(X) == (X, ())
    assert level.settings == JetLevel(*level.settings).settings != JetLevel(2).settings


def test_only_what_may_not_be_zero_is_computed() -> None:
    with JetLevel(5) as level:
        x = level.curve(X, [X])
        assert [len(level.unpack(y)[1]) for y in (x + 1.0, x * x, fnp.sum(x**3))] == [1, 2, 3]
        assert len(level.unpack(fnp.sin(x))[1]) == 5
        assert level.unpack(fnp.argmax(x))[1] == ()


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_a_function_gives_what_its_formula_gives(name: str) -> None:
    function = FUNCTIONS[name]
    f = lambda x: function.apply(x, x * 0.5 + 1.0)
    third = fad.derivatives(f, X, 3)
    ones = jnp.ones(3)
    first = lambda x: fad.jvp(f, (x,), (ones,))[1]
    second = lambda x: fad.jvp(first, (x,), (ones,))[1]
    expected = [f(X), *fad.jvp(first, (X,), (ones,)), fad.jvp(second, (X,), (ones,))[1]]
    assert_close(third, expected, rtol=1e-3, atol=1e-4)


class Unstable(fad.Function):
    """x**3 / 3, with a derivative of its own: 10 x**2, so that it shows which rule runs."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x**3 / 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 10 * x**2


def test_a_function_s_own_rule_is_used() -> None:
    found = fad.derivatives(Unstable.apply, 2.0, 4)
    np.testing.assert_allclose([float(y) for y in found], [8 / 3, 40.0, 40.0, 20.0, 0.0], rtol=1e-5)


def test_one_that_leaves_jax() -> None:
    class Host(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return fad.asarray(np.sin(x.detach().numpy()))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx: Any, x_t: Any) -> Any:
            (x,) = ctx.saved_tensors
            return x_t * fnp.cos(x)

    assert_close(fad.derivatives(Host.apply, X, 3), fad.derivatives(fnp.sin, X, 3), rtol=1e-5)
