"""A thread that traces yields the GIL: how often, and for how long. Time is counted, not measured."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fad.core import threads as module
from fad.core.threads import Pace, pace


class Clock:
    """A clock that runs only where the test, or a sleep, moves it; ``late``: what each sleep takes longer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.late = 0.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + self.late


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(
        module, "time", SimpleNamespace(perf_counter=found.perf_counter, sleep=found.sleep)
    )
    monkeypatch.setattr(module, "sleep", found.sleep)
    return found


def yielding(clock: Clock) -> Pace:
    own = Pace()
    own.yields, own.began = True, clock.now
    return own


def test_a_thread_that_does_not_trace_never_yields(clock: Clock) -> None:
    own = Pace()
    clock.now += 1.0
    own.yield_gil()
    assert clock.slept == []


def test_the_gil_is_released_once_for_a_stretch_of_work(clock: Clock) -> None:
    own = yielding(clock)
    own.yield_gil()
    assert clock.slept == []  # it has only begun
    for _ in range(2):
        clock.now += 1.1 * Pace.WORK
        own.yield_gil()
        own.yield_gil()
    assert clock.slept == [Pace.MOMENT] * 2


def test_who_does_not_get_the_gil_back_at_once_sleeps(clock: Clock) -> None:
    own = yielding(clock)
    clock.now += 1.1 * Pace.WORK
    clock.late = 0.005  # another thread has it for so long
    own.yield_gil()
    assert clock.slept == [Pace.MOMENT, Pace.SLEEP]
    assert own.began == clock.now  # what it has slept is no work


def test_each_thread_has_its_own() -> None:
    seen: list[Any] = []

    def work() -> None:
        pace.yields = True
        seen.append(pace.yields)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True] and not pace.yields
