"""The interface between the core and replay, with a null object for when nothing is replayed.

NOTE [the protocol of replay]

    w = fad.tensor(1.0)
    for k in range(9):
        y = x * w  # in the later iterations it is deferred: there is no value yet
        w += 1.0  # what changes an input of deferred operations flushes them first
        assert y.item() == 2.0 * (k + 1)

Replay runs a repeated trace as one operation (`fad.replay`); the core is complete without it, only
slower. The core uses replay through this protocol alone. The call sites are:

* `begin_trace`: the transforms, when their level begins;
* `open_step`: `tape.recorder.record`, for an operation on leaves of the eager tape;
* `Deferred.append`: `RecordingLevel.process` and `RootLevel.process`, for each operation of a level that has
  a trace;
* `Deferred.get`: an empty slot of a lazy Tensor (`Tensor.__getattr__`);
* `Deferred.materialize`: `Tensor.node`, and `core.level.flush`, which is called before the state of a Tensor
  or a mode changes (views.aliases, methods.history, tape.anomaly, grad modes) and before an array is returned
  that the caller may donate (methods.values, views.pytree, compile.jit);
* `Deferred.finish`: `transforms.grad` and `backward`, where gradients are computed;
* `Deferred.close`: `RecordingLevel.__exit__`;
* `fad.autograd.compiled`, for `cache_info`, `clear_cache` and `explain`, which reads `log`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fad.core.level import Level
from fad.core.primitive import Primitive, VjpPlan
from fad.core.tensor import Tensor
from fad.core.types import Operand, Operation, Outputs, PyTree, Value

# From a level, the outputs, the inputs that require grad, their values, and cotangents, to results one level
# down.
Pull = Callable[..., list[Any]]


class Deferred(Protocol):
    """The deferred operations of a level, or of the eager tape, in order. Take ``lock`` to look at
    them and then call `finish`.
    """

    lock: AbstractContextManager[object]

    def append(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        """Defer an operation, and return its outputs.

        None: it cannot be deferred, and the caller evaluates it. The trace has been recorded.
        """

    def get(self, t: Tensor, name: str) -> Any:
        """The value, or what its level keeps beside it, or the node of ``t``, an output of the trace.

        What was deferred is run as one program, or one by one. Raises the error of an operation that has
        failed.
        """

    def materialize(self) -> None:
        """Run the deferred operations one by one: give every output its value and its node."""

    def finish(
        self,
        outs: list[Any],
        pull: Pull,
        *static: Hashable,
        leaves: Sequence[Value] | None = None,
        cotangents: Sequence[Value] = (),
        values: bool = False,
        frees: bool = True,
    ) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """Run the trace and ``pull(level, outs, variables, values, *cotangents)`` as one program; where it
        has segments, the backward pass of each is one more. None if there is no such program.

        Arguments:
            outs: outputs of the function; nothing but this list refers to them, unless the function has
                stored them outside of itself.
            pull: computes the results, one level down, from ``outs``, the inputs ``variables`` that
                require grad, the ``values`` of these one level down, and the ``cotangents``. It gives a
                gradient for each variable where it ``frees`` the graph, as one backward pass does.
            static: what ``pull`` depends on, besides its arguments; part of the key of the program.
            leaves: the leaves for which gradients are wanted; all by default.
            values: whether the values of ``outs`` are needed too.
            frees: whether the backward pass frees the graph.

        Returns:
            The leaves, and the results.
        """

    def close(self) -> None:
        """At the exit of the level: give values to the outputs that are still referenced, drop the
        others.
        """


class Replay(Protocol):
    """An engine that runs repeated traces as compiled programs."""

    def open(
        self, level: Level, inputs: Sequence[Value], function: Callable[..., PyTree] | None
    ) -> None:
        """Give ``level``, which begins with ``inputs``, a trace of the operations of ``function``, if
        it pays.
        """

    def open_step(self, op: Primitive, args: Sequence[Operand], plan: VjpPlan) -> Outputs:
        """Begin a trace of the eager tape with this operation; its outputs, or None if none was
        begun.
        """

    def cache_info(self) -> dict[str, int]:
        """Counts of what is cached."""

    def clear_cache(self) -> None:
        """Forget everything."""

    def log(self) -> list[tuple[str, int, str, int]]:
        """How the last traces ended: name, operations, what happened, and nodes run one by one after it."""

    def compile_at_once(self, on: bool) -> None:
        """Whether to compile each program when it is first needed, in the thread that needs it (a test
        mode).
        """


class NoReplay:
    """The null object: nothing is replayed."""

    def open(
        self, level: Level, inputs: Sequence[Value], function: Callable[..., PyTree] | None
    ) -> None:
        return None

    def open_step(self, op: Primitive, args: Sequence[Operand], plan: VjpPlan) -> Outputs:
        return None

    def cache_info(self) -> dict[str, int]:
        return {"structures": 0, "compiled": 0, "hits": 0, "queued": 0, "refused": 0}

    def clear_cache(self) -> None:
        return None

    def compile_at_once(self, on: bool) -> None:
        return None

    def log(self) -> list[tuple[str, int, str, int]]:
        return [("fad.replay is not installed", 0, "nothing is replayed", 0)]


@dataclasses.dataclass(slots=True)
class Seam:
    """Holds the engine in use, which ``fad/__init__`` sets."""

    replay: Replay


seam = Seam(NoReplay())


def begin_trace(
    level: Level, inputs: Sequence[Value], function: Callable[..., PyTree] | None
) -> None:
    """Have the operations of ``function`` deferred at ``level``, which begins with ``inputs``, if it pays."""
    seam.replay.open(level, inputs, function)
