"""Transforms whose signature or result differs in ``torch.func`` from the one at the top of fad."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fad.core.types import PyTree
from fad.errors import GradientError
from fad.transforms import batching, functionalization, reverse


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
    pair = reverse.gradient_function(f, argnums, has_aux, "grad_and_value", True)

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
