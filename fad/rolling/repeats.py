"""The loops in a program: stretches of equations that repeat, where operands come from, what is read."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeGuard

import jax
import numpy as np

from fad.core.jaxapi import Literal, is_extended, shaped_array, slice_parts
from fad.core.jaxprs import ELEMENTWISE, bits, inner_jaxprs, parameters_key
from fad.core.types import Atom, Aval, JaxEquation, JaxProgram, NumpyArray, PyTree

# What pays, in one place: a loop is rolled that repeats so often, and so saves so many equations.
REPEATS = 8
SAVED = 100
# What a loop saves at least that reads values of another one in each repeat, or is read so.
_PART = 24

_SMALL = 1024  # constants with at most so many elements are compared by value
_SHARED = 4  # an equation of inputs alone that comes so often is computed before all loops
_WIDTHS = (1, 3, 9, 27, 81, 243)  # of words of kinds that are compared
_PERIODS = 48  # candidates that are looked at, for each length of the words that are compared
_ENDS = 3  # so many repeats at each end may be left out, so that loops fit each other
DEPTH = 8  # a value is carried for at most so many repeats, where it could be stored

PLACE: Aval = shaped_array((), np.dtype(np.int32))  # of a place of a slice

_Ints = NumpyArray  # of integers


# An equation, what it does, its operands, and the first of its results.
_Line = tuple[JaxEquation, int, list[int], int]


class Numbered:
    """A program in numbers: equal operations have equal numbers, and each value has one.

    Equal operations on equal operands are one, what nothing needs is dropped, and what many share that
    depends on inputs alone stands first.

    ``eqns``, ``kinds``: the equations, and what each of them does. ``at``: where the operands of each one
    begin in ``operands``, which are values, and ``owner`` whose they are. The places of a ``slice`` are
    operands too. ``first``: the first result of each equation; its further results follow.
    ``inputs``, ``outs``: those of the program. ``fixed``: the constants and literals.
    ``producer``, ``place``: of a value, the equation that computes it (-1: none), and which result it is.
    ``avals``: of each value.
    """

    def __init__(self, closed: JaxProgram) -> None:
        jaxpr = closed.jaxpr
        self.avals: list[Aval] = []
        self._avals: dict[Aval, Aval] = {}  # equal ones are one object
        self.fixed: dict[int, PyTree] = {}
        self._numbers: dict[Hashable, int] = {}  # of what is fixed
        self._values: dict[Atom, int] = {}
        for v, c in zip(jaxpr.constvars, closed.consts, strict=True):
            small = is_free(c) and np.size(c) <= _SMALL
            key: Hashable = bits(np.asarray(c)) if small else id(c)
            self._values[v] = self._fixed(("constant", key), c, v.aval)
        self.inputs = [self._new([v.aval]) for v in jaxpr.invars]
        self._values.update(zip(jaxpr.invars, self.inputs, strict=True))
        lines, hits = self._read(jaxpr.eqns)
        self.outs = [self._value(v) for v in jaxpr.outvars]
        self._order(lines, hits)

    def _new(self, avals: Iterable[Aval]) -> int:
        """The first of as many new values."""
        first = len(self.avals)
        self.avals += [self._avals.setdefault(aval, aval) for aval in avals]
        return first

    def _fixed(self, key: Hashable, value: PyTree, aval: Aval) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._new([aval])
            self.fixed[number] = value
        return number

    def _value(self, v: Atom) -> int:
        if not isinstance(v, Literal):
            return self._values[v]
        x = np.asarray(v.val)
        return self._fixed((v.aval, x.dtype, x.tobytes()), v.val, v.aval)

    def _read(self, eqns: Sequence[JaxEquation]) -> tuple[list[_Line], collections.Counter[int]]:
        """The equations, of equal ones on equal operands the first; and how often these came again."""
        kinds: dict[Hashable, int] = {}
        parameter_keys: dict[int, Hashable] = {}
        lines: dict[Hashable, _Line] = {}
        hits: collections.Counter[int] = collections.Counter()
        avals, values = self.avals, self._values
        for eqn in eqns:
            operands = [self._value(v) if isinstance(v, Literal) else values[v] for v in eqn.invars]
            types = [id(avals[v]) for v in operands]
            if eqn.primitive.name == "slice":
                starts, *lengths = slice_parts(eqn)
                operands += [self._fixed(("place", x), np.int32(x), PLACE) for x in starts]
                key: Hashable = (eqn.primitive, *map(tuple, lengths), *types)
            elif eqn.effects:
                key = ("alone", len(kinds))
            else:
                key = (eqn.primitive, id(eqn.ctx), parameters_key(eqn, parameter_keys), *types)
            kind = kinds.setdefault(key, len(kinds))
            line = lines.get((kind, *operands))
            if line is None:
                first = self._new([v.aval for v in eqn.outvars])
                line = lines[kind, *operands] = (eqn, kind, operands, first)
            else:
                hits[line[3]] += 1
            values.update(zip(eqn.outvars, itertools.count(line[3])))
        return list(lines.values()), hits

    def _order(self, lines: list[_Line], hits: collections.Counter[int]) -> None:
        """Drop what nothing needs, and put what is shared first."""
        count = np.array([len(eqn.outvars) for eqn, _, _, _ in lines], np.int64)
        first = np.array([line[3] for line in lines], np.int64)
        made, self.place = np.full((2, len(self.avals)), [[-1], [0]])
        for j in range(max(count, default=0)):
            having = np.flatnonzero(count > j)
            made[first[having] + j] = having
            self.place[first[having] + j] = j
        producer = made.tolist()
        needed = {producer[v] for v in self.outs}
        for k in range(len(lines) - 1, -1, -1):
            eqn, _, operands, _ = lines[k]
            if k in needed or eqn.effects:
                needed.add(k)
                needed.update([producer[v] for v in operands])
        needed.discard(-1)
        shared = {-1}
        for k, (eqn, _, operands, result) in enumerate(lines):
            often = hits[result] >= _SHARED and not eqn.effects
            if often and shared.issuperset([producer[v] for v in operands]):
                shared.add(k)
        order = [*sorted(needed & shared), *sorted(needed - shared)]
        kept = [lines[k] for k in order]
        self.eqns: list[JaxEquation] = [line[0] for line in kept]
        self.kinds = np.array([line[1] for line in kept], np.int64)
        self.operands = np.array([v for line in kept for v in line[2]], np.int64)
        self.first: list[int] = [line[3] for line in kept]
        counts = [len(line[2]) for line in kept]
        self.at = np.cumsum([0, *counts])
        self.owner = np.repeat(np.arange(len(kept)), counts)
        positions = np.full(len(lines) + 1, -1)  # the last for "no equation"
        positions[order] = range(len(order))
        self.producer = positions[made]


def size_of(aval: Aval) -> int:
    """How many bytes a value has; of what has no such number, a random key for example, its elements."""
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


# Where kinds repeat


def may_repeat(eqns: Sequence[JaxEquation]) -> bool:
    """Whether there may be a loop: a quick look at primitives and shapes alone.

    In a loop that saves enough, words of half as many equations come again a period later.
    """
    if len(eqns) < SAVED:
        return False
    shapes = [getattr(e.outvars[0].aval, "shape", ()) if e.outvars else () for e in eqns]
    primitives = [e.primitive for e in eqns]
    codes = np.array(list(map(hash, zip(primitives, shapes, strict=True))))
    stretches = candidates(codes, [SAVED // 2])
    return any([end - start - period >= SAVED for period, start, end in stretches])


def _runs(equal: _Ints) -> Iterator[tuple[int, int]]:
    """From where to where ``equal`` holds."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], equal.astype(np.int8), [0]])))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def candidates(kinds: _Ints, widths: Sequence[int] = _WIDTHS) -> list[tuple[int, int, int]]:
    """(period, first equation, end) of stretches in which kinds repeat, what covers most first; looked for by
    words of so many kinds.
    """
    periods: dict[int, None] = {}
    for width in widths:
        if width > len(kinds):
            break
        # A hash of each word of so many kinds; then how far it is to the next equal one.
        words = np.convolve(kinds.astype(np.uint64), _FACTORS[:width], "valid")
        order = np.argsort(words, kind="stable")
        equal = np.diff(words[order]) == 0
        distances, counts = np.unique(np.diff(order)[equal], return_counts=True)
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


