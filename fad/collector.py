"""Keeps the garbage collector from running while JAX traces fad's own code.

NOTE [finalizers and tracing]

The collector runs finalizers at almost any place, on the thread that happens to make an object. While JAX
traces a function, every operation on that thread is written into the program being traced, also those of a
finalizer: its results would be tracers, which mean nothing once tracing ends. JAX leaves that to its users.
Here no collection begins while operations are traced, which takes milliseconds, or rules that users have
given as functions of JAX. What `fad.jit` and transforms call is traced as JAX traces it.

An interrupt may come after any call, so no context manager is used: a ``finally`` is at most one call short,
and the next function that is traced makes up for it. Calls of `gc.disable` and `gc.enable` on other threads
meanwhile have no lasting effect: tracing ends with the collector as it began.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["without_collector"]

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.RLock()
_running: set[object] = set()  # one for each call on any thread
_enabled: set[bool] = set()  # not empty: the collector was on before the first of them


def without_collector(f: Callable[P, R]) -> Callable[P, R]:
    """``f``, during whose calls the garbage collector does not run on any thread.

    >>> import gc
    >>> without_collector(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = object()
        try:
            with _lock:
                _running.add(token)
                if gc.isenabled():
                    _enabled.add(True)
                    gc.disable()
            return f(*args, **kwargs)
        finally:
            _running.discard(token)
            with _lock:
                if _enabled and not _running:
                    gc.enable()
                    _enabled.clear()

    return call


def _in_child() -> None:
    """Threads of the parent do not exist in a forked child."""
    global _lock
    _lock = threading.RLock()
    _running.clear()
    if _enabled:
        gc.enable()
        _enabled.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
