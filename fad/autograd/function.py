"""``torch.autograd.function``'s names: custom operations, and what their rules are given."""

from typing import TYPE_CHECKING

from fad.autograd.nested import NestedIOFunction as NestedIOFunction
from fad.errors.missing_names import hints_of as _hints_of
from fad.functions.context import Context as FunctionCtx
from fad.functions.function import Function as Function
from fad.functions.function import once_differentiable as once_differentiable

__all__ = ["Function", "FunctionCtx", "NestedIOFunction", "once_differentiable"]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)
