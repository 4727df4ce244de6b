"""``checkpoint``: keep only the inputs of a function, and compute the rest again in the backward pass.

NOTE [checkpoint is a Function without rules]

The checkpointed call is one operation whose rules are derived from its body: the pullback runs the
body again in a grad level of its own, the pushforward in a jvp level, and vmap batches it; so it
nests with everything, and the Functions inside keep their rules. What the body closes over are further
inputs: a first run in a `WatchLevel`, on constants, finds the Tensors of outer levels among operands. What it
gives is the output of the call, so the body runs once in the forward pass (twice where JAX traces it).

The body may run again when a vmap that it was called in is over. What it closes over still has its
lanes then, and may be computed with alone (``s[0]``) before it is an operand, and replaced; so the vmap's
level is alive again for that run.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.level import bind, captured_by_jit, map_tensors, outlived, restores_modes
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom, new_tensor
from fad.errors import LevelError, StructureError, describe
from fad.functions.calls import FunctionOp
from fad.functions.rules import Rules, Saved, pull_through, push_through
from fad.functions.templates import Template
from fad.levels.batch import BatchLevel, batch_levels
from fad.levels.jvp import JvpLevel
from fad.tape.captures import Captures
from fad.tape.recorder import GradLevel, RecordingLevel
from fad.transforms.boundary import enter, has_tensor, leave, lower, was_written
from fad.views.stop_gradient import stopped

__all__ = ["checkpoint"]


class WatchLevel(RecordingLevel):
    """A level around values, that notes the Tensors of outer levels among the other operands.

    ``replacements`` stand in for those Tensors, in the order in which they are found; None computes
    with the Tensors themselves.
    """

    __slots__ = ("captures", "replacements")

    kind = "checkpoint"
    runs_again = "checkpoint"
    notes_captures = True

    def __init__(self, replacements: Sequence[Any] | None) -> None:
        super().__init__()
        self.captures = Captures()
        self.replacements = replacements

    def evaluate(self, op: Any, args: Sequence[Any]) -> Any:
        out = bind(op, [self.lower(a) for a in args])
        return map_tensors(lambda o: new_tensor(o, self), out)

    def lower(self, x: Any) -> Any:
        """``x`` one level down; Tensors from outside are noted, and replaced."""
        try:
            x = outlived(x)
        except LevelError:  # of a finished trace: it has a replacement
            if self.replacements is None:
                raise
        if not isinstance(x, Tensor):
            return x
        if x.level is self:
            return x.value
        at = self.captures.position(x)
        if self.replacements is None:
            return _constant(x)
        if at >= len(self.replacements):
            raise StructureError(
                "checkpoint: the function used more Tensors from outside when it ran again than the "
                "first time: it must do the same each time"
            )
        return self.replacements[at]


_runs: dict[BatchLevel, int] = {}  # levels that are over, and how many bodies run in them again
_runs_lock = threading.Lock()


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


class CheckpointRules(Rules):
    """The rules of a checkpointed call on (captures, operands)."""

    def __init__(self, body: Callable[..., Any], count: int) -> None:
        self.body = body
        self.count = count
        self.name = "checkpoint"
        self.batches = batch_levels()

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        level = WatchLevel(values[: self.count])
        with alive_again(self.batches):
            return Template.split(self.body(level, values[self.count :]))

    def setup(
        self,
        values: Sequence[Any],
        outs: Sequence[Any],
        template: Template,
        needs: Sequence[bool] | None = None,
    ) -> Saved:
        return Saved(values, outs, template, list(map(aval_of, values)), list(map(aval_of, outs)))

    def pullback(self, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]) -> list[Any]:
        values = [_barrier(v) for v in saved.values]
        return pull_through(self.forward, values, cotangents, need, GradLevel)

    def pushforward(self, saved: Saved, tangents: Sequence[Any]) -> list[Any]:
        return push_through(self.forward, saved.values, tangents, JvpLevel)


_BARRIER = Primitive("optimization_barrier", jax.lax.optimization_barrier)


def _barrier(x: Any) -> Any:
    """``x`` for the second run: under jit, XLA must not find that it has the result already."""
    return bind(_BARRIER, (x,)) if isinstance(bottom(x), jax.core.Tracer) else x


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f`` without its intermediate values: they are computed again when a derivative needs them.

    Arguments:
        f: a function of pytrees of arrays that does the same each time it runs. It may close over
            tracked Tensors; their gradients are found too.

    Returns:
        A function with f's arguments and results. Memory for its graph is that of its inputs and of
        the Tensors that it closes over.

    Raises:
        StructureError: the second run used other Tensors than the first.
        LevelError: f changes an argument, or a Tensor from outside, in place.

    Source: ``jax.checkpoint``, ``torch.utils.checkpoint``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.grad(fad.checkpoint(lambda x: fnp.sin(fnp.sin(x))))(0.0))
    1.0
    """
    if not callable(f):
        raise TypeError(f"checkpoint: the first argument must be a function, got {describe(f)}")

    @restores_modes
    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = trees.flatten(enter((args, kwargs)))
        tensors = has_tensor((args, kwargs))
        dynamic = [isinstance(x, Tensor) for x in leaves]
        operands = [lower(x) for x, d in zip(leaves, dynamic, strict=True) if d]

        def run(level: WatchLevel, values: Sequence[Any]) -> Any:
            it = iter(values)
            with level:
                inside = [
                    new_tensor(next(it), level) if d else x
                    for x, d in zip(leaves, dynamic, strict=True)
                ]
                new_args, new_kwargs = trees.unflatten(structure, inside)
                out = f(*new_args, **new_kwargs)
                if any([was_written(x) for x in inside]):
                    raise LevelError(
                        "checkpoint: the function changes an argument in place, and it runs more than "
                        "once: write to a copy (x.clone()) and return it"
                    )
                return trees.map_leaves(level.lower, out)

        level = WatchLevel(None)
        out = run(level, [_constant(x) for x in operands])
        captures = level.captures.tensors
        if any(_is_tracked(x) for x in (*operands, *captures)):
            op = FunctionOp(CheckpointRules(run, len(captures)))
            op.known, op.template = Template.split(out)
            out = op.template.join(list(bind(op, [*captures, *operands])))
        return leave(out, tensors)

    return wrapped


def _constant(x: Any) -> Any:
    """``x`` for the first run; what compiled code captures is found when that reads it."""
    return x if isinstance(x, Tensor) and captured_by_jit(x) else stopped(x)


def _is_tracked(x: Any) -> bool:
    """Whether any level keeps something for ``x``."""
    while isinstance(x, Tensor):
        if x.requires_grad or x.aux is not None:
            return True
        x = x.value
    return isinstance(x, jax.core.Tracer)
