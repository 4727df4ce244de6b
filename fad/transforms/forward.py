"""Forward mode: ``jvp``. Dual numbers by hand are in `fad.transforms.dual_numbers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.tree_util import PyTreeDef

from fad.core import jaxapi, trees
from fad.core.avals import aval_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.level import bind, restores_modes
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor, is_operand
from fad.core.types import MaybeValue, Operand, PyTree, Value
from fad.errors import ArgumentError, GradientError, StructureError, describe
from fad.levels.jvp import JvpLevel
from fad.tape.engine import ZEROS_LIKE
from fad.transforms.boundary import (
    check_arrays,
    check_callable,
    has_tensor,
    leave,
    lower,
    names_of,
    stand_for,
    was_written,
    with_aux,
    write_back_to,
)


def jvp(
    f: Callable[..., PyTree],
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> PyTree:
    """The output of ``f`` and its directional derivative along ``tangents``.

    Arguments:
        f: any function of the primals.
        primals: a tuple with the arguments of ``f``, each a pytree of arrays.
        tangents: a tuple of the same structure; each tangent has the shape and dtype of its primal.
            None stands for a zero tangent, and is the only tangent of an integer primal.
        strict: raise where an output does not depend on the primals, instead of giving zeros.
        has_aux: ``f`` returns ``(output, aux)``.

    Returns:
        ``(output, output_tangent)``, or ``(output, output_tangent, aux)``; the tangent has the
        structure, shapes and dtypes of the output.

    Raises:
        StructureError: primals and tangents differ in structure, shape or dtype.
        GradientError: an output is independent of the primals, and ``strict``.

    Source: ``torch.func.jvp``, ``jax.jvp``.

    >>> import fad, fad.numpy as fnp
    >>> y, t = fad.jvp(fnp.sin, (0.0,), (2.0,))
    >>> float(y), float(t)
    (0.0, 2.0)
    """
    return push_forward(f, primals, tangents, has_aux, "jvp", strict)


@restores_modes
def push_forward(
    f: Callable[..., PyTree],
    primals: PyTree,
    tangents: PyTree,
    has_aux: bool,
    who: str,
    strict: bool = False,
) -> PyTree:
    """`jvp`, under the name ``who`` in messages."""
    check_callable(f, who)
    values, directions, structure = tangent_leaves(primals, tangents, who)
    tensors = has_tensor((primals, tangents))
    with JvpLevel() as level:
        duals = [level.dual(v, t) for v, t in zip(values, directions, strict=True)]
        if tensors:
            stand_for(duals, primals)
        begin_trace(level, duals, f)
        out, aux = with_aux(f(*trees.unflatten(structure, duals, primals)), has_aux, who)
        outs, out_structure = trees.flatten(out)
        check_arrays(outs, who)
        like = trees.skeleton(out)
        result = [level.unpack(o) for o in outs]
        changed = [level.unpack(d)[0] if was_written(d) else None for d in duals]
    for k, (_, t) in enumerate(result):
        if strict and t is None:
            raise GradientError(
                f"jvp(f, primals, tangents, strict=True): output {k} of f is independent of the "
                "inputs. This is not allowed with strict=True."
            )
    write_back_to(primals, changed, who)
    primals_out = [p for p, _ in result]
    out_t = filled([t for _, t in result], primals_out)
    pair = (
        leave(trees.unflatten(out_structure, primals_out, like), tensors),
        leave(trees.unflatten(out_structure, out_t, like), tensors),
    )
    return (*pair, leave(aux, tensors)) if has_aux else pair


def zeros_like(x: Operand) -> Value:
    """Zeros with the shape and dtype of ``x``, at its levels."""
    if not is_operand(x):
        raise ArgumentError(f"an output must be an array to have a tangent, got {describe(x)}")
    return bind(ZEROS_LIKE, (x if isinstance(x, Tensor) else jnp.asarray(x),))


def filled(values: Sequence[MaybeValue], like: Sequence[Operand]) -> list[Value]:
    """``values``, with zeros like those of ``like`` in the place of None."""
    return [zeros_like(x) if v is None else v for v, x in zip(values, like, strict=True)]


def tangent_leaves(
    primals: PyTree, tangents: PyTree, who: str
) -> tuple[list[Value], list[MaybeValue], trees.PyTreeDef]:
    """Leaves of primals and tangents, checked against each other, and their structure."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(
            f"{who}: primals and tangents must be tuples, one entry for each argument, got "
            f"{describe(primals)} and {describe(tangents)}. Write {who}(f, (x,), (t,))."
        )
    leaves, structure = trees.flatten(tuple(primals))
    given, given_structure = trees.flatten_with_none(tuple(tangents))
    if given_structure != structure:
        given = _leaves_with_none(structure, tuple(tangents), who)
    names = names_of(range(len(primals)), tuple(primals))
    values, directions = [], []
    for x, t, name in zip(leaves, given, names, strict=True):
        if not is_operand(x):
            raise ArgumentError(f"{who}: {name} must be an array, got {describe(x)}")
        value = lower(x)
        values.append(value)
        directions.append(tangent_of(value, t, who, name))
    return values, directions, structure


def _leaves_with_none(structure: PyTreeDef, tangents: PyTree, who: str) -> list[MaybeValue]:
    """Tangent leaves where None stands for a whole subtree."""
    result: list[MaybeValue] = []
    skeleton = trees.unflatten(structure, list(range(structure.num_leaves)))
    try:
        jax.tree_util.tree_map(
            lambda t, sub: result.extend(
                [None] * len(jax.tree.leaves(sub)) if isinstance(sub, (tuple, list, dict)) else [t]
            ),
            tangents,
            skeleton,
            is_leaf=trees.is_leaf_or_none,
        )
    except (ValueError, TypeError) as error:
        raise StructureError(
            f"{who}: tangents must have the structure of the primals (the same python structure), "
            f"{structure}, got {jax.tree_util.tree_structure(tangents)}"
        ) from error
    if len(result) != structure.num_leaves:
        raise StructureError(f"{who}: tangents must have the structure of the primals, {structure}")
    return result


def tangent_of(primal: PyTree, tangent: PyTree, who: str, name: str) -> PyTree:
    """A tangent checked against its primal; None is zero."""
    if tangent is None:
        return None
    dtype = getattr(tangent, "dtype", None)
    if dtype == jaxapi.float0:
        return None
    if not is_operand(tangent):
        raise StructureError(
            f"{who}: the tangent of {name} must be an array, got {describe(tangent)}"
        )
    if not is_inexact(primal.dtype):
        raise StructureError(
            f"{who}: {name} has dtype {primal.dtype}, which has no derivatives: its tangent must be "
            f"None, got {describe(tangent)}"
        )
    if dtype is None and not isinstance(tangent, complex):
        # A Python number moves a Python number, which is weakly typed.
        tangent = jnp.asarray(float(tangent)) if aval_of(primal).weak_type else tangent
        if getattr(tangent, "dtype", None) != primal.dtype:
            tangent = as_array(tangent, primal.dtype)
    tangent = lower(tangent)
    if tuple(tangent.shape) != tuple(primal.shape) or tangent.dtype != primal.dtype:
        if tuple(tangent.shape) == tuple(primal.shape):
            advice = f"Convert it: t.astype({str(primal.dtype)!r})."
        else:
            advice = "Broadcast or reshape it: fad.numpy.broadcast_to(t, x.shape)."
        raise StructureError(
            f"{who}: the tangent of {name} must have the shape and dtype of its primal, "
            f"{primal.dtype}{list(primal.shape)}, got {tangent.dtype}{list(tangent.shape)}. {advice}"
        )
    return tangent
