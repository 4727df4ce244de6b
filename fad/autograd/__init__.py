"""The eager graph: running it backward, and switching recording off and on."""

from fad.autograd.engine import backward as backward
from fad.autograd.engine import grad as grad
from fad.graph import Edge as Edge
from fad.graph import Node as Node
