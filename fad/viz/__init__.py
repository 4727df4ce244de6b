"""Pictures: recorded graphs, what transforms record, and matrices of derivatives.

Pictures need the extra ``viz`` (``pip install 'fad-jax[viz]'``); text, DOT and JSON do not.
"""

from fad.viz.graphs import Graph as Graph
from fad.viz.graphs import graph as graph
from fad.viz.matrices import Matrix as Matrix
from fad.viz.matrices import matrix as matrix
from fad.viz.nodes import NodeView as NodeView

__all__ = ["Graph", "Matrix", "NodeView", "graph", "matrix"]
