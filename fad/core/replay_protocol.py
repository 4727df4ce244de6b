"""The interface between the core and replay, with a null object for when nothing is replayed.

NOTE [the seam]

Replay runs a repeated trace as one operation (`fad.replay`); the core is complete without it, only
slower. The core uses replay through this protocol alone. The call sites are:

* `open`: the transforms, when their level begins;
* `open_step`: `tape.record.record`, for an operation on leaves of the eager tape;
* `Trace.append`: `RecordingLevel.process` and `record`, for each operation of a level that has a trace;
* `Trace.materialize`: an empty slot of a lazy Tensor (`Tensor.__getattr__`), and `core.level.flush`,
  which is called before the state of a Tensor or a mode changes (views.aliases, methods.history,
  tape.anomaly, grad modes) and before an array is returned that the caller may donate
  (methods.values, views.pytree, bridge.compilation);
* `Trace.finish`: `transforms.reverse`, `jacobians` and `backward`, where gradients are computed;
* `Trace.close`: `RecordingLevel.__exit__`;
* `backward`: `tape.engine`, for the backward pass of a recorded graph;
* `fad.autograd.compiled`, for `cache_info`, `clear_cache` and `explain`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

__all__ = ["NoReplay", "Part", "Replay", "Seam", "Trace", "seam"]

Pull = Callable[[Any, Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]


class Trace(Protocol):
    """What a level, or a step of the eager tape, has done so far: operations with lazy outputs."""

    def append(self, op: Any, args: Sequence[Any]) -> Any:
        """The lazy outputs of an operation; None if it has to be evaluated now, after the trace was
        materialized.
        """

    def materialize(self) -> None:
        """Give every output its value and its node."""

    def finish(
        self,
        outs: list[Any],
        pull: Pull,
        *static: Hashable,
        leaves: Sequence[Any] | None = None,
        values: bool = False,
        frees: bool = True,
    ) -> list[Any] | None:
        """What ``pull(level, outs, variables, values)`` gives, from one program; None if there is none.

        Arguments:
            outs: outputs of the function; nothing else refers to them, unless the function has stored
                them outside of itself.
            pull: computes values one level down of them, with the inputs ``variables`` that require grad
                and their ``values`` one level down.
            static: what ``pull`` depends on, beside its arguments.
            leaves: what the caller takes for the inputs.
            values: the values of ``outs`` are needed too.
            frees: the pass frees the graph that it goes through.
        """

    def leaves(self) -> list[Any]:
        """The inputs that require grad."""

    def close(self) -> None:
        """Called at the exit of the level: what is still referenced gets its value, all else is dropped."""


class Replay(Protocol):
    """An engine that replays what repeats."""

    def open(self, level: Any, inputs: Sequence[Any], function: Any) -> None:
        """Give ``level``, which begins with ``inputs``, a trace of what ``function`` does, if it pays."""

    def open_step(self, op: Any, args: Sequence[Any], plan: Any) -> Any:
        """Begin a trace of the eager tape with a recorded operation: its lazy outputs, or None."""

    def backward(self, roots: Any, captures: Any, keep_graph: bool) -> Any:
        """A backward pass of a recorded graph in one program: pairs (edge, gradient); None if
        there is none.
        """

    def cache_info(self) -> dict[str, int]:
        """Counts of what is cached."""

    def clear_cache(self) -> None:
        """Forget everything."""

    def explain(self) -> str:
        """How the last traces ended."""

    def compile_at_once(self, on: bool) -> None:
        """Compile programs at first sight, in the thread that needs them, or no longer so."""


class NoReplay:
    """Nothing is replayed."""

    def open(self, level: Any, inputs: Sequence[Any], function: Any) -> None:
        return None

    def open_step(self, op: Any, args: Sequence[Any], plan: Any) -> Any:
        return None

    def backward(self, roots: Any, captures: Any, keep_graph: bool) -> Any:
        return None

    def cache_info(self) -> dict[str, int]:
        return {"structures": 0, "compiled": 0, "hits": 0, "queued": 0, "refused": 0}

    def clear_cache(self) -> None:
        return None

    def compile_at_once(self, on: bool) -> None:
        return None

    def explain(self) -> str:
        return "nothing is replayed: fad.replay is not installed"


@dataclasses.dataclass(slots=True)
class Seam:
    """Where the engine is put (by ``fad/__init__``)."""

    replay: Replay


seam = Seam(NoReplay())


@dataclasses.dataclass(slots=True)
class Part:
    """What a node that is not of a Primitive adds to a compiled backward pass.

    ``key`` says all of it but the values, ``operands``, which are arrays and Tensors. ``pull``, which is
    traced, computes gradients for the edges (None for zero) from operands, cotangents, and for which
    edges they are needed; it refers to no values. ``allows`` says of the jaxpr of the whole pass
    whether it means the same as the node.
    """

    key: Hashable
    operands: list[Any]
    pull: Callable[[Sequence[Any], Sequence[Any], Sequence[bool]], Sequence[Any]]
    allows: Callable[[Any], bool]
