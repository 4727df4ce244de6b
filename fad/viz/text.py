"""A graph as text: a tree for the terminal, DOT for Graphviz, and JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from fad.viz.folding import Box, Folded
from fad.viz.nodes import Drawn, NodeView

__all__ = [
    "COLORS",
    "as_dict",
    "as_json",
    "contracted",
    "dot",
    "heading",
    "label",
    "size_of",
    "tree",
]

# Fill and border of each kind of node; of boxes that are no node, "box".
COLORS = {
    "leaf": ("#d9f2d9", "#2e7d32"),
    "operation": ("#ffffff", "#455a64"),
    "view": ("#e3f2fd", "#1565c0"),
    "write": ("#ffe0b2", "#e65100"),
    "function": ("#f3e5f5", "#6a1b9a"),
    "custom": ("#fffde7", "#827717"),
    "earlier": ("#f5f5f5", "#9e9e9e"),
    "box": ("#eceff1", "#78909c"),
}


def size_of(count: int) -> str:
    """A number of bytes: ``12 B``, ``3.4 MB``."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{count} B" if unit == "B" else f"{number:.3g} {unit}"


def label(node: NodeView) -> list[str]:
    """The lines that say what a node is: its name, its form, what else there is to say, its results."""
    notes = [] if node.sequence_nr is None else [f"#{node.sequence_nr}"]
    if node.saved:
        notes.append(f"save{'d' if node.freed else 's'} {size_of(node.saved)}")
    if node.freed:
        notes.append("freed")
    for hook in dict.fromkeys(node.hooks):
        count = node.hooks.count(hook)
        notes.append(hook if count == 1 else f"{count} × {hook}")
    name = "leaf" if node.kind == "leaf" and node.name == "AccumulateGrad" else node.name
    results = ", ".join(node.results)
    lines = [name, node.form(), " · ".join(notes), f"→ {results}" if results else ""]
    return [line for line in lines if line]


def heading(drawn: Drawn) -> str:
    """One line about the whole graph."""
    if not drawn.nodes:
        return (
            "empty graph: nothing here requires grad, so nothing was recorded (compiled code records "
            "nothing)"
        )
    leaves = sum([node.kind == "leaf" for node in drawn.nodes])
    count = len(drawn.nodes) - leaves
    parts = [f"{count} node{'s' * (count != 1)}", f"{leaves} {'leaf' if leaves == 1 else 'leaves'}"]
    if drawn.saved:
        parts.append(f"{size_of(drawn.saved)} saved")
    return ", ".join(parts)


def contracted(folded: Folded) -> dict[Box, dict[tuple[Box, Box], int]]:
    """For each box that has something inside, the edges between what is directly inside of it."""
    found: dict[Box, dict[tuple[Box, Box], int]] = {}
    paths: dict[Box, list[Box]] = {}
    for (a, b), count in folded.edges.items():
        for box in (a, b):
            if box not in paths:
                paths[box] = box.path()
        here, there = paths[a], paths[b]
        depth = 0
        while here[depth] is there[depth]:
            depth += 1
        edges = found.setdefault(here[depth - 1], {})
        key = (here[depth], there[depth])
        edges[key] = edges.get(key, 0) + count
    return found


# The terminal


def tree(drawn: Drawn, folded: Folded) -> str:
    """The graph as lines, results first.

    What the gradients of a node go to stands below it: the last in the same column, others indented. A node
    that several lead to stands below the last of them.
    """
    numbered = [k for k, node in enumerate(drawn.nodes) if node.kind == "leaf"]
    places = {k: place for place, k in enumerate(numbered)} if len(numbered) > 1 else {}
    lines = [f"graph: {heading(drawn)}" if drawn.nodes else heading(drawn)]
    edges = contracted(folded)
    # A container, and how its lines begin; containers are few in one another, so this may recurse.
    _add_lines(folded.top, "", drawn, edges, places, lines)
    return "\n".join(lines)


