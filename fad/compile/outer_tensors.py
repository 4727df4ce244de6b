"""Twins: what stands in a body of `jit` for the Tensors from outside that it uses.

NOTE [twins]

    w = fad.tensor([1.0, 2.0], requires_grad=True)

    @fad.jit
    def step(x):
        (w * x).sum().backward()
        with fad.no_grad():
            w.sub_(w.grad)
            w.grad = None

    step(3.0)
    assert w.tolist() == [-2.0, -1.0] and w.grad is None

A body is traced once, and what it does to Tensors from outside has to happen at each call. So while it is
traced it does nothing to them. The first use of such a Tensor makes its *twin*: a Tensor of the body's level
around a tracer, with the history (a leaf is a leaf), the ``.grad`` and the hooks of the other; the twin of a
view is the same view of the twin of its base, and what shares a storage outside shares one inside. Whatever
the body does with the Tensor, it does with the twin (`fad.core.level.inside` is asked where a Tensor comes
in: in `bind`, in its attributes, before a write), and other threads see the Tensor as it is.

After the trace, what has become of the twins is what the body does: which are written to, and what their
``.grad`` is. The new values are outputs of the program, `fad.compile.state` puts them into the Tensors.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from fad.core.jaxapi import array_type, stand_in
from fad.core.level import inside, modes, outlived, state
from fad.core.tensor import (
    Meta,
    Tensor,
    bodies,
    has_history,
    meta_of,
    new_tensor,
    storage_of,
    version_of,
)
from fad.core.types import PyTree
from fad.errors import GradientError, LevelError, describe
from fad.tape.recorder import ROOT, as_tensor
from fad.tape.saved import OutsideNode
from fad.tape.vmap import batch_levels, lanes_among, lanes_inside
from fad.transforms.boundary import shape_changed
from fad.views.aliases import Link, link_of, set_state, stopped
from fad.views.chains import replay
from fad.views.make_view import attach_peer, is_contiguous, leave_peers, make_peer
from fad.views.pytree import TrackedTensor


class Facts(NamedTuple):
    """What a program may depend on of a Tensor outside that it uses, beside its value."""

    requires_grad: bool = False
    is_leaf: bool = True
    has_grad: bool = False
    hooks: tuple[int, ...] = ()


UNTRACKED = Facts()


def facts_of(x: object) -> Facts:
    """The facts of a Tensor, as it is around the body; of anything but a Tensor of the tape, `UNTRACKED`."""
    if not isinstance(x, Tensor):
        return UNTRACKED
    x = inside(x) if bodies.traced else x
    if x.level is not ROOT and x.level is not state.body:
        return UNTRACKED
    meta = x.meta
    if meta is None and not x._requires_grad:
        return UNTRACKED
    hooks = () if meta is None else hooks_of(meta)
    has_grad = meta is not None and meta.grad is not None
    return Facts(bool(x.requires_grad), not has_history(x), has_grad, hooks)


def hooks_of(meta: Meta) -> tuple[int, ...]:
    """The numbers of the hooks of a Tensor, in the form of `Facts`."""
    if not (meta.hooks or meta.post_hooks):
        return ()
    return (*(meta.hooks or ()), -1, *(meta.post_hooks or ()))


@dataclasses.dataclass(slots=True, eq=False)
class OuterTensor:
    """A Tensor outside that a body uses, whose value or ``.grad`` is state of its own.

    While the body is traced, ``twin`` stands for ``tensor``, whose ``.grad`` was ``grad`` before. What has
    to do with the trace is gone after it, and ``tensor`` is None unless it must be this very Tensor.

    ``source``: how it is found at a call: None for this very Tensor; the number of a leaf of the arguments;
    or the one whose ``.grad`` it is, the first of these, and ``also`` the remaining ones. ``facts``: as they
    were before the body ran. ``owns_value``: it is neither a view nor another Tensor that shares a storage.
    ``captured``: the body uses it as a Tensor from outside, not only as an argument. ``numbers``: its values,
    where Python code of the body has read some, so that the program depends on them.
    """

    tensor: PyTree
    twin: PyTree
    source: int | OuterTensor | None
    facts: Facts
    grad: Tensor | None
    owns_value: bool = True
    captured: bool = False
    numbers: np.ndarray | None = None
    also: Sequence[OuterTensor] = ()
    aval: PyTree = None

    @property
    def is_closed_over(self) -> bool:
        """Whether the body uses it other than as an argument."""
        return self.captured or not isinstance(self.source, int)

    def find(self, leaves: Sequence[PyTree]) -> PyTree:
        """The Tensor, at a call with these leaves of the arguments; None if there is none."""
        source = self.source
        if source is None:
            return self.tensor
        return leaves[source] if isinstance(source, int) else source.find_grad(leaves)

    def find_grad(self, leaves: Sequence[PyTree]) -> PyTree:
        """The ``.grad`` of the Tensor, or None."""
        t = self.find(leaves)
        meta = inside(t).meta if isinstance(t, Tensor) else None
        return None if meta is None else meta.grad

    def is_same(self, t: object, leaves: Sequence[PyTree]) -> bool:
        """Whether ``t``, which `find` gives, is that Tensor on each way on which the body comes to it."""
        if self.tensor is not None and t is not self.tensor:
            return False
        return all([other.find_grad(leaves) is t for other in self.also])

    def has_numbers(self, t: Tensor) -> bool:
        """Whether ``t`` has the values that Python code has read, bit for bit."""
        value, numbers = t.value, self.numbers
        if numbers is None:
            return True
        return type(value) is array_type and np.asarray(value).tobytes() == numbers.tobytes()


@dataclasses.dataclass(slots=True, eq=False)
class Effect:
    """What a program does to an `OuterTensor`: to ``"value"``, ``"grad"``, or whether it ``"requires_grad"``.

    ``new``: the value, a Tensor of the body; the Tensor outside that is the ``.grad`` (or its `OuterTensor`),
    or the bool; None for no ``.grad``. ``writes``: how often it was written to. ``output``: the number of the
    output of the program that is ``new``, -1 if none is. ``tracked``: that has a history outside.
    """

    outer: OuterTensor
    what: str
    new: PyTree
    writes: int = 0
    output: int = -1
    tracked: bool = False


class OuterView(NamedTuple):
    """A Tensor outside that is a view of ``base``, or of the data of its storage."""

    tensor: Tensor
    base: Tensor | None
    chain: Sequence[object]

    def is_same(self) -> bool:
        """Whether it is that view still: no method has changed its shape in place, or that of its base."""
        link = _raw_link(self.tensor)
        return link is not None and link.base is self.base and _are_same(link.chain, self.chain)


def _raw_link(t: Tensor) -> PyTree:
    """The link of ``t`` itself, not of what stands for it in a body."""
    return None if t.meta is None else t.meta.link


def _chain_of(t: Tensor) -> Sequence[object]:
    """What leads from its base to ``t``."""
    link = _raw_link(t)
    return () if link is None else link.chain


def _are_same(chain: Sequence[object], other: Sequence[object]) -> bool:
    return len(chain) == len(other) and all(map(operator.is_, chain, other))


class Twins:
    """The twins in the body of ``level``; ``around``: the level of the body of `jit` around it, or None."""

    def __init__(self, level: PyTree, around: PyTree) -> None:
        self.level = level
        self.around = around
        self.roots: list[OuterTensor] = []
        self.views: list[OuterView] = []  # those that are outside
        self.reached: OuterTensor | None = None  # one to whose ``.grad`` a backward pass has added
        self._inside: dict[
            int, tuple[Tensor, Tensor, OuterTensor | None]
        ] = {}  # by the id of the one outside
        self._outside: dict[int, Tensor] = {}  # by the id of the twin
        self._chains: list[tuple[Tensor, Sequence[object]]] = []  # of the twins
        self._storages: dict[
            int, Tensor
        ] = {}  # by that of a storage with peers, the Tensor for its data
        self._grads: dict[
            int, OuterTensor
        ] = {}  # by that of a Tensor outside, the root that has it for ``.grad``

    def inside(self, t: Tensor) -> Tensor:
        """The twin of ``t``; itself, if it is of this body or of a level that is none of the tape."""
        if type(t) is TrackedTensor:  # a leaf of `jax.tree.map`
            t = t.origin
        entry = self._inside.get(id(t))
        if entry is not None:
            root = entry[2]
            if root is not None:
                root.captured = True
            return entry[1]
        if t.born >= self.level.id or type(t) is not Tensor:
            return t
        if not t._level.alive and t.born < t._level.id:  # it was written to there
            self._settle(t)
        if t._level is not ROOT:
            return t
        with modes(body=self.around, watermark=-1, base_watermark=-1):
            return self._make(t)

    def _settle(self, t: Tensor) -> None:
        """Bring a Tensor whose level has finished to the level that it has outlived this for."""
        with modes(body=self.around):
            value = outlived(t)
            if isinstance(value, Tensor) and value.level is not ROOT:
                return
            set_state(t, as_tensor(value))

    def outside(self, t: Tensor) -> Tensor:
        """The Tensor for which ``t`` stands."""
        return self._outside.get(id(t), t)

    def adopt(self, t: Tensor, handle: Tensor, leaf: int) -> bool:
        """Let ``handle``, which stands for a leaf of the arguments, be the twin of ``t``.

        Returns:
            Whether its value is; a view has its own handle, which is no view.
        """
        if self.around is not None:
            t = self.around.outside(t)
        if id(t) in self._inside:
            return False
        with modes(body=self.around):
            seen = self._seen(t)
            root = self._root(t, seen, handle, leaf)
            root.owns_value = link_of(seen) is None
            self._note(t, handle, root)
            del self._outside[id(handle)]  # the body has the handle
            return root.owns_value

    def _seen(self, t: Tensor) -> Tensor:
        """``t`` as it is around the body."""
        return t if self.around is None else self.around.inside(t)

    def _note(self, t: Tensor, twin: Tensor, root: OuterTensor | None = None) -> Tensor:
        self._inside[id(t)] = t, twin, root
        self._outside[id(twin)] = t
        self._chains.append((twin, _chain_of(twin)))
        link = _raw_link(t)
        if link is not None and (link.base is not None or link.chain):
            self.views.append(OuterView(t, link.base, link.chain))
        if root is not None:
            self.roots.append(root)
            if root.grad is not None:
                self._grads.setdefault(id(root.grad), root)
        return twin

    def _make(self, t: Tensor) -> Tensor:
        leave_peers(t)
        seen = self._seen(t)
        link = link_of(seen)
        link_outside = _raw_link(t)
        if link is not None and link_outside is not None and link_outside.base is not None:
            return self._view(t, seen, link_outside)
        if link is not None:
            return self._peer(t, seen, link)
        twin = self._new(self._capture(t, seen))
        return self._note(t, twin, self._root(t, seen, twin, self._grads.get(id(t))))

    def _new(self, value: PyTree) -> Tensor:
        """A twin: there from the beginning of the body, whichever level inside is the first to use it."""
        twin = new_tensor(value, self.level)
        twin.born = self.level.id
        return twin

    def _capture(self, t: Tensor, seen: Tensor) -> PyTree:
        tracer = stand_in(seen.aval)
        self.level.lifted_values.append((tracer, t))
        return tracer

    def _root(
        self, t: Tensor, seen: Tensor, twin: Tensor, source: int | OuterTensor | None
    ) -> OuterTensor:
        self._take_history(seen, twin)
        return OuterTensor(
            t, twin, source, facts_of(seen), None if seen.meta is None else seen.meta.grad
        )

    def _take_history(self, seen: Tensor, twin: Tensor) -> None:
        """Give a twin the history, the ``.grad`` and the hooks of what it stands for."""
        meta = seen.meta
        if meta is not None:
            of_twin = meta_of(twin)
            of_twin.grad, of_twin.name = meta.grad, meta.name
            of_twin.hooks = dict(meta.hooks) if meta.hooks else None
            of_twin.post_hooks = dict(meta.post_hooks) if meta.post_hooks else None
        if not seen.requires_grad:
            return
        if has_history(seen):
            twin._node = OutsideNode(self.level, seen)
        else:
            meta_of(twin).made_leaf = self.level.id
        twin._requires_grad = True

    def _view(self, t: Tensor, seen: Tensor, link: PyTree) -> Tensor:
        """The twin of a view: the same view of the twin of its base."""
        base = self.inside(link.base)
        with modes(body=self.level):
            made = replay(base, link.chain)
        twin = self._new(made._value)
        meta = meta_of(twin)
        meta.storage = storage_of(base)
        meta.link = Link(base, link.chain, link.creation, version_of(base), link.output_nr)
        if made._requires_grad and seen.requires_grad:
            twin._requires_grad, twin._node, twin._output_nr = True, made._node, made._output_nr
        if seen.meta is not None and seen.meta.grad is not None:
            meta.grad = seen.meta.grad
        if seen.requires_grad and not has_history(seen):  # the user made it a leaf
            root = self._root(t, seen, twin, self._grads.get(id(t)))
            root.owns_value = False
            twin._node = None
            return self._note(t, twin, root)
        return self._note(t, twin)

    def _peer(self, t: Tensor, seen: Tensor, link: PyTree) -> Tensor:
        """The twin of a Tensor that shares its storage with others, but not their history."""
        storage = storage_of(t)
        data = self._storages.get(id(storage))
        if data is None:
            whole: Tensor = stopped(storage.data)
            make_peer(whole, storage, ())
            seen_whole = self._seen(whole)
            data = self._new(self._capture(whole, seen_whole))
            root = self._root(whole, seen_whole, data, None)
            self._storages[id(storage)] = data
            self._note(whole, data, root)
        # Its gradient goes out by the Tensor itself, as long as nothing has been written to the data.
        goes_out = seen.requires_grad and not version_of(data)
        operand = self._capture(t, seen) if goes_out else None
        with modes(body=self.level):
            value = replay(data, link.chain) if link.chain else data
            twin = new_tensor(value.value if operand is None else operand, self.level)
            attach_peer(twin, data, link.chain)
        twin.meta.link.detached = link.detached  # type: ignore[union-attr]
        twin.born = self.level.id
        root = self._root(t, seen, twin, self._grads.get(id(t)))
        root.owns_value = False
        return self._note(t, twin, root)

    def read(self, t: Tensor) -> PyTree:
        """What Python code of the body may read numbers of: the array of a Tensor outside, not written to."""
        root = next((root for root in self.roots if root.twin is t), None)
        if root is None or isinstance(root.source, int) or not root.owns_value or version_of(t):
            return t
        with modes(body=self.around):
            value = root.tensor.value
        if type(value) is not array_type:
            return t
        root.numbers = np.array(value)
        return value

    def note_gradient(self, t: Tensor) -> None:
        """A backward pass adds to the ``.grad`` of ``t``."""
        self.reached = next((root for root in self.roots if root.twin is t), self.reached)

    # After the body has run

    def is_outside(self, t: Tensor) -> bool:
        """Whether ``t`` is a Tensor from outside, or stands for one."""
        return id(t) in self._inside or (t._level is ROOT and t.born < self.level.id)

    def root_of(self, t: object) -> OuterTensor | None:
        """The `OuterTensor` that a Tensor outside is; None for a view, and for all else."""
        entry = self._inside.get(id(t))
        return None if entry is None else entry[2]

    def outer_or(self, t: Tensor) -> PyTree:
        """The `OuterTensor` that a Tensor outside is, else ``t``; the body uses it."""
        self.inside(t)
        return self.root_of(t) or t

    def fixed_grads(self) -> list[OuterTensor]:
        """The roots whose ``.grad`` the body uses, and which shares its storage with something."""
        entries = [(x, self._inside.get(id(x.grad))) for x in self.roots if x.grad is not None]
        return [
            x
            for x, entry in entries
            if entry is not None and (entry[2] is None or not entry[2].owns_value)
        ]

    def closed_over(self) -> list[Tensor]:
        """The Tensors outside that have a twin, but arguments that the body does not also close over."""
        entries = self._inside.values()
        return [t for t, _, root in entries if root is None or root.is_closed_over]

    def effects(self) -> list[Effect]:
        """What the body has done to Tensors from outside.

        Raises:
            LevelError: a hook that it registered on one is still there; or the shape of one was changed.
        """
        for twin, chain in self._chains:
            if not _are_same(_chain_of(twin), chain):
                raise shape_changed(self.outside(twin), "a Tensor from outside")
        effects = []
        for root in self.roots:
            twin, facts = root.twin, root.facts
            writes = version_of(twin)
            if root.owns_value and writes:
                effects.append(Effect(root, "value", twin, writes))
            grad = None if twin.meta is None else twin.meta.grad
            if grad is not root.grad:
                effects.append(Effect(root, "grad", grad))
            if not has_history(twin) and twin._requires_grad != facts.requires_grad:
                effects.append(Effect(root, "requires_grad", twin._requires_grad))
            if root.source is None and facts_of(twin).hooks != facts.hooks:
                raise LevelError(
                    f"jit: a hook that the function registers on a Tensor from outside "
                    f"({describe(root.tensor)}) "
                    "is there when it ends, and each call would register one more: take it away in "
                    "the function "
                    "(handle.remove()), or register it once, outside"
                )
        return effects


# What else a body closes over, and what may go into a program


class Lanes:
    """Stands for the lanes of a vmap around a call: that of this number, whichever it is."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def find(self, leaves: Sequence[PyTree]) -> Tensor:
        """The numbers of the lanes, at any call."""
        return lanes_inside(batch_levels()[self.number])


