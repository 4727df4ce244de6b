"""A Function under native JAX transforms: the pair of primitives that its calls bind on tracers.

NOTE [the native pair]

A call binds ``fad_call``. Its jvp rule runs the call and binds ``fad_linear_call`` on the tangents:
the same operation, with `LinearRules`, that evaluates as the user's jvp. JAX's reverse mode is
linearize-and-transpose, and ``fad_linear_call`` transposes as the user's vjp; under ``jax.checkpoint``
too, because the linear call is what is left after partial evaluation. Both batch to the call of
`BatchedRules`. Parameters are hashable rules, without levels, tapes or tracers, so nothing in JAX's
caches can become stale. Both lower by tracing their body: nothing of fad is left in HLO.

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
    without_leaves,
)
from fad.functions.derived_rules import BatchedRules, LinearRules
from fad.functions.rules import CallRules
from fad.functions.templates import Template, flat_template
from fad.levels.randomness import draws, note_call

__all__ = ["call", "is_traced"]

call_p = new_primitive("fad_call", expensive=True)
linear_call_p = new_primitive("fad_linear_call", expensive=True)


def is_traced(values: Sequence[Any]) -> bool:
    """Whether a JAX transform traces one of ``values``."""
    return any([isinstance(v, jax.core.Tracer) for v in values])


def call(rules: CallRules, values: Sequence[Any]) -> tuple[list[Any], Template]:
    """Bind a call of ``rules`` on arrays and tracers."""
    values = _vary([jnp.asarray(v) for v in values])
    _, template, body = _abstract(rules, tuple([aval_of(v) for v in values]))
    if body is not None:
        note_call(rules.name)
    return _primitive_for(rules).bind(*values, rules=rules), template


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


def _primitive_for(rules: CallRules) -> Any:
    """Which of the pair binds a call of ``rules``."""
    base = rules
    while isinstance(base, BatchedRules):
        base = base.base
    return linear_call_p if isinstance(base, LinearRules) else call_p


def _run(*values: Any, rules: CallRules) -> list[Any]:
    with traced_by_jax(), noting_leaves() as leaves:
        outs, _ = rules.forward(values)
    outs = [jnp.asarray(o) for o in _checked(rules, outs, leaves)]
    if is_traced(outs) and not is_traced(values):
        raise closure_error(rules, None, is_tracer)
    return outs


def _checked(rules: CallRules, outs: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
    """Outputs of a body as bare arrays; ``leaves`` are those that it made itself."""
    return checked_arrays(rules, [without_leaves(o, leaves) for o in outs])


@functools.lru_cache(maxsize=4096)
def _abstract(rules: CallRules, avals: tuple[Any, ...]) -> tuple[list[Any], Template, Any]:
    """Avals and structure of the outputs, and the body's jaxpr if it draws random numbers, else None."""
    if isinstance(rules, LinearRules):
        operands = avals[len(rules.mask) : rules.known]
        tangents = [a.to_tangent_aval() for a in operands]
        tangents = [a for a, has in zip(tangents, rules.outputs, strict=True) if has]
        return tangents, flat_template(len(tangents)), None
    template: list[Template] = []

    def body(*values: Any) -> list[Any]:
        with noting_leaves() as leaves:
            outs, found = rules.forward(values)
        template[:] = [found]
        return [jnp.asarray(o) for o in _checked(rules, outs, leaves)]

    with traced_by_jax():
        closed = jax.make_jaxpr(body)(*avals)
    if is_traced(closed.consts):
        raise closure_error(rules, None, is_tracer)
    drawing = closed if draws(closed.jaxpr) else None
    return list(closed.out_avals), template[0], drawing


def _abstract_eval(*avals: Any, rules: CallRules) -> list[Any]:
    return _abstract(rules, avals)[0]


def _jvp(primals: Any, tangents: Any, *, rules: CallRules, primitive: Any) -> tuple[Any, Any]:
    _, template, _ = _abstract(rules, tuple([aval_of(p) for p in primals]))
    outs = primitive.bind(*primals, rules=rules)
    mask = tuple([not isinstance(t, Zero) for t in tangents])
    differentiable = tuple(
        [is_inexact(o.dtype) and k not in template.non_differentiable for k, o in enumerate(outs)]
    )
    zeros = [Zero(aval_of(o).to_tangent_aval()) for o in outs]
    if not any(mask) or not any(differentiable):
        return outs, zeros
    given = [instantiate_zeros(t) for t, m in zip(tangents, mask, strict=True) if m]
    linear = LinearRules(rules, mask, differentiable, template)
    out_t = iter(linear_call_p.bind(*primals, *outs, *given, rules=linear))
    return outs, [next(out_t) if x else z for x, z in zip(differentiable, zeros, strict=True)]


def _transpose(cotangents: Any, *operands: Any, rules: CallRules) -> list[Any]:
    need = [is_undefined_primal(v) for v in operands]
    values = [None if n else v for v, n in zip(operands, need, strict=True)]
    cts = [None if isinstance(c, Zero) else conjugate(c) for c in cotangents]
    base = rules
    while isinstance(base, BatchedRules):
        base = base.base
    assert isinstance(base, LinearRules)
    if any(need[: base.known]):
        raise RuleError(
            f"{base.base.name}: a jvp rule was transposed in an input that it is not linear in"
        )
    with traced_by_jax(), noting_leaves() as leaves:
        saved = rules.setup(values, [None] * len(cts), flat_template(len(cts)))
        grads = rules.pullback(saved, cts, need)
    result: list[Any] = []
    for v, g, n in zip(operands, grads, need, strict=True):
        if not n:
            result.append(None)
        elif g is None:
            result.append(Zero(v.aval))
        else:
            result.append(conjugate(jnp.asarray(_checked(rules, [g], leaves)[0])))
    return result


def _transpose_call(cotangents: Any, *operands: Any, rules: CallRules) -> list[Any]:
    """Of a call that is linear in some operands: of its body, as for JAX's ``custom_jvp``."""
    need = [is_undefined_primal(v) for v in operands]

    def body(*xs: Any) -> list[Any]:
        given = iter(xs)
        return _run(*[next(given) if n else v for n, v in zip(need, operands)], rules=rules)

    like = [v.aval for v, n in zip(operands, need, strict=True) if n]
    cts = [instantiate_zeros(c) for c in cotangents]
    found = iter(jax.linear_transpose(body, *map(struct_of, like))(cts))
    return [next(found) if n else None for n in need]


def _batch(
    axis_data: Any, values: Any, dims: Any, *, rules: CallRules, primitive: Any
) -> tuple[Any, Any]:
    if all([d is None for d in dims]):
        outs = primitive.bind(*values, rules=rules)
        return outs, [None] * len(outs)
    randomness = "same" if state.batching else "error"
    batched = BatchedRules(rules, tuple(dims), axis_data.size, axis_data.name, randomness)
    outs = primitive.bind(*values, rules=batched)
    return outs, [0] * len(outs)


def _drawing(eqn: Any) -> Any:
    """The body of what an equation calls, if it draws random numbers, else None."""
    return _abstract(eqn.params["rules"], tuple([v.aval for v in eqn.invars]))[2]


for _p in (call_p, linear_call_p):
    define_primitive(
        _p,
        _run,
        _abstract_eval,
        jvp=functools.partial(_jvp, primitive=_p),
        transpose=_transpose if _p is linear_call_p else _transpose_call,
        batch=functools.partial(_batch, primitive=_p),
    )
    _p.drawing = _drawing
