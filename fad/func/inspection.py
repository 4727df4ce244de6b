"""A look inside of the values of transforms, for debugging."""

from __future__ import annotations

from typing import Any

from fad.core.tensor import Tensor
from fad.tape.recorder import ROOT, as_tensor


def debug_unwrap(tensor: Any, *, recurse: bool = True) -> Any:
    """What the Tensor of a running transform wraps.

    Inside ``vmap`` that is the whole batch, inside ``jvp`` the primal. It is to look at while debugging: to
    compute with it in the function that is transformed gives wrong results.

    Arguments:
        tensor: any Tensor; one that no transform has wrapped is returned as it is.
        recurse: unwrap all levels, rather than the innermost one.

    Source: ``torch.func.debug_unwrap``.

    >>> import fad
    >>> def f(x):
    ...     print(fad.func.debug_unwrap(x).tolist())
    ...     return x * 2
    >>> fad.vmap(f)(fad.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    [2.0, 4.0]
    """
    if not isinstance(tensor, Tensor) or tensor.level is ROOT:
        return tensor
    below = as_tensor(tensor.value)
    return debug_unwrap(below) if recurse else below
