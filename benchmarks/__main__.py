"""Runs the benchmarks: `python -m benchmarks [--only TEXT] [--json FILE] [--check]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from benchmarks import bridge
from benchmarks.libraries import LIBRARIES
from benchmarks.report import as_json, environment, table
from benchmarks.scenarios import SCENARIOS
from benchmarks.timing import measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="the scenarios whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the scenarios' names and stop")
    parser.add_argument(
        "--libraries",
        nargs="+",
        choices=list(LIBRARIES),
        default=list(LIBRARIES),
        help="which to run",
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns that each library gets")
    parser.add_argument("--seconds", type=float, default=0.02, help="length of a turn")
    parser.add_argument(
        "--torch-threads",
        type=int,
        default=1,
        help="arrays are small: more threads only make PyTorch slower where cores are busy",
    )
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    parser.add_argument("--check", action="store_true", help="fail where a bound is not kept")
    options = parser.parse_args()
    scenarios = [
        scenario for scenario in (*SCENARIOS, *bridge.SCENARIOS) if options.only in scenario.name
    ]
    if options.list:
        print("\n".join(scenario.name for scenario in scenarios))
        return 0
    if not scenarios:
        parser.error(f"no scenario's name contains {options.only!r}; see --list")

    torch.set_num_threads(options.torch_threads)
    console = Console()
    # A file or a pipe is as wide as the table needs.
    console.width = console.width if console.is_terminal else 120
    measurements = [
        measure(scenario, options.libraries, options.rounds, options.seconds)
        for scenario in track(scenarios, "measuring", console=console, transient=True)
    ]
    console.print(table(measurements, options.libraries))
    console.print(", ".join(f"{name} {value}" for name, value in environment().items()))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(measurements), indent=2, ensure_ascii=False))
    missed = [row for row in measurements if row.missed]
    for row in missed:
        console.print(f"[red]bound not kept[/]: {row.scenario.name} against {row.missed}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
