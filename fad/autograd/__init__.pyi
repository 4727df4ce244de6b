"""The eager graph, as PyTorch users know it: nodes, edges, the engine, hooks, saved values, anomaly mode.

The names are those of ``torch.autograd`` and ``torch.autograd.graph``; what PyTorch has only in C++ has its
C++ name. The table in docs/graph.md lists them all.
"""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from fad.autograd import forward_ad as forward_ad
from fad.autograd import function as function
from fad.autograd import functional as functional
from fad.autograd import grad_mode as grad_mode
from fad.autograd import graph as graph
from fad.autograd import profiler as profiler
from fad.autograd.builtin_nodes import CopyBackwards as CopyBackwards
from fad.autograd.builtin_nodes import DelayedError as DelayedError
from fad.autograd.builtin_nodes import Error as Error
from fad.autograd.builtin_nodes import Gather as Gather
from fad.autograd.builtin_nodes import GraphRoot as GraphRoot
from fad.autograd.builtin_nodes import Identity as Identity
from fad.autograd.builtin_nodes import NotImplemented as NotImplemented
from fad.autograd.builtin_nodes import Scatter as Scatter
from fad.autograd.builtin_nodes import TraceableNode as TraceableNode
from fad.autograd.builtin_nodes import UndefinedGrad as UndefinedGrad
from fad.autograd.builtin_nodes import any_variable_requires_grad as any_variable_requires_grad
from fad.autograd.compiled import compiled as compiled
from fad.autograd.host_memory import save_on_cpu as save_on_cpu
from fad.autograd.nested import NestedIOFunction as NestedIOFunction
from fad.core.tensor import Tensor
from fad.functions.function import Function as Function
from fad.functions.function import once_differentiable as once_differentiable
from fad.profiling.profiler import profile as profile
from fad.profiling.profiler import record_function as record_function
from fad.tape.anomaly import detect_anomaly as detect_anomaly
from fad.tape.anomaly import emit_trace as emit_trace
from fad.tape.anomaly import set_detect_anomaly as set_detect_anomaly
from fad.tape.engine import current_node as current_node
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
from fad.tape.graph import RemovableHandle as RemovableHandle
from fad.tape.hooks import register_multi_grad_hook as register_multi_grad_hook
from fad.tape.recorder import collect_next_edges as collect_next_edges
from fad.tape.recorder import create_gradient_edge as create_gradient_edge
from fad.tape.recorder import get_gradient_edge as get_gradient_edge
from fad.tape.recorder import set_history as set_history
from fad.tape.saved import SavedTensor as SavedTensor
from fad.tape.saved import allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors
from fad.tape.saved import disable_saved_tensors_hooks as disable_saved_tensors_hooks
from fad.tape.saved import saved_tensors_hooks as saved_tensors_hooks
from fad.testing.gradient_checks import gradcheck as gradcheck
from fad.testing.gradient_checks import gradgradcheck as gradgradcheck
from fad.transforms.backward import backward as backward
from fad.views.inplace import increment_version as increment_version
from fad.views.make_view import view_function as view_function
from fad.viz.causes import why_of as _why

_Tensors = Tensor | GradientEdge | Iterable[Tensor | GradientEdge]
_Key = TypeVar("_Key")

@overload
def grad(  # type: ignore[overload-overlap]
    outputs: _Tensors,
    inputs: Mapping[_Key, Tensor | GradientEdge],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> dict[_Key, Tensor]: ...
@overload
def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]: ...
@overload
def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: bool,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...

why = _why
