"""The table, the machine and versions, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from benchmarks.libraries import LIBRARIES
from benchmarks.timing import Measurement

__all__ = ["as_json", "environment", "table"]


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
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        **versions,
        "torch threads": torch.get_num_threads(),
    }


def table(measurements: Sequence[Measurement], libraries: Sequence[str]) -> Table:
    """One row a Scenario: microseconds in each library, and fad's time over the others'."""
    others = [name for name in libraries if name != "fad"]
    made = Table(title="microseconds a call, medians; ratios below 1 are in fad's favour")
    made.add_column("work", no_wrap=True)
    made.add_column("transform", no_wrap=True)
    for name in libraries:
        made.add_column(LIBRARIES[name].title, justify="right")
    for name in others:
        made.add_column(f"fad / {LIBRARIES[name].title}", justify="right")
    previous = None
    for row in measurements:
        if previous not in (None, row.scenario.work):
            made.add_section()
        work = row.scenario.work if row.scenario.work != previous else ""
        previous = row.scenario.work
        times = [f"{row.median[k] * 1e6:,.0f}" if k in row.median else "-" for k in libraries]
        made.add_row(work, row.scenario.what, *times, *(ratio(row, other) for other in others))
    return made


def ratio(row: Measurement, other: str) -> str:
    value = row.ratio(other)
    if value is None:
        return "-"
    text = f"{value:.3f}" if value < 0.1 else f"{value:.2f}"
    if other in row.missed:
        return f"[red]{text} > {row.scenario.bounds[other]}[/]"
    return f"[green]{text}[/]" if value < 1 else text


def as_json(measurements: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "environment": environment(),
        "unit": "seconds",
        "measurements": [
            {
                "work": row.scenario.work,
                "what": row.scenario.what,
                "median": row.median,
                "fastest": row.fastest,
                "first call": row.first,
                "ratios": {k: row.ratio(k) for k in row.median if k != "fad"},
                "bounds": dict(row.scenario.bounds),
            }
            for row in measurements
        ],
    }
