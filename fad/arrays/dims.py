"""Dimensions as PyTorch counts them: where a function works along one, a number has one dimension.

    fad.tensor(2.0).sum(dim=-1)
    fad.tensor(2.0).sort(dim=0).values

Both are 2.0, as in PyTorch. With ``axis=``, and by position, they are NumPy's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.arrays.lists import Args, Kwargs
from fad.core.types import Array, ArrayFunction, Axes, PyTree, Value

# Functions of JAX that work along dimensions: with ``dim=`` or ``dims=``, a number has one.
ALONG = frozenset(
    """all amax amin any argmax argmin argsort average count_nonzero cumprod cumsum flip log_softmax
    logsumexp max mean median min nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin
    nanpercentile nanprod nanquantile nanstd nansum nanvar percentile prod ptp quantile softmax sort
    std sum var vector_norm""".split()
)
# Those of PyTorch, in `fad.arrays.torch_functions` and beside it: also by position, or without a dimension.
OF_NUMBERS = frozenset(
    """aminmax cummax cummin index_add index_copy index_fill index_select kthvalue log_softmax logcumsumexp
    logsumexp max median min mode msort nanmedian norm softmax sort std topk var""".split()
)
# Those for which no dimensions, ``dim=()``, are all of them.
_ALL_IF_EMPTY = frozenset("amax amin count_nonzero mean nanmean nansum norm std sum var".split())
_PARTS = frozenset("nanpercentile nanquantile percentile quantile".split())  # take several parts


def text(x: Value) -> str:
    """Dtype and shape of an array, for an error message."""
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def dims_of(x: Value, dims: Axes, who: str) -> tuple[int, ...]:
    """The dimensions that ``dims`` names, counted from 0; all of them for None.

    Raises:
        IndexError: ``x`` does not have one of them.
    """
    if dims is None:
        return tuple(range(x.ndim))
    found = (dims,) if isinstance(dims, int) else tuple(dims)
    count = max(x.ndim, 1)
    for d in found:
        if not -count <= d < count:
            raise IndexError(f"{who}: dim {d} is out of range for {text(x)}")
    return tuple([d % count for d in found])


def all_if_empty(name: str, dims: Axes) -> Axes:
    """``dims``; None, which is all of them, if there are none and the function takes that for all."""
    return None if dims is not None and np.size(dims) == 0 and name in _ALL_IF_EMPTY else dims


def of_number(
    function: Callable[..., PyTree],
    x: Array,
    args: Args,
    kwargs: Kwargs,
    shape: tuple[int, ...] = (),
) -> PyTree:
    """``function`` of an array without dimensions, which counts as having one."""
    out = function(jnp.reshape(x, 1), *args, **kwargs)
    return jax.tree.map(lambda o: jnp.reshape(o, shape), out)


def along(
    name: str, function: ArrayFunction, names: Sequence[str], of_torch: bool
) -> ArrayFunction:
    """A function in `ALONG`, for calls of one kind.

    Arguments:
        name: its name.
        function: the function of JAX.
        names: its parameters; the first one is the array.
        of_torch: whether the calls give its dimensions as ``dim=`` or ``dims=``.
    """
    place = names.index("axis") - 1

    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not args and names[0] in kwargs:
            args = (kwargs.pop(names[0]),)
        if not args:
            return function(**kwargs)  # raises what is missing
        x, rest = args[0], args[1:]
        dims = rest[place] if len(rest) > place else kwargs.get("axis")
        if not of_torch:
            _check_axis(max(np.ndim(x), "cum" in name), dims)
            return function(x, *rest, **kwargs)
        dims_of(jnp.asarray(x), dims, name)
        if len(rest) <= place:
            kwargs["axis"] = all_if_empty(name, dims)
        if np.ndim(x):
            return function(x, *rest, **kwargs)
        parts = (rest[0] if rest else kwargs["q"]) if name in _PARTS else 0.0
        return of_number(function, x, rest, kwargs, np.shape(parts))

    return call


def _check_axis(ndim: int, axis: Axes) -> None:
    """Raise NumPy's error for an axis that there is not: some functions of JAX raise an unclear one."""
    for a in axis if isinstance(axis, (tuple, list)) else (axis,):
        if isinstance(a, int) and not -ndim <= a < ndim:
            raise np.exceptions.AxisError(a, ndim)
