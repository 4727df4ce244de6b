"""``torch.autograd.function``'s names: custom operations, and what their rules are given."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.autograd import Function as Function
from fad.autograd import NestedIOFunction as NestedIOFunction
from fad.autograd import once_differentiable as once_differentiable
from fad.functions.context import Context as _FunctionCtx

FunctionCtx = _FunctionCtx
