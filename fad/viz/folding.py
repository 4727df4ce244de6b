"""Folding: what repeats becomes one frame, what is too long one box, so that a picture stays small.

NOTE [frames]

The nodes of one level, in order, are a sequence. Where a stretch of it repeats (the same operations on the
same shapes, connected in the same way, as the turns of a loop or the layers of a network), a *frame* stands
around the first copy, and one box stands for the others. Frames repeat too, so loops in loops are frames in
frames. What is still too long is cut into boxes of so many nodes, which may be opened. All of them are
intervals of one topological order, so the folded graph has no circles.

A leaf stands in the innermost frame or box with all that uses it.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fad.viz.nodes import Drawn

__all__ = ["Box", "Folded", "fold"]

_LONGEST = 512  # nodes of a block that is looked for
_FAR = 64  # edges that go farther than this many nodes are not told apart
_ROUNDS = 8  # frames in frames


@dataclasses.dataclass(slots=True, eq=False)
class Box:
    """A node, a frame around a block that repeats or around a level, or a box of many nodes.

    Attributes:
        node: the number of the node; None for others.
        children: what is inside.
        copies: how often the block of a frame repeats; 1 for others.
        members: the numbers of all nodes that it stands for, without leaves.
        title: what is written on a frame or box.
        parent: the box that it is in.
        number: its place among all boxes.
        open: whether it is drawn open.
    """

    node: int | None = None
    children: list[Box] = dataclasses.field(default_factory=list)
    copies: int = 1
    members: list[int] = dataclasses.field(default_factory=list)
    title: str = ""
    parent: Box | None = None
    number: int = 0
    open: bool = False

    def path(self) -> list[Box]:
        """The boxes around it, outermost first, and itself."""
        found = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found[::-1]


@dataclasses.dataclass(slots=True)
class Folded:
    """A folded graph.

    Attributes:
        top: a box with everything in it.
        boxes: all boxes that may be drawn, each behind the one that it is in; ``top`` is the first.
        edges: pairs of boxes, each pair once, and how many edges of the graph it stands for.
    """

    top: Box
    boxes: list[Box]
    edges: dict[tuple[Box, Box], int]


def fold(drawn: Drawn, folding: bool, limit: int) -> Folded:
    """Put the nodes into boxes.

    Arguments:
        folding: whether blocks that repeat become frames, and long sequences boxes.
        limit: how many boxes are drawn at once.
    """
    top = Box(open=True, title="graph")
    rows: dict[int, list[int]] = {}
    leaves: list[int] = []
    for k, node in enumerate(drawn.nodes):
        if node.kind == "leaf":
            leaves.append(k)
        else:
            rows.setdefault(node.level, []).append(k)
    targets: list[list[tuple[int, int]]] = [[] for _ in drawn.nodes]
    for i, j, nr in drawn.edges:
        targets[i].append((j, nr))
    several = len({n.level for n in drawn.nodes}) > 1
    for level in sorted(rows, reverse=True):
        boxes = [Box(node=k, members=[k]) for k in rows[level]]
        if folding:
            boxes = _frames(boxes, _signatures(drawn, rows[level], targets))
            boxes = _cut(boxes, drawn, max(2, limit // (2 if several else 1)))
        if several:
            kind = drawn.nodes[rows[level][0]].level_kind
            frame = Box(
                children=boxes, members=rows[level], title=f"level {level} ({kind})", open=True
            )
            boxes = [frame]
        top.children += boxes
    owner = _owners(top, len(drawn.nodes))
    _place_leaves(drawn, leaves, top, owner, limit if folding else None)
    return _finish(drawn, top, owner, limit if folding else None)


# Frames


def _signatures(
    drawn: Drawn, row: Sequence[int], targets: list[list[tuple[int, int]]]
) -> list[int]:
    """A number for each node of a row: equal for nodes that do the same, connected in the same way."""
    place = {k: p for p, k in enumerate(row)}
    known: dict[object, int] = {}
    found = []
    for p, k in enumerate(row):
        node = drawn.nodes[k]
        ends: list[object] = []
        for j, nr in targets[k]:
            other = drawn.nodes[j]
            if other.kind == "leaf":
                ends.append(("leaf", other.outputs, other.hooks))
            else:
                distance = place[j] - p if j in place else None
                ends.append((distance if distance is None or distance < _FAR else _FAR, nr))
        key = (node.name, node.kind, node.outputs, node.freed, node.hooks, *ends)
        found.append(known.setdefault(key, len(known)))
    return found


def _frames(boxes: list[Box], signatures: list[int]) -> list[Box]:
    """The sequence with frames in the place of what repeats."""
    known: dict[object, int] = {}
    array = np.asarray(signatures)
    for _ in range(_ROUNDS):
        before = len(boxes)
        period = 1
        while period <= min(len(boxes) // 2, _LONGEST):
            runs = _runs(array, period)
            if runs:
                boxes, signatures = _replace(boxes, signatures, runs, period, known)
                array = np.asarray(signatures)
            period += 1
        if len(boxes) == before:
            break
    return boxes


def _runs(signatures: np.ndarray, period: int) -> list[tuple[int, int]]:
    """``(start, copies)`` of each stretch in which blocks of so many repeat, often enough for a frame."""
    same = np.concatenate(([False], signatures[period:] == signatures[:-period], [False]))
    steps = np.flatnonzero(same[1:] != same[:-1])
    starts, ends = steps[::2], steps[1::2]
    shortest = (
        period if period >= 4 else 2 * period
    )  # two copies of a long block, three of a short one
    long = ends - starts >= shortest
    found = []
    free = 0
    for start, end in zip(starts[long].tolist(), ends[long].tolist()):
        start = max(start, free)
        if end - start >= shortest:
            copies = (end - start) // period + 1
            found.append((start, copies))
            free = start + copies * period
    return found


def _replace(
    boxes: list[Box],
    signatures: list[int],
    runs: list[tuple[int, int]],
    period: int,
    known: dict[object, int],
) -> tuple[list[Box], list[int]]:
    """The sequence with a frame in the place of each run."""
    new_boxes: list[Box] = []
    new_signatures: list[int] = []
    at = 0
    for start, copies in runs:
        end = start + copies * period
        new_boxes += boxes[at:start]
        new_signatures += signatures[at:start]
        shown, others = boxes[start : start + period], boxes[start + period : end]
        rest = [k for box in others for k in box.members]
        more = Box(members=rest, title=f"{copies - 1} more")
        members = [*[k for box in shown for k in box.members], *rest]
        size = len(members) // copies
        title = f"{copies} × {size} node{'s' * (size != 1)}"
        frame = Box(children=[*shown, more], copies=copies, members=members, title=title, open=True)
        new_boxes.append(frame)
        key = (tuple(signatures[start : start + period]), copies)
        new_signatures.append(-1 - known.setdefault(key, len(known)))
        at = end
    return [*new_boxes, *boxes[at:]], [*new_signatures, *signatures[at:]]


# Boxes of many nodes


def _cut(boxes: list[Box], drawn: Drawn, limit: int) -> list[Box]:
    """A sequence of at most ``limit`` boxes, and so inside of each; longer ones become boxes of boxes."""
    top = Box(children=boxes)
    todo = [top]
    while todo:
        box = todo.pop()
        while len(box.children) > limit:
            depth = 2
            while limit**depth < len(box.children):
                depth += 1
            size = math.ceil(len(box.children) ** (1 / depth))
            parts = [box.children[at : at + size] for at in range(0, len(box.children), size)]
            box.children = [_many(part, drawn) if len(part) > 1 else part[0] for part in parts]
        todo += [child for child in box.children if child.children]
    return top.children


def _many(boxes: list[Box], drawn: Drawn) -> Box:
    members = [k for box in boxes for k in box.members]
    return Box(children=boxes, members=members, title=_summary(members, drawn))


def _summary(members: Sequence[int], drawn: Drawn) -> str:
    """The most frequent names among nodes."""
    names = collections.Counter([drawn.nodes[k].name for k in members])
    shown = [f"{name} × {count}" for name, count in names.most_common(3)]
    more = ", ..." if len(names) > 3 else ""
    return f"{len(members)} nodes: {', '.join(shown)}{more}"


# Leaves, numbers, edges


def _inside(box: Box) -> Iterator[Box]:
    """All boxes inside of one, each behind the one that it is in."""
    todo = box.children[::-1]
    while todo:
        child = todo.pop()
        yield child
        todo += child.children[::-1]


def _owners(top: Box, count: int) -> list[Box | None]:
    """For each node the innermost box that stands for it."""
    owner: list[Box | None] = [None] * count
    for child in top.children:
        child.parent = top
    for box in _inside(top):
        for child in box.children:
            child.parent = box
        for k in box.members:
            owner[k] = box
    return owner


def _place_leaves(
    drawn: Drawn, leaves: Sequence[int], top: Box, owner: list[Box | None], limit: int | None
) -> None:
    """Put each leaf into the innermost box with all nodes that use it."""
    users: dict[int, list[Box]] = {k: [] for k in leaves}
    for i, j, _ in drawn.edges:
        box = owner[i]
        if j in users and box is not None:
            users[j].append(box)
    inside: dict[Box, list[Box]] = {}
    for k in leaves:
        leaf = Box(node=k)
        paths = [box.path() for box in dict.fromkeys(users[k])]
        common = top
        for around in zip(*paths):
            if any([a is not around[0] for a in around]):
                break
            common = around[0]
        if common.node is not None:
            assert common.parent is not None
            common = common.parent
        elif not common.children and common is not top:  # copies that are not shown use it
            owner[k] = common
            continue
        inside.setdefault(common, []).append(leaf)
    for common, found in inside.items():
        if limit is not None and len(found) > limit:
            many = Box(children=found, title=f"{len(found)} leaves")
            for leaf in found:
                leaf.parent = many
                owner[leaf.node or 0] = leaf
            found = [many]
        for leaf in found:
            leaf.parent = common
            if leaf.node is not None:
                owner[leaf.node] = leaf
        common.children += found


def _finish(drawn: Drawn, top: Box, owner: list[Box | None], limit: int | None) -> Folded:
    """Number the boxes, close what would be too much, and say which are connected."""
    boxes = [top, *_inside(top)]
    for number, box in enumerate(boxes):
        box.number = number
        hidden = 0 if box.children else sum([len(drawn.nodes[k].results) for k in box.members])
        if hidden and box.node is None:
            box.title += f", with {hidden} result{'s' * (hidden != 1)}"
    edges: dict[tuple[Box, Box], int] = {}
    for i, j, _ in drawn.edges:
        a, b = owner[i], owner[j]
        if a is not None and b is not None and a is not b:
            edges[a, b] = edges.get((a, b), 0) + 1
    if limit is not None:
        _close(top, limit)
    return Folded(top, boxes, edges)


def _close(top: Box, limit: int) -> None:
    """Leave open, from outside to inside, what there is room for."""
    room = limit - len(top.children)
    row: Iterable[Box] = top.children
    while row:
        inner: list[Box] = []
        for box in row:
            if box.children and box.open:
                if len(box.children) > room:
                    box.open = False
                else:
                    room -= len(box.children)
                    inner += box.children
        row = inner
