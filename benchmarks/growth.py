"""How costs grow: per operation, per level of nesting, per batch: `python -m benchmarks.growth`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import fad
import fad.numpy as fnp
from benchmarks.libraries import FAD, JAX, TORCH, Library
from benchmarks.report import environment
from benchmarks.scenarios import SMALL_NET
from benchmarks.traced import jit
from benchmarks.transforms import nested

__all__ = ["Series", "as_json", "every", "table"]


@dataclass(frozen=True)
class Series:
    """Seconds for each size; ``share`` is what a time is divided by to be told per operation, or lane.

    ``first`` are those of the first call, before anything is compiled for it.
    """

    title: str
    what: str
    sizes: Sequence[int]
    seconds: Sequence[float]
    first: Sequence[float]
    share: Sequence[int]

    @property
    def costs(self) -> list[float]:
        """Seconds for one operation, level or lane."""
        return [s / n for s, n in zip(self.seconds, self.share, strict=True)]

    @property
    def growth(self) -> list[float]:
        """How much each cost is of the one before; 1 is exactly linear."""
        return [b / a for a, b in zip(self.costs, self.costs[1:], strict=False)]


def times(call: Callable[[], Any], budget: float) -> tuple[float, float]:
    """The first call's seconds, and the fastest one's of those that fit into the budget.

    There are a few at least: what is compiled when it repeats is so after a few.
    """
    fad.autograd.compiled.clear_cache()
    found = []
    began = time.perf_counter()
    while len(found) < 200:
        start = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - start)
        spent = time.perf_counter() - began
        if spent > 10.0 * budget or (spent > budget and len(found) >= 12):
            break
    return found[0], min(found)


def series(
    title: str,
    what: str,
    sizes: Sequence[int],
    make: Callable[[int], Callable[[], Any]],
    budget: float,
    share: Callable[[int], int] = lambda size: size,
) -> Series:
    found = [times(make(size), budget) for size in sizes]
    seconds, first = [f[1] for f in found], [f[0] for f in found]
    return Series(title, what, sizes, seconds, first, [share(size) for size in sizes])


def chain(x: Any, length: int) -> Any:
    """So many operations, two by two."""
    for _ in range(length // 2):
        x = fnp.sin(x) * 0.9
    return fnp.sum(x)


def tape(length: int) -> Callable[[], Any]:
    x = fad.tensor(np.ones(8, np.float32), requires_grad=True)

    def call() -> Any:
        x.grad = None
        chain(x, length).backward()
        return x.grad.array

    return call


def transform(length: int) -> Callable[[], Any]:
    x = FAD.asarray(np.ones(8, np.float32))
    gradient = fad.grad(lambda x: chain(x, length))
    return lambda: gradient(x)


def nesting(depth: int, library: Library = FAD) -> Callable[[], Any]:
    f, inputs = SMALL_NET.on(library)
    gradient = nested(library, f, depth)
    return lambda: gradient(*inputs)


def tracing(depth: int, library: Library = FAD) -> Callable[[], Any]:
    def call() -> Any:
        f, inputs = SMALL_NET.on(library)
        return len(jit(library)(nested(library, f, depth)).lower(*inputs).as_text())

    return call


def batch(lanes: int) -> Callable[[], Any]:
    f, (x, *rest) = SMALL_NET.on(FAD)
    batched = fad.vmap(fad.grad(f), (0, *[None] * len(rest)))
    xs = FAD.asarray(np.linspace(-1.0, 1.0, lanes * x.size, dtype=np.float32).reshape(lanes, -1))
    return lambda: batched(xs, *rest)


def every(quick: bool = False, budget: float = 1.0) -> list[Series]:
    """All series; quick ones are short."""
    lengths = [10, 100] if quick else [10, 100, 1_000, 10_000, 100_000]
    depths = [1, 2] if quick else [1, 2, 3, 4]
    lanes = [1, 10] if quick else [1, 10, 100, 1_000, 10_000]
    return [
        series(
            "operations: forward and .backward() on the tape", "operation", lengths, tape, budget
        ),
        series("operations: grad", "operation", lengths, transform, budget),
        *[
            series(f"nesting: grad of ... grad{of}", "level", depths, make, budget)
            for of, make in (
                (" of the small net", nesting),
                (", in PyTorch", lambda depth: nesting(depth, TORCH)),
                (", trace and lower jit", tracing),
                (", trace and lower jit, in JAX", lambda depth: tracing(depth, JAX)),
            )
        ],
        series("batch: vmap∘grad of the small net", "lane", lanes, batch, budget),
    ]


def table(one: Series) -> Table:
    """A row for each size."""
    made = Table(title=f"{one.title}; the fastest call")
    for name in (f"{one.what}s", "first call, ms", "ms", f"µs per {one.what}", "growth"):
        made.add_column(name, justify="right")
    growth = ["-", *[f"{g:.2f}" for g in one.growth]]
    rows = zip(one.sizes, one.first, one.seconds, one.costs, growth, strict=True)
    for size, first, seconds, cost, grown in rows:
        made.add_row(
            f"{size:,}", f"{first * 1e3:,.2f}", f"{seconds * 1e3:,.2f}", f"{cost * 1e6:,.2f}", grown
        )
    return made


def as_json(found: Sequence[Series]) -> list[dict[str, Any]]:
    """The series, with cost and growth."""
    return [{**asdict(s), "costs": s.costs, "growth": s.growth} for s in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the smallest sizes")
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on each size")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    found = every(options.quick, options.seconds)
    for one in found:
        console.print(table(one))
    console.print(", ".join(f"{name} {value}" for name, value in environment().items()))
    if options.json:
        written = {"growth": as_json(found), "environment": environment()}
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
