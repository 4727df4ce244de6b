"""JAX functions that take functions: their bodies are fad code, staged into one Primitive."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Self

import jax
import numpy as np

from fad.core import jaxapi, rolling_protocol, trees
from fad.core.avals import SCALARS, aval_of, constant, struct_of
from fad.core.borrowed import as_array
from fad.core.caches import Cache, exact
from fad.core.dataflow import COMPUTED
from fad.core.dtypes import is_inexact
from fad.core.equal_programs import LITERAL, Changes
from fad.core.jaxapi import (
    Zero,
    define_primitive,
    instantiate_zeros,
    is_undefined_primal,
    new_primitive,
)
from fad.core.jaxprs import (
    bind_jaxpr,
    bits,
    calls_host,
    calls_with_rules,
    jaxpr_key,
    lanes_first,
)
from fad.core.level import (
    Event,
    TracedBody,
    bind,
    body_of,
    map_tensors,
    modes,
    outlived,
    restores_modes,
    state,
)
from fad.core.overlapping_writes import with_safe_writes
from fad.core.primitive import Primitive
from fad.core.rolling_protocol import Rolled
from fad.core.tensor import Tensor, new_tensor, version_of
from fad.core.trees import partition
from fad.core.types import Array, JaxProgram, Operand, Operation, Outputs, PyTree, Value
from fad.errors import ArgumentError, HostValueError, LevelError, describe
from fad.errors.advice import instead_of_a_number
from fad.tape.anomaly import reported_as_one
from fad.tape.graph import alias
from fad.tape.recorder import ROOT, RecordingLevel
from fad.tape.vmap import (
    Axes,
    axes_of,
    bind_program,
    check_draws,
    lanes_inside,
    lanes_of,
    named_levels,
    traced_in,
)

# Results without a history, in traced code: what ``no_grad`` means there.
#
# NOTE [no_grad in traced code]
#
#     def f(x):
#         with fad.no_grad():
#             c = x * x
#         return c * x
#
#     assert fad.grad(fad.jit(f))(2.0) == fad.grad(f)(2.0) == 4.0  # not 12.0
#
# A program of JAX has no grad mode: what differentiates it, differentiates all of it. So each result that the
# body of a staged function (`jit`, `scan`, `cond`, ...) computes under ``no_grad`` goes through a primitive
# that gives it back. That is linear: tangents pass, as ``no_grad`` lets them; but its transpose gives no
# cotangent, so that a reverse mode stops there, whatever the order of the transforms around.
#
# A write in place under ``no_grad`` leaves the history of its Tensor as it was: it has the old value as a
# second operand, and that gets the cotangent.
#
# Where a function is transposed for its own sake (`linear_transpose`), a transpose without a part of the
# value would be wrong: there the primitive ``refuses``.

unrecorded_p = new_primitive("fad_unrecorded")


def unrecorded(new: Array, old: Array | None = None) -> Array:
    """The array ``new``, without a history, or with that of ``old``."""
    if not is_inexact(new.dtype):
        return new
    operands = (new,) if old is None else (new, old)
    result: Array = unrecorded_p.bind(*operands, refuses=False)[0]
    return result


def _first(*values: Array, refuses: bool) -> list[Array]:
    return [values[0]]


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Array], *, refuses: bool
) -> tuple[list[Array], list[Array]]:
    out = unrecorded_p.bind(*primals, refuses=refuses)
    if all([type(t) is Zero for t in tangents]):
        return out, [tangents[0]]
    return out, unrecorded_p.bind(*map(instantiate_zeros, tangents), refuses=False)


def _transpose(
    cotangents: Sequence[Array], new: object, *old: object, refuses: bool
) -> list[Array | None]:
    if refuses and type(cotangents[0]) is not Zero:
        raise NotImplementedError("transpose of 'fad_unrecorded'")
    return [None, *[cotangents[0] if is_undefined_primal(x) else None for x in old]]


def _batch(
    axis: Any, values: Sequence[Array], dims: Sequence[int | None], *, refuses: bool
) -> tuple[list[Array], list[int]]:
    moved = [lanes_first(v, d, axis.size) for v, d in zip(values, dims, strict=True)]
    return unrecorded_p.bind(*moved, refuses=refuses), [0]


define_primitive(unrecorded_p, _first, _first, jvp=_jvp, transpose=_transpose, batch=_batch)

# Captures: what the body of a staged or checkpointed function reads from outside of it.


class Captures:
    """Tensors from outside that a body has used, each in the state at its first use, in order."""

    __slots__ = ("_captured", "_index", "_then")

    def __init__(self) -> None:
        self._captured: list[Tensor] = []
        self._then: list[Tensor] = []
        self._index: dict[tuple[int, int], int] = {}

    def position(self, x: Tensor) -> int:
        """The number of ``x``, as it is now."""
        key = (id(x), version_of(x))
        at = self._index.get(key)
        if at is None:
            at = self._index[key] = len(self._captured)
            self._captured.append(x)
            self._then.append(alias(x))
        return at

    @property
    def tensors(self) -> list[Tensor]:
        """The Tensors; for those changed in place since, a handle with the state at capture."""
        return [
            x if version == version_of(x) else then
            for x, then, (_, version) in zip(self._captured, self._then, self._index, strict=True)
        ]


# Which numbers in the bodies of staged functions are operands of the compiled program.
#
# NOTE [numbers in bodies]
#
#     for k in range(20):  # three programs, not 20
#         y = fad.lax.fori_loop(0, 2, lambda i, y: y * float(k), 1.0)
#         assert y == k * k
#
# A Python number in a body (``s * k``) is a constant of its program, as in JAX: XLA makes more of a constant,
# and an operand costs time at each call. But a body that is made anew for each call, a lambda in a loop,
# closes over other numbers each time, and each would be one more program. So what is known of a body is kept
# by its code: the numbers that its operations got, in their order, when it was traced last. Those that were
# others at an earlier trace are operands from the next trace on, so that a number that changes costs three
# programs, and no trace more: the Python of a body runs no more often for it. The same goes for small
# constants of NumPy in the body of ``jit``, which become operands at once. Numbers that are no operands of an
# operation, such as the position ``i`` of ``x[i]``, a length or an axis, are part of a program. Of programs
# with one code the last `PROGRAMS` are kept.

PROGRAMS = 32  # kept for one code, and operands of the same avals

# Numbers of Python of which another value may come; of a bool there is one other.
_NUMBERS = frozenset(SCALARS) - {bool}


def is_number(x: Operand) -> bool:
    """Whether it is a number of Python or NumPy that may be an operand of a program.

    >>> is_number(2.0), is_number(np.float32(2.0)), is_number(True)
    (True, True, False)
    """
    return type(x) in _NUMBERS or isinstance(x, np.number)


@dataclasses.dataclass(slots=True, eq=False)
class Body:
    """What is known of the bodies of one code: which of its numbers, and which of its constants of NumPy,
    have changed, by their places; and the keys of its programs.
    """

    numbers: Changes = dataclasses.field(default_factory=Changes)
    constants: Changes = dataclasses.field(default_factory=Changes)
    programs: collections.deque[Hashable] = dataclasses.field(default_factory=collections.deque)

    def note_numbers(self, numbers: Sequence[Operand]) -> None:
        """Note the numbers of a trace, in order; each path that Python takes has its own."""
        self.numbers.note(list(map(exact, numbers)), tuple(map(type, numbers)))


_bodies = Cache()


def body_of_code(key: Hashable) -> Body:
    """The one for a key with what `code_of` gives."""
    body: Body = _bodies.get(key) or _bodies.put(key, Body())
    return body


def code_of(f: Callable[..., PyTree]) -> Hashable:
    """What functions have in common that the same line of a program has made."""
    codes: list[Any] = []
    while len(codes) < 16:
        codes.append(getattr(f, "__code__", type(f)))
        if isinstance(f, functools.partial):
            f = f.func
        elif hasattr(f, "__wrapped__"):
            f = f.__wrapped__
        elif hasattr(f, "__func__"):
            f = f.__func__
        else:
            break
    return tuple(codes)


# JAX functions that take functions: their bodies are fad code, staged into one Primitive.
#
# NOTE [staged bodies]
#
#     _, ys = fad.lax.scan(lambda c, y: (c, y * x), 0.0, fnp.ones(3))
#     ys.sum().backward()
#     assert x.grad == 3.0  # of what the body closes over
#
# ``fad.lax.scan(body, init, xs)`` gives JAX a body that computes on tracers. Inside, the tracers are
# Tensors of a `StagedLevel`, the innermost level; so what the body computes with them is
# evaluated on tracers, and if it uses a Tensor of a level outside (a closed-over parameter, say)
# that Tensor is *captured*: it is one more input of the staged call. The whole call is traced
# to a jaxpr, made a Primitive, and bound on captures and operands, and so it is differentiated,
# batched and recorded like any other.
#
# Captures are known only after the body has run. While it does, a tracer that belongs to no program stands in
# for each (`jaxapi.stand_in`); it is found among the constants of the jaxpr, where the Tensor replaces it.
# What was captured and not used is not there.
#
# NOTE [what compiled code captures]
#
#     scale = fad.tensor(1.0)
#     f = fad.jit(lambda x: x * (scale * 2.0))
#     assert f(3.0) == 6.0
#     scale += 1.0
#     assert f(3.0) == 12.0
#
# The body of ``fad.jit`` is traced once and runs often, and Tensors that it closes over may be changed in
# place in between. So an operation in it on Tensors from outside alone (``scale * 2``), which
# would be computed at once, at level 0, is computed at the level of the body instead (`captured_by_jit`
# says of which Tensors): the Tensor is captured, and read at each call. A value at level 0 in such a
# body is thus one that it made of numbers, a constant. Other staged functions trace
# their bodies at each call, and the bodies of Functions run on bare arrays: they compute with what is there.
#
# Compiled code is found again by the structure of the jaxpr, not by the identity of the body: a lambda
# written in a loop does not compile in every iteration; see also NOTE [numbers in bodies].

STOP_GRADIENT = Primitive("stop_gradient", jax.lax.stop_gradient, deferrable=True)


class StagedLevel(RecordingLevel, TracedBody):
    """The level of a body that is being traced: ``value`` is a JAX tracer or array.

    Arguments:
        operands: what the staged call is given.
        outer: the JAX trace around the staged call, where values of outer levels are computed with.

    ``stand_ins`` are in the body what ``captures`` are outside. ``has_drawn``: it draws random numbers.
    ``records``: recording is on around the body, see NOTE [no_grad in traced code].
    ``numbers`` are the Python numbers that operations of the body got, in order; those at the places
    ``lifted`` are inputs of the staged call too, with their tracers in ``lifted_values``; so are Tensors from
    outside that have a twin in the body. ``twins``: the `fad.compile.outer_tensors.Twins` of a body of `jit`.
    ``loops`` are those that were rolled, last those of bodies in it; ``traced``, the program before that, and
    ``size``, its number of equations after it. ``times``: when each operation was evaluated.
    """

    kind = "staged"
    settings = ()
    runs_again = "scan, cond or another staged function"
    traces = True

    def __init__(self, operands: Sequence[Operand], outer: Any) -> None:
        super().__init__()
        self.outer = outer
        self.operands = operands
        self.captures = Captures()
        self.stand_ins: list[Operand] = []
        self.has_drawn = False
        self.records = True
        self.jax_trace: Any = None
        self.numbers: list[Operand] = []
        self.lifted: frozenset[int] = frozenset()
        self.lifted_values: list[tuple[Any, Any]] = []
        self.loops: list[Rolled] = []
        self.size = 0
        self.times: list[float] = []
        self.traced: JaxProgram | None = None
        self.twins: Any = None

    def __enter__(self) -> Self:
        super().__enter__()
        self.records = self.id > state.watermark
        return self

    def last(self, count: int) -> float:
        """How many seconds the last ``count`` operations took to trace, or all, if there are less."""
        return self.times[-1] - self.times[max(-1 - count, -len(self.times))]

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        self.times.append(time.perf_counter())
        fixed = op.keeps_numbers
        with jaxapi.set_current_trace(self.jax_trace):
            out = op.execute([a if fixed and is_number(a) else self.lower(a) for a in args])
            if self.records and self.id <= state.watermark:
                out = map_tensors(unrecorded, out)
        return map_tensors(lambda o: new_tensor(o, self), out)

    def unrecorded_write(self, new: Tensor, old: Tensor) -> Tensor:
        if not self.records or new.value is old.value:
            return new
        with jaxapi.set_current_trace(self.jax_trace):
            return new_tensor(unrecorded(new.value, self.lower(old)), self)

    def outlive(self, t: Tensor) -> Value:
        if not isinstance(t.value, jax.core.Tracer):
            value: Value = t.value
            return value
        raise LevelError(
            f"a Tensor ({describe(t)}) of a function that is being compiled (by jit, or as the body of "
            "scan, cond, ...) was used after its trace had finished, where it has no value: return it "
            "from the function, rather than store it outside"
        )

    def readable(self, t: Tensor, what: str = "") -> Operand:
        value: Operand = t if self.twins is None else self.twins.read(t)
        if value is not t:
            return value
        raise HostValueError(
            f"{what and f'{what} of '}a Tensor ({describe(t)}) inside the body of a staged function "
            f"(jit, scan, cond, ...), which has no value yet: "
            f"{instead_of_a_number(what, in_jit=self.twins is not None)}"
        )

    def inside(self, t: Tensor) -> Tensor:
        return t if self.twins is None else self.twins.inside(t)

    def outside(self, t: Tensor) -> Tensor:
        return t if self.twins is None else self.twins.outside(t)

    def origins(self, t: Tensor) -> list[Tensor]:
        if self.twins is None:
            return []
        roots = [root.tensor for root in self.twins.roots if root.twin is t]
        outer, around = (roots or [self.outside(t)])[0], self.twins.around
        more = [] if around is None else [around.inside(outer), *around.origins(outer)]
        return more if outer is t else [outer, *more]

    def note(self, event: Event, t: Tensor | None = None) -> None:
        if event == "draw":
            self.has_drawn = True
        elif event == "gradient" and self.twins is not None:
            self.twins.note_gradient(t)

    def note_loops(self, loops: Sequence[Rolled], first: bool = False) -> None:
        """Note rolled loops, equal ones once: a body may be traced again for its derivative."""
        several = (*loops, *self.loops) if first else (*self.loops, *loops)
        self.loops = list(dict.fromkeys(several))

    def constant(self, t: Tensor, stop: Callable[[Operand], Value]) -> Tensor:
        stopped: Tensor = bind(STOP_GRADIENT, (self.detach(t),))
        stopped._requires_grad = False
        return stopped

    def lower(self, x: Operand) -> Any:
        """``x`` as JAX sees it inside of the body."""
        try:
            x = outlived(x)
        except LevelError:  # of a trace that is over: a checkpoint around has its replacement
            if not any([level.notes_captures for level in state.levels]):
                raise
        if not isinstance(x, Tensor):
            if type(x) is np.ndarray and x.ndim == 0:
                x = x[()]
            return self._number(x) if is_number(x) else x
        if x.level is self:
            return x.value
        if self._is_constant(x):
            return x.value
        return self.capture(x)

    def _number(self, x: Operand) -> Operand:
        """A Python number, or what stands for it if it is an input of the staged call."""
        self.numbers.append(x)
        if len(self.numbers) - 1 not in self.lifted:
            return x
        tracer: Array = jaxapi.stand_in(aval_of(x))
        self.lifted_values.append((tracer, x))
        return tracer

    def _is_constant(self, x: Tensor) -> bool:
        """Whether ``x`` was made here, of numbers alone.

        A view may be one of a Tensor from outside, whose numbers are no constants of the body; where
        a body is kept for later calls, such a view belongs to its level already.
        """
        if x.level is not ROOT or x.born < self.id or x.requires_grad:
            return False
        return state.body is not None or x.meta is None or x.meta.link is None

    def capture(self, x: Tensor) -> Operand:
        """Make a Tensor from outside an input of the staged call."""
        at = self.captures.position(x)
        if at == len(self.stand_ins):
            self.stand_ins.append(jaxapi.stand_in(x.aval))
        return self.stand_ins[at]


def check_outputs(outs: Sequence[Operand], who: str) -> None:
    """Refuse outputs of traced code that are no arrays."""
    for k, o in enumerate(outs):
        if isinstance(o, (str, bytes)) or callable(o):
            raise ArgumentError(
                f"{who}: output {k} of the function must be an array, got {describe(o)}"
            )


def stage(
    run: Callable[..., PyTree],
    operands: Sequence[Any],
    *,
    bodies: Sequence[Callable[..., Any]] = (),
    kept: bool = False,
) -> tuple[Primitive, list[Any], trees.PyTreeDef]:
    """Trace ``run(level, *operands)`` into a Primitive.

    Arguments:
        bodies: the functions of the user that ``run`` calls; see NOTE [numbers in bodies].
        kept: the Primitive is for later calls too; see NOTE [what compiled code captures].

    Returns:
        The Primitive, the values to bind it on (constants, captures, operands), and the structure
        of the result.
    """
    structs = [struct_of(aval_of(x)) for x in operands]
    named = named_levels()
    axes = axes_of(named)
    level = StagedLevel(operands, jaxapi.current_trace())
    name = getattr(run, "name", "staged")
    body = body_of_code((name, kept, *map(code_of, bodies), *structs)) if bodies else Body()
    level.lifted = body.numbers.places
    structure: list[trees.PyTreeDef] = []

    @restores_modes
    def traced(*leaves: Operand) -> list[Array]:
        with level, body_of(level) if kept else contextlib.nullcontext():
            outs, out_structure = trees.flatten(run(level, *leaves))
            check_outputs(outs, getattr(run, "name", "a compiled function"))
            structure.append(out_structure)
            return [level.lower(x) for x in outs]

    with jaxapi.extended_axes(axes), modes(calls={}):
        closed: JaxProgram = jax.make_jaxpr(traced)(*structs)
        level.traced = closed
        if state.rolls:  # see NOTE [the protocol of rolling]
            closed, loops = rolling_protocol.roll(closed)
            level.note_loops(loops, first=True)
        closed = with_safe_writes(closed)
    level.size = len(closed.jaxpr.eqns)
    around = [x for x in state.levels if isinstance(x, StagedLevel)]
    if around:
        around[-1].note_loops(level.loops)
    body.note_numbers(level.numbers)
    captured: dict[int, Operand] = {}
    captured.update(zip(map(id, level.stand_ins), level.captures.tensors, strict=True))
    for tracer, x in level.lifted_values:  # arrays of numbers, which are not made while JAX traces
        if type(x) in SCALARS:
            x = constant(x)
        captured[id(tracer)] = as_array(np.asarray(x)) if isinstance(x, np.number) else x
    consts = [captured.get(id(c), c) for c in closed.consts]
    check_draws(closed.jaxpr, [*consts, *operands])
    fixed: dict[int, np.ndarray] = {}
    if kept:
        for k, c in enumerate(consts):
            if isinstance(c, np.ndarray):
                consts[k] = as_array(np.asarray(c))
                if np.size(c) <= LITERAL:
                    fixed[k] = np.array(c)
        changed = body.constants.note(list(map(bits, fixed.values())), len(fixed))
        fixed = {k: c for at, (k, c) in enumerate(fixed.items()) if at not in changed}
    uses = jaxapi.axes_named(closed.jaxpr)
    axes = tuple([axis for axis in axes if axis[0] in uses])
    # See NOTE [named axes]; what is kept finds them at each call.
    lanes = [(lanes_of if kept else lanes_inside)(named[axis]) for axis, _ in axes]
    primitive = _primitive_for(closed, name, axes, fixed, body)
    if named:
        primitive.calls = calls_with_rules(closed.jaxpr)
    rest = [c for k, c in enumerate(consts) if k not in fixed]
    return primitive, [*lanes, *rest, *operands], structure[0]


_primitives = Cache(512)


def _primitive_for(
    closed: JaxProgram, name: str, axes: Axes, fixed: dict[int, np.ndarray], body: Body
) -> Primitive:
    """The Primitive for a jaxpr; the same one for equal programs.

    ``axes``: those that it names; the Primitive takes the lanes of each, and does not read them.
    ``fixed``: constants of the jaxpr that are not operands of the Primitive, by their numbers.
    """
    literals = tuple([(k, bits(c)) for k, c in fixed.items()])
    key = (name, axes, jaxpr_key(closed.jaxpr), literals)
    primitive: Primitive | None = _primitives.get(key)
    if primitive is not None:
        return primitive
    run = bind_jaxpr(closed)

    def call(*values: Operand) -> tuple[Array, ...]:
        operands = list(values[len(axes) :])
        for k, c in fixed.items():  # in order
            operands.insert(k, c)
        with traced_in(axes) if axes else contextlib.nullcontext():
            return tuple(run(*operands))

    # Bodies of one code have several programs where they call rules that are made anew, for example.
    primitive = Primitive(name, call, collective=bool(axes), shared=bool(body.programs))
    primitive.calls_host = calls_host(closed.jaxpr)
    primitive.paths = COMPUTED
    body.programs.append(key)
    if len(body.programs) > PROGRAMS:
        _primitives.drop(body.programs.popleft())
    return _primitives.put(key, primitive)


# Where these are batched, lanes run bodies which they do not take, and a NaN there is none of the
# program; so in anomaly mode the call is checked as a whole.
PREDICATED = frozenset({"cond", "fori_loop", "switch", "while_loop"})


def call_with_bodies(
    fn: Callable[..., PyTree], args: Sequence[PyTree], kwargs: dict[str, PyTree]
) -> PyTree:
    """Call a JAX function whose callable arguments are fad functions.

    Arrays, Tensors and positional floats among the arguments are operands, so that a new initial value
    compiles nothing; everything else is static. The bodies get
    Tensors, and may call any fad function and close over Tensors of any level.

    Arguments:
        fn: the JAX function, such as ``jax.lax.scan``.
        args, kwargs: its arguments.

    Returns:
        What ``fn`` returns; Tensors if an operand or a captured value is one, else arrays.
    """
    taken, rest = partition(tuple(args), (*_OPERANDS, float, complex))
    named, named_rest = partition(kwargs, _OPERANDS)
    orders = _Orders((*args, *kwargs.values()))

    def run(level: StagedLevel, *tracers: Array) -> Outputs:
        def inside(x: PyTree) -> PyTree:
            return in_body(level, orders.kept_by(x)) if _is_body(x) else x

        new_args = rest.combine(tracers[: len(taken)], inside)
        return fn(*new_args, **named_rest.combine(tracers[len(taken) :], inside))

    run.name = name = getattr(fn, "__name__", "staged")  # type: ignore[attr-defined]
    bodies = [x for x in (*rest.statics(), *named_rest.statics()) if _is_body(x)]
    with reported_as_one() if name in PREDICATED else contextlib.nullcontext():
        primitive, values, out_structure = stage(
            run, list(map(outlived, [*taken, *named])), bodies=bodies
        )
    out = bind_program(primitive, values)
    outs = list(out) if type(out) is tuple else [out]
    return trees.unflatten(out_structure, outs, orders.results.get(out_structure))


_OPERANDS = (Tensor, jax.Array, np.ndarray)


class _Orders:
    """In which order dicts had their keys, which JAX sorts, in the operands and results of bodies.

    An argument of a body has the order of the operand with its structure; the result of the call that of
    a body. Where several have one structure, those of operands go with those of arguments, in order.
    """

    def __init__(self, operands: Sequence[Operand]) -> None:
        self._operands = _by_structure(operands)
        self.results: dict[trees.PyTreeDef, Any] = {}

    def kept_by(self, f: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """``f`` with its arguments in their order, and a note of the order of its result."""

        @functools.wraps(f, updated=())
        def body(*args: PyTree, **kwargs: object) -> PyTree:
            out = f(*self._in_order(args), **kwargs)
            for structure, skeletons in _by_structure([out]).items():
                self.results.setdefault(structure, skeletons[0])
            return out

        return body

    def _in_order(self, args: Sequence[Operand]) -> list[Operand]:
        if not self._operands:
            return list(args)
        ordered = []
        seen: collections.Counter[trees.PyTreeDef] = collections.Counter()
        for x in args:
            leaves, structure = trees.flatten(x)
            skeletons = self._operands.get(structure, [None])
            skeleton = skeletons[min(seen[structure], len(skeletons) - 1)]
            ordered.append(trees.unflatten(structure, leaves, skeleton))
            seen[structure] += 1
        return ordered


def _by_structure(values: Sequence[Operand]) -> dict[trees.PyTreeDef, list[Operand]]:
    """Skeletons of the values, by their structures; none if all have the order of JAX."""
    skeletons: dict[trees.PyTreeDef, list[Any]] = {}
    structures = [trees.flatten(x)[1] for x in values]
    if any([trees.order_of(x) for x in values]):
        for structure, x in zip(structures, values, strict=True):
            skeletons.setdefault(structure, []).append(trees.skeleton(x))
    return skeletons


def _is_body(x: object) -> bool:
    """Whether a static argument is a function to run, not a dtype such as ``jnp.float32``."""
    return callable(x) and not isinstance(x, type) and not hasattr(x, "dtype")


def in_body(level: StagedLevel, f: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``f`` on JAX values.

    It runs outside of the trace, so that what it computes with Tensors of outer levels is done at
    those levels; `StagedLevel.evaluate` goes back into the trace.
    """

    def body(*args: PyTree, **kwargs: object) -> PyTree:
        inside, inside_kwargs = trees.map_leaves(
            lambda x: new_tensor(x, level) if isinstance(x, jax.Array) else x, (args, kwargs)
        )
        before = level.jax_trace
        with jaxapi.outside_trace(level.outer) as level.jax_trace:
            try:
                out = f(*inside, **inside_kwargs)
                with jaxapi.set_current_trace(level.jax_trace):
                    return trees.map_leaves(level.lower, out)
            finally:
                level.jax_trace = before

    body.__name__ = getattr(f, "__name__", "body")
    body.__wrapped__ = f  # type: ignore[attr-defined]  # messages of JAX name its line
    return body
