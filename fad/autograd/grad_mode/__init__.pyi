"""``torch.autograd.grad_mode``'s names: whether operations are recorded."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.tape.grad_mode import enable_grad as enable_grad
from fad.tape.grad_mode import inference_mode as inference_mode
from fad.tape.grad_mode import is_grad_enabled as is_grad_enabled
from fad.tape.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from fad.tape.grad_mode import no_grad as no_grad
from fad.tape.grad_mode import set_grad_enabled as set_grad_enabled
