"""The eager graph, as PyTorch users know it: nodes, edges, the engine, hooks, saved values, anomaly mode.

The names are those of ``torch.autograd`` and ``torch.autograd.graph``; what PyTorch has only in C++ has its
C++ name. The table in docs/graph.md lists them all.
"""

import importlib
import typing

from fad.autograd import forward_ad as forward_ad
from fad.autograd import function as function
from fad.autograd import functional as functional
from fad.autograd import grad_mode as grad_mode
from fad.autograd import graph as graph
from fad.autograd import profiler as profiler
from fad.autograd.compiled import compiled as compiled
from fad.autograd.nested import NestedIOFunction as NestedIOFunction
from fad.errors.missing_names import hints_of as _hints_of
from fad.functions.function import Function as Function
from fad.functions.function import once_differentiable as once_differentiable
from fad.profiling.profiler import profile as profile
from fad.profiling.profiler import record_function as record_function
from fad.tape.anomaly import detect_anomaly as detect_anomaly
from fad.tape.anomaly import emit_trace as emit_trace
from fad.tape.anomaly import set_detect_anomaly as set_detect_anomaly
from fad.tape.builtin_nodes import CopyBackwards as CopyBackwards
from fad.tape.builtin_nodes import DelayedError as DelayedError
from fad.tape.builtin_nodes import Error as Error
from fad.tape.builtin_nodes import Gather as Gather
from fad.tape.builtin_nodes import GraphRoot as GraphRoot
from fad.tape.builtin_nodes import Identity as Identity
from fad.tape.builtin_nodes import NotImplemented as NotImplemented
from fad.tape.builtin_nodes import Scatter as Scatter
from fad.tape.builtin_nodes import TraceableNode as TraceableNode
from fad.tape.builtin_nodes import UndefinedGrad as UndefinedGrad
from fad.tape.builtin_nodes import any_variable_requires_grad as any_variable_requires_grad
from fad.tape.builtin_nodes import collect_next_edges as collect_next_edges
from fad.tape.builtin_nodes import create_gradient_edge as create_gradient_edge
from fad.tape.builtin_nodes import current_node as current_node
from fad.tape.builtin_nodes import get_gradient_edge as get_gradient_edge
from fad.tape.builtin_nodes import set_history as set_history
from fad.tape.engine import queue_callback as queue_callback
from fad.tape.grad_mode import enable_grad as enable_grad
from fad.tape.grad_mode import inference_mode as inference_mode
from fad.tape.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from fad.tape.grad_mode import no_grad as no_grad
from fad.tape.grad_mode import set_grad_enabled as set_grad_enabled
from fad.tape.graph import AccumulateGrad as AccumulateGrad
from fad.tape.graph import Edge as Edge
from fad.tape.graph import GradientEdge as GradientEdge
from fad.tape.graph import InputMetadata as InputMetadata
from fad.tape.graph import Node as Node
from fad.tape.handles import RemovableHandle as RemovableHandle
from fad.tape.hooks import register_multi_grad_hook as register_multi_grad_hook
from fad.tape.nodes import SavedTensor as SavedTensor
from fad.tape.saved import allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors
from fad.tape.saved import disable_saved_tensors_hooks as disable_saved_tensors_hooks
from fad.tape.saved import save_on_cpu as save_on_cpu
from fad.tape.saved import saved_tensors_hooks as saved_tensors_hooks
from fad.transforms.backward import backward as backward
from fad.transforms.backward import grad as grad
from fad.views.inplace import increment_version as increment_version
from fad.views.make_view import view_function as view_function

if typing.TYPE_CHECKING:
    from fad.testing.gradient_checks import gradcheck as gradcheck
    from fad.testing.gradient_checks import gradgradcheck as gradgradcheck
    from fad.viz.graph_causes import why_of as why

__all__ = [
    "AccumulateGrad",
    "CopyBackwards",
    "DelayedError",
    "Edge",
    "Error",
    "Function",
    "Gather",
    "GradientEdge",
    "GraphRoot",
    "Identity",
    "InputMetadata",
    "NestedIOFunction",
    "Node",
    "NotImplemented",
    "RemovableHandle",
    "SavedTensor",
    "Scatter",
    "TraceableNode",
    "UndefinedGrad",
    "allow_mutation_on_saved_tensors",
    "any_variable_requires_grad",
    "backward",
    "collect_next_edges",
    "compiled",
    "create_gradient_edge",
    "current_node",
    "detect_anomaly",
    "disable_saved_tensors_hooks",
    "emit_trace",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "get_gradient_edge",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "increment_version",
    "inference_mode",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "queue_callback",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_history",
    "view_function",
    "why",
]


if not typing.TYPE_CHECKING:  # to a type checker a name that is not there is an error
    _no_name = _hints_of(__name__)

    def __getattr__(name: str) -> object:
        """``gradcheck``, ``gradgradcheck`` and ``why``, which are imported at first use: it takes time."""
        if name in ("gradcheck", "gradgradcheck"):
            return getattr(importlib.import_module("fad.testing"), name)
        if name == "why":
            return importlib.import_module("fad.viz.graph_causes").why_of
        _no_name(name)
