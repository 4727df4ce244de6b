"""Watching a program: anomaly mode (where a NaN, or a failing rule, comes from) and profiler names."""

from __future__ import annotations

import functools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.level import Level, batch_dim, bind, flush, state
from fad.core.primitive import Primitive
from fad.core.tensor import Storage, Tensor
from fad.core.types import Array, MaybeValue, Operand, Operation, Outputs, PyTree
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
        _check_call(op.name, level, args, outs)
    return out


def compiled_call(name: str, call: Callable[..., Outputs], *operands: PyTree) -> Outputs:
    """``call(*operands)``, of a function that `jit` has compiled: errors of it say how to look inside."""
    try:
        out = call(*operands)
    except GradientError as error:
        if not str(error).startswith(f"'{name}' gave nan"):
            raise
        raise GradientError(f"{error}. {_COMPILED} fad.jit(f, hooks=True) {_NAMES_IT}") from None
    for o in out if isinstance(out, tuple) else (out,):
        while isinstance(o, Tensor):
            node = node_of(o)
            if node is not None:
                node.metadata["compiled_"] = True
            o = o.value
    return out


_COMPILED = "That is a compiled function, one operation:"
_NAMES_IT = "names the operation in it"


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
    levels = [x.level for x in chosen if isinstance(x, Tensor)]
    _check_call(name, max(levels, key=lambda level: level.id, default=None), args, chosen)


def _check_call(
    name: str, level: Level | None, args: Sequence[Operand], outs: Sequence[Operand]
) -> None:
    """Raise if a call made a NaN, in a value or a tangent, that was not in its arguments; in traced code,
    write the check into the program.
    """
    message = f"'{name}' gave nan in the {{what}} of its {{k}}th output"
    message += (f", at {level!r}" if level else "") + "{lanes}, from arguments without nan"
    for k, o in enumerate(outs):
        for what, lanes in nans(o):
            if any([nan for a in args for nan in nans(a)]):
                return
            raise GradientError(message.format(what=what, k=k, lanes=lanes))
    flags = [] if state.host is None else flags_of([*outs, *args])
    if not any([k < len(outs) for (_, k, _), _ in flags]):
        return
    stack = _of_user(traceback.format_stack()[:-1])

    def check(nan_values: list[list[tuple[str, int, str]]]) -> None:
        (values,) = nan_values
        if values and all([k < len(outs) for _, k, _ in values]):
            what, k, lanes = values[0]
            error = message.format(what=what, k=k, lanes=lanes)
            raise GradientError(f"{error}. Traceback of the call:\n{stack}")

    check_when_executed([flags], check)


def parts_of(x: Operand) -> Iterator[tuple[str, Operand, tuple[int, ...]]]:
    """The value and the tangents that a value consists of, each with the dimensions of its lanes.

    Those of traced code are Tensors of its level.
    """
    parts: list[tuple[str, Operand, tuple[int, ...]]] = [("value", x, ())]
    while parts:
        what, x, dims = parts.pop(0)
        while isinstance(x, Tensor) and not x.level.traces:
            dim, tangent = batch_dim(x), x.level.tangent(x)
            if dim is not None:
                dims = (dim, *dims)
            if tangent is not None:
                parts.append(("tangent", tangent, dims))
            x = x.value
        yield what, x, dims


def nans(x: Operand) -> Iterator[tuple[str, str]]:
    """Where a value has NaN: ("value" or "tangent", lanes of vmap in words)."""
    for what, part, dims in parts_of(x):
        lanes = _nan_lanes(part, dims)
        if lanes is not None:
            yield what, lanes


def has_nan(x: Operand) -> bool:
    """Whether there is a NaN in a value or its tangents, in any lane."""
    return any(True for _ in nans(x))


@functools.lru_cache(maxsize=256)
def _lanes_with_nan(dims: tuple[int, ...]) -> Primitive:
    """For each lane, NaN if there is one in it, else 0; the dimensions of lanes first."""

    def flag(x: Array) -> Array:
        bad = jnp.isnan(x)
        for depth, dim in enumerate(dims):
            bad = jnp.moveaxis(bad, depth + dim, depth)
        bad = bad.any(tuple(range(len(dims), bad.ndim)))
        return jnp.where(bad, jnp.float32(jnp.nan), jnp.float32(0))

    return Primitive("lanes_with_nan", flag)


