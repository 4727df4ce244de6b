"""Settled calls of functions with state: JAX's table finds the program, C code puts in what is new.

A `QuickStep` is for the calls of one `fad.compile.state.StepState` with nothing around them: no level, no
mode, no tracked argument but leaves, and results without a history. It checks the Tensors outside, takes
their arrays, and lets JAX's own table of compiled calls run the program on them, as `jax.jit` of the
functional twin would.

NOTE [donated buffers]

    w = fad.tensor(array)
    step = fad.jit(lambda v: w.add_(v).sum())
    for _ in range(3):
        step(1.0)
    held = w.array
    step(1.0)
    assert not held.is_deleted()

The array that a Tensor has before it is written to is given to XLA for the new one, so that a step needs no
second copy of parameters and optimizer state. That must not happen to an array that a caller still refers
to. So it is donated only if the last call of a step has put it there (`Storage.owned` is the version of that
write), it was not returned since by ``w.array`` or as a leaf of a pytree, and nothing in Python refers to it
but the Tensor, by the count of its references. Otherwise a copy is donated. (NumPy arrays and DLPack capsules
on its memory hold the buffer, which XLA then copies itself.) The first run of a program also gets copies: JAX
runs it from Python code, where an interrupt may come after the program has begun.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp

from fad.compile.outer_tensors import UNTRACKED, Facts, hooks_of
from fad.compile.state import FREED, OuterTensor, StepState, freed, has_numbers, lock, set_all
from fad.core import jaxapi
from fad.core.avals import aval_of
from fad.core.jaxapi import array_type
from fad.core.primitive import Primitive
from fad.core.tensor import Storage, Tensor, meta_of, new_tensor, storage_of, taken
from fad.core.threads import make_jit
from fad.core.types import Array, PyTree
from fad.tape.recorder import ROOT
from fad.views.make_view import is_contiguous, leave_peers

MISS = object()


class _NotThis(Exception):
    """The program is not for these operands."""


def _refuse(*args: object) -> None:
    raise _NotThis


class _Outputs:
    """The outputs of a call."""

    __slots__ = ("all",)

    all: tuple[PyTree, ...]


class QuickStep:
    """The calls of a `StepState` with nothing around them.

    Arguments:
        fixed: what the program takes before the leaves of the arguments: arrays, and `OuterTensor`.
        leaves: those of the call that it was traced for.
        form, key: how its arguments are taken apart, and the modes of the thread, as `fad.compile.jit`
            has them.
    """

    def __init__(
        self,
        name: str,
        step: StepState,
        primitive: Primitive,
        fixed: Sequence[PyTree],
        leaves: Sequence[PyTree],
        form: object,
        key: int,
    ) -> None:
        self.step, self.form, self.key = step, form, key
        self.structure: PyTree = None
        constants = [x for x in fixed if not isinstance(x, OuterTensor)]
        read = [x for x in fixed if isinstance(x, OuterTensor)]
        self._constants = [_key_data(x) if is_key(x) else x for x in constants]
        # Of a random key among the arguments, the program takes the data.
        self._leaf_facts = [
            x.dtype if is_key(x) else facts
            for x, facts in zip(leaves, step.leaf_facts, strict=True)
        ]
        self._plan_targets()
        self._plan_writes()
        self._read = [self._places[id(outer)] for outer in read]
        # Operands of the table: what is read of Tensors outside, then the leaves.
        operands = {place: k for k, place in enumerate(self._read)}
        operands |= {self._places[id(x)]: len(read) + x.source for x in self._arguments}
        self._donors = [k for k, place in enumerate(self._write_places) if place in operands]
        self._donated = [operands[self._write_places[k]] for k in self._donors]
        count = len(constants)
        numbers, others = itertools.count(), itertools.count(count)
        order = [next(others if isinstance(x, OuterTensor) else numbers) for x in fixed]
        order += [count + len(read) + k for k in range(len(leaves))]
        keys = [jax.random.key_impl(x) if is_key(x) else None for x in (*constants, *read, *leaves)]

        def run(*values: Array) -> PyTree:
            pairs = zip(values, keys, strict=True)
            inputs = [
                x if key is None else jax.random.wrap_key_data(x, impl=key) for x, key in pairs
            ]
            return primitive.flat(*[inputs[k] for k in order])

        run.__name__ = name
        self._call = make_jit(run, donate_argnums=tuple([count + k for k in self._donated]))
        self._context = jaxapi.trace_context()
        self._avals: list[PyTree] | None = None
        self._warm = False
        self._table = jaxapi.call_table(name, self._find, _refuse, lambda: None)

    def lower(self) -> jax.stages.Lowered:
        """The program of a settled call, which donates, lowered but not compiled."""
        assert self._avals is not None
        structs = [
            jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in self._avals
        ]
        return self._call.lower(*self._constants, *structs)

    @property
    def donated(self) -> list[OuterTensor]:
        """The Tensors whose memory the program takes over."""
        return [self._writes[k].outer for k in self._donors]

    def _find(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
        """What JAX's table runs, see `jaxapi.call_table`."""
        avals = list(map(aval_of, args))
        same = self._avals is None or avals == self._avals
        if not same or not jaxapi.at_top_level() or jaxapi.checks_numbers():
            raise _NotThis
        if jaxapi.trace_context() != self._context:
            raise _NotThis
        self._avals = avals
        return self._call, self._constants, list(args), tuple

    def _plan_targets(self) -> None:
        """The Tensors outside: those that are the same at each call, each ``.grad``, then the arguments."""
        outers: list[PyTree] = list(self.step.outers)
        captured = [x for x in outers if x.source is None]
        grads = [x for x in outers if isinstance(x.source, OuterTensor)]
        self._arguments = [x for x in outers if isinstance(x.source, int)]
        order = [*captured, *grads, *self._arguments]
        self._places = {id(outer): k for k, outer in enumerate(order)}
        self._captured: list[PyTree] = [x.tensor for x in captured]
        self._captured_ids = frozenset(map(id, self._captured))
        self._facts = [x.facts for x in (*captured, *grads)]
        # Each ``.grad`` is that of one of these, or of an argument.
        owners = {id(x): k for k, x in enumerate([*captured, *self._arguments])}
        self._owners = [owners[id(x.source)] for x in grads]
        self._numbers = [(self._places[id(x)], x.number) for x in outers if x.number is not None]
        self._same = [
            x for x in outers if x.also or (x.source is not None and x.tensor is not None)
        ]

    def _plan_writes(self) -> None:
        """Which outputs of the program are put where."""
        places, effects = self._places, self.step.effects
        writes = [e for e in effects if e.what == "value"]
        self._writes, self._write_places = writes, [places[id(e.outer)] for e in writes]
        self._flags = [(places[id(e.outer)], e.new) for e in effects if e.what == "requires_grad"]
        self._grads = [(places[id(e.outer)], e.output, e.new) for e in effects if e.what == "grad"]
        self._made = sorted({output for _, output, _ in self._grads if output >= 0})
        changed = {id(e.outer) for e in effects}
        self._tensors = [
            x.source for x in self._arguments if id(x) in changed or x.tensor is not None
        ]
        self._is_special = bool(self._tensors or self._numbers or self._same)
        self._written_arguments = sum([isinstance(e.outer.source, int) for e in writes])
        self._plan_peers([False] * len(writes))

    def _plan_peers(self, shared: list[bool]) -> None:
        """Which of the Tensors that are written to share a storage with others, whose value is new too."""
        self._shared = shared
        outputs = [e.output for e in self._writes]
        picks = [*outputs, *self._made, *itertools.compress(outputs, shared)]
        every = slice(None)  # twice, as a getter of one thing gives no tuple
        self._pick: Callable[[PyTree], PyTree] = operator.itemgetter(every, every, *picks)
        self._names = ["all", "all", *["_value"] * len(picks)]
        self._names += [*["version"] * len(outputs), *["owned"] * len(outputs)]

    def run(self, leaves: Sequence[PyTree]) -> PyTree:
        """The results of a call, a list; `MISS` if it is not for this."""
        arguments = _arrays_of(zip(leaves, self._leaf_facts), True)
        if arguments is None:
            return MISS
        with lock:
            if not self.step.is_in_place():
                return MISS
            targets = [*self._captured, *[leaves[x.source] for x in self._arguments]]
            if self._owners:
                metas = [targets[k].meta for k in self._owners]
                count = len(self._captured)
                targets[count:count] = [None if x is None else x.grad for x in metas]
            arrays = _arrays_of(zip(targets, self._facts))
            if arrays is None or not self._are_apart(targets, leaves):
                return MISS
            operands = [*[arrays[k] for k in self._read], *arguments]
            del arrays, arguments  # references are counted
            return self._run(operands, targets, leaves)

    def _are_apart(self, targets: Sequence[PyTree], leaves: Sequence[PyTree]) -> bool:
        """Whether the Tensors outside are those that the program is for, each another one."""
        others = [id(t) for t in targets[len(self._captured) :]]
        if len(set(others)) < len(others) or not self._captured_ids.isdisjoint(others):
            return False
        if not self._is_special:
            return True
        return (
            all([type(leaves[k]) is Tensor for k in self._tensors])
            and all([has_numbers(targets[place], x) for place, x in self._numbers])
            and all([outer.is_same(outer.find(leaves), leaves) for outer in self._same])
        )

    def _share(self, storages: Sequence[Storage], leaves: Sequence[PyTree]) -> bool:
        """Whether an argument shares its storage with another Tensor that is written to."""
        shared = [x.meta.storage for x in leaves if type(x) is Tensor and x.meta is not None]
        return sum([x in storages for x in shared]) > self._written_arguments

    def _run(
        self, operands: list[PyTree], targets: Sequence[PyTree], leaves: Sequence[PyTree]
    ) -> PyTree:
        written = [targets[k] for k in self._write_places]
        storages = [t.meta.storage if t.meta is not None else storage_of(t) for t in written]
        if _UNSHARED in storages:
            storages = list(map(storage_of, written))
        links: list[PyTree] = [t.meta.link for t in written]
        shared = [x is not None for x in links]
        if shared != self._shared:
            self._plan_peers(shared)
        if any(shared) and any([x and (x.base is not None or x.chain) for x in links]):
            return MISS  # one is a view
        if self._share(storages, leaves):
            return MISS
        versions = [s.version + e.writes for s, e in zip(storages, self._writes)]
        outputs = _Outputs()
        fresh = {k: new_tensor(None, ROOT) for k in self._made}
        objects = [outputs, outputs, *written, *fresh.values()]
        later: list[PyTree] = [*storages, *storages]
        names = self._names
        extras = [*versions, *versions]
        if any(shared) or self._flags or self._grads:
            names = list(names)
            for link, storage, version in zip(links, storages, versions):
                if link is not None:
                    data = new_tensor(None, ROOT)
                    objects.append(data)
                    later += (link, link, storage)
                    names += ("seen", "detached", "data")
                    extras += (version, False, data)
            for place, new in self._flags:
                later.append(targets[place])
                names.append("_requires_grad")
                extras.append(new)
            for place, output, new in self._grads:
                later.append(meta_of(targets[place]))
                names.append("grad")
                grad = fresh[output] if output >= 0 else new
                extras.append(grad.find(leaves) if isinstance(grad, OuterTensor) else grad)
        outs = itertools.starmap(self._table, (operands,))
        values = itertools.chain(itertools.chain.from_iterable(map(self._pick, outs)), extras)
        donors = [written[k] for k in self._donors]
        try:
            if donors:
                self._take(donors, operands)
            set_all([*objects, *later], names, values, self.step.moves)
        except BaseException as error:
            for t in donors:
                t._value  # noqa: B018  # it is put back, see `Tensor.__getattr__`
            self._table._clear_cache()
            if isinstance(error, _NotThis):
                return MISS
            raise
        taken.now = None
        self._warm = True
        return self._results(outputs.all, fresh, leaves)

    def _take(self, donors: list[Tensor], operands: list[PyTree]) -> None:
        """Take donated arrays out of their Tensors, and copy those that are not the Tensors' alone.

        A thread that reads such a Tensor meanwhile blocks until the call is done.
        """
        taken.now = donors, [operands[k] for k in self._donated]
        for t in donors:
            del t._value
        for k, t in zip(self._donated, donors):
            storage = t.meta.storage  # type: ignore[union-attr]
            owned = storage.owned == storage.version and storage.data is None and self._warm
            if not owned or sys.getrefcount(operands[k]) > _ALONE:
                operands[k] = _copy(operands[k])

    def _results(
        self, outputs: Sequence[PyTree], fresh: dict[int, Tensor], leaves: Sequence[PyTree]
    ) -> list[PyTree]:
        tensors = self.step.gives_tensors(leaves)
        values, k = [], 0
        for kind in self.step.kinds:
            if not isinstance(kind, str):
                x = kind.find(leaves) if isinstance(kind, OuterTensor) else kind
                values.append(x if tensors else x.value)
                continue
            out = fresh.get(k)
            if out is None:
                out = new_tensor(outputs[k], ROOT) if tensors or kind is FREED else outputs[k]
            values.append(freed(out) if kind is FREED else out)
            k += 1
        return values


