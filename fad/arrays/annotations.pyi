"""What the stubs of derived modules say of arguments and results, for type checkers and editors.

``JaxValue`` gives JAX arrays, ``TensorValue`` gives Tensors; ``Value`` is either. ``ListedValue`` may be a
list of them too, which gives a Tensor.
"""

# mypy: disable-error-code=overload-overlap

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar, overload

import jax
import numpy as np

from fad.core.tensor import Tensor

NumpyArray: TypeAlias = np.ndarray[Any, Any]
JaxValue: TypeAlias = jax.Array | np.number[Any] | np.bool_ | bool | int | float | complex
TensorValue: TypeAlias = Tensor | NumpyArray
Value: TypeAlias = TensorValue | JaxValue
ListedValue: TypeAlias = Value | Sequence[Value | Sequence[Value | Sequence[Value]]]
Index: TypeAlias = (
    TensorValue
    | jax.Array
    | SupportsIndex
    | slice
    | EllipsisType
    | list[Any]
    | tuple[Any, ...]
    | None
)

class HasDType(Protocol):
    @property
    def dtype(self) -> np.dtype[Any]: ...

DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | HasDType
PrecisionArgument: TypeAlias = (
    str
    | jax.lax.Precision
    | tuple[str, str]
    | tuple[jax.lax.Precision, jax.lax.Precision]
    | jax.lax.DotAlgorithm
    | jax.lax.DotAlgorithmPreset
)

class ScalarType:
    """A dtype such as ``float32``, which makes JAX scalars too."""
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __call__(self, x: Value | Sequence[Value], /) -> jax.Array: ...

_Key = TypeVar("_Key")

class IndexExpression:
    """``s_``, ``index_exp``."""
    def __getitem__(self, key: _Key) -> _Key: ...

class Indexer:
    """``r_`` and the like."""
    def __getitem__(self, key: Any) -> Tensor: ...

class TensorInitializer(Protocol):
    """Draws the first values of a parameter."""
    def __call__(self, key: Value, shape: Sequence[int], dtype: DTypeLike = ...) -> Tensor: ...

class Ufunc(Protocol):
    """What a ufunc has besides its call."""
    @property
    def nin(self) -> int: ...
    @property
    def nout(self) -> int: ...
    @property
    def nargs(self) -> int: ...
    @property
    def identity(self) -> bool | int | float: ...
    @property
    def __name__(self) -> str: ...
    @overload
    def reduce(
        self,
        a: JaxValue,
        /,
        *,
        axis: int | None = 0,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        initial: JaxValue | None = None,
        where: JaxValue | None = None,
    ) -> jax.Array: ...
    @overload
    def reduce(
        self,
        a: Value,
        /,
        *,
        axis: int | None = 0,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        initial: Value | None = None,
        where: Value | None = None,
    ) -> Tensor: ...
    @overload
    def accumulate(
        self, a: JaxValue, /, axis: int = 0, dtype: DTypeLike | None = None
    ) -> jax.Array: ...
    @overload
    def accumulate(
        self, a: TensorValue, /, axis: int = 0, dtype: DTypeLike | None = None
    ) -> Tensor: ...
    @overload
    def at(
        self, a: JaxValue, indices: JaxValue, b: JaxValue | None = None, /, *, inplace: bool = True
    ) -> jax.Array: ...
    @overload
    def at(
        self, a: Value, indices: Value, b: Value | None = None, /, *, inplace: bool = True
    ) -> Tensor: ...
    @overload
    def reduceat(
        self, a: JaxValue, indices: Any, *, axis: int = 0, dtype: DTypeLike | None = None
    ) -> jax.Array: ...
    @overload
    def reduceat(
        self, a: TensorValue, indices: Any, *, axis: int = 0, dtype: DTypeLike | None = None
    ) -> Tensor: ...
    @overload
    def outer(self, a: JaxValue, b: JaxValue, /) -> jax.Array: ...
    @overload
    def outer(self, a: TensorValue, b: Value, /) -> Tensor: ...
    @overload
    def outer(self, a: Value, b: TensorValue, /) -> Tensor: ...

class BinaryUfunc(Ufunc, Protocol):
    @overload
    def __call__(self, x: TensorValue, y: Value, /) -> Tensor: ...
    @overload
    def __call__(self, x: Value, y: TensorValue, /) -> Tensor: ...
    @overload
    def __call__(self, x: JaxValue, y: JaxValue, /) -> jax.Array: ...
    @overload
    def __call__(self, x: ListedValue, y: ListedValue, /) -> Tensor: ...

class UnaryUfunc(Ufunc, Protocol):
    @overload
    def __call__(self, x: TensorValue, /) -> Tensor: ...
    @overload
    def __call__(self, x: JaxValue, /) -> jax.Array: ...
    @overload
    def __call__(self, x: ListedValue, /) -> Tensor: ...
