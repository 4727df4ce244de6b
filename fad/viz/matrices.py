"""``fad.viz.matrix``: jacobians and hessians as images."""

from __future__ import annotations

import dataclasses
import html
import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fad import Tensor
from fad.errors import ArgumentError, describe
from fad.extend.types import PyTree
from fad.viz.drawing import viz_library
from fad.viz.pictures import colored, data_uri, real, shrunk

SIDE, CELL, MOST = 420.0, 24.0, 512  # of all panels; of one value, at most; values of a side
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
            h, w = (side_of(n, scale) for n in p.values.shape)
            parts.append(f'<text x="{x:.0f}" y="{y - 4:.0f}">{html.escape(p.name)}</text>')
            pixels = colored(shrunk(p.values, MOST), self._largest)
            parts.append(framed(pixels, f'x="{x:.1f}" y="{y:.1f}"', w, h, _line(p)))
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
        return document("".join(parts), width, height)

    def _grid(self) -> tuple[list[float], list[float], float]:
        """Widths of columns, heights of rows, and how large a value is drawn."""
        rows = max([p.row for p in self._panels], default=-1) + 1
        columns = max([p.column for p in self._panels], default=-1) + 1
        tall = [max([p.values.shape[0] for p in self._panels if p.row == k]) for k in range(rows)]
        wide = [
            max([p.values.shape[1] for p in self._panels if p.column == k]) for k in range(columns)
        ]
        scale = min(CELL, SIDE / max(1, sum(tall), sum(wide)))
        widths, heights = ([side_of(n, scale) for n in counts] for counts in (wide, tall))
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
                colored(shrunk(p.values, MOST), self._largest),
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


def framed(pixels: np.ndarray, place: str, width: float, height: float, title: str = "") -> str:
    """An image with a border, in SVG."""
    place += f' width="{width:.1f}" height="{height:.1f}"'
    inside = f"<title>{html.escape(title)}</title>" if title else ""
    return (
        f'<image {place} href="{data_uri(pixels)}" preserveAspectRatio="none" '
        f'style="image-rendering: pixelated">{inside}</image>'
        f'<rect {place} fill="none" stroke="#90a4ae"/>'
    )


def document(content: str, width: float, height: float) -> str:
    """A picture of this size, in SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif" '
        f'font-size="11" fill="#263238" style="background: white">{content}</svg>'
    )


def write(path: str | os.PathLike[str], picture: Any, **others: Callable[[], str]) -> None:
    """Write a file in the format that its name ends with: SVG, PNG, text, or one of the others.

    Raises:
        ArgumentError: there is no such format.
    """
    named = {"svg": picture.svg, "png": picture.png, "txt": picture.__str__, **others}
    formats = {f".{name}": make for name, make in named.items()}
    file = Path(path)
    if file.suffix.lower() not in formats:
        raise ArgumentError(
            f"save: the name must end with one of {', '.join(formats)}, got {str(path)!r}"
        )
    content = formats[file.suffix.lower()]()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


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


def side_of(count: int, scale: float) -> float:
    """How long a side of so many values is drawn."""
    return max(8.0, count * scale)
