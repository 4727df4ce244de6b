"""Rules made of rules: transposes, a call under vmap, derivatives of a call; see NOTE [rules are closed]."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeGuard

import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.dataflow import DROPPED, RECORDED, Dataflow
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import ClosedJaxpr, called, run_jaxpr, with_parameters, zeros
from fad.core.jaxprs import inner_jaxprs, select, spread, trace, with_programs
from fad.core.level import Event, LanesLevel, bind, map_tensors, outlived, restores_modes, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom, new_tensor
from fad.core.types import (
    Array,
    Aval,
    Dims,
    DType,
    JaxBody,
    JaxEquation,
    JaxProgram,
    Mask,
    MaybeValue,
    Operand,
    Operation,
    Outputs,
    Value,
)
from fad.errors import FadError, GradientError
from fad.errors.advice import AS_RECORDED
from fad.functions.context import Template, VmapInfo, split
from fad.functions.rules import (
    CallRules,
    DerivingGradLevel,
    Directions,
    Grads,
    Needs,
    Outcome,
    Pushed,
    SameCallRules,
    Saved,
    Values,
    avals_of,
    of_base,
    pull_through,
    push_through,
)
from fad.tape.engine import pull_back
from fad.tape.graph import Node, gradient_edge
from fad.tape.recorder import GradLevel, JvpLevel
from fad.tape.saved import allow_mutation_on_saved_tensors
from fad.tape.vmap import BatchLevel

# Programs that are transposed: the calls of Functions in them, on values in which they are linear.
#
# A Primitive may call Functions in its program: so do a compiled rule (``jax_rules``), `jit` and the loops.
# Where it is recorded in the transposition of a rule, its calls on values in which it is linear become
# linear calls; see NOTE [linear calls]. The others keep their rules, for derivatives of higher order.


def with_linear_calls(primitive: Primitive, mask: Mask, args: Sequence[Operand]) -> Primitive:
    """``primitive``, which is linear in the masked arguments, with the calls in it that depend on these as
    linear calls; itself where there are none.
    """
    if not primitive.jit or primitive.to_vjp is not primitive.flat:  # it has rules of its own
        return primitive
    derive = functools.partial(_with_linear_calls, primitive)
    return primitive.kept("linear calls", derive, mask, tuple(map(aval_of, args)))


def _with_linear_calls(primitive: Primitive, mask: Mask, avals: Sequence[Aval]) -> Primitive:
    flat = primitive.flat
    if not primitive.collective and not _Linear().of(trace(flat, avals)[0], mask):
        return primitive

    def linear(*values: Array) -> Outputs:
        closed, shape = trace(flat, map(aval_of, values))
        closed = ClosedJaxpr(_unshared(closed.jaxpr), closed.consts)
        jaxpr = _replaced(_Linear().of(closed, mask), closed.jaxpr)
        out = run_jaxpr(ClosedJaxpr(jaxpr, closed.consts), *values)
        return tuple(out) if type(shape) is tuple else out[0]

    shared = primitive.shared is not None
    made = Primitive(primitive.name, linear, collective=primitive.collective, shared=shared)
    made.lineage, made.paths = primitive.lineage, primitive.paths
    made.dependence = primitive.dependence
    made.primals, made.calls_host = primitive.primals, primitive.calls_host
    return made


def _unshared(jaxpr: JaxBody) -> JaxBody:
    """The same program, in which no two calls have the same equations: they may be of different values."""
    return jaxpr.replace(eqns=[with_programs(eqn.replace(), _unshared) for eqn in jaxpr.eqns])


def _replaced(calls: Mapping[int, Mask], jaxpr: JaxBody) -> JaxBody:
    """A program in which these calls, by the ids of their equations, are linear in the masked inputs."""
    inside = functools.partial(_replaced, calls)
    eqns = [
        with_parameters(eqn, rules=linear_call(eqn.params["rules"], calls[id(eqn)]))
        if id(eqn) in calls
        else with_programs(eqn, inside)
        for eqn in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=eqns)


class _Linear(Dataflow[bool]):
    """Which values depend on what a program is linear in.

    ``calls``: of the calls of Functions that get such values, which inputs these are, by the ids of their
    equations.
    """

    def __init__(self) -> None:
        self.calls: dict[int, Mask] = {}

    def of(self, program: JaxProgram, mask: Mask) -> Mapping[int, Mask]:
        """The calls in a program that is linear in its masked inputs."""
        self.results(program, mask)
        return self.calls

    def constant(self, value: object) -> bool:
        return False

    def union(self, dependent: Sequence[bool]) -> bool:
        return any(dependent)

    def equation(self, eqn: JaxEquation, dependent: list[bool]) -> list[bool]:
        if not any(dependent):
            return [False] * len(eqn.outvars)
        if eqn.primitive.name == "fad_call":  # in loops, each pass finds more
            self.calls[id(eqn)] = tuple(dependent)
        closed = called(eqn)
        if closed is not None:
            return self.results(closed, dependent[len(dependent) - len(closed.jaxpr.invars) :])
        results = self.inside(eqn, dependent)
        if results is not None:
            return results
        for inner in inner_jaxprs(eqn):
            count = len(inner.invars)
            self.results(inner, dependent if count == len(dependent) else [True] * count)
        return [True] * len(eqn.outvars)


# A derived rule: the transpose of a rule that the user wrote.
#
# NOTE [what a rule drops]
#
#     def vjp(ctx, g):
#         with fad.no_grad():
#             g[0] = 0.0  # the rule is right: g is its own
#         return g
#
#     F = function(forward=lambda x: fnp.concatenate([fnp.zeros(1), x[1:]]), vjp=vjp)
#     assert fad.grad(lambda x: F.apply(x).sum())(array)[0] == 0.0
#     fad.jvp(F.apply, (array,), (array,))  # raises GradientError; what is recorded has array for transpose
#
# A rule is transposed by a backward pass through its graph. So every way in which the result depends on the
# cotangent (or tangent) must be in the graph. Values computed under ``no_grad`` or by ``detach`` are not in
# it, here and in compiled code, and a write may give a Tensor a value that does not belong to its history.
# All of these are usual beside the result: masks, logs, checks. So the level at which a rule is transposed
# notes for each of its values whether it depends on the cotangent in a way that its history does not show
# (``aux`` says which), operation by operation, just as its recorder notes whether it depends on it at all.
# If the result does, no rule is derived.
#
# A value that becomes a Python number is out of sight. If such a number was read, the rule runs once more,
# at another cotangent: its result must be what its graph predicts.
#
# A rule is transposed near a cotangent of zero, not at it: it is linear, so that any will do, but it may
# leave work out where it is given zeros.
#
# NOTE [linear calls]
#
#     F = function(forward=lambda x: x * 2.0, jvp=lambda ctx, t: 7.0 * F.apply(t))
#     assert fad.grad(F.apply)(1.0) == jax.grad(F.apply)(1.0) == 14.0
#     G = function(forward=lambda x: x * 2.0, jvp=lambda ctx, t: 7.0 * fad.jit(G.apply)(t))
#     assert fad.grad(G.apply)(1.0) == 14.0
#
# To transpose this jvp rule is to transpose a call of the same Function. By a vjp that is derived from the
# rule, that would have no end. But in a rule that is transposed, a call on values that depend on its
# variables is linear in those values: it needs no derivative, but a transpose, which is the transpose of
# its body (`LinearRules`), as for JAX's ``custom_jvp``. A call with a vjp rule uses that. Calls in compiled
# code are replaced there (`with_linear_calls`). As with a rule, no part of the body may be dropped. Where
# the body cannot be transposed, the jvp rule of that call is transposed, if it is not being transposed
# already.

# By what a value may depend on the variables, beside its history.
UNRECORDED = "what is computed under no_grad"
DETACHED = "a detached value (detach, .data, stop_gradient)"
WRITTEN = "a write under no_grad or by .data"
WITHOUT_DERIVATIVE = "an output that a Function marks as non-differentiable"
READ = "a number that it reads (item(), float(x), numpy(), ...)"


class TransposingLevel(DerivingGradLevel):
    """A grad level around a rule that is transposed; see NOTE [what a rule drops] and NOTE [linear calls].

    ``rules``: those of the call. ``rule``: which rule of it; that may be its forward.
    ``aux`` of its Tensors: by what they depend on the variables beside their history; None if by nothing.
    ``read``: a number that depends on the variables was read.
    """

    __slots__ = ("leads", "read", "rule", "rules")

    def __init__(self, rules: CallRules, rule: str) -> None:
        super().__init__()
        self.rules = rules
        self.rule = rule
        self.read = False
        self.leads: dict[Node, bool] = {}  # to a variable

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.leads.clear()  # nodes refer to their level

    def variable(self, value: Operand) -> Tensor:
        t = super().variable(value)
        self.leads[gradient_edge(t)[0]] = True
        return t

    def depends(self, x: object) -> bool:
        """Whether the history of ``x`` leads to a variable; it may begin in leaves of the rule's own."""
        if not self._is_recorded(x):
            return False
        leads, first = self.leads, gradient_edge(x)[0]
        todo = [first]
        while todo:
            nexts = [edge[0] for edge in todo[-1].edges if edge is not None]
            unknown = [node for node in nexts if node not in leads]
            todo.extend(unknown)
            if not unknown:
                node = todo.pop()
                leads[node] = leads.get(node, False) or any([leads[n] for n in nexts])
        return leads[first]

    def _is_recorded(self, x: object) -> TypeGuard[Tensor]:
        return isinstance(x, Tensor) and x.level is self and x.requires_grad

    def dropped(self, x: object) -> str | None:
        """By what ``x`` depends on the variables, beside its history."""
        return x.aux if isinstance(x, Tensor) and x.level is self else None

    def process(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        causes = list(map(self.dropped, args))
        linear = tuple(map(self.depends, args))
        bits = [DROPPED if c else RECORDED if r else 0 for c, r in zip(causes, linear, strict=True)]
        if not any(bits) or op.expands:
            return super().process(op, args)
        if op.primitive is not None:
            op = with_linear_calls(op.primitive, linear, args)
        else:
            body = op.body("transpose")
            if body is not None:
                return map_tensors(self.lift, body(args))
            op, differentiated = op.linear_in(linear)
            causes = [c if d else None for c, d in zip(causes, differentiated, strict=True)]
            bits = [b if d else 0 for b, d in zip(bits, differentiated, strict=True)]
        out = super().process(op, args)
        dropped = self._dropped_outputs(op, args, bits, out)
        if any(dropped):
            cause = next(filter(None, causes), None) or self._cause(op)
            for t, drops in zip(out if type(out) is tuple else (out,), dropped, strict=True):
                if drops:
                    t._aux = cause
        return out

    def _dropped_outputs(
        self, op: Operation, args: Sequence[Operand], bits: Sequence[int], out: Outputs
    ) -> list[bool]:
        """For each output, whether it depends by more than its history, by that of its arguments."""
        outs = out if type(out) is tuple else (out,)
        out_bits = None if op.primitive is None else op.primitive.flows(bits, args)
        if out_bits is None:
            every = functools.reduce(operator.or_, bits)
            out_bits = [every if is_inexact(o.dtype) else 0 for o in outs]
        return [
            bool(b & DROPPED or (b and not o.requires_grad))
            for b, o in zip(out_bits, outs, strict=True)
        ]

    def _cause(self, op: Operation) -> str:
        if self.id <= state.watermark:
            return UNRECORDED
        if not op.runs_python:
            return f"what {op.name} computes under no_grad, or detaches"
        return WITHOUT_DERIVATIVE

    def constant(self, t: Tensor, stop: Callable[[Operand], Value]) -> Tensor:
        stopped = super().constant(t, stop)
        stopped._aux = t.aux or (DETACHED if self.depends(t) else None)
        return stopped

    def note(self, event: Event, t: Tensor | None = None) -> None:
        super().note(event, t)
        if event != "unrecorded" or t is None:
            return
        history = new_tensor(t._value, self)  # an alias is only now brought up to date
        history._requires_grad, history._node = t._requires_grad, t._node
        if self.depends(history):
            t._aux = WRITTEN

    def with_primal(
        self, value: Operand, aux: object, primal: Operand
    ) -> tuple[Operand, object, Operand]:
        _, _, below = super().with_primal(value, aux, primal)
        return value, self.dropped(primal), below

    def readable(self, t: Tensor, what: str = "") -> Operand:
        self.read = self.read or bool(t.aux) or self.depends(t)
        return super().readable(t, what)


# With more derivations of one rule inside of each other than this, the rule is derived from itself.
_DEEPEST = 32


def _must_end(transposed: Callable[..., Grads]) -> Callable[..., Grads]:
    """A decorator: where a rule can only be derived from itself, that is the error."""

    @functools.wraps(transposed)
    def checked(rules: CallRules, *args: object) -> Grads:
        *_, source, missing, _variable = args
        around: list[object] = [(level.rules, level.rule) for level in _transposing()]
        try:
            if around.count((rules, source)) < _DEEPEST:
                return transposed(rules, *args)
        except RecursionError:
            pass
        raise GradientError(
            f"{rules.name} has no {missing} rule, and none can be derived from {rules.name}.{source}, which "
            f"needs that {missing}, or itself, without end. Write a {missing} rule"
        ) from None

    return checked


def _transposing() -> list[TransposingLevel]:
    """The levels of rules that are being transposed, outermost first."""
    return [level for level in state.levels if isinstance(level, TransposingLevel)]


def transpose_pushforward(
    rules: CallRules, saved: Saved, cotangents: Values, need: Sequence[bool], source: str
) -> Grads:
    """The pullback, from the pushforward, by the rule ``source``: transpose it at any tangent."""
    push = functools.partial(rules.pushforward, saved)
    return _transposed(rules, push, saved.in_avals, need, cotangents, source, "vjp", "tangent")


def transpose_pullback(rules: CallRules, saved: Saved, tangents: Values, source: str) -> Grads:
    """The pushforward, from the pullback, by the rule ``source``: see NOTE [missing rules]."""
    pull = functools.partial(rules.pullback, saved, need=[t is not None for t in tangents])
    every = [True] * len(saved.out_avals)
    return _transposed(rules, pull, saved.out_avals, every, tangents, source, "jvp", "cotangent")


@_must_end
@restores_modes
def _transposed(
    rules: CallRules,
    run: Callable[[Grads], Grads],
    avals: Sequence[Aval],
    need: Sequence[bool],
    cotangents: Values,
    source: str,
    missing: str,
    variable: str,
) -> Grads:
    """The transpose of ``run``, which is linear, of arguments with these avals.

    Raises:
        GradientError: a result depends on the arguments in a way that is not in its graph.
    """
    mask = [n and is_inexact(a.dtype) for a, n in zip(avals, need, strict=True)]
    if not any(mask):
        return [None] * len(mask)
    checked: Values = ()
    with TransposingLevel(rules, source) as level:
        variables = [level.variable(zeros(a) + _near(a)) for a in select(mask, avals)]
        results = run(spread(mask, variables))
        wanted: Values = [
            None if g is None else outlived(x) for x, g in zip(results, cotangents, strict=True)
        ]
        cause = next(filter(None, map(level.dropped, wanted)), None)
        if cause is None and level.read:
            weights = [None if x is None else _probe(x.shape, x.dtype) for x in wanted]
            checked = pull_back(wanted, weights, variables, keep_graph=True)
        grads = [] if cause is not None else pull_back(wanted, cotangents, variables)
    if checked and not _agree(run, mask, avals, checked, weights):
        cause = READ
    if cause is not None:
        raise GradientError(
            f"{rules.name} has no {missing} rule, and none can be derived from {rules.name}.{source}: its "
            f"result depends on the {variable} by {cause}, which is not recorded. Compute it with recorded "
            f"operations ({AS_RECORDED}), or write a {missing} rule"
        )
    return spread(mask, grads)


def _near(aval: Aval) -> float:
    """The size of a cotangent near zero, for which a rule takes the branches that it takes for small ones."""
    return float(jnp.finfo(aval.dtype).eps)


# Where a rule has read numbers


def _probe(shape: Sequence[int], dtype: DType) -> Array:
    """Values that depend on the shape alone, of which no two are equal or zero."""
    angles = 1.0 + np.arange(int(np.prod(shape))).reshape(shape)
    values = np.cos(angles)
    return jnp.asarray(
        values + 1j * np.sin(angles) if jnp.issubdtype(dtype, np.complexfloating) else values, dtype
    )


def _agree(
    run: Callable[[Grads], Grads],
    mask: Sequence[bool],
    avals: Sequence[Aval],
    pulled: Values,
    weights: Values,
) -> bool:
    """Whether a linear ``run`` gives what its graph says, through which ``weights`` were ``pulled`` back."""
    points = [_probe(a.shape, a.dtype) * _near(a) for a in select(mask, avals)]
    sent = zip(weights, run(spread(mask, points)), strict=True)
    difference = scale = np.zeros(())
    for sign, pairs in ((1.0, sent), (-1.0, zip(pulled, points, strict=True))):
        for a, b in pairs:
            if a is not None and b is not None:
                product, size = [bottom(x) for x in bind(_INNER, (a, b))]
                difference = difference + sign * np.asarray(product)
                scale = scale + np.asarray(size)
    eps = max(map(_near, select(mask, avals)))
    return not np.any(np.abs(difference) > np.sqrt(eps) * scale)


def _inner(x: Array, y: Array) -> tuple[Array, Array]:
    """The real inner product, and its size if nothing cancelled."""
    return jnp.sum(jnp.real(jnp.conj(x) * y)), jnp.sum(jnp.abs(x) * jnp.abs(y))


_INNER = Primitive("inner", _inner)


# Calls on what is transposed


@dataclasses.dataclass(frozen=True, slots=True)
class ReplacedRules(SameCallRules):
    """The rules of what a level runs below itself that differentiates a call of a body in the masked inputs.

    It is the body with other programs in the place of some calls, and what is differentiated once more: see
    NOTE [calls with rules] in `fad.core.primitive`.
    """

    mask: Mask
    kind: type[GradLevel | JvpLevel]

    are_of_the_body = True

    @property
    def likeness(self) -> Hashable:  # type: ignore[override]
        likeness = self.base.likeness
        return None if likeness is None else (likeness, self.mask, self.kind)

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        with self.kind() as level:
            masked = select(self.mask, values)
            if isinstance(level, GradLevel):
                inside = list(map(level.variable, masked))
            else:  # primals do not depend on tangents
                inside = [level.dual(v, zeros(aval_of(v))) for v in masked]
            outs, template = self.base.forward(spread(self.mask, inside, values))
            return [level.value_and_aux(o)[0] for o in outs], template

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        return pull_through(self.forward, saved.values, cotangents, need, GradLevel)

    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        return push_through(self.forward, saved.values, directions, JvpLevel)


@dataclasses.dataclass(frozen=True, slots=True)
class LinearRules(SameCallRules):
    """A call that is linear in the masked ``inputs``: to these it pulls back by the transpose of its body.

    See NOTE [linear calls].
    """

    inputs: Mask

    has_transpose = True
    forward = of_base("forward")
    run = of_base("run")
    setup = of_base("setup")
    pushforward = of_base("pushforward")
    batch = of_base("batch")

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        return saved.at(values, outs, saved.extras)

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        pairs = list(zip(need, self.inputs, strict=True))
        grads = self._transpose(saved, cotangents, [n and linear for n, linear in pairs])
        others = [n and not linear for n, linear in pairs]
        if not any(others):
            return grads
        by_rule = self.base.pullback(saved, cotangents, others)
        return [
            g if linear else f for g, f, linear in zip(grads, by_rule, self.inputs, strict=True)
        ]

    def _transpose(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        def body(directions: Grads) -> list[Value]:
            pairs = zip(saved.values, directions, strict=True)
            with allow_mutation_on_saved_tensors():  # it is one operation, from outside
                return self.base.forward([v if d is None else d for v, d in pairs])[0]

        try:
            return _transposed(
                self.base, body, saved.in_avals, need, cotangents, "forward", "vjp", "tangent"
            )
        except (FadError, NotImplementedError, TypeError, ValueError) as error:
            if self._is_transposed():
                raise GradientError(
                    f"{self.name} has no vjp rule, and none can be derived from its jvp rule: there "
                    f"{self.name} is called on a tangent, so that its forward would be transposed, which "
                    f"is not possible. Write a vjp rule. ({error})"
                ) from error
        return self.base.pullback(saved, cotangents, need)

    def _is_transposed(self) -> bool:
        """Whether a rule of this Function is being transposed."""
        function = self.function
        return function is not None and any([t.rules.function is function for t in _transposing()])


def linear_call(rules: CallRules, inputs: Mask) -> CallRules:
    """The rules of the same call, where it is linear in these inputs."""
    return rules if rules.has_transpose or not any(inputs) else LinearRules(rules, inputs)


# Rules made of rules: a call under vmap, and derivatives of a call; see NOTE [rules are closed].


@dataclasses.dataclass(frozen=True, slots=True)
class DerivativeRules(CallRules):
    """The derivative of a call: from (inputs, outputs, directions of inputs) to directions of outputs.

    ``counts`` says how many directions of each input are among the operands: a tangent or none, or with an
    ``order``, for `jet`, the derivatives along a curve. ``outputs`` says which outputs have directions in the
    result: a tangent, or ``order`` derivatives. ``out_template`` is the structure of the call's outputs.

    Its one body is `forward`, and it saves all values.
    """

    is_direct = True
    has_transpose = True

    base: CallRules
    counts: tuple[int, ...]
    outputs: tuple[bool, ...]
    out_template: Template
    order: int | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.lineage[0]

    @property
    def lineage(self) -> tuple[str, ...]:
        of = self.base.lineage
        return f"{of[0]}_{'jvp' if self.order is None else 'jet'}", *of

    @property
    def point_count(self) -> int:
        """How many operands come before the directions."""
        return len(self.counts) + len(self.outputs)

    @property
    def is_linear(self) -> bool:
        """Whether it is linear in the directions."""
        return self.order is None

    solved = of_base("solved")
    are_of_the_body = of_base("are_of_the_body")

    def forward(
        self, values: Values, primal_saved: Saved | None = None
    ) -> tuple[list[Value], Template]:
        """Evaluate; ``primal_saved`` is what the call saved for its rules, if that is available."""
        n = len(self.counts)
        if primal_saved is None:
            saved = self._saved(values)
        else:
            saved = primal_saved.at(values[:n], values[n : self.point_count], primal_saved.extras)
        operands = iter(values[self.point_count :])
        each = self.order or 1
        directions: list[Any] = [
            [next(operands) if k < count else None for k in range(each)] if count else None
            for count in self.counts
        ]
        if self.is_linear:
            directions = [s and s[0] for s in directions]
        pushed = self.base.pushforward(saved, directions, self.order)
        if self.is_linear:
            pushed = [[t] for t in pushed]
        without = saved.template.marks.non_differentiable
        result = [
            zeros(a) if t is None or k in without else t
            for k, (s, a) in enumerate(zip(pushed, saved.out_avals, strict=True))
            if self.outputs[k]
            for t in s or [None] * each
        ]
        return split(tuple(result))

    def _saved(self, values: Values) -> Saved:
        """What the call saves for its rules."""
        n = len(self.counts)
        needs = list(map(bool, self.counts))
        return self.base.setup(values[:n], values[n : self.point_count], self.out_template, needs)

    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        return push_through(self.forward, saved.values, directions)

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        values, count = saved.values, self.point_count
        if not self.is_linear:
            return pull_through(self.forward, values, cotangents, need)
        grads: Grads = [None] * count
        if any(need[:count]):  # differentiate the jvp body itself
            wanted = [*need[:count], *[False] * (len(need) - count)]
            grads = pull_through(self.forward, values, cotangents, wanted)[:count]
        if not any(need[count:]):
            return [*grads, *[None] * (len(need) - count)]
        # In the tangents it is linear: the vjp of the call, from a cotangent for each of its outputs.
        inner = self._saved(values)
        without = inner.template.marks.non_differentiable
        full = spread(self.outputs, cotangents)
        full = [None if k in without else c for k, c in enumerate(full)]
        mask = list(map(bool, self.counts))
        wanted = spread(mask, need[count:], [False] * len(mask))
        pulled: Grads = [None] * len(mask)
        if any([c is not None for c in full]):
            pulled = self.base.pullback(inner, full, wanted)
        return [*grads, *select(mask, pulled)]


@dataclasses.dataclass(frozen=True, slots=True)
class _BatchedNotes:
    """What the base saved, and where the batch dimension of each of its extras is."""

    inner: Saved
    extra_dims: Dims


@dataclasses.dataclass(frozen=True, slots=True)
class BatchedRules(SameCallRules):
    """A call under vmap; outputs have the batch along dimension 0."""

    dims: Dims
    batch_size: int
    axis_name: Hashable = None
    randomness: str = "error"
    first: int = 0

    solved = of_base("solved")
    are_of_the_body = of_base("are_of_the_body")
    has_transpose = of_base("has_transpose")

    def level(self) -> BatchLevel:
        """A fresh level to run the base's bodies in."""
        return BatchLevel(self.batch_size, self.axis_name, self.randomness, self.first)

    def _inside(self, level: BatchLevel, values: Values) -> Grads:
        return [_batched(level, v, d) for v, d in zip(values, self.dims, strict=True)]

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        outs, template, _ = self._evaluate(values, lambda xs: (*self.base.forward(xs), None))
        return outs, template

    def run(self, values: Values, needs: Needs = None) -> Outcome:
        return self._evaluate(values, lambda xs: self.base.run(xs, needs))

    @restores_modes
    def _evaluate(self, values: Values, run: Callable[[Values], Outcome]) -> Outcome:
        """By the user's vmap rule, or by ``run``, the body of the base, on batched values."""
        info = VmapInfo(self.batch_size, self.randomness)
        batched = self.base.batch(values, self.dims, info)
        if batched is not None:
            return (*batched, None)
        with self.level() as level:
            outs, template, inner = run(self._inside(level, values))
            lowered = [level.unwrap(o, 0) for o in outs]
            saved = None if inner is None else self._outside(level, values, lowered, inner)
            return lowered, template, saved

    @restores_modes
    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        with self.level() as level:
            inner_outs = [_batched(level, o, 0) for o in outs]
            inner = self.base.setup(self._inside(level, values), inner_outs, template, needs)
            return self._outside(level, values, outs, inner)

    def _outside(self, level: BatchLevel, values: Values, outs: Values, inner: Saved) -> Saved:
        """What this call saves, from what the base saved inside of ``level``."""
        kept = [outlived(x) for x in inner.extras]
        has_lanes = [isinstance(x, Tensor) and x.level is level and x.aux is not None for x in kept]
        dims = tuple([0 if batched else None for batched in has_lanes])
        extras = [level.unwrap(x, d) for x, d in zip(kept, dims)]
        notes = _BatchedNotes(inner.at((), (), ()), dims)
        avals = avals_of(values), avals_of(outs)
        return Saved(values, outs, inner.template, *avals, notes, extras, inner.closed)

    def inner_saved(self, saved: Saved, level: LanesLevel) -> Saved:
        """What the base saved, as Tensors of ``level``; values and outputs are not filled in."""
        notes: _BatchedNotes = saved.notes
        pairs = zip(saved.extras, notes.extra_dims, strict=True)
        return notes.inner.at((), (), [_batched(level, x, d) for x, d in pairs])

    def _at(self, level: BatchLevel, saved: Saved) -> Saved:
        inner = self.inner_saved(saved, level)
        outs = [_batched(level, o, 0) for o in saved.outs]
        return inner.at(self._inside(level, saved.values), outs, inner.extras)

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        notes: _BatchedNotes = saved.notes
        inner = self.base.for_pullback(notes.inner.at((), (), saved.extras), values, outs)
        return dataclasses.replace(
            saved,
            values=inner.values,
            outs=inner.outs,
            notes=_BatchedNotes(inner.at((), (), ()), notes.extra_dims),
        )

    def saved_for_backward(self, saved: Saved) -> Sequence[Any] | None:
        notes: _BatchedNotes = saved.notes
        return self.base.saved_for_backward(notes.inner)

    @restores_modes
    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        with self.level() as level:
            cts = [_batched(level, c, 0) for c in cotangents]
            grads = self.base.pullback(self._at(level, saved), cts, need)
            return [
                g if g is None else level.unwrap(g, d) if d is not None else _sum_lanes(level, g)
                for g, d in zip(grads, self.dims, strict=True)
            ]

    @restores_modes
    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        with self.level() as level:
            pairs = zip(directions, self.dims, strict=True)
            inside = [trees.map_leaves(lambda t, d=d: _batched(level, t, d), x) for x, d in pairs]
            pushed = self.base.pushforward(self._at(level, saved), inside, order)
            return [trees.map_leaves(lambda t: level.unwrap(t, 0), x) for x in pushed]


_SUM_LANES = Primitive("sum", lambda x: jnp.sum(x, axis=0))


def _sum_lanes(level: BatchLevel, g: Value) -> Value:
    """The gradient of an input that all lanes share."""
    summed: Value = bind(_SUM_LANES, (level.unwrap(g, 0),))
    return summed


def _batched(level: LanesLevel, x: MaybeValue, dim: int | None) -> MaybeValue:
    """``x``, which has the batch along ``dim``, as a value inside of ``level``."""
    return x if x is None or dim is None else level.mapped(x, dim)
