"""A log of how the last traces ended."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING

from fad.core.observation import observable

if TYPE_CHECKING:
    from fad.replay.trace import Trace

__all__ = ["explain", "note", "note_trace"]


class _Log:
    """The last entries: name, number of operations, how it ended."""

    def __init__(self) -> None:
        self.entries: collections.deque[tuple[str, int, str]] = collections.deque(maxlen=64)

    def add(self, name: str, count: int, what: str) -> None:
        self.entries.append((name, count, what))


observable(_Log, "add", "trace")
_log = _Log()


def note(name: str, count: int, what: str) -> None:
    """Log how a trace ended, for `explain`."""
    _log.add(name, count, what)


def note_trace(trace: Trace, what: str) -> None:
    """Log how a trace, all of its segments included, ended."""
    policy, ended = trace.policy, trace.ended
    count = sum([s.work * n for s, n in list(ended.items())], len(trace.path) - 1)
    segments = sum(ended.values()) + (len(trace.path) > 1)
    if segments > 1 and what == "replayed":
        what += f", in {segments} segments"
    if policy.due > policy.begun:
        what += f"; long, compiled from call {policy.due} on"
    note(trace.name, count, what)


def explain() -> str:
    """How the last traces ended, the latest last; of equal lines in a row one, with their number."""
    lines = [f"{name} ({count} operations): {what}" for name, count, what in list(_log.entries)]
    groups = [(line, len(list(equal))) for line, equal in itertools.groupby(lines)]
    return "\n".join([line if n == 1 else f"{n} × {line}" for line, n in groups])
