"""Patterns that Functions declare: used where there is one, batched, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax.experimental import sparse

import fad
import fad.numpy as fnp
from fad.errors import RuleError
from fad.testing import check_function


class Shift(fad.Function):
    """x[i] * x[i + 1] y[0], by a sort that has no effect, so that the operations couple all."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        order = fnp.argsort(fnp.arange(x.shape[0]) + 0 * fnp.argmax(x))
        x = x[order]
        return x[:-1] * x[1:] * y[0]

    @staticmethod
    def sparsity(x: Any, y: Any) -> Any:
        n = x.shape[0]
        of_y = np.zeros((n - 1, *y.shape), bool)
        of_y[:, 0] = True
        return np.eye(n - 1, n, dtype=bool) | np.eye(n - 1, n, 1, dtype=bool), of_y


class SparseShift(Shift):
    """The same as a BCOO."""

    @staticmethod
    def sparsity(x: Any, y: Any) -> Any:
        return tuple([sparse.BCOO.fromdense(p) for p in Shift.sparsity(x, y)])


class Undeclared(Shift):
    sparsity = None  # type: ignore[assignment]


X, Y = jnp.arange(1.0, 5.0), jnp.array([2.0, 3.0])
BAND = np.eye(3, 4, dtype=int) + np.eye(3, 4, 1, dtype=int)


def pattern(f: Callable[..., Any], *args: Any, argnums: int = 0) -> np.ndarray:
    return np.asarray(fad.sparsity(f, argnums)(*args).todense())


@pytest.mark.parametrize("function", [Shift, SparseShift])
def test_it_is_the_pattern(function: Any) -> None:
    assert pattern(Undeclared.apply, X, Y).all()
    np.testing.assert_array_equal(pattern(function.apply, X, Y), BAND)
    np.testing.assert_array_equal(pattern(function.apply, X, Y, argnums=1), [[1, 0]] * 3)
    f = lambda x: function.apply(x**2, Y) + function.apply(x[::-1], x[:2])
    expected = BAND | BAND[:, ::-1] | np.array([[1, 0, 0, 0]] * 3)
    np.testing.assert_array_equal(pattern(f, X), expected)
    jacobian = fad.sparse_jacobian(f)
    expected = fad.jit(fad.jacfwd(f))(X)
    assert_close(jacobian(X).todense(), expected)
    assert_close(fad.jit(jacobian)(X).todense(), expected)


def test_of_a_batch_it_is_that_of_each_lane() -> None:
    x = jnp.stack([X, 2 * X], 1)
    for y, dim in ((Y, None), (jnp.stack([Y, Y]), 0)):
        f = lambda x, y, dim=dim: fad.vmap(Shift.apply, (1, dim))(x, y)
        for k in (0, 1):
            found = pattern(f, x, y, argnums=k)
            np.testing.assert_array_equal(found != 0, np.asarray(fad.jacfwd(f, k)(x, y)) != 0)
    inside = lambda x: fad.vmap(lambda a: fad.jvp(lambda a: Shift.apply(a, Y), (a,), (X,))[1])(x)
    assert pattern(inside, x.T).any()


def test_second_derivatives_go_through_the_operations() -> None:
    f = lambda x: fnp.sum(Shift.apply(x, Y))
    assert_close(fad.sparse_hessian(f)(X).todense(), fad.hessian(f)(X))


def test_check_function_finds_a_missing_entry() -> None:
    x, y = np.array([0.3, -0.5, 0.2]), np.array([1.5, 2.0])
    assert "sparsity" in check_function(Shift, x, y, laws=("sparsity",)).passed

    class Wrong(Shift):
        @staticmethod
        def sparsity(x: Any, y: Any) -> Any:
            return np.eye(x.shape[0] - 1, x.shape[0], dtype=bool), None

    report = check_function(Wrong, x, y, laws=("sparsity",), raise_exception=False)
    assert "Wrong.sparsity, argument 'x': the pattern lacks entry [0, 1]" in str(report)


BAD: dict[str, tuple[Any, str]] = {
    "one of two": (np.ones((3, 4)), r"Bad\.sparsity returned .*, expected 2 patterns in a tuple"),
    "a shape": ((np.ones((4, 3)), None), r"'x' has shape \(4, 3\), expected \(3, 4\)"),
    "a list": (
        ([[1]], None),
        "must be an array, a BCOO, a BCSR .* or None, got list",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_it_returns_is_checked(name: str) -> None:
    returned, message = BAD[name]

    class Bad(Shift):
        @staticmethod
        def sparsity(x: Any, y: Any) -> Any:
            return returned

    with pytest.raises(RuleError, match=message):
        fad.sparsity(Bad.apply)(X, Y)


def test_it_is_checked_when_the_class_is_made() -> None:
    with pytest.raises(RuleError, match=r"expected 2: sparsity\(x, y\)"):

        class _Arity(Shift):
            @staticmethod
            def sparsity(x: Any) -> Any: ...  # type: ignore[override]
