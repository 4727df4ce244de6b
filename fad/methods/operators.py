"""Operators of a Tensor, and a Tensor as a container: items, length, iteration, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad.arrays.arguments import is_list
from fad.core.avals import VALUES
from fad.core.jaxapi import array_type
from fad.core.tensor import Tensor
from fad.core.types import Operand, PyTree
from fad.errors import ArgumentError, attribute, describe
from fad.methods.names import method_of, pairs
from fad.views.copying import clone, deep_copy, reduce, shallow_copy
from fad.views.indexing import At, get_item, items
from fad.views.inplace import replace, set_item, write
from fad.views.make_view import same_view

# Operators of a Tensor, and its real and imaginary part.

_USUAL = VALUES | {Tensor}  # the types of most operands: `isinstance` takes longer
_OPERANDS = (float, int, array_type, Tensor, complex, np.ndarray, np.generic, jax.Array)
# Operator -> function of fad.numpy.
_BINARY = pairs(
    """add sub=subtract mul=multiply truediv=true_divide floordiv=floor_divide mod=remainder divmod
    pow=power matmul and=bitwise_and or=bitwise_or xor=bitwise_xor lshift=left_shift rshift=right_shift"""
)
_COMPARE = pairs("eq=equal ne=not_equal lt=less le=less_equal gt=greater ge=greater_equal")
_UNARY = pairs("neg=negative pos=positive abs invert")


def _binary(op: Callable[..., PyTree], swap: bool = False) -> Callable[[Tensor, PyTree], PyTree]:
    """The operator method of ``op``; with ``swap`` the reflected one."""

    def operator(self: Tensor, other: Operand) -> PyTree:
        if type(other) in _USUAL or isinstance(other, _OPERANDS) or is_list(other):
            return op(other, self) if swap else op(self, other)
        return _no_operand(other)

    return operator


def _no_operand(other: Operand) -> Tensor:
    """NotImplemented, for Python to try the other operand: a tensor of PyTorch would fail without a hint."""
    if type(other).__module__.partition(".")[0] == "torch":
        raise ArgumentError(
            "a torch.Tensor cannot be an operand of a Tensor of fad: write fad.tensor(t), or "
            "fad.from_dlpack(t) without a copy"
        )
    return NotImplemented


def _set_part(name: str) -> Callable[[Tensor, Operand], None]:
    """The setter of ``x.real`` and ``x.imag``."""

    def put(self: Tensor, value: Operand) -> None:
        if name == "imag" and not jnp.issubdtype(self.dtype, np.complexfloating):
            raise TypeError(f"imag: {describe(self)} has no imaginary part to write to")
        part = getattr(self, name)
        if not same_view(part, value):  # as in the last part of ``x.real += v``
            replace(part, value, who=f"x.{name} = v")

    return put


def _operators() -> dict[str, object]:
    methods: dict[str, object] = {}
    for name, function in _BINARY.items():
        op = getattr(fnp, function)
        methods[f"__{name}__"] = _binary(op)
        methods[f"__r{name}__"] = _binary(op, swap=True)
        if name != "divmod":
            methods[f"__i{name}__"] = _binary(method_of((fnp, function), write))
    for name, function in _COMPARE.items():
        methods[f"__{name}__"] = _binary(getattr(fnp, function))
    for name, function in _UNARY.items():
        methods[f"__{name}__"] = method_of((fnp, function))
    for name in ("real", "imag"):
        methods[name] = attribute(method_of((fnp, name)), _set_part(name))
    return methods


# A Tensor as a container: items, length, iteration, membership, copies.


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


def _set_item(self: Tensor, index: PyTree, value: PyTree) -> None:
    if isinstance(value, (list, tuple)):  # there may be Tensors in it
        value = fnp.asarray(value)
    set_item(self, index, value)


_set_item.__doc__ = set_item.__doc__


MEMBERS: dict[str, object] = {
    **_operators(),
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
}
