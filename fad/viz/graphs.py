"""``fad.viz.graph``: a recorded graph, or what a function records, to be looked at."""

from __future__ import annotations

import html
import os
from collections.abc import Callable

from fad.autograd import Node
from fad.errors import ArgumentError, describe
from fad.extend import flush, observe_nodes
from fad.extend.types import PyTree
from fad.viz import drawing, text
from fad.viz.groups import groups_of
from fad.viz.nodes import (
    Drawn,
    bytes_of,
    check_place,
    read,
    roots_of,
    saved_arrays,
)

_SMALL = 200  # nodes and groups of a picture in a notebook: of more, `dot` may take minutes


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
        self.nodes, self.edges, self.saved = drawn.nodes, drawn.edges, drawn.saved
        self._drawn = drawn
        self._top = groups_of(drawn, fold, limit)

    def __repr__(self) -> str:
        return f"<fad.viz.Graph: {text.heading(self._drawn)}>"

    def __str__(self) -> str:
        return text.tree(self._drawn, self._top)

    def dot(self) -> str:
        """The graph in Graphviz's language, DOT."""
        return text.dot(self._drawn, self._top)

    def json(self) -> str:
        """All nodes, edges and groups in the JSON of the viewer Model Explorer, which folds groups.

        It shows the file with ``model-explorer graph.json``, and in a notebook with
        ``model_explorer.visualize("graph.json")``.
        """
        return text.as_json(self._drawn, self._top)

    def svg(self) -> str:
        """The graph as SVG, drawn by Graphviz: what `dot` says.

        Raises:
            ImportError: Graphviz's program ``dot`` or its Python package is not installed.
        """
        return drawing.draw(self.dot(), "svg").decode()

    def png(self) -> bytes:
        """The graph as a PNG file, drawn by Graphviz: what `dot` says.

        Raises:
            ImportError: Graphviz's program ``dot`` or its Python package is not installed.
        """
        return drawing.draw(self.dot(), "png")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, in the format that the name ends with.

        Arguments:
            path: ends with ``.svg``, ``.png``, ``.dot`` (or ``.gv``), ``.json`` or ``.txt``.

        Raises:
            ArgumentError: it ends with something else.
            ImportError: a picture needs Graphviz, which is not installed.
        """
        drawing.write(path, self, dot=self.dot, gv=self.dot, json=self.json)

    def _repr_svg_(self) -> str | None:
        """For notebooks: the picture, if Graphviz is there and draws it in a moment."""
        return self.svg() if self._is_small() and drawing.can_draw() else None

    def _repr_html_(self) -> str | None:
        """For notebooks: the text, where there is no picture."""
        small = self._is_small() and drawing.can_draw()
        return None if small else f"<pre>{html.escape(str(self))}</pre>"

    def _is_small(self) -> bool:
        return len({way[-1] for way in text.shown(self._drawn, self._top)}) <= _SMALL


def graph(
    x: PyTree,
    *args: PyTree,
    fold: bool = True,
    limit: int = 150,
    names: PyTree = None,
    **kwargs: PyTree,
) -> Graph:
    """The graph that a Tensor belongs to, or what a function records when it is called, at each level.

    Arguments:
        x: a Tensor, a node (``y.grad_fn``), a ``GradientEdge``, or a pytree of these: the graph behind them,
            at the levels of transforms that they belong to. Or a function, a transformed one for
            example: it is called with ``args`` and ``kwargs``, and all nodes that this thread records
            during the call are in the graph, at whatever level. Code compiled by ``fad.jit`` records nothing
            inside.
        fold: whether blocks that repeat, and neighbours in long sequences, become groups.
        limit: how many nodes and groups text and pictures show at once.
        names: a dict (or another pytree) of Tensors of the eager tape: leaves among them are called by their
            places in it.

    Returns:
        A `Graph`.

    Raises:
        ArgumentError: ``x`` has no place in a graph and is not a function.

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


def _recorded(
    f: Callable[..., PyTree], args: tuple[PyTree, ...], kwargs: dict[str, PyTree], names: PyTree
) -> Drawn:
    """What a call of ``f`` records."""
    nodes: list[Node] = []
    saved: dict[Node, int] = {}
    arrays: dict[int, object] = {}

    def observe(node: Node) -> None:
        of_node = saved_arrays(node)
        nodes.append(node)
        saved[node] = bytes_of(of_node)
        arrays.update(of_node)

    with observe_nodes(observe):
        result = f(*args, **kwargs)
    return read(roots_of(result), nodes, saved, bytes_of(arrays), names)
