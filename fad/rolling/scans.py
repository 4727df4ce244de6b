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
import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence

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
from fad.core.jaxprs import inner_jaxprs, is_ref, jaxpr_key, trace, with_programs
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
    ARRAY,
    DEPTH,
    PLACE,
    Elements,
    LoopReads,
    Numbered,
    Origin,
    Result,
    Stack,
    Values,
    find_loops,
    is_column,
    is_free,
    may_repeat,
    size_of,
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
    closed, inner = _with_rolled_bodies(closed)
    eqns = closed.jaxpr.eqns
    # Equations that write to Refs may not change places.
    if may_repeat(eqns) and not any([is_ref(v) for eqn in eqns for v in eqn.invars]):
        program = Numbered(closed)
        loops = find_loops(program)
        if loops:
            writer = _LoopWriter(program, LoopReads(program, loops))
            shorter, _ = trace(writer.run, [struct_of(v.aval) for v in closed.jaxpr.invars])
            if [v.aval for v in shorter.jaxpr.outvars] == [v.aval for v in closed.jaxpr.outvars]:
                return shorter, [*writer.rolled, *inner]
    return closed, inner


# Equations that call programs, or run them in a loop or a branch, and do nothing else to them.
_WITH_BODIES = frozenset(
    """cond custom_jvp_call custom_vjp_call fad_while_curvature fad_while_linear fad_while_loop
    fad_while_pullback jit remat2 scan while""".split()
)


def _with_rolled_bodies(closed: JaxProgram) -> tuple[JaxProgram, list[Rolled]]:
    """A program with rolled programs in its equations, and their loops; the same one, if there are none."""
    loops: list[Rolled] = []
    bodies: dict[JaxBody, JaxBody] = {}
    by_key: dict[Hashable, JaxBody | None] = {}

    def body(jaxpr: JaxBody) -> JaxBody:
        if jaxpr not in bodies:
            key = jaxpr_key(jaxpr) if may_repeat(jaxpr.eqns) else id(jaxpr)
            if key not in by_key:  # equal ones are rolled, and noted, once
                program = ClosedJaxpr(convert_constvars_jaxpr(jaxpr), ())
                shorter, more = rolled(program)
                loops.extend(more)
                by_key[key] = None if shorter is program else _opened(shorter, jaxpr)
            bodies[jaxpr] = by_key[key] or jaxpr
        return bodies[jaxpr]

    changed = {}
    for at, eqn in enumerate(closed.jaxpr.eqns):
        if eqn.primitive.name not in _WITH_BODIES:
            continue
        if not all([body(x) is x for x in inner_jaxprs(eqn)]):
            changed[at] = with_programs(eqn, body)
    if changed:
        eqns = [changed.get(at, eqn) for at, eqn in enumerate(closed.jaxpr.eqns)]
        closed = ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)
    return closed, loops


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


# An equation of a repeat, as its number, and what its operands are.
_Line = tuple[int, JaxEquation, list[Origin]]
_Piece = Elements | int  # a value of before, or many of an earlier loop


class _Plan:
    """How a loop is written.

    ``lines``: the equations of a repeat, each with its number and with what its operands are: first those
    that compute again what an earlier loop has computed, then its own. ``stacks``: what it reads in its
    repeats. ``delayed``: what it has read some repeats before, as what, and how many. ``read``: what operands
    are that an earlier loop has computed: one of the stacks, or computed again. ``carried``: results, and
    what is read, that are carried from repeat to repeat; with what stood there before the loop, the earliest
    first; None: nothing that is read. ``last``: the values that are read one by one after the loop: as what
    they are stored, or what they were so many repeats before the end.
    """

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.stacks: dict[Stack, None] = {}
        self.delayed: dict[Stack, tuple[Stack, int]] = {}
        self.read: dict[Values, Result | Elements] = {}
        self.carried: dict[Result | Stack, list[int | None]] = {}
        self.last: dict[int, Elements | tuple[Result, int]] = {}


