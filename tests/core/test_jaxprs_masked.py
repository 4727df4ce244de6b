"""jvp and vjp in some of the arguments, against JAX's in all of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

from fad.core.jaxprs import conjugate, jvp_in, run_pullback, vjp_in

X = jnp.array([0.3, -0.8, 1.2])
Y = jnp.array([1.5, 2.0, -1.0])


def f(x: Any, n: Any, y: Any) -> Any:
    return jnp.sin(x) * y, jnp.argmax(x), (x + y) ** n


@pytest.mark.parametrize("mask", [(True, False, True), (True, False, False), (False, False, True)])
def test_the_other_arguments_are_fixed(mask: tuple[bool, ...]) -> None:
    zero = jnp.zeros(3)
    tangents = [Y, X]
    given = [t for t, m in zip(tangents, (mask[0], mask[2]), strict=True) if m]
    expected = jax.jvp(
        lambda x, y: f(x, 2, y), (X, Y), (Y if mask[0] else zero, X if mask[2] else zero)
    )
    assert_close(jvp_in(mask, f, [X, 2, Y], given), expected)
    out, pullback = vjp_in(mask, f, [X, 2, Y])
    assert_close(out, expected[0])
    _, whole = jax.vjp(lambda x, y: f(x, 2, y), X, Y)
    cts = (X, jnp.zeros((), jax.dtypes.float0), Y)
    wanted = tuple([g for g, m in zip(whole(cts), (mask[0], mask[2]), strict=True) if m])
    assert_close(
        run_pullback(pullback, out, [X, Y], (True, False, True), (True,) * sum(mask)), wanted
    )


def test_tangents_and_cotangents_have_the_dtypes_of_what_they_belong_to() -> None:
    half = X.astype(jnp.float16)
    _, tangent = jvp_in((True,), jnp.sin, [half], [Y])
    out, pullback = vjp_in((True,), jnp.sin, [half])
    (gradient,) = run_pullback(pullback, out, [Y], None, (True,))
    assert tangent.dtype == gradient.dtype == jnp.float16


def test_gradients_that_are_not_needed_are_left_out() -> None:
    out, pullback = vjp_in((True, True), jnp.multiply, [X, Y])
    assert_close(run_pullback(pullback, out, [X], None, (False, True)), (X * X,))


def test_gradients_of_complex_values_are_the_conjugates_of_those_of_jax() -> None:
    z = jnp.array([1 + 2j])
    out, pullback = vjp_in((True,), lambda z: z * z, [z])
    (gradient,) = run_pullback(pullback, out, [jnp.ones_like(z)], None, (True,))
    assert_close(gradient, jnp.conj(2 * z))
    assert_close(conjugate(z), jnp.conj(z))
    assert conjugate(X) is X
