"""The policy of replay: when something is deferred, when it is compiled, and whether that pays.

All decisions are here, and nothing else is:

| what | when |
| --- | --- |
| the function of a transform is traced | in each call, but for `Policy.backs_off` |
| a step of the tape is traced | its first operation has begun ``SEEN`` others, but for `Policy.backs_off` |
| a stretch is compiled in the calling thread | most of its operations are new: NOTE [first calls] |
| a stretch is compiled in the background | it has repeated: ``REPEATS``, NOTE [long programs] |
| a stretch ends | something needs a value or a node, or it is long: NOTE [segments] |
| anything is compiled at once | in ``fad.autograd.compiled(wait=True)``: `at_once` |

Numbers are counts: no clock decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fad.core import jaxapi
from fad.core.caches import Table
from fad.replay.background import worker

if TYPE_CHECKING:
    from fad.core.types import Operand
    from fad.replay.program import Program
    from fad.replay.states import State

    Make = Callable[[], Program]

REPEATS = 2  # times that a stretch ends in the same way before a program is made of it
SEEN = 2  # times that an operation has begun a graph before steps that begin with it are traced
SHORT = 64  # operations; programs of more are compiled later
RUNS = 128  # of a long program that would take about as long as compiling it
WHOLE = 10  # operations of a new program for each one among them that is new
TIMES = 2  # programs that are compiled at once before an operation in them counts as known
LONGEST = 512  # operations in a stretch
MOST = 1 << 26  # elements of the inputs and outputs of a stretch
# From so many operations on, a segment ends after one whose hash is the least of so many last ones.
LONG, WINDOW = 384, 64


# While it has entries, everything is compiled as soon as its structure is known, in all threads.
at_once: list[bool] = []


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
    return sum([getattr(op, "fresh", 1) for op in new.values()])  # of a program: those in it


def ends_segment(path: Sequence[State], content: int, elements: int) -> bool:
    """Whether a segment ends after the operations of ``path`` and one more, of which ``content`` is a hash.

    ``elements``: of all inputs and outputs.

    NOTE [segments]

    A trace is cut into segments, each a program, where a value is read, and where it has more than
    ``LONGEST`` operations, so that no program grows without bound, or ``MOST`` elements, since its inputs are
    kept until it runs. Where a trace of many operations is cut depends on what the last operations are, and
    not on how many there were: a segment ends where the hash of an operation is the least in a window. So the
    iterations of a loop give the same segment again, wherever the loop begins, and it is compiled once.
    """
    depth = len(path) + 1
    is_least = depth >= LONG and content <= min([s.content for s in path[-WINDOW:]])
    return is_least or depth >= LONGEST or elements > MOST


@dataclasses.dataclass(slots=True, eq=False)
class Ending:
    """A way in which stretches have ended: how often, and the program made of them."""

    count: int = 0
    program: Program | None = None


@dataclasses.dataclass(slots=True, eq=False)
class Policy:
    """For the traces of one function, or of steps that begin with the same operation.

    ``begun`` counts its calls, ``failures`` those in a row that were not replayed.

    NOTE [long programs]

    XLA takes some milliseconds for each operation that it compiles, and slows down what computes meanwhile.
    A program of few operations is compiled when it repeats. One of many takes seconds, about as long as it
    takes to run its operations one by one ``RUNS`` times. It is compiled once it has repeated, from call
    ``due`` on; where a long trace has one segment several times, that is earlier.
    """

    begun: int = 0
    due: int = RUNS
    failures: int = 0

    def backs_off(self) -> bool:
        """Whether nothing is traced this time: after failures it is one call in 2, 4, 8, ..."""
        self.begun += 1
        if at_once:
            return False
        if self.begun & ((1 << min(self.failures >> 2, 8)) - 1):
            return True
        self.failures += 1  # set to 0 when it is replayed
        return False

    def decide(self, ended: dict[State, int]) -> None:
        """Decide when long programs are compiled, after a trace whose segments ended so often in each way."""
        self.due = RUNS * (len(ended) + 1) // (sum(ended.values()) + 1)

    def is_early(self, at: State) -> bool:
        """Whether a program that ends at this state is long, and not compiled yet."""
        return at.work > SHORT and self.begun < self.due

    def program(
        self, ending: Ending, path: Sequence[State], make: Make, *, now: bool, new: bool
    ) -> Program | str:
        """The first program of a stretch that has ended like this; or why its operations run one by one.

        Arguments:
            path: its states.
            now: it is part of a program of an outer level, and not compiled for itself.
            new: it may be compiled in the calling thread, see NOTE [first calls].
        """
        ending.count += 1
        fresh = fresh_in(path) if new else 0
        whole = new and repays_whole(path[-1].work, fresh)
        repeated = ending.count >= REPEATS and not self.is_early(path[-1])
        if not (repeated or whole or now or at_once):
            return "it is new"
        program = ending.program = make()
        if new:
            program.in_foreground, program.fresh = whole, fresh
            for use in {s.use for s in path}:
                use.times += 1
        return program

    def have_ready(self, program: Program, values: Sequence[Operand]) -> bool:
        """Whether a program can run on these values now; if need be, it is compiled, or queued for that."""
        if program.call is not None or not jaxapi.at_top_level() or jaxapi.checks_numbers():
            return True
        if not all([type(v) is jaxapi.array_type for v in values]):
            return True  # its operations are bound
        if not (program.queued or program.refused):
            avals = [v.aval for v in values]  # type: ignore[union-attr]
            if at_once or program.in_foreground:
                program.compile(avals)
            else:
                program.queued = worker.submit(program, avals)
        if program.queued and not program.refused:
            self.failures = 0  # it is being compiled
        return program.call is not None


steps_begun = Table(1 << 14)  # how often graphs may have begun with a plan, by its id


def is_step_due(plan_id: int) -> bool:
    """Whether a step that begins with an operation of this plan is traced."""
    if at_once or steps_begun.put(plan_id, 0) >= SEEN:
        return True
    steps_begun[plan_id] += 1
    return False
