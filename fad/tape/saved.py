"""Recorded nodes and the values that they save: versions, views among them, and hooks that pack them."""

from __future__ import annotations

import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np

from fad.core.avals import aval_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import array_type
from fad.core.level import Level, bind, bodies, modes, state
from fad.core.observation import Observable
from fad.core.primitive import Primitive, cast_to
from fad.core.tensor import Meta, Storage, Tensor, meta_of, new_tensor, version_of
from fad.core.types import MaybeValue, Operand, Outputs, PyTree, ViewLink
from fad.errors import GradientError, describe
from fad.tape.anomaly import explain_write, remember_write
from fad.tape.graph import Node, alias, gradient_edge, refuse_in_traced_code, sharding_of

# Saved values in the form that a pack hook gave them.

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
        if node is None or node._leaf is not None:
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
        saved, unpacked = self.aval, aval_of(value)
        if unpacked.shape != saved.shape or is_inexact(unpacked.dtype) != is_inexact(saved.dtype):
            raise GradientError(
                f"the unpack hook {_name(self.hooks[1])} returned {describe(value)} for a saved value "
                f"{saved.dtype}{list(saved.shape)}, which was packed by {_name(self.hooks[0])}: it must have "
                "the same shape, and a dtype of the same kind, which is then converted"
            )
        if unpacked.dtype != saved.dtype:
            value = bind(cast_to(saved.dtype), (value,))
        if not create_graph:
            return value
        t = _bare(level, value)
        node = None if self.edge is None else self.edge[0]()
        if self.edge is not None and node is not None:
            t._requires_grad = True
            if node._leaf is not None:  # a leaf, whose gradient goes there
                meta_of(t).accumulator = weakref.ref(node)
            else:
                t._node, t._output_nr = node, self.edge[1]
        return t


def _name(hook: Callable[..., object]) -> str:
    """A hook, for a message."""
    return str(getattr(hook, "__qualname__", None) or repr(hook))


def _run_pack(level: Level, hook: Callable[[Any], object], value: Any) -> object:
    """What a pack hook makes of a value.

    Raises:
        GradientError: it has changed the Tensor that it was given.
    """
    t = _bare(level, _as_it_is(value))
    packed = _quietly(level, hook, t)
    if t.meta is not None and t.meta.storage.version > 0:
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


# Saved values: their versions, views among them, and blocks with hooks that pack and unpack them.
#
# NOTE [views that are saved]
#
#     y = fnp.ones(1 << 12) * x
#     z = fnp.sin(y[1:])
#     assert z.grad_fn.saved_values()[0] is y.array  # no second copy of it
#
# A view is an array of its own here, where in PyTorch it shares the memory of its base, and a view that is
# alive keeps its base. So of a large view a node keeps the base alone, and the operation that leads from
# there (`SavedView`), which runs again in the backward pass.

LARGE = 1 << 11  # elements of a view: smaller ones are kept as they are, as a rule


def raise_released(node: Node) -> NoReturn:
    """The error for a second backward pass through a freed part of the graph."""
    raise GradientError(
        f"Trying to backward through the graph a second time (or directly access saved tensors after "
        f"they have already been freed), at {node.name()}. Saved intermediate values of the graph are "
        "freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
        "backward through the graph a second time or if you need to access saved tensors after "
        "calling backward. In a loop, detach what one step hands to the next: h = h.detach()."
    )


# Versions


def versions_of(tensors: Sequence[object]) -> list[int] | None:
    """Versions of saved Tensors, None if none of them was ever written to.

    Raises:
        GradientError: one of them is an inference Tensor. Those have versions too, negative ones,
            which costs every other Tensor nothing.
    """
    for t in tensors:
        if isinstance(t, Tensor) and t.meta is not None and t.meta.storage.version:
            break
    else:
        return None
    versions = [version_of(t) if isinstance(t, Tensor) else 0 for t in tensors]
    if min(versions) < 0:
        raise GradientError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
            "inference mode in computation tracked by autograd. To work around this, you can make a "
            "clone to get a normal tensor and use it in autograd, or use `fad.no_grad()` instead of "
            "`fad.inference_mode()`."
        )
    return versions


