"""Arguments of a compiled function: which are static, and the options that say so."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from helpers import assert_close, counted

import fad
import fad.numpy as fnp
from fad.errors import StructureError

X = jnp.array([0.3, -0.5, 0.7])


def scaled(x, mode, k=2):
    return fnp.sin(x) * k if mode == "sin" else fnp.cos(x) * k


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1, 2)},
        {"static_argnums": (1, -1)},
        {"static_argnames": ("mode", "k")},
        {"static_argnums": 1, "static_argnames": "k"},
        {},  # a string is static without being named
    ],
)
def test_static_arguments_by_position_and_by_name(options):
    f, traces = counted(scaled, **options)
    assert_close(f(X, "sin"), 2 * jnp.sin(X))
    assert_close(f(X + 1, mode="sin"), 2 * jnp.sin(X + 1))
    assert_close(f(X, "cos", k=3), 3 * jnp.cos(X))
    before = len(traces)
    assert_close(f(X + 2, "cos", k=3), 3 * jnp.cos(X + 2))
    assert len(traces) == before
    assert_close(f(X, "cos", k=4), 4 * jnp.cos(X))
    assert len(traces) == before + (1 if options else 0)


def test_equal_static_values_of_different_types_are_different_programs():
    f = fad.jit(lambda x, k: x * (10 if k is True else 1), static_argnums=1)
    assert_close(f(X, 1), X)
    assert_close(f(X, True), 10 * X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"static_argnums": 3}, r"static_argnums=3 is out of range: .* 3 positional"),
        ({"static_argnames": "nope"}, "has no argument 'nope', it has k, mode, x"),
        ({"donate_argnums": -4}, "donate_argnums=-4 is out of range"),
        ({"static_argnums": 1, "donate_argnames": "mode"}, "'mode' is both static and donated"),
    ],
)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(StructureError, match=message):
        fad.jit(scaled, **options)


def test_a_static_argument_must_be_hashable():
    with pytest.raises(TypeError, match="a static argument must be hashable, got list"):
        fad.jit(scaled, static_argnums=1)(X, [1])
    with pytest.raises(TypeError, match="must be a function, got int 3"):
        fad.jit(3)
