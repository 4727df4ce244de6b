"""Which lines of a call stack are the user's: for warnings, and for what a traceback shows."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
import warnings

__all__ = ["is_users", "warn_at_users_line"]


def _directory(package: str) -> str:
    """Where the files of a package are or would be, without importing it."""
    spec = importlib.util.find_spec(package)
    return os.path.join(os.path.dirname(spec.origin), "") if spec and spec.origin else "?"


_LIBRARIES = tuple(map(_directory, ("fad", "jax", "jaxlib", "numpy", "scipy")))


def is_users(code: types.CodeType) -> bool:
    """Whether code is neither part of fad nor of JAX, NumPy or SciPy."""
    return not code.co_filename.startswith(_LIBRARIES)


def warn_at_users_line(message: str, category: type[Warning]) -> None:
    """A warning that names the innermost line of the user's on the call stack.

    Python shows it once for each such line, if the filters of `warnings` do not say otherwise.
    """
    frame = sys._getframe(1)
    while not is_users(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__", "<unknown>"),
        names.setdefault("__warningregistry__", {}),
    )
