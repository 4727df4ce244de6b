"""Writes in traces: a Tensor that is written to goes on as an output of the trace.

NOTE [deferred writes]

    y = x * 2
    y[0] = 3.0       # y is the output of the write from now on
    z = y * y

A write is an operation on the base (see `fad.views.inplace`), and a trace defers it like any other; the
Tensor that is written to is its output. A view that is out of date replays its chain on the base, as always:
that is one more operation of the trace, and the view is its output.

The trace still needs the state from before the write. Where the Tensor was an output or an input of the
trace, another handle with the old state takes its place (`_stand_in`). Its Meta, a `Past`, has the version
of that state. So it is known whether an operation has saved what was overwritten later (`saves_stale`):
then the backward pass is an error, and the trace is recorded operation by operation, which raises it.
Recording comes after all writes, and so takes the versions of what it saves from `Past`, not from the
storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fad.core.level import state
from fad.core.tensor import Lazy, Meta, Tensor, storage_of, take_over
from fad.core.types import Operand, Operation
from fad.replay.buffer import Buffer
from fad.replay.inputs import Past, copy_known, handle_of, is_empty, version_at
from fad.tape.recorded_node import RecordedNode
from fad.tape.recorder import ROOT
from fad.views.aliases import Link, link_of, out_of_date
from fad.views.stop_gradient import stopped

if TYPE_CHECKING:
    from fad.replay.stretch import Stretch


def note_written(t: Tensor) -> None:
    """Tell the node of which ``t`` is an output that this was written to."""
    if isinstance(t, Tensor) and isinstance(t._node, RecordedNode):
        then = t.meta.version if type(t.meta) is Past else 0
        t._node.output_written(t._output_nr, then + 1)


def _has_state(t: Tensor) -> bool:
    """Whether ``t`` has a state that can be replaced: it is deferred, of a program, or has no history."""
    if t._lazy is not None or not t._requires_grad:
        return True
    return t._node is not None and t._node.is_program


def _has_no_hooks(meta: Meta) -> bool:
    return not (meta.retains_grad or meta.has_hooks or meta.inference)


class Writes(Buffer):
    """A buffer with what is written to in it.

    ``stood_in`` are Tensors that are out of date, each with the handle in its place.
    """

    def write(self, op: Operation, own: Sequence[Tensor], others: Sequence[Operand]) -> bool:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:  # another thread may be reading what is written to
            root = own[0]
            if not self._can_write(root):
                return False
            source = self.append(op, [*own, *others], own=len(own))
            if source is None or source._lazy is None:
                return False
            storage = storage_of(root)
            if root._lazy is None:
                note_written(root)
            self._put_in_place_of(root, source, storage.version)
            storage.version += 1
            if storage.data is not None:  # a finalizer has detached the Tensor
                link = link_of(root)
                if link is not None:
                    link.seen, link.detached = storage.version, False
                storage.data = stopped(root)
            return True

    def _can_write(self, root: Tensor) -> bool:
        """Whether a write to this Tensor can be deferred."""
        level, meta = self.level, root.meta
        if not level.wraps or self.busy or self.done or meta is None or root.born < level.id:
            return False
        lazy = root._lazy
        if root._level is not level and (
            root._level is not ROOT or not (lazy is None or lazy.trace is self)
        ):
            return False  # the state that it has comes from another level
        if any([own.id > level.id and own.current_trace() is not None for own in state.levels]):
            return False  # a trace of an inner level may have it for an input
        if meta.storage.data is not None or meta.storage.peers:
            return False
        return meta.link is None and _has_no_hooks(meta) and _has_state(root)

    def share(self, t: Tensor, new: Tensor) -> bool:
        """See `fad.core.replay_protocol.Deferred`."""
        with self.lock:
            meta = t.meta
            if self.done or self.busy or meta is None or not _has_no_hooks(meta):
                return False
            if type(meta.link) is not Link or new.meta is not None or not _has_state(t):
                return False
            self._put_in_place_of(t, new, meta.link.seen)
            return True

    def _put_in_place_of(self, t: Tensor, source: Tensor, version: int) -> None:
        """Put ``t``, whose state is of ``version``, in the place of ``source``, an output of the trace."""
        self.busy = True
        try:
            self._stand_in(t, version)
            lazy, are_empty = source._lazy, is_empty(t) and is_empty(source)
            t._level, t._output_nr, t._lazy = source._level, source._output_nr, lazy
            t._requires_grad = source._requires_grad
            if not are_empty:
                copy_known(t, source)
            self._replace_output(lazy, source, t)
        finally:
            self.busy = False
        if self.done:  # a finalizer has read it
            self.materialize()

    def _stand_in(self, t: Tensor, version: int) -> Tensor:
        """In what was appended, put another handle in the place of ``t``, whose state is of ``version``."""
        lazy, handle = t._lazy, handle_of(t, version)
        self._replace_output(lazy, t, handle)
        place = self.places.pop(id(t), None)
        if place is not None:
            self.places[id(handle)] = place
            self.inputs[~place] = self.inputs[~place]._replace(argument=handle)
        return handle

    def _replace_output(self, lazy: Lazy | None, t: Tensor, other: Tensor) -> None:
        """``other`` is from now on the output that was ``t``, if this is one by its ``lazy``."""
        outputs = self.outputs
        place = lazy.place if lazy is not None and lazy.trace is self else len(outputs)
        if place < len(outputs) and outputs[place] is t:  # else a finalizer has read it
            outputs[place] = other

    # Before a trace ends

    def detach_stale(self, outputs: Iterable[Tensor]) -> None:
        """Put handles in the place of inputs, and of ``outputs``, that are views out of date.

        Using such a view itself would refresh it.
        """
        if not self.path[-1].has_writes:
            return
        for t in [*[given.argument for given in self.inputs], *outputs]:
            seen = out_of_date(t)
            if seen is not None:
                self.stood_in.append((t, self._stand_in(t, seen)))

    def update_stale(self) -> None:
        """Give Tensors that are out of date the state that the handles in their places have by now."""
        pairs, self.stood_in = self.stood_in, []
        for t, handle in pairs:
            if t._lazy is not None and t._lazy.trace is self and handle._lazy is None:
                take_over(t, handle)

    def inputs_changed(self) -> bool:
        """Whether an input was written to, other than by operations of this trace."""
        changed = [x.argument for x in self.inputs if version_at(x.argument) != x.version]
        return any([type(a.meta) is not Past for a in changed])

    def saves_stale(self, stretch: Stretch) -> bool:
        """Whether nodes would save what was overwritten since: then the backward pass is an error."""
        if not self.path[-1].has_writes or self.recording[2]:  # `allow_mutation_on_saved_tensors`
            return False
        for k in stretch.passed(None, stretch.variables)[1]:
            t = self.outputs[k] if k >= 0 else stretch.inputs[~k].argument
            meta = t.meta if type(t) is Tensor else None
            overwritten = type(meta) is Past and meta.storage.version != meta.version
            if overwritten or out_of_date(t) is not None:
                return True
        return False
