"""Pictures of graphs, of derivatives and of their patterns, and why a derivative is None, zero or NaN.

Pictures of graphs are drawn by Graphviz, and Model Explorer folds their groups: both read text, which needs
nothing. The extra ``viz`` (``pip install -e '.[viz]'``) has what is needed from Python.
"""

from typing import TYPE_CHECKING

from fad.errors import hints_of as _hints_of
from fad.viz.findings import Cause as Cause
from fad.viz.findings import Finding as Finding
from fad.viz.findings import Why as Why
from fad.viz.graphs import Graph as Graph
from fad.viz.graphs import graph as graph
from fad.viz.matrices import Matrix as Matrix
from fad.viz.matrices import Pattern as Pattern
from fad.viz.matrices import matrix as matrix
from fad.viz.matrices import pattern as pattern
from fad.viz.nodes import NodeView as NodeView

__all__ = [
    "Cause",
    "Finding",
    "Graph",
    "Matrix",
    "NodeView",
    "Pattern",
    "Why",
    "graph",
    "matrix",
    "pattern",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
