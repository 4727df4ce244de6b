"""Rolls loops: a program in which equations repeat becomes one with a ``scan``."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import struct_of
from fad.core.elementwise import ELEMENTWISE
from fad.core.jaxapi import (
    as_weak,
    current_program,
    evaluate_equation,
    is_extended,
    parameters,
    run_jaxpr,
    slice_parts,
    write_equations,
)
from fad.core.jaxprs import inner_jaxprs, trace
from fad.core.repeats import SAVED, Loop, Numbered, Operands, find_loops, has_refs, operands_of
from fad.core.types import Array, JaxEquation, JaxProgram

_ENDS = 3  # so many repeats at each end may be left out of a loop, so that loops fit each other
_MANY = 8  # operands of an equation that are looked at together
_LARGE = 2000  # equations in a repeat of which all that is read later is stored

# What is computed again in a later loop, rather than stored for all repeats.
_COSTLY = """acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh device_put digamma
    erf erf_inv erfc exp exp2 expm1 fad_unrecorded igamma igammac lgamma log log1p logistic polygamma
    polynomial pow sin sinh tan tanh zeta""".split()
_CHEAP = (ELEMENTWISE - frozenset(_COSTLY)) | frozenset(
    """broadcast_in_dim concatenate dynamic_slice expand_dims iota pad reshape rev select_n slice squeeze
    transpose""".split()
)


class Rolled(NamedTuple):
    """A loop of a rolled program: how often it repeats, and how many operations."""

    count: int
    period: int


class Result(NamedTuple):
    """A value of a repeat: what an equation of it computes; or what that had computed ``entry`` repeats
    before, and before the first repeat what the carry with this number of such a result begins with.
    """

    equation: int
    place: int
    entry: int = 0
    carry: int = 0


class Carry(NamedTuple):
    """What a loop carries of a result: ``initial`` is what stood there before, the last at the end."""

    equation: int
    place: int
    number: int
    initial: tuple[int, ...]


class Elements(NamedTuple):
    """Values of an earlier loop, from one of its repeats on, forwards or backwards."""

    loop: int
    value: Result
    first: int
    step: int
    count: int


class Slices(NamedTuple):
    """Slices of an array along a dimension, from one place on in equal steps."""

    array: int
    dimension: int
    first: int
    step: int
    count: int


# Where an operand of a repeat comes from: a value of the repeat, one of before the loop, or one of many.
_Values = tuple[int, ...]
_Origin = Result | int | _Values
# What a loop reads in its repeats, one after the other.
_Stack = Elements | Slices | _Values


def rolled(closed: JaxProgram) -> tuple[JaxProgram, list[Rolled]]:
    """A program with its loops as loops, and these; the program itself, if it has none.

    >>> import jax
    >>> def f(x):
    ...     for _ in range(50):
    ...         x = x * x + x * 0.5 - 1.0
    ...     return x
    >>> rolled(jax.make_jaxpr(f)(1.0))[1]
    [Rolled(count=50, period=4)]
    """
    if len(closed.jaxpr.eqns) < SAVED or has_refs(closed):
        return closed, []
    program = Numbered(closed)
    loops = find_loops(program)
    if not loops:
        return closed, []
    writer = _Writer(program, closed, _Read(program, loops))
    found, _ = trace(writer.run, [struct_of(v.aval) for v in closed.jaxpr.invars])
    if [v.aval for v in found.jaxpr.outvars] != [v.aval for v in closed.jaxpr.outvars]:
        return closed, []
    return found, writer.found


def run_rolled(f: Callable[..., Sequence[Any]], values: Sequence[Array]) -> list[Array]:
    """``f(*values)``, a list of arrays, where JAX traces a program: with its loops as loops."""
    closed, _ = rolled(trace(f, values)[0])
    program = current_program()
    if program is not None:
        return write_equations(program, closed, values)
    return run_jaxpr(closed, *values)


class _Read:
    """The loops of a program, and what they read of each other.

    ``loops``; for each of them ``origins``: where each operand of its first repeat comes from, ``carries``,
    and ``slices``: its equations that are slices of an array at places in equal steps.
    """

    def __init__(self, program: Numbered, loops: Sequence[Loop]) -> None:
        self.program = program
        self.loops = list(loops)
        self._survey()
        self._fit_ends()

    def _survey(self) -> None:
        program = self.program
        self.loops = [loop for loop in self.loops if operands_of(program, loop) is not None]
        self.loop_of = np.full(len(program.eqns) + 1, -1)  # the last for "no equation"
        for k, loop in enumerate(self.loops):
            self.loop_of[loop.start : loop.end] = k
        self.origins: list[list[_Origin]] = []
        self.carries: list[list[Carry]] = []
        self.slices: list[dict[int, Slices]] = []
        for loop in self.loops:
            operands = operands_of(program, loop)
            assert operands is not None
            origins, carries = _origins(operands)
            self.origins.append(origins)
            self.carries.append(carries)
            self.slices.append(self._slices(loop, origins))

    def equation(self, k: int, at: int) -> JaxEquation:
        """An equation of the first repeat of a loop."""
        return self.program.eqns[self.loops[k].start + at]

    def columns(self, k: int, at: int) -> range:
        """The operands of an equation of a repeat, in ``origins``."""
        loop, program = self.loops[k], self.program
        begin = program.at[loop.start]
        return range(program.at[loop.start + at] - begin, program.at[loop.start + at + 1] - begin)

    def value(self, k: int, result: Result) -> int:
        """A value of the first repeat."""
        return self.program.first[self.loops[k].start + result.equation] + result.place

    def carry(self, k: int, result: Result) -> Carry | None:
        """The carry of a result, if there is one."""
        for carry in self.carries[k]:
            if carry[:3] == (result.equation, result.place, result.carry):
                return carry
        return None

    def _slices(self, loop: Loop, origins: Sequence[_Origin]) -> dict[int, Slices]:
        found = {}
        program = self.program
        begin = program.at[loop.start]
        for at in range(loop.period):
            a, b = program.at[loop.start + at] - begin, program.at[loop.start + at + 1] - begin
            starts = origins[a + 1 : b]
            eqn = program.eqns[loop.start + at]
            if eqn.primitive.name != "slice" or not isinstance(origins[a], int):
                continue
            moving = [d for d, x in enumerate(starts) if isinstance(x, tuple)]
            if len(moving) != 1:
                continue
            (d,) = moving
            _, spans, strides = slice_parts(eqn)
            whole = [n == m for n, m in zip(spans, eqn.invars[0].aval.shape, strict=True)]
            whole[d] = spans[d] == 1
            places = np.array([program.sources[v].value for v in starts[d]])
            step = int(places[1] - places[0])
            if all(whole) and not any(np.diff(places) - step) and set(strides) == {1}:
                found[at] = Slices(origins[a], d, int(places[0]), step, loop.count)
        return found

    def elements(self, values: Sequence[int]) -> tuple[Elements, Any] | None:
        """Values that are those of an earlier loop, in its order or backwards; and which of them are."""
        if len(values) < 2:
            return None
        numbers = np.array(values)
        producer, place = self.program.producer[numbers], self.program.place[numbers]
        of = self.loop_of[producer]
        middle = len(values) // 2
        k = int(of[middle])
        if k < 0:
            return None
        loop = self.loops[k]
        row, at = np.divmod(producer - loop.start, loop.period)
        same = (of == k) & (at == at[middle]) & (place == place[middle])
        step = int(row[middle] - row[middle - 1])
        if not same[middle - 1] or abs(step) != 1:
            return None
        rows = row[middle] + step * (np.arange(len(values)) - middle)
        fits = same & (row == rows)
        value = Result(int(at[middle]), int(place[middle]))
        carry = self.carry(k, value)
        if carry is not None:
            for i in np.flatnonzero((rows < 0) & (rows >= -len(carry.initial))):
                fits[i] = values[i] == carry.initial[rows[i]]
        held = rows[fits]
        entry = max(0, -int(held.min()))
        if not entry and carry is not None and held.max() + 1 < loop.count:
            entry = 1
        if held.max() + entry >= loop.count:
            return None
        value = value._replace(entry=entry)
        return Elements(k, value, int(rows[0]) + entry, step, len(values)), fits

    # Loops fit each other

    def _varying(self, k: int) -> list[_Values]:
        return [x for x in dict.fromkeys(self.origins[k]) if isinstance(x, tuple)]

    def _fit_ends(self) -> None:
        """Leave out repeats at the ends, so that a loop reads all repeats of the one that it reads."""
        for k in range(len(self.loops)):
            low, high = 0, self.loops[k].count
            for column in self._varying(k):
                found = self.elements(column)
                if found is not None:
                    other = np.flatnonzero(~found[1])
                    middle = len(column) // 2
                    low = max(low, max(other[other < middle] + 1, default=0))
                    high = min(high, min(other[other >= middle], default=high))
            self._narrow(k, int(low), int(high))
        for k in range(len(self.loops) - 1, -1, -1):
            rows = []
            for later in range(k + 1, len(self.loops)):
                for column in self._varying(later):
                    found = self.elements(column)
                    if found is not None and found[1].all() and found[0].loop == k:
                        _, _, first, step, count = found[0]
                        rows += [first, first + step * (count - 1)]
            if rows:
                self._narrow(k, min(rows), max(rows) + 1)

    def _narrow(self, k: int, low: int, high: int) -> None:
        loop = self.loops[k]
        if (low, high) != (0, loop.count) and low <= _ENDS and loop.count - high <= _ENDS:
            self.loops[k] = Loop(loop.start + low * loop.period, loop.period, high - low)
            self._survey()

    # What is stored

    def inputs(self, k: int, result: Result) -> list[Result] | None:
        """What a value of a repeat is computed of, where it can be computed again; else None."""
        if result.entry or not _is_cheap(self.equation(k, result.equation)):
            return None
        if result.equation in self.slices[k]:
            return []
        columns = [self.origins[k][c] for c in self.columns(k, result.equation)]
        return [x for x in columns if isinstance(x, Result)]

    def stored(self, k: int, wanted: Iterable[Result], known: Iterable[Result]) -> set[Result]:
        """Which values to store, of each repeat, so that the ``wanted`` ones can be computed again: as few
        bytes as possible, beside those that are ``known`` to be stored.

        It is the minimal cut between what is wanted and what cannot be computed again.
        """
        wanted, known = list(wanted), set(known)
        if self.loops[k].period > _LARGE:
            return set(wanted)
        capacity: dict[Any, dict[Any, float]] = collections.defaultdict(dict)
        seen: set[Result] = set()
        rest = list(wanted)
        while rest:
            r = rest.pop()
            if r in seen:
                continue
            seen.add(r)
            size = 0 if r in known else self.program.size(self.value(k, r)) + 1e-3
            capacity[r, 0][r, 1] = size
            inputs = self.inputs(k, r)
            for x in ["end"] if inputs is None else [(i, 0) for i in inputs]:
                capacity[r, 1][x] = np.inf
            rest += inputs or ()
        capacity["begin"] = dict.fromkeys([(r, 0) for r in wanted], np.inf)
        reached = _maximal_flow(capacity, "begin", "end")
        return {r for r in seen if (r, 0) in reached and (r, 1) not in reached}


def _origins(operands: Operands) -> tuple[list[_Origin], list[Carry]]:
    """Where the operands of a repeat come from, and what is carried for that."""
    origins: list[_Origin] = []
    carries: dict[tuple[int, int], list[Carry]] = {}
    columns = operands.values.T.tolist()
    for values, depth, at, place, constant in zip(
        columns, *[x.tolist() for x in operands[1:]], strict=True
    ):
        if depth < 0:
            origins.append(values[0] if constant else tuple(values))
            continue
        number = 0
        if depth:
            initial = tuple(values[:depth])
            known = carries.setdefault((at, place), [])
            for number, carry in enumerate(known):
                short, long = sorted((initial, carry.initial), key=len)
                if long[len(long) - len(short) :] == short:
                    known[number] = carry._replace(initial=long)
                    break
            else:
                number = len(known)
                known.append(Carry(at, place, number, initial))
        origins.append(Result(at, place, depth, number))
    return origins, [carry for found in carries.values() for carry in found]


def _is_cheap(eqn: JaxEquation) -> bool:
    """Whether what an equation computes is computed again rather than stored."""
    inner = list(inner_jaxprs(eqn))
    if not inner:
        return eqn.primitive.name in _CHEAP
    return eqn.primitive.name in ("jit", "pjit", "custom_jvp_call") and all(
        [_is_cheap(e) for jaxpr in inner for e in jaxpr.eqns]
    )


def _maximal_flow(capacity: dict[Any, dict[Any, float]], begin: Any, end: Any) -> set[Any]:
    """What can be reached from ``begin`` once as much flows as can (Edmonds and Karp 1972)."""
    while True:
        before = {begin: begin}
        rest = collections.deque([begin])
        while rest and end not in before:
            a = rest.popleft()
            for b, size in capacity.get(a, {}).items():
                if size > 0 and b not in before:
                    before[b] = a
                    rest.append(b)
        if end not in before:
            return set(before)
        path = [end]
        while path[-1] != begin:
            path.append(before[path[-1]])
        edges = list(zip(path[1:], path, strict=False))
        size = min([capacity[a][b] for a, b in edges])
        for a, b in edges:
            capacity[a][b] -= size
            capacity[b][a] = capacity[b].get(a, 0) + size


class _Again(NamedTuple):
    """What a loop computes again of an earlier one: ``equations`` of its repeats, from the repeat ``first``
    on, forwards or backwards; from values that were stored, and from what these repeats read themselves.
    """

    loop: int
    first: int
    step: int
    equations: list[int]
    stored: dict[Result, Elements]
    read: dict[_Values | int, _Stack]  # slices by their equation


class _Plan:
    """How a loop is written.

    ``stacks``: what it reads in its repeats. ``again``: what it computes again; ``of``: in which of these,
    and as what, each operand is that varies; None: among the stacks. ``last``: results whose last value
    is carried out.
    """

    def __init__(self) -> None:
        self.stacks: dict[_Stack, int] = {}
        self.again: list[_Again] = []
        self.read: dict[_Values, _Stack | tuple[int, Result]] = {}
        self.last: dict[tuple[int, int], int] = {}

    def stack(self, stack: _Stack) -> _Stack:
        self.stacks.setdefault(stack, len(self.stacks))
        return stack


class _Writer:
    """Writes a program with its loops as ``scan``."""

    def __init__(self, program: Numbered, closed: JaxProgram, read: _Read) -> None:
        self.program = program
        self.consts = closed.consts
        self.read = read
        self.found: list[Rolled] = []
        self._wanted: set[int] = set(program.outs)  # values that are read one by one
        self._stored: list[dict[Result, int]] = [{} for _ in read.loops]
        self._many: dict[int, list[Elements | int]] = {}
        self._ask()
        self._plans: list[_Plan] = []
        for k in range(len(read.loops) - 1, -1, -1):
            self._plans.insert(0, self._plan(k))
        self._values: dict[int, Array] = {}
        self._stacks: dict[tuple[int, Result], Array] = {}
        self._directions: list[int] = []

    # What is read

    def _ask(self) -> None:
        """Note what the equations outside of loops read."""
        program = self.program
        for k in np.flatnonzero(self.read.loop_of[:-1] < 0).tolist():
            operands = program.operands[program.at[k] : program.at[k + 1]].tolist()
            if len(operands) >= _MANY and program.eqns[k].primitive.name in (
                "concatenate",
                "stack",
            ):
                self._many[k] = self._pieces(operands)
                self._want(self._many[k])
            else:
                self._wanted.update(operands)

    def _want(self, pieces: Iterable[Elements | int]) -> None:
        for piece in pieces:
            if isinstance(piece, Elements):
                self._stored[piece.loop].setdefault(piece.value, len(self._stored[piece.loop]))
            else:
                self._wanted.add(piece)

    def _pieces(self, values: Sequence[int]) -> list[Elements | int]:
        """Values in order, together as far as they are those of a loop."""
        producer = self.program.producer[np.array(values)]
        of = self.read.loop_of[producer]
        found: list[Elements | int] = []
        a = 0
        while a < len(values):
            b = a + 1
            while b < len(values) and of[b] == of[a] >= 0:
                if producer[b] - producer[b - 1] != producer[a + 1] - producer[a]:
                    break
                b += 1
            elements = self.read.elements(values[a:b])
            if elements is None or not elements[1].all():
                found.append(values[a])
                a += 1
            else:
                found.append(elements[0])
                a = b
        return found

    def _plan(self, k: int) -> _Plan:
        """How a loop is written, once all is known that is read of it."""
        plan = _Plan()
        loop = self.read.loops[k]
        rest: dict[int, dict[_Values, Elements]] = collections.defaultdict(dict)

        def take(values: _Values) -> _Stack | None:
            """What is read for a value of each repeat; None if that is decided later."""
            found = self.read.elements(values)
            if found is not None and found[1].all():
                rest[found[0].loop][values] = found[0]
                return None
            self._want(self._pieces(values))
            return plan.stack(values)

        sliced = self.read.slices[k]
        for at in range(loop.period):
            if at in sliced:
                self._wanted.add(sliced[at].array)
                plan.stack(sliced[at])
                continue
            for c in self.read.columns(k, at):
                origin = self.read.origins[k][c]
                if isinstance(origin, int):
                    self._wanted.add(origin)
                elif not isinstance(origin, Result) and origin not in plan.read:
                    stack = take(origin)
                    if stack is not None:
                        plan.read[origin] = stack
        for carry in self.read.carries[k]:
            self._wanted.update(carry.initial)
        while rest:
            earlier = max(rest)
            groups: dict[tuple[int, int], dict[_Values, Elements]] = collections.defaultdict(dict)
            for values, found in rest.pop(earlier).items():
                groups[found.first, found.step][values] = found
            for (first, step), wanted in groups.items():
                self._compute_again(plan, earlier, first, step, loop.count, wanted, take)
        self._ask_last(k, plan)
        return plan

    def _compute_again(
        self,
        plan: _Plan,
        k: int,
        first: int,
        step: int,
        count: int,
        wanted: dict[_Values, Elements],
        take: Any,
    ) -> None:
        """Decide what of the values that are read of an earlier loop is stored."""
        read = self.read
        stored = read.stored(k, [e.value for e in wanted.values()], self._stored[k])
        leaves: dict[Result, Elements] = {}
        equations: set[int] = set()
        rest = [e.value for e in wanted.values()]
        while rest:
            r = rest.pop()
            if r in stored:
                leaves[r] = Elements(k, r, first, step, count)
            elif r.equation not in equations:
                equations.add(r.equation)
                rest += _known(read.inputs(k, r))
        for e in leaves.values():
            self._want([plan.stack(e)])
        again = _Again(k, first, step, sorted(equations), leaves, {})
        for at in again.equations:
            if at in read.slices[k]:
                found = read.slices[k][at]
                begin = found.first + first * found.step
                self._wanted.add(found.array)
                again.read[at] = plan.stack(
                    found._replace(first=begin, step=step * found.step, count=count)
                )
                continue
            for c in read.columns(k, at):
                origin = read.origins[k][c]
                if isinstance(origin, int):
                    self._wanted.add(origin)
                elif not isinstance(origin, Result) and origin not in again.read:
                    rows = first + step * np.arange(count)
                    values = tuple(np.array(origin)[rows].tolist())
                    again.read[origin] = values
                    if values not in plan.read:
                        stack = take(values)
                        if stack is not None:
                            plan.read[values] = stack
        for values, e in wanted.items():
            plan.read[values] = leaves[e.value] if e.value in leaves else (len(plan.again), e.value)
        if equations:
            plan.again.append(again)

    def _ask_last(self, k: int, plan: _Plan) -> None:
        """Store or carry out the values that are read one by one after the loop."""
        loop, program = self.read.loops[k], self.program
        for v in sorted(self._wanted):
            if self.read.loop_of[program.producer[v]] != k:
                continue
            row, result = self._row(v)
            carry = self.read.carry(k, result)
            if result in self._stored[k] or (
                carry is not None and loop.count - row <= len(carry.initial)
            ):
                continue
            if row == loop.count - 1 and not is_extended(program.avals[v].dtype):
                plan.last.setdefault(result[:2], len(plan.last))
            else:
                self._want([Elements(k, result, row, 1, 1)])

    def _row(self, v: int) -> tuple[int, Result]:
        """In which repeat of its loop a value is computed, and as what."""
        at = int(self.program.producer[v])
        loop = self.read.loops[self.read.loop_of[at]]
        row, equation = divmod(at - loop.start, loop.period)
        return row, Result(equation, int(self.program.place[v]))

    # Writing

    def run(self, *inputs: Array) -> list[Array]:
        """The program; traced once."""
        self._inputs = inputs
        program, loops = self.program, self.read.loops
        begins = {loop.start: k for k, loop in enumerate(loops)}
        at = 0
        while at < len(program.eqns):
            if at in begins:
                self._loop(begins[at])
                at = loops[begins[at]].end
                continue
            eqn = program.eqns[at]
            if at in self._many:
                outs = [self._together(eqn, self._many[at])]
            else:
                operands = program.operands[program.at[at] : program.at[at + 1]]
                count = len(eqn.invars)  # the places of a slice are its own
                outs = evaluate_equation(eqn, list(map(self._value, operands[:count].tolist())))
            self._values.update(enumerate(outs, program.first[at]))
            at += 1
        return [self._array(v) for v in program.outs]

    def _value(self, v: int) -> Any:
        """A value of before, as an operand."""
        source = self.program.sources.get(v)
        if source is None:
            return self._values[v]
        if source.kind == "literal":
            return source.value
        return (self.consts if source.kind == "constant" else self._inputs)[source.value]

    def _array(self, v: int) -> Array:
        """A value of before, as an array of its type."""
        x, aval = self._value(v), self.program.avals[v]
        return x if isinstance(x, jax.Array) else _typed(jnp.asarray(x, aval.dtype), aval)

    def _together(self, eqn: JaxEquation, pieces: Sequence[Elements | int]) -> Array:
        """Many operands as one array: those of loops are one already."""
        (axis,) = parameters(eqn)
        stacks = eqn.primitive.name == "stack"
        parts = []
        for piece in pieces:
            if isinstance(piece, int):
                x = self._array(piece)
                parts.append(jnp.expand_dims(x, axis) if stacks else x)
                continue
            x = jnp.moveaxis(self._stack(piece, 1), 0, axis)
            if not stacks:
                shape = x.shape
                x = x.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
            parts.append(x)
        return jax.lax.concatenate(parts, axis) if len(parts) > 1 else parts[0]

    def _stack(self, stack: _Stack, direction: int) -> Array:
        """What a loop reads in its repeats: an array, in their order or (-1) backwards."""
        if isinstance(stack, Elements):
            x = self._stacks[stack.loop, stack.value]
            stored = self._directions[stack.loop]
            last = stack.first + stack.step * (stack.count - 1)
            low, high = sorted((stack.first, last))
            if stored < 0:
                low, high = len(x) - 1 - high, len(x) - 1 - low
            x = x if high - low + 1 == len(x) else x[low : high + 1]
            return x if stored * stack.step == direction else jnp.flip(x, 0)
        if isinstance(stack, Slices):
            x = self._array(stack.array)
            last = stack.first + stack.step * (stack.count - 1)
            low, high = sorted((stack.first, last))
            x = jax.lax.slice_in_dim(x, low, high + 1, abs(stack.step), stack.dimension)
            x = jnp.moveaxis(x, stack.dimension, 0)
            return x if (stack.step > 0) == (direction > 0) else jnp.flip(x, 0)
        sources = [self.program.sources.get(v) for v in stack]
        if all([s is not None and s.kind != "input" for s in sources]):
            fixed = list(map(self._value, stack[::direction]))
            if not any([isinstance(x, (jax.Array, jax.core.Tracer)) for x in fixed]):
                return jnp.asarray(np.stack(fixed), self.program.avals[stack[0]].dtype)
        parts = [
            self._stack(p, direction)
            if isinstance(p, Elements)
            else jnp.expand_dims(self._array(p), 0)
            for p in self._pieces(stack)[::direction]
        ]
        return jax.lax.concatenate(parts, 0)

    def _direction(self, plan: _Plan) -> int:
        """Whether the repeats of a loop go through most of what they read forwards (1) or backwards (-1)."""
        votes = 0
        for stack in plan.stacks:
            if isinstance(stack, Elements):
                size = self.program.size(self.read.value(stack.loop, stack.value))
                votes += self._directions[stack.loop] * stack.step * size
            elif isinstance(stack, Slices):
                aval = self.program.avals[stack.array]
                size = self.program.size(stack.array) // aval.shape[stack.dimension]
                votes += int(np.sign(stack.step)) * size
        return 1 if votes >= 0 else -1

    def _loop(self, k: int) -> None:
        """Write a loop."""
        read, plan, loop = self.read, self._plans[k], self.read.loops[k]
        direction = self._direction(plan)
        self._directions.append(direction)
        xs = [self._stack(s, direction) for s in plan.stacks]
        initial: list[Array] = []
        for carry in read.carries[k]:
            initial += [self._array(v) for v in reversed(carry.initial)]
        for at, place in plan.last:
            aval = self.program.avals[read.value(k, Result(at, place))]
            initial.append(jnp.zeros(aval.shape, aval.dtype))
        body = _Body(self, k)
        constants = list(body.constants)
        operands = [self._array(v) for v in constants]
        closed, _ = trace(body.run, [*map(jax.typeof, operands), *body.avals])
        closed, inner = rolled(closed)
        count = len(initial)

        def step(carry: Sequence[Array], x: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            outs = run_jaxpr(closed, *operands, *carry, *x)
            return outs[:count], outs[count:]

        final, ys = jax.lax.scan(step, initial, xs, loop.count, reverse=direction < 0)
        self.found += [Rolled(loop.count, loop.period), *inner]
        self._stacks.update(zip([(k, r) for r in self._stored[k]], ys, strict=True))
        self._read_out(k, final)

    def _read_out(self, k: int, final: Sequence[Array]) -> None:
        """Note the values that are read one by one after a loop."""
        read, plan, loop = self.read, self._plans[k], self.read.loops[k]
        last: dict[tuple[int, Result], Array] = {}
        at = 0
        for carry in read.carries[k]:
            for back in range(1, len(carry.initial) + 1):
                last[loop.count - back, Result(*carry[:2])] = final[at]
                at += 1
        for result in plan.last:
            last[loop.count - 1, Result(*result)] = final[at]
            at += 1
        for v in self._wanted:
            if read.loop_of[self.program.producer[v]] == k:
                row, result = self._row(v)
                x = last.get((row, result))
                if x is None:
                    x = self._stack(Elements(k, result, row, 1, 1), 1)[0]
                self._values[v] = _typed(x, self.program.avals[v])


class _Body:
    """The body of a loop: a function of ``constants``, what is carried, and what a repeat reads.

    ``avals``: of its operands, but for the constants.
    """

    def __init__(self, writer: _Writer, k: int) -> None:
        self._writer, self._k = writer, k
        self._plan = writer._plans[k]
        read = self._read = writer.read
        program = writer.program
        self.constants: dict[int, int] = {}
        used = [(k, range(read.loops[k].period))]
        used += [(again.loop, again.equations) for again in self._plan.again]
        for loop, equations in used:
            for at in equations:
                if at not in read.slices[loop]:
                    for c in read.columns(loop, at):
                        v = read.origins[loop][c]
                        if isinstance(v, int) and not self._is_fixed(v):
                            self.constants.setdefault(v, len(self.constants))
        self.avals = []
        for carry in read.carries[k]:
            aval = program.avals[read.value(k, Result(*carry[:2]))]
            self.avals += [struct_of(aval)] * len(carry.initial)
        for result in self._plan.last:
            self.avals.append(struct_of(program.avals[read.value(k, Result(*result))]))
        for stack in self._plan.stacks:
            self.avals.append(struct_of(self._aval(stack)))

    def _is_fixed(self, v: int) -> bool:
        """Whether it is a number, or an array of NumPy, that can stand in the body."""
        source = self._writer.program.sources.get(v)
        return source is not None and not isinstance(
            self._writer._value(v), (jax.Array, jax.core.Tracer)
        )

    def _aval(self, stack: _Stack) -> Any:
        program = self._writer.program
        if isinstance(stack, Elements):
            return program.avals[self._read.value(stack.loop, stack.value)]
        if isinstance(stack, Slices):
            aval, d = program.avals[stack.array], stack.dimension
            return aval.update(shape=aval.shape[:d] + aval.shape[d + 1 :])
        return program.avals[stack[0]]

    def run(self, *values: Array) -> list[Array]:
        """One repeat; traced once."""
        read, plan, k = self._read, self._plan, self._k
        rest = iter(values)
        constants = {v: next(rest) for v in self.constants}
        known: dict[Result, Array] = {}
        carried: list[Array] = []
        for carry in read.carries[k]:
            at, place, number, initial = carry
            for back in range(1, len(initial) + 1):
                carried.append(next(rest))
                known[Result(at, place, back, number)] = carried[-1]
        for _ in plan.last:
            next(rest)
        stacks = dict(zip(plan.stacks, rest, strict=True))
        stacks = {s: _typed(x, self._aval(s)) for s, x in stacks.items()}
        computed: list[dict[Result, Array]] = []

        def many(values: _Values) -> Array:
            found = plan.read[values]
            if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Result):
                return computed[found[0]][found[1]]
            return stacks[found]

        def run(
            loop: int, equations: Iterable[int], known: dict[Result, Array], read_as: Any
        ) -> None:
            for at in equations:
                eqn = read.equation(loop, at)
                if at in read.slices[loop]:
                    x = stacks[read_as(at)]
                    known[Result(at, 0)] = x.reshape(eqn.outvars[0].aval.shape)
                    continue
                operands = []
                for c in read.columns(loop, at):
                    origin = read.origins[loop][c]
                    if isinstance(origin, Result):
                        aval = read.program.avals[read.value(loop, origin)]
                        operands.append(_typed(known[origin], aval))
                    elif isinstance(origin, int):
                        found = constants.get(origin)
                        operands.append(self._writer._value(origin) if found is None else found)
                    else:
                        operands.append(many(read_as(origin)))
                outs = _evaluate(eqn, operands)
                known.update({Result(at, j): x for j, x in enumerate(outs)})

        # Earlier loops come last: a later one reads of them.
        computed += [{r: stacks[e] for r, e in again.stored.items()} for again in plan.again]
        for again, found in reversed(list(zip(plan.again, computed, strict=True))):
            run(again.loop, again.equations, found, again.read.__getitem__)
        slices = read.slices[k]
        run(
            k,
            range(read.loops[k].period),
            known,
            lambda x: slices[x] if isinstance(x, int) else x,
        )
        outs: list[Array] = []
        for at, place, number, initial in read.carries[k]:
            outs.append(known[Result(at, place)])
            outs += [known[Result(at, place, back, number)] for back in range(1, len(initial))]
        outs += [known[Result(*result)] for result in plan.last]
        outs += [known[result] for result in self._writer._stored[k]]
        return outs


def _evaluate(eqn: JaxEquation, operands: Sequence[Any]) -> list[Array]:
    """An equation of a loop, where a slice may be at a place that moves."""
    if eqn.primitive.name != "slice":
        return evaluate_equation(eqn, operands)
    x, *starts = operands
    own, spans, strides = slice_parts(eqn)
    if not any([isinstance(s, jax.core.Tracer) for s in starts]):
        return evaluate_equation(eqn, [x])
    found = jax.lax.dynamic_slice(x, starts, spans)
    return [jax.lax.slice(found, [0] * len(spans), spans, strides)]


def _typed(x: Array, aval: Any) -> Array:
    """An array as one of the weak type that it has in the program."""
    return as_weak(x) if aval.weak_type and not x.weak_type else x


T = TypeVar("T")


def _known(x: T | None) -> T:
    assert x is not None
    return x
