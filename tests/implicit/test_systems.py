"""Linear systems at the level of JAX: the matrix, vectors of pytrees, and who may be a solver."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
from fad.implicit.systems import System, by_matrix, distance, from_vector, system_of, to_vector

LEAVES = [
    jnp.array([1.0 + 2.0j, 3.0 - 1.0j]),
    jnp.float32(4.0),
    jnp.array([[1.0], [2.0]], jnp.bfloat16),
    jnp.zeros((0, 2)),
]


def test_vectors_of_arrays() -> None:
    vector = to_vector(LEAVES)
    assert vector.dtype == jnp.float32
    assert_close(vector, jnp.array([1.0, 3.0, 2.0, -1.0, 4.0, 1.0, 2.0]))
    assert_close(from_vector(vector, LEAVES), LEAVES)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_the_matrix(size: int, positive: bool) -> None:
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.float32)
    a = a @ a.T + jnp.eye(size) if positive else a
    b = jnp.arange(1.0, size + 1.0)
    (x,) = by_matrix(lambda x: [a @ x[0]], [b], positive)
    assert_close(x, jnp.linalg.solve(a, b), rtol=1e-4)


def test_maps_that_are_linear_in_real_numbers_alone() -> None:
    mapped = lambda x: [x[0] + 0.5 * jnp.conj(x[0]) * 1j]
    b = jnp.array([1.0 + 1.0j, 2.0j])
    (x,) = by_matrix(mapped, [b], False)
    assert_close(mapped([x])[0], b)


def row(x: Any) -> jax.Array:
    return jnp.concatenate([jnp.ravel(v) for v in x])


@pytest.mark.parametrize(
    "names", list(itertools.product(["jacfwd", "jacrev"], repeat=2)), ids="-".join
)
def test_derivatives_solve_again(names: tuple[str, str]) -> None:
    """In the right side and in what the map closes over, without the steps of the solver."""
    a = jnp.array([[3.0, 1.0], [0.5, 2.0]])
    runs: list[int] = []

    def solver(matvec: Any, b: Any) -> Any:
        runs.append(1)
        return fad.lax.while_loop(  # which JAX could not differentiate in reverse mode
            lambda s: s[1] < 60, lambda s: (s[0] + 0.3 * (b - matvec(s[0])), s[1] + 1), (0 * b, 0)
        )[0]

    system = system_of("who", solver)

    def ours(p: Any) -> Any:
        b = [p * jnp.arange(1.0, 3.0)]
        return row(system.solve("who", lambda x: [p * a @ x[0] + x[0]], b, jax.tree.structure(0)))

    def theirs(p: Any) -> Any:
        return jnp.linalg.solve(p * a + jnp.eye(2), p * jnp.arange(1.0, 3.0))

    f, g = ours, theirs
    for name in names:
        f, g = getattr(jax, name)(f), getattr(jax, name)(g)
    assert_close(f(0.7), g(0.7), rtol=1e-4)
    assert runs


def test_a_solution_that_is_none_is_nan() -> None:
    system = system_of("who", lambda matvec, b: b)
    (x,) = system.run("who", lambda x: [3.0 * x[0]], [jnp.ones(2)], jax.tree.structure(0))
    assert np.isnan(x).all()
    error, scale = distance([jnp.ones(2)], [jnp.array([1.0, -3.0])])
    assert (float(error), float(scale)) == (4.0, 3.0)


def test_equal_solvers_are_one_system() -> None:
    lx = pytest.importorskip("lineax", reason="the extra implicit")
    one, other = system_of("who", lx.CG(1e-3, 1e-3)), system_of("who", lx.CG(1e-3, 1e-3))
    assert one == other and hash(one) == hash(other)
    assert one != system_of("who", lx.CG(1e-4, 1e-3)) and system_of("who", None) == System()


@pytest.mark.parametrize("given", [3, "CG", jnp.ones(2), dict])
def test_what_is_no_solver(given: Any) -> None:
    with pytest.raises(
        fad.errors.ArgumentError, match=r"a linear solver is a function \(matvec, b\) -> x"
    ):
        system_of("who", given)
