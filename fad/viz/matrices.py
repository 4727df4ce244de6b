"""``fad.viz.matrix`` and ``fad.viz.pattern``: derivatives as images, and the patterns of sparse ones."""

from __future__ import annotations

import dataclasses
import html
import io
import math
import os
from typing import Any

import jax
import numpy as np

from fad import SparsePattern, Tensor
from fad.errors import ArgumentError, describe
from fad.extend.types import PyTree
from fad.viz.drawing import viz_library, write
from fad.viz.pictures import colored, data_uri, png, real, shrunk

_SIDE, _CELL, _MOST = 420.0, 24.0, 512  # of all panels; of one value, at most; values of a side
_GAP, _TOP, _BAR = 10.0, 18.0, 120.0


@dataclasses.dataclass(slots=True)
class _Panel:
    """One matrix: its name, its values, the shape that it had, and its place in the grid."""

    name: str
    values: np.ndarray
    shape: tuple[int, ...]
    row: int
    column: int


class Matrix:
    """What `fad.viz.matrix` returns: matrices of derivatives, to be looked at.

    White is zero, red above, blue below, orange not finite; all of them on one scale. What is not zero is
    never white. A notebook shows it, ``print`` says what is in it, `save` writes a file.

    >>> import fad, fad.numpy as fnp, jax.numpy as jnp
    >>> print(fad.viz.matrix(fad.jacrev(fnp.sin)(jnp.zeros(3))))
    matrix: 3 × 3, 3 of 9 not zero, 0 to 1
    """

    def __init__(self, panels: list[_Panel]) -> None:
        self._panels = panels
        finite = [p.values[np.isfinite(p.values)] for p in panels]
        self._largest = max([float(np.abs(f).max()) for f in finite if f.size], default=0.0)

    def __repr__(self) -> str:
        return f"<fad.viz.Matrix of {len(self._panels)} parts>"

    def __str__(self) -> str:
        return "\n".join([_line(p) for p in self._panels])

    def svg(self) -> str:
        """The picture as SVG; it needs no other library."""
        widths, heights, scale = self._grid()
        lefts = [_GAP + sum(widths[:k]) + k * _GAP for k in range(len(widths) + 1)]
        tops = [_TOP + sum(heights[:k]) + k * (_GAP + _TOP) for k in range(len(heights) + 1)]
        parts = []
        for p in self._panels:
            x, y = lefts[p.column], tops[p.row]
            h, w = (_side_of(n, scale) for n in p.values.shape)
            parts.append(f'<text x="{x:.0f}" y="{y - 4:.0f}">{html.escape(p.name)}</text>')
            pixels = colored(shrunk(p.values, _MOST), self._largest)
            parts.append(_framed(pixels, f'x="{x:.1f}" y="{y:.1f}"', w, h, _line(p)))
        below = tops[-1]
        bar = data_uri(colored(np.linspace(-self._largest, self._largest, 65)[None], self._largest))
        parts.append(
            f'<image x="{_GAP}" y="{below:.1f}" width="{_BAR}" height="8" href="{bar}" '
            'preserveAspectRatio="none"/>'
        )
        for x, anchor, value in ((0.0, "start", -1.0), (0.5, "middle", 0.0), (1.0, "end", 1.0)):
            parts.append(
                f'<text x="{_GAP + x * _BAR:.0f}" y="{below + 20:.0f}" text-anchor="{anchor}">'
                f"{value * self._largest:.3g}</text>"
            )
        width, height = max(lefts[-1], _BAR + 2 * _GAP + 20), below + 28
        return _document("".join(parts), width, height)

    def _grid(self) -> tuple[list[float], list[float], float]:
        """Widths of columns, heights of rows, and how large a value is drawn."""
        rows = max([p.row for p in self._panels], default=-1) + 1
        columns = max([p.column for p in self._panels], default=-1) + 1
        tall = [max([p.values.shape[0] for p in self._panels if p.row == k]) for k in range(rows)]
        wide = [
            max([p.values.shape[1] for p in self._panels if p.column == k]) for k in range(columns)
        ]
        scale = min(_CELL, _SIDE / max(1, sum(tall), sum(wide)))
        widths, heights = ([_side_of(n, scale) for n in counts] for counts in (wide, tall))
        return widths, heights, scale

    def png(self) -> bytes:
        """The picture as a PNG file, drawn by matplotlib.

        Raises:
            ImportError: the extra ``viz`` is not installed.
        """
        figures = viz_library("matplotlib.figure")
        widths, heights, _ = self._grid()
        size = (
            sum(widths) / 96 + 1.2 * len(widths) + 1,
            sum(heights) / 96 + 0.8 * len(heights) + 1,
        )
        figure = figures.Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(
            len(heights), len(widths), width_ratios=widths, height_ratios=heights
        )
        for p in self._panels:
            axes = figure.add_subplot(grid[p.row, p.column])
            extent = (0, p.values.shape[1], p.values.shape[0], 0)
            axes.imshow(
                colored(shrunk(p.values, _MOST), self._largest),
                interpolation="nearest",
                extent=extent,
                aspect="auto",
            )
            axes.set_title(p.name, fontsize=9)
            axes.tick_params(labelsize=7)
        figure.supxlabel(f"-{self._largest:.3g} (blue) to {self._largest:.3g} (red)", fontsize=8)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=144)
        return file.getvalue()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, in the format that the name ends with.

        Arguments:
            path: ends with ``.svg``, ``.html``, ``.png`` or ``.txt``.

        Raises:
            ArgumentError: it ends with something else.
            ImportError: ``.png`` needs the extra ``viz``, which is not installed.
        """
        write(path, self, html=self._repr_html_)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<div>{self.svg()}</div>"


def _framed(pixels: np.ndarray, place: str, width: float, height: float, title: str = "") -> str:
    """An image with a border, in SVG."""
    place += f' width="{width:.1f}" height="{height:.1f}"'
    inside = f"<title>{html.escape(title)}</title>" if title else ""
    return (
        f'<image {place} href="{data_uri(pixels)}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated">{inside}</image>'
        f'<rect {place} fill="none" stroke="#90a4ae"/>'
    )


def _document(content: str, width: float, height: float) -> str:
    """A picture of this size, in SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="11" fill="#263238" style="background: white">{content}</svg>'
    )


