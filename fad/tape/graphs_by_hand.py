"""Graphs built by hand: edges of Tensors, and nodes between Tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fad.core import trees
from fad.core.level import state
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Operand, PyTree
from fad.errors import GradientError, describe
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import remember
from fad.tape.edges import Edge, GradientEdge
from fad.tape.graph import Node, gradient_edge
from fad.tape.running import running


def create_gradient_edge(t: Tensor) -> Edge:
    """The edge along which the gradient of ``t`` flows: into its ``grad_fn``, or its accumulator.

    An invalid edge for a Tensor that does not require grad.

    Source: ``torch::autograd::impl::gradient_edge`` in C++.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> fad.autograd.create_gradient_edge(x * x).node
    <MultiplyBackward>
    """
    _check_tensor("create_gradient_edge", t)
    return Edge(*gradient_edge(t)) if t.requires_grad else Edge(None, 0)


def _check_tensor(who: str, t: object) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{who} expects a Tensor, got {describe(t)}")


def get_gradient_edge(t: Tensor) -> GradientEdge:
    """The place of ``t`` in the graph, as a root or input for `backward` and `grad`.

    Raises:
        GradientError: the Tensor does not require grad.

    Source: ``torch.autograd.graph.get_gradient_edge``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> edge = fad.autograd.get_gradient_edge(x * x)
    >>> fad.autograd.grad(edge, x)[0].item()
    6.0
    """
    _check_tensor("get_gradient_edge", t)
    if not t.requires_grad:
        raise GradientError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients: write "
            "x.requires_grad_() before it is used"
        )
    return GradientEdge(*gradient_edge(t))


def any_variable_requires_grad(*tensors: object) -> bool:
    """Whether one of the Tensors requires grad; they may be nested.

    Source: ``torch::autograd::any_variable_requires_grad`` and ``compute_requires_grad`` in C++.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> fad.autograd.any_variable_requires_grad(fad.tensor(1.0), [x])
    True
    """
    return any(isinstance(t, Tensor) and t.requires_grad for t in trees.flatten(tensors)[0])


def collect_next_edges(*tensors: Operand) -> list[Edge]:
    """Edges for a node that computes from ``tensors``; all invalid where nothing is recorded.

    Tensors may stand in lists and other containers; what is no Tensor has an invalid edge.

    Source: ``torch::autograd::collect_next_edges`` in C++.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> [edge.node for edge in fad.autograd.collect_next_edges(x, fad.tensor(1.0))]
    [<AccumulateGrad>, None]
    """
    leaves = trees.flatten_with_none(tensors)[0]
    return [create_gradient_edge(t) if is_recorded(t) else Edge() for t in leaves]


def current_node() -> Node | None:
    """The node whose backward pass this thread is running now, None outside of one.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> y = x * x
    >>> handle = y.grad_fn.register_prehook(lambda g: print(fad.autograd.current_node()))
    >>> y.backward()
    <MultiplyBackward>
    """
    return running.current


def set_history(outputs: PyTree, node: Node) -> PyTree:
    """Make ``node`` the ``grad_fn`` of ``outputs``, a Tensor or a sequence of one level; returns them.

    Source: ``torch::autograd::set_history`` in C++.

    >>> import fad
    >>> from fad import autograd
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> node = autograd.Identity([autograd.create_gradient_edge(x)])
    >>> autograd.set_history(fad.tensor(2.0), node)
    Tensor(2., dtype=float32, grad_fn=<Identity>)
    """
    if anomaly.remembers:
        remember(node)
    for t in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        nr = node.add_input_metadata(t)
        t._requires_grad, t._node, t._output_nr = True, node, nr
        node.level = t.level
    return outputs


def is_recorded(t: object) -> bool:
    """Whether an operation on ``t`` is recorded at its level."""
    return isinstance(t, Tensor) and t.requires_grad and t.level.id > state.watermark


def top_level(values: Iterable[Any]) -> Any:
    """The highest level among the Tensors, None if there are none."""
    levels = [v.level for v in values if isinstance(v, Tensor)]
    return max(levels, key=operator.attrgetter("id"), default=None)


def without_history(values: Sequence[Operand], level: Any) -> list[Any]:
    """Values whose Tensors of ``level`` are not tracked there; what levels below track stays."""
    return [
        new_tensor(v.value, level, v.aux) if isinstance(v, Tensor) and v.level is level else v
        for v in values
    ]


def edges_at(values: Sequence[Any], level: Any) -> list[Edge]:
    """`collect_next_edges` for the Tensors of one level."""
    return [
        create_gradient_edge(v) if is_recorded(v) and v.level is level else Edge(None, 0)
        for v in values
    ]


def pass_through(values: Sequence[Any], make: Callable[[list[Edge]], Node]) -> list[Any]:
    """The same values, with a node of ``make(next_edges)`` between, at each level that tracks them."""
    level = top_level(values)
    if level is None:
        return list(values)
    at = [isinstance(v, Tensor) and v.level is level for v in values]
    inner = [v.value if a else v for v, a in zip(values, at, strict=True)]
    below = pass_through(inner, make)
    outs = [
        new_tensor(b, level, v.aux) if a else b for v, a, b in zip(values, at, below, strict=True)
    ]
    tracked = [k for k, (v, a) in enumerate(zip(values, at, strict=True)) if a and is_recorded(v)]
    if tracked:
        node = make([create_gradient_edge(values[k]) for k in tracked])
        set_history([outs[k] for k in tracked], node)
    return outs
