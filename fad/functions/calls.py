"""A call of `CallRules` as an operation that `bind` can run.

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

from collections.abc import Sequence
from typing import Any

import numpy as np

from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.level import Level, bind, bodies, constants, state
from fad.core.tensor import Tensor, bottom, version_of
from fad.errors import RuleError, describe
from fad.functions import native
from fad.functions.closures import checked_arrays, noting_leaves, numbers_suffice, without_leaves
from fad.functions.derived_rules import BatchedRules, JetRules, LinearRules
from fad.functions.nodes import FunctionNode
from fad.functions.rules import CallRules, Saved
from fad.functions.templates import Template
from fad.levels.batch import BatchLevel
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import remember
from fad.tape.graph import alias
from fad.tape.recorder import detached

__all__ = ["FunctionOp", "check_unchanged"]


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

    def __init__(self, rules: CallRules, given: Saved | None = None) -> None:
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
        with noting_leaves() as leaves:
            if self.given is not None and isinstance(rules, (LinearRules, JetRules)):
                outs, self.template = rules.forward(values, self.given)
            else:
                outs, self.template, self.saved = rules.run(values, self.needs)
        return tuple(checked_arrays(rules, [without_leaves(o, leaves) for o in outs]))

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
                    o._requires_grad, o._node, o._output_nr = True, node, node.slot(k)


def _at_level(x: Any, level: Level) -> Any:
    """``x`` with the wrappers of the levels above ``level`` removed."""
    while isinstance(x, Tensor) and x.level.id > level.id:
        x = x.value
    return x


def _version(x: Any) -> int:
    return version_of(x) if isinstance(x, Tensor) else 0


def check_unchanged(rules: CallRules, args: Sequence[Any], versions: Sequence[int]) -> None:
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
