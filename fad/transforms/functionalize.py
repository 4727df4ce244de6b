"""``functionalize``: the pure version of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fad.core import trees
from fad.core.level import Level, modes
from fad.core.tensor import version_of
from fad.core.types import PyTree
from fad.transforms.boundary import Call, enter, has_tensor, leave
from fad.views.aliases import snapshot
from fad.views.copying import handle
from fad.views.inplace import overwrite_from


class FunctionalizeLevel(Level):
    """Stands for a call of `functionalize`; see ``pure`` in `ThreadState`."""

    __slots__ = ()

    kind = "functionalize"
    settings = ()


def functionalize(f: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function with f's results that leaves its arguments as they are.

    Arguments that ``f`` changes in place are changed on handles of their own, which share what the
    arguments share, so that calling the result has no effect but its return value.

    Arguments:
        f: any function of pytrees of arrays.

    Returns:
        A function with the arguments and results of ``f``.

    Raises:
        GradientError: ``f`` calls ``backward()`` for a leaf from outside, which would change its ``.grad``.

    Source: ``torch.func.functionalize``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.functionalize(lambda x: fnp.sin(x) * 2)(0.0))
    0.0
    """
    return functionalized(f, writes_arguments=False)


def functionalized(f: Callable[..., PyTree], writes_arguments: bool) -> Callable[..., PyTree]:
    """`functionalize`; with ``writes_arguments``, arguments are changed in the end as ``f`` changes them."""
    Call.check(f, "functionalize")

    @functools.wraps(f)
    def pure(*args: PyTree, **kwargs: PyTree) -> PyTree:
        tensors = has_tensor((args, kwargs))
        memo: dict[int, Any] = {}
        entered = enter((args, kwargs))
        inside, inside_kwargs = trees.map_leaves(lambda x: handle(x, memo), entered)
        before = {
            id(x): version_of(memo[id(x)]) for x in trees.flatten(entered)[0] if id(x) in memo
        }
        with modes(pure=FunctionalizeLevel()):
            out = f(*inside, **inside_kwargs)
        if writes_arguments:
            for x in trees.flatten(entered)[0]:
                written = memo.get(id(x))
                if written is not None and version_of(written) != before[id(x)]:
                    overwrite_from(x, snapshot(written), "functionalize")
        return leave(out, tensors)

    return pure
