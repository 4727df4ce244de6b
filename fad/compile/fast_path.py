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
    array = w.array
    step(1.0)
    assert not array.is_deleted()

The array that a Tensor has before it is written to is given to XLA for the new one, so that a step needs no
second copy of parameters and optimizer state. That must not happen to an array that a caller still refers
to. So it is donated only if it is `Storage.owned`: a settled call has put it there, and it was not returned
since by ``w.array`` or as a leaf of a pytree; and if nothing in Python refers to it but the Tensor, by the
count of its references. Otherwise a copy is donated. (NumPy arrays and DLPack capsules
on its memory hold the buffer, which XLA then copies itself.) The first run of a program also gets copies: JAX
runs it from Python code, where an interrupt may come after the program has begun.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp

from fad.compile.outer_tensors import Facts, OuterTensor, hooks_of
from fad.compile.state import (
    PLAIN,
    Put,
    StepState,
    holds_keys,
    is_key,
    lock,
    puts_of,
    puts_of_link,
    set_all,
)
from fad.core import jaxapi
from fad.core.avals import aval_of
from fad.core.jaxapi import array_type, is_extended
from fad.core.primitive import Primitive
from fad.core.tensor import Storage, Tensor, at_version, new_tensor, storage_of, taken
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
        self._constants = [_key_data(x) if is_key(x) else x for x in constants]
        self._plan_targets({id(x) for x in fixed}, leaves)
        self._plan_writes()
        # What the program takes: constants, arrays of Tensors outside, leaves. Of a random key, the data.
        count, first = len(constants), self._operands.start
        numbers = itertools.count()
        order = [
            count + self._places[id(x)] - first if isinstance(x, OuterTensor) else next(numbers)
            for x in fixed
        ]
        order += [count + len(self._captured) + k - first for k in range(len(leaves))]
        values = [*constants, *self._captured[first:], *leaves]
        keys = [(k, impl) for k, impl in enumerate(map(_impl_of, values)) if impl is not None]
        donated = [count + k for k in self._donated]
        self._call = _program(name, primitive, tuple(order), tuple(keys), tuple(donated))
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

    def _plan_targets(self, fixed: set[int], leaves: Sequence[PyTree]) -> None:
        """The Tensors outside: those that are the same at each call, the leaves, then each ``.grad``.

        Those whose arrays the program takes are next to each other: ``_operands`` says from where to where.
        """
        outers: list[PyTree] = list(self.step.outers)
        captured = [x for x in outers if x.source is None]
        grads = [x for x in outers if isinstance(x.source, OuterTensor)]
        captured.sort(key=lambda x: id(x) in fixed)
        grads.sort(key=lambda x: id(x) not in fixed)
        self._captured: list[PyTree] = [x.tensor for x in captured]
        first, last = len(captured), len(captured) + len(leaves)
        self._operands = slice(
            first - sum([id(x) in fixed for x in captured]),
            last + sum([id(x) in fixed for x in grads]),
        )
        arguments = [x for x in outers if isinstance(x.source, int)]
        self._places = {id(x): k for k, x in enumerate(captured)}
        self._places |= {id(x): first + x.source for x in arguments}
        self._places |= {id(x): last + k for k, x in enumerate(grads)}
        self._owners = [self._places[id(x.source)] for x in grads]
        facts = [*[x.facts for x in captured], *self.step.leaf_facts]
        self._facts: list[Facts] = [
            Facts(x.dtype) if holds_keys(x) else expected
            for x, expected in zip([*self._captured, *leaves], facts, strict=True)
        ]
        self._grad_facts = [x.facts for x in grads]
        changed = {id(e.outer) for e in self.step.effects}
        # Those of which more is to be the same than `_add_arrays` looks at.
        self._special = [
            x
            for x in outers
            if x.also
            or x.numbers is not None
            or (x.source is not None and x.tensor is not None)
            or (isinstance(x.source, int) and id(x) in changed)
        ]
        self._is_special = bool(self._special or self.step.fixed_grads)

    def _plan_writes(self) -> None:
        """Which outputs of the program are put where."""
        step, places = self.step, self._places
        writes = [e for e in step.effects if e.what == "value"]
        self._writes, self._write_places = writes, [places[id(e.outer)] for e in writes]
        operands = range(self._operands.start, self._operands.stop)
        self._donors = [
            k
            for k, place in enumerate(self._write_places)
            if place in operands and not is_extended(writes[k].outer.aval.dtype)
        ]
        self._donated = [self._write_places[k] - operands.start for k in self._donors]
        # Writes to Tensors that another call may have others for: arguments, and each ``.grad``.
        count = len(self._captured)
        self._passed = [k for k, place in enumerate(self._write_places) if place >= count]
        # The storage of a Tensor that has one of its own stays the same.
        self._written: list[PyTree] = [e.outer.tensor for e in writes if e.outer.source is None]
        self._storages = list(map(storage_of, self._written))
        self._storage_set = set(self._storages)
        self._donor_tensors = [] if self._passed else [self._written[k] for k in self._donors]
        self._counts = [e.writes for e in writes]
        self._others = [(e, places[id(e.outer)]) for e in step.effects if e.what != "value"]
        self._made = sorted({e.output for e, _ in self._others if e.output >= 0})
        versions = step.versions[: step.count]
        plain = all([kind is PLAIN for kind in step.kinds]) and not step.key_sources
        plain = plain and not any(versions)
        self._has_plain_results = plain and not self._made
        self._pick, self._names = self._getter([])

    def _getter(self, shared: Sequence[bool]) -> tuple[Callable[[PyTree], PyTree], list[str]]:
        """What takes values for Tensors out of the outputs, and the names of all that is put; see `_run`.

        ``shared``: which of the Tensors that are written to share a storage with others.
        """
        outputs = [e.output for e in self._writes]
        picks = [*outputs, *self._made, *itertools.compress(outputs, shared)]
        every = slice(None)  # twice, as a getter of one thing gives no tuple
        names = ["all", "all", *["_value"] * len(picks), *["version"] * len(outputs)]
        return operator.itemgetter(every, every, *picks), names

    def run(self, leaves: Sequence[PyTree]) -> PyTree:
        """The results of a call, a list; `MISS` if it is not for this."""
        with lock:
            if not self.step.is_in_place():
                return MISS
            targets: list[PyTree] = [*self._captured, *leaves]
            arrays: list[PyTree] = []
            links: list[PyTree] = []
            if not _add_arrays(targets, self._facts, arrays, links):
                return MISS
            if self._owners:
                grads = [targets[k].meta.grad for k in self._owners]
                if not _add_arrays(grads, self._grad_facts, arrays, links):
                    return MISS
                targets += grads
            count = len(set(map(id, targets)))
            if count < len(targets) and not self._are_apart(targets):
                return MISS
            if self._is_special and not self._are_those(leaves):
                return MISS
            operands = arrays[self._operands]
            del arrays  # references are counted
            return self._run(operands, targets, leaves, links)

    def _are_apart(self, targets: Sequence[PyTree]) -> bool:
        """Whether the Tensors outside are each another one, and no leaf is one that is written to."""
        ids = list(map(id, targets))
        if len({ids[k] for k in self._places.values()}) < len(self._places):
            return False
        return all([ids.count(ids[k]) == 1 for k in self._write_places])

    def _are_those(self, leaves: Sequence[PyTree]) -> bool:
        """Whether the Tensors outside are those that the program is for."""
        for outer in self._special:
            t = outer.find(leaves)
            if type(t) is not Tensor or not outer.is_same(t, leaves) or not outer.has_numbers(t):
                return False
        return self.step.has_fixed_grads(leaves)

    def _run(
        self,
        operands: list[PyTree],
        targets: Sequence[PyTree],
        leaves: Sequence[PyTree],
        links: Sequence[PyTree],
    ) -> PyTree:
        step, written, storages = self.step, self._written, self._storages
        if len(written) < len(self._writes):
            written = [targets[k] for k in self._write_places]
            storages = list(map(storage_of, written))
        if links and self._share(written, storages, targets):
            return MISS
        outputs = _Outputs()
        versions: Iterable[int] = map(operator.add, map(_version_of, storages), self._counts)
        pick, names = self._pick, self._names
        objects: list[PyTree] = [outputs, outputs, *written]
        are_owned = all(map(_is_owned, storages))
        puts: list[Put] = [] if are_owned else [(s, "owned", True) for s in storages if not s.owned]
        grads: dict[int, Tensor] = {}
        if self._others or links:
            versions = list(versions)
            shared = [t.meta.link is not None for t in written]
            pick, names = self._getter(shared)
            grads = {k: at_version(new_tensor(None, ROOT), step.versions[k]) for k in self._made}
            for effect, place in self._others:
                new = grads.get(effect.output, effect.new)
                new = new.find(leaves) if isinstance(new, OuterTensor) else new
                puts += puts_of(effect, targets[place], new)
            datas = [new_tensor(None, ROOT) for x in shared if x]
            objects += [*grads.values(), *datas]
            sharing = itertools.compress(zip(written, storages, versions), shared)
            for data, (t, storage, version) in zip(datas, sharing):
                puts += [(storage, "data", data), *puts_of_link(t.meta.link, version)]
        objects += storages
        if puts:
            objects += [x for x, _, _ in puts]
            names = [*names, *[name for _, name, _ in puts]]
            versions = itertools.chain(versions, [new for _, _, new in puts])
        # As they are before the call, which may replace a ``.grad``.
        from_outside = () if self._has_plain_results else step.results_from_outside(leaves)
        outs = itertools.starmap(self._table, (operands,))
        values = itertools.chain.from_iterable(map(pick, outs))
        values = itertools.chain(values, versions)
        donors = self._donor_tensors or [written[k] for k in self._donors]
        try:
            if donors:
                self._take(donors, storages, operands, are_owned)
            set_all(objects, names, values, step.moves)
        except BaseException as error:
            for t in donors:
                t._value  # noqa: B018  # it is put back, see `Tensor.__getattr__`
            self._table._clear_cache()
            if isinstance(error, _NotThis):
                return MISS
            raise
        taken.now = None
        taken.turn += 1
        self._warm = True
        return self._results(outputs.all, grads, leaves, from_outside)

    def _share(
        self, written: Sequence[PyTree], storages: Sequence[Storage], targets: Sequence[PyTree]
    ) -> bool:
        """Whether a Tensor that is written to is a view, or shares its storage with another target.

        Tensors that are the same at each call may share one: the program is for that.
        """
        links = [t.meta.link for t in written]
        if any([x is not None and (x.base is not None or x.chain) for x in links]):
            return True
        count, passed = len(self._captured), self._passed
        each = set(storages) if passed else self._storage_set
        if len(each) < len(storages) or _count_of(each, targets[count:]) > len(passed):
            return True
        return bool(passed) and _count_of({storages[k] for k in passed}, targets[:count]) > 0

    def _take(
        self,
        donors: Sequence[Tensor],
        storages: Sequence[Storage],
        operands: list[PyTree],
        are_owned: bool,
    ) -> None:
        """Take donated arrays out of their Tensors, and copy those that are not the Tensors' alone.

        A thread that reads such a Tensor meanwhile blocks until the call is done.
        """
        arrays = [operands[k] for k in self._donated]
        taken.now = donors, arrays
        for t in donors:
            del t._value
        if are_owned and self._warm and max(map(sys.getrefcount, arrays)) == _ALONE:
            return
        counts = list(map(sys.getrefcount, arrays))
        for k, place, count in zip(self._donors, self._donated, counts):
            if count > _ALONE or not (storages[k].owned and self._warm):
                operands[place] = _copy(operands[place])

    def _results(
        self,
        outputs: Sequence[PyTree],
        grads: dict[int, Tensor],
        leaves: Sequence[PyTree],
        from_outside: Sequence[PyTree],
    ) -> list[PyTree]:
        step = self.step
        tensors = step.gives_tensors(leaves)
        if self._has_plain_results:
            outs = outputs[: step.count]
            return [new_tensor(x, ROOT) for x in outs] if tensors else list(outs)
        outs = [grads.get(k, x) for k, x in enumerate(outputs)]
        return step.results(outs, leaves, from_outside)


