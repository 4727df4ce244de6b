"""``jit``: a function of Tensors compiled by XLA; ``eval_shape``, ``make_jaxpr``: what it would compute."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax

from fad.compile import explanations
from fad.compile.fast_path import MISS, QuickStep
from fad.compile.outer_tensors import (
    Lanes,
    OuterTensor,
    is_bare,
    is_traced,
    may_take,
    struct_like,
    untracked,
    values_now,
)
from fad.compile.places import places_of
from fad.compile.signatures import (
    Arguments,
    Repeating,
    is_dynamic,
    key_of,
    lanes,
    without_repeats,
)
from fad.compile.state import StepState, is_key, lock
from fad.compile.surroundings import Retraces, Surroundings
from fad.core import jaxapi, trees
from fad.core.avals import SCALARS, with_constants
from fad.core.caches import Cache, Table
from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.level import flush, modes, state
from fad.core.observation import observable
from fad.core.primitive import Primitive
from fad.core.rolling_protocol import Rolled
from fad.core.tensor import Tensor, at_version, bottom, has_history, new_tensor, taken
from fad.core.threads import make_jit
from fad.core.trees import Rest
from fad.core.types import Operand, PyTree
from fad.errors import ArgumentError, describe
from fad.errors.tracebacks import is_users, warn_at_users_line
from fad.tape.anomaly import compiled_call
from fad.tape.anomaly import mode as anomaly
from fad.tape.grad_mode import no_grad
from fad.tape.recorder import ROOT
from fad.tape.staged import StagedLevel, code_of, in_body, stage
from fad.tape.vmap import bind_program, note_draw
from fad.transforms.boundary import (
    Call,
    check_written,
    enter,
    has_tensor,
    leave,
    was_written,
    write_back,
)
from fad.views.make_view import is_contiguous, place_of, stand_at
from fad.views.pytree import flattening

# What runs, its first operands, the leaves of the arguments, and what makes the result of its outputs.
_TableCall = tuple[
    Callable[..., PyTree], list[PyTree], list[PyTree], Callable[[Sequence[Any]], PyTree]
]
_log = logging.getLogger("fad.jit")


@dataclasses.dataclass(slots=True, eq=False)
class _Entry:
    """One compiled program.

    ``fixed`` are the values that it closes over, ``structure`` that of its result, ``seen`` what it
    was traced for, in words. ``changed`` are the leaves among its arguments that it changes in
    place; their new values are part of the result; unless it ``records``, it does so under `no_grad`, to
    leaves of the graph. ``donating`` runs it and donates buffers; None if
    none are donated. ``loops``: those of its program that were rolled.
    """

    primitive: Primitive
    fixed: list[PyTree]
    structure: trees.PyTreeDef
    seen: dict[str, str]
    changed: list[int]
    records: bool
    loops: list[Rolled]
    step: StepState
    noted: bool = False
    donating: Callable[..., PyTree] | None = None


class _Written:
    """What JAX's table returns for a program with results that the body has written to, see `_Entry`."""

    def __init__(self, arrays: Sequence[PyTree], entry: _Entry, plain: tuple[bool, ...]) -> None:
        self.arrays, self.entry, self.plain = arrays, entry, plain

    def results(self) -> PyTree:
        """The result of the function: Tensors that count these writes, and arrays where it is ``plain``."""
        parts = zip(self.arrays, self.plain, self.entry.step.versions, strict=True)
        results = [x if p else at_version(new_tensor(x, ROOT), n) for x, p, n in parts]
        return trees.unflatten(self.entry.structure, results)


jax.tree_util.register_pytree_node(
    _Written, lambda x: (x.arrays, (x.entry, x.plain)), lambda aux, arrays: _Written(arrays, *aux)
)


