"""Steps: what a compiled function does to Tensors outside of it, found by its trace, done at each call.

NOTE [steps]

    w = fad.tensor(1.0)
    double = fad.jit(lambda: w.mul_(2.0) * 1.0)
    assert [float(double()) for _ in range(3)] == [2.0, 4.0, 8.0]
    assert w.version == 3

A trace finds the Tensors outside that the function uses, and what it changes, see NOTE [twins] in
`fad.compile.outer_tensors`. A `StepState` keeps both, and nothing of the trace. At a call it finds the
Tensors again, the ``.grad`` of a leaf anew, and checks that they are as they were for the trace in all that
the program depends on: `fad.compile.outer_tensors.Facts`, shapes, and which of them are the same Tensor. If
not, the function is traced again.

What is new is put into the Tensors by one call of a function in C, which runs the program too: no signal
handler can come in between, so an interrupt finds all of it done, or nothing. A lock makes calls that change
something one after the other.
"""

from __future__ import annotations

import collections
import itertools
import operator
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence

import jax

from fad.compile.outer_tensors import (
    UNTRACKED,
    Effect,
    Facts,
    OuterTensor,
    Twins,
    captured,
    facts_of,
    values_now,
)
from fad.compile.surroundings import Move, Surroundings
from fad.core.avals import aval_of, struct_of
from fad.core.jaxapi import array_type, axes_named, is_extended, part_for
from fad.core.jaxprs import bind_jaxpr
from fad.core.level import Level, batch_dim, flush, inside, layers, modes, state
from fad.core.primitive import Primitive
from fad.core.tensor import (
    UNSHARED,
    Tensor,
    at_version,
    has_history,
    meta_of,
    new_tensor,
    storage_of,
    taken,
    version_of,
)
from fad.core.types import Array, ArrayFunction, Operand, PyTree
from fad.errors import GradientError, LevelError, describe
from fad.tape.grad_mode import no_grad
from fad.tape.recorder import ROOT, as_tensor
from fad.tape.saved import RecordedNode
from fad.tape.vmap import bind_collective, bind_program, named_levels
from fad.transforms.backward import leaf_outside
from fad.transforms.boundary import check_written, leave
from fad.views.aliases import Link, link_of, snapshot
from fad.views.inplace import check_captured, check_writable, overwrite_from
from fad.views.make_view import shares
from fad.views.pytree import original

lock = taken.lock


class FreedNode(RecordedNode):
    """The place of a result in a graph of the body which a backward pass there has freed."""

    __slots__ = ()

    num_inputs = 1

    def __init__(self) -> None:
        self._start(ROOT, ())

    def metadata_of_inputs(self) -> list[PyTree]:
        return []

    def run(self, *args: object) -> PyTree:
        raise GradientError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they "
            "have already been freed): the function that jit compiled has called backward() on this result. "
            "Write retain_graph=True there if you need to backward through it again."
        )


def nodes_of(t: Tensor) -> Iterator[PyTree]:
    """The nodes of the graph that ``t`` leads to."""
    stack, seen = [t.node], set()
    while stack:
        node: PyTree = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        stack.extend([e[0] for e in node.edges if e is not None])


def is_freed(t: Tensor) -> bool:
    """Whether a backward pass has freed a node of the graph that ``t`` leads to."""
    return any(
        [getattr(n, "values", ()) is None or getattr(n, "released", False) for n in nodes_of(t)]
    )


# Results: without a history, with one, with one that is over.
PLAIN, TRACKED, FREED = "plain", "tracked", "freed"


def _kind_of(x: object, level: PyTree) -> str:
    if not isinstance(x, Tensor) or x._level is not level or not x.requires_grad:
        return PLAIN
    return FREED if is_freed(x) else TRACKED


