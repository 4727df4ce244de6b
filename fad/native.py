"""A Function under native JAX transforms: the pair of primitives that its calls bind on tracers.

NOTE [the native pair]

A call binds ``fad_call``. Its jvp rule runs the call and binds ``fad_linear_call`` on the tangents:
the same operation, with `LinearRules`, that evaluates as the user's jvp. JAX's reverse mode is
linearize-and-transpose, and ``fad_linear_call`` transposes as the user's vjp; under ``jax.checkpoint`` too,
because the linear call is what is left after partial evaluation. Both batch to the call of
`BatchedRules`. Parameters are hashable rules, without levels, tapes or tracers, so JAX's caches
hold nothing that can become stale. Both lower by tracing their body: nothing of fad is left in HLO.

Complex cotangents are conjugated on the way in and out: JAX transposes, a vjp rule takes adjoints.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad.errors import RuleError
from fad.jaxapi import ad, batching, is_inexact, mlir, new_primitive, shaped_array
from fad.primitive import aval_of, conjugate, struct_of
from fad.rules import BatchedRules, LinearRules, Rules, Template, checked_arrays, run_setup

__all__ = ["call", "is_traced"]

call_p = new_primitive("fad_call")
linear_call_p = new_primitive("fad_linear_call")


def is_traced(values: Sequence[Any]) -> bool:
    """Whether a JAX transform is at work on ``values``."""
    return any(isinstance(v, jax.core.Tracer) for v in values)


def call(rules: Rules, values: Sequence[Any]) -> tuple[list[Any], Template]:
    """Bind a call of ``rules`` on arrays and tracers."""
    values = [jnp.asarray(v) for v in values]
    _, template = _abstract(rules, tuple([aval_of(v) for v in values]))
    primitive = linear_call_p if isinstance(rules, LinearRules) else call_p
    return primitive.bind(*values, rules=rules), template


def _run(*values: Any, rules: Rules) -> list[Any]:
    outs, _ = rules.forward(values)
    outs = checked_arrays(rules.name, outs)
    if not is_traced(values) and is_traced(outs):
        _refuse_capture(rules.name)
    return [jnp.asarray(o) for o in outs]


def _refuse_capture(name: str) -> None:
    raise RuleError(
        f"{name} closes over a value of a running JAX transform that is not among its arguments, so "
        f"its derivative would be lost. Pass it as an argument of {name}.apply, or use "
        "jax.lax.stop_gradient on a concrete value."
    )


@functools.lru_cache(maxsize=4096)
def _abstract(rules: Rules, avals: tuple[Any, ...]) -> tuple[list[Any], Template]:
    """Avals and structure of the outputs."""
    found: dict[str, Template] = {}

    def body(*values: Any) -> list[Any]:
        outs, found["template"] = rules.forward(values)
        return [jnp.asarray(o) for o in checked_arrays(rules.name, outs)]

    closed = jax.make_jaxpr(body)(*map(struct_of, avals))
    if any(isinstance(c, jax.core.Tracer) for c in closed.consts):
        _refuse_capture(rules.name)
    return [
        shaped_array(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.out_avals
    ], found["template"]


def _abstract_eval(*avals: Any, rules: Rules) -> list[Any]:
    return _abstract(rules, avals)[0]


def _jvp(primals: Any, tangents: Any, *, rules: Rules, primitive: Any) -> tuple[Any, Any]:
    avals = tuple([aval_of(p) for p in primals])
    _, template = _abstract(rules, avals)
    outs = primitive.bind(*primals, rules=rules)
    mask = tuple([not isinstance(t, ad.Zero) for t in tangents])
    inexact = tuple([is_inexact(o.dtype) for o in outs])
    zeros = [ad.Zero(aval_of(o).to_tangent_aval()) for o in outs]
    if not any(mask) or not any(inexact):
        return outs, zeros
    given = [ad.instantiate_zeros(t) for t, m in zip(tangents, mask, strict=True) if m]
    linear = LinearRules(rules, mask, inexact, template)
    out_t = iter(linear_call_p.bind(*primals, *outs, *given, rules=linear))
    return outs, [next(out_t) if x else z for x, z in zip(inexact, zeros, strict=True)]


def _transpose(cotangents: Any, *values: Any, rules: LinearRules) -> list[Any]:
    known = len(rules.mask) + len(rules.outputs)
    operands, linear = values[:known], values[known:]
    if any(ad.is_undefined_primal(v) for v in operands):
        raise RuleError(
            f"{rules.base.name}: a jvp rule was transposed in an input that it is not linear in"
        )
    need = [ad.is_undefined_primal(v) for v in linear]
    it = iter(cotangents)
    full: list[Any] = []
    for has in rules.outputs:
        c = next(it) if has else None
        full.append(None if c is None or isinstance(c, ad.Zero) else conjugate(c))
    primals, outs = operands[: len(rules.mask)], operands[len(rules.mask) :]
    ctx = run_setup(rules.base, primals, outs, rules.out_template)
    flags = iter(need)
    wanted = [next(flags) if m else False for m in rules.mask]
    grads = rules.base.pullback(ctx, full, wanted)
    grads = [g for g, m in zip(grads, rules.mask, strict=True) if m]
    grads = [
        g if g is None else checked_arrays(rules.base.name, [g])[0] for g in grads
    ]
    result: list[Any] = [None] * known
    for v, g, n in zip(linear, grads, need, strict=True):
        if not n:
            result.append(None)
        elif g is None:
            result.append(ad.Zero(v.aval.to_cotangent_aval()) if hasattr(v.aval, "to_cotangent_aval") else ad.Zero(v.aval))
        else:
            result.append(conjugate(jnp.asarray(g)))
    return result


def _batch(
    axis_data: Any, values: Any, dims: Any, *, rules: Rules, primitive: Any
) -> tuple[Any, Any]:
    if all(d is None for d in dims):
        outs = primitive.bind(*values, rules=rules)
        return outs, [None] * len(outs)
    batched = BatchedRules(
        rules,
        tuple(dims),
        axis_data.size,
        axis_data.name,
    )
    outs = call_p.bind(*values, rules=batched)
    return outs, [0] * len(outs)


for _p in (call_p, linear_call_p):
    _p.def_impl(_run)
    _p.def_abstract_eval(_abstract_eval)
    mlir.register_lowering(_p, mlir.lower_fun(_run, multiple_results=True))
    ad.primitive_jvps[_p] = functools.partial(_jvp, primitive=_p)
    batching.fancy_primitive_batchers[_p] = functools.partial(_batch, primitive=_p)
ad.primitive_transposes[linear_call_p] = _transpose

