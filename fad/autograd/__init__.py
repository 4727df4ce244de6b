"""The eager graph, as PyTorch users know it: nodes, edges, the engine, hooks, saved values, anomaly mode.

The names are those of ``torch.autograd`` and ``torch.autograd.graph``; what PyTorch has only in C++ has its
C++ name. The table in docs/graph.md lists them all.
"""

from fad.core.faces import Face as _Face
from fad.core.faces import module_without_file as _module_without_file
from fad.errors.missing_names import hints_of as _hints_of

# The names, by the modules that have them.
_LIBRARY = {
    "": "forward_ad function grad_mode graph",
    "fad.autograd.compiled": "compiled",
    "fad.functions.function": "Function once_differentiable",
    "fad.tape.anomaly": "detect_anomaly emit_trace set_detect_anomaly",
    "fad.tape.graph": "AccumulateGrad Edge GradientEdge InputMetadata Node RemovableHandle",
    "fad.tape.engine": "current_node queue_callback",
    "fad.tape.grad_mode": """enable_grad inference_mode is_inference_mode_enabled no_grad
        set_grad_enabled""",
    "fad.tape.hooks": "register_multi_grad_hook",
    "fad.tape.saved": """SavedTensor allow_mutation_on_saved_tensors disable_saved_tensors_hooks
        saved_tensors_hooks""",
    "fad.tape.recorder": "collect_next_edges create_gradient_edge get_gradient_edge set_history",
    "fad.transforms.backward": "backward grad",
    "fad.views.inplace": "increment_version",
    "fad.views.make_view": "view_function",
}

# What few ask for, and tools: imported when they are asked for.
_LATER = {
    "": "functional profiler",
    "fad.autograd.host_memory": "save_on_cpu",
    "fad.autograd.nested": "NestedIOFunction",
    "fad.autograd.builtin_nodes": """any_variable_requires_grad CopyBackwards DelayedError Error
        Gather GraphRoot Identity NotImplemented Scatter TraceableNode UndefinedGrad""",
    "fad.profiling.profiler": "profile record_function",
    "fad.testing.gradient_checks": "gradcheck gradgradcheck",
    "fad.viz.causes": "why=why_of",
}

# Modules with the names of those in torch.autograd: what they hold, and their names.
_MODULES = {
    "forward_ad": (
        "dual Tensors, in blocks or between two calls, and their switch",
        {
            "fad.transforms.jvp": """UnpackedDualTensor=UnpackedDual dual_level enter_dual_level
                exit_dual_level is_fwd_grad_enabled make_dual set_fwd_grad_enabled unpack_dual"""
        },
    ),
    "function": (
        "custom operations, and what their rules are given",
        {
            "fad.autograd": "Function NestedIOFunction once_differentiable",
            "fad.functions.context": "FunctionCtx=Context",
        },
    ),
    "grad_mode": (
        "whether operations are recorded",
        {
            "fad.tape.grad_mode": """enable_grad inference_mode is_grad_enabled
                is_inference_mode_enabled no_grad set_grad_enabled"""
        },
    ),
    "graph": (
        "nodes and edges, hooks on groups of Tensors, saved values",
        {
            "fad.autograd": """Edge GradientEdge Node RemovableHandle allow_mutation_on_saved_tensors
                disable_saved_tensors_hooks get_gradient_edge increment_version
                register_multi_grad_hook save_on_cpu saved_tensors_hooks"""
        },
    ),
    "profiler": (
        "profiles, and names for blocks in them",
        {"fad.autograd": "emit_trace profile record_function"},
    ),
}
for _name, (_about, _names) in _MODULES.items():
    _full = f"{__name__}.{_name}"
    _inner = _Face(_full, _hints_of(_full), later=_names)
    _doc = f"``torch.autograd.{_name}``'s names: {_about}."
    _attributes = {
        "__all__": _inner.names,
        "__dir__": _inner.names.copy,
        "__getattr__": _inner.find,
    }
    _module_without_file(_full, _doc, _face=_inner, **_attributes)

_face = _Face(__name__, _hints_of(__name__), _LIBRARY, _LATER)
__all__ = _face.names
__getattr__, __dir__ = _face.find, _face.names.copy
