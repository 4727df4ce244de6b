"""Where boxes stand: rows and places from a layout library, sizes of what is open, and coordinates.

NOTE [two steps]

`plan_of` asks the library `fast_sugiyama` for the rows of what is directly inside of each box, and for the
bends of edges that skip rows, and the ports where they pass the border of a box; this does not depend on what
is open. `arrange` gives coordinates to the boxes of one container, given their sizes. The second step is in
fad/viz/page.js too, which does it again when a reader opens or closes a box: change both.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from fad.errors import MissingLibrary
from fad.viz.folding import Box, Folded
from fad.viz.nodes import Drawn
from fad.viz.text import label

__all__ = [
    "MissingLibrary",
    "Plan",
    "Spot",
    "arrange",
    "coordinates",
    "fork",
    "plan_of",
    "viz_library",
]

GAP, ROW_GAP, PAD, TITLE = 18.0, 30.0, 12.0, 22.0
LETTER, BOLD, LINE = 6.6, 7.8, 14.0  # of letters, the first line being bold, and of lines
STEP = 150.0  # between boxes of one row, as the library has them
_BENDS_OPEN, _BENDS_CLOSED, _BENDS = (
    10_000,
    2_000,
    60_000,
)  # that are asked for: of a box, of all closed ones


def viz_library(name: str) -> Any:
    """A library of the extra ``viz``.

    Raises:
        MissingLibrary: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise MissingLibrary(
            f"fad.viz: a picture needs {library}, which is not installed: pip install "
            f"{library.replace('_', '-')}. Without it there are print(graph), graph.dot() and "
            'graph.json(), and graph.save("graph.dot")'
        ) from error


@dataclasses.dataclass(slots=True)
class Spot:
    """A place in a container: the number of a box; of a bend, or a port in its border, if it is negative."""

    number: int
    row: int
    x: float


@dataclasses.dataclass(slots=True)
class Plan:
    """What a picture is drawn from.

    Attributes:
        boxes: those that are drawn or may be, each behind the one that it is in.
        sizes: width and height of each when closed.
        spots: what is directly inside of a box, by its number.
        routes: the bends of an edge between two boxes of one container.
        ports: where edges pass the border of a box: from inside of the first box to the second, which is
            beside the first; or from the first to inside of the second.
        edges: pairs of boxes, and how many edges of the graph each stands for.
    """

    boxes: list[Box]
    sizes: dict[int, tuple[float, float]]
    spots: dict[int, list[Spot]]
    routes: dict[tuple[int, int], list[int]]
    ports: dict[tuple[int, int], int]
    edges: dict[tuple[int, int], int]

    def way(self, here: Sequence[Box], there: Sequence[Box]) -> list[int]:
        """The bends and ports on the way from a box to another one, both given by their paths."""
        depth = fork(here, there)
        a, b = here[depth].number, there[depth].number
        found = []
        for outer, inner in zip(here[-2 : depth - 1 : -1], here[:depth:-1]):
            if (port := self.ports.get((outer.number, b))) is not None:
                found += [*self.routes.get((inner.number, port), ()), port]
        found += self.routes.get((a, b), ())
        for outer, inner in zip(there[depth:], there[depth + 1 :]):
            if (port := self.ports.get((a, outer.number))) is not None:
                found += [port, *self.routes.get((port, inner.number), ())]
        return found


def fork(here: Sequence[Box], there: Sequence[Box]) -> int:
    """Where two paths part."""
    return next(k for k, (a, b) in enumerate(zip(here, there)) if a is not b)


