"""Forward runs: small operations in transforms and on the tape wait, and run in one call of XLA.

NOTE [runs]

A call of XLA costs as much as all of fad's own work for an operation. Inside of a transform
(`fad.grad`, `fad.jvp`, `fad.vmap`, ...) nobody sees the arrays at the bottom before the transform
returns, or something reads one; and what the eager tape records is seen when something reads it. So there,
an operation of `lazy` Primitives on small arrays is only written down, and its outputs are `Pending`
values: their shape and dtype are known, since the same operation on the same avals has run before. When
one of them is read, everything that waits is run. A run whose structure has come back often enough is
one compiled program; until then, and whenever that fails, its steps are executed one by one, as they
would have been without waiting.

What keeps this the same as running each operation at once:

* An operation that has not been seen with these avals runs at once: what is wrong with it is said
  there and then. What waits is pure: no callbacks, no user code, no data-dependent shapes.
* Pending values live below the levels of transforms. Whatever leaves them (a result, ``x.value``, a
  host read) is settled first; the bodies of Functions compute with Tensors around them.
* Only outputs that somebody still holds are computed; the graph of a finished backward pass holds
  none, so a whole ``fad.grad`` becomes one program from its inputs to its gradients.
* A run of the eager tape goes on until something reads a value, or until something is recorded after a
  backward pass: a step of training (loss, ``backward()``, the update of small parameters) is one program.
* Where values are read after every few operations, as in a loop ``while loss.item() > 1e-3``, or where the
  structure is always a new one, waiting gains nothing; so when it has lost more than it gained for some time,
  operations run at once for a while (`Attempts`; `_gain`).
* Nothing waits under settings of JAX that hold for a block (a precision, 64-bit types, a device); what
  waits when such a block begins runs outside of it, on a thread without settings of its own. Arrays
  on other devices than the default one, traced ones, and large ones (for which XLA's own time
  counts) do not take part.
* A run belongs to a thread. Another one that reads a pending value computes it for itself, under the
  settings of the run.
* Whoever gets an array out of fad may donate or delete it, so what waits for it runs first (`give_away`). Of
  arrays that the user had before, fad does not know.
* A call is written down in one act: an interrupt, or a finalizer that runs operations in the middle of it,
  finds the run as it was before.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fad import jaxapi
from fad.avals import SCALARS, aval_of, constant, struct_of
from fad.dispatch import Level, settle_levels, state
from fad.errors import LevelError
from fad.fusion import fuse, step_by_step
from fad.jaxapi import array_type, is_committed
from fad.primitive import Primitive
from fad.structures import Structure, Structures, budget, held
from fad.tensor import Pending, Tensor, settled

__all__ = [
    "LARGE",
    "Run",
    "aval_number",
    "cache_info",
    "check_dtype",
    "clear_cache",
    "elsewhere",
    "is_plain",
    "is_where_values_wait",
    "may_wait",
    "settings_number",
    "something_waits",
]

LARGE = 1 << 14  # elements: an array of so many does not wait
LONGEST = 512  # steps
HEAVY = 1 << 21  # elements of all operands
SHORT = 4  # steps: to run them at once takes no longer than to write them down and run together
EVEN = 8  # steps: a compiled run of so many takes as long as to run them at once
MOST = 256  # what one run may lose or gain, in operations
IDLE = 512  # what one that is too short loses
TRANSFORM = 32  # operations, for which a transform counts whose operations run at once
CAPACITY = 512  # structures remembered
SAVED_PER_STEP = 5e-6  # seconds that a compiled run saves, for each step


class RunLevel(Level):
    """The level of pending values, below all others.

    It counts as finished: whatever does not know of values that wait finds the array (`outlive`).
    """

    __slots__ = ()

    kind = "eager"

    def __init__(self) -> None:
        self.id = -2
        self.alive = False

    def detach(self, x: Any) -> Any:
        return x

    def outlive(self, t: Tensor) -> Any:
        return t.value

    def aval(self, t: Tensor) -> Any:
        return t.aval


Pending._level = RunLevel()  # type: ignore[misc]


_structures = Structures(CAPACITY)


def cache_info() -> dict[str, int]:
    """How many structures are remembered, how many of them are compiled, and how often those ran."""
    return _structures.info()


def clear_cache() -> None:
    """Forget all structures and what was compiled of them; and in this thread, what waiting has gained."""
    _structures.clear()
    state.tape_waits.reset()
    state.waits.reset()


class _Settings:
    """JAX's settings as they are outside of all blocks that change them, numbered."""

    __slots__ = ("lock", "number", "unusual", "usual")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number = 0
        self.usual: Any = None
        self.unusual: set[Any] = set()

    def number_of(self, context: Any) -> int:
        """The number of these settings; 0 if a block has changed them."""
        if context == self.usual:
            return self.number
        with self.lock:
            if context in self.unusual:
                return 0
            if elsewhere(jaxapi.trace_context) == context:  # changed for good
                self.usual, self.number = context, self.number + 1
                self.unusual.clear()
                return self.number
            self.unusual.add(context)
            return 0


