"""The names of jax.scipy.cluster.vq, for Tensors and arrays."""

# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"
from typing import overload

import jax

from fad.arrays.annotations import JaxValue, TensorValue, Value
from fad.core.tensor import Tensor

@overload
def vq(obs: TensorValue, code_book: Value, check_finite: bool = True) -> tuple[Tensor, Tensor]:
    """Assign codes from a code book to a set of observations."""

@overload
def vq(obs: Value, code_book: TensorValue, check_finite: bool = True) -> tuple[Tensor, Tensor]: ...
@overload
def vq(
    obs: JaxValue, code_book: JaxValue, check_finite: bool = True
) -> tuple[jax.Array, jax.Array]: ...
