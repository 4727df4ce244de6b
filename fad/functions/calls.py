"""A call of a Function: the node that records it, the operation that `bind` runs, and the fast path."""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import array_type, zeros
from fad.core.level import (
    LanesLevel,
    Level,
    RecorderLevel,
    bind,
    bodies,
    constants,
    outlived,
    state,
)
from fad.core.observation import observable
from fad.core.tensor import Tensor, bottom, new_tensor, version_of
from fad.core.types import Dims, Mask, MaybeValue, Operand, Operation, Runner, Use, Value
from fad.errors import RuleError, describe
from fad.functions import native
from fad.functions.compiled_rules import JaxRules
from fad.functions.context import INPUT, OUTPUT, SINGLE, Context, Ref, Template
from fad.functions.derived_rules import (
    BatchedRules,
    DerivativeRules,
    ReplacedRules,
    linear_call,
)
from fad.functions.rules import (
    CallRules,
    Directions,
    FunctionClass,
    Grads,
    Saved,
    Signature,
    Values,
    checked_arrays,
    noting_leaves,
    numbers_suffice,
    origin,
    without_leaves,
)
from fad.functions.user_rules import UserRules
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import remember
from fad.tape.graph import InputMetadata, Node, alias, gradient_edge
from fad.tape.recorder import ROOT, GradLevel, JvpLevel, detached
from fad.tape.saved import PackedValue, SavedTensor, SavingNode, raise_released

# The node that records a call of a Function.


