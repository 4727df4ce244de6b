"""The recorded graph: Node and its edges. Data only; `fad.autograd.engine` runs it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from fad.tensor import Tensor, meta_of, new_tensor

__all__ = ["AccumulateGrad", "Edge", "Node", "accumulator_of", "alias", "gradient_edge"]

_sequence = itertools.count()


class Edge(NamedTuple):
    """Where a gradient goes: output number ``input_nr`` of the forward call that ``node`` undoes."""

    node: Node
    input_nr: int


class Node:
    """One recorded operation: takes gradients of its outputs, gives gradients of its inputs.

    ``next_edges`` has an entry for each input that required grad. ``level`` is the level that
    recorded it; gradients travel as that level's `Level.detach` values, or as its Tensors where the
    backward pass is itself recorded (``create_graph``).
    """

    __slots__ = ("__weakref__", "level", "next_edges", "sequence_nr")

    level: Any
    next_edges: Sequence[tuple[Node, int]]
    sequence_nr: int

    def __init__(self, level: Any, next_edges: Sequence[tuple[Node, int]] = ()) -> None:
        self.level = level
        self.next_edges = next_edges
        self.sequence_nr = next(_sequence)

    def name(self) -> str:
        """The name shown in graphs and errors."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    @property
    def num_inputs(self) -> int:
        """How many gradients it takes: the number of outputs of the forward operation."""
        return 1

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """``(node, input_nr)`` for each input, as PyTorch's ``grad_fn.next_functions``."""
        return tuple([(n, i) for n, i in self.next_edges])

    def apply(
        self, cotangents: Sequence[Any], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[Any]:
        """Gradients for ``next_edges`` (None is zero) from those of the outputs (None is zero).

        ``need`` says for which edges a gradient is wanted; the others may be None.
        """
        raise NotImplementedError

    def release(self) -> None:
        """Drop saved values."""


class AccumulateGrad(Node):
    """The end of a graph: adds what it gets to ``variable.grad``."""

    __slots__ = ("variable",)

    def __init__(self, variable: Tensor) -> None:
        super().__init__(variable.level)
        self.sequence_nr = 2**64 - 1
        self.variable = variable


def accumulator_of(t: Tensor) -> AccumulateGrad:
    """The AccumulateGrad node of a leaf; the same one as long as anything holds it."""
    meta = meta_of(t)
    node = None if meta.accumulator is None else meta.accumulator()
    if node is None:
        node = AccumulateGrad(t)
        meta.accumulator = weakref.ref(node)
    return node


def gradient_edge(t: Tensor) -> tuple[Node, int]:
    """Where the gradient of ``t`` (which requires grad) goes."""
    node = t.node
    return (accumulator_of(t), 0) if node is None else (node, t.output_nr)


def alias(x: Any) -> Any:
    """Another handle for the same value and the same place in the graph, to be changed in place."""
    if not isinstance(x, Tensor):
        return x
    t = new_tensor(x.value, x.level, x.aux)
    if x.requires_grad:
        t.requires_grad = True
        t.node, t.output_nr = gradient_edge(x)
    return t