class StepState:
    """What a program does outside of it; see NOTE [steps].

    It is made when the trace of the body begins; `finish` notes what the body has done, `settle` what a call
    is to be compared with. Then nothing of the trace is left in it.

    ``outers``: the Tensors outside. ``adopted``: the leaves of the arguments that have twins. ``kinds``: what
    each result is: `PLAIN`, `TRACKED`, `FREED`, or a Tensor from outside. ``versions``: for each output that
    is a new Tensor outside, how often the body has written to it. ``written_leaves``: the leaf that a result
    is, by the number of the output: one that the body writes to and returns. ``key_sources``: what each
    result of random keys is computed of: values outside, and the numbers of leaves. ``moves``: the Tensors
    from outside that it puts in other places.
    """

    def __init__(
        self, level: PyTree, around: PyTree, leaves: Sequence[Operand], handles: Sequence[PyTree]
    ) -> None:
        self.twins: PyTree = Twins(level, around)
        level.twins = self.twins
        self.outers: list[OuterTensor] = self.twins.roots
        with modes(body=around):
            self.leaf_facts = list(map(facts_of, leaves))
        self.adopted: set[int] = set()
        for k, (x, handle) in enumerate(zip(leaves, handles, strict=True)):
            if not isinstance(x, Tensor) or not (x._level is ROOT or x._level is around):
                continue
            # Hooks for saved values around the call are given what its node saves, and nothing of the body.
            if not (state.saved_hooks and x._requires_grad) and self.twins.adopt(x, handle, k):
                self.adopted.add(k)
        self.unknown = bool(state.saved_hooks)
        self.kinds: list[PyTree] = []
        self.effects: list[Effect] = []
        self.versions: list[int] = []
        self.key_sources: dict[int, list[PyTree]] = {}
        self.written_leaves: dict[int, int] = {}
        self._leaf_of = {id(x): k for k, x in enumerate(handles)}
        # By the number of an output: see `at_their_levels`.
        self._parts: dict[int, tuple[Primitive, list[bool], frozenset[Hashable]]] = {}

    def finish(self, results: Sequence[PyTree]) -> list[PyTree]:
        """The outputs of the program: results that are not Tensors from outside, and what is new there."""
        twins = self.twins
        outs: list[PyTree] = []
        places: dict[int, int] = {}
        for x in results:
            if isinstance(x, Tensor) and twins.is_outside(x):
                self.kinds.append(twins.outer_or(twins.outside(x)))
                continue
            self.kinds.append(_kind_of(x, twins.level))
            if holds_keys(x):
                self.key_sources[len(outs)] = []
            if id(x) in self._leaf_of and version_of(x) and self.kinds[-1] is not FREED:
                self.written_leaves[len(outs)] = self._leaf_of[id(x)]
            places.setdefault(id(x), len(outs))
            outs.append(x)
            self.versions.append(version_of(x) if isinstance(x, Tensor) else 0)
        self.count = len(outs)
        self.effects = twins.effects()
        for effect in self.effects:
            what, new = effect.what, effect.new
            if what == "requires_grad":
                if new:
                    self._check_history(effect.outer, results)
                continue
            if new is None:
                continue
            if what == "grad" and twins.is_outside(new):
                effect.new = twins.outer_or(new)
                continue
            if what == "value" or id(new) not in places:
                places[id(new)] = len(outs)
                outs.append(new)
                self.versions.append(version_of(new) if what == "grad" else 0)
            effect.output, effect.tracked, effect.new = places[id(new)], has_history(new), None
        self.outputs = len(outs)
        return outs

    def _check_history(self, outer: OuterTensor, results: Sequence[PyTree]) -> None:
        """Refuse results with a history of a Tensor that requires grad only from this call on."""
        tracked = [x for x in results if _kind_of(x, self.twins.level) is TRACKED]
        if any([getattr(n, "variable", None) is outer.twin for x in tracked for n in nodes_of(x)]):
            raise GradientError(
                f"jit: the function lets a Tensor from outside require grad ({describe(outer.tensor)}) and "
                "returns a result with its history, which the call could not have, as it does not require "
                "grad before. Write requires_grad_() before the call, or return result.detach()."
            )

    def settle(self, around: Surroundings, captures: Sequence[PyTree]) -> list[PyTree]:
        """Note what a call is to be compared with, and forget the trace.

        Returns:
            What stands for ``captures``, which the program takes before the leaves.
        """
        twins = self.twins
        closed_over = twins.closed_over()
        self.moves = around.moves
        self._views = twins.views
        self._guard = around.guard(closed_over) if closed_over or self.moves else None
        places = [] if self._guard is None else self._guard.places
        # The trace took a ``.grad`` that is a view for a view of what it is of: it must be this very Tensor.
        self.fixed_grads = [(x, weakref.ref(x.grad)) for x in twins.fixed_grads()]
        for outer in self.outers:
            owners = [x for x in self.outers if x.grad is outer.tensor]
            outer.also = [x for x in owners if x is not outer.source]
            # That the body uses a ``.grad`` does not tell whether it has found it elsewhere too.
            is_elsewhere = not owners or any([p.value is outer.tensor for p in places])
            if outer.source is not None and not (outer.is_closed_over and is_elsewhere):
                outer.tensor = None
            outer.aval = outer.twin.aval
        for outer in self.outers:
            outer.twin = outer.grad = None
        self.reached = twins.reached
        self.tracked = (
            self.unknown or TRACKED in self.kinds or any([e.tracked for e in self.effects])
        )
        fixed = [twins.root_of(x) or captured(x) for x in captures]
        self.twins = None
        self._leaf_of = {}
        return fixed

    def fits(self, leaves: Sequence[PyTree]) -> bool:
        """Whether what is outside is, in all that the program depends on, as it was for the trace."""
        return next(self.changes(leaves), None) is None

    def changes(self, leaves: Sequence[PyTree]) -> Iterator[tuple[PyTree, str]]:
        """What is not as it was for the trace, and how: a place's name, an OuterTensor, a view, a leaf."""
        if self._guard is not None and not self._guard.holds():
            yield from self._guard.changes()
        yield from self._changes_of_tensors(leaves)

    def fits_tensors(self, leaves: Sequence[PyTree]) -> bool:
        """`fits`, as far as Tensors go; what else the body reads may be what its trace has changed."""
        return next(self._changes_of_tensors(leaves), None) is None

    def _changes_of_tensors(self, leaves: Sequence[PyTree]) -> Iterator[tuple[PyTree, str]]:
        for k, (x, facts) in enumerate(zip(leaves, self.leaf_facts, strict=True)):
            yield from [(k, words) for words in _differing(facts_of(x), facts)]
        for view in self._views:
            if not view.is_same():
                yield view.tensor, "is another view now"
        tensors: set[int] = set()
        for outer in self.outers:
            t, is_leaf = outer.find(leaves), isinstance(outer.source, int)
            if not isinstance(t, Tensor):
                if not is_leaf or outer.tensor is not None or outer.facts != UNTRACKED:
                    yield outer, "is not there"
                continue
            yield from [(outer, words) for words in _differing(facts_of(t), outer.facts)]
            if inside(t).aval != outer.aval:
                yield outer, f"is {inside(t).aval.str_short()}, was {outer.aval.str_short()}"
            if not outer.has_numbers(t):
                yield outer, "has other numbers, of which Python code has read some"
            used = outer.source is None and self.effects and any([t is x for x in leaves])
            if used or (id(t) in tensors and outer.source is not None):
                yield outer, "is an argument too, or another one of these Tensors"
            elif not outer.is_same(t, leaves):
                yield outer, "is not the same Tensor as before, or no longer that of others"
            tensors.add(id(t))
        for outer, grad in self.fixed_grads:
            if outer.find_grad(leaves) is not grad():
                yield outer, "has another .grad"
        yield from [(x, "shares its storage with another one now") for x in self._joined(leaves)]

    def changed_numbers(self) -> list[tuple[str, str]]:
        """Names of numbers outside that are others than for the trace, and how."""
        return [] if self._guard is None else self._guard.changed_numbers()

    def has_fixed_grads(self, leaves: Sequence[PyTree]) -> bool:
        """Whether each ``.grad`` that has to be a certain Tensor is that."""
        return all([outer.find_grad(leaves) is grad() for outer, grad in self.fixed_grads])

    def _joined(self, leaves: Sequence[PyTree]) -> Iterator[OuterTensor]:
        """Each ``.grad`` that shares its storage with another Tensor, if the body writes to one of the two.

        The trace has seen two Tensors of one storage as such: then they are one `OuterTensor`, or one of them
        owns no value. So these have come to share it since.
        """
        written = {id(e.outer) for e in self.effects if e.what == "value"}
        if not written or not any([isinstance(x.source, OuterTensor) for x in self.outers]):
            return
        by_storage: dict[int, list[OuterTensor]] = {}
        for outer in self.outers:
            t = outer.find(leaves)
            if isinstance(outer.source, int) or not outer.owns_value or not isinstance(t, Tensor):
                continue
            meta = original(t).meta
            if meta is not None and meta.storage is not UNSHARED:
                by_storage.setdefault(id(meta.storage), []).append(outer)
        for outers in by_storage.values():
            if len(outers) > 1 and any([id(x) in written for x in outers]):
                yield from [x for x in outers if isinstance(x.source, OuterTensor)]

    def is_in_place(self) -> bool:
        """Whether the function would find the same Tensors: no other ones have taken their places."""
        holds = self._guard is None or self._guard.holds()
        return holds and all([view.is_same() for view in self._views])

    def gives_tensors(self, leaves: Sequence[PyTree]) -> bool:
        """Whether results are Tensors: the function has effects, a Tensor is among the arguments, or it uses
        a Tensor from outside and no array is among the arguments but random keys.
        """
        if self.effects or (self.outers and all(map(is_key, leaves))):
            return True
        return any([isinstance(x, Tensor) for x in leaves])

    def note_keys(
        self, primitive: Primitive, fixed: Sequence[PyTree], operands: Sequence[PyTree]
    ) -> None:
        """Note what results of random keys are computed of; ``fixed``: what stands for the first operands."""
        if not self.key_sources:
            return
        sources = [*fixed, *range(len(operands) - len(fixed))]
        closed = jax.make_jaxpr(primitive.flat)(*map(_struct, operands))
        for k in self.key_sources:
            used = part_for(closed, k)[1]
            self.key_sources[k] = list(itertools.compress(sources, used))

    def gives_plain_keys(self, output: int, leaves: Sequence[PyTree]) -> bool:
        """Whether it is a result of random keys that depends on no Tensor: JAX gives an array."""
        sources = self.key_sources.get(output)
        if sources is None:
            return False
        values = [leaves[x] if isinstance(x, int) else x for x in sources]
        return not any([isinstance(x, (Tensor, OuterTensor)) for x in values])

    @property
    def acts(self) -> bool:
        """Whether a call changes anything outside."""
        return bool(self.effects or self.moves)

    @property
    def is_pure(self) -> bool:
        """Whether the program does nothing outside of it, and uses no Tensor from there."""
        inside = all([isinstance(x.source, int) for x in self.outers])
        return inside and not self.acts and all([kind is PLAIN for kind in self.kinds])

    @property
    def is_quick(self) -> bool:
        """Whether its effects on arrays are all that there is, if nothing is around a call."""
        plain = all([e.what != "value" or e.outer.owns_value for e in self.effects])
        sources = [
            x.source.source if isinstance(x.source, OuterTensor) else x.source for x in self.outers
        ]
        return plain and not self.tracked and not any([isinstance(s, OuterTensor) for s in sources])

    def operands(
        self, fixed: Sequence[PyTree], leaves: Sequence[PyTree], changed: Sequence[int]
    ) -> list[PyTree]:
        """What the program is called with; ``changed``: as in `targets`."""
        values = [*values_now(fixed, leaves), *leaves]
        if self.reached is not None and state.levels:
            self._check_reached(values, leaves)
        written = {id(e.outer.find(leaves)) for e in self.effects if e.what == "value"}
        written |= {id(leaves[k]) for k in changed}
        saved = [id(x) in written and isinstance(x, Tensor) for x in values]  # as they are before
        if not self.tracked and not (state.levels and FREED in self.kinds):
            values = list(map(without_history, values))
            if not state.levels:
                return values
        return [snapshot(x) if s else x for x, s in zip(values, saved, strict=True)]

    def _check_reached(self, values: Sequence[PyTree], leaves: Sequence[PyTree]) -> None:
        """Refuse to add to the ``.grad`` of a leaf outside of a transform around, as eager code does."""
        assert self.reached is not None
        leaf = self.reached.find(leaves)
        around = [x.level for v in values for x in layers(v)]
        for level in around:
            if not level.on_tape and not level.traces and level.id > leaf.born:
                raise leaf_outside(0, leaf, level)

    def targets(self, leaves: Sequence[PyTree], changed: Sequence[int]) -> list[PyTree]:
        """What the effects are on, checked; ``changed``: more leaves of the arguments that are written to."""
        targets = [e.outer.find(leaves) for e in self.effects]
        written = [t for e, t in zip(self.effects, targets, strict=True) if e.what == "value"]
        with no_grad():
            for t in written:
                if isinstance(t, Tensor):
                    check_writable(t, "jit")
            if written or changed:
                self._check_alone(leaves, [*written, *[leaves[k] for k in changed]])
        return targets

    def _check_alone(self, leaves: Sequence[PyTree], written: Sequence[PyTree]) -> None:
        """Refuse arguments that share a storage with another Tensor that the body uses, if one is written to.

        In the body they are separate. Those from outside share one there too.
        """
        changed = [k for k, x in enumerate(leaves) if any([x is t for t in written])]
        check_written(leaves, changed, "jit")
        others = [
            outer.find(leaves)
            for outer in self.outers
            if outer.tensor is not None or not isinstance(outer.source, int)
        ]
        for k, x in enumerate(leaves):
            if not isinstance(x, Tensor) or x.meta is None:
                continue
            # It is the written one, or another one is.
            for t in others if k in changed else written:
                if isinstance(t, Tensor) and t is not x and shares(x, t):
                    raise LevelError(
                        f"jit: the function writes to a Tensor that shares its storage with leaf {k} of the "
                        f"arguments ({describe(x)}; the other one is {describe(t)}); inside of the function "
                        "they are separate, and one would keep its old value. Pass one of them, or x.clone()."
                    )

    def at_their_levels(
        self, primitive: Primitive, operands: Sequence[PyTree], outs: Sequence[PyTree]
    ) -> list[PyTree]:
        """The outputs; what is new outside is at the levels of what it is computed of, as eagerly.

        A transform around sees one operation, whose outputs all depend on all operands. So what depends on
        fewer of them is computed by a part of the program.
        """
        results = list(outs)
        for k in {e.output for e in self.effects if e.output >= 0}:
            around = _levels(results[k])
            if not around or primitive.calls_host:
                continue
            if k not in self._parts:
                closed = jax.make_jaxpr(primitive.flat)(*map(_struct, operands))
                part, needed = part_for(closed, k)
                names = axes_named(part.jaxpr)
                alone = Primitive(primitive.name, _only(bind_jaxpr(part)), collective=bool(names))
                alone.calls = primitive.calls
                self._parts[k] = alone, needed, names
            alone, needed, names = self._parts[k]
            values = list(itertools.compress(operands, needed))
            levels = set().union(*map(_levels, values))
            levels |= {level for name, level in named_levels().items() if name in names}
            if around <= levels:
                continue
            results[k] = (
                bind_collective(alone, values, names) if names else bind_program(alone, values)
            )
        return results

    def apply(
        self, targets: Sequence[PyTree], outs: Sequence[PyTree], leaves: Sequence[PyTree]
    ) -> None:
        """Put what is new into the Tensors outside."""
        news = [self._new(e, outs, leaves) for e in self.effects]
        plain = state.body is None and all([e.what != "requires_grad" for e in self.effects])
        for effect, t, new in zip(self.effects, targets, news, strict=True):
            if effect.output < 0 or not isinstance(t, Tensor):
                is_outside = not isinstance(t, Tensor) or t.level is ROOT
                plain = plain and is_outside and (effect.what == "grad" or not state.levels)
                continue
            level = new.level
            if plain and level is ROOT and isinstance(new._value, jax.core.Tracer):
                _refuse_traced(t)
            plain = plain and level is ROOT and type(new._value) is array_type
            plain = plain and t.level is ROOT and not effect.tracked and not _is_view(t)
            if level is ROOT or level is state.body:
                continue
            check_captured(t, new)
        if plain:
            flush()  # what is recorded so far is of Tensors as they were
            puts: list[Put] = []
            for effect, t, new in zip(self.effects, targets, news, strict=True):
                if isinstance(t, Tensor):
                    puts += puts_of(effect, t, new._value if effect.what == "value" else new)
            objects, names, values = zip(*puts, strict=True) if puts else ((), (), ())
            set_all(objects, names, values, self.moves)
            return
        for effect, t, new in zip(self.effects, targets, news, strict=True):
            if isinstance(t, Tensor):
                _apply(effect, t, new)
        for put, x in self.moves:
            put(x)

    def _new(self, effect: Effect, outs: Sequence[PyTree], leaves: Sequence[PyTree]) -> PyTree:
        if effect.output >= 0:
            new = _below(outs[effect.output])
            if effect.what == "grad":
                return at_version(new, self.versions[effect.output])
            return new if effect.tracked else without_history(new)
        return effect.new.find(leaves) if isinstance(effect.new, OuterTensor) else effect.new

    def returned_leaf(self, output: int, leaves: Sequence[PyTree]) -> Tensor | None:
        """The Tensor among the arguments that this result is, if the body writes to it and returns it."""
        leaf = leaves[self.written_leaves[output]] if output in self.written_leaves else None
        return leaf if isinstance(leaf, Tensor) else None

    def results_from_outside(self, leaves: Sequence[PyTree]) -> list[PyTree]:
        """The results that are Tensors from outside; to be found before `apply` replaces a ``.grad``."""
        outer = [x for x in self.kinds if not isinstance(x, str)]
        return [x.find(leaves) if isinstance(x, OuterTensor) else x for x in outer]

    def results(
        self,
        outs: Sequence[PyTree],
        leaves: Sequence[PyTree],
        from_outside: Sequence[PyTree],
        applies: bool = True,
    ) -> list[PyTree]:
        """The results of the function, of the outputs of the program.

        ``from_outside``: `results_from_outside`. ``applies``: what the body has written to is written to.
        """
        tensors = self.gives_tensors(leaves)
        numbers, others = itertools.count(), iter(from_outside)
        results: list[PyTree] = []
        for kind in self.kinds:
            if not isinstance(kind, str):
                x = next(others)
                results.append(x if tensors else leave(x, False))
                continue
            k = next(numbers)
            leaf = self.returned_leaf(k, leaves) if applies else None
            if leaf is not None:
                results.append(leaf)
                continue
            x = freed(outs[k]) if kind is FREED else outs[k]
            if type(x) is array_type and tensors:
                x = new_tensor(x, ROOT)
            else:
                x = leave(x, tensors and not self.gives_plain_keys(k, leaves))
            results.append(at_version(x, self.versions[k]) if isinstance(x, Tensor) else x)
        return results

    def as_in_body(self, outs: Sequence[PyTree]) -> list[PyTree]:
        """The outputs as Tensors, without a history that they do not have in the body."""
        kinds = [k for k in self.kinds if isinstance(k, str)]
        tensors = []
        for k, x in enumerate(outs):
            tracked = self.unknown or (k < len(kinds) and kinds[k] is TRACKED)
            tracked = tracked or any([e.output == k and e.tracked for e in self.effects])
            tensors.append(as_tensor(x if tracked else without_history(x)))
        return tensors


