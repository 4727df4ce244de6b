"""What leaves a Tensor: its array, Python numbers, text; and where a value may not leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.level import flush, layers, outlived, state
from fad.core.tensor import Tensor, given_away
from fad.core.types import DTypeLike, Operand, PyTree
from fad.errors import (
    ArgumentError,
    DroppedDerivativeWarning,
    HostValueError,
    TrackedValueError,
    describe,
    reader,
)
from fad.errors.advice import instead_of_a_number
from fad.errors.tracebacks import warn_at_users_line
from fad.tape.recorder import ROOT


def unwrap(x: Operand, what: str = "") -> Any:
    """The bare primal value of a Tensor, under grad and jvp levels; ``what`` reads it, in messages.

    Raises:
        HostValueError: it is batched or being traced, and so has no single value.
    """
    x = outlived(x)
    while isinstance(x, Tensor):
        given_away(x)
        x = outlived(x.level.readable(x, what))
    return x


def _concrete(x: Tensor, what: str) -> Any:
    """`unwrap`, where numbers are needed now: a JAX tracer has none."""
    value = unwrap(x, what)
    if isinstance(value, jax.core.Tracer):
        raise HostValueError(
            f"{what} of a Tensor ({describe(x)}) under a JAX trace, which has no value yet: "
            f"{instead_of_a_number(what)}"
        )
    if not isinstance(value.dtype, np.dtype):
        raise ArgumentError(
            f"{what} of {describe(x)}: a random key is no number: draw with it, "
            "fad.random.normal(key, shape), or read its integers, fad.random.key_data(key)"
        )
    return value


def is_tracked(x: Operand, watermark: int = -1, taped: bool = True) -> bool:
    """Whether ``x`` requires grad or has a tangent, at any of its levels.

    Arguments:
        watermark: levels with an id up to this one do not record.
        taped: whether what the eager tape records counts.
    """
    return any(
        [
            (t.requires_grad and t.level.id > watermark and (taped or not t.level.on_tape))
            or t.level.tangent(t) is not None
            for t in layers(x)
        ]
    )


def _check_not_deriving(x: Tensor, what: str) -> None:
    """Refuse to read a value as a constant in a body from which a derivative is being derived."""
    tracked = [t for t in layers(x) if t.requires_grad or t.level.tangent(t) is not None]
    if any([t.level.deriving for t in tracked]):
        raise TrackedValueError(f"{what} of a Tensor would lose its derivative")


def _array(self: Tensor) -> Any:
    """The JAX array with the value.

    Inside ``grad`` and ``jvp`` it is the primal value, without its derivatives.
    """
    if self._level is ROOT and self.meta is None:
        value = self._value
        if type(value) is array_type:  # mostly: nothing is around it
            flush()  # the caller may donate it
            return value
    return _array_below(self)


@reader
def _array_below(self: Tensor) -> Any:
    """`_array`, where something is around it."""
    _check_not_deriving(self, "array")
    value = unwrap(self)
    flush()
    return value


def _numpy(self: Tensor, *, force: bool = False, copy: bool = False) -> np.ndarray:
    """The value as a NumPy array; read-only, because it may share the memory of the JAX array.

    Arguments:
        force: also where the Tensor requires grad or has a tangent: as ``x.detach().numpy()``.
        copy: a copy, which can be written to. (In PyTorch a write to ``x.numpy()`` changes the Tensor. Here
            NumPy refuses it, "assignment destination is read-only": to change the Tensor, write to the
            Tensor, ``x[0] = 1``.)

    Raises:
        TrackedValueError: the Tensor requires grad, outside of `no_grad`, or has a tangent: write
            ``x.detach().numpy()``.
        HostValueError: it is batched or being traced.

    >>> import fad
    >>> a = fad.tensor([1.0, 2.0]).numpy(copy=True)
    >>> a[0] = 5.0
    >>> a.tolist()
    [5.0, 2.0]
    """
    value = _concrete(self, "numpy()")
    if not force and is_tracked(self, state.watermark):
        raise TrackedValueError(
            "numpy() of a Tensor that requires grad or has a tangent would lose its derivative: "
            "write x.detach().numpy() for the value alone. To keep it, write to an array of fad.numpy "
            "(fad.numpy.zeros(n), not numpy.zeros(n)), fad.numpy.f(x) for numpy.f(x), or fad.from_jax(f)(x) "
            "for a function of JAX; an optimizer of optax is called under fad.no_grad()"
        )
    return np.array(value) if copy else np.asarray(value)


def _dunder_array(
    self: Tensor, dtype: DTypeLike | None = None, copy: bool | None = None
) -> np.ndarray:
    """NumPy's conversion protocol; refuses as `_numpy` does."""
    value = _numpy(self)
    return np.array(value, dtype=dtype, copy=True) if copy else np.asarray(value, dtype=dtype)


