"""``eval_shape`` and ``make_jaxpr``: what a function of Tensors would compute, without computing it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from fad.bridge.compilation import jit
from fad.core.types import PyTree
from fad.transforms.boundary import check_callable


def eval_shape(f: Callable[..., PyTree], *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Shapes and dtypes of what a function returns; nothing is computed.

    Arguments:
        f: a function of Tensors.
        args, kwargs: its arguments; a ``jax.ShapeDtypeStruct`` may stand for an array.

    Returns:
        A ``jax.ShapeDtypeStruct`` for each array of the result.

    Source: ``jax.eval_shape``.

    >>> import fad, fad.numpy as fnp
    >>> fad.eval_shape(fad.jacfwd(fnp.sin), fad.ones(3)).shape
    (3, 3)
    """
    check_callable(f, "eval_shape")
    return jit(f).eval_shape(*args, **kwargs)


def make_jaxpr(
    f: Callable[..., PyTree],
    static_argnums: int | Sequence[int] | None = None,
    *,
    return_shape: bool = False,
) -> Callable[..., PyTree]:
    """A function that gives the jaxpr of ``f``: the operations of JAX that it is traced to.

    Arguments:
        f: a function of Tensors.
        static_argnums: arguments that are not traced, as in `jit`.
        return_shape: return the shapes and dtypes of the result too.

    Returns:
        A function of f's arguments. It returns a ``jax.core.ClosedJaxpr``; with ``return_shape`` a pair of
        that and what `eval_shape` gives.

    Source: ``jax.make_jaxpr``.

    >>> import fad, fad.numpy as fnp
    >>> fad.make_jaxpr(lambda x: fnp.cos(x) * x)(1.0)
    { lambda ; a:f32[]. let b:f32[] = cos a; c:f32[] = mul b a in (c,) }
    """
    check_callable(f, "make_jaxpr")
    compiled = jit(f, static_argnums=static_argnums)

    @functools.wraps(f)
    def made(*args: PyTree, **kwargs: PyTree) -> PyTree:
        traced = compiled.trace(*args, **kwargs)
        return (traced.jaxpr, traced.out_info) if return_shape else traced.jaxpr

    return made
