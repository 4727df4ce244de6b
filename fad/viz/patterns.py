"""``fad.viz.pattern``: the pattern of a sparse derivative, with the products that show its entries."""

from __future__ import annotations

import html
import math
import os

import numpy as np

from fad import SparsePattern
from fad.errors import ArgumentError, describe
from fad.extend.types import PyTree
from fad.viz.matrices import CELL, MOST, SIDE, document, framed, side_of, write
from fad.viz.pictures import png

_ROWS, _COLUMNS = 40, 100  # of text
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Nine colours that are told apart easily.
_HUES: np.ndarray = np.frombuffer(
    bytes.fromhex("1f77b4ff7f0e2ca02cd627289467bd8c564be377c2bcbd2217becf"), np.uint8
).reshape(-1, 3)


class Pattern:
    """What `fad.viz.pattern` returns: a pattern, with a colour for each product that is computed.

    ``print`` shows it as text, with a letter for each colour; a notebook shows a picture; `save` writes it.

    Attributes:
        count: how many products there are.

    >>> import fad, fad.numpy as fnp
    >>> print(fad.viz.pattern(fad.sparsity(fnp.diff)(fnp.zeros(5))))
    pattern: 4 × 5, 8 of 20 entries, by 2 products of columns
    ab...
    .ba..
    ..ab.
    ...ba
    """

    def __init__(self, pattern: SparsePattern) -> None:
        self.count = pattern.products
        self._rows, self._cols, self._shape = pattern.rows, pattern.cols, pattern.shape
        self._colors = pattern.shown_by
        self._lines = "rows" if pattern.mode == "reverse" else "columns"

    def __repr__(self) -> str:
        return f"<fad.viz.Pattern of {len(self._rows)} entries>"

    def __str__(self) -> str:
        height, width = (min(n, m) for n, m in zip(self._shape, (_ROWS, _COLUMNS), strict=True))
        text = np.full((height, width), ".")
        shown = (self._rows < height) & (self._cols < width)
        letters = np.array(list(_LETTERS))[self._colors[shown] % len(_LETTERS)]
        text[self._rows[shown], self._cols[shown]] = letters
        more = " ..." if width < self._shape[1] else ""
        lines = ["".join(row) + more for row in text]
        return "\n".join([self._heading(), *lines, *["..."] * (height < self._shape[0])])

    def _heading(self) -> str:
        height, width = self._shape
        return (
            f"pattern: {height} × {width}, {len(self._rows)} of {height * width} entries, by {self.count} "
            f"product{'s' * (self.count != 1)} of {self._lines}"
        )

    def _pixels(self) -> np.ndarray:
        """A pixel for each entry, or for a block of them where there are many."""
        steps = [max(1, -(-n // MOST)) for n in self._shape]
        sides = [max(1, -(-n // step)) for n, step in zip(self._shape, steps, strict=True)]
        pixels: np.ndarray = np.full((*sides, 3), 255, np.uint8)
        colors = _HUES[self._colors % len(_HUES)]
        pixels[self._rows // steps[0], self._cols // steps[1]] = colors
        return pixels

    def svg(self) -> str:
        """The picture as SVG; it needs no other library."""
        scale = min(CELL, SIDE / max(1, *self._shape))
        h, w = (side_of(n, scale) for n in self._shape)
        heading = html.escape(self._heading())
        width = max(w + 20.0, 6.0 * len(heading))
        image = framed(self._pixels(), 'x="10" y="24"', w, h)
        return document(f'<text x="10" y="16">{heading}</text>{image}', width, h + 34)

    def png(self) -> bytes:
        """The entries as a PNG file, with a square of pixels for each."""
        pixels = self._pixels()
        step = max(1, int(SIDE) // max(pixels.shape))
        return png(pixels.repeat(step, 0).repeat(step, 1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, in the format that the name ends with.

        Arguments:
            path: ends with ``.svg``, ``.html``, ``.png`` or ``.txt``.

        Raises:
            ArgumentError: it ends with something else.
        """
        write(path, self, html=self._repr_html_)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<div>{self.svg()}</div>"


def pattern(matrix: PyTree, out_ndim: int | None = None, symmetric: bool = False) -> Pattern:
    """A pattern with its colours: entries of one colour are read from the same product.

    Arguments:
        matrix: what `sparsity`, `sparse_jacobian` or `sparse_hessian` returns, in any format; or a
            `SparsePattern`, which has its colours.
        out_ndim: how many of its dimensions belong to the output, and become rows. The default is half.
        symmetric: colour it as `sparse_hessian` does, which reads an entry from either side of the diagonal.

    Returns:
        A `Pattern`.

    Raises:
        ArgumentError: it is not a sparse matrix; ``out_ndim`` does not fit; it is ``symmetric`` and not
            square.

    >>> import fad, jax.numpy as jnp
    >>> arrow = lambda x: (x[:-1] * x[-1]).sum() + (x**3).sum()
    >>> print(fad.viz.pattern(fad.sparse_hessian(arrow)(jnp.ones(4)), symmetric=True))
    pattern: 4 × 4, 10 of 16 entries, by 2 products of columns
    b..a
    .b.a
    ..ba
    aaaa
    """
    if isinstance(matrix, SparsePattern):
        return Pattern(matrix)
    if not hasattr(matrix, "todense"):
        raise ArgumentError(
            f"viz.pattern: expected a BCOO, as fad.sparsity returns it, got {describe(matrix)}. For a dense "
            "matrix, write fad.viz.matrix."
        )
    shape = tuple(matrix.shape)
    out = len(shape) // 2 if out_ndim is None else out_ndim
    if not 0 <= out <= len(shape):
        raise ArgumentError(f"viz.pattern: out_ndim is {out}, and the matrix has the shape {shape}")
    sides = math.prod(shape[:out]), math.prod(shape[out:])
    if symmetric and sides[0] != sides[1]:
        raise ArgumentError(f"viz.pattern: symmetric, and the matrix is {sides[0]} × {sides[1]}")
    return Pattern(SparsePattern.from_matrix(matrix, out, symmetric))
