"""How the tests of replay begin and end: with nothing cached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from replays import compiled_all

import fad
from fad.core.level import flush
from fad.replay import policy
from fad.replay.program import Program, worker


@pytest.fixture
def cleared_caches() -> Iterator[None]:
    """Nothing is replayed that was compiled before, and the compile thread has nothing to do after."""
    fad.autograd.compiled.clear_cache()
    compiled_all()  # for the program that it is at
    yield
    fad.autograd.compiled.clear_cache()
    compiled_all()


@pytest.fixture
def fresh_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are compiled when they are queued, in the thread that does that."""

    def submit(program: Program, avals: Any) -> bool:
        program.compile(avals)
        return True

    monkeypatch.setattr(worker, "submit", submit)
    flush()
    fad.autograd.compiled.clear_cache()
    yield
    flush()


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment ends after 128 operations, not 512: all else is as in long ones, and compiled sooner."""
    monkeypatch.setattr(policy, "LONGEST", policy.LONGEST // 4)
    monkeypatch.setattr(policy, "LONG", policy.LONG // 4)
