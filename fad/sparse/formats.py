"""The formats of sparse matrices: JAX's BCOO and BCSR, and the sparse arrays of SciPy."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fad.errors import ArgumentError, HostValueError, MissingLibrary
from fad.extend import leave
from fad.extend.types import Array, PyTree


class Block:
    """Where the entries of one block of a derivative are: of one output by one argument.

    Arguments:
        rows, cols: elements of the output and of the argument, by rows, each pair once.
        out, shape: their shapes.
    """

    def __init__(
        self, rows: np.ndarray, cols: np.ndarray, out: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        self.rows, self.cols = rows, cols
        self.shapes = out, shape

    @property
    def flat(self) -> tuple[int, int]:
        """How many elements the output and the argument have."""
        return math.prod(self.shapes[0]), math.prod(self.shapes[1])

    @functools.cached_property
    def places(self) -> Array:
        """The indices of a BCOO."""
        axes = [
            axis
            for flat, shape in zip((self.rows, self.cols), self.shapes, strict=True)
            for axis in (np.unravel_index(flat, shape) if shape else ())
        ]
        nothing: np.ndarray = np.zeros((len(self.rows), 0), np.int32)
        with jax.ensure_compile_time_eval():
            return jax.numpy.asarray(np.stack(axes, 1).astype(np.int32) if axes else nothing)

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """Where each row begins among the entries, and where the last ends."""
        counts = np.bincount(self.rows, minlength=self.flat[0])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @functools.cached_property
    def compressed(self) -> tuple[Array, Array]:
        """The indices of a BCSR, and where each row begins."""
        with jax.ensure_compile_time_eval():
            cols = jax.numpy.asarray(self.cols.astype(np.int32))
            return cols, jax.numpy.asarray(self.starts)


def _bcoo(block: Block, data: Array, who: str) -> Any:
    out, shape = block.shapes
    return _of_jax("BCOO", (data, block.places), (*out, *shape))


def _bcsr(block: Block, data: Array, who: str) -> Any:
    return _of_jax("BCSR", (data, *block.compressed), block.flat)


def _of_jax(name: str, parts: tuple[object, ...], shape: tuple[int, ...]) -> Any:
    """A sparse matrix whose indices are sorted, each once; its data may be a Tensor."""
    kept = {"shape": shape, "indices_sorted": True, "unique_indices": True}
    sparse = importlib.import_module("jax.experimental.sparse")  # takes long
    return getattr(sparse, name).tree_unflatten(kept, parts)


def _scipy(block: Block, data: Array, who: str) -> Any:
    array = leave(data, tensors=False)
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        raise HostValueError(
            f"{who}: format='scipy' makes a matrix on the host, and a transform (jit, grad, vmap, the tape) "
            "tracks its entries. Leave out format in the function that is transformed."
        )
    numbers = np.asarray(array)
    if numbers.dtype.kind not in "fc" or numbers.dtype.itemsize < 4:
        raise ArgumentError(
            f"{who}: SciPy has no sparse arrays of {numbers.dtype}. Convert what is returned to float32, or "
            "leave out format."
        )
    return _library(who).csr_array((numbers, block.cols, block.starts), block.flat)


def _library(who: str) -> Any:
    """SciPy's sparse arrays.

    Raises:
        MissingLibrary: it is not installed.
    """
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError as error:
        raise MissingLibrary(
            f"{who}: format='scipy' takes SciPy, which is not installed: pip install scipy. JAX's own "
            "matrices need no library: format='bcoo' or 'bcsr'"
        ) from error


FORMATS: dict[str, Callable[[Block, Array, str], PyTree]] = {
    "bcoo": _bcoo,
    "bcsr": _bcsr,
    "scipy": _scipy,
}


def check_format(format: object, who: str) -> None:
    """Refuse an unknown format, and one whose library is missing."""
    if format not in FORMATS:
        raise ArgumentError(f"{who}: format must be 'bcoo', 'bcsr' or 'scipy', got {format!r}")
    if format == "scipy":
        _library(who)
