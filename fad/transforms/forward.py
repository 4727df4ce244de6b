"""Forward mode: ``jvp``. Dual numbers by hand are in `fad.transforms.dual_numbers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
from jax.tree_util import PyTreeDef

from fad.core import trees
from fad.core.level import restores_modes
from fad.core.types import MaybeValue, PyTree
from fad.errors import ArgumentError, GradientError, StructureError, describe
from fad.levels.jvp import JvpLevel
from fad.transforms.boundary import check_callable, has_tensor, leave, with_aux
from fad.transforms.call import Call, filled


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
    call, directions = call_along(primals, tangents, who)
    call.tensors = call.tensors or has_tensor(tangents)
    with JvpLevel() as level:
        duals = [level.dual(v, t) for v, t in zip(call.values, directions, strict=True)]
        out, aux = with_aux(call.run(f, level, duals), has_aux, who)
        result = [level.unpack(o) for o in call.outputs(out)]
        del out
        changed = call.written(duals, lambda d: level.unpack(d)[0])
    for k, (_, t) in enumerate(result):
        if strict and t is None:
            raise GradientError(
                f"jvp(f, primals, tangents, strict=True): output {k} of f is independent of the "
                "inputs. This is not allowed with strict=True."
            )
    call.write_back(changed)
    primals_out = [p for p, _ in result]
    pair = call.result(primals_out), call.result(filled([t for _, t in result], primals_out))
    return (*pair, leave(aux, call.tensors)) if has_aux else pair


def call_along(primals: PyTree, tangents: PyTree, who: str) -> tuple[Call, list[MaybeValue]]:
    """The call with these primals, and the tangents of its values, checked against them."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(
            f"{who}: primals and tangents must be tuples, one entry for each argument, got "
            f"{describe(primals)} and {describe(tangents)}. Write {who}(f, (x,), (t,))."
        )
    structure = trees.flatten(tuple(primals))[1]
    leaves, own = trees.flatten_with_none(tuple(tangents))
    if own != structure:
        leaves = _leaves_with_none(structure, tuple(tangents), who)
    call = Call(who, primals, differentiated=False)
    return call, [call.tangent(k, t) for k, t in enumerate(leaves)]


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
