"""The level of forward mode."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from fad.core.level import bind, map_tensors, new_argument, state
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import MaybeValue, Operand, Operation, Outputs, Value
from fad.tape.recorder import RecordingLevel


class JvpLevel(RecordingLevel):
    """Forward mode: each Tensor has a primal (``value``) and a tangent (``aux``; None is zero)."""

    __slots__ = ()

    kind = "jvp"
    settings = ()

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        primals, tangents, has_tangent = self.unwrapped(args)
        if not has_tangent or self.is_off():
            return map_tensors(lambda o: new_tensor(o, self), bind(op, primals))
        out, out_t = op.jvp(primals, tangents)
        if type(out) is tuple:
            return tuple([new_tensor(o, self, t) for o, t in zip(out, out_t, strict=True)])
        return new_tensor(out, self, out_t)

    def is_off(self) -> bool:
        """Whether this thread has switched off the tangents of this level."""
        return self.id <= state.tangents_off

    def tangent(self, t: Tensor) -> MaybeValue:
        return None if self.is_off() else t.aux

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        return ((t._value,), False) if t._aux is None else ((t._value, t._aux), True)

    def unflatten(self, rest: Hashable, parts: Iterator[Operand]) -> Tensor:
        return new_tensor(next(parts), self, next(parts) if rest else None)

    def dual(self, primal: Operand, tangent: MaybeValue) -> Tensor:
        """An argument, a Tensor of this level."""
        return new_argument(primal, self, tangent)

    def unpack(self, x: Operand) -> tuple[Any, Any]:
        """Primal and tangent of ``x`` at this level; the tangent is None where it is zero."""
        value, tangent = self.value_and_aux(x)
        return value, None if self.is_off() else tangent
