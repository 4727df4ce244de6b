"""What is shown of an error that nothing caught: the frames of the user, and where the lines of a loop are.

`fad.errors.tracebacks` has these hooks called, see NOTE [traceback filtering] there.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import os
import re
import threading
import tokenize
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from types import TracebackType

import jax

from fad.errors import say_too, traceback_filtering
from fad.hints.mistakes import advices

_FAD, *_JAX = [
    os.path.join(os.path.dirname(str(spec.origin)), "")
    for spec in map(find_spec, ("fad", "jax", "jaxlib"))
    if spec is not None
]


def _hidden() -> tuple[str, ...]:
    """The directories whose frames are left out; those of JAX only where JAX filters them too."""
    unfiltered = jax.config.jax_traceback_filtering == "off"  # type: ignore[attr-defined]
    return (_FAD,) if unfiltered else (_FAD, *_JAX)


def users_frames(frames: list[str]) -> list[str]:
    """Frames, as `traceback.format_list` writes them, without hidden ones."""
    if traceback_filtering() == "off":
        return frames
    hidden = tuple([f'  File "{directory}' for directory in _hidden()])
    return [frame for frame in frames if not frame.startswith(hidden)]


def _where_lines_change(
    stacks: Sequence[TracebackType | None], is_users: Callable[[types.CodeType], bool]
) -> str:
    """The lines at which call stacks differ, in the user's outermost function: those of a loop.

    Arguments:
        stacks: tracebacks.
        is_users: whether code is the user's.

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


def many_operations(
    name: str,
    count: int,
    seconds: float,
    stacks: Sequence[TracebackType | None],
    is_users: Callable[[types.CodeType], bool],
) -> str:
    """The warning for a program of so many operations, of which the last thousand took so long to trace."""
    where = _where_lines_change(stacks, is_users)
    return (
        f"jit: {name} compiles {count} operations, in which nothing repeats that could be compiled as a "
        f"loop. The last thousand took {seconds:.2g} s to trace; the time to compile them grows "
        "faster than their number. "
        f"{f'They come from {where}. ' if where else ''}"
        "If that is a loop, write it as fad.lax.scan, fad.lax.fori_loop or fad.lax.while_loop, with the same "
        "operations in each step; fad.jit(roll=False) compiles it as it is, without this warning"
    )


def where_written(f: Callable[..., object], name: str) -> str:
    """The line of a function that may have put something in a place of this name."""
    f = inspect.unwrap(f)
    code = getattr(getattr(f, "__func__", f), "__code__", None)
    if code is None:
        return ""
    block: list[str] = []
    unreadable = (OSError, TypeError, SyntaxError, tokenize.TokenError)
    with contextlib.suppress(*unreadable):  # there is no source, or it is not Python
        block = inspect.getsourcelines(code)[0]
    written = r"\b{}\b.*([^=!<>]=[^=]|\.(append|add|insert|extend|update|setdefault)\()"
    for word in reversed(re.findall(r"[^\W\d]\w*", name)):
        for line, text in enumerate(block, code.co_firstlineno):
            if re.search(written.format(re.escape(word)), text):
                return f" ({code.co_filename}:{line}: {text.strip()})"
    return f" (a function of {code.co_filename}:{code.co_firstlineno})"


def _shortened(traceback: TracebackType | None) -> tuple[TracebackType | None, int]:
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
        short = TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
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
    errors = _chain(error) if traceback_filtering() != "off" else []
    before = [(e, e.__traceback__, list(getattr(e, "__notes__", ()))) for e in errors]
    removed = 0
    for e in errors:
        for advice in advices(e, False):
            say_too(e, advice)
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


# What shows errors calls these, which call what was there before.


def of_program(
    show: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
) -> None:
    """`sys.excepthook`, which was ``show``."""
    with shown(error):
        show(kind, error, error.__traceback__ or traceback)


def of_thread(show: Callable[..., object], args: threading.ExceptHookArgs) -> None:
    """`threading.excepthook`, which was ``show``."""
    with shown(args.exc_value):
        traceback = getattr(args.exc_value, "__traceback__", None) or args.exc_traceback
        show(threading.ExceptHookArgs((args.exc_type, args.exc_value, traceback, args.thread)))


def of_shell(
    show: Callable[..., object],
    shell: object,
    kind: type[BaseException],
    error: BaseException,
    traceback: object,
    tb_offset: int | None = None,
) -> None:
    """The handler of IPython's ``set_custom_exc``; ``show`` is what IPython does without one."""
    with shown(error):
        show(shell, kind, error, error.__traceback__, tb_offset)
