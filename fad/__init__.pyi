"""The names at the top of fad, for type checkers and editors.

A transform has the parameters of the function that it is given. A derivative has the type of the argument
that it is taken of; of a number or a NumPy array it is a JAX array, as `docs/typing.md` explains.
"""

# mypy: disable-error-code=overload-overlap

# Made by `python -m tests.stubs`, of the tables in `__init__.py` and of tests/stubs/by_hand.

import builtins
from collections.abc import Callable, Hashable, Sequence
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    overload,
)

import jax

from fad import autograd as autograd
from fad import errors as errors
from fad import extend as extend
from fad import func as func
from fad import implicit as implicit
from fad import lax as lax
from fad import nn as nn
from fad import numpy as numpy
from fad import random as random
from fad import scipy as scipy
from fad import testing as testing
from fad import viz as viz
from fad.arrays.annotations import DTypeLike, JaxValue, NumpyArray, TensorValue, Value
from fad.bridge.protocols import from_dlpack as from_dlpack
from fad.core import dtypes as _dtypes
from fad.core.dtypes import bfloat16 as bfloat16
from fad.core.dtypes import cdouble as cdouble
from fad.core.dtypes import cfloat as cfloat
from fad.core.dtypes import complex64 as complex64
from fad.core.dtypes import complex128 as complex128
from fad.core.dtypes import double as double
from fad.core.dtypes import float16 as float16
from fad.core.dtypes import float32 as float32
from fad.core.dtypes import float64 as float64
from fad.core.dtypes import half as half
from fad.core.dtypes import int8 as int8
from fad.core.dtypes import int16 as int16
from fad.core.dtypes import int32 as int32
from fad.core.dtypes import int64 as int64
from fad.core.dtypes import long as long
from fad.core.dtypes import short as short
from fad.core.dtypes import uint8 as uint8
from fad.core.dtypes import uint16 as uint16
from fad.core.dtypes import uint32 as uint32
from fad.core.dtypes import uint64 as uint64
from fad.core.tensor import Tensor as Tensor
from fad.functions.function import Function as Function
from fad.methods.functions import arange as arange
from fad.methods.functions import as_tensor as as_tensor
from fad.methods.functions import eye as eye
from fad.methods.functions import from_numpy as from_numpy
from fad.methods.functions import full as full
from fad.methods.functions import full_like as full_like
from fad.methods.functions import linspace as linspace
from fad.sparse.sparse_pattern import SparsePattern as SparsePattern
from fad.tape.grad_mode import enable_grad as enable_grad
from fad.tape.grad_mode import inference_mode as inference_mode
from fad.tape.grad_mode import is_grad_enabled as is_grad_enabled
from fad.tape.grad_mode import no_grad as no_grad
from fad.tape.grad_mode import set_grad_enabled as set_grad_enabled
from fad.transforms.jvp import dual_level as dual_level
from fad.transforms.jvp import make_dual as make_dual
from fad.transforms.jvp import unpack_dual as unpack_dual
from fad.viz.causes import why as why

__version__: str
bool = _dtypes.bool_
float = _dtypes.float_
int = _dtypes.int_

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_A = TypeVar("_A")
_A_co = TypeVar("_A_co", covariant=True)
_X = TypeVar("_X")
_Y = TypeVar("_Y")
_Z = TypeVar("_Z")
_Ts = TypeVarTuple("_Ts")
_HostValue = complex | NumpyArray  # a transform gives JAX arrays for these

# What transforms return where the result depends on the argument. Not there at run time, when all of these
# are functions.

class _Transformed: ...

_F = TypeVar("_F", bound=_Transformed)

class _Gradient(_Transformed, Generic[_P]):
    @overload
    def __call__(self, x: _HostValue, /, *args: _P.args, **kwargs: _P.kwargs) -> jax.Array: ...
    @overload
    def __call__(self, x: _X, /, *args: _P.args, **kwargs: _P.kwargs) -> _X: ...