class _LoopWriter:
    """Writes a program with its loops as ``scan``."""

    def __init__(self, program: Numbered, read: LoopReads) -> None:
        self.program = program
        self.read = read
        self.rolled: list[Rolled] = []
        self._wanted: set[int] = set(program.outs)  # values that are read one by one
        self._stored: list[dict[Result, None]] = [{} for _ in read.loops]
        for at in np.flatnonzero(read.loop_of[:-1] < 0).tolist():
            self._want(self._operands(at))
        self._plans = [self._plan(k) for k in range(len(read.loops) - 1, -1, -1)][::-1]
        self._stacks: dict[tuple[int, Result], Array] = {}
        # Of the arrays of a loop: where the first repeat stands, and how far it is to the next.
        self._orders = {ARRAY: (0, 1)}

    # What is read

    def _operands(self, at: int) -> list[_Piece]:
        """What an equation outside of loops reads; where it joins many values, those of a loop together."""
        program = self.program
        operands = program.operands[program.at[at] : program.at[at + 1]].tolist()
        joins = program.eqns[at].primitive.name in ("concatenate", "stack")
        return self._pieces(operands) if joins and len(operands) >= _MANY else operands

    def _want(self, pieces: Iterable[_Piece]) -> None:
        for piece in pieces:
            if not isinstance(piece, Elements):
                self._wanted.add(piece)
            elif piece.loop == ARRAY:
                self._wanted.add(piece.value.equation)
            else:
                self._stored[piece.loop].setdefault(piece.value)

    def _pieces(self, values: Sequence[int]) -> list[_Piece]:
        """Values in order, together as far as they are those of a loop."""
        producer = self.program.producer[np.array(values)]
        of, strides = self.read.loop_of[producer], np.diff(producer)
        pieces: list[_Piece] = []
        a = 0
        while a < len(values):
            b = a + 1
            while b < len(values) and of[b] == of[a] >= 0 and strides[b - 1] == strides[a]:
                b += 1
            elements = self.read.all_elements(values[a:b])
            pieces.append(values[a] if elements is None else elements)
            a = a + 1 if elements is None else b
        return pieces

    def _plan(self, k: int) -> _Plan:
        """How a loop is written, once it is clear what is read of it."""
        plan, read = _Plan(), self.read
        rest: dict[tuple[int, int, int], dict[Values, Elements]] = collections.defaultdict(dict)

        def take(lines: Sequence[_Line]) -> None:
            """Put equations before those of the plan. What they read of earlier loops is decided later."""
            plan.lines[:0] = lines
            for origin in [x for _, _, origins in lines for x in origins]:
                if isinstance(origin, int):
                    self._wanted.add(origin)
                elif not isinstance(origin, Result) and origin not in plan.read:
                    elements = None if isinstance(origin, Elements) else read.all_elements(origin)
                    if elements is None:
                        plan.stacks.setdefault(origin)
                    else:
                        group = elements.loop, elements.first, elements.step
                        rest[group][read.values(origin)] = elements

        take([(at, read.equation(k, at), x) for at, x in enumerate(read.origins[k])])
        while rest:  # the latest loop first: it reads of earlier ones
            group = max(rest, key=lambda group: group[0])
            take(self._computed_again(plan, rest.pop(group)))
        self._carry(k, plan)
        self._ask_last(k, plan)
        return plan

    def _computed_again(self, plan: _Plan, wanted: dict[Values, Elements]) -> list[_Line]:
        """The equations that compute values of an earlier loop again, of the same repeats of it; of values
        that it stores, and of what these repeats read themselves.
        """
        read = self.read
        k, _, first, step, count = next(iter(wanted.values()))
        stacked = [e.value for e in plan.stacks if isinstance(e, Elements) and e.loop == k]
        values = [e.value for e in wanted.values()]
        stored = read.stored(k, values, [*self._stored[k], *stacked])
        offset = 1 + max([number for number, _, _ in plan.lines])
        leaves: dict[Result, Elements] = {}
        equations: set[int] = set()
        while values:
            r = values.pop()
            if r in stored:
                elements = Elements(k, r, first, step, count)
                leaves[r] = read.all_elements(read.values(elements)) or elements
            elif r.equation not in equations:
                equations.add(r.equation)
                values += read.inputs(k, r) or ()
        plan.stacks.update(dict.fromkeys(leaves.values()))

        def again(result: Result) -> Result | Elements:
            return leaves.get(result) or result._replace(equation=offset + result.equation)

        def here(origin: Origin) -> Origin:
            """What an operand of the earlier loop is in this one."""
            if isinstance(origin, Elements):
                return origin.among(first, step, count)
            if is_column(origin):
                return tuple([origin[first + step * i] for i in range(count)])
            return again(origin) if isinstance(origin, Result) else origin

        plan.read.update({column: again(e.value) for column, e in wanted.items()})
        return [
            (offset + at, read.equation(k, at), [here(x) for x in read.origins[k][at]])
            for at in sorted(equations)
        ]

    def _carry(self, k: int, plan: _Plan) -> None:
        """Decide what is carried, of results and of what is read; store what is read."""
        read = self.read
        plan.carried.update({r: list(initial) for r, initial in read.carries[k].items()})
        columns = {read.values(s): s for s in plan.stacks if s[0] != ARRAY}  # no value is that
        for column, (lead, repeats) in read.delayed(columns).items():
            late, source = columns[column], columns[lead]
            if isinstance(late, Elements) and late[:2] == source[:2]:
                continue  # both are read in one array
            del plan.stacks[late]
            plan.delayed[late] = source, repeats
            if repeats > len(plan.carried.get(source, ())):
                plan.carried[source] = [*column[:repeats]]
        self._wanted.update([v for x in plan.carried.values() for v in x if v is not None])
        for stack in plan.stacks:
            self._want([stack] if isinstance(stack, Elements) else self._pieces(stack))

    def _ask_last(self, k: int, plan: _Plan) -> None:
        """Store or carry out the values that are read one by one after the loop."""
        loop, program, stored = self.read.loops[k], self.program, self._stored[k]
        for v in sorted(self._wanted):
            at = int(program.producer[v])
            if self.read.loop_of[at] != k:
                continue
            row, equation = divmod(at - loop.start, loop.period)
            result = Result(equation, int(program.place[v]))
            initial = plan.carried.get(result, [])
            back = loop.count - row
            # As it is computed, or as it enters a later repeat.
            forms = [r for r in stored if r[:2] == result[:2] and r.entry < back]
            if back <= len(initial):
                forms = []
            elif not forms and (back > DEPTH or is_extended(program.avals[v].dtype)):
                stored.setdefault(result)
                forms = [result]
            elif not forms:
                plan.carried[result] = [*[None] * (back - len(initial)), *initial]
            plan.last[v] = result, back
            if forms:
                plan.last[v] = Elements(k, forms[0], row + forms[0].entry, 1, 1)

    # Writing

    def run(self, *inputs: Array) -> list[Array]:
        """The program; traced once."""
        program, loops = self.program, self.read.loops
        self._values = program.fixed | dict(zip(program.inputs, inputs, strict=True))
        for at, (eqn, k) in enumerate(zip(program.eqns, self.read.loop_of.tolist(), strict=False)):
            if k >= 0:
                if at == loops[k].start:
                    self._loop(k)
                continue
            operands = self._operands(at)
            if any([isinstance(x, Elements) for x in operands]):
                (axis,) = parameters(eqn)
                stacks = eqn.primitive.name == "stack"
                outs = [self._joined(operands, axis, stacks=stacks)]
            else:
                outs = _evaluate(eqn, [self._values[v] for v in operands if isinstance(v, int)])
            self._values.update(enumerate(outs, program.first[at]))
        return [self._array(v) for v in program.outs]

    def _array(self, v: int) -> Array:
        """A value of before, as an array of its type."""
        x, aval = self._values[v], self.program.avals[v]
        return x if isinstance(x, jax.Array) else _typed(jnp.asarray(x, aval.dtype), aval)

    def _joined(
        self, pieces: Iterable[_Piece], axis: int, direction: int = 1, stacks: bool = True
    ) -> Array:
        """Values as one array, stacked or concatenated: those of loops are one already."""
        parts = []
        for piece in pieces:
            if isinstance(piece, Elements):
                x = jnp.moveaxis(self._stack(piece, direction), 0, axis)
                parts.append(x if stacks else jax.lax.collapse(x, axis, axis + 2))
            else:
                x = self._array(piece)
                parts.append(jnp.expand_dims(x, axis) if stacks else x)
        return jax.lax.concatenate(parts, axis) if len(parts) > 1 else parts[0]

    def _stack(self, stack: Stack, direction: int) -> Array:
        """What a loop reads in its repeats: an array, in their order or (-1) backwards."""
        if isinstance(stack, Elements):
            x = self._whole(stack)
            places = self._places(stack)[::direction]
            low, high = sorted((int(places[0]), int(places[-1])))
            x = x if high - low + 1 == len(x) else x[low : high + 1]
            return x if places[0] == low else jnp.flip(x, 0)
        constants = [self.program.fixed.get(v) for v in stack[::direction]]
        if all([x is not None and is_free(x) for x in constants]):
            whole = np.stack(list(map(np.asarray, constants)))
            return jnp.asarray(whole, self.program.avals[stack[0]].dtype)
        return self._joined(self._pieces(stack)[::direction], 0, direction)

    def _whole(self, elements: Elements) -> Array:
        """The array that elements are in."""
        if elements.loop == ARRAY:
            return self._array(elements.value.equation)
        return self._stacks[elements.loop, elements.value]

    def _places(self, elements: Elements) -> NumpyArray:
        """At which places of their array they stand."""
        first, step = self._orders[elements.loop]
        rows = elements.first + elements.step * np.arange(elements.length, dtype=np.int32)
        return first + step * rows

    def _loop(self, k: int) -> None:
        """Write a loop."""
        plan, loop = self._plans[k], self.read.loops[k]
        # The repeats go through most of what they read forwards (1) or backwards (-1).
        read = [s for s in plan.stacks if isinstance(s, Elements)]
        votes = [self._orders[e.loop][1] * e.step * size_of(self._aval(e)) for e in read]
        direction = 1 if sum(votes) >= 0 else -1
        self._orders[k] = (0, 1) if direction > 0 else (loop.count - 1, -1)
        arrays: dict[Stack, Array] = {}  # of which a repeat reads an element at a place
        xs, avals = [], []
        initial: list[Array] = []
        for source, before in plan.carried.items():
            aval = self._aval(source, k)
            avals += [aval] * len(before)
            initial += [
                jnp.zeros(aval.shape, aval.dtype) if v is None else self._array(v)
                for v in reversed(before)
            ]
        for stack in plan.stacks:
            if isinstance(stack, Elements):
                whole = self._whole(stack)
                turned = self._orders[stack.loop][1] * stack.step != direction
                if len(whole) != stack.length or (turned and stack.loop != ARRAY):
                    arrays[stack] = whole
                    avals.append(PLACE)
                    xs.append(jnp.asarray(self._places(stack)[::direction]))
                    continue
            avals.append(self._aval(stack))
            xs.append(self._stack(stack, direction))
        closed, _ = trace(functools.partial(self._repeat, k, arrays), map(struct_of, avals))
        closed, inner = rolled(closed)
        count = len(initial)

        def step(carry: Sequence[Array], x: Sequence[Array]) -> tuple[list[Array], list[Array]]:
            outs = run_jaxpr(closed, *carry, *x)
            return outs[:count], outs[count:]

        final, ys = jax.lax.scan(step, initial, xs, loop.count, reverse=direction < 0)
        self.rolled += [Rolled(loop.count, loop.period), *inner]
        self._stacks.update(zip([(k, r) for r in self._stored[k]], ys, strict=True))
        ends = iter(final)
        last = {
            (source, back): next(ends)
            for source, before in plan.carried.items()
            for back in range(1, len(before) + 1)
        }
        for v, at in plan.last.items():
            x = self._stack(at, 1)[0] if isinstance(at, Elements) else last[at]
            self._values[v] = _typed(x, self.program.avals[v])

    def _aval(self, value: Result | Stack, k: int = ARRAY) -> Aval:
        """The type of a value of a repeat: a result of this loop, or what it reads."""
        avals = self.program.avals
        if isinstance(value, Elements):
            k, value = value[:2]
        if not isinstance(value, Result):
            return avals[value[0]]
        if k != ARRAY:
            return avals[self.read.value(k, value)]
        aval = avals[value.equation]
        return shaped_array(aval.shape[1:], aval.dtype, weak_type=_is_weak(aval))

    def _repeat(self, k: int, arrays: Mapping[Stack, Array], *values: Array) -> list[Array]:
        """One repeat of a loop, of what is carried, and of what it reads, or at which place of an array;
        traced once.
        """
        plan = self._plans[k]
        results: dict[Result, Array] = {}
        stacks: dict[Stack, Array] = {}
        rest = iter(values)
        carried = {s: [next(rest) for _ in before] for s, before in plan.carried.items()}
        for source, latest in carried.items():
            if isinstance(source, Result):
                for back, x in enumerate(latest, 1):
                    results[source._replace(entry=back)] = x
        for stack, x in zip(plan.stacks, rest, strict=True):
            if stack in arrays:
                x = jax.lax.dynamic_index_in_dim(arrays[stack], x, 0, keepdims=False)
            stacks[stack] = _typed(x, self._aval(stack))
        for late, (source, back) in plan.delayed.items():
            stacks[late] = carried[source][back - 1]

        def value(origin: Origin) -> PyTree:
            if isinstance(origin, int):
                return self._values[origin]
            if is_column(origin):
                origin = plan.read.get(origin, origin)
            return results[origin] if isinstance(origin, Result) else stacks[origin]

        for number, eqn, origins in plan.lines:
            outs = _evaluate(eqn, list(map(value, origins)))
            results.update({Result(number, j): x for j, x in enumerate(outs)})
        outs = []
        for source, latest in carried.items():
            now = source._replace(carry=0) if isinstance(source, Result) else source
            outs += [value(now), *latest[:-1]]
        return [*outs, *map(value, self._stored[k])]


def _evaluate(eqn: JaxEquation, operands: Sequence[PyTree]) -> list[Array]:
    """An equation, of which a slice has its places as operands, which may move; or a row that was read."""
    if eqn.primitive.name != "slice":
        return evaluate_equation(eqn, operands)
    x, *starts = operands
    _, spans, strides = slice_parts(eqn)
    if np.ndim(x) < len(spans):
        return [jnp.expand_dims(x, 0)]
    if not any([isinstance(s, jax.core.Tracer) for s in starts]):
        return evaluate_equation(eqn, [x])
    span = jax.lax.dynamic_slice(x, starts, spans)
    return [jax.lax.slice(span, [0] * len(spans), spans, strides)]


def _typed(x: Array, aval: Aval) -> Array:
    """An array as one of the weak type that it has in the program."""
    return as_weak(x) if _is_weak(aval) and not x.weak_type else x


def _is_weak(aval: Aval) -> bool:
    return getattr(aval, "weak_type", False)
