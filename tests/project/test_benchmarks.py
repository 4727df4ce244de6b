"""The benchmarks compute the same in every library, and their checks catch what differs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("torch", reason="the benchmarks compare with PyTorch (extra: bench)")
pytest.importorskip("matplotlib", reason="the benchmarks draw with it (extra: bench)")
pytest.importorskip("rich", reason="the benchmarks print with it (extra: bench)")
pytest.importorskip("optax", reason="a benchmark trains with it (extra: bench)")

from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

import fad
from benchmarks import __main__ as program
from benchmarks import (
    bridge,
    first_minute,
    gpu,
    growth,
    libraries,
    processes,
    programs,
    real_sizes,
    report,
    share,
    suite,
    taylor,
    timing,
    torch_programs,
)
from benchmarks.libraries import LIBRARIES
from benchmarks.scenarios import Scenario

pytestmark = pytest.mark.oracle


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are short and not synchronized: their results are checked, not their times."""
    first_minute.forget()
    processes.forget()
    for name, value in (("CALLS", 2), ("SETTLING", 0.0), ("SPENT", 0.0), ("NEW", (9,))):
        monkeypatch.setattr(first_minute, name, value)
    for module in (programs, torch_programs):
        monkeypatch.setattr(module, "END", 0.4)
    monkeypatch.setattr(programs, "STEPS", 3)
    monkeypatch.setattr(programs, "TIMES", (0.0, 0.4))
    monkeypatch.setattr(taylor, "NESTED", 2)


SHORT = [row for row in suite.ALL if not row.long and row.device == "cpu"]


@pytest.mark.sweep("scenario", SHORT, sample=8, ids=lambda scenario: scenario.name)
def test_every_scenario_runs_and_the_libraries_agree(scenario: Scenario) -> None:
    results = {}
    for name in scenario.libraries:
        with LIBRARIES[name].around():
            results[name] = scenario.build(LIBRARIES[name])()
    if scenario.unit == "µs":
        timing.check(scenario, results)
    elif scenario.summarize is None:
        assert min(results.values()) > 0.0
    else:
        assert np.min([np.min(found) for found in results.values()]) > 0.0
        summary = scenario.summarize({name: [found] for name, found in results.items()})
        assert np.all(np.isfinite(list(summary.values()))) and "fad" in summary
    assert set(scenario.bounds) < set(scenario.libraries)


@pytest.mark.parametrize(
    "scenario",
    gpu.every(width=16, tokens=4, size=64, device="cpu"),
    ids=lambda scenario: scenario.name,
)
def test_rows_for_a_gpu_compute_the_same_on_the_processor(scenario: Scenario) -> None:
    timing.measure(scenario, scenario.libraries, rounds=1, seconds=0.0)


def test_what_there_is_no_device_for_is_not_measured(tmp_path: Path) -> None:
    if libraries.gpu() is not None:
        pytest.skip("there is a GPU here")
    rows = [timing.measure(row, LIBRARIES, rounds=1, seconds=0.0) for row in gpu.SCENARIOS]
    assert not any(row.fastest or row.missed for row in rows)
    assert "| not measured | not measured |" in report.as_markdown(rows, list(LIBRARIES))


def test_what_is_shared_has_machine_tables_and_a_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--rounds 1 --seconds 0 --only small net, 6 layers of 16: grad --share".split(" ")
    words[5:-1] = [" ".join(words[5:-1])]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words, str(tmp_path / "found")])
    assert program.main() == 0
    text = (tmp_path / "found" / "benchmarks.md").read_text()
    assert text in capsys.readouterr().out
    for expected in ("| processor |", "| jax |", "## eager transforms", "](ratios.png)"):
        assert expected in text
    picture = plt.imread(tmp_path / "found" / "ratios.png")
    for colour in share.PEERS.values():
        drawn = np.abs(picture[..., :3] - to_rgb(colour)).max(axis=-1) < 0.02
        assert drawn.any(), f"no point of the colour {colour}"


