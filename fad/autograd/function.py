"""``torch.autograd.function``'s names: custom operations, and what their rules are given."""

from fad.autograd.nested import NestedIOFunction as NestedIOFunction
from fad.functions.context import Context as FunctionCtx
from fad.functions.function import Function as Function
from fad.functions.function import once_differentiable as once_differentiable

__all__ = ["Function", "FunctionCtx", "NestedIOFunction", "once_differentiable"]
