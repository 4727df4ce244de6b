"""``in_shardings`` and ``out_shardings`` of `jit`: where arguments are put, and where results are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fad.bridge.signatures import Arguments
from fad.core import trees
from fad.core.borrowed import as_array
from fad.core.tensor import Tensor, bottom
from fad.core.types import Operand, PyTree
from fad.errors import ArgumentError, StructureError, describe
from fad.tape.recorder import as_tensor


def placing(f: Callable[..., PyTree], shardings: PyTree) -> Callable[..., PyTree]:
    """``f``, with its results where ``shardings``, a pytree prefix of them, says."""
    checked(shardings, "out_shardings")

    @functools.wraps(f)
    def body(*args: PyTree, **kwargs: PyTree) -> PyTree:
        out = f(*args, **kwargs)
        leaves, structure = trees.flatten(out)
        wanted = _spread(shardings, out, "jit: out_shardings", "output")
        moved = [_put(x, s) for x, s in zip(leaves, wanted, strict=True)]
        return trees.unflatten(structure, moved)

    return body


def placed(
    arguments: Arguments, shardings: PyTree, args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> list[Operand]:
    """``args``, put where ``shardings``, a pytree prefix of those that are not static, says.

    Raises:
        StructureError: there are keyword arguments that are not static; or an argument is committed to
            other devices.
    """
    named = sorted(set(kwargs) - arguments.names)
    if named:
        raise StructureError(
            f"jit: with in_shardings, arguments are passed by position; got {', '.join(named)} by keyword"
        )
    dynamic = [i for i in range(len(args)) if i not in arguments.nums]
    given = tuple([args[i] for i in dynamic])
    leaves, structure = trees.flatten(given)
    wanted = _spread(shardings, given, "jit: in_shardings", "argument")
    names = [f"argument {i}{path}" for i in dynamic for path in trees.path_names(args[i])]
    moved = [
        _put(x, s) if _may_move(x, s, name) else x
        for x, s, name in zip(leaves, wanted, names, strict=True)
    ]
    found = list(args)
    for i, a in zip(dynamic, trees.unflatten(structure, moved), strict=True):
        found[i] = a
    return found


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
    if shardings is None or isinstance(shardings, jax.sharding.Sharding):
        return [shardings] * len(trees.flatten(tree)[0])
    return trees.broadcast_prefix(shardings, tree, who, of)


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
    return as_tensor(as_array(x)).to(sharding).value
