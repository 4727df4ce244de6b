"""A Function under native JAX transforms: the primitive that its calls bind on tracers.

NOTE [the native primitive]

    F = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0j * g)
    assert jax.grad(jax.checkpoint(lambda x: F.apply(x * (1.0 + 0j)).imag))(1.0) == -7.0
    assert "fad_call" in str(jax.make_jaxpr(F.apply)(1.0))
    assert "fad_call" not in jax.jit(F.apply).lower(1.0).as_text()

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
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from fad.core import rolling_protocol
from fad.core.avals import aval_of, struct_of
from fad.core.caches import Table
from fad.core.jaxapi import (
    Zero,
    axes_named,
    axis_effects,
    axis_sizes,
    define_primitive,
    extended_axes,
    instantiate_zeros,
    is_undefined_primal,
    new_primitive,
    run_jaxpr,
    trace_context,
    varying_alike,
)
from fad.core.jaxprs import active, conjugate, jaxpr_key, select, spread
from fad.core.level import state, traced_by_jax
from fad.core.types import Array, Aval, JaxEquation, JaxProgram, Operand
from fad.errors import GradientError, RuleError
from fad.functions.context import Template
from fad.functions.derived_rules import BatchedRules, DerivativeRules
from fad.functions.rules import (
    CallRules,
    Values,
    checked_arrays,
    closure_error,
    is_tracer,
    noting_leaves,
    origin,
)
from fad.tape.vmap import has_draws, note_call

_Avals: TypeAlias = Sequence[Any]

call_p = new_primitive("fad_call", expensive=True)
# The named axes around a call, and their sizes, which its body may read.
Axes = tuple[tuple[Hashable, int], ...]


def is_traced(values: Sequence[object]) -> bool:
    """Whether a JAX transform traces one of ``values``."""
    return any([isinstance(v, jax.core.Tracer) for v in values])


def call(rules: CallRules, values: Sequence[Operand]) -> tuple[list[Any], Template]:
    """Bind a call of ``rules`` on arrays and tracers."""
    arrays = varying_alike([jnp.asarray(v) for v in values])
    axes = axis_sizes()
    abstract = _of_avals(list(map(aval_of, arrays)), rules, axes)
    if abstract.drawing is not None:
        note_call(rules.name)
    rules = _shared(rules, abstract.program)
    return call_p.bind(*arrays, rules=rules, axes=axes, roll=state.rolls), abstract.template


def _body(rules: CallRules, values: Values) -> tuple[list[Array], Template]:
    """The array outputs of a body, and the structure around them."""
    with traced_by_jax(), noting_leaves() as leaves:
        outs, template = rules.forward(values)
    return [jnp.asarray(o) for o in checked_arrays(rules, outs, leaves)], template


def _run(*values: Any, rules: CallRules, axes: Axes, roll: bool = True) -> list[Array]:
    try:
        with extended_axes(axes):
            arrays, _ = _body(rules, values)
    except jax.errors.UnexpectedTracerError as error:
        raise closure_error(rules, None, is_tracer) from error
    if is_traced(arrays) and not is_traced(values):
        raise closure_error(rules, None, is_tracer)
    return arrays


def _run_compiled(*values: Array, rules: CallRules, axes: Axes, roll: bool) -> list[Array]:
    """`_run`, in compiled code; see NOTE [the protocol of rolling]."""
    with extended_axes(axes):
        closed, _ = _make_program(rules, list(map(aval_of, values)))
        return run_jaxpr(rolling_protocol.roll(closed)[0] if roll else closed, *values)


class _Abstract(NamedTuple):
    """The avals and the structure of the outputs of a call; its program, if that draws random numbers; the
    axes that it names; and its program, if its rules may be those of an equal call.
    """

    avals: list[Aval]
    template: Template
    drawing: JaxProgram | None
    axes: frozenset[Hashable]
    program: JaxProgram | None = None


_of_others = Table(4096)


def _table(rules: CallRules) -> Table:
    """What is known of calls: it goes with the Function class, which may be made anew."""
    function = origin(rules).function
    return _of_others if function is None else function._plans


def _abstract(rules: CallRules, avals: _Avals) -> _Abstract:
    """What is known of a call before it runs, among the named axes here, which are part of JAX's context."""
    table = _table(rules)
    key = ("native", rules, tuple(avals), trace_context())
    abstract: _Abstract | None = table.get(key)
    return table.put(key, _make_abstract(rules, avals)) if abstract is None else abstract