class FunctionNode(SavingNode):
    """A recorded call of a Function: its vjp rule runs in the backward pass.

    ``saved`` is what the rule reads; its arrays are the ``values`` of the node. ``mask`` says which inputs
    required grad. ``slots`` are the places of the arrays among all ``outputs``: for what is none the gradient
    is None. ``lock`` is around the rule, which is Python and may keep state on ctx, and around its release.
    Each Function has a subclass of its own, as in PyTorch, and ``_forward_cls`` is the Function.
    """

    _forward_cls: ClassVar[FunctionClass | None] = None
    _kind = "function"

    __slots__ = ("avals", "lock", "mask", "outputs", "rules", "saved", "slots")

    def __init__(
        self, level: Level, rules: CallRules, args: Values, mask: list[bool], saved: Saved
    ) -> None:
        edges: list[tuple[Node, int] | None] = []
        kept: list[Any] = []
        for a, m, v in zip(args, mask, saved.values):
            edges.append(gradient_edge(a) if m else None)
            kept.append(None if v is None else a)
        self._start(level, edges)
        self.rules = rules
        self.mask = mask
        self.slots = saved.template.slots
        self.outputs = len(saved.template.leaves)
        self.avals = saved.out_avals
        self.lock = threading.RLock()
        self.saved: Saved | None = saved
        self._keep(kept)
        if level is ROOT:
            saved.args = kept

    @property
    def values(self) -> list[Any] | None:
        saved = self.saved
        return None if saved is None else [*saved.values, *saved.outs, *saved.extras]

    @values.setter
    def values(self, values: list[Any] | None) -> None:
        assert self.saved is not None and values is not None
        self.saved = _with_values(self.saved, values)

    @property
    def kept_outputs(self) -> Sequence[int]:  # type: ignore[override]
        return self.slots

    def of_hooks(self) -> Collection[int] | None:
        assert self.saved is not None
        refs = self.rules.saved_for_backward(self.saved)
        return None if refs is None else {self._number(x) for x in refs if type(x) is Ref}

    def checks_output(self, k: int) -> bool:
        return k in (self.of_hooks() or ())

    def _number(self, x: Ref) -> int:
        """Which of the values it stands for."""
        inputs, outputs = len(self.mask), len(self.avals)
        return x.at + {INPUT: 0, OUTPUT: inputs}.get(x.kind, inputs + outputs)

    @property
    def _raw_saved_tensors(self) -> tuple[SavedTensor, ...]:
        """What the body saved for backward, each for hooks of its own.

        Raises:
            GradientError: a backward pass has freed it.
        """
        if self.saved is None:
            raise_released(self)
        refs = self.rules.saved_for_backward(self.saved) or ()
        return tuple([SavedTensor(self, functools.partial(self._raw, x)) for x in refs])

    def _raw(self, x: object) -> object:
        return self.packed_value(self._number(x)) if type(x) is Ref else x

    def packed_value(self, k: int) -> object:
        with self.lock:
            return super().packed_value(k)

    def name(self) -> str:
        return f"{self.rules.name}Backward"

    @property
    def is_traceable(self) -> bool:  # type: ignore[override]
        function = origin(self.rules).function
        return function is not None and (function.is_traceable or function.jax_rules)

    @property
    def num_inputs(self) -> int:
        return self.outputs

    def metadata_of_inputs(self) -> list[InputMetadata]:
        where = self._own_sharding()
        metadata = [InputMetadata((), np.dtype(np.float32), where)] * self.outputs
        for s, a in zip(self.slots, self.avals, strict=True):
            metadata[s] = InputMetadata(a.shape, a.dtype, where)
        return metadata

    def run(self, cotangents: Values, need: tuple[bool, ...], create_graph: bool) -> Grads:
        with self.lock:
            saved = self._opened(create_graph)
            of_arrays = [cotangents[s] for s in self.slots]
            wanted = [n and m for n, m in zip(need, self.mask, strict=True)]
            if create_graph or self.level is ROOT:
                grads = self.rules.pullback(saved, of_arrays, wanted)
            else:  # levels below record
                with noting_leaves() as leaves:
                    grads = self.rules.pullback(saved, of_arrays, wanted)
                grads = [without_leaves(g, leaves) for g in grads]
            if create_graph:
                return grads
            return [None if g is None else self.level.detach(outlived(g)) for g in grads]

    def _opened(self, create_graph: bool) -> Saved:
        """What was saved, unpacked, and with ``create_graph`` with its history."""
        values, kept = self.opened(create_graph), self.saved
        assert kept is not None
        if not (create_graph or self.packed):
            return kept
        saved = _with_values(kept, values)
        if create_graph:
            return self._tracked(saved)
        if self.level is ROOT:
            places = zip(kept.values, self.tensors, strict=True)
            saved.args = [v if type(v) is PackedValue else t for v, t in places]
        return saved

    @property
    def saved_tensors(self) -> tuple[MaybeValue, ...]:
        """What the call saved for backward, with its history.

        Raises:
            GradientError: a backward pass has freed it.
        """
        return self._context().saved_tensors

    def __getattr__(self, name: str) -> Any:
        """``needs_input_grad``, ``saved_data``, and what the body set on its ctx."""
        if name.startswith("_") or self.saved is None:
            raise AttributeError(f"{self.name()} has no attribute {name!r}")
        return getattr(self._context(), name)

    def _context(self) -> Context:
        """The ctx of the call, as the vjp rule gets it where the pass is recorded."""
        with self.lock:
            return self.rules.context(self._opened(True), self.mask)

    def _tracked(self, saved: Saved) -> Saved:
        """``saved``, whose inputs and outputs have their history, with that of other values."""
        if saved.closed:
            return saved
        again = self.rules.setup(saved.values, saved.outs, saved.template, self.mask)
        if len(again.extras) != len(saved.extras):
            return again
        extras = list(saved.extras)
        for k, (old, new) in enumerate(zip(saved.extras, again.extras, strict=True)):
            if isinstance(new, Tensor) and new.level is self.level and new.requires_grad:
                extras[k] = t = alias(self.level.lift(old))
                t._requires_grad, (t._node, t._output_nr) = True, gradient_edge(new)
        return saved.at(saved.values, saved.outs, extras)

    def release_variables(self) -> None:
        with self.lock:
            self.saved = None
            self.tensors = []
            self.versions = None


def _with_values(saved: Saved, values: Values) -> Saved:
    """``saved`` with other arrays, in the order of a node's values."""
    first, last = len(saved.values), len(saved.values) + len(saved.outs)
    return saved.at(values[:first], values[first:last], values[last:])


