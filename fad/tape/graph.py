"""The graph: nodes, edges, and where gradients go. Data only; `fad.tape.engine` runs it."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias, cast

import jax

from fad.core import jaxapi
from fad.core.faces import tool_members
from fad.core.level import Level, bodies, inside, state
from fad.core.tensor import Tensor, bottom, meta_of, new_tensor
from fad.core.types import DType, GraphNode, MaybeValue, Value
from fad.errors import GradientError, describe

# What each thread keeps of the graphs that it records and of the backward passes that it runs.


class _Running(threading.local):
    """What a thread keeps of graphs.

    ``sequence``, ``id``: the numbers of the nodes that it records, and its own.
    ``passed``: how many nodes backward passes have gone through.
    ``current``: the node that it is evaluating.
    ``need``: which gradients are wanted of that node.
    ``task``: the backward pass that it runs.
    ``watched``: the call that is being watched, True if calls inside of it are not; see
    `fad.tape.anomaly.watched_call`.
    ``unwatched``: whether `fad.tape.anomaly.remember` passes over new nodes: they are of calls from before.
    ``leaves``: the Tensors on which ``requires_grad_`` was called in the body that runs, None outside of one.
    ``records``: in a rule of a Function, whether backward passes are recorded, as its result is
    differentiated; None outside of one.
    """

    def __init__(self) -> None:
        self.sequence = itertools.count()
        self.id = next(_thread_ids)
        self.passed = 0
        self.current: Node | None = None
        self.need: Sequence[bool] | None = None
        self.task: Any = None
        self.watched: Any = None
        self.unwatched = False
        self.leaves: list[Tensor] | None = None
        self.records: bool | None = None


_thread_ids = itertools.count(1)
running = _Running()


def count_nodes() -> int:
    """How many nodes the thread has recorded, or gone through, since it began: differences count."""
    running.passed -= 1  # for the number that this takes
    return next(running.sequence) + running.passed


# Hooks: the handle that takes one away, and where one may not be registered.


class RemovableHandle:
    """What registering a hook gives; ``remove()`` takes the hook away, any number of times.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> handle = x.register_hook(print)
    >>> handle.remove()
    >>> (x * x).backward()
    """

    __slots__ = ("__weakref__", "hooks", "id")

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., object]) -> None:
        if not callable(hook):
            raise TypeError(f"a hook must be callable, got {describe(hook)}")
        self.hooks: dict[int, Any] | None = hooks
        self.id = next(RemovableHandle._ids)
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook away."""
        if self.hooks is not None:
            self.hooks.pop(self.id, None)
            self.hooks = None

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def host_for(what: str, owner: Any, running: bool = False) -> Any:
    """What calls hooks at each execution of the code that is being traced; None where Python itself does.

    Arguments:
        what, running: as for `refuse_in_traced_code`.
        owner: the Tensor or the node that the hook is on.

    Raises:
        GradientError: the code is traced without hooks; or the Tensor or node is from outside of it.
    """
    host = state.host
    if host is not None:
        owner = getattr(owner, "variable", owner)  # the leaf of an accumulator
        born = -1 if owner.level is None else owner.level.id
        if max(born, getattr(owner, "born", -1)) >= host.since:
            return host
        refuse_in_traced_code(what, running)
    elif state.body is None:  # in a body of `jit`, a hook is code of the program
        refuse_in_traced_code(what, running)
    return None


_WRITE = (
    "Compile with fad.jit(f, hooks=True), which calls hooks of Tensors made in f at each execution; or leave "
    "the code that needs it outside."
)


def refuse_in_traced_code(what: str, running: bool = False, write: str = _WRITE) -> None:
    """Raise where Python runs once for each trace, and so a hook would not run at each execution.

    Arguments:
        what: what is refused, for the message.
        running: it was registered before, outside, and a backward pass in traced code would run it.
        write: what to write instead of registering it.
    """
    staged = any([level.traces for level in state.levels])
    if not staged and not jaxapi.is_tracing():
        return
    where = "fad.jit, or the body of scan, cond, ..." if staged else "a JAX transform"
    if running:
        raise GradientError(
            f"a backward pass in code that is being traced ({where}) includes {what}: it would run once per "
            "trace, not at each execution. Remove it, or run the pass outside of the traced code; hooks of "
            "Tensors that are made inside of it run in fad.jit(f, hooks=True)."
        )
    raise GradientError(
        f"{what} cannot be registered in code that is being traced ({where}): it would run once "
        f"per trace, not at each execution. {write}"
    )


