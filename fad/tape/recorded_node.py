"""What the nodes of all recorded operations have in common."""

from __future__ import annotations

import types
from collections.abc import Sequence

import jax

from fad.core.borrowed import as_array
from fad.core.level import state
from fad.core.observation import Observable
from fad.core.tensor import Tensor
from fad.core.types import MaybeValue, Operand, Outputs
from fad.tape.edges import sharding_of
from fad.tape.graph import Node


class RecordedNode(Observable, Node):
    """The node of a recorded operation: `run` does the work, `apply` is for the user's calls."""

    __slots__ = ()

    observables = types.MappingProxyType({"release_variables": "release"})

    def apply(self, *gradients: Operand | None) -> Outputs:
        level = self.level
        if len(gradients) != self.num_inputs:
            raise TypeError(
                f"{self.name()}: expected {self.num_inputs} arguments, got {len(gradients)} instead: "
                "one gradient for each output of the operation, None for zero"
            )
        create_graph = level.id > state.watermark
        cotangents: list[MaybeValue] = [None] * len(gradients)
        for i, g in enumerate(gradients):
            if g is not None:
                x = g if isinstance(g, (Tensor, jax.Array)) else as_array(g)
                cotangents[i] = level.lift(x) if create_graph else level.detach(x)
        need = tuple([e is not None for e in self.edges])
        grads = for_edges(self.run(cotangents, need, create_graph), need)
        result = tuple([None if g is None else level.lift(g) for g in grads])
        return result[0] if len(result) == 1 else result

    def _own_sharding(self) -> jax.sharding.Sharding | None:
        for value in self.saved_values():
            found = sharding_of(value)
            if found is not None:
                return found
        return None

    def saved_values(self) -> Sequence[MaybeValue]:
        """What it keeps for the backward pass, in order, as detached values; of large views the bases."""
        return ()

    def output_written(self, output_nr: int, version: int) -> None:
        """Note that an output was changed in place, where the backward pass would need it as it was."""


def for_edges(grads: Sequence[MaybeValue], need: Sequence[bool]) -> Sequence[MaybeValue]:
    """Gradients for every edge, from gradients for those that are needed alone."""
    if len(grads) == len(need):
        return grads
    it = iter(grads)
    return [next(it) if n else None for n in need]


_NAMES = {"to": "CopyBackwards", "CopySlices": "CopySlices"}


def node_name(primitive: str) -> str:
    """The name of the nodes of a Primitive."""
    if primitive in _NAMES:
        return _NAMES[primitive]
    words = primitive.replace(".", "_").strip("_").split("_")
    return "".join(w[:1].upper() + w[1:] for w in words) + "Backward"
