"""The in-place methods of Tensor: ``add_``, ``sin_``, ``copy_``, ``transpose_`` and the like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.core.borrowed import as_array
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import ArgumentError, describe
from fad.methods.names import ELEMENTWISE, IN_PLACE_ALONE, method_of
from fad.views.indexing import parse_index, updater
from fad.views.inplace import become_view, replace, set_item, write

# The in-place methods of Tensor: ``add_``, ``sin_``, ``copy_``, ``index_add_`` and the like, as tables.


def _operand(x: PyTree) -> PyTree:
    return as_array(x) if isinstance(x, (list, tuple, np.ndarray, np.generic)) else x


def _copy_(self: Tensor, source: PyTree) -> Tensor:
    """Take the values of ``source``, broadcast to the shape and converted to the dtype."""
    source = _operand(source)
    if np.ndim(source) > self.ndim:
        raise ArgumentError(
            f"copy_: cannot broadcast {describe(source)} to the shape {self.shape} of the Tensor"
        )
    return replace(self, source)


def _fill_(self: Tensor, value: PyTree) -> Tensor:
    """Set all elements to one value, a number or 0-d Tensor."""
    if np.ndim(value) != 0:
        raise ArgumentError(f"fill_: the value must have no dimensions, got {describe(value)}")
    return replace(self, value)


def _zero_(self: Tensor) -> Tensor:
    """Set all elements to zero."""
    return replace(self, 0)


def _index_put_(
    self: Tensor, indices: Sequence[PyTree], values: PyTree, accumulate: bool = False
) -> Tensor:
    """Set (or, with ``accumulate``, add to) the elements at a tuple of index arrays."""
    if not isinstance(indices, (tuple, list)):
        raise ArgumentError(
            f"index_put_: indices must be a tuple of arrays, got {describe(indices)}"
        )
    if not accumulate:
        set_item(self, tuple(indices), values)
        return self
    form, numbers = parse_index(self, tuple(indices))
    return write(updater("add", form, ()), [self, _operand(values), *numbers])


# The in-place methods of Tensor that change its shape: ``transpose_``, ``squeeze_`` and the like.


def _transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Swap two dimensions in place, as ``torch.Tensor.transpose_``; `swapaxes_`, `swapdims_` are the same."""
    return become_view(self, lambda x: fnp.swapaxes(x, dim0, dim1), "transpose_")


def _t_(self: Tensor) -> Tensor:
    """Transpose a matrix in place; a Tensor with fewer dimensions stays as it is."""
    if self.ndim > 2:
        raise ArgumentError(
            f"t_: expected a Tensor with at most 2 dimensions, got {describe(self)}: write "
            "x.transpose_(dim0, dim1)"
        )
    return become_view(self, fnp.transpose, "t_")


def _squeeze_(self: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Drop dimensions of length 1 in place: all, or those of ``dim`` that have this length."""
    return become_view(self, lambda x: torch_operations.squeeze(x, dim), "squeeze_")


def _unsqueeze_(self: Tensor, dim: int | Sequence[int]) -> Tensor:
    """Insert a dimension of length 1 in place, at ``dim`` of the result (or several); also `expand_dims_`."""
    return become_view(self, lambda x: fnp.expand_dims(x, dim), "unsqueeze_")


# Those that write no new values.
SHAPES: dict[str, object] = {
    "expand_dims_": _unsqueeze_,
    "squeeze_": _squeeze_,
    "swapaxes_": _transpose_,
    "swapdims_": _transpose_,
    "t_": _t_,
    "transpose_": _transpose_,
    "unsqueeze_": _unsqueeze_,
}
MEMBERS: dict[str, object] = {
    **{
        f"{name}_": method_of(where, write)
        for name, where in (ELEMENTWISE | IN_PLACE_ALONE).items()
    },
    **SHAPES,
    "copy_": _copy_,
    "fill_": _fill_,
    "index_put_": _index_put_,
    "zero_": _zero_,
}