def _arrays_of(
    tensors: Iterable[tuple[PyTree, Facts]], are_arguments: bool = False
) -> list[PyTree] | None:
    """The arrays of Tensors of the eager tape that have these facts; None if one does not.

    An array may be an argument in place of a Tensor about which there is nothing to say.
    """
    arrays = []
    for t, facts in tensors:
        if type(t) is Tensor:
            meta = t.meta
            hooks: tuple[int, ...] = ()
            has_grad = False
            if meta is not None:
                if meta.link is not None:
                    meta.link.sync_history(t)
                    leave_peers(t)
                    if are_arguments and not is_contiguous(t):
                        return None
                has_grad = meta.grad is not None
                if meta.hooks or meta.post_hooks:
                    hooks = hooks_of(meta)
            if t._level is not ROOT or t._lazy is not None:
                return None
            if (t._requires_grad, t._node is None, has_grad, hooks) != facts:
                return None
            t = t._value
        elif are_arguments and is_key(t):
            t = _key_data(t) if t.dtype == facts else None
        elif not are_arguments or facts != UNTRACKED:
            return None
        if type(t) is not array_type:
            return None
        arrays.append(t)
    return arrays


def is_key(x: object) -> bool:
    """Whether ``x`` is an array of random keys, as JAX has them."""
    if type(x) is array_type or type(x) is Tensor:
        return False
    return isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _count_alone() -> int:
    """The references to an array that only a Tensor has, as `QuickStep._take` counts them."""
    operands = [object()]
    now: PyTree = [], [operands[0]]  # as `_take` keeps them
    assert now
    return sys.getrefcount(operands[0])


_ALONE = _count_alone()
_key_data = make_jit(jax.random.key_data)
_copy = make_jit(jnp.copy)  # an interrupt in `jnp.copy` itself would leave JAX without a trace
_UNSHARED = meta_of(new_tensor(None, ROOT)).storage
