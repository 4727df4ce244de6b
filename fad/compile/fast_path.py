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

import collections
import itertools
import operator
import sys
from collections.abc import Callable, Sequence

import jax

from fad.compile.outer_tensors import Facts, facts_of
from fad.compile.state import FREED, OuterTensor, StepState, freed, has_numbers, lock, set_all
from fad.core import jaxapi
from fad.core.avals import aval_of
from fad.core.jaxapi import array_type
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, meta_of, new_tensor, storage_of, taken
from fad.core.threads import make_jit
from fad.core.types import Array, PyTree
from fad.tape.recorder import ROOT
from fad.views.make_view import leave_peers

MISS = object()
_CAPTURED, _ARGUMENT, _GRAD = range(3)  # how a Tensor outside is found


class _NotThis(Exception):
    """The program is not for these operands."""


def _refuse(*args: object) -> None:
    raise _NotThis


class _Results:
    """The results of a call, as attributes."""


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
        self._constants = [x for x in fixed if not isinstance(x, OuterTensor)]
        read = [x for x in fixed if isinstance(x, OuterTensor)]
        places = {id(outer): k for k, outer in enumerate(step.outers)}
        self._read = [places[id(outer)] for outer in read]
        self._leaf_facts = step.leaf_facts
        self._plan_checks()
        self._plan_writes()
        # Operands of the table: what is read of Tensors outside, then the leaves.
        pairs = [(k, place) for k, place in enumerate(self._read) if place in self._write_places]
        pairs += [
            (len(read) + check[1], place)
            for place, check in enumerate(self._checks)
            if check[0] == _ARGUMENT and place in self._write_places
        ]
        self._donated = [k for k, _ in pairs]
        self._donors = [place for _, place in pairs]
        count = len(self._constants)
        order = []
        constants, others = itertools.count(), itertools.count(count)
        for x in fixed:
            order.append(next(others if isinstance(x, OuterTensor) else constants))
        order += [count + len(read) + k for k in range(len(leaves))]

        def run(*values: Array) -> PyTree:
            return primitive.flat(*[values[k] for k in order])

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
        return [self.step.outers[place] for place in self._donors]

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

    def _plan_checks(self) -> None:
        self._checks: list[tuple[int, PyTree, Facts, OuterTensor]] = []
        places = {id(outer): k for k, outer in enumerate(self.step.outers)}
        for outer in self.step.outers:
            if outer.source is None:
                self._checks.append((_CAPTURED, outer.tensor, outer.facts, outer))
            elif isinstance(outer.source, int):
                self._checks.append((_ARGUMENT, outer.source, outer.facts, outer))
            else:
                self._checks.append((_GRAD, places[id(outer.source)], outer.facts, outer))
        self._by_grad = any([kind == _GRAD for kind, *_ in self._checks])
        self._checks_sameness = [
            x for x in self.step.outers if x.also or (x.source is not None and x.tensor is not None)
        ]

    def _plan_writes(self) -> None:
        """Which outputs of the program are put where."""
        step = self.step
        places = {id(outer): k for k, outer in enumerate(step.outers)}
        self._writes = [e for e in step.effects if e.what == "value"]
        self._write_places = [places[id(e.outer)] for e in self._writes]
        self._flags = [e for e in step.effects if e.what == "requires_grad"]
        self._flag_places = [places[id(e.outer)] for e in self._flags]
        self._grads = [e for e in step.effects if e.what == "grad"]
        self._grad_places = [places[id(e.outer)] for e in self._grads]
        self._changed = {*self._write_places, *self._grad_places, *self._flag_places}
        self._made = sorted({e.output for e in self._grads if e.output >= 0})
        self._links = [_has_link(e.outer.tensor) for e in self._writes]
        shared = [e.output for e, linked in zip(self._writes, self._links) if linked]
        picks = [*range(step.count), *[e.output for e in self._writes], *self._made, *shared]
        self._names = [f"r{k}" for k in range(step.count)]
        self._padding = max(2 - len(picks), 0)  # so that the getter gives a tuple
        picks += [0] * self._padding
        self._pick: Callable[[PyTree], PyTree] = operator.itemgetter(*picks)

    def run(self, leaves: Sequence[PyTree]) -> PyTree:
        """The results of a call, a list; `MISS` if it is not for this."""
        operands: list[PyTree] = []
        for a, facts in zip(leaves, self._leaf_facts, strict=True):
            if type(a) is Tensor:
                if not _is_as(a, facts) or (a.meta is not None and a.meta.link is not None):
                    return MISS
                a = a._value
            if type(a) is not array_type:
                return MISS
            operands.append(a)
        with lock:
            targets = self._targets(leaves)
            if targets is None:
                return MISS
            operands[:0] = [targets[k]._value for k in self._read]
            return self._run(operands, targets, leaves)

    def _targets(self, leaves: Sequence[PyTree]) -> list[PyTree] | None:
        """The Tensors outside; None if they are not as the program needs them."""
        targets: list[PyTree] = []
        if not self.step.is_in_place():
            return None
        for place, (kind, source, facts, outer) in enumerate(self._checks):
            if kind == _CAPTURED:
                t = source
            elif kind == _ARGUMENT:
                t = leaves[source]
                if type(t) is not Tensor and (place in self._changed or outer.tensor is not None):
                    return None
                targets.append(t)
                continue
            else:
                meta = targets[source].meta
                t = None if meta is None else meta.grad
            if type(t) is not Tensor or not _is_as(t, facts):
                return None
            if type(t._value) is not array_type:
                return None
            if outer.number is not None and not has_numbers(t, outer.number):
                return None
            targets.append(t)
        if not all([x.is_same(x.find(leaves), leaves) for x in self._checks_sameness]):
            return None
        if self._by_grad and len(set(map(id, targets))) < len(targets):
            return None
        if self._writes and not self._stand_alone(leaves, targets):
            return None
        return targets

    def _stand_alone(self, leaves: Sequence[PyTree], targets: Sequence[Tensor]) -> bool:
        """Whether no argument shares anything with another one or with a Tensor outside."""
        tensors = [x for x in leaves if type(x) is Tensor]
        others = [t for t, check in zip(targets, self._checks) if check[0] != _ARGUMENT]
        every = [*tensors, *others]
        if len(set(map(id, every))) < len(every):
            return False
        storages = [x.meta.storage for x in tensors if x.meta is not None]
        storages = [x for x in storages if x is not _UNSHARED]
        if not storages:
            return True
        there = [t.meta.storage for t in others if t.meta is not None]
        return len({*map(id, storages)} - {*map(id, there)}) == len(storages)

    def _run(
        self, operands: list[PyTree], targets: list[PyTree], leaves: Sequence[PyTree]
    ) -> PyTree:
        step = self.step
        writes, made = self._writes, self._made
        results = _Results()
        objects: list[PyTree] = [results] * step.count
        names = list(self._names)
        extras: list[PyTree] = []
        later: list[PyTree] = []
        later_names: list[str] = []
        datas: list[Tensor] = []
        for effect, place, linked in zip(writes, self._write_places, self._links):
            t = targets[place]
            objects.append(t)
            names.append("_value")
            meta = t.meta or meta_of(t)
            storage = meta.storage
            if storage is _UNSHARED:
                storage = storage_of(t)
            version = storage.version + effect.writes
            later += (storage, storage)
            later_names += ("version", "owned")
            extras += (version, version)
            if (meta.link is not None) != linked:
                return MISS
            if linked:
                datas.append(new_tensor(None, ROOT))
                later += (meta.link, meta.link, storage)
                later_names += ("seen", "detached", "data")
                extras += (version, False, datas[-1])
        fresh = {k: new_tensor(None, ROOT) for k in made}
        new = [*fresh.values(), *datas]
        objects += new
        names += ["_value"] * len(new)
        objects += [results] * self._padding
        names += ["padding"] * self._padding
        for effect, place in zip(self._flags, self._flag_places):
            later.append(targets[place])
            later_names.append("_requires_grad")
            extras.append(effect.new)
        for effect, place in zip(self._grads, self._grad_places):
            later.append(meta_of(targets[place]))
            later_names.append("grad")
            grad = fresh[effect.output] if effect.output >= 0 else effect.new
            extras.append(grad.find(leaves) if isinstance(grad, OuterTensor) else grad)
        outs = itertools.starmap(self._table, (operands,))
        values = itertools.chain(itertools.chain.from_iterable(map(self._pick, outs)), extras)
        objects += later
        names += later_names
        donors = [targets[place] for place in self._donors]
        try:
            if donors:
                self._take(donors, operands)
            set_all(objects, names, values, step.moves)
        except BaseException as error:
            for t in donors:
                t._value  # noqa: B018  # it is put back, see `Tensor.__getattr__`
            self._table._clear_cache()
            if isinstance(error, _NotThis):
                return MISS
            raise
        taken.arrays.clear()
        self._warm = True
        return self._results(results, fresh, leaves)

    def _take(self, donors: Sequence[Tensor], operands: list[PyTree]) -> None:
        """Take donated arrays out of their Tensors, and copy those that are not the Tensors' alone.

        A thread that reads such a Tensor meanwhile blocks until the call is done.
        """
        arrays = taken.arrays
        arrays.clear()
        arrays.update(zip(map(id, donors), map(operands.__getitem__, self._donated)))
        collections.deque(map(delattr, donors, itertools.repeat("_value")), 0)
        counts = map(sys.getrefcount, map(operands.__getitem__, self._donated))
        for k, count, t in zip(self._donated, list(counts), donors):
            storage = t.meta.storage  # type: ignore[union-attr]
            owned = storage.owned == storage.version and storage.data is None
            if count > _ALONE or not owned or not self._warm:
                operands[k] = _copy(operands[k])

    def _results(
        self, results: PyTree, fresh: dict[int, Tensor], leaves: Sequence[PyTree]
    ) -> list[PyTree]:
        step = self.step
        tensors = step.gives_tensors(leaves)
        values, k = [], 0
        for kind in step.kinds:
            if not isinstance(kind, str):
                x = kind.find(leaves) if isinstance(kind, OuterTensor) else kind
                values.append(x if tensors else x.value)
                continue
            if k in fresh:
                out: PyTree = fresh[k]
            else:
                out = getattr(results, self._names[k])
                out = new_tensor(out, ROOT) if tensors or kind is FREED else out
            values.append(freed(out) if kind is FREED else out)
            k += 1
        return values


