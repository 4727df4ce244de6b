"""What a tool that looks on sees: calls while they run, the levels of a thread, values that are deferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

from fad.arrays.special_cases import VIEWS
from fad.core import observation
from fad.core.level import Level, state
from fad.core.observation import Observer
from fad.core.tensor import Tensor, has_value
from fad.core.types import Aval
from fad.functions.calls import FunctionNode
from fad.tape.anomaly import mode, observed_nodes
from fad.tape.graph import InputMetadata, Node, running
from fad.tape.recorder import PrimitiveNode
from fad.views.chains import makes_views


def observe(observer: Observer | None) -> None:
    """Call ``observer`` in place of what fad does, from now on, in all threads; None: observe no more.

    There is one observer at a time. While there is none, nothing is checked.

    Arguments:
        observer: ``observer.observed(kind, function, args, kwargs)`` is called in place of
            ``function(*args, **kwargs)``, and returns what it returns. The kinds are "operation" (``args``
            are a level, an operation and its operands), "execution" (an operation runs in XLA),
            "function" (a body of a Function), "compiled" (a function of `fad.jit`), "program" and
            "compilation" (of replay), "indexing", "release" (a node lets go of what it keeps).
            ``observer.node(function, work, node, *args)`` is called in place of ``function(work, node,
            *args)``, which runs a node in a backward pass.

    >>> import fad, fad.numpy as fnp
    >>> class Log:
    ...     def observed(self, kind, function, args, kwargs):
    ...         if kind == "operation":
    ...             print(args[1].name)
    ...         return function(*args, **kwargs)
    ...     def node(self, function, *args):
    ...         return function(*args)
    >>> fad.extend.observe(Log())
    >>> y = fnp.sin(fad.tensor(1.0)) + 1.0
    sin
    add
    >>> fad.extend.observe(None)
    """
    mode.observer = observer
    mode.update()
    observation.observe(observer)


def running_levels() -> tuple[Level, ...]:
    """The levels that this thread has entered, outermost first.

    >>> import fad
    >>> def f(x):
    ...     print([level.kind for level in fad.extend.running_levels()])
    ...     return x
    >>> y = fad.vmap(fad.grad(f))(fad.numpy.ones(2))
    ['vmap', 'grad']
    """
    levels: tuple[Level, ...] = state.__dict__.get("levels", ())
    return levels


def is_deferred(x: Tensor) -> bool:
    """Whether a Tensor has no value yet: its operation was appended to a trace, to be replayed.

    Reading the value, or anything that depends on it, makes it be computed.

    >>> import fad
    >>> fad.extend.is_deferred(fad.tensor(1.0))
    False
    """
    return not has_value(x)


def thread_id() -> int:
    """The number of this thread, which is the ``thread_id`` of the nodes that it records.

    >>> import fad
    >>> y = fad.tensor(1.0, requires_grad=True) * 2.0
    >>> y.grad_fn.thread_id == fad.extend.thread_id()
    True
    """
    number: int = running.id
    return number


@contextmanager
def observe_nodes(observer: Callable[[Node], None]) -> Iterator[None]:
    """A block in which ``observer`` is given each node that this thread records, at every level.

    Nothing is replayed there: each operation is recorded as it is called. Nodes of code that is traced, to be
    compiled, are not among them: it records nothing when it runs.

    >>> import fad, fad.numpy as fnp
    >>> nodes = []
    >>> with fad.extend.observe_nodes(nodes.append):
    ...     df = fad.grad(lambda x: fnp.sin(x) * 2.0)(1.0)
    >>> nodes
    [<SinBackward>, <MultiplyBackward>]
    """
    thread, traced = running.id, (state.body, state.outside_jax_trace)

    def observe_own(node: Node) -> None:
        if running.id == thread and (state.body, state.outside_jax_trace) == traced:
            observer(node)

    with observed_nodes(observe_own):
        yield


class NodeInfo(NamedTuple):
    """What `node_info` says of a node."""

    kind: str
    outputs: tuple[Aval | InputMetadata, ...]
    freed: bool
    hooks: tuple[str, ...]


def node_info(node: Node) -> NodeInfo:
    """What a node stands for, for pictures and lists of graphs.

    Arguments:
        node: a node of any kind, such as ``x.grad_fn``.

    Returns:
        A named tuple. ``kind``: "leaf" (gradients are accumulated there), "operation", "view" (an
        operation that gives a view), "write" (in place), "function" (a call of a Function), or "custom" (a
        node made by hand). ``outputs``: for each output of the forward operation, of a leaf for the leaf,
        something with a ``shape``, a ``dtype``, and for nodes made by hand ``is_undefined``. ``freed``:
        whether a backward pass has freed what it saved. ``hooks``: what is registered on it, as "prehook",
        "tensor hook", "retains grad", "hook" and "post-accumulate hook".

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> info = fad.extend.node_info((x * 2.0).grad_fn)
    >>> info.kind, info.outputs[0].shape, info.freed, info.hooks
    ('operation', (2,), False, ())
    """
    outputs: Sequence[Aval | InputMetadata]
    freed = False
    kind = node._kind
    if kind == "operation":
        recorded = cast(PrimitiveNode, node)
        kind = _kind_of_operation(recorded)
        outputs, freed = recorded.plan.out_avals or (), recorded.values is None
    elif kind == "function":
        call = cast(FunctionNode, node)
        outputs, freed = call.avals, call.saved is None
    else:  # `metadata_of_inputs` also looks for where they are, which takes time
        outputs = node.metadata_of_inputs()
    return NodeInfo(kind, tuple(outputs), freed, _hooks(node))


def _kind_of_operation(node: PrimitiveNode) -> str:
    primitive = node.plan.primitive
    if primitive.name == "CopySlices":
        return "write"
    return "view" if primitive.name in VIEWS or makes_views(primitive) else "operation"


def _hooks(node: Node) -> tuple[str, ...]:
    """The hooks of a node, or of the Tensor that a leaf stands for."""
    hooks: list[str] = []
    extra = node.extra
    if extra is not None:
        hooks += ["prehook"] * len(extra.pre_hooks)
        hooks += ["tensor hook"] * sum([len(of_one) for of_one in extra.tensor_hooks.values()])
        hooks += ["retains grad"] * len(extra.retains)
        hooks += ["hook"] * len(extra.post_hooks)
    if node._leaf is not None and node._leaf.meta is not None:
        hooks += ["tensor hook"] * len(node._leaf.meta.hooks or ())
        hooks += ["post-accumulate hook"] * len(node._leaf.meta.post_hooks or ())
    return tuple(hooks)
