"""The eager graph, as PyTorch users know it: nodes, edges, the engine, hooks, saved values, anomaly mode.

The names are those of ``torch.autograd`` and ``torch.autograd.graph``; what PyTorch has only in C++ has its
C++ name. The table in docs/graph.md lists them all.
"""

from fad.core.faces import Face as _Face
from fad.errors.missing_names import hints_of as _hints_of

# The names, by the modules that have them.
_LIBRARY = {
    "": "forward_ad function functional grad_mode graph",
    "fad.autograd.compiled": "compiled",
    "fad.autograd.nested": "NestedIOFunction",
    "fad.functions.function": "Function once_differentiable",
    "fad.tape.anomaly": "detect_anomaly emit_trace set_detect_anomaly",
    "fad.tape.builtin_nodes": """any_variable_requires_grad collect_next_edges CopyBackwards
        create_gradient_edge current_node DelayedError Error Gather
        get_gradient_edge GraphRoot Identity NotImplemented Scatter set_history
        TraceableNode UndefinedGrad""",
    "fad.tape.graph": "AccumulateGrad Edge GradientEdge InputMetadata Node",
    "fad.tape.engine": "queue_callback",
    "fad.tape.grad_mode": """enable_grad inference_mode is_inference_mode_enabled no_grad
        set_grad_enabled""",
    "fad.tape.handles": "RemovableHandle",
    "fad.tape.hooks": "register_multi_grad_hook",
    "fad.tape.saved": """allow_mutation_on_saved_tensors disable_saved_tensors_hooks save_on_cpu
        saved_tensors_hooks""",
    "fad.tape.nodes": "SavedTensor",
    "fad.transforms.backward": "backward grad",
    "fad.views.inplace": "increment_version",
    "fad.views.make_view": "view_function",
}

# Tools, which are imported when they are asked for.
_TOOLS = {
    "": "profiler",
    "fad.profiling.profiler": "profile record_function",
    "fad.testing.gradient_checks": "gradcheck gradgradcheck",
    "fad.viz.graph_causes": "why=why_of",
}

_face = _Face(__name__, _hints_of(__name__), _LIBRARY, _TOOLS)
__all__ = _face.names
__getattr__ = _face.find
