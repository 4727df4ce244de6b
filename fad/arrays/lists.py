"""Lists where a function takes arrays: NumPy reads a list of numbers, of lists and of arrays as an array.

JAX refuses lists, but for sequences of arrays, as those of ``concatenate``. fad reads them as NumPy does: a
list of numbers is NumPy's array of it (so the results are Tensors, see NOTE [what makes a Tensor]); a list
with arrays in it is joined to one array, by an operation of its own, before the call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fad.arrays.arguments import annotation_of, names_arrays, words_in
from fad.core.types import NumpyArray, PyTree

# What a list, tuple or range is for a parameter.
ONE = 1  # an array
SEVERAL = 2  # a sequence of arrays, some of which may be lists themselves
OPERANDS = 3  # an array, where the first argument is a string: those of ``einsum``

Role = int | tuple[int, int]  # the role of a parameter; in a pair, with what a list is
Args = tuple[PyTree, ...]  # of a call: what is given by position, and by name
Kwargs = dict[str, PyTree]
Function = Callable[..., PyTree]

_CONTAINERS = frozenset("Mapping Sequence list tuple".split())
_OF_ARRAYS = re.compile(r"\b(Sequence|list)\[(None \| |typing\.Union\[)?Array")
_SEQUENCES = frozenset([list, tuple, range])
_NUMBERS = frozenset([bool, int, float, complex])


def lists_in(parameter: inspect.Parameter) -> int:
    """What a list is for a parameter, read off its annotation: `ONE`, `SEVERAL`, or 0 for neither."""
    annotation = annotation_of(parameter)
    words = words_in(annotation)
    if parameter.name == "key" or not names_arrays(words):
        return 0
    if not words & _CONTAINERS:
        return ONE
    return SEVERAL if _OF_ARRAYS.search(annotation) else 0


def is_list(value: object) -> bool:
    """Whether ``value`` is a list, tuple or range, and no named tuple."""
    return type(value) in _SEQUENCES


def plain_list(value: object) -> NumpyArray | None:
    """A list of numbers and of such lists as NumPy's array; None if there are other things in it.

    Raises:
        OverflowError: an integer is too wide for JAX's integers.

    >>> plain_list([[1, 2], [3, 4.5]]).tolist()
    [[1.0, 2.0], [3.0, 4.5]]
    """
    if not _all_numbers(value):
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        return array
    return np.asarray(value, jax.dtypes.canonicalize_dtype(array.dtype))


def _all_numbers(value: PyTree) -> bool:
    if type(value) is range:
        return True
    for cls in set(map(type, value)) - _NUMBERS:
        if cls in _SEQUENCES:
            if not all([_all_numbers(v) for v in value if type(v) is cls]):
                return False
        elif not issubclass(cls, (np.ndarray, np.generic)):
            return False
    return True


def with_arrays(
    plan: Any, args: Args, kwargs: Kwargs, join: Callable[[PyTree], PyTree]
) -> tuple[Args, Kwargs] | None:
    """The arguments of a call, with arrays for lists where NumPy reads a list as an array.

    Arguments:
        plan: the parameters of the function, see `fad.arrays.plans`.
        args, kwargs: the arguments.
        join: makes one array of a list with arrays in it.

    Returns:
        The arguments and keywords; None if there is nothing to do.
    """
    entries = plan.entries(len(args), tuple(kwargs))
    if entries is None:  # the call does not fit, which is an error elsewhere
        return None

    def joined(value: object) -> PyTree:
        plain = plain_list(value)
        return join(value) if plain is None else plain

    values = [*args, *kwargs.values()]
    changed = False
    for label, position, _ in entries:
        value = values[position]
        lists = plan.lists_of(label) if is_list(value) else 0
        if lists == OPERANDS and isinstance(values[0], str):
            lists = ONE
        if lists == ONE:
            values[position] = joined(value)
            changed = True
        elif lists == SEVERAL and any(map(is_list, value)):
            values[position] = [joined(v) if is_list(v) else v for v in value]
            changed = True
    if not changed:
        return None
    count = len(args)
    return tuple(values[:count]), dict(zip(kwargs, values[count:], strict=True))
