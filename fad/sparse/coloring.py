"""Colourings: which columns of a sparse matrix one product shows at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["Coloring", "best_coloring", "column_coloring", "star_coloring"]

_MASKS = 2e8  # bits: more orders are tried only where the sets of colours stay below that
_TRIES = 400  # guesses of a colouring of a grid
_SAMPLE = 64  # rows on which they are checked first
_SHORT = 32  # entries of a row from which strides are guessed


class Coloring:
    """A colour for each column, and where a product shows each entry.

    The entry k of the pattern is component ``rows[k]`` of the product with the sum of the columns of
    colour ``products[k]``.
    """

    def __init__(self, colors: np.ndarray, rows: np.ndarray, products: np.ndarray) -> None:
        self.colors = colors
        self.rows = rows
        self.products = products
        self.count = int(colors.max()) + 1 if colors.size else 0

    def shows(self, rows: np.ndarray, cols: np.ndarray, symmetric: bool) -> bool:
        """Whether each entry of a pattern is read from a component where no other is added to it.

        Arguments:
            rows, cols: the entries of the pattern.
            symmetric: an entry may be read as its mirror image.
        """
        used = self.colors[cols] >= 0
        at = (rows * self.count + self.colors[cols])[used]
        where = self.rows * self.count + self.products
        if not len(where):
            return not len(rows)
        if where.min() < 0 or self.products.min() < 0 or self.products.max() >= self.count:
            return False
        length = int(max(at.max(initial=0), where.max())) + 1
        which = np.full(length, -1)
        which[at] = np.flatnonzero(used)
        seen = which[where]
        if np.any(np.bincount(at, minlength=length)[where] != 1):
            return False
        same = (rows[seen] == rows) & (cols[seen] == cols)
        if symmetric:
            same |= (rows[seen] == cols) & (cols[seen] == rows)
        return bool(np.all(same))


def best_coloring(
    rows: np.ndarray, cols: np.ndarray, height: int, width: int, symmetric: bool
) -> tuple[Coloring, bool]:
    """The colouring that takes the fewest products, and whether it is one of columns, not of rows."""
    if symmetric:
        return star_coloring(rows, cols, width), True
    forward = column_coloring(rows, cols, width)
    if forward.count <= np.bincount(cols).max(initial=0):
        return forward, True
    reverse = column_coloring(cols, rows, height)
    return (reverse, False) if reverse.count < forward.count else (forward, True)


def column_coloring(rows: np.ndarray, cols: np.ndarray, width: int) -> Coloring:
    """Columns that have an entry in the same row get different colours.

    Arguments:
        rows, cols: the entries of the pattern.
        width: how many columns there are.

    Returns:
        The best of the greedy colourings of two orders and, on a regular grid, of linear ones.
        The longest row's number of entries is the least: where that is reached, no more are tried.
    """
    lists = _lists(cols, rows, width)
    least = int(np.bincount(rows).max()) if rows.size else 0
    height = int(rows.max()) + 1 if rows.size else 0
    best: np.ndarray | None = None
    for order in _orders(rows, cols, width):
        colors = _greedy(order, lists, height)
        if best is None or colors.max(initial=-1) < best.max(initial=-1):
            best = colors
        count = int(best.max(initial=-1)) + 1
        if count <= least or count * float(rows.size) > _MASKS:
            break
    assert best is not None
    count = int(best.max(initial=-1)) + 1
    if least < count <= _SHORT:
        found = _lattice(rows, cols, width, least, count)
        best = best if found is None else found
    best[np.bincount(cols, minlength=width) == 0] = -1  # they are in no product
    return Coloring(best, rows, best[cols])


def _greedy(order: np.ndarray, lists: list[list[int]], height: int) -> np.ndarray:
    used = [0] * height  # for each row, a bit for each colour that has an entry in it
    colors = np.zeros(len(lists), np.int64)
    for j in order.tolist():
        taken = 0
        for i in lists[j]:
            taken |= used[i]
        bit = ~taken & (taken + 1)  # the lowest that is free
        for i in lists[j]:
            used[i] |= bit
        colors[j] = bit.bit_length() - 1
    return colors


def star_coloring(rows: np.ndarray, cols: np.ndarray, width: int) -> Coloring:
    """Star colouring of a symmetric pattern: an entry is read from its column, or its mirror image is.

    Neighbours differ, and each path of four columns has three colours: so of the entries (i, j) and
    (j, i) at least one is alone in its product. `column_coloring` is taken where it needs no more.

    Arguments:
        rows, cols: the entries of the pattern; with (i, j) also (j, i) is one.
        width: how many columns there are.

    Source: Gebremedhin, Manne and Pothen, What Color Is Your Jacobian?, SIAM Review 47 (2005).
    """
    plain = column_coloring(rows, cols, width)
    off = rows != cols
    lists = _lists(cols[off], rows[off], width)
    best = None
    for order in _orders(rows, cols, width):
        colors = _star(order, lists)
        if best is None or colors.max(initial=-1) < best.max(initial=-1):
            best = colors
        if (best.max(initial=-1) + 1) * float(rows.size) > _MASKS:
            break
    assert best is not None
    best[np.bincount(cols, minlength=width) == 0] = -1
    # How many entries of its row have the colour of an entry: it is read where it is the only one.
    count = int(best.max(initial=-1)) + 1
    of = rows * count + best[cols]
    alone = np.bincount(of, minlength=width * count)[of] == 1
    mirrored = cols * count + best[rows]
    also = np.bincount(of, minlength=width * count)[mirrored] == 1
    assert bool(np.all(alone | also)), "a star colouring shows each entry"
    own = _sources(rows, cols, best, alone, also)
    places, products = np.where(own, rows, cols), np.where(own, best[cols], best[rows])
    kept, renumbered = np.unique(products, return_inverse=True)
    numbers = np.full(count + 1, -1)  # the last is that of -1
    numbers[kept] = np.arange(len(kept))
    star = Coloring(numbers[best], places, renumbered)
    return star if star.count < plain.count else plain


def _sources(
    rows: np.ndarray, cols: np.ndarray, colors: np.ndarray, alone: np.ndarray, also: np.ndarray
) -> np.ndarray:
    """Whether to read each entry from its own column, not from that of its mirror image.

    Where both show it, that one is taken of which the colour is used anyway, or which most others may use:
    colours that no entry is read from need no product.
    """
    own, mirror = colors[cols], colors[rows]
    free = alone & also & (own != mirror)
    used = np.zeros(int(colors.max(initial=-1)) + 1, bool)
    used[np.where(alone, own, mirror)[~free]] = True
    weights = np.bincount(own[free], minlength=len(used))
    for color in np.argsort(-weights, kind="stable").tolist():
        left = free & ~used[own] & ~used[mirror]
        if not left.any():
            break
        used[color] |= bool(np.any(left & ((own == color) | (mirror == color))))
    result: np.ndarray = np.where(free, used[own], alone)
    return result


def _star(order: np.ndarray, lists: list[list[int]]) -> np.ndarray:
    """Greedy, with sets of colours as bits of an int.

    ``near[w]``: colours of neighbours of w. ``ends[w]``, for a coloured w: colours of its neighbours x
    that have a second neighbour of w's colour, so that v - w - x - y would have two colours if v had x's.
    """
    width = len(lists)
    colors = [-1] * width
    near = [0] * width
    ends = [0] * width
    first: list[dict[int, int]] = [{} for _ in range(width)]  # colour -> the neighbour that has it
    several: list[set[int]] = [set() for _ in range(width)]  # colours of two neighbours or more
    for v in order.tolist():
        taken = near[v]
        for w in lists[v]:
            taken |= near[w] if colors[w] < 0 else ends[w]
        bit = ~taken & (taken + 1)
        c = colors[v] = bit.bit_length() - 1
        for x in lists[v]:
            near[x] |= bit
            if c not in first[x]:
                first[x][c] = v
                continue
            several[x].add(c)
            if colors[x] >= 0:
                ends[first[x][c]] |= 1 << colors[x]
                ends[v] |= 1 << colors[x]
        if several[v]:
            for w in lists[v]:
                if colors[w] in several[v]:
                    ends[w] |= bit
    return np.array(colors, np.int64)


def _lists(keys: np.ndarray, values: np.ndarray, count: int) -> list[list[int]]:
    """For each of ``count`` keys, its values."""
    order = np.argsort(keys, kind="stable")
    bounds = np.searchsorted(keys[order], np.arange(count + 1)).tolist()
    flat = values[order].tolist()
    return [flat[a:b] for a, b in itertools.pairwise(bounds)]


def _orders(rows: np.ndarray, cols: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """Orders of the columns in which a greedy colouring may be good."""
    yield np.arange(width)
    degrees = np.bincount(cols, minlength=width)
    yield np.argsort(-degrees, kind="stable")
    lengths = np.bincount(rows)
    near = np.bincount(cols, lengths[rows], minlength=width)  # columns that share a row, or more
    yield np.argsort(-near, kind="stable")


def _lattice(rows: np.ndarray, cols: np.ndarray, width: int, least: int, below: int) -> Any:
    """A colouring of a stencil on a regular grid with fewer than ``below`` colours; None if none is found.

    The colour is a linear form of the position in the grid, modulo the number of colours. The strides of
    the grid are guessed from the differences of columns in a row; each guess is checked.
    """
    strides = _strides(rows, cols)
    column = np.arange(width)
    parts = [[column], *[[column, column // s] for s in strides]]
    parts += [[column, column // s, column // t] for s in strides for t in strides if s < t][:6]
    few = rows % max(int(rows.max(initial=0)) // _SAMPLE, 1) == 0  # most guesses fail on some rows
    tries = 0
    for count in range(max(least, 1), below):
        start = rows * count
        for part in parts:
            for factors in itertools.product(range(count), repeat=len(part) - 1):
                tries += 1
                if tries > _TRIES:
                    return None
                terms = [x[cols[few]] * a for a, x in zip((1, *factors), part, strict=True)]
                if np.bincount(start[few] + sum(terms) % count).max(initial=0) > 1:
                    continue
                form = [x * a for a, x in zip((1, *factors), part, strict=True)]
                colors: np.ndarray = np.asarray(sum(form)) % count
                if np.bincount(start + colors[cols]).max(initial=0) <= 1:
                    return colors
    return None


def _strides(rows: np.ndarray, cols: np.ndarray) -> list[int]:
    """The most frequent differences of columns in a row, of a sample of the rows."""
    lists = _lists(rows, cols, int(rows.max()) + 1 if rows.size else 0)
    sample = [x for x in lists[:: max(len(lists) // 64, 1)] if len(x) <= _SHORT]
    pairs = [abs(a - b) for x in sample for a, b in itertools.combinations(x, 2)]
    found, counts = np.unique(np.array(pairs, np.int64), return_counts=True)
    frequent = found[np.argsort(-counts, kind="stable")]
    return [int(s) for s in frequent if s > 1][:8]
