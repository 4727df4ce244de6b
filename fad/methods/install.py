"""The one place where Tensor gains its operators and methods; and how Tensors are made."""

from __future__ import annotations

from types import FunctionType

import jax
import jax.numpy as jnp

import fad.numpy as fnp
from fad.core.observation import observable
from fad.core.tensor import Tensor
from fad.core.types import DeviceLike, DTypeLike, PyTree
from fad.errors import ArgumentError
from fad.methods import (
    container,
    conversions,
    derived,
    history,
    notebook,
    operators,
    placement,
    shapes,
    shapes_in_place,
    torch_shapes,
    values,
)
from fad.methods.in_place import IN_PLACE
from fad.tape.recorder import ROOT


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
    elif t.level is not ROOT or t.requires_grad:  # there are Tensors in it
        t = t.detach()
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


def _install() -> None:
    """Put all members into the class."""
    for table in (
        IN_PLACE,
        derived.MEMBERS,
        operators.MEMBERS,
        values.MEMBERS,
        notebook.MEMBERS,
        shapes.MEMBERS,
        shapes_in_place.MEMBERS,
        torch_shapes.MEMBERS,
        conversions.MEMBERS,
        container.MEMBERS,
        placement.MEMBERS,
        history.MEMBERS,
    ):
        for name, member in table.items():
            if isinstance(member, FunctionType) and "<locals>" in member.__qualname__:
                member.__name__, member.__qualname__ = name, f"Tensor.{name}"
            setattr(Tensor, name, member)
    observable(Tensor, "__getitem__", "indexing")
    observable(Tensor, "__setitem__", "indexing")


_install()
