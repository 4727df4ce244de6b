"""The table, the machine and versions, and the same as JSON."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from benchmarks.libraries import LIBRARIES, gpu
from benchmarks.timing import Measurement

__all__ = ["as_json", "as_markdown", "environment", "table"]


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment() -> dict[str, Any]:
    """What the times depend on: machine and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = {k: v for library in LIBRARIES.values() for k, v in library.versions.items()}
    return {
        "processor": processor(),
        "cores": cores,
        "GPU": gpu().device_kind if gpu() is not None else "none",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        **versions,
        "torch threads": torch.get_num_threads(),
    }


# Of what a table shows to what was measured, in seconds; other units are shown as they are.
FACTORS = {"µs": 1e6, "ms": 1e3, "µs each": 1e6}


def table(title: str, measurements: Sequence[Measurement], libraries: Sequence[str]) -> Table:
    """One row a Scenario: what it takes in each library, and fad's share of the others'."""
    shown = columns(measurements, libraries)
    others = [name for name in shown if name != "fad"]
    made = Table(
        title=f"{title}: the fastest of short turns, and ratios of them; below 1 fad takes less"
    )
    made.add_column("work", no_wrap=True)
    made.add_column("what", no_wrap=True)
    made.add_column("unit", no_wrap=True)
    for name in shown:
        made.add_column(LIBRARIES[name].title, justify="right")
    for name in others:
        made.add_column(f"/ {LIBRARIES[name].title}", justify="right", no_wrap=True)
    previous = None
    for row in measurements:
        scenario = row.scenario
        if previous not in (None, scenario.work):
            made.add_section()
        work = scenario.work if scenario.work != previous else ""
        previous = scenario.work
        values = [amount(row, name) for name in shown]
        ratios = [ratio(row, other) for other in others]
        made.add_row(work, scenario.what, scenario.unit, *values, *ratios)
    return made


def columns(measurements: Sequence[Measurement], libraries: Sequence[str]) -> list[str]:
    """The libraries that a table of these rows has."""
    wanted = {name for row in measurements for name in row.scenario.libraries}
    return [name for name in libraries if name in wanted]


def amount(row: Measurement, name: str) -> str:
    if name not in row.fastest:
        return "-" if row.fastest else "not measured"
    value = row.fastest[name] * FACTORS.get(row.scenario.unit, 1.0)
    text = f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
    if name != "fad" or row.scenario.limit is None:
        return text
    return kept(text, row.scenario.limit, "fad" in row.missed)


def kept(text: str, bound: float, missed: bool) -> str:
    """A value with its bound behind it."""
    colour, sign = ("red", ">") if missed else ("green", "≤")
    return f"[{colour}]{text} {sign} {bound}[/]"


def ratio(row: Measurement, other: str) -> str:
    """The ratio; with the bound behind it, where there is one."""
    value = row.ratio(other)
    if value is None:
        return "-"
    text = f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
    if other not in row.scenario.bounds:
        return text
    return kept(text, row.scenario.bounds[other], other in row.missed)


def as_markdown(measurements: Sequence[Measurement], libraries: Sequence[str]) -> str:
    """The same table in Markdown, for docs/performance.md; a bound that is not kept has a bold sign."""
    shown = columns(measurements, libraries)
    others = [name for name in shown if name != "fad"]
    titles = [LIBRARIES[name].title for name in shown]
    ratios = [f"fad / {LIBRARIES[name].title}" for name in others]
    lines = [["work", "", *titles, *ratios], ["---"] * (2 + len(titles) + len(ratios))]
    previous = ""
    for row in measurements:
        scenario = row.scenario
        values = [amount(row, name) for name in shown]
        unit = _short(scenario.unit) if row.fastest else ""
        units = [v if v == "-" else f"{v} {unit}".rstrip() for v in values]
        cells = [*units, *[ratio(row, other) for other in others]]
        work, previous = ("" if scenario.work == previous else scenario.work), scenario.work
        lines.append([work, scenario.what, *[_plain(c) for c in cells]])
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines])


def _short(unit: str) -> str:
    return "" if unit == "ratio" else unit.removesuffix(" each")


def _plain(cell: str) -> str:
    """A cell without the colours of the terminal."""
    if cell == "-":
        return ""
    missed = "[red]" in cell
    text = re.sub(r"\[/?[a-z]*\]", "", cell)
    return text.replace(" > ", " **>** ") if missed else text


def as_json(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """All that was measured, with machine and versions."""
    return {
        "environment": environment(),
        "statistic": "fastest",
        "measurements": [
            {
                "work": row.scenario.work,
                "what": row.scenario.what,
                "unit": "s" if row.scenario.unit in FACTORS else row.scenario.unit,
                "median": row.median,
                "fastest": row.fastest,
                "first call": row.first,
                "ratios": {k: row.ratio(k) for k in row.median if k != "fad"},
                "bounds": dict(row.scenario.bounds),
                "limit": row.scenario.limit,
                "missed": row.missed,
            }
            for row in measurements
        ],
    }