# A call of `CallRules` as an operation that `bind` can run.
#
# NOTE [one run of the body]
#
#     runs = []
#     body = lambda ctx, x: runs.append(x) or ctx.save_for_backward(fnp.cos(x)) or fnp.sin(x)
#     F = function(forward=body, vjp=lambda ctx, g: g * ctx.saved_tensors[0])
#     assert fad.vmap(fad.grad(F.apply))(array)[0] == fnp.cos(array[0]) and len(runs) == 1
#     assert fad.grad(fad.grad(F.apply))(0.5) == -fnp.sin(0.5)  # cos(x) has its history, by a second run
#
# A body runs where its call arrives at level 0: on arrays, as Tensors that nothing tracks; so what it
# keeps on ctx is known once, there. Each level that the call came through transforms it:
#
# * If it kept inputs, outputs, and values that have no derivative, the notes are valid at every level.
# * Other arrays (intermediate values) are known as numbers alone. They suffice for a level below which
#   nothing is differentiated: the eager graph, ``grad``, ``vmap(grad)``. Any other level, and one in a
#   checkpointed body, runs setup (in the one-method style, the body) again, on values of its own.
# * Where the backward pass is itself recorded, setup runs again on tracked values, which gives an
#   intermediate value its history, and so the right second derivative. Its number stays the one that
#   was saved: a body that draws a dropout mask is differentiated with the mask that it drew.


class Ran:
    """What a call left when it ran.

    ``template`` is the structure of its outputs. ``saved`` is what it saved for its rules, at the level of
    its arguments; None where that is not known.
    """

    __slots__ = ("saved", "template")

    template: Template
    saved: Saved | None