def _is_as(t: Tensor, facts: Facts) -> bool:
    """Whether a Tensor of the eager tape has these facts, its array, and if it is a view of nothing."""
    if t._level is not ROOT or t._lazy is not None:
        return False
    meta = t.meta
    if meta is None:
        return (
            t._requires_grad == facts.requires_grad
            and facts.is_leaf == (t._node is None)
            and not (facts.has_grad or facts.hooks)
        )
    if meta.link is not None:
        meta.link.sync(t)
        leave_peers(t)
    if meta.link is not None:
        return facts_of(t) == facts
    if meta.hooks or meta.post_hooks or facts.hooks:
        return facts_of(t) == facts
    return (
        t._requires_grad == facts.requires_grad
        and (t._node is None) == facts.is_leaf
        and (meta.grad is not None) == facts.has_grad
    )


def _has_link(t: Tensor | None) -> bool:
    return t is not None and t.meta is not None and t.meta.link is not None


def _count_alone() -> int:
    """The references to an array that only a Tensor has, as `QuickStep._take` counts them."""
    operands = [object()]
    arrays = dict(zip([0], operands))  # as in `_take`, one reference beside the list's
    assert arrays
    return next(map(sys.getrefcount, map(operands.__getitem__, [0])))


_ALONE = _count_alone()
_copy = make_jit(
    jax.numpy.copy
)  # an interrupt in `jax.numpy.copy` itself would leave JAX without a trace
_UNSHARED = meta_of(new_tensor(None, ROOT)).storage
