"""Levels and ``bind``: where a call of an operation goes.

NOTE [levels live on values]

A running transform is a `Level`; the values inside it are Tensors that point to it. ``bind`` looks
for the highest level among the *arguments* and hands the call to it; the level unwraps its own
Tensors and binds the call again, one level down, until no Tensor is left and XLA
runs. There is no global "current transform": a thread started inside ``fad.grad`` computes with
Tensors of that level and is right, and two threads in two ``dual_level`` blocks do not affect each
other. Level ids only grow, so an inner transform always has a higher id than the ones around it,
which distinguishes nested derivatives (it prevents perturbation confusion).

The state of a thread (`State`) is only what is about the thread: whether recording is switched
off, and the named axes and random modes of the vmaps it is in.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from fad.core.tensor import Tensor, level_began, new_tensor

__all__ = [
    "Level",
    "Operation",
    "State",
    "active_levels",
    "bind",
    "bodies",
    "captured_by_jit",
    "constants",
    "flush",
    "has_trace",
    "last_level_id",
    "restores_modes",
    "state",
    "with_default_state",
]


P = ParamSpec("P")
R = TypeVar("R")


class Operation(Protocol):
    """What `bind` can run: a Primitive, a call of a Function, or a program.

    ``expands``: it has no rules of its own; ``expand(args)`` binds what it consists of.
    """

    name: str
    expands: bool

    def execute(self, values: Sequence[Any]) -> Any:
        """Run on values that are no Tensors: one array, or a tuple of arrays."""

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Outputs and their tangents (None is zero), by binding one level down."""

    def batch(self, values: Sequence[Any], dims: tuple[int | None, ...], level: Any) -> Any:
        """Outputs batched along dimension 0, by binding one level down."""


class State(threading.local):
    """What belongs to a thread.

    ``watermark``: of no_grad: levels with an id up to this one do not record (see NOTE [grad mode]).
    ``base_watermark``: the value of ``watermark`` when the innermost recording transform began.
    ``levels``: the levels entered in this thread, outermost first.
    ``saved_hooks``: pairs (pack, unpack) for saved values, innermost last.
    ``saved_refused``: why saved-value hooks may not be used now, or None.
    ``inference``: in inference mode, where new Tensors are inference Tensors: the ``base_watermark`` outside
    of it; else None.
    ``trace``: what the eager tape has deferred, a `fad.core.replay_protocol.Trace`; or None.
    ``replaying``: whether what repeats is replayed.
    ``exact``: a program is traced whose operations give the bits that they give alone.
    ``body``: the innermost body of `jit` that is being traced, see NOTE [what compiled code captures].
    ``outside_jax_trace``: while JAX traces the body of a Function: levels with an id up to this one are
    outside of that trace; else -1.
    ``batching``: a level batches a program that was traced before; its random draws were checked then.
    """

    watermark = -1
    base_watermark = -1
    levels: tuple[Level, ...] = ()
    saved_hooks: tuple[Any, ...] = ()
    saved_refused: str | None = None
    inference: int | None = None
    trace: Any = None
    replaying: bool = True
    exact: bool = False
    body: Any = None
    outside_jax_trace = -1
    batching: bool = False


state = State()
MODES = {n: mode for n, mode in vars(State).items() if not n.startswith("_")}  # of a new thread
_ids = itertools.count()
_last = -1


def last_level_id() -> int:
    """An id that no level made so far exceeds."""
    return _last


