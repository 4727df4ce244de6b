"""The names of jax.random, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, overload

import jax

from fad.arrays.annotations import DTypeLike, JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def PRNGKey(seed: TensorValue, *, impl: Any = None) -> Tensor:
    """Create a legacy PRNG key given an integer seed."""

@overload
def PRNGKey(seed: JaxValue, *, impl: Any = None) -> jax.Array: ...
def ball(
    key: Value,
    d: int,
    p: float = 2,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample uniformly from the unit Lp ball."""

def bernoulli(
    key: Value,
    p: Value = 0.5,
    shape: Sequence[int] | None = None,
    mode: str = "low",
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Bernoulli random values with given shape and mean."""

def beta(
    key: Value,
    a: Value,
    b: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Beta random values with given shape and float dtype."""

def binomial(
    key: Tensor | jax.Array,
    n: Value,
    p: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Sample Binomial random values with given shape and float dtype."""

def bits(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample uniform bits in the form of unsigned integers."""

@overload
def categorical(
    key: Value,
    logits: Value,
    axis: int = -1,
    shape: Sequence[int] | None = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample random values from categorical distributions."""

@overload
def categorical(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def categorical(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def cauchy(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Cauchy random values with given shape and float dtype."""

def chisquare(
    key: Value,
    df: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Chisquare random values with given shape and float dtype."""

@overload
def choice(
    key: Value,
    a: Value,
    shape: Sequence[int] = (),
    replace: bool = True,
    p: Value | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Tensor:
    """Generates a random sample from a given array."""

@overload
def choice(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def choice(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def clone(key: TensorValue) -> Tensor: ...
@overload
def clone(key: JaxValue) -> jax.Array: ...
def dirichlet(
    key: Value,
    alpha: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Dirichlet random values with given shape and float dtype."""

def double_sided_maxwell(
    key: Value, loc: Value, scale: Value, shape: Sequence[int] = (), dtype: DTypeLike | None = None
) -> Tensor:
    """Sample from a double sided Maxwell distribution."""

def exponential(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Exponential random values with given shape and float dtype."""

def f(
    key: Value,
    dfnum: Value,
    dfden: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample F-distribution random values with given shape and float dtype."""

@overload
def fold_in(key: TensorValue, data: Value) -> Tensor:
    """Folds in data to a PRNG key to form a new PRNG key."""

@overload
def fold_in(key: Value, data: TensorValue) -> Tensor: ...
@overload
def fold_in(key: JaxValue, data: JaxValue) -> jax.Array: ...
def gamma(
    key: Value,
    a: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Gamma random values with given shape and float dtype."""

def generalized_normal(
    key: Value,
    p: float,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample from the generalized normal distribution."""

def geometric(
    key: Value,
    p: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Geometric random values with given shape and float dtype."""

def gumbel(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    mode: str | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Gumbel random values with given shape and float dtype."""

@overload
def key(seed: TensorValue, *, impl: Any = None, dtype: Any = None) -> Tensor:
    """Create a pseudo-random number generator (PRNG) key given an integer seed."""

@overload
def key(seed: JaxValue, *, impl: Any = None, dtype: Any = None) -> jax.Array: ...
@overload
def key_data(keys: TensorValue) -> Tensor:
    """Recover the bits of key data underlying a PRNG key array."""

@overload
def key_data(keys: JaxValue) -> jax.Array: ...
def key_dtype(impl_spec: Any = None) -> Any:
    """Get the dtype corresponding to a PRNG implementation."""

def key_impl(keys: Value) -> Any: ...
def laplace(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Laplace random values with given shape and float dtype."""

def loggamma(
    key: Value,
    a: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample log-gamma random values with given shape and float dtype."""

def logistic(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample logistic random values with given shape and float dtype."""

def lognormal(
    key: Value,
    sigma: Value = ...,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample lognormal random values with given shape and float dtype."""

def maxwell(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample from a one sided Maxwell distribution."""

def multinomial(
    key: Tensor | jax.Array,
    n: Value,
    p: Value,
    *,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
) -> Tensor:
    """Sample from a multinomial distribution."""

def multivariate_normal(
    key: Value,
    mean: Value,
    cov: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample multivariate normal random values with given mean and covariance."""

def normal(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample standard normal random values with given shape and float dtype."""

def orthogonal(
    key: Value,
    n: int,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    m: int | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample uniformly from the orthogonal group O(n)."""

def pareto(
    key: Value,
    b: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Pareto random values with given shape and float dtype."""

@overload
def permutation(
    key: Value,
    x: Value,
    axis: int = 0,
    independent: bool = False,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Returns a randomly permuted array or range."""

@overload
def permutation(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def permutation(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def poisson(
    key: Value,
    lam: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Poisson random values with given shape and integer dtype."""

def rademacher(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample from a Rademacher distribution."""

def randint(
    key: Value,
    shape: Sequence[int],
    minval: Value,
    maxval: Value,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample uniform random values in [minval, maxval) with given shape/dtype."""

def rayleigh(
    key: Value,
    scale: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Rayleigh random values with given shape and float dtype."""

@overload
def split(key: TensorValue, num: int | tuple[int, ...] = 2) -> Tensor:
    """Splits a PRNG key into `num` new keys by adding a leading axis."""

@overload
def split(key: JaxValue, num: int | tuple[int, ...] = 2) -> jax.Array: ...
def t(
    key: Value,
    df: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Student's t random values with given shape and float dtype."""

def triangular(
    key: Value,
    left: Value,
    mode: Value,
    right: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Triangular random values with given shape and float dtype."""

def truncated_normal(
    key: Value,
    lower: Value,
    upper: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample truncated standard normal random values with given shape and dtype."""

def uniform(
    key: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
    minval: Value = 0.0,
    maxval: Value = 1.0,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample uniform random values in [minval, maxval) with given shape/dtype."""

def wald(
    key: Value,
    mean: Value,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: jax.sharding.NamedSharding | jax.sharding.PartitionSpec | None = None,
) -> Tensor:
    """Sample Wald random values with given shape and float dtype."""

def weibull_min(
    key: Value,
    scale: Value,
    concentration: Value,
    shape: Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> Tensor:
    """Sample from a Weibull distribution."""

@overload
def wrap_key_data(key_bits_array: Tensor, *, impl: Any = None, dtype: Any = None) -> Tensor:
    """Wrap an array of key data bits into a PRNG key array."""

@overload
def wrap_key_data(
    key_bits_array: jax.Array, *, impl: Any = None, dtype: Any = None
) -> jax.Array: ...
