"""``fad.viz.graph``: a recorded graph, or what a function records, to be looked at."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from fad.core.level import flush, state
from fad.errors import ArgumentError, describe
from fad.tape.anomaly import observed_nodes
from fad.tape.graph import Node
from fad.tape.running import running
from fad.viz import bitmap, drawing, text
from fad.viz.folding import fold as folded
from fad.viz.layout import MissingLibrary
from fad.viz.matrices import write
from fad.viz.nodes import (
    Drawn,
    NodeView,
    bytes_of,
    check_place,
    read,
    roots_of,
    saved_arrays,
)

__all__ = ["Graph", "graph"]


class Graph:
    """What `fad.viz.graph` returns: a description of a recorded graph, which keeps nothing of it alive.

    ``print`` gives a tree, a notebook shows a picture, `save` writes a file.

    Attributes:
        nodes: a `NodeView` for each node; those that gradients reach first in front, leaves last.
        edges: ``(i, j, input_nr)`` for each edge: node ``i`` gives a gradient to input ``input_nr`` of
            node ``j``, as ``node.next_functions``.
        saved: bytes saved for the backward pass, each array counted once.

    >>> import fad, fad.numpy as fnp
    >>> graph = fad.viz.graph(fad.grad(fnp.sin), 1.0)
    >>> graph
    <fad.viz.Graph: 1 node, 1 leaf, 4 B saved>
    >>> [node.name for node in graph.nodes], graph.edges
    (['SinBackward', 'AccumulateGrad'], [(0, 1, 0)])
    """

    def __init__(self, drawn: Drawn, fold: bool, limit: int) -> None:
        self._drawn = drawn
        self._folded = folded(drawn, fold, limit)

    @property
    def nodes(self) -> list[NodeView]:
        return self._drawn.nodes

    @property
    def edges(self) -> list[tuple[int, int, int]]:
        return self._drawn.edges

    @property
    def saved(self) -> int:
        return self._drawn.saved

    def __repr__(self) -> str:
        return f"<fad.viz.Graph: {text.heading(self._drawn)}>"

    def __str__(self) -> str:
        return text.tree(self._drawn, self._folded)

    def dot(self) -> str:
        """The graph in Graphviz's language, DOT."""
        return text.dot(self._drawn, self._folded)

    def json(self) -> str:
        """Nodes, edges, and the boxes that they are folded into, as JSON."""
        return text.as_json(self._drawn, self._folded)

    def svg(self) -> str:
        """The graph as SVG: what is open.

        Raises:
            ImportError: the extra ``viz`` is not installed.
        """
        return drawing.svg(self._drawn, self._folded)

    def html(self) -> str:
        """A page that shows the graph without a network, to be zoomed, moved and folded.

        Raises:
            ImportError: the extra ``viz`` is not installed.
        """
        return drawing.page(self._drawn, self._folded)

    def png(self) -> bytes:
        """The graph as a PNG file: what is open.

        Raises:
            ImportError: the extra ``viz`` is not installed.
        """
        return bitmap.png(self._drawn, self._folded)

    def save(self, path: Any) -> None:
        """Write a file, in the format that the name ends with.

        Arguments:
            path: ends with ``.svg``, ``.html``, ``.png``, ``.dot`` (or ``.gv``), ``.json`` or ``.txt``.

        Raises:
            ArgumentError: it ends with something else.
            ImportError: a picture needs the extra ``viz``, which is not installed.
        """
        write(
            path,
            {
                ".svg": self.svg,
                ".html": self.html,
                ".png": self.png,
                ".dot": self.dot,
                ".gv": self.dot,
                ".json": self.json,
                ".txt": self.__str__,
            },
        )

    def _repr_svg_(self) -> str | None:
        """For notebooks: the picture; None, and so the text, without the extra ``viz``."""
        try:
            return self.svg()
        except MissingLibrary:
            return None

    def _repr_html_(self) -> str:
        """For notebooks: the page, in a frame of its own; the text without the extra ``viz``."""
        try:
            text = self.html()
        except MissingLibrary:
            return f"<pre>{html.escape(str(self))}</pre>"
        style = "width: 100%; height: 480px; border: 1px solid #cfd8dc"
        return f'<iframe srcdoc="{html.escape(text)}" style="{style}"></iframe>'


def graph(
    x: Any, *args: Any, fold: bool = True, limit: int = 150, names: Any = None, **kwargs: Any
) -> Graph:
    """The graph that a Tensor belongs to, or what a function records when it is called, at each level.

    Arguments:
        x: a Tensor, a node (``y.grad_fn``), a ``GradientEdge``, or a pytree of these: the graph behind them,
            at the levels of transforms that they belong to. Or a function, a transformed one for
            example: it is called with ``args`` and ``kwargs``, and all nodes that this thread records
            during the call are in the graph, at whatever level. Code compiled by ``fad.jit`` records nothing
            inside.
        fold: whether blocks that repeat are folded into one frame, and long sequences into boxes.
        limit: how many boxes are drawn at once.
        names: a dict (or another pytree) of Tensors of the eager tape: leaves among them are called by their
            places in it.

    Returns:
        A `Graph`.

    Raises:
        ArgumentError: ``x`` has no place in a graph and is no function.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> print(fad.viz.graph((x * x).sum()))
    graph: 2 nodes, 1 leaf, 8 B saved
    SumBackward  float32[]  #...  → result
    MultiplyBackward  float32[2]  #... · saves 8 B
    leaf  float32[2]
    """
    if not isinstance(limit, int) or limit < 2:
        raise ArgumentError(f"viz.graph: limit must be an int of at least 2, got {describe(limit)}")
    if callable(x) and not isinstance(x, Node):
        return Graph(_recorded(x, args, kwargs, names), fold, limit)
    if args or kwargs:
        raise ArgumentError(
            f"viz.graph: arguments are for a function, and the first one is {describe(x)}. For the graph of "
            "several Tensors pass them in a list"
        )
    check_place(x)
    flush()
    return Graph(read(roots_of(x), names=names), fold, limit)


def _recorded(f: Callable[..., Any], args: Any, kwargs: Any, names: Any) -> Drawn:
    """What a call of ``f`` records. Code that is traced, to be compiled, records nothing when it runs."""
    nodes: list[Node] = []
    saved: dict[Node, int] = {}
    arrays: dict[int, Any] = {}
    thread, traced = running.id, (state.body, state.outside_jax_trace)

    def observe(node: Node) -> None:
        if running.id == thread and (state.body, state.outside_jax_trace) == traced:
            found = saved_arrays(node)
            nodes.append(node)
            saved[node] = bytes_of(found)
            arrays.update(found)

    with observed_nodes(observe):
        result = f(*args, **kwargs)
    return read(roots_of(result), nodes, saved, bytes_of(arrays), names)