def plan_of(drawn: Drawn, folded: Folded, budget: int) -> Plan:
    """The plan for what is open, and for as many of the boxes inside of closed ones as ``budget`` allows."""
    boxes = [folded.top]
    inside: set[Box] = {folded.top}
    rows = [[folded.top]]
    for row in rows:
        following: list[Box] = []
        for box in row:
            needed = all([b.open for b in box.path()])
            if box.children and (needed or len(boxes) + len(box.children) <= budget):
                boxes += box.children
                inside.update(box.children)
                following += box.children
        if following:
            rows.append(following)
    boxes.sort(key=lambda box: box.number)
    ends: dict[Box, Box] = {}
    edges: dict[tuple[Box, Box], int] = {}
    for (a, b), count in folded.edges.items():
        for box in (a, b):
            if box not in ends:
                ends[box] = box
                while ends[box] not in inside:
                    parent = ends[box].parent
                    assert parent is not None
                    ends[box] = parent
        key = ends[a], ends[b]
        if key[0] is not key[1]:
            edges[key] = edges.get(key, 0) + count
    plan = Plan(boxes, {}, {}, {}, {}, {(a.number, b.number): n for (a, b), n in edges.items()})
    for box in boxes:
        plan.sizes[box.number] = _size(
            [box.title] if box.node is None else label(drawn.nodes[box.node])
        )
    pairs = _pairs(edges, plan)
    bends, room = -len(plan.ports), _BENDS
    dropped: set[int] = set()
    containers = [box for box in boxes if box.children and box.children[0] in inside]
    for box in sorted(containers, key=lambda box: not box.open):
        own = list(pairs.get(box, ()))
        row_of = _rows(own)
        cost = sum([row_of[b] - row_of[a] for a, b in own])
        if cost <= (_BENDS_OPEN if box.open else min(room, _BENDS_CLOSED)):
            room -= cost
            bends = _spots(box, own, plan, bends)
        else:
            dropped.update([end for pair in own for end in pair if end < 0])
            plan.spots[box.number] = _plain(box, row_of)
    plan.ports = {key: port for key, port in plan.ports.items() if port not in dropped}
    return plan