@pytest.mark.parametrize("net", real_sizes.NETS, ids=lambda net: net.name)
def test_replayed_steps_of_real_sizes_give_the_same_bits(net: real_sizes.Net) -> None:
    def losses_and_parameters() -> list[np.ndarray]:
        step = real_sizes.eager(libraries.FAD, net)
        return [x.copy() for _ in range(3) for x in timing.flat(step())]

    with fad.autograd.compiled(False):
        expected = losses_and_parameters()
    before = fad.autograd.compiled.cache_info()["hits"]
    with fad.autograd.compiled(wait=True):
        found = losses_and_parameters()
    assert fad.autograd.compiled.cache_info()["hits"] > before
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_compiled_step_of_the_cnn_is_the_work_of_that_of_jax() -> None:
    (net,) = [net for net in real_sizes.NETS if net.name.startswith("CNN")]
    found = []
    for name in ("fad", "jax"):
        step, parameters, data = real_sizes.functional(LIBRARIES[name], net)
        found.append(step.lower(parameters, *data).compile().cost_analysis())
    for what in ("flops", "bytes accessed"):
        assert found[0][what] <= 1.03 * found[1][what]


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
    assert written["measurements"][0]["what"] == "apply, tracked, and read"
    assert {"environment", "growth", "statistic"} <= set(written)
    assert all(len(s["costs"]) == len(s["sizes"]) for s in written["growth"])


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_programs_compute_the_same_without_replay_in_pytorch_and_in_jax(name: str) -> None:
    replayed = programs.PROGRAMS[name](fad)
    found = [replayed() for _ in range(3)]
    with fad.autograd.compiled(False):
        plain = programs.PROGRAMS[name](fad)
        others = [[plain() for _ in range(3)]]
    if name in torch_programs.PROGRAMS:
        torch_program = torch_programs.PROGRAMS[name]()
        others.append([torch_program() for _ in range(3)])
    if "jax" in processes.PROGRAMS.get(name, ()):
        in_jax = programs.PROGRAMS[name](jax)
        others.append([in_jax() for _ in range(3)])
    for other in others:
        for ours, theirs in zip(timing.flat(found), timing.flat(other), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_the_solver_follows_a_solution_that_is_known_with_few_steps() -> None:
    slopes: list[np.ndarray] = []

    def f(y: np.ndarray) -> np.ndarray:
        slopes.append(-2.0 * y)
        return slopes[-1]

    times = np.linspace(0.0, 3.0, 7)
    start = np.array([1.0, -0.5])
    found = programs.dopri5(np, f, start, times.tolist())
    np.testing.assert_allclose(found, np.exp(-2.0 * times)[:, None] * start, rtol=1e-3, atol=1e-5)
    assert len(slopes) % 6 == 1 and 7 < len(slopes) < 6 * 40


@pytest.mark.parametrize("how", first_minute.CHAINS)
def test_chains_of_operations_compute_the_same_in_both_libraries(how: str) -> None:
    ours, theirs = (first_minute.CHAINS[how](LIBRARIES[name], 7)() for name in ("fad", "torch"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    x = np.ones(8, np.float32)
    y = x * np.float32(0.9) + np.sin(x)
    np.testing.assert_allclose(ours, (0.9 + np.cos(x)) * (0.9 + np.cos(y)), rtol=1e-5)


def test_totals_and_pauses_are_of_medians_of_calls() -> None:
    rounds = {
        "fad": [[9.0, 1.0, 4.0], [8.0, 2.0, 5.0], [9.0, 9.0, 5.0]],
        "nodes": [[1.0, 1.0, 1.0]] * 3,
    }
    assert first_minute.total(rounds) == {"fad": 16.0, "nodes": 3.0}
    assert first_minute.longest_pause(rounds) == {"fad": 4.0}  # the first call does not count
    assert first_minute.longest_pause({"fad": rounds["fad"]}) == {}
    assert first_minute.median({"jax": [[1.0, 5.0], [3.0, 9.0, 4.0]]}) == {"jax": 4.0}
    costs = {"fad": [(3.0, 1.0), (2.0, 4.0)]}
    assert first_minute.least(costs) == {"fad": 2.0}
    assert first_minute.growth(costs) == {"fad": 2.0}


def test_rows_of_the_same_program_share_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, str]] = []

    def run(program: str, library: str) -> list[float]:
        started.append((program, library))
        return [1.0, 1.0 + (library == "fad")]

    monkeypatch.setattr(first_minute, "in_a_process", run)
    name = "adaptive solver"
    rows = [scenario for scenario in first_minute.SCENARIOS if scenario.work == name][:2]
    total, pause = (timing.measure(row, ["fad", "nodes"], 2, 0.0) for row in rows)
    assert started == [(name, "fad"), (name, "nodes")] * 2
    assert total.fastest == {"fad": 3.0, "nodes": 2.0} and total.missed == ["nodes"]
    assert pause.fastest == {"fad": 1.0} and pause.missed == ["fad"]
    assert first_minute.calls() == {name: {"fad": [1.0, 2.0], "nodes": [1.0, 1.0]}}
    assert first_minute.table(first_minute.calls()).row_count == 2
    assert report.amount(pause, "fad") == "[red]1.00 > 0.1[/]"
    (written, _) = report.as_json([pause, total])["measurements"]
    assert written["limit"] == 0.1 and written["missed"] == ["fad"]


@pytest.mark.parametrize("library", ["nodes", "torch"])
def test_a_process_says_how_long_each_call_took(library: str) -> None:
    times = first_minute.in_a_process("adaptive solver", library)
    assert len(times) == first_minute.CALLS and min(times) > 0.0


def test_the_second_process_is_compared_with_one_that_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[str, bool]] = []

    def run(program: str, library: str, folder: str | None = None) -> float:
        started.append((library, folder is not None))
        second = folder is not None and started[-2][1]
        return 3.0 if second else 4.0 + (library == "jax")

    monkeypatch.setattr(processes, "first_call", run)
    name = "adaptive solver"
    rows = [scenario for scenario in processes.SCENARIOS if scenario.work == name]
    first, second = (timing.measure(row, ["fad", "jax"], 2, 0.0) for row in rows)
    assert started == [("fad", False), ("jax", False)] * 2 + [("fad", True)] * 4
    assert first.fastest == {"fad": 4.0, "jax": 5.0} and not first.missed
    assert second.fastest == {"fad": 0.75} and second.missed == ["fad"]