# What a flag tells of: "value" or "tangent", the number of the value, and its dimensions of lanes.
Place = tuple[str, int, tuple[int, ...]]
Flags = list[tuple[Place, Operand]]


def flags_of(values: Sequence[Operand | None]) -> Flags:
    """For the parts of values that a program computes, what each is, and a flag with NaN where it has one."""
    flags: Flags = []
    with reported_as_one():  # the check is not checked
        for k, value in enumerate(values):
            for what, part, dims in () if value is None else parts_of(value):
                if isinstance(part, Tensor) and is_inexact(part.dtype):
                    flag = bind(_lanes_with_nan(dims), (part.level.detach(part),))
                    flags.append(((what, k, dims), flag))
    return flags


def check_when_executed(
    several: Sequence[Flags], check: Callable[[list[list[tuple[str, int, str]]]], None]
) -> None:
    """Write a call of ``check`` into the program that is traced.

    It is given, for each of the lists of flags, the values that have NaN when the program is executed: what,
    which, and the lanes in words.
    """

    def run(*operands: Array) -> tuple[()]:
        values = iter(operands)
        check([list(_flagged([(place, next(values)) for place, _ in flags])) for flags in several])
        return ()

    with reported_as_one():
        state.host.call("detect_anomaly", run, [flag for flags in several for _, flag in flags], 0)


def _flagged(flags: Flags) -> Iterator[tuple[str, int, str]]:
    for (what, k, batch), flag in flags:
        for _, part, dims in parts_of(flag):
            lanes = _nan_lanes(part, (*dims, *[0] * len(batch)))
            if lanes is not None:
                yield what, k, lanes


def _nan_lanes(x: Operand, dims: tuple[int, ...]) -> str | None:
    """In which lanes an array has NaN, in words; None if there is none.

    ``dims``: the batch dimension of each vmap, outermost first, each as seen inside of those before.
    """
    if isinstance(x, jax.core.Tracer) or not isinstance(x, (jax.Array, np.ndarray)):
        return None
    if not is_inexact(x.dtype):
        return None
    bad = np.isnan(np.asarray(x).astype(np.complex64 if np.iscomplexobj(x) else np.float32))
    if not bad.any():
        return None
    if not dims:
        return ""
    for depth, dim in enumerate(dims):
        bad = np.moveaxis(bad, depth + dim, depth)
    lanes = np.argwhere(bad.reshape(*bad.shape[: len(dims)], -1).any(-1))
    shown = [str(lane[0]) if len(dims) == 1 else str(tuple(lane)) for lane in lanes[:8].tolist()]
    more = ", ..." if len(lanes) > 8 else ""
    return f", in vmap lane {', '.join(shown)}{more}"


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


def _of_user(frames: list[str]) -> str:
    """Frames of a stack, without those of fad and of JAX."""
    return "".join(tool("hints.tracebacks").users_frames(frames))


def explain_write(of: Storage | Node, version: int) -> str:
    """Where the write was made that made this version, or how that can be known."""
    stack = _writes.get(of, {}).get(version)
    if stack is None:
        return (
            "Or enable anomaly detection before the write, with fad.autograd.set_detect_anomaly(True): then "
            "this error has the line of the write, and that of the operation that failed to compute its "
            "gradient."
        )
    return "Traceback of the write:\n" + _of_user(stack)


def explain(node: Node) -> str:
    """The forward tracebacks of a node, and of those whose backward pass made it."""
    parts: list[str] = []
    at: Node | None = node
    while at is not None:
        lines = at.metadata.get("traceback_")
        what = "\nPrevious calculation was induced by" if parts else "Error detected in"
        where = (
            "No forward pass information available. Enable detect_anomaly during the forward pass for more "
            "information."
        )
        if lines is not None:
            frames = _of_user(lines)
            where = f"Traceback of forward call that caused the error:\n{frames}"
        parts.append(f"{what} {at.name()}. {where}")
        if at.metadata.get("compiled_"):
            inside = "fad.jit(fad.grad(f), hooks=True), with the derivative inside,"
            parts.append(f"{_COMPILED} {inside} {_NAMES_IT}.\n")
        at = at.metadata.get("parent_")
    return "".join(parts)


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
            error.add_note(explain(node))
        raise