def _differing(now: Facts, was: Facts) -> list[str]:
    """How facts differ, in words that stand behind a name."""
    words = []
    if now.requires_grad != was.requires_grad:
        words.append("requires grad now" if now.requires_grad else "does not require grad now")
    if now.is_leaf != was.is_leaf:
        words.append("is a leaf now" if now.is_leaf else "has a history now")
    if now.has_grad != was.has_grad:
        words.append("has a .grad now" if now.has_grad else "has no .grad now")
    if now.hooks != was.hooks:
        words.append("has other hooks now")
    return words


def _refuse_traced(t: Tensor) -> None:
    """Refuse to leave a value that JAX traces in a Tensor that was there before the trace."""
    if type(t.value) is array_type:
        raise LevelError(
            f"jit: the function writes to a Tensor ({describe(t)}) from outside of a transform of "
            f"JAX that is "
            "around the call, and a value of the trace must not stay there. Call the function "
            "outside of it, or "
            "write fad.jit, fad.grad or fad.vmap in place of the transform of JAX."
        )


def _struct(x: PyTree) -> PyTree:
    return struct_of(aval_of(x))


def _levels(x: PyTree) -> set[Level]:
    """The running levels that ``x`` belongs to, but the tape and the body around."""
    return {t.level for t in layers(x)} - {ROOT, state.body}


