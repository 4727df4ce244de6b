"""Operators, on either side of what they take, and methods that are functions of `fad.numpy`."""

from __future__ import annotations

import copy
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.methods.operators import MEMBERS

VALUES = np.array([0.5, 2.0, 3.0], np.float32)
INTEGERS = np.array([1, 2, 5], np.int32)


def x_(**options):
    return fad.tensor(VALUES, **options)


OPERATORS = [getattr(operator, n) for n in "add sub mul truediv floordiv mod pow eq lt ge".split()]


@pytest.mark.parametrize("op", [*OPERATORS, divmod], ids=lambda op: op.__name__)
def test_operators_with_numpy_on_either_side_give_tensors(op):
    x = x_()
    numbers = [np.float32(2), np.float64(2), np.int32(2), 2.0]
    for other in (*numbers, VALUES[::-1].copy(), VALUES[:, None].copy()):
        for got, expected in (
            (op(other, x), op(other, x.array)),
            (op(x, other), op(x.array, other)),
        ):
            assert all(isinstance(g, fad.Tensor) for g in (got if op is divmod else [got]))
            assert_close(got, expected)


def test_matrix_products_with_numpy_keep_derivatives():
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = x_(requires_grad=True)
    y = m @ x
    assert isinstance(y, fad.Tensor)
    y.sum().backward()
    assert_close(x.grad, m.sum(0))
    assert_close((x @ m.T).detach(), m @ VALUES)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_operators_of_integers(name: str) -> None:
    op = getattr(operator, name)
    x = fad.tensor(INTEGERS)
    for other in (2, np.int32(1), INTEGERS[::-1].copy()):
        assert_close(op(x, other), op(x.array, other))
        assert_close(op(other, x), op(other, x.array))


@pytest.mark.parametrize("name", ["neg", "pos", "abs", "invert"])
def test_unary_operators(name: str) -> None:
    op = getattr(operator, name)
    data = INTEGERS if name == "invert" else VALUES - 1
    assert_close(op(fad.tensor(data)), op(jnp.asarray(data)))


def test_comparisons_with_what_has_no_counterpart() -> None:
    x = x_()
    assert (x == "a") is False and (x != None) is True  # noqa: E711
    for op in (operator.add, operator.lt, operator.matmul, operator.iadd):
        for other in ("a", None, {1.0, 2.0}, {}):
            with pytest.raises(TypeError, match=r"not supported|unsupported operand"):
                op(x, other)
    assert_close(x, VALUES)  # a failed call changes nothing


def test_a_list_is_an_array() -> None:
    """As in NumPy."""
    x, other = x_(), [1.0, 2.0, 3.0]
    for op in (operator.add, operator.mul, operator.truediv, operator.lt, operator.eq):
        assert op(x, other).tolist() == op(VALUES, other).tolist()
        assert op(other, x).tolist() == op(other, VALUES).tolist()
    assert (x @ other).item() == VALUES @ other
    slopes = fad.grad(lambda x: (x * (x[0], 2.0, 3.0)).sum())(x)
    assert slopes.tolist() == [2 * VALUES[0], 2.0, 3.0]
    x += other
    assert x.tolist() == (VALUES + other).tolist()


def test_the_other_side_is_asked() -> None:
    class Other:
        def __radd__(self, x: Any) -> Any:
            return "theirs"

        __rmatmul__ = __iadd__ = __gt__ = __radd__

    x = x_()
    assert x + Other() == x @ Other() == (x < Other()) == "theirs"
    x += Other()
    assert x == "theirs"


def test_an_array_of_jax_on_the_left_gives_a_tensor_with_its_history() -> None:
    x = leaf(VALUES)
    y = jnp.asarray(VALUES) * x - jnp.float32(1.0) + x
    assert isinstance(y, fad.Tensor)
    y.sum().backward()
    assert_close(x.grad, VALUES + 1)


@pytest.mark.parametrize(
    "name", [n for n in MEMBERS if n.startswith("__i") and n not in ("__invert__", "__iter__")]
)
def test_augmented_operators_change_their_tensor(name: str) -> None:
    op = getattr(operator, name.strip("_"), None) or getattr(operator, name.strip("_") + "_", None)
    integers = name.strip("_") in ("iand", "ior", "ixor", "ilshift", "irshift")
    data = INTEGERS if integers else np.eye(3, dtype=np.float32) * 2
    other = 1 if integers else data + 1
    x = fad.tensor(data)
    alias = x.detach()
    same = op(x, other)
    assert same is x and x.version == 1
    assert_close(alias, op(copy.copy(jnp.asarray(data)), other))


def test_methods_keep_history_and_take_keywords() -> None:
    x = leaf(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    x.sum(axis=0, keepdims=True).max().backward()
    assert_close(x.grad, np.float32([[0, 0, 1], [0, 0, 1]]))
    assert_close(fad.vmap(lambda r: r.mean() + r.std(ddof=1))(x.detach()), np.float32([2.0, 5.0]))


def test_parts_of_complex_numbers_are_assigned() -> None:
    z = fad.tensor(np.array([1 + 2j, 3 - 1j], np.complex64))
    z.real = VALUES[:2]
    z.imag += 1.0
    assert_close(z, np.array([0.5 + 3j, 2 + 0j], np.complex64))
    x = x_()
    x.real = VALUES[::-1].copy()
    assert_close(x, VALUES[::-1].copy())
    with pytest.raises(TypeError, match=r"imag: Tensor float32\[3\] has no imaginary part"):
        x.imag = 1.0
    assert_close(fnp.sum(x), VALUES.sum())


def test_operators_of_levels_and_traced_code() -> None:
    f = lambda x: -((2.0 / x + x // 1.0) ** 2 @ (x > 1.0)) % 3.0 + abs(x - 1).sum()
    expected = jax.grad(f)(jnp.asarray(VALUES))
    assert_close(fad.grad(f)(VALUES), expected)
    assert_close(fad.jit(fad.grad(f))(VALUES), expected)
    assert_close(fad.jvp(f, (VALUES,), (VALUES,)), jax.jvp(f, (VALUES,), (VALUES,)))