_settings = _Settings()


def elsewhere(f: Callable[[], Any]) -> Any:
    """What ``f()`` gives on a new thread, where JAX has no settings but the global ones."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            found.append(f())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="fad-run")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def settings_number(context: Any) -> int:
    """The number of these settings of JAX; 0 where nothing may wait under them."""
    return _settings.number_of(context)


class Run:
    """Calls that wait, in order, and the thread that they belong to.

    ``steps`` are tuples of a Primitive, the number of its outputs, and references to its arguments: the
    number of an earlier output, or ``~k`` for operand k. ``cells`` are the outputs. ``places`` are the
    numbers of operands by their `id`; ``scalars`` keeps alive those that stand for an operand.
    ``settings`` is the number of JAX's settings, 0 if nothing may wait under them. ``tape``: the eager tape
    began it, outside of all transforms; ``ended``: and a backward pass has come to its end since.
    ``weight``: of how many elements its operands are; ``size``: the number of steps.
    """

    __slots__ = (
        "avals",
        "cells",
        "context",
        "done",
        "ended",
        "gain",
        "hot",
        "operands",
        "owner",
        "places",
        "scalars",
        "settings",
        "size",
        "steps",
        "tape",
        "weight",
    )

    def __init__(self, tape: bool = False) -> None:
        self.done = False
        self.ended = False
        self.tape = tape
        self.hot = False
        self.owner = threading.get_ident()
        self.context = jaxapi.trace_context()
        self.settings = _settings.number_of(self.context)
        self.size = 0
        self.steps: list[tuple[Any, ...]] = []
        self.cells: list[Pending] = []
        self.operands: list[Any] = []
        self.avals: list[Any] = []
        self.places: dict[int, int] = {}
        self.scalars: list[Any] = []
        self.weight = 0
        self.gain = 0

    def is_idle(self) -> bool:
        """Whether nothing waits, nor will after the transform that is running."""
        return not self.tape and not self.steps

    def call(self, op: Any, args: Sequence[Any]) -> Any:
        """Write a call down, or run it: one output, or a tuple of them."""
        if type(op) is not Primitive:
            return op.execute(args)
        if not op.lazy:
            return op.execute(list(map(settled, args)))
        run = self
        full = run.size >= LONGEST or run.weight > HEAVY
        if full or run.done or jaxapi.trace_context() != run.context:
            run.finish()
            if _rests(run.tape and not state.levels):
                state.run = None
                return op.execute(list(map(settled, args)))
            run = Run(run.tape)
            state.run = run if state.compiling else None
        if not run.settings or state.run is None or jaxapi.checks_numbers():
            return op.execute(list(map(settled, args)))
        steps, operands, places = run.steps, run.operands, run.places
        size, count, first = run.size, len(operands), len(run.cells)
        refs: list[Any] = [op, 1]
        key: list[Any] = []
        # New operands, their avals, and where they, and numbers for them, are found.
        fresh: list[Any] = []
        fresh_avals: list[Any] = []
        known: dict[int, int] = {}
        scalars: list[Any] = []
        weight = 0
        for a in args:
            if type(a) is Pending:
                if a.run is run:
                    refs.append(a.index)
                    key.append(a.aval)
                    continue
                a = a.value
            place = places.get(id(a))
            if place is None:
                array = constant(a) if type(a) in SCALARS else a
                place = places.get(id(array))
                if place is None:
                    place = known.get(id(array))
                    if place is None:
                        if not may_wait(array):
                            return op.execute(list(map(settled, args)))
                        place = known[id(array)] = count + len(fresh)
                        fresh.append(array)
                        fresh_avals.append(array.aval)
                        weight += math.prod(array.aval.shape)
                    key.append(fresh_avals[place - count])
                else:
                    key.append(run.avals[place])
                if array is not a:
                    known[id(a)] = place
                    scalars.append(a)
            else:
                key.append(run.avals[place])
            refs.append(~place)
        avals = op.shapes.get((run.settings, *key))
        if avals is None:
            if not op.hot or jaxapi.is_tracing():
                return run._first(op, key, args)
            avals = run._note(op, key, jax.eval_shape(op.flat, *map(struct_of, key)))
        if avals is False:
            return op.execute(list(map(settled, args)))
        single = type(avals) is not tuple
        if single:
            outs = [_pending(run, first, avals)]
        else:
            outs = [_pending(run, first + k, a) for k, a in enumerate(avals)]
            refs[1] = len(outs)
        step = [tuple(refs)]

        # Here, finalizers get no turn: nothing is called, and no object made that is collected.
        if run.done or run.size != size:  # one has run operations in between
            return op.execute(list(map(settled, args)))
        try:
            if known:
                run.scalars += scalars
                run.avals += fresh_avals
                run.weight += weight
                operands += fresh
                places |= known
            steps += step
            run.cells += outs
            run.size = size + 1

        except BaseException:  # an interrupt: as if it had come before the call
            run._forget(size, count, first)
            raise
        run.hot = run.hot or op.hot
        return outs[0] if single else tuple(outs)

    def _forget(self, steps: int, operands: int, cells: int) -> None:
        """Let go of all but the first so many steps, operands and cells."""
        self.size = steps
        del self.steps[steps:], self.cells[cells:], self.operands[operands:], self.avals[operands:]
        self.places = {at: place for at, place in self.places.items() if place < operands}

    def _first(self, op: Primitive, key: Sequence[Any], args: Sequence[Any]) -> Any:
        """Run an operation that was not seen with these avals, and note what comes out."""
        out = op.execute(list(map(settled, args)))
        if not jaxapi.is_tracing():
            self._note(op, key, out)
        return out

    def _note(self, op: Primitive, key: Sequence[Any], out: Any) -> Any:
        """Remember the avals of the outputs; False where arrays are too large to wait."""
        outs = out if type(out) is tuple else (out,)
        avals = tuple([aval_of(o) for o in outs])
        small = all([a.size <= LARGE for a in (*key, *avals)])
        found = (avals if type(out) is tuple else avals[0]) if small else False
        op.shapes[self.settings, *key] = found
        return found

    def settle(self, p: Pending) -> None:
        """Compute ``p``: with all else that waits, or for a thread that the run does not belong to."""
        if self.owner == threading.get_ident():
            self.finish()
        steps, operands, cells = self.steps, self.operands, self.cells
        if p.run is None:
            return
        values = self._as_outside(lambda: step_by_step(steps, operands))
        check_dtype(values[p.index], p.aval)
        for c, value in zip(cells, values, strict=False):
            if c.run is not None and value.dtype == c.aval.dtype:
                c._value = value
                c.run = None

    def _as_outside(self, f: Callable[[], Any]) -> Any:
        """``f()``, under the settings that the calls were written down under."""
        if jaxapi.trace_context() != self.context or jaxapi.is_tracing():
            return elsewhere(f)
        return f()

    def finish(self) -> None:
        """Run all that waits."""
        if self.done:
            return
        self.done = True
        if not self.steps:
            return
        self._as_outside(self._compute)
        if self.gain:
            (state.tape_waits if self.tape else state.waits).note(self.gain)

    def _compute(self) -> None:
        cells = self.cells
        in_use = held(cells)
        changed = jaxapi.trace_context() != self.context  # for good, by jax.config.update
        if self.tape and len(self.steps) <= SHORT:
            self.gain = -IDLE
        values: Any = () if not any(in_use) else None
        if values is None and len(self.steps) > 1 and not changed and not jaxapi.checks_numbers():
            values = self._compiled(in_use)
        if values is None:
            every = step_by_step(self.steps, self.operands)
            values = [v for v, h in zip(every, in_use, strict=True) if h]
        for c, value in zip(
            [c for c, h in zip(cells, in_use, strict=True) if h], values, strict=True
        ):
            if changed:
                check_dtype(value, c.aval)
            c._value = value
            c.run = None
        # Nothing here is needed any more, and cells that nobody holds refer back to the run.
        self.cells, self.steps, self.operands, self.scalars = [], [], [], []

    def _compiled(self, in_use: tuple[bool, ...]) -> list[Any] | None:
        """The outputs that are in use, from one compiled program; None if there is none."""
        steps, operands = self.steps, self.operands
        entry = _structures.seen((self.settings, tuple(steps), in_use, tuple(self.avals)))
        found: list[Any]
        if not self.gain:
            self.gain = _gain(entry, len(steps))
        if entry.program is not None:
            _structures.ran(SAVED_PER_STEP * len(steps))
            found = entry.program(*operands)
            return found
        if entry.refused or not budget.allows(entry.count, self.hot):
            return None
        began = time.perf_counter()
        compiled = fuse(steps, in_use)
        try:
            found = compiled(*operands)
        except Exception:  # whatever it is, running the steps one by one raises it, or does without
            entry.refused = True
            return None
        finally:
            budget.spent += time.perf_counter() - began
        entry.program = compiled
        return found


def _gain(entry: Structure, steps: int) -> int:
    """What it has gained that a run has waited, in the time of so many operations."""
    if entry.program is not None:
        return min(steps - EVEN, MOST)
    comes_back = entry.count > 1 and not entry.refused
    return 0 if comes_back else -min(4 + steps // 2, MOST)


def begin() -> None:
    """Let what the eager tape records from here on wait; what waited for an ended pass is run."""
    run = state.run
    if run is None:
        if state.compiling and not _rests(True):
            state.run = Run(tape=True)
    elif run.ended:
        run.finish()
        state.run = None if _rests(True) else Run(tape=True)


def enter() -> None:
    """Let operations wait in a transform that begins."""
    if state.run is None and state.compiling and not _rests(False):
        state.run = Run()


def _rests(tape: bool) -> bool:
    """Whether operations run at once now, since waiting has lost time."""
    return state.tape_waits.rests() if tape else state.waits.rests(TRANSFORM)


def end() -> None:
    """Note that a backward pass of the eager tape has come to its end: a step of training, as a rule.

    What follows until something is recorded, an update of parameters, belongs to the step as well.
    """
    run = state.run
    if run is not None and run.tape:
        run.ended = True


def give_away(array: Any) -> Any:
    """``array``, which leaves fad: whoever gets it may donate or delete it, so nothing waits for it."""
    modes = state.__dict__.get  # a name that is not there has its default
    if modes("levels") or modes("script") is not None:
        settle_levels()
    run = modes("run")
    if run is not None and id(array) in run.places:
        run.finish()
    return array


def something_waits() -> bool:
    """Whether anything has only been written down by this thread, on the tape or in transforms."""
    modes = state.__dict__.get
    if modes("levels") or modes("script") is not None:
        return True
    run = modes("run")
    return run is not None and bool(run.steps)


def stop() -> None:
    """Run what waits for the eager tape, in this thread, and let nothing more wait."""
    run = state.run
    if run is not None and run.tape:
        run.finish()
        state.run = None


_usual: set[Any] = set()
_plain: dict[int, Any] = {}  # shardings equal to those, by `id`: they compare slowly
_numbered: dict[int, tuple[Any, int]] = {}  # avals and their numbers, by `id` too
_numbers: dict[Any, int] = {}
_next_number = itertools.count(1)
_KNOWN = 4096  # of each


def is_where_values_wait(sharding: Any) -> bool:
    """Whether all that waits is certainly on the devices of this sharding."""
    return is_plain(sharding) and len(_usual) == 1


def is_plain(sharding: Any) -> bool:
    """Whether arrays with this sharding are where JAX puts arrays by default."""
    if id(sharding) in _plain:
        return True
    if sharding not in _usual:
        if jaxapi.is_tracing() or sharding != jax.device_put(np.float32(0)).sharding:
            return False
        _usual.add(sharding)
    if len(_plain) >= _KNOWN:
        _plain.clear()
    _plain[id(sharding)] = sharding
    return True


def aval_number(aval: Any) -> int:
    """A number for the aval of an array: negative for a large one.

    It is the same for equal ones, until there are so many that the tables begin anew. None comes back then.
    """
    known = _numbered.get(id(aval))
    return _number(aval) if known is None else known[1]


def _number(aval: Any) -> int:
    for table in (_numbered, _numbers):
        if len(table) >= _KNOWN:
            table.clear()
    sign = 1 if aval.size <= LARGE else -1
    number = _numbers.setdefault(aval, sign * next(_next_number))
    _numbered[id(aval)] = (aval, number)
    return number


@functools.cache
def _several_devices() -> bool:
    """Whether JAX has several devices: those that it uses by default, and the host."""
    return len({*jax.local_devices(), *jax.local_devices(backend="cpu")}) > 1


def _pending(run: Run, index: int, aval: Any) -> Pending:
    p: Pending = object.__new__(Pending)
    p.aval = aval
    p.run = run
    p.index = index
    return p


def may_wait(a: Any) -> bool:
    """Whether an operation on this value, which is no number, may wait."""
    if type(a) is not array_type:
        return False
    if aval_number(a.aval) < 0:
        return False
    if not is_plain(a.sharding):
        return False
    return not (
        is_committed(a) and _several_devices()
    )  # what it is run with would be committed too


def check_dtype(value: Any, aval: Any) -> None:
    """Refuse a value that the settings of JAX, changed for good in between, have given another dtype."""
    if value.dtype != aval.dtype:
        raise LevelError(
            "jax.config was changed between an operation and the first look at its result, which would "
            "have another dtype now: change it earlier, or for a block with JAX's context managers "
            "(jax.enable_x64, jax.default_matmul_precision, ...)"
        )
