"""A value as a constant, at all levels."""

from __future__ import annotations

from typing import Any

import jax

from fad.core.level import outlived
from fad.core.tensor import Tensor, given_away, new_tensor
from fad.core.types import Operand
from fad.tape.recorder import ROOT


def stopped(x: Operand) -> Any:
    """``x`` as a constant: no gradient and no tangent passes through it, at any level."""
    x = outlived(x)
    if not isinstance(x, Tensor):
        return jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x
    level, value = x.level, x.value
    if level is ROOT:
        given_away(x)
        inner = jax.lax.stop_gradient(value) if isinstance(value, jax.core.Tracer) else value
        return new_tensor(inner, ROOT)
    return level.constant(x, stopped)
