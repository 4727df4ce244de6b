"""The names of jax.scipy.ndimage, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from collections.abc import Sequence
from typing import Any

from fad.arrays.annotations import Value

def map_coordinates(
    input: Value,
    coordinates: Sequence[Value],
    order: int,
    mode: str = "constant",
    cval: Value = 0.0,
) -> Any:
    """Map the input array to new coordinates using interpolation."""
