"""How the tests of replay begin and end: with nothing cached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from replays import clear

import fad
from fad.core.level import flush
from fad.replay.program import Program


@pytest.fixture
def cleared_caches() -> Iterator[None]:
    """All that can be given back is given back, before and after."""
    clear()
    yield
    clear()


@pytest.fixture
def fresh_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Functions are traced while their program is being compiled, as they are where the queue is full."""
    monkeypatch.setattr(Program, "is_pending", False)
    flush()
    fad.autograd.compiled.clear_cache()
    yield
    flush()
