"""Calls on threads of their own: what they give and raise, and what is left of them."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

import fad
from fad.core.threads import on_new_thread


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
