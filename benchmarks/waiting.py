"""What a settled step takes, by what its caller does between two calls: `python -m benchmarks.waiting`.

XLA runs a program of this size in a thread of its own, which looks for more work for some 15 µs when it has
ended, and then sleeps. To wake it takes longer than many a small program runs. So a call that waits for its
result takes more if a few microseconds of Python come before the next one, also that of the functional twin.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.libraries import wait
from benchmarks.processes import output
from benchmarks.steps import STEPS, Step, compiled, functional

__all__ = ["main", "microseconds", "table"]

TURNS, CALLS, WARM = 200, 40, 200
GAPS = (0, 2, 5, 10, 20)  # microseconds


def microseconds(step: Step, gap: float = 0.0, row: int = 1, turns: int = TURNS) -> list[float]:
    """Of a call of the step in fad, and of its twin: the least of short turns, which alternate.

    Arguments:
        gap: microseconds of Python before each call, which are not counted.
        row: the result of each so many calls is waited for.
    """
    calls = [compiled(step)[1], functional(step)[2]]
    for call in itertools.chain.from_iterable([calls] * WARM):
        call()
    turn = lambda call: seconds(call, gap * 1e-6, row)
    times = [[turn(call) for call in calls] for _ in range(turns)]
    return [1e6 * min(of_one) for of_one in zip(*times, strict=True)]


def seconds(call: Callable[[], Any], gap: float, row: int) -> float:
    now = time.perf_counter
    spent = 0.0
    start = now()
    for _ in range(CALLS // row):
        if gap:
            begin = now()
            while now() < begin + gap:
                pass
            spent += now() - begin
        for _ in range(row - 1):
            call()
        wait(call())
    return (now() - start - spent) / (CALLS // row * row)


def in_one_thread(name: str) -> list[float]:
    """The same where XLA runs small programs in the thread that calls them."""
    code = f"""
import jax
jax.config.update("jax_cpu_enable_async_dispatch", False)
from benchmarks.waiting import microseconds, named
print(microseconds(named({name!r})))
"""
    return [float(x) for x in output(code).strip(" []\n").split(",")]


def named(name: str) -> Step:
    return next(step for step in STEPS if step.name == name)


def table(step: Step, turns: int = TURNS) -> dict[str, list[float]]:
    """The two times of each way to call the step."""
    ways = {
        f"waited for, {gap} µs of Python between": microseconds(step, gap, 1, turns) for gap in GAPS
    }
    ways["20 calls, the last one waited for"] = microseconds(step, 0, 20, turns)
    return ways | {"all in the calling thread": in_one_thread(step.name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", default="Adam with hooks", help="its name")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    options = parser.parse_args()
    lines = ["| call | fad | JAX | fad / JAX |", "| --- | --- | --- | --- |"]
    for way, (ours, twin) in table(named(options.step)).items():
        lines.append(f"| {way} | {ours:.0f} µs | {twin:.0f} µs | {ours / twin:.2f} |")
    text = "\n".join(lines)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
