"""Rolls loops: a program in which equations repeat becomes one with a ``scan``.

NOTE [rolled loops]

    def f(x):
        for k in range(100):
            x = x + fnp.sin(x) * 0.1 * k
        return x

    assert str(fad.make_jaxpr(f)(1.0)).count("sin") == 1

Tracing unrolls a loop of Python, and the time that XLA takes grows faster than the number of operations. So a
traced program is searched for stretches that repeat (`fad.rolling.repeats`), and each becomes a ``scan``.
What an operand of the stretch is over the repeats says what becomes of it:

* the same value from before the loop: a constant of the body;
* a result of the same repeat: a value of the body;
* a result of d repeats before, always the same: carried, in d places, which begin with what stood there;
* another value in each repeat, all from before: stacked. Literals are stacked when traced; results of an
  earlier loop are stacked by that loop, and read forwards or backwards, as in a backward pass;
  all rows of an array are an operand of the scan, of some each is read at its place, without a copy;
* a result of an earlier loop, and the one d repeats before: elements of one array. Where that array does not
  reach to both ends, what the loop has read is carried for d repeats.

What does not fit at the ends stays outside of the loop. Of what a later loop reads of an earlier one, as
little is stored as the rest can be computed from again, with cheap operations: a minimal cut of the body
(`LoopReads.stored`). The body is a program like any other, so loops in loops are loops in loops.

The operations are the same and in the same order, but XLA fuses them otherwise: results are equal up to
rounding. Where that would matter, in programs of replay, nothing is rolled.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import struct_of
from fad.core.jaxapi import (
    ClosedJaxpr,
    Literal,
    as_weak,
    convert_constvars_jaxpr,
    evaluate_equation,
    is_extended,
    parameters,
    run_jaxpr,
    shaped_array,
    slice_parts,
)
from fad.core.jaxprs import inner_jaxprs, jaxpr_key, trace, with_programs
from fad.core.rolling_protocol import Rolled
from fad.core.types import (
    Array,
    Atom,
    Aval,
    JaxBody,
    JaxEquation,
    JaxProgram,
    NumpyArray,
    PyTree,
)
from fad.rolling.repeats import (
    DEPTH,
    PLACE,
    ArrayRows,
    Elements,
    LoopReads,
    Numbered,
    Result,
    Stack,
    Values,
    find_loops,
    has_refs,
    is_free,
    may_repeat,
)

_MANY = 8  # operands of an equation that are looked at together


def rolled(closed: JaxProgram) -> tuple[JaxProgram, list[Rolled]]:
    """A program with its loops as loops, and these; the program itself, if it has none.

    >>> import jax
    >>> def f(x):
    ...     for _ in range(50):
    ...         x = x * x + x * 0.5 - 1.0
    ...     return x
    >>> rolled(jax.make_jaxpr(f)(1.0))[1]
    [Rolled(repeats=50, period=4)]
    """
    bodies = _RolledBodies()
    closed = bodies.rolled_in(closed)
    if not may_repeat(closed.jaxpr.eqns) or has_refs(closed):
        return closed, bodies.loops
    program = Numbered(closed)
    loops = find_loops(program)
    if not loops:
        return closed, bodies.loops
    writer = _LoopWriter(program, closed, LoopReads(program, loops))
    shorter, _ = trace(writer.run, [struct_of(v.aval) for v in closed.jaxpr.invars])
    if [v.aval for v in shorter.jaxpr.outvars] != [v.aval for v in closed.jaxpr.outvars]:
        return closed, bodies.loops
    return shorter, [*writer.rolled, *bodies.loops]


# Equations that call programs, or run them in a loop or a branch, and do nothing else to them.
_WITH_BODIES = frozenset(
    """cond custom_jvp_call custom_vjp_call fad_while_curvature fad_while_linear fad_while_loop
    fad_while_pullback jit remat2 scan while""".split()
)


class _RolledBodies:
    """The programs in the equations of a program: ``loops`` are those that were rolled in them."""

    def __init__(self) -> None:
        self.loops: list[Rolled] = []
        self._by_id: dict[int, JaxBody] = {}
        self._by_key: dict[Hashable, JaxBody] = {}

    def rolled_in(self, closed: JaxProgram) -> JaxProgram:
        """A program with rolled programs in its equations; the same one, if that changes none of them."""
        jaxpr = self._rolled_in(closed.jaxpr)
        return closed if jaxpr is closed.jaxpr else ClosedJaxpr(jaxpr, closed.consts)

    def _rolled_in(self, jaxpr: JaxBody) -> JaxBody:
        changed = {}
        for at, eqn in enumerate(jaxpr.eqns):
            if eqn.primitive.name in _WITH_BODIES:
                inner = list(inner_jaxprs(eqn))
                if not all([self._body(x) is x for x in inner]):
                    changed[at] = with_programs(eqn, self._body)
        if not changed:
            return jaxpr
        return jaxpr.replace(eqns=[changed.get(at, eqn) for at, eqn in enumerate(jaxpr.eqns)])

    def _body(self, jaxpr: JaxBody) -> JaxBody:
        """A program, rolled."""
        body = self._by_id.get(id(jaxpr))
        if body is None:
            body = self._by_id[id(jaxpr)] = self._made(jaxpr)
        return body

    def _made(self, jaxpr: JaxBody) -> JaxBody:
        inner = self._rolled_in(jaxpr)
        if not may_repeat(inner.eqns):
            return inner
        key = jaxpr_key(jaxpr)
        if key not in self._by_key:  # equal ones are rolled, and noted, once
            closed = ClosedJaxpr(convert_constvars_jaxpr(inner), ())
            shorter, loops = rolled(closed)
            self.loops += loops
            self._by_key[key] = inner if shorter is closed else _opened(shorter, jaxpr)
        return self._by_key[key]


def _opened(closed: JaxProgram, like: JaxBody) -> JaxBody:
    """A program as one with the constants and inputs of ``like``: its own constants are literals."""
    literals = {
        v: Literal(np.asarray(c), v.aval)
        for v, c in zip(closed.jaxpr.constvars, closed.consts, strict=True)
    }

    def with_literals(atoms: Sequence[Atom]) -> list[Atom]:
        return [v if isinstance(v, Literal) else literals.get(v, v) for v in atoms]

    count = len(like.constvars)
    return closed.jaxpr.replace(
        constvars=closed.jaxpr.invars[:count],
        invars=closed.jaxpr.invars[count:],
        outvars=with_literals(closed.jaxpr.outvars),
        eqns=[eqn.replace(invars=with_literals(eqn.invars)) for eqn in closed.jaxpr.eqns],
        debug_info=like.debug_info,
    )


class _Again(NamedTuple):
    """What a loop computes again of an earlier one: ``equations`` of its repeats, from the repeat ``first``
    on, forwards or backwards; from values that were stored, and from what these repeats read themselves.
    """

    loop: int
    first: int
    step: int
    equations: list[int]
    stored: dict[Result, Elements]
    rows: dict[int, ArrayRows]  # by their equation
    columns: dict[Values, Values]


class _Line(NamedTuple):
    """What is carried from repeat to repeat: what ``source`` was in the repeats before.

    ``initial``: what stood there before the loop, the earliest first; None: nothing that is read.
    ``number``: of the carry of a result.
    """

    source: Result | Stack
    initial: Sequence[int | None]
    number: int = 0


class _Plan:
    """How a loop is written.

    ``stacks``: what it reads in its repeats. ``delayed``: what it has read some repeats before, as what, and
    how many. ``again``: what it computes again. ``read``: what each operand is that varies: among the stacks,
    or in which of ``again``, and as what. ``lines``: what is carried, results first.
    """

    def __init__(self) -> None:
        self.stacks: dict[Stack, int] = {}
        self.delayed: dict[Stack, tuple[Stack, int]] = {}
        self.again: list[_Again] = []
        self.read: dict[Values, Stack | tuple[int, Result]] = {}
        self.lines: list[_Line] = []

    def stack(self, stack: Stack) -> Stack:
        self.stacks.setdefault(stack, len(self.stacks))
        return stack


class _LoopWriter:
    """Writes a program with its loops as ``scan``."""

    def __init__(self, program: Numbered, closed: JaxProgram, read: LoopReads) -> None:
        self.program = program
        self.consts = closed.consts
        self.read = read
        self.rolled: list[Rolled] = []
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
        pieces: list[Elements | int] = []
        a = 0
        while a < len(values):
            b = a + 1
            while b < len(values) and of[b] == of[a] >= 0:
                if producer[b] - producer[b - 1] != producer[a + 1] - producer[a]:
                    break
                b += 1
            elements = self.read.all_elements(values[a:b])
            if elements is None:
                pieces.append(values[a])
                a += 1
            else:
                pieces.append(elements)
                a = b
        return pieces

    def _plan(self, k: int) -> _Plan:
        """How a loop is written, once it is clear what is read of it."""
        plan = _Plan()
        loop = self.read.loops[k]
        rest: dict[int, dict[Values, Elements]] = collections.defaultdict(dict)

        def take(values: Values) -> Stack | None:
            """What is read for a value of each repeat; None if that is decided later."""
            elements = self.read.all_elements(values)
            if elements is not None:
                rest[elements.loop][values] = elements
                return None
            return plan.stack(values)

        rows = self.read.rows[k]
        for at in range(loop.period):
            if at in rows:
                self._wanted.add(rows[at].array)
                plan.stack(rows[at])
                continue
            for c in self.read.columns(k, at):
                origin = self.read.origins[k][c]
                if isinstance(origin, int):
                    self._wanted.add(origin)
                elif not isinstance(origin, Result) and origin not in plan.read:
                    stack = take(origin)
                    if stack is not None:
                        plan.read[origin] = stack
        while rest:
            earlier = max(rest)
            groups: dict[tuple[int, int], dict[Values, Elements]] = collections.defaultdict(dict)
            for values, elements in rest.pop(earlier).items():
                groups[elements.first, elements.step][values] = elements
            for (first, step), wanted in groups.items():
                self._compute_again(plan, earlier, first, step, loop.count, wanted, take)
        self._carry(k, plan)
        self._ask_last(k, plan)
        return plan

    def _compute_again(
        self,
        plan: _Plan,
        k: int,
        first: int,
        step: int,
        count: int,
        wanted: dict[Values, Elements],
        take: Callable[[Values], Stack | None],
    ) -> None:
        """Decide what of the values that are read of an earlier loop is stored."""
        read = self.read
        stacked = [e.value for e in plan.stacks if isinstance(e, Elements) and e.loop == k]
        stored = read.stored(k, [e.value for e in wanted.values()], [*self._stored[k], *stacked])
        leaves: dict[Result, Elements] = {}
        equations: set[int] = set()
        rest = [e.value for e in wanted.values()]
        while rest:
            r = rest.pop()
            if r in stored:
                elements = Elements(k, r, first, step, count)
                leaves[r] = read.all_elements(read.values(elements)) or elements
            elif r.equation not in equations:
                equations.add(r.equation)
                rest += _present(read.inputs(k, r))
        for e in leaves.values():
            plan.stack(e)
        again = _Again(k, first, step, sorted(equations), leaves, {}, {})
        for at in again.equations:
            if at in read.rows[k] and count == read.loops[k].count:
                rows = read.rows[k][at]
                again.rows[at] = rows._replace(step=step * rows.step)
                self._wanted.add(rows.array)
                plan.stack(again.rows[at])
                continue
            for c in read.columns(k, at):
                origin = read.origins[k][c]
                if isinstance(origin, int):
                    self._wanted.add(origin)
                elif not isinstance(origin, Result) and origin not in again.columns:
                    repeats = first + step * np.arange(count)
                    values = tuple(np.array(origin)[repeats].tolist())
                    again.columns[origin] = values
                    if values not in plan.read:
                        stack = take(values)
                        if stack is not None:
                            plan.read[values] = stack
        for values, e in wanted.items():
            plan.read[values] = leaves[e.value] if e.value in leaves else (len(plan.again), e.value)
        if equations:
            plan.again.append(again)

    def _carry(self, k: int, plan: _Plan) -> None:
        """Decide what is carried, of results and of what is read; store what is read."""
        read = self.read
        for carry in read.carries[k]:
            plan.lines.append(_Line(Result(*carry[:2]), carry.initial, carry.number))
        columns = {
            read.values(s) if isinstance(s, Elements) else s: s
            for s in plan.stacks
            if not isinstance(s, ArrayRows)
        }
        before: dict[Stack, Values] = {}
        for column, (lead, repeats) in read.delayed(columns).items():
            late, source = columns[column], columns[lead]
            if isinstance(late, Elements) and late[:2] == source[:2]:
                continue  # both are read in one array
            del plan.stacks[late]
            plan.delayed[late] = source, repeats
            if repeats > len(before.get(source, ())):
                before[source] = column[:repeats]
        plan.lines += [_Line(source, initial) for source, initial in before.items()]
        for line in plan.lines:
            self._wanted.update([v for v in line.initial if v is not None])
        for stack in plan.stacks:
            if isinstance(stack, Elements):
                self._want([stack])
            elif not isinstance(stack, ArrayRows):
                self._want(self._pieces(stack))

    def _ask_last(self, k: int, plan: _Plan) -> None:
        """Store or carry out the values that are read one by one after the loop."""
        loop, program = self.read.loops[k], self.program
        lines = {line.source: at for at, line in enumerate(plan.lines)}
        for v in sorted(self._wanted):
            if self.read.loop_of[program.producer[v]] != k:
                continue
            row, result = self._row(v)
            depth = loop.count - row
            line = plan.lines[lines[result]] if result in lines else _Line(result, [])
            more = depth - len(line.initial)
            if more <= 0 or self._in_stack(k, row, result) is not None:
                continue
            if depth > DEPTH or is_extended(program.avals[v].dtype):
                self._want([Elements(k, result, row, 1, 1)])
                continue
            line = line._replace(initial=[*[None] * more, *line.initial])
            at = lines.setdefault(result, len(plan.lines))
            plan.lines[at : at + 1] = [line]

    def _in_stack(self, k: int, row: int, result: Result) -> Elements | None:
        """A value of a repeat, where it is stored: as it is computed, or as it enters a later repeat."""
        for r in self._stored[k]:
            if r[:2] == result[:2] and row + r.entry < self.read.loops[k].count:
                return Elements(k, r, row + r.entry, 1, 1)
        return None

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
                count = len(eqn.invars)  # a slice has its places in itself
                outs = evaluate_equation(eqn, list(map(self._value, operands[:count].tolist())))
            self._values.update(enumerate(outs, program.first[at]))
            at += 1
        return [self._array(v) for v in program.outs]

    def _value(self, v: int) -> PyTree:
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

    def _stack(self, stack: Stack, direction: int) -> Array:
        """What a loop reads in its repeats: an array, in their order or (-1) backwards."""
        if isinstance(stack, Elements):
            x = self._stacks[stack.loop, stack.value]
            places = self._places(stack)[::direction]
            low, high = sorted((int(places[0]), int(places[-1])))
            x = x if high - low + 1 == len(x) else x[low : high + 1]
            return x if places[0] == low else jnp.flip(x, 0)
        if isinstance(stack, ArrayRows):
            x = self._array(stack.array)
            return x if stack.step == direction else jnp.flip(x, 0)
        sources = [self.program.sources.get(v) for v in stack]
        if all([s is not None and s.kind != "input" for s in sources]):
            constants = list(map(self._value, stack[::direction]))
            if all(map(is_free, constants)):
                whole = np.stack(list(map(np.asarray, constants)))
                return jnp.asarray(whole, self.program.avals[stack[0]].dtype)
        parts = [
            self._stack(p, direction)
            if isinstance(p, Elements)
            else jnp.expand_dims(self._array(p), 0)
            for p in self._pieces(stack)[::direction]
        ]
        return jax.lax.concatenate(parts, 0)

    def _places(self, elements: Elements) -> NumpyArray:
        """At which places of what was stored they stand."""
        rows = elements.first + elements.step * np.arange(elements.length, dtype=np.int32)
        forwards = self._directions[elements.loop] > 0
        return rows if forwards else self.read.loops[elements.loop].count - 1 - rows

    def _direction(self, plan: _Plan) -> int:
        """Whether the repeats of a loop go through most of what they read forwards (1) or backwards (-1)."""
        votes = 0
        for stack in plan.stacks:
            if isinstance(stack, Elements):
                size = self.program.size(self.read.value(stack.loop, stack.value))
                votes += self._directions[stack.loop] * stack.step * size
            elif isinstance(stack, ArrayRows):
                rows = self.program.avals[stack.array].shape[0]
                votes += stack.step * self.program.size(stack.array) // rows
        return 1 if votes >= 0 else -1

    def _is_whole(self, elements: Elements, direction: int) -> bool:
        """Whether they are all that was stored, in that order."""
        whole = elements.length == self.read.loops[elements.loop].count
        return whole and self._directions[elements.loop] * elements.step == direction

    def _loop(self, k: int) -> None:
        """Write a loop."""
        plan, loop = self._plans[k], self.read.loops[k]
        direction = self._direction(plan)
        self._directions.append(direction)
        arrays: dict[Elements, Array] = {}
        xs = []
        for stack in plan.stacks:
            if isinstance(stack, Elements) and not self._is_whole(stack, direction):
                arrays[stack] = self._stacks[stack.loop, stack.value]
                xs.append(jnp.asarray(self._places(stack)[::direction]))
            else:
                xs.append(self._stack(stack, direction))
        initial: list[Array] = []
        for line in plan.lines:
            aval = self._aval(k, line.source)
            initial += [
                jnp.zeros(aval.shape, aval.dtype) if v is None else self._array(v)
                for v in reversed(line.initial)
            ]
        body = _Repeat(self, k, arrays)
        constants = list(body.constants)
        operands = [*[self._array(v) for v in constants], *arrays.values()]
        closed, _ = trace(body.run, [*map(jax.typeof, operands), *body.avals])
        closed, inner = rolled(closed)
        count = len(initial)

        def step(carry: Sequence[Array], x: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            outs = run_jaxpr(closed, *operands, *carry, *x)
            return outs[:count], outs[count:]

        final, ys = jax.lax.scan(step, initial, xs, loop.count, reverse=direction < 0)
        self.rolled += [Rolled(loop.count, loop.period), *inner]
        self._stacks.update(zip([(k, r) for r in self._stored[k]], ys, strict=True))
        self._read_out(k, final)

    def _read_out(self, k: int, final: Sequence[Array]) -> None:
        """Note the values that are read one by one after a loop."""
        read, plan, loop = self.read, self._plans[k], self.read.loops[k]
        last: dict[tuple[int, Result], Array] = {}
        values = iter(final)
        for line in plan.lines:
            for back in range(1, len(line.initial) + 1):
                x = next(values)
                if isinstance(line.source, Result):
                    last[loop.count - back, line.source] = x
        for v in self._wanted:
            if read.loop_of[self.program.producer[v]] == k:
                row, result = self._row(v)
                if (row, result) in last:
                    x = last[row, result]
                else:
                    x = self._stack(_present(self._in_stack(k, row, result)), 1)[0]
                self._values[v] = _typed(x, self.program.avals[v])

    def _aval(self, k: int, value: Result | Stack) -> Aval:
        """The type of a value of a repeat."""
        avals = self.program.avals
        if isinstance(value, Result):
            return avals[self.read.value(k, value)]
        if isinstance(value, Elements):
            return avals[self.read.value(value.loop, value.value)]
        if isinstance(value, ArrayRows):
            aval = avals[value.array]
            return shaped_array(aval.shape[1:], aval.dtype, weak_type=_is_weak(aval))
        return avals[value[0]]


class _Repeat:
    """The body of a loop: a function of ``constants``, of ``arrays`` of which it reads an element in each
    repeat, what is carried, and what a repeat reads, or at which place of an array.

    ``avals``: of its operands, but for constants and arrays.
    """

    def __init__(self, writer: _LoopWriter, k: int, arrays: Iterable[Elements]) -> None:
        self._writer, self._k, self._arrays = writer, k, list(arrays)
        self._plan = writer._plans[k]
        read = self._read = writer.read
        self.constants: dict[int, int] = {}
        used: list[tuple[int, Iterable[int], Container[int]]] = [
            (k, range(read.loops[k].period), read.rows[k])
        ]
        used += [(again.loop, again.equations, again.rows) for again in self._plan.again]
        for loop, equations, rows in used:
            for at in equations:
                if at not in rows:
                    for c in read.columns(loop, at):
                        v = read.origins[loop][c]
                        if isinstance(v, int) and not self._is_fixed(v):
                            self.constants.setdefault(v, len(self.constants))
        self.avals = []
        for line in self._plan.lines:
            aval = struct_of(writer._aval(k, line.source))
            self.avals += [aval] * len(line.initial)
        for stack in self._plan.stacks:
            is_place = isinstance(stack, Elements) and stack in arrays
            self.avals.append(struct_of(PLACE if is_place else writer._aval(k, stack)))

    def _is_fixed(self, v: int) -> bool:
        """Whether it is a number, or an array of NumPy, that can stand in the body."""
        source = self._writer.program.sources.get(v)
        return source is not None and not isinstance(
            self._writer._value(v), (jax.Array, jax.core.Tracer)
        )

    def run(self, *values: Array) -> list[Array]:
        """One repeat; traced once."""
        read, plan, k = self._read, self._plan, self._k
        rest = iter(values)
        constants = {v: next(rest) for v in self.constants}
        arrays = {e: next(rest) for e in self._arrays}
        carried = [[next(rest) for _ in line.initial] for line in plan.lines]
        stacks: dict[Stack, Array] = {}
        for stack, x in zip(plan.stacks, rest, strict=True):
            if isinstance(stack, Elements) and stack in arrays:
                x = jax.lax.dynamic_index_in_dim(arrays[stack], x, 0, keepdims=False)
            stacks[stack] = _typed(x, self._writer._aval(k, stack))
        results: dict[Result, Array] = {}
        before = {}
        for line, latest in zip(plan.lines, carried, strict=True):
            for back, x in enumerate(latest, 1):
                if isinstance(line.source, Result):
                    results[line.source._replace(entry=back, carry=line.number)] = x
                else:
                    before[line.source, back] = _typed(x, self._writer._aval(k, line.source))
        stacks.update({s: before[delay] for s, delay in plan.delayed.items()})
        computed: list[dict[Result, Array]] = []

        def many(column: Stack) -> Array:
            source: Stack | tuple[int, Result] = column
            if not isinstance(column, (Elements, ArrayRows)):
                source = plan.read.get(column, column)
            if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], Result):
                return computed[source[0]][source[1]]
            return stacks[source]

        def run(
            loop: int,
            equations: Iterable[int],
            results: dict[Result, Array],
            rows: Mapping[int, Stack],
            column: Callable[[Values], Values],
        ) -> None:
            for at in equations:
                eqn = read.equation(loop, at)
                if at in rows:
                    results[Result(at, 0)] = jnp.expand_dims(stacks[rows[at]], 0)
                    continue
                operands = []
                for c in read.columns(loop, at):
                    origin = read.origins[loop][c]
                    if isinstance(origin, Result):
                        aval = read.program.avals[read.value(loop, origin)]
                        operands.append(_typed(results[origin], aval))
                    elif isinstance(origin, int):
                        constant = constants.get(origin)
                        operands.append(
                            self._writer._value(origin) if constant is None else constant
                        )
                    else:
                        operands.append(many(column(origin)))
                outs = _evaluate(eqn, operands)
                results.update({Result(at, j): x for j, x in enumerate(outs)})

        # Earlier loops come last: a later one reads of them.
        computed += [{r: stacks[e] for r, e in again.stored.items()} for again in plan.again]
        for again, results_of_earlier in reversed(list(zip(plan.again, computed, strict=True))):
            run(
                again.loop,
                again.equations,
                results_of_earlier,
                again.rows,
                again.columns.__getitem__,
            )
        run(k, range(read.loops[k].period), results, read.rows[k], lambda column: column)
        outs: list[Array] = []
        for line, latest in zip(plan.lines, carried, strict=True):
            source = line.source
            outs.append(results[source] if isinstance(source, Result) else many(source))
            outs += latest[:-1]
        outs += [results[result] for result in self._writer._stored[k]]
        return outs


def _evaluate(eqn: JaxEquation, operands: Sequence[PyTree]) -> list[Array]:
    """An equation of a loop, where a slice may be at a place that moves."""
    if eqn.primitive.name != "slice":
        return evaluate_equation(eqn, operands)
    x, *starts = operands
    _, spans, strides = slice_parts(eqn)
    if not any([isinstance(s, jax.core.Tracer) for s in starts]):
        return evaluate_equation(eqn, [x])
    span = jax.lax.dynamic_slice(x, starts, spans)
    return [jax.lax.slice(span, [0] * len(spans), spans, strides)]


def _typed(x: Array, aval: Aval) -> Array:
    """An array as one of the weak type that it has in the program."""
    return as_weak(x) if _is_weak(aval) and not x.weak_type else x


def _is_weak(aval: Aval) -> bool:
    return bool(getattr(aval, "weak_type", False))


T = TypeVar("T")


def _present(x: T | None) -> T:
    assert x is not None
    return x
