"""Colourings: each entry is read right, and no more colours than known optima and one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fad.sparse.coloring import Coloring, best_coloring, column_coloring, star_coloring

COLORINGS = [column_coloring, star_coloring]


def grid(n: int, offsets: list[tuple[int, int]]) -> np.ndarray:
    """The pattern of a stencil on an n x n grid."""
    dense = np.zeros((n, n, n, n), bool)
    for i, j in np.ndindex(n, n):
        for a, b in offsets:
            if 0 <= i + a < n and 0 <= j + b < n:
                dense[i, j, i + a, j + b] = True
    return dense.reshape(n * n, n * n)


FIVE = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
NINE = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
BAND = np.abs(np.subtract.outer(np.arange(30), np.arange(30))) <= 1
ARROW = np.eye(30, dtype=bool)
ARROW[-1] = ARROW[:, -1] = True

# A pattern, and the least number of colours for columns and for stars.
KNOWN = {
    "diagonal": (np.eye(9, dtype=bool), 1, 1),
    "band": (BAND, 3, 3),
    "arrow": (ARROW, 30, 2),
    "five points": (grid(9, FIVE), 5, 5),
    "nine points": (grid(9, NINE), 9, 9),
    "full": (np.ones((4, 4), bool), 4, 4),
    "empty": (np.zeros((4, 4), bool), 0, 0),
}


def colored(dense: np.ndarray, color: Callable[..., Coloring]) -> Coloring:
    return color(*np.nonzero(dense), dense.shape[1])


@pytest.mark.parametrize("name", KNOWN)
def test_count_is_within_one_of_the_optimum(name: str) -> None:
    dense, columns, stars = KNOWN[name]
    assert columns <= colored(dense, column_coloring).count <= columns + 1
    assert stars <= colored(dense, star_coloring).count <= stars + 1


@pytest.mark.parametrize("color", COLORINGS)
def test_entries_are_read_from_products(color: Callable[..., Coloring]) -> None:
    draws = np.random.default_rng(0)
    randoms = [draws.random((n, n)) < p for n in (1, 5, 20) for p in (0.0, 0.1, 0.3, 0.9)]
    for dense in [*[d | d.T for d in randoms], *[d for d, _, _ in KNOWN.values()]]:
        numbers = draws.random(dense.shape)
        matrix = np.where(dense, numbers + numbers.T, 0)
        found = colored(dense, color)
        products = matrix @ (found.colors[:, None] == np.arange(found.count))
        np.testing.assert_array_equal(products[found.rows, found.products], matrix[dense])


def test_columns_of_a_wide_matrix() -> None:
    dense = np.random.default_rng(1).random((7, 40)) < 0.2
    found = colored(dense, column_coloring)
    products = dense @ (found.colors[:, None] == np.arange(found.count)).astype(float)
    np.testing.assert_array_equal(products[found.rows, found.products], 1.0)


def missing_diagonal(edges: list[tuple[int, int]], n: int) -> np.ndarray:
    dense = np.zeros((n, n), bool)
    for i, j in edges:
        dense[i, j] = dense[j, i] = True
    return dense


# Symmetric patterns without a diagonal: colours that no entry is read from need no product.
WITHOUT_DIAGONAL = {
    "a square": (missing_diagonal([(0, 1), (0, 2), (1, 3), (2, 3)], 4), 2),
    "a path": (missing_diagonal([(0, 1), (1, 2)], 3), 1),
    "a star": (missing_diagonal([(0, k) for k in range(1, 9)], 9), 1),
    "a diagonal entry": (missing_diagonal([(0, 1), (1, 1)], 2), 1),
}


@pytest.mark.parametrize("name", WITHOUT_DIAGONAL)
def test_colours_that_are_not_read_are_left_out(name: str) -> None:
    dense, products = WITHOUT_DIAGONAL[name]
    found = colored(dense, star_coloring)
    assert found.count == products
    assert found.shows(*np.nonzero(dense), symmetric=True)


@pytest.mark.parametrize("color", COLORINGS)
def test_a_coloring_knows_whether_it_shows_the_entries(color: Callable[..., Coloring]) -> None:
    symmetric = color is star_coloring
    for dense, _, _ in KNOWN.values():
        rows, cols = np.nonzero(dense)
        found = colored(dense, color)
        assert found.shows(rows, cols, symmetric)
        if found.count > 1:
            one = Coloring(np.zeros_like(found.colors), found.rows, np.zeros_like(found.products))
            assert not one.shows(rows, cols, symmetric)
            other = Coloring(found.colors, found.rows[::-1], found.products)
            assert not other.shows(rows, cols, symmetric) or np.array_equal(
                found.rows, found.rows[::-1]
            )


def diagonals(n: int, *offsets: int) -> tuple[np.ndarray, np.ndarray]:
    """The entries of an n x n matrix with these diagonals, by rows."""
    rows = np.repeat(np.arange(n), len(offsets))
    cols = rows + np.tile(np.sort(offsets), n)
    inside = (cols >= 0) & (cols < n)
    return rows[inside], cols[inside]


# Offsets of diagonals, and the least number of colours.
LARGE = {"band": ((-1, 0, 1), 3), "wide band": ((-2, -1, 0, 1, 2), 5), "far": ((-50, 0, 50), 3)}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("symmetric", [False, True])
def test_large_bands_get_the_least_number(name: str, symmetric: bool) -> None:
    offsets, least = LARGE[name]
    rows, cols = diagonals(3000, *offsets)
    found, forward = best_coloring(rows, cols, 3000, 3000, symmetric)
    assert forward
    assert found.count <= least
    assert found.shows(rows, cols, symmetric)


def test_fields_side_by_side_get_the_least_number() -> None:
    rows, cols = np.tile(np.arange(2500), 2), np.arange(5000)
    found = column_coloring(rows, cols, 5000)
    assert found.count == 2
    assert found.shows(rows, cols, False)


def test_a_star_coloring_that_needs_fewer_than_three_is_found() -> None:
    for edges, products in (([(0, 1)], 2), ([(0, 1), (0, 2), (0, 3)], 2), ([(0, 1), (1, 2)], 2)):
        dense = missing_diagonal(edges, 4) | np.eye(4, dtype=bool)
        assert colored(dense, star_coloring).count == products
