"""Edges of a graph, and the form of the gradients that go along them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax

from fad.core.tensor import bottom
from fad.core.types import DType

if TYPE_CHECKING:
    from fad.tape.graph import Node


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
    """Where the array of a value is; None for what is being traced, and for what is no array."""
    value = bottom(value)
    return None if isinstance(value, jax.core.Tracer) else getattr(value, "sharding", None)


def device_of_sharding(sharding: jax.sharding.Sharding | None) -> object:
    """The device of a sharding: the first, if there are several."""
    return None if sharding is None else min(sharding.device_set, key=lambda d: d.id)  # type: ignore[attr-defined]


# Of next edges: one, a range, or a list of these.
Indices: TypeAlias = int | range | tuple[int, int] | list[int | range | tuple[int, int]]
# An edge in any form that users may give.
NextEdge: TypeAlias = "Edge | GradientEdge | tuple[Node | None, int] | None"


def pair(edge: NextEdge) -> tuple[Node, int] | None:
    """An edge, in any form, in the one that nodes keep."""
    if edge is None:
        return None
    node, nr = edge
    return None if node is None else (node, nr)
