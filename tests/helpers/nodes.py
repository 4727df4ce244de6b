"""Nodes and edges as users write them."""

from __future__ import annotations

from typing import Any

from fad import autograd
from fad.autograd import Edge, Node


class Scale(Node):
    """A node as a user writes it."""

    def __init__(self, factor: float, *edges: Any, **kwargs: Any) -> None:
        super().__init__(edges, **kwargs)
        self.factor = factor

    def apply(self, *gradients: Any) -> Any:
        (g,) = gradients
        return tuple([None if g is None else g * self.factor for _ in self.edges])


def edge(t: Any) -> Edge:
    return autograd.create_gradient_edge(t)


def like(node: Node, *tensors: Any) -> Node:
    """``node`` with the metadata of Tensors."""
    for t in tensors:
        node.add_input_metadata(t)
    return node
