"""Levels and ``bind``: where a call of an operation goes.

NOTE [levels live on values]

    g = fad.grad(lambda x: x * fad.grad(lambda y: x + y)(1.0))
    assert g(1.0) == 1.0  # 2.0 if the two derivatives are confused

A running transform is a `Level`; the values inside it are Tensors that point to it. ``bind`` looks for the
highest level among the *arguments* and hands the call to it; the level unwraps its own Tensors and binds the
call again, one level down, until no Tensor is left and XLA runs. There is no global "current transform": a
thread started inside ``fad.grad`` computes with Tensors of that level and is right. Level ids only grow, so
an inner transform has a higher id than those around it, which separates nested derivatives. `ThreadState`
holds modes of a thread, such as whether recording is off; it does not decide which level gets a call.
"""

from __future__ import annotations

import functools
import itertools
import threading
import types
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, ParamSpec, Self, TypeAlias, TypeVar

from fad.core import tensor as tensors
from fad.core.avals import VALUES
from fad.core.observation import Observable
from fad.core.tensor import Tensor, new_tensor
from fad.core.tensor import bodies as bodies
from fad.core.types import (
    Array,
    ArrayFunction,
    JaxObject,
    MaybeValue,
    Operand,
    Operation,
    Outputs,
    PyTree,
    Value,
)
from fad.errors import LevelError
from fad.errors.advice import advise

if TYPE_CHECKING:
    from fad.core.replay_protocol import Deferred

P = ParamSpec("P")
R = TypeVar("R")


# What a level can note: while it runs, random numbers are drawn, or a Tensor is written to; a backward pass
# adds to the ``.grad`` of a Tensor of it; a Tensor of it gets a value that is not that of its history.
Event: TypeAlias = Literal["draw", "write", "gradient", "unrecorded"]


class ThreadState(threading.local):
    """The modes of a thread. The values below are those of a new thread.

    Grad modes, see NOTE [grad mode] in `fad.tape.grad_mode`:

    ``watermark``: the no_grad watermark; only levels with a higher id record.
    ``base_watermark``: the value of ``watermark`` when the innermost recording transform began.
    ``enable_grad`` sets ``watermark`` to it.
    ``inference``: None outside of inference mode; inside, the ``base_watermark`` outside of it.

    Levels and traces:

    ``levels``: the levels that this thread has entered, outermost first.
    ``trace``: the `fad.core.replay_protocol.Deferred` of operations that the eager tape has deferred, or
    None.
    ``replaying``: whether repeated traces are replayed.
    ``body``: the level of the innermost body of `jit` being traced; see NOTE [what compiled code captures].
    ``host``: in a body of `jit(hooks=True)`, what calls the host: see `fad.compile.hooks`.
    ``outside_jax_trace``: while JAX traces a Function's body, the highest id of levels outside; else -1.
    ``pure``: in a function that is made pure (`functionalize`, and `to_jax` where JAX traces it) a level that
    stands for the call, and that no value belongs to; else None.
    ``unreached``: the vmaps that the call which runs does not belong to, as far as it is known; see
    `fad.tape.vmap.bind_among_lanes`.

    Forward mode:

    ``tangents_off``: Tensors of levels with an id up to this one have no tangents; see
    `fad.transforms.jvp.set_fwd_grad_enabled`.

    How operations are run:

    ``exact``: a program is being traced whose results are bitwise those of eager execution.
    ``batching``: `jax.vmap` is being applied to a function of a Primitive. Random draws in it were
    checked when the Primitive was bound, and are not checked again.
    ``uncompiled``: what would be compiled runs as Python; see `uncompiled`.
    ``rolls``: loops are rolled in what is traced; see NOTE [the protocol of rolling].
    ``calls``: the rules of calls in what is being traced, by what these compute; see `fad.functions.native`.

    Saved values:

    ``saved_hooks``: pairs (pack, unpack) of hooks for saved values, innermost last.
    ``saved_refused``: the message of the error that saved-value hooks raise now, or None.
    """

    watermark = -1
    base_watermark = -1
    levels: tuple[Level, ...] = ()
    saved_hooks: tuple[tuple[Callable[..., object], Callable[..., object]], ...] = ()
    saved_refused: str | None = None
    inference: int | None = None
    trace: Deferred | None = None
    replaying: bool = True
    exact: bool = False
    body: TracedBody | None = None
    host: PyTree = None
    outside_jax_trace = -1
    pure: Level | None = None
    unreached: tuple[Level, ...] = ()
    tangents_off = -1
    batching: bool = False
    uncompiled: bool = False
    rolls: bool = True
    calls: dict[Hashable, PyTree] | None = None


