"""The nodes of recorded operations: what all have in common, and the values that they keep."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import jax
import numpy as np

from fad.core.borrowed import as_array
from fad.core.level import Level, state
from fad.core.observation import Observable
from fad.core.tensor import Tensor, bodies
from fad.core.types import MaybeValue, Operand, Outputs
from fad.errors import GradientError, describe
from fad.tape.anomaly import remember_write
from fad.tape.graph import Node, alias, gradient_edge, sharding_of
from fad.tape.saved import (
    UNCHANGED,
    PackedValue,
    SavedView,
    check_versions,
    raise_released,
    raise_written,
    versions_of,
)

# What the nodes of all recorded operations have in common.


class RecordedNode(Observable, Node):
    """The node of a recorded operation: `run` does the work, `apply` is for the user's calls."""

    __slots__ = ()

    observables = types.MappingProxyType({"release_variables": "release"})
    _is_recorded = True

    def apply(self, *gradients: Operand | None) -> Outputs:
        level = self.level
        if len(gradients) != self.num_inputs:
            raise TypeError(
                f"{self.name()}: expected {self.num_inputs} arguments, got {len(gradients)} instead: "
                "one gradient for each output of the operation, None for zero"
            )
        create_graph = level.id > state.watermark
        cotangents: list[MaybeValue] = [None] * len(gradients)
        for i, g in enumerate(gradients):
            if g is not None:
                x = g if isinstance(g, (Tensor, jax.Array)) else as_array(g)
                cotangents[i] = level.lift(x) if create_graph else level.detach(x)
        need = tuple([e is not None for e in self.edges])
        grads = for_edges(self.run(cotangents, need, create_graph), need)
        result = tuple([None if g is None else level.lift(g) for g in grads])
        return result[0] if len(result) == 1 else result

    def _own_sharding(self) -> jax.sharding.Sharding | None:
        for value in self.saved_values():
            sharding = sharding_of(value)
            if sharding is not None:
                return sharding
        return None

    def saved_values(self) -> Sequence[MaybeValue]:
        """What it keeps for the backward pass, in order, as detached values; of large views the bases."""
        return ()


def for_edges(grads: Sequence[MaybeValue], need: Sequence[bool]) -> Sequence[MaybeValue]:
    """Gradients for every edge, from gradients for those that are needed alone."""
    if len(grads) == len(need):
        return grads
    it = iter(grads)
    return [next(it) if n else None for n in need]


_NAMES = {"to": "CopyBackwards", "CopySlices": "CopySlices"}


def node_name(primitive: str) -> str:
    """The name of the nodes of a Primitive."""
    if primitive in _NAMES:
        return _NAMES[primitive]
    words = primitive.replace(".", "_").strip("_").split("_")
    return "".join(w[:1].upper() + w[1:] for w in words) + "Backward"


# The end of a graph in a body of `jit`, where it goes on outside.


class OutsideNode(RecordedNode):
    """Where the graph of a body goes on outside: at a Tensor that has a history there."""

    __slots__ = ("tensor",)

    num_inputs = 1

    def __init__(self, level: Level, tensor: Tensor) -> None:
        self._start(level, ())
        self.tensor = tensor

    def run(self, *args: object) -> NoReturn:
        raise GradientError(
            f"backward() in the body of jit reaches a Tensor ({describe(self.tensor)}) whose history is "
            "outside of it, and the pass cannot go on there. Return the loss and call backward() on it "
            "outside; or if the Tensor is a constant there, write x.detach(); or name the leaves that are "
            "meant: backward(inputs=[...])."
        )

    def metadata_of_inputs(self) -> list[Any]:
        return []


def beyond_bodies(node: object) -> Tensor | None:
    """The Tensor outside of all bodies whose history goes on from ``node``; None if that is no such place."""
    tensor = None
    while isinstance(node, OutsideNode):
        tensor, node = node.tensor, node.tensor._node
    return tensor


