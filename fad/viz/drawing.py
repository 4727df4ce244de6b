"""A graph as SVG, and as one HTML page that can be zoomed and folded."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from fad.viz.folding import Box, Folded
from fad.viz.layout import LINE, PAD, Plan, coordinates, plan_of
from fad.viz.nodes import KINDS, Drawn, NodeView
from fad.viz.text import COLORS, heading, label

__all__ = ["Line", "lines_of", "page", "path_of", "svg"]

BUDGET = 3000  # boxes of a page, those in closed boxes included


def styles() -> str:
    """The style sheet of a picture."""
    rules = [
        "text { font: 11px Helvetica, Arial, sans-serif; fill: #263238; }",
        "text .name { font-weight: bold; }",
        "rect { stroke-width: 1; }",
        ".edge { fill: none; stroke: #607d8b; }",
        ".times { font-size: 10px; fill: #607d8b; }",
        ".frame > rect { fill: #90a4ae; fill-opacity: 0.12; stroke: #78909c; stroke-dasharray: 4 3; }",
        ".result > rect { stroke-width: 2.5; }",
    ]
    for kind, (fill, border) in COLORS.items():
        rules.append(f".{kind} > rect {{ fill: {fill}; stroke: {border}; }}")
    return "\n".join(rules)


class Line:
    """An edge as it is drawn: the numbers of its ends, the points that it goes through, and how often."""

    def __init__(
        self, ends: tuple[int, int], points: list[tuple[float, float]], count: int
    ) -> None:
        self.ends = ends
        self.points = points
        self.count = count


def lines_of(plan: Plan, at: dict[int, tuple[float, float, float, float]]) -> list[Line]:
    """The edges between what can be seen."""
    by_number = {box.number: box for box in plan.boxes}
    counts: dict[tuple[int, int], int] = {}
    ways: dict[tuple[int, int], list[int]] = {}
    for (a, b), count in plan.edges.items():
        here, there = _seen(by_number[a].path()), _seen(by_number[b].path())
        key = (here[-1].number, there[-1].number)
        if key[0] != key[1]:
            counts[key] = counts.get(key, 0) + count
            ways[key] = plan.way(here, there)
    found = []
    for (a, b), count in counts.items():
        x, y, w, h = at[a]
        u, v, width, _ = at[b]
        middle = [(at[n][0], at[n][1] + part * at[n][3]) for n in ways[a, b] for part in (0, 1)]
        found.append(Line((a, b), [(x + w / 2, y + h), *middle, (u + width / 2, v)], count))
    return found


def _seen(path: Sequence[Box]) -> Sequence[Box]:
    """A path up to the first box that is not open."""
    shut = (k for k, box in enumerate(path, 1) if not (box.open and box.children))
    return path[: next(shut, len(path))]


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """An SVG path through points, vertical at each."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (x, y), (u, v) in itertools.pairwise(points):
        m = (y + v) / 2
        parts.append(f"C{x:.1f} {m:.1f} {u:.1f} {m:.1f} {u:.1f} {v:.1f}")
    return "".join(parts)


def svg(drawn: Drawn, folded: Folded, plan: Plan | None = None) -> str:
    """The graph as SVG: what can be seen; with a plan, all boxes of that, hidden in part."""
    shown_only = plan is None
    if plan is None:
        plan = plan_of(drawn, folded, 0)
    at = coordinates(plan)
    lines = lines_of(plan, at)
    _, _, width, height = at[0]
    width, height = max(width, 300.0), height + 26 if drawn.nodes else 60.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 -8 {width:.0f} {height:.0f}" class="fad" '
        'style="background: white">',
        f"<style>{styles()}</style>",
        '<defs><marker id="fad-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#607d8b"/></marker></defs>',
        f'<text x="{PAD}" y="12" class="heading">{html.escape(heading(drawn))}</text>',
    ]
    boxes = [box for box in plan.boxes[1:] if box.number in at or not shown_only]
    parts += [_box(box, drawn, plan, at) for box in boxes if box.number in plan.spots]
    parts.append('<g class="edges">')
    for line in lines:
        a, b = line.ends
        parts.append(
            f'<path class="edge" data-from="{a}" data-to="{b}" d="{path_of(line.points)}" '
            'marker-end="url(#fad-arrow)"/>'
        )
        if line.count > 1:
            x, y = line.points[-1]
            parts.append(
                f'<text class="times" x="{x + 4:.1f}" y="{y - 8:.1f}">{line.count}×</text>'
            )
    parts.append("</g>")
    parts += [_box(box, drawn, plan, at) for box in boxes if box.number not in plan.spots]
    return "\n".join([*parts, "</svg>"])