state = ThreadState()
# From the name of each mode to its value in a new thread.
MODES = {n: mode for n, mode in vars(ThreadState).items() if not n.startswith("_")}
_ids = itertools.count()


def last_level_id() -> int:
    """The highest id of the levels made so far; -1 if there are none."""
    return tensors.latest_level


class Level(Observable):
    """One running transform. Used as a context manager; leaving it ends the level.

    Other code uses the methods and attributes below; it does not test the class of a level.

    ``kind``: the name of the transform, for messages and keys.
    ``settings``: the arguments that an equivalent level is made with: of levels of one class with equal
    ``settings``, each may run what was compiled for the other. None: the operations of such a level, and of
    levels inside of it, run one by one, each time.
    ``trace``: the operations of it that are deferred now; None if none are.
    ``runs_again``: if the code inside may run more than once, a name for that code, for error messages:
    there, in-place writes to Tensors from outside are errors. Else the empty string.
    ``deriving``: the level derives a rule from the body of a Function. There, reading a number out of a
    differentiated Tensor (``x.item()``) is an error; at other levels the number is a constant.
    ``traces``: values inside are tracers. ``maps``: a Tensor may have one value for each lane of a vmap; its
    ``aux`` is the dimension of these, or None.
    ``on_tape``: a Tensor of this level may be part of the graph of the eager tape.
    ``tape_id``: the highest id of the levels that graphs of this level go on to, for a level that is
    ``on_tape``; -1 where there are none.
    ``notes_captures``: the level notes which values from outside its operations use, and may replace
    them.
    ``arguments``: the Tensors of levels below that are arguments of the function inside; see
    `new_argument`.

    >>> import fad
    >>> class PrintLevel(fad.extend.Level):
    ...     def process(self, op, args):
    ...         print(op.name)
    ...         return self.lift(fad.extend.bind(op, [a.value for a in args]))
    >>> with PrintLevel() as level:
    ...     y = -level.lift(fad.tensor(2.0))
    negative
    """

    __slots__ = ("_saved", "alive", "arguments", "id")

    kind = "level"
    settings: tuple[Hashable, ...] | None = None
    trace: Deferred | None = None
    runs_again = ""
    deriving = False
    traces = False
    maps = False
    on_tape = False
    tape_id = -1
    notes_captures = False
    observables = types.MappingProxyType({"process": "operation"})

    def __init__(self) -> None:
        self.id = next(_ids)
        tensors.latest_level = max(tensors.latest_level, self.id)
        self.alive = True
        self.arguments: list[Tensor] = []

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
        self.arguments = []
        state.levels, state.watermark, state.base_watermark = self._saved

    def process(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        """Run ``op`` on arguments whose highest level is this one."""
        raise self._without("process(op, args)")

    def _without(self, method: str) -> LevelError:
        name = type(self).__name__
        return LevelError(
            f"{self.kind}: {name} has no {method}, by which it runs operations: write it"
        )

    def detach(self, x: PyTree) -> PyTree:
        """What a backward pass that is not itself recorded computes with, in place of ``x``."""
        raise NotImplementedError

    def lift(self, x: Operand) -> Tensor:
        """``x`` as a Tensor of this level; Tensors of this or a higher level are returned as they are."""
        if isinstance(x, Tensor) and x.level.id >= self.id:
            return x
        return new_tensor(x, self)

    def outlive(self, t: Tensor) -> PyTree:
        """The value that replaces ``t``, a Tensor of this level, once the level has finished."""
        return t.value

    def tangent(self, t: Tensor) -> MaybeValue:
        """The tangent that ``t`` has at this level; None where it has none."""
        return None

    def readable(self, t: Tensor, what: str = "") -> Operand:
        """What Python reads numbers of in place of ``t``, one level down; ``what`` reads them, in messages.

        Raises:
            HostValueError: ``t`` has no single value.
        """
        value: Operand = t.value
        return value

    def note(self, event: Event, t: Tensor | None = None) -> None:
        """Something happens while this level runs, or to a Tensor ``t`` of it; see `Event`."""

    def constant(self, t: Tensor, stop: Callable[[Operand], Value]) -> Tensor:
        """``t`` without gradient and tangent; ``stop`` does so one level down."""
        return new_tensor(stop(t.value), self)

    def with_primal(
        self, value: Operand, aux: object, primal: Operand
    ) -> tuple[Operand, object, Operand]:
        """Prepare to replace the primal of a Tensor of this level, whose tangent stays.

        Arguments:
            value: of that Tensor.
            aux: of that Tensor.
            primal: the new primal, which may be a Tensor of this level.

        Returns:
            ``value`` and ``aux``, converted where the new primal requires it; and the new primal one
            level down.
        """
        if isinstance(primal, Tensor) and primal.level is self:
            primal = primal.value
        return value, aux, primal

    def aval(self, t: Tensor) -> JaxObject:
        """The shape and dtype a user sees, as JAX's abstract value."""
        lazy = t._lazy
        return t._value.aval if lazy is None else lazy.aval

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        """The parts of ``t``, values one level down, and the static rest: as a pytree is taken apart."""
        return (t._value,), None

    def unflatten(self, rest: Hashable, parts: Iterator[Operand]) -> Tensor:
        """A Tensor of this level with this static rest, of the next ones of ``parts``."""
        return new_tensor(next(parts), self)


# What rooms below ask of levels of one kind.


class RecorderLevel(Level):
    """A level that may record what it evaluates: a `fad.tape.recorder.RecordingLevel`.

    ``wraps``: it evaluates by binding the values of its Tensors and wrapping what comes out.
    ``as_called``: it runs the calls that it records, and levels below differentiate them; see
    NOTE [calls with rules] in `fad.core.primitive`.
    """

    __slots__ = ()

    wraps = False
    as_called = False

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        """Run ``op`` without recording; outputs are Tensors of this level."""
        raise self._without("evaluate(op, args)")


class LanesLevel(Level):
    """The level of a vmap, which has lanes: a `fad.tape.vmap.BatchLevel`."""

    __slots__ = ()

    batch_size: int
    axis_name: Hashable
    randomness: str
    first: int

    def mapped(self, value: Value, dim: int) -> Tensor:
        """An argument with the batch at ``dim``, a Tensor of this level."""
        raise NotImplementedError

    def unwrap(self, x: Value, out_dim: int | None, who: str = "vmap") -> Value:
        """``x`` one level down, with the batch at ``out_dim``; what is shared is broadcast."""
        raise NotImplementedError


class TracedBody(Level):
    """The level of a body of `jit` that is being traced; see NOTE [twins] in `fad.compile.outer_tensors`."""

    __slots__ = ()

    def inside(self, t: Tensor) -> Tensor:
        """What stands in the body for ``t``, a Tensor from outside; ``t`` itself where nothing does."""
        return t

    def outside(self, t: Tensor) -> Tensor:
        """The Tensor from outside that ``t`` stands for; else ``t`` itself."""
        return t

    def origins(self, t: Tensor) -> list[Tensor]:
        """What ``t`` stands for, as an argument too: around this body, around that one, and so on."""
        return []

    def lower(self, x: Operand) -> Array:
        """``x`` as JAX sees it in the body."""
        raise NotImplementedError


def bind(op: Operation, args: Sequence[Operand]) -> Outputs:
    """Run an operation on flat arguments: arrays, Python scalars and Tensors.

    Arguments:
        op: the `Operation`.
        args: its array arguments; everything static is part of ``op``.

    Returns:
        An array or a tuple of arrays; Tensors of the highest level among ``args`` if there are Tensors.

    >>> import fad
    >>> class Below(fad.extend.Level):
    ...     def process(self, op, args):
    ...         return fad.extend.bind(op, [a.value for a in args])
    >>> with Below() as level:
    ...     -level.lift(fad.tensor(2.0))
    Tensor(-2., dtype=float32)
    """
    if bodies.traced:
        args = [inside(a) if isinstance(a, Tensor) else a for a in args]
    top: Level | None = None
    for a in args:
        if type(a) not in VALUES and isinstance(a, Tensor):
            meta = a.meta
            if meta is not None and meta.link is not None:
                meta.link.enter(a)
            level = a._level
            if level is not top and (top is None or level.id > top.id):
                top = level
    if top is None:
        return op.execute(args)
    if not top.alive:
        return bind(op, [outlived(a) for a in args])
    return top.process(op, args)


def new_argument(value: Operand, level: Level, aux: object = None) -> Tensor:
    """`new_tensor` for an argument of the function that runs at ``level``, which notes it.

    >>> import fad
    >>> with fad.extend.RecordingLevel() as level:
    ...     x = fad.extend.new_argument(fad.tensor(2.0), level)
    ...     [a.item() for a in level.arguments]
    [2.0]
    """
    if isinstance(value, Tensor):
        level.arguments.append(value)
    return new_tensor(value, level, aux)


def batch_dim(t: Tensor) -> int | None:
    """The dimension of the value of ``t`` that its level maps over, or None."""
    dim: int | None = t.aux if t._level.maps else None
    return dim


def outlived(x: PyTree) -> PyTree:
    """``x`` with the wrappers of finished levels removed.

    >>> import fad
    >>> with fad.extend.RecordingLevel() as level:
    ...     x = level.lift(fad.tensor(2.0))
    >>> x.level.alive, fad.extend.outlived(x).level.alive
    (False, True)
    """
    if bodies.traced and isinstance(x, Tensor):
        x = inside(x)
    while isinstance(x, Tensor) and not x.level.alive:
        x = x.level.outlive(x)
    return x


def layers(x: object) -> Iterator[Tensor]:
    """``x``, the Tensor that its value is, and so on down, as long as these are Tensors of running levels.

    >>> import fad
    >>> def f(x):
    ...     print([t.level.kind for t in fad.extend.layers(x)])
    ...     return x
    >>> y = fad.vmap(fad.grad(f))(fad.numpy.ones(2))
    ['grad', 'vmap']
    """
    x = outlived(x)
    while isinstance(x, Tensor):
        yield x
        x = outlived(x.value)


def inside(t: Tensor) -> Tensor:
    """What stands for ``t`` in the body of `jit` that this thread traces; ``t`` itself where nothing does.

    See NOTE [twins] in `fad.compile.outer_tensors`.
    """
    body = state.body
    return t if body is None else body.inside(t)


bodies.inside = inside


def outside(t: Tensor) -> Tensor:
    """The Tensor from outside of the body that is being traced for which ``t`` stands; else ``t`` itself."""
    body = state.body if bodies.traced else None
    return t if body is None else body.outside(t)


@contextmanager
def modes(**values: object) -> Iterator[None]:
    """A block in which these modes of the thread, by their names in `ThreadState`, have these values."""
    before = {name: getattr(state, name) for name in values}
    state.__dict__.update(values)
    try:
        yield
    finally:
        state.__dict__.update(before)


@contextmanager
def body_of(level: TracedBody) -> Iterator[None]:
    """A block that traces the body of `jit` at ``level``, which captures Tensors made before it."""
    with bodies.lock:
        bodies.traced += 1
    try:
        with modes(body=level):
            yield
    finally:
        with bodies.lock:
            bodies.traced -= 1


def constants() -> AbstractContextManager[None]:
    """A block in which a body of `jit` captures no Tensors: those from outside are constants."""
    return modes(body=None)


def uncompiled() -> AbstractContextManager[None]:
    """A block in which functions of `fad.jit` and `fad.checkpoint`, and the loops and branches of `fad.lax`
    whose conditions have values, run as Python, operation by operation: for levels that look at each. An
    operation that is pushed forward is two there: itself, and its derivative.

    Source: ``jax.disable_jit``, which does so for JAX's own.

    >>> import fad
    >>> from fad import extend
    >>> f = fad.jit(lambda x: x.item() + 1.0)
    >>> with extend.uncompiled():
    ...     f(fad.tensor(2.0))
    3.0
    """
    return modes(uncompiled=True)


def traced_by_jax() -> AbstractContextManager[None]:
    """A block in which JAX traces the body of a Function: earlier levels are outside of the trace."""
    return modes(body=None, outside_jax_trace=last_level_id())


def batching(f: ArrayFunction) -> ArrayFunction:
    """``f``, an application of `jax.vmap`, with ``state.batching`` on during its calls."""

    def run(*values: Array) -> Outputs:
        with modes(batching=True):
            return f(*values)

    return run


def captured_by_jit(x: object) -> bool:
    """Whether ``x`` is a Tensor of level 0 that the `jit` being traced captures, and reads at each call."""
    if not bodies.traced or state.body is None:
        return False
    return isinstance(x, Tensor) and x.born < state.body.id


def with_default_state(*kept: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function runs with the modes of a new thread, but for those named ``kept``.

    For what runs in the middle of other work: a callback of JAX's, a hook, a finalizer.

    >>> import fad
    >>> @fad.extend.with_default_state()
    ... def callback():
    ...     return fad.is_grad_enabled(), fad.extend.running_levels()
    >>> with fad.no_grad():
    ...     print(callback())
    (True, ())
    """
    defaults = {name: mode for name, mode in MODES.items() if name not in kept}

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(f)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            modes = state.__dict__
            before = {name: modes.get(name, mode) for name, mode in defaults.items()}
            try:
                modes.update(defaults)
                return f(*args, **kwargs)
            finally:
                modes.update(before)

        return call

    return decorate


def restores_modes(f: Callable[P, R]) -> Callable[P, R]:
    """``f``, a function that enters levels; if it raises, the modes of the thread are restored.

    NOTE [interrupts]: a signal handler (Ctrl-C, a timer) can raise an exception after any call, so also
    at the first line of the ``__exit__`` of a level or a mode, which then stays entered. So a function
    that enters levels restores all modes with one call of a C function, which a signal cannot
    interrupt.

    >>> import fad
    >>> from fad import extend
    >>> @extend.restores_modes
    ... def f():
    ...     fad.no_grad().__enter__()
    ...     raise ValueError("in the middle")
    >>> f()
    Traceback (most recent call last):
    ValueError: in the middle
    >>> fad.is_grad_enabled()
    True
    """

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        modes = state.__dict__
        before = {**MODES, **modes}
        del before["trace"]  # the tape manages this one itself
        try:
            return f(*args, **kwargs)
        except BaseException as error:
            modes.update(before)
            advise(error, inside=True)
            raise

    return call


def flush() -> None:
    """Record what this thread has deferred, at its levels and on the eager tape.

    >>> import fad
    >>> y = fad.numpy.sin(fad.tensor(0.0))
    >>> fad.extend.flush()
    >>> fad.extend.is_deferred(y)
    False
    """
    modes = state.__dict__.get  # without a key: the default
    for level in modes("levels", ()):
        if level.trace is not None:
            level.trace.materialize()
    trace = state.trace
    if trace is not None:
        trace.materialize()


def map_tensors(f: Callable[[PyTree], object], out: Outputs) -> Outputs:
    """Apply ``f`` to a flat output: an array, or a tuple of arrays.

    >>> from fad import extend
    >>> extend.map_outputs(lambda x: x + 1.0, (1.0, 2.0))
    (2.0, 3.0)
    """
    return tuple([f(o) for o in out]) if type(out) is tuple else f(out)
