"""The names of jax.scipy.stats, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, Generic, NamedTuple, TypeVar, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue
from fad.core.tensor import Tensor
from fad.scipy.stats import bernoulli as bernoulli
from fad.scipy.stats import beta as beta
from fad.scipy.stats import betabinom as betabinom
from fad.scipy.stats import binom as binom
from fad.scipy.stats import cauchy as cauchy
from fad.scipy.stats import chi2 as chi2
from fad.scipy.stats import dirichlet as dirichlet
from fad.scipy.stats import expon as expon
from fad.scipy.stats import gamma as gamma
from fad.scipy.stats import gennorm as gennorm
from fad.scipy.stats import geom as geom
from fad.scipy.stats import gumbel_l as gumbel_l
from fad.scipy.stats import gumbel_r as gumbel_r
from fad.scipy.stats import laplace as laplace
from fad.scipy.stats import logistic as logistic
from fad.scipy.stats import multinomial as multinomial
from fad.scipy.stats import multivariate_normal as multivariate_normal
from fad.scipy.stats import nbinom as nbinom
from fad.scipy.stats import norm as norm
from fad.scipy.stats import pareto as pareto
from fad.scipy.stats import poisson as poisson
from fad.scipy.stats import t as t
from fad.scipy.stats import truncnorm as truncnorm
from fad.scipy.stats import uniform as uniform
from fad.scipy.stats import vonmises as vonmises
from fad.scipy.stats import wrapcauchy as wrapcauchy

_ArrayT = TypeVar("_ArrayT")

class _ModeResult(NamedTuple, Generic[_ArrayT]):
    mode: _ArrayT
    count: _ArrayT

class gaussian_kde:
    def __init__(self, dataset: Any, bw_method: Any = ..., weights: Any = ...) -> None: ...
    def tree_flatten(self) -> Tensor | jax.Array: ...
    def evaluate(self, points: Any) -> Tensor | jax.Array: ...
    def __call__(self, points: Any) -> Tensor | jax.Array: ...
    def integrate_gaussian(self, mean: Any, cov: Any) -> Tensor | jax.Array: ...
    def integrate_kde(self, other: Any) -> Tensor | jax.Array: ...
    def pdf(self, x: Any) -> Tensor | jax.Array: ...
    def logpdf(self, x: Any) -> Tensor | jax.Array: ...
    def integrate_box(
        self, low_bounds: Any, high_bounds: Any, maxpts: Any = ...
    ) -> Tensor | jax.Array: ...
    def set_bandwidth(self, bw_method: Any = ...) -> Tensor | jax.Array: ...

@overload
def mode(
    a: TensorValue, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> _ModeResult[Tensor]:
    """Compute the mode (most common value) along an axis of an array."""

@overload
def mode(
    a: JaxValue, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> _ModeResult[jax.Array]: ...
@overload
def mode(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> _ModeResult[Tensor]: ...
@overload
def mode(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> _ModeResult[jax.Array]: ...
@overload
def mode(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def mode(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> _ModeResult[Tensor]: ...
@overload
def mode(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> _ModeResult[jax.Array]: ...
@overload
def mode(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def mode(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> _ModeResult[Tensor]: ...
@overload
def mode(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> _ModeResult[jax.Array]: ...
@overload
def mode(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def rankdata(
    a: TensorValue,
    method: str = "average",
    *,
    axis: int | None = None,
    nan_policy: str = "propagate",
) -> Tensor:
    """Compute the rank of data along an array axis."""

@overload
def rankdata(
    a: JaxValue, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> jax.Array: ...
@overload
def rankdata(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def rankdata(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rankdata(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def rankdata(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def rankdata(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rankdata(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sem(
    a: TensorValue,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Tensor:
    """Compute the standard error of the mean."""

@overload
def sem(
    a: JaxValue,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> jax.Array: ...
@overload
def sem(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def sem(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def sem(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def sem(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def sem(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def sem(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def sem(a: TensorValue, *args: Any, keepdim: Any, **kwargs: Any) -> Tensor: ...
@overload
def sem(a: JaxValue, *args: Any, keepdim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def sem(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
