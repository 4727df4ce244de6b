"""Colourings: which columns of a sparse matrix one product shows at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

_MASKS = 2e8  # bits: more orders are tried only where the sets of colours stay below that
_TRIES = 400  # guesses of a colouring of a grid
_SAMPLE = 64  # rows on which they are checked first
_SHORT = 32  # entries of a row from which strides are guessed
_MANY = 2000  # columns: colourings of a grid are tried first


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
    entries = rows * width + cols
    if height == width and np.array_equal(np.sort(cols * width + rows), np.sort(entries)):
        return forward, True  # rows are coloured as columns are
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
    lengths = np.bincount(rows)
    least = int(lengths.max(initial=0))
    best = None
    if width > _MANY and least <= _SHORT:
        best = _lattice(rows, cols, width, least, least + 1)
    flat, bounds = _lists(cols, rows, width)
    for order in _orders(rows, cols, width) if best is None else ():
        colors = _greedy(order, flat, bounds, len(lengths))
        if best is None or colors.max(initial=-1) < best.max(initial=-1):
            best = colors
        count = int(best.max(initial=-1)) + 1
        if count <= least or count * float(rows.size) > _MASKS:
            break
    assert best is not None
    count = int(best.max(initial=-1)) + 1
    if least < count <= _SHORT:
        lattice = _lattice(rows, cols, width, least, count)
        best = best if lattice is None else lattice
    best[np.bincount(cols, minlength=width) == 0] = -1  # they are in no product
    return Coloring(best, rows, best[cols])


def _greedy(order: np.ndarray, flat: list[int], bounds: list[int], height: int) -> np.ndarray:
    used = [0] * height  # for each row, a bit for each colour that has an entry in it
    colors = [0] * len(order)
    for j in order.tolist():
        taken = 0
        places = flat[bounds[j] : bounds[j + 1]]
        for i in places:
            taken |= used[i]
        bit = ~taken & (taken + 1)  # the lowest that is free
        for i in places:
            used[i] |= bit
        colors[j] = bit.bit_length() - 1
    return np.array(colors, np.int64)


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
    if plain.count <= _least_star(rows[off], cols[off], width, cols[~off]):
        return plain
    flat, bounds = _lists(cols[off], rows[off], width)
    best = None
    for order in _orders(rows, cols, width):
        colors = _star(order, flat, bounds)
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
    by_column = _sources(rows, cols, best, alone, also)
    places, products = np.where(by_column, rows, cols), np.where(by_column, best[cols], best[rows])
    kept, renumbered = np.unique(products, return_inverse=True)
    numbers = np.full(count + 1, -1)  # the last is the number of -1
    numbers[kept] = np.arange(len(kept))
    star = Coloring(numbers[best], places, renumbered)
    return star if star.count < plain.count else plain


def _sources(
    rows: np.ndarray, cols: np.ndarray, colors: np.ndarray, alone: np.ndarray, also: np.ndarray
) -> np.ndarray:
    """Whether to read each entry from its own column, not from that of its mirror image.

    Where both show it, the one is taken whose colour is used anyway, or could be used by most other entries:
    colours that no entry is read from need no product.
    """
    direct, mirror = colors[cols], colors[rows]
    free = alone & also & (direct != mirror)
    used = np.zeros(int(colors.max(initial=-1)) + 1, bool)
    used[np.where(alone, direct, mirror)[~free]] = True
    weights = np.bincount(direct[free], minlength=len(used))
    for color in np.argsort(-weights, kind="stable").tolist():
        left = free & ~used[direct] & ~used[mirror]
        if not left.any():
            break
        used[color] |= bool(np.any(left & ((direct == color) | (mirror == color))))
    result: np.ndarray = np.where(free, used[direct], alone)
    return result


def _least_star(rows: np.ndarray, cols: np.ndarray, width: int, diagonal: np.ndarray) -> int:
    """How many products any star colouring takes at least.

    Arguments:
        rows, cols: the entries that are not on the diagonal.
        width: how many columns there are.
        diagonal: the columns with an entry on the diagonal. Where these are all columns that have entries,
            an entry is read from each colour.
    """
    degrees = np.bincount(cols, minlength=width)
    if np.count_nonzero(degrees) > np.count_nonzero(degrees[diagonal]):
        return 0
    path = np.any((degrees[rows] > 1) & (degrees[cols] > 1))  # of four columns, or a triangle
    return 3 if path else 2 if rows.size else 1


def _star(order: np.ndarray, flat: list[int], bounds: list[int]) -> np.ndarray:
    """Greedy, with sets of colours as bits of an int.

    ``near[w]``: colours of neighbours of w. ``ends[w]``, for a coloured w: colours of its neighbours x
    that have a second neighbour of w's colour, so that v - w - x - y would have two colours if v had x's.
    """
    width = len(bounds) - 1
    colors = [-1] * width
    near = [0] * width
    ends = [0] * width
    first: dict[int, int] = {}  # x * width + colour -> the neighbour of x that has it
    several: set[int] = set()  # x * width + colour, of two neighbours of x or more
    crowded = bytearray(width)  # columns that are in it
    for v in order.tolist():
        taken = near[v]
        neighbours = flat[bounds[v] : bounds[v + 1]]
        for w in neighbours:
            taken |= near[w] if colors[w] < 0 else ends[w]
        bit = ~taken & (taken + 1)
        c = colors[v] = bit.bit_length() - 1
        for x in neighbours:
            near[x] |= bit
            key = x * width + c
            other = first.setdefault(key, v)
            if other == v:
                continue
            several.add(key)
            crowded[x] = 1
            if colors[x] >= 0:
                ends[other] |= 1 << colors[x]
                ends[v] |= 1 << colors[x]
        if crowded[v]:
            for w in neighbours:
                if v * width + colors[w] in several:
                    ends[w] |= bit
    return np.array(colors, np.int64)


def _lists(keys: np.ndarray, values: np.ndarray, count: int) -> tuple[list[int], list[int]]:
    """The values of each of ``count`` keys, one after the other, and where those of each begin and end.

    One list of numbers: the garbage collector does not go through it.
    """
    order = np.argsort(keys, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))])
    return values[order].tolist(), bounds.tolist()


def _orders(rows: np.ndarray, cols: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """Orders of the columns in which a greedy colouring may be good, each once."""
    degrees = np.bincount(cols, minlength=width)
    lengths = np.bincount(rows)
    near = np.bincount(cols, lengths[rows], minlength=width)  # columns that share a row, or more
    orders: list[np.ndarray] = []
    for weights in (np.zeros(width), degrees, near):
        order = np.argsort(-weights, kind="stable")
        if not any([np.array_equal(order, o) for o in orders]):
            orders.append(order)
            yield order


def _lattice(rows: np.ndarray, cols: np.ndarray, width: int, least: int, below: int) -> Any:
    """A colouring of a stencil on a regular grid with fewer than ``below`` colours; None if none is found.

    The colour is a linear form of the position in the grid, modulo the number of colours. The strides of
    the grid are guessed from the differences of columns in a row; each guess is checked.
    """
    few = np.flatnonzero(rows % max(int(rows.max(initial=0)) // _SAMPLE, 1) == 0)
    sample, places = cols[few], np.unique(rows[few], return_inverse=True)[1]
    strides = _strides(places, sample)
    parts = [(1,), *[(1, s) for s in strides]]
    parts += [(1, s, t) for s in strides for t in strides if s < t][:6]
    tries = 0
    for count in range(max(least, 1), below):
        start = places * count
        for part in parts:
            terms = [sample // s for s in part]
            for factors in itertools.product(
                (1, 0)[: len(part)], *[range(count)] * (len(part) - 1)
            ):
                tries += 1
                if tries > _TRIES:
                    return None
                form = sum([x * a for a, x in zip(factors, terms, strict=True)])
                if np.bincount(start + form % count).max(initial=0) > 1:
                    continue  # most guesses fail on some rows
                form = sum([np.arange(width) // s * a for a, s in zip(factors, part, strict=True)])
                colors: np.ndarray = np.asarray(form) % count
                if np.bincount(rows * count + colors[cols]).max(initial=0) <= 1:
                    return colors
    return None


def _strides(rows: np.ndarray, cols: np.ndarray) -> list[int]:
    """The most frequent differences of columns in a row."""
    flat, bounds = _lists(rows, cols, int(rows.max(initial=-1)) + 1)
    lists = [flat[a:b] for a, b in itertools.pairwise(bounds) if b - a <= _SHORT]
    pairs = [abs(a - b) for x in lists for a, b in itertools.combinations(x, 2)]
    distances, counts = np.unique(np.array(pairs, np.int64), return_counts=True)
    frequent = distances[np.argsort(-counts, kind="stable")]
    return [int(s) for s in frequent if s > 1][:8]
