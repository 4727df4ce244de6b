"""The thread that compiles in the background: in order, one after the other, what is still there."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from fad.replay.background import _Worker


class Noted:
    """What notes that it is compiled, and waits before it has been if there is something to wait for."""

    def __init__(self, name: str, seen: list[Any], until: threading.Event | None = None) -> None:
        self.name, self.seen, self.until = name, seen, until
        self.began = threading.Event()

    def compile(self, avals: Sequence[Any]) -> None:
        self.began.set()
        assert self.until is None or self.until.wait(30)
        self.seen.append((self.name, avals, threading.current_thread().name))


def wait(own: _Worker) -> None:
    """Wait until everything that is queued has been compiled."""
    while own.queue:
        time.sleep(0.001)


@pytest.fixture
def own() -> Iterator[_Worker]:
    """One of its own."""
    worker = _Worker()
    yield worker
    worker.stop()


def test_what_is_queued_is_compiled_in_order(own: _Worker) -> None:
    seen: list[Any] = []
    programs = [Noted(name, seen) for name in "abc"]
    assert all([own.submit(p, [k]) for k, p in enumerate(programs)])  # type: ignore[list-item]
    wait(own)
    assert seen == [(name, [k], "fad-compile") for k, name in enumerate("abc")]
    assert not own.queue


def two_queued(own: _Worker, seen: list[Any]) -> tuple[Noted, Noted, threading.Event]:
    """The first is being compiled, until the event is set."""
    go_on = threading.Event()
    first, second = Noted("first", seen, go_on), Noted("second", seen)
    own.submit(first, [])
    own.submit(second, [])
    assert first.began.wait(30)
    return first, second, go_on


def test_what_nobody_refers_to_is_not_compiled(own: _Worker) -> None:
    seen: list[Any] = []
    first, second, go_on = two_queued(own, seen)
    del second
    go_on.set()
    wait(own)
    assert [name for name, *_ in seen] == [first.name]


def test_a_stopped_one_finishes_what_it_is_at(own: _Worker) -> None:
    seen: list[Any] = []
    first, second, go_on = two_queued(own, seen)
    stopping = threading.Thread(target=own.stop)
    stopping.start()
    go_on.set()
    stopping.join(30)
    assert not stopping.is_alive()
    assert [name for name, *_ in seen] == [first.name]
    assert not own.submit(second, [])


def test_a_thread_that_cannot_start(own: _Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not own.submit(Noted("first", []), [])
    assert own.thread is None and not own.queue
    wait(own)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_child_compiles_nothing(own: _Worker) -> None:
    seen: list[Any] = []
    own.submit(Noted("first", seen), [])
    wait(own)
    child = os.fork()
    if not child:
        os._exit(int(own.submit(Noted("second", seen), []) or not own.stopped))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    third = Noted("third", seen)
    assert own.submit(third, [])
    wait(own)
    assert seen[-1][0] == "third"