@dataclasses.dataclass(eq=False, slots=True)
class FunctionOp(Operation):
    """One call of `CallRules`. It is not changed: where something is added on the way down, another is made.

    Arguments:
        rules: what it runs.
        needs: of which inputs a gradient or tangent may be needed; None if no level has said so.
        primal_saved: what was saved by the call of which this one is the derivative, if that is available.
        first_run: where the body has run already, its array outputs and their structure; else None.
        ran: gets what running it leaves, see `Ran`.
        recorded: the rules by which it is pulled back, if these are others; for the level that records it.
    """

    rules: CallRules
    needs: list[bool] | None = None
    primal_saved: Saved | None = None
    first_run: tuple[Values, Template] | None = None
    ran: Ran = dataclasses.field(default_factory=Ran)
    recorded: CallRules | None = None

    runs_python = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.rules.name

    @property
    def lineage(self) -> tuple[str, ...]:
        return self.rules.lineage

    @property
    def has_jet(self) -> bool:  # type: ignore[override]
        return self.rules.has_jet

    def below(self, mask: Sequence[bool], kind: type[GradLevel | JvpLevel] | None) -> FunctionOp:
        """What a level runs below itself: gradients or tangents in these inputs may be needed there too.

        ``kind`` of level, if it differentiates the call; see `ReplacedRules`.
        """
        needs = list(mask) if self.needs is None else [m or n for m, n in zip(mask, self.needs)]
        rules = self.rules
        if rules.is_replaced and kind is not None:
            rules = ReplacedRules(rules, tuple(mask), kind)
        return dataclasses.replace(self, rules=rules, needs=needs, recorded=None)

    def body(self, use: Use = "derivative") -> Callable[[Values], tuple[Value, ...]] | None:
        rules = self.rules
        fits = {
            "value": True,
            "derivative": rules.is_direct,
            "transpose": rules.are_of_the_body,
        }
        return self._run_body if fits[use] else None

    def _run_body(self, args: Values) -> tuple[Value, ...]:
        rules, saved, ran = self.rules, self.primal_saved, self.ran
        if saved is not None and saved.closed and isinstance(rules, DerivativeRules):
            outs, ran.template = rules.forward(args, saved)
        else:
            outs, ran.template = rules.forward(args)
        ran.saved = None
        return tuple(outs)

    def linear_in(self, mask: Mask) -> tuple[FunctionOp, Mask]:
        op = dataclasses.replace(self, recorded=linear_call(self.rules, mask))
        return op, tuple([k >= self.rules.solved for k in range(len(mask))])

    def execute(self, values: Sequence[Operand]) -> tuple[Value, ...]:
        """Run on values that are no Tensors."""
        # On constants inside of a traced body: what runs does not become part of the trace.
        if bodies.traced and state.body is not None:
            with constants():
                return self.execute(values)
        rules, ran = self.rules, self.ran
        ran.saved = None
        # JAX has to see the call itself, even where the body has run already.
        if native.is_traced(values):
            outs, ran.template = native.call(rules, values)
            return tuple(outs)
        if self.first_run is not None:
            first_outs, ran.template = self.first_run
            return tuple(map(bottom, first_outs))
        with noting_leaves() as leaves:
            if self.primal_saved is not None and isinstance(rules, DerivativeRules):
                outs, ran.template = rules.forward(values, self.primal_saved)
            else:
                outs, ran.template, ran.saved = rules.run(values, self.needs)
        return tuple(checked_arrays(rules, outs, leaves))

    def jvp(self, primals: Values, tangents: Values) -> tuple[tuple[Value, ...], Values]:
        outs, pushed = self._push(primals, [() if t is None else (t,) for t in tangents])
        return outs, tuple([s and s[0] for s in pushed])

    def jet(
        self, primals: Values, series: Directions, order: int
    ) -> tuple[tuple[Value, ...], list[list[Value] | None]]:
        return self._push(primals, [s or () for s in series], order)

    def _push(
        self, primals: Values, directions: Sequence[Values], order: int | None = None
    ) -> tuple[tuple[Value, ...], list[list[Value] | None]]:
        """Outputs, and the directions of each, or None; ``directions`` has those of each input."""
        counts = tuple(map(len, directions))
        op = self.below(list(map(bool, counts)), JvpLevel)
        outs: tuple[Value, ...] = bind(op, primals)
        differentiable = self.ran.template.differentiable(outs)
        if not any(differentiable):
            return outs, [None] * len(outs)
        derivative = self._derivative(primals, counts, differentiable, order)
        operands = [*primals, *outs, *[t for s in directions for t in s]]
        pushed = iter(bind(derivative, operands))
        each = range(order or 1)
        return outs, [[next(pushed) for _ in each] if m else None for m in differentiable]

    def linear(
        self, mask: tuple[bool, ...], primals: Values, outs: Sequence[Value]
    ) -> tuple[FunctionOp, list[Value], tuple[bool, ...]]:
        # Of outputs of floating or complex dtype: zeros for one without derivative.
        inexact = tuple([is_inexact(o.dtype) for o in outs])
        return self._derivative(primals, mask, inexact), [*primals, *outs], inexact

    def _derivative(
        self,
        primals: Values,
        counts: tuple[int, ...],
        outputs: tuple[bool, ...],
        order: int | None = None,
    ) -> FunctionOp:
        """See `DerivativeRules`; it may use what the call saved, if that is valid for ``primals``."""
        rules = DerivativeRules(self.rules, counts, outputs, self.ran.template, order)
        saved = self.ran.saved
        valid = saved is not None and (saved.closed or numbers_suffice(primals))
        return FunctionOp(rules, primal_saved=saved if valid else None)

    def batch(
        self,
        values: Values,
        dims: Dims,
        level: LanesLevel,
        run: Runner | None = None,
    ) -> tuple[tuple[Value, ...], Dims]:
        # The bodies run below this level, in one of their own: they draw random numbers and name
        # axes there. A vmap inside of this one which they do not belong to is still around them.
        before = state.levels
        inside = [x for x in state.unreached if x.id > level.id]
        hidden = level.axis_name in [getattr(x, "axis_name", None) for x in inside]
        axis = None if hidden else level.axis_name
        rules = BatchedRules(
            self.rules, dims, level.batch_size, axis, level.randomness, level.first
        )
        first_run = self.first_run
        if first_run is not None:
            outs, template = first_run
            first_run = [level.unwrap(_at_level(x, level), 0) for x in outs], template
        inner = FunctionOp(rules, self.needs, first_run=first_run)
        state.levels = tuple([x for x in before if x.id < level.id or x in inside])
        try:
            out: tuple[Value, ...] = (run or bind)(inner, values)
        finally:
            state.levels = before
        saved = inner.ran.saved
        self.ran.template = inner.ran.template
        self.ran.saved = None if saved is None else rules.inner_saved(saved, level)
        return out, (0,) * len(out)

    def record(self, level: RecorderLevel, args: Values) -> tuple[Value, ...]:
        args = [as_array(a) if type(a) is np.ndarray else a for a in args]
        mask = [isinstance(a, Tensor) and a._requires_grad and a._level is level for a in args]
        versions = [version_of(a) if isinstance(a, Tensor) else 0 for a in args]
        op = self.below(mask, None if level.as_called else GradLevel)
        outs: tuple[Value, ...] = level.evaluate(op, args)
        check_unchanged(self.rules, args, versions)
        values = [level.detach(a) for a in args]
        results = [detached(level, o) for o in outs]
        self.leave_node(level, args, mask, outs, values, results)
        return outs

    def leave_node(
        self,
        level: Level,
        args: Values,
        mask: list[bool],
        outs: Values,
        values: Values,
        results: Values,
    ) -> None:
        """Record a call that has been evaluated: ``outs`` of ``args``, and the values of both."""
        rules = self.recorded or self.rules
        saved = self.ran.saved
        if saved is None or not (saved.closed or numbers_suffice(values)):
            saved = rules.setup(values, results, self.ran.template, mask)
        self.ran.template = saved.template
        differentiable = self.ran.template.differentiable(outs)
        if any(differentiable):
            dirty = saved.template.marks.aliases  # their state at capture is saved
            if dirty:
                args, values = [
                    [alias(x) if i in dirty else x for i, x in enumerate(xs)]
                    for xs in (args, values)
                ]
            saved = rules.for_pullback(saved, values, results)
            function = rules.function
            kind = FunctionNode if function is None else function._backward_cls
            node = kind(level, rules, args, mask, saved)
            if anomaly.remembers:
                remember(node)
            for k, (o, m) in enumerate(zip(outs, differentiable, strict=True)):
                if m:
                    o._requires_grad, o._node, o._output_nr = True, node, node.slots[k]


