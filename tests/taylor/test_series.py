"""Series of single functions, against derivatives by JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fad
from fad.taylor.series import RULES, series_of

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mul": lambda x: x * jnp.sin(x),
    "dot_general": lambda x: jnp.outer(x, x) @ jnp.exp(x),
    "conv_general_dilated": lambda x: jnp.convolve(x, x),
    "div": lambda x: jnp.cos(x) / (2.0 + x * x),
    "square": lambda x: lax.square(jnp.exp(x)),
    "integer_pow": lambda x: jnp.stack([x**5, (2.0 + x) ** -3, x**2]),
    "sqrt": lambda x: lax.sqrt(2.0 + x * x),
    "exp": lambda x: lax.exp(x * x),
    "exp2": lambda x: lax.exp2(x * x),
    "expm1": lambda x: lax.expm1(x * x),
    "tanh": lambda x: lax.tanh(x * x),
    "tan": lambda x: lax.tan(0.5 * x),
    "logistic": lambda x: lax.logistic(x * x),
    "sin": lambda x: lax.sin(x * x),
    "cos": lambda x: lax.cos(x * x),
    "sinh": lambda x: lax.sinh(x * x),
    "cosh": lambda x: lax.cosh(x * x),
    "cond": lambda x: lax.cond(x[0] > 0, lambda x: (x * x, 1), lambda x: (x, 2), x),
    "while": lambda x: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * x, c[1] + 1), (x, 0)),
    "scan": lambda x: lax.scan(lambda c, v: (c * v, (c, v * x)), 2.0, x, reverse=True),
    "derived: log": lambda x: lax.log(2.0 + x),
    "pow": lambda x: (2.0 + x) ** x,
    "derived: pow": lambda x: (2.0 + x) ** 2.5,
    "derived: pow at 0": lambda x: (x - x[0]) ** 4.0,
    "derived: max": lambda x: lax.max(x, x * x),
    "derived: linear": lambda x: x.reshape(1, 3).sum(0)[::-1] - jnp.concatenate([x[1:], x[:1]]),
    "derived: custom_jvp": jax.nn.softplus,
    "derived: eigenvalues": lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x) + jnp.diag(x)),
    "constant": lambda x: jnp.arange(3.0),
}
X = jnp.array([0.3, -0.8, 1.2])
V = jnp.array([1.0, 0.5, -0.7])


def test_each_rule_is_here() -> None:
    assert set(RULES) <= set(FUNCTIONS)


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_series_are_derivatives_over_factorials(name: str) -> None:
    def flat(x: Any) -> tuple[Any, ...]:
        return tuple(jax.tree.leaves(FUNCTIONS[name](x)))

    found, single = series_of(flat, 3, [X], [[V, None, None]])
    assert not single
    g: Callable[[Any], Any] = lambda t: [
        y for y in flat(X + t * V) if jnp.issubdtype(y.dtype, np.inexact)
    ]
    kept = [s for s in found if jnp.issubdtype(s[0].dtype, np.inexact)]
    for k, factorial in enumerate((1, 1, 2, 6)):
        for s, expected in zip(kept, jax.jit(g)(0.0), strict=True):
            mine = np.zeros(expected.shape) if s[k] is None else np.asarray(s[k] * factorial)
            scale = max(1.0, float(jnp.max(jnp.abs(expected))))
            np.testing.assert_allclose(mine / scale, expected / scale, rtol=1e-3, atol=2e-4)
        g = (lambda g: lambda t: jax.jvp(g, (t,), (1.0,))[1])(g)


def test_a_singular_derivative_behind_one_that_is_zero() -> None:
    """Zeros times an infinite derivative of singular values that are equal would be NaN."""

    def f(x: Any) -> Any:
        return jnp.linalg.svd(jax.lax.stop_gradient(x) * jnp.eye(3))[1].sum() * x**2

    assert fad.derivatives(fad.from_jax(f), 2.0, 3) == [24.0, 24.0, 12.0, 0.0]


def test_one_array_is_single() -> None:
    found, single = series_of(jnp.sin, 1, [X], [[V]])
    assert single and len(found) == 1
