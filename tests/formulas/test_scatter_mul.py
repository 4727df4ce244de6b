"""Products at indices that repeat: derivatives of every order, also where factors are 0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.lax
import fad.numpy as fnp

X = np.array([[2.0, 0.0], [3.0, 1.5], [0.5, -1.0]], np.float32)
V = np.array([[2.0, 3.0], [0.0, 5.0], [4.0, 0.0], [0.0, 0.5]], np.float32)
ROWS = np.array([0, 0, 2, 0])
NUMBERS = jax.lax.ScatterDimensionNumbers((1,), (0,), (0,))


def product(x: Any, v: Any) -> Any:
    """One multiplication after the other, by JAX."""
    for k, row in enumerate(ROWS):
        x = x.at[row].multiply(v[k])
    return x


def quotient(x: Any, v: Any) -> Any:
    return x / product(jnp.ones_like(x), v)


PROGRAMS = {
    "at": (lambda x, v: x.at[ROWS].multiply(v), product),
    "at, negative": (lambda x, v: x.at[ROWS - 3].multiply(v), product),
    "at, too large": (
        lambda x, v: x.at[np.array([0, 0, 2, 0, 7])].multiply(fnp.concatenate([v, v[:1]])),
        product,
    ),
    "divide": (lambda x, v: x.at[ROWS].divide(v + 6.0), lambda x, v: quotient(x, v + 6.0)),
    "multiply.at": (lambda x, v: fnp.multiply.at(x, ROWS, v, inplace=False), product),
    "scatter_mul": (lambda x, v: fad.lax.scatter_mul(x, ROWS[:, None], v, NUMBERS), product),
    "index_reduce": (lambda x, v: fad.asarray(x).index_reduce(0, ROWS, v, "prod"), product),
    "scatter_reduce": (
        lambda x, v: fad.asarray(x).scatter_reduce(0, np.repeat(ROWS[:, None], 2, 1), v, "prod"),
        product,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_products(name: str) -> None:
    program, by_jax = PROGRAMS[name]
    assert_close(program(jnp.asarray(X), jnp.asarray(V)), by_jax(jnp.asarray(X), jnp.asarray(V)))

    def loss(f: Any) -> Any:
        return lambda x, v: (f(x, v) ** 2).sum() + (f(x, v)[0] * 3.0).sum()

    found = fad.grad(loss(program), (0, 1))(X, V)
    expected = jax.jit(jax.grad(loss(by_jax), (0, 1)))(jnp.asarray(X), jnp.asarray(V))
    for got, want in zip(found, expected, strict=True):
        assert_close(got, want, rtol=1e-4)


def test_second_derivatives_and_batches() -> None:
    program, by_jax = PROGRAMS["at"]
    args = (jnp.asarray(X), jnp.asarray(V))
    ours = fad.hessian(lambda v: (program(fad.tensor(X), v) ** 2).sum())(args[1])
    theirs = jax.jit(jax.hessian(lambda v: (by_jax(args[0], v) ** 2).sum()))(args[1])
    assert_close(ours, theirs, rtol=1e-4)
    mixed = lambda f, lib: lib.jacrev(lib.grad(lambda x, v: (f(x, v) ** 2).sum(), 0), 1)(*args)
    assert_close(mixed(program, fad), jax.jit(lambda: mixed(by_jax, jax))(), rtol=1e-4)
    rows = jnp.array([[0, 0, 2, 0], [1, 1, 1, 2]])
    slopes = fad.grad(lambda rows, v: fad.tensor(X).at[rows].multiply(v).sum(), 1)
    found = fad.vmap(slopes, (0, None))(rows, args[1])
    assert_close(found, jnp.stack([slopes(row, args[1]) for row in rows]))


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_as_in_pytorch(torch: Any) -> None:
    """Zeros among the factors and in what they are multiplied into, and ``include_self``."""
    index = np.array([[0, 1], [0, 1], [2, 1], [0, 0]])
    for include_self in (True, False):
        for name, where in (("scatter_reduce", index), ("index_reduce", ROWS)):
            results = []
            for library in (torch, fad):
                x = library.tensor(X, requires_grad=True)
                v = library.tensor(V, requires_grad=True)
                at = library.tensor(where)
                y = getattr(x, name)(0, at, v, "prod", include_self=include_self)
                (y * y + 3 * y).sum().backward()
                results.append([t.detach().numpy() for t in (y, x.grad, v.grad)])
            for got, want in zip(*reversed(results), strict=True):
                assert_close(got, want, rtol=1e-4)
