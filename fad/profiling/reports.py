"""What is made of the events of a profile: a table, a trace for viewers, memory over time."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from fad.errors import ArgumentError, MissingLibrary
from fad.profiling.events import FREED, KEPT, LEFT, MADE, Change, Event


def in_time(ns: float) -> str:
    """A time in words: "3.2 ms"."""
    for size, unit in ((1e9, "s"), (1e6, "ms")):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns / 1e3:.3g} µs" if ns else "0"


def in_bytes(count: float) -> str:
    """A number of bytes in words: "1.5 MB"."""
    size, unit = unit_of(count)
    if unit != "B":
        return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B" if count else "0"


def unit_of(count: float) -> tuple[float, str]:
    """The unit in which a number of bytes is shown: how many bytes it has, and its name."""
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((pair for pair in units if count >= pair[0]), (1.0, "B"))


def pairs(events: Iterable[Event]) -> list[tuple[Event, list[Event]]]:
    """Each forward event that added a node, with the events of that node in backward passes."""
    ran: dict[Hashable, list[Event]] = {}
    forward = []
    for event in events:
        if event.sequence is None:
            continue
        if event.kind == "backward":
            ran.setdefault(event.sequence, []).append(event)
        else:
            forward.append(event)
    return [(event, ran.get(event.sequence, [])) for event in forward]


@dataclasses.dataclass
class Row:
    """The events of one name, kind and level, added up.

    Times are in nanoseconds. ``total`` has what is inside of the events too; all else is their own:
    ``python``, ``xla``, ``compiling``, ``made`` and ``saved`` as in `Event`, ``own`` the sum of the times.
    ``backward`` is the total of the nodes that these calls have added, where they ran.
    """

    name: str
    kind: str
    level: str
    calls: int = 0
    total: int = 0
    python: int = 0
    xla: int = 0
    compiling: int = 0
    compiled: int = 0
    made: int = 0
    saved: int = 0
    backward: int = 0
    failed: int = 0

    @property
    def own(self) -> int:
        """Nanoseconds outside of other events."""
        return self.python + self.xla + self.compiling

    def cells(self) -> list[str]:
        """What the table shows."""
        times = (self.total, self.python, self.xla, self.compiling, self.backward)
        total, python, xla, compiling, backward = map(in_time, times)
        calls = f"{self.calls}, {self.failed} failed" if self.failed else str(self.calls)
        made, saved = in_bytes(self.made), in_bytes(self.saved)
        named = [self.name, self.kind, self.level, calls]
        return [*named, total, python, xla, compiling, made, saved, backward]


HEADS = "Name Kind Level Calls Total Python XLA Compile Made Saved Backward".split()
# PyTorch's names of what tables are sorted by.
SPELLINGS = {
    "count": "calls",
    "cpu_time_total": "total",
    "self_cpu_time_total": "own",
    "cpu_memory_usage": "made",
}
SORTS = ("own", "total", "python", "xla", "compiling", "calls", "made", "saved", "backward", "name")


class Rows(list[Row]):
    """What `profile.key_averages` returns: a list of `Row`, with a table."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Rows:
        """The rows of these events, in the order in which they first ended."""
        events = list(events)
        rows: dict[Any, Row] = {}

        def row(event: Event) -> Row:
            name = event.name
            if event.operations:
                name += f" ({event.operations} operations)"
            key = (name, event.kind, event.level)
            return rows.setdefault(key, Row(*key))

        for event in events:
            totals = row(event)
            totals.calls += 1
            totals.total += event.duration
            totals.failed += event.failed
            for field in ("python", "xla", "compiling", "compiled", "made", "saved"):
                setattr(totals, field, getattr(totals, field) + getattr(event, field))
        for event, ran in pairs(events):
            row(event).backward += sum([e.duration for e in ran])
        return cls(rows.values())

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """The rows as text.

        Arguments:
            sort_by: the attribute of `Row` by which they are sorted, largest first; the default is "own".
            row_limit: how many are shown; -1 for all.

        Raises:
            ArgumentError: there is no such attribute.
        """
        by = SPELLINGS.get(sort_by or "own", sort_by or "own")
        if by not in SORTS:
            raise ArgumentError(
                f"table: sort_by is {sort_by!r}, expected one of {', '.join(SORTS)} (or of "
                f"{', '.join(SPELLINGS)})"
            )
        rows = sorted(self, key=lambda row: getattr(row, by), reverse=by != "name")
        shown = rows if row_limit < 0 else rows[:row_limit]
        lines = in_columns([HEADS, *[row.cells() for row in shown]])
        if len(shown) < len(rows):
            lines.append(f"... and {len(rows) - len(shown)} more rows")
        return "\n".join(lines)


