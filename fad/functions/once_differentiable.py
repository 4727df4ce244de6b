"""``once_differentiable``: a vjp rule whose result must not be differentiated again."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NoReturn

import jax

from fad.core import trees
from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.core.types import PyTree, Value
from fad.errors import GradientError
from fad.functions.calls import FunctionOp
from fad.functions.check_results import as_value
from fad.functions.closures import is_plain
from fad.functions.context import Context, Notes
from fad.functions.rules import CallRules, Directions, Saved, Values
from fad.functions.templates import Template, split
from fad.tape.grad_mode import no_grad
from fad.views.make_view import stop_gradient


def once_differentiable(vjp: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Decorator for a vjp (backward) rule whose result must not be differentiated again.

    The rule runs without recording, on values that nothing tracks, so it may leave JAX. To
    differentiate its result, in reverse or in forward mode, raises GradientError.

    Source: ``torch.autograd.function.once_differentiable``.

    >>> import fad
    >>> class Cube(fad.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     @once_differentiable
    ...     def vjp(ctx, g):
    ...         return 3 * ctx.saved_tensors[0].numpy() ** 2 * g.numpy()
    >>> float(fad.grad(Cube.apply)(2.0))
    12.0
    """

    @functools.wraps(vjp)
    def wrapper(ctx: Context, *cotangents: PyTree) -> PyTree:
        notes, kept, _ = Notes.take(ctx, {}, _ARRAYS)
        leaves, structure = trees.flatten(cotangents)
        operands = [*kept, *[x for x in leaves if isinstance(x, _ARRAYS)]]
        if all(map(is_plain, operands)):
            with no_grad():
                return vjp(ctx, *cotangents)
        stopped = {id(x): stop_gradient(x) for x in operands}
        inner = notes.context(
            lambda ref: stopped[id(kept[ref.at])], lambda x: x, ctx.needs_input_grad, False
        )
        with no_grad():
            grads = vjp(inner, *trees.unflatten(structure, [stopped.get(id(x), x) for x in leaves]))
        arrays, template = split(grads)
        once = FunctionOp(_Once(len(arrays), vjp.__qualname__))
        return template.combine(bind(once, [*map(as_value, arrays), *operands]))

    wrapper.once_differentiable = True  # type: ignore[attr-defined]
    return wrapper


_ARRAYS = (Tensor, jax.Array)


@dataclasses.dataclass(frozen=True, slots=True)
class _Once(CallRules):
    """The identity on the first ``count`` operands, and an error to differentiate in any operand."""

    count: int
    rule: str
    name = "once_differentiable"

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        return list(values[: self.count]), Template.flat_of(self.count)

    def _refuse(self) -> NoReturn:
        raise GradientError(
            f"{self.rule}: trying to differentiate twice a function that was marked with "
            "@once_differentiable. Leave the mark out if the rule is written with fad.numpy."
        )

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> NoReturn:
        self._refuse()

    def pushforward(
        self, saved: Saved, directions: Directions, order: int | None = None
    ) -> NoReturn:
        self._refuse()