# Edges of a graph, and the form of the gradients that go along them.


class Edge(NamedTuple):
    """Where a gradient goes: number ``input_nr`` of the gradients that ``node`` takes.

    An edge without a node is invalid: no gradient is wanted there.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> (x * 3.0).grad_fn.next_edges[0].input_nr
    0
    """

    node: Node | None = None
    input_nr: int = 0

    @property
    def function(self) -> Node | None:
        """The node, under its name in PyTorch's C++ API."""
        return self.node

    def is_valid(self) -> bool:
        """Whether there is a node."""
        return self.node is not None


class GradientEdge(NamedTuple):
    """A place in a graph that can be the root or an input of a backward pass, as a Tensor can.

    Source: ``torch.autograd.graph.GradientEdge``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> edge = fad.autograd.get_gradient_edge(x * x)
    >>> edge.node, edge.output_nr
    (<MultiplyBackward>, 0)
    """

    node: Node
    output_nr: int


class InputMetadata(NamedTuple):
    """The form of a gradient that a node takes: that of one output of its forward operation.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * 3.0).grad_fn.input_metadata(0).shape
    (2,)
    """

    shape: tuple[int, ...]
    dtype: DType | None
    sharding: jax.sharding.Sharding | None = None
    is_undefined: bool = False


def sharding_of(value: object) -> jax.sharding.Sharding | None:
    """Where the array of a value is; None if it is being traced, or is not an array."""
    value = bottom(value)
    return None if isinstance(value, jax.core.Tracer) else getattr(value, "sharding", None)


# An edge in any form that users may give.
NextEdge: TypeAlias = "Edge | GradientEdge | tuple[Node | None, int] | None"


def pair(edge: NextEdge) -> tuple[Node, int] | None:
    """An edge, in any form, in the one that nodes keep."""
    if edge is None:
        return None
    node, nr = edge
    return None if node is None else (node, nr)


# The graph: nodes, and where gradients go. Data only; `fad.tape.engine` runs it.

Hooks: TypeAlias = dict[int, Callable[..., Any]]  # by the ids of their handles


@dataclasses.dataclass(slots=True, eq=False)
class NodeExtra:
    """What only few nodes have: hooks, metadata, a description of what they take, a lock.

    ``tensor_hooks`` has the hooks of each output, outputs in the order of their first hook.
    """

    lock: AbstractContextManager[object] = dataclasses.field(default_factory=threading.RLock)
    metadata: dict[object, Any] = dataclasses.field(default_factory=dict)
    inputs: list[InputMetadata] | None = None
    tensor_hooks: dict[int, Hooks] = dataclasses.field(default_factory=dict)
    retains: dict[int, weakref.ref[Tensor]] = dataclasses.field(default_factory=dict)
    pre_hooks: Hooks = dataclasses.field(default_factory=dict)
    post_hooks: Hooks = dataclasses.field(default_factory=dict)