def _only(run: Callable[..., Sequence[Array]]) -> ArrayFunction:
    return lambda *values: run(*values)[0]


def _below(x: PyTree) -> PyTree:
    """``x`` without the levels around the call that have nothing of their own for it."""
    while isinstance(x, Tensor) and x.level is not ROOT and x.level is not state.body:
        level = x.level
        if x.requires_grad or level.tangent(x) is not None or batch_dim(x) is not None:
            break
        if level.traces or not isinstance(x.value, (Tensor, array_type)):
            break
        x = as_tensor(x.value)
    return x


def is_key(x: object) -> bool:
    """Whether ``x`` is an array of random keys, as JAX has them."""
    if type(x) is array_type or type(x) is Tensor:
        return False
    return isinstance(x, jax.Array) and is_extended(x.dtype)


def holds_keys(x: PyTree) -> bool:
    """Whether ``x`` is an array or a Tensor of random keys."""
    return is_key(x) or (isinstance(x, Tensor) and is_extended(x.dtype))


def freed(x: PyTree) -> Tensor:
    """``x`` as a result of a graph that a backward pass has freed; what levels above record of it stays."""
    t = as_tensor(x)
    if t.level is ROOT or t.level is state.body:
        t._requires_grad, t._node = True, FreedNode()
    return t


