"""``check_sparse``: what is right passes, and each entry that a pattern lacks is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError
from fad.testing import SparsityError, check_sparse

X = jnp.arange(1.0, 6.0)
Z = jnp.array([1 + 2j, 3 - 1j, -1j])
PAIR = {"a": X, "b": X + 1}


def product(x: Any) -> Any:
    return x[1:] * x[:-1]


def coupled(p: Any) -> Any:
    return (fnp.sin(p["a"]) * p["b"]).sum() + p["a"][0] * p["a"][-1]


def mixed(p: Any) -> Any:
    return {"r": abs(p["z"]) * p["x"][:3], "c": p["x"].sum() * 1j}


RIGHT: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "jacobian": (product, (X,), {}),
    "in reverse": (lambda x: x.sum()[None] ** 2, (X,), {}),
    "two arguments": (lambda x, y, k: (x * y * k, y), (X, X), {"argnums": (0, 1), "k": 2.0}),
    "hessian": (coupled, (PAIR,), {"hessian": True}),
    "complex": (lambda z: z**2, (Z,), {}),
    "real of complex": (fnp.abs, (Z,), {}),
    "real and complex": (mixed, ({"z": Z, "x": X},), {}),
    "infinite entries": (lambda x: fnp.sqrt(x - 1), (X,), {}),
    "nothing": (lambda x: fnp.ones(3) * 2, (X,), {}),
    "more than there is": (fnp.sin, (X,), {"pattern": np.ones((5, 5))}),
}


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_pass(name: str, dense: bool) -> None:
    f, args, given = RIGHT[name]
    check_sparse(f, *args, dense=dense, **given)


class Wrong(fad.Function):
    """Declares too little."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x + x[::-1]

    @staticmethod
    def sparsity(x: Any) -> Any:
        return np.eye(*x.shape * 2)


def without(f: Callable[..., Any], x: Any, *entries: tuple[int, int], **given: Any) -> np.ndarray:
    pattern = fad.sparse_pattern(f, **given)(x)
    dense = np.zeros(pattern.shape, bool)
    dense[pattern.rows, pattern.cols] = True
    dense[tuple(np.transpose(entries))] = False
    return dense


def rows(x: Any) -> Any:
    return x.reshape(2, 3).sum(1) * 2.0


LACKING: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "of a band": (
        product,
        X,
        {"pattern": without(product, X, (2, 3))},
        r"1 entry that is not 0: output\[2\] by argument 0\[3\], which is 3.0",
    ),
    "in reverse": (
        rows,
        jnp.ones(6),
        {"pattern": without(rows, jnp.ones(6), (1, 3))},
        r"output\[1\] by argument 0\[3\], which is 2.0",
    ),
    "of a Hessian": (
        coupled,
        PAIR,
        {"hessian": True, "pattern": without(coupled, PAIR, (0, 4), (4, 0), hessian=True)},
        r"by argument 0\['a'\]\[[04]\], which is 1.0",
    ),
    "of a Function": (
        Wrong.apply,
        X,
        {},
        r"output\[\d\] by argument 0\[\d\], which is 1.0.*Function",
    ),
    "of complex numbers": (
        lambda z: z**2 + z[::-1],
        Z,
        {"pattern": np.eye(3)},
        r"which is \(1[+-]0j\)",
    ),
}


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", LACKING)
def test_each_missing_entry_is_named(name: str, dense: bool) -> None:
    f, x, given, message = LACKING[name]
    with pytest.raises(SparsityError, match=message):
        check_sparse(f, x, dense=dense, **given)


def test_many_missing_entries_are_counted() -> None:
    with pytest.raises(SparsityError, match=r"the pattern lacks 20 entries .*, and 16 more"):
        check_sparse(lambda x: x.sum() * x, X, pattern=np.eye(5), dense=True)


def test_what_is_not_a_function_of_its_arguments() -> None:
    draws = np.random.default_rng(0)
    with pytest.raises(SparsityError, match="the same at each call|differs from the dense"):
        check_sparse(lambda x: x * fad.from_jax(lambda x: x * draws.normal())(x), X)


def test_bad_calls() -> None:
    with pytest.raises(ArgumentError, match="probes must be an int greater than 0, got 0"):
        check_sparse(product, X, probes=0)
