"""Exception classes, and the wording that error messages share."""

from __future__ import annotations

from typing import Any

__all__ = [
    "FadError",
    "GradientError",
    "HostValueError",
    "LevelError",
    "RuleError",
    "StructureError",
    "TrackedValueError",
    "describe",
]


class FadError(Exception):
    """Base of every exception that fad raises of its own."""


class LevelError(FadError, RuntimeError):
    """A value was used outside the transform that it belongs to."""


class GradientError(FadError, RuntimeError):
    """A derivative cannot be computed from the graph or the arguments."""


class RuleError(FadError, TypeError):
    """A Function's rules are missing, malformed, or returned something of the wrong form."""


class HostValueError(FadError, TypeError):
    """A concrete value was needed where there is none: inside ``vmap``, ``jit`` or a staged body."""


class TrackedValueError(GradientError, HostValueError):
    """A value through which a derivative flows was read as a number, which would lose the derivative."""


class StructureError(FadError, ValueError):
    """Pytrees, shapes or sizes that must match do not."""


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
