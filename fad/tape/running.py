"""What each thread keeps of the graphs that it records and of the backward passes that it runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fad.core.tensor import Tensor

if TYPE_CHECKING:
    from fad.tape.graph import Node


class _Running(threading.local):
    """What a thread keeps of graphs.

    ``sequence``, ``id``: the numbers of the nodes that it records, and its own.
    ``passed``: how many nodes backward passes have gone through.
    ``current``: the node that it is evaluating.
    ``need``: which gradients are wanted of that node.
    ``task``: the backward pass that it runs.
    ``watched``: the call that is being watched, True if calls inside of it are not; see
    `fad.tape.anomaly.watched_call`.
    ``unwatched``: whether `fad.tape.anomaly.remember` passes over new nodes: they are of calls from before.
    ``leaves``: the Tensors on which ``requires_grad_`` was called in the body that runs, None outside of one.
    ``records``: in a rule of a Function, whether backward passes are recorded, as its result is
    differentiated; None outside of one.
    """

    def __init__(self) -> None:
        self.sequence = itertools.count()
        self.id = next(_thread_ids)
        self.passed = 0
        self.current: Node | None = None
        self.need: Sequence[bool] | None = None
        self.task: Any = None
        self.watched: Any = None
        self.unwatched = False
        self.leaves: list[Tensor] | None = None
        self.records: bool | None = None


_thread_ids = itertools.count(1)
running = _Running()


def count_nodes() -> int:
    """How many nodes the thread has recorded, or gone through, since it began: differences count."""
    running.passed -= 1  # for the number that this takes
    return next(running.sequence) + running.passed
