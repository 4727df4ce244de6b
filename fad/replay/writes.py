"""Writes in traces: a Tensor that is written to goes on as an output of the trace.

NOTE [deferred writes]

A write is an operation on the base (see `fad.views.inplace`), and a trace defers it like any other. Its
output, the *source*, is the new state of the base. From then on the Tensor of the user has no state of its
own and shares that of the source (`Shared`): as an argument of later operations it counts as the source, and
once the source has its value and its node, the Tensor gets them too (`Writes.update_shared`). A view that is
out of date replays its chain on the base, as always. That is one more operation of the trace, and the view
shares the state of its output.

The trace still needs the state from before the write. Wherever the Tensor was an output or an input of the
trace, another handle with the old state takes its place (`_stand_in`). Its Meta, a `Past`, has the version
of that state. So it is known whether an operation has saved what was overwritten later (`saves_stale`):
then the backward pass is an error, and the trace is recorded operation by operation, which raises it.
Recording comes after all writes, and so takes the versions of what it saves from `Past`, not from the
storage.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fad.core.level import state
from fad.core.tensor import (
    Lazy,
    Meta,
    Shared,
    Storage,
    Tensor,
    lazy_tensor,
    new_tensor,
    storage_of,
    take_over,
)
from fad.replay.arguments import Arguments
from fad.replay.entries import Operations, entry_of
from fad.replay.inputs import FOREIGN, Input, version_at
from fad.replay.states import State
from fad.tape.recorded_node import RecordedNode
from fad.tape.recorder import ROOT
from fad.views.aliases import Link, link_of
from fad.views.stop_gradient import stopped

__all__ = [
    "Past",
    "Writes",
    "at_versions_then",
    "handle_of",
    "note_written",
    "owner_of",
    "parts_below",
    "version_then",
]


class Past(Meta):
    """The Meta of a handle for the state of ``owner`` at a ``version`` of its storage."""

    def __init__(self, owner: Tensor, version: int) -> None:
        self.storage = storage_of(owner)
        self.owner = weakref.ref(owner)
        self.version = version


def is_past(t: Tensor) -> bool:
    """Whether ``t`` is a handle for what a Tensor was before it was written to."""
    return type(t.meta) is Past and t.meta.storage.version != t.meta.version


def out_of_date(t: Any) -> int | None:
    """The version of the state of ``t``, if it is a view whose base was written to since."""
    meta = t.meta if type(t) is Tensor else None
    if meta is None or type(meta.link) is not Link or meta.link.seen == meta.storage.version:
        return None
    return int(meta.link.seen)


def owner_of(t: Any) -> Any:
    """The Tensor for which ``t`` is a handle, if it is referenced; else ``t``."""
    owner = t.meta.owner() if isinstance(t, Tensor) and type(t.meta) is Past else None
    return t if owner is None else owner


def version_then(t: Any, version: int) -> int:
    """The version at which an operation of a trace has saved ``t``, whose storage is at ``version`` now."""
    if isinstance(t, Tensor) and type(t.meta) is Past:
        return t.meta.version
    return version


def parts_below(given: Input) -> Sequence[Any]:
    """The parts of an input for levels that record: a Tensor from outside, at the version of its capture."""
    a = given.argument
    if type(a) is not Tensor or a._level is not ROOT or given.layout is not FOREIGN:
        return given.parts
    if version_at(a) == given.version:
        return (a,)
    handle = new_tensor(given.parts[0], ROOT)
    handle.meta = Past(a, given.version)
    return (handle,)


@contextlib.contextmanager
def at_versions_then(args: Sequence[Any]) -> Iterator[None]:
    """A block in which what several nodes save of these handles is saved at the version of then.

    Programs are recorded in it: `version_then` can be asked for a single node, made for one operation.
    """
    metas = [a.meta for a in args if isinstance(a, Tensor) and type(a.meta) is Past]
    storages = [meta.storage for meta in metas]
    for meta in metas:
        meta.storage = Storage(meta.version)
    try:
        yield
    finally:
        for meta, storage in zip(metas, storages, strict=True):
            meta.storage = storage


def handle_of(t: Any) -> Any:
    """Another handle for what ``t`` is, lazy if it is; of an array, the array."""
    if not isinstance(t, Tensor):
        return t
    lazy = t._lazy  # a finalizer that reads ``t`` may set it to None
    if lazy is None:
        handle = new_tensor(t._value, t._level, t._aux)
        handle._node = t._node
        handle._requires_grad, handle._output_nr = t._requires_grad, t._output_nr
    else:
        handle = lazy_tensor(t._level, lazy, t._requires_grad, t._output_nr)
        if lazy.trace.done or t._level is not lazy.trace.level:
            copy_known(handle, t)
    handle.born = t.born
    return handle


_STATE = [Tensor.__dict__[name] for name in ("_value", "_aux", "_node")]


def copy_known(t: Tensor, o: Tensor) -> None:
    """Make the slots of ``t`` those of ``o``, a lazy Tensor: set where they are set, else empty."""
    for slot in _STATE:
        try:
            value = slot.__get__(o)
        except AttributeError:
            with contextlib.suppress(AttributeError):
                slot.__delete__(t)
        else:
            slot.__set__(t, value)


def note_written(t: Tensor) -> None:
    """Tell the node of which ``t`` is an output that this was written to."""
    if isinstance(t, Tensor) and isinstance(t._node, RecordedNode):
        t._node.output_written(t._output_nr, version_then(t, 0) + 1)


def saved_by(path: Sequence[State], writes: dict[int, int]) -> frozenset[int]:
    """The places of all inputs and outputs that nodes of these operations save.

    ``writes`` has the operations that are writes, with the number of their first arguments that are
    written to: these are left out, since the node of a write saves handles of its own.
    """
    key = tuple(writes.items())
    last = path[-1]
    known = last.saves.get(key)
    if known is None:
        places: set[int] = set()
        for at, step in enumerate(path, 1):
            own = writes.get(at, 0)
            for k in step.kept:
                if k >= own:
                    places.add(step.refs[k])
                elif k < 0:
                    places.update(range(step.first, step.size))
        known = last.saves[key] = frozenset(places)
    return known


def _has_no_hooks(meta: Meta) -> bool:
    return not (meta.retains_grad or meta.hooks or meta.post_hooks or meta.inference)


class Writes(Arguments):
    """What was written to in a trace.

    ``writes`` has the entries that are writes, with the number of arguments that are written to;
    ``unclaimed`` are outputs that were recorded when no weak reference found their Tensor any more.
    """

    __slots__ = ("unclaimed", "why", "writes")

    entries: list[Any]
    recording: tuple[int, int, tuple[Any, ...]]
    kept: dict[int, weakref.ref[Tensor]]
    busy: bool
    done: bool

    def __init__(self, level: Any, chain: Any) -> None:
        super().__init__(level, chain)
        self.writes: dict[int, int] = {}
        self.unclaimed: dict[int, Tensor] = {}
        self.why = ""  # why it was materialized

    def append(self, op: Any, args: Sequence[Any]) -> Any:
        raise NotImplementedError

    def materialize(self) -> None:
        raise NotImplementedError

    def write(self, op: Any, own: Sequence[Tensor], others: Sequence[Any]) -> bool:
        """See `fad.core.replay_protocol.Trace`."""
        root, at = own[0], len(self.entries)
        if not self._can_write(root):
            return False
        self.writes[at] = len(own)
        source = self.append(op, [*own, *others])
        lazy = None if source is None else source._lazy
        if lazy is None:
            return False
        trace: Writes = lazy.trace
        if trace is not self:  # but the next segment
            trace.writes[1] = self.writes.pop(at)
        storage = storage_of(root)
        trace._share_state(root, lazy, source, storage.version)
        storage.version += 1
        source.meta = Past(root, storage.version)
        if trace.done:  # a finalizer has read an output
            trace.update_shared()
        if storage.data is not None:  # and has detached the Tensor
            storage.data = stopped(source)
            link = link_of(root)
            if link is not None:
                link.seen, link.detached = storage.version, False
        return True

    def before_write(self) -> None:
        """See `fad.core.replay_protocol.Trace`, and NOTE [untracked operations]."""
        self.chain.root.defers_untracked = False
        if self.chain.has_untracked:
            self.why = self.why or "a value that nothing tracks was written to"
            self.materialize()

    def is_to_record(self) -> bool:
        """Whether it has untracked operations that should have been run at once."""
        return self.chain.has_untracked and not self.chain.root.defers_untracked

    def _can_write(self, root: Tensor) -> bool:
        """Whether a write to this Tensor can be deferred."""
        level, meta = self.level, root.meta
        if not level.wraps or self.busy or self.done or meta is None or root.born < level.id:
            return False
        if root._level is not level and (root._level is not ROOT or not self._has_or_defers(root)):
            return False  # the state that it has comes from another level
        if root._lazy is None and root._requires_grad:
            return False
        if any([own.id > level.id and own.current_trace() is not None for own in state.levels]):
            return False  # a trace of an inner level may have it for an input
        storage = meta.storage
        if storage.data is not None or storage.peers or self.chain.has_saved(root):
            return False
        return meta.link is None and _has_no_hooks(meta)

    def _has_or_defers(self, t: Tensor) -> bool:
        """Whether ``t`` has its state, or is an output of this very trace."""
        return t._lazy is None or t._lazy.trace is self

    def share(self, t: Tensor, new: Tensor) -> bool:
        """See `fad.core.replay_protocol.Trace`."""
        meta = t.meta
        if self.done or type(new._lazy) is Shared or meta is None or not _has_no_hooks(meta):
            return False
        if type(meta.link) is not Link or new.meta is not None:
            return False
        if t._lazy is None and t._requires_grad:
            return False
        self._share_state(t, new._lazy, new, meta.link.seen)
        new.meta = Past(t, meta.storage.version)
        if self.done:
            self.update_shared()
        return True

    def _share_state(self, t: Tensor, lazy: Lazy, source: Tensor, version: int) -> None:
        """Let ``t``, whose state is of ``version``, share that of ``source`` from now on."""
        self._stand_in(t, version)
        shared = Shared(lazy, source)
        before = t._lazy
        is_empty = before is not None and not before.trace.done and not lazy.trace.done
        is_empty = is_empty and t._level is self.level  # what is untracked may have been read
        self.chain.shared[id(t)] = weakref.ref(t)
        t._level, t._output_nr, t._lazy = source._level, source._output_nr, shared
        t._requires_grad = source._requires_grad
        if not is_empty:
            copy_known(t, source)

    def _stand_in(self, t: Tensor, version: int) -> None:
        """In what was appended, put another handle in the place of ``t``, whose state is of ``version``."""
        lazy = t._lazy
        if type(lazy) is Shared or (lazy is not None and lazy.trace.chain is not self.chain):
            return  # its source is there; or it is of another level
        handle = handle_of(t)
        handle.meta = Past(t, version)
        if lazy is not None:
            shared = Shared(lazy, handle)
            self.chain.shared[id(t)] = weakref.ref(t)
            t._lazy = shared
        is_there = False
        for trace in (*self.chain.segments, self):
            if lazy is not None and lazy.trace is trace:
                is_there = trace._replace_output(t, lazy.place, handle)
            trace._replace_input(t, handle)
        if lazy is not None and not is_there:  # a finalizer has read an output: `t` has its value
            t._lazy = None
            take_over(handle, t)

    def _replace_output(self, t: Tensor, place: int, handle: Tensor) -> bool:
        """Whether the trace still has output ``place``; if so, that is ``handle`` from now on."""
        entries = self.entries
        if entries[-1][0].size <= place:
            return False
        if place in self.kept:
            self.kept[place] = weakref.ref(handle)
        at = entry_of(entries, place)
        step, out, count = entries[at]
        if step.single:
            if out is t:
                entries[at] = (step, handle, count)
        elif out is not None:
            nr = place - step.first
            if out[nr] is t:
                out[nr] = handle
        return entries is self.entries

    def _replace_input(self, t: Tensor, handle: Tensor) -> None:
        inputs = self.inputs
        place = self.places.pop(id(t), None)
        if place is not None:
            self.places[id(handle)] = place
        for k in [~place] if place is not None else range(len(inputs) if self.done else 0):
            if k < len(inputs) and inputs[k].argument is t:
                inputs[k] = inputs[k]._replace(argument=handle)

    # Before a trace ends

    def detach_stale(self, outputs: list[Tensor], places: Iterable[int]) -> None:
        """Put handles in the place of inputs, and of ``outputs`` at ``places``, that are views out of date.

        Using such a view itself would refresh it.
        """
        if not self.writes:
            return
        for given in self.inputs[:]:
            seen = out_of_date(given.argument)
            if seen is not None:
                self._stand_in(given.argument, seen)
        for k in places:
            t = outputs[k]
            seen = out_of_date(t)
            if seen is not None:
                self._stand_in(t, seen)
                if type(t._lazy) is Shared:
                    outputs[k] = t._lazy.source

    def inputs_changed(self) -> bool:
        """Whether an input was written to, other than by operations of this trace."""
        for given in self.inputs:
            a = given.argument
            meta = a.meta if type(a) is Tensor else None
            if meta is None or type(meta) is Past:
                continue
            if meta.storage.version != given.version:
                return True
        return False

    def saves_stale(self, operations: Operations) -> bool:
        """Whether nodes would save what was overwritten since: then the backward pass is an error."""
        if not self.writes or self.recording[2]:  # `allow_mutation_on_saved_tensors`
            return False
        for k in saved_by(operations.path, self.writes):
            t = operations.value(k)
            if out_of_date(t) is not None or (type(t) is Tensor and is_past(t)):
                return True
        return False

    def note_saved(self, operations: Operations) -> None:
        """At the end of a segment: later writes to what its nodes would save are not deferred."""
        for k in () if self.recording[2] else saved_by(operations.path, self.writes):
            t = operations.value(k)
            if isinstance(t, Tensor) and (t._lazy is not None or not t._requires_grad):
                self.chain.note_saved(t)

    def claim(self, t: Tensor) -> None:
        """See `fad.core.replay_protocol.Trace`."""
        lazy = t._lazy
        found = self.unclaimed.get(lazy.place)
        if type(lazy) is Shared and not self._defers(lazy.source):
            found = lazy.source
        if found is not None:
            take_over(t, found)
            if t._lazy is not None:  # its operation has failed
                t._lazy.trace.claim(t)

    def _defers(self, t: Tensor) -> bool:
        lazy = t._lazy
        return lazy is not None and lazy.trace.chain is self.chain

    def update_shared(self) -> None:
        """Give the Tensors that share the state of outputs what these have by now."""
        shared, chain = self.chain.shared, self.chain
        for key, reference in list(shared.items()):
            t = reference()
            lazy = None if t is None else t._lazy
            if t is None or type(lazy) is not Shared or lazy.trace.chain is not chain:
                shared.pop(key, None)
                continue
            source = lazy.source
            if self._defers(source):
                copy_known(t, source)
            else:
                take_over(t, source)
                shared.pop(key, None)
