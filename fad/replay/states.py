"""All traces so far, as a tree: to append costs one look-up, and a state has the programs of its traces."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import itertools
import sys
import threading
import zlib
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fad.core.observation import observable
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Aval, Expanding, Operand, Operation
from fad.replay.inputs import FOREIGN
from fad.replay.outcomes import Known, outcome_of, use_of
from fad.replay.policy import SHORT, Ending, Policy, Use, ends_segment, fresh_in, repays_whole
from fad.replay.program import Program

if TYPE_CHECKING:
    from fad.replay.buffer import Buffer

T = TypeVar("T")

CAPACITY = 1 << 14  # states, roots and endings remembered


@dataclasses.dataclass(slots=True, eq=False)
class State:
    """What was appended up to here: an operation, after those of the state before.

    ``refs`` are its arguments: the number of an earlier output, or ``~k`` for input k. The first ``own`` of
    them are written to. What is known of its outputs is an `Outcome`. ``first`` is the number of its first
    output, ``size`` counts all outputs so far, ``taken`` the inputs, ``work`` the operations, those of
    programs among them included. ``has_writes``, ``has_untracked``: some of them are writes, or
    untracked. ``content`` is a hash of the operation and of the relative places of its arguments. ``cuts``: a
    segment ends here. ``use`` says whether the operation is new. ``next`` has the states that came after it,
    by their keys. ``passes`` has what `Stretch.passed` finds.
    """

    op: Any
    refs: tuple[int, ...]
    own: int
    avals: Sequence[Aval]
    layouts: Sequence[Hashable]
    requires: Sequence[bool]
    routed: Sequence[bool]
    kept: Sequence[int]
    single: bool
    size: int
    taken: int
    work: int = 0
    has_writes: bool = False
    has_untracked: bool = False
    content: int = 0
    cuts: bool = False
    use: Use = dataclasses.field(default_factory=Use)
    next: dict[Hashable, State] = dataclasses.field(default_factory=dict)
    endings: dict[Hashable, Ending] = dataclasses.field(default_factory=dict)
    passes: dict[Hashable, Any] = dataclasses.field(default_factory=dict)
    first: int = 0
    untracked: bool = False

    def ending(self, key: Hashable) -> Ending:
        """That of stretches that end here in the way that ``key`` says."""
        return tree.remember(self.endings, key, Ending)


class Root(State):
    """The beginning of traces at levels of one kind, with its `Policy`.

    ``code`` is what its key has by `id`, kept alive so that the `id` stays unique. ``is_cut``: its traces are
    cut.
    """

    is_cut = False

    def __init__(self, code: object, name: str, taken: int) -> None:
        super().__init__(None, (), 0, (), (), (), (), (), True, 0, taken)
        self.code, self.name, self.policy = code, name, Policy()

    def cut(self) -> None:
        """Cut its traces from now on; what is known of them was not cut."""
        if not self.is_cut:
            self.is_cut = True
            self.next.clear()


class _Tree:
    """All states, and their number; forgotten as a whole when there are too many. ``hits``: programs run,
    ``passes``: those of backward passes of single nodes. ``log``: how the last traces ended.
    """

    hits = passes = 0

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.log: collections.deque[tuple[str, int, str]] = collections.deque(maxlen=64)
        self.forget()

    def forget(self) -> None:
        """Forget all states."""
        self.roots: dict[Hashable, Root] = {}
        self.size = 0

    def remember(self, table: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
        """What this table of the tree, or of a state, has for a key: made if need be.

        At `CAPACITY` all states are forgotten.
        """
        found = table.get(key)
        if found is None:
            found = table.setdefault(key, make())
            with self.lock:
                if self.size >= CAPACITY:
                    self.forget()
                self.size += 1
        return found

    def endings(self) -> list[Ending]:
        """All that are remembered."""
        states: list[State] = list(self.roots.values())
        for at in states:
            states += at.next.values()
        return [ending for at in states for ending in at.endings.values()]

    def note(self, name: str, count: int, what: str) -> None:
        """Log how a trace of so many operations ended."""
        self.log.append((name, count, what))

    def explain(self) -> str:
        """How the last traces ended, the latest last; of equal lines in a row one, with their number."""
        lines = [f"{name} ({count} operations): {what}" for name, count, what in list(self.log)]
        groups = [(line, len(list(equal))) for line, equal in itertools.groupby(lines)]
        return "\n".join([line if n == 1 else f"{n} × {line}" for line, n in groups])


observable(_Tree, "note", "trace")
tree = _Tree()


def root_of(key: Hashable, code: object, name: str, taken: int = 0) -> Root:
    """The root of traces with this key, which may have ``code`` by its `id`, and begin with inputs."""
    return tree.remember(tree.roots, key, lambda: Root(code, name, taken))


def origin_of(path: Sequence[State], place: int) -> State:
    """The state that an output belongs to."""
    return path[bisect.bisect_right(path, place, key=lambda at: at.size)]


def next_state(
    trace: Buffer, op: Operation | Expanding, args: Sequence[Operand], own: int
) -> State | str:
    """The state after an operation that writes to its first ``own`` arguments; or why it is not deferred.

    The key of a state has the operation, ``own``, and for each argument its place, after the guard code of an
    input that no operation before has taken.
    """
    if type(op) is not Primitive and type(op) is not Program:
        return "it runs rules in Python"
    if type(op) is Primitive and not op.deferrable:
        return "it is not a pure operation that can be deferred"
    before = trace.path[-1]
    taken = before.taken
    key: list[Hashable] = [op, own]
    places = trace.places
    for a in args:
        if type(a) is Tensor:
            lazy = a._lazy
            if lazy is not None and lazy.trace is trace:
                key.append(lazy.place)
                continue
        place = places.get(id(a))
        if place is None:
            place = trace.place(a)
        if place is None:
            k = [*map(id, args)].index(id(a))
            return f"argument {k} is large, traced by JAX, on other devices, or in the middle of a graph"
        if place < 0 and ~place >= taken:
            taken = ~place + 1
            key.append(trace.inputs[~place].code)
        key.append(place)
    at = tuple(key)
    return before.next.get(at) or _new_state(trace, at, taken)


def _new_state(trace: Any, key: tuple[Any, ...], taken: int) -> State | str:
    op, own = key[:2]
    before, path = trace.path[-1], trace.path[1:]
    if trace.is_new and before.work > SHORT and not repays_whole(before.work, fresh_in(path)):
        return "it is new, and its operations repeat"

    def known(ref: int) -> Known:
        if ref < 0:
            return trace.inputs[~ref].layout, trace.inputs[~ref].aval
        at = origin_of(path, ref)
        return at.layouts[ref - at.first], at.avals[ref - at.first]

    refs = tuple([k for k in key[2:] if type(k) is int])
    args = list(map(known, refs))
    outcome = outcome_of(trace.level, op, args, trace.key)
    if outcome is None:
        return "its outputs are not known from abstract evaluation"
    near = [before.size - r if r >= 0 else -1 for r in refs]
    untracked = FOREIGN in outcome.layouts
    content = zlib.crc32(repr((op.name, *near)).encode())
    at = State(
        op,
        refs,
        own,
        *outcome,
        first=before.size,
        size=before.size + len(outcome.avals),
        taken=taken,
        work=before.work + (op.work if type(op) is Program else 1),
        has_writes=before.has_writes or own > 0,
        untracked=untracked,
        has_untracked=before.has_untracked or untracked,
        content=content,
        cuts=ends_segment(path, content, trace.root.is_cut),
        use=use_of(op, args, (trace.around, trace.key)),
    )
    return tree.remember(before.next, key, lambda: at)


def referenced(values: Sequence[object], known: int = 0) -> list[int]:
    """The places of the values that something refers to, besides this list and ``known`` others."""
    return [k for k, count in enumerate(_references(values)) if count > _ALONE + known]


def _references(values: Sequence[object]) -> list[int]:
    return [sys.getrefcount(v) for v in values]


_ALONE = _references([object()])[0]
