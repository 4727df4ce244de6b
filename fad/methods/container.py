"""A Tensor as a container: items, length, iteration, membership, copies."""

from __future__ import annotations

from collections.abc import Iterator

import fad.numpy as fnp
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.views.copying import clone, deep_copy, reduce, shallow_copy
from fad.views.indexing import At, get_item, items
from fad.views.inplace import set_item


def _len(self: Tensor) -> int:
    if not self.shape:
        raise TypeError("len() of a 0-d Tensor: write x.size, or x[None] for one of length 1")
    return self.shape[0]


def _iter(self: Tensor) -> Iterator[Tensor]:
    """The items along the first dimension: views."""
    if not self.shape:
        raise TypeError(
            "iteration over a 0-d Tensor: write x.item() for its number, x[None] for one of length 1"
        )
    return iter(items(self))


def _contains(self: Tensor, value: PyTree) -> bool:
    """Whether an element equals ``value``, a number."""
    return bool(fnp.any(fnp.equal(self, value)))


def _set_item(self: Tensor, index: PyTree, value: PyTree) -> None:
    if isinstance(value, (list, tuple)):  # there may be Tensors in it
        value = fnp.asarray(value)
    set_item(self, index, value)


_set_item.__doc__ = set_item.__doc__


def _copy(self: Tensor, order: str = "C") -> Tensor:
    """A copy with the same history; ``order``, of NumPy's method, has no effect."""
    return clone(self)


MEMBERS: dict[str, object] = {
    "__contains__": _contains,
    "__copy__": shallow_copy,
    "__deepcopy__": deep_copy,
    "__getitem__": get_item,
    "__hash__": object.__hash__,
    "__iter__": _iter,
    "__len__": _len,
    "__reduce_ex__": reduce,
    "__setitem__": _set_item,
    "at": property(At, doc=At.__doc__),
    "clone": clone,
    "copy": _copy,
}
