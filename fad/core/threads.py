"""Threads, and the garbage collector: what may run in the middle of a call, and where."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax

from fad.core.types import ArrayFunction

# Calls on threads of their own.

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
    results: list[R] = []
    failed: list[BaseException] = []
    interrupted, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            if not interrupted.is_set():
                results.append(f())
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
        return results[0]
    try:
        raise failed[0]
    finally:
        failed.clear()  # else the error, by its traceback, kept itself and all that `f` uses alive


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread before the next line of Python that it runs."""
    if thread.ident is not None:
        ident = ctypes.c_ulong(thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(error))


# Keeps the garbage collector from running while JAX traces fad's own code.
#
# NOTE [finalizers and tracing]
#
#     class Garbage:
#         def __del__(self):
#             found.append(fnp.sin(1.0) + 1.0)
#
#     cycle = Garbage()
#     cycle.own, cycle, found = cycle, None, []
#     fnp.arctan(fnp.sinh(array))  # is traced; the collector may run meanwhile
#     gc.collect()
#     assert float(found[0]) > 1.8  # no tracer
#
# The garbage collector can run at almost any point of a program. It calls finalizers on the thread that
# triggered it. While JAX traces a function on that thread, it records every operation of the thread, so
# also the operations of a finalizer. Their results are then tracers, which are invalid once tracing ends.
# JAX does not prevent this.
#
# fad disables the collector while it traces two kinds of functions: its own operations (this takes
# milliseconds), and rules that users give as JAX functions. It stays enabled while the functions that
# users pass to `fad.jit` and to transforms are traced.
#
# Interrupts: a signal handler can raise an exception after any call. A context manager could lose its
# whole exit that way, so a ``finally`` clause is used. If the interrupt comes in `_resume`, after the
# call has left ``_running``, the collector stays disabled until the next such function returns, which
# enables it.
#
# When the last such function returns, the collector is enabled if it was so when the first one began,
# whatever other threads have done with `gc.disable` and `gc.enable` in between.

P = ParamSpec("P")


class _RunningCall:
    """A running call of a function made by `without_collector`, and the thread that it runs on."""

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = threading.get_ident()


_lock = threading.RLock()
_running: set[_RunningCall] = set()
# Not empty: the collector was enabled before the first call in `_running`.
_enabled: set[bool] = set()


def without_collector(f: Callable[P, R]) -> Callable[P, R]:
    """``f``, with the garbage collector disabled, for all threads, during each call.

    >>> import gc
    >>> without_collector(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _RunningCall()
        try:
            _suspend({token})
            return f(*args, **kwargs)
        finally:
            # At once, so that an interrupt in `_resume` leaves nothing behind.
            _running.discard(token)
            _resume({token})

    return call


def _suspend(calls: set[_RunningCall]) -> None:
    with _lock:
        _running.update(calls)
        if gc.isenabled():
            _enabled.add(True)
            gc.disable()


def _resume(calls: set[_RunningCall]) -> None:
    _running.difference_update(calls)
    with _lock:
        if _enabled and not _running:
            gc.enable()
            _enabled.clear()


def make_jit(f: ArrayFunction, **options: Any) -> jax.stages.Wrapped:
    """``jax.jit(f, **options)``.

    JAX holds a lock while it makes a compiled function. A finalizer in the middle of that would wait for the
    lock forever if it called `jax.jit`.
    """
    return without_collector(jax.jit)(f, **options)


def sleep(seconds: float) -> None:
    """`time.sleep`, with the collector enabled as far as this thread is concerned.

    The collector may then run on another thread, or on this one, just before or after the sleep itself.
    Tracing is suspended here meanwhile, so that a finalizer on this thread computes eagerly.
    """
    with _lock:
        calls = {call for call in _running.copy() if call.thread == threading.get_ident()}
    with jax.ensure_compile_time_eval():
        _resume(calls)
        time.sleep(seconds)
        _suspend(calls)


# How a thread that traces and lowers programs yields the GIL to other threads.
#
# NOTE [pace]
#
#     deep = lambda x: functools.reduce(lambda a, k: fnp.sin(a) * k, range(300), x)
#     threading.Thread(target=fad.jit(deep), args=(1.0,)).start()  # traces for a second
#     for _ in range(300):
#         x = x + 1.0  # without a pause of the other thread, 5 ms each
#
# A thread that returns from XLA has to acquire the GIL. If another thread holds it, Python asks that
# thread to release it only after 5 ms. So while one thread traces a program, each operation of the others
# would take 5 ms. Therefore the tracing thread checks, after each operation that it has traced or lowered
# (`fad.core.jaxprs.barrier`), whether it has worked for ``WORK`` seconds. If so, it releases the GIL
# for ``MOMENT`` seconds. If it does not get the GIL back at once, other threads need it, and it sleeps for
# ``SLEEP`` seconds. This changes timing only, never a result.


class Pace(threading.local):
    """Per thread: whether it ``yields`` the GIL, and when it last did (``began`` to work again)."""

    WORK = 0.0003
    MOMENT = 0.00005
    SLEEP = 0.002
    yields = False
    began = 0.0

    def yield_gil(self) -> None:
        """Release the GIL if this thread ``yields`` and has worked for ``WORK`` seconds since it last
        did.
        """
        if not self.yields:
            return
        now = time.perf_counter()
        if now - self.began < self.WORK:
            return
        time.sleep(self.MOMENT)
        self.began = time.perf_counter()
        if self.began - now > 10 * self.MOMENT:
            sleep(self.SLEEP)
            self.began = time.perf_counter()


pace = Pace()


def _in_child() -> None:
    """In a forked child: forget the calls of the parent's threads, which do not exist here."""
    global _lock
    _lock = threading.RLock()
    _running.clear()
    if _enabled:
        gc.enable()
        _enabled.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
