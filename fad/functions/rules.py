"""Rules: how one call of a custom operation is evaluated and differentiated; missing ones derived.

NOTE [rules are closed]

    F = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0 * g)  # not the derivative of the body
    assert fad.grad(lambda v: fad.vmap(F.apply)(v).sum())(array)[0] == 7.0
    assert fad.jvp(fad.vmap(F.apply), (array,), (array,))[1][0] == 7.0 * array[0]
    assert jax.vmap(jax.grad(F.apply))(array)[0] == 7.0

A `CallRules` says how one call is evaluated, pushed forward and pulled back. What a user wrote
(`UserRules`, `JaxRules`) is one kind; the others (`fad.functions.derived_rules`) are made from it and are
CallRules again:

* `BatchedRules`, the call under vmap: the user's vmap rule, or the body run on batched values; it
  pulls back by the user's vjp, batched.
* `DerivativeRules`, the derivative of the call as a function of (inputs, outputs, directions). With
  tangents it evaluates as the user's jvp, and in the tangents it transposes as the user's vjp; with
  derivatives along a curve it evaluates as the user's jet. In everything else it is differentiated like
  any body.

So every order of grad, jvp and vmap reaches the user's rules, under fad's levels and under native
JAX alike, which bind the same objects. All methods work on flat lists of values of any level.

NOTE [missing rules]

    F = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0 * g)
    G = function(forward=lambda x: x * 2.0, jvp=lambda ctx, t: 7.0 * t)
    assert fad.jvp(F.apply, (1.0,), (1.0,))[1] == fad.grad(G.apply)(1.0) == 7.0
    H = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0 * fad.stop_gradient(g))
    fad.jvp(H.apply, (1.0,), (1.0,))  # raises GradientError

A rule that the user did not write is derived from those that are there: jvp from vjp by
transposing twice (the pullback is linear in the cotangent, at which it is differentiated does not
matter), vjp from jvp by transposing, both from the forward body by differentiating it. A jet rule of
order 1 is a jvp rule. How rules are transposed is in `fad.functions.transposed_rules`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from fad.core.avals import aval_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import refer_weakly
from fad.core.level import restores_modes, state
from fad.core.masked import select, spread
from fad.core.primitive import Primitive
from fad.core.types import Aval, Dims, MaybeValue, Operand, Operation, Outputs, Value
from fad.functions.context import Context, VmapInfo
from fad.functions.definitions import FunctionClass
from fad.functions.templates import Template
from fad.levels.jvp import JvpLevel
from fad.tape.engine import pull_back
from fad.tape.recorder import GradLevel
from fad.tape.saved import allow_mutation_on_saved_tensors

Values: TypeAlias = Sequence[
    Any
]  # inputs or outputs of a call, of any level; None: no rule reads it
Needs: TypeAlias = Sequence[bool] | None  # of which inputs a gradient may be wanted
Grads: TypeAlias = list[MaybeValue]
# For each input or output its tangent; or with an order, a list of its derivatives along a curve.
Directions: TypeAlias = Sequence[Any]
Pushed: TypeAlias = list[Any]  # those of outputs
# A body, run: its array outputs, and the structure around them.
Body: TypeAlias = Callable[[Values], tuple[list[Value], Template]]


@dataclasses.dataclass(slots=True)
class Saved:
    """What one call saves for its rules.

    ``values`` and ``outs`` are its inputs and outputs, at the level where a rule is to run; None
    where no rule reads them. ``extras`` are other arrays that setup kept, and ``notes`` is the rest
    of what it kept, in a form that is private to the rules.
    ``closed``: nothing was kept but inputs, outputs and what has no derivative, so that the same
    notes are valid at any level of the call.
    ``plain``: the call gave one array with a derivative, without marks, and this is what its vjp reads.
    ``args``: on the tape, the Tensors that ``values`` are the values of, for their places in the graph.
    """

    values: Values
    outs: Values
    template: Template
    in_avals: Sequence[Aval]
    out_avals: Sequence[Aval]
    notes: Any = None
    extras: Values = ()
    closed: bool = True
    args: Values = ()
    plain: bool = False

    def at(self, values: Values, outs: Values, extras: Values) -> Saved:
        """The same for the call at another level."""
        avals = self.in_avals, self.out_avals
        return Saved(values, outs, self.template, *avals, self.notes, extras, self.closed)


# What `CallRules.run` gives: outputs, their structure, and what was saved for the rules, if it was.
Outcome: TypeAlias = tuple[list[Any], Template, Saved | None]


def avals_of(values: Values) -> list[Any]:
    """The avals of ``values``, None for None."""
    return [None if v is None else aval_of(v) for v in values]


class CallRules:
    """How one call is evaluated and differentiated; see NOTE [rules are closed].

    ``values`` are the call's array inputs. Tangents and cotangents of None are zero.
    """

    def __init_subclass__(cls) -> None:
        refer_weakly(
            cls
        )  # they refer to the Function, which may be a class that is made anew in each step

    name: str
    separates_outputs = False  # for hooks, each output is that of a node of its own
    solved = 0  # so many of the first inputs are found from the others, by which alone it is differentiated

    @property
    def function(self) -> FunctionClass | None:
        """The Function class whose call this is, batched or not; None for another operation."""
        return None

    @property
    def has_jet(self) -> bool:
        """Whether there is a rule of the user's for `jet`; if not, it is derived from the tangents."""
        return False

    @property
    def are_of_the_body(self) -> bool:
        """Whether all derivatives are those of the body, as the user wrote no rule for them."""
        return False

    @property
    def likeness(self) -> Hashable:
        """Calls whose programs are equal have equal derivatives, if this is equal too; None: unknown."""
        return None

    @property
    def has_transpose(self) -> bool:
        """Whether its pullback, where it is linear in inputs, is by a rule that is not derived."""
        return not self.are_of_the_body

    @property
    def direct(self) -> Body | None:
        """`forward`, if it may be differentiated in all of its values, in place of the call; else None."""
        return None

    @property
    def is_traceable(self) -> bool:
        """Whether the pullback may be part of a compiled backward pass."""
        return False

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        """Evaluate: the array outputs, and the structure around them."""
        raise NotImplementedError

    def run(self, values: Values, needs: Needs = None) -> Outcome:
        """`forward` and, where it costs little to have both, `setup`."""
        return (*self.forward(values), None)

    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        """What the rules need, from inputs and outputs: these, unless they say otherwise.

        ``needs`` says of which inputs a gradient may be wanted; None is all that can have one.
        """
        return Saved(values, outs, template, avals_of(values), avals_of(outs))

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        """``saved`` for the call with these inputs and outputs, without what `pullback` does not read."""
        return saved.at(values, [None] * len(outs), saved.extras)

    def saved_for_backward(self, saved: Saved) -> Sequence[object] | None:
        """What the call saved by ``ctx.save_for_backward``, a `Ref` for each array; None: unknown."""
        return None

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        """Gradients of the inputs (those that ``need`` says; others may be None)."""
        raise NotImplementedError

    def context(self, saved: Saved, need: Sequence[bool]) -> Context:
        """The ctx that a vjp rule of the user's reads.

        Raises:
            AttributeError: no rule of the user's reads one.
        """
        raise AttributeError(f"{self.name}: this call has no ctx to show")

    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        """Directions of the outputs, from those of the inputs; None is zero.

        Arguments:
            directions: the tangent of each input; with an order, a list of its derivatives along a curve, of
                which some may be None.
            order: how many derivatives there are. Only for rules that `has_jet`.
        """
        raise NotImplementedError

    def batch(
        self, values: Values, dims: Dims, info: VmapInfo
    ) -> tuple[list[Value], Template] | None:
        """Outputs batched along dimension 0, by a vmap rule of the user's; None if there is none."""
        return None

    def bodies(self) -> list[Callable[..., object]]:
        """The user's code that the rules run, for messages."""
        return []


