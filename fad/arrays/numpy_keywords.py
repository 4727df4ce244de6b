"""Keyword arguments of NumPy that functions of `jax.numpy` lack."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fad.arrays.arguments import Args, Function, Kwargs
from fad.core.types import ArrayFunction, DType, PyTree
from fad.errors import ArgumentError, describe

if TYPE_CHECKING:
    from fad.arrays.operations import Op

# Keyword arguments of NumPy that functions of JAX lack, where a call has one.
#
# They have other names, or no effect on arrays that have no layout in memory, or mean another operation:
# ``dtype=`` of an elementwise function casts what it is given, and ``where=`` with ``out=`` keeps the
# elements of ``out`` that are not selected. docs/for-numpy-users.md has them as a table.

# Function -> NumPy's keyword -> JAX's; "" is its first argument.
_RENAMED: dict[str, dict[str, str]] = {
    "clip": {"a": "", "a_max": "max", "a_min": "min"},
    "cov": {"correction": "ddof"},
    "matrix_rank": {"A": "M"},
    "nanpercentile": {"interpolation": "method"},
    "nanquantile": {"interpolation": "method"},
    "nanstd": {"correction": "ddof"},
    "nanvar": {"correction": "ddof"},
    "percentile": {"interpolation": "method"},
    "quantile": {"interpolation": "method"},
}
_LAYOUTS = ("A", "C", "F", "K", None)
# Keyword -> its values that change nothing here.
_NO_EFFECT: dict[str, tuple[Any, ...]] = {
    "casting": ("equiv", "no", "safe", "same_kind", "unsafe"),
    "kind": ("heapsort", "introselect", "mergesort", "quicksort", "sort", "stable", "table", None),
    "like": (None,),
    "order": _LAYOUTS,
    "out": (None,),
    "signature": (None,),
    "subok": (False, True),
    "where": (True,),
}


# The same, whatever the value, of functions that have it and that refuse some values.
_IGNORED = {
    "copy": "meshgrid",
    "kind": "argsort sort",
    "order": "array asarray copy",
    "overwrite_input": "median nanmedian nanpercentile nanquantile percentile quantile",
}


@functools.cache
def _of_numpy(where: str, name: str) -> Any:
    """The function of NumPy with this name; None if there is none."""
    room = where.removeprefix("fad.numpy").strip(".")
    if not where.startswith("fad.numpy"):
        return None
    return getattr(getattr(np, room) if room else np, name, None)


def is_elementwise(where: str, name: str) -> bool:
    """Whether NumPy's function works element by element, so that it takes ``where=`` and ``dtype=``."""
    function = _of_numpy(where, name)
    return isinstance(function, np.ufunc) and function.signature is None


@functools.cache
def _keywords(where: str, name: str) -> frozenset[str]:
    """The keywords of NumPy's function."""
    function = _of_numpy(where, name)
    if isinstance(function, np.ufunc):
        names = frozenset("casting dtype order out signature subok".split())
        return names | {"where"} if function.signature is None else names
    if not callable(function):
        return frozenset()
    try:
        names = frozenset(inspect.signature(function).parameters)
    except ValueError:  # an older NumPy does not say it
        return frozenset(_NO_EFFECT)
    return names | {"casting", "dtype", "order"} if name == "einsum" else names


def adapted(op: Op, args: Args, kwargs: Kwargs) -> tuple[Op, Args, Kwargs] | None:
    """A call with keywords of NumPy as one without: the operation, its arguments and keywords.

    Returns:
        None if there are no such keywords, or if there are others that the function does not have.
    """
    parameters, takes = op.plan.named, _keywords(op.where, op.name)
    elementwise = is_elementwise(op.where, op.name)
    left, dtype, casting = {}, None, kwargs.get("casting", "same_kind")
    for name, value in kwargs.items():
        renamed = _RENAMED.get(op.name, {}).get(name)
        if renamed is not None and name not in parameters:
            if renamed:
                left[renamed] = value
            else:
                args = (value, *args)
        elif name == "where" and elementwise and value is not True and value is not None:
            raise ArgumentError(
                f"{op.where}.{op.name}: where= without out= leaves elements without a value: give out=, or "
                f"write fad.safe_where(mask, fad.numpy.{op.name}, ...)"
            )
        elif takes and op.name in _IGNORED.get(name, "").split():
            pass
        elif name in parameters and not (name == "where" and elementwise):
            left[name] = value
        elif name not in takes and name != "out":
            return None
        elif name == "dtype":
            dtype = value
        elif not any([value is v or value == v for v in _NO_EFFECT.get(name, ())]):
            return None
    if len(left) == len(kwargs) and left.keys() == kwargs.keys():
        return None
    if dtype is None:
        return op, args, left
    if not (isinstance(_of_numpy(op.where, op.name), np.ufunc) or op.name == "einsum"):
        return None
    for a in args:
        if not isinstance(a, (str, list, tuple)):
            _check_cast(op, a, dtype, casting)
    return _typed(op, np.dtype(dtype)), args, left


def _check_cast(op: Op, x: PyTree, dtype: DType, casting: Any) -> None:
    if isinstance(x, (bool, int, float, complex)):
        x = np.asarray(x)
        casting = "unsafe" if x.dtype.kind in "bi" else casting
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"{op.where}.{op.name}: cannot cast {describe(x)} to {np.dtype(dtype).name} by the rule "
            f"{casting!r}; casting='unsafe' does it"
        )


_others: dict[Hashable, Op] = {}  # operations by function, kind and dtype


def _other(op: Op, key: Hashable, function: ArrayFunction) -> Op:
    key = (op.where, op.name, key)
    if key not in _others:
        _others[key] = type(op)(op.name, op.where, function)
    return _others[key]


def _typed(op: Op, dtype: Any) -> Op:
    """The operation on operands of one dtype."""
    function = op.jax_function

    def typed(*args: PyTree, **kwargs: PyTree) -> PyTree:
        cast = [a if isinstance(a, str) else jnp.asarray(a, dtype) for a in args]
        return function(*cast, **kwargs)

    return _other(op, dtype, typed)


def masked(op: Op) -> Any:
    """The operation that takes ``(out, where, *args)`` and gives ``out`` where it is not selected.

    What is not selected has no derivative: see NOTE [why where is not enough].
    """
    function = op.jax_function

    def masked(out: PyTree, where: Any, *args: PyTree, **kwargs: Any) -> Any:
        where = jnp.asarray(where, bool)
        inside = [jnp.where(where, a, jax.lax.stop_gradient(a)) for a in map(jnp.asarray, args)]
        return jnp.where(where, function(*inside, **kwargs), out).astype(jnp.result_type(out))

    return _other(op, "where", masked)


def at_lists(function: Function) -> Function:
    """The method ``at`` of a ufunc, with lists as arrays of indices."""

    @functools.wraps(function)
    def call(a: ArrayLike, indices: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if isinstance(indices, tuple):
            indices = tuple([jnp.asarray(i) if isinstance(i, list) else i for i in indices])
        elif isinstance(indices, list):
            indices = jnp.asarray(indices)
        return function(a, indices, *args, **kwargs)

    return call
