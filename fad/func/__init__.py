"""``torch.func``'s names, signatures and results; most are the names at the top of fad.

What differs from those: `grad_and_value` gives ``(gradient, value)``, `vmap` takes
``randomness`` by position too, `functionalize` has ``remove``. A module is any object that has Tensors.
"""

from typing import TYPE_CHECKING

from fad.errors.missing_names import hints_of as _hints_of
from fad.func.module_state import functional_call as functional_call
from fad.func.module_state import stack_module_state as stack_module_state
from fad.func.transforms import debug_unwrap as debug_unwrap
from fad.func.transforms import functionalize as functionalize
from fad.func.transforms import grad_and_value as grad_and_value
from fad.func.transforms import vmap as vmap
from fad.transforms.grad import grad as grad
from fad.transforms.grad import vjp as vjp
from fad.transforms.jacobians import hessian as hessian
from fad.transforms.jacobians import jacfwd as jacfwd
from fad.transforms.jacobians import jacrev as jacrev
from fad.transforms.jvp import jvp as jvp
from fad.transforms.linearize import linearize as linearize

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "vjp",
    "vmap",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
