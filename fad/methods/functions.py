"""Functions at the top of fad, with PyTorch's arguments: those that make Tensors, and that join them.

They are functions of `fad.numpy` under another signature; see NOTE [what makes a Tensor].
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

import fad
import fad.numpy as fnp
from fad import Tensor, extend
from fad.errors import ArgumentError, describe
from fad.extend.types import Operand, PyTree, Value

DeviceLike: TypeAlias = "jax.Device | jax.sharding.Sharding | str"


def tensor(
    data: PyTree,
    dtype: DTypeLike | None = None,
    requires_grad: bool = False,
    *,
    device: DeviceLike | None = None,
) -> Tensor:
    """A new Tensor with a copy of ``data``.

    Arguments:
        data: a number, array, Tensor, or nested sequence of them.
        dtype: the dtype; default is that of the data, float32 for Python floats.
        requires_grad: record what is computed from it; needs a floating or complex dtype.
        device: where it is put, see `Tensor.to`.

    Raises:
        ArgumentError: it is no such data; or ``requires_grad`` for an integer or bool dtype.

    Source: ``torch.tensor``.

    >>> import fad
    >>> fad.tensor([1.0, 2.0], requires_grad=True)
    Tensor([1., 2.], dtype=float32, requires_grad=True)
    """
    if isinstance(data, Tensor):
        data = data.detach()
    try:
        t: Tensor = fnp.array(data) if dtype is None else fnp.array(data, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"tensor: {error}") from error
    if isinstance(data, jax.Array):  # another library may share its memory
        jax.block_until_ready(t.value)
    elif extend.has_tensor(data):
        t = fad.stop_gradient(t)
    t = t if device is None else t.to(device)
    return t.requires_grad_() if requires_grad else t


def asarray(x: PyTree, dtype: DTypeLike | None = None) -> Tensor:
    """``x`` as a Tensor: the same one if it is a Tensor of that dtype, else around a JAX array.

    >>> import fad, jax.numpy as jnp
    >>> fad.asarray(jnp.ones(2))
    Tensor([1., 1.], dtype=float32)
    """
    if isinstance(x, Tensor):
        return x if dtype is None or x.dtype == jnp.dtype(dtype) else x.astype(dtype)
    t: Tensor = fnp.asarray(x) if dtype is None else fnp.asarray(x, dtype=dtype)
    return t


# What all of the following functions take besides.
_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    for name, default, kind in (
        ("device", None, "DeviceLike | None"),
        ("requires_grad", False, "bool"),
    )
]


def _maker(make: Callable[..., PyTree]) -> Callable[..., Tensor]:
    """``make``, with ``device``, where the Tensor is put, and ``requires_grad``: recorded from there on."""

    @functools.wraps(make)
    def made(
        *args: PyTree,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        **kwargs: PyTree,
    ) -> Tensor:
        t: Tensor = make(*args, **kwargs)
        t = t if device is None else t.to(device)
        return t.requires_grad_() if requires_grad else t

    signature = inspect.signature(make)
    parameters = [*signature.parameters.values(), *_OPTIONS]
    made.__signature__ = signature.replace(parameters=parameters, return_annotation="Tensor")  # type: ignore[attr-defined]
    return made


def _shape(who: str, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape that ``zeros(2, 3)`` and ``zeros((2, 3))`` mean."""
    whole = len(sizes) == 1 and isinstance(sizes[0], Sequence) and not isinstance(sizes[0], str)
    ints = sizes[0] if whole else sizes
    try:
        if any(isinstance(n, (bool, np.bool_)) for n in ints):
            raise TypeError
        shape = tuple([operator.index(n) for n in ints])
    except TypeError:
        raise TypeError(
            f"{who}: the size must be ints or one tuple of ints, got {', '.join(map(describe, sizes))}. "
            f"Write {who}(2, 3) or {who}((2, 3)), and a dtype as dtype=..."
        ) from None
    if any(n < 0 for n in shape):
        raise ArgumentError(f"{who}: the size must not be negative, got {shape}")
    return shape


