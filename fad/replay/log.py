"""A log of how the last traces ended."""

from __future__ import annotations

import collections

__all__ = ["explain", "note"]

_log: collections.deque[tuple[str, int, str]] = collections.deque(maxlen=64)


def note(name: str, count: int, what: str) -> None:
    """Log how a trace ended, for `explain`."""
    _log.append((name, count, what))


def explain() -> str:
    """How the last traces ended, the latest last."""
    return "\n".join([f"{name} ({count} operations): {what}" for name, count, what in _log])
