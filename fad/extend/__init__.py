"""Extending fad: new operations, and new transforms.

`operation` makes an operation from a JAX function. A transform is a `Level` and a function that enters it:
`bind` hands an operation to the highest level among its arguments, and that level's ``process`` binds what it
is made of one level down. What a transform is given goes through `enter`, what it returns through `leave`.
docs/extending.md shows one of each.
"""

from fad.core.faces import Face as _Face
from fad.errors.missing_names import hints_of as _hints_of

_NAMES = {
    # Operations and levels.
    "fad.core.level": """Level bind flush layers map_outputs=map_tensors new_argument outlived restores_modes
        uncompiled with_default_state""",
    "fad.core.tensor": "Tensor bottom new_tensor",
    "fad.core.types": "Operation",
    "fad.bridge.jax_functions": "by_structure",
    "fad.core.primitive": "Primitive",
    "fad.core.trees": "Static flatten map_leaves partition path_names skeleton unflatten",
    "fad.tape.anomaly": "choosing",
    "fad.tape.recorder": "RecordingLevel",
    "fad.functions.user_rules": "HOST_ERRORS",
    "fad.transforms.boundary": "Call enter has_tensor leave zeros_like",
    # Programs of JAX.
    "fad.core.jaxprs": "is_elementwise=is_elementwise_equation program_key=jaxpr_key trace with_programs",
    "fad.core.jaxapi": """axes_named branches called evaluate_equation parameters programs
        run_program=run_jaxpr scan_parts while_parts""",
    "fad.core.dataflow": "Dataflow",
    "fad.arrays.operations": "array_function",
    "fad.functions.calls": "with_derivative",
    "fad.extend.jax_programs": """aval_of batched_program body_of dependence derivative_of
        derivative_program function_call native_primitive split_call stage varying_alike""",
    # What a tool that looks on sees.
    "fad.extend.observing": "is_deferred node_info observe observe_nodes running_levels thread_id",
}
# Tools, which stand on the names above.
_TOOLS = {
    "fad.extend.derivatives": "depends_on_point linear_call",
    "fad.extend.interpretation": "interpret scattered_to",
    "fad.extend.operations": "operation",
}

_face = _Face(__name__, _hints_of(__name__), _NAMES, _TOOLS)
__all__ = _face.names
__getattr__, __dir__ = _face.find, _face.names.copy