@pytest.mark.parametrize("library", ["fad", "jax"])
def test_the_first_call_of_a_program_is_timed_in_a_process_of_its_own(
    library: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "kept") if library == "fad" else None
    assert processes.first_call("adaptive solver", library, folder) > 0.0
    assert (tmp_path / "kept").exists() == (library == "fad")


def test_settling_waits_until_nothing_more_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    queue = [1, 1, 1]  # what is queued by the third call, at each call of cache_info

    def cache_info() -> dict[str, int]:
        queued = queue.pop() if len(calls) == 3 and queue else 0
        return {"compiled": int(len(calls) > 2), "queued": queued}

    monkeypatch.setattr(fad.autograd.compiled, "cache_info", cache_info)
    assert timing.settle(lambda: calls.append(0))
    assert len(calls) == 3 + timing.QUIET and not queue
    monkeypatch.setattr(fad.autograd.compiled, "cache_info", lambda: {"compiled": len(calls)})
    assert not timing.settle(lambda: calls.append(0), limit=0.01)


def test_long_rows_run_when_selected_and_a_table_by_its_title(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        program,
        "measure",
        lambda scenario, *rest: timing.Measurement(scenario, {"fad": 1.0}, {"fad": 1.0}, {}),
    )
    for words, long in (([], False), (["--long"], True), (["--check"], True)):
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "the first minute", *words])
        program.main()
        printed = capsys.readouterr().out
        assert "12,000 operations in a row" in printed and "small net" not in printed
        assert ("100,000 operations in a row" in printed) is long


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


def test_every_library_is_timed_interleaved(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def build(library):
        def call():
            order.append(library.name)
            return library.asarray(np.zeros(1))

        return call

    # One repeat a round, whatever the call takes.
    monkeypatch.setattr(timing, "spend", lambda call, *rest: call() is not None)
    every = tuple(LIBRARIES)
    row = timing.measure(Scenario("work", "what", build, every), every, 3, 1.0)
    assert set(row.median) == set(row.first) == set(every)
    n = len(every)
    rounds = [set(order[k : k + n]) for k in range(len(order) - 3 * n, len(order), n)]
    assert rounds == [set(every)] * 3
