"""``torch.autograd.grad_mode``'s names: whether operations are recorded."""

from typing import TYPE_CHECKING

from fad.errors.missing_names import hints_of as _hints_of
from fad.tape.grad_mode import enable_grad as enable_grad
from fad.tape.grad_mode import inference_mode as inference_mode
from fad.tape.grad_mode import is_grad_enabled as is_grad_enabled
from fad.tape.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from fad.tape.grad_mode import no_grad as no_grad
from fad.tape.grad_mode import set_grad_enabled as set_grad_enabled

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
