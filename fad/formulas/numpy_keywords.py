"""Keyword arguments of NumPy that functions of `jax.numpy` lack."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Container, Hashable

import jax
import jax.numpy as jnp
import numpy as np

from fad.errors import ArgumentError, describe
from fad.extend.types import ArrayFunction, DType, PyTree

# Keyword arguments of NumPy that functions of JAX lack, where a call has one.
#
# They have other names, or no effect on arrays that have no layout in memory, or mean another operation:
# ``dtype=`` of an elementwise function casts what it is given, and ``where=`` with ``out=`` keeps the
# elements of ``out`` that are not selected. docs/for-numpy-users.md has them as a table.

Args = tuple[PyTree, ...]
Kwargs = dict[str, PyTree]

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
_NO_EFFECT: dict[str, tuple[object, ...]] = {
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
def _of_numpy(where: str, name: str) -> object:
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


def adapted(
    where: str, name: str, parameters: Container[str], args: Args, kwargs: Kwargs
) -> tuple[DType | None, Args, Kwargs] | None:
    """A call with keywords of NumPy as one without.

    Arguments:
        where, name: the function.
        parameters: the keywords that it has.
        args, kwargs: what it is called with.

    Returns:
        The dtype to which the operands are converted (None: as they are), the arguments, and keywords that
        the function has. None if there are no keywords of NumPy, or if there are others that it lacks.
    """
    takes, elementwise = _keywords(where, name), is_elementwise(where, name)
    left, dtype, casting = {}, None, kwargs.get("casting", "same_kind")
    for keyword, value in kwargs.items():
        renamed = _RENAMED.get(name, {}).get(keyword)
        if renamed is not None and keyword not in parameters:
            if renamed:
                left[renamed] = value
            else:
                args = (value, *args)
        elif keyword == "where" and elementwise and value is not True and value is not None:
            raise ArgumentError(
                f"{where}.{name}: where= without out= leaves elements without a value: give out=, or "
                f"write fad.safe_where(mask, fad.numpy.{name}, ...)"
            )
        elif takes and name in _IGNORED.get(keyword, "").split():
            pass
        elif keyword in parameters and not (keyword == "where" and elementwise):
            left[keyword] = value
        elif keyword not in takes and keyword != "out":
            return None
        elif keyword == "dtype":
            dtype = value
        elif not any([value is v or value == v for v in _NO_EFFECT.get(keyword, ())]):
            return None
    if len(left) == len(kwargs) and left.keys() == kwargs.keys():
        return None
    if dtype is None:
        return None, args, left
    if not (isinstance(_of_numpy(where, name), np.ufunc) or name == "einsum"):
        return None
    for a in args:
        if not isinstance(a, (str, list, tuple)):
            _check_cast(f"{where}.{name}", a, dtype, casting)
    return np.dtype(dtype), args, left


def _check_cast(who: str, x: PyTree, dtype: DType, casting: PyTree) -> None:
    if isinstance(x, (bool, int, float, complex)):
        x = np.asarray(x)
        casting = "unsafe" if x.dtype.kind in "bi" else casting
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"{who}: cannot cast {describe(x)} to {np.dtype(dtype).name} by the rule "
            f"{casting!r}; casting='unsafe' does it"
        )


def typed(function: ArrayFunction, dtype: DType) -> ArrayFunction:
    """``function`` on operands of one dtype."""

    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        cast = [a if isinstance(a, str) else jnp.asarray(a, dtype) for a in args]
        return function(*cast, **kwargs)

    return call


def masked(function: ArrayFunction, _: Hashable) -> ArrayFunction:
    """``function`` as one that takes ``(out, where, *args)`` and gives ``out`` where it is not selected.

    What is not selected has no derivative: see NOTE [why where is not enough].
    """

    def call(out: PyTree, where: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
        where = jnp.asarray(where, bool)
        inside = [jnp.where(where, a, jax.lax.stop_gradient(a)) for a in map(jnp.asarray, args)]
        return jnp.where(where, function(*inside, **kwargs), out).astype(jnp.result_type(out))

    return call