def _make_abstract(rules: CallRules, avals: _Avals) -> _Abstract:
    if isinstance(rules, DerivativeRules) and rules.is_linear:
        operands: Sequence[Any] = avals[len(rules.counts) : rules.point_count]
        tangents = [a.to_tangent_aval() for a in operands]
        tangents = [a for a, has in zip(tangents, rules.outputs, strict=True) if has]
        axes: frozenset[Hashable] = frozenset()
        if axis_sizes():  # as far as it is known before it runs: those of the call
            axes = _abstract(rules.base, avals[: len(rules.counts)]).axes
        return _Abstract(tangents, Template.flat_of(len(tangents)), None, axes)
    closed, template = _make_program(rules, avals)
    drawing = closed if has_draws(closed.jaxpr) else None
    axes = axes_named(closed.jaxpr) if axis_sizes() else frozenset()
    program = None if rules.likeness is None else closed
    return _Abstract(list(closed.out_avals), template, drawing, axes, program)


def _shared(rules: CallRules, program: JaxProgram | None) -> CallRules:
    """The rules of the first call in what is being traced that is equal: loops of calls are loops by that."""
    if program is None or state.calls is None:
        return rules
    # What is in the key by its identity must live as long as the key.
    key = (rules.likeness, jaxpr_key(program.jaxpr), tuple(map(id, program.consts)))
    shared: CallRules = state.calls.setdefault(key, (rules, program))[0]
    return shared


def _make_program(rules: CallRules, avals: _Avals) -> tuple[JaxProgram, Template]:
    """The program of a call, and the structure of its outputs."""
    template: list[Template] = []

    def body(*values: Array) -> list[Array]:
        arrays, form = _body(rules, values)
        template[:] = [form]
        return arrays

    closed = jax.make_jaxpr(body)(*avals)
    if is_traced(closed.consts):
        raise closure_error(rules, None, is_tracer)
    return closed, template[0]


def _of_avals(avals: _Avals, rules: CallRules, axes: Axes, roll: bool = True) -> _Abstract:
    """`_abstract`, among the named axes that were around the call when it was bound first."""
    with extended_axes(axes):
        return _abstract(rules, avals)


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Any], *, rules: CallRules, axes: Axes, roll: bool
) -> tuple[list[Array], list[Any]]:
    template = _of_avals(list(map(aval_of, primals)), rules, axes).template
    outs = call_p.bind(*primals, rules=rules, axes=axes, roll=roll)
    mask = tuple([not isinstance(t, Zero) for t in tangents])
    differentiable = template.differentiable(outs)
    zeros = [Zero(aval_of(o).to_tangent_aval()) for o in outs]
    if not any(mask) or not any(differentiable):
        return outs, zeros
    directions = list(map(instantiate_zeros, select(mask, tangents)))
    linear = DerivativeRules(rules, mask, differentiable, template)
    out_t = call_p.bind(*primals, *outs, *directions, rules=linear, axes=axes, roll=roll)
    return outs, spread(differentiable, out_t, zeros)


def _transpose(
    cotangents: Sequence[Any], *operands: Any, rules: CallRules, axes: Axes, roll: bool
) -> list[object]:
    around = axis_sizes()
    outside = {axis for axis, _ in axes}.difference([axis for axis, _ in around])
    with extended_axes(axes):
        if outside:  # there the rule may read sizes, and name nothing

            def arrays() -> list[Array]:
                grads = _transposed(cotangents, operands, rules)
                return [g for g in grads if isinstance(g, jax.Array)]

            named = axes_named(jax.make_jaxpr(arrays)().jaxpr) & outside
            if named:
                name = rules.name.removesuffix("_jvp")
                raise NameError(
                    f"unbound axis name: {', '.join(map(str, named))}. A rule of {name} names it, and its "
                    "derivative is taken outside of that vmap, in whose lanes no argument differs: take the "
                    "derivative inside, or name the axis in the function too"
                )
        return _transposed(cotangents, operands, rules)


