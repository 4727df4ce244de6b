"""The observer that collects the events of profiles.

NOTE [profiles]

While there is a profile, the observer stands in the places that `fad.core.observation` lists, and in
front of the nodes of backward passes. Each thread has a stack of the events that it is in the middle of.
What is measured of an event is its own: time, bytes and compilations are counted once, for the innermost
event, so that sums over events are right. Nothing that is observed is kept alive: events have names and
numbers, no Tensors.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import jax

from fad.autograd import AccumulateGrad, Node
from fad.extend import Level, Tensor, is_deferred, observe, running_levels
from fad.extend.types import Operand, PyTree
from fad.profiling.events import FREED, KEPT, LEFT, MADE, Event, Target, now

COMPILED = "/jax/core/compile/backend_compile_duration"


Call = Callable[[], PyTree]  # what is observed, with its arguments
Args = tuple[Any, ...]


class _ThreadEvents(threading.local):
    """Of each thread: the events that it is in the middle of; how often XLA has compiled in it;
    ``muted``: a program is being traced, whose operations are no events.
    """

    def __init__(self) -> None:
        self.stack: list[Event] = []
        self.compiled = 0
        self.muted = False


class _Array(weakref.ref[Any]):
    """A reference to an array that was made."""

    __slots__ = ("key", "nbytes")

    key: int
    nbytes: int


class _Saving(weakref.ref[Any]):
    """A reference to a node that keeps values."""

    __slots__ = ("kept", "key")

    key: int
    kept: list[tuple[int, int]]


class Collector:
    """The observer, while there are profiles. ``targets``: those of all profiles that are open."""

    def __init__(self) -> None:
        self.targets: tuple[Target, ...] = ()
        self.thread = _ThreadEvents()
        self.numbers = itertools.count()
        self.arrays: dict[int, _Array] = {}
        self.nodes: dict[int, _Saving] = {}

    def start(self) -> None:
        """Observe."""
        jax.monitoring.register_event_duration_secs_listener(self._note_compilation)
        observe(self)

    def stop(self) -> None:
        """Observe no more."""
        observe(None)
        jax.monitoring.unregister_event_duration_listener(self._note_compilation)
        self.arrays.clear()
        self.nodes.clear()

    def _note_compilation(self, event: str, duration_secs: float, **_: object) -> None:
        if event == COMPILED:
            self.thread.compiled += 1

    # Events

    def begin(self, name: str, kind: str, level: str = "") -> Event:
        """An event that begins now, in this thread; to be used in a ``with`` block."""
        return Event(name, kind, level, self.thread.stack, self.targets)

    # What is observed

    def observed(
        self,
        kind: str,
        function: Callable[..., PyTree],
        args: tuple[Any, ...],
        kwargs: dict[str, PyTree],
    ) -> PyTree:
        """See `fad.extend.observe`."""
        if self.thread.muted:
            return function(*args, **kwargs)
        return getattr(self, f"_{kind}")(functools.partial(function, *args, **kwargs), args)

    def _operation(self, call: Call, args: Args) -> PyTree:
        level, op = args[0], args[1]
        kind = "program" if op.expands else "operation"
        with self.begin(op.name, kind, level_name(level)) as event:
            event.operations = op.work if op.expands else 0
            out = call()
            self._note_outputs(event, out)
            return out

    def _execution(self, call: Call, args: Args) -> PyTree:
        """A call of XLA: of the operation that is running, or an operation of its own."""
        stack = self.thread.stack
        if stack and stack[-1].kind in ("operation", "traced"):
            return self._call_xla(stack[-1], call)
        with self.begin(args[0].name, "operation", "arrays") as event:
            return self._call_xla(event, call)

    def _call_xla(self, event: Event, call: Call) -> PyTree:
        thread = self.thread
        before, inner, start = thread.compiled, event.inner, now()
        out = call()
        if not self._note_made(event, [out] if type(out) is not tuple else out):
            note_tracing(event)
            return out
        # What an event inside of it took is counted there.
        duration = now() - start - (event.inner - inner)
        if thread.compiled == before:
            event.xla += duration
        else:
            event.compiling += duration
            event.compiled += thread.compiled - before
        return out

    def _program(self, call: Call, args: Args) -> PyTree:
        program = args[0]
        with self.begin(program.name, "replayed") as event:
            event.operations = program.work
            out = self._call_xla(event, call)
            if event.binds:
                event.kind, event.xla, event.compiling = "program", 0, 0
            return out

    def _compilation(self, call: Call, args: Args) -> PyTree:
        program = args[0]
        before = self.thread.compiled
        with self.begin(program.name, "compilation") as event:
            event.operations, event.compiled = program.work, 1
            try:
                return self._abstract_evaluation(call, args)
            finally:
                self.thread.compiled = before  # it is counted here
                event.compiling = now() - event.start

    def _abstract_evaluation(self, call: Call, args: Args) -> PyTree:
        """Operations of which only shapes are asked, or which become part of a program of replay."""
        thread = self.thread
        before, thread.muted = thread.muted, True
        try:
            return call()
        finally:
            thread.muted = before

    def _compiled(self, call: Call, args: Args) -> PyTree:
        with self.begin(args[0]._name, "jit") as event:
            before = self.thread.compiled
            out = call()
            if not event.inner and self._note_made(event, jax.tree.leaves(out)):  # by the fast path
                event.compiled = self.thread.compiled - before
                duration = now() - event.start
                event.xla, event.compiling = (0, duration) if event.compiled else (duration, 0)
            return out

    def _function(self, call: Call, args: Args) -> PyTree:
        name = getattr(args[0], "__name__", "") or args[0].name
        with self.begin(name, "function") as event:
            out = call()
            if out is None:
                event.kind = ""
            elif type(out) is tuple and type(out[-1]) is list:  # see `fad.functions.calls`
                self._note_outputs(event, tuple(out[-1]))
            else:
                self._note_outputs(event, out)
            return out

    def _indexing(self, call: Call, args: Args) -> PyTree:
        with self.begin("x[i] = v" if len(args) == 3 else "x[i]", "indexing"):
            return call()

    def node(self, function: Callable[..., PyTree], work: Any, node: Node, *args: object) -> PyTree:
        """A node of a backward pass; see `fad.tape.anomaly.watched_node`."""
        if self.thread.muted:
            return function(work, node, *args)
        level = "" if node.level is None else level_name(node.level)
        with self.begin(node.name(), "backward", level) as event:
            if not isinstance(node, AccumulateGrad):
                event.sequence = (node.sequence_nr, node.thread_id)
            return function(work, node, *args)

    def _trace(self, call: Call, args: Args) -> PyTree:
        for target in self.targets:
            target.traces.append(args[1:])
        return call()

    # Memory

    def _note_made(self, event: Event, outs: Sequence[Operand]) -> bool:
        """Note the arrays that a call gave; False if there are none: it was traced."""
        has_arrays = False
        for a in outs:
            if not _is_computed(a):
                continue
            has_arrays = True
            if any([target.sync for target in event.targets]):
                a.block_until_ready()
            nbytes = _nbytes(a)
            event.made += nbytes
            reference = _Array(a, self._freed)
            reference.key, reference.nbytes = next(self.numbers), nbytes
            self.arrays[reference.key] = reference
            self._change(MADE, reference.key, nbytes, event.name)
        return has_arrays

    def _freed(self, reference: _Array) -> None:
        if self.arrays.pop(reference.key, None) is not None:
            self._change(FREED, reference.key, reference.nbytes, "")

    def _change(self, what: str, key: int, nbytes: int, name: str) -> None:
        for target in self.targets:
            target.changes.append((now(), what, key, nbytes, name))

    def _note_outputs(self, event: Event, out: object) -> None:
        """Whether outputs are deferred; and the node that was recorded, and what it keeps."""
        for t in out if type(out) is tuple else (out,):
            if not isinstance(t, Tensor):
                continue
            if is_deferred(t):
                event.kind = "deferred"
                return
            node = t.grad_fn
            if event.kind != "traced" and _saves(node) and id(node) not in self.nodes:
                event.sequence = (node.sequence_nr, node.thread_id)
                self._note_kept(event, node)

    def _note_kept(self, event: Event, node: Any) -> None:
        sizes = {id(a): _nbytes(a) for a in map(_bottom, node.saved_values()) if a is not None}
        event.saved = sum(sizes.values())
        reference = _Saving(node, self._left)
        reference.key, reference.kept = id(node), list(sizes.items())
        self.nodes[reference.key] = reference
        for key, nbytes in reference.kept:
            self._change(KEPT, key, nbytes, event.name)

    def _left(self, reference: _Saving) -> None:
        """A node is gone, or lets go of what it keeps."""
        if self.nodes.get(reference.key) is reference:
            del self.nodes[reference.key]
            self._let_go(reference)

    def _let_go(self, reference: _Saving) -> None:
        for key, nbytes in reference.kept:
            self._change(LEFT, key, nbytes, "")
        reference.kept = []

    def _release(self, call: Call, args: Args) -> PyTree:
        reference = self.nodes.get(id(args[0]))
        if reference is not None:
            self._let_go(reference)
        return call()


def _nbytes(a: PyTree) -> int:
    aval = a.aval  # faster than `a.nbytes`
    return int(aval.size * aval.dtype.itemsize)


def _bottom(x: object) -> Any:
    """The array in a Tensor that has one; None for what has none, or none yet."""
    while isinstance(x, Tensor):
        if is_deferred(x):
            return None
        x = x.value
    return x if _is_computed(x) else None


def _is_computed(x: object) -> TypeGuard[jax.Array]:
    """Whether ``x`` is an array, and no tracer."""
    return isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)


def _saves(node: Node | None) -> TypeGuard[Node]:
    """Whether it is the node of a recorded operation, which keeps values."""
    return hasattr(node, "saved_values")


def note_tracing(event: Event | None) -> None:
    """Nothing was computed in it, and in the calls of which it is part."""
    while event is not None and event.kind in ("operation", "backward", "traced"):
        event.kind, event.sequence = "traced", None
        event = event.parent


def level_name(level: Level) -> str:
    """The kinds of the levels that this thread has entered, up to this one: "vmap/grad"."""
    levels = running_levels()
    if level not in levels:
        return str(level.kind)
    return "/".join([x.kind for x in levels if x.id <= level.id])


_lock = threading.RLock()
_running: list[Collector] = []  # the observer that is there now, if any


def collector() -> Collector | None:
    """The observer that is there now; None without a profile."""
    return _running[0] if _running else None


def open_target(sync: bool) -> Target:
    """Have all that happens from now on appended to a new target."""
    target = Target(sync)
    with _lock:
        if not _running:
            observer = Collector()
            observer.start()
            _running.append(observer)
        _running[0].targets = (*_running[0].targets, target)
    return target


def close_target(target: Target) -> None:
    """Append nothing more to it."""
    with _lock:
        target.is_open = False
        if not _running:
            return
        observer = _running[0]
        observer.targets = tuple([t for t in observer.targets if t is not target])
        if not observer.targets:
            _running.clear()
            observer.stop()