_FACTORS = np.random.default_rng(0).integers(2**63, size=243, dtype=np.uint64) * 2 + 1


# Where operands come from


def find_loops(program: Numbered) -> list[PythonLoop]:
    """The loops of a program, in its order."""
    taken = np.zeros(len(program.eqns), bool)
    loops: list[PythonLoop] = []
    for period, start, end in candidates(program.kinds):
        for a, b in list(_runs(~taken[start:end])):
            fitting: list[PythonLoop] = []
            for several in (1, 2, 3):  # values may take turns
                fitting = fitting or _fit(program, several * period, start + a, start + b)
            loops += fitting
            for loop in fitting:
                taken[loop.start : loop.end] = True
    return _that_pay(program, sorted(loops, key=lambda loop: loop.start))


def _that_pay(program: Numbered, loops: list[PythonLoop]) -> list[PythonLoop]:
    """The loops that save enough, and those that read their values or are read by them in each repeat."""
    read = [
        np.unique(program.producer[program.operands[program.at[x.start] : program.at[x.end]]])
        for x in loops
    ]

    def meet(k: int, j: int) -> bool:
        """Whether one of two loops, the later one, reads values of the other."""
        earlier = loops[min(k, j)]
        low, high = np.searchsorted(read[max(k, j)], (earlier.start, earlier.end))
        return bool(high - low >= REPEATS)

    pays = {k for k, loop in enumerate(loops) if loop.saved >= SAVED}
    rest = list(pays)
    for j in rest:  # which grows
        more = [k for k in range(len(loops)) if k not in pays and meet(k, j)]
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

    def rows(x: _Ints) -> _Ints:
        return x[: count * width].reshape(count, width)

    # Distances count where the producer is in the stretch.
    code = np.where(producer >= start, (owner - producer) * 64 + np.minimum(place, 63), -1)
    codes, numbers = rows(code), rows(values)
    steady = (codes[1:] == codes[:-1]) & (codes[1:] >= 0) & (numbers[1:] != numbers[:-1])
    carried = steady.sum(0) > (count - 1) // 2
    usual = np.where(carried, np.sort(codes, 0)[count // 2], 0)
    middle = numbers[count // 2]
    constant = ~carried & (numbers == middle)[2:-2].all(0)
    column = np.arange(b - a) % width  # of each operand
    usual_code = usual[column]
    entering = np.maximum(owner - usual_code // 64, producer) + 1
    broken = constant[column] & (values != middle[column])
    return np.where(
        carried[column],
        np.where(code == usual_code, 0, entering),
        np.where(broken, owner + 1, producer + 1),
    )


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
        lifetimes[key] = max(lifetimes.get(key, (0, 0)), (to - since, size_of(program.avals[v])))
    cost = np.zeros(period)  # of beginning with each equation
    for (at, _), (distance, size) in lifetimes.items():
        cost[(at + 1 + np.arange(distance % period)) % period] += size + 1e-3
    rows = (last - first - np.arange(period)) // period
    cost[rows < REPEATS] = np.inf
    best = np.lexsort((np.arange(period), -rows, np.round(cost, 2)))
    return first + int(best[0])


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


class Elements(NamedTuple):
    """Values of an earlier loop, from one of its repeats on, forwards (1) or backwards (-1); or, with
    `ARRAY` as ``loop``, rows of an array: ``value.equation`` is the number of this one.
    """

    loop: int
    value: Result
    first: int
    step: int
    length: int

    def among(self, first: int, step: int, length: int) -> Elements:
        """So many of these, from one of them on."""
        first = self.first + self.step * first
        return self._replace(first=first, step=self.step * step, length=length)


ARRAY = -1

# What a loop reads in its repeats, one after the other.
Values = tuple[int, ...]
Stack = Elements | Values
# What an operand of a repeat is: a value of the repeat, one of before the loop, or one of many.
Origin = Result | int | Stack


def is_column(origin: Origin) -> TypeGuard[Values]:
    """Whether it is a value for each repeat, one by one."""
    return type(origin) is tuple


_Capacity = dict[Hashable, dict[Hashable, float]]  # of the edges of a graph


class LoopReads:
    """The loops of a program, and what they read of each other.

    ``loops``; for each of them ``origins``: of each equation of a repeat, what its operands are; a ``slice``
    that is a row of an array, another one in each repeat, has these rows alone. ``carries``: the results
    that are carried, with what stood there before the loop, the earliest first.
    """

    def __init__(self, program: Numbered, loops: Sequence[PythonLoop]) -> None:
        self.program = program
        self.loops = list(loops)
        self._survey()
        self._fit_ends()

    def _survey(self) -> None:
        program = self.program
        surveyed = [(loop, _operands(program, loop)) for loop in self.loops]
        fitting = [(loop, *both) for loop, both in surveyed if both is not None]
        self.loops = [loop for loop, _, _ in fitting]
        self.carries = [carries for _, _, carries in fitting]
        self.origins = [
            list(map(self._rows, program.eqns[loop.start : loop.start + loop.period], origins))
            for loop, origins, _ in fitting
        ]
        self.loop_of = np.full(len(program.eqns) + 1, -1)  # the last for "no equation"
        for k, loop in enumerate(self.loops):
            self.loop_of[loop.start : loop.end] = k

    def _rows(self, eqn: JaxEquation, origins: list[Origin]) -> list[Origin]:
        """The operands of an equation: those of a ``slice`` may be all rows of an array."""
        if eqn.primitive.name != "slice" or type(array := origins[0]) is not int:
            return origins
        length, *rest = eqn.invars[0].aval.shape
        first = origins[1]
        if is_column(first) and eqn.outvars[0].aval.shape == (1, *rest):
            places = [int(self.program.fixed[v]) for v in first]
            step = 1 if places[0] == 0 else -1
            if places[::step] == list(range(length)):
                return [Elements(ARRAY, Result(array, 0), places[0], step, length)]
        return origins

    def equation(self, k: int, at: int) -> JaxEquation:
        """An equation of the first repeat of a loop."""
        return self.program.eqns[self.loops[k].start + at]

    def value(self, k: int, result: Result, repeat: int = 0) -> int:
        """A value of a repeat; of a negative one, what stood there before the loop."""
        if repeat < 0:
            return self.carries[k][result._replace(entry=0)][repeat]
        loop = self.loops[k]
        at = loop.start + repeat * loop.period + result.equation
        return self.program.first[at] + result.place

    def elements(self, values: Sequence[int]) -> tuple[Elements, NumpyArray] | None:
        """Values that are those of an earlier loop, in its order or backwards; and which of them are."""
        numbers, middle = np.array(values), len(values) // 2
        producer, place = self.program.producer[numbers], self.program.place[numbers]
        of = self.loop_of[producer]
        k = int(of[middle])
        if len(values) < 2 or k < 0:
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
        initial = self.carries[k].get(value, ())
        for i in np.flatnonzero((rows < 0) & (rows >= -len(initial))).tolist():
            fits[i] = values[i] == initial[rows[i]]
        last = int(rows[fits].max())
        entry = max(0, -int(rows[fits].min()))
        if not entry and initial and last + 1 < loop.count:
            entry = 1
        if last + entry >= loop.count:
            return None
        value = value._replace(entry=entry)
        return Elements(k, value, int(rows[0]) + entry, step, len(values)), fits

    def all_elements(self, values: Sequence[int]) -> Elements | None:
        """Values that are all those of an earlier loop."""
        part = self.elements(values)
        return part[0] if part is not None and part[1].all() else None

    def values(self, stack: Stack) -> Values:
        """Its values, as `elements` takes them."""
        if not isinstance(stack, Elements):
            return stack
        k, result, first, step, length = stack
        rows = [first - result.entry + step * i for i in range(length)]
        return tuple([self.value(k, result, row) for row in rows])

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
        columns = dict.fromkeys([x for row in self.origins[k] for x in row if is_column(x)])
        late = self.delayed(columns)
        return [x for x in columns if x not in late]

    def _fit_ends(self) -> None:
        """Leave out repeats at the ends, so that a loop reads all repeats of the one that it reads."""
        for k, loop in enumerate(list(self.loops)):
            parts = [part[1] for part in map(self.elements, self._varying(k)) if part is not None]
            other = np.flatnonzero(~np.logical_and.reduce([np.ones(loop.count, bool), *parts]))
            low = max(other[other < loop.count // 2] + 1, default=0)
            high = min(other[other >= loop.count // 2], default=loop.count)
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
        return [x for x in self.origins[k][result.equation] if isinstance(x, Result)]

    def stored(self, k: int, wanted: Iterable[Result], kept: Iterable[Result]) -> set[Result]:
        """Which values to store, of each repeat, so that the ``wanted`` ones can be computed again: as few
        bytes as possible, beside those that are ``kept`` in any case. What is wanted of a repeat before is
        stored in any case, and with it the value of the repeat (`delayed`).

        It is the minimal cut between what is wanted and what cannot be computed again.
        """
        wanted, kept = list(wanted), set(kept)
        if self.loops[k].period > _LARGE:
            return set(wanted)
        entering = {r[:2] for r in wanted if r.entry}
        capacity: _Capacity = collections.defaultdict(dict)
        capacity["begin"] = dict.fromkeys([(r, 0) for r in wanted], np.inf)
        seen = list(dict.fromkeys(wanted))
        for r in seen:  # which grows
            free = r in kept or (r[:2] in entering and not r.entry)
            size = size_of(self.program.avals[self.value(k, r)])
            capacity[r, 0][r, 1] = 0 if free else size + 1e-3
            inputs = self.inputs(k, r)
            ends = ["end"] if inputs is None else [(x, 0) for x in inputs]
            capacity[r, 1] = dict.fromkeys(ends, np.inf)
            seen += [x for x in dict.fromkeys(inputs or ()) if (x, 0) not in capacity]
        reached = _maximal_flow(capacity, "begin", "end")
        return {r for r in seen if (r, 0) in reached and (r, 1) not in reached}


def _operands(
    program: Numbered, loop: PythonLoop
) -> tuple[list[list[Origin]], dict[Result, Values]] | None:
    """What the operands of each equation of a repeat are, and what is carried for that: the results, with
    what stood there before the loop. None if the repeats do not fit together.
    """
    values = _rows(program, program.operands, loop.period, loop.start, loop.count)
    owner = _rows(program, program.owner, loop.period, loop.start, loop.count)
    producer, place = program.producer[values], program.place[values]
    inside = producer >= loop.start
    carried = inside[-1]
    distance = np.where(carried, owner[-1] - producer[-1], 0)
    before, equation = np.divmod(owner[0] - loop.start - distance, loop.period)
    # The first operands of those that are carried are from before the loop, all of the remaining ones.
    entering = np.where(carried, -before, loop.count)
    regular = np.where(
        inside,
        (owner - producer == distance) & (place == place[-1]) & carried,
        np.arange(loop.count)[:, None] < entering,
    )
    if not regular.all():
        return None
    origins: list[list[Origin]] = [[] for _ in range(loop.period)]
    carries: dict[Result, Values] = {}
    for at, column in enumerate(values.T.tolist()):
        operands = origins[owner[0, at] - loop.start]
        if not carried[at]:
            same = column.count(column[0]) == len(column)
            operands.append(column[0] if same else tuple(column))
            continue
        result = Result(int(equation[at]), int(place[-1, at]))
        depth = int(entering[at])
        if depth:
            initial = tuple(column[:depth])
            for number in itertools.count():
                result = result._replace(carry=number)
                short, long = sorted((initial, carries.get(result, ())), key=len)
                if long[len(long) - len(short) :] == short:
                    carries[result] = long
                    break
        operands.append(result._replace(entry=depth))
    return origins, carries


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
        rest = [begin]
        for a in rest:  # which grows
            more = [b for b, size in capacity[a].items() if size > 0 and b not in before]
            before.update(dict.fromkeys(more, a))
            rest += more
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
