"""What a rule of the user's returned, checked against what was expected, with errors that name it."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.borrowed import as_array
from fad.core.casts import cast_to
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import array_type, varying_axes
from fad.core.level import bind
from fad.core.partition import HOLE
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Array, Aval, MaybeValue, PyTree, Value
from fad.errors import RuleError, StructureError, describe
from fad.functions.templates import SCALARS, Template, View, split
from fad.levels.batch import broadcast, move_axis
from fad.tape.node_step import is_broadcast, sum_to
from fad.tape.recorder import ROOT
from fad.views.make_view import chain_from, peer_chain_from

_VALUES = (Tensor, jax.Array)


def gradients(
    who: str, grads: PyTree, inputs: Template, names: Sequence[str], avals: Sequence[Aval]
) -> list[MaybeValue]:
    """What a vjp rule returned, as a gradient for each array input.

    ``inputs`` is the structure of the bound arguments, and ``names`` has a name for each of them.
    """
    parts = inputs.parts()
    single = len(names) == 1 and parts[0].structure != trees.LEAF
    if not isinstance(grads, (tuple, list)) or (single and _is_for_whole(grads, parts[0])):
        grads = (grads,)
    if len(grads) > len(names) and all([g is None for g in grads[len(names) :]]):
        grads = grads[: len(names)]
    if len(grads) != len(names):
        raise RuleError(
            f"{who} returned {len(grads)} gradients, expected {len(names)}: one for each "
            f"argument of forward ({', '.join(names)}), None where there is none"
        )
    result: list[MaybeValue] = []
    for name, part, g in zip(names, parts, grads, strict=True):
        if HOLE not in part.leaves:
            continue
        what = f"{who}: the gradient for argument {name!r}"
        for x in part.collect(g, what):
            result.append(check_value(what, x, avals[len(result)], summed=True))
    return result


def directions_of(
    who: str, returned: PyTree, template: Template, avals: Sequence[Aval], order: int | None
) -> list[Any]:
    """What a jvp rule returned, as a tangent for each output; or a jet rule, as a list of derivatives."""
    what = f"{who}: the {'tangent' if order is None else 'series'}"
    found = template.collect(returned, f"{what} of the output")
    for k in template.marks.non_differentiable:
        if found[k] is not None:
            raise RuleError(
                f"{what} of output {k} is {describe(found[k])}, and the output is marked "
                "with ctx.mark_non_differentiable: return None in its place"
            )
    if order is None:
        return [check_value(f"{what} of output {k}", t, avals[k]) for k, t in enumerate(found)]
    result: list[Any] = []
    for k, s in enumerate(found):
        if s is not None and (not isinstance(s, (tuple, list)) or len(s) != order):
            raise RuleError(
                f"{what} of output {k} must be a list of {order} derivatives, got {describe(s)}. "
                "Return as many as there are of each argument: [first, second, ...]."
            )
        terms = enumerate(s or (), 1)
        checked = [
            check_value(f"{who}: derivative {n} of output {k}", t, avals[k]) for n, t in terms
        ]
        result.append(checked or None)
    return result


def pair(who: str, form: str, returned: PyTree) -> tuple[PyTree, PyTree]:
    """What a rule that returns a pair returned; ``form`` says of what."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise RuleError(f"{who} must return a pair ({form}), got {describe(returned)}")
    first, second = returned
    return first, second


def batched_outputs(who: str, returned: PyTree, batch_size: int) -> tuple[list[Value], Template]:
    """What a vmap rule returned, ``(output, out_dims)``, as arrays with the batch along dimension 0."""
    out, out_dims = pair(who, "output, out_dims", returned)
    outs, template = split(out, SCALARS)
    arrays = list(map(as_value, outs))
    output = template.combine(arrays)
    try:
        spread = trees.broadcast_prefix(out_dims, output, f"{who}: out_dims")
    except StructureError as error:
        raise RuleError(str(error)) from error
    dims = [d for d, x in zip(spread, trees.flatten(output)[0]) if isinstance(x, _VALUES)]
    moved: list[Value] = []
    for k, (o, d) in enumerate(zip(arrays, dims, strict=True)):
        if d is None:
            moved.append(broadcast(o, batch_size, 0))
            continue
        if type(d) is not int or not -o.ndim <= d < o.ndim or o.shape[d] != batch_size:
            raise RuleError(
                f"{who}: output {k} has shape {tuple(o.shape)}, which does not have the batch "
                f"of {batch_size} at out_dims {d!r}"
            )
        moved.append(move_axis(o, d % o.ndim, 0))
    return moved, template


