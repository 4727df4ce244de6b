"""What traces have done so far, as a tree: to append costs one look-up, and a state knows its programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from fad.replay.modes import at_once
from fad.replay.program import Program

__all__ = ["LONGEST", "End", "Root", "State", "clear_cache", "ends", "passed_of", "root_of", "tree"]

CAPACITY = 1 << 14  # states, roots and ends remembered
FAILURES = 4  # after which a program is given up
REPEATS = 2  # times that traces end in the same way before a program is made


LONGEST = 512  # operations in a trace, or in a segment of a longer one
# From so many operations on, a segment ends after one whose hash ends in so many zeros.
CUTS = ((384, 2), (256, 4), (128, 6))


def ends_segment(depth: int, content: int) -> bool:
    """Whether a segment of so many operations ends here; ``content`` is a hash of the last operations.

    NOTE [segments]

    A long trace is cut into segments, each a program, so that no program grows without bound.
    Where depends on what the last operations are, and not on how many there were: so the turns of
    a loop give the same segments again, wherever the loop begins. The longer a segment is, the
    more operations end it.
    """
    if depth >= LONGEST:
        return True
    for least, zeros in CUTS:
        if depth >= least:
            return content & ((1 << zeros) - 1) == 0
    return False


class State:
    """What was appended up to here: an operation, after those of the state before.

    ``refs`` are its arguments: the number of an earlier output, or ``~k`` for input k; ``codes`` are the
    guard codes of those inputs that come in here, 0 elsewhere. ``routed`` says through which arguments
    gradients go on. ``avals`` and ``layouts`` are of its outputs; ``tracked`` whether they require grad.
    ``size`` is the number of all outputs so far, ``depth`` that of the operations. ``cuts``: a
    segment ends here. ``likely`` is the state that came after this one the last time.
    """

    __slots__ = (
        "avals",
        "codes",
        "cuts",
        "depth",
        "ends",
        "layouts",
        "likely",
        "next",
        "op",
        "refs",
        "routed",
        "single",
        "size",
        "tracked",
    )

    def __init__(
        self,
        op: Any,
        refs: tuple[int, ...],
        codes: tuple[int, ...],
        avals: Sequence[Any],
        layouts: Sequence[Any],
        tracked: Sequence[bool],
        routed: Sequence[bool],
        single: bool,
        size: int,
        depth: int = 0,
        cuts: bool = False,
    ) -> None:
        self.op = op
        self.refs = refs
        self.codes = codes
        self.avals = avals
        self.layouts = layouts
        self.tracked = tracked
        self.routed = routed
        self.single = single
        self.size = size
        self.depth = depth
        self.cuts = cuts
        self.next: dict[Any, State] = {}
        self.likely: State | None = None
        self.ends: dict[Any, End] = {}

    def end(self, key: Any) -> End:
        """What is known of traces that end here, of which this was asked."""
        end = self.ends.get(key)
        if end is None:
            grow()
            end = self.ends.setdefault(key, End())
        return end


class Root(State):
    """The beginning of traces at levels of one kind, and how many in a row came to nothing.

    ``code`` is what its key has by `id`, kept alive so that the `id` stays its own; ``function`` is
    the key without shapes, None if there is no code. ``awaited`` is the last of its programs that is to be
    compiled: until then nothing is traced.
    """

    __slots__ = ("awaited", "begun", "code", "failures", "function", "name")

    def __init__(self, code: Any, name: str, function: Any) -> None:
        super().__init__(None, (), (), (), (), (), (), True, 0)
        self.code = code
        self.function = function
        self.name = name
        self.awaited: Program | None = None
        self.begun = 0
        self.failures = 0

    def backs_off(self, repeated: bool = False) -> bool:
        """Whether nothing is traced this time.

        Calls are traced from the second on, from the first on if they are known to repeat (``repeated``).
        After failures it is one call in 2, 4, 8, ...
        """
        if self.awaited is not None:
            if self.awaited.is_awaited:
                return True
            self.awaited = None
        self.begun += 1
        if at_once.count:
            return False
        if (self.begun == 1 and not repeated) or self.begun & (
            (1 << min(self.failures >> 2, 8)) - 1
        ):
            return True
        self.failures += 1  # until it has come to something
        return False


class End:
    """How often traces have ended in the same way, and the program made of them.

    ``passed``: the outputs of operations that its backward pass goes through.
    """

    __slots__ = ("count", "failures", "passed", "program", "refused")

    def __init__(self) -> None:
        self.count = 0
        self.failures = 0
        self.passed: frozenset[int] = frozenset()
        self.program: Program | None = None
        self.refused = ""

    def due(self, make: Callable[[], Program], known: bool = False) -> Program | None:
        """The program, if traces have ended so often enough.

        Arguments:
            known: the function is known with other shapes. Its operations would be compiled one by one, so
                the program is made now, and compiled at once.
        """
        self.count += 1
        repeated = self.count >= REPEATS or at_once.count or known
        if repeated and self.program is None and not self.refused:
            self.program = make()
            self.program.in_foreground = known
        return self.program

    def always(self, make: Callable[[], Program]) -> Program:
        """The program, which is compiled if traces have ended so often enough."""
        self.count += 1
        if self.program is None:
            self.program = make()
        self.program.compiles = self.count >= REPEATS or at_once.count > 0
        return self.program

    def fail(self, error: Exception) -> None:
        """Note that the program has raised; one that does so again and again is run no more."""
        self.failures += 1
        if self.failures >= FAILURES:
            self.program, self.refused = None, f"{type(error).__name__}: {error}"


class _Tree:
    """All states, and their number; replaced as a whole when there are too many."""

    __slots__ = ("functions", "hits", "roots", "size")

    def __init__(self) -> None:
        self.roots: dict[Any, Root] = {}
        self.functions: set[Any] = set()  # `Root.function` of those that were replayed
        self.size = 0
        self.hits = 0


tree = _Tree()
_growing = threading.Lock()


def clear_cache() -> None:
    """Forget all states."""
    tree.__init__()  # type: ignore[misc]


def root_of(key: Any, code: Any, name: str, function: Any = None) -> Root:
    """The root of traces with this key, which may have ``code`` by its `id`."""
    root = tree.roots.get(key)
    if root is None:
        grow()
        root = tree.roots.setdefault(key, Root(code, name, function))
    return root


def grow() -> None:
    """Count one thing more that is remembered; forget all if it is too much."""
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


def passed_of(path: Sequence[State], ends: Sequence[int]) -> frozenset[int]:
    """The outputs of all operations that a backward pass from ``ends`` goes through."""
    passed = set(ends)
    for step in reversed(path):
        own = range(step.size - len(step.avals), step.size)
        if not passed.isdisjoint(own):
            passed.update(own)
            passed.update([r for r, m in zip(step.refs, step.routed, strict=False) if m and r >= 0])
    return frozenset(passed)
