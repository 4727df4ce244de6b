"""``torch.autograd.forward_ad``'s names: dual Tensors, in blocks or between two calls, and their switch."""

from typing import TYPE_CHECKING

from fad.errors.missing_names import hints_of as _hints_of
from fad.transforms.jvp import UnpackedDual as UnpackedDualTensor
from fad.transforms.jvp import dual_level as dual_level
from fad.transforms.jvp import enter_dual_level as enter_dual_level
from fad.transforms.jvp import exit_dual_level as exit_dual_level
from fad.transforms.jvp import is_fwd_grad_enabled as is_fwd_grad_enabled
from fad.transforms.jvp import make_dual as make_dual
from fad.transforms.jvp import set_fwd_grad_enabled as set_fwd_grad_enabled
from fad.transforms.jvp import unpack_dual as unpack_dual

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "is_fwd_grad_enabled",
    "make_dual",
    "set_fwd_grad_enabled",
    "unpack_dual",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
