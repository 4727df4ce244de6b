"""The benchmarks compute the same in every library, and their checks catch what differs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("torch", reason="the benchmarks compare with PyTorch (extra: oracle or bench)")

from benchmarks import __main__ as program
from benchmarks import bridge, growth, processes, report, suite, timing
from benchmarks.libraries import LIBRARIES
from benchmarks.scenarios import Scenario


@pytest.mark.sweep("scenario", suite.ALL, sample=8, ids=lambda scenario: scenario.name)
def test_every_scenario_runs_and_the_libraries_agree(scenario: Scenario) -> None:
    results = {}
    for name in scenario.libraries:
        with LIBRARIES[name].around():
            results[name] = scenario.build(LIBRARIES[name])()
    if scenario.unit == "µs":
        timing.check(scenario, results)
    else:
        assert min(results.values()) > 0.0
    assert set(scenario.bounds) < set(scenario.libraries)


def test_names_are_unique() -> None:
    names = [scenario.name for scenario in suite.ALL]
    assert len(names) == len(set(names))


def test_the_program_writes_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = growth.every(quick=True, budget=0.0)
    monkeypatch.setattr(growth, "every", lambda: quick)
    file = tmp_path / "found" / "benchmarks.json"
    words = "--rounds 1 --seconds 0 --only Function --growth --json".split()
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words, str(file)])
    assert program.main() == 0
    printed = capsys.readouterr().out
    assert "apply, tracked" in printed and "µs per operation" in printed
    written = json.loads(file.read_text())
    assert written["measurements"][0]["what"] == "apply, tracked"
    assert {"environment", "growth", "statistic"} <= set(written)
    assert all(len(s["costs"]) == len(s["sizes"]) for s in written["growth"])


def test_growth_is_the_ratio_of_costs() -> None:
    one = growth.Series("t", "lane", [1, 10], [1.0, 20.0], [2.0, 30.0], [1, 10])
    assert one.costs == [1.0, 2.0] and one.growth == [2.0]
    assert growth.table(one).row_count == 2


def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="no_such_name"):
        processes.run("no_such_name")


@pytest.mark.parametrize(
    "transform",
    [
        jax.grad,
        jax.value_and_grad,
        lambda f: jax.grad(jax.checkpoint(f), argnums=(0, 1)),
        lambda f: jax.vmap(jax.grad(f), (0, None)),
    ],
)
def test_a_function_compiles_to_the_instructions_of_a_custom_vjp(transform) -> None:
    ours, theirs = (bridge.instructions(bridge.RULES[name], transform) for name in ("fad", "jax"))
    assert sum(" dot(" in line for line in ours) >= 12
    assert ours == theirs


@pytest.mark.parametrize("wrong", [np.ones(3), np.zeros(2), np.array([0.0, np.nan])])
def test_a_wrong_result_is_caught(wrong: np.ndarray) -> None:
    right = np.array([0.0, 1.0])
    timing.check(suite.ALL[0], {"fad": right, "jax": right})
    with pytest.raises(AssertionError, match="fad and jax differ"):
        timing.check(suite.ALL[0], {"fad": right, "jax": wrong})


def test_bounds_and_report() -> None:
    def build(library):
        return lambda: None

    scenario = Scenario("work", "what", build, bounds={"jax": 0.5, "torch": 0.5})
    times = {"fad": 2.0, "torch": 3.0, "jax": 10.0}
    row = timing.Measurement(scenario, times, times, times)
    assert row.missed == ["torch"] and row.ratio("jax") == 0.2
    alone = timing.Measurement(scenario, {"jax": 1.0}, {"jax": 1.0}, {"jax": 1.0})
    assert alone.ratio("jax") is None and alone.missed == []
    table = report.table("title", [row, alone], list(LIBRARIES))
    assert table.row_count == 2 and len(table.columns) == 3 + 3 + 2
    (written, _) = report.as_json([row, alone])["measurements"]
    assert written["ratios"] == {"torch": 2.0 / 3.0, "jax": 0.2}
    assert {"processor", "cores", "python", "fad", "torch", "jax"} <= set(report.environment())


def test_every_library_is_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def build(library):
        def call():
            order.append(library.name)
            return library.asarray(np.zeros(1))

        return call

    # One repeat a turn, whatever the call takes.
    monkeypatch.setattr(timing, "spend", lambda call, *rest: call() is not None)
    every = tuple(LIBRARIES)
    row = timing.measure(Scenario("work", "what", build, every), every, 3, 1.0)
    assert set(row.median) == set(row.first) == set(every)
    turns = [set(order[k : k + 4]) for k in range(len(order) - 12, len(order), 4)]
    assert turns == [set(every)] * 3
