"""``functionalize``: the pure version of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fad import trees
from fad.errors import describe
from fad.rules import fresh
from fad.tensor import Tensor, new_tensor
from fad.transforms.boundary import enter, has_tensor, leave

__all__ = ["functionalize"]


def functionalize(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with f's results that leaves its arguments as they are.

    Arguments that ``f`` changes in place are changed on handles of their own, so that calling the
    result has no effect but its return value.

    Arguments:
        f: any function of pytrees of arrays.

    Returns:
        A function with the arguments and results of ``f``.

    Source: ``torch.func.functionalize``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.functionalize(lambda x: fnp.sin(x) * 2)(0.0))
    0.0
    """
    if not callable(f):
        raise TypeError(f"functionalize: the first argument must be a function, got {describe(f)}")

    @functools.wraps(f)
    def pure(*args: Any, **kwargs: Any) -> Any:
        tensors = has_tensor((args, kwargs))
        inside, inside_kwargs = trees.map_leaves(_handle, enter((args, kwargs)))
        return leave(f(*inside, **inside_kwargs), tensors)

    return pure


def _handle(x: Any) -> Any:
    """A handle of its own for a Tensor, with the same place in the graph."""
    if not isinstance(x, Tensor) or (x.requires_grad and x.node is None):
        return x
    if not x.requires_grad:
        return fresh(x)
    t = new_tensor(x.value, x.level, x.aux)
    t.requires_grad, t.node, t.output_nr = True, x.node, x.output_nr
    return t