def _filled(name: str, make: Callable[..., PyTree], what: str) -> Callable[..., Tensor]:
    """``zeros`` and its like."""

    def filled(
        *sizes: int | Sequence[int],
        size: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
    ) -> PyTree:
        if bool(sizes) is (size is not None):
            raise TypeError(f"{name}: give the size, and once: {name}(2, 3) or {name}(size=(2, 3))")
        shape = _shape(name, sizes if size is None else (size,))
        return make(shape, dtype=dtype)

    filled.__name__ = filled.__qualname__ = name
    filled.__doc__ = f"""A Tensor {what}.

    Arguments:
        sizes, size: its shape: ints, or one tuple of ints.
        dtype: default is JAX's for floats.
        device: where it is put, see `Tensor.to`.
        requires_grad: record what is computed from it; needs a floating or complex dtype.

    Raises:
        TypeError: the size is not of ints.
        ArgumentError: the size is negative; or ``requires_grad`` for a dtype without derivatives.

    Source: ``torch.{name}``.

    >>> import fad
    >>> fad.{name}(2, 3).shape, fad.{name}((2,), dtype=fad.int32).dtype.name
    ((2, 3), 'int32')
    """
    return _maker(filled)


zeros = _filled("zeros", fnp.zeros, "of zeros")
ones = _filled("ones", fnp.ones, "of ones")
empty = _filled("empty", fnp.empty, "whose values are of no interest; they are zeros")


@_maker
def full(
    size: int | Sequence[int], fill_value: Operand, *, dtype: DTypeLike | None = None
) -> PyTree:
    """A Tensor with one value everywhere.

    Arguments:
        size: its shape.
        fill_value: a number, or what broadcasts to the shape; derivatives go through it.
        dtype: default is that of the value.
        device, requires_grad: as in `zeros`.

    Source: ``torch.full``.

    >>> import fad
    >>> fad.full((2,), 3.0).tolist()
    [3.0, 3.0]
    """
    return fnp.full(_shape("full", (size,)), fill_value, dtype=dtype)


@_maker
def eye(n: int, m: int | None = None, *, dtype: DTypeLike | None = None) -> PyTree:
    """The identity matrix of n rows and m columns; m is n where it is not given.

    Arguments:
        n, m: its size.
        dtype, device, requires_grad: as in `zeros`.

    Source: ``torch.eye``.

    >>> import fad
    >>> fad.eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    n, m = _shape("eye", (n, n if m is None else m))
    return fnp.eye(n, m, dtype=dtype)


@_maker
def arange(
    start: PyTree = None, end: PyTree = None, step: Any = 1, *, dtype: DTypeLike | None = None
) -> PyTree:
    """The numbers from start up to end, without it: ``arange(end)`` or ``arange(start, end, step)``.

    Arguments:
        start, end, step: numbers. With one of them it starts at 0.
        dtype: default is that of the numbers.
        device, requires_grad: as in `zeros`.

    Raises:
        TypeError: there is no end.

    Source: ``torch.arange``.

    >>> import fad
    >>> fad.arange(3).tolist(), fad.arange(1, 2, 0.5).tolist()
    ([0, 1, 2], [1.0, 1.5])
    """
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError("arange: there is no end: write arange(end) or arange(start, end)")
    return fnp.arange(0 if start is None else start, end, step, dtype=dtype)


@_maker
def linspace(start: Operand, end: Operand, steps: int, *, dtype: DTypeLike | None = None) -> PyTree:
    """So many numbers from start to end, both included, at equal distances.

    Arguments:
        start, end: numbers, or Tensors; derivatives go through them.
        steps: how many numbers.
        dtype, device, requires_grad: as in `zeros`.

    Source: ``torch.linspace``.

    >>> import fad
    >>> fad.linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    return fnp.linspace(start, end, steps, dtype=dtype)


def _like(name: str, make: Callable[..., PyTree], what: str) -> Callable[..., Tensor]:
    """``zeros_like`` and its like."""

    def like(input: Operand, *, dtype: DTypeLike | None = None) -> PyTree:
        return make(input, dtype=dtype)

    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"""A Tensor {what}, in the shape of another one.

    Arguments:
        input: a Tensor or an array.
        dtype: default is that of the input.
        device, requires_grad: as in `zeros`.

    Source: ``torch.{name}``.

    >>> import fad
    >>> fad.{name}(fad.ones(2, dtype=fad.int32)).dtype.name
    'int32'
    """
    return _maker(like)


zeros_like = _like("zeros_like", fnp.zeros_like, "of zeros")
ones_like = _like("ones_like", fnp.ones_like, "of ones")
empty_like = _like("empty_like", fnp.empty_like, "whose values are of no interest (zeros)")


