"""``x[mask]`` where the mask has no concrete values: what can be done with it without its shape.

NOTE [masked parts]

    def f(y):
        y, mask = y.clone(), y > 0.0
        y[mask] = fnp.log(y[mask])
        return y.sum()

    assert fad.jit(fad.grad(f))(fnp.array([-1.0, 2.0])).tolist() == [1.0, 0.5]

Inside of ``vmap`` and ``jit`` it is not known how many elements a bool mask selects. So ``x[mask]`` is a
`MaskedPart`: elementwise operators compute with all elements, and a write with the same mask puts those back
that it selects. Where it selects nothing the operands are 1, so that no operator is singular there:
derivatives are those of the selected elements alone.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

import fad
from fad import Tensor
from fad.errors import ArgumentError, HostValueError, describe
from fad.extend import Primitive, aval_of, bind, is_elementwise, trace
from fad.extend.types import Array, Aval, DType, Operand, Outputs, PyTree, Value

Args = tuple[PyTree, ...]
Kwargs = dict[str, PyTree]


def _filled(mask: Array, x: Array) -> Array:
    return jnp.where(mask, x, jnp.ones((), jnp.result_type(x)))


_FILL = Primitive("masked", _filled, deferrable=True)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class MaskedPart:
    """The elements that a mask without concrete values selects; see NOTE [masked parts].

    Attributes:
        mask: the mask of the index; parts of the same mask have the same elements.
        selected: the same, in a shape that broadcasts to that of ``values``.
        values: a Tensor, with more elements than those selected.
        trailing: how many dimensions an operand may have that is not a part.
        error: the error to raise where their number has to be known.
    """

    mask: Value | np.ndarray
    selected: Value
    values: Tensor
    trailing: int
    error: HostValueError

    def __repr__(self) -> str:
        return f"MaskedPart({describe(self.values)}, mask={describe(self.mask)})"

    def __getattr__(self, name: str) -> Any:
        """A method of Tensors, which comes down to a function that is elementwise, or raises."""
        method = None if name.startswith("_") or name.endswith("_") else getattr(Tensor, name, None)
        if type(method) is not types.FunctionType:
            self._refuse()
        return functools.partial(method, self)

    @property
    def dtype(self) -> DType:
        """That of the elements."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions, of which one is the elements that the mask selects."""
        return self.values.ndim - np.ndim(self.mask) + 1

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise self.error

    def operand(self, v: PyTree) -> Outputs:
        """``v`` with all elements that take part in an operation, 1 where none is selected."""
        return bind(_FILL, (self.selected, self.elements(v)))

    def elements(self, v: PyTree) -> PyTree:
        """``v``, which is written to the selected elements or computed with them, in a shape that broadcasts.

        Raises:
            HostValueError: it has an element for each that is selected.
            ArgumentError: it is the part of another mask.
        """
        if isinstance(v, MaskedPart):
            if v.mask is not self.mask:
                raise ArgumentError(
                    f"x[mask] with the part of another mask, {v}: inside vmap and jit both have to be of one "
                    "mask, since two that are computed apart need not select the same elements. Instead of "
                    "x[x > 0] += y[x > 0] write two lines, with a name for the mask:\n"
                    "    m = x > 0\n    x[m] += y[m]"
                ) from None
            return v.values
        if isinstance(v, (list, tuple, np.ndarray, np.generic)):
            v = jnp.asarray(v)
        if np.ndim(v) > self.trailing:
            raise self.error
        return v

    def like(self, values: Tensor) -> MaskedPart:
        """The part of the same mask with other values."""
        return MaskedPart(self.mask, self.selected, values, self.trailing, self.error)

    def in_call(self, call: Callable[..., Outputs], args: Args, kwargs: Kwargs) -> Outputs:
        """``call(args, kwargs, binder)`` of a function that has this part among its arguments.

        They are Tensors there, and the binder makes a part of each output, and raises if the function is not
        elementwise.
        """
        parts = [v for v in (*args, *kwargs.values()) if type(v) is MaskedPart]
        tensors = {id(v): self.operand(v) for v in parts}
        filled = set(map(id, tensors.values()))

        def binder(primitive: Primitive, leaves: Sequence[Operand]) -> Outputs:
            operands = [x if id(x) in filled else self.operand(x) for x in leaves]
            if not _is_elementwise(primitive, tuple(map(aval_of, operands))):
                raise self.error
            out = bind(primitive, operands)
            return tuple(map(self.like, out)) if type(out) is tuple else self.like(out)

        return call(
            tuple([tensors.get(id(v), v) for v in args]),
            {name: tensors.get(id(v), v) for name, v in kwargs.items()},
            binder,
        )

    __array__ = __bool__ = __float__ = __int__ = __iter__ = __jax_array__ = __len__ = _refuse
    __getitem__ = __setitem__ = _refuse