class _Traced:
    """What a trace of ``f`` for these leaves of its arguments gives.

    ``captures``: what the program takes before the leaves. ``changed``, ``records``: as in `_Entry`.
    ``around``: what is around the function, which has been checked; ``before``: what it was.
    """

    level: StagedLevel
    step: StepState
    structure: trees.PyTreeDef
    changed: list[int]
    records: bool

    def __init__(
        self, name: str, f: Callable[..., PyTree], leaves: list[PyTree], rest: Rest | Repeating
    ) -> None:
        self._f, self._leaves, self._rest = f, leaves, rest
        self._places = list(map(place_of, leaves))
        self._around = state.body

        def run(level: StagedLevel, *tracers: PyTree) -> PyTree:
            self.level = level
            level.runs_again = "a function in fad.jit (a Function, checkpoint, a hook, a transform)"
            return in_body(level, self._body)(*tracers)

        run.name = name  # type: ignore[attr-defined]
        self.around = Surroundings(f, [x for x in rest.statics() if hasattr(x, "__dict__")])
        self.before = self.around.before()
        try:
            self.primitive, values, _ = stage(run, leaves, bodies=[f], kept=True)
            self.around.check(self.level)
        except BaseException:
            self.before.put_back()
            raise
        self.captures = values[: len(values) - len(leaves)]

    def _body(self, *handles: Tensor) -> list[Operand]:
        """The outputs of the program, while it is traced."""
        for x, place in zip(handles, self._places, strict=True):
            stand_at(x, place)
        self.step = StepState(self.level, self._around, self._leaves, handles)
        args, kwargs = self._rest.combine(handles)
        outs, self.structure = trees.flatten(self._f(*args, **kwargs))
        written = [k for k, x in enumerate(handles) if was_written(x)]
        self.changed = [k for k in written if k not in self.step.adopted]
        changed = [handles[k] for k in self.changed]
        self.records = not all([x.requires_grad and not has_history(x) for x in changed])
        return [*self.step.finish(outs), *[handles[k] for k in self.changed]]


def _donating_operands(entry: _Entry, leaves: list[PyTree]) -> list[PyTree]:
    """The arrays that a program which donates arguments is called with."""
    flush()  # a trace may have them for inputs
    values = [*values_now(entry.fixed, leaves), *leaves]
    return [x.value if isinstance(x, Tensor) else x for x in values]


@functools.lru_cache(maxsize=256)
def _donating(primitive: Primitive, donated: tuple[int, ...]) -> Callable[..., PyTree]:
    """The function of a program, compiled so that it takes over the memory of operands."""
    return make_jit(primitive.flat, donate_argnums=donated)


class _NotQuick(Exception):
    """A call cannot take the fast path; ``always``: nor can any call of the function; ``tracked``: a Tensor
    in its pytrees belongs to a graph or a level.
    """

    def __init__(self, always: bool = False, tracked: bool = False) -> None:
        self.always = always
        self.tracked = tracked


def _refuse(*args: object, **kwargs: object) -> None:
    raise _NotQuick


def _check_place(t: Tensor) -> None:
    """Refuse a Tensor whose place the program depends on."""
    if not is_contiguous(t):
        raise _NotQuick(tracked=True)


