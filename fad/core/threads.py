"""Calls on threads of their own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")
_PAUSE = 0.1  # seconds after which a caller sees what `_raise_in` raised in its own thread


def on_new_thread(f: Callable[[], R], name: str) -> R:
    """What ``f()`` gives, or raises, on a new thread: with default modes, and JAX's global settings.

    NOTE [interrupts of callers]: Ctrl-C raises in the thread that called, not in the new one. Work that
    went on without its caller would change what the caller has given up: gradients, modes that are
    restored, what its locks protect. So the interrupt is raised in the new thread too, and leaves this
    function when the work has ended. A second interrupt leaves it at once.

    >>> import threading
    >>> on_new_thread(lambda: threading.current_thread().name, "another")
    'another'
    """
    found: list[R] = []
    failed: list[BaseException] = []
    interrupted, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            if not interrupted.is_set():
                found.append(f())
        except BaseException as error:  # of any kind: it is raised again in the calling thread
            failed.append(error)
        finally:
            ended.set()

    def joined() -> None:
        # Python 3.11 takes a thread for ended once its `join` was interrupted.
        while not ended.wait(_PAUSE):
            pass
        thread.join()

    thread = threading.Thread(target=work, name=name)
    try:
        thread.start()
        joined()
    except BaseException as error:
        interrupted.set()
        _raise_in(thread, type(error))
        joined()
        raise
    if not failed:
        return found[0]
    try:
        raise failed[0]
    finally:
        failed.clear()  # else the error, by its traceback, kept itself and all that `f` uses alive


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread before the next line of Python that it runs."""
    if thread.ident is not None:
        ident = ctypes.c_ulong(thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(error))
