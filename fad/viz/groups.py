"""Groups of nodes: levels, blocks that repeat and their copies, neighbours in a long sequence, and leaves.

NOTE [groups]

The nodes of one level, in order, are a sequence. Where a stretch of it repeats (the same operations on the
same shapes, connected in the same way, as the turns of a loop or the layers of a network), a group stands in
its place: the first copy, and a closed group with the other copies, each of which is a group. Groups repeat
too, so loops in loops are groups in groups. What is still too long is cut into groups of neighbours. All
groups are intervals of one topological order, so the edges between groups have no circles.

A leaf stands in the innermost group with all that uses it.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fad.viz.nodes import Drawn

_LONGEST = 512  # nodes of a block that is looked for
_FAR = 64  # edges that go farther than this many nodes are not told apart


@dataclasses.dataclass(slots=True, eq=False)
class Group:
    """Nodes that belong together.

    Attributes:
        title: what is written on it.
        parts: the numbers of the nodes, and the groups, that are directly inside.
        size: how many nodes there are inside, without leaves.
        open: whether text and DOT show what is inside.
    """

    title: str
    parts: list[Part]
    size: int
    open: bool = False


Part: TypeAlias = int | Group


def groups_of(drawn: Drawn, fold: bool, limit: int) -> Group:
    """One open group with everything in it.

    Arguments:
        fold: whether there are groups for what repeats and for long sequences, not for levels alone.
        limit: how many nodes and groups are shown at once.
    """
    top = Group("graph", [], len(drawn.nodes), True)
    levels: dict[int, list[int]] = {}
    for k, node in enumerate(drawn.nodes):
        if node.kind != "leaf":
            levels.setdefault(node.level, []).append(k)
    several = len({node.level for node in drawn.nodes}) > 1
    signatures = _signatures(drawn, levels) if fold else []
    for level in sorted(levels, reverse=True):
        row = levels[level]
        parts: list[Part] = [*row]
        if fold:
            numbers = np.array([signatures[k] for k in row])
            parts = _repeats(parts, numbers, drawn, limit)
            parts = _cut(parts, drawn, max(2, limit // (2 if several else 1)))
        title = f"level {level} ({drawn.nodes[row[0]].level_kind})"
        top.parts += [Group(title, parts, len(row), True)] if several else parts
    _place_leaves(drawn, top, limit if fold else len(drawn.nodes))
    if fold:
        _close(top, limit)
    return top


def paths(top: Group) -> dict[int, tuple[Group, ...]]:
    """For each node the groups that it is in, outermost first."""
    groups: dict[int, tuple[Group, ...]] = {}
    todo: list[tuple[Group, ...]] = [(top,)]
    while todo:
        path = todo.pop()
        for part in path[-1].parts:
            if isinstance(part, int):
                groups[part] = path
            else:
                todo.append((*path, part))
    return groups


# What repeats


def _signatures(drawn: Drawn, levels: dict[int, list[int]]) -> list[int]:
    """A number for each node: equal for nodes that do the same, connected in the same way."""
    place = {k: (level, p) for level, row in levels.items() for p, k in enumerate(row)}
    ends: list[list[object]] = [[] for _ in drawn.nodes]
    for i, j, nr in drawn.edges:
        target = drawn.nodes[j]
        if target.kind == "leaf":
            ends[i].append((target.outputs, target.hooks))
        else:
            (level, p), (other, q) = place[i], place[j]
            ends[i].append((min(q - p, _FAR) if level == other else None, nr))
    numbers_of: dict[object, int] = {}
    return [
        numbers_of.setdefault((n.name, n.kind, n.outputs, n.freed, n.hooks, *end), len(numbers_of))
        for n, end in zip(drawn.nodes, ends)
    ]


def _repeats(parts: list[Part], signatures: np.ndarray, drawn: Drawn, limit: int) -> list[Part]:
    """The sequence with a group in the place of each stretch that repeats."""
    numbers_of: dict[object, int] = {}
    before = 0
    while len(parts) != before:
        before = len(parts)
        for period in range(1, _LONGEST + 1):
            if 2 * period > len(parts):
                break
            parts, signatures = _of_period(parts, signatures, period, numbers_of, drawn, limit)
    return parts


def _of_period(
    parts: list[Part],
    signatures: np.ndarray,
    period: int,
    numbers_of: dict[object, int],
    drawn: Drawn,
    limit: int,
) -> tuple[list[Part], np.ndarray]:
    """The same, for blocks of so many parts."""
    same = np.concatenate(([False], signatures[period:] == signatures[:-period], [False]))
    stretches = np.flatnonzero(same[1:] != same[:-1]).reshape(-1, 2)
    # Two copies of a long block are worth a group, three of a short one.
    shortest = period if period >= 4 else 2 * period
    folded: list[Part] = []
    numbers = []
    at = 0
    for start, end in stretches[stretches[:, 1] - stretches[:, 0] >= shortest].tolist():
        start = max(start, at)
        if end - start >= shortest:
            copies = (end - start) // period + 1
            folded += parts[at:start]
            numbers.append(signatures[at:start])
            block, at = signatures[start : start + period], start + copies * period
            folded.append(_repeated(parts[start:at], period, copies, drawn, limit))
            numbers.append(
                np.array([-1 - numbers_of.setdefault((block.tobytes(), copies), len(numbers_of))])
            )
    return [*folded, *parts[at:]], np.concatenate([*numbers, signatures[at:]])


def _repeated(parts: list[Part], period: int, copies: int, drawn: Drawn, limit: int) -> Group:
    size = _size(parts)
    one = size // copies
    blocks = [parts[at : at + period] for at in range(period, len(parts), period)]
    others: list[Part] = [Group(f"copy {k}", block, one) for k, block in enumerate(blocks, 2)]
    others = _cut(others if period > 1 else parts[1:], drawn, limit)
    more = Group(f"{copies - 1} more", others, size - one)
    hidden = sum([len(drawn.nodes[k].results) for k in paths(more)])
    more.title += f", with {hidden} result{'s' * (hidden != 1)}" if hidden else ""
    title = f"{copies} × {one} node{'s' * (one != 1)}"
    return Group(title, [*parts[:period], more], size, True)


def _size(parts: Sequence[Part]) -> int:
    return sum([1 if isinstance(part, int) else part.size for part in parts])


# Neighbours and leaves


def _cut(parts: list[Part], drawn: Drawn, limit: int) -> list[Part]:
    """At most ``limit`` parts, and so inside of each: the sequence, or groups of neighbours."""
    while len(parts) > limit:
        depth = math.ceil(math.log(len(parts)) / math.log(limit))
        size = math.ceil(len(parts) ** (1 / depth))
        rows = [parts[at : at + size] for at in range(0, len(parts), size)]
        parts = [Group(_summary(row, drawn), row, _size(row)) for row in rows]
    return parts


def _summary(parts: Sequence[Part], drawn: Drawn) -> str:
    """The most frequent names among nodes."""
    inside = paths(Group("", list(parts), 0))
    names = collections.Counter([drawn.nodes[k].name for k in inside])
    shown = [f"{name} × {count}" for name, count in names.most_common(3)]
    return f"{len(inside)} nodes: {', '.join(shown)}{', ...' * (len(names) > 3)}"


def _place_leaves(drawn: Drawn, top: Group, limit: int) -> None:
    """Put each leaf into the innermost group with all nodes that use it."""
    path_of = paths(top)
    users: dict[int, dict[tuple[Group, ...], None]] = {
        k: {} for k, node in enumerate(drawn.nodes) if node.kind == "leaf"
    }
    for i, j, _ in drawn.edges:
        if j in users:
            users[j][path_of[i]] = None
    inside: dict[Group, list[Part]] = {}
    for k, around in users.items():
        common = top
        for groups in zip(*around):
            if any([group is not groups[0] for group in groups]):
                break
            common = groups[0]
        inside.setdefault(common, []).append(k)
    for common, leaves in inside.items():
        many = common.open and len(leaves) > limit
        common.parts += [Group(f"{len(leaves)} leaves", leaves, 0)] if many else leaves


def _close(top: Group, limit: int) -> None:
    """Leave open, from outside to inside, what there is room for."""
    room = limit - len(top.parts)
    row = top.parts
    while row:
        inner: list[Part] = []
        for part in row:
            if isinstance(part, Group) and part.open:
                part.open = len(part.parts) <= room
                if part.open:
                    room -= len(part.parts)
                    inner += part.parts
        row = inner