@dataclasses.dataclass(frozen=True, slots=True)
class SameCallRules(CallRules):
    """Rules for the same call as those of ``base``, in another form."""

    base: CallRules

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.base.name

    @property
    def separates_outputs(self) -> bool:  # type: ignore[override]
        return self.base.separates_outputs

    @property
    def function(self) -> FunctionClass | None:
        return self.base.function

    @property
    def is_traceable(self) -> bool:
        return self.base.is_traceable

    def bodies(self) -> list[Callable[..., object]]:
        return self.base.bodies()


# Deriving one rule from another

DERIVED = "a Function whose rule is derived"


class DerivingGradLevel(GradLevel):
    """A grad level around the body of a rule.

    ``writes``: the body writes to Tensors of its own.
    """

    __slots__ = ("writes",)

    runs_again = DERIVED
    deriving = True

    def __init__(self) -> None:
        super().__init__()
        self.writes = False

    def note_write(self) -> None:
        self.writes = True


class DerivingJvpLevel(JvpLevel):
    """A jvp level around the body of a rule.

    NOTE [derivatives of derivatives]

        runs = []
        rule = lambda ctx, t: runs.append(t) or F.apply(ctx.saved_tensors[0]) * t
        keep = lambda ctx, inputs, output: ctx.save_for_forward(*inputs)
        F = function(forward=fnp.exp, setup_context=keep, jvp=rule)
        derivative = lambda f: lambda x: fad.jvp(f, (x,), (1.0,))[1]
        derivative(derivative(derivative(derivative(F.apply))))(1.0)
        assert len(runs) == 40  # not 51; for the sixth 364, not 876

    The derivative of a call is an operation, through which a reverse mode around pulls back by the user's
    vjp. Its derivative is one again, and so on: of the n-th, the rule runs in n levels of this kind. A rule
    that calls its own Function would bind all lower derivatives in each of them again. So where nothing is
    recorded, a derivative in such a level is no operation: its body runs there.
    """

    __slots__ = ()

    runs_again = DERIVED
    deriving = True

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        if type(op) is not Primitive and hasattr(op, "directly") and self.unwrapped(args)[2]:
            outs = op.directly(args)
            if outs is not None:
                return tuple([self.lift(o) for o in outs])
        return super().evaluate(op, args)


