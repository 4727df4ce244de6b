"""All traces so far, as a tree: to append costs one look-up, and a state has the programs of its traces."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fad.replay.inputs import FOREIGN
from fad.replay.modes import at_once
from fad.replay.program import Program

__all__ = [
    "LONGEST",
    "RUNS",
    "SHORT",
    "TIMES",
    "End",
    "Root",
    "State",
    "Use",
    "clear_cache",
    "ends",
    "ends_segment",
    "fresh_in",
    "repays_whole",
    "root_of",
    "tree",
]

CAPACITY = 1 << 14  # states, roots and ends remembered
FAILURES = 4  # after which a program is given up
REPEATS = 2  # times that traces end in the same way before a program is made
SHORT = 64  # operations; programs of more are compiled later
RUNS = 128  # of a long program that would take about as long as compiling it


WHOLE = 10  # operations of a new program for each one among them that is new
TIMES = 2  # programs that are compiled at once before an operation in them counts as known


def repays_whole(work: int, fresh: int) -> bool:
    """Whether a new program of so many operations, ``fresh`` of which are new, is compiled at once.

    NOTE [first calls]

    XLA takes some 50 ms to compile a program, even of one operation, and some milliseconds for each further
    operation in it. A new operation is several programs: its own, its derivative, both for batches. So where
    a function is called for the first time, and most of its operations are new too, its trace is compiled as
    one program in the calling thread, and nothing is compiled for single operations. Where operations repeat,
    as in a loop, or are known from other functions, they are run one by one.

    New is what has not run one by one: another path through the function (``training=False``) shares
    operations with the first one, and none of them is compiled for itself. But where functions and paths are
    new all the time, their operations come to be known. So an operation that is in ``TIMES`` programs
    is not new any more. All this is noted for each way in which transforms are nested (`Use`): the batched
    form of an operation is another program than the operation.
    """
    return work <= WHOLE * fresh


@dataclasses.dataclass(slots=True, eq=False)
class Use:
    """How many programs that were compiled at once contain an operation; ``TIMES`` after it ran alone."""

    times: int = 0


def fresh_in(path: Sequence[State]) -> int:
    """How many operations of a path are new; see NOTE [first calls]."""
    new = {s.use: s.op for s in path if s.use.times < TIMES}
    return sum([op.fresh if type(op) is Program else 1 for op in new.values()])


LONGEST = 512  # operations in a trace, or in a segment of a longer one
# From so many operations on, a segment ends after one whose hash is the least of so many last ones.
CUTS = ((480, 4), (448, 16), (384, 64))


def ends_segment(path: Sequence[State], content: int, is_cut: bool) -> bool:
    """Whether a segment ends after the operations of ``path`` and one more, of which ``content`` is a hash.

    ``is_cut``: an earlier trace was too long. The first one ends its first segment at ``LONGEST``.

    NOTE [segments]

    A trace is cut into segments, each a program, where a value is read (`Trace.read`), and where it has more
    than ``LONGEST`` operations, so that no program grows without bound. Where a long trace is cut depends on
    what the last operations are, and not on how many there were: a segment ends where the hash of an
    operation is the least in a window. So the iterations of a loop give the same segment again, wherever the
    loop begins, and it is compiled once. The longer a segment is, the smaller is the window.
    """
    depth = len(path) + 1
    if depth >= LONGEST:
        return True
    for least, window in CUTS if is_cut else ():
        if depth >= least:
            return content <= min([s.content for s in path[1 - window :]])
    return False


@dataclasses.dataclass(slots=True, eq=False)
class State:
    """What was appended up to here: an operation, after those of the state before.

    ``refs`` are its arguments: the number of an earlier output, or ``~k`` for input k; ``codes`` are the
    guard codes of those inputs that are new here, 0 for other arguments. ``routed`` says through which
    arguments gradients flow, ``kept`` which of them its node keeps (-1: an output). ``avals`` and ``layouts``
    are of its outputs; ``tracked`` whether they require grad. ``first`` is the number of its first output,
    ``size`` that of all outputs so far, ``work`` that of the operations, those of programs among them
    included. ``content`` is a hash of the operation and of the relative places of its arguments.
    ``cuts``: a segment ends here. ``use`` says whether the operation is new. ``predicted_next`` is the inline
    cache: the state that came after this one the last time. ``saves`` has what `fad.replay.writes.saved_by`
    finds. ``bare`` is its entry in traces that have run, without outputs: one for all, which spares Python's
    collector work.
    """

    op: Any
    refs: tuple[int, ...]
    codes: tuple[int, ...]
    avals: Sequence[Any]
    layouts: Sequence[Any]
    tracked: Sequence[bool]
    routed: Sequence[bool]
    kept: Sequence[int]
    single: bool
    size: int
    work: int = 0
    content: int = 0
    cuts: bool = False
    use: Use = dataclasses.field(default_factory=Use)
    next: dict[Any, State] = dataclasses.field(default_factory=dict)
    predicted_next: State | None = None
    ends: dict[Any, End] = dataclasses.field(default_factory=dict)
    saves: dict[Any, frozenset[int]] = dataclasses.field(default_factory=dict)
    first: int = dataclasses.field(init=False)
    bare: Any = dataclasses.field(init=False)
    untracked: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.first = self.size - len(self.avals)
        self.bare = (self, None, 0)
        self.untracked = FOREIGN in self.layouts

    def end(self, key: Any) -> End:
        """The End of traces that end here in the way that ``key`` says."""
        end = self.ends.get(key)
        if end is None:
            grow()
            end = self.ends.setdefault(key, End())
        return end


class Root(State):
    """The beginning of traces at levels of one kind, and how many in a row were not replayed.

    ``code`` is what its key has by `id`, kept alive so that the `id` stays unique. ``pending`` is the last
    of its programs that is queued for compiling: until it is compiled nothing is traced, unless the root
    ``has_whole``, a program that was compiled at once, whose operations were not. ``is_cut``: its traces are
    cut. ``defers_untracked``: see NOTE [untracked operations] in `fad.replay.untracked`.

    NOTE [long programs]

    XLA takes some milliseconds for each operation that it compiles, and slows down what computes meanwhile.
    A program of few operations is compiled when it repeats. One of many takes seconds, about as long as it
    takes to run its operations one by one ``RUNS`` times. It is compiled once it has repeated as often as
    that, from call ``due`` on (0: not known yet); where a long trace has one segment several times, it is due
    earlier. Nothing is traced before.
    """

    __slots__ = (
        "begun",
        "code",
        "defers_untracked",
        "due",
        "failures",
        "has_whole",
        "is_cut",
        "name",
        "pending",
    )

    def __init__(self, code: Any, name: str) -> None:
        super().__init__(None, (), (), (), (), (), (), (), True, 0)
        self.code = code
        self.name = name
        self.pending: Program | None = None
        self.begun = 0
        self.due = 0
        self.failures = 0
        self.has_whole = False
        self.defers_untracked = True
        self.is_cut = False

    @property
    def is_due(self) -> bool:
        """Whether programs of its traces are compiled when they repeat."""
        return at_once.count > 0 or 0 < self.due <= self.begun

    def cut(self) -> None:
        """Cut its traces from now on; what is known of them was not cut."""
        self.is_cut = True
        self.next.clear()
        self.predicted_next = None

    def decide(self, runs: int) -> None:
        """Decide when programs are compiled: after so many runs, now if all is to be compiled at once."""
        if at_once.count:
            self.due = self.begun
        elif not self.due:
            self.due = self.begun + runs

    def backs_off(self) -> bool:
        """Whether nothing is traced this time: after failures it is one call in 2, 4, 8, ..."""
        if self.pending is not None and not self.has_whole:
            if self.pending.is_pending:
                return True
            self.pending = None
        self.begun += 1
        if at_once.count:
            return False
        if self.begun < self.due:
            return True
        if self.begun & ((1 << min(self.failures >> 2, 8)) - 1):
            return True
        self.failures += 1  # set to 0 when it is replayed
        return False


@dataclasses.dataclass(slots=True, eq=False)
class End:
    """How often traces have ended in the same way, and the program made of them."""

    count: int = 0
    failures: int = 0
    program: Program | None = None
    refused: str = ""
    _passed: tuple[frozenset[int], frozenset[int]] | None = None

    @property
    def reason(self) -> str:
        """Why there is no program."""
        return f"it failed: {self.refused}" if self.refused else "it is new"

    def due(self, make: Callable[[], Program], now: bool) -> Program | None:
        """The program, if traces have often enough ended in this way, or it is to be made ``now``."""
        self.count += 1
        repeated = self.count >= REPEATS or at_once.count or now
        if repeated and self.program is None and not self.refused:
            self.program = make()
        return self.program

    def always(self, make: Callable[[], Program], is_due: bool) -> Program:
        """The program, which is compiled if it ``is_due`` and traces have often enough ended in this way."""
        self.count += 1
        if self.program is None:
            self.program = make()
        repeated = self.count >= (REPEATS if is_due else RUNS)
        self.program.compiles = repeated or at_once.count > 0
        return self.program

    def passed(
        self,
        path: Sequence[State],
        ends: Sequence[int],
        wanted: Sequence[int],
        writes: dict[int, int],
    ) -> tuple[frozenset[int], frozenset[int]]:
        """What a backward pass goes through from outputs ``ends`` of ``path`` to its inputs ``wanted``: all
        outputs of these operations; and the places of what their nodes save.

        ``writes`` has the operations that are writes, with the number of their first arguments that are
        written to: these are left out, since the node of a write saves handles of its own.
        """
        if self._passed is None:
            led = {~k for k in wanted}
            for step in path:
                if any([m and r in led for r, m in zip(step.refs, step.routed, strict=False)]):
                    led.update(range(step.first, step.size))
            passed = {k for k in ends if k in led}
            saved: set[int] = set()
            for at in range(len(path), 0, -1):
                step = path[at - 1]
                own = range(step.first, step.size)
                if passed.isdisjoint(own):
                    continue
                passed.update(own)
                routes = zip(step.refs, step.routed, strict=False)
                passed.update([r for r, m in routes if m and r >= 0 and r in led])
                for k in step.kept:
                    if k >= writes.get(at, 0):
                        saved.add(step.refs[k])
                    elif k < 0:
                        saved.update(own)
            self._passed = frozenset(passed), frozenset(saved)
        return self._passed

    def fail(self, error: Exception) -> None:
        """Note that the program has raised; after `FAILURES` times it is not run any more."""
        self.failures += 1
        if self.failures >= FAILURES:
            self.program, self.refused = None, f"{type(error).__name__}: {error}"


class _Tree:
    """All states, and their number; replaced as a whole when there are too many."""

    __slots__ = ("hits", "roots", "size")

    def __init__(self) -> None:
        self.roots: dict[Any, Root] = {}
        self.size = 0
        self.hits = 0


tree = _Tree()
_growing = threading.RLock()


def clear_cache() -> None:
    """Forget all states."""
    tree.__init__()  # type: ignore[misc]


def root_of(key: Any, code: Any, name: str) -> Root:
    """The root of traces with this key, which may have ``code`` by its `id`."""
    root = tree.roots.get(key)
    if root is None:
        grow()
        root = tree.roots.setdefault(key, Root(code, name))
    return root


def grow() -> None:
    """Count one more state, root or end; clear all of them at `CAPACITY`."""
    with _growing:
        if tree.size >= CAPACITY:
            clear_cache()
        tree.size += 1


def ends() -> list[End]:
    """All ends of traces that are remembered."""
    found: list[End] = []
    todo: list[State] = list(tree.roots.values())
    while todo:
        at = todo.pop()
        found += at.ends.values()
        todo += at.next.values()
    return found
