"""The benchmarks compute the same in every library, and their checks catch what differs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

pytest.importorskip("torch", reason="the benchmarks compare with PyTorch (extra: oracle or bench)")

from benchmarks import bridge, report, timing
from benchmarks.libraries import LIBRARIES
from benchmarks.scenarios import SCENARIOS, Scenario


@pytest.mark.sweep(
    "scenario", [*SCENARIOS, *bridge.SCENARIOS], sample=6, ids=lambda scenario: scenario.name
)
def test_libraries_agree(scenario: Scenario) -> None:
    results = {name: scenario.build(LIBRARIES[name])() for name in scenario.libraries}
    timing.check(scenario, results)


def test_names_are_unique() -> None:
    names = [scenario.name for scenario in (*SCENARIOS, *bridge.SCENARIOS)]
    assert len(names) == len(set(names))


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
    timing.check(SCENARIOS[0], {"fad": right, "jax": right})
    with pytest.raises(AssertionError, match="fad and jax differ"):
        timing.check(SCENARIOS[0], {"fad": right, "jax": wrong})


def test_bounds_and_report() -> None:
    def build(library):
        return lambda: None

    scenario = Scenario("work", "what", build, bounds={"jax": 0.5, "torch": 0.5})
    times = {"fad": 2.0, "torch": 3.0, "jax": 10.0}
    row = timing.Measurement(scenario, times, times, times)
    assert row.missed == ["torch"] and row.ratio("jax") == 0.2
    alone = timing.Measurement(scenario, {"jax": 1.0}, {"jax": 1.0}, {"jax": 1.0})
    assert alone.ratio("jax") is None and alone.missed == []
    assert report.table([row, alone], list(LIBRARIES)).row_count == 2
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
    monkeypatch.setattr(timing, "spend", lambda call, repeats: call() is not None)
    row = timing.measure(Scenario("work", "what", build), list(LIBRARIES), 3, 1.0)
    assert set(row.median) == set(row.first) == set(LIBRARIES)
    turns = [set(order[k : k + 3]) for k in range(len(order) - 9, len(order), 3)]
    assert turns == [set(LIBRARIES)] * 3
