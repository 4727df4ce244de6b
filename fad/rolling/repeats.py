"""The loops in a program: stretches of equations that repeat, where operands come from, what is read."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from fad.core.jaxapi import Literal, is_extended, shaped_array, slice_parts
from fad.core.jaxprs import ELEMENTWISE, bits, inner_jaxprs, is_ref, parameters_key
from fad.core.types import Atom, Aval, JaxEquation, JaxProgram, NumpyArray, PyTree

# What pays, in one place: a loop is rolled that repeats so often, and so saves so many equations.
REPEATS = 8
SAVED = 100
# What a loop saves at least that reads values of another one in each repeat, or is read so.
_PART = 24

_SMALL = 1024  # constants with at most so many elements are compared by value
_SHARED = 4  # an equation of inputs alone that comes so often is computed before all loops
_PERIODS = 48  # candidates that are looked at, for each length of the words that are compared
_ENDS = 3  # so many repeats at each end may be left out, so that loops fit each other
DEPTH = 8  # a value is carried for at most so many repeats, where it could be stored

PLACE: Aval = shaped_array((), np.dtype(np.int32))  # of a place of a slice

_Ints = NumpyArray  # of integers


class Source(NamedTuple):
    """A value that no equation computes: the constant or input with this number, or a literal."""

    kind: str  # "constant", "input" or "literal"
    value: PyTree


class Numbered:
    """A program in numbers: equal operations have equal numbers, and each value has one.

    Equal operations on equal operands are one, what nothing needs is dropped, and what many share that
    depends on inputs alone stands first.

    ``eqns``, ``kinds``: the equations, and what each of them does. ``at``: where the operands of each one
    begin in ``operands``, which are values. The places of a ``slice`` are operands too.
    ``first``: the first result of each equation, the others follow. ``outs``: the results of the program.
    ``producer``, ``place``: of a value, the equation that computes it (-1: none), and which result it is.
    ``sources``: what the values are that no equation computes. ``avals``: of each value.
    """

    def __init__(self, closed: JaxProgram) -> None:
        jaxpr = closed.jaxpr
        self._numbers: dict[Hashable, int] = {}
        self.sources: dict[int, Source] = {}
        self.avals: list[Aval] = []
        values: dict[Atom, int] = {}
        for k, (v, c) in enumerate(zip(jaxpr.constvars, closed.consts, strict=True)):
            key: Hashable = ("constant", id(c))
            if is_free(c) and np.size(c) <= _SMALL:
                key = ("constant", *bits(np.asarray(c)))
            values[v] = self._source(key, Source("constant", k), v.aval)
        for k, v in enumerate(jaxpr.invars):
            values[v] = self._source(("input", k), Source("input", k), v.aval)
        self._read(jaxpr.eqns, values)
        self.outs = [self._value(v, values) for v in jaxpr.outvars]
        self._order()

    def _source(self, key: Hashable, source: Source, aval: Aval) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.avals)
            self.avals.append(aval)
            self.sources[number] = source
        return number

    def _value(self, v: Atom, values: dict[Atom, int]) -> int:
        if not isinstance(v, Literal):
            return values[v]
        x = np.asarray(v.val)
        return self._source((v.aval, x.dtype, x.tobytes()), Source("literal", v.val), v.aval)

    def _number(self, x: int) -> int:
        """The value of a place."""
        return self._source(("place", x), Source("literal", np.int32(x)), PLACE)

    def _read(self, eqns: Sequence[JaxEquation], values: dict[Atom, int]) -> None:
        """Number the equations, of equal ones on equal operands the first."""
        kinds: dict[Hashable, int] = {}
        parameter_keys: dict[int, Hashable] = {}
        avals: dict[Aval, int] = {}
        by_id: dict[int, int] = {}  # the numbers of avals
        same: dict[Hashable, int] = {}
        self._lines: list[tuple[JaxEquation, int, tuple[int, ...], int]] = []
        self._hits: list[int] = []

        def number_of(aval: Aval) -> int:
            number = by_id.get(id(aval))
            if number is None:
                number = by_id[id(aval)] = avals.setdefault(aval, len(avals))
            return number

        for eqn in eqns:
            operands = []
            parts: list[Hashable] = []
            for v in eqn.invars:
                operands.append(self._value(v, values))
                parts.append(number_of(v.aval))
            moving = slice_parts(eqn) if eqn.primitive.name == "slice" else None
            if moving is not None:
                starts, *lengths = moving
                operands += map(self._number, starts)
                key: Hashable = (eqn.primitive, tuple(map(tuple, lengths)), *parts)
            elif eqn.effects:
                key = ("alone", len(kinds))
            else:
                key = (eqn.primitive, id(eqn.ctx), parameters_key(eqn, parameter_keys), *parts)
            kind = kinds.setdefault(key, len(kinds))
            line = (kind, *operands)
            earlier = same.get(line)
            if earlier is None:
                first = len(self.avals)
                self.avals += [v.aval for v in eqn.outvars]
                same[line] = len(self._lines)
                self._lines.append((eqn, kind, line[1:], first))
                self._hits.append(0)
            else:
                self._hits[earlier] += 1
                first = self._lines[earlier][3]
            for k, v in enumerate(eqn.outvars):
                values[v] = first + k

    def _order(self) -> None:
        """Drop what nothing needs, and put what is shared first."""
        lines = self._lines
        made = np.full(len(self.avals), -1)
        for k, (eqn, _, _, first) in enumerate(lines):
            made[first : first + len(eqn.outvars)] = k
        needed = bytearray(len(lines))
        for v in self.outs:
            if made[v] >= 0:
                needed[made[v]] = 1
        producer = made.tolist()
        for k in range(len(lines) - 1, -1, -1):
            eqn, _, operands, _ = lines[k]
            if needed[k] or eqn.effects:
                needed[k] = 1
                for v in operands:
                    if producer[v] >= 0:
                        needed[producer[v]] = 1
        shared = bytearray(len(lines))
        for k, (eqn, _, operands, _) in enumerate(lines):
            if self._hits[k] >= _SHARED and not eqn.effects:
                shared[k] = all([producer[v] < 0 or shared[producer[v]] for v in operands])
        order = [k for k in range(len(lines)) if needed[k] and shared[k]]
        order += [k for k in range(len(lines)) if needed[k] and not shared[k]]
        kept = [lines[k] for k in order]
        self.eqns = [line[0] for line in kept]
        self.kinds = np.array([line[1] for line in kept], np.int64)
        counts = [len(line[2]) for line in kept]
        self.at = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.operands = np.array([v for line in kept for v in line[2]], np.int64)
        self.first = [line[3] for line in kept]
        self.producer = np.full(len(self.avals), -1)
        self.place = np.zeros(len(self.avals), np.int64)
        for k, (eqn, _, _, first) in enumerate(kept):
            count = len(eqn.outvars)
            self.producer[first : first + count] = k
            self.place[first : first + count] = range(count)
        self.owner = np.repeat(np.arange(len(kept)), counts)

    def size(self, value: int) -> int:
        """How many bytes a value has; of what has no such number, a random key for example, its elements."""
        aval = self.avals[value]
        return int(np.prod(aval.shape)) * getattr(aval.dtype, "itemsize", 8)


@dataclasses.dataclass
class PythonLoop:
    """A stretch of equations that repeats: ``count`` times ``period`` of them, from ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count

    @property
    def saved(self) -> int:
        """How many equations less the program has with it as a loop."""
        return self.period * (self.count - 1)


