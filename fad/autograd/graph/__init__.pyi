"""``torch.autograd.graph``'s names: nodes and edges, hooks on groups of Tensors, saved values."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.autograd import Edge as Edge
from fad.autograd import GradientEdge as GradientEdge
from fad.autograd import Node as Node
from fad.autograd import RemovableHandle as RemovableHandle
from fad.autograd import allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors
from fad.autograd import disable_saved_tensors_hooks as disable_saved_tensors_hooks
from fad.autograd import get_gradient_edge as get_gradient_edge
from fad.autograd import increment_version as increment_version
from fad.autograd import register_multi_grad_hook as register_multi_grad_hook
from fad.autograd import save_on_cpu as save_on_cpu
from fad.autograd import saved_tensors_hooks as saved_tensors_hooks
