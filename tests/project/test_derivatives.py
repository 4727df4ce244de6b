"""A derivative costs what JAX's costs, by counts alone: a sample of the names; `--full` runs them all."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import pytest

import fad.numpy as fnp
from fad.formulas import SMOOTH

pytest.importorskip("rich", reason="the benchmarks print with it (extra: bench)")

from benchmarks import derivatives
from benchmarks.derivatives import (
    COUNTED,
    EXCEPTIONS,
    NAMES,
    WITHIN,
    Cost,
    NoDerivative,
    costs,
)

MENDED = [
    name
    for name in NAMES
    if name.partition(",")[0].rpartition(".")[2]
    in SMOOTH.get(f"jax.{name.partition(',')[0].rpartition('.')[0]}", {})
]


@pytest.fixture(autouse=True)
def _room() -> None:
    """A whole sweep compiles more programs than one process may keep."""
    jax.clear_caches()


def check(name: str) -> None:
    try:
        found = costs(name, clock=False)
    except NoDerivative:
        return
    assert not [cost for cost in found if cost.above], found


@pytest.mark.sweep("name", NAMES, sample=4)
def test_a_derivative_costs_what_that_of_jax_costs(name: str) -> None:
    check(name)


@pytest.mark.sweep("name", MENDED, sample=4)
def test_a_mended_derivative_costs_what_that_of_jax_costs(name: str) -> None:
    check(name)


def test_the_program_lists_what_it_does_not_cover(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = derivatives.uncovered()
    assert "lax.psum" in missing and "lax.scan" not in missing
    words = ["derivatives", "--only", "numpy.floor_divide", "numpy.nextafter", "--check"]
    monkeypatch.setattr("sys.argv", words)
    assert derivatives.main() == 0
    printed = capsys.readouterr().out
    assert "numpy.nextafter" in printed and "above the rule: none" in printed
    assert all(f"not covered: {name}:" in printed for name in missing)


def test_a_process_that_ends_costs_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derivatives, "_outcome", eval)
    ends, variables = "__import__('os')._exit(1)", None  # of eval, in place of the clock
    outcomes: dict[str, Any] = dict(
        derivatives._outcomes(["1 + 1", ends, "2 + 2"], variables)  # type: ignore[arg-type]
    )
    assert outcomes.pop(ends).endswith("GB to compile") and list(outcomes.values()) == [2, 4]


def test_what_costs_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def sines(x: Any) -> Any:
        return functools.reduce(lambda x, k: fnp.sin(x + k), range(8), x)

    form = derivatives.FORMS["numpy.power, by 3"]
    costly = form._replace(ours=lambda x: form.ours(x) + 1e-3 * sines(x))
    monkeypatch.setitem(derivatives.FORMS, "numpy.power, by 3", costly)
    first = costs("numpy.power, by 3", clock=False)[0]
    assert first.counted > COUNTED and first.time is None and first.above


def test_the_rule_asks_for_counts_or_time() -> None:
    cost = Cost("numpy.sin", "gradient", {"flops": 1.3, "calls": 1.0})
    assert cost.above and not replace(cost, time=1.05).above and replace(cost, time=1.2).above
    excepted = replace(cost, name="numpy.linalg.cond")
    assert not excepted.above and replace(excepted, ratios={"flops": 1.6}).above


def test_without_a_clock_the_table_of_what_is_within_by_time_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost = Cost("numpy.sin", "gradient", {"flops": 1.3, "calls": 1.0})
    monkeypatch.setitem(WITHIN, "numpy.sin", 1.3)
    assert not cost.above and replace(cost, ratios={"flops": 1.31}).above
    assert replace(cost, time=1.2).above  # what is measured decides


def test_the_page_has_the_exceptions() -> None:
    text = derivatives.PAGE.read_text()
    assert derivatives.written(text) == text, "run python -m benchmarks.derivatives --write"
    assert {*EXCEPTIONS, *WITHIN} <= set(NAMES)
