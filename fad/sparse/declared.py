"""Patterns that Functions declare: what a ``sparsity`` rule returns, checked, and for a call under vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fad.core.trees import HOLE
from fad.errors import RuleError, describe
from fad.extend.types import Aval
from fad.functions.derived_rules import BatchedRules, DerivativeRules, LinearRules
from fad.functions.rules import CallRules
from fad.functions.user_rules import UserRules
from fad.sparse.given import Pairs, pairs_of


def declared(rules: CallRules, avals: Sequence[Aval], out: Aval) -> list[Pairs | None] | None:
    """On which elements of each operand the output of a call depends.

    Arguments:
        rules: those of the call.
        avals: of its operands.
        out: the aval of its one output.

    Returns:
        Pairs for each operand, None where nothing is known of it; or None, where no rule says anything.

    Raises:
        RuleError: a rule returned something else than a pattern of these shapes.
    """
    if isinstance(rules, LinearRules):
        return declared(rules.base, avals, out)
    if isinstance(rules, DerivativeRules):
        if not rules.is_linear:
            return None
        n = len(rules.counts)
        found = declared(rules.base, avals[:n], out)
        if found is None:
            return None
        return [
            *[None] * rules.point_count,
            *[p for p, m in zip(found, rules.counts, strict=True) if m],
        ]
    if isinstance(rules, BatchedRules):
        lanes = rules.batch_size
        each = declared(
            rules.base,
            [_lane(a, d) for a, d in zip(avals, rules.dims, strict=True)],
            _lane(out, 0),
        )
        if each is None:
            return None
        size = out.size // max(lanes, 1)
        return [
            p and _batched(p, a, d, lanes, size)
            for p, a, d in zip(each, avals, rules.dims, strict=True)
        ]
    if isinstance(rules, UserRules) and rules.signature.sparsity:
        return list(_returned(rules, avals, out))
    return None


def _lane(aval: Aval, dim: int | None) -> Any:
    if dim is None:
        return aval
    shape = tuple([n for i, n in enumerate(aval.shape) if i != dim % len(aval.shape)])
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _batched(pairs: Pairs, aval: Aval, dim: int | None, lanes: int, size: int) -> Pairs:
    """The pairs of all lanes; the output has the batch in dimension 0, ``size`` elements in each lane."""
    outs, ins = pairs
    numbers = np.arange(aval.size).reshape(aval.shape)
    if dim is None:
        numbers = np.broadcast_to(numbers, (lanes, *aval.shape))
    else:
        numbers = np.moveaxis(numbers, dim, 0)
    rows = outs + size * np.arange(lanes)[:, None]
    return rows.ravel(), numbers.reshape(lanes, -1)[:, ins].ravel()


def _returned(rules: UserRules, avals: Sequence[Aval], out: Aval) -> list[Pairs]:
    who = f"{rules.name}.sparsity"
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    args, kwargs = rules.arguments(structs)
    names, found = rules.argument_names(), rules.cls.sparsity(*args, **kwargs)
    if len(names) == 1 and type(found) is not tuple:
        found = (found,)
    if type(found) is not tuple or len(found) != len(names):
        raise RuleError(
            f"{who} returned {describe(found)}, expected {len(names)} patterns in a tuple: one for each "
            f"argument of forward ({', '.join(names)}), None where the output does not depend on it"
        )
    result: list[Pairs] = []
    for name, part, pattern in zip(names, rules.inputs.parts(), found, strict=True):
        if HOLE in part.leaves:
            what = f"{who}: the pattern for argument {name!r}"
            for x in part.collect(pattern, what):
                shape = structs[len(result)].shape
                result.append(pairs_of(what, x, tuple(out.shape), shape, RuleError))
    return result