def without_history(x: PyTree) -> PyTree:
    """``x`` without its history of the tape, or of the body around."""
    if not isinstance(x, Tensor):
        return x
    x = inside(x)
    level = x.level
    if not x.requires_grad or (level is not ROOT and level is not state.body):
        return x
    return new_tensor(x.value, level or ROOT, x.aux)


def _is_view(t: Tensor) -> bool:
    """Whether a write to ``t`` changes a Tensor that is larger, or in another form."""
    link = link_of(t)
    return link is not None and (link.base is not None or bool(link.chain))


def _apply(effect: Effect, t: Tensor, new: PyTree) -> None:
    """One effect, where there is more than arrays."""
    if effect.what == "grad":
        meta_of(t).grad = new
    elif effect.what == "requires_grad":
        t.requires_grad_(new)
    else:
        if effect.tracked:
            overwrite_from(t, new, "jit")
        else:
            with no_grad():
                overwrite_from(t, new, "jit")
        storage_of(t).version += effect.writes - 1


# A call of ``setattr``: an object, the name of an attribute, and what that is from now on.
Put = tuple[PyTree, str, PyTree]


def puts_of(effect: Effect, t: Tensor, new: PyTree) -> list[Put]:
    """An effect on ``t``: ``new`` is an array, what ``.grad`` is, or whether it requires grad."""
    if effect.what == "grad":
        return [(meta_of(t), "grad", new)]
    if effect.what == "requires_grad":
        return [(t, "_requires_grad", new)]
    storage, link = storage_of(t), link_of(t)
    version = storage.version + effect.writes
    puts: list[Put] = [(storage, "owned", False), (t, "_value", new), (storage, "version", version)]
    if storage.data is not None:
        puts.append((storage, "data", new_tensor(new, ROOT)))
    return puts if link is None else [*puts, *puts_of_link(link, version)]


def puts_of_link(link: Link, version: int) -> list[Put]:
    """That a Tensor which shares its storage has the value of this version."""
    return [(link, "seen", version), (link, "detached", False)]


def set_all(
    objects: Sequence[PyTree], names: Sequence[str], values: PyTree, moves: Sequence[Move]
) -> None:
    """``setattr`` for each; no signal handler runs in between, unless ``values`` runs Python code."""
    puts = itertools.starmap(operator.call, moves)
    collections.deque(itertools.chain(map(setattr, objects, names, values), puts), 0)