def _at_level(x: Value, level: Level) -> Value:
    """``x`` with the wrappers of the levels above ``level`` removed."""
    while isinstance(x, Tensor) and x.level.id > level.id:
        x = x.value
    return x


def check_unchanged(rules: CallRules, args: Sequence[object], versions: Sequence[int]) -> None:
    """Refuse a body that has changed an argument of its call itself, not the handle that it was given.

    Raises:
        RuleError: it has.
    """
    for k, (a, version) in enumerate(zip(args, versions)):
        if isinstance(a, Tensor) and a.meta is not None and a.meta.storage.version != version:
            raise RuleError(
                f"{rules.name}: a body changed the Tensor that is argument {k} of this "
                f"call ({describe(a)}) in place, through a variable of an outer scope; what it means for "
                "the derivative is unknown. Change the handle that forward is given, and say so with "
                "ctx.mark_dirty."
            )


# ``with_derivative``: values that were computed in another way, with derivatives by rules.


class AttachedRules(Protocol):
    """The rules that `with_derivative` takes; hashable: calls with equal ones share compiled code."""

    @property
    def name(self) -> str: ...

    def pushforward(
        self, values: Values, inputs: Values, tangents: Sequence[MaybeValue]
    ) -> Sequence[MaybeValue]: ...

    def pullback(
        self, values: Values, inputs: Values, cotangents: Values, need: Sequence[bool]
    ) -> Sequence[MaybeValue]: ...


def with_derivative(rules: AttachedRules, values: Values, inputs: Values) -> list[Value]:
    """``values``, computed in another way, as a function of ``inputs``, with derivatives by ``rules``.

    A solver has found the values, or a program on the host; nothing of that is recorded. The rules read the
    values as outputs, which depend on the inputs, so that derivatives of any order are right.

    Arguments:
        rules: an object with a ``name`` and two methods, hashable.
            ``pushforward(values, inputs, tangents)`` returns the tangents of the values; None is zero.
            ``pullback(values, inputs, cotangents, need)`` returns a gradient for each input, None
            where ``need`` says that it is not wanted. Both compute with values of any level, by
            operations of fad; complex cotangents are PyTorch's, the conjugates of those of JAX.
        values: arrays or Tensors without a history.
        inputs: arrays or Tensors.

    Returns:
        The values, with their place in graphs and transforms.

    >>> import fad, math
    >>> from fad import extend
    >>> class SquareRoot:
    ...     name = "square_root"
    ...     def pushforward(self, values, inputs, tangents):
    ...         return [tangents[0] / (2.0 * values[0])]
    ...     def pullback(self, values, inputs, cotangents, need):
    ...         return [cotangents[0] / (2.0 * values[0])]
    >>> def square_root(x):
    ...     y = fad.tensor(math.sqrt(x.item()))
    ...     return extend.with_derivative(SquareRoot(), [y], [x])[0]
    >>> float(fad.grad(square_root)(4.0)), float(fad.grad(fad.grad(square_root))(4.0))
    (0.25, -0.03125)
    """
    return list(bind(FunctionOp(_Attached(rules, len(values))), [*values, *inputs]))


