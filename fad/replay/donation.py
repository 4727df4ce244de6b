"""Large gradients are written into memory that the backward pass frees.

NOTE [donation]

A compiled pass is one program, and its operands live until it ends, where node by node each
value is freed after its last use. So its peak of memory would be higher by its results.
But XLA can write a result into the memory of a donated operand. So where a pass frees
its graph and has large results, the nodes drop their saved values before it runs, not
after. What is referenced by nothing but the pass then is donated, for a result of the same shape
and dtype.

Several arrays of JAX may share their memory (`jax.device_put` to where a value lies already, parts of an
array): so the live arrays at each address are counted. NumPy's views of an array are
references that XLA knows of: it copies then.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from fad.core import jaxapi
from fad.core.jaxapi import array_type
from fad.replay.modes import referenced
from fad.replay.program import Program
from fad.replay.settings import is_default_placement
from fad.tape.graph import Node

__all__ = ["Large", "large_gradients", "may_donate", "run_donating"]

LARGE = 1 << 20  # elements of a result: for smaller ones counting all arrays does not pay
PATTERNS = 4  # programs for one structure, by which operands they are given

Large = tuple[tuple[int, ...], Any]  # shape and dtype


def large_gradients(
    captures: Sequence[tuple[Node, int]], wanted: Sequence[int | None]
) -> tuple[Large, ...]:
    """Shapes and dtypes of the large gradients of ``captures``."""
    found = []
    for (node, nr), at in zip(captures, wanted, strict=True):
        if at is not None:
            m = node.metadata_of_inputs()[nr]
            if math.prod(m.shape) >= LARGE:
                found.append((tuple(m.shape), m.dtype))
    return tuple(found)


def may_donate(operands: Sequence[Any]) -> bool:
    """Whether a pass is of arrays in their default placement, under no transform of JAX."""
    if not jaxapi.at_top_level() or jaxapi.checks_numbers():
        return False
    for v in operands:
        if type(v) is array_type:
            if not is_default_placement(v.sharding):
                return False
        else:
            return False
    return True


def run_donating(entry: Any, release: Callable[[], None], operands: list[Any]) -> Any:
    """The results of a compiled pass; ``operands`` is emptied, after ``release`` has freed its graph."""
    places: dict[int, int] = {}
    values: list[Any] = []
    index = []
    for v in operands:
        index.append(places.setdefault(id(v), len(values)))
        if index[-1] == len(values):
            values.append(v)
        del v
    run, key = entry.program.run, tuple(index)

    def renumbered(*values: Any) -> Any:
        return run(*[values[k] for k in key])

    release()
    operands.clear()
    alone = _alone(entry.large, values)
    wanted = _donors(entry.large, values, alone)
    best, program = 0, None
    for given, known, made in entry.donating:
        if known == key and alone.issuperset(given) and len(given) > best and made.is_ready(values):
            best, program = len(given), made
    made_before = any([given == wanted and known == key for given, known, _ in entry.donating])
    if best < len(wanted) and not made_before and len(entry.donating) < PATTERNS:
        made = Program(
            "a backward pass", renumbered, entry.program.work, small=False, donated=wanted
        )
        entry.donating.append((wanted, key, made))
        if made.is_ready(values):
            program = made
    if program is None:
        values = [values[k] for k in key]
        program = entry.program
    return program.run_donating(values)


def _alone(large: Sequence[Large], values: list[Any]) -> set[int]:
    """Numbers of the values that nothing else refers to, and that large results may be written into."""
    found = set()
    in_use = set(referenced(values))
    for k, v in enumerate(values):
        if k not in in_use and type(v) is array_type and (v.shape, v.dtype) in large:
            found.add(k)
    if not found:
        return found
    used = collections.Counter(map(_address, jax.live_arrays()))
    return {
        k
        for k in found
        if used[_address(values[k])] == 1 and is_default_placement(values[k].sharding)
    }


def _address(a: Any) -> int | None:
    """Where a whole array lies; None for parts in several places, and for what has been deleted."""
    if a.is_deleted() or len(a.sharding.device_set) > 1:
        return None
    address: int = a.unsafe_buffer_pointer()
    return address


def _donors(large: Sequence[Large], values: Sequence[Any], alone: set[int]) -> tuple[int, ...]:
    """Numbers of the values to donate: for each large result the first that fits, if any."""
    left = list(large)
    found = []
    for k in sorted(alone):
        kind = (values[k].shape, values[k].dtype)
        if kind in left:
            left.remove(kind)
            found.append(k)
    return tuple(found)
