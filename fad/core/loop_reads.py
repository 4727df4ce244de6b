"""What the loops of a program read of each other, and what of that is stored."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fad.core.elementwise import ELEMENTWISE
from fad.core.jaxapi import slice_parts
from fad.core.jaxprs import inner_jaxprs
from fad.core.repeats import Numbered, Operands, PythonLoop, operands_of
from fad.core.types import JaxEquation, NumpyArray

_ENDS = 3  # so many repeats at each end may be left out of a loop, so that loops fit each other
_LARGE = 2000  # equations in a repeat of which all that is read later is stored

# What is computed again in a later loop, rather than stored for all repeats.
_COSTLY = """acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh device_put digamma
    erf erf_inv erfc exp exp2 expm1 fad_unrecorded igamma igammac lgamma log log1p logistic polygamma
    polynomial pow sin sinh tan tanh zeta""".split()
_CHEAP = (ELEMENTWISE - frozenset(_COSTLY)) | frozenset(
    """broadcast_in_dim concatenate dynamic_slice expand_dims iota pad reshape rev select_n slice squeeze
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


class Slices(NamedTuple):
    """Slices of an array along a dimension, from one place on in equal steps."""

    array: int
    dimension: int
    first: int
    step: int
    length: int


# Where an operand of a repeat comes from: a value of the repeat, one of before the loop, or one of many.
Values = tuple[int, ...]
Origin = Result | int | Values
# What a loop reads in its repeats, one after the other.
Stack = Elements | Slices | Values
_Capacity = dict[Hashable, dict[Hashable, float]]  # of the edges of a graph


class LoopReads:
    """The loops of a program, and what they read of each other.

    ``loops``; for each of them ``origins``: where each operand of its first repeat comes from, ``carries``,
    and ``slices``: its equations that are slices of an array at places in equal steps.
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

    def _slices(self, loop: PythonLoop, origins: Sequence[Origin]) -> dict[int, Slices]:
        found = {}
        program = self.program
        begin = program.at[loop.start]
        for at in range(loop.period):
            a, b = program.at[loop.start + at] - begin, program.at[loop.start + at + 1] - begin
            starts = origins[a + 1 : b]
            eqn = program.eqns[loop.start + at]
            if eqn.primitive.name != "slice" or not isinstance(origins[a], int):
                continue
            moving = [(d, x) for d, x in enumerate(starts) if type(x) is tuple]
            if len(moving) != 1:
                continue
            ((d, values),) = moving
            _, spans, strides = slice_parts(eqn)
            whole = [n == m for n, m in zip(spans, eqn.invars[0].aval.shape, strict=True)]
            whole[d] = spans[d] == 1
            places = np.array([program.sources[v].value for v in values])
            step = int(places[1] - places[0])
            if all(whole) and not any(np.diff(places) - step) and set(strides) == {1}:
                found[at] = Slices(origins[a], d, int(places[0]), step, loop.count)
        return found

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
        held = rows[fits]
        entry = max(0, -int(held.min()))
        if not entry and carry is not None and held.max() + 1 < loop.count:
            entry = 1
        if held.max() + entry >= loop.count:
            return None
        value = value._replace(entry=entry)
        return Elements(k, value, int(rows[0]) + entry, step, len(values)), fits

    # Loops fit each other

    def _varying(self, k: int) -> list[Values]:
        return [x for x in dict.fromkeys(self.origins[k]) if type(x) is tuple]

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
                        _, _, first, step, length = found[0]
                        rows += [first, first + step * (length - 1)]
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
        capacity: _Capacity = collections.defaultdict(dict)
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
