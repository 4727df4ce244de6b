"""``check_operation`` compares hand-written rules with derived ones, and says where they differ."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad import extend

X = jnp.array([0.5, 1.0, -2.0])


@pytest.mark.parametrize(
    ("rules", "where"),
    [
        ({"jvp": lambda p, t: (p[0] ** 2, p[0] * t[0])}, "jvp"),
        ({"vjp": (lambda x: (x**2, x), lambda x, g: (g * x,))}, "vjp"),
        ({"batch": lambda size, dims, x: (x**2 + 1.0, dims[0])}, "vmap"),
        ({"batch": lambda size, dims, x: (x**2, 0)}, "vmap over the last"),
    ],
    ids=["jvp", "vjp", "batch", "dims"],
)
def test_check_operation_finds_a_wrong_rule(rules, where):
    op = extend.operation(**rules)(lambda x: x**2)
    with pytest.raises(fad.testing.OperationError, match=where):
        fad.testing.check_operation(op, X[:, None] * X)


def test_right_rules_pass_in_all_arguments_and_structures():
    @extend.operation(
        jvp=lambda p, t: (p[0]["a"] * p[1], t[0]["a"] * p[1] + p[0]["a"] * t[1]),
        vjp=(lambda x, y: (x["a"] * y, (x, y)), lambda r, g: ({"a": g * r[1]}, g * r[0]["a"])),
    )
    def product(x, y):
        return x["a"] * y

    fad.testing.check_operation(product, {"a": X}, X + 1.0)
    fad.testing.check_operation(product, {"a": X + 1j}, X - 2j)


def test_integers_are_batched_and_not_differentiated():
    @extend.operation(jvp=lambda p, t: (p[0] * p[1], t[0] * p[1]))
    def scaled(x, n):
        return x * n

    fad.testing.check_operation(scaled, X, np.array([1, 2, 3]))


def test_a_rule_that_is_wrong_in_one_argument_is_named_with_it():
    @extend.operation(jvp=lambda p, t: (p[0] * p[1], t[0] * p[1] + 2.0 * p[0] * t[1]))
    def product(x, y):
        return x * y

    with pytest.raises(fad.testing.OperationError, match="product under jvp"):
        fad.testing.check_operation(product, X, X + 1.0)
    with pytest.raises(AssertionError):  # as test runners have it
        fad.testing.check_operation(product, X, X + 1.0, rtol=1e-3)
    fad.testing.check_operation(product, X, X + 1.0, rtol=1e3, atol=1e3)


def test_what_is_no_operation_is_refused():
    with pytest.raises(TypeError, match=r"not made by fad\.extend\.operation"):
        fad.testing.check_operation(jnp.sin, X)
