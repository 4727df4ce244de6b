"""``torch.autograd.function``'s names: custom operations, and what their rules are given."""

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from fad.autograd.nested import NestedIOFunction as NestedIOFunction
from fad.functions.context import Context as _FunctionCtx
from fad.functions.function import Function as Function
from fad.functions.function import once_differentiable as once_differentiable

FunctionCtx = _FunctionCtx
