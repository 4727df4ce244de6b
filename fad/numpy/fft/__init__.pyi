"""The names of jax.numpy.fft, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, overload

import jax

from fad.arrays.annotations import DTypeLike, JaxValue, ListedValue, TensorValue
from fad.core.tensor import Tensor

@overload
def fft(a: TensorValue, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute a one-dimensional discrete Fourier transform along a given axis."""

@overload
def fft(
    a: JaxValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def fft(
    a: ListedValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def fft(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def fft(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def fft(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def fft(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def fft2(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Compute a two-dimensional discrete Fourier transform along given axes."""

@overload
def fft2(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> jax.Array: ...
@overload
def fft2(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor: ...
@overload
def fft2(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def fft2(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fft2(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def fft2(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def fft2(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fft2(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def fftfreq(
    n: int, d: ListedValue = 1.0, *, dtype: DTypeLike | None = None, device: Any = None
) -> Tensor:
    """Return sample frequencies for the discrete Fourier transform."""

@overload
def fftn(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor:
    """Compute a multidimensional discrete Fourier transform along given axes."""

@overload
def fftn(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> jax.Array: ...
@overload
def fftn(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor: ...
@overload
def fftn(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def fftn(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fftn(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def fftn(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def fftn(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fftn(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def fftshift(x: TensorValue, axes: int | Sequence[int] | None = None) -> Tensor:
    """Shift zero-frequency fft component to the center of the spectrum."""

@overload
def fftshift(x: JaxValue, axes: int | Sequence[int] | None = None) -> jax.Array: ...
@overload
def fftshift(x: ListedValue, axes: int | Sequence[int] | None = None) -> Tensor: ...
@overload
def fftshift(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def fftshift(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fftshift(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def fftshift(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def fftshift(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def fftshift(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def hfft(a: TensorValue, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute a 1-D FFT of an array whose spectrum has Hermitian symmetry."""

@overload
def hfft(
    a: JaxValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def hfft(
    a: ListedValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def hfft(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def hfft(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def hfft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def hfft(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def hfft(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def hfft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def ifft(a: TensorValue, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute a one-dimensional inverse discrete Fourier transform."""

@overload
def ifft(
    a: JaxValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def ifft(
    a: ListedValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def ifft(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifft(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def ifft(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifft(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def ifft2(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Compute a two-dimensional inverse discrete Fourier transform."""

@overload
def ifft2(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> jax.Array: ...
@overload
def ifft2(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor: ...
@overload
def ifft2(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifft2(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifft2(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def ifft2(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifft2(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifft2(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def ifftn(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor:
    """Compute a multidimensional inverse discrete Fourier transform."""

@overload
def ifftn(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> jax.Array: ...
@overload
def ifftn(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor: ...
@overload
def ifftn(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifftn(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifftn(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def ifftn(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifftn(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifftn(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def ifftshift(x: TensorValue, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of :func:`jax.numpy.fft.fftshift`."""

@overload
def ifftshift(x: JaxValue, axes: int | Sequence[int] | None = None) -> jax.Array: ...
@overload
def ifftshift(x: ListedValue, axes: int | Sequence[int] | None = None) -> Tensor: ...
@overload
def ifftshift(x: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifftshift(x: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifftshift(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def ifftshift(x: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def ifftshift(x: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ifftshift(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def ihfft(a: TensorValue, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute a 1-D inverse FFT of an array whose spectrum has Hermitian-symmetry."""

@overload
def ihfft(
    a: JaxValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def ihfft(
    a: ListedValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def ihfft(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def ihfft(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ihfft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def ihfft(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def ihfft(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def ihfft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def irfft(a: TensorValue, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute a real-valued one-dimensional inverse discrete Fourier transform."""

@overload
def irfft(
    a: JaxValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def irfft(
    a: ListedValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def irfft(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def irfft(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def irfft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def irfft(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def irfft(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def irfft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def irfft2(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Compute a real-valued two-dimensional inverse discrete Fourier transform."""

@overload
def irfft2(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> jax.Array: ...
@overload
def irfft2(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor: ...
@overload
def irfft2(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def irfft2(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def irfft2(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def irfft2(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def irfft2(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def irfft2(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def irfftn(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor:
    """Compute a real-valued multidimensional inverse discrete Fourier transform."""

@overload
def irfftn(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> jax.Array: ...
@overload
def irfftn(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor: ...
@overload
def irfftn(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def irfftn(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def irfftn(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def irfftn(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def irfftn(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def irfftn(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def rfft(a: TensorValue, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Compute a one-dimensional discrete Fourier transform of a real-valued array."""

@overload
def rfft(
    a: JaxValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> jax.Array: ...
@overload
def rfft(
    a: ListedValue, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tensor: ...
@overload
def rfft(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def rfft(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rfft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def rfft(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def rfft(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rfft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def rfft2(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor:
    """Compute a two-dimensional discrete Fourier transform of a real-valued array."""

@overload
def rfft2(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> jax.Array: ...
@overload
def rfft2(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Tensor: ...
@overload
def rfft2(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def rfft2(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rfft2(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def rfft2(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def rfft2(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rfft2(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
def rfftfreq(
    n: int, d: ListedValue = 1.0, *, dtype: DTypeLike | None = None, device: Any = None
) -> Tensor:
    """Return sample frequencies for the discrete Fourier transform."""

@overload
def rfftn(
    a: TensorValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor:
    """Compute a multidimensional discrete Fourier transform of a real-valued array."""

@overload
def rfftn(
    a: JaxValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> jax.Array: ...
@overload
def rfftn(
    a: ListedValue,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Tensor: ...
@overload
def rfftn(a: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def rfftn(a: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rfftn(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def rfftn(a: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def rfftn(a: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def rfftn(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
