"""The names of jax.scipy.special, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, Literal, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

def bernoulli(n: int) -> Tensor:
    """Generate the first N Bernoulli numbers."""

@overload
def bessel_jn(z: TensorValue, *, v: int, n_iter: int = 50) -> Tensor:
    """Bessel function of the first kind of integer order and real argument."""

@overload
def bessel_jn(z: JaxValue, *, v: int, n_iter: int = 50) -> jax.Array: ...
@overload
def beta(a: TensorValue, b: Value) -> Tensor: ...
@overload
def beta(a: Value, b: TensorValue) -> Tensor: ...
@overload
def beta(a: JaxValue, b: JaxValue) -> jax.Array: ...
@overload
def betainc(a: TensorValue, b: Value, x: Value) -> Tensor:
    """The regularized incomplete beta function."""

@overload
def betainc(a: Value, b: TensorValue, x: Value) -> Tensor: ...
@overload
def betainc(a: Value, b: Value, x: TensorValue) -> Tensor: ...
@overload
def betainc(a: JaxValue, b: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def betaln(a: TensorValue, b: Value) -> Tensor: ...
@overload
def betaln(a: Value, b: TensorValue) -> Tensor: ...
@overload
def betaln(a: JaxValue, b: JaxValue) -> jax.Array: ...
@overload
def boxcox(x: TensorValue, lmbda: Value) -> Tensor:
    """Box-Cox power transformation."""

@overload
def boxcox(x: Value, lmbda: TensorValue) -> Tensor: ...
@overload
def boxcox(x: JaxValue, lmbda: JaxValue) -> jax.Array: ...
@overload
def boxcox1p(x: TensorValue, lmbda: Value) -> Tensor:
    """Box-Cox transformation of ``1 + x``."""

@overload
def boxcox1p(x: Value, lmbda: TensorValue) -> Tensor: ...
@overload
def boxcox1p(x: JaxValue, lmbda: JaxValue) -> jax.Array: ...
@overload
def comb(N: TensorValue, k: Value, *, repetition: bool = False) -> Tensor: ...
@overload
def comb(N: Value, k: TensorValue, *, repetition: bool = False) -> Tensor: ...
@overload
def comb(N: JaxValue, k: JaxValue, *, repetition: bool = False) -> jax.Array: ...
@overload
def comb(*args: Any, diagonal: Any, **kwargs: Any) -> Any: ...
@overload
def dawsn(x: TensorValue) -> Tensor:
    """Dawson's integral."""

@overload
def dawsn(x: JaxValue) -> jax.Array: ...
@overload
def digamma(x: TensorValue) -> Tensor: ...
@overload
def digamma(x: JaxValue) -> jax.Array: ...
@overload
def entr(x: TensorValue) -> Tensor: ...
@overload
def entr(x: JaxValue) -> jax.Array: ...
@overload
def erf(x: TensorValue) -> Tensor: ...
@overload
def erf(x: JaxValue) -> jax.Array: ...
@overload
def erfc(x: TensorValue) -> Tensor: ...
@overload
def erfc(x: JaxValue) -> jax.Array: ...
@overload
def erfcx(x: TensorValue) -> Tensor:
    """Scaled complementary error function."""

@overload
def erfcx(x: JaxValue) -> jax.Array: ...
@overload
def erfinv(x: TensorValue) -> Tensor: ...
@overload
def erfinv(x: JaxValue) -> jax.Array: ...
@overload
def exp1(x: TensorValue) -> Tensor:
    """Exponential integral function."""

@overload
def exp1(x: JaxValue) -> jax.Array: ...
@overload
def expi(x: TensorValue) -> Tensor:
    """Exponential integral function."""

@overload
def expi(x: JaxValue) -> jax.Array: ...
@overload
def expit(x: TensorValue) -> Tensor: ...
@overload
def expit(x: JaxValue) -> jax.Array: ...
@overload
def expn(n: TensorValue, x: Value) -> Tensor:
    """Generalized exponential integral function."""

