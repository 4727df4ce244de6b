"""The node that records a call of a Function."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fad.core.borrowed import as_array
from fad.core.level import Level, outlived, state, traced_by_jax
from fad.core.replay_protocol import Part
from fad.core.tensor import Tensor
from fad.functions.closures import checked_arrays, noting_leaves, without_leaves
from fad.functions.context import EXTRA, INPUT, OUTPUT, Ref, ref
from fad.functions.rules import CallRules, Saved
from fad.levels.randomness import draws
from fad.tape.edges import InputMetadata
from fad.tape.graph import Node, alias, gradient_edge
from fad.tape.packing import UNCHANGED, PackedValue, pack, unpack
from fad.tape.recorded_node import RecordedNode
from fad.tape.recorder import ROOT
from fad.tape.saved import (
    check_versions,
    raise_released,
    raise_written,
    versions_of,
)
from fad.tape.saved_attributes import SavedTensor, raise_freed

__all__ = ["FunctionNode"]


class FunctionNode(RecordedNode):
    """A recorded call of a Function: its vjp rule runs in the backward pass.

    ``saved`` is what the rule reads, detached, so that a saved output does not refer to its own
    node; ``args`` are the inputs among that, with their history. ``mask`` says which inputs required
    grad. ``slots`` are the places of the arrays among all outputs, None if all are arrays: for what is none
    the gradient is None. Each Function has a subclass of its own, as in PyTorch, and ``_forward_cls`` is the
    Function.
    """

    _forward_cls: ClassVar[Any] = None

    __slots__ = (
        "args",
        "avals",
        "lock",
        "mask",
        "outputs",
        "packed",
        "rules",
        "saved",
        "slots",
        "versions",
        "written",
    )

    def __init__(
        self, level: Level, rules: CallRules, args: Sequence[Any], mask: list[bool], saved: Saved
    ) -> None:
        edges: list[tuple[Node, int] | None] = []
        kept: list[Any] = []
        for a, m, v in zip(args, mask, saved.values):
            edges.append(gradient_edge(a) if m else None)
            kept.append(None if v is None else a)
        self._start(level, edges)
        self.rules = rules
        self.mask = mask
        self.slots = slots = saved.template.slots
        self.outputs = len(saved.outs) if slots is None else len(saved.template.leaves)
        self.avals = saved.out_avals
        self.args = kept
        self.lock: threading.RLock | None = None
        self.written: Any = None  # an output that it saved and that was changed in place since
        self.packed = bool(state.saved_hooks)
        self.saved: Saved | None = self._pack(saved) if self.packed else saved
        if level is ROOT:
            self.saved.args = self.args
        self.versions = versions_of(self.args)

    def _pack(self, saved: Saved) -> Saved:
        """Pack with the current hooks what the body saved for backward, and drop the originals."""
        level, found = self.level, self.rules.saved_for_backward(saved)
        chosen = None if found is None else {x for x in found if type(x) is Ref}

        def packed(kind: str, x: Any, at: int) -> Any:
            if chosen is None or ref(kind, at) in chosen:
                return pack(level, x, self._edge(kind, at))
            return x

        kept = [
            [packed(kind, x, at) for at, x in enumerate(xs)]
            for kind, xs in ((INPUT, saved.values), (OUTPUT, saved.outs), (EXTRA, saved.extras))
        ]
        self.args = [None if isinstance(v, PackedValue) else a for v, a in zip(kept[0], self.args)]
        return saved.at(*kept)

    def _edge(self, kind: str, at: int) -> tuple[Node, int] | None:
        """The place in the graph of a saved value."""
        if kind == OUTPUT:
            return self, self.slot(at)
        a = self.args[at] if kind == INPUT else None
        return gradient_edge(a) if isinstance(a, Tensor) and a.requires_grad else None

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        """What the body saved for backward, each for hooks of its own.

        Raises:
            GradientError: a backward pass has freed it.
        """
        if self.saved is None:
            raise_released(self)
        found = self.rules.saved_for_backward(self.saved)
        return tuple([SavedTensor(self, functools.partial(self._packed, x)) for x in found or ()])

    def _packed(self, place: Any) -> Any:
        """A saved value as it is kept, for hooks: a PackedValue, if it is a Tensor."""
        with _lock_of(self):
            saved = self.saved
            if saved is None:
                raise_freed()
            if type(place) is not Ref:
                return place
            every = (INPUT, saved.values), (OUTPUT, saved.outs), (EXTRA, saved.extras)
            kinds = {kind: list(xs) for kind, xs in every}
            x = kinds[place.kind][place.at]
            if not isinstance(x, PackedValue):
                x = PackedValue(self.level, x, self._edge(place.kind, place.at), UNCHANGED)
                kinds[place.kind][place.at] = x
                self.saved = saved.at(*kinds.values())
                self.packed = True
                if place.kind == INPUT:
                    self.args = [None if i == place.at else a for i, a in enumerate(self.args)]
                    if self.versions is not None:  # nothing is compared for it any more
                        self.versions = [
                            0 if i == place.at else v for i, v in enumerate(self.versions)
                        ]
            return x

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
        known = [InputMetadata(a.shape, a.dtype, where) for a in self.avals]
        if self.slots is None:
            return known
        found = [InputMetadata((), np.dtype(np.float32), where)] * self.outputs
        for s, m in zip(self.slots, known, strict=True):
            found[s] = m
        return found

    def slot(self, k: int) -> int:
        """The place of the array output ``k``."""
        return k if self.slots is None else self.slots[k]

    def _of_arrays(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        """The cotangents of the array outputs."""
        return cotangents if self.slots is None else [cotangents[s] for s in self.slots]

    def saved_values(self) -> Sequence[Any]:
        if self.saved is None:
            return ()
        every = (*self.saved.values, *self.saved.outs, *self.saved.extras)
        return [v for v in every if v is not None and not isinstance(v, PackedValue)]

    def run(
        self, cotangents: Sequence[Any], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[Any]:
        with _lock_of(self):
            saved = self._opened(create_graph)
            wanted = [n and m for n, m in zip(need, self.mask, strict=True)]
            if create_graph or self.level is ROOT:
                grads = self.rules.pullback(saved, self._of_arrays(cotangents), wanted)
            else:  # levels below record
                with noting_leaves() as leaves:
                    grads = self.rules.pullback(saved, self._of_arrays(cotangents), wanted)
                grads = [without_leaves(g, leaves) for g in grads]
            if create_graph:
                return grads
            return [None if g is None else self.level.detach(outlived(g)) for g in grads]

    def _opened(self, create_graph: bool) -> Saved:
        """What was saved, unpacked, and with ``create_graph`` with its history."""
        saved, args = self.saved, self.args
        if saved is None:
            raise_released(self)
        check_versions(self, args, self.versions)
        if self.written is not None:
            raise_written(self, self.written)
        if self.packed:
            values = [unpack(v, create_graph) for v in saved.values]
            pairs = zip(saved.values, args, values, strict=True)
            args = [v if isinstance(p, PackedValue) else a for p, a, v in pairs]
            outs = [unpack(o, False) for o in saved.outs]
            places = [
                p if isinstance(p, PackedValue) else a for p, a in zip(saved.values, self.args)
            ]
            saved = saved.at(values, outs, [unpack(x, False) for x in saved.extras])
            if self.level is ROOT:
                saved.args = places
        return self._tracked(saved, args) if create_graph else saved

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What the call saved for backward, with its history.

        Raises:
            GradientError: a backward pass has freed it.
        """
        found: tuple[Any, ...] = self._context().saved_tensors
        return found

    def __getattr__(self, name: str) -> Any:
        """``needs_input_grad``, ``saved_data``, and what the body set on its ctx."""
        if name.startswith("_") or self.saved is None:
            raise AttributeError(f"{self.name()} has no attribute {name!r}")
        return getattr(self._context(), name)

    def _context(self) -> Any:
        """The ctx of the call, as the vjp rule gets it where the pass is recorded."""
        with _lock_of(self):
            return self.rules.context(self._opened(True), self.mask)

    def part(self) -> Part | None:
        """Its `Part` of a compiled pass, where its rule is traceable."""
        saved = self.saved
        if saved is None or self.packed or self.extra is not None or not self.is_traceable:
            return None
        key = self.rules.notes_key(saved)
        if key is None or self.written or versions_of(self.args) != self.versions:
            return None
        rules, mask, without = self.rules, self.mask, saved.at((), (), ())
        arrays = self.slots or range(self.outputs)
        counts = [[x is not None for x in xs] for xs in (saved.values, saved.outs, saved.extras)]

        def pull(
            operands: Sequence[Any], cotangents: Sequence[Any], need: Sequence[bool]
        ) -> Sequence[Any]:
            rest = iter(operands)
            inner = without.at(*[[next(rest) if c else None for c in cs] for cs in counts])
            wanted = [n and m for n, m in zip(need, mask, strict=True)]
            with traced_by_jax():
                grads = rules.pullback(inner, [cotangents[k] for k in arrays], wanted)
                return [None if g is None else _array(rules, g) for g in grads]

        return Part(
            (rules, key, tuple(mask), *map(tuple, counts)),
            [x for x in (*saved.values, *saved.outs, *saved.extras) if x is not None],
            pull,
            _draws_nothing,
        )

    def _tracked(self, saved: Saved, args: Sequence[Any]) -> Saved:
        """``saved`` with the history of each value."""
        outs = [
            o if o is None else self._with_history(o, self, self.slot(k))
            for k, o in enumerate(saved.outs)
        ]
        if saved.closed:
            return saved.at(args, outs, ())
        again = self.rules.setup(args, outs, saved.template, self.mask)
        if len(again.extras) != len(saved.extras):
            return again
        extras = [
            self._with_history(old, *gradient_edge(new))
            if isinstance(new, Tensor) and new.level is self.level and new.requires_grad
            else old
            for old, new in zip(saved.extras, again.extras, strict=True)
        ]
        return saved.at(args, outs, extras)

    def _with_history(self, value: Any, node: Node, output_nr: int) -> Tensor:
        t: Tensor = alias(self.level.lift(value))
        t._requires_grad, t.node, t.output_nr = True, node, output_nr
        return t

    def output_written(self, output_nr: int, version: int) -> None:
        saved = self.saved
        if saved is None or self.packed or self.written is not None:
            return
        k = output_nr if self.slots is None else self.slots.index(output_nr)
        if ref(OUTPUT, k) in (self.rules.saved_for_backward(saved) or ()):
            self.written = (output_nr, version)

    def release_variables(self) -> None:
        with _lock_of(self):
            self.saved = None
            self.args = []
            self.versions = None


def _draws_nothing(jaxpr: Any) -> bool:
    """Whether a program draws no random numbers: each lane of a vmap may have to draw its own."""
    return not draws(jaxpr)


def _array(rules: CallRules, x: Any) -> Any:
    return as_array(checked_arrays(rules, [x])[0])


_making_locks = threading.RLock()


def _lock_of(node: FunctionNode) -> threading.RLock:
    """The lock around a node's rule and its release: the rule is Python, and may keep state on ctx."""
    if node.lock is None:
        fresh = threading.RLock()
        with _making_locks:
            node.lock = node.lock or fresh
    return node.lock
