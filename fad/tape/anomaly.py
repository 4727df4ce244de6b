"""Watching a program: anomaly mode, which `fad.hints.anomalies` looks for NaN in, and profiler names."""

from __future__ import annotations

import functools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import jax

from fad.core.faces import tool
from fad.core.level import Level, flush, state
from fad.core.tensor import Storage, Tensor
from fad.core.types import MaybeValue, Operand, Operation, Outputs, PyTree
from fad.errors import GradientError
from fad.tape.grad_mode import BlockType
from fad.tape.graph import Node, node_of, running


class _Mode:
    """What is watched; one for the process, as in PyTorch.

    ``on``: anomaly mode; ``check_nan``: it looks for NaN; ``tracing``: calls and nodes are named for
    the profiler of JAX. ``node_observers``: functions that are given each new node. ``remembers``: new
    nodes are given to `remember`; ``looks_for_nan``: backward passes are followed by
    `NanOrigins`. ``watch``: any of them, the one flag that every call checks.
    ``observer``: what `fad.autograd.profile` has put in; with it, or with ``watch``, nodes are run by
    `watched_node` (``nodes``).
    """

    def __init__(self) -> None:
        self.on = False
        self.check_nan = True
        self.tracing = False
        self.node_observers: tuple[Callable[[Node], None], ...] = ()
        self.observer: Any = None
        self.update()

    def update(self) -> None:
        """Set the flags that follow from others."""
        self.remembers = self.on or bool(self.node_observers)
        self.looks_for_nan = self.on and self.check_nan
        self.watch = self.remembers or self.tracing
        self.nodes = self.watch or self.observer is not None


mode = _Mode()


class set_detect_anomaly:
    """Switch anomaly mode by a bool: at once, and until the ``with`` block ends if used as one.

    Arguments:
        mode: whether to be in anomaly mode.
        check_nan: whether to look for NaN in values, tangents and gradients.

    Source: ``torch.autograd.set_detect_anomaly``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor(-1.0, requires_grad=True)
    >>> with fad.autograd.set_detect_anomaly(True):
    ...     fnp.log(x)
    Traceback (most recent call last):
    fad.errors.GradientError: 'log' gave nan
    """

    __slots__ = ("_before",)

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _set(bool(mode), bool(check_nan))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        _set(*self._before)


class detect_anomaly(metaclass=BlockType):
    """A block in which each node remembers the line that made it, and NaN is an error.

    A backward rule that fails, or returns NaN, raises with the traceback of the forward call; with
    ``create_graph``, those of the nodes whose backward pass made it too. Frames of fad and JAX are left
    out, if `fad.errors.traceback_filtering` is not off; ``node.metadata["traceback_"]`` has all of them.
    Beyond PyTorch, a NaN in a forward value or in a tangent raises where it arises, with the level and the
    lanes of vmap.

    Arguments:
        check_nan: whether to look for NaN.

    Source: ``torch.autograd.detect_anomaly``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor(0.0, requires_grad=True)
    >>> with fad.autograd.detect_anomaly():
    ...     (fnp.sqrt(x) * 0.0).backward()
    Traceback (most recent call last):
    fad.errors.GradientError: Function 'SqrtBackward' returned nan values in its 0th output. ...
    """

    __slots__ = ("_before", "check_nan")

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self._before: list[tuple[bool, bool]] = []

    def __enter__(self) -> Self:
        self._before.append(_set(True, self.check_nan))
        return self

    def __exit__(self, *exc: object) -> None:
        _set(*self._before.pop())


def _set(on: bool, check_nan: bool) -> tuple[bool, bool]:
    flush()  # what came before is not watched
    before = (mode.on, mode.check_nan)
    mode.on, mode.check_nan = on, check_nan
    mode.update()
    return before


@contextmanager
def emit_trace() -> Iterator[None]:
    """A block in which ``jax.profiler`` traces show nodes, and the calls that recorded them.

    A call appears under its operation's name (``multiply``), its backward work under the node's
    (``MultiplyBackward``); both carry ``seq`` and ``thread``, the node's ``sequence_nr`` and
    ``thread_id``, by which they pair. Outside of the block nothing is emitted, and it costs nothing.

    Source: ``torch.autograd.profiler.emit_nvtx``.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> with fad.autograd.emit_trace():  # inside of jax.profiler.trace(directory)
    ...     (x * x).backward()
    """
    flush()
    before = mode.tracing
    mode.tracing = True
    mode.update()
    try:
        yield
    finally:
        mode.tracing = before
        mode.update()


@contextmanager
def observed_nodes(observer: Callable[[Node], None]) -> Iterator[None]:
    """A block in which ``observer`` is given each new node, of every level and thread.

    Nothing is replayed there: each operation is recorded as it is called.
    """
    flush()
    with _observers_change:
        mode.node_observers = (*mode.node_observers, observer)
        mode.update()
    try:
        yield
    finally:
        with _observers_change:
            mode.node_observers = tuple([o for o in mode.node_observers if o is not observer])
            mode.update()


_observers_change = threading.RLock()


def _named(name: str, seq: int, thread: int) -> AbstractContextManager[object]:
    """A block that the profiler of JAX shows under a name, if it is asked to."""
    if not mode.tracing:
        return nullcontext()
    return jax.profiler.TraceAnnotation(name, seq=seq, thread=thread)


