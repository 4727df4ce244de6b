"""The in-place methods of Tensor: ``add_``, ``sin_``, ``copy_``, ``index_add_`` and the like, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fad.core.borrowed import as_array
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import ArgumentError, describe
from fad.methods.names import ELEMENTWISE, IN_PLACE_ALONE, method_of
from fad.views.copying import clone
from fad.views.index_forms import parse_index
from fad.views.indexing import updater
from fad.views.inplace import replace, set_item, write


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


def _index_put(
    self: Tensor, indices: Sequence[PyTree], values: PyTree, accumulate: bool = False
) -> Tensor:
    """A copy with the elements at a tuple of index arrays set to ``values``, or with these added."""
    return _index_put_(clone(self), indices, values, accumulate)


IN_PLACE: dict[str, object] = {
    **{
        f"{name}_": method_of(where, write)
        for name, where in (ELEMENTWISE | IN_PLACE_ALONE).items()
    },
    "copy_": _copy_,
    "fill_": _fill_,
    "index_put": _index_put,
    "index_put_": _index_put_,
    "zero_": _zero_,
}
