"""Forward Laplacians: ``laplacian`` and ``value_and_laplacian``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from fad.errors import ArgumentError, describe
from fad.extend import Call, restores_modes, zeros_like
from fad.extend.types import PyTree
from fad.laplacians.level import LaplacianLevel


def laplacian(f: Callable[..., PyTree], argnums: int | Sequence[int] = 0) -> Callable[..., PyTree]:
    """The sum of the second derivatives of ``f`` in each coordinate: the trace of its Hessian.

    One forward pass carries value, Jacobian and Laplacian; the Hessian is never formed. See
    `value_and_laplacian`, which gives the value too.

    Arguments:
        f: returns an array, or a pytree of arrays, of any shape.
        argnums: which positional arguments the coordinates are in: pytrees of arrays of floating dtype.

    Returns:
        A function that returns the Laplacian of each element of the output of ``f``.

    Raises:
        ArgumentError: an argument is not an array, or not of floating dtype.

    Source: R. Li, H. Ye, D. Jiang et al., "A computational framework for neural network-based variational
    Monte Carlo with Forward Laplacian", Nature Machine Intelligence 6 (2024).

    >>> import fad, fad.numpy as fnp
    >>> float(fad.laplacian(lambda x: fnp.sum(x**3))(fnp.array([1.0, 2.0])))
    18.0
    """
    of_both = _function(f, argnums, "laplacian")

    @functools.wraps(f)
    def laplacian_only(*args: PyTree, **kwargs: PyTree) -> PyTree:
        return of_both(*args, **kwargs)[1]

    return laplacian_only


def value_and_laplacian(
    f: Callable[..., PyTree], argnums: int | Sequence[int] = 0
) -> Callable[..., PyTree]:
    """The output of ``f`` and its Laplacian, as `laplacian`, in one pass.

    Arguments:
        f: returns an array, or a pytree of arrays, of any shape.
        argnums: which positional arguments the coordinates are in: pytrees of arrays of floating dtype.

    Returns:
        A function that returns ``(output, laplacian)``, both of the structure, shapes and dtypes that the
        output has.

    Raises:
        ArgumentError: an argument is not an array, or not of floating dtype.

    >>> import fad, fad.numpy as fnp
    >>> value, bend = fad.value_and_laplacian(lambda x: fnp.sum(x**3))(fnp.array([1.0, 2.0]))
    >>> float(value), float(bend)
    (9.0, 18.0)
    """
    return _function(f, argnums, "value_and_laplacian")


def _function(
    f: Callable[..., PyTree], argnums: int | Sequence[int], who: str
) -> Callable[..., PyTree]:
    """`value_and_laplacian`, under the name ``who`` in messages."""
    Call.check(f, who, argnums)

    @restores_modes
    @functools.wraps(f)
    def both(*args: PyTree, **kwargs: PyTree) -> PyTree:
        call = Call(who, args, kwargs, argnums)
        for v, name in zip(call.values, call.names, strict=True):
            if jnp.issubdtype(v.dtype, np.complexfloating):
                raise ArgumentError(
                    f"{who}: {name} must have a floating dtype, got {describe(v)}. Write the function in "
                    "terms of the real and the imaginary part, which are two coordinates."
                )
        with LaplacianLevel() as level:
            firsts = itertools.accumulate([v.size for v in call.values], initial=0)
            inside = [level.coordinates(v, k) for v, k in zip(call.values, firsts, strict=False)]
            unpacked = [level.unpack(o) for o in call.outputs(call.run(f, level, inside))]
            changed = call.written(inside, lambda x: level.unpack(x)[0])
        call.write_back(changed)
        bends = [parts[2] if len(parts) > 2 else zeros_like(parts[0]) for parts in unpacked]
        return call.result([parts[0] for parts in unpacked]), call.result(bends)

    return both
