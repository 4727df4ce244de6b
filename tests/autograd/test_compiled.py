"""The switch of replay: at once, for a block, nested, for one thread; and what it says of the cache."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import fad
import fad.numpy as fnp
from fad.autograd import compiled
from fad.core.level import state
from fad.core.replay_protocol import seam


@pytest.fixture(autouse=True)
def as_before() -> Any:
    before = state.replaying
    yield
    compiled(before)


def f(x: Any) -> Any:
    return fnp.sum(fnp.sin(x) * x)


def test_it_switches_at_once_and_until_the_block_ends() -> None:
    compiled(True)
    with compiled(False) as block:
        assert isinstance(block, compiled) and not state.replaying
        with compiled(True):
            assert state.replaying
        assert not state.replaying
    assert state.replaying
    compiled(False)  # no block: it stays
    assert not state.replaying


def test_a_block_ends_with_an_exception() -> None:
    compiled(True)
    with pytest.raises(ZeroDivisionError), compiled(False):
        1 / 0
    assert state.replaying


def test_wait_is_counted_and_off_without_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    class Replay:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

        def compile_at_once(self, on: bool) -> None:
            calls.append(on)

    monkeypatch.setattr(seam, "replay", Replay())
    with compiled(wait=True):
        assert calls == [True]
        with compiled(False, wait=True):
            assert calls == [True]
    assert calls == [True, False]


def test_it_belongs_to_its_thread() -> None:
    compiled(True)
    seen: list[bool] = []

    def work() -> None:
        with compiled(False):
            barrier.wait()
            barrier.wait()

    barrier = threading.Barrier(2)
    thread = threading.Thread(target=work)
    thread.start()
    barrier.wait()
    seen.append(state.replaying)
    barrier.wait()
    thread.join()
    assert seen == [True]


def test_what_the_cache_holds() -> None:
    compiled.clear_cache()
    info = compiled.cache_info()
    assert (info["structures"], info["compiled"], info["hits"]) == (0, 0, 0)
    assert set(compiled.cache_info()) >= {"structures", "compiled", "queued", "refused", "hits"}
    x = fad.tensor([0.5, 1.5])
    with compiled(False):
        expected = [fad.grad(f)(x).tolist() for _ in range(3)]
    assert not compiled.cache_info()["structures"]
    with compiled(wait=True):
        assert [fad.grad(f)(x).tolist() for _ in range(3)] == expected
    info = compiled.cache_info()
    assert info["structures"] and info["compiled"] and info["hits"]
    assert "f" in compiled.explain()
    compiled.clear_cache()
    assert not compiled.cache_info()["structures"]
