"""Hand-written rules in JAX's forms: each is used where it is asked for, and derived where it is missing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
from fad.core.level import bind
from fad.core.primitive import Primitive, Rules

X = jnp.array([0.3, -0.8, 1.2])
G = jnp.array([1.0, 2.0, -1.0])
# Of sin(x), but for a factor, which shows which of them ran.
FORWARD, REVERSE, BATCH = 2.0, 3.0, 5.0


def sin_jvp(primals: Any, tangents: Any) -> Any:
    return jnp.sin(primals[0]), FORWARD * jnp.cos(primals[0]) * tangents[0]


SIN_VJP = (lambda x: (jnp.sin(x), x), lambda x, g: (REVERSE * jnp.cos(x) * g,))


def sin_batch(size: int, dims: Any, x: Any) -> Any:
    return BATCH * jnp.sin(x), dims[0]


def sine(**rules: Any) -> Any:
    primitive = Primitive("sine", jnp.sin, rules=Rules({}, **rules))
    return lambda x: bind(primitive, (x,))


def slopes(f: Any) -> tuple[Any, Any]:
    """The factors of the derivatives of ``f``: forward, reverse."""
    forward = fad.jvp(f, (X,), (G,))[1] / (jnp.cos(X) * G)
    reverse = fad.vjp(f, X)[1](G)
    reverse = (reverse[0] if isinstance(reverse, tuple) else reverse) / (jnp.cos(X) * G)
    return forward, reverse


@pytest.mark.parametrize(
    "rules, forward, reverse",
    [
        ({}, 1.0, 1.0),
        ({"jvp": sin_jvp}, FORWARD, FORWARD),  # the vjp is its transpose
        ({"vjp": SIN_VJP}, 1.0, REVERSE),
        ({"jvp": sin_jvp, "vjp": SIN_VJP}, FORWARD, REVERSE),
    ],
    ids=["none", "jvp", "vjp", "both"],
)
def test_derivatives_use_the_rules_that_there_are(
    rules: Any, forward: float, reverse: float
) -> None:
    f = sine(**rules)
    assert_close(f(fad.tensor(X)), jnp.sin(X))
    assert_close(slopes(f), (jnp.full(3, forward), jnp.full(3, reverse)))
    # Lanes have the same derivatives.
    assert_close(fad.vmap(fad.grad(f))(X), reverse * jnp.cos(X))
    assert_close(fad.vmap(lambda x: fad.jvp(f, (x,), (x,))[1])(X), forward * jnp.cos(X) * X)


def test_a_batch_rule_is_that_of_the_values_alone() -> None:
    f = sine(batch=sin_batch)
    assert_close(f(fad.tensor(X)), jnp.sin(X))
    assert_close(fad.vmap(f)(X), BATCH * jnp.sin(X))


def test_the_batch_of_an_output_may_be_anywhere() -> None:
    x = jnp.arange(6.0).reshape(2, 3)

    def of(size: int, dims: Any, x: Any, y: Any) -> Any:
        assert (size, dims) == (3, (1, None))
        return (x, jnp.moveaxis(x, 1, 0), y), (1, 0, None)

    batched = Rules({}, batch=of).batched(3, (1, None))
    assert batched is not None
    a, b, c = batched(x, jnp.float32(4.0))
    assert_close((a, b, c), (x.T, x.T, jnp.full(3, 4.0)))
    single = Rules({}, batch=lambda size, dims, x: (x, 1)).batched(3, (1,))
    assert single is not None
    assert_close(single(x), x.T)
    assert Rules({}).batched(3, (0,)) is None


def test_without_a_rule_the_function_is_the_one_given() -> None:
    assert Rules({}).to_jvp(jnp.sin) is jnp.sin and Rules({}).to_vjp(jnp.sin) is jnp.sin
    made = Rules({}, jvp=sin_jvp).to_vjp(jnp.sin)
    assert_close(jax.grad(made)(0.5), FORWARD * jnp.cos(0.5))
