"""The names of jax.scipy.interpolate, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import Any

import jax

from fad.core.tensor import Tensor

class RegularGridInterpolator:
    def __init__(
        self,
        points: Any,
        values: Any,
        method: Any = ...,
        bounds_error: Any = ...,
        fill_value: Any = ...,
    ) -> None: ...
    def __call__(self, xi: Any, method: Any = ...) -> Tensor | jax.Array: ...
