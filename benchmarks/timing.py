"""Times of a Scenario in every library, taken in turns so that a slow moment hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import fad
from benchmarks.libraries import Library, gpu, library_on
from benchmarks.scenarios import Scenario

__all__ = ["Measurement", "check", "measure", "settle"]

WARM = 12  # calls before the first turn: what is compiled when it repeats has been so after them
WARMING = 20.0  # seconds that they may take
QUIET = 4  # calls in which nothing more is compiled, before a function counts as settled


@dataclass(frozen=True)
class Measurement:
    """Seconds per call of one Scenario: fastest turns, medians, and the very first call.

    NOTE [which statistic]
    Turns are short, and the fastest one counts: what else runs on the machine only adds to a time, and
    a turn as short as the scheduler's own ones is often left alone. Medians are kept for comparison.
    Where the machine is never quiet, the process' CPU time tells more than the wall clock.
    """

    scenario: Scenario
    median: dict[str, float]
    fastest: dict[str, float]
    first: dict[str, float]

    def ratio(self, other: str) -> float | None:
        """fad's fastest turn over the other library's."""
        if other not in self.fastest or "fad" not in self.fastest:
            return None
        return self.fastest["fad"] / self.fastest[other]

    @property
    def missed(self) -> list[str]:
        """The libraries whose bound this measurement does not keep; "fad", if its own limit is not kept."""
        ratios = {other: self.ratio(other) for other in self.scenario.bounds}
        found = [k for k, r in ratios.items() if r is not None and r > self.scenario.bounds[k]]
        limit = self.scenario.limit
        over = limit is not None and self.fastest.get("fad", limit) > limit
        return [*found, "fad"] if over else found


def flat(result: Any) -> list[np.ndarray]:
    """The arrays of a result, as NumPy's; results are arrays or (nested) tuples of them."""
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in flat(part)]
    return [np.asarray(result.cpu() if isinstance(result, torch.Tensor) else result)]


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
    scenario: Scenario,
    libraries: Sequence[str],
    rounds: int,
    seconds: float,
    limit: float = 60.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Times of `rounds` turns; in each, every library repeats its call for about `seconds`.

    After three turns and `limit` seconds there are no more. fad begins each Scenario with none of its passes
    compiled, and nothing spent on compiling, as a program of its own would. A Scenario for a GPU has no times
    where there is none.
    """
    if scenario.device == "gpu" and gpu() is None:
        return Measurement(scenario, {}, {}, {})
    fad.autograd.compiled.clear_cache()
    chosen = {
        name: library_on(scenario.device, name) for name in libraries if name in scenario.libraries
    }
    names = list(chosen)
    if scenario.unit != "µs":
        return read(scenario, chosen, min(rounds, scenario.turns))
    calls: dict[str, Callable[[], Any]] = {}
    repeats: dict[str, int] = {}
    first: dict[str, float] = {}
    results: dict[str, Any] = {}
    for name, library in chosen.items():
        with library.around():
            call, wait = scenario.build(library), library.wait
            calls[name] = lambda call=call, wait=wait: wait(call())
            start = time.perf_counter()
            result = calls[name]()
            first[name] = time.perf_counter() - start
            results[name] = [x.copy() for x in flat(result)]  # later calls may write to them
            warm = 1
            while warm < WARM and time.perf_counter() - start < WARMING:
                calls[name]()
                warm += 1
            if name == "fad":
                settle(calls[name], WARMING - (time.perf_counter() - start))
            repeats[name] = max(1, round(seconds / max(spend(calls[name], 1), 1e-7)))
    check(scenario, results)

    times: dict[str, list[float]] = {name: [] for name in names}
    # What exists already is not looked at by the collections that happen while we measure.
    gc.collect()
    gc.freeze()
    began = time.perf_counter()
    try:
        for turn in range(rounds):
            start_at = turn % len(names)
            for name in names[start_at:] + names[:start_at]:
                with chosen[name].around():
                    times[name].append(spend(calls[name], repeats[name], clock))
            if turn >= 2 and time.perf_counter() - began > limit:
                break
    finally:
        gc.unfreeze()
    return summary(scenario, times, first)


def read(scenario: Scenario, libraries: Mapping[str, Library], turns: int) -> Measurement:
    """What the calls of a Scenario say themselves: sizes, or times of other processes."""
    calls = {name: scenario.build(library) for name, library in libraries.items()}
    values: dict[str, list[Any]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            values[name].append(call())
    if scenario.summarize is not None:
        values = {name: [value] for name, value in scenario.summarize(values).items()}
    return summary(scenario, values, {name: found[0] for name, found in values.items()})


def summary(
    scenario: Scenario, values: dict[str, list[float]], first: dict[str, float]
) -> Measurement:
    median = {name: statistics.median(found) for name, found in values.items()}
    return Measurement(scenario, median, {k: min(found) for k, found in values.items()}, first)


def spend(
    call: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds per call."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def settle(call: Callable[[], Any], limit: float = WARMING) -> bool:
    """Call until nothing more is compiled for it, also not in the background.

    False if that has not happened after ``limit`` seconds.
    """
    end = time.perf_counter() + limit
    before, quiet = None, 0
    with fad.autograd.compiled(wait=True):  # long programs too, which are compiled later else
        for _ in range(2):
            call()
    while quiet < QUIET:
        if time.perf_counter() >= end:
            return False
        call()
        while queued() and time.perf_counter() < end:
            time.sleep(0.002)
        now = fad.autograd.compiled.cache_info()["compiled"]
        quiet = quiet + 1 if now == before else 0
        before = now
    return True


def queued() -> int:
    """How many programs are waiting to be compiled, or being compiled, in the background."""
    return fad.autograd.compiled.cache_info().get("queued", 0)