def is_free(x: object) -> bool:
    """Whether a value is a number or an array that can be read here, and may be put on any device."""
    if not isinstance(x, jax.Array):
        return True
    if isinstance(x, jax.core.Tracer) or is_extended(x.dtype):
        return False
    return x.is_fully_addressable and not x.committed


def has_refs(closed: JaxProgram) -> bool:
    """Whether a program writes to Refs, so that its equations may not change places."""
    return any([is_ref(v) for eqn in closed.jaxpr.eqns for v in eqn.invars]) or any(
        map(is_ref, closed.jaxpr.invars)
    )


# Where kinds repeat


def may_repeat(eqns: Sequence[JaxEquation]) -> bool:
    """Whether there may be a loop: a quick look at primitives and shapes alone.

    In a loop that saves enough, most words of half as many equations come again a period later.
    """
    if len(eqns) < SAVED:
        return False
    shapes = [getattr(e.outvars[0].aval, "shape", ()) if e.outvars else () for e in eqns]
    primitives = [e.primitive for e in eqns]
    codes = np.array(list(map(hash, zip(primitives, shapes, strict=True)))).view(np.uint64)
    width = SAVED // 2
    counts = np.bincount(_to_next(_words(codes, width)))
    periods = np.flatnonzero(counts >= width // 2)
    often = counts[periods] >= (REPEATS - 1) * periods // 2 - width
    return any([_repeats(codes, period) for period in periods[often].tolist()])


def _repeats(codes: _Ints, period: int) -> bool:
    return any(
        [b - a >= period * (REPEATS - 1) for a, b in _runs(codes[:-period] == codes[period:])]
    )


def _words(codes: _Ints, width: int) -> _Ints:
    """A hash of each word of so many codes, by those of its halves."""
    if width == 1:
        single: _Ints = (codes.astype(np.uint64) + _FACTORS[0]) * _FACTORS[1]
        return single
    half = width // 2
    halves = _words(codes, half)
    count = max(len(codes) - width + 1, 0)
    words: _Ints = halves[:count] * _FACTORS[0] + halves[width - half :][:count]
    words ^= words >> np.uint64(29)
    return words


_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64)


