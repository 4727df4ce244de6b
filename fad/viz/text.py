"""A graph as text: a tree for the terminal, DOT for Graphviz, and the JSON of Model Explorer."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from fad.viz.drawing import quoted
from fad.viz.groups import Group, Part, paths
from fad.viz.nodes import Drawn, NodeView

# Fill and border of each kind of node; of closed groups.
COLORS = {
    "leaf": ("#d9f2d9", "#2e7d32"),
    "operation": ("#ffffff", "#455a64"),
    "view": ("#e3f2fd", "#1565c0"),
    "write": ("#ffe0b2", "#e65100"),
    "function": ("#f3e5f5", "#6a1b9a"),
    "custom": ("#fffde7", "#827717"),
    "earlier": ("#f5f5f5", "#9e9e9e"),
    "group": ("#eceff1", "#78909c"),
}


def label(node: NodeView) -> list[str]:
    """The lines that say what a node is: its name, its form, what else there is to say, its results."""
    notes = [] if node.sequence_nr is None else [f"#{node.sequence_nr}"]
    if node.saved:
        notes.append(f"save{'d' if node.freed else 's'} {in_bytes(node.saved)}")
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
        parts.append(f"{in_bytes(drawn.saved)} saved")
    return ", ".join(parts)


def in_bytes(count: int) -> str:
    """A number of bytes in words: "1.5 MB"."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B" if count else "0"


def shown(drawn: Drawn, top: Group) -> list[tuple[Part, ...]]:
    """Of each node the open groups around it, outermost first, then itself or the closed group it is in."""
    shown_as: list[tuple[Part, ...]] = [()] * len(drawn.nodes)
    for k, path in paths(top).items():
        closed = next((depth for depth, group in enumerate(path, 1) if not group.open), None)
        shown_as[k] = (*path, k) if closed is None else path[:closed]
    return shown_as


# The terminal


def tree(drawn: Drawn, top: Group) -> str:
    """The graph as lines, results first.

    What the gradients of a node go to stands below it: the last in the same column, others indented. A node
    that several lead to stands below the last of them.
    """
    numbered = [k for k, node in enumerate(drawn.nodes) if node.kind == "leaf"]
    places = {k: place for place, k in enumerate(numbered)} if len(numbered) > 1 else {}
    lines = [f"graph: {heading(drawn)}" if drawn.nodes else heading(drawn)]
    ways = shown(drawn, top)
    edges: dict[Group, dict[tuple[Part, Part], None]] = {}
    for i, j, _ in drawn.edges:
        ends = next((pair for pair in zip(ways[i], ways[j]) if pair[0] != pair[1]), None)
        if ends is not None:
            container = ways[i][ways[i].index(ends[0]) - 1]
            assert isinstance(container, Group)
            edges.setdefault(container, {})[ends] = None
    _add_lines(top, "", drawn, edges, places, lines)  # groups are few in one another
    return "\n".join(lines)


def _add_lines(
    container: Group,
    indent: str,
    drawn: Drawn,
    edges: dict[Group, dict[tuple[Part, Part], None]],
    places: dict[int, int],
    lines: list[str],
) -> None:
    targets: dict[Part, list[Part]] = {part: [] for part in container.parts}
    left = dict.fromkeys(targets, 0)
    for a, b in edges.get(container, {}):
        targets[a].append(b)
        left[b] += 1
    height = _heights(targets)
    todo = [(part, indent, indent) for part in targets if not left[part]][::-1]
    while todo:
        part, start, indent = todo.pop()
        text = _one_line(part, drawn, places)
        left[part] -= 1
        if left[part] > 0:
            lines.append(f"{start}{text}  (below)")
            continue
        lines.append(start + text)
        if isinstance(part, Group) and part.open:
            _add_lines(part, f"{indent}┆  ", drawn, edges, places, lines)
        below = sorted(targets[part], key=height.__getitem__)
        if below:
            todo.append((below[-1], indent, indent))
            todo += [(b, f"{indent}├─ ", f"{indent}│  ") for b in below[-2::-1]]


def _heights(targets: dict[Part, list[Part]]) -> dict[Part, int]:
    """The length of the longest path from each part."""
    depths: dict[Part, int] = {}
    todo = list(targets)
    while todo:
        part = todo[-1]
        unknown = [b for b in targets[part] if b not in depths]
        if part in depths or not unknown:
            depths.setdefault(part, 1 + max([depths[b] for b in targets[part]], default=0))
            todo.pop()
        else:
            todo += unknown
    return depths


