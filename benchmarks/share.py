"""What one machine gives, to be shown to others: the machine, the versions, the tables, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.libraries import LIBRARIES
from benchmarks.report import as_markdown, environment
from benchmarks.timing import Measurement

matplotlib.use("Agg")  # before pyplot looks for a screen
from matplotlib import pyplot as plt

__all__ = ["ratios", "save_picture", "write"]

PEERS = {"torch": "#c1440e", "jax": "#1f5fa8"}

TIMES = ("µs", "µs each", "ms", "ms a call", "s")  # the units of rows that measure times

Tables = Mapping[str, Sequence[Measurement]]


def ratios(rows: Sequence[Measurement], peer: str) -> list[float]:
    """fad's time over a peer's, of each row that measures a time in both."""
    timed = [row for row in rows if row.scenario.unit in TIMES]
    return [ratio for row in timed if (ratio := row.ratio(peer)) is not None]


def save_picture(tables: Tables, path: Path) -> None:
    """A point for each row by group, on a log scale, and their geometric mean as a line."""
    groups = [title for title, rows in tables.items() if any(ratios(rows, p) for p in PEERS)]
    figure, axes = plt.subplots(figsize=(8.0, 1.4 + 0.42 * len(groups)), layout="constrained")
    for height, title in enumerate(reversed(groups)):
        for offset, (peer, colour) in zip((0.16, -0.16), PEERS.items()):
            found = np.array(ratios(tables[title], peer))
            if not found.size:
                continue
            y = height + offset
            axes.scatter(found, np.full(found.size, y), s=22, color=colour, alpha=0.55, lw=0)
            mean = float(np.exp(np.log(found).mean()))
            axes.plot([mean, mean], [y - 0.15, y + 0.15], color=colour, lw=2.5)
    for peer, colour in PEERS.items():
        axes.scatter([], [], s=22, color=colour, label=f"against {LIBRARIES[peer].title}")
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(groups)), list(reversed(groups)))
    axes.set_xlabel(
        "time in fad / time in the other library (line: geometric mean); left is faster"
    )
    axes.grid(axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper right", frameon=False, ncols=len(PEERS))
    figure.savefig(path, dpi=160, facecolor="white")
    plt.close(figure)


def write(tables: Tables, libraries: Sequence[str], clock: str, folder: Path) -> str:
    """Writes `ratios.png` and `benchmarks.md` to the folder; returns the text of the second."""
    folder.mkdir(parents=True, exist_ok=True)
    save_picture(tables, folder / "ratios.png")
    about = "\n".join(f"| {name} | {value} |" for name, value in environment().items())
    parts = [
        "# What fad takes here",
        f"| | |\n| --- | --- |\n{about}\n| clock | {clock} |",
        "The fastest of short turns, taken by the libraries by turns in one process. "
        "Where a ratio is below 1, fad takes less. A value with a sign behind it has a bound.",
        "![Ratios by group, on a log scale](ratios.png)",
        *(f"## {title}\n\n{as_markdown(rows, libraries)}" for title, rows in tables.items()),
    ]
    text = "\n\n".join(parts) + "\n"
    (folder / "benchmarks.md").write_text(text)
    return text
