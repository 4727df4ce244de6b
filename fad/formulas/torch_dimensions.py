"""Dimensions as PyTorch counts them: where a function works along one, a number has one dimension.

    fad.tensor(2.0).sum(dim=-1)
    fad.tensor(2.0).sort(dim=0).values

Both are 2.0, as in PyTorch. With ``axis=``, and by position, they are NumPy's error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fad.extend.types import ArrayFunction, PyTree
from fad.formulas.smooth_functions import Axes

# Functions of PyTorch that work along a dimension: a number has one also by position, or without a dimension.
_OF_NUMBERS = frozenset(
    """aminmax cummax cummin index_add index_copy index_fill index_select kthvalue log_softmax logcumsumexp
    logsumexp max median min mode msort nanmedian norm softmax sort std topk var""".split()
)
# Those for which no dimensions, ``dim=()``, are all of them.
_ALL_IF_EMPTY = frozenset("amax amin count_nonzero mean nanmean nansum norm std sum var".split())
_PARTS = frozenset("nanpercentile nanquantile percentile quantile".split())  # take several parts


def text(x: Array) -> str:
    """Dtype and shape of an array, for an error message."""
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def dims_of(x: Array, dims: Axes, who: str) -> tuple[int, ...]:
    """The dimensions that ``dims`` names, counted from 0; all of them for None."""
    numbers = range(x.ndim) if dims is None else (dims,) if isinstance(dims, int) else tuple(dims)
    count = max(x.ndim, 1)
    for d in numbers:
        if not -count <= d < count:
            raise IndexError(f"{who}: dim {d} is out of range for {text(x)}")
    return tuple([d % count for d in numbers])


def _all_if_empty(name: str, dims: Axes) -> Axes:
    """``dims``; None, which is all of them, if there are none and the function takes that for all."""
    return None if dims is not None and np.size(dims) == 0 and name in _ALL_IF_EMPTY else dims


def _of_number(
    function: ArrayFunction, x: Array, *args: PyTree, shape: tuple[int, ...] = (), **kwargs: PyTree
) -> PyTree:
    """``function`` of an array without dimensions, which counts as having one."""
    out = function(jnp.reshape(x, 1), *args, **kwargs)
    return jax.tree.map(lambda o: jnp.reshape(o, shape), out)


def along(name: str, function: ArrayFunction, names: Sequence[str]) -> ArrayFunction:
    """A function of JAX, for calls that give its dimensions as ``dim=`` or ``dims=``.

    Arguments:
        name: its name.
        function: the function.
        names: its parameters; the first one is the array.
    """

    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        if names[0] not in arguments:
            return function(**arguments)  # raises what is missing
        x, dims = arguments.pop(names[0]), arguments.get("axis")
        dims_of(jnp.asarray(x), dims, name)  # raises if there is none
        arguments["axis"] = _all_if_empty(name, dims)
        if np.ndim(x):
            return function(x, **arguments)
        parts = arguments["q"] if name in _PARTS else 0.0
        return _of_number(function, x, shape=np.shape(parts), **arguments)

    return call


def of_numbers_too(name: str, function: ArrayFunction) -> ArrayFunction:
    """A function of PyTorch's; an array without dimensions counts as having one where it does in PyTorch."""
    if name not in _OF_NUMBERS:
        return function
    parameters = inspect.signature(function)

    @functools.wraps(function)
    def call(x: Array, *args: PyTree, **kwargs: PyTree) -> PyTree:
        bound = parameters.bind(x, *args, **kwargs)
        if "dim" in bound.arguments:
            dims_of(x, bound.arguments["dim"], name)  # raises if there is none
            bound.arguments["dim"] = _all_if_empty(name, bound.arguments["dim"])
        run = function if x.ndim else functools.partial(_of_number, function)
        return run(*bound.args, **bound.kwargs)

    return call
