"""The benchmark of deep chains runs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def test_the_benchmark_of_deep_chains_runs(torch: Any) -> None:
    pytest.importorskip("rich", reason="the benchmark prints with rich (extra: bench)")
    deep = importlib.import_module("benchmarks.deep_chains")
    chains = [deep.measure(200), deep.measure(400)]
    assert [c.length for c in chains] == [200, 400] and chains[0].build > 0.0
    assert all(v >= 1.0 for v in deep.flatness(chains).values())
    assert deep.best(chains[:1] * 2) == chains[0]