def _rows(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """A row for each end: below those that lead to it."""
    targets: dict[int, list[int]] = {}
    left: dict[int, int] = {}
    for a, b in pairs:
        targets.setdefault(a, []).append(b)
        left[b] = left.get(b, 0) + 1
    rows = dict.fromkeys([end for pair in pairs for end in pair], 0)
    ready = [end for end in rows if not left.get(end)]
    while ready:
        a = ready.pop()
        for b in targets.get(a, ()):
            rows[b] = max(rows[b], rows[a] + 1)
            left[b] -= 1
            if not left[b]:
                ready.append(b)
    return rows


def _plain(box: Box, rows: dict[int, int]) -> list[Spot]:
    """Places for a tangle that would take the library too long: rows, without bends and ports."""
    in_row: dict[int, list[int]] = {}
    for child in box.children:
        in_row.setdefault(rows.get(child.number, 0), []).append(child.number)
    return [
        Spot(number, row, (k - (len(numbers) - 1) / 2) * STEP)
        for row, numbers in in_row.items()
        for k, number in enumerate(numbers)
    ]


def _pairs(edges: Iterable[tuple[Box, Box]], plan: Plan) -> dict[Box, dict[tuple[int, int], None]]:
    """For each container the edges between the boxes in it, and between these and the ports of its border."""
    found: dict[Box, dict[tuple[int, int], None]] = {}
    for a, b in edges:
        here, there = a.path(), b.path()
        depth = fork(here, there)
        ends = here[depth].number, there[depth].number
        found.setdefault(here[depth - 1], {})[ends] = None
        for outer, inner in zip(here[depth:], here[depth + 1 :]):
            port = plan.ports.setdefault((outer.number, ends[1]), -1 - len(plan.ports))
            found.setdefault(outer, {})[inner.number, port] = None
        for outer, inner in zip(there[depth:], there[depth + 1 :]):
            port = plan.ports.setdefault((ends[0], outer.number), -1 - len(plan.ports))
            found.setdefault(outer, {})[port, inner.number] = None
    return found


def _size(lines: Sequence[str]) -> tuple[float, float]:
    first, *rest = [len(line) for line in lines]
    return max(first * BOLD, max(rest, default=0) * LETTER) + 16, len(lines) * LINE + 10


def _spots(box: Box, pairs: Sequence[tuple[int, int]], plan: Plan, bends: int) -> int:
    """Ask the library for the places inside of a box; returns the number of the last bend."""
    # The library numbers its bends on from the boxes and ports, which are 0, 1, ... for it.
    joined = list(dict.fromkeys([end for pair in pairs for end in pair]))
    place = {number: k for k, number in enumerate(joined)}
    parts: Sequence[Any] = ()
    if pairs:
        library = viz_library("fast_sugiyama")
        numbered = [(place[a], place[b]) for a, b in pairs]
        parts = library.from_edges(
            numbered, vertex_spacing=STEP, dummy_size=20, dummy_vertices=True
        )
    found: list[Spot] = []
    right = 0.0
    # It lists them in any order, at the same places each time.
    for places, links in sorted([(sorted(p[0], key=_from_above), p[3]) for p in parts]):
        bent = [n for n, _ in places if n >= len(joined)]
        names = {n: bends - k for k, n in enumerate(bent, 1)}
        bends -= len(bent)
        names.update({n: joined[n] for n, _ in places if n < len(joined)})
        ys = sorted({y for _, (_, y) in places}, reverse=True)
        rows = {y: k for k, y in enumerate(ys)}
        left = min([x for _, (x, _) in places])
        found += [Spot(names[n], rows[y], x - left + right) for n, (x, y) in places]
        right = max([spot.x for spot in found]) + STEP
        following = {a: b for a, b in links if a >= len(joined)}
        for a, b in links:
            if a < len(joined) <= b:
                route = [names[b]]
                while (b := following[b]) >= len(joined):
                    route.append(names[b])
                plan.routes[joined[a], joined[b]] = route
    known = {spot.number for spot in found}
    for child in box.children:
        if child.number not in known:
            found.append(Spot(child.number, 0, right))
            right += STEP
    plan.spots[box.number] = found
    return bends


def _from_above(place: tuple[int, tuple[float, float]]) -> tuple[float, float, int]:
    number, (x, y) = place
    return -y, x, number


def arrange(
    spots: Sequence[Spot], sizes: dict[int, tuple[float, float]]
) -> tuple[dict[int, tuple[float, float]], tuple[float, float]]:
    """The left upper corner of each box and bend of a container, and the size of all; see the NOTE.

    Bends are as high as their row, which is put into ``sizes``.
    """
    rows: dict[int, list[Spot]] = {}
    for spot in spots:
        rows.setdefault(spot.row, []).append(spot)
    found: dict[int, tuple[float, float]] = {}
    y = 0.0
    for k in sorted(rows):
        row = sorted(rows[k], key=lambda spot: spot.x)
        height = max([sizes.get(spot.number, (0.0, 0.0))[1] for spot in row])
        places: list[float] = []
        free = -1e30
        for spot in row:
            w = sizes.get(spot.number, (0.0, 0.0))[0]
            places.append(max(spot.x, free + w / 2))
            free = places[-1] + w / 2 + GAP
        off = sum([place - spot.x for place, spot in zip(places, row)]) / len(row)
        for place, spot in zip(places, row):
            if spot.number < 0:
                sizes[spot.number] = (0.0, height)
            w, h = sizes[spot.number]
            found[spot.number] = (place - off - w / 2, y + (height - h) / 2)
        y += height + ROW_GAP
    least = min([x for x, _ in found.values()], default=0.0)
    most = max([x + sizes.get(n, (0.0, 0.0))[0] for n, (x, _) in found.items()], default=0.0)
    moved = {number: (x - least, top) for number, (x, top) in found.items()}
    return moved, (most - least, max(0.0, y - ROW_GAP))


def coordinates(plan: Plan) -> dict[int, tuple[float, float, float, float]]:
    """``(x, y, width, height)`` of each box that can be seen, and of each bend."""
    sizes = dict(plan.sizes)
    inner: dict[int, dict[int, tuple[float, float]]] = {}
    for box in reversed(plan.boxes):
        if box.open and box.number in plan.spots:
            inner[box.number], (w, h) = arrange(plan.spots[box.number], sizes)
            wide = max(w, plan.sizes[box.number][0] - 2 * PAD)
            sizes[box.number] = (wide + 2 * PAD, h + 2 * PAD + TITLE)
    found = {0: (0.0, 0.0, *sizes[0])}
    for box in plan.boxes:
        if box.number in inner and box.number in found:
            left, top = found[box.number][0] + PAD, found[box.number][1] + PAD + TITLE
            for number, (x, y) in inner[box.number].items():
                found[number] = (left + x, top + y, *sizes.get(number, (0.0, 0.0)))
    return found
