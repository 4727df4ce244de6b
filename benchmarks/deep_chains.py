"""Deep graphs: time per node to build, run and free a chain: `python -m benchmarks.deep_chains`."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import fad
from benchmarks.report import environment

__all__ = ["LENGTHS", "Chain", "flatness", "measure"]

LENGTHS = (10_000, 100_000, 1_000_000)
PHASES = ("build", "backward", "free")


@dataclass(frozen=True)
class Chain:
    """What a chain of ``length`` nodes takes: microseconds per node."""

    length: int
    build: float
    backward: float
    free: float


def measure(length: int) -> Chain:
    """Add one to a number ``length`` times, go back through the graph, and let it go."""
    x = fad.tensor(1.0, requires_grad=True)
    gc.collect()
    start = time.perf_counter()
    y = x
    for _ in range(length):
        y = y + 1.0
    built = time.perf_counter()
    y.backward()
    ran = time.perf_counter()
    del y
    freed = time.perf_counter()
    assert float(x.grad) == 1.0
    times = [(b - a) / length * 1e6 for a, b in ((start, built), (built, ran), (ran, freed))]
    return Chain(length, *times)


def best(chains: Sequence[Chain]) -> Chain:
    """The least time of each phase: what others do on the machine only adds."""
    least = [min(getattr(c, phase) for c in chains) for phase in PHASES]
    return Chain(chains[0].length, *least)


def flatness(chains: Sequence[Chain]) -> dict[str, float]:
    """The largest time per node over the smallest, for each phase; 1 is exactly linear."""
    return {
        phase: max(getattr(c, phase) for c in chains) / min(getattr(c, phase) for c in chains)
        for phase in PHASES
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deep_chains", description=__doc__)
    parser.add_argument("lengths", nargs="*", type=int, help="numbers of nodes", default=LENGTHS)
    parser.add_argument(
        "--rounds", type=int, default=3, help="runs of each, of which the best counts"
    )
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    parser.add_argument("--check", action="store_true", help="fail if a phase is not flat within 2")
    options = parser.parse_args()
    console = Console()
    measure(1_000)  # compiles the operation
    chains = []
    for length in options.lengths:
        rounds = options.rounds if length <= 100_000 else 1
        chains.append(best([measure(length) for _ in range(rounds)]))
        console.print(f"{length:,} nodes done", style="dim")
    table = Table("nodes", *[f"{phase}, µs/node" for phase in PHASES])
    for chain in chains:
        table.add_row(f"{chain.length:,}", *[f"{getattr(chain, p):.2f}" for p in PHASES])
    flat = flatness(chains)
    table.add_row("largest / smallest", *[f"{flat[p]:.2f}" for p in PHASES], end_section=True)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in environment().items()))
    if options.json:
        found = {"chains": [asdict(c) for c in chains], "flatness": flat, **environment()}
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False))
    return 1 if options.check and max(flat.values()) > 2.0 else 0


if __name__ == "__main__":
    raise SystemExit(main())
