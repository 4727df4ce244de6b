"""A call of Rules as an operation that `bind` can run, and the node that records it.

NOTE [one run of the body]

A body runs where its call arrives at level 0: on arrays, as Tensors that nothing tracks; so what it
keeps on ctx is known once, there. Each level that the call came through transforms it:

* If it kept inputs, outputs, and values that have no derivative, the notes are valid at every level.
* Other arrays (intermediate values) are known as numbers alone. They suffice for a level below which
  nothing is differentiated: the eager graph, ``grad``, ``vmap(grad)``. Any other level, and one in a
  checkpointed body, runs setup (in the one-method style, the body) again, on values of its own.
* Where the backward pass is itself recorded, setup runs again on tracked values, which gives an
  intermediate value its history, and so the right second derivative. Its number stays the one that
  was saved: a body that draws a dropout mask is differentiated with the mask that it drew.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fad.core.borrowed import as_array
from fad.core.jaxapi import is_inexact
from fad.core.level import Level, bind, bodies, constants, outlived, state, traced_by_jax
from fad.core.replay_protocol import Part
from fad.core.tensor import Tensor, bottom, version_of
from fad.errors import RuleError, describe
from fad.functions import native
from fad.functions.closures import checked_arrays, numbers_suffice
from fad.functions.context import EXTRA, INPUT, OUTPUT, Ref, ref
from fad.functions.derived_rules import BatchedRules, JetRules, LinearRules
from fad.functions.rules import Rules, Saved
from fad.functions.templates import Template
from fad.levels.batch import BatchLevel
from fad.levels.randomness import draws
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import remember
from fad.tape.edges import InputMetadata
from fad.tape.graph import Node, alias, gradient_edge
from fad.tape.recorded_node import RecordedNode
from fad.tape.recorder import ROOT, detached
from fad.tape.saved import (
    UNCHANGED,
    PackedValue,
    check_versions,
    pack,
    raise_released,
    unpack,
    versions_of,
)
from fad.tape.saved_attributes import SavedTensor, raise_freed

__all__ = ["FunctionNode", "FunctionOp", "check_unchanged"]


class FunctionOp:
    """One call of `Rules`.

    ``needs``: of which inputs a gradient or tangent may be needed; None if no level has set it.
    ``given``: what was saved by the call of which this one is the derivative, if that is available.
    ``known``: its array outputs, where the body has run already, and ``template``; else None.
    Running it sets ``template``, the structure of the outputs, and ``saved``, what the call saved for
    its rules (at the level of its arguments), or None where that is not known.
    """

    __slots__ = ("given", "known", "needs", "rules", "saved", "template")

    expands = False
    template: Template

    def __init__(self, rules: Rules, given: Saved | None = None) -> None:
        self.rules = rules
        self.given = given
        self.known: Sequence[Any] | None = None
        self.needs: list[bool] | None = None
        self.saved: Saved | None = None

    @property
    def name(self) -> str:
        """What graphs and errors call it."""
        return self.rules.name

    def execute(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Run on values that are no Tensors."""
        if bodies.traced and state.body is not None:
            with constants():
                return self.execute(values)
        rules = self.rules
        self.saved = None
        if native.is_traced(values):
            outs, self.template = native.call(rules, values)
            return tuple(outs)
        if self.known is not None:
            return tuple(map(bottom, self.known))
        if self.given is not None and isinstance(rules, (LinearRules, JetRules)):
            outs, self.template = rules.forward(values, self.given)
        else:
            outs, self.template, self.saved = rules.run(values, self.needs)
        return tuple(checked_arrays(rules, outs))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Outputs and their tangents (None is zero), by binding one level down."""
        mask = tuple([t is not None for t in tangents])
        outs, differentiable = self._moved(primals, mask)
        linear = self._linear(mask, differentiable, primals)
        given = [t for t in tangents if t is not None]
        out_t = iter(bind(linear, [*primals, *outs, *given]) if any(differentiable) else ())
        return outs, tuple([next(out_t) if m else None for m in differentiable])

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], order: int
    ) -> tuple[Any, list[Any]]:
        """Outputs and the derivatives of each along a curve, by the jet rule, by binding one level down.

        ``series`` has the derivatives of each input, at most ``order`` of them, or None.
        """
        counts = tuple([len(s or ()) for s in series])
        outs, differentiable = self._moved(primals, tuple(map(bool, counts)))
        rules = JetRules(self.rules, counts, order, differentiable, self.template)
        terms = [t for s in series for t in s or ()]
        found = iter(bind(FunctionOp(rules, self._given(primals)), [*primals, *outs, *terms]))
        return outs, [[next(found) for _ in range(order)] if m else None for m in differentiable]

    def _moved(
        self, primals: Sequence[Any], mask: tuple[bool, ...]
    ) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
        """Outputs of a call that is differentiated in the masked inputs, and which have a derivative."""
        before = mask if self.needs is None else self.needs
        self.needs = [m or b for m, b in zip(mask, before, strict=True)]
        outs: tuple[Any, ...] = bind(self, primals)
        return outs, self._differentiable_outputs(outs)

    def linear(
        self, mask: tuple[bool, ...], primals: Sequence[Any], outs: Sequence[Any]
    ) -> tuple[FunctionOp, list[Any], tuple[bool, ...]]:
        """The derivative in the masked inputs, the operands that go before the tangents, and of which
        outputs it has a tangent: those of floating or complex dtype; zeros for one without derivative.
        """
        inexact = tuple([is_inexact(o.dtype) for o in outs])
        return self._linear(mask, inexact, primals), [*primals, *outs], inexact

    def _linear(
        self, mask: tuple[bool, ...], differentiable: tuple[bool, ...], primals: Sequence[Any]
    ) -> FunctionOp:
        rules = LinearRules(self.rules, mask, differentiable, self.template)
        return FunctionOp(rules, self._given(primals))

    def _given(self, primals: Sequence[Any]) -> Saved | None:
        """What the call saved for its rules, if they may use it at the level of ``primals``."""
        saved = self.saved
        return saved if saved and (saved.closed or numbers_suffice(primals)) else None

    def _differentiable_outputs(self, outs: Sequence[Any]) -> tuple[bool, ...]:
        """Which outputs have a derivative."""
        without = self.template.non_differentiable
        return tuple([is_inexact(o.dtype) and k not in without for k, o in enumerate(outs)])

    def batch(
        self, values: Sequence[Any], dims: tuple[int | None, ...], level: BatchLevel
    ) -> tuple[Any, ...]:
        """Outputs batched along dimension 0, by binding one level down."""
        rules = BatchedRules(
            self.rules, dims, level.batch_size, level.axis_name, level.randomness, level.first
        )
        inner = FunctionOp(rules)
        inner.needs = self.needs
        if self.known is not None:
            inner.known = [level.unwrap(_at_level(x, level), 0) for x in self.known]
            inner.template = self.template
        before = state.levels
        # The bodies run below this level, in one of their own: they draw random numbers and name
        # axes there.
        state.levels = tuple([x for x in before if x.id < level.id])
        try:
            out: tuple[Any, ...] = bind(inner, values)
        finally:
            state.levels = before
        self.template = inner.template
        self.saved = None if inner.saved is None else rules.inner_saved(inner.saved, level)
        return out

    def record(self, level: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        """Evaluate at ``level`` and add a node; see `fad.tape.recorder`."""
        args = [as_array(a) if type(a) is np.ndarray else a for a in args]
        mask = [isinstance(a, Tensor) and a._requires_grad and a._level is level for a in args]
        self.needs = mask if self.needs is None else [a or b for a, b in zip(mask, self.needs)]
        versions = [_version(a) for a in args]
        outs: tuple[Any, ...] = level.evaluate(self, args)
        check_unchanged(self.rules, args, versions)
        values = [level.detach(a) for a in args]
        results = [detached(level, o) for o in outs]
        self.leave_node(level, args, mask, outs, values, results)
        return outs

    def leave_node(
        self,
        level: Any,
        args: Sequence[Any],
        mask: list[bool],
        outs: Sequence[Any],
        values: Sequence[Any],
        results: Sequence[Any],
    ) -> None:
        """Record a call that has been evaluated: ``outs`` of ``args``, and the values of both."""
        saved = self.saved
        if saved is None or not (saved.closed or numbers_suffice(values)):
            saved = self.rules.setup(values, results, self.template, mask)
        self.template = saved.template
        differentiable = self._differentiable_outputs(outs)
        if any(differentiable):
            saved = self.rules.for_pullback(saved, values, results)
            dirty = self.template.aliases  # their state at capture is saved
            args = [alias(a) if i in dirty else a for i, a in enumerate(args)]
            kind: type[FunctionNode] = getattr(self.rules.function, "_backward_cls", FunctionNode)
            node = kind(level, self.rules, args, mask, saved)
            if anomaly.remembers:
                remember(node)
            for k, (o, m) in enumerate(zip(outs, differentiable, strict=True)):
                if m:
                    o._requires_grad, o._node, o._output_nr = True, node, k


def _at_level(x: Any, level: Level) -> Any:
    """``x`` with the wrappers of the levels above ``level`` removed."""
    while isinstance(x, Tensor) and x.level.id > level.id:
        x = x.value
    return x


def _version(x: Any) -> int:
    return version_of(x) if isinstance(x, Tensor) else 0


def check_unchanged(rules: Rules, args: Sequence[Any], versions: Sequence[int]) -> None:
    """Refuse a body that has changed an argument of its call itself, not the handle that it was given.

    Raises:
        RuleError: it has.
    """
    for a, version in zip(args, versions):
        if isinstance(a, Tensor) and a.meta is not None and a.meta.storage.version != version:
            raise RuleError(
                f"{rules.name}: a body changed the Tensor that is argument {_place(a, args)} of this "
                f"call ({describe(a)}) in place, through a variable of an outer scope; what it means for "
                "the derivative is unknown. Change the handle that forward is given, and say so with "
                "ctx.mark_dirty."
            )


def _place(x: Any, args: Sequence[Any]) -> int:
    return [a is x for a in args].index(True)


class FunctionNode(RecordedNode):
    """A recorded call of a Function: its vjp rule runs in the backward pass.

    ``saved`` is what the rule reads, detached, so that a saved output does not refer to its own
    node; ``args`` are the inputs among that, with their history. ``mask`` says which inputs required
    grad. Each Function has a subclass of its own, as in PyTorch, and ``_forward_cls`` is the Function.
    """

    _forward_cls: ClassVar[Any] = None

    __slots__ = ("args", "avals", "lock", "mask", "outputs", "packed", "rules", "saved", "versions")

    def __init__(
        self, level: Level, rules: Rules, args: Sequence[Any], mask: list[bool], saved: Saved
    ) -> None:
        edges: list[tuple[Node, int] | None] = []
        kept: list[Any] = []
        for a, m, v in zip(args, mask, saved.values):
            edges.append(gradient_edge(a) if m else None)
            kept.append(None if v is None else a)
        self._start(level, edges)
        self.rules = rules
        self.mask = mask
        self.outputs = len(saved.outs)
        self.avals = saved.out_avals
        self.args = kept
        self.lock: threading.RLock | None = None
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
            return self, at
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
        return [InputMetadata(a.shape, a.dtype, where) for a in self.avals]

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
            grads = self.rules.pullback(saved, cotangents, wanted)
            if create_graph:
                return grads
            return [None if g is None else self.level.detach(outlived(g)) for g in grads]

    def _opened(self, create_graph: bool) -> Saved:
        """What was saved, unpacked, and with ``create_graph`` with its history."""
        saved, args = self.saved, self.args
        if saved is None:
            raise_released(self)
        check_versions(self, args, self.versions)
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
        if key is None or versions_of(self.args) != self.versions:
            return None
        rules, mask, without = self.rules, self.mask, saved.at((), (), ())
        counts = [[x is not None for x in xs] for xs in (saved.values, saved.outs, saved.extras)]

        def pull(
            operands: Sequence[Any], cotangents: Sequence[Any], need: Sequence[bool]
        ) -> Sequence[Any]:
            rest = iter(operands)
            inner = without.at(*[[next(rest) if c else None for c in cs] for cs in counts])
            wanted = [n and m for n, m in zip(need, mask, strict=True)]
            with traced_by_jax():
                grads = rules.pullback(inner, cotangents, wanted)
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
            o if o is None else self._with_history(o, self, k) for k, o in enumerate(saved.outs)
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

    def release_variables(self) -> None:
        with _lock_of(self):
            self.saved = None
            self.args = []
            self.versions = None


def _draws_nothing(jaxpr: Any) -> bool:
    """Whether a program draws no random numbers: each lane of a vmap may have to draw its own."""
    return not draws(jaxpr)


def _array(rules: Rules, x: Any) -> Any:
    return as_array(checked_arrays(rules, [x])[0])


_making_locks = threading.RLock()


def _lock_of(node: FunctionNode) -> threading.RLock:
    """The lock around a node's rule and its release: the rule is Python, and may keep state on ctx."""
    if node.lock is None:
        fresh = threading.RLock()
        with _making_locks:
            node.lock = node.lock or fresh
    return node.lock
