"""Roles of arguments, and keys of those that are static."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from namespace_cases import A, V, tensors

import fad.numpy as fnp
from fad.arrays.arguments import (
    ARRAY,
    EXPONENT,
    LEAF,
    OPERAND,
    STATIC,
    STRUCTURE,
    Unhashable,
    freeze,
    role_of,
    thaw,
)


@pytest.mark.parametrize("args", [(V,), (tensors(V),), (np.asarray(V),)], ids=["jax", "fad", "np"])
def test_unhashable_static_arguments_are_named(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"fad\.numpy\.sum.*'axis'.*set \{0\}.*frozenset or a tup"):
        fnp.sum(*args, axis={0})
    with pytest.raises(TypeError, match=r"'axis'.*bytearray"):
        fnp.sum(*args, bytearray(b"0"))


def parameter(annotation: Any, name: str = "x", default: Any = inspect.Parameter.empty) -> Any:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


@pytest.mark.parametrize(
    ("annotation", "name", "default", "role"),
    [
        ("ArrayLike", "x", None, ARRAY),
        ("ArrayLike | None", "where", None, ARRAY),
        ("Sequence[ArrayLike]", "arrays", None, ARRAY),
        (jax.Array, "x", None, ARRAY),
        (jax.typing.ArrayLike, "x", None, ARRAY),
        (str(jax.typing.ArrayLike), "x", None, ARRAY),
        ("RealArray", "p", None, ARRAY),
        ("int | ArrayLike", "k", 0, STRUCTURE),
        ("tuple[ArrayLike, bool]", "c_and_lower", None, STRUCTURE),
        ("int | Sequence[int] | np.ndarray", "bp", 0, STATIC),
        ("int", "n", 0, STATIC),
        ("Axis", "axis", None, STATIC),
        ("DTypeLike | None", "dtype", None, STATIC),
        (int, "n", 0, STATIC),
        ("Any", "shape", None, STATIC),
        ("Any", "object", None, ARRAY),
        (inspect.Parameter.empty, "axis", None, STATIC),
        (inspect.Parameter.empty, "x", None, ARRAY),
        (inspect.Parameter.empty, "flag", True, STATIC),
        (inspect.Parameter.empty, "loc", 0, ARRAY),
    ],
)
def test_roles_come_from_annotations(annotation: Any, name: str, default: Any, role: int) -> None:
    assert role_of(parameter(annotation, name, default)) == role


@pytest.mark.parametrize("role", [STATIC, STRUCTURE, OPERAND, EXPONENT, ARRAY])
def test_a_key_makes_its_argument_again(role: int) -> None:
    values = [
        1, 2.5, True, None, "a", 1j, float("nan"), (1, 2), [1, (2.0, "x")], slice(1, None, 2),
        {"a": 1, "b": [2]}, np.float32(1.5), np.arange(3), V, (V, [V, 1]), np.dtype("int8"),
        jnp.linalg.eigh(A), jax.lax.Precision.HIGH, Ellipsis, 2**40, np.bool_(True), (),
    ]  # fmt: skip
    for value in values:
        leaves: list[Any] = []
        key = freeze(value, role, leaves)
        hash(key)
        again = thaw(key, iter(leaves))
        expected = np.asarray(value).item() if isinstance(value, np.generic) else value
        leaves_a, _ = jax.tree_util.tree_flatten(again)
        leaves_b, _ = jax.tree_util.tree_flatten(expected)
        assert repr(leaves_a) == repr(leaves_b) or isinstance(value, np.generic)
        if isinstance(value, jax.Array):
            assert key is LEAF


def test_freeze_refuses_what_has_no_hash() -> None:
    with pytest.raises(Unhashable):
        freeze({1, 2}, STATIC, [])


@pytest.mark.parametrize("name", ["sum", "argmax", "cumsum"])
def test_an_axis_without_an_array_misses_the_array(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) missing 1 required positional argument: 'a'"):
        getattr(fnp, name)(axis=5)
