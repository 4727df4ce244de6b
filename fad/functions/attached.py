"""``with_derivative``: values that were computed in another way, with derivatives by rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from fad.core.dtypes import is_inexact
from fad.core.jaxapi import zeros
from fad.core.level import bind
from fad.core.types import MaybeValue, Value
from fad.functions.calls import FunctionOp
from fad.functions.context import Template
from fad.functions.rules import CallRules, Saved

Values = Sequence[Value]


class AttachedRules(Protocol):
    """The rules that `with_derivative` takes; hashable: calls with equal ones share compiled code."""

    @property
    def name(self) -> str: ...

    def pushforward(
        self, values: Values, inputs: Values, tangents: Sequence[MaybeValue]
    ) -> Sequence[MaybeValue]: ...

    def pullback(
        self, values: Values, inputs: Values, cotangents: Values, need: Sequence[bool]
    ) -> Sequence[MaybeValue]: ...


def with_derivative(rules: AttachedRules, values: Values, inputs: Values) -> list[Value]:
    """``values``, computed in another way, as a function of ``inputs``, with derivatives by ``rules``.

    A solver has found the values, or a program on the host; nothing of that is recorded. The rules read the
    values as outputs, which depend on the inputs, so that derivatives of any order are right.

    Arguments:
        rules: an object with a ``name`` and two methods, hashable.
            ``pushforward(values, inputs, tangents)`` returns the tangents of the values; None is zero.
            ``pullback(values, inputs, cotangents, need)`` returns a gradient for each input, None
            where ``need`` says that it is not wanted. Both compute with values of any level, by
            operations of fad; complex cotangents are PyTorch's, the conjugates of those of JAX.
        values: arrays or Tensors without a history.
        inputs: arrays or Tensors.

    Returns:
        The values, with their place in graphs and transforms.

    >>> import fad, math
    >>> from fad import extend
    >>> class SquareRoot:
    ...     name = "square_root"
    ...     def pushforward(self, values, inputs, tangents):
    ...         return [tangents[0] / (2.0 * values[0])]
    ...     def pullback(self, values, inputs, cotangents, need):
    ...         return [cotangents[0] / (2.0 * values[0])]
    >>> def square_root(x):
    ...     y = fad.tensor(math.sqrt(x.item()))
    ...     return extend.with_derivative(SquareRoot(), [y], [x])[0]
    >>> float(fad.grad(square_root)(4.0)), float(fad.grad(fad.grad(square_root))(4.0))
    (0.25, -0.03125)
    """
    return list(bind(FunctionOp(_Attached(rules, len(values))), [*values, *inputs]))


@dataclasses.dataclass(frozen=True, slots=True)
class _Attached(CallRules):
    """The rules of the operation (values, inputs) -> values; ``solved`` counts the values."""

    rules: AttachedRules
    solved: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.rules.name

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        return list(values[: self.solved]), Template.flat_of(self.solved)

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        return saved.at(values, outs, ())

    def pushforward(
        self, saved: Saved, directions: Sequence[MaybeValue], order: int | None = None
    ) -> list[MaybeValue]:
        inputs, tangents = saved.values[self.solved :], directions[self.solved :]
        if all([t is None for t in tangents]):
            return [None] * self.solved
        return list(self.rules.pushforward(saved.outs, inputs, tangents))

    def pullback(
        self, saved: Saved, cotangents: Sequence[MaybeValue], need: Sequence[bool]
    ) -> list[MaybeValue]:
        inputs = saved.values[self.solved :]
        pairs = zip(inputs, need[self.solved :], strict=True)
        wanted = tuple([n and is_inexact(x.dtype) for x, n in pairs])
        if not any(wanted):
            return [None] * len(need)
        outs = zip(cotangents, saved.out_avals, strict=True)
        full = [zeros(a) if c is None else c for c, a in outs]
        grads = self.rules.pullback(saved.outs, inputs, full, wanted)
        return [*[None] * self.solved, *grads]