def _box(
    box: Box, drawn: Drawn, plan: Plan, at: dict[int, tuple[float, float, float, float]]
) -> str:
    """One box; what is in a closed box is there, and hidden."""
    x, y, w, h = at.get(box.number, (0.0, 0.0, *plan.sizes[box.number]))
    hidden = "" if box.number in at else ' style="display:none"'
    if box.node is None:
        kind, lines, tip = "box", [box.title], ""
        kind += " frame" if box.open and box.number in plan.spots else ""
        kind += " opens" if box.number in plan.spots else ""
    else:
        node = drawn.nodes[box.node]
        kind, lines, tip = node.kind, label(node), _tip(node)
        kind += " result" if node.results else ""
    spans = [
        f'<tspan x="8" y="{16 + k * LINE:.0f}"{" class=" + chr(34) + "name" + chr(34) if not k else ""}>'
        f"{html.escape(line)}</tspan>"
        for k, line in enumerate(lines)
    ]
    return (
        f'<g class="{kind}" id="b{box.number}" transform="translate({x:.1f} {y:.1f})"{hidden}>'
        f'<rect rx="5" width="{w:.1f}" height="{h:.1f}"/>'
        f"<text>{''.join(spans)}</text><title>{html.escape(tip or box.title)}</title></g>"
    )


def _tip(node: NodeView) -> str:
    """What is said of a node when the pointer is on it."""
    where = f"level {node.level} ({node.level_kind})"
    return "\n".join([node.name, KINDS[node.kind], where, *label(node)[1:]])


# The page


def page(drawn: Drawn, folded: Folded) -> str:
    """The graph as one HTML file, which needs no network."""
    plan = plan_of(drawn, folded, BUDGET)
    files = resources.files("fad.viz")
    kinds = dict.fromkeys([node.kind for node in drawn.nodes])
    legend = "".join(
        [f'<span class="{kind}" title="{KINDS[kind]}">{kind}</span>' for kind in kinds]
    )
    text = files.joinpath("page.html").read_text(encoding="utf-8")
    for name, value in {
        "LEGEND": legend,
        "COLORS": "\n".join(
            f"#legend .{k} {{ background: {fill}; border-color: {border}; }}"
            for k, (fill, border) in COLORS.items()
        ),
        "SVG": svg(drawn, folded, plan),
        "DATA": json.dumps(_data(plan)).replace("<", "\\u003c"),
        "SCRIPT": files.joinpath("page.js").read_text(encoding="utf-8"),
    }.items():
        text = text.replace(f"@{name}@", value)
    return text


def _data(plan: Plan) -> dict[str, Any]:
    """The plan, for the script of the page."""
    return {
        "boxes": [
            [b.number, -1 if b.parent is None else b.parent.number, *plan.sizes[b.number], b.open]
            for b in plan.boxes
        ],
        "spots": {n: [[s.number, s.row, s.x] for s in spots] for n, spots in plan.spots.items()},
        "routes": [[a, b, *bends] for (a, b), bends in plan.routes.items()],
        "ports": [[a, b, port] for (a, b), port in plan.ports.items()],
        "edges": [[a, b, count] for (a, b), count in plan.edges.items()],
    }
