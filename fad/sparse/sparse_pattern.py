"""``SparsePattern``: the pattern of a derivative with its colouring, which can be saved."""

from __future__ import annotations

import functools
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fad.errors import ArgumentError, StructureError
from fad.extend.types import PyTree
from fad.sparse.coloring import Coloring, best_coloring
from fad.sparse.matrix_entries import Leaf, offsets, pairs_of

_VERSION = 1  # of the format of files


class SparsePattern:
    """Which entries of a derivative may differ from 0, and which products show them.

    `sparse_pattern` returns it. `sparse_jacobian` and `sparse_hessian` take it as ``pattern``. It belongs to
    the shapes of the outputs and arguments, not to their dtypes or values.

    Attributes:
        rows, cols: the entries, as NumPy's arrays of ints, by rows. Elements of all outputs are numbered
            one after another, and those of all arguments.
        shape: how many elements the outputs and the arguments have.

    >>> import fad, fad.numpy as fnp
    >>> pattern = fad.sparse_pattern(fnp.diff)(fnp.zeros(50))
    >>> pattern
    SparsePattern(49 × 50, 98 entries, 2 products forward)
    """

    def __init__(
        self,
        rows: np.ndarray,
        cols: np.ndarray,
        outputs: Sequence[Leaf],
        arguments: Sequence[Leaf],
        hessian: bool,
    ) -> None:
        self.rows, self.cols = rows, cols
        self._outputs, self._arguments = list(outputs), list(arguments)
        self._hessian = hessian
        self.shape = offsets(outputs)[-1], offsets(arguments)[-1]

    @classmethod
    def from_matrix(
        cls, matrix: PyTree, out_ndim: int | None = None, symmetric: bool = False
    ) -> SparsePattern:
        """The pattern of a matrix: of a derivative of one output by one argument, the first.

        Arguments:
            matrix: an array, whose elements that are not 0 are entries; a BCOO, a BCSR or a sparse array
                of SciPy.
            out_ndim: how many of its dimensions belong to the output. The default is half.
            symmetric: it is the pattern of a Hessian.

        Raises:
            ArgumentError: it is not a matrix; ``out_ndim`` does not fit; it is not square, and ``symmetric``.

        >>> import fad, fad.numpy as fnp, numpy as np
        >>> pattern = fad.SparsePattern.from_matrix(np.eye(3) + np.eye(3, k=1))
        >>> fad.sparse_jacobian(lambda x: x * fnp.roll(x, -1), pattern=pattern)(fnp.ones(3)).nse
        5
        """
        who, ndim = "SparsePattern.from_matrix", len(getattr(matrix, "shape", ()))
        out = ndim // 2 if out_ndim is None else out_ndim
        shape = tuple(getattr(matrix, "shape", ()))
        if not 0 <= out <= ndim:
            raise ArgumentError(f"{who}: out_ndim is {out}, and the matrix has the shape {shape}")
        rows, cols = pairs_of(f"{who}: the matrix", matrix, shape[:out], shape[out:], ArgumentError)
        of = [("argument 0" if symmetric else "output", shape[:out])]
        by = [("argument 0", shape[out:])]
        height, width = offsets(of)[-1], offsets(by)[-1]
        if symmetric and height != width:
            raise ArgumentError(f"{who}: symmetric, and the matrix is {height} × {width}")
        entries = np.unique(rows * max(width, 1) + cols)
        return cls(entries // max(width, 1), entries % max(width, 1), of, by, symmetric)

    @functools.cached_property
    def colored(self) -> tuple[Coloring, bool]:
        """The colouring that takes the fewest products, and whether they go forward."""
        return best_coloring(self.rows, self.cols, *self.shape, self._hessian)

    @property
    def nse(self) -> int:
        """How many entries there are."""
        return len(self.rows)

    @property
    def products(self) -> int:
        """How many products show them."""
        return self.colored[0].count

    @property
    def shown_by(self) -> np.ndarray:
        """For each entry, the number of the product that shows it."""
        return self.colored[0].products

    @property
    def mode(self) -> str:
        """``forward``: products with columns; ``reverse``: with rows; ``hessian``: read from either side."""
        if self._hessian:
            return "hessian"
        return "forward" if self.colored[1] else "reverse"

    def __repr__(self) -> str:
        count = self.products
        return (
            f"SparsePattern({self.shape[0]} × {self.shape[1]}, {self.nse} entries, {count} "
            f"product{'s' * (count != 1)} {'of a Hessian' if self._hessian else self.mode})"
        )

    def check_fits(
        self, outputs: Sequence[Leaf], arguments: Sequence[Leaf], hessian: bool, who: str
    ) -> None:
        """Refuse to be the pattern of a derivative of other outputs and arguments.

        Raises:
            StructureError: it is the pattern of other derivatives.
        """
        again = f"Find it with fad.sparse_pattern(f, ...{', hessian=True' * hessian})(*args)."
        if self._hessian != hessian:
            kinds = ("Jacobian", "Hessian")
            raise StructureError(
                f"{who}: the pattern is that of a {kinds[self._hessian]}, expected that of a "
                f"{kinds[hessian]}. {again}"
            )
        for what, expected, got in (
            ("outputs", self._outputs, outputs),
            ("arguments", self._arguments, arguments),
        ):
            if expected != list(got):
                raise StructureError(
                    f"{who}: the pattern is for {what} {_in_words(expected)}, got {_in_words(got)}. {again}"
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the pattern and its colouring to a file, for `load`.

        Arguments:
            path: the name of the file, an archive of NumPy's; ``.npz`` is usual.
        """
        coloring, forward = self.colored
        about = {
            "version": _VERSION,
            "outputs": self._outputs,
            "arguments": self._arguments,
            "hessian": self._hessian,
            "forward": forward,
        }
        arrays = {name: getattr(coloring, name) for name in ("colors", "products")}
        with open(path, "wb") as file:
            np.savez_compressed(
                file,
                about=np.array(json.dumps(about)),
                rows=self.rows,
                cols=self.cols,
                places=coloring.rows,
                **arrays,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SparsePattern:
        """Read what `save` wrote.

        Arguments:
            path: the name of the file.

        Returns:
            The pattern; derivatives by it are the same to the last bit.

        Raises:
            ArgumentError: it is not such a file, or its colouring does not show its entries.
            FileNotFoundError: there is none.

        >>> import fad, fad.numpy as fnp, tempfile
        >>> path = tempfile.mkdtemp() + "/diff.npz"
        >>> fad.sparse_pattern(fnp.diff)(fnp.zeros(50)).save(path)
        >>> fad.SparsePattern.load(path).nse
        98
        """
        contents = io.BytesIO(Path(path).read_bytes())
        try:
            with np.load(contents, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                names = ("rows", "cols", "colors", "places", "products")
                rows, cols, colors, places, products = (file[name] for name in names)
            if about["version"] != _VERSION:
                raise ValueError("another version")
            outputs, arguments = (
                [(str(name), tuple(map(int, shape))) for name, shape in about[key]]
                for key in ("outputs", "arguments")
            )
            pattern = cls(rows, cols, outputs, arguments, bool(about["hessian"]))
            coloring, forward = Coloring(colors, places, products), bool(about["forward"])
            if not _is_sound(pattern, coloring, forward):
                raise ValueError("the colouring does not show the entries")
        except Exception as error:
            # NumPy and zipfile raise errors of many kinds for a damaged file.
            raise ArgumentError(
                f"SparsePattern.load: {os.fspath(path)!r} is no pattern that SparsePattern.save of this "
                f"version wrote. Find it again, with fad.sparse_pattern(f)(*args), and save it."
            ) from error
        pattern.__dict__["colored"] = coloring, forward
        return pattern


def _is_sound(pattern: SparsePattern, coloring: Coloring, forward: bool) -> bool:
    """Whether what a file says is a pattern, and a colouring that shows it."""
    lines, across = (pattern.rows, pattern.cols) if forward else (pattern.cols, pattern.rows)
    height, width = pattern.shape if forward else pattern.shape[::-1]
    arrays = (lines, across, coloring.colors, coloring.rows, coloring.products)
    if any([x.ndim != 1 or x.dtype.kind != "i" for x in arrays]):
        return False
    if len({len(lines), len(across), len(coloring.rows), len(coloring.products)}) != 1:
        return False
    numbers = pattern.rows * max(pattern.shape[1], 1) + pattern.cols
    inside = (lines >= 0) & (lines < height) & (across >= 0) & (across < width)
    read = (coloring.rows >= 0) & (coloring.rows < height)
    in_order = bool(np.all(inside) and np.all(read) and np.all(np.diff(numbers) > 0))
    sound = in_order and len(coloring.colors) == width and coloring.colors.min(initial=0) >= -1
    return sound and coloring.shows(lines, across, pattern.mode == "hessian")


def _in_words(leaves: Sequence[Any]) -> str:
    return ", ".join([f"{name} of shape {shape}" for name, shape in leaves])
