"""How a Primitive is differentiated in reverse."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fad.core.reach import Reach

if TYPE_CHECKING:
    from fad.core.primitive import Primitive

__all__ = ["VjpPlan"]

_plan_ids = itertools.count()


class VjpPlan:
    """How one Primitive is differentiated in reverse, for one mask and one choice of input avals.

    This class keeps all inputs, and the vjp runs the function again: nothing is known of residuals, or
    the function has no reverse mode (a while loop), and then the vjp raises if it is used.

    ``id``: a number of its own.
    ``mask``: which inputs are differentiated.
    ``forward``: the operation to run in the forward pass: the Primitive itself, or one that returns
    ``extras`` residuals after the Primitive's outputs.
    ``extras``: the number of these residuals.
    ``kept_inputs``, ``kept_outputs``: the positions of the inputs and outputs that are saved by
    reference.
    ``from_inputs``: it is of this class.
    ``differentiable``: for each output, whether it has a derivative; None if that is not known.
    ``out_avals``: the avals of the outputs; None if they are not known.
    ``single``: the Primitive is known to return one array, not a tuple.
    ``simple``: one output, which is differentiable, and no extras.
    ``routed``: the inputs that a gradient is passed on to: ``mask``, unless it is narrowed.
    ``rows``: for each output the inputs that it depends on; None where that is ``routed`` for all of them.
    """

    __slots__ = (
        "_vjps",
        "differentiable",
        "extras",
        "forward",
        "id",
        "kept_inputs",
        "kept_outputs",
        "mask",
        "out_avals",
        "primitive",
        "routed",
        "rows",
        "simple",
        "single",
    )

    from_inputs = True

    def __init__(self, primitive: Primitive, mask: tuple[bool, ...]) -> None:
        self.id = next(_plan_ids)
        self.primitive = primitive
        self.mask = mask
        self.routed = mask
        self.forward = primitive
        self.extras = 0
        self.kept_inputs: tuple[int, ...] = tuple(range(len(mask)))
        self.kept_outputs: tuple[int, ...] = ()
        self.differentiable: tuple[bool, ...] | None = None
        self.out_avals: tuple[Any, ...] | None = None
        self.single = self.simple = False
        self.rows: Reach | None = None
        self._vjps: dict[Any, Primitive] = {}

    def narrow(self, rows: Reach) -> None:
        """Pass gradients on to what the outputs depend on alone."""
        own = [row for row, d in zip(rows, self.differentiable or (), strict=True) if d]
        self.routed = tuple([any([row[k] for row in own]) for k in range(len(self.mask))])
        if any([row != self.routed for row in own]):
            self.rows = rows

    def sends(self, cotangents: Sequence[Any], need: Sequence[bool]) -> tuple[bool, ...]:
        """Which of the inputs in ``need`` get a gradient from the outputs that have a cotangent."""
        own = [r for r, c in zip(self.rows or (), cotangents, strict=True) if c is not None]
        return tuple([n and any([row[k] for row in own]) for k, n in enumerate(need)])

    def vjp(self, given: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        """The vjp as a Primitive of (kept inputs, kept outputs, extras, given cotangents).

        Arguments:
            given: which outputs have a cotangent; None if the one output has.
            need: which of the masked inputs need a gradient.
        """
        key = (given, need)
        derived = self._vjps.get(key)
        if derived is None:
            derived = self._vjps[key] = self._derive(given, need)
        return derived

    def _derive(self, given: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        return self.primitive.full_vjp(self.mask, given, need)