def check_versions(
    node: Node,
    tensors: Sequence[Any],
    saved: list[int] | None,
    values: Sequence[Any] | None = None,
) -> None:
    """Raise if a saved Tensor was changed in place after it was saved; ``values`` may be views of theirs."""
    now = versions_of(tensors)
    if now == saved or now is None:
        return
    for k, (t, version, before) in enumerate(
        zip(tensors, now, saved or [0] * len(now), strict=True)
    ):
        if version == before or not isinstance(t, Tensor):
            continue
        storage = t.meta.storage  # type: ignore[union-attr]  # it has a version
        if values is not None and type(values[k]) is SavedView:
            t = values[k]
        origin = f", which is output {t.output_nr} of {t.node.name()}" if t.node is not None else ""
        _raise_modified(t, f"{origin}, saved for {node.name()}", version, before, storage)


def raise_written(node: Node, written: tuple[int, int]) -> NoReturn:
    """The error for an output that a node keeps for its backward pass, and that was changed in place."""
    output_nr, version = written
    which = f", which is output {output_nr} of {node.name()}"
    _raise_modified(node.metadata_of_inputs()[output_nr], which, version, version - 1, node)


def _raise_modified(
    x: Any, which: str, version: int, expected: int, of: Storage | Node
) -> NoReturn:
    raise GradientError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: [{x.dtype} {list(x.shape)}]{which}, is at version {version}; expected version "
        f"{expected} instead. Hint: compute with a copy of what is written to later "
        "(u[1:-1] += u[1:-1].clone() ** 2), or write to a copy (x.clone()) of a result that is needed as it "
        f"was, or make the loop fad.lax.scan. {explain_write(of, expected + 1)}"
    )


# Views


class SavedView:
    """A saved view: ``value`` is that of its base, ``link`` what makes it a view.

    ``operation`` leads from the base to the view, together with ``numbers``; the rest is the view's own.
    ``handle`` is the view itself, as long as it is referenced.
    """

    __slots__ = (
        "dtype",
        "handle",
        "link",
        "node",
        "numbers",
        "operation",
        "output_nr",
        "requires_grad",
        "shape",
        "value",
    )

    def __init__(self, t: Tensor, operation: Primitive, numbers: list[int]) -> None:
        self.handle = weakref.ref(t)
        self.link: ViewLink = t.meta.link  # type: ignore[union-attr, assignment]
        base = self.link.base
        assert base is not None
        self.value = base._value
        self.operation = operation
        self.numbers = numbers
        self.dtype = t.dtype
        self.shape = t.shape
        self.requires_grad = t._requires_grad
        self.node = t._node
        self.output_nr = t._output_nr

    def unpack(self, create_graph: bool) -> Any:
        """The value: detached, or as a Tensor at its place: the view itself, if that is referenced.

        Raises:
            GradientError: the array of the base was donated or deleted.
        """
        view = self.handle() if create_graph else None
        if view is not None:
            return view
        base = self.value
        if type(base) is array_type and base.is_deleted():
            raise GradientError(
                f"a view ({self.dtype} {list(self.shape)}) that is saved for the backward pass is made again "
                "from its base, which was donated or deleted (donate_argnums, array.delete()): do so "
                "after the backward pass, or donate a copy"
            )
        value = bind(self.operation, [base, *self.numbers])
        if not create_graph:
            return value
        of = self.link.base
        assert of is not None and of.meta is not None
        t = new_tensor(value, of._level)
        t._requires_grad, t._node, t._output_nr = self.requires_grad, self.node, self.output_nr
        t.meta = Meta()
        t.meta.storage = of.meta.storage
        t.meta.link = self.link.again()
        return t


def keep_bases(tensors: list[Any], values: list[Any]) -> bool:
    """Among what a node of level 0 keeps, put bases and `SavedView` in the place of large views, if any."""
    some = False
    for k, t in enumerate(tensors):
        if isinstance(t, Tensor) and t.meta is not None and t.meta.link is not None:
            value = t._value
            if type(value) is not array_type:
                continue
            if value.aval.size < LARGE:
                continue
            operation = None if state.saved_hooks else t.meta.link.operation(t)
            if operation is not None:
                values[k] = SavedView(t, *operation)
                tensors[k] = t.meta.link.base
                some = True
    return some


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
        return next(filter(None, map(sharding_of, self.saved_values())), None)

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
            "meant, if it is not computed of them: backward(inputs=[...])."
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
_FORMS = (PackedValue, SavedView)  # that values are kept in, where not as they are