def in_columns(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: a head, a rule, rows; the first three columns to the left."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        parts = [
            text.ljust(width) if k < 3 else text.rjust(width)
            for k, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return [lines[0], "  ".join(["-" * width for width in widths]), *lines[1:]]


# Memory


class Memory:
    """Bytes over time, of arrays that operations made in the block.

    ``times``: milliseconds since the block began, one for each change. ``alive``: the bytes of the arrays
    that were made in the block and still exist then. ``kept``: the bytes that nodes keep for backward
    passes then, each array once, also where it was made before the block. ``peak``: the largest of
    ``alive``; ``peak_time``: when; ``peak_name``: what operation reached it. ``blocks``: name, beginning
    and end of the outermost blocks of `record_function`. ``print(memory)`` shows bars.
    """

    def __init__(
        self, changes: Iterable[Change], events: Iterable[Event], start: int, end: int
    ) -> None:
        self.duration = (end - start) / 1e6
        self.blocks = [
            (e.name, (e.start - start) / 1e6, (e.end - start) / 1e6)
            for e in events
            if e.kind == "range" and e.parent is None
        ]
        self.times: list[float] = [0.0]
        self.alive: list[int] = [0]
        self.kept: list[int] = [0]
        self.peak = 0
        self.peak_time = 0.0
        self.peak_name = ""
        made: dict[int, int] = {}
        keepers: collections.Counter[int] = collections.Counter()
        alive = kept = 0
        for time, what, key, nbytes, name in changes:
            if what == MADE:
                made[key] = nbytes
                alive += nbytes
            elif what == FREED:
                alive -= made.pop(key, 0)
            elif what == KEPT:
                kept += 0 if keepers[key] else nbytes
                keepers[key] += 1
            elif what == LEFT and keepers[key]:  # else it was kept before the block
                keepers[key] -= 1
                kept -= 0 if keepers[key] else nbytes
            self.times.append((time - start) / 1e6)
            self.alive.append(alive)
            self.kept.append(kept)
            if alive > self.peak:
                self.peak, self.peak_time, self.peak_name = alive, self.times[-1], name

    def _bars(self, count: int) -> list[tuple[float, int]]:
        """The most that is alive in each part of the time."""
        step = self.duration / count or 1.0
        most = [0] * count
        bounds = [*self.times[1:], self.duration]
        for begin, end, alive in zip(self.times, bounds, self.alive, strict=True):
            first = min(int(begin / step), count - 1)
            last = min(int(end / step), count - 1)
            for k in range(first, last + 1):
                most[k] = max(most[k], alive)
        return [(k * step, alive) for k, alive in enumerate(most)]

    def __str__(self) -> str:
        lines = [f"peak {in_bytes(self.peak)} at {self.peak_time:.3g} ms ({self.peak_name or '-'})"]
        for time, alive in self._bars(16):
            bar = "█" * round(40 * alive / max(self.peak, 1))
            lines.append(f"{time:10.3f} ms  {bar:40}  {in_bytes(alive)}")
        return "\n".join(lines)

    def draw(self, path: str | os.PathLike[str], formats: str) -> None:
        """Draw it with matplotlib into a file."""
        try:
            figures = importlib.import_module("matplotlib.figure")
        except ImportError as error:
            raise MissingLibrary(
                f"save({str(path)!r}) draws with matplotlib, which is not installed: pip install "
                "matplotlib, or print(p.memory()), which needs nothing"
            ) from error
        unit, name = unit_of(self.peak)
        figure = figures.Figure(figsize=(8.0, 3.6), layout="constrained")
        axes = figure.add_subplot()
        times = [*self.times, self.duration]
        alive, kept = ([y / unit for y in (*ys, ys[-1])] for ys in (self.alive, self.kept))
        axes.fill_between(times, alive, step="post", color="#4c78a8", alpha=0.35, linewidth=0)
        axes.step(times, alive, where="post", color="#4c78a8", label="made in the block and alive")
        axes.step(times, kept, where="post", color="#e45756", label="kept for a backward pass")
        if self.peak:
            at = (self.peak_time, self.peak / unit)
            text = f"{in_bytes(self.peak)}, {self.peak_name}"
            axes.plot(*at, "o", color="#4c78a8", markersize=4)
            axes.annotate(
                text, at, (0, 6), textcoords="offset points", ha="center", fontsize="small"
            )
        for k, (label, begin, end) in enumerate(self.blocks):
            axes.axvspan(begin, end, color="#000000", alpha=0.03 + 0.05 * (k % 2), linewidth=0)
            axes.text(
                (begin + end) / 2, 0.88, label, transform=axes.get_xaxis_transform(), ha="center"
            )
        axes.set_xlim(0, max(self.duration, 1e-6))
        axes.set_ylim(0, 1.3 * max(*alive, *kept, 1e-9))
        axes.set_xlabel("time in ms")
        axes.set_ylabel(f"memory in {name}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", frameon=False, ncols=2, fontsize="small")
        figure.savefig(path, format=formats, dpi=150)


# Traces


def chrome_trace(events: Iterable[Event], memory: Memory, start: int) -> dict[str, object]:
    """The events in the format of chrome://tracing and Perfetto; arrows lead from forward to backward."""
    events = sorted(events, key=lambda event: (event.start, -event.end))
    entries: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "fad"}}
    ]
    for thread in sorted({event.thread for event in events}):
        name = {"name": f"thread {thread}"}
        entries.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": name})

    def micro(ns: int) -> float:
        return (ns - start) / 1000

    for e in events:
        args: dict[str, object] = {"level": e.level, "python µs": e.python / 1000}
        args |= {"xla µs": e.xla / 1000, "compile µs": e.compiling / 1000}
        args |= {"bytes made": e.made, "bytes saved": e.saved}
        if e.sequence is not None:
            args["seq"], args["seq thread"] = e.sequence
        if e.operations:
            args["operations"] = e.operations
        if e.failed:
            args["failed"] = True
        place = {"pid": 0, "tid": e.thread, "ts": micro(e.start), "dur": e.duration / 1000}
        entries.append({"ph": "X", "name": e.name, "cat": e.kind, **place, "args": args})
    number = 0
    for forward, ran in pairs(events):
        for e in ran:
            number += 1
            link = {"name": "backward of", "cat": "sequence", "id": number, "pid": 0}
            entries.append({"ph": "s", **link, "tid": forward.thread, "ts": micro(forward.start)})
            entries.append({"ph": "f", "bp": "e", **link, "tid": e.thread, "ts": micro(e.start)})
    for time, alive, kept in zip(memory.times, memory.alive, memory.kept, strict=True):
        values = {"alive": alive, "kept for backward": kept}
        entries.append({"ph": "C", "name": "bytes", "pid": 0, "ts": 1000 * time, "args": values})
    return {"traceEvents": entries, "displayTimeUnit": "ms"}
