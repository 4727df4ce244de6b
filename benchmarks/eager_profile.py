"""Where an eager step of real size spends its time: `python -m benchmarks.eager_profile`.

Steps of `benchmarks.real_sizes`, with replay, beside the same step under `fad.jit`. `fad.autograd.profile`
says how long XLA works for the program of the forward and backward pass, and for the calls that update
parameters; the rest is Python that nothing hides. Each number is the least of interleaved steps.
A second table has a single update, as fad, `jax.jit` with and without donation, and NumPy compute it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import fad
from benchmarks.libraries import FAD
from benchmarks.real_sizes import NETS, Net, compiled, eager

__all__ = ["Shares", "as_markdown", "measure", "measure_update", "update_as_markdown"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
START, END = "<!-- profile of eager steps -->\n", "<!-- end of profile -->\n"
COLUMNS = ("fad.jit of it", "eager step", "its program", "its updates", "the rest")
ROUNDS, WARM = 60, 12
UPDATED = 784 * 512  # the largest parameter of the MLP


@dataclass(frozen=True)
class Shares:
    """Milliseconds of a step under `fad.jit`, of an eager one, and of XLA in the eager one."""

    jit: float
    eager: float
    program: float
    updates: float

    @property
    def rest(self) -> float:
        return max(0.0, self.eager - self.program - self.updates)

    def cells(self) -> Iterator[str]:
        return (f"{ms:.2f}" for ms in (*astuple(self), self.rest))


def _wall(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return 1e3 * (time.perf_counter() - start)


def _in_xla(call: Callable[[], Any]) -> tuple[float, float]:
    """Of the program, and of other calls."""
    with fad.autograd.profile(sync=True) as found:
        jax.block_until_ready(call())
    times = {True: 0.0, False: 0.0}
    for event in found.events():
        times[event.kind == "replayed"] += event.xla / 1e6
    return times[True], times[False]


def measure(net: Net, rounds: int = ROUNDS) -> Shares:
    """The least times of its steps."""
    step, whole = eager(FAD, net), compiled(FAD, net)
    with fad.autograd.compiled(wait=True):
        for _ in range(WARM):
            jax.block_until_ready([step(), whole()])
        found = [(_wall(whole), _wall(step), *_in_xla(step)) for _ in range(rounds)]
    # Where a step is not replayed, other calls do all of the work.
    replayed = [row for row in found if row[2]]
    return Shares(*map(min, zip(*(replayed or found), strict=True)))


def measure_update(size: int, rounds: int = 20 * ROUNDS) -> dict[str, float]:
    """The least microseconds, waited for, of ``w - rate * g`` for ``size`` numbers."""
    values, gradient = np.ones(size, np.float32), np.ones(size, np.float32)
    tensor, given = fad.tensor(values), jnp.asarray(gradient)
    update = jax.jit(lambda w, g: w - 0.01 * g)
    into = jax.jit(lambda w, g: w - 0.01 * g, donate_argnums=0)
    before, smallest = jnp.array(values), jnp.ones(1, np.float32)
    last = jnp.array(values)

    def donated() -> jax.Array:
        nonlocal last
        last = into(last, given)
        return last

    def in_numpy() -> None:
        values[...] -= 0.01 * gradient

    calls: dict[str, Callable[[], Any]] = {
        "w.sub_(g, alpha=rate)": lambda: tensor.sub_(given, alpha=0.01).array,
        "jax.jit": lambda: update(before, given),
        "donated": donated,
        "NumPy": in_numpy,
        "jax.jit, 1 number": lambda: update(smallest, smallest),
    }
    found = [[_wall(call) for call in calls.values()] for _ in range(rounds)]
    return dict(zip(calls, [1e3 * min(column) for column in zip(*found, strict=True)], strict=True))


def as_markdown(rows: Sequence[tuple[str, Shares]]) -> str:
    """The table of docs/performance.md."""
    head = f"| a step, ms | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}\n"
    return head + "".join([f"| {name} | {' | '.join(found.cells())} |\n" for name, found in rows])


def update_as_markdown(size: int, found: dict[str, float]) -> str:
    """The second table of docs/performance.md."""
    head = (
        f"| an update of {size:,} numbers, µs | {' | '.join(found)} |\n|---|{'---|' * len(found)}\n"
    )
    return f"{head}| waited for | {' | '.join(f'{us:.0f}' for us in found.values())} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eager_profile", description=__doc__)
    parser.add_argument("--only", default="", help="nets whose name contains it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="steps of each")
    parser.add_argument("--write", action="store_true", help="the tables, in the docs")
    options = parser.parse_args()
    chosen = [net for net in NETS if options.only in net.name]
    rows = [(net.name, measure(net, options.rounds)) for net in chosen]
    table = Table("a step, ms", *COLUMNS)
    for name, found in rows:
        table.add_row(name, *found.cells())
    update = measure_update(UPDATED)
    second = Table(f"an update of {UPDATED:,} numbers, µs", *update)
    second.add_row("waited for", *[f"{us:.0f}" for us in update.values()])
    Console(width=140).print(table, second)
    if options.write:
        tables = f"{as_markdown(rows)}\n{update_as_markdown(UPDATED, update)}"
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text(before + START + tables + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