@dataclasses.dataclass(frozen=True, slots=True)
class _Attached(CallRules):
    """The rules of the operation (values, inputs) -> values; ``solved`` counts the values."""

    rules: AttachedRules
    solved: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.rules.name

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        return list(values[: self.solved]), Template.flat_of(self.solved)

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        return saved.at(values, outs, ())

    def pushforward(
        self, saved: Saved, directions: Sequence[MaybeValue], order: int | None = None
    ) -> list[MaybeValue]:
        inputs, tangents = saved.values[self.solved :], directions[self.solved :]
        if all([t is None for t in tangents]):
            return [None] * self.solved
        return list(self.rules.pushforward(saved.outs, inputs, tangents))

    def pullback(
        self, saved: Saved, cotangents: Sequence[MaybeValue], need: Sequence[bool]
    ) -> list[MaybeValue]:
        inputs = saved.values[self.solved :]
        pairs = zip(inputs, need[self.solved :], strict=True)
        wanted = tuple([n and is_inexact(x.dtype) for x, n in pairs])
        if not any(wanted):
            return [None] * len(need)
        outs = zip(cotangents, saved.out_avals, strict=True)
        full = [zeros(a) if c is None else c for c, a in outs]
        grads = self.rules.pullback(saved.outs, inputs, full, wanted)
        return [*[None] * self.solved, *grads]


# The fast path for calls of Functions on the eager tape.
#
# A call of a Function is an operation like any other: it is bound, goes down through the levels, and each
# level transforms it. Most calls of eager code concern the tape and nothing else.
# There each level that is not there need not be asked: the body is run, and the node is made of what it
# saved. Both are what the general code does too (`CallRules.run`, `FunctionOp.leave_node`). It takes half
# of the time of a bound call.


def fast_call(
    cls: FunctionClass, args: Sequence[object], signature: Signature
) -> tuple[Template, list[Tensor]] | None:
    """``cls.apply(*args)``, where ``signature`` is what the class says about its calls.

    Returns:
        The structure of the outputs, and these; None if this is not such a call, and nothing has been done.
    """
    # In the order in which it costs least to find that this is another call.
    modes = state.__dict__.get  # a name that is not there has its default
    if modes("levels") or modes("trace") is not None or modes("watermark", -1) >= 0:
        return None
    if modes("saved_hooks") or bodies.traced or anomaly.watch:
        return None
    mask: list[bool] = []
    versions: list[int] = []
    values: list[jax.Array] = []
    for a in args:
        requires_grad, version = False, 0
        if type(a) is Tensor:
            meta = a.meta
            if a._level is not ROOT or (meta is not None and meta.link is not None):
                return None
            requires_grad = a._requires_grad
            version = 0 if meta is None else meta.storage.version
            a = a._value
        mask.append(requires_grad)
        versions.append(version)
        if type(a) is not array_type:
            return None
        values.append(a)
    if True not in mask:
        return None

    # From here on the body runs: whatever it does, the call is finished here.
    rules = signature.fast_rules
    if rules is None:
        kind = JaxRules if cls.jax_rules else UserRules
        rules = signature.fast_rules = kind(cls, signature, Template.flat_of(len(args)))
    outs, template, saved = rules.run(values, mask)
    assert saved is not None
    check_unchanged(rules, args, versions)
    if saved.plain:
        t = new_tensor(outs[0]._value, ROOT)
        t._requires_grad = True
        t._node = cls._backward_cls(ROOT, rules, args, mask, saved)
        return SINGLE, [t]
    op = FunctionOp(rules, mask)
    op.ran.template, op.ran.saved = template, saved
    results = checked_arrays(rules, outs)
    tensors = [new_tensor(x, ROOT) for x in results]
    op.leave_node(ROOT, args, mask, tensors, values, results)
    return op.ran.template, tensors


observable(sys.modules[__name__], "fast_call", "function")
observable(FunctionOp, "execute", "function")
