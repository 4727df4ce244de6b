"""The names of jax.scipy.integrate, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any, overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def trapezoid(y: TensorValue, x: Value | None = None, dx: Value = 1.0, axis: int = -1) -> Tensor:
    """Integrate along the given axis using the composite trapezoidal rule."""

@overload
def trapezoid(
    y: JaxValue, x: JaxValue | None = None, dx: JaxValue = 1.0, axis: int = -1
) -> jax.Array: ...
@overload
def trapezoid(y: Value, x: Value | None = None, dx: Value = 1.0, axis: int = -1) -> Tensor: ...
@overload
def trapezoid(y: TensorValue, *args: Any, dim: Any, **kwargs: Any) -> Tensor: ...
@overload
def trapezoid(y: JaxValue, *args: Any, dim: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trapezoid(*args: Any, dim: Any, **kwargs: Any) -> Any: ...
@overload
def trapezoid(y: TensorValue, *args: Any, dims: Any, **kwargs: Any) -> Tensor: ...
@overload
def trapezoid(y: JaxValue, *args: Any, dims: Any, **kwargs: Any) -> jax.Array: ...
@overload
def trapezoid(*args: Any, dims: Any, **kwargs: Any) -> Any: ...
