"""Sets of entries of a matrix, as sorted numbers ``row * width + column``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fad.errors import StructureError

Entries = np.ndarray  # int64, sorted, each once

MOST = 50_000_000  # entries of a pattern


def check(count: float) -> None:
    """Refuse a pattern that memory may not hold.

    Raises:
        StructureError: it would have more than ``MOST`` entries.
    """
    if count > MOST:
        raise StructureError(
            f"the pattern of this derivative has up to {int(count)} entries, more than {MOST}: it is not "
            "sparse, as far as its operations show. Use jacfwd, jacrev or hvp."
        )


def unite(sets: Sequence[Entries | None]) -> Entries | None:
    """What is in any of the sets; None is the empty one."""
    nonempty = [s for s in sets if s is not None and s.size]
    if not nonempty:
        return None
    return nonempty[0] if len(nonempty) == 1 else np.unique(np.concatenate(nonempty))


def take(entries: Entries | None, source: np.ndarray, width: int) -> Entries | None:
    """Row ``i`` of the result is row ``source[i]``; it is empty where that is negative."""
    if entries is None:
        return None
    source = source.ravel().astype(np.int64)
    is_row = source >= 0
    rows = entries // width
    low = np.where(is_row, np.searchsorted(rows, source), 0)
    high = np.where(is_row, np.searchsorted(rows, source, side="right"), 0)
    counts = high - low
    total = int(counts.sum())
    check(total)
    if total == 0:
        return None
    ends = np.cumsum(counts)
    at = np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(low, counts)
    return np.repeat(np.arange(source.size), counts) * width + entries[at] % width


def send(entries: Entries | None, target: np.ndarray, width: int) -> Entries | None:
    """Row ``i`` is added to row ``target[i]`` of the result; it is left out where that is negative."""
    if entries is None:
        return None
    to = target.ravel().astype(np.int64)[entries // width]
    is_row = to >= 0
    sent = np.unique(to[is_row] * width + entries[is_row] % width)
    return sent if sent.size else None


def couple(entries: Entries | None, rows: int, width: int) -> Entries | None:
    """Each of ``rows`` rows has what any row has."""
    if entries is None or not rows:
        return None
    cols = np.unique(entries % width)
    check(float(cols.size) * rows)
    return (np.arange(rows)[:, None] * width + cols).ravel()
