"""``stop_gradient``: a value as a constant."""

from __future__ import annotations

from typing import Any

import jax

from fad.dispatch import bind, outlived
from fad.levels import BatchLevel
from fad.primitive import Primitive
from fad.staging import StagedLevel
from fad.tape.record import ROOT
from fad.tensor import Tensor, new_tensor

__all__ = ["stop_gradient"]


def stop_gradient(x: Any) -> Any:
    """``x`` as a constant: no gradient and no tangent passes through it, at any level.

    Arguments:
        x: a pytree of Tensors and arrays.

    Source: ``torch.Tensor.detach``, ``jax.lax.stop_gradient``.

    >>> import fad
    >>> float(fad.grad(lambda x: x * fad.stop_gradient(x))(3.0))
    3.0
    """
    return jax.tree_util.tree_map(_stop, x, is_leaf=lambda v: isinstance(v, Tensor))


_STOP = Primitive("stop_gradient", jax.lax.stop_gradient)


def _stop(x: Any) -> Any:
    x = outlived(x)
    if not isinstance(x, Tensor):
        return jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x
    level, value = x.level, x.value
    if level is ROOT:
        inner = jax.lax.stop_gradient(value) if isinstance(value, jax.core.Tracer) else value
        return new_tensor(inner, ROOT)
    if isinstance(level, BatchLevel):
        return new_tensor(_stop(value), level, x.aux)
    if isinstance(level, StagedLevel):
        t = bind(_STOP, (level.detach(x),))
        t.requires_grad = False
        return t
    inner = _stop(value)
    return new_tensor(inner, level)
