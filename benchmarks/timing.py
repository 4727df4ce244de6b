"""Times of a Scenario in every library, taken in turns so that a slow moment hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.libraries import LIBRARIES
from benchmarks.scenarios import Scenario

__all__ = ["Measurement", "check", "measure"]


@dataclass(frozen=True)
class Measurement:
    """Seconds per call of one Scenario: medians, fastest rounds, and the very first call."""

    scenario: Scenario
    median: dict[str, float]
    fastest: dict[str, float]
    first: dict[str, float]

    def ratio(self, other: str) -> float | None:
        """fad's time over the other library's."""
        if other not in self.median or "fad" not in self.median:
            return None
        return self.median["fad"] / self.median[other]

    @property
    def missed(self) -> list[str]:
        """The libraries whose bound this measurement does not keep."""
        ratios = {other: self.ratio(other) for other in self.scenario.bounds}
        return [k for k, r in ratios.items() if r is not None and r > self.scenario.bounds[k]]


def flat(result: Any) -> list[np.ndarray]:
    """The arrays of a result, as NumPy's; results are arrays or (nested) tuples of them."""
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in flat(part)]
    return [np.asarray(result)]


def check(scenario: Scenario, results: dict[str, Any]) -> None:
    """Raises where the libraries did not compute the same."""
    arrays = {name: flat(result) for name, result in results.items()}
    reference, *others = arrays
    for other in others:
        for x, y in zip(arrays[reference], arrays[other], strict=True):
            # The scale is the array's: single entries may be small differences of large terms.
            scale = max(float(np.max(np.abs(x))), 1e-6)
            if x.shape != y.shape or not np.max(np.abs(x - y)) <= 1e-3 * scale:
                raise AssertionError(
                    f"{scenario.name}: {reference} and {other} differ: {x!r} and {y!r}"
                )


def measure(
    scenario: Scenario, libraries: Sequence[str], rounds: int, seconds: float
) -> Measurement:
    """Medians over `rounds` turns; in each, every library repeats its call for about `seconds`."""
    names = [name for name in libraries if name in scenario.libraries]
    calls: dict[str, Callable[[], Any]] = {}
    repeats: dict[str, int] = {}
    first: dict[str, float] = {}
    results: dict[str, Any] = {}
    for name in names:
        call, wait = scenario.build(LIBRARIES[name]), LIBRARIES[name].wait
        calls[name] = lambda call=call, wait=wait: wait(call())
        start = time.perf_counter()
        results[name] = calls[name]()
        first[name] = time.perf_counter() - start
        few = first[name] < 0.5 and spend(calls[name], 5) < 0.1
        repeats[name] = max(1, round(seconds / spend(calls[name], 3))) if few else 1
    check(scenario, results)

    times: dict[str, list[float]] = {name: [] for name in names}
    # What exists already is not looked at by the collections that happen while we measure.
    gc.collect()
    gc.freeze()
    try:
        for turn in range(rounds):
            start_at = turn % len(names)
            for name in names[start_at:] + names[:start_at]:
                times[name].append(spend(calls[name], repeats[name]))
    finally:
        gc.unfreeze()
    return Measurement(
        scenario,
        {name: statistics.median(times[name]) for name in names},
        {name: min(times[name]) for name in names},
        first,
    )


def spend(call: Callable[[], Any], repeats: int) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
