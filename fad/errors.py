"""Exception classes, and the wording that error messages share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = [
    "ArgumentError",
    "FadError",
    "GradientError",
    "HostValueError",
    "LevelError",
    "RuleError",
    "StructureError",
    "TrackedValueError",
    "attribute",
    "describe",
    "reader",
]


class FadError(RuntimeError):
    """Base of every exception that fad raises of its own; a RuntimeError, as PyTorch's are."""


class ArgumentError(FadError, TypeError, ValueError):
    """An argument is not of the kind, dtype or shape that is needed.

    For the same misuse PyTorch raises RuntimeError in one place, TypeError or ValueError in another: it is
    each of them.
    """


class LevelError(FadError):
    """A value was used outside the transform that it belongs to."""


class GradientError(FadError):
    """A derivative cannot be computed from the graph or the arguments."""


class RuleError(FadError, TypeError):
    """A Function's rules are missing, malformed, or returned something of the wrong form."""


class HostValueError(FadError, TypeError):
    """A concrete value was needed where there is none: inside ``vmap``, ``jit`` or a staged body."""


class TrackedValueError(GradientError, HostValueError):
    """A value through which a derivative flows was read as a number, which would lose the derivative."""


class StructureError(FadError, ValueError):
    """Pytrees, shapes or sizes that must match do not."""


def attribute(get: Callable[[Any], Any], put: Callable[[Any, Any], None] | None = None) -> property:
    """A property that is read by a `reader`."""
    return property(reader(get), put, doc=get.__doc__)


def reader(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``get``, its errors AttributeErrors as well as what they are: ``hasattr`` is False then.

    >>> def part(x): raise LevelError("used outside of its transform")
    >>> class Example: part = attribute(part)
    >>> hasattr(Example(), "part")
    False
    >>> Example().part
    Traceback (most recent call last):
    fad.errors.LevelError: used outside of its transform
    """

    @functools.wraps(get)
    def read(self: Any) -> Any:
        try:
            return get(self)
        except Exception as error:
            if isinstance(error, AttributeError):
                raise
            own: Any = type(error)
            kind = _attribute_error(own)
            again = kind.__new__(kind, *error.args)  # not every __init__ takes `args` again
            again.args = error.args
            raise again.with_traceback(error.__traceback__) from None

    return read


@functools.cache
def _attribute_error(kind: Any) -> type[Exception]:
    members = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, AttributeError), members)


def describe(value: Any) -> str:
    """Say what a value is, for an error message: type, and shape and dtype where it has them.

    >>> import numpy as np
    >>> describe(np.zeros((2, 3), np.float32))
    'ndarray float32[2,3]'
    >>> describe("abc")
    "str 'abc'"
    """
    kind = type(value).__name__.removesuffix("Impl")  # jax.Array's class is called ArrayImpl
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{kind} {dtype}[{','.join(map(str, shape))}]"
    if value is None:
        return "None"
    text = repr(value)
    return f"{kind} {text if len(text) <= 60 else text[:57] + '...'}"