# As an output of a transformed function, or in a container.
jax.tree_util.register_pytree_node(MaskedPart, MaskedPart._refuse, lambda _, children: children)


def _operator(name: str) -> Callable[..., MaskedPart]:
    """An operator of a Tensor, in place or not, as one of the elements that a mask selects."""
    is_in_place = name.startswith("__i") and name != "__invert__"

    def method(self: MaskedPart, *others: object) -> MaskedPart:
        tensor = self.operand(self)
        values = getattr(tensor, name)(*[self.operand(v) for v in others])
        if values is NotImplemented:
            refused: MaskedPart = values
            return refused
        return self.like(tensor if is_in_place else values)

    method.__name__ = name
    return method


_BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
for _name in [
    *[f"__{kind}{n}__" for n in _BINARY for kind in ("", "r", "i")],
    *["__neg__", "__pos__", "__abs__", "__invert__"],
    *["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "maximum", "minimum"],
]:
    setattr(MaskedPart, _name, _operator(_name))


@functools.lru_cache(maxsize=1024)
def _is_elementwise(primitive: Primitive, avals: tuple[Aval, ...]) -> bool:
    """Whether an operation works element by element, as far as its program shows."""
    program, _ = trace(primitive.flat, avals)
    shape = np.broadcast_shapes(*[a.shape for a in avals])
    shapes = all([a.shape == shape for a in program.out_avals])
    constants = any(map(np.ndim, program.consts))
    return shapes and not constants and all(map(is_elementwise, program.jaxpr.eqns))


# Method of `x.at[mask]` -> operator of the part; None where its values do not matter.
MASKED_UPDATES: dict[str, str | None] = {
    "set": None,
    "add": "__add__",
    "subtract": "__sub__",
    "multiply": "__mul__",
    "divide": "__truediv__",
    "power": "__pow__",
    "max": "maximum",
    "min": "minimum",
}


@functools.lru_cache(maxsize=64)
def _aligned(trailing: int) -> Primitive:
    """A mask with ``trailing`` more dimensions."""
    return Primitive("reshape", lambda m: m.reshape((*m.shape, *[1] * trailing)), deferrable=True)


def masked_part(x: Tensor, index: PyTree, error: HostValueError) -> tuple[Tensor, MaskedPart]:
    """The view of ``x`` that the rest of an index with one mask selects, and the part of that by the mask.

    Arguments:
        error: what is raised for other indices, and where the number of selected elements has to be known.

    Raises:
        IndexError: the mask has another shape than the dimensions that it selects from.
    """
    entries = list(index) if isinstance(index, tuple) else [index]
    others = [k for k, e in enumerate(entries) if not _is_basic(e)]
    if len(others) != 1 or not _is_mask(entries[others[0]]):
        raise error
    index_mask = entries[others[0]]
    mask, view = fad.asarray(index_mask), x
    behind = [e for e in entries[others[0] + 1 :] if e is not Ellipsis]
    trailing = sum([not isinstance(e, (int, np.integer)) for e in behind])
    if Ellipsis not in entries[: others[0]]:  # what the index does not name is behind the mask
        trailing += (
            x.ndim - mask.ndim - sum([e is not None and e is not Ellipsis for e in entries]) + 1
        )
    if len(entries) > 1:
        entries[others[0] : others[0] + 1] = [slice(None)] * mask.ndim
        view = x[tuple(entries)]
    start = view.ndim - trailing - mask.ndim
    if trailing < 0 or start < 0 or view.shape[start : start + mask.ndim] != mask.shape:
        raise IndexError(
            f"the shape of the mask {mask.shape} does not match the shape of the dimensions of "
            f"{describe(x)} that it selects from"
        ) from None
    selected = bind(_aligned(trailing), (mask,))
    ints = any([isinstance(e, (int, np.integer)) for e in entries])
    return view, MaskedPart(index_mask, selected, view, 0 if ints else trailing, error)


def _is_basic(e: object) -> bool:
    return e is None or e is Ellipsis or type(e) in (int, slice) or isinstance(e, np.integer)


def _is_mask(e: object) -> bool:
    return isinstance(e, (Tensor, jax.Array, np.ndarray)) and e.dtype == bool