@_maker
def full_like(input: Operand, fill_value: Operand, *, dtype: DTypeLike | None = None) -> PyTree:
    """A Tensor with one value everywhere, in the shape of another one.

    Arguments:
        input: a Tensor or an array.
        fill_value: a number, or what broadcasts to the shape.
        dtype: default is that of the input.
        device, requires_grad: as in `zeros`.

    Source: ``torch.full_like``.

    >>> import fad
    >>> fad.full_like(fad.ones(2), 3).tolist()
    [3.0, 3.0]
    """
    return fnp.full_like(input, fill_value, dtype=dtype)


def as_tensor(
    data: PyTree, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """``data`` as a Tensor: the same one if it is a Tensor already, with its history.

    Arguments:
        data: a Tensor, an array, a number, or a nested sequence of them.
        dtype: default is that of the data.
        device: where it is put, see `Tensor.to`.

    Source: ``torch.as_tensor``. Memory is not shared with an array of NumPy: see `from_dlpack`.

    >>> import fad
    >>> x = fad.ones(2)
    >>> fad.as_tensor(x) is x, fad.as_tensor([1, 2], dtype=fad.float32).tolist()
    (True, [1.0, 2.0])
    """
    t = asarray(data, dtype)
    return t if device is None else t.to(device)


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """An array of NumPy as a Tensor, copied: a write to one is not seen in the other.

    Arguments:
        ndarray: the array. Where 64 bits are off, one of 64 bits is converted to 32.

    Raises:
        TypeError: it is something else.

    Source: ``torch.from_numpy``, which shares the memory, as `from_dlpack` does.

    >>> import fad, numpy as np
    >>> fad.from_numpy(np.ones(2, np.float32)).tolist()
    [1.0, 1.0]
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(
            f"from_numpy: the argument must be a NumPy array, got {describe(ndarray)}: write fad.tensor(x)"
        )
    return asarray(ndarray)


def _joined(
    who: str,
    join: Callable[..., PyTree],
    tensors: Sequence[Operand],
    dim: int | None,
    axis: int | None,
) -> Tensor:
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(
            f"{who}: the first argument must be a list or tuple of Tensors, got {describe(tensors)}"
        )
    if not tensors:
        raise ArgumentError(f"{who}: the list of Tensors must not be empty")
    if dim is not None and axis is not None:
        raise TypeError(f"{who}: dim and axis are two names of one argument: give one of them")
    place = dim if dim is not None else 0 if axis is None else axis
    return join(tensors, axis=place)


def cat(tensors: Sequence[Operand], dim: int | None = None, *, axis: int | None = None) -> Value:
    """Tensors joined along a dimension that they have.

    Arguments:
        tensors: a list or tuple of them, of the same shape but in that dimension. One of shape (0,) is left
            out, as in PyTorch.
        dim, axis: two names of the dimension; default is 0.

    Returns:
        A Tensor; an array if all of them are arrays of JAX.

    Source: ``torch.cat``.

    >>> import fad
    >>> fad.cat([fad.ones(1, 2), fad.zeros(1, 2)], dim=1).tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """
    if isinstance(tensors, (tuple, list)):
        shapes = list(map(np.shape, tensors))
        if any(len(s) != 1 for s in shapes):
            tensors = [x for x, s in zip(tensors, shapes, strict=True) if s != (0,)]
    return _joined("cat", fnp.concatenate, tensors, dim, axis)


def stack(tensors: Sequence[Operand], dim: int | None = None, *, axis: int | None = None) -> Value:
    """Tensors of one shape joined along a new dimension.

    Arguments:
        tensors: a list or tuple of them.
        dim, axis: two names of the new dimension; default is 0.

    Returns:
        A Tensor; an array if all of them are arrays of JAX.

    Source: ``torch.stack``.

    >>> import fad
    >>> fad.stack([fad.ones(2), fad.zeros(2)], dim=1).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    return _joined("stack", fnp.stack, tensors, dim, axis)


def where(condition: PyTree, input: PyTree = None, other: PyTree = None) -> PyTree:
    """``input`` where the condition is true, ``other`` elsewhere; with the condition alone, where it is.

    Arguments:
        condition: a Tensor or array of bools.
        input, other: Tensors, arrays or numbers; they broadcast.

    Returns:
        A Tensor, or an array if there are arrays of JAX alone; with the condition alone, a tuple of
        indices, one for each dimension.

    Source: ``torch.where``.

    >>> import fad
    >>> fad.where(fad.tensor([True, False]), 1.0, 2.0).tolist()
    [1.0, 2.0]
    """
    return fnp.where(condition, input, other)
