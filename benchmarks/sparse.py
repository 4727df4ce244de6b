"""Sparse Jacobians and Hessians, and the entries of dense ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
from benchmarks.libraries import Library
from benchmarks.scenarios import Scenario

__all__ = ["SCENARIOS"]

CELLS = 2000
FIELD = np.random.default_rng(5).normal(size=CELLS).astype(np.float32)


def burgers(u: Any) -> Any:
    """A step of Burgers' equation, written in place."""
    new = u.clone()
    new[1:-1] -= 0.01 * u[1:-1] * (u[2:] - u[:-2]) / 2
    new[1:-1] += 0.001 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return new


def chain(x: Any) -> Any:
    """Rosenbrock's function."""
    return ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x) ** 2).sum()


def entries(
    sparse: Callable[..., Any], dense: Callable[..., Any], f: Callable[..., Any]
) -> Callable[[Library], Callable[[], Any]]:
    """The entries of a derivative; those of the dense one are picked from it when it is there."""

    def build(library: Library) -> Callable[[], Any]:
        x = jnp.asarray(FIELD)
        matrix = sparse(f)
        if library.name != "plain":
            return lambda: matrix(x).data
        rows, columns = matrix(x).indices.T
        full = fad.jit(dense(f))
        pick = jax.jit(lambda m: m[rows, columns])
        return lambda: pick(full(x))

    return build


def scenarios() -> Iterator[Scenario]:
    both, bounds = ("fad", "plain"), {"plain": 0.02}
    for work, what, sparse, dense, f in (
        (
            "step of Burgers' equation in place",
            "Jacobian",
            fad.sparse_jacobian,
            fad.jacfwd,
            burgers,
        ),
        ("Rosenbrock's function", "Hessian", fad.sparse_hessian, fad.hessian, chain),
    ):
        build = entries(sparse, dense, f)
        yield Scenario(f"{work}, n = {CELLS:,}", what, build, both, bounds)


SCENARIOS: list[Scenario] = [*scenarios()]
