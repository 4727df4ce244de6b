"""What passes into and out of a transform: arrays are Tensors inside, and arrays again outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.avals import SCALARS
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import array_type
from fad.core.level import captured_by_jit, outlived
from fad.core.tensor import Tensor, is_operand, new_tensor
from fad.core.types import MaybeValue, Operand, PyTree, Value
from fad.errors import ArgumentError, LevelError, StructureError, describe
from fad.tape.recorder import ROOT, as_tensor
from fad.views.inplace import check_writable, overwrite_from
from fad.views.make_view import place_of, shares, stand_at


def is_array(x: object) -> bool:
    """Whether a transform can wrap ``x``: a Tensor or an array."""
    return isinstance(x, (Tensor, jax.Array, np.ndarray))


def enter(tree: PyTree) -> PyTree:
    """``tree`` with its arrays as Tensors. Python scalars stay what they are.

    >>> import jax.numpy as jnp
    >>> from fad import extend
    >>> extend.enter([jnp.ones(2), 3])
    [Tensor([1., 1.], dtype=float32), 3]
    """
    kind = type(tree)
    if kind is array_type:
        return new_tensor(tree, ROOT)
    if kind is Tensor or kind in SCALARS or (kind is dict and not tree):
        return tree
    return trees.map_leaves(
        lambda x: as_tensor(x) if isinstance(x, (jax.Array, np.ndarray)) else x, tree
    )


def has_tensor(tree: PyTree) -> bool:
    """Whether there is a Tensor among the leaves, so that results are Tensors too.

    >>> import fad
    >>> from fad import extend
    >>> extend.has_tensor([1.0, {"x": fad.tensor(2.0)}])
    True
    """
    kind = type(tree)
    if kind is tuple:
        return any([has_tensor(x) for x in tree if type(x) is not array_type])
    if kind in SCALARS or (kind is dict and not tree):
        return False
    return any(isinstance(x, Tensor) for x in trees.flatten(tree)[0])


def lower(x: PyTree) -> PyTree:
    """The value that a level wraps for the user's ``x``: an array, or a Tensor with a history."""
    if type(x) is array_type:
        return x
    x = outlived(x)
    if isinstance(x, Tensor):
        return x.value if _is_bare(x) else x
    return x if isinstance(x, jax.Array) else as_array(x)


def _is_bare(x: Tensor) -> bool:
    """Whether ``x`` is as good as its array."""
    return x.level is ROOT and not x.requires_grad and not captured_by_jit(x)


def leave(tree: PyTree, tensors: bool) -> PyTree:
    """``tree`` as the caller sees it: Tensors if ``tensors``, else arrays where that loses nothing.

    A result that is part of an outer transform or graph stays a Tensor in either case.

    >>> import fad
    >>> from fad import extend
    >>> extend.leave(fad.tensor([1.0, 2.0]), tensors=False)
    Array([1., 2.], dtype=float32)
    """

    if type(tree) is array_type and not tensors:
        return tree

    def one(x: PyTree) -> PyTree:
        x = outlived(x)
        if tensors:
            return as_tensor(x) if isinstance(x, (jax.Array, np.ndarray)) else x
        return x.value if isinstance(x, Tensor) and _is_bare(x) else x

    return trees.map_leaves(one, tree)


def differentiable_leaves(
    args: Sequence[PyTree], nums: Sequence[int], who: str
) -> tuple[list[PyTree], PyTree]:
    """The leaves of the arguments at ``nums``, to be differentiated; and the structure around them.

    Raises:
        TypeError: a leaf is not an array, or not of floating or complex dtype.
    """
    leaves, structure = trees.flatten(tuple([args[i] for i in nums]))
    values = []
    for k, x in enumerate(leaves):
        if type(x) is array_type and (x.dtype.kind == "f" or is_inexact(x.dtype)):
            values.append(x)
        elif isinstance(x, (jax.Array, Tensor)) and is_inexact(x.dtype):
            values.append(lower(x))
        else:
            values.append(_differentiable(x, who, names_of(nums, args)[k]))
    return values, structure


def _differentiable(leaf: PyTree, who: str, where: str) -> PyTree:
    """`lower` of a value to be differentiated, after a check that it can be."""
    if not is_operand(leaf):
        raise ArgumentError(
            f"{who}: {where} must be an array, got {describe(leaf)}. Only arrays can be "
            f"differentiated: pass what is not an array as another argument.{trees.how_to_register(leaf)}"
        )
    value = lower(leaf)
    if not is_inexact(value.dtype):
        convert = (
            f"Convert it (write {float(leaf)}), or leave"
            if isinstance(leaf, int)
            else ("Convert it (x.astype(float)), or leave")
        )
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            convert = "A random key has no derivative: leave"
        raise ArgumentError(
            f"{who}: {where} must have a floating or complex dtype to be differentiated, got "
            f"{describe(leaf)}. {convert} it out: give {who} a function of what is "
            "to be differentiated alone, as in lambda w: loss(w, labels)."
        )
    return value