def _to_next(words: _Ints) -> _Ints:
    """How far it is from each word to the next equal one, where there is one."""
    order = np.argsort(words, kind="stable")
    after = words[order]
    distances: _Ints = np.diff(order)[after[1:] == after[:-1]]
    return distances


def _runs(equal: _Ints) -> Iterator[tuple[int, int]]:
    """From where to where ``equal`` holds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], equal.astype(np.int8), [0]])))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def candidates(kinds: _Ints) -> list[tuple[int, int, int]]:
    """(period, first equation, end) of stretches in which kinds repeat, what covers most first."""
    periods: dict[int, None] = {}
    for width in (1, 3, 9, 27, 81, 243):
        distances, counts = np.unique(_to_next(_words(kinds, width)), return_counts=True)
        often = counts >= REPEATS - 1
        distances, counts = distances[often], counts[often]
        order = np.argsort(-counts, kind="stable")
        periods |= dict.fromkeys(distances[order[:_PERIODS]].tolist())
    stretches = []
    for period in periods:
        for a, b in _runs(kinds[:-period] == kinds[period:]):
            if b - a >= period * (REPEATS - 1):
                stretches.append((period, a, b + period))
    return sorted(stretches, key=lambda s: (s[0] + s[1] - s[2], s[0]))


# Where operands come from


def find_loops(program: Numbered) -> list[PythonLoop]:
    """The loops of a program, in its order."""
    if len(program.eqns) < SAVED:
        return []
    taken = np.zeros(len(program.eqns), bool)
    loops: list[PythonLoop] = []
    for period, start, end in candidates(program.kinds):
        if taken[start:end].all():
            continue
        for a, b in list(_runs(~taken[start:end])):
            for several in (1, 2, 3):  # values may take turns
                fitting = _fit(program, several * period, start + a, start + b)
                for loop in fitting:
                    loops.append(loop)
                    taken[loop.start : loop.end] = True
                if fitting:
                    break
    return _that_pay(program, sorted(loops, key=lambda loop: loop.start))


def _that_pay(program: Numbered, loops: list[PythonLoop]) -> list[PythonLoop]:
    """The loops that save enough, and those that read their values or are read by them in each repeat."""
    read = [
        np.unique(program.producer[program.operands[program.at[x.start] : program.at[x.end]]])
        for x in loops
    ]

    def reads(later: int, earlier: int) -> bool:
        low, high = np.searchsorted(read[later], (loops[earlier].start, loops[earlier].end))
        return bool(high - low >= REPEATS) and later != earlier

    pays = {k for k, loop in enumerate(loops) if loop.saved >= SAVED}
    rest = list(pays)
    while rest:
        j = rest.pop()
        more = [k for k in range(len(loops)) if k not in pays and (reads(k, j) or reads(j, k))]
        pays.update(more)
        rest += more
    return [loops[k] for k in sorted(pays)]


def _fit(program: Numbered, period: int, start: int, end: int) -> list[PythonLoop]:
    """The loops in a stretch in which kinds repeat: where operands do so, too."""
    if end - start < REPEATS * period or end - start - period < _PART:
        return []
    bound = _bounds(program, period, start, end)
    owner = program.owner[program.at[start] : program.at[end]]
    # A repeat can be part of a loop that begins where its bounds say, or later.
    middle = start + (end - start) // period // 2 * period
    broken = owner[(owner >= middle) & (bound > middle)]
    last = int(broken[0]) if len(broken) else end
    inside = owner < last
    latest = np.full(last - start + 1, -1)
    np.maximum.at(latest, owner[inside] - start, bound[inside])
    latest = np.maximum.accumulate(latest[::-1])[::-1]
    first = start + int(np.argmax(latest <= start + np.arange(last - start + 1)))
    loops: list[PythonLoop] = []
    if last - first >= REPEATS * period and last - first - period >= _PART:
        cut = _cut(program, period, first, last)
        loops = [PythonLoop(cut, period, (last - cut) // period)]
    elif last - first >= end - start:
        return []
    for a, b in ((start, first), (last, end)):
        if b - a < end - start:
            loops += _fit(program, period, a, b)
    return loops


def _rows(program: Numbered, values: _Ints, period: int, start: int, count: int) -> _Ints:
    """``values``, one for each operand, as a row for each repeat."""
    a, b = program.at[start], program.at[start + count * period]
    return values[a:b].reshape(count, -1)


def _bounds(program: Numbered, period: int, start: int, end: int) -> _Ints:
    """For each operand in a stretch, from which equation on a loop has to begin, if the equation is to be in
    it; one after the equation, if it cannot be.
    """
    count = (end - start) // period
    a, b = int(program.at[start]), int(program.at[end])
    values, owner = program.operands[a:b], program.owner[a:b]
    producer, place = program.producer[values], program.place[values]
    width = int(program.at[start + period]) - a
    if not width:
        return np.zeros(0, np.int64)
    column = np.arange(b - a) % width

    def rows(x: _Ints) -> _Ints:
        return x[: count * width].reshape(count, width)

    # Distances count where the producer is in the stretch.
    code = np.where(producer >= start, (owner - producer) * 64 + np.minimum(place, 63), -1)
    codes, numbers = rows(code), rows(values)
    steady = (codes[1:] == codes[:-1]) & (codes[1:] >= 0) & (numbers[1:] != numbers[:-1])
    carried = steady.sum(0) > (count - 1) // 2
    usual = np.where(carried, np.sort(codes, 0)[count // 2], 0)
    middle = numbers[count // 2]
    differs = numbers != middle
    constant = ~carried & ~differs[2:-2].any(0)
    is_carried, is_constant = carried[column], constant[column]
    distance = (usual // 64)[column]
    from_outside = producer + 1
    bound = from_outside
    bound = np.where(is_constant & (values != middle[column]), owner + 1, bound)
    fits = code == usual[column]
    entering = np.maximum(owner - distance, producer) + 1
    return np.where(is_carried, np.where(fits, 0, entering), bound)


def _cut(program: Numbered, period: int, first: int, last: int) -> int:
    """Where repeats begin so that least is carried from one to the next."""
    count = (last - first) // period - 1
    values = _rows(program, program.operands, period, first, count)[-1]
    owner = _rows(program, program.owner, period, first, count)[-1] - first
    producer = program.producer[values] - first
    lifetimes: dict[tuple[int, int], tuple[int, int]] = {}
    inside = producer >= 0
    for v, to, since in zip(
        values[inside].tolist(), owner[inside].tolist(), producer[inside].tolist(), strict=True
    ):
        key = (since % period, int(program.place[v]))
        lifetimes[key] = max(lifetimes.get(key, (0, 0)), (to - since, program.size(v)))
    cost = np.zeros(2 * period + 1)
    for (at, _), (distance, size) in lifetimes.items():
        rest = distance % period
        cost[at + 1] += size + 1e-3
        cost[at + 1 + rest] -= size + 1e-3
    costs = np.cumsum(cost)
    total = costs[:period] + costs[period : 2 * period]
    rows = (last - first - np.arange(period)) // period
    total[rows < REPEATS] = np.inf
    best = np.lexsort((np.arange(period), -rows, np.round(total, 2)))
    return first + int(best[0])


class Operands(NamedTuple):
    """Where the operands of the equations of one repeat come from, in their order.

    ``values``: a row for each repeat. ``carried``: how many repeats before it is computed; 0: in the same
    one, -1: before the loop. ``equation``, ``result``: by which equation of the repeat, and which result.
    ``constant``: it is the same value in all repeats.
    """

    values: _Ints
    carried: _Ints
    equation: _Ints
    result: _Ints
    constant: _Ints


def operands_of(program: Numbered, loop: PythonLoop) -> Operands | None:
    """Where the operands of a loop come from; None if they do not fit together."""
    values = _rows(program, program.operands, loop.period, loop.start, loop.count)
    owner = _rows(program, program.owner, loop.period, loop.start, loop.count)
    producer = program.producer[values]
    inside = producer >= loop.start
    last = producer[-1]
    distance = np.where(inside[-1], owner[-1] - last, 0)
    equation = (owner[0] - loop.start - distance) % loop.period
    carried = np.where(inside[-1], -((owner[0] - loop.start - distance) // loop.period), -1)
    result = program.place[values[-1]]
    regular = np.where(
        inside,
        (owner - producer == distance) & (program.place[values] == result) & inside[-1],
        np.arange(loop.count)[:, None] < np.where(carried < 0, loop.count, carried),
    )
    if not regular.all():
        return None
    return Operands(values, carried, equation, result, (values == values[0]).all(0) & ~inside[-1])


# What the loops of a program read of each other, and what of that is stored.

_LARGE = 2000  # equations in a repeat of which all that is read later is stored

# What is computed again in a later loop, rather than stored for all repeats.
_COSTLY = """acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh device_put digamma
    erf erf_inv erfc exp exp2 expm1 fad_unrecorded igamma igammac lgamma log log1p logistic polygamma
    polynomial pow sin sinh tan tanh zeta""".split()
_CHEAP = (ELEMENTWISE - frozenset(_COSTLY)) | frozenset(
    """broadcast_in_dim concatenate dynamic_slice iota pad reshape rev select_n slice squeeze
    transpose""".split()
)


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
    length: int


class ArrayRows(NamedTuple):
    """All rows of an array, in their order or (-1) backwards."""

    array: int
    step: int


# Where an operand of a repeat comes from: a value of the repeat, one of before the loop, or one of many.
Values = tuple[int, ...]
Origin = Result | int | Values
# What a loop reads in its repeats, one after the other.
Stack = Elements | ArrayRows | Values
_Capacity = dict[Hashable, dict[Hashable, float]]  # of the edges of a graph


class LoopReads:
    """The loops of a program, and what they read of each other.

    ``loops``; for each of them ``origins``: where each operand of its first repeat comes from, ``carries``,
    and ``rows``: its equations that are the rows of an array, one in each repeat.
    """

    def __init__(self, program: Numbered, loops: Sequence[PythonLoop]) -> None:
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
        self.origins: list[list[Origin]] = []
        self.carries: list[list[Carry]] = []
        self.rows: list[dict[int, ArrayRows]] = []
        for loop in self.loops:
            operands = operands_of(program, loop)
            assert operands is not None
            origins, carries = _origins(operands)
            self.origins.append(origins)
            self.carries.append(carries)
            self.rows.append(self._rows(loop, origins))

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

    def value_at(self, k: int, result: Result, repeat: int) -> int:
        """A value of any repeat; of a negative one, what stood there before the loop."""
        if repeat < 0:
            carry = self.carry(k, result)
            assert carry is not None
            return carry.initial[repeat]
        loop = self.loops[k]
        return (
            self.program.first[loop.start + repeat * loop.period + result.equation] + result.place
        )

    def carry(self, k: int, result: Result) -> Carry | None:
        """The carry of a result, if there is one."""
        for carry in self.carries[k]:
            if carry[:3] == (result.equation, result.place, result.carry):
                return carry
        return None

    def _rows(self, loop: PythonLoop, origins: Sequence[Origin]) -> dict[int, ArrayRows]:
        rows = {}
        program = self.program
        begin = program.at[loop.start]
        for at in range(loop.period):
            eqn = program.eqns[loop.start + at]
            if eqn.primitive.name != "slice":
                continue
            array, first = origins[program.at[loop.start + at] - begin :][:2]
            if isinstance(array, int) and type(first) is tuple:
                places = [program.sources[v].value for v in first]
                shape = eqn.invars[0].aval.shape
                step = int(np.sign(places[-1] - places[0]))
                _, spans, _ = slice_parts(eqn)
                if tuple(spans) == (1, *shape[1:]) and places[::step] == list(range(shape[0])):
                    rows[at] = ArrayRows(array, step)
        return rows

    def elements(self, values: Sequence[int]) -> tuple[Elements, NumpyArray] | None:
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
            for i in np.flatnonzero((rows < 0) & (rows >= -len(carry.initial))).tolist():
                fits[i] = values[i] == carry.initial[rows[i]]
        rows_that_fit = rows[fits]
        entry = max(0, -int(rows_that_fit.min()))
        if not entry and carry is not None and rows_that_fit.max() + 1 < loop.count:
            entry = 1
        if rows_that_fit.max() + entry >= loop.count:
            return None
        value = value._replace(entry=entry)
        return Elements(k, value, int(rows[0]) + entry, step, len(values)), fits

    def all_elements(self, values: Sequence[int]) -> Elements | None:
        """Values that are all those of an earlier loop."""
        part = self.elements(values)
        return part[0] if part is not None and part[1].all() else None

    def values(self, elements: Elements) -> Values:
        """Their values, as `elements` takes them."""
        k, result, first, step, length = elements
        first -= result.entry
        return tuple([self.value_at(k, result, first + step * i) for i in range(length)])

    def delayed(self, columns: Iterable[Values]) -> dict[Values, tuple[Values, int]]:
        """Which columns are what a loop has read in another one some repeats before, and how many."""
        columns = list(columns)
        leads = {c[:2]: c for c in columns if self.all_elements(c)}
        late = {}
        for c in columns:
            for repeats in range(1, min(DEPTH, len(c) - 2) + 1):
                lead = leads.get(c[repeats : repeats + 2])
                if lead is not None and c[repeats:] == lead[:-repeats]:
                    late[c] = lead, repeats
                    break
        return late

    # Loops fit each other

    def _varying(self, k: int) -> list[Values]:
        """What a loop reads that is another value in each repeat, but for what it has read before."""
        columns = [x for x in dict.fromkeys(self.origins[k]) if type(x) is tuple]
        late = self.delayed(columns)
        return [x for x in columns if x not in late]

    def _fit_ends(self) -> None:
        """Leave out repeats at the ends, so that a loop reads all repeats of the one that it reads."""
        for k in range(len(self.loops)):
            low, high = 0, self.loops[k].count
            for column in self._varying(k):
                part = self.elements(column)
                if part is not None:
                    other = np.flatnonzero(~part[1])
                    middle = len(column) // 2
                    low = max(low, max(other[other < middle] + 1, default=0))
                    high = min(high, min(other[other >= middle], default=high))
            self._narrow(k, int(low), int(high))
        for k in range(len(self.loops) - 1, -1, -1):
            rows = []
            for later in range(k + 1, len(self.loops)):
                for e in map(self.all_elements, self._varying(later)):
                    if e is not None and e.loop == k:
                        rows += [e.first, e.first + e.step * (e.length - 1)]
            if rows:
                self._narrow(k, min(rows), max(rows) + 1)

    def _narrow(self, k: int, low: int, high: int) -> None:
        loop = self.loops[k]
        if (low, high) != (0, loop.count) and low <= _ENDS and loop.count - high <= _ENDS:
            self.loops[k] = PythonLoop(loop.start + low * loop.period, loop.period, high - low)
            self._survey()

    # What is stored

    def inputs(self, k: int, result: Result) -> list[Result] | None:
        """What a value of a repeat is computed of, where it can be computed again; else None."""
        if result.entry or not _is_cheap(self.equation(k, result.equation)):
            return None
        columns = [self.origins[k][c] for c in self.columns(k, result.equation)]
        return [x for x in columns if isinstance(x, Result)]

    def stored(self, k: int, wanted: Iterable[Result], kept: Iterable[Result]) -> set[Result]:
        """Which values to store, of each repeat, so that the ``wanted`` ones can be computed again: as few
        bytes as possible, beside those that are ``kept`` in any case. What is wanted of a repeat before is
        stored in any case, and with it the value of the repeat (`delayed`).

        It is the minimal cut between what is wanted and what cannot be computed again.
        """
        wanted, kept = list(wanted), set(kept)
        entering = {r[:2] for r in wanted if r.entry}
        if self.loops[k].period > _LARGE:
            return set(wanted)
        capacity: _Capacity = collections.defaultdict(dict)
        seen: set[Result] = set()
        rest = list(wanted)
        while rest:
            r = rest.pop()
            if r in seen:
                continue
            seen.add(r)
            free = r in kept or (r[:2] in entering and not r.entry)
            size = 0 if free else self.program.size(self.value(k, r)) + 1e-3
            capacity[r, 0][r, 1] = size
            inputs = self.inputs(k, r)
            for x in ["end"] if inputs is None else [(i, 0) for i in inputs]:
                capacity[r, 1][x] = np.inf
            rest += inputs or ()
        capacity["begin"] = dict.fromkeys([(r, 0) for r in wanted], np.inf)
        reached = _maximal_flow(capacity, "begin", "end")
        return {r for r in seen if (r, 0) in reached and (r, 1) not in reached}


def _origins(operands: Operands) -> tuple[list[Origin], list[Carry]]:
    """Where the operands of a repeat come from, and what is carried for that."""
    origins: list[Origin] = []
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
            several = carries.setdefault((at, place), [])
            for number, carry in enumerate(several):
                short, long = sorted((initial, carry.initial), key=len)
                if long[len(long) - len(short) :] == short:
                    several[number] = carry._replace(initial=long)
                    break
            else:
                number = len(several)
                several.append(Carry(at, place, number, initial))
        origins.append(Result(at, place, depth, number))
    return origins, [carry for several in carries.values() for carry in several]


def _is_cheap(eqn: JaxEquation) -> bool:
    """Whether what an equation computes is computed again rather than stored."""
    inner = list(inner_jaxprs(eqn))
    if not inner:
        return eqn.primitive.name in _CHEAP
    return eqn.primitive.name in ("jit", "custom_jvp_call") and all(
        [_is_cheap(e) for jaxpr in inner for e in jaxpr.eqns]
    )


def _maximal_flow(capacity: _Capacity, begin: Hashable, end: Hashable) -> set[Hashable]:
    """What can be reached from ``begin`` once as much flows as can (Edmonds and Karp 1972)."""
    while True:
        before: dict[Hashable, Hashable] = {begin: begin}
        rest: collections.deque[Hashable] = collections.deque([begin])
        while rest and end not in before:
            a = rest.popleft()
            for b, size in capacity.get(a, {}).items():
                if size > 0 and b not in before:
                    before[b] = a
                    rest.append(b)
        if end not in before:
            return set(before)
        path: list[Hashable] = [end]
        while path[-1] != begin:
            path.append(before[path[-1]])
        edges = list(zip(path[1:], path, strict=False))
        size = min([capacity[a][b] for a, b in edges])
        for a, b in edges:
            capacity[a][b] -= size
            capacity[b][a] = capacity[b].get(a, 0) + size