def matrix(j: PyTree, out_ndim: int | None = None) -> Matrix:
    """Jacobians and hessians as images: what `jacrev`, `jacfwd`, `hessian` or their sparse forms return.

    Arguments:
        j: an array, or a pytree of arrays. Parts of a jacobian stand next to each other; those of a hessian
            of a pytree of arguments, ``h[a][b]``, in a square.
        out_ndim: how many dimensions of the arrays are those of the output, which become rows; those of the
            input become columns. The default is half of them.

    Returns:
        A `Matrix`.

    Raises:
        ArgumentError: there is something else than arrays; an array has fewer dimensions than ``out_ndim``.

    >>> import fad, jax.numpy as jnp
    >>> f = lambda p: p["a"].sum() * p["b"].sum() ** 2
    >>> h = fad.hessian(f)({"a": jnp.ones(2), "b": jnp.array([3.0])})
    >>> print(fad.viz.matrix(h))
    matrix ['a']['a']: 2 × 2, 0 of 4 not zero
    matrix ['a']['b']: 2 × 1, 2 of 2 not zero, 6 to 6
    matrix ['b']['a']: 1 × 2, 2 of 2 not zero, 6 to 6
    matrix ['b']['b']: 1 × 1, 1 of 1 not zero, 4 to 4
    """
    leaves = jax.tree_util.tree_leaves_with_path(j, is_leaf=_is_matrix)
    arrays = {jax.tree_util.keystr(path): _numbers(x) for path, x in leaves}
    square = _square([path for path, _ in leaves])
    panels = []
    for k, (name, values) in enumerate(arrays.items()):
        row, column = divmod(k, square) if square else (0, k)
        out = out_ndim
        if out is None and square:  # of h[a][b], the dimensions of a: half of those of h[a][a]
            out = list(arrays.values())[row * square + row].ndim // 2
        out = values.ndim // 2 if out is None else out
        if not 0 <= out <= values.ndim:
            raise ArgumentError(
                f"viz.matrix: out_ndim is {out}, and the array{name} has the shape {values.shape}"
            )
        shape = (math.prod(values.shape[:out]), math.prod(values.shape[out:]))
        panels.append(_Panel(name, values.reshape(shape), values.shape, row, column))
    return Matrix(panels)


