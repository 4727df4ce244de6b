"""Rows of Jacobians: what they stand for is the same in every pattern."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

from fad.laplacians.jacobian_rows import (
    JacobianRows,
    RowPattern,
    added,
    aligned,
    coordinates,
    dense_pattern,
    has_duplicates,
    smallest,
)

N = 12  # coordinates


def dense(rows: JacobianRows) -> np.ndarray:
    """The Jacobian that they stand for, element by element."""
    array = np.asarray(rows.array)
    at = np.broadcast_to(rows.pattern.at, array.shape)
    result = np.zeros((N, *array.shape[1:]), array.dtype)
    for place in np.ndindex(*array.shape):
        if at[place] >= 0:
            result[(at[place], *place[1:])] += array[place]
    return result


def random_rows(
    seed: int, count: int, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> JacobianRows:
    draw = np.random.default_rng(seed)
    at = np.stack([draw.permutation(N)[:count] for _ in range(int(np.prod(sizes)))], -1)
    at = np.where(draw.random(at.shape) < 0.2, -1, at).reshape(count, *sizes)
    array = draw.normal(size=(count, *shape)).astype("f4") * (at >= 0)
    return JacobianRows(jnp.asarray(array), RowPattern(at))


SHAPE = (3, 2, 4)
CASES = [
    random_rows(0, 1, SHAPE, SHAPE),
    random_rows(1, 3, SHAPE, (3, 1, 1)),
    random_rows(2, 2, SHAPE, (1, 2, 4)),
    random_rows(3, 9, SHAPE, SHAPE),
    random_rows(4, N, SHAPE, (1, 1, 1)),
    JacobianRows(jnp.ones((1, 3, 2, 2)), coordinates(0, (3, 2, 2))),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_made_uniform_they_stand_for_the_same(case: int) -> None:
    rows = CASES[case]
    for count in range(4):
        for axes in itertools.combinations(range(3), count):
            found = rows.uniform(axes)
            assert not has_duplicates(found.pattern.at)
            assert all(found.pattern.at.shape[a + 1] == 1 for a in axes)
            assert_close(dense(found), dense(rows))


@pytest.mark.parametrize("pair", [*itertools.product(range(5), repeat=2)], ids=str)
def test_sums_products_and_restrictions(pair: tuple[int, int]) -> None:
    a, b = [CASES[k] for k in pair]
    total = added(a, b)
    assert not has_duplicates(total.pattern.at)
    assert_close(dense(total), dense(a) + dense(b), rtol=1e-6)
    pattern = smallest([a.pattern, b.pattern])
    products = np.sum(np.asarray(a.to(pattern)) * np.asarray(b.to(pattern)), 0)
    assert_close(products, np.sum(dense(a) * dense(b), 0), rtol=1e-5, atol=1e-6)
    axes = ((0, None, 1), (0, None, 1))
    (x, y), common = aligned([a, b], axes, 2)
    assert common.at.ndim == 3 and not has_duplicates(common.at)
    at = common.on_axes((0, 2), 3)
    assert_close(dense(JacobianRows(x, at)), dense(a))
    assert_close(dense(JacobianRows(y, at)), dense(b))


def test_patterns_are_small_and_compare_by_what_they_say() -> None:
    particles = RowPattern(np.broadcast_to(np.arange(12).reshape(3, 4, 1), (3, 4, 5)))
    assert particles.at.shape == (3, 4, 1) and len(particles) == 3
    assert particles == RowPattern(np.arange(12).reshape(3, 4, 1)) != particles.uniform([0])
    assert hash(particles) == hash(RowPattern(particles.at.copy()))
    assert particles.on_axes([1, 0], 2).at.shape == (3, 1, 4)
    assert particles.on_axes([0, None], 1).at.shape == (3, 4)
    assert not particles.is_uniform() and particles.of_ndim(3) == particles
    everything = particles.uniform([0, 1])
    assert everything.is_uniform() and everything.of_ndim(1).at.shape == (12, 1)
    assert everything == particles.uniform([0]) == RowPattern(np.arange(12).reshape(-1, 1, 1))
    assert dense_pattern([particles, coordinates(2, (20,))]).at.tolist() == [*range(22)]


def test_what_is_apart_is_a_row() -> None:
    pattern = coordinates(0, (4, 3))
    apart = pattern.apart(1)
    assert apart is not None and apart.at.tolist() == np.arange(12).reshape(4, 3).T.tolist()
    assert apart.apart(0).at.shape == (12,)
    assert pattern.uniform([1]).apart(1) is None  # it is the same along this axis
    assert RowPattern(np.array([[0, 1, 0]])).apart(0) is None  # a coordinate is met twice


def test_patterns_of_nothing() -> None:
    for shape in ((0,), (3, 0), (0, 3)):
        empty = coordinates(0, shape)
        assert len(empty) == 1 and (empty.at < 0).all() and empty.is_uniform()
        union = empty | RowPattern(np.zeros((1, *[1] * len(shape))))
        assert union.at.ravel().tolist() == [0]
    assert len(dense_pattern([coordinates(0, (0,))]).at) == 1
