"""All traces so far, as a tree: to append costs one look-up, and a state has the programs of its traces.

What an operation gives at a level is known from abstract evaluation.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax

from fad.core.avals import aval_of, struct_of
from fad.core.caches import Table
from fad.core.level import Level, bind, state, with_default_state
from fad.core.observation import observable
from fad.core.tensor import Tensor
from fad.core.threads import without_collector
from fad.core.types import Operand, Operation, Outputs, Value
from fad.replay.inputs import FOREIGN, LARGE, AbstractValue
from fad.replay.policy import SHORT, Ending, Policy, Use, ends_segment, fresh_in, repays_whole
from fad.tape.graph import count_nodes, running
from fad.tape.recorder import ROOT, GradLevel, RecordingLevel

if TYPE_CHECKING:
    from fad.replay.trace import Trace


class Outcome(NamedTuple):
    """The outputs of an operation at a level. ``single``: it returns no tuple."""

    outputs: tuple[AbstractValue, ...]
    single: bool


_MOST = 512  # outcomes and uses remembered for each operation
_outcomes: weakref.WeakKeyDictionary[Operation, Table] = weakref.WeakKeyDictionary()
forget_outcomes = _outcomes.clear


def made_of(level: Level, parts: Iterator[Operand], layout: Hashable) -> Any:
    """A value with this layout at a level: a Tensor of the level from its next parts, or the next one."""
    return next(parts) if layout is FOREIGN else level.unflatten(layout, parts)


def maker_of(level: Level) -> Callable[[], Level]:
    """A function that makes an equivalent level; it does not refer to this one."""
    settings = level.settings or ()
    return functools.partial(GradLevel if level is ROOT else type(level), *settings)


def key_of(level: Level) -> Hashable:
    """A key of what a level does: levels with equal keys are equivalent."""
    of: object = type(level)
    return of, level.kind, *(level.settings or ())


def use_of(op: Operation, args: Sequence[AbstractValue], key: Hashable) -> Use:
    """How ``op`` has been used with these arguments, where ``key`` has the levels around as well."""
    return _outcomes.setdefault(op, Table(_MOST)).put(("uses", key, *args), Use())


def outcome_of(
    level: RecordingLevel, op: Operation, args: Sequence[AbstractValue], key: Hashable
) -> Outcome | None:
    """The outputs of ``op`` at a level like this one; None if they cannot be known.

    It is evaluated on abstract values, once; errors are raised by the evaluation proper.
    """
    table = _outcomes.setdefault(op, Table(_MOST))
    place = (key, *args)
    if place in table:
        return table[place]  # type: ignore[no-any-return]
    outcomes: list[Outcome] = []
    maker = maker_of(level)

    @with_default_state()
    def run(*values: Value) -> Outputs:
        state.replaying = False
        with maker() as inner:
            rest = iter(values)
            out = bind(op, [made_of(inner, rest, layout) for layout, *_ in args])
            outs = out if type(out) is tuple else (out,)
            flat = [inner.flatten(o) for o in outs]
            outputs = [
                AbstractValue(layout, inner.aval(o), tuple(map(aval_of, values)))
                for o, (values, layout) in zip(outs, flat, strict=True)
            ]
            outcomes.append(Outcome(tuple(outputs), type(out) is not tuple))
            return [p for values, _ in flat for p in values]

    try:
        abstract_evaluation(run, *[struct_of(aval) for *_, parts in args for aval in parts])
    except Exception:  # of any kind: the evaluation proper raises it where the operation is called
        return None
    are_small = all([o.aval.size <= LARGE for o in outcomes[0].outputs])
    return table.put(place, outcomes[0] if are_small else None)  # type: ignore[no-any-return]


abstract_evaluation = without_collector(jax.eval_shape)
observable(sys.modules[__name__], "abstract_evaluation", "abstract_evaluation")


T = TypeVar("T")

CAPACITY = 1 << 14  # states, roots and endings remembered


@dataclasses.dataclass(slots=True, eq=False)
class State:
    """What was appended up to here: an operation, after those of the state before.

    ``refs`` are its arguments: the number of an earlier output, or ``~k`` for input k. ``first`` is the
    number of its first output, ``size`` counts all outputs so far, ``taken`` the inputs, ``elements`` those
    of both, ``work`` the operations, those of programs among them included. ``content`` is a hash of the
    operation and of the relative places of its arguments. ``cuts``: a segment ends here. ``use`` says whether
    the operation is new. ``next`` has the states that came after it, by their keys.
    """

    op: Any
    refs: tuple[int, ...]
    outcome: Outcome
    size: int
    taken: int
    work: int = 0
    elements: int = 0
    content: int = 0
    cuts: bool = False
    use: Use = dataclasses.field(default_factory=Use)
    next: dict[Hashable, State] = dataclasses.field(default_factory=dict)
    endings: dict[Hashable, Ending] = dataclasses.field(default_factory=dict)
    first: int = 0

    def ending(self, key: Hashable) -> Ending:
        """That of stretches that end here in the way that ``key`` says."""
        return tree.remember(self.endings, key, Ending)


class Root(State):
    """The beginning of traces at levels of one kind, with its `Policy`.

    ``code`` is what its key has by `id`, kept alive so that the `id` stays unique.
    """

    def __init__(self, code: object, name: str, taken: int) -> None:
        super().__init__(None, (), Outcome((), True), 0, taken)
        self.code, self.name, self.policy = code, name, Policy()


@dataclasses.dataclass(slots=True)
class _Ended:
    """How a trace ended, in a ``thread`` that had so many ``nodes`` then, and ``after`` it more."""

    name: str
    count: int
    what: str
    thread: int
    nodes: int
    after: int | None = None


class _Tree:
    """All states, and their number; forgotten as a whole when there are too many. ``hits``: programs run.
    ``log``: how the last traces ended.
    """

    hits = 0

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.log: collections.deque[_Ended] = collections.deque(maxlen=64)
        self.forget()

    def forget(self) -> None:
        """Forget all states."""
        self.roots: dict[Hashable, Root] = {}
        self.size = 0

    def remember(self, table: dict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
        """What this table of the tree, or of a state, has for a key: made if need be.

        At `CAPACITY` all states are forgotten.
        """
        value = table.get(key)
        if value is None:
            value = table.setdefault(key, make())
            with self.lock:
                if self.size >= CAPACITY:
                    self.forget()
                self.size += 1
        return value

    def endings(self) -> list[Ending]:
        """All that are remembered."""
        states: list[State] = list(self.roots.values())
        for at in states:
            states += at.next.values()
        return [ending for at in states for ending in at.endings.values()]

    def note(self, name: str, count: int, what: str) -> None:
        """Log how a trace of so many operations ended."""
        self.log.append(_Ended(name, count, what, running.id, count_nodes()))

    def begin(self) -> None:
        """Note that a trace may begin: what ran since the last one ended ran one by one."""
        last = self.log[-1] if self.log else None
        if last is not None and last.after is None and last.thread == running.id:
            last.after = count_nodes() - last.nodes

    def ended(self) -> list[tuple[str, int, str, int]]:
        """See `fad.core.replay_protocol.Replay.log`."""
        self.begin()
        return [(e.name, e.count, e.what, e.after or 0) for e in list(self.log)]


observable(_Tree, "note", "trace")
tree = _Tree()


def root_of(key: Hashable, code: object, name: str, taken: int = 0) -> Root:
    """The root of traces with this key, which may have ``code`` by its `id`, and begin with inputs."""
    return tree.remember(tree.roots, key, lambda: Root(code, name, taken))


def origin_of(path: Sequence[State], place: int) -> State:
    """The state that an output belongs to."""
    return path[bisect.bisect_right(path, place, key=lambda at: at.size)]


def next_state(trace: Trace, op: Operation, args: Sequence[Operand]) -> State | str:
    """The state after an operation; or why it is not deferred.

    The key of a state has the operation, and for each argument its place, after the guard code of an input
    that no operation before has taken.
    """
    if op.runs_python:
        return "it runs rules in Python"
    if not op.deferrable:
        return "it is not a pure operation that can be deferred"
    before = trace.path[-1]
    taken = before.taken
    key: list[Hashable] = [op]
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
    op, before, path = key[0], trace.path[-1], trace.path[1:]
    if trace.is_new and before.work > SHORT and not repays_whole(before.work, fresh_in(path)):
        return "it is new, and its operations repeat"

    def abstract(ref: int) -> AbstractValue:
        if ref < 0:
            return trace.inputs[~ref].abstract
        at = origin_of(path, ref)
        return at.outcome.outputs[ref - at.first]

    refs = tuple([k for k in key[1:] if type(k) is int])
    args = list(map(abstract, refs))
    outcome = outcome_of(trace.level, op, args, trace.key)
    if outcome is None:
        return "its outputs are not known from abstract evaluation"
    near = [before.size - r if r >= 0 else -1 for r in refs]
    new = [*outcome.outputs, *trace.inputs[before.taken : taken]]
    elements = before.elements + sum([x.aval.size for x in new])
    content = zlib.crc32(repr((op.name, *near)).encode())
    at = State(
        op,
        refs,
        outcome,
        first=before.size,
        size=before.size + len(outcome.outputs),
        taken=taken,
        work=before.work + op.work,
        elements=elements,
        content=content,
        cuts=ends_segment(path, content, elements),
        use=use_of(op, args, (trace.around, trace.key)),
    )
    return tree.remember(before.next, key, lambda: at)


def referenced(values: Sequence[object], once_more: Sequence[int] = ()) -> tuple[int, ...]:
    """The places of the values that something refers to, besides this list, and a list of those at the places
    ``once_more``.

    Counts say it, and not weak references: a trace keeps its outputs, since a view that nothing refers to may
    be saved by a node, which has to see a write to what it is a view of. A version or an owner does not know
    of a variable of a function, which is the usual reference.
    """
    counts = enumerate(_references(values))
    return tuple([k for k, n in counts if n > _ALONE and n > _ALONE + once_more.count(k)])


def _references(values: Sequence[object]) -> list[int]:
    return [sys.getrefcount(v) for v in values]


_ALONE = _references([object()])[0]
