"""What scripts have done so far, as a tree; and what a path through it does, as one Primitive.

See NOTE [scripts] in `fad.tape.scripts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.dispatch import bind, state, undisturbed
from fad.primitive import Primitive
from fad.structures import budget
from fad.tape.record import GradLevel
from fad.tensor import Tensor

__all__ = [
    "End",
    "Pull",
    "Root",
    "State",
    "cache_info",
    "clear_cache",
    "grow",
    "passed_of",
    "program_of",
    "root_of",
]

CAPACITY = 1 << 14  # states, roots and ends remembered

Pull = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Any]], list[Any]]


class State:
    """What was written down up to here: an operation, after those of the state before.

    ``refs`` are its arguments: the number of an earlier output, or ``~k`` for operand k; ``marks`` says which
    of these were new, by a number for what they were. ``routed`` says through which a gradient goes on.
    ``avals`` and ``tracked`` are of its outputs: whether they require grad. ``size`` is the number of all
    outputs so far. ``ends`` has what is known of scripts that ended here, by what was asked for.
    ``likely`` is the state that came after this one the last time.
    """

    __slots__ = (
        "avals",
        "ends",
        "likely",
        "marks",
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
        marks: tuple[int, ...],
        routed: Sequence[bool],
        avals: Any,
        tracked: Any,
        single: bool,
        size: int,
    ) -> None:
        self.op = op
        self.refs = refs
        self.marks = marks
        self.routed = routed
        self.avals = avals
        self.tracked = tracked
        self.single = single
        self.size = size
        self.next: dict[Any, State] = {}
        self.likely: State | None = None
        self.ends: dict[Any, End] = {}

    def end(self, key: Any) -> End:
        """What is known of scripts that end here, of which this was asked."""
        end = self.ends.get(key)
        if end is None:
            grow()
            end = self.ends.setdefault(key, End())
        return end


class Root(State):
    """The beginning of scripts for inputs with the same avals, and how many in a row came to nothing.

    ``code`` is what its key has by `id`, kept alive so that the `id` stays its own.
    """

    __slots__ = ("begun", "code", "vain")

    def __init__(self, code: Any) -> None:
        super().__init__(None, (), (), (), (), (), True, 0)
        self.code = code
        self.begun = 0
        self.vain = 0

    def rests(self) -> bool:
        """Whether this time nothing is written down: it is, once in 2, 4, 8... times after failures."""
        self.begun += 1
        if not budget.impatient and self.begun & ((1 << min(self.vain >> 2, 8)) - 1):
            return True
        self.vain += 1  # until it has come to something
        return False


class End:
    """How often a script has ended in the same way, and the Primitive made of it.

    ``passed``: the outputs of operations that its backward pass goes through. ``results``: how many gradients
    it has, 0 if there is none for some input.
    """

    __slots__ = ("count", "passed", "program", "refused", "results")

    def __init__(self) -> None:
        self.count = 0
        self.passed: frozenset[int] = frozenset()
        self.program: Primitive | None = None
        self.results = 0
        self.refused = False


class _Tree:
    """All states, and their number; replaced as a whole when there are too many."""

    __slots__ = ("compiled", "hits", "roots", "size")

    def __init__(self) -> None:
        self.roots: dict[Any, Root] = {}
        self.size = 0
        self.compiled = 0
        self.hits = 0


tree = _Tree()


def cache_info() -> dict[str, int]:
    """How many roots are remembered, how many scripts became Primitives, and how often those ran."""
    return {"structures": len(tree.roots), "compiled": tree.compiled, "hits": tree.hits}


def clear_cache() -> None:
    """Forget all scripts."""
    global tree
    tree = _Tree()


def root_of(key: Any, code: Any = None) -> Root:
    """The root of scripts with this key, which may have ``code`` by its `id`."""
    root = tree.roots.get(key)
    if root is None:
        grow()
        root = tree.roots.setdefault(key, Root(code))
    return root


def grow() -> None:
    """Count one thing more that is remembered; forget all if it is too much."""
    if tree.size >= CAPACITY:
        clear_cache()
    tree.size += 1


def passed_of(path: Sequence[State], ends: Sequence[int]) -> frozenset[int]:
    """The outputs of all operations that a backward pass from ``ends`` goes through."""
    passed = set(ends)
    for step in reversed(path):
        own = range(step.size - len(step.avals), step.size)
        if not passed.isdisjoint(own):
            passed.update(own)
            passed.update([r for r, m in zip(step.refs, step.routed, strict=True) if m and r >= 0])
    return frozenset(passed)


def program_of(
    path: Sequence[State],
    inputs: Sequence[int],
    ends: Sequence[int],
    held: Sequence[int],
    pull: Pull,
) -> Primitive:
    """A script and ``pull`` as one operation of the operands, of which ``inputs`` are differentiated.

    It returns what ``pull`` gives, and the values of the cells that are held.
    """
    steps = [(s.op, s.refs) for s in path]

    def replay(*operands: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        with undisturbed():
            state.compiling = False
            return written(*operands)

    def written(*operands: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        with GradLevel() as level:
            given = list(operands)
            values = [operands[k] for k in inputs]
            variables = [level.variable(v) for v in values]
            for k, v in zip(inputs, variables, strict=True):
                given[k] = v
            cells: list[Any] = []
            for op, refs in steps:
                out = bind(op, [cells[r] if r >= 0 else given[~r] for r in refs])
                cells.extend(out if type(out) is tuple else (out,))
            found = pull([cells[k] for k in ends], variables, values)
            return tuple(found), tuple([level.detach(cells[k]) for k in held])

    return Primitive("gradient", replay, lazy=True, hot=True, small=True)