@overload
def expn(n: Value, x: TensorValue) -> Tensor: ...
@overload
def expn(n: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def factorial(n: TensorValue, exact: bool = False) -> Tensor: ...
@overload
def factorial(n: JaxValue, exact: bool = False) -> jax.Array: ...
@overload
def fresnel(x: TensorValue) -> tuple[Tensor, Tensor]: ...
@overload
def fresnel(x: JaxValue) -> tuple[jax.Array, jax.Array]: ...
@overload
def gamma(x: TensorValue) -> Tensor:
    """The gamma function."""

@overload
def gamma(x: JaxValue) -> jax.Array: ...
@overload
def gammainc(a: TensorValue, x: Value) -> Tensor:
    """The regularized lower incomplete gamma function."""

@overload
def gammainc(a: Value, x: TensorValue) -> Tensor: ...
@overload
def gammainc(a: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def gammaincc(a: TensorValue, x: Value) -> Tensor:
    """The regularized upper incomplete gamma function."""

@overload
def gammaincc(a: Value, x: TensorValue) -> Tensor: ...
@overload
def gammaincc(a: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def gammaln(x: TensorValue) -> Tensor:
    """Natural log of the absolute value of the gamma function."""

@overload
def gammaln(x: JaxValue) -> jax.Array: ...
@overload
def gammasgn(x: TensorValue) -> Tensor:
    """Sign of the gamma function."""

@overload
def gammasgn(x: JaxValue) -> jax.Array: ...
@overload
def hyp1f1(a: TensorValue, b: Value, x: Value) -> Tensor:
    """The 1F1 hypergeometric function."""

@overload
def hyp1f1(a: Value, b: TensorValue, x: Value) -> Tensor: ...
@overload
def hyp1f1(a: Value, b: Value, x: TensorValue) -> Tensor: ...
@overload
def hyp1f1(a: JaxValue, b: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def hyp2f1(a: JaxValue, b: JaxValue, c: JaxValue, x: JaxValue) -> jax.Array:
    """The 2F1 hypergeometric function."""

@overload
def hyp2f1(a: Value, b: Value, c: Value, x: Value) -> Tensor: ...
@overload
def i0(x: TensorValue) -> Tensor:
    """Modified bessel function of zeroth order."""

@overload
def i0(x: JaxValue) -> jax.Array: ...
@overload
def i0e(x: TensorValue) -> Tensor:
    """Exponentially scaled modified bessel function of zeroth order."""

@overload
def i0e(x: JaxValue) -> jax.Array: ...
@overload
def i1(x: TensorValue) -> Tensor:
    """Modified bessel function of first order."""

@overload
def i1(x: JaxValue) -> jax.Array: ...
@overload
def i1e(x: TensorValue) -> Tensor:
    """Exponentially scaled modified bessel function of first order."""

@overload
def i1e(x: JaxValue) -> jax.Array: ...
@overload
def kl_div(p: TensorValue, q: Value) -> Tensor:
    """The Kullback-Leibler divergence."""

@overload
def kl_div(p: Value, q: TensorValue) -> Tensor: ...
@overload
def kl_div(p: JaxValue, q: JaxValue) -> jax.Array: ...
@overload
def log_ndtr(x: TensorValue, series_order: int = 3) -> Tensor:
    """Log Normal distribution function."""

@overload
def log_ndtr(x: JaxValue, series_order: int = 3) -> jax.Array: ...
@overload
def log_softmax(x: TensorValue, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Log-Softmax function."""

@overload
def log_softmax(x: JaxValue, /, *, axis: int | tuple[int, ...] | None = None) -> jax.Array: ...
@overload
def log_softmax(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def log_softmax(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def log_softmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def log_softmax(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def log_softmax(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def log_softmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def loggamma(x: TensorValue) -> Tensor:
    """Principal branch of the logarithm of the gamma function."""

@overload
def loggamma(x: JaxValue) -> jax.Array: ...
@overload
def logit(x: TensorValue) -> Tensor: ...
@overload
def logit(x: JaxValue) -> jax.Array: ...
@overload
def logsumexp(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: Value | None = None,
) -> Tensor:
    """Log-sum-exp reduction."""

@overload
def logsumexp(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    b: JaxValue | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: JaxValue | None = None,
) -> jax.Array: ...
@overload
def logsumexp(
    a: Value,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: Literal[False] = False,
    where: Value | None = None,
) -> Tensor: ...
@overload
def logsumexp(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(*args: Any, keepdim: Any, **kwargs: Any) -> Any: ...
@overload
def logsumexp(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: Value | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def logsumexp(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    b: JaxValue | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: JaxValue | None = None,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def logsumexp(
    a: Value,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    *,
    return_sign: Literal[True],
    where: Value | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def logsumexp(
    a: TensorValue,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Value | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def logsumexp(
    a: JaxValue,
    axis: int | Sequence[int] | None = None,
    b: JaxValue | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: JaxValue | None = None,
) -> jax.Array | tuple[jax.Array, jax.Array]: ...
@overload
def logsumexp(
    a: Value,
    axis: int | Sequence[int] | None = None,
    b: Value | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Value | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def multigammaln(a: TensorValue, d: Value) -> Tensor:
    """The natural log of the multivariate gamma function."""

@overload
def multigammaln(a: Value, d: TensorValue) -> Tensor: ...
@overload
def multigammaln(a: JaxValue, d: JaxValue) -> jax.Array: ...
@overload
def ndtr(x: TensorValue) -> Tensor:
    """Normal distribution function."""

@overload
def ndtr(x: JaxValue) -> jax.Array: ...
@overload
def ndtri(p: TensorValue) -> Tensor:
    """The inverse of the CDF of the Normal distribution function."""

@overload
def ndtri(p: JaxValue) -> jax.Array: ...
@overload
def owens_t(h: TensorValue, a: Value) -> Tensor:
    """Owen's T function."""

@overload
def owens_t(h: Value, a: TensorValue) -> Tensor: ...
@overload
def owens_t(h: JaxValue, a: JaxValue) -> jax.Array: ...
@overload
def poch(z: TensorValue, m: Value) -> Tensor:
    """The Pochammer symbol."""

@overload
def poch(z: Value, m: TensorValue) -> Tensor: ...
@overload
def poch(z: JaxValue, m: JaxValue) -> jax.Array: ...
@overload
def polygamma(n: TensorValue, x: Value) -> Tensor:
    """The polygamma function."""

@overload
def polygamma(n: Value, x: TensorValue) -> Tensor: ...
@overload
def polygamma(n: JaxValue, x: JaxValue) -> jax.Array: ...
@overload
def rel_entr(p: TensorValue, q: Value) -> Tensor:
    """The relative entropy function."""

@overload
def rel_entr(p: Value, q: TensorValue) -> Tensor: ...
@overload
def rel_entr(p: JaxValue, q: JaxValue) -> jax.Array: ...
@overload
def sici(x: TensorValue) -> tuple[Tensor, Tensor]:
    """Sine and cosine integrals."""

@overload
def sici(x: JaxValue) -> tuple[jax.Array, jax.Array]: ...
@overload
def softmax(x: TensorValue, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Softmax function."""

@overload
def softmax(x: JaxValue, /, *, axis: int | tuple[int, ...] | None = None) -> jax.Array: ...
@overload
def softmax(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def softmax(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def softmax(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def softmax(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def softmax(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def softmax(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def spence(x: Tensor) -> Tensor:
    """Spence's function, also known as the dilogarithm for real values."""

@overload
def spence(x: jax.Array) -> jax.Array: ...
@overload
def sph_harm_y(
    n: jax.Array,
    m: jax.Array,
    theta: jax.Array,
    phi: jax.Array,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> jax.Array:
    """Computes the spherical harmonics."""

@overload
def sph_harm_y(
    n: Tensor | jax.Array,
    m: Tensor | jax.Array,
    theta: Tensor | jax.Array,
    phi: Tensor | jax.Array,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> Tensor: ...
@overload
def wofz(z: TensorValue) -> Tensor:
    """Faddeeva function."""

@overload
def wofz(z: JaxValue) -> jax.Array: ...
@overload
def xlog1py(x: TensorValue, y: Value) -> Tensor:
    """Compute x*log(1 + y), returning 0 for x=0."""

@overload
def xlog1py(x: Value, y: TensorValue) -> Tensor: ...
@overload
def xlog1py(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def xlogy(x: TensorValue, y: Value) -> Tensor:
    """Compute x*log(y), returning 0 for x=0."""

@overload
def xlogy(x: Value, y: TensorValue) -> Tensor: ...
@overload
def xlogy(x: JaxValue, y: JaxValue) -> jax.Array: ...
@overload
def zeta(x: TensorValue, q: Value | None = None) -> Tensor:
    """The Hurwitz zeta function."""

@overload
def zeta(x: JaxValue, q: JaxValue | None = None) -> jax.Array: ...
@overload
def zeta(x: Value, q: Value | None = None) -> Tensor: ...
