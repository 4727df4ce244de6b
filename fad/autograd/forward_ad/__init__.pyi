"""``torch.autograd.forward_ad``'s names: dual Tensors, in blocks or between two calls, and their switch."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.transforms.jvp import UnpackedDual as _UnpackedDualTensor
from fad.transforms.jvp import dual_level as dual_level
from fad.transforms.jvp import enter_dual_level as enter_dual_level
from fad.transforms.jvp import exit_dual_level as exit_dual_level
from fad.transforms.jvp import is_fwd_grad_enabled as is_fwd_grad_enabled
from fad.transforms.jvp import make_dual as make_dual
from fad.transforms.jvp import set_fwd_grad_enabled as set_fwd_grad_enabled
from fad.transforms.jvp import unpack_dual as unpack_dual

UnpackedDualTensor = _UnpackedDualTensor
