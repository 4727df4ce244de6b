"""Which lines of a call stack are the user's: for warnings, and for what a traceback shows.

NOTE [traceback filtering]

Between a line of the user and the error stand frames of fad and of JAX, which say nothing to the user. They
are left out where an error that nothing caught is shown: in ``sys.excepthook``, ``threading.excepthook`` and
the shell of IPython. So a call that succeeds does nothing for it, and the error itself keeps all of its
frames: for ``except``, ``pdb.pm()`` and loggers. `fad.errors.traceback_filtering` switches it off.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import os
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import jax

from fad.errors.advice import advise


def _directory(package: str) -> str:
    """Where the files of a package are or would be, without importing it."""
    spec = importlib.util.find_spec(package)
    return os.path.join(os.path.dirname(spec.origin), "") if spec and spec.origin else "?"


_FAD, *_LIBRARIES = map(_directory, ("fad", "jax", "jaxlib", "numpy", "scipy"))
_JAX = tuple(_LIBRARIES[:2])


def is_users(code: types.CodeType) -> bool:
    """Whether code is neither part of fad nor of JAX, NumPy or SciPy."""
    return not code.co_filename.startswith((_FAD, *_LIBRARIES))


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


def where_lines_change(stacks: Sequence[TracebackType | None]) -> str:
    """The lines at which call stacks differ, in the user's outermost function: those of a loop.

    Returns:
        As "file.py, lines 3 to 7, in f"; "" where the stacks show none.
    """
    every = [
        [
            ((f.f_code.co_filename, f.f_code.co_name), line)
            for f, line in traceback.walk_tb(stack)
            if is_users(f.f_code)
        ]
        for stack in stacks
    ]
    for depth in range(max(map(len, every), default=0)):
        here = [frames[depth] for frames in every if len(frames) > depth]
        code, _ = collections.Counter([code for code, _ in here]).most_common(1)[0]
        lines = [line for its_code, line in here if its_code == code]
        low, high = min(lines), max(lines)
        if low < high or depth + 1 == max(map(len, every)):
            which = f"line {low}" if low == high else f"lines {low} to {high}"
            return f"{code[0]}, {which}, in {code[1]}"
    return ""


def users_call() -> str:
    """What the innermost line of the user's on the call stack calls, and where: "grad in train.py:12"."""
    frame, called = sys._getframe(1), ""
    while not is_users(frame.f_code) and frame.f_back is not None:
        called = frame.f_code.co_qualname.partition(".<locals>")[0]
        frame = frame.f_back
    return f"{called.lstrip('_')} in {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


filtering = "remove_frames"  # or "off"; set by `fad.errors.traceback_filtering`


def _hidden() -> tuple[str, ...]:
    """The directories whose frames are left out; those of JAX only where JAX filters them too."""
    config: Any = jax.config
    return (_FAD,) if config.jax_traceback_filtering == "off" else (_FAD, *_JAX)


def users_frames(frames: list[str]) -> list[str]:
    """Frames, as `traceback.format_list` writes them, without hidden ones."""
    if filtering == "off":
        return frames
    hidden = tuple([f'  File "{directory}' for directory in _hidden()])
    return [frame for frame in frames if not frame.startswith(hidden)]


def _shortened(traceback: types.TracebackType | None) -> tuple[types.TracebackType | None, int]:
    """A traceback without hidden frames, and how many these were.

    One without frames of fad, or without other frames, is left as it is.
    """
    steps = []
    step = traceback
    while step is not None:
        steps.append(step)
        step = step.tb_next
    hidden = _hidden()
    files = [step.tb_frame.f_code.co_filename for step in steps]
    kept = [step for step, file in zip(steps, files) if not file.startswith(hidden)]
    if not kept or not any(file.startswith(_FAD) for file in files):
        return traceback, 0
    short = None
    for step in reversed(kept):
        short = types.TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return short, len(steps) - len(kept)


def _chain(error: BaseException | None) -> list[BaseException]:
    """An error and those that are shown with it."""
    errors: list[BaseException] = []
    rest = [error]
    while rest:
        e = rest.pop()
        if e is not None and not any(e is other for other in errors):
            errors.append(e)
            rest += [e.__cause__, e.__context__, *getattr(e, "exceptions", ())]
    return errors


@contextlib.contextmanager
def shown(error: BaseException | None) -> Iterator[None]:
    """A block in which tracebacks of ``error`` are filtered; notes say that, and what to write instead."""
    errors = _chain(error) if filtering != "off" else []
    before = [(e, e.__traceback__, list(getattr(e, "__notes__", ()))) for e in errors]
    removed = 0
    for e in errors:
        advise(e)
        e.__traceback__, count = _shortened(e.__traceback__)
        if count:  # what JAX says of its frames, the note below says of all
            notes = getattr(e, "__notes__", ())
            e.__notes__ = [
                note for note in notes if "JAX has removed its internal frames" not in note
            ]
        removed += count
    if removed and error is not None:
        error.add_note(
            f"({removed} frame{'s' * (removed > 1)} of fad and JAX not shown; shown with "
            "FAD_TRACEBACK_FILTERING=off, or fad.errors.traceback_filtering('off'))"
        )
    try:
        yield
    finally:
        for e, traceback, notes in before:
            e.__traceback__ = traceback
            if getattr(e, "__notes__", notes) != notes:
                e.__notes__ = notes


def install() -> None:
    """Filter what is shown of errors that nothing caught. The hooks that were there do the showing."""
    show, show_of_thread = sys.excepthook, threading.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        with shown(error):
            show(kind, error, error.__traceback__ or traceback)

    def hook_of_thread(args: Any, /) -> None:
        with shown(args.exc_value):
            traceback = getattr(args.exc_value, "__traceback__", None) or args.exc_traceback
            show_of_thread(
                threading.ExceptHookArgs((args.exc_type, args.exc_value, traceback, args.thread))
            )

    sys.excepthook, threading.excepthook = hook, hook_of_thread
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_shell)


def _show_in_shell(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    traceback: object,
    tb_offset: Any = None,
) -> None:
    """The handler of IPython's ``set_custom_exc``."""
    with shown(error):
        shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
