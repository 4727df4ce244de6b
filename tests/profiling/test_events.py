"""Events: their own time, and what becomes of those that do not end."""

from __future__ import annotations

import time

import pytest

from fad.profiling.events import Event, Target


def test_the_time_of_an_event_is_its_own_without_those_inside() -> None:
    target, stack = Target(sync=False), []
    with Event("outer", "range", "", stack, (target,)) as outer:
        with Event("inner", "operation", "eager", stack, (target,)) as inner:
            time.sleep(0.002)
            inner.xla = 500_000
        with Event("compiling", "compilation", "", stack, (target,)):
            pass
    assert [e.name for e in target.events] == ["inner", "compiling", "outer"]
    assert inner.parent is outer and outer.parent is None and outer.binds and stack == []
    assert inner.python == inner.duration - 500_000 and inner.duration >= 2_000_000
    assert outer.inner == sum([e.duration for e in target.events[:2]])
    assert outer.python == outer.duration - outer.inner
    assert repr(inner).startswith("<operation inner: ")


def test_what_did_not_end_is_left_out() -> None:
    target, stack = Target(sync=False), []
    with Event("outer", "range", "", stack, (target,)):
        Event("interrupted", "operation", "", stack, (target,))
    assert [e.name for e in target.events] == ["outer"] and stack == []
    with Event("outer", "range", "", stack, (target,)) as outer:
        with Event("nothing", "function", "", stack, (target,)) as nothing:
            nothing.kind = ""
    assert outer.inner == 0 and [e.name for e in target.events] == ["outer"] * 2


def test_a_failed_event_says_so_and_a_closed_target_gets_none() -> None:
    target, stack = Target(sync=False), []
    with pytest.raises(ZeroDivisionError), Event("fails", "range", "", stack, (target,)):
        1 / 0
    assert [e.failed for e in target.events] == [True]
    with Event("late", "range", "", stack, (target,)):
        target.is_open = False
    assert [e.name for e in target.events] == ["fails"]
