"""The in-place methods of Tensor that change its shape: ``transpose_``, ``squeeze_`` and the like."""

from __future__ import annotations

from collections.abc import Sequence

import fad.numpy as fnp
from fad.arrays import torch_operations
from fad.core.tensor import Tensor
from fad.errors import ArgumentError, describe
from fad.views.shapes_in_place import become_view


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


MEMBERS: dict[str, object] = {
    "expand_dims_": _unsqueeze_,
    "squeeze_": _squeeze_,
    "swapaxes_": _transpose_,
    "swapdims_": _transpose_,
    "t_": _t_,
    "transpose_": _transpose_,
    "unsqueeze_": _unsqueeze_,
}
