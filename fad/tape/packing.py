"""Saved values in the form that a pack hook gave them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from fad.core.avals import aval_of
from fad.core.casts import cast_to
from fad.core.dtypes import is_inexact
from fad.core.level import Level, bind, modes, state
from fad.core.tensor import Tensor, meta_of, new_tensor
from fad.core.types import Operand, PyTree, Value
from fad.errors import GradientError, describe
from fad.tape.graph import AccumulateGrad, Node, alias
from fad.tape.handles import refuse_in_traced_code

T = TypeVar("T")


def _unchanged(t: Tensor) -> Tensor:
    return t


# Packing with these keeps the value, and drops the Tensor whose version would be checked.
UNCHANGED = (_unchanged, _unchanged)


_WRITE = (
    "What it returns is an object of Python, which compiled code cannot keep until the backward pass, with "
    "hooks=True neither. To save less, write fad.checkpoint(f); to save in another form, a fad.Function "
    "whose setup_context saves that; or call the compiled function in the block, on Tensors that require "
    "grad: there the hooks are given what its node saves."
)


class PackedValue:
    """A saved value in the form that a pack hook gave it.

    ``edge`` is the place of the value in its graph, a weak reference: the node that saved it has an edge
    there, or is that place itself.
    """

    __slots__ = ("aval", "data", "edge", "hooks", "level")

    def __init__(
        self,
        level: Level,
        value: Operand,
        edge: tuple[Node, int] | None,
        hooks: tuple[Callable[[Any], object], Callable[[Any], object]],
    ) -> None:
        if hooks is not UNCHANGED:
            refuse_in_traced_code("a hook for saved tensors", write=_WRITE)
        self.level = level
        self.edge = None if edge is None else (weakref.ref(edge[0]), edge[1])
        self.hooks = hooks
        self.aval = aval_of(value)
        self.data = _run_pack(level, hooks[0], value)

    def place(self) -> tuple[Node | None, int]:
        """The node that made the value, and which of its outputs it is; None for a leaf."""
        node = None if self.edge is None else self.edge[0]()
        if node is None or isinstance(node, AccumulateGrad):
            return None, 0
        return node, self.edge[1]  # type: ignore[index]

    def repack(
        self, pack_hook: Callable[[Any], object], unpack_hook: Callable[[Any], object]
    ) -> None:
        """Pack with other hooks what no hooks of the user have packed so far."""
        if self.hooks is not UNCHANGED:
            raise GradientError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: "
                "only one pair of hooks is allowed at a time."
            )
        refuse_in_traced_code("a hook for saved tensors", write=_WRITE)
        self.data = _run_pack(self.level, pack_hook, self.data)
        self.hooks = (pack_hook, unpack_hook)

    def unpack(self, create_graph: bool) -> Any:
        """The value: detached, or as a Tensor with its history."""
        level = self.level
        if self.hooks is not UNCHANGED:
            refuse_in_traced_code("a hook for saved tensors", running=True)
        t = _quietly(level, self.hooks[1], self.data)
        if not isinstance(t, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(t).__name__} (from {_name(self.hooks[1])})"
            )
        value = level.detach(t)
        if t.dtype != self.aval.dtype or t.shape != self.aval.shape:
            value = self._as_saved(value)
        if not create_graph:
            return value
        t = _bare(level, value)
        node = None if self.edge is None else self.edge[0]()
        if self.edge is not None and node is not None:
            t._requires_grad = True
            if isinstance(node, AccumulateGrad):  # a leaf, whose gradient goes there
                meta_of(t).accumulator = weakref.ref(node)
            else:
                t._node, t._output_nr = node, self.edge[1]
        return t

    def _as_saved(self, x: Operand) -> Value:
        """What the unpack hook gave, in the dtype of what was saved.

        Raises:
            GradientError: it has another shape, or its dtype is of another kind.
        """
        own, given = self.aval, aval_of(x)
        if given.shape != own.shape or is_inexact(given.dtype) != is_inexact(own.dtype):
            raise GradientError(
                f"the unpack hook {_name(self.hooks[1])} returned {describe(x)} for a saved value "
                f"{own.dtype}{list(own.shape)}, which was packed by {_name(self.hooks[0])}: it must have "
                "the same shape, and a dtype of the same kind, which is then converted"
            )
        found: Value = bind(cast_to(own.dtype), (x,))
        return found


def _name(hook: Callable[..., object]) -> str:
    """A hook, for a message."""
    return str(getattr(hook, "__qualname__", None) or repr(hook))


def _run_pack(level: Level, hook: Callable[[Any], object], value: Any) -> object:
    """What a pack hook makes of a value.

    Raises:
        GradientError: it has changed the Tensor that it was given.
    """
    given = _bare(level, _as_it_is(value))
    packed = _quietly(level, hook, given)
    if given.meta is not None and given.meta.storage.version > 0:
        raise GradientError(
            f"A saved tensor pack hook is modifying its input in place: {_name(hook)}. Tensors provided "
            "as input to pack hook can not be modified by in-place operations in order to avoid "
            "unexpected side-effects: change a copy (t.clone())."
        )
    return packed


# NOTE [saved values of lower levels]
#
#     def f(a, x):
#         y = x * 1.0
#         y += a * y
#         return (y**2).sum()
#
#     with fad.autograd.allow_mutation_on_saved_tensors():
#         assert fad.jit(fad.grad(f))(0.5, array) == fad.grad(f)(0.5, array)
#
# Under ``jit`` the value of ``y`` is itself a Tensor, of the level below, and a write changes it there: it
# goes through all levels. So what is packed has handles of its own, down to the array, which nothing changes.
def _as_it_is(x: PyTree) -> PyTree:
    """The same value, at the same place in each graph, in handles that later writes do not change."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(_as_it_is, x))
    if not isinstance(x, Tensor):
        return x
    t = alias(x)
    t._value, t._aux = _as_it_is(t._value), _as_it_is(t._aux)
    return t


def _bare(level: Level, value: Operand) -> Tensor:
    """A Tensor of ``level`` without history, in a handle of its own."""
    if isinstance(value, Tensor) and value.level is level:
        return new_tensor(value.value, level, value.aux)
    return new_tensor(value, level)


def _quietly(level: Level, f: Callable[[Any], T], x: object) -> T:
    """Call a hook without hooks for what it saves itself, and at level 0 without recording.

    At a higher level ``x`` may be tracked by the levels below, which must see what the hook does.
    """
    watermark = max(state.watermark, 0) if level.id == 0 else state.watermark
    with modes(watermark=watermark, saved_hooks=()):
        return f(x)