# In anomaly mode: where a NaN that reaches the result of a backward pass was born.
#
# NOTE [a NaN that reaches a result]
#
#     x = fad.tensor([0.0, 4.0], requires_grad=True)
#     with fad.autograd.detect_anomaly():
#         fad.safe_where(x > 0, fad.numpy.sqrt, fad.numpy.zeros_like, x).sum().backward()
#     x.grad.tolist()  # -> [0.0, 0.25]
#
# The backward pass of a branch that is not taken may well compute a NaN, which the choice then drops. So the
# node that makes a NaN is remembered, along with the nodes that it flows into, and it is an error where it
# arrives: at a leaf, or at an input that a gradient is asked for. PyTorch raises at the node.


class NanOrigins:
    """The NaN of one backward pass: for each node that one flows into, what made it.

    ``traced``: of a program that is traced, the flags of what each node gave so far.
    """

    __slots__ = ("origins", "traced")

    def __init__(self) -> None:
        self.origins: dict[Node, str] = {}
        self.traced: list[tuple[Node, Flags]] = []

    def follow(
        self,
        node: Node,
        cotangents: Sequence[MaybeValue],
        grads: Sequence[MaybeValue],
        edges: Sequence[tuple[Node, int] | None],
    ) -> None:
        """Remember a NaN among the gradients that a node gave for its edges."""
        if state.host is not None and running.watched is not True:
            self.traced.append((node, flags_of(grads)))
        bad = {i: g for i, g in enumerate(grads) if g is not None and has_nan(g)}
        if not bad:
            return
        origin = self.origins.get(node)
        if origin is None:
            k, grad = next(iter(bad.items()))
            _, lanes = next(nans(grad))
            origin = _said(node, k, lanes, _dropped(cotangents, grad))
        for i in bad:
            edge = edges[i] if i < len(edges) else None
            if edge is not None:
                self.origins.setdefault(edge[0], origin)

    def arrive(self, node: Node, value: MaybeValue) -> None:
        """Raise if a result has a NaN.

        Raises:
            GradientError: it has; the error says which node made it, and where that was recorded.
        """
        if value is None:
            return
        if node in self.origins and has_nan(value):
            raise GradientError(self.origins[node])
        flags = flags_of([value]) if self.traced and running.watched is not True else []
        if not flags:
            return
        nodes = [(node.name(), explain(node)) for node, _ in self.traced]

        def check(nan_values: list[list[tuple[str, int, str]]]) -> None:
            arrived, *outputs = nan_values
            for (name, told), values in zip(nodes, outputs if arrived else (), strict=False):
                for _, k, lanes in values:
                    raise GradientError(_returned(name, k, lanes) + told)

        check_when_executed([flags, *[of_node for _, of_node in self.traced]], check)


def _returned(name: str, k: int, lanes: str) -> str:
    return f"Function '{name}' returned nan values in its {k}th output{lanes}. "


def _said(node: Node, k: int, lanes: str, element: str) -> str:
    dropped = ""
    if element:
        dropped = (
            f"At element {element} the cotangent is 0: the value is not used, as where `where` takes the "
            "other branch, but its derivative is infinite or nan, and 0 times that is nan. Write "
            "fad.safe_where(condition, f, g, x), which keeps it out. "
        )
    return _returned(node.name(), k, lanes) + dropped + explain(node)


def _dropped(cotangents: Sequence[MaybeValue], grad: Operand) -> str:
    """The first element of a gradient that is NaN, if each has the cotangent 0; else an empty text."""
    of_grad = [part for _, part, _ in parts_of(grad)][:1]
    of_cotangents = [[part for _, part, _ in parts_of(c)][:1] for c in cotangents if c is not None]
    if len(of_cotangents) != 1:
        return ""
    arrays = [*of_cotangents[0], *of_grad]
    if not all(isinstance(a, (jax.Array, np.ndarray)) for a in arrays):
        return ""
    if any(isinstance(a, jax.core.Tracer) for a in arrays):
        return ""
    cotangent, gradient = (np.asarray(a) for a in arrays)
    bad = np.isnan(gradient.astype(np.complex64))
    if cotangent.shape != gradient.shape or (cotangent[bad] != 0).any():
        return ""
    return str([int(i) for i in np.argwhere(bad)[0]])
