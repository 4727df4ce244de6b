"""``checkpoint``: keep only the inputs of a function, and compute the rest again in the backward pass.

NOTE [checkpoint is a Function without rules]

    y = fad.checkpoint(lambda v: fnp.sin(v) * x)(2.0)
    y.backward()
    assert x.grad == fnp.sin(2.0)  # of what the body closes over

The checkpointed call is one operation whose rules are derived from its body: the pullback runs the
body again in a grad level of its own, the pushforward in a jvp level, and vmap batches it; so it
nests with everything, and the Functions inside keep their rules. Tensors that the body closes over are
further inputs: a first run in a `WatchLevel`, on constants, finds the Tensors of outer levels among
operands. Its result is the output of the call, so the body runs once in the forward pass (twice where JAX
traces it).

Inside, arguments and captures require grad as they do outside, so that the body may call
``autograd.grad``: it is recorded in the `WatchLevel`, which in the backward pass stands for the level that
they require grad at. Where other levels differentiate the call too, the pullback runs the body in a grad
level of its own, below the `WatchLevel`. There a gradient that is not recorded would not be a constant, so
taking one is an error. A gradient with respect to a Tensor from outside goes on, from what was captured,
through the graph outside.

The body may run again when a vmap that it was called in is over. Tensors that it closes over still have
their lanes then, and an operation on these alone (``s[0]``) does not come to the `WatchLevel`, which would
replace them; so the vmap's level is alive again for that run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, cast

import jax

from fad.core import trees
from fad.core.jaxapi import array_type
from fad.core.jaxprs import select, spread
from fad.core.level import (
    Event,
    RecorderLevel,
    bind,
    captured_by_jit,
    layers,
    new_argument,
    outlived,
    restores_modes,
    state,
)
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom
from fad.core.trees import partition
from fad.core.types import MaybeValue, Operand, Operation, Outputs, PyTree, Value
from fad.errors import ArgumentError, GradientError, LevelError, StructureError, describe
from fad.functions.calls import FunctionOp
from fad.functions.context import Template, split
from fad.functions.rules import CallRules, Saved, pull_through, push_through
from fad.tape.engine import pull_back
from fad.tape.recorder import ROOT, GradLevel, JvpLevel, RecordingLevel
from fad.tape.saved import allow_mutation_on_saved_tensors
from fad.tape.staged import Captures, call_with_bodies
from fad.tape.vmap import BatchLevel, batch_levels, lanes_among
from fad.transforms.boundary import enter, has_tensor, leave, lower, was_written
from fad.views.aliases import stopped
from fad.views.make_view import place_of, stand_at


class WatchLevel(GradLevel):
    """A grad level that notes the Tensors of outer levels among the other operands.

    Arguments:
        first: the body runs for the first time; constants stand in for the Tensors of outer levels.
        stands: the backward pass of the call differentiates what this level records.

    ``stand_ins`` are used in place of those Tensors, in the order in which they are found. ``operands``: the
    arguments of the body in its first run, each with what it stands for.
    ``differentiated``: a backward pass that is not recorded has run at this level.
    ``recording``: the no_grad watermark outside, if that pass went on through the graph outside; else None.
    A later run records there too.
    ``lanes``: of the vmaps around whose axes the body names. They are used as they are.
    ``writes``: the body writes to Tensors of its own.
    ``is_replaced``: JAX differentiates other programs than the body calls, see `Primitive.is_replaced`.
    """

    kind = "checkpoint"
    runs_again = "checkpoint"
    notes_captures = True

    def __init__(self, first: bool = False, stands: bool = False) -> None:
        super().__init__()
        self.captures = Captures()
        self.first = first
        self.stands = stands
        self.as_called = not (first or stands)
        self.recording: int | None = None
        self.stand_ins: list[Tensor] = []
        self.operands: list[tuple[Tensor, Operand]] = []
        self.lanes: list[Tensor] = []
        self.differentiated = False
        self.writes = False
        self.is_replaced = False

    def __enter__(self) -> WatchLevel:
        if self.stands:
            super().__enter__()
            if self.recording is not None:
                state.watermark = state.base_watermark = self.recording
        else:
            RecordingLevel.__enter__(self)  # where nothing is recorded outside, nothing is inside
        return self

    def process(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        args = [self.stand_in(a) for a in args]
        primitive = op.primitive if self.first and not self.is_replaced else None
        if primitive is not None:
            values = []
            for a in args:
                x = a
                while type(x) is Tensor and x._lazy is None and x._level in (self, ROOT):
                    x = x._value
                values.append(x if type(x) is array_type else a)
            self.is_replaced = primitive.is_replaced(values)
        return super().process(op, args)

    def note(self, event: Event, t: Tensor | None = None) -> None:
        self.writes = self.writes or event == "write"

    def lift(self, x: Operand) -> Tensor:
        if not isinstance(x, Tensor) or x.level is not self:
            self.differentiated = True  # what a backward pass that is not recorded gives
        return super().lift(x)

    def seed(self, x: Operand) -> Tensor:
        return super().lift(x)

    def tensor(self, value: Operand, requires_grad: bool) -> Tensor:
        """An argument of the body."""
        t = new_argument(value, self)
        t._requires_grad = requires_grad
        return t

    def stand_in(self, x: Operand) -> Operand:
        """``x``; for a Tensor from outside, what stands in for it."""
        try:
            x = outlived(x)
        except LevelError:  # of a finished trace: it has a stand-in
            if self.first:
                raise
        if not isinstance(x, Tensor) or x.level is self:
            return x
        if lanes_among(batch_levels(), x) is not None:
            if not any([x is t for t in self.lanes]):
                self.lanes.append(x)
            return x
        at = self.captures.position(x)
        if self.first and at == len(self.stand_ins):
            self.stand_ins.append(self.tensor(_constant(x), _requires(x)))
        if at >= len(self.stand_ins):
            raise StructureError(
                "checkpoint: the function used more Tensors from outside when it ran again than the "
                "first time: it must do the same each time"
            )
        return self.stand_ins[at]

    def captured(self) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        if self.recording is None:
            self.recording = self._saved[1]
        tensors = self.captures.tensors
        return tensors, self.stand_ins[: len(tensors)]

    def stands_for(self, leaf: Tensor, arguments: bool) -> Operand | None:
        if not self.first:  # the first run has looked
            return None
        pairs = list(zip(self.stand_ins, self.captures.tensors, strict=True))
        if arguments:
            pairs += self.operands  # type: ignore[arg-type]
        return next((x for inside, x in pairs if inside is leaf), None)

    def lower(self, x: Operand) -> Operand:
        """``x`` one level down; Tensors from outside are noted, and replaced."""
        x = self.stand_in(x)
        return x.value if isinstance(x, Tensor) and x.level is self else x


_runs: dict[BatchLevel, int] = {}  # levels that are over, and how many bodies run in them again
_runs_lock = threading.RLock()


@contextlib.contextmanager
def alive_again(levels: Sequence[BatchLevel]) -> Iterator[None]:
    """A block in which finished levels are alive again, until the last body that uses them is done."""
    with _runs_lock:
        ended = [level for level in levels if not level.alive or level in _runs]
        for level in ended:
            _runs[level] = _runs.get(level, 0) + 1
            level.alive = True
    try:
        yield
    finally:
        with _runs_lock:
            for level in ended:
                _runs[level] -= 1
                if not _runs[level]:
                    del _runs[level]
                    level.alive = False


@dataclasses.dataclass(eq=False)
class CheckpointRules(CallRules):
    """The rules of a checkpointed call on (captures, operands, lanes), the last of which are not read.

    Arguments:
        body: the function of the operands.
        count: the number of captures.
        operands: the number of operands.
        requires: for each value, whether it requires grad inside.
        alone: only one level differentiates the call.
        recording: see `WatchLevel`.
        is_replaced: see `CallRules`.
        writes: see `WatchLevel`. The backward pass then uses the values that the second run saved, even if
            that run writes to them later: the call is one operation, and its writes are not seen outside.
    """

    body: Callable[..., PyTree]
    count: int
    operands: int
    requires: Sequence[bool]
    alone: bool
    recording: int | None
    writes: bool
    is_replaced: bool
    batches: list[BatchLevel] = dataclasses.field(default_factory=batch_levels)

    name = "checkpoint"
    separates_outputs = True
    are_of_the_body = True

    @property
    def likeness(self) -> Hashable:  # type: ignore[override]
        """In traced code, what a body says of its derivative is in its program: it cannot have hooks."""
        flags = (self.count, self.operands, self.alone, self.recording, self.writes)
        return (*flags, tuple(self.requires), *self.batches)

    def _run(self, level: WatchLevel, values: Sequence[Operand]) -> tuple[list[Tensor], Template]:
        """The body once more, in ``level``: its inputs there, and its result."""
        inside = [level.tensor(v, r) for v, r in zip(values, self.requires, strict=True)]
        level.stand_ins = inside[: self.count]
        return inside, self.body(inside[self.count : self.count + self.operands])

    def forward(self, values: Sequence[Operand]) -> tuple[list[Value], Template]:
        with alive_again(self.batches), WatchLevel() as level:
            out = self._run(level, values)[1]
            leaves, structure = split(trees.map_leaves(level.lower, out))
            return cast("list[Value]", leaves), structure

    @restores_modes
    def pullback(
        self, saved: Saved, cotangents: Sequence[MaybeValue], need: Sequence[bool]
    ) -> list[Any]:
        values = [_barrier(v) for v in saved.values]
        if self.writes and not state.saved_hooks:  # what hooks have packed is not checked either
            with allow_mutation_on_saved_tensors():
                return self._pull(values, cotangents, need)
        return self._pull(values, cotangents, need)

    def _pull(
        self, values: Sequence[Operand], cotangents: Sequence[MaybeValue], need: Sequence[bool]
    ) -> list[MaybeValue]:
        """The gradients of ``values``, computed from the graph that the body records."""
        if not self.alone:
            return pull_through(self.forward, values, cotangents, need, GradLevel)
        wanted = [n and r for n, r in zip(need, self.requires, strict=True)]
        level = WatchLevel(stands=True)
        level.recording = self.recording
        with alive_again(self.batches), level:
            inside, out = self._run(level, values)
            outs = [level.stand_in(o) for o in split(out)[0]]
            variables = select(wanted, inside)
            return spread(wanted, pull_back(outs, cotangents, variables) if variables else ())

    def pushforward(
        self, saved: Saved, directions: Sequence[MaybeValue], order: int | None = None
    ) -> list[MaybeValue]:
        return push_through(self.forward, saved.values, directions, JvpLevel)


_BARRIER = Primitive("optimization_barrier", jax.lax.optimization_barrier)


def _barrier(x: Operand) -> Operand:
    """``x`` for the second run: under jit, XLA must not find that it has the result already."""
    return bind(_BARRIER, (x,)) if isinstance(bottom(x), jax.core.Tracer) else x


def checkpoint(
    f: Callable[..., PyTree] | None = None,
    *arguments: PyTree,
    policy: Callable[..., bool] | None = None,
    **options: PyTree,
) -> PyTree:
    """``f`` without its intermediate values: they are computed again when a derivative needs them.

    Arguments:
        f: a function of pytrees of arrays that does the same each time it runs. It may close over
            tracked Tensors; their gradients are found too. What requires grad outside does so inside,
            so that f may call ``autograd.grad``. Anything but an array is passed on as it is. Without f,
            ``checkpoint`` returns a decorator.
        policy: which intermediate values are kept after all, one of ``jax.checkpoint_policies``. f is traced
            then, as by `jit`, so Python runs in it once for each call, on no numbers.

    Returns:
        A function with f's arguments and results. Memory for its graph is that of its inputs and of
        the Tensors that it closes over.

    Raises:
        StructureError: the second run used other Tensors than the first.
        LevelError: f changes an argument, or a Tensor from outside, in place.
        ArgumentError: it was called as PyTorch's is, with the arguments or options.
        GradientError: f calls ``autograd.grad``, and several levels differentiate what it uses.

    Source: ``jax.checkpoint``, ``torch.utils.checkpoint``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.grad(fad.checkpoint(lambda x: fnp.sin(fnp.sin(x))))(0.0))
    1.0
    """
    if arguments or options:  # as torch.utils.checkpoint.checkpoint takes them
        unknown = f", and there are no options {', '.join(options)}" if options else ""
        raise ArgumentError(
            "checkpoint: the function that it returns takes the arguments: write "
            f"fad.checkpoint(f)(*args){unknown}"
        )
    if f is None:
        return functools.partial(checkpoint, policy=policy)
    if not callable(f):
        raise TypeError(f"checkpoint: the first argument must be a function, got {describe(f)}")
    if policy is not None and not callable(policy):
        raise TypeError(
            f"checkpoint: policy must be one of jax.checkpoint_policies, got {describe(policy)}"
        )

    @restores_modes
    @functools.wraps(f)
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        tensors = has_tensor((args, kwargs))
        if state.uncompiled:
            return leave(f(*enter(args), **enter(kwargs)), tensors)
        entered, rest = partition(enter((args, kwargs)), Tensor, ordered=True)
        operands = list(map(lower, entered))
        places = list(map(place_of, entered))
        del entered  # the body outlives the backward pass, which frees the Tensors

        def body(inside: Sequence[Tensor]) -> PyTree:
            for x, place in zip(inside, places, strict=True):
                stand_at(x, place)
            new_args, new_kwargs = rest.combine(inside)
            out = f(*new_args, **new_kwargs)
            if any([was_written(x) for x in inside]):
                raise LevelError(
                    "checkpoint: the function changes an argument in place, and it runs more than "
                    "once: write to a copy (x.clone()) and return it"
                )
            return out

        body.__wrapped__ = f  # type: ignore[attr-defined]
        if policy is not None:
            return leave(_kept_by(policy, body, operands), tensors)
        with WatchLevel(first=True) as level:
            inside = [level.tensor(_constant(x), _requires(x)) for x in operands]
            level.operands = list(zip(inside, operands, strict=True))
            result = body(inside)
            level.operands = []
            requires_grad = list(map(_requires, split(result)[0]))
            out = trees.map_leaves(level.lower, result)
        for around in state.levels:
            if isinstance(around, WatchLevel):
                around.is_replaced = around.is_replaced or level.is_replaced
        captures = level.captures.tensors
        every = [*captures, *operands, *level.lanes]
        tracked = any(map(_is_tracked, every))
        # In a checkpointed body it is one operation, as it is when that body runs again and is tracked.
        if tracked or any([around.notes_captures for around in state.levels]):
            only = _only_level(every)
            alone = only is not None and not any(map(_may_be_differentiated, every))
            if tracked and level.differentiated and not alone:
                raise GradientError(
                    "checkpoint: the function differentiates (autograd.grad, backward) with respect to what "
                    "it uses, and several levels differentiate that: use fad.grad inside, and pass Tensors "
                    "from outside as arguments"
                )
            requires = [_requires(x) for x in every]
            leaves, template = split(out)
            rules = CheckpointRules(
                body,
                len(captures),
                len(operands),
                requires,
                alone,
                level.recording,
                level.writes,
                level.is_replaced,
            )
            # The first run is as the level runs it that records the call; levels below may replace more.
            as_run = alone and only is not None and not only.as_called
            first_run = (leaves, template) if as_run or not level.is_replaced else None
            outs = list(bind(FunctionOp(rules, first_run=first_run), every))
            if alone:  # what does not depend on what requires grad is what the first run gave
                pairs = zip(leaves, outs, requires_grad, strict=True)
                outs = [o if r else k for k, o, r in pairs]
            out = template.combine(outs)
        return leave(out, tensors)

    return wrapped


def _kept_by(
    policy: Callable[..., bool], body: Callable[..., PyTree], operands: Sequence[Value]
) -> PyTree:
    """The call of ``body``, traced, and checkpointed by JAX: one Primitive, whose residuals JAX chooses."""
    template: list[Template] = []

    def arrays(*inside: Tensor) -> list[Operand]:
        outs, form = split(body(inside))
        template[:] = [form]
        return outs

    arrays.__wrapped__ = body  # type: ignore[attr-defined]

    def checkpoint(body: Callable[..., PyTree], *values: Value) -> PyTree:
        return jax.checkpoint(body, policy=policy)(*values)

    outs = call_with_bodies(checkpoint, (arrays, *operands), {})
    return template[0].combine(outs)


def _only_level(xs: Sequence[object]) -> RecorderLevel | None:
    """The level that ``xs`` require grad at, if that is one alone and no other differentiates them."""
    levels: set[Any] = set()
    for x in xs:
        for depth, t in enumerate(layers(x)):
            if t.requires_grad or (t.aux is not None and not t.level.maps):
                levels.add(None if depth else t.level)
    top = levels.pop() if len(levels) == 1 else None
    return top if top is not None and top.wraps else None


def _requires(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _may_be_differentiated(x: object) -> bool:
    """Whether ``x`` is traced by JAX and requires no grad: what traces it, a scan, may differentiate it."""
    return isinstance(bottom(x), jax.core.Tracer) and not _requires(x)


def _constant(x: Operand) -> Operand:
    """``x`` as a constant for the first run; one that `jit` captures stays: it is noted when it is read."""
    return x if isinstance(x, Tensor) and captured_by_jit(x) else stopped(x)


def _is_tracked(x: object) -> bool:
    """Whether any level keeps something for ``x``."""
    tracked = any([t.requires_grad or t.aux is not None for t in layers(x)])
    return tracked or isinstance(bottom(x), jax.core.Tracer)