def _one_line(part: Part, drawn: Drawn, places: dict[int, int]) -> str:
    if isinstance(part, Group):
        return f"[{part.title}]"
    name, *rest = label(drawn.nodes[part])
    number = f" {places[part]}" if part in places and name == "leaf" else ""
    return "  ".join([name + number, *rest])


# Graphviz


def dot(drawn: Drawn, top: Group) -> str:
    """The graph in Graphviz's language. An open group is a cluster, a closed one a node."""
    lines = [
        "digraph fad {",
        '  graph [fontname="Helvetica", fontsize=10, style="rounded", color="#90a4ae", nslimit=2];',
        '  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=10];',
        '  edge [color="#607d8b", arrowsize=0.7];',
    ]
    names: dict[Part, str] = {}
    todo: list[Part | None] = [*top.parts[::-1]]
    indent = "  "
    while todo:
        part = todo.pop()
        if part is None:
            indent = indent[:-2]
            lines.append(f"{indent}}}")
        elif isinstance(part, Group) and part.open:
            lines.append(f"{indent}subgraph cluster_{len(names)} {{")
            indent += "  "
            lines.append(f"{indent}label={quoted([part.title])};")
            todo += [None, *part.parts[::-1]]
            names[part] = ""
        else:
            names[part] = f"b{len(names)}"
            lines.append(f"{indent}{names[part]} [{_style(part, drawn)}];")
    ways = shown(drawn, top)
    edges = Counter([(ways[i][-1], ways[j][-1]) for i, j, _ in drawn.edges])
    for (a, b), count in edges.items():
        if a != b:
            times = f' [label="{count}×"]' if count > 1 else ""
            lines.append(f"  {names[a]} -> {names[b]}{times};")
    return "\n".join([*lines, "}", ""])


def _style(part: Part, drawn: Drawn) -> str:
    if isinstance(part, Group):
        fill, border = COLORS["group"]
        return f'label={quoted([part.title])}, fillcolor="{fill}", color="{border}", shape=box3d'
    node = drawn.nodes[part]
    fill, border = COLORS[node.kind]
    return f'label={quoted(label(node))}, fillcolor="{fill}", color="{border}", class="{node.kind}"'


# Model Explorer


def as_json(drawn: Drawn, top: Group) -> str:
    """All nodes, edges and groups in the JSON of the viewer Model Explorer (its ``graph_builder.py``)."""
    names = {top: ""}
    todo = [top]
    while todo:
        group = todo.pop()
        inner = [part for part in group.parts if isinstance(part, Group)]
        used: Counter[str] = Counter()
        for part in inner:
            # Groups are told apart by their names, which "/" and ";" divide. Its letters lack "×".
            title = part.title.translate({ord("/"): "|", ord(";"): "|", ord("×"): "x"})
            used[title] += 1
            title += f" ({used[title]})" if used[title] > 1 else ""
            names[part] = f"{names[group]}/{title}" if names[group] else title
        todo += inner
    nodes: list[dict[str, Any]] = [
        {"id": str(k), "label": node.name, "attrs": _attributes(node), "incomingEdges": []}
        for k, node in enumerate(drawn.nodes)
    ]
    for k, path in paths(top).items():
        fill, border = COLORS[drawn.nodes[k].kind]
        nodes[k] |= {
            "namespace": names[path[-1]],
            "style": {"backgroundColor": fill, "borderColor": border},
        }
    for i, j, nr in drawn.edges:
        edge = {"sourceNodeId": str(i), "sourceNodeOutputId": "0", "targetNodeInputId": str(nr)}
        nodes[j]["incomingEdges"].append(edge)
    said = {"": {"graph": heading(drawn), "saved": str(drawn.saved)}}
    graph = {"id": "graph", "nodes": nodes, "groupNodeAttributes": said}
    return json.dumps({"label": "fad", "graphs": [graph]})


def _attributes(node: NodeView) -> list[dict[str, str]]:
    """What is said of a node beside its name."""
    said = {
        "kind": node.kind,
        "level": f"{node.level} ({node.level_kind})",
        "outputs": node.form(),
        "saved": str(node.saved),
        "freed": str(node.freed),
        "hooks": ", ".join(node.hooks),
        "sequence_nr": "" if node.sequence_nr is None else str(node.sequence_nr),
        "results": ", ".join(node.results),
    }
    return [{"key": key, "value": value} for key, value in said.items() if value]