class Compiled:
    """What `jit` returns. Called like the function; ``__wrapped__`` is the function itself."""

    __wrapped__: Callable[..., PyTree]
    _hooks = False  # whether it calls hooks when it runs
    _rolls = True  # whether loops in it are rolled

    def __init__(self, f: Callable[..., PyTree], arguments: Arguments, explain: bool) -> None:
        functools.update_wrapper(self, f, updated=())
        self._name = getattr(f, "__name__", "jit")
        self._arguments = arguments
        self._entries = Cache()
        self._tables: Table | None = Table(_TABLES)  # of `jaxapi.call_table`; None if none would do
        self._quick: list[QuickStep] = []  # the one that was used last is the first
        self._has_static = bool(arguments.nums or arguments.names)
        self._refused = 0  # calls that were
        self._acts = False  # whether a program of it changes anything outside
        self._keeps = not (arguments.donated_nums or arguments.donated_names)
        self._draws = False  # whether it draws random numbers, as far as has been seen
        self._explains = explain
        self._retraces = Retraces(self._name)

    def __repr__(self) -> str:
        return f"<fad.jit of {self._name}>"

    def __get__(self, instance: object, owner: object = None) -> Callable[..., PyTree]:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        # The fast path, which most calls take: JAX itself flattens the arguments, finds the program and runs
        # it. There is nothing around such a call, and no graph has its arguments; or nothing is recorded.
        tables = self._tables
        modes = state.__dict__.get
        if tables is None or anomaly.watch:
            return self._settled(args, kwargs)
        key = _mode_key(modes)
        if key < 0:
            return self._run(args, kwargs)
        positional: Sequence[PyTree] = args
        by_name = kwargs
        static: tuple[Hashable, ...] = ()
        if self._has_static:
            static, positional, by_name = self._arguments.part(args, kwargs)
        operands = []
        plain = self._keeps
        tensors = 0
        for a in positional:
            if type(a) is Tensor:
                usual = a.meta is None and a._level is ROOT and not a._requires_grad
                if not usual and not may_take(a, bool(key & _NO_GRAD)):
                    return self._run(args, kwargs)
                a = a._value
                tensors = _TENSORS
                if type(a) is not array_type:
                    return self._run(args, kwargs)
            elif type(a) is not array_type:
                plain = False
            operands.append(a)
        if by_name or not plain:
            if not self._may_flatten(key):
                return self._run(args, kwargs)
            flattening.check = _check_place
        key |= tensors
        table = tables.get((key, static) if static else key)
        if table is None:
            table = self._new_table(tables, key, static)
        try:
            out = table(*operands, **by_name) if by_name else table(*operands)
        except _NotQuick as refused:
            table._clear_cache()  # else JAX would call `find` for these arguments at every call
            self._refused += refused.tracked
            if refused.always:
                self._tables = None
        except BaseException:
            table._clear_cache()
            if not jaxapi.checks_numbers():
                raise
        else:
            if tensors:
                if type(out) is array_type:
                    return new_tensor(out, ROOT)
                if type(out) is tuple:
                    return tuple([new_tensor(x, ROOT) if type(x) is array_type else x for x in out])
            return out.results() if type(out) is _Written else out
        finally:
            flattening.check = None
        return self._run(args, kwargs)  # which names the operation, where JAX checks for NaN

    def _may_flatten(self, key: int) -> bool:
        """Whether JAX may take arrays out of pytrees, and memory that is donated."""
        if state.levels or state.trace is not None or self._refused > _REFUSALS:
            return False
        # Where nothing is recorded, it is given the arrays of what a graph has, too.
        return self._keeps or not key & _NO_GRAD

    def _new_table(self, tables: Table, key: int, static: tuple[PyTree, ...]) -> Any:
        owner = weakref.ref(self)  # a function that is dropped is freed at once

        def find(args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> _TableCall:
            compiled = owner()
            assert compiled is not None
            return compiled._find(key, static, args, kwargs)

        def forgotten() -> None:
            compiled = owner()
            assert compiled is not None
            compiled._tables = None

        table = jaxapi.call_table(self._name, find, _refuse, forgotten)
        return tables.put((key, static) if static else key, table)

    def _find(
        self, key: int, static: PyTree, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> _TableCall:
        """What a call of JAX's table runs, in the form of `jaxapi.call_table`.

        Raises:
            _NotQuick: it takes more than to run a program that is there on these arguments.
        """
        if not jaxapi.at_top_level() or jaxapi.checks_numbers():
            raise _NotQuick
        tensors = bool(key & _TENSORS)
        handles = [new_tensor(a, ROOT) if tensors and type(a) is array_type else a for a in args]
        count = len(jax.tree.leaves((handles, kwargs)))
        args, kwargs = self._arguments.whole(static, handles, kwargs)
        leaves, rest = self._arguments.split(args, kwargs)
        if not all([is_bare(x, bool(key & _NO_GRAD)) for x in leaves]):
            raise _NotQuick(tracked=True)
        if count != len(leaves):  # some are static unasked: functions, texts
            raise _NotQuick(always=True)
        program_key = self._drawn(key_of(leaves, rest), leaves)
        entry = self._fitting(program_key, leaves)
        if entry is None and key & _NO_GRAD:  # what is recorded of the arguments does not matter
            entry = next(
                (e for e in list(self._entries.get(program_key) or ()) if e.step.is_pure), None
            )
        if entry is None:  # the first such call; what is traced may call this function again
            raise _NotQuick
        simple = entry.primitive.jit and not entry.changed and not entry.primitive.calls_host
        simple = simple and entry.step.is_pure
        fixed = _as_arrays(entry.fixed)
        if not simple or not all([type(x) is array_type for x in fixed]):
            raise _NotQuick(always=True)
        values = [x.value if isinstance(x, Tensor) else x for x in leaves]
        call, before = entry.primitive.executable([*fixed, *values])
        if entry.donating is not None:
            call, before = entry.donating, []
            flush()
        wraps = tensors or any([isinstance(x, Tensor) for x in leaves])

        def result(outs: Sequence[Operand]) -> PyTree:
            flat = trees.is_flat(entry.structure) and all([type(x) is array_type for x in outs])
            plain = tuple([entry.step.gives_plain_keys(k, leaves) for k in range(len(outs))])
            if wraps and any(entry.step.versions):
                return _Written(outs, entry, plain)
            if wraps and not (tensors and flat):  # those `__call__` makes, in less time
                outs = [x if p else new_tensor(x, ROOT) for x, p in zip(outs, plain, strict=True)]
            return trees.unflatten(entry.structure, outs)

        return call, [*before, *fixed], values, result

    def _drawn(self, key: tuple[PyTree, ...], leaves: list[PyTree]) -> tuple[Hashable, ...]:
        """The key of a call, with what else is in it if the function draws random numbers."""
        return (*key, lanes(leaves)) if self._draws else key

    def _settled(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
        """A call of a function with state, by a `QuickStep` if one is for it."""
        modes = state.__dict__.get
        key = _mode_key(modes) if self._quick and not anomaly.watch else -1
        if key < 0:
            return self._run(args, kwargs)
        if modes("trace") is not None:
            flush()
        leaves, form = self._taken_apart(args, kwargs)
        for k, quick in enumerate(self._quick):
            if quick.key != key or quick.form != form:
                continue
            results = quick.run(leaves)
            if results is not MISS:
                self._retraces.calls += 1
                if k:
                    self._quick = [quick, *[q for q in self._quick if q is not quick]]
                return trees.unflatten(quick.structure, results)
        return self._run(args, kwargs)

    def _taken_apart(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree]
    ) -> tuple[list[Operand], Hashable]:
        """`Arguments.split`, in less time for arguments of which each is an array."""
        if not kwargs and not self._has_static:
            for a in args:
                if type(a) is not Tensor and type(a) is not array_type and not is_key(a):
                    break
            else:
                leaves, places = without_repeats(args)
                return leaves, places or len(args)
        return self._arguments.split(args, kwargs)

    def _note_quick(
        self, entry: _Entry, leaves: list[PyTree], args: PyTree, kwargs: dict[str, PyTree]
    ) -> QuickStep | None:
        """Make the `QuickStep` of a program, if calls of it can be such."""
        step, primitive = entry.step, entry.primitive
        if step.is_pure or not step.is_quick or entry.changed or entry.donating is not None:
            entry.noted = True
            return None
        if not primitive.jit or primitive.calls_host:
            return None
        key = _mode_key(state.__dict__.get)
        if key < 0:
            return None
        entry.noted = True
        fixed = _as_arrays(entry.fixed)
        if not all(
            [type(x) is array_type or isinstance(x, OuterTensor) or is_key(x) for x in fixed]
        ):
            return None
        if any([place_of(x) is not None for x in leaves]):  # which the program depends on
            return None
        form = self._taken_apart(args, kwargs)[1]
        quick = QuickStep(self._name, step, primitive, fixed, leaves, form, key)
        quick.structure = entry.structure
        self._quick = [quick, *self._quick][:_VARIANTS]
        self._tables = None
        return quick

    def _run(
        self, args: Sequence[PyTree], kwargs: dict[str, PyTree], applies: bool = True
    ) -> PyTree:
        """Any call; unless it ``applies``, nothing outside of the function is changed."""
        if state.uncompiled:
            return leave(
                self.__wrapped__(*enter(args), **enter(kwargs)), has_tensor((args, kwargs))
            )
        self._retraces.calls += 1
        leaves, rest = self._arguments.split(args, kwargs)
        key = key_of(leaves, rest)
        traced: _Traced | None = None
        turn, left = 0, _ATTEMPTS
        while True:
            # Of calls that change something, one at a time finds a program and runs it. None is traced
            # meanwhile: the body may wait for another thread.
            acts = self._acts if traced is None else traced.step.acts
            with lock if acts else contextlib.nullcontext():
                others_acted = acts and left and turn != taken.turn
                if traced and others_acted and not traced.step.fits_tensors(leaves):
                    traced.before.put_back()
                    traced = None
                if traced is None:
                    entry = self._fitting(self._drawn(key, leaves), leaves)
                if entry is not None:
                    return self._result(entry, leaves, args, kwargs, applies)
            turn, left = taken.turn, left - 1
            traced, entry = self._trace(key, leaves, rest, args, kwargs)
            self._acts = self._acts or traced.step.acts

    def _result(
        self,
        entry: _Entry,
        leaves: list[PyTree],
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree],
        applies: bool,
    ) -> PyTree:
        """The result of a call that this program fits."""
        results: PyTree = MISS
        if not entry.noted and applies and jaxapi.at_top_level() and not anomaly.watch:
            quick = self._note_quick(entry, leaves, args, kwargs)
            results = MISS if quick is None else quick.run(leaves)
        if results is MISS:
            results = self._run_program(entry, leaves, applies)
        return trees.unflatten(entry.structure, results)

    def _run_program(self, entry: _Entry, leaves: list[PyTree], applies: bool) -> list[PyTree]:
        """The leaves of the result of a call; what the program does outside of it is done."""
        if self._draws:
            note_draw()
        mode = contextlib.nullcontext if entry.records else no_grad
        if entry.changed:
            with mode():
                check_written(leaves, entry.changed, "jit")
        step = entry.step
        if entry.donating is not None and state.body is None and all(map(is_bare, leaves)):
            values = []
            call, operands = entry.donating, _donating_operands(entry, leaves)
        else:
            values = step.operands(entry.fixed, leaves, entry.changed)
            call, operands = bind_program, [entry.primitive, values]
        if anomaly.on:
            call = functools.partial(compiled_call, self._name, call)
        targets = step.targets(leaves, entry.changed)
        from_outside = step.results_from_outside(leaves)
        out = (_with_hooks(call) if self._hooks else call)(*operands)
        outs: list[PyTree] = list(out) if type(out) is tuple else [out]
        changed, outs = outs[step.outputs :], outs[: step.outputs]
        if step.acts:
            if state.levels:
                outs = step.at_their_levels(entry.primitive, values, outs)
            outs = step.as_in_body(outs)
            if applies:
                step.apply(targets, outs, leaves)
                taken.turn += state.body is None
        results = step.results(outs, leaves, from_outside, applies and entry.donating is None)
        if entry.changed and applies:
            with mode():
                write_back([leaves[k] for k in entry.changed], changed, "jit")
        return results

    def _fitting(self, key: Hashable, leaves: list[PyTree]) -> _Entry | None:
        """The program for a call with this key, whose Tensors outside are as the program needs them."""
        entries: list[_Entry] = list(self._entries.get(key) or ())
        return next((e for e in entries if e.step.fits(leaves)), None)

    def _trace(
        self,
        key: tuple[PyTree, ...],
        leaves: list[PyTree],
        rest: Rest | Repeating,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree],
    ) -> tuple[_Traced, _Entry]:
        """What a trace for these arguments gives, and the program."""
        f = self.__wrapped__
        if self._explains and (self._entries.values() or explanations.made_before(code_of(f))):
            _log.warning("%s", self.explain(*args, **kwargs))
        for earlier in list(self._entries.get(self._drawn(key, leaves)) or ())[:1]:
            self._retraces.note(earlier.step.changed_numbers())
        with modes(rolls=self._rolls):
            traced = _Traced(self._name, f, leaves, rest)
        level = traced.level
        self._draws = self._draws or level.has_drawn
        step = traced.step
        fixed = step.settle(traced.around, traced.captures)
        step.note_keys(traced.primitive, fixed, [*traced.captures, *leaves])
        key = self._drawn(key, leaves)
        seen = explanations.seen(self._arguments.mark(args, kwargs), key)
        explanations.note_made(f, code_of(f), seen)
        if self._rolls and level.size > _LONG:
            _warn_of_size(self._name, level)
        primitive, changed, records = traced.primitive, traced.changed, traced.records
        entry = _Entry(
            primitive, fixed, traced.structure, seen, changed, records, level.loops, step
        )
        places = self._arguments.donated(args, kwargs)
        if isinstance(rest, Repeating):
            places = [rest.places[k] for k in places]
        donated = [len(fixed) + k for k in sorted(set(places))]
        if donated and not any([isinstance(x, Lanes) for x in fixed]):
            entry.donating = _donating(primitive, tuple(donated))
        if not any([is_traced(x) for x in traced.captures]):
            fresh: collections.deque[_Entry] = collections.deque(maxlen=_VARIANTS)
            (self._entries.get(key) or self._entries.put(key, fresh)).appendleft(entry)
        return traced, entry

    # Why a call traces again

    def explain(self, *args: PyTree, **kwargs: PyTree) -> str:
        """Whether a call with these arguments is compiled already, and if not, what is new in it.

        Returns:
            A text that names each argument that differs from the nearest earlier call, and how. Of a function
            that is made anew, as a lambda in a loop: what differs from one that the same line has made, with
            what they close over. Of one that is compiled: which Tensors outside are its state, which of them
            it writes to, whose memory it donates, and which loops in it were rolled.

        >>> import fad, jax.numpy as jnp
        >>> double = fad.jit(lambda x: 2 * x)
        >>> _ = double(jnp.ones(3))
        >>> print(double.explain(jnp.ones(4)))
        fad.jit of <lambda> traces anew, not as in 1 earlier call:
          argument 0 is float32[4], was float32[3]
        """
        f, who = self.__wrapped__, f"fad.jit of {self._name}"
        call = self._arguments.mark(args, kwargs)
        leaves, rest = self._arguments.split(args, kwargs)
        key = self._drawn(key_of(leaves, rest), leaves)
        entries: list[_Entry] = list(self._entries.get(key) or ())
        places = places_of(f, [x for x in rest.statics() if hasattr(x, "__dict__")])
        names = explanations.Names(places, call)
        if not entries:
            now, every = explanations.seen(call, key), self._entries.values()
            earlier = [e.seen for of_key in every for e in list(of_key)]
            return explanations.differences(who, f, code_of(f), now, earlier)
        if fitting := next((e for e in entries if e.step.fits(leaves)), None):
            donated = [x for q in self._quick if q.step is fitting.step for x in q.donated]
            return explanations.program(who, fitting, names, donated)
        return explanations.changes_outside(who, entries[0].step.changes(leaves), names)

    # What jax.jit offers too

    def _native(self, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> tuple[Any, Any, Any]:
        """This function for ``jax.jit``, and its arguments without what tracks them."""
        arguments = self._arguments
        nums = {i for i, a in enumerate(args) if not all(map(is_dynamic, trees.flatten(a)[0]))}
        names = {k for k, v in kwargs.items() if not all(map(is_dynamic, trees.flatten(v)[0]))}
        nums |= {i for i in arguments.nums if i < len(args)}
        names |= {k for k in arguments.names if k in kwargs}
        native = make_jit(
            lambda *args, **kwargs: self._run(args, kwargs, applies=False),
            static_argnums=tuple(nums),
            static_argnames=tuple(names),
            donate_argnums=tuple([i for i in arguments.donated_nums if i < len(args)]),
            donate_argnames=tuple([k for k in arguments.donated_names if k in kwargs]),
        )
        return native, *trees.map_leaves(untracked, (tuple(args), kwargs))

    def lower(self, *args: PyTree, **kwargs: PyTree) -> Any:
        """The program for these arguments, lowered but not compiled.

        Arguments:
            args, kwargs: as in a call; a ``jax.ShapeDtypeStruct`` may stand for an array.

        Returns:
            A ``jax.stages.Lowered``: ``as_text()``, ``compile()`` and so on.

        >>> import fad, jax, jax.numpy as jnp
        >>> lowered = fad.jit(lambda x: 2 * x).lower(jax.ShapeDtypeStruct((3,), jnp.float32))
        >>> lowered.compile()(jnp.ones(3)).tolist()
        [2.0, 2.0, 2.0]
        """
        native, args, kwargs = self._native(args, kwargs)
        return native.lower(*args, **kwargs)

    def trace(self, *args: PyTree, **kwargs: PyTree) -> Any:
        """The jaxpr for these arguments, as a ``jax.stages.Traced``; see `lower`."""
        native, args, kwargs = self._native(args, kwargs)
        return native.trace(*args, **kwargs)

    def eval_shape(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Shapes and dtypes of the result, as ``jax.ShapeDtypeStruct``; nothing is computed."""
        native, args, kwargs = self._native(*trees.map_leaves(struct_like, (tuple(args), kwargs)))
        structs = native.eval_shape(*args, **kwargs)
        return trees.map_leaves(lambda x: x._value if isinstance(x, Tensor) else x, structs)

    def clear_cache(self) -> None:
        """Forget every compiled program."""
        self._entries.clear()
        self._tables = Table(_TABLES)
        self._quick = []
        self._refused = 0


class Placed(Compiled):
    """What `jit` returns with ``in_shardings``: it puts the arguments in place first."""

    def __init__(
        self, f: Callable[..., PyTree], arguments: Arguments, explain: bool, shardings: PyTree
    ) -> None:
        super().__init__(f, arguments, explain)
        self._shardings = tool("compile.shardings").checked(shardings)

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        names, static = kwargs.keys() - self._arguments.names, self._arguments.nums
        args = tool("compile.shardings").placed(self._shardings, args, names, static)
        return super().__call__(*args, **kwargs)


def jit(
    f: Callable[..., PyTree] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    explain: bool = False,
    hooks: bool = False,
    roll: bool = True,
) -> Any:
    """``f`` compiled by XLA: traced once for each combination of structures, shapes and dtypes.

    Transforms may stand inside of ``f`` and around the result; ``fad.grad(fad.jit(f))`` runs a
    compiled forward and a compiled backward call. Python code in ``f`` runs when it is traced, hooks too.

    A step of training may be compiled as it is written in PyTorch. Tensors that ``f`` uses from outside, or
    among its arguments, are inputs of the program, read at each call; leaves that require grad are leaves
    inside, so that ``backward()`` adds to their ``.grad``; what ``f`` writes to in place, and every
    ``.grad``, is as after an eager call. The memory of what is overwritten is donated, unless something else
    refers to the array.

    Arguments:
        f: a fad function of pytrees of Tensors. Other side effects than those on Tensors happen when it is
            traced, once. Without it, ``jit`` returns a decorator.
        static_argnums, static_argnames: arguments that are not traced; each new value compiles
            again. What is neither an array nor a number is static without being named.
        donate_argnums, donate_argnames: arguments whose memory the results may take over; their
            Tensors cannot be used after the call. A Tensor that a graph or a transform tracks
            keeps its memory.
        in_shardings, out_shardings: where the arguments that are not static, and the results, are put: a
            ``jax.sharding.Sharding``, None for what is not moved, or a pytree prefix of these.
        hooks: hooks of Tensors and nodes that f makes are called on the host, at each execution; and in
            anomaly mode, each operation and node is checked for NaN there.
        explain: log, under the name "fad.jit", why a call traces again; see `Compiled.explain`.
        roll: Python loops in f, which tracing unrolls, are compiled as loops, where operations repeat
            often enough: `Compiled.explain` says where. Results are equal up to rounding.

    Returns:
        A function that takes Tensors and arrays; Tensors come out if one goes in. It has
        ``lower``, ``trace``, ``eval_shape``, ``clear_cache`` and ``explain``.

    Raises:
        GradientError: f closes over a Tensor that a transform tracks: pass it as an argument; or a
        ``backward()``
            in it reaches a Tensor whose history is outside.
        HostValueError: Python reads a number that is computed in f, as a branch on one does.
        LevelError: f leaves a Tensor of the trace in a list, an attribute or a variable outside; it changes
            an argument that shares its storage with another one.
        TypeError: a static argument is not hashable; ``explain``, ``hooks`` or ``roll`` is not a bool.
        StructureError: an argument is committed to other devices than ``in_shardings`` says.

    Source: ``jax.jit``.

    >>> import fad, fad.numpy as fnp
    >>> float(fad.jit(fad.grad(fnp.sin))(0.0))
    1.0
    >>> w = fad.tensor(1.0, requires_grad=True)
    >>> @fad.jit
    ... def step(x):
    ...     ((w * x - 1.0) ** 2).backward()
    ...     with fad.no_grad():
    ...         w.sub_(0.1 * w.grad)
    ...     w.grad = None
    >>> step(fad.tensor(3.0)), round(float(w), 4)
    (None, -0.2)
    """
    options = (static_argnums, static_argnames, donate_argnums, donate_argnames)
    for name, flag in (("explain", explain), ("hooks", hooks), ("roll", roll)):
        if type(flag) is not bool:
            raise ArgumentError(f"jit: {name} must be True or False, got {describe(flag)}")

    def decorate(f: Callable[..., PyTree]) -> Compiled:
        arguments = Arguments(f, "jit", *options)
        if out_shardings is not None:
            f = tool("compile.shardings").placing(f, out_shardings)
        f = _calling_hooks(f) if hooks else f
        if in_shardings is None:
            compiled = Compiled(f, arguments, explain)
        else:
            compiled = Placed(f, arguments, explain, in_shardings)
        compiled._hooks, compiled._rolls = hooks, roll
        return compiled

    return decorate if f is None else decorate(f)


def _calling_hooks(f: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``f``, the body of a `jit`: its hooks are called on the host, at each execution."""

    @functools.wraps(f)
    def body(*args: PyTree, **kwargs: PyTree) -> PyTree:
        assert state.body is not None
        with modes(host=tool("compile.hooks").Host(state.body.id)):
            return f(*args, **kwargs)

    return body


def _with_hooks(call: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``call``, which runs a program, when its hooks have run: an exception of one is raised as it was."""

    def finished(*operands: PyTree) -> PyTree:
        try:
            out = call(*operands)
            if not jaxapi.is_tracing():
                flush()
                jax.block_until_ready([bottom(o) for o in (out if type(out) is tuple else (out,))])
                jax.effects_barrier()
            return out
        except jax.errors.JaxRuntimeError as error:
            original = tool("compile.hooks").raised(error)
            if original is None:
                raise
            jaxapi.forget_failed_effects()
            raise original from None

    return finished


def _warn_of_size(name: str, level: StagedLevel) -> None:
    """Warn of a program in which nothing more repeats, and which takes XLA long all the same."""
    assert level.traced is not None
    eqns = level.traced.jaxpr.eqns
    stacks = [jaxapi.stack_of(eqn) for eqn in eqns[:: max(len(eqns) // 97, 1)]]
    many = tool("hints.tracebacks").many_operations
    text = many(name, level.size, level.last(1000), stacks, is_users)
    warn_at_users_line(text, UserWarning)


def _as_arrays(fixed: Sequence[PyTree]) -> list[PyTree]:
    """What compiled code closes over, with weakly typed arrays for Python numbers, outside of all traces."""
    values = with_constants(fixed)  # arrays for all numbers but NaN
    return [jax.device_put(x) if type(x) in SCALARS else x for x in values]


_LONG = 5000  # operations of which a program is worth a warning
_TENSORS, _NO_GRAD, _HOOKS = 1, 2, 4  # in the key of a table
_TABLES = 256  # kept for each function
_ATTEMPTS = 8  # to trace it, while other threads change what it uses
_VARIANTS = 16  # programs of a key, for different states of what is outside
_REFUSALS = 16  # by which time it is plain that calls with pytrees do not belong there


def _mode_key(modes: Callable[..., Any]) -> int:
    """What a trace can see of the modes of this thread; -1 where calls cannot take the fast path.

    ``modes`` is a lookup: a name that is not there has its default.
    """
    if modes("levels") or modes("body") is not None or modes("inference") is not None:
        return -1
    if modes("outside_jax_trace", -1) >= 0 or modes("uncompiled"):
        return -1
    key = 0 if modes("watermark", -1) == modes("base_watermark", -1) else _NO_GRAD
    return key | _HOOKS if modes("saved_hooks") else key


observable(Compiled, "__call__", "compiled")

# ``eval_shape`` and ``make_jaxpr``: what a function of Tensors would compute, without computing it.


def eval_shape(f: Callable[..., PyTree], *args: PyTree, **kwargs: PyTree) -> PyTree:
    """Shapes and dtypes of what a function returns; nothing is computed.

    Arguments:
        f: a function of Tensors.
        args, kwargs: its arguments; a ``jax.ShapeDtypeStruct`` may stand for an array.

    Returns:
        A ``jax.ShapeDtypeStruct`` for each array of the result.

    Source: ``jax.eval_shape``.

    >>> import fad, fad.numpy as fnp
    >>> fad.eval_shape(fad.jacfwd(fnp.sin), fad.ones(3)).shape
    (3, 3)
    """
    Call.check(f, "eval_shape")
    return jit(f).eval_shape(*args, **kwargs)


def make_jaxpr(
    f: Callable[..., PyTree],
    static_argnums: int | Sequence[int] | None = None,
    *,
    return_shape: bool = False,
) -> Callable[..., PyTree]:
    """A function that gives the jaxpr of ``f``: the operations of JAX that it is traced to.

    Arguments:
        f: a function of Tensors.
        static_argnums: arguments that are not traced, as in `jit`.
        return_shape: return the shapes and dtypes of the result too.

    Returns:
        A function of f's arguments. It returns a ``jax.core.ClosedJaxpr``; with ``return_shape`` a pair of
        that and what `eval_shape` gives.

    Source: ``jax.make_jaxpr``.

    >>> import fad, fad.numpy as fnp
    >>> fad.make_jaxpr(lambda x: fnp.cos(x) * x)(1.0)
    { lambda ; a:f32[]. let b:f32[] = cos a; c:f32[] = mul b a in (c,) }
    """
    Call.check(f, "make_jaxpr")
    compiled = jit(f, static_argnums=static_argnums)

    @functools.wraps(f)
    def made(*args: PyTree, **kwargs: PyTree) -> PyTree:
        traced = compiled.trace(*args, **kwargs)
        return (traced.jaxpr, traced.out_info) if return_shape else traced.jaxpr

    return made