class Level:
    """One running transform. Used as a context manager; leaving it ends the level.

    What other code asks of a level is a method or an attribute here; no code asks of which kind it is.

    ``runs_again``: what the code inside is called, if it runs more than once; writes to what is outside are
    refused there. ``deriving``: it derives a rule from a body, so that a number which the body takes out of
    it (as ``x.item()``) is an error; at other levels it is a constant. ``traces``: values inside are
    not known yet. ``maps``: Tensors may have a value for each lane. ``notes_captures``: its operations
    replace values from outside by others.
    """

    __slots__ = ("_saved", "alive", "id")

    kind = "level"
    runs_again = ""
    deriving = False
    traces = False
    maps = False
    notes_captures = False

    def __init__(self) -> None:
        global _last
        self.id = next(_ids)
        _last = max(_last, self.id)
        level_began(_last)
        self.alive = True

    def __repr__(self) -> str:
        return f"{self.kind} level {self.id}" + ("" if self.alive else " (finished)")

    def __enter__(self) -> Self:
        self._saved = (state.levels, state.watermark, state.base_watermark)
        state.levels = (*state.levels, self)
        if state.watermark != state.base_watermark:  # recording is off here: it stays off inside
            state.watermark = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        self.alive = False
        state.levels, state.watermark, state.base_watermark = self._saved

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run ``op`` on arguments whose highest level is this one."""
        raise NotImplementedError

    def detach(self, x: Any) -> Any:
        """What a backward pass that is not itself recorded computes with, in place of ``x``."""
        raise NotImplementedError

    def flush(self) -> None:
        """Record what its trace has deferred."""

    def lift(self, x: Any) -> Tensor:
        """``x`` as a Tensor of this level; a Tensor of a level inside of it stays what it is."""
        if isinstance(x, Tensor) and x.level.id >= self.id:
            return x
        return new_tensor(x, self)

    def outlive(self, t: Tensor) -> Any:
        """What a Tensor of this level stands for once the level has finished."""
        return t.value

    def afterwards(self, op: Any, args: Sequence[Any]) -> Any:
        """`process`, once the level has finished."""
        return bind(op, [outlived(a) for a in args])

    def tangent(self, t: Tensor) -> Any:
        """The tangent that ``t`` has at this level; None where it has none."""
        return None

    def batch_dim(self, t: Tensor) -> int | None:
        """The dimension of the value of ``t`` that this level maps over; None where it maps over none."""
        return None

    def check_has_value(self, t: Tensor) -> None:
        """Raise `HostValueError` where ``t`` has no single value that Python could read."""

    def note_draw(self) -> None:
        """Random numbers are drawn while this level runs."""

    def constant(self, t: Tensor, stop: Callable[[Any], Any]) -> Tensor:
        """``t`` without gradient and tangent; ``stop`` does so one level down."""
        return new_tensor(stop(t.value), self)

    def with_primal(self, value: Any, aux: Any, primal: Any) -> tuple[Any, Any, Any]:
        """What ``primal`` is one level down, for a Tensor of this level that keeps all else.

        Returns:
            ``value`` and ``aux`` of that Tensor, in a form that the primal fits, and the primal.
        """
        own = isinstance(primal, Tensor) and primal.level is self
        return value, aux, primal.value if own else primal

    def aval(self, t: Tensor) -> Any:
        """The shape and dtype a user sees, as JAX's abstract value."""
        lazy = t._lazy
        return t._value.aval if lazy is None else lazy.aval

    # For traces: a Tensor of this level as values one level down, and a level to compute with those.

    def parts(self, t: Tensor) -> tuple[Any, ...]:
        """What ``t``, a Tensor of this level, consists of one level down."""
        return (t._value,)

    def layout(self, t: Tensor) -> Hashable:
        """What has to be known besides its parts to make ``t`` again."""
        return None

    def from_parts(self, parts: Sequence[Any], layout: Any) -> Tensor:
        """A Tensor of this level."""
        return new_tensor(parts[0], self)

    def part_avals(self, aval: Any, layout: Any) -> tuple[Any, ...]:
        """The avals of the parts of a Tensor that users see as ``aval``."""
        return (aval,)

    def maker(self) -> Callable[[], Any]:
        """What makes a new level that does the same; it does not refer to this one."""
        raise NotImplementedError

    def key(self) -> Hashable:
        """What tells its kind of level: those with equal keys do the same."""
        return self.kind


