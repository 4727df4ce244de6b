"""Programs of small arrays that give, bit for bit, what their operations give one by one.

NOTE [exact programs]

    f = fad.grad(lambda x: fnp.sum(fnp.tanh(x * x) * x - x))
    with fad.autograd.compiled(False):
        eager = f(array)
    for _ in range(9):  # the last ones are one program
        assert (f(array) == eager).all()

There are barriers around each operation of such a program (`fad.core.primitive`), across which XLA
neither fuses nor rewrites. Two things remain that an operation in a program has otherwise than alone.

*Results that nothing reads.* XLA would drop them, and fuse the rest of the operation in another way. So the
program also returns these.

*Operands in one buffer.* An operation that runs alone is compiled for operands in buffers of their own,
also where it is called on one array twice. In a program, XLA finds that two operands are in one buffer,
loads from it once, and LLVM can then infer more: that ``x * x`` is not negative, or that two products are
equal. It contracts other sums of products to fused multiply-adds, and rounds otherwise. Two operands are in
one buffer if they are one value; if XLA takes one for the other as it is, such as ``x.reshape(n, 1)`` or
the sum over an axis of length 1; and if equal operations give them, which it computes once. So values are
numbered, equal numbers for what may be in one buffer, and where an operation gets a number twice, a copy is
made. (To copy all operands of a size but the first, without numbers, takes up to twice as long.)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import jax
import numpy as np

from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    Literal,
    called,
    current_program,
    define_primitive,
    new_primitive,
    programs,
    write_equations,
)
from fad.core.jaxprs import barrier_primitive, optimization_barrier, parameters_key, select, spread
from fad.core.threads import pace, without_collector
from fad.core.types import Array, ArrayFunction, Atom, Aval, JaxBody, JaxEquation, JaxProgram

# XLA's options for a program of small arrays on the CPU, compiled at the top level. By default XLA schedules
# parts of a program on other threads, which takes longer than to compute small ones (of large ones either
# takes the same CPU time); and this pass would remove the barriers before XLA fuses operations.
_ON_CPU: dict[str, bool | str] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_disable_hlo_passes": "cse_barrier_expander",
}


def _copying_barrier(*values: Array, copied: Sequence[bool]) -> list[Array]:
    """A barrier behind a copy of each value that is ``copied``; see NOTE [exact programs]."""
    # A copy is a choice between a value and itself, which XLA cannot see through.
    originals = select(copied, values)
    false, *pairs = optimization_barrier(np.False_, *originals, *originals)
    count = len(originals)
    copies = [jax.lax.select(false, *pair) for pair in zip(pairs[:count], pairs[count:])]
    return list(optimization_barrier(*spread(copied, copies, values)))


_copying_barrier_primitive = new_primitive("copying_barrier")
define_primitive(_copying_barrier_primitive, _copying_barrier, lambda *avals, copied: avals)


def jit_exact(f: ArrayFunction, avals: Sequence[Aval]) -> ArrayFunction:
    """``f``, which returns a tuple, compiled for small arrays, with bitwise the results of eager
    execution; see NOTE [exact programs]. It is called outside of all JAX transforms.
    """
    lowered, count = _lowered(f, avals)
    compiled = lowered.compile(_ON_CPU if jax.default_backend() == "cpu" else None)
    if count == len(lowered.out_info):
        return compiled
    return lambda *values: compiled(*values)[:count]


@without_collector
def _lowered(f: ArrayFunction, avals: Sequence[Aval]) -> tuple[jax.stages.Lowered, int]:
    """The program for `jit_exact`, and how many of its results are those of ``f``."""
    closed = jax.make_jaxpr(f)(*avals)
    body = closed.jaxpr
    outvars = [*body.outvars, *_unread(body)]
    whole = closed.replace(jaxpr=body.replace(eqns=_with_copies(closed), outvars=outvars))

    def written(*values: Array) -> tuple[Array, ...]:
        return tuple(write_equations(current_program(), whole, values))

    return jax.jit(written).lower(*avals), len(body.outvars)


def _unread(jaxpr: JaxBody) -> list[Atom]:
    """Results of barriers that are not read, where another result of the same barrier is."""
    live = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    unread = []
    for eqn in reversed(jaxpr.eqns):
        if live.isdisjoint(eqn.outvars):
            continue
        live.update([v for v in eqn.invars if not isinstance(v, Literal)])
        if eqn.primitive is barrier_primitive:
            unread += [v for v in eqn.outvars if v not in live and v.aval.size]
    return unread


def _with_copies(closed: JaxProgram) -> list[JaxEquation]:
    """The equations, with copies where an operation has operands in one buffer."""
    numbering = _Numbering(closed)
    eqns = []
    for eqn in closed.jaxpr.eqns:
        pace.yield_gil()
        numbering.add(eqn)
        seen: set[int] = set()
        copied = []
        for v in eqn.invars:
            number = numbering.of(v)
            copied.append(number in seen and is_inexact(v.aval.dtype))
            seen.add(number)
        if eqn.primitive is barrier_primitive and any(copied):
            params = {"copied": tuple(copied)}
            eqn = eqn.replace(primitive=_copying_barrier_primitive, params=params)
        eqns.append(eqn)
    return eqns


# Whose result XLA may take for the last operand that is as large.
_MOVES = frozenset(
    "broadcast_in_dim concatenate convert_element_type copy copy_p cummax cummin cumprod cumsum "
    "dynamic_slice dynamic_update_slice expand_dims gather integer_pow layout_constraint pad reduce_and "
    "reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_window "
    "reduce_window_sum reshape rev slice sort split squeeze stop_gradient transpose".split()
)


class _Numbering:
    """Numbers of values: equal ones for values that may be in one buffer."""

    def __init__(self, closed: JaxProgram) -> None:
        self._number_of: dict[Hashable, int] = {}
        self._numbers: dict[Atom, int] = {}
        self._params: dict[int, Hashable] = {}
        self._name(closed)
        for v in closed.jaxpr.invars:
            self._numbers[v] = self._number(v)

    def _number(self, key: Hashable) -> int:
        return self._number_of.setdefault(key, len(self._number_of))

    def _name(self, closed: JaxProgram) -> None:
        for v, c in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            self._numbers[v] = self._number(_content(c))

    def of(self, atom: Atom) -> int:
        """The number of an operand of an equation."""
        if isinstance(atom, Literal):
            return self._number(_content(atom.val))
        return self._numbers[atom]

    def add(self, eqn: JaxEquation) -> None:
        """Number the results of an equation, whose operands are numbered."""
        numbers = list(map(self.of, eqn.invars))
        inner = _opened(eqn)
        if inner is not None:
            self._name(inner)
            invars = inner.jaxpr.invars
            self._numbers.update(zip(invars, numbers[len(numbers) - len(invars) :], strict=True))
            for e in inner.jaxpr.eqns:
                self.add(e)
            results = list(map(self.of, inner.jaxpr.outvars))
        elif eqn.primitive is barrier_primitive or eqn.primitive.name == "optimization_barrier":
            results = numbers
        else:
            key = self._number((eqn.primitive, parameters_key(eqn, self._params), *numbers))
            moves = eqn.primitive.name in _MOVES or any(map(_is_neutral, eqn.invars))
            results = []
            for k, out in enumerate(eqn.outvars):
                moved = self._moved(eqn, out, numbers) if moves else None
                results.append(self._number((key, k)) if moved is None else moved)
        self._numbers.update(zip(eqn.outvars, results, strict=True))

    def _moved(self, eqn: JaxEquation, out: Atom, numbers: Sequence[int]) -> int | None:
        """The number of the operand that a result may be."""
        for v, number in zip(reversed(eqn.invars), reversed(numbers)):
            if (
                not isinstance(v, Literal)
                and v.aval.size == out.aval.size
                and v.aval.dtype == out.aval.dtype
            ):
                return number
        return None


def _opened(eqn: JaxEquation) -> JaxProgram | None:
    """The program of a call, with a derivative of its own or not; None if the equation is not a call."""
    return next(programs(eqn)) if eqn.primitive.name == "custom_jvp_call" else called(eqn)


def _is_neutral(atom: Atom) -> bool:
    """Whether it is a number with which an operation may give its other operand."""
    return isinstance(atom, Literal) and np.size(atom.val) == 1 and atom.val in (0, 1)


def _content(value: object) -> Hashable:
    """A key of a constant."""
    array = np.asarray(value)
    return str(array.dtype), array.shape, array.tobytes()
