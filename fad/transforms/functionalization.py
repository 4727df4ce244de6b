"""``functionalize``: the pure version of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fad.core import trees
from fad.transforms.boundary import check_callable, enter, has_tensor, leave
from fad.views.copying import handle

__all__ = ["functionalize"]


def functionalize(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function with f's results that leaves its arguments as they are.

    Arguments that ``f`` changes in place are changed on handles of their own, which share what the
    arguments share, so that calling the result has no effect but its return value.

    Arguments:
        f: any function of pytrees of arrays.

    Returns:
        A function with the arguments and results of ``f``.

    Source: ``torch.func.functionalize``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.functionalize(lambda x: fnp.sin(x) * 2)(0.0))
    0.0
    """
    check_callable(f, "functionalize")

    @functools.wraps(f)
    def pure(*args: Any, **kwargs: Any) -> Any:
        tensors = has_tensor((args, kwargs))
        memo: dict[int, Any] = {}
        inside, inside_kwargs = trees.map_leaves(lambda x: handle(x, memo), enter((args, kwargs)))
        return leave(f(*inside, **inside_kwargs), tensors)

    return pure