# Calls


def watched_call(level: Level, op: Operation, args: Sequence[Operand], whole: bool) -> Outputs:
    """``level.process(op, args)``, named for the profiler, its results checked for NaN.

    ``whole``: calls that it consists of (at the levels below) are not watched for themselves.
    """
    seq = next(running.sequence)
    with _watching(True if whole else op), _named(op.name, seq, running.id):
        out = level.process(op, args)
    outs = out if type(out) is tuple else (out,)
    for o in outs:
        if isinstance(o, Tensor) and o.node is not None and o.node.sequence_nr > seq:
            o.node.sequence_nr = seq  # the number in the profiler's annotation
    if mode.looks_for_nan:
        tool("hints.anomalies").check_call(op.name, level, args, outs, state.host)
    return out


def compiled_call(name: str, call: Callable[..., Outputs], *operands: PyTree) -> Outputs:
    """``call(*operands)``, of a function that `jit` has compiled: errors of it say how to look inside."""
    try:
        out = call(*operands)
    except GradientError as error:
        if not str(error).startswith(f"'{name}' gave nan"):
            raise
        raise GradientError(tool("hints.anomalies").in_compiled(error)) from None
    for o in out if isinstance(out, tuple) else (out,):
        while isinstance(o, Tensor):
            node = node_of(o)
            if node is not None:
                node.metadata["compiled_"] = True
            o = o.value
    return out


@contextmanager
def _watching(watched: Operation | bool) -> Iterator[None]:
    """A block that is part of a watched call; see `running`."""
    before, running.watched = running.watched, watched
    try:
        yield
    finally:
        running.watched = before


def reported_as_one() -> AbstractContextManager[None]:
    """A block in which calls and nodes are not checked for themselves, as they are parts of one that is."""
    return _watching(True)


@contextmanager
def choosing(name: str, args: Sequence[Operand]) -> Iterator[list[Operand]]:
    """A block that drops values: of all that it computes only those that it puts into the list are checked.

    `fad.autograd.detect_anomaly` raises where an operation makes a NaN. Here that is so for the block as a
    whole, the operation ``name`` of ``args``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor([-1.0, 4.0])
    >>> with fad.autograd.detect_anomaly(), fad.extend.choosing("root", [x]) as checked:
    ...     checked.append(fnp.where(x > 0.0, fnp.sqrt(x), 0.0))
    >>> checked[0].tolist()
    [0.0, 2.0]
    """
    chosen: list[Operand] = []
    if not mode.looks_for_nan or running.watched is True:
        yield chosen
        return
    with reported_as_one():
        yield chosen
    if chosen:
        levels = [x.level for x in chosen if isinstance(x, Tensor)]
        level = max(levels, key=lambda level: level.id, default=None)
        tool("hints.anomalies").check_call(name, level, args, chosen, state.host)


# Nodes


def remember(node: Node) -> None:
    """Give a new node to observers; in anomaly mode, keep in its metadata where it was made, and in whose
    backward pass.
    """
    if running.unwatched:
        return
    for observer in mode.node_observers:
        observer(node)
    if not mode.on:
        return
    node.metadata["traceback_"] = traceback.format_stack()[:-1]
    if running.current is not None:
        node.metadata["parent_"] = running.current


# Of what was written to in anomaly mode, a storage or the output of a node: the stacks of the writes, by the
# versions that they made.
_writes: weakref.WeakKeyDictionary[Storage | Node, dict[int, list[str]]]
_writes = weakref.WeakKeyDictionary()
_MOST_WRITES = 256  # so many of the last are kept


def remember_write(of: Storage | Node, version: int) -> None:
    """In anomaly mode, keep where the write is made that makes this version."""
    if not mode.on:
        return
    stacks = _writes.setdefault(of, {})
    stacks[version] = traceback.format_stack()[:-1]
    if len(stacks) > _MOST_WRITES:
        del stacks[next(iter(stacks))]


def explain_write(of: Storage | Node, version: int) -> str:
    """Where the write was made that made this version, or how that can be known."""
    text: str = tool("hints.anomalies").of_write(_writes.get(of, {}).get(version))
    return text


def nan_origins() -> PyTree:
    """What follows the NaN of a backward pass that begins."""
    return tool("hints.anomalies").NanOrigins(None if running.watched is True else state.host)


def watched_node(work: Callable[..., PyTree], node: Node, *args: object) -> Sequence[MaybeValue]:
    """One node of a backward pass: ``work(node, *args)``, which gives its gradients."""
    observer = mode.observer
    run = _named_node if observer is None else functools.partial(observer.node, _named_node)
    gradients: Sequence[MaybeValue] = run(work, node, *args)
    return gradients


def _named_node(work: Callable[..., PyTree], node: Node, *args: object) -> Sequence[MaybeValue]:
    """`watched_node`, named for the profiler of JAX.

    In anomaly mode, an error gets a note that says where the node was made.
    """
    try:
        with (
            _named(node.name(), node.sequence_nr, node.thread_id),
            reported_as_one() if mode.on else nullcontext(),
        ):
            gradients: Sequence[MaybeValue] = work(node, *args)
            return gradients
    except Exception as error:  # any exception of a node propagates, with a note
        if mode.on:
            error.add_note(tool("hints.anomalies").explain(node))
        raise
