"""Which lines of a call stack are the user's: for warnings, and for hooks that filter what a traceback shows.

NOTE [traceback filtering]

Between a line of the user and the error stand frames of fad and of JAX, which say nothing to the user. They
are left out where an error that nothing caught is shown: in ``sys.excepthook``, ``threading.excepthook`` and
the shell of IPython, by `fad.hints.tracebacks`. So a call that succeeds does nothing for it, and the error
itself keeps all of its frames: for ``except``, ``pdb.pm()`` and loggers. `fad.errors.traceback_filtering`
switches it off.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable


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


def users_call() -> str:
    """What the innermost line of the user's on the call stack calls, and where: "grad in train.py:12"."""
    frame, called = sys._getframe(1), ""
    while not is_users(frame.f_code) and frame.f_back is not None:
        called = frame.f_code.co_qualname.partition(".<locals>")[0]
        frame = frame.f_back
    return f"{called.lstrip('_')} in {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


filtering = "remove_frames"  # or "off"; set by `fad.errors.traceback_filtering`


def install() -> None:
    """Filter what is shown of errors that nothing caught. The hooks that were there do the showing."""
    sys.excepthook = _hook("of_program", sys.excepthook)
    threading.excepthook = _hook("of_thread", threading.excepthook)
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:
        hook = _hook(
            "of_shell",
            lambda shell, kind, error, traceback, tb_offset=None: shell.showtraceback(
                (kind, error, traceback), tb_offset=tb_offset
            ),
        )
        shell.set_custom_exc((Exception,), hook)


def _hook(name: str, show: Callable[..., object]) -> Callable[..., object]:
    """A hook of `fad.hints.tracebacks`, which is imported at the first error, around what shows it."""

    def hook(*args: object, **options: object) -> object:
        try:
            tool = importlib.import_module("fad.hints.tracebacks")
        except (ImportError, OSError):  # an error that cannot be filtered is shown as it is
            return show(*args, **options)
        return getattr(tool, name)(show, *args, **options)

    return hook