def _transposed(
    cotangents: Sequence[Any], operands: Sequence[Any], rules: CallRules
) -> list[object]:
    """Of a derivative, the vjp rule; of another call, that of its body, as for JAX's ``custom_jvp``."""
    need = [is_undefined_primal(v) for v in operands]
    values = [None if n else v for v, n in zip(operands, need, strict=True)]
    base = rules
    while isinstance(base, BatchedRules):
        base = base.base
    if not isinstance(base, DerivativeRules) or not base.is_linear:
        body, _ = active(functools.partial(_run, rules=rules, axes=()), need, values)
        like = [struct_of(v.aval) for v in select(need, operands)]
        cts = [instantiate_zeros(c) for c in cotangents]
        try:
            return spread(need, jax.linear_transpose(body, *like)(cts))
        except ValueError as error:
            if "callbacks do not support" not in str(error):
                raise
            raise GradientError(
                f"linear_transpose: {rules.name} runs on the host, where it is not known to be linear. If it "
                "is, its transpose is the pullback at any point: write jax.vjp(f, *args)[1], or fad.vjp, "
                "which conjugates complex cotangents"
            ) from error
    if any(need[: base.point_count]):
        raise RuleError(
            f"{base.base.name}: a jvp rule was transposed in an input that it is not linear in"
        )
    cts = [None if isinstance(c, Zero) else conjugate(c) for c in cotangents]
    with traced_by_jax(), noting_leaves() as leaves:
        saved = rules.setup(values, [None] * len(cts), Template.flat_of(len(cts)))
        grads = rules.pullback(saved, cts, need)
    result: list[object] = []
    for v, g, n in zip(operands, grads, need, strict=True):
        if not n:
            result.append(None)
        elif g is None:
            result.append(Zero(v.aval))
        else:
            result.append(conjugate(jnp.asarray(checked_arrays(rules, [g], leaves)[0])))
    return result


def _batch(
    axis_data: Any,
    values: Sequence[Array],
    dims: Sequence[int | None],
    *,
    rules: CallRules,
    axes: Axes,
    roll: bool,
) -> tuple[list[Array], Sequence[int | None]]:
    if all([d is None for d in dims]) and not _names(axis_data.name, values, rules, axes):
        outs = call_p.bind(*values, rules=rules, axes=axes, roll=roll)
        return outs, [None] * len(outs)
    randomness = "same" if state.batching else "error"
    batched = BatchedRules(rules, tuple(dims), axis_data.size, axis_data.name, randomness)
    axes = tuple([axis for axis in axes if axis[0] != axis_data.name])  # its level has them
    outs = call_p.bind(*values, rules=batched, axes=axes, roll=roll)
    return outs, [0] * len(outs)


def _named(rules: CallRules, avals: _Avals) -> frozenset[Hashable]:
    """The axes that a call names when it runs."""
    if not isinstance(rules, DerivativeRules):
        return _abstract(rules, avals).axes
    table = _table(rules)  # its rule may name others than the call
    key = ("named", rules, tuple(avals), trace_context())
    names: frozenset[Hashable] | None = table.get(key)
    if names is not None:
        return names
    closed = jax.make_jaxpr(functools.partial(_run, rules=rules, axes=()))(*avals)
    return table.put(key, axes_named(closed.jaxpr))


def _names(name: Hashable, values: Sequence[Array], rules: CallRules, axes: Axes) -> bool:
    """Whether a call names an axis."""
    with extended_axes(axes):
        is_bound = any([name == axis for axis, _ in axis_sizes()])
        return is_bound and name in _named(rules, list(map(aval_of, values)))


def _drawing(eqn: JaxEquation) -> JaxProgram | None:
    return _of_avals([v.aval for v in eqn.invars], **eqn.params).drawing


def _program(eqn: JaxEquation) -> JaxProgram:
    return _program_of([v.aval for v in eqn.invars], **eqn.params)


def _program_of(avals: _Avals, rules: CallRules, axes: Axes, roll: bool) -> JaxProgram:
    with extended_axes(axes):
        return _make_program(rules, avals)[0]


define_primitive(
    call_p,
    _run,
    lambda *avals, **params: _of_avals(avals, **params).avals,
    effects=lambda *avals, **params: axis_effects(_of_avals(avals, **params).axes),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    traced=_run_compiled,
)
call_p.drawing, call_p.program = _drawing, _program
