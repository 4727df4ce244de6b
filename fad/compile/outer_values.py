"""What compiled code closes over, between its calls."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Operand, PyTree
from fad.errors import GradientError, describe
from fad.tape.recorder import ROOT
from fad.tape.vmap import batch_levels, lanes_among, lanes_inside
from fad.views.make_view import is_contiguous


class Lanes:
    """Stands for the lanes of a vmap around a call: that of this number, whichever it is."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def find(self) -> Tensor:
        """The numbers of the lanes."""
        return lanes_inside(batch_levels()[self.number])


class Live:
    """An untracked Tensor that compiled code closes over: each call reads what it is by then."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def find(self) -> Tensor:
        """The Tensor; compiled code around this one closes over it too.

        Raises:
            GradientError: it is tracked by now.
        """
        x = self.tensor
        if x.level is not ROOT or x.requires_grad:
            raise _tracked_capture(x)
        return x


def is_traced(x: object) -> bool:
    """Whether ``x`` is part of a trace around this one, which compiled code must not outlive."""
    if isinstance(x, Tensor):
        return x.level.traces or isinstance(x.value, jax.core.Tracer)
    return isinstance(x, jax.core.Tracer)


def values_now(fixed: Sequence[Operand]) -> list[Operand]:
    """The values at a call, from what `captured` made."""
    return [x.find() if isinstance(x, (Lanes, Live)) else x for x in fixed]


def captured(x: object) -> PyTree:
    """What compiled code may keep of a value that it closes over."""
    if not isinstance(x, Tensor):
        return x
    number = lanes_among(batch_levels(), x)
    if number is not None:
        return Lanes(number)
    if x.level is ROOT and not x.requires_grad:
        return Live(x)
    if x.level.traces:
        return x
    raise _tracked_capture(x)


def _tracked_capture(x: Tensor) -> GradientError:
    where = "the eager graph" if x.level is ROOT else repr(x.level)
    return GradientError(
        f"jit: the compiled function closes over a Tensor ({describe(x)}) that is tracked by "
        f"{where}. Compiled code outlives this call, so it cannot refer to it: pass the Tensor "
        "as an argument, or use stop_gradient on it."
    )


def struct_like(x: object) -> PyTree:
    """The shape and dtype of a Tensor; other things as they are."""
    if isinstance(x, Tensor):
        aval = x.aval
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    return x


def untracked(x: object) -> PyTree:
    """``x`` as ``jax.jit`` may flatten it."""
    if not isinstance(x, Tensor):
        return x
    if x.level is ROOT:
        return new_tensor(x.value, ROOT)
    return new_tensor(struct_like(x), ROOT)


def may_take(t: Tensor, unrecorded: bool) -> bool:
    """Whether ``t``, brought up to date, goes into a call, which may be ``unrecorded``, as its array."""
    meta = t.meta
    if meta is not None and meta.link is not None:
        meta.link.enter(t)
        if not is_contiguous(t):
            return False
    return t._level is ROOT and not (t._requires_grad and not unrecorded)


def is_bare(x: object, unrecorded: bool = False) -> bool:
    """Whether nothing tracks ``x``, so that it may be donated; or if ``unrecorded``, what is
    computed of it.
    """
    if isinstance(x, Tensor):
        if x.level is not ROOT or (x.requires_grad and not unrecorded):
            return False
        x = x.value
    return not isinstance(x, jax.core.Tracer)
