"""What Functions declare of the pattern of their derivatives, checked, and for a call under vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import numpy as np

from fad.core.jaxapi import flag_of, rules_of
from fad.core.trees import HOLE
from fad.core.types import Aval, JaxEquation, PyTree
from fad.errors import RuleError, describe
from fad.functions.derived_rules import BatchedRules, DerivativeRules, LinearRules
from fad.functions.rules import CallRules
from fad.functions.user_rules import UserRules

# Elements of an output, and for each the element of an input on which it depends.
Pairs: TypeAlias = tuple[np.ndarray, np.ndarray]
# What reads the matrix that a rule returns: its name in messages, the matrix, the shapes of output and input.
Reader: TypeAlias = Callable[[str, PyTree, tuple[int, ...], tuple[int, ...]], Pairs]


def declared_sparsity(eqn: JaxEquation, read: Reader) -> list[Pairs | None] | None:
    """On which elements of its operands the output of a call of a Function depends, as it declares.

    Arguments:
        eqn: an equation of a program, a call of a Function, its derivative or its batch.
        read: ``read(what, matrix, out, shape)`` returns the places that may differ from 0 in a matrix that a
            ``sparsity`` rule returns, for an output and an input of these shapes: a pair of NumPy arrays,
            elements of the output and of the input. Errors begin with ``what``.

    Returns:
        Such a pair for each operand, None where nothing is known of it; or None where no rule says anything.

    Raises:
        RuleError: a rule returned something else than a matrix for each argument.

    >>> import fad, jax, jax.numpy as jnp, numpy as np
    >>> class Tail(fad.Function):
    ...     forward = staticmethod(lambda x: x[1:])
    ...     sparsity = staticmethod(lambda x: np.eye(x.shape[0] - 1, x.shape[0], k=1))
    >>> (eqn,) = jax.make_jaxpr(Tail.apply)(jnp.ones(3)).eqns
    >>> read = lambda what, matrix, out, shape: np.nonzero(matrix)
    >>> [[x.tolist() for x in pair] for pair in fad.extend.declared_sparsity(eqn, read)]
    [[[0, 1], [1, 2]]]
    """
    if flag_of(eqn, "expensive") is None or len(eqn.outvars) != 1:
        return None
    rules = rules_of(eqn)
    avals = [v.aval for v in eqn.invars]
    return None if rules is None else _declared(rules, avals, eqn.outvars[0].aval, read)


def _declared(
    rules: CallRules, avals: Sequence[Aval], out: Aval, read: Reader
) -> list[Pairs | None] | None:
    if isinstance(rules, LinearRules):
        return _declared(rules.base, avals, out, read)
    if isinstance(rules, DerivativeRules):
        if not rules.is_linear:
            return None
        inputs, outputs = len(rules.counts), len(rules.outputs)
        pairs = _declared(rules.base, avals[:inputs], out, read)
        if pairs is None:
            return None
        of_tangents = [p for p, m in zip(pairs, rules.counts, strict=True) if m]
        return [*[None] * (inputs + outputs), *of_tangents]
    if isinstance(rules, BatchedRules):
        lanes = rules.batch_size
        each = _declared(
            rules.base,
            [_lane(a, d) for a, d in zip(avals, rules.dims, strict=True)],
            _lane(out, 0),
            read,
        )
        if each is None:
            return None
        size = out.size // max(lanes, 1)
        return [
            p and _batched(p, a, d, lanes, size)
            for p, a, d in zip(each, avals, rules.dims, strict=True)
        ]
    if isinstance(rules, UserRules) and rules.signature.sparsity:
        return list(_returned(rules, avals, out, read))
    return None


def _lane(aval: Aval, dim: int | None) -> Aval:
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


def _returned(rules: UserRules, avals: Sequence[Aval], out: Aval, read: Reader) -> list[Pairs]:
    who = f"{rules.name}.sparsity"
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    args, kwargs = rules.arguments(structs)
    names, patterns = rules.argument_names(), rules.cls.sparsity(*args, **kwargs)
    if len(names) == 1 and type(patterns) is not tuple:
        patterns = (patterns,)
    if type(patterns) is not tuple or len(patterns) != len(names):
        raise RuleError(
            f"{who} returned {describe(patterns)}, expected {len(names)} patterns in a tuple: one for each "
            f"argument of forward ({', '.join(names)}), None where the output does not depend on it"
        )
    result: list[Pairs] = []
    for name, part, pattern in zip(names, rules.inputs.parts(), patterns, strict=True):
        if HOLE in part.leaves:
            what = f"{who}: the pattern for argument {name!r}"
            for x in part.collect(pattern, what):
                shape = structs[len(result)].shape
                result.append(read(what, x, tuple(out.shape), shape))
    return result