@functools.lru_cache(maxsize=256)
def _program(
    name: str,
    primitive: Primitive,
    order: tuple[int, ...],
    keys: tuple[tuple[int, PyTree], ...],
    donated: tuple[int, ...],
) -> jax.stages.Wrapped:
    """The function of a program, compiled once for all traces that give it.

    ``order``: where its operands are among those of the function; ``keys``: the random keys of these.
    """

    def run(*values: Array) -> PyTree:
        inputs = list(values)
        for k, impl in keys:
            inputs[k] = jax.random.wrap_key_data(inputs[k], impl=impl)
        return primitive.flat(*[inputs[k] for k in order])

    run.__name__ = name
    return make_jit(run, donate_argnums=donated)


def _add_arrays(
    tensors: Iterable[PyTree],
    expected: Iterable[Facts],
    arrays: list[PyTree],
    links: list[PyTree],
) -> bool:
    """Append the arrays of Tensors of the eager tape, and their links, if they have the expected `Facts`.

    An array may stand in place of a Tensor about which there is nothing to say. Of random keys, which have no
    history, the dtype is expected in place of whether it requires grad.
    """
    for t, (requires_grad, is_leaf, has_grad, hooks) in zip(tensors, expected):
        if type(t) is Tensor:
            meta = t.meta
            if meta is None:
                if has_grad or hooks:
                    return False
            else:
                if meta.link is not None:
                    meta.link.sync_history(t)
                    leave_peers(t)
                    if not is_contiguous(t):
                        return False
                    if meta.link is not None:
                        links.append(meta.link)
                if (meta.grad is None) is has_grad:
                    return False
                if (meta.hooks or meta.post_hooks or hooks) and hooks_of(meta) != hooks:
                    return False
            if t._level is not ROOT:
                return False
            value = t._value
            if type(value) is array_type and t._requires_grad is not requires_grad:
                return False
            if requires_grad is True and (t._node is None) is not is_leaf:
                return False
        else:
            value = t
            if type(value) is array_type and (requires_grad or has_grad or hooks or not is_leaf):
                return False
        if type(value) is not array_type:
            if not is_key(value) or value.dtype != requires_grad:
                return False
            value = _key_data(value)
        arrays.append(value)
    return True


def _count_of(storages: set[Storage], tensors: Sequence[PyTree]) -> int:
    """How many of these Tensors have one of these storages."""
    metas = [x.meta for x in tensors if type(x) is Tensor]
    return len([None for meta in metas if meta is not None and meta.storage in storages])


def _impl_of(x: PyTree) -> object:
    """The kind of random keys that ``x`` holds, as JAX has them; None if it holds none."""
    x = x._value if isinstance(x, Tensor) else x
    return jax.random.key_impl(x) if is_key(x) else None


def _count_alone() -> int:
    """The references to an array that only a Tensor has, as `QuickStep._take` counts them."""
    operands = [object()]
    arrays = [operands[0]]
    return max(map(sys.getrefcount, arrays))


_ALONE = _count_alone()
_version_of = operator.attrgetter("version")
_is_owned = operator.attrgetter("owned")
_key_data = make_jit(jax.random.key_data)
_copy = make_jit(jnp.copy)  # an interrupt in `jnp.copy` itself would leave JAX without a trace
