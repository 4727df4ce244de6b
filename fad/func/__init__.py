"""``torch.func``'s names, signatures and results; most are the names at the top of fad.

What differs from those: `grad_and_value` gives ``(gradient, value)``, `vmap` takes
``randomness`` by position too, `functionalize` has ``remove``. A module is any object that has Tensors.
"""

from fad.core.faces import Face as _Face
from fad.errors.missing_names import hints_of as _hints_of

_NAMES = {
    "fad": "grad hessian jacfwd jacrev jvp linearize vjp",
    "fad.func.transforms": "debug_unwrap functionalize grad_and_value vmap",
    "fad.func.module_state": "functional_call stack_module_state",
}

_face = _Face(__name__, _hints_of(__name__), later=_NAMES)
__all__ = _face.names
__getattr__, __dir__ = _face.find, _face.names.copy
