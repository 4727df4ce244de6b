"""What replay says of its last traces, and how a step is written so that it runs as a program.

The library asks in `fad.autograd.compiled`.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

_ADVICE = (
    "One by one runs what reads a node, as a hook or a pass with create_graph or retain_graph, and what "
    "goes on from before a backward pass. A value that is read after backward() costs nothing. Else write "
    "the step as a function of its parameters, with fad.value_and_grad, for fad.jit (with hooks: "
    "fad.jit(f, hooks=True))."
)

_FEW = 3  # different numbers that are said


def explanation(log: Iterable[tuple[str, int, str, int]]) -> str:
    """How traces ended, a line for each.

    Arguments:
        log: of each trace, the name and number of its operations, how it ended, and how many nodes ran one by
            one after it.
    """
    after: dict[str, list[int]] = {}
    for name, count, what, number in log:
        line = f"{name} ({count} operations): {what}"
        after[line] = [*after.pop(line, []), number]
    lines = []
    for line, nodes in after.items():
        times = f"{len(nodes)} × " if len(nodes) > 1 else ""
        lines.append(times + line + _nodes_text(collections.Counter(nodes)))
    if any([" reads a " in line or (": replayed" in line and "; then" in line) for line in lines]):
        lines.insert(0, _ADVICE)
    return "\n".join(lines)


def _nodes_text(counts: collections.Counter[int]) -> str:
    """How many nodes ran one by one after equal traces: each number with how often it was, if they differ."""
    most = max(counts)
    if not most:
        return ""
    if len(counts) == 1:
        return f"; then {most} nodes one by one"
    if len(counts) > _FEW:
        return f"; then {min(counts)} to {most} nodes one by one"
    each = [f"{nodes} ({times} ×)" for nodes, times in counts.most_common()]
    return f"; then {', '.join(each[:-1])} or {each[-1]} nodes one by one"