def _is_matrix(x: PyTree) -> bool:
    return isinstance(x, Tensor) or hasattr(x, "todense")


def _numbers(x: Any) -> np.ndarray:
    """A part of a jacobian as real numbers."""
    x = x.array if isinstance(x, Tensor) else x
    x = x.todense() if hasattr(x, "todense") else x
    if not isinstance(x, (jax.Array, np.ndarray, float, int, complex)) or isinstance(
        x, jax.core.Tracer
    ):
        raise ArgumentError(
            f"viz.matrix: expected arrays with values, as fad.jacrev and fad.hessian return them, got "
            f"{describe(x)}"
        )
    return real(np.asarray(x))


def _square(paths: list[Any]) -> int:
    """How many rows and columns there are, if the paths are all pairs of some keys; else 0."""
    count = math.isqrt(len(paths))
    if count < 2 or count * count != len(paths) or any([len(path) % 2 for path in paths]):
        return 0
    halves = [(path[: len(path) // 2], path[len(path) // 2 :]) for path in paths]
    keys = [half[1] for half in halves[:count]]
    return count if halves == [(a, b) for a in keys for b in keys] else 0


def _line(p: _Panel) -> str:
    """What is in a matrix, as text."""
    rows, columns = p.values.shape
    shape = f" (shape {list(p.shape)})" if p.shape != p.values.shape else ""
    text = f"matrix{' ' * bool(p.name)}{p.name}: {rows} × {columns}{shape}"
    text += f", {np.count_nonzero(p.values)} of {p.values.size} not zero"
    finite = p.values[np.isfinite(p.values)]
    if finite.size and finite.any():
        text += f", {finite.min():.4g} to {finite.max():.4g}"
    odd = p.values.size - finite.size
    return f"{text}, {odd} not finite" if odd else text


def _side_of(count: int, scale: float) -> float:
    """How long a side of so many values is drawn."""
    return max(8.0, count * scale)


# Patterns of sparse derivatives, with the products that show their entries.

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
        steps = [max(1, -(-n // _MOST)) for n in self._shape]
        sides = [max(1, -(-n // step)) for n, step in zip(self._shape, steps, strict=True)]
        pixels: np.ndarray = np.full((*sides, 3), 255, np.uint8)
        colors = _HUES[self._colors % len(_HUES)]
        pixels[self._rows // steps[0], self._cols // steps[1]] = colors
        return pixels

    def svg(self) -> str:
        """The picture as SVG; it needs no other library."""
        scale = min(_CELL, _SIDE / max(1, *self._shape))
        h, w = (_side_of(n, scale) for n in self._shape)
        heading = html.escape(self._heading())
        width = max(w + 20.0, 6.0 * len(heading))
        image = _framed(self._pixels(), 'x="10" y="24"', w, h)
        return _document(f'<text x="10" y="16">{heading}</text>{image}', width, h + 34)

    def png(self) -> bytes:
        """The entries as a PNG file, with a square of pixels for each."""
        pixels = self._pixels()
        step = max(1, int(_SIDE) // max(pixels.shape))
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
