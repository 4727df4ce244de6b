"""Transforms that differ in ``torch.func`` from those at the top of fad, and a look inside of values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import GradientError
from fad.tape.recorder import ROOT, as_tensor
from fad.transforms import functionalize as functionalization
from fad.transforms import grad
from fad.transforms import vmap as batching

# A look inside of the values of transforms, for debugging.


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


# Transforms whose signature or result differs in ``torch.func`` from the one at the top of fad.


def grad_and_value(
    f: Callable[..., PyTree], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., PyTree]:
    """The gradient of ``f`` and its value, in one pass.

    Arguments and errors are those of `fad.value_and_grad`.

    Returns:
        A function with f's arguments that returns ``(gradient, value)``, or
        ``(gradient, (value, aux))``.

    Source: ``torch.func.grad_and_value``.

    >>> import fad
    >>> g, y = fad.func.grad_and_value(lambda x: x**2)(fad.tensor(3.0))
    >>> float(g), float(y)
    (6.0, 9.0)
    """
    pair = grad.gradient_function(f, argnums, has_aux, "grad_and_value", True)

    @functools.wraps(f)
    def gradient_and_value(*args: PyTree, **kwargs: PyTree) -> tuple[PyTree, PyTree]:
        value, gradient = pair(*args, **kwargs)
        return gradient, value

    return gradient_and_value


def vmap(
    f: Callable[..., PyTree],
    in_dims: PyTree = 0,
    out_dims: PyTree = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., PyTree]:
    """`fad.vmap`, with PyTorch's signature.

    Arguments, result and errors are those of `fad.vmap`, but that all lanes share keyword arguments.

    Source: ``torch.func.vmap``.

    >>> import fad
    >>> fad.func.vmap(lambda x: x * x)(fad.tensor([1.0, 2.0])).tolist()
    [1.0, 4.0]
    """
    options: dict[str, Any] = {"randomness": randomness, "chunk_size": chunk_size}
    without_keywords = batching.vmap(f, in_dims, out_dims, **options)

    @functools.wraps(f)
    def mapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not kwargs:
            return without_keywords(*args)
        call = functools.wraps(f)(lambda *args: f(*args, **kwargs))
        return batching.vmap(call, in_dims, out_dims, **options)(*args)

    return mapped


def functionalize(f: Callable[..., PyTree], *, remove: str = "mutations") -> Callable[..., PyTree]:
    """`fad.functionalize`, with PyTorch's ``remove``; arguments that ``f`` writes to are changed in the end.

    Arguments:
        f: as in `fad.functionalize`.
        remove: "mutations" or "mutations_and_views". JAX has neither, so they mean the same here.

    Raises:
        GradientError: ``remove`` is neither of these.

    Source: ``torch.func.functionalize``.

    >>> import fad
    >>> def f(x):
    ...     y = x * 1.0
    ...     y[0] = 5.0
    ...     return y
    >>> fad.func.functionalize(f, remove="mutations_and_views")(fad.tensor([1.0, 2.0])).tolist()
    [5.0, 2.0]
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise GradientError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove!r}. Valid "
            "options are 'mutations' and 'mutations_and_views'"
        )
    return functionalization.functionalized(f, writes_arguments=True)
