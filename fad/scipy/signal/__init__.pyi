"""The names of jax.scipy.signal, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, NumpyArray, PrecisionArgument, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def convolve(
    in1: Tensor,
    in2: Tensor | jax.Array,
    mode: Any = "full",
    method: str = "auto",
    precision: PrecisionArgument | None = None,
) -> Tensor:
    """Convolution of two N-dimensional arrays."""

@overload
def convolve(
    in1: Tensor | jax.Array,
    in2: Tensor,
    mode: Any = "full",
    method: str = "auto",
    precision: PrecisionArgument | None = None,
) -> Tensor: ...
@overload
def convolve(
    in1: jax.Array,
    in2: jax.Array,
    mode: Any = "full",
    method: str = "auto",
    precision: PrecisionArgument | None = None,
) -> jax.Array: ...
@overload
def convolve2d(
    in1: Tensor,
    in2: Tensor | jax.Array,
    mode: Any = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionArgument | None = None,
) -> Tensor:
    """Convolution of two 2-dimensional arrays."""

@overload
def convolve2d(
    in1: Tensor | jax.Array,
    in2: Tensor,
    mode: Any = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionArgument | None = None,
) -> Tensor: ...
@overload
def convolve2d(
    in1: jax.Array,
    in2: jax.Array,
    mode: Any = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionArgument | None = None,
) -> jax.Array: ...
@overload
def correlate(
    in1: Tensor,
    in2: Tensor | jax.Array,
    mode: Any = "full",
    method: str = "auto",
    precision: PrecisionArgument | None = None,
) -> Tensor:
    """Cross-correlation of two N-dimensional arrays."""

@overload
def correlate(
    in1: Tensor | jax.Array,
    in2: Tensor,
    mode: Any = "full",
    method: str = "auto",
    precision: PrecisionArgument | None = None,
) -> Tensor: ...
@overload
def correlate(
    in1: jax.Array,
    in2: jax.Array,
    mode: Any = "full",
    method: str = "auto",
    precision: PrecisionArgument | None = None,
) -> jax.Array: ...
@overload
def correlate2d(
    in1: Tensor,
    in2: Tensor | jax.Array,
    mode: Any = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionArgument | None = None,
) -> Tensor:
    """Cross-correlation of two 2-dimensional arrays."""

@overload
def correlate2d(
    in1: Tensor | jax.Array,
    in2: Tensor,
    mode: Any = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionArgument | None = None,
) -> Tensor: ...
@overload
def correlate2d(
    in1: jax.Array,
    in2: jax.Array,
    mode: Any = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionArgument | None = None,
) -> jax.Array: ...
@overload
def csd(
    x: Tensor,
    y: Value | None,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]:
    """Estimate cross power spectral density (CSD) using Welch's method."""

@overload
def csd(
    x: Tensor | jax.Array,
    y: TensorValue,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]: ...
@overload
def csd(
    x: jax.Array,
    y: JaxValue | None,
    fs: JaxValue = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[jax.Array, jax.Array]: ...
@overload
def csd(
    x: Tensor | jax.Array,
    y: Value | None,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]: ...
@overload
def csd(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def csd(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def detrend(
    data: TensorValue,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | NumpyArray = 0,
    overwrite_data: None = None,
) -> Tensor:
    """Remove linear or piecewise linear trends from data."""

@overload
def detrend(
    data: JaxValue,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | NumpyArray = 0,
    overwrite_data: None = None,
) -> jax.Array: ...
@overload
def detrend(data: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def detrend(data: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def detrend(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def detrend(data: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def detrend(data: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def detrend(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def fftconvolve(
    in1: TensorValue, in2: Value, mode: Any = "full", axes: Sequence[int] | None = None
) -> Tensor:
    """Convolve two N-dimensional arrays using Fast Fourier Transform (FFT)."""

@overload
def fftconvolve(
    in1: Value, in2: TensorValue, mode: Any = "full", axes: Sequence[int] | None = None
) -> Tensor: ...
@overload
def fftconvolve(
    in1: JaxValue, in2: JaxValue, mode: Any = "full", axes: Sequence[int] | None = None
) -> jax.Array: ...
@overload
def fftconvolve(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def fftconvolve(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def istft(
    Zxx: Tensor,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Tensor, Tensor]:
    """Perform the inverse short-time Fourier transform (ISTFT)."""

@overload
def istft(
    Zxx: jax.Array,
    fs: JaxValue = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[jax.Array, jax.Array]: ...
@overload
def istft(
    Zxx: Tensor | jax.Array,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Tensor, Tensor]: ...
@overload
def stft(
    x: Tensor,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the short-time Fourier transform (STFT)."""

@overload
def stft(
    x: jax.Array,
    fs: JaxValue = 1.0,
    window: str = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def stft(
    x: Tensor | jax.Array,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: bool = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def stft(x: Tensor, *args: Any, dim: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def stft(
    x: jax.Array, *args: Any, dim: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def stft(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def stft(x: Tensor, *args: Any, dims: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def stft(
    x: jax.Array, *args: Any, dims: Any, **kwargs: Any
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def stft(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
@overload
def welch(
    x: Tensor,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]:
    """Estimate power spectral density (PSD) using Welch's method."""

@overload
def welch(
    x: jax.Array,
    fs: JaxValue = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[jax.Array, jax.Array]: ...
@overload
def welch(
    x: Tensor | jax.Array,
    fs: Value = 1.0,
    window: str = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]: ...
@overload
def welch(x: Tensor, *args: Any, dim: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
@overload
def welch(x: jax.Array, *args: Any, dim: Any, **kwargs: Any) -> tuple[jax.Array, jax.Array]: ...
@overload
def welch(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def welch(x: Tensor, *args: Any, dims: Any, **kwargs: Any) -> tuple[Tensor, Tensor]: ...
@overload
def welch(x: jax.Array, *args: Any, dims: Any, **kwargs: Any) -> tuple[jax.Array, jax.Array]: ...
@overload
def welch(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