def pick(argnums: int | Sequence[int], count: int, who: str) -> tuple[int, ...]:
    """``argnums`` as positions from the left, checked."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    single = isinstance(argnums, (int, np.integer)) and not isinstance(argnums, bool)
    nums = (argnums,) if single else argnums
    if not isinstance(nums, (tuple, list)) or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in nums
    ):
        called = f". Write {who}(f)(x), not {who}(f, x)" if is_array(argnums) else ""
        raise ArgumentError(
            f"{who}: argnums must be an int or a tuple of ints, got {describe(argnums)}{called}"
        )
    if not nums:
        raise StructureError(
            f"{who}: argnums is empty, and must be non-empty: name at least one argument"
        )
    for n in nums:
        if not -count <= n < count:
            raise StructureError(
                f"{who}: argnums={argnums!r} is out of range: the function was called with {count} "
                "positional arguments (positional inputs). Arguments to differentiate are passed by position."
            )
    picked = tuple([int(n) % count for n in nums])
    if len(set(picked)) != len(picked):
        raise StructureError(
            f"{who}: argnums={argnums!r} names an argument twice: its elements must be unique"
        )
    return picked


def substitute(args: Sequence[PyTree], nums: Sequence[int], new: Sequence[PyTree]) -> list[PyTree]:
    """``args`` with those at ``nums`` replaced and the arrays of the others as Tensors."""
    chosen = dict(zip(nums, new))
    return [chosen[i] if i in chosen else enter(a) for i, a in enumerate(args)]


def stand_for(inside: Sequence[Value], arguments: PyTree) -> None:
    """Let Tensors that stand for the leaves of ``arguments`` have their elements where these have them."""
    for x, own in zip(trees.flatten(arguments)[0], inside, strict=True):
        stand_at(own, place_of(x))


def was_written(handle: PyTree) -> bool:
    """Whether the function changed this handle of an argument in place.

    Raises:
        LevelError: it changed the shape, which the Tensor of the caller keeps.
    """
    if not isinstance(handle, Tensor) or handle.meta is None or not handle.meta.storage.version:
        return False
    link = handle.meta.link
    if link is not None and link.base is not None:
        raise LevelError(
            f"the shape of an argument ({describe(handle)}) was changed in place in a function that is "
            "being transformed, and the Tensor of the caller keeps its shape. Use the method without the "
            "underscore, or change a copy (x.clone())"
        )
    return True


def check_written(leaves: Sequence[Operand], changed: Sequence[int], who: str) -> None:
    """Refuse arguments that must not be changed in place as the function changes them."""
    for k in changed:
        x = leaves[k]
        if not isinstance(x, Tensor):
            continue
        check_writable(x, who)
        for j, y in enumerate(leaves):
            if j != k and shares(x, y):
                raise LevelError(
                    f"{who}: the function writes to argument leaf {k} ({describe(x)}), which shares its "
                    f"storage with leaf {j}; inside of the function they are separate, and {j} would keep "
                    "its old value. Pass one of them, or x.clone()."
                )


def write_back(originals: Sequence[Value], new: Sequence[MaybeValue], who: str) -> None:
    """Change the caller's Tensors as the function changed its handles of them; None is unchanged."""
    for x, n in zip(originals, new, strict=True):
        if n is not None and isinstance(x, Tensor):
            overwrite_from(x, as_tensor(outlived(n)), who)


def write_back_to(arguments: PyTree, new: Sequence[MaybeValue], who: str) -> None:
    """`write_back` to the leaves of ``arguments``, if they may be changed in place as the function does."""
    leaves = trees.flatten(tuple(arguments))[0]
    check_written(leaves, [k for k, n in enumerate(new) if n is not None], who)
    write_back(leaves, new, who)


def check_callable(f: Callable[..., PyTree], who: str, argnums: PyTree = 0) -> None:
    """Refuse what is not a function, where a transform expects one; and an argument after it."""
    if type(argnums) is not int and is_array(argnums):
        pick(argnums, 1, who)
    if not callable(f):
        called = f": write {who}(f)(x), not {who}(f(x))" if is_array(f) else ""
        raise TypeError(f"{who}: the first argument must be a function, got {describe(f)}{called}")


def check_chunk_size(chunk_size: object, who: str) -> None:
    """Refuse chunks of no size."""
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ArgumentError(
            f"{who}: chunk_size should be None or an int greater than 0, got {chunk_size!r}"
        )


def check_arrays(outs: Sequence[Value], who: str) -> None:
    """Refuse outputs of a transformed function that are no arrays."""
    for k, o in enumerate(outs):
        if not is_operand(o):
            raise ArgumentError(
                f"{who}: output {k} of the function must be an array, got {describe(o)}"
            )


def argument_names(args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> list[str]:
    """A name for each leaf of ``(args, kwargs)``, for messages."""
    named = [
        f"argument {name!r}{path}"
        for name in sorted(kwargs)
        for path in trees.path_names(kwargs[name])
    ]
    return [*names_of(range(len(args)), args), *named]


def names_of(nums: Sequence[int], args: Sequence[PyTree]) -> list[str]:
    """A name for each leaf of the arguments at ``nums``, for messages."""
    return [f"argument {i}{path}" for i in nums for path in trees.path_names(args[i])]


def with_aux(out: PyTree, has_aux: bool, who: str) -> tuple[PyTree, PyTree]:
    """Split what a function with ``has_aux`` returned."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError(
            f"{who}: with has_aux=True the function must return a pair (output, aux), "
            f"got {describe(out)}"
        )
    return out
