"""``torch.func``'s names, for type checkers and editors: most are those at the top of fad."""

# mypy: disable-error-code=overload-overlap

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

import jax

from fad import _F, _HostValue, _Transformed
from fad import grad as grad
from fad import hessian as hessian
from fad import jacfwd as jacfwd
from fad import jacrev as jacrev
from fad import linearize as linearize
from fad import vjp as vjp
from fad.func.module_state import functional_call as functional_call
from fad.func.module_state import stack_module_state as stack_module_state
from fad.func.transforms import debug_unwrap as debug_unwrap

_P = ParamSpec("_P")
_R = TypeVar("_R")
_A = TypeVar("_A")
_X = TypeVar("_X")

class _GradientAndValue(_Transformed, Generic[_P, _R]):
    @overload
    def __call__(
        self, x: _HostValue | jax.Array, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[jax.Array, jax.Array]: ...
    @overload
    def __call__(self, x: _X, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_X, _R]: ...

@overload
def grad_and_value(
    f: Callable[Concatenate[Any, _P], tuple[_R, _A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
) -> Callable[Concatenate[_X, _P], tuple[_X, tuple[_R, _A]]]: ...
@overload
def grad_and_value(
    f: Callable[Concatenate[Any, _P], _R],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
) -> _GradientAndValue[_P, _R]: ...
@overload
def grad_and_value(
    f: Callable[_P, _R], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[_P, tuple[Any, _R]]: ...
@overload
def jvp(
    f: Callable[..., _R],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: Literal[False] = False,
) -> tuple[_R, _R]: ...
@overload
def jvp(
    f: Callable[..., tuple[_R, _A]],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: Literal[True],
) -> tuple[_R, _R, _A]: ...
@overload
def jvp(
    f: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any: ...
@overload
def vmap(
    f: _F,
    in_dims: object = 0,
    out_dims: object = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> _F: ...
@overload
def vmap(
    f: Callable[_P, _R],
    in_dims: object = 0,
    out_dims: object = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[_P, _R]: ...
@overload
def functionalize(f: _F, *, remove: str = "mutations") -> _F: ...
@overload
def functionalize(f: Callable[_P, _R], *, remove: str = "mutations") -> Callable[_P, _R]: ...
