"""What a profile consists of: events, and where they are collected."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Self

from fad.extend import thread_id

now: Callable[[], int] = time.perf_counter_ns


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Event:
    """Something that took time: a call of an operation, a node, a program, a block.

    ``kind``: one of

    * ``operation``: a call of an operation at a level;
    * ``traced``: such a call, or a node, while JAX traces, as in `fad.jit`: nothing is computed yet;
    * ``deferred``: such a call that was appended to a trace, to be replayed;
    * ``backward``: a node in a backward pass;
    * ``replayed``: a repeated trace, or a repeated backward pass, that ran as one program;
    * ``program``: the same, but its operations were bound one by one;
    * ``compilation``: a program of replay was compiled;
    * ``jit``: a call of what `fad.jit` returned;
    * ``function``: a body of a Function ran forward;
    * ``indexing``: a Tensor was indexed, or written to by an index;
    * ``range``: a block of `record_function`.

    ``name``, ``level``: of the operation and its level; levels from the outermost, as in "vmap/grad".
    ``thread``: the number of the thread, as in ``Node.thread_id``. ``start``, ``end``: in nanoseconds of
    `time.perf_counter_ns`. ``parent``: the event in the middle of which it began, or None.
    ``sequence``: the pair of ``sequence_nr`` and ``thread_id`` of the node that a forward call added, or
    that ran; None where there is none. ``operations``: how many operations a program has.
    ``xla``, ``compiling``: nanoseconds of its own in calls of XLA, and in those which compiled;
    ``compiled``: how many did. ``made``: bytes of the arrays that its own calls of XLA gave.
    ``saved``: bytes of the arrays that its node keeps for the backward pass. ``failed``: an exception
    came out of it. ``inner``: nanoseconds of the events that began in it; ``binds``: there were some
    that are not compilations. ``targets``: where it is appended when it ends; ``stack``: the events
    that its thread is in the middle of. ``kind`` is empty for what has come to nothing.
    """

    name: str
    kind: str
    level: str
    stack: list[Event]
    targets: tuple[Target, ...]
    sequence: tuple[int, int] | None = None
    operations: int = 0
    xla: int = 0
    compiling: int = 0
    compiled: int = 0
    inner: int = 0
    made: int = 0
    saved: int = 0
    binds: bool = False
    failed: bool = False
    end: int = 0
    parent: Event | None = dataclasses.field(init=False)
    thread: int = dataclasses.field(init=False)
    start: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.parent = self.stack[-1] if self.stack else None
        self.thread = thread_id()
        self.stack.append(self)
        self.start = now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.end = now()
        self.failed = kind is not None
        stack = self.stack
        if self not in stack:
            return
        while stack.pop() is not self:  # what an interrupt has left there
            pass
        if not self.kind:
            return
        if self.parent is not None:
            self.parent.inner += self.duration
            self.parent.binds |= self.kind != "compilation"
        for target in self.targets:
            if target.is_open:
                target.events.append(self)

    @property
    def duration(self) -> int:
        """Nanoseconds from its start to its end."""
        return self.end - self.start

    @property
    def python(self) -> int:
        """Nanoseconds of its own outside of XLA: without those of events inside of it."""
        return max(self.duration - self.inner - self.xla - self.compiling, 0)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {self.duration / 1000:.1f} µs>"


# What happened to memory: (time, what, key, bytes, name of the event).
MADE, FREED, KEPT, LEFT = "made", "freed", "kept", "left"
Change = tuple[int, str, int, int, str]


@dataclasses.dataclass(slots=True, eq=False)
class Target:
    """Where a profile gets its events from: lists that the observer appends to."""

    sync: bool
    is_open: bool = True
    events: list[Event] = dataclasses.field(default_factory=list)
    changes: list[Change] = dataclasses.field(default_factory=list)
    traces: list[tuple[str, int, str]] = dataclasses.field(default_factory=list)
