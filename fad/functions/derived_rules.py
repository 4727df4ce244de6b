"""Rules made of rules: a call under vmap, and derivatives of a call; see NOTE [rules are closed]."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp

from fad.core import trees
from fad.core.jaxapi import zeros
from fad.core.level import bind, outlived, restores_modes
from fad.core.masked import select, spread
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Dims, MaybeValue, Value
from fad.functions.context import VmapInfo
from fad.functions.rules import (
    Body,
    CallRules,
    Directions,
    Grads,
    Needs,
    Outcome,
    Pushed,
    SameCallRules,
    Saved,
    Values,
    avals_of,
    pull_through,
    push_through,
)
from fad.functions.templates import Template, split
from fad.functions.transposed_rules import LinearRules
from fad.levels.batch import BatchLevel


@dataclasses.dataclass(frozen=True, slots=True)
class DerivativeRules(CallRules):
    """The derivative of a call: from (inputs, outputs, directions of inputs) to directions of outputs.

    ``counts`` says how many directions of each input are among the operands: a tangent or none, or with an
    ``order``, for `jet`, the derivatives along a curve. ``outputs`` says which outputs have directions in the
    result: a tangent, or ``order`` derivatives. ``out_template`` is the structure of the call's outputs.

    Its one body is `forward`, and it saves all values.
    """

    base: CallRules
    counts: tuple[int, ...]
    outputs: tuple[bool, ...]
    out_template: Template
    order: int | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.base.name}_{'jvp' if self.order is None else 'jet'}"

    @property
    def known(self) -> int:
        """How many operands come before the directions."""
        return len(self.counts) + len(self.outputs)

    @property
    def is_linear(self) -> bool:
        """Whether it is linear in the directions."""
        return self.order is None

    @property
    def has_transpose(self) -> bool:
        return True

    @property
    def solved(self) -> int:  # type: ignore[override]
        return self.base.solved

    @property
    def direct(self) -> Body:
        return self.forward

    @property
    def are_of_the_body(self) -> bool:
        return self.base.are_of_the_body

    @property
    def is_traceable(self) -> bool:
        return self.base.is_traceable

    def bodies(self) -> list[Callable[..., object]]:
        return self.base.bodies()

    def forward(self, values: Values, given: Saved | None = None) -> tuple[list[Value], Template]:
        """Evaluate; ``given`` is what the call saved for its rules, if that is available."""
        n = len(self.counts)
        if given is None:
            saved = self._saved(values)
        else:
            saved = given.at(values[:n], values[n : self.known], given.extras)
        operands = iter(values[self.known :])
        each = self.order or 1
        directions: list[Any] = [
            [next(operands) if k < count else None for k in range(each)] if count else None
            for count in self.counts
        ]
        if self.is_linear:
            directions = [s and s[0] for s in directions]
        found = self.base.pushforward(saved, directions, self.order)
        if self.is_linear:
            found = [[t] for t in found]
        without = saved.template.marks.non_differentiable
        result = [
            zeros(a) if t is None or k in without else t
            for k, (s, a) in enumerate(zip(found, saved.out_avals, strict=True))
            if self.outputs[k]
            for t in s or [None] * each
        ]
        return split(tuple(result))

    def _saved(self, values: Values) -> Saved:
        """What the call saves for its rules."""
        n = len(self.counts)
        needs = list(map(bool, self.counts))
        return self.base.setup(values[:n], values[n : self.known], self.out_template, needs)

    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        return push_through(self.forward, saved.values, directions)

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        values, known = saved.values, self.known
        if not self.is_linear:
            return pull_through(self.forward, values, cotangents, need)
        grads: Grads = [None] * known
        if any(need[:known]):  # differentiate the jvp body itself
            wanted = [*need[:known], *[False] * (len(need) - known)]
            grads = pull_through(self.forward, values, cotangents, wanted)[:known]
        if not any(need[known:]):
            return [*grads, *[None] * (len(need) - known)]
        # In the tangents it is linear: the vjp of the call, from a cotangent for each of its outputs.
        inner = self._saved(values)
        without = inner.template.marks.non_differentiable
        full = spread(self.outputs, cotangents)
        full = [None if k in without else c for k, c in enumerate(full)]
        mask = list(map(bool, self.counts))
        wanted = spread(mask, need[known:], [False] * len(mask))
        pulled: Grads = [None] * len(mask)
        if any([c is not None for c in full]):
            pulled = self.base.pullback(inner, full, wanted)
        return [*grads, *select(mask, pulled)]


@dataclasses.dataclass(frozen=True, slots=True)
class _BatchedNotes:
    """What the base saved, and where the batch dimension of each of its extras is."""

    inner: Saved
    extra_dims: Dims


@dataclasses.dataclass(frozen=True, slots=True)
class BatchedRules(SameCallRules):
    """A call under vmap; outputs have the batch along dimension 0."""

    dims: Dims
    batch_size: int
    axis_name: Hashable = None
    randomness: str = "error"
    first: int = 0

    @property
    def solved(self) -> int:  # type: ignore[override]
        return self.base.solved

    @property
    def are_of_the_body(self) -> bool:
        return self.base.are_of_the_body

    @property
    def has_transpose(self) -> bool:
        return self.base.has_transpose

    def level(self) -> BatchLevel:
        """A fresh level to run the base's bodies in."""
        return BatchLevel(self.batch_size, self.axis_name, self.randomness, self.first)

    def _inside(self, level: BatchLevel, values: Values) -> Grads:
        return [_batched(level, v, d) for v, d in zip(values, self.dims, strict=True)]

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        outs, template, _ = self._evaluate(values, lambda xs: (*self.base.forward(xs), None))
        return outs, template

    def run(self, values: Values, needs: Needs = None) -> Outcome:
        return self._evaluate(values, lambda xs: self.base.run(xs, needs))

    @restores_modes
    def _evaluate(self, values: Values, run: Callable[[Values], Outcome]) -> Outcome:
        """By the user's vmap rule, or by ``run``, the body of the base, on batched values."""
        info = VmapInfo(self.batch_size, self.randomness)
        batched = self.base.batch(values, self.dims, info)
        if batched is not None:
            return (*batched, None)
        with self.level() as level:
            outs, template, inner = run(self._inside(level, values))
            lowered = [level.unwrap(o, 0) for o in outs]
            saved = None if inner is None else self._outside(level, values, lowered, inner)
            return lowered, template, saved

    @restores_modes
    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        with self.level() as level:
            inner_outs = [_batched(level, o, 0) for o in outs]
            inner = self.base.setup(self._inside(level, values), inner_outs, template, needs)
            return self._outside(level, values, outs, inner)

    def _outside(self, level: BatchLevel, values: Values, outs: Values, inner: Saved) -> Saved:
        """What this call saves, from what the base saved inside of ``level``."""
        kept = [outlived(x) for x in inner.extras]
        own = [isinstance(x, Tensor) and x.level is level and x.aux is not None for x in kept]
        dims = tuple([0 if batched else None for batched in own])
        extras = [level.unwrap(x, d) for x, d in zip(kept, dims)]
        notes = _BatchedNotes(inner.at((), (), ()), dims)
        avals = avals_of(values), avals_of(outs)
        return Saved(values, outs, inner.template, *avals, notes, extras, inner.closed)

    def inner_saved(self, saved: Saved, level: BatchLevel) -> Saved:
        """What the base saved, as Tensors of ``level``; values and outputs are not filled in."""
        notes: _BatchedNotes = saved.notes
        pairs = zip(saved.extras, notes.extra_dims, strict=True)
        return notes.inner.at((), (), [_batched(level, x, d) for x, d in pairs])

    def _at(self, level: BatchLevel, saved: Saved) -> Saved:
        inner = self.inner_saved(saved, level)
        outs = [_batched(level, o, 0) for o in saved.outs]
        return inner.at(self._inside(level, saved.values), outs, inner.extras)

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        notes: _BatchedNotes = saved.notes
        inner = self.base.for_pullback(notes.inner.at((), (), saved.extras), values, outs)
        return dataclasses.replace(
            saved,
            values=inner.values,
            outs=inner.outs,
            notes=_BatchedNotes(inner.at((), (), ()), notes.extra_dims),
        )

    def saved_for_backward(self, saved: Saved) -> Sequence[Any] | None:
        notes: _BatchedNotes = saved.notes
        return self.base.saved_for_backward(notes.inner)

    @restores_modes
    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        with self.level() as level:
            cts = [_batched(level, c, 0) for c in cotangents]
            grads = self.base.pullback(self._at(level, saved), cts, need)
            return [
                g if g is None else level.unwrap(g, d) if d is not None else _sum_lanes(level, g)
                for g, d in zip(grads, self.dims, strict=True)
            ]

    @restores_modes
    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        with self.level() as level:
            pairs = zip(directions, self.dims, strict=True)
            given = [trees.map_leaves(lambda t, d=d: _batched(level, t, d), x) for x, d in pairs]
            found = self.base.pushforward(self._at(level, saved), given, order)
            return [trees.map_leaves(lambda t: level.unwrap(t, 0), x) for x in found]

    @property
    def has_jet(self) -> bool:
        return self.base.has_jet


def origin(rules: CallRules) -> CallRules:
    """The rules of the call that these are made from."""
    while isinstance(rules, (BatchedRules, DerivativeRules, LinearRules)):
        rules = rules.base
    return rules


_SUM_LANES = Primitive("sum", lambda x: jnp.sum(x, axis=0))


def _sum_lanes(level: BatchLevel, g: Value) -> Value:
    """The gradient of an input that all lanes share."""
    summed: Value = bind(_SUM_LANES, (level.unwrap(g, 0),))
    return summed


def _batched(level: BatchLevel, x: MaybeValue, dim: int | None) -> MaybeValue:
    """``x``, which has the batch along ``dim``, as a value inside of ``level``."""
    return x if x is None or dim is None else level.mapped(x, dim)
