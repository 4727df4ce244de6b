"""The node that records a call of a Function."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy as np

from fad.core.level import Level, outlived
from fad.core.tensor import Tensor
from fad.core.types import MaybeValue
from fad.functions.closures import noting_leaves, without_leaves
from fad.functions.context import INPUT, OUTPUT, Context, Ref
from fad.functions.definitions import FunctionClass
from fad.functions.rules import CallRules, Grads, Saved, Values
from fad.tape.edges import InputMetadata
from fad.tape.graph import Node, alias, gradient_edge
from fad.tape.packing import PackedValue
from fad.tape.recorder import ROOT
from fad.tape.saved import raise_released
from fad.tape.saving_node import SavedTensor, SavingNode


class FunctionNode(SavingNode):
    """A recorded call of a Function: its vjp rule runs in the backward pass.

    ``saved`` is what the rule reads; its arrays are the ``values`` of the node. ``mask`` says which inputs
    required grad. ``slots`` are the places of the arrays among all ``outputs``: for what is none the gradient
    is None. ``lock`` is around the rule, which is Python and may keep state on ctx, and around its release.
    Each Function has a subclass of its own, as in PyTorch, and ``_forward_cls`` is the Function.
    """

    _forward_cls: ClassVar[FunctionClass | None] = None

    __slots__ = ("avals", "lock", "mask", "outputs", "rules", "saved", "slots")

    def __init__(
        self, level: Level, rules: CallRules, args: Values, mask: list[bool], saved: Saved
    ) -> None:
        edges: list[tuple[Node, int] | None] = []
        kept: list[Any] = []
        for a, m, v in zip(args, mask, saved.values):
            edges.append(gradient_edge(a) if m else None)
            kept.append(None if v is None else a)
        self._start(level, edges)
        self.rules = rules
        self.mask = mask
        self.slots = saved.template.slots
        self.outputs = len(saved.template.leaves)
        self.avals = saved.out_avals
        self.lock = threading.RLock()
        self.saved: Saved | None = saved
        self._keep(kept)
        if level is ROOT:
            saved.args = kept

    @property
    def values(self) -> list[Any] | None:
        saved = self.saved
        return None if saved is None else [*saved.values, *saved.outs, *saved.extras]

    @values.setter
    def values(self, values: list[Any] | None) -> None:
        assert self.saved is not None and values is not None
        self.saved = _with_values(self.saved, values)

    @property
    def kept_outputs(self) -> Sequence[int]:  # type: ignore[override]
        return self.slots

    def of_hooks(self) -> Collection[int] | None:
        assert self.saved is not None
        found = self.rules.saved_for_backward(self.saved)
        return None if found is None else {self._number(x) for x in found if type(x) is Ref}

    def checks_output(self, k: int) -> bool:
        return k in (self.of_hooks() or ())

    def _number(self, x: Ref) -> int:
        """Which of the values it stands for."""
        inputs, outputs = len(self.mask), len(self.avals)
        return x.at + {INPUT: 0, OUTPUT: inputs}.get(x.kind, inputs + outputs)

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        """What the body saved for backward, each for hooks of its own.

        Raises:
            GradientError: a backward pass has freed it.
        """
        if self.saved is None:
            raise_released(self)
        found = self.rules.saved_for_backward(self.saved) or ()
        return tuple([SavedTensor(self, functools.partial(self._raw, x)) for x in found])

    def _raw(self, x: object) -> object:
        return self.packed_value(self._number(x)) if type(x) is Ref else x

    def packed_value(self, k: int) -> object:
        with self.lock:
            return super().packed_value(k)

    def name(self) -> str:
        return f"{self.rules.name}Backward"

    @property
    def is_traceable(self) -> bool:  # type: ignore[override]
        return self.rules.is_traceable

    @property
    def num_inputs(self) -> int:
        return self.outputs

    def metadata_of_inputs(self) -> list[InputMetadata]:
        where = self._own_sharding()
        found = [InputMetadata((), np.dtype(np.float32), where)] * self.outputs
        for s, a in zip(self.slots, self.avals, strict=True):
            found[s] = InputMetadata(a.shape, a.dtype, where)
        return found

    def run(self, cotangents: Values, need: tuple[bool, ...], create_graph: bool) -> Grads:
        with self.lock:
            saved = self._opened(create_graph)
            given = [cotangents[s] for s in self.slots]
            wanted = [n and m for n, m in zip(need, self.mask, strict=True)]
            if create_graph or self.level is ROOT:
                grads = self.rules.pullback(saved, given, wanted)
            else:  # levels below record
                with noting_leaves() as leaves:
                    grads = self.rules.pullback(saved, given, wanted)
                grads = [without_leaves(g, leaves) for g in grads]
            if create_graph:
                return grads
            return [None if g is None else self.level.detach(outlived(g)) for g in grads]

    def _opened(self, create_graph: bool) -> Saved:
        """What was saved, unpacked, and with ``create_graph`` with its history."""
        values, kept = self.opened(create_graph), self.saved
        assert kept is not None
        if not (create_graph or self.packed):
            return kept
        saved = _with_values(kept, values)
        if create_graph:
            return self._tracked(saved)
        if self.level is ROOT:
            places = zip(kept.values, self.tensors, strict=True)
            saved.args = [v if type(v) is PackedValue else t for v, t in places]
        return saved

    @property
    def saved_tensors(self) -> tuple[MaybeValue, ...]:
        """What the call saved for backward, with its history.

        Raises:
            GradientError: a backward pass has freed it.
        """
        return self._context().saved_tensors

    def __getattr__(self, name: str) -> Any:
        """``needs_input_grad``, ``saved_data``, and what the body set on its ctx."""
        if name.startswith("_") or self.saved is None:
            raise AttributeError(f"{self.name()} has no attribute {name!r}")
        return getattr(self._context(), name)

    def _context(self) -> Context:
        """The ctx of the call, as the vjp rule gets it where the pass is recorded."""
        with self.lock:
            return self.rules.context(self._opened(True), self.mask)

    def _tracked(self, saved: Saved) -> Saved:
        """``saved``, whose inputs and outputs have their history, with that of other values."""
        if saved.closed:
            return saved
        again = self.rules.setup(saved.values, saved.outs, saved.template, self.mask)
        if len(again.extras) != len(saved.extras):
            return again
        extras = list(saved.extras)
        for k, (old, new) in enumerate(zip(saved.extras, again.extras, strict=True)):
            if isinstance(new, Tensor) and new.level is self.level and new.requires_grad:
                extras[k] = t = alias(self.level.lift(old))
                t._requires_grad, (t._node, t._output_nr) = True, gradient_edge(new)
        return saved.at(saved.values, saved.outs, extras)

    def release_variables(self) -> None:
        with self.lock:
            self.saved = None
            self.tensors = []
            self.versions = None


def _with_values(saved: Saved, values: Values) -> Saved:
    """``saved`` with other arrays, in the order of a node's values."""
    first, last = len(saved.values), len(saved.values) + len(saved.outs)
    return saved.at(values[:first], values[first:last], values[last:])
