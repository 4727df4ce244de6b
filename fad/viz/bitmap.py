"""A graph as PNG, drawn by matplotlib."""

from __future__ import annotations

import io
import itertools

from fad.viz.drawing import lines_of
from fad.viz.folding import Folded
from fad.viz.layout import LINE, PAD, coordinates, plan_of, viz_library
from fad.viz.nodes import Drawn
from fad.viz.text import COLORS, heading, label

__all__ = ["png"]

_INCH = 96.0  # units of the picture
_LARGEST = 20_000.0  # pixels of a side


def png(drawn: Drawn, folded: Folded) -> bytes:
    """The graph as a PNG file, twice as fine as on the screen where that is not too large.

    Raises:
        MissingLibrary: the libraries of the extra ``viz`` are not installed.
    """
    figures, patches = viz_library("matplotlib.figure"), viz_library("matplotlib.patches")
    paths = viz_library("matplotlib.path")
    plan = plan_of(drawn, folded, 0)
    at = coordinates(plan)
    width, height = max(at[0][2], 300.0), at[0][3] + 26 if drawn.nodes else 40.0
    figure = figures.Figure(figsize=(width / _INCH, height / _INCH), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height - 8, -8))
    axes.axis("off")

    def write(x: float, y: float, text: str, size: float = 8.0, bold: bool = False) -> None:
        font = {"size": size, "weight": "bold" if bold else "normal"}
        axes.text(x, y, text, fontdict=font, va="center", color="#263238", parse_math=False)

    write(PAD, 8, heading(drawn))
    for box in plan.boxes[1:]:
        if box.number not in at:
            continue
        x, y, w, h = at[box.number]
        frame = box.open and box.number in plan.spots
        node = None if box.node is None else drawn.nodes[box.node]
        fill, border = COLORS["box" if node is None else node.kind]
        axes.add_patch(
            patches.FancyBboxPatch(
                (x, y),
                w,
                h,
                boxstyle="round,pad=0,rounding_size=5",
                facecolor="#f4f6f7" if frame else fill,
                edgecolor=border,
                linewidth=1.8 if node is not None and node.results else 0.75,
                linestyle="--" if frame else "-",
                zorder=1 if frame else 3,
            )
        )
        for k, text in enumerate([box.title] if node is None else label(node)):
            write(x + 8, y + 12 + k * LINE, text, bold=not k)
    for line in lines_of(plan, at):
        points = [line.points[0]]
        for (x, y), (u, v) in itertools.pairwise(line.points):
            points += [(x, (y + v) / 2), (u, (y + v) / 2), (u, v)]
        codes = [paths.Path.MOVETO, *[paths.Path.CURVE4] * (len(points) - 1)]
        axes.add_patch(
            patches.FancyArrowPatch(
                path=paths.Path(points, codes),
                arrowstyle="-|>",
                mutation_scale=7,
                color="#607d8b",
                linewidth=0.75,
                zorder=2,
            )
        )
        if line.count > 1:
            x, y = line.points[-1]
            write(x + 4, y - 8, f"{line.count}×", 7.0)
    file = io.BytesIO()
    dpi = min(2 * _INCH, _LARGEST * _INCH / max(width, height))
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()