def is_traced(x: object) -> bool:
    """Whether ``x`` is part of a trace around this one, which compiled code must not outlive."""
    if isinstance(x, Tensor):
        return x.level.traces or isinstance(x.value, jax.core.Tracer)
    return isinstance(x, jax.core.Tracer)


def values_now(fixed: Sequence[PyTree], leaves: Sequence[PyTree]) -> list[PyTree]:
    """What a program takes before the leaves, at a call with these."""
    return [x.find(leaves) if isinstance(x, (Lanes, OuterTensor)) else x for x in fixed]


def captured(x: object) -> PyTree:
    """What compiled code may keep of a value that it closes over, other than a Tensor with a twin."""
    if not isinstance(x, Tensor):
        return x
    number = lanes_among(batch_levels(), x)
    if number is not None:
        return Lanes(number)
    if x.level.traces:
        return x
    raise _tracked_capture(x)


def _tracked_capture(x: Tensor) -> GradientError:
    where = "the eager graph" if x.level is ROOT else repr(x.level)
    return GradientError(
        f"jit: the compiled function closes over a Tensor ({describe(x)}) that is tracked by "
        f"{where}. Compiled code outlives this call, so it cannot refer to it: pass the Tensor "
        "as an argument, or use stop_gradient on it."
    )


def struct_like(x: object) -> PyTree:
    """The shape and dtype of a Tensor; other things as they are."""
    if isinstance(x, Tensor):
        aval = x.aval
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    return x


def untracked(x: object) -> PyTree:
    """``x`` as ``jax.jit`` may flatten it."""
    if not isinstance(x, Tensor):
        return x
    if x.level is ROOT:
        return new_tensor(x.value, ROOT)
    return new_tensor(struct_like(x), ROOT)


def may_take(t: Tensor, unrecorded: bool) -> bool:
    """Whether ``t``, brought up to date, goes into a call, which may be ``unrecorded``, as its array."""
    meta = t.meta
    if meta is not None and meta.link is not None:
        meta.link.enter(t)
        if not is_contiguous(t):
            return False
    return t._level is ROOT and not (t._requires_grad and not unrecorded)


def is_bare(x: object, unrecorded: bool = False) -> bool:
    """Whether nothing tracks ``x``, so that it may be donated; or if ``unrecorded``, what is
    computed of it.
    """
    if isinstance(x, Tensor):
        if x.level is not ROOT or (x.requires_grad and not unrecorded):
            return False
        x = x.value
    return not isinstance(x, jax.core.Tracer)
