"""``torch.autograd.graph``'s names: nodes and edges, hooks on groups of Tensors, saved values."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.autograd.builtin_nodes import get_gradient_edge as get_gradient_edge
from fad.tape.graph import Edge as Edge
from fad.tape.graph import GradientEdge as GradientEdge
from fad.tape.graph import Node as Node
from fad.tape.handles import RemovableHandle as RemovableHandle
from fad.tape.hooks import register_multi_grad_hook as register_multi_grad_hook
from fad.tape.saved import allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors
from fad.tape.saved import disable_saved_tensors_hooks as disable_saved_tensors_hooks
from fad.tape.saved import save_on_cpu as save_on_cpu
from fad.tape.saved import saved_tensors_hooks as saved_tensors_hooks
from fad.views.inplace import increment_version as increment_version
