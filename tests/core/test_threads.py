"""Calls on threads of their own: what they give and raise, and what is left of them."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import fad
from fad.core.threads import on_new_thread
from fad.tape.engine import _THREAD_DEPTH
from fad.tape.graph import running


def test_it_gives_what_the_function_gives_with_default_modes() -> None:
    with fad.no_grad():
        name, recording = on_new_thread(
            lambda: (threading.current_thread().name, fad.is_grad_enabled()), "another"
        )
    assert (name, recording) == ("another", True)
    assert name not in [thread.name for thread in threading.enumerate()]


def test_an_error_is_raised_where_it_was_called() -> None:
    with pytest.raises(KeyboardInterrupt, match="here"):
        on_new_thread(lambda: (_ for _ in ()).throw(KeyboardInterrupt("here")), "another")


def test_an_error_keeps_nothing_alive() -> None:
    class Value:
        pass

    def failing() -> weakref.ref[Value]:
        value = Value()

        def f() -> None:
            raise ValueError(str(type(value)))

        with pytest.raises(ValueError, match="Value"):
            on_new_thread(f, "another")
        return weakref.ref(value)

    gc.disable()
    try:
        assert failing()() is None
    finally:
        gc.enable()


class Interrupt(Exception):
    """What a signal handler raises here."""


@contextmanager
def interrupted_when(begun: threading.Event) -> Iterator[None]:
    """A block whose thread, the main one, is interrupted once ``begun`` is set."""

    def handler(*args: object) -> None:
        raise Interrupt

    def signal_it() -> None:
        assert begun.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]

    before = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=signal_it)
    sender.start()
    try:
        yield
    finally:
        begun.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("depth", [1, 3])
def test_an_interrupt_of_the_caller_ends_the_work(depth: int) -> None:
    begun, ended = threading.Event(), threading.Event()
    lock = threading.Lock()

    def work() -> None:
        try:
            with lock:
                begun.set()
                while True:
                    time.sleep(0.001)
        finally:
            ended.set()

    def nested(depth: int) -> None:
        on_new_thread(work if depth == 1 else lambda: nested(depth - 1), f"nested-{depth}")

    with interrupted_when(begun), pytest.raises(Interrupt):
        nested(depth)
    assert ended.is_set() and not lock.locked()
    assert not [t for t in threading.enumerate() if t.name.startswith("nested-")]


def test_an_interrupt_ends_a_backward_pass_on_another_thread() -> None:
    """A pass that is nested so deeply that it has a thread of its own leaves no modes, locks or gradients."""
    begun = threading.Event()
    x = fad.tensor(1.0, requires_grad=True)

    def nested(depth: int) -> None:
        with fad.enable_grad():
            y = x * 2.0

        def hook(g: fad.Tensor) -> None:
            if depth:
                nested(depth - 1)
                return
            begun.set()
            while True:
                time.sleep(0.001)

        y.register_hook(hook)
        y.backward()

    with interrupted_when(begun), pytest.raises(Interrupt):
        nested(2 * _THREAD_DEPTH + 1)
    assert x.grad is None and running.task is None and fad.is_grad_enabled()
    assert not [t for t in threading.enumerate() if t.name == "fad-reentrant-backward"]
    (x * 3.0).backward()
    assert x.grad is not None and x.grad.item() == 3.0
