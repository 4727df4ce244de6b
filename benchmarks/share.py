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


def save_picture(tables: Tables, path: Path, about: str) -> None:
    """A point for each row by group, on a log scale; a bar and a number for their geometric mean.

    ``about`` stands below it, small. The background is white, so that it can be read on a dark page too.
    """
    groups = [title for title, rows in tables.items() if any(ratios(rows, p) for p in PEERS)]
    height = 1.9 + 0.46 * len(groups)
    figure, axes = plt.subplots(figsize=(9.5, height))
    figure.subplots_adjust(left=0.27, right=0.97, top=1 - 1.0 / height, bottom=0.85 / height)
    found = [r for rows in tables.values() for peer in PEERS for r in ratios(rows, peer)]
    left, right = min([*found, 0.1]) / 1.6, max([*found, 2.0]) * 2.2
    axes.axvspan(left, 1.0, color="#e9f3ea", lw=0)
    for place, title in enumerate(reversed(groups)):
        for offset, (peer, colour) in zip((0.18, -0.18), PEERS.items()):
            here = np.array(ratios(tables[title], peer))
            if not here.size:
                continue
            y = place + offset
            axes.scatter(here, np.full(here.size, y), s=20, color=colour, alpha=0.4, lw=0)
            mean = float(np.exp(np.log(here).mean()))
            axes.plot([mean, mean], [y - 0.17, y + 0.17], color=colour, lw=3.5, zorder=3)
            axes.text(right * 0.93, y, f"{mean:.2g}", color=colour, ha="right", va="center", size=9)
    axes.axvline(1.0, color="black", lw=1.2)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(-0.6, len(groups) - 0.4)
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(range(len(groups)), list(reversed(groups)))
    axes.grid(axis="x", color="#cccccc", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    top = axes.get_xaxis_transform()
    axes.text(0.93, 1.01, "fad takes less", transform=top, ha="right", va="bottom", color="#2c6e34")
    axes.text(1.07, 1.01, "fad takes more", transform=top, ha="left", va="bottom", color="#555555")
    axes.text(right * 0.93, 1.01, "mean", transform=top, ha="right", va="bottom", color="#555555")
    marks = [
        plt.Line2D([], [], color=colour, marker="o", ms=5, lw=3.5, label=f"{LIBRARIES[p].title}")
        for p, colour in PEERS.items()
    ]
    figure.text(
        0.02, 1 - 0.2 / height, "Time in fad, relative to", size=12, weight="bold", va="top"
    )
    figure.legend(
        handles=marks,
        loc="upper left",
        bbox_to_anchor=(0.29, 1 - 0.08 / height),
        frameon=False,
        ncols=len(PEERS),
        fontsize=12,
        handlelength=1.0,
    )
    figure.text(
        0.98,
        1 - 0.22 / height,
        "each point is a program, each bar the\ngeometric mean of its group",
        size=8.5,
        va="top",
        ha="right",
        color="#555555",
    )
    figure.text(0.02, 0.1 / height, about, size=7.5, va="bottom", color="#555555")
    figure.savefig(path, dpi=160, facecolor="white")
    plt.close(figure)


def _machine(clock: str) -> str:
    """The machine and the versions, in two lines."""
    about = environment()
    machine = ", ".join(str(about.pop(name)) for name in ("processor", "system"))
    cores, device = about.pop("cores"), about.pop("GPU")
    rest = ", ".join(f"{name} {value}" for name, value in about.items())
    return f"{machine}, {cores} core{'s' * (cores != 1)}, GPU: {device}, {clock} time\n{rest}"


def write(tables: Tables, libraries: Sequence[str], clock: str, folder: Path) -> str:
    """Writes `ratios.png` and `benchmarks.md` to the folder; returns the text of the second."""
    folder.mkdir(parents=True, exist_ok=True)
    save_picture(tables, folder / "ratios.png", _machine(clock))
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