class _GradientAndAux(_Transformed, Generic[_P, _A]):
    @overload
    def __call__(
        self, x: _HostValue, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[jax.Array, _A]: ...
    @overload
    def __call__(self, x: _X, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_X, _A]: ...

class _SecondGradient(_Transformed, Generic[_P]):
    @overload
    def __call__(
        self, x: Any, y: _HostValue, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> jax.Array: ...
    @overload
    def __call__(self, x: Any, y: _Y, /, *args: _P.args, **kwargs: _P.kwargs) -> _Y: ...

class _TwoGradients(_Transformed, Generic[_P]):
    def __call__(self, x: _X, y: _Y, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_X, _Y]: ...

class _ThreeGradients(_Transformed, Generic[_P]):
    def __call__(
        self, x: _X, y: _Y, z: _Z, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[_X, _Y, _Z]: ...

class _ValueAndGradient(_Transformed, Generic[_P, _R]):
    @overload
    def __call__(
        self, x: _HostValue | jax.Array, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[jax.Array, jax.Array]: ...
    @overload
    def __call__(self, x: _X, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_R, _X]: ...

class _ValueAndTwoGradients(_Transformed, Generic[_P, _R]):
    def __call__(
        self, x: _X, y: _Y, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> tuple[_R, tuple[_X, _Y]]: ...

class _Hessian(_Transformed, Generic[_P]):
    @overload
    def __call__(self, x: Tensor, /, *args: _P.args, **kwargs: _P.kwargs) -> Tensor: ...
    @overload
    def __call__(
        self, x: _HostValue | jax.Array, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> jax.Array: ...
    @overload
    def __call__(self, x: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...

class _Decorator:
    @overload
    def __call__(self, f: _F) -> _F: ...
    @overload
    def __call__(self, f: Callable[_P, _R]) -> Callable[_P, _R]: ...

class _Compiled(Generic[_P, _R]):
    __wrapped__: Callable[_P, _R]
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    @overload
    def __get__(self, instance: None, owner: type) -> _Compiled[_P, _R]: ...
    @overload
    def __get__(
        self: _Compiled[Concatenate[_X, _Q], _R], instance: _X, owner: type
    ) -> Callable[_Q, _R]: ...
    def lower(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    def trace(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    def eval_shape(self, *args: Any, **kwargs: Any) -> Any: ...
    def explain(self, *args: _P.args, **kwargs: _P.kwargs) -> str: ...
    def clear_cache(self) -> None: ...

class _Jit:
    @overload
    def __call__(self, f: _F) -> _F: ...
    @overload
    def __call__(self, f: Callable[_P, _R]) -> _Compiled[_P, _R]: ...

# Reverse mode

@overload
def grad(
    f: Callable[Concatenate[Any, _P], object],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
) -> _Gradient[_P]: ...
@overload
def grad(
    f: Callable[Concatenate[Any, _P], tuple[object, _A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
) -> _GradientAndAux[_P, _A]: ...
@overload
def grad(
    f: Callable[Concatenate[Any, Any, _P], object],
    argnums: Literal[1],
    has_aux: Literal[False] = False,
) -> _SecondGradient[_P]: ...
@overload
def grad(
    f: Callable[Concatenate[Any, Any, _P], object],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
) -> _TwoGradients[_P]: ...
@overload
def grad(
    f: Callable[Concatenate[Any, Any, Any, _P], object],
    argnums: tuple[Literal[0], Literal[1], Literal[2]],
    has_aux: Literal[False] = False,
) -> _ThreeGradients[_P]: ...
@overload
def grad(
    f: Callable[_P, object],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[_P, Any]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[Any, _P], tuple[_R, _A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
) -> Callable[Concatenate[_X, _P], tuple[tuple[_R, _A], _X]]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[Any, _P], _R],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
) -> _ValueAndGradient[_P, _R]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[Any, Any, _P], _R],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
) -> _ValueAndTwoGradients[_P, _R]: ...
@overload
def value_and_grad(
    f: Callable[_P, _R],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    has_aux: builtins.bool = False,
) -> Callable[_P, tuple[_R, Any]]: ...
@overload
def vjp(
    f: Callable[..., Tensor], *primals: _HostValue | jax.Array, has_aux: Literal[False] = False
) -> tuple[jax.Array, Callable[[Any], tuple[jax.Array, ...]]]: ...
@overload
def vjp(
    f: Callable[..., _R], *primals: *_Ts, has_aux: Literal[False] = False
) -> tuple[_R, Callable[[Any], tuple[*_Ts]]]: ...
@overload
def vjp(
    f: Callable[..., tuple[_R, _A]], *primals: *_Ts, has_aux: Literal[True]
) -> tuple[_R, Callable[[Any], tuple[*_Ts]], _A]: ...
@overload
def vjp(f: Callable[..., Any], *primals: Any, has_aux: builtins.bool) -> Any: ...

# Forward mode

@overload
def jvp(
    f: Callable[..., Tensor],
    primals: Sequence[_HostValue | jax.Array],
    tangents: Sequence[Any],
    *,
    strict: builtins.bool = False,
    has_aux: Literal[False] = False,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def jvp(
    f: Callable[..., _R],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: builtins.bool = False,
    has_aux: Literal[False] = False,
) -> tuple[_R, _R]: ...
@overload
def jvp(
    f: Callable[..., tuple[_R, _A]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: builtins.bool = False,
    has_aux: Literal[True],
) -> tuple[_R, _R, _A]: ...
@overload
def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    strict: builtins.bool = False,
    has_aux: builtins.bool,
) -> Any: ...
@overload
def jet(
    f: Callable[..., Tensor], primals: Sequence[_HostValue | jax.Array], series: Sequence[Any]
) -> tuple[jax.Array, list[jax.Array]]: ...
@overload
def jet(
    f: Callable[..., Tensor], primals: Sequence[Any], series: Sequence[Any]
) -> tuple[Tensor, list[Tensor]]: ...
@overload
def jet(f: Callable[..., _R], primals: Sequence[Any], series: Sequence[Any]) -> tuple[_R, Any]: ...
@overload
def derivatives(
    f: Callable[[Any], Tensor],
    x: _HostValue | jax.Array,
    order: builtins.int,
    direction: Any = None,
) -> list[jax.Array]: ...
@overload
def derivatives(
    f: Callable[[Any], _R], x: Any, order: builtins.int, direction: Any = None
) -> list[_R]: ...
@overload
def linearize(
    f: Callable[..., Tensor], *primals: _HostValue | jax.Array, has_aux: Literal[False] = False
) -> tuple[jax.Array, Callable[..., jax.Array]]: ...
@overload
def linearize(
    f: Callable[..., _R], *primals: Any, has_aux: Literal[False] = False
) -> tuple[_R, Callable[..., _R]]: ...
@overload
def linearize(
    f: Callable[..., tuple[_R, _A]], *primals: Any, has_aux: Literal[True]
) -> tuple[_R, Callable[..., _R], _A]: ...
@overload
def linearize(f: Callable[..., Any], *primals: Any, has_aux: builtins.bool) -> Any: ...

# Jacobians. That of a single array has the structure of the argument.

@overload
def jacrev(
    f: Callable[Concatenate[Any, _P], Tensor],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
    chunk_size: builtins.int | None = None,
) -> _Gradient[_P]: ...
@overload
def jacrev(
    f: Callable[Concatenate[Any, _P], tuple[Tensor, _A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    chunk_size: builtins.int | None = None,
) -> _GradientAndAux[_P, _A]: ...
@overload
def jacrev(
    f: Callable[_P, object],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    *,
    has_aux: builtins.bool = False,
    chunk_size: builtins.int | None = None,
) -> Callable[_P, Any]: ...
@overload
def jacfwd(
    f: Callable[Concatenate[Any, _P], Tensor],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    *,
    chunk_size: builtins.int | None = None,
) -> _Gradient[_P]: ...
@overload
def jacfwd(
    f: Callable[Concatenate[Any, _P], tuple[Tensor, _A]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    chunk_size: builtins.int | None = None,
) -> _GradientAndAux[_P, _A]: ...
@overload
def jacfwd(
    f: Callable[_P, object],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    has_aux: builtins.bool = False,
    *,
    chunk_size: builtins.int | None = None,
) -> Callable[_P, Any]: ...
@overload
def hessian(f: Callable[Concatenate[Any, _P], object], argnums: Literal[0] = 0) -> _Hessian[_P]: ...
@overload
def hessian(
    f: Callable[_P, object], argnums: builtins.int | Sequence[builtins.int] = 0
) -> Callable[_P, Any]: ...
def hvp(f: Callable[..., object], primals: _X, tangents: Sequence[Any]) -> tuple[_X, _X]: ...
def laplacian(
    f: Callable[_P, _R], argnums: builtins.int | Sequence[builtins.int] = 0
) -> Callable[_P, _R]: ...
def value_and_laplacian(
    f: Callable[_P, _R], argnums: builtins.int | Sequence[builtins.int] = 0
) -> Callable[_P, tuple[_R, _R]]: ...
def ggnvp(model: Callable[[_X], _Y], loss: Callable[[_Y], object], params: _X, v: Any) -> _X: ...

# Functions of the same form

@overload
def vmap(
    f: _F,
    in_dims: object = 0,
    out_dims: object = 0,
    *,
    in_axes: object = 0,
    out_axes: object = 0,
    randomness: str = "error",
    chunk_size: builtins.int | None = None,
    axis_size: builtins.int | None = None,
    axis_name: Hashable = None,
) -> _F: ...
@overload
def vmap(
    f: Callable[_P, _R],
    in_dims: object = 0,
    out_dims: object = 0,
    *,
    in_axes: object = 0,
    out_axes: object = 0,
    randomness: str = "error",
    chunk_size: builtins.int | None = None,
    axis_size: builtins.int | None = None,
    axis_name: Hashable = None,
) -> Callable[_P, _R]: ...
@overload
def jit(
    f: _F,
    *,
    static_argnums: builtins.int | Sequence[builtins.int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: builtins.int | Sequence[builtins.int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: object = None,
    out_shardings: object = None,
    explain: builtins.bool = False,
    hooks: builtins.bool = False,
    roll: builtins.bool = True,
) -> _F: ...
@overload
def jit(
    f: Callable[_P, _R],
    *,
    static_argnums: builtins.int | Sequence[builtins.int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: builtins.int | Sequence[builtins.int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: object = None,
    out_shardings: object = None,
    explain: builtins.bool = False,
    hooks: builtins.bool = False,
    roll: builtins.bool = True,
) -> _Compiled[_P, _R]: ...
@overload
def jit(
    f: None = None,
    *,
    static_argnums: builtins.int | Sequence[builtins.int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: builtins.int | Sequence[builtins.int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: object = None,
    out_shardings: object = None,
    explain: builtins.bool = False,
    hooks: builtins.bool = False,
    roll: builtins.bool = True,
) -> _Jit: ...
@overload
def checkpoint(f: _F, *, policy: Callable[..., object] | None = None) -> _F: ...
@overload
def checkpoint(
    f: Callable[_P, _R], *, policy: Callable[..., object] | None = None
) -> Callable[_P, _R]: ...
@overload
def checkpoint(f: None = None, *, policy: Callable[..., object] | None = None) -> _Decorator: ...
@overload
def functionalize(f: _F) -> _F: ...
@overload
def functionalize(f: Callable[_P, _R]) -> Callable[_P, _R]: ...
def stop_gradient(x: _X) -> _X: ...
def safe_where(condition: Any, f: Callable[..., _R], g: Callable[..., Any], *args: Any) -> _R: ...
def sparsity(
    f: Callable[_P, object], argnums: builtins.int | Sequence[builtins.int] = 0
) -> Callable[_P, Any]: ...
def sparse_pattern(
    f: Callable[_P, object],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    *,
    hessian: builtins.bool = False,
    pattern: object = None,
) -> Callable[_P, SparsePattern]: ...
def sparse_jacobian(
    f: Callable[_P, object],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    *,
    format: Literal["bcoo", "bcsr", "scipy"] = "bcoo",
    chunk_size: builtins.int | None = None,
    pattern: object = None,
) -> Callable[_P, Any]: ...
def sparse_hessian(
    f: Callable[_P, object],
    argnums: builtins.int | Sequence[builtins.int] = 0,
    *,
    format: Literal["bcoo", "bcsr", "scipy"] = "bcoo",
    chunk_size: builtins.int | None = None,
    pattern: object = None,
) -> Callable[_P, Any]: ...
def linear_transpose(
    f: Callable[..., object], *primals: Any
) -> Callable[[Any], tuple[Any, ...]]: ...
def eval_shape(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
def make_jaxpr(
    f: Callable[..., Any],
    static_argnums: builtins.int | Sequence[builtins.int] | None = None,
    *,
    return_shape: builtins.bool = False,
) -> Callable[..., Any]: ...

# Between fad and JAX

class _FromJax(_Transformed):
    @overload
    def __call__(self, *args: jax.Array | complex, **kwargs: jax.Array | complex) -> jax.Array: ...
    @overload
    def __call__(self, *args: Value, **kwargs: Value) -> Tensor: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@overload
def from_jax(
    f: Callable[..., jax.Array],
    *,
    static_argnums: builtins.int | Sequence[builtins.int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
) -> _FromJax: ...
@overload
def from_jax(
    f: Callable[_P, Any],
    *,
    static_argnums: builtins.int | Sequence[builtins.int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
) -> Callable[..., Any]: ...
@overload
def to_jax(f: Callable[..., Tensor]) -> Callable[..., jax.Array]: ...
@overload
def to_jax(f: Callable[..., Any]) -> Callable[..., Any]: ...
@overload
def from_torch(
    f: Callable[..., Any], *, parameters: Literal[False] = False
) -> Callable[..., Any]: ...
@overload
def from_torch(
    f: Callable[..., Any], *, parameters: Literal[True]
) -> tuple[Callable[..., Any], dict[str, Tensor]]: ...
def to_torch(f: Callable[..., Any], *, jit: builtins.bool = False) -> Callable[..., Any]: ...

class _CustomRules(Generic[_P, _R]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def defvjp(
        self,
        fwd: Callable[..., tuple[Any, Any]],
        bwd: Callable[..., Any],
        symbolic_zeros: builtins.bool = False,
        optimize_remat: builtins.bool = False,
    ) -> None: ...
    def defjvp(
        self, jvp: Callable[..., _A], symbolic_zeros: builtins.bool = False
    ) -> Callable[..., _A]: ...
    def defjvps(self, *jvps: Callable[..., Any] | None) -> None: ...
    def defvmap(self, rule: Callable[..., _A]) -> Callable[..., _A]: ...
    def def_vmap(self, rule: Callable[..., _A]) -> Callable[..., _A]: ...

class _CustomRulesDecorator(Protocol):
    def __call__(self, f: Callable[_P, _R], /) -> _CustomRules[_P, _R]: ...

@overload
def custom_rules(
    f: Callable[_P, _R],
    *,
    nondiff_argnums: builtins.int | Sequence[builtins.int] = (),
    nondiff_argnames: str | Sequence[str] = (),
) -> _CustomRules[_P, _R]: ...
@overload
def custom_rules(
    f: None = None,
    *,
    nondiff_argnums: builtins.int | Sequence[builtins.int] = (),
    nondiff_argnames: str | Sequence[str] = (),
) -> _CustomRulesDecorator: ...

# Values

def tensor(
    data: Any,
    dtype: DTypeLike | None = None,
    requires_grad: builtins.bool = False,
    *,
    device: Any = None,
) -> Tensor: ...
def asarray(x: Any, dtype: DTypeLike | None = None) -> Tensor: ...
def zeros(
    *sizes: builtins.int | Sequence[builtins.int],
    size: Sequence[builtins.int] | None = None,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor: ...
def ones(
    *sizes: builtins.int | Sequence[builtins.int],
    size: Sequence[builtins.int] | None = None,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor: ...
def empty(
    *sizes: builtins.int | Sequence[builtins.int],
    size: Sequence[builtins.int] | None = None,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor: ...
def zeros_like(
    input: Value,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor: ...
def ones_like(
    input: Value,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor: ...
def empty_like(
    input: Value,
    *,
    dtype: DTypeLike | None = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor: ...
@overload
def cat(
    tensors: Sequence[jax.Array],
    dim: builtins.int | None = None,
    *,
    axis: builtins.int | None = None,
) -> jax.Array: ...
@overload
def cat(
    tensors: Sequence[Value], dim: builtins.int | None = None, *, axis: builtins.int | None = None
) -> Tensor: ...
@overload
def stack(
    tensors: Sequence[JaxValue],
    dim: builtins.int | None = None,
    *,
    axis: builtins.int | None = None,
) -> jax.Array: ...
@overload
def stack(
    tensors: Sequence[Value], dim: builtins.int | None = None, *, axis: builtins.int | None = None
) -> Tensor: ...
@overload
def view_as_complex(input: JaxValue) -> jax.Array: ...
@overload
def view_as_complex(input: TensorValue) -> Tensor: ...
@overload
def view_as_real(input: JaxValue) -> jax.Array: ...
@overload
def view_as_real(input: TensorValue) -> Tensor: ...
@overload
def where(condition: JaxValue) -> tuple[jax.Array, ...]: ...
@overload
def where(condition: TensorValue) -> tuple[Tensor, ...]: ...
@overload
def where(condition: JaxValue, input: JaxValue, other: JaxValue) -> jax.Array: ...
@overload
def where(condition: Value, input: Value, other: Value) -> Tensor: ...