def _item(self: Tensor, *args: PyTree) -> Any:
    """The element of a Tensor with one element, or that at ``args``, as a Python scalar."""
    _check_not_deriving(self, "item()")
    value = _concrete(self, "item()")
    try:
        return value.item(*args)
    except ValueError as error:
        raise ArgumentError(tool("hints.mistakes").why_no_number(self, "item()", error)) from None


def _tolist(self: Tensor) -> Any:
    """The value as nested lists of Python scalars."""
    _check_not_deriving(self, "tolist()")
    return np.asarray(_concrete(self, "tolist()")).tolist()


def _scalar(convert: Callable[[Any], object], what: str) -> Callable[[Tensor], Any]:
    """The method that converts a Tensor with one element; ``what`` is its name in messages.

    It warns where the number drops a derivative. A branch (``bool``) is meant.
    """

    def scalar(self: Tensor) -> Any:
        if convert in (float, complex):
            _check_not_deriving(self, what)
        value = _concrete(self, what)
        if value.size == 1 and value.ndim:
            value = value.reshape(())
        try:
            result = convert(value)
        except (TypeError, ValueError) as error:
            raise ArgumentError(tool("hints.mistakes").why_no_number(self, what, error)) from None
        # What is on the tape keeps its graph: to log ``float(loss)`` loses nothing.
        if (
            self._level is not ROOT
            and convert is not bool
            and is_tracked(self, state.watermark, taped=False)
        ):
            warn_at_users_line(
                f"{what} of a Tensor that a running transform tracks gives a number without its "
                "derivative. To keep the derivative, compute with fad.numpy (not with math), and write "
                "to a Tensor (not to a NumPy array). If the number is meant, write x.item() or "
                "x.detach().",
                DroppedDerivativeWarning,
            )
        return result

    scalar.__name__ = what
    return scalar


def _block_until_ready(self: Tensor) -> Tensor:
    """Wait until the value has been computed."""
    value = unwrap(self)
    if type(value) is array_type:
        value.block_until_ready()
    elif isinstance(value, jax.Array):
        jax.block_until_ready(value)
    return self


# Text


def _format(self: Tensor, spec: str) -> str:
    """A Tensor with one element is formatted as its number; one without dimensions also if no format is
    given, where it has a value.
    """
    if not spec and self.shape:
        return str(self)
    try:
        return format(_concrete(self, "format()").item(), spec)
    except (RuntimeError, TypeError):  # there is no value, or one that is no number
        if spec:
            raise
        return str(self)
    except ValueError as error:
        several = self.size != 1
        why = "write f'{x}', or format x.tolist() number by number" if several else str(error)
        raise ArgumentError(
            f"the format {spec!r} is for one number, got {describe(self)}: {why}"
        ) from None


MEMBERS: dict[str, object] = {
    "__array__": _dunder_array,
    "__array_priority__": 1000,
    "__bool__": _scalar(bool, "bool()"),
    "__complex__": _scalar(complex, "complex()"),
    "__float__": _scalar(float, "float()"),
    "__format__": _format,
    "__index__": _scalar(lambda v: v.__index__(), "index()"),
    "__int__": _scalar(int, "int()"),
    "array": property(_array, doc=_array.__doc__),
    "block_until_ready": _block_until_ready,
    "item": _item,
    "numpy": _numpy,
    "tolist": _tolist,
}
