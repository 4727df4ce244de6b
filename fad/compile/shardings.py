"""``in_shardings`` and ``out_shardings`` of `jit`: where arguments are put, and where results are.

A tool: `jit` imports it for these options alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np

import fad
from fad.errors import ArgumentError, StructureError, describe
from fad.extend import Tensor, bottom, flatten, path_names, unflatten
from fad.extend.types import Operand, PyTree


def placing(f: Callable[..., PyTree], shardings: PyTree) -> Callable[..., PyTree]:
    """``f``, with its results where ``shardings``, a pytree prefix of them, says."""
    checked(shardings, "out_shardings")

    @functools.wraps(f)
    def body(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out = f(*args, **kwargs)
        leaves, structure = flatten(out)
        wanted = _spread(shardings, out, "jit: out_shardings", "output")
        moved = [_put(x, s) for x, s in zip(leaves, wanted, strict=True)]
        return unflatten(structure, moved)

    return body


def placed(
    shardings: PyTree, args: Sequence[PyTree], names: Collection[str], static: Collection[int]
) -> list[Operand]:
    """``args``, put where ``shardings``, a pytree prefix of those that are not ``static``, says.

    ``names``: those of the keyword arguments that are not static.

    Raises:
        StructureError: there are keyword arguments that are not static; or an argument is committed to
            other devices.
    """
    if names:
        raise StructureError(
            "jit: with in_shardings, arguments are passed by position; got "
            f"{', '.join(sorted(names))} by keyword"
        )
    dynamic = [i for i in range(len(args)) if i not in static]
    dynamic_args = tuple([args[i] for i in dynamic])
    leaves, structure = flatten(dynamic_args)
    wanted = _spread(shardings, dynamic_args, "jit: in_shardings", "argument")
    paths = [f"argument {i}{path}" for i in dynamic for path in path_names(args[i])]
    moved = [
        _put(x, s) if _may_move(x, s, name) else x
        for x, s, name in zip(leaves, wanted, paths, strict=True)
    ]
    placed_args = list(args)
    for i, a in zip(dynamic, unflatten(structure, moved), strict=True):
        placed_args[i] = a
    return placed_args


def checked(shardings: PyTree, what: str = "in_shardings") -> PyTree:
    """``shardings``, with a tuple of one for each argument in the place of a list.

    Raises:
        ArgumentError: there is something else in it.
    """
    for s in jax.tree.leaves(shardings, is_leaf=_is_spec):
        if not isinstance(s, jax.sharding.Sharding):
            advice = ": write jax.sharding.NamedSharding(mesh, spec)" if _is_spec(s) else ""
            raise ArgumentError(
                f"jit: {what} must be shardings of JAX, or None, got {describe(s)}{advice}"
            )
    return tuple(shardings) if isinstance(shardings, list) else shardings


def _is_spec(x: object) -> bool:
    return isinstance(x, jax.sharding.PartitionSpec)


def _spread(shardings: PyTree, tree: Any, who: str, of: str) -> list[PyTree]:
    """A sharding, or None, for each leaf of ``tree``."""
    leaves, structure = flatten(tree)
    numbers = unflatten(structure, range(len(leaves)))
    spread: list[PyTree] = []

    def add(sharding: PyTree, part: PyTree) -> None:
        spread.extend([sharding] * len(jax.tree.leaves(part)))

    try:
        jax.tree.map(add, shardings, numbers, is_leaf=lambda x: x is None)
    except (TypeError, ValueError) as error:
        raise StructureError(
            f"{who} must be a sharding, None, or a pytree prefix of the {of}s; got {describe(shardings)} for "
            f"{of}s of structure {structure}. Write one sharding for each {of}, or a single one for all"
        ) from error
    return spread


def _may_move(x: PyTree, sharding: Any, name: str) -> bool:
    """Whether an argument is on another device than the program, and not on purpose."""
    value = bottom(x) if isinstance(x, Tensor) else x
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer) or sharding is None:
        return True
    if value.ndim != x.ndim:  # in a vmap
        return True
    if value.sharding.is_equivalent_to(sharding, value.ndim):
        return False
    if value.committed:
        raise StructureError(
            f"jit: {name} is on {value.sharding}, and in_shardings says {sharding}: write x.to(sharding)"
        )
    return True


def _put(x: object, sharding: Any) -> PyTree:
    if sharding is None:
        return x
    if isinstance(x, Tensor):
        return x.to(sharding)
    if not isinstance(x, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        return x
    return bottom(fad.as_tensor(x).to(sharding))
