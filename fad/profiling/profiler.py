"""Profiles: what a program does, operation by operation, where its time goes, and its memory."""

from __future__ import annotations

import collections
import contextlib
import json
import os
from pathlib import Path
from typing import Self

from fad.errors import ArgumentError
from fad.extend import thread_id
from fad.profiling.collector import close_target, collector, open_target
from fad.profiling.events import Event, Target, now
from fad.profiling.reports import Memory, Rows, chrome_trace, in_time, pairs

_PICTURES = {".svg", ".png", ".pdf"}


class profile:
    """A block in which operations, nodes, programs and memory are noted, in all threads.

    What is profiled runs as it does without: it is recorded, deferred, replayed and compiled in the same
    way, with the same bits. Outside of such blocks nothing is checked for it, and it costs nothing. See
    docs/profiling.md for what each column means.

    Arguments:
        sync: wait for each call of XLA, so that the time in XLA is that of its work. Otherwise it is
            that of the call, which may return before the work is done, as JAX's calls do.

    ``print(p)`` shows `table`; ``p.save`` writes it, a trace for chrome://tracing and Perfetto, or a
    picture of memory over time.

    Raises:
        RuntimeError: it is entered twice, or read before it was entered.

    Source: ``torch.autograd.profiler.profile``, ``torch.profiler.profile``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor([1.0, 2.0], requires_grad=True)
    >>> with fad.autograd.compiled(False), fad.autograd.profile() as p:
    ...     (fnp.sin(x) * x).sum().backward()
    >>> [(f.name, [b.name for b in ran]) for f, ran in p.pairs()]
    [('sin', ['SinBackward']), ('multiply', ['MultiplyBackward']), ('sum', ['SumBackward'])]
    """

    def __init__(self, *, sync: bool = False) -> None:
        self.sync = bool(sync)
        self._target: Target | None = None
        self._start = 0
        self._end = 0
        self._thread = 0

    def __enter__(self) -> Self:
        if self._target is not None:
            raise RuntimeError("profile: this one was entered before: make one for each block")
        self._thread = thread_id()
        self._target = open_target(self.sync)
        self._start = now()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end = now()
        close_target(self._read())

    def _read(self) -> Target:
        if self._target is None:
            raise RuntimeError("profile: nothing was profiled yet: write `with profile() as p:`")
        return self._target

    def __repr__(self) -> str:
        if self._target is None:
            return "<profile, not entered>"
        return f"<profile of {len(self._target.events)} events in {in_time(self.duration)}>"

    def __str__(self) -> str:
        return repr(self) if self._target is None else self.table()

    # What was found

    @property
    def duration(self) -> int:
        """Nanoseconds from the beginning of the block to its end, or to now."""
        self._read()
        return (self._end or now()) - self._start

    def events(self) -> list[Event]:
        """All events that have ended, in the order of their beginnings; see `Event`."""
        return sorted(self._read().events, key=lambda event: event.start)

    def pairs(self) -> list[tuple[Event, list[Event]]]:
        """Each forward call that added a node, with the calls of that node in backward passes.

        They have the same ``sequence``: the node's ``sequence_nr`` and ``thread_id``.
        """
        return pairs(self.events())

    def traces(self) -> list[tuple[str, int, str]]:
        """How traces ended: name, number of operations, and what `fad.autograd.compiled.explain` says."""
        return list(self._read().traces)

    def outside(self) -> int:
        """Nanoseconds of the thread of the block that no event has: Python outside of operations."""
        events = [e for e in self._read().events if e.thread == self._thread]
        inside = set(events)
        return max(self.duration - sum([e.duration for e in events if e.parent not in inside]), 0)

    def key_averages(self) -> Rows:
        """Events of the same name, kind and level, added up: a list of rows, with a ``table``."""
        return Rows.of(self.events())

    def memory(self) -> Memory:
        """Bytes over time; ``print`` shows it as bars."""
        end = self._start + self.duration
        return Memory(list(self._read().changes), self.events(), self._start, end)

    # Reports

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """Rows of events of the same name, kind and level, and where all of the time went.

        Arguments:
            sort_by: by which column, largest first: "own" (the default; Python, XLA and Compile
                together), "total", "python", "xla", "compiling", "calls", "made", "saved", "backward", or
                "name".
            row_limit: how many rows; -1 for all.

        Raises:
            ArgumentError: there is no such column.
        """
        rows = self.key_averages()
        python, xla, compiling = (
            sum([getattr(row, name) for row in rows]) for name in ("python", "xla", "compiling")
        )
        compiled = sum([row.compiled for row in rows])
        lines = [
            f"{in_time(self.duration)} in all, {in_time(self.outside())} of it Python outside of these rows.",
            f"In the rows: Python {in_time(python)}, XLA {in_time(xla)}"
            f"{'' if self.sync else ' (its calls; with profile(sync=True) its work)'}, "
            f"compiling {in_time(compiling)} ({compiled} compiled).",
        ]
        counts = collections.Counter(self.traces())
        for (name, count, what), times in counts.most_common(10):
            lines.append(f"{times} × {name} ({count} operations): {what}")
        return "\n".join([rows.table(sort_by, row_limit), "", *lines])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file; what is in it, its suffix says.

        Arguments:
            path: ``.json`` for a trace that chrome://tracing and https://ui.perfetto.dev show; ``.svg``,
                ``.png`` or ``.pdf`` for a picture of memory over time (drawn with matplotlib); ``.txt``
                for the table.

        Raises:
            ArgumentError: another suffix.
            ImportError: a picture, without matplotlib.
        """
        suffix = Path(path).suffix.lower()
        if suffix == ".json":
            self.export_chrome_trace(path)
        elif suffix in _PICTURES:
            self.memory().draw(path, suffix[1:])
        elif suffix == ".txt":
            Path(path).write_text(f"{self.table(row_limit=-1)}\n", encoding="utf-8")
        else:
            raise ArgumentError(
                f"profile.save: the suffix of {str(path)!r} is {suffix!r}, expected .json (a trace), .svg, "
                ".png or .pdf (memory over time), or .txt (the table)"
            )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """`save` as a trace, whatever the suffix, as in PyTorch."""
        trace = chrome_trace(self.events(), self.memory(), self._start)
        Path(path).write_text(json.dumps(trace, ensure_ascii=False), encoding="utf-8")


class record_function(contextlib.ContextDecorator):
    """A block, or a function that it decorates, with a name in profiles. Without a profile it does nothing.

    Arguments:
        name: what it is called.

    Source: ``torch.autograd.profiler.record_function``.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0])
    >>> with fad.autograd.profile() as p:
    ...     with fad.autograd.record_function("twice"):
    ...         y = x + x
    >>> [(e.name, e.parent and e.parent.name) for e in p.events()]
    [('twice', None), ('add', 'twice')]
    """

    def __init__(self, name: str) -> None:
        self.name = str(name)
        self._open: list[Event | None] = []

    def _recreate_cm(self) -> Self:
        return type(self)(self.name)

    def __enter__(self) -> Self:
        running = collector()
        self._open.append(None if running is None else running.begin(self.name, "range"))
        return self

    def __exit__(self, *exc: object) -> None:
        event = self._open.pop()
        if event is not None:
            event.__exit__(*exc)
