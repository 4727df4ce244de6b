"""A Function under native JAX transforms: the primitive that its calls bind on tracers.

NOTE [the native primitive]

A call binds ``fad_call``. Its jvp rule binds it again on the tangents, with `DerivativeRules`: that evaluates
as the user's jvp. JAX's reverse mode is linearize-and-transpose, and a call of linear `DerivativeRules`
transposes as the user's vjp; under ``jax.checkpoint`` too, because it is what is left after partial
evaluation. Both batch to the call of `BatchedRules`. Parameters are hashable rules, without levels, tapes or
tracers, so nothing in JAX's caches can become stale. A call lowers by tracing its body: nothing of fad is
left in HLO.

Complex cotangents are conjugated on the way in and out: JAX transposes, a vjp rule takes adjoints.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad.core.avals import aval_of, struct_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    Zero,
    define_primitive,
    instantiate_zeros,
    is_undefined_primal,
    new_primitive,
    varying_axes,
)
from fad.core.level import state, traced_by_jax
from fad.core.masked import conjugate
from fad.errors import RuleError
from fad.functions.closures import (
    checked_arrays,
    closure_error,
    is_tracer,
    noting_leaves,
)
from fad.functions.derived_rules import BatchedRules, DerivativeRules
from fad.functions.rules import CallRules
from fad.functions.templates import Template
from fad.levels.randomness import draws, note_call

__all__ = ["call", "is_traced"]

call_p = new_primitive("fad_call", expensive=True)


def is_traced(values: Sequence[Any]) -> bool:
    """Whether a JAX transform traces one of ``values``."""
    return any([isinstance(v, jax.core.Tracer) for v in values])


def call(rules: CallRules, values: Sequence[Any]) -> tuple[list[Any], Template]:
    """Bind a call of ``rules`` on arrays and tracers."""
    values = _vary([jnp.asarray(v) for v in values])
    _, template, body = _abstract(rules, tuple([aval_of(v) for v in values]))
    if body is not None:
        note_call(rules.name)
    return call_p.bind(*values, rules=rules), template


def _vary(values: list[Any]) -> list[Any]:
    """Under ``shard_map``, what is the same on all devices made to vary as the other operands do.

    JAX's own primitives do this too; its transpose sums a gradient over the devices.
    """
    every = [varying_axes(aval_of(v)) for v in values]
    axes = frozenset().union(*every)
    return [
        jax.lax.pcast(v, tuple(axes - own), to="varying") if axes - own else v
        for v, own in zip(values, every, strict=True)
    ]


def _run(*values: Any, rules: CallRules) -> list[Any]:
    with traced_by_jax(), noting_leaves() as leaves:
        outs, _ = rules.forward(values)
    outs = [jnp.asarray(o) for o in checked_arrays(rules, outs, leaves)]
    if is_traced(outs) and not is_traced(values):
        raise closure_error(rules, None, is_tracer)
    return outs


@functools.lru_cache(maxsize=4096)
def _abstract(rules: CallRules, avals: tuple[Any, ...]) -> tuple[list[Any], Template, Any]:
    """Avals and structure of the outputs, and the body's jaxpr if it draws random numbers, else None."""
    if isinstance(rules, DerivativeRules) and rules.is_linear:
        operands = avals[len(rules.counts) : rules.known]
        tangents = [a.to_tangent_aval() for a in operands]
        tangents = [a for a, has in zip(tangents, rules.outputs, strict=True) if has]
        return tangents, Template.flat_of(len(tangents)), None
    template: list[Template] = []

    def body(*values: Any) -> list[Any]:
        with noting_leaves() as leaves:
            outs, found = rules.forward(values)
        template[:] = [found]
        return [jnp.asarray(o) for o in checked_arrays(rules, outs, leaves)]

    with traced_by_jax():
        closed = jax.make_jaxpr(body)(*avals)
    if is_traced(closed.consts):
        raise closure_error(rules, None, is_tracer)
    drawing = closed if draws(closed.jaxpr) else None
    return list(closed.out_avals), template[0], drawing


def _abstract_eval(*avals: Any, rules: CallRules) -> list[Any]:
    return _abstract(rules, avals)[0]


def _jvp(primals: Any, tangents: Any, *, rules: CallRules) -> tuple[Any, Any]:
    _, template, _ = _abstract(rules, tuple([aval_of(p) for p in primals]))
    outs = call_p.bind(*primals, rules=rules)
    mask = tuple([not isinstance(t, Zero) for t in tangents])
    differentiable = tuple(
        [is_inexact(o.dtype) and k not in template.non_differentiable for k, o in enumerate(outs)]
    )
    zeros = [Zero(aval_of(o).to_tangent_aval()) for o in outs]
    if not any(mask) or not any(differentiable):
        return outs, zeros
    given = [instantiate_zeros(t) for t, m in zip(tangents, mask, strict=True) if m]
    linear = DerivativeRules(rules, mask, differentiable, template)
    out_t = iter(call_p.bind(*primals, *outs, *given, rules=linear))
    return outs, [next(out_t) if x else z for x, z in zip(differentiable, zeros, strict=True)]


def _transpose(cotangents: Any, *operands: Any, rules: CallRules) -> list[Any]:
    """Of a derivative, the vjp rule; of another call, that of its body, as for JAX's ``custom_jvp``."""
    need = [is_undefined_primal(v) for v in operands]
    values = [None if n else v for v, n in zip(operands, need, strict=True)]
    base = rules
    while isinstance(base, BatchedRules):
        base = base.base
    if not isinstance(base, DerivativeRules) or not base.is_linear:

        def body(*xs: Any) -> list[Any]:
            given = iter(xs)
            return _run(*[next(given) if n else v for n, v in zip(need, values)], rules=rules)

        like = [struct_of(v.aval) for v, n in zip(operands, need, strict=True) if n]
        cts = [instantiate_zeros(c) for c in cotangents]
        found = iter(jax.linear_transpose(body, *like)(cts))
        return [next(found) if n else None for n in need]
    if any(need[: base.known]):
        raise RuleError(
            f"{base.base.name}: a jvp rule was transposed in an input that it is not linear in"
        )
    cts = [None if isinstance(c, Zero) else conjugate(c) for c in cotangents]
    with traced_by_jax(), noting_leaves() as leaves:
        saved = rules.setup(values, [None] * len(cts), Template.flat_of(len(cts)))
        grads = rules.pullback(saved, cts, need)
    result: list[Any] = []
    for v, g, n in zip(operands, grads, need, strict=True):
        if not n:
            result.append(None)
        elif g is None:
            result.append(Zero(v.aval))
        else:
            result.append(conjugate(jnp.asarray(checked_arrays(rules, [g], leaves)[0])))
    return result


def _batch(axis_data: Any, values: Any, dims: Any, *, rules: CallRules) -> tuple[Any, Any]:
    if all([d is None for d in dims]):
        outs = call_p.bind(*values, rules=rules)
        return outs, [None] * len(outs)
    randomness = "same" if state.batching else "error"
    batched = BatchedRules(rules, tuple(dims), axis_data.size, axis_data.name, randomness)
    outs = call_p.bind(*values, rules=batched)
    return outs, [0] * len(outs)


def _drawing(eqn: Any) -> Any:
    """The body of what an equation calls, if it draws random numbers, else None."""
    return _abstract(eqn.params["rules"], tuple([v.aval for v in eqn.invars]))[2]


define_primitive(call_p, _run, _abstract_eval, jvp=_jvp, transpose=_transpose, batch=_batch)
call_p.drawing = _drawing
