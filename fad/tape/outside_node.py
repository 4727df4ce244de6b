"""The end of a graph in a body of `jit`, where it goes on outside."""

from __future__ import annotations

from typing import Any, NoReturn

from fad.core.level import Level
from fad.core.tensor import Tensor, bodies
from fad.errors import GradientError, describe
from fad.tape.recorded_node import RecordedNode


class OutsideNode(RecordedNode):
    """Where the graph of a body goes on outside: at a Tensor that has a history there."""

    __slots__ = ("tensor",)

    num_inputs = 1

    def __init__(self, level: Level, tensor: Tensor) -> None:
        self._start(level, ())
        self.tensor = tensor

    def run(self, *args: object) -> NoReturn:
        raise GradientError(
            f"backward() in the body of jit reaches a Tensor ({describe(self.tensor)}) whose history is "
            "outside of it, and the pass cannot go on there. Return the loss and call backward() on it "
            "outside; or if the Tensor is a constant there, write x.detach(); or name the leaves that are "
            "meant: backward(inputs=[...])."
        )

    def metadata_of_inputs(self) -> list[Any]:
        return []


def is_of_outer_graph(t: object) -> bool:
    """Whether ``t`` is from outside of the body of `jit` that is being traced, with a history there."""
    return bool(bodies.traced) and isinstance(t, Tensor) and type(t.node) is OutsideNode
