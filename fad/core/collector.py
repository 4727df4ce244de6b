"""Keeps the garbage collector from running while JAX traces fad's own code.

NOTE [finalizers and tracing]

The collector runs finalizers at almost any place, on the thread that happens to make an object. While JAX
traces a function, every operation on that thread is recorded into the program being traced, also those of a
finalizer: its results would be tracers, which mean nothing once tracing ends. JAX leaves that to its users.
Here the collector cannot run while fad traces operations, which takes milliseconds, or rules that users have
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
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

__all__ = ["sleep", "without_collector"]

P = ParamSpec("P")
R = TypeVar("R")


class _Call:
    """A call during which the collector does not run."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = threading.get_ident()


_lock = threading.RLock()
_running: set[_Call] = set()
_enabled: set[bool] = set()  # not empty: the collector was on before the first of them


def without_collector(f: Callable[P, R]) -> Callable[P, R]:
    """``f``, during whose calls the garbage collector does not run on any thread.

    >>> import gc
    >>> without_collector(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _Call()
        try:
            _suspend({token})
            return f(*args, **kwargs)
        finally:
            _resume({token})

    return call


def _suspend(calls: set[_Call]) -> None:
    with _lock:
        _running.update(calls)
        if gc.isenabled():
            _enabled.add(True)
            gc.disable()


def _resume(calls: set[_Call]) -> None:
    _running.difference_update(calls)
    with _lock:
        if _enabled and not _running:
            gc.enable()
            _enabled.clear()


def sleep(seconds: float) -> None:
    """`time.sleep`, while the collector may run, whatever this thread traces.

    It runs on other threads, or on this one just before or after: then a finalizer computes eagerly.
    """
    with _lock:
        own = {call for call in _running.copy() if call.thread == threading.get_ident()}
    with jax.ensure_compile_time_eval():
        _resume(own)
        time.sleep(seconds)
        _suspend(own)


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
