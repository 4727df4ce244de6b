"""What `Function.apply` takes and returns, for type checkers and editors: what ``forward`` does."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from fad.functions.context import Context

_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)

class _Forward(Protocol[_P, _R_co]):
    """``forward(x, ...)``."""
    @staticmethod
    def forward(*args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...

class _ForwardWithContext(Protocol[_P, _R_co]):
    """``forward(ctx, x, ...)``."""
    @staticmethod
    def forward(ctx: Context[Any], /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...

class _Apply(Generic[_P, _R]):
    """Of other arguments, such as JAX arrays for Tensors, the result is not known."""
    @overload
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class apply_method:
    """At run time ``classmethod``."""
    def __init__(self, f: Callable[..., Any], /) -> None: ...
    @overload
    def __get__(
        self, instance: object, owner: type[_ForwardWithContext[_P, _R]]
    ) -> _Apply[_P, _R]: ...
    @overload
    def __get__(self, instance: object, owner: type[_Forward[_P, _R]]) -> _Apply[_P, _R]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[..., Any]: ...