def _add_lines(
    container: Box,
    indent: str,
    drawn: Drawn,
    edges: dict[Box, dict[tuple[Box, Box], int]],
    places: dict[int, int],
    lines: list[str],
) -> None:
    targets: dict[Box, list[Box]] = {child: [] for child in container.children}
    left = dict.fromkeys(targets, 0)
    for a, b in edges.get(container, {}):
        targets[a].append(b)
        left[b] += 1
    height = _heights(targets)
    todo = [(child, indent, indent) for child in targets if not left[child]][::-1]
    while todo:
        box, start, indent = todo.pop()
        text = _one_line(box, drawn, places)
        left[box] -= 1
        if left[box] > 0:
            lines.append(f"{start}{text}  (below)")
            continue
        lines.append(start + text)
        if box.open and box.children:
            _add_lines(box, f"{indent}┆  ", drawn, edges, places, lines)
        below = sorted(targets[box], key=height.__getitem__)
        if below:
            todo.append((below[-1], indent, indent))
            todo += [(b, f"{indent}├─ ", f"{indent}│  ") for b in below[-2::-1]]


def _heights(targets: dict[Box, list[Box]]) -> dict[Box, int]:
    """The length of the longest path from each box."""
    found: dict[Box, int] = {}
    todo = list(targets)
    while todo:
        box = todo[-1]
        unknown = [b for b in targets[box] if b not in found]
        if box in found or not unknown:
            found.setdefault(box, 1 + max([found[b] for b in targets[box]], default=0))
            todo.pop()
        else:
            todo += unknown
    return found


def _one_line(box: Box, drawn: Drawn, places: dict[int, int]) -> str:
    if box.node is None:
        return f"[{box.title}]"
    name, *rest = label(drawn.nodes[box.node])
    number = f" {places[box.node]}" if box.node in places and name == "leaf" else ""
    return "  ".join([name + number, *rest])


# Graphviz


def dot(drawn: Drawn, folded: Folded) -> str:
    """The graph in Graphviz's language. A frame is a cluster, a closed box one node."""
    lines = [
        "digraph fad {",
        '  graph [fontname="Helvetica", fontsize=10, style="rounded", color="#90a4ae"];',
        '  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=10];',
        '  edge [color="#607d8b", arrowsize=0.7];',
    ]
    todo: list[Any] = folded.top.children[::-1]
    indent = "  "
    while todo:
        box = todo.pop()
        if box is None:
            indent = indent[:-2]
            lines.append(f"{indent}}}")
        elif box.open and box.children:
            lines.append(f"{indent}subgraph cluster_{box.number} {{")
            indent += "  "
            lines.append(f"{indent}label={_quoted([box.title])};")
            todo += [None, *box.children[::-1]]
        else:
            lines.append(f"{indent}b{box.number} [{_style(box, drawn)}];")
    for (a, b), count in visible_edges(folded).items():
        times = f' [label="{count}×"]' if count > 1 else ""
        lines.append(f"  b{a.number} -> b{b.number}{times};")
    return "\n".join([*lines, "}", ""])


def visible_edges(folded: Folded) -> dict[tuple[Box, Box], int]:
    """Edges between the boxes that can be seen: those in a closed box are the box's."""
    seen: dict[Box, Box] = {}

    def shown(box: Box) -> Box:
        if box not in seen:
            seen[box] = next((b for b in box.path() if not (b.open and b.children)), box)
        return seen[box]

    found: dict[tuple[Box, Box], int] = {}
    for (a, b), count in folded.edges.items():
        key = (shown(a), shown(b))
        if key[0] is not key[1]:
            found[key] = found.get(key, 0) + count
    return found


def _style(box: Box, drawn: Drawn) -> str:
    if box.node is None:
        fill, border = COLORS["box"]
        return f'label={_quoted([box.title])}, fillcolor="{fill}", color="{border}", shape=box3d'
    node = drawn.nodes[box.node]
    fill, border = COLORS[node.kind]
    return (
        f'label={_quoted(label(node))}, fillcolor="{fill}", color="{border}", class="{node.kind}"'
    )


def _quoted(lines: list[str]) -> str:
    return '"' + "\\n".join([x.replace("\\", "\\\\").replace('"', '\\"') for x in lines]) + '"'


# JSON


def as_dict(drawn: Drawn, folded: Folded) -> dict[str, Any]:
    """Nodes and edges as they are in the engine, and the boxes around them."""
    boxes = [
        {
            "title": b.title,
            "node": b.node,
            "copies": b.copies,
            "open": b.open,
            "parent": b.parent.number,
        }
        for b in folded.boxes
        if b.parent is not None
    ]
    return {
        "nodes": [dataclasses.asdict(node) for node in drawn.nodes],
        "edges": [list(edge) for edge in drawn.edges],
        "saved": drawn.saved,
        "boxes": boxes,
    }


def as_json(drawn: Drawn, folded: Folded) -> str:
    """`as_dict` as text."""
    return json.dumps(as_dict(drawn, folded))
