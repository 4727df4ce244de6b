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
    """Traces go on while their program is being compiled, as they do where there is too much to compile."""
    monkeypatch.setattr(Program, "is_awaited", False)
    flush()
    fad.autograd.compiled.clear_cache()
    yield
    flush()