class Node:
    """One operation of a graph: takes gradients of its outputs, gives gradients of its inputs.

    Recorded operations make nodes of their own. A graph may also be built by hand: subclass Node,
    write ``apply(self, *gradients)``, which takes and returns Tensors (or None for zero), one for
    each next edge, and connect nodes by edges.

    Arguments:
        next_edges: where the gradients that it computes go.
        sequence_nr: its place in the order of execution; default is the next of this thread.

    Source: ``torch.autograd.graph.Node``, and ``torch::autograd::Node`` in C++.

    >>> import fad
    >>> class Double(fad.autograd.Node):
    ...     def apply(self, g):
    ...         return g * 2
    >>> x = fad.tensor(1.0, requires_grad=True)
    >>> node = Double([fad.autograd.create_gradient_edge(x)])
    >>> _ = node.add_input_metadata(x)
    >>> fad.autograd.backward(fad.autograd.GradientEdge(node, 0), fad.tensor(5.0))
    >>> float(x.grad)
    10.0
    """

    __slots__ = (
        "__weakref__",
        "edges",
        "extra",
        "has_parent",
        "level",
        "sequence_nr",
        "thread_id",
    )

    level: Any  # that recorded it; of a node built by hand, the highest that it leads to, if any
    edges: Sequence[tuple[Node, int] | None]
    sequence_nr: int
    thread_id: int
    # See `tool_members` below.
    device: Any
    sharding: jax.sharding.Sharding | None
    should_compute_output: Callable[..., bool]
    task_should_compute_output: Callable[..., bool]
    topological_nr: int

    def __init__(
        self, next_edges: Iterable[NextEdge] = (), *, sequence_nr: int | None = None
    ) -> None:
        self._start(None, ())
        if sequence_nr is not None:
            self.sequence_nr = sequence_nr
        self.set_next_edges(next_edges)

    def _start(self, level: Any, edges: Sequence[tuple[Node, int] | None]) -> None:
        """Set up a recorded node."""
        self.level = level
        self.edges = edges
        self.sequence_nr = next(running.sequence)
        self.thread_id = running.id
        self.has_parent = False
        self.extra: NodeExtra | None = None

    def name(self) -> str:
        """The name shown in graphs and errors."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    def __copy__(self) -> NoReturn:
        raise TypeError(f"{self.name()}: a Node is a place in a graph and cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        self.__copy__()

    # Execution

    def apply(self, *gradients: Any) -> Any:
        """Gradients for the next edges, from those of the outputs; None is zero.

        Subclasses of your own write this. On recorded nodes it runs the operation's vjp: no hooks
        are called and nothing is freed.
        """
        raise NotImplementedError(f"{self.name()}: a Node subclass needs apply(self, *gradients)")

    def __call__(self, *gradients: MaybeValue) -> Any:
        """Run `apply` alone: without hooks, and without freeing anything.

        Raises:
            TypeError: a recorded node got another number of gradients than it takes.
        """
        before, running.current = running.current, self
        try:
            return self.apply(*gradients)
        finally:
            running.current = before

    def run(
        self, cotangents: Sequence[MaybeValue], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[MaybeValue]:
        """`apply` as the engine calls it: on the level's detached values, or Tensors to record."""
        raise NotImplementedError

    def release_variables(self) -> None:
        """Drop saved values; the node cannot run again."""

    def will_release_variables(self) -> None:
        """Called before `release_variables` in a pass that keeps nothing."""

    def output_written(self, output_nr: int, version: int) -> None:
        """Note that an output was changed in place, where the backward pass would need it as it was."""

    # What the engine asks of a node: the leaf that it is the end of a graph for; whether an operation has
    # made it, or a user; whether its gradients are derived, and so have the form that its edges expect.
    _leaf: Tensor | None = None
    _is_recorded = False
    _is_derived = False
    _kind = "custom"  # as `fad.extend.node_info` has it

    is_traceable = False
    passes_state_transparently = False
    requires_grad = True

    @property
    def next_edges(self) -> list[Edge]:
        """An edge for each input of the forward operation; invalid where no gradient is wanted."""
        return [Edge(None, 0) if e is None else Edge(*e) for e in self.edges]

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """``(node, input_nr)`` for each next edge, as PyTorch's ``grad_fn.next_functions``."""
        return tuple([(None, 0) if e is None else e for e in self.edges])

    def next_edge(self, index: int) -> Edge:
        """One of `next_edges`."""
        return self.next_edges[index]

    def set_next_edge(self, index: int, edge: NextEdge) -> None:
        """Replace one of `next_edges`."""
        edges = list(self.edges)
        edges[index] = pair(edge)
        self._set_edges(edges)

    def set_next_edges(self, edges: Iterable[NextEdge]) -> None:
        """Replace all of `next_edges`."""
        self._set_edges([pair(e) for e in edges])

    def add_next_edge(self, edge: NextEdge) -> None:
        """Append to `next_edges`."""
        self._set_edges([*self.edges, pair(edge)])

    def _set_edges(self, edges: Sequence[tuple[Node, int] | None]) -> None:
        if self.has_parent:
            raise GradientError(
                f"{self.name()}: cannot change next edges, and so the topological_nr, of a node that "
                "already has a parent: connect nodes from the leaves up"
            )
        self.edges = edges
        for node, _ in filter(None, edges):
            node.has_parent = True
            level, ours = node.level, self.level
            if level is not None and not self._is_recorded and (ours is None or level.id > ours.id):
                self.level = level

    @property
    def num_outputs(self) -> int:
        """How many gradients it gives: the number of next edges."""
        return len(self.edges)

    def _need(self) -> Sequence[bool] | None:
        """For each next edge, whether the backward pass that runs this node needs it; None outside of one."""
        return running.need if running.current is self else None

    def _sequence_nr(self) -> int:
        """``sequence_nr``, as PyTorch's Python API has it."""
        return self.sequence_nr

    def _set_sequence_nr(self, sequence_nr: int) -> None:
        """Set ``sequence_nr``, as PyTorch's Python API has it."""
        self.sequence_nr = sequence_nr

    # What it takes

    def metadata_of_inputs(self) -> list[InputMetadata]:
        """What is known of each gradient that it takes."""
        return [] if self.extra is None or self.extra.inputs is None else self.extra.inputs

    @property
    def _input_metadata(self) -> list[InputMetadata]:
        """All of `input_metadata`, as PyTorch's Python API has it."""
        return self.metadata_of_inputs()

    @property
    def num_inputs(self) -> int:
        """How many gradients it takes: the number of outputs of the forward operation."""
        return len(self.metadata_of_inputs())

    def input_metadata(self, index: int) -> InputMetadata:
        """Shape, dtype and sharding of one of the gradients that it takes."""
        return self.metadata_of_inputs()[index]

    def add_input_metadata(self, shape: Any = None, dtype: Any = None, sharding: Any = None) -> int:
        """Describe one more gradient that this node takes; returns its index.

        Three forms: ``add_input_metadata(shape, dtype, sharding=None)``, where a device may stand for
        the sharding; ``add_input_metadata(tensor)``; ``add_input_metadata()`` for one that is never
        defined.

        Raises:
            TypeError: a shape without a dtype.
        """
        if shape is None:
            metadata = InputMetadata((), None, None, True)
        elif dtype is None and hasattr(shape, "shape") and hasattr(shape, "dtype"):
            metadata = InputMetadata(tuple(shape.shape), shape.dtype, sharding_of(shape))
        elif dtype is None:
            raise TypeError(
                f"{self.name()}.add_input_metadata got {describe(shape)} and no dtype: pass a shape and "
                "a dtype, a Tensor, or nothing for a gradient that is never defined"
            )
        else:
            if isinstance(sharding, jax.Device):
                sharding = jax.sharding.SingleDeviceSharding(sharding)
            sizes = (shape,) if isinstance(shape, int) else tuple(shape)
            metadata = InputMetadata(sizes, jax.numpy.dtype(dtype), sharding)
        extra = extra_of(self)
        extra.inputs = [*self.metadata_of_inputs(), metadata]
        return len(extra.inputs) - 1

    def clear_input_metadata(self) -> None:
        """Forget what `add_input_metadata` described."""
        extra_of(self).inputs = []

    def _own_sharding(self) -> jax.sharding.Sharding | None:
        shardings = [m.sharding for m in self.metadata_of_inputs()]
        return next(filter(None, shardings), None)

    # Hooks and metadata

    @property
    def metadata(self) -> dict[object, Any]:
        """A dict of the user's; anomaly mode keeps the forward traceback in it."""
        return extra_of(self).metadata

    def register_hook(self, hook: Callable[[Any, Any], object]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node has run.

        It may return a replacement for ``grad_inputs``, the gradients that the node gives: a tuple.

        Raises:
            GradientError: the code is being traced, by ``fad.jit`` or a JAX transform.
        """
        host_for("a hook on a node", self)
        return RemovableHandle(extra_of(self).post_hooks, hook)

    def register_prehook(self, hook: Callable[[Any], object]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node runs; it may return a replacement, a tuple.

        Raises:
            GradientError: the code is being traced, by ``fad.jit`` or a JAX transform.
        """
        host_for("a hook on a node", self)
        return RemovableHandle(extra_of(self).pre_hooks, hook)


_OF_TOOL = "device sharding should_compute_output task_should_compute_output topological_nr"
tool_members(Node, {"autograd.builtin_nodes": _OF_TOOL})

# Re-entrant, and nothing is made under it: a finalizer that comes with a new object may need it too.
_making = threading.RLock()


def extra_of(node: Node) -> NodeExtra:
    """The NodeExtra of ``node``, made if it has none yet; the same one for all threads."""
    if node.extra is None:
        fresh = NodeExtra()
        with _making:
            node.extra = node.extra or fresh
    return node.extra


def node_of(t: Tensor) -> Node | None:
    """`Tensor.node` as what it is: the core has a protocol for it, `fad.core.types.GraphNode`."""
    return t.node  # type: ignore[return-value]


class AccumulateGrad(Node):
    """The end of a graph: adds what it gets to ``variable.grad``.

    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> fad.autograd.get_gradient_edge(x).node.variable is x
    True
    """

    __slots__ = ("_leaf",)

    _kind = "leaf"
    _leaf: Tensor

    edges: Sequence[tuple[Node, int] | None] = ()
    sequence_nr: int = 2**64 - 1
    num_inputs = 1

    # What it does needs operations and writes in place, which come later in the order of imports:
    # `fad.tape.hooks`, and `fad.views.inplace` for ``write(grad, level, value)``.
    work: ClassVar[Callable[..., None]]
    write: ClassVar[Callable[[Tensor, Level, Value], None]]

    def __init__(self, variable: Tensor) -> None:
        self.level = variable._level
        self.thread_id = running.id
        self.has_parent = False
        self.extra = None
        self._leaf = variable

    @property
    def variable(self) -> Tensor:
        """The leaf."""
        return self._leaf

    def apply(self, *gradients: MaybeValue) -> tuple[()]:
        if len(gradients) != 1:
            raise TypeError(f"AccumulateGrad: expected 1 arguments, got {len(gradients)} instead")
        gradient, shape = gradients[0], tuple(self.variable.shape)
        if gradient is not None and tuple(getattr(gradient, "shape", ())) != shape:
            raise GradientError(
                f"AccumulateGrad: got a gradient {describe(gradient)} for a variable of shape {shape}"
            )
        self.work(gradient, self.level.id > state.watermark)
        return ()

    def _set_edges(self, edges: Sequence[tuple[Node, int] | None]) -> NoReturn:
        raise GradientError("AccumulateGrad: the end of a graph has no next edges")

    def metadata_of_inputs(self) -> list[InputMetadata]:
        return [InputMetadata(self.variable.shape, self.variable.dtype, self._own_sharding())]

    def _own_sharding(self) -> jax.sharding.Sharding | None:
        return sharding_of(self.variable)


def accumulator_of(t: Tensor) -> AccumulateGrad:
    """The AccumulateGrad node of a leaf; the same one as long as it is referenced."""
    if bodies.traced:
        t = inside(t)
    meta = t.meta or meta_of(t)
    before = meta.accumulator
    node = None if before is None else before()
    if node is None:
        fresh = AccumulateGrad(t)
        reference: weakref.ref[GraphNode] = weakref.ref(fresh)
        with _making:  # graphs of several threads must end in the same node
            before = meta.accumulator
            if before is None or before() is None:
                meta.accumulator = reference if meta.accumulator is before else meta.accumulator
            current = meta.accumulator
            node = None if current is None else current()
    return accumulator_of(t) if node is None else cast(AccumulateGrad, node)


def gradient_edge(t: Tensor) -> tuple[Node, int]:
    """Where the gradient of ``t`` (which requires grad) goes."""
    if bodies.traced:
        t = inside(t)
    meta = t.meta
    if meta is not None and meta.link is not None:
        meta.link.sync_history(t)
    return current_edge(t)


def current_edge(t: Tensor) -> tuple[Node, int]:
    """`gradient_edge` of a Tensor that has been brought up to date."""
    node = t._node
    if node is None:
        return accumulator_of(t), 0
    node.has_parent = True
    return node, t._output_nr  # type: ignore[return-value]  # see `node_of`


def alias(x: Any) -> Any:
    """Another handle for the same value and the same place in the graph, to be changed in place."""
    if not isinstance(x, Tensor):
        return x
    t = new_tensor(x.value, x.level, x.aux)
    if x.requires_grad:
        t._requires_grad = True
        t._node, t._output_nr = gradient_edge(x)
    return t