class SavingNode(RecordedNode):
    """A recorded node that keeps values; see NOTE [saved values].

    ``values`` are detached: those of inputs first, then of the outputs ``kept_outputs``, then others; None
    once they are freed. ``tensors`` are the inputs among them with their history, None where hooks have
    packed one; ``versions`` are those at capture, None if all are 0. ``packed``: some are kept in another
    form, as `PackedValue` or `SavedView`. ``written``: an output among them that was changed in place since,
    and its version then.
    """

    __slots__ = ("packed", "tensors", "values", "versions", "written")

    values: list[Any] | None
    kept_outputs: Sequence[int]

    def _keep(self, tensors: list[Any]) -> None:
        """Keep ``tensors``, the inputs that ``values`` begin with, with their versions; pack for hooks."""
        self.tensors = tensors
        self.packed = False
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
        if type(value) in _FORMS:
            return value.unpack(True)
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
        if not self.packed:
            return values
        return [v.unpack(False) if type(v) in _FORMS else v for v in values]

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
            value = value.unpack(False)
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


# Hooks


class saved_tensors_hooks:
    """A block in which values saved for the backward pass go through a pair of functions.

    Arguments:
        pack_hook: called with each Tensor that is saved, detached; may return anything.
        unpack_hook: called with that when the value is needed; must return a Tensor.

    The innermost block applies. It works at every level, inside ``fad.grad`` and ``fad.vmap`` too,
    where PyTorch refuses it; there, hooks that compute with the Tensors they get keep higher
    derivatives right, and hooks that leave fad (``t.numpy()``) raise where that would lose one.

    Raises:
        GradientError: it is used inside `disable_saved_tensors_hooks`; or something is saved in
            traced code (inside ``fad.jit``, with ``hooks=True`` too), where hooks would run once per
            trace; or the block is left more often than it was entered.

    Source: ``torch.autograd.graph.saved_tensors_hooks``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.autograd.saved_tensors_hooks(lambda t: t.numpy(), fad.tensor):
    ...     y = x * x
    >>> y.backward(); float(x.grad)
    4.0
    """

    __slots__ = ("__weakref__", "_saved", "hooks")

    def __init__(
        self, pack_hook: Callable[[Tensor], object], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        for hook in (pack_hook, unpack_hook):
            if not callable(hook):
                raise TypeError(
                    f"saved_tensors_hooks: the hooks must be functions, got {describe(hook)}"
                )
        self.hooks = (pack_hook, unpack_hook)
        self._saved: list[tuple[tuple[Callable[..., object], Callable[..., object]], ...]] = []

    def __enter__(self) -> None:
        if state.saved_refused is not None:
            raise GradientError(state.saved_refused)
        self._saved.append(state.saved_hooks)
        state.saved_hooks = (*state.saved_hooks, self.hooks)

    def __exit__(self, *exc: object) -> None:
        if not self._saved:
            raise GradientError(
                f"{type(self).__name__}: the block was left more often than it was entered: write it as "
                "`with`, or call __exit__ once for each __enter__"
            )
        state.saved_hooks = self._saved.pop()


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """A block in which Tensors may be changed in place after the graph has saved them.

    Saved values are immutable arrays, so the backward pass uses what was saved, wherever it runs, and
    nothing is copied. Outside of the block the change is an error, as in PyTorch.

    Source: ``torch.autograd.graph.allow_mutation_on_saved_tensors``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.autograd.allow_mutation_on_saved_tensors():
    ...     y = x * x
    >>> y.backward(); float(x.grad)
    4.0
    """
    with modes(saved_hooks=(*state.saved_hooks, UNCHANGED)):
        yield


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which `saved_tensors_hooks` may not be used.

    Arguments:
        error_message: the text of the GradientError that using them raises.

    Source: ``torch.autograd.graph.disable_saved_tensors_hooks``.

    >>> import fad
    >>> with fad.autograd.disable_saved_tensors_hooks("no hooks here"):
    ...     with fad.autograd.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
    fad.errors.GradientError: no hooks here
    """
    if state.saved_hooks:
        raise GradientError(error_message)
    with modes(saved_refused=error_message):
        yield