def is_of_outer_graph(t: object) -> bool:
    """Whether ``t`` is from outside of the body of `jit` that is being traced, with a history there."""
    return bool(bodies.traced) and isinstance(t, Tensor) and beyond_bodies(t.node) is not None


# A recorded node that keeps values: what they are now, their hooks, and their names.
#
# NOTE [saved values]
#
#     y = x * 1.0
#     z = fnp.exp(y) * y
#     z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)  # of exp(y) alone
#     y += 1.0
#     z.backward()  # raises GradientError: y was changed after it was saved
#
# A node keeps of each input that its backward pass needs three things: the value, an array, which nothing can
# change; the Tensor that it came from, for its place in the graph; and the version of that Tensor, for the
# error above. A value that hooks have packed is a `PackedValue` instead: it has the place in the graph, and
# no version, as what the hooks give back is what the pass computes with. Each value is packed for itself, and
# the others of the node are still checked: above, `y`.

_ARRAYS = (Tensor, jax.Array, np.ndarray)


class SavingNode(RecordedNode):
    """A recorded node that keeps values; see NOTE [saved values].

    ``values`` are detached: those of inputs first, then of the outputs ``kept_outputs``, then others; None
    once they are freed. ``tensors`` are the inputs among them with their history, None where hooks have
    packed one; ``versions`` are those at capture, None if all are 0. ``packed``: some have gone through
    hooks. ``has_views``: there are some `SavedView`. ``written``: an output among them that was changed in
    place since, and its version then.
    """

    __slots__ = ("has_views", "packed", "tensors", "values", "versions", "written")

    values: list[Any] | None
    kept_outputs: Sequence[int]

    def _keep(self, tensors: list[Any]) -> None:
        """Keep ``tensors``, the inputs that ``values`` begin with, with their versions; pack for hooks."""
        self.tensors = tensors
        self.packed = self.has_views = False
        self.written: tuple[int, int] | None = None
        self.versions = versions_of(tensors)
        if state.saved_hooks:
            self._pack()

    def _pack(self) -> None:
        """Pack with the innermost hooks all values that hooks are for: arrays and Tensors, of `of_hooks`."""
        hooks, of_hooks = state.saved_hooks[-1], self.of_hooks()
        values = list(self.values or ())
        for k, v in enumerate(values):
            if isinstance(v, _ARRAYS) and (of_hooks is None or k in of_hooks):
                values[k] = PackedValue(self.level, v, self._place(k), hooks)
        self._replace(values)

    def of_hooks(self) -> Collection[int] | None:
        """Which values go through hooks, by number; None: all."""
        return None

    def _replace(self, values: list[Any]) -> None:
        """Keep ``values`` in place of those kept so far; of what is packed, neither Tensor nor version."""
        packed = [type(v) is PackedValue for v in values]
        self.packed = True
        self.values = values
        if self.versions is not None:
            left = [0 if p else v for p, v in zip(packed, self.versions)]
            self.versions = left if any(left) else None
        self.tensors = [None if p else t for p, t in zip(packed, self.tensors)]

    def _place(self, k: int) -> tuple[Node, int] | None:
        """The place of value number ``k`` in the graph of this level; None where it has none."""
        t: Any = None
        if k >= len(self.tensors):
            at = k - len(self.tensors)
            return (self, self.kept_outputs[at]) if at < len(self.kept_outputs) else None
        if self.values is not None:
            t = self._with_history(k, self.values[k], self.tensors)
        of_level = isinstance(t, Tensor) and t.level is self.level
        return gradient_edge(t) if of_level and t.requires_grad else None

    def _with_history(self, k: int, value: Any, tensors: Sequence[Any]) -> Any:
        """Value number ``k`` as a Tensor at its place in the graph, if it has one."""
        if type(value) is PackedValue:
            return value.unpack(True)
        if type(value) is SavedView:
            return value.tensor()
        if k < len(tensors):
            return tensors[k]
        at = k - len(tensors)
        if value is None or at >= len(self.kept_outputs):
            return value
        t = alias(self.level.lift(value))
        t._requires_grad, t._node, t._output_nr = True, self, self.kept_outputs[at]
        return t

    def opened(self, create_graph: bool) -> list[Any]:
        """The values for a pass: unpacked, views made again; with ``create_graph`` with their history.

        Raises:
            GradientError: they were freed, or changed in place.
        """
        # Another thread may release the node now: it takes `values` away first.
        tensors, versions = self.tensors, self.versions
        values = self.values
        if values is None:
            raise_released(self)
        check_versions(self, tensors, versions, values)
        if self.written is not None:
            raise_written(self, self.written)
        if create_graph:
            return [self._with_history(k, v, tensors) for k, v in enumerate(values)]
        if not self.packed and not self.has_views:
            return values
        return [
            v.unpack(False) if type(v) is PackedValue else v.opened() if type(v) is SavedView else v
            for v in values
        ]

    def saved_values(self) -> Sequence[Any]:
        if self.values is None:
            return ()
        values = [v.value if type(v) is SavedView else v for v in self.values]
        return [v for v in values if v is not None and type(v) is not PackedValue]

    def output_written(self, output_nr: int, version: int) -> None:
        if self.written is None and self.values is not None and output_nr in self.kept_outputs:
            k = len(self.tensors) + self.kept_outputs.index(output_nr)
            if type(self.values[k]) is not PackedValue and self.checks_output(k):
                self.written = (output_nr, version)
                remember_write(self, version)

    def checks_output(self, k: int) -> bool:
        """Whether a write to the output whose value is number ``k`` is an error for the backward pass."""
        return True

    # What users see of it

    def packed_value(self, k: int) -> object:
        """A value as it is kept, for hooks of its own: a `PackedValue`, if it is a Tensor."""
        values = self.values
        if values is None:
            raise GradientError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate "
                "values of the graph are freed when you call .backward() or autograd.grad(). Specify "
                "retain_graph=True to keep them."
            )
        value = values[k]
        if type(value) is SavedView:
            value = value.opened()
        if isinstance(value, _ARRAYS):
            place = self._place(k)
            value = PackedValue(self.level, value, place, UNCHANGED)
            self._replace([value if at == k else v for at, v in enumerate(values)])
            if self.written is not None and place == (self, self.written[0]):
                self.written = None
        return value

    def attribute(self, name: str, places: Mapping[str, int]) -> Any:
        """The attribute ``_saved_*`` or ``_raw_saved_*``, of the values that have these names.

        Raises:
            AttributeError: there is none of this name.
            GradientError: it was freed, or changed in place.
        """
        if not name.startswith(("_saved_", "_raw_saved_")):
            raise AttributeError(f"{self.name()} has no attribute {name!r}")
        k = places.get(name.split("saved_", 1)[1])
        if k is None:
            names = ", ".join([f"_saved_{p}" for p in places]) or "nothing"
            raise AttributeError(f"{self.name()} has no {name}: it saved {names}")
        values = self.values
        if values is None:
            raise_released(self)
        if name.startswith("_raw"):
            return SavedTensor(self, functools.partial(self.packed_value, k))
        if type(values[k]) is not PackedValue:
            check_versions(self, self.tensors, self.versions, values)
            if self.written is not None:
                raise_written(self, self.written)
        x = self._with_history(k, values[k], self.tensors)
        return self.level.lift(x) if isinstance(x, (Tensor, jax.Array)) else x


@dataclasses.dataclass(slots=True, eq=False)
class SavedTensor:
    """One saved value of a recorded node, for hooks of its own; from ``node._raw_saved_*``.

    ``packed`` gives it as the node keeps it for hooks, see `SavingNode.packed_value`.

    Source: ``torch._C._autograd.SavedTensor``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> y.grad_fn._raw_saved_self.register_hooks(lambda t: t.item(), fad.tensor)
    >>> y.backward()
    >>> x.grad.item()
    4.0
    """

    node: Node
    packed: Callable[[], object]

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
