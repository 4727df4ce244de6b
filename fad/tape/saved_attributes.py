"""The saved values of a recorded node, as its attributes ``_saved_*`` and ``_raw_saved_*``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax

from fad.core.tensor import Tensor
from fad.errors import GradientError
from fad.tape.packing import UNCHANGED, PackedValue, unpack
from fad.tape.saved import (
    check_versions,
    opened,
    raise_released,
    raise_written,
)

__all__ = ["SavedTensor", "raise_freed", "saved_attribute"]


def saved_attribute(node: Any, name: str) -> Any:
    """The attribute ``name`` of a `fad.tape.recorder.PrimitiveNode`.

    ``_saved_0``, ``_saved_self``, ``_saved_other`` are kept inputs, ``_saved_result`` is the output;
    with ``_raw`` in front, the `SavedTensor`.

    Raises:
        AttributeError: the node did not save that.
        GradientError: it was freed.
    """
    if not name.startswith(("_saved_", "_raw_saved_")):
        raise AttributeError(f"{node.name()} has no attribute {name!r}")
    which = name.split("saved_", 1)[1]
    plan = node.plan
    places = {f"{i}": k for k, i in enumerate(plan.kept_inputs)}
    for other, position in (("self", "0"), ("other", "1")):
        if position in places:
            places[other] = places[position]
    for k, i in enumerate(plan.kept_outputs):
        places["result" if plan.single else f"result{i}"] = len(plan.kept_inputs) + k
    if which not in places:
        known = ", ".join(f"_saved_{p}" for p in places) or "nothing"
        raise AttributeError(f"{node.name()} has no {name}: it saved {known}")
    if node.values is None:
        raise_released(node)
    if name.startswith("_raw"):
        return SavedTensor(node, functools.partial(_packed, node, places[which]))
    return _read(node, places[which])


def _read(node: Any, place: int) -> Any:
    """A saved value with its history."""
    if node.packed:
        return unpack(node.values[place], True)
    check_versions(node, node.tensors, node.versions, node.values)
    if node.written is not None:
        raise_written(node, node.written)
    x = node.tracked(node.tensors, node.values)[place]
    return node.level.lift(x) if isinstance(x, (Tensor, jax.Array)) else x


def _packed(node: Any, place: int) -> Any:
    """A saved value as it is kept, for hooks: a PackedValue, if it is a Tensor."""
    if node.values is None:
        raise_freed()
    if not node.packed:
        node.pack(
            [
                PackedValue(node.level, v, place, UNCHANGED)
                if isinstance(v, (Tensor, jax.Array))
                else v
                for v, place in zip(opened(node.values), node.places(), strict=True)
            ]
        )
    return node.values[place]


def raise_freed() -> NoReturn:
    """The error for a hook of a saved value that a backward pass has freed."""
    raise GradientError(
        "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of "
        "the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True to "
        "keep them."
    )


class SavedTensor:
    """One saved value of a recorded node, for hooks of its own; from ``node._raw_saved_*``.

    ``packed`` gives it in the form in which the node keeps it for hooks, see `raise_freed`.

    Source: ``torch._C._autograd.SavedTensor``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> y.grad_fn._raw_saved_self.register_hooks(lambda t: t.item(), fad.tensor)
    >>> y.backward()
    >>> x.grad.item()
    4.0
    """

    __slots__ = ("node", "packed")

    def __init__(self, node: Any, packed: Callable[[], Any]) -> None:
        self.node = node
        self.packed = packed

    def register_hooks(self, pack_hook: Any, unpack_hook: Any) -> None:
        """Pack this value now, and unpack it when it is needed.

        Raises:
            GradientError: it has hooks already, is None, or was freed.
        """
        value = self.packed()
        if value is None:
            raise GradientError(
                "Calling register_hooks on a saved tensor with value None is forbidden"
            )
        if not isinstance(value, PackedValue):
            raise TypeError(
                f"{self.node.name()} saved the number {value!r} here, which has no hooks"
            )
        value.repack(pack_hook, unpack_hook)
