"""Calls on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["on_new_thread"]

R = TypeVar("R")


def on_new_thread(f: Callable[[], R], name: str) -> R:
    """What ``f()`` gives, or raises, on a new thread: with default modes, and JAX's global settings.

    >>> import threading
    >>> on_new_thread(lambda: threading.current_thread().name, "another")
    'another'
    """
    found: list[R] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(f())
        except BaseException as error:  # of any kind: it is raised again in the calling thread
            failed.append(error)

    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()
    if not failed:
        return found[0]
    try:
        raise failed[0]
    finally:
        failed.clear()  # else the error, by its traceback, kept itself and all that `f` uses alive
