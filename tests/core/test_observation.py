"""Functions that can be observed: replaced while there is an observer, and at no other time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import fad
from fad.core.level import Level
from fad.core.observation import observable, observe
from fad.core.primitive import Primitive
from fad.tape.recorder import RecordingLevel, RootLevel


class Log:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def observed(self, kind: str, function: Any, args: Any, kwargs: Any) -> Any:
        self.calls.append((kind, args[1:]))
        return function(*args, **kwargs)


@pytest.fixture
def log() -> Iterator[Log]:
    found = Log()
    yield found
    observe(None)


class Base:
    def work(self, x: int) -> int:
        return x + 1


class Derived(Base):
    def work(self, x: int) -> int:
        return 10 * super().work(x)


observable(Base, "work", "working")
observable(Derived, "work", "working")


def test_a_call_is_observed_once(log: Log) -> None:
    observe(log)
    assert (Base().work(1), Derived().work(2)) == (2, 30)
    assert log.calls == [("working", (1,)), ("working", (2,))]


def test_functions_are_the_same_before_and_after(log: Log) -> None:
    marked = [
        (Base, "work"),
        (Primitive, "execute"),
        (RootLevel, "process"),
        (RecordingLevel, "process"),
    ]
    before = [vars(holder)[name] for holder, name in marked]
    observe(log)
    assert all([vars(h)[n] is not f for (h, n), f in zip(marked, before, strict=True)])
    observe(None)
    assert [vars(holder)[name] for holder, name in marked] == before
    Base().work(1)
    assert log.calls == []


def test_functions_of_modules_are_observed_too(log: Log) -> None:
    calls = sys.modules["fad.functions.calls"]
    before = calls.fast_call
    observe(log)
    assert calls.fast_call is not before and calls.fast_call.__wrapped__ is before
    observe(None)
    assert calls.fast_call is before


def test_a_level_that_is_made_meanwhile_is_observed(log: Log) -> None:
    observe(log)

    class Passing(Level):
        def process(self, op: Any, args: Any) -> Any:
            return "processed"

    assert Passing().process("an operation", ()) == "processed"
    assert log.calls == [("operation", ("an operation", ()))]
    observe(None)
    assert Passing().process("an operation", ()) == "processed" and len(log.calls) == 1


def test_what_others_have_replaced_meanwhile_stays(log: Log) -> None:
    original = vars(Base)["work"]
    observe(log)
    try:
        Base.work = lambda self, x: -x  # type: ignore[method-assign]
        observe(None)
        assert Base().work(1) == -1
    finally:
        Base.work = original  # type: ignore[method-assign]


def test_operations_are_observed_at_each_level(log: Log) -> None:
    x = fad.tensor([1.0, 2.0])
    observe(log)
    y = x * x
    observe(None)
    assert y.tolist() == [1.0, 4.0]
    assert [(kind, args[0].name) for kind, args in log.calls if kind == "operation"] == [
        ("operation", "multiply")
    ]
