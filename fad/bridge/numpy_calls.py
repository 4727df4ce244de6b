"""Functions of NumPy that are called with Tensors.

NOTE [NumPy and Tensors]

An operator or a ufunc with a Tensor operand computes with `fad.numpy`, whichever side the Tensor is
on: ``np.float32(2) * x``, ``matrix @ x`` and ``np.add(x, y)`` give Tensors, with their derivatives.
Where a value leaves for another library for good (``np.asarray``, DLPack), a Tensor that requires
grad or has a tangent raises, as ``x.numpy()`` does, because the derivative would be lost silently. Other
functions of NumPy (``np.concatenate``, ``np.where``) leave with it, and so give arrays of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import fad.numpy as fnp
from fad import Tensor, scipy
from fad.errors import HostValueError, TrackedValueError, describe
from fad.extend.types import PyTree


def _counterpart(ufunc: np.ufunc, method: str) -> Callable[..., PyTree] | None:
    """The function of fad that does what a ufunc, or a method of it, does."""
    for namespace in (fnp, scipy.special):
        function = getattr(namespace, ufunc.__name__, None)
        if function is not None:
            counterpart: Callable[..., PyTree] | None = (
                function if method == "__call__" else getattr(function, method, None)
            )
            return counterpart
    return None


def _array_ufunc(
    tensor: Tensor,
    ufunc: np.ufunc,
    method: str,
    /,
    *inputs: PyTree,
    out: PyTree = None,
    **kwargs: PyTree,
) -> PyTree:
    """NumPy's hook for ufuncs, and methods of them: the same in `fad.numpy`."""
    for x in inputs:
        # A type with another hook, not known here, handles the call itself.
        hook = getattr(type(x), "__array_ufunc__", None)
        if hook not in (None, np.ndarray.__array_ufunc__, vars(Tensor)["__array_ufunc__"]):
            return NotImplemented
    name = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    if out is not None:
        raise TypeError(
            f"{name}: the result of what is computed with a Tensor is a Tensor, and cannot be written "
            f"into {describe(out[0])}: make that an array of fad.numpy (u = fad.numpy.array(u)), write "
            "y = y + x rather than y += x, or use x.detach().numpy()"
        )
    counterpart = _counterpart(ufunc, method)
    if counterpart is None:
        raise TypeError(
            f"{name} has no counterpart in fad.numpy, so it cannot take a Tensor ({describe(tensor)}): "
            "use x.detach().numpy(), or write a fad.Function"
        )
    if method == "__call__" and kwargs:
        dtype = kwargs.pop("dtype", None)
        if kwargs:
            raise TypeError(
                f"{name} of a Tensor takes no argument {', '.join(sorted(kwargs))!r}: use fad.numpy, "
                "such as fad.numpy.where(condition, a, b)"
            )
        inputs = tuple([fnp.asarray(x, dtype=dtype) for x in inputs])
    else:
        inputs = tuple([np.asarray(x) if isinstance(x, (list, tuple)) else x for x in inputs])
    return counterpart(*inputs, **kwargs)


def _array_function(
    tensor: Tensor,
    function: Callable[..., PyTree],
    types: tuple[type, ...],
    args: tuple[PyTree, ...],
    kwargs: dict[str, PyTree],
) -> PyTree:
    """NumPy's hook for its other functions: they convert Tensors; an error names the function of `fad.numpy`.

    Raises:
        TrackedValueError: the function was given a Tensor that requires grad or has a tangent.
        HostValueError: it is batched or being traced.
    """
    run = getattr(function, "_implementation", None)
    if run is None or not all(issubclass(t, (Tensor, np.ndarray)) for t in types):
        return NotImplemented
    try:
        return run(*args, **kwargs)
    except HostValueError as error:
        full = f"{function.__module__}.{function.__name__}"
        here: PyTree = fnp
        for part in full.split(".")[1:]:
            here = getattr(here, part, None)
        if here is None:
            raise
        raise type(error)(
            f"{full} of a Tensor that requires grad or has a tangent would lose its derivative: write "
            f"fad.{full}, or pass x.detach().numpy()"
            if isinstance(error, TrackedValueError)
            else f"{full} of a Tensor that has no value yet (in jit, scan, ...), or one for each lane (in "
            f"vmap): write fad.{full}"
        ) from None


MEMBERS = {"__array_function__": _array_function, "__array_ufunc__": _array_ufunc}