def _is_for_whole(grads: Sequence[PyTree], part: Template) -> bool:
    """Whether what a vjp returned is the gradient of its one argument, a tree, not a tuple around it."""
    if len(grads) != 1:
        return not all([g is None for g in grads[1:]])
    try:
        part.collect(grads[0], "")
    except RuleError:
        return True
    return False


def check_value(what: str, x: Any, aval: Aval, summed: bool = False) -> MaybeValue:
    """A gradient or tangent that a rule returned, checked against its primal and cast to its dtype.

    ``summed``: one whose shape the primal's can be broadcast to is summed to the primal's, as in PyTorch.
    """
    if x is None or not is_inexact(aval.dtype):
        return None
    if type(x) is Tensor and x._level is ROOT and x.meta is None and not x._requires_grad:
        value: Array = x._value
        same = value.shape == aval.shape and value.dtype == aval.dtype
        if same and type(value) is array_type and not varying_axes(aval):
            return value
    if isinstance(x, (float, int, complex, np.ndarray, np.generic)):
        x = as_array(x)
    if not isinstance(x, _VALUES):
        raise RuleError(
            f"{what} must be an array of shape {tuple(aval.shape)} or None, got {describe(x)}"
        )
    if tuple(x.shape) != tuple(aval.shape):
        if not summed or not is_broadcast(aval.shape, x.shape):
            also = ""
            if summed:
                also = ", that of the argument, or a larger one that the argument was broadcast to"
                if is_broadcast(x.shape, aval.shape):
                    also = f", that of the argument: write fad.numpy.broadcast_to(g, {tuple(aval.shape)})"
            raise RuleError(
                f"{what} has shape {tuple(x.shape)}, expected {tuple(aval.shape)}{also}"
            )
        x = bind(sum_to(tuple(aval.shape), len(x.shape)), (x,))
    if x.dtype != aval.dtype:
        x = bind(cast_to(aval.dtype), (x,))
    has, expected = varying_axes(aval_of(x)), varying_axes(aval)
    if has != expected:
        x = bind(over_devices(tuple(has - expected), tuple(expected - has)), (x,))
    checked: Value = lowered(x)
    return checked


@functools.lru_cache(maxsize=64)
def over_devices(summed: tuple[Hashable, ...], varying: tuple[Hashable, ...]) -> Primitive:
    """Under ``shard_map``: a sum over devices, along ``summed``; what varies along ``varying``, too."""

    def fit(x: Array) -> Array:
        x = jax.lax.psum(x, summed) if summed else x
        return jax.lax.pcast(x, varying, to="varying") if varying else x

    return Primitive("psum", fit)


def views_among(outs: Sequence[PyTree], handles: Sequence[PyTree]) -> tuple[View, ...]:
    """Which outputs of a body share storage with its inputs or with other outputs: a `View` for each.

    An input that is returned twice as it is makes two outputs.
    """
    last = {id(o): k for k, o in enumerate(outs)}
    own = set(map(id, handles))
    found: list[View] = []
    for k, o in enumerate(outs):
        if isinstance(o, Tensor) and (o.meta is not None or id(o) in own):
            known = chain_from(o, handles)
            if known is not None:
                found.append(View(k, *known, as_is=o is handles[known[0]]))
            elif (known := peer_chain_from(o, handles)) is not None:
                found.append(View(k, *known, detached=True))
            elif o.meta is not None and (known := chain_from(o, outs)) is not None:
                base, chain = known
                if base != k:
                    found.append(View(k, last[id(outs[base])], chain, of_output=True))
        if last[id(o)] != k and id(o) not in own:
            found.append(View(k, last[id(o)], None))
    return tuple(found)


def as_value(x: Any) -> Any:
    """An array that a body returned, or a number, as a value of the call."""
    return x if isinstance(x, _VALUES) else as_array(x)


def lowered(x: Any) -> Any:
    """A Tensor without a level or a history as its array."""
    if isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad:
        return x.value
    return x
