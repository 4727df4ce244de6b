"""The built-in nodes, for graphs that are built by hand."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from fad import asarray
from fad.autograd import Edge, GradientEdge, Node, collect_next_edges, set_history
from fad.errors import GradientError, describe
from fad.extend import Level, Primitive, Tensor, bind, bottom, flatten, new_tensor
from fad.extend.types import Array, DType, Operand, Outputs, Value

# An edge in any form that users may give.
NextEdge: TypeAlias = Edge | GradientEdge | tuple[Node | None, int] | None


def any_variable_requires_grad(*tensors: object) -> bool:
    """Whether one of the Tensors requires grad; they may be nested.

    Source: ``torch::autograd::any_variable_requires_grad`` and ``compute_requires_grad`` in C++.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> fad.autograd.any_variable_requires_grad(fad.tensor(1.0), [x])
    True
    """
    return any(isinstance(t, Tensor) and t.requires_grad for t in flatten(tensors)[0])


def _top_level(values: Iterable[object]) -> Level | None:
    """The highest level among the Tensors, None if there are none."""
    levels = [v.level for v in values if isinstance(v, Tensor)]
    return max(levels, key=operator.attrgetter("id"), default=None)


def _edges_at(values: Sequence[Any], level: Level | None) -> list[Edge]:
    """`collect_next_edges` for the Tensors of one level."""
    at = [isinstance(v, Tensor) and v.level is level for v in values]
    return collect_next_edges(*[v if a else None for v, a in zip(values, at, strict=True)])


def _without_history(values: Sequence[Tensor], level: Level | None) -> list[Tensor]:
    """Values whose Tensors of ``level`` are not tracked there; what levels below track stays."""
    return [new_tensor(v.value, level, v.aux) if v.level is level else v for v in values]


def _pass_through(values: Sequence[Any], make: Callable[[list[Edge]], Node]) -> list[Any]:
    """The same values, with a node of ``make(next_edges)`` between, at each level that tracks them."""
    level = _top_level(values)
    if level is None:
        return list(values)
    at = [isinstance(v, Tensor) and v.level is level for v in values]
    inner = [v.value if a else v for v, a in zip(values, at, strict=True)]
    below = _pass_through(inner, make)
    outs = [
        new_tensor(b, level, v.aux) if a else b for v, a, b in zip(values, at, below, strict=True)
    ]
    edges = _edges_at(values, level)
    tracked = [k for k, edge in enumerate(edges) if edge.is_valid()]
    if tracked:
        set_history([outs[k] for k in tracked], make([edges[k] for k in tracked]))
    return outs


# Built-in nodes.
#
# Some of these are *functions* in the sense of PyTorch's C++ autograd: `DelayedError`, `UndefinedGrad`,
# `Scatter`, `Gather` are called on Tensors in the forward direction, and give outputs whose ``grad_fn``
# is another node.


class TraceableNode(Node):
    """A node that is declared pure: it may be part of a compiled backward pass.

    >>> import fad
    >>> from fad import autograd
    >>> class Double(autograd.TraceableNode):
    ...     def apply(self, g):
    ...         return 2.0 * g
    >>> x = fad.tensor(1.0, requires_grad=True)
    >>> node = Double([autograd.create_gradient_edge(x)])
    >>> autograd.set_history(fad.tensor(1.0), node).backward()
    >>> x.grad.item()
    2.0
    """

    __slots__ = ()

    is_traceable = True


class Error(Node):
    """Raises when a gradient reaches it.

    >>> import fad
    >>> from fad import autograd
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> node = autograd.Error("no derivative here", [autograd.create_gradient_edge(x)])
    >>> autograd.set_history(fad.tensor(1.0), node).backward()
    Traceback (most recent call last):
    fad.errors.GradientError: no derivative here
    """

    __slots__ = ("message",)

    def __init__(self, message: str, next_edges: Iterable[NextEdge] = ()) -> None:
        super().__init__(next_edges)
        self.message = message

    def apply(self, *gradients: Value | None) -> Outputs:
        raise GradientError(self.message)


class NotImplemented(Error):
    """Says that the derivative of an operation is not implemented.

    >>> import fad
    >>> from fad import autograd
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> node = autograd.NotImplemented("besselk", [autograd.create_gradient_edge(x)])
    >>> autograd.set_history(fad.tensor(1.0), node).backward()
    Traceback (most recent call last):
    fad.errors.GradientError: derivative for besselk is not implemented
    """

    __slots__ = ()

    def __init__(self, forward: str, next_edges: Iterable[NextEdge] = ()) -> None:
        super().__init__(f"derivative for {forward} is not implemented", next_edges)


class DelayedError(Node):
    """Called on Tensors, returns them; raises when a gradient flows back through them.

    Arguments:
        message: the text of the GradientError.
        num_inputs: how many Tensors it takes; any number if left out.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> y = fad.autograd.DelayedError("no way back")(x)
    >>> y.grad_fn
    <Error>
    """

    __slots__ = ("message",)

    def __init__(self, message: str, num_inputs: int | None = None) -> None:
        super().__init__()
        self.message = message
        for _ in range(num_inputs or 0):
            self.add_input_metadata()

    def apply(self, *tensors: Operand | None) -> Outputs:
        if self.num_inputs and len(tensors) != self.num_inputs:
            raise TypeError(
                f"DelayedError: expected {self.num_inputs} arguments, got {len(tensors)} instead"
            )
        return _passed(tensors, lambda edges: Error(self.message, edges))


def _passed(tensors: Sequence[Operand | None], make: Callable[[list[Edge]], Node]) -> Outputs:
    """`_pass_through`, as the outputs of a call."""
    outs = _pass_through([None if t is None else asarray(t) for t in tensors], make)
    return outs[0] if len(outs) == 1 else tuple(outs)


class UndefinedGradBackward(Node):
    """Gives undefined gradients (None), whatever it gets."""

    __slots__ = ()

    def apply(self, *gradients: Value | None) -> Outputs:
        return tuple([None] * len(self.edges))


class UndefinedGrad(Node):
    """Called on Tensors, returns them; their gradients are undefined (None).

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> fad.autograd.UndefinedGrad()(x).backward()
    >>> x.grad is None
    True
    """

    __slots__ = ()

    def apply(self, *tensors: Operand | None) -> Outputs:
        return _passed(tensors, UndefinedGradBackward)


class GraphRoot(Node):
    """Takes nothing and gives fixed values: where a graph that is run by hand begins.

    >>> import fad
    >>> from fad import autograd
    >>> x = fad.tensor(1.0, requires_grad=True)
    >>> root = autograd.GraphRoot([autograd.create_gradient_edge(x * 3.0)], [fad.tensor(5.0)])
    >>> autograd.backward(autograd.GradientEdge(root, 0))
    >>> x.grad.item()
    15.0
    """

    __slots__ = ("outputs",)

    def __init__(self, next_edges: Iterable[NextEdge], inputs: Sequence[Operand]) -> None:
        super().__init__(next_edges)
        self.outputs = tuple(inputs)
        for value in self.outputs:
            self.add_input_metadata(value)

    def apply(self, *_: object) -> tuple[Operand, ...]:
        return self.outputs


class Identity(TraceableNode):
    """Gives what it gets.

    >>> import fad
    >>> from fad import autograd
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> node = autograd.Identity([autograd.create_gradient_edge(x)])
    >>> autograd.set_history(fad.tensor(2.0), node).backward()
    >>> x.grad.item()
    1.0
    """

    __slots__ = ()

    def apply(self, *gradients: Value | None) -> Outputs:
        return gradients


class CopyBackwards(TraceableNode):
    """Sends a gradient back to the dtype and device of the value that was copied.

    For graphs built by hand. ``x.to(...)`` records its operation under the same name.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> x.to("bfloat16").grad_fn
    <CopyBackwards>
    """

    __slots__ = ("source_dtype", "source_sharding")

    def __init__(
        self,
        next_edges: Iterable[NextEdge] = (),
        dtype: DType | None = None,
        sharding: jax.sharding.Sharding | None = None,
    ) -> None:
        super().__init__(next_edges)
        self.source_dtype = dtype
        self.source_sharding = sharding

    def apply(self, g: Operand | None) -> Tensor | None:
        if g is None:
            return None
        g = asarray(g)
        if self.source_dtype is not None and g.dtype != jnp.dtype(self.source_dtype):
            g = g.to(self.source_dtype)
        if self.source_sharding is not None:
            g = g.to(self.source_sharding)
        return g


class Scatter(Node):
    """Splits a Tensor over devices; the gradient is gathered.

    Arguments:
        devices: a ``jax.Device`` for each part.
        sizes: how long each part is; default equal parts, the last one shorter if need be.
        dim: the dimension that is split.

    Call it with a Tensor; it returns a tuple with a Tensor on each device (on fewer devices, if the
    Tensor is too short for all). Its backward is `Gather`.

    Raises:
        ValueError: ``sizes`` do not add up to the length, or are not one for each device.

    Source: ``torch::autograd::Scatter`` in C++, ``torch.nn.parallel.comm.scatter``.

    >>> import fad, jax
    >>> here = jax.devices()[0]
    >>> fad.autograd.Scatter([here, here])(fad.tensor([1.0, 2.0, 3.0, 4.0]))
    (Tensor([1., 2.], dtype=float32), Tensor([3., 4.], dtype=float32))
    """

    __slots__ = ("devices", "dim", "sizes")

    def __init__(
        self, devices: Sequence[object], sizes: Sequence[int] | None = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.devices = list(devices)
        self.sizes = None if sizes is None else list(sizes)
        self.dim = dim

    def apply(self, x: Any) -> tuple[Tensor, ...]:
        t = asarray(x)
        if not -t.ndim <= self.dim < t.ndim:
            raise ValueError(
                f"Scatter: {describe(t)} has no dimension {self.dim} that could be split"
            )
        length = t.shape[self.dim]
        count = len(self.devices)
        sizes = self.sizes
        if sizes is None:
            part = max(1, -(-length // count))
            sizes = [min(part, length - start) for start in range(0, length, part)]
        elif sum(sizes) != length or len(sizes) != count:
            raise ValueError(
                f"Scatter: sizes {sizes} must be {count} numbers that add up to {length}, the length "
                f"of dimension {self.dim}"
            )
        bounds = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
        dim = self.dim % t.ndim
        op = Primitive(
            "scatter",
            lambda v: tuple(
                [
                    jax.device_put(jax.lax.slice_in_dim(v, lo, hi, axis=dim), device)
                    for lo, hi, device in zip(bounds, bounds[1:], self.devices)
                ]
            ),
            jit=False,
        )
        out = bind(op, _without_history([t], t.level))
        outs: tuple[Tensor, ...] = out if type(out) is tuple else (out,)
        edges = collect_next_edges(t)
        if edges[0].is_valid():
            set_history(outs, Gather(_device_of(t), dim, edges))
        return outs


class Gather(Node):
    """Joins Tensors from several devices on one; the gradient is scattered.

    Arguments:
        destination: the ``jax.Device`` of the result.
        dim: the dimension along which they are joined.

    Call it with Tensors; scalars are joined to a vector. Its backward is `Scatter`.

    Source: ``torch::autograd::Gather`` in C++, ``torch.nn.parallel.comm.gather``.

    >>> import fad, jax
    >>> here = jax.devices()[0]
    >>> fad.autograd.Gather(here)(fad.tensor([1.0]), fad.tensor([2.0, 3.0]))
    Tensor([1., 2., 3.], dtype=float32)
    """

    __slots__ = ("destination", "dim")

    def __init__(
        self, destination: object, dim: int = 0, next_edges: Iterable[NextEdge] = ()
    ) -> None:
        super().__init__(next_edges)
        self.destination = destination
        self.dim = dim

    def apply(self, *parts: Operand | None) -> Tensor:
        tensors = [asarray(p) for p in self._filled(parts)]
        if not tensors:
            raise ValueError("Gather: needs at least one Tensor")
        scalars = all([t.ndim == 0 for t in tensors])
        dim = 0 if scalars else self.dim
        op = Primitive(
            "gather",
            lambda *vs: (jnp.stack if scalars else jnp.concatenate)(
                [_put(v, self.destination) for v in vs], axis=dim
            ),
            jit=False,
        )
        level = _top_level(tensors)
        out: Tensor = bind(op, _without_history(tensors, level))
        edges = _edges_at(tensors, level)
        if any([e.is_valid() for e in edges]):
            sizes = [1 if scalars else t.shape[dim] for t in tensors]
            node = _ScatterBackward([_device_of(t) for t in tensors], sizes, dim, edges, scalars)
            set_history(out, node)
        return out

    def _filled(self, parts: Sequence[Operand | None]) -> Sequence[Operand | None]:
        """Zeros for gradients that did not arrive."""
        metadata = self.metadata_of_inputs()
        return [
            jnp.zeros(metadata[i].shape, metadata[i].dtype)
            if p is None and i < len(metadata)
            else p
            for i, p in enumerate(parts)
        ]


class _ScatterBackward(Scatter):
    """`Scatter` with edges, as the backward of `Gather`; parts may have been scalars."""

    __slots__ = ("scalars",)

    def __init__(
        self,
        devices: Sequence[object],
        sizes: Sequence[int],
        dim: int,
        next_edges: Iterable[NextEdge],
        scalars: bool,
    ) -> None:
        super().__init__(devices, sizes, dim)
        self.set_next_edges(next_edges)
        self.scalars = scalars

    def name(self) -> str:
        return "Scatter"

    def apply(self, g: Any) -> tuple[Any, ...]:
        if g is None:
            return (None,) * len(self.edges)
        parts = super().apply(g)
        return tuple([p.reshape(()) for p in parts]) if self.scalars else parts


def _put(x: Array, device: Any) -> Array:
    return x if device is None else jax.device_put(x, device)


def _device_of(x: Tensor) -> object:
    """The device of a Tensor: the first, if there are several; None while it is traced."""
    value = bottom(x)
    if isinstance(value, jax.core.Tracer):
        return None
    return min(value.sharding.device_set, key=operator.attrgetter("id"))


# Members that each node has in PyTorch's C++ API.

# Of next edges: one, a range, or a list of these.
Indices: TypeAlias = int | range | tuple[int, int] | list[int | range | tuple[int, int]]


def _topological_nr(self: Node) -> int:
    """The length of the longest path to a leaf; 0 for a leaf."""
    numbers: dict[Node, int] = {}
    stack: list[Node] = [self]
    while stack:
        node = stack[-1]
        nexts = [e[0] for e in node.edges if e is not None]
        missing = [n for n in nexts if n not in numbers]
        if not missing:
            numbers[stack.pop()] = 1 + max([numbers[n] for n in nexts], default=-1)
        stack += missing
    return numbers[self]


def _should_compute_output(self: Node, index: Indices) -> bool:
    """Whether a gradient for this next edge (or one of these, for ranges) has anywhere to go.

    Arguments:
        index: a number; a range, as ``range(0, 2)`` or ``(0, 2)``; or a list of these.

    Raises:
        IndexError: there is no such edge.
    """
    return any([self.edges[i] is not None for i in _indices(self, index)])


def _task_should_compute_output(self: Node, index: Indices) -> bool:
    """`should_compute_output`, and the backward pass that is running needs it."""
    need = self._need()
    return any(
        [self.edges[i] is not None and (need is None or need[i]) for i in _indices(self, index)]
    )


def _indices(node: Node, index: Indices) -> list[int]:
    """Positions among a node's next edges meant by an index, a range, or a list of these."""
    result: list[int] = []
    for part in index if isinstance(index, list) else [index]:
        if isinstance(part, tuple):
            part = range(*part)
        result.extend(part if isinstance(part, range) else [operator.index(part)])
    for i in result:
        if not 0 <= i < len(node.edges):
            raise IndexError(
                f"{node.name()}: Index out of range: {i}, of {len(node.edges)} next edges"
            )
    return result


def _sharding(self: Node) -> jax.sharding.Sharding | None:
    """The sharding of the first value on a device that it is known to work with, or None.

    What a stream is to PyTorch's engine: where the node's work happens.
    """
    seen: set[Node] = {self}
    todo = collections.deque([self])
    while todo:
        node = todo.popleft()
        sharding = node._own_sharding()
        if sharding is not None:
            return sharding
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                todo.append(edge[0])
    return None


def _device(self: Node) -> Any:
    """The device of `sharding`: the first, if there are several."""
    sharding = self.sharding
    return None if sharding is None else min(sharding.device_set, key=operator.attrgetter("id"))


MEMBERS: dict[str, object] = {
    "device": property(_device, doc=_device.__doc__),
    "sharding": property(_sharding, doc=_sharding.__doc__),
    "should_compute_output": _should_compute_output,
    "task_should_compute_output": _task_should_compute_output,
    "topological_nr": property(_topological_nr, doc=_topological_nr.__doc__),
}