@restores_modes
def pull_through(
    f: Callable[[Values], tuple[list[Any], object]],
    values: Values,
    cotangents: Values,
    need: Sequence[bool],
    kind: type[GradLevel] = DerivingGradLevel,
) -> Grads:
    """Gradients of a body, by running it in a grad level of its own.

    A body that writes runs once more, and may write to what is saved: from outside it is one operation.
    """
    mask = [n and is_inexact(v.dtype) for v, n in zip(values, need, strict=True)]
    if not any(mask):
        return [None] * len(mask)
    with kind() as level:
        inside = [level.variable(v) if m else v for v, m in zip(values, mask, strict=True)]
        outs, _ = f(inside)
        unseen = isinstance(level, DerivingGradLevel) and level.writes and not state.saved_hooks
        if not unseen:
            return spread(mask, pull_back(outs, cotangents, select(mask, inside)))
    with allow_mutation_on_saved_tensors():
        return pull_through(f, values, cotangents, need, kind)


@restores_modes
def push_through(
    f: Callable[[Values], tuple[list[Any], object]],
    values: Values,
    tangents: Values,
    kind: type[JvpLevel] = DerivingJvpLevel,
) -> Grads:
    """Tangents of a body, by running it in a jvp level of its own."""
    with kind() as level:
        duals = [
            v if t is None else level.dual(v, t) for v, t in zip(values, tangents, strict=True)
        ]
        outs, _ = f(duals)
        return [level.unpack(o)[1] for o in outs]
