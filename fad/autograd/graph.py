"""``torch.autograd.graph``'s names: nodes and edges, hooks on groups of Tensors, saved values."""

from typing import TYPE_CHECKING

from fad.errors.missing_names import hints_of as _hints_of
from fad.tape.builtin_nodes import get_gradient_edge as get_gradient_edge
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

__all__ = [
    "Edge",
    "GradientEdge",
    "Node",
    "RemovableHandle",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
