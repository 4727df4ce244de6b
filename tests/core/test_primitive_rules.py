"""Hand-written rules in JAX's forms: each is used where it is asked for, and derived where it is missing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
from fad.core.level import bind
from fad.core.primitive import Primitive

X = jnp.array([0.3, -0.8, 1.2])
G = jnp.array([1.0, 2.0, -1.0])
# Of sin(x), but for a factor, which shows which of them ran.
FORWARD, REVERSE, BATCH = 2.0, 3.0, 5.0


def custom_jvp() -> Any:
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda x, t: (jnp.sin(*x), FORWARD * jnp.cos(*x) * t[0]))
    return f


def custom_vjp() -> Any:
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (REVERSE * jnp.cos(x) * g,))
    return f


def sine(**rules: Any) -> Any:
    primitive = Primitive("sine", jnp.sin, **rules)
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
        ({"custom_jvp": custom_jvp()}, FORWARD, FORWARD),  # the vjp is its transpose
        ({"custom_vjp": custom_vjp()}, 1.0, REVERSE),
        ({"custom_jvp": custom_jvp(), "custom_vjp": custom_vjp()}, FORWARD, REVERSE),
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
    asked = []

    def custom_vmap(size: int, dims: Any) -> Any:
        asked.append((size, dims))
        return lambda x: BATCH * jnp.sin(x)

    f = sine(custom_vmap=custom_vmap)
    assert_close(f(fad.tensor(X)), jnp.sin(X))
    assert asked == []
    assert_close(fad.vmap(f)(X), BATCH * jnp.sin(X))
    assert asked == [(3, (0,))]


def test_a_batch_rule_of_several_outputs() -> None:
    x = jnp.arange(6.0).reshape(2, 3)

    def custom_vmap(size: int, dims: Any) -> Any:
        assert (size, dims) == (3, (1, None))
        return lambda x, y: {"rows": BATCH * x.T, "same": jnp.full(size, y)}

    primitive = Primitive("pair", lambda x, y: {"rows": x, "same": y}, custom_vmap=custom_vmap)
    rows, same = fad.vmap(lambda x, y: bind(primitive, (x, y)), in_dims=(1, None))(x, 4.0)
    assert_close((rows, same), (BATCH * x.T, jnp.full(3, 4.0)))