def bind(op: Any, args: Sequence[Any]) -> Any:
    """Run an operation on flat arguments: arrays, Python scalars and Tensors.

    Arguments:
        op: the `Operation`.
        args: its array arguments; everything static is part of ``op``.

    Returns:
        An array or a tuple of arrays; Tensors of the highest level among ``args`` if there are Tensors.
    """
    top = None
    for a in args:
        if isinstance(a, Tensor):
            meta = a.meta
            if meta is not None and meta.link is not None:
                meta.link.enter(a)
            level = a._level
            if top is None or level.id > top.id:
                top = level
    if top is None:
        return op.execute(args)
    if not top.alive:
        return top.afterwards(op, args)
    return top.process(op, args)


def outlived(x: Any) -> Any:
    """Take off the wrappers of levels that have finished."""
    while isinstance(x, Tensor) and not x.level.alive:
        x = x.level.outlive(x)
    return x


class _Bodies:
    """``traced``: how many bodies of `jit` are being traced, in all threads; a cheap first check."""

    __slots__ = ("lock", "traced")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.traced = 0


bodies = _Bodies()


@contextmanager
def body_of(level: Any) -> Iterator[None]:
    """A block in which what is computed of Tensors from outside of ``level`` is computed there."""
    before, state.body = state.body, level
    with bodies.lock:
        bodies.traced += 1
    try:
        yield
    finally:
        state.body = before
        with bodies.lock:
            bodies.traced -= 1


@contextmanager
def constants() -> Iterator[None]:
    """A block in which Tensors from outside of a body of `jit` are what they are now."""
    before, state.body = state.body, None
    try:
        yield
    finally:
        state.body = before


@contextmanager
def traced_by_jax() -> Iterator[None]:
    """A block for the body of a Function that JAX traces, apart from the levels around it."""
    before = state.outside_jax_trace
    state.outside_jax_trace = last_level_id()
    try:
        with constants():
            yield
    finally:
        state.outside_jax_trace = before


def batching(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, which batches a program, with ``state.batching``."""

    def run(*values: Any) -> Any:
        before, state.batching = state.batching, True
        try:
            return f(*values)
        finally:
            state.batching = before

    return run


def captured_by_jit(t: Tensor) -> bool:
    """Whether ``t``, of level 0, is captured by the `jit` being traced, which then reads it at each call."""
    return bodies.traced > 0 and state.body is not None and t.born < state.body.id


def with_default_state(*kept: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for functions that run with default thread state, except for the modes ``kept``."""
    first = {name: mode for name, mode in MODES.items() if name not in kept}

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(f)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            modes = state.__dict__
            before = {**MODES, **modes}
            try:
                modes.update(first)
                return f(*args, **kwargs)
            finally:
                modes.update(before)

        return call

    return decorate


def restores_modes(f: Callable[P, R]) -> Callable[P, R]:
    """``f``, which enters levels: if it raises, the modes of the thread are those of before.

    NOTE [interrupts]: an interrupt (Ctrl-C, a signal of a timer) raises an exception after any call, so also
    at the first line of the ``__exit__`` of a level or a mode, which then stays entered. Therefore what
    enters levels has its modes restored by one call of a C function.
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        modes = state.__dict__
        before = {**MODES, **modes}
        del before["trace"]  # it belongs to the tape
        try:
            return f(*args, **kwargs)
        except BaseException:
            modes.update(before)
            raise

    return call


def flush() -> None:
    """Record what traces of this thread have deferred, on the tape and in transforms."""
    modes = state.__dict__.get  # a name that is not there has its default
    for level in modes("levels", ()):
        level.flush()
    trace = modes("trace")
    if trace is not None:
        trace.materialize()


def has_trace() -> bool:
    """Whether this thread may have deferred operations, on the tape or in transforms."""
    modes = state.__dict__.get
    return bool(modes("levels")) or modes("trace") is not None


def active_levels() -> tuple[Level, ...]:
    """The levels that this thread is inside of, outermost first."""
    return state.levels


def map_tensors(f: Callable[[Any], Any], out: Any) -> Any:
    """Apply ``f`` to a flat output: an array, or a tuple of arrays."""
    return tuple([f(o) for o in out]) if type(out) is tuple else f(out)
