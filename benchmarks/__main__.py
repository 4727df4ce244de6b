"""Runs the benchmarks: `python -m benchmarks [--only TEXT] [--json FILE] [--check] [--share [FOLDER]]`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import torch
from rich.console import Console

from benchmarks import first_minute, growth, share
from benchmarks.libraries import LIBRARIES, gpu
from benchmarks.report import as_json, as_markdown, environment, table
from benchmarks.suite import TABLES
from benchmarks.timing import Measurement, measure

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        default="",
        help="the scenarios whose name contains this, or those of the table with this title",
    )
    parser.add_argument("--list", action="store_true", help="print the scenarios' names and stop")
    parser.add_argument(
        "--libraries",
        nargs="+",
        choices=list(LIBRARIES),
        default=list(LIBRARIES),
        help="which to run",
    )
    parser.add_argument("--rounds", type=int, default=40, help="turns that each library gets")
    parser.add_argument("--seconds", type=float, default=0.004, help="length of a turn")
    parser.add_argument(
        "--limit",
        type=float,
        default=15.0,
        help="seconds after which a scenario gets no more turns",
    )
    parser.add_argument(
        "--clock",
        choices=list(CLOCKS),
        default="wall",
        help="cpu: the CPU time of all threads, for a machine that others use too",
    )
    parser.add_argument(
        "--torch-threads",
        type=int,
        default=1,
        help="arrays are small: more threads only make PyTorch slower where cores are busy",
    )
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    parser.add_argument("--markdown", type=Path, help="write the tables to this file, for the docs")
    parser.add_argument(
        "--share",
        type=Path,
        nargs="?",
        const=Path("build/benchmarks"),
        metavar="FOLDER",
        help="write machine, versions, tables and a picture of the ratios to a folder, and print the text",
    )
    parser.add_argument("--check", action="store_true", help="fail where a bound is not kept")
    parser.add_argument(
        "--growth", action="store_true", help="how costs grow with depth, nesting and batches, too"
    )
    parser.add_argument(
        "--long", action="store_true", help="the long scenarios too, as with --check and --list"
    )
    options = parser.parse_args()
    long = options.long or options.check or options.list
    tables = {
        title: [
            s
            for s in scenarios
            if (options.only in s.name or options.only == title) and (long or not s.long)
        ]
        for title, scenarios in TABLES.items()
    }
    if options.list:
        print("\n".join(scenario.name for scenarios in tables.values() for scenario in scenarios))
        return 0
    if not any(tables.values()):
        parser.error(f"no scenario's name contains {options.only!r}; see --list")

    torch.set_num_threads(options.torch_threads)
    if gpu() is not None:  # rows for a GPU say so, all others are for the processor
        jax.config.update("jax_default_device", jax.devices("cpu")[0])
    console = Console()
    # A file or a pipe is as wide as the table needs.
    console.width = console.width if console.is_terminal else 140
    measured: dict[str, list[Measurement]] = {}
    for title, scenarios in tables.items():
        if scenarios:
            with console.status(title):
                rows = [
                    measure(
                        scenario,
                        options.libraries,
                        options.rounds,
                        options.seconds,
                        options.limit,
                        CLOCKS[options.clock],
                    )
                    for scenario in scenarios
                ]
            console.print(table(title, rows, options.libraries))
            measured[title] = rows
    measurements = [row for rows in measured.values() for row in rows]
    every_call = first_minute.calls()
    if every_call:
        console.print(first_minute.table(every_call))
    written = {"clock": options.clock, **as_json(measurements), "calls": every_call}
    if options.growth:
        series = growth.every()
        for one in series:
            console.print(growth.table(one))
        written["growth"] = growth.as_json(series)
    console.print(", ".join(f"{name} {value}" for name, value in environment().items()))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False))
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(
            "\n".join(
                f"{title}\n\n{as_markdown(rows, options.libraries)}\n"
                for title, rows in measured.items()
            )
        )
    if options.share:
        text = share.write(measured, options.libraries, options.clock, options.share)
        print(text, f"\nwritten to {options.share}/", sep="")
    missed = [row for row in measurements if row.missed]
    for row in missed:
        against = ["its own limit" if name == "fad" else name for name in row.missed]
        console.print(f"[red]bound not kept[/]: {row.scenario.name} against {against}")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
