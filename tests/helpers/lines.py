"""What may happen in the middle of fad's code: an interrupt, another thread, a finalizer."""

from __future__ import annotations

import dis
import functools
import gc
import itertools
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import fad

FAD = str(Path(fad.__file__).parent)


class Moments:
    """How many moments there were; ``reached``: whether the one with the given number was reached; ``over``:
    whether there are no more of them. Where the collector was off for a while, that is not known.
    """

    def __init__(self) -> None:
        self.count = 0
        self.passed_by = 0
        self.reached = False

    @property
    def over(self) -> bool:
        return not self.reached and not self.passed_by


@contextmanager
def before_line(number: int, places: Container[Any], act: Callable[[], Any]) -> Iterator[Moments]:
    """A block in which ``act()`` is called before line ``number`` (from 1) of those that run in ``places``.

    Arguments:
        places: code objects, and names of files.
    """
    with _tracing(
        number, act, "line", lambda code: code in places or code.co_filename in places
    ) as m:
        yield m


@contextmanager
def at_finalizers(number: int, act: Callable[[], Any]) -> Iterator[Moments]:
    """A block in which ``act()`` is called at the ``number``-th place in fad's code where finalizers may run.

    The garbage collector runs when an object is made that it looks after (until Python 3.11), or after calls
    and jumps back (since then).
    """
    with _tracing(number, act, "opcode", _is_of_fad, gc.isenabled) as moments:
        yield moments


@contextmanager
def at_interrupts(number: int, act: Callable[[], Any]) -> Iterator[Moments]:
    """A block in which ``act()`` is called at the ``number``-th place in fad's code for interrupts.

    Those in ``__exit__`` are left out: one that comes as the method begins, of any context manager that is
    written in Python, leaves the block without it.
    """
    with _tracing(
        number, act, "opcode", lambda code: _is_of_fad(code) and code.co_name != "__exit__"
    ) as moments:
        yield moments


def _is_of_fad(code: CodeType) -> bool:
    return code.co_filename.startswith(FAD)


@contextmanager
def _tracing(
    number: int,
    act: Callable[[], Any],
    kind: str,
    is_meant: Callable[[CodeType], bool],
    comes: Callable[[], bool] = lambda: True,
) -> Iterator[Moments]:
    moments = Moments()

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if not is_meant(frame.f_code):
            return trace if event == "call" else None
        frame.f_trace_opcodes = kind == "opcode"
        if event == kind and (
            event == "line" or frame.f_lasti in places_of_finalizers(frame.f_code)
        ):
            if not comes():
                moments.passed_by += 1
                return trace
            moments.count += 1
            if moments.count == number:
                moments.reached = True
                sys.settrace(None)
                act()
        return trace

    before = sys.gettrace()
    # Python 3.12 looks for frames whose opcodes are traced when settrace is called, and not again.
    sys._getframe().f_trace_opcodes = kind == "opcode"
    sys.settrace(trace)
    try:
        yield moments
    finally:
        sys.settrace(before)


@functools.cache
def places_of_finalizers(code: CodeType) -> frozenset[int]:
    """The places in bytecode before which finalizers may run."""
    found: set[int] = set()
    for now, after in itertools.pairwise(dis.get_instructions(code)):
        if now.opname.startswith("JUMP_BACKWARD"):
            found.add(now.argval)
        elif now.opname.startswith(("CALL", "BUILD_", "GET_ITER", "MAKE_FUNCTION", "RESUME")):
            found.add(after.offset)
    return frozenset(found)


def interrupt() -> None:
    """What an interrupt from the keyboard does."""
    raise KeyboardInterrupt
