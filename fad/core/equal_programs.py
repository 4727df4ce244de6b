"""Equal programs are compiled once, whichever functions they were traced from.

NOTE [functions made anew]

    for k in range(4):  # nothing is compiled after the second step
        f = fad.from_jax(lambda x: jnp.sin(x) @ (array + k) * k)
        assert jnp.allclose(fad.grad(f)(array), jnp.cos(array) * (array + k) * k)

A function that is made anew in each step, a lambda that is wrapped there or a class in a function, has
Primitives of its own. To ask whether two functions are equal would not do: equal code may read a global, or
an attribute of an object, that has changed. So such functions are traced anew, and their programs are
compared, as those of `fad.jit` are: the same equations, up to the names of variables, on operands of the
same avals. Then one function of ``jax.jit`` serves them all. Arrays that a function closes over are operands
of it. So are numbers and small constants of NumPy, once they have been others in an earlier program; until
then they are constants, of which XLA makes more. Rules for derivatives do not count where a program is
executed; where JAX may transform it, programs that call such rules are not shared.

The Primitives themselves, what is derived from them, and the programs that they trace, go with the function
that was made anew. Of compiled programs the last ones are kept, see `Cache`.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from fad.core.borrowed import as_array
from fad.core.caches import Cache
from fad.core.jaxapi import (
    at_top_level,
    call_table,
    called,
    computed_by,
    evaluate_equation,
    has_own_rules,
)
from fad.core.jaxprs import (
    EXECUTED,
    KnownCall,
    bind_jaxpr,
    bits,
    has_rules,
    is_number,
    jaxpr_key,
    known_call,
    read,
    run_inlined,
    trace,
)
from fad.core.threads import make_jit, without_collector
from fad.core.types import (
    Array,
    ArrayFunction,
    Atom,
    JaxEquation,
    JaxLiteral,
    JaxProgram,
    Operand,
    Outputs,
)

# So many numbers of NumPy, such as the positions of a slice, stay constants of a program that is kept, as
# in `jax.jit`: XLA makes more of them, and each operand costs time at each call.
LITERAL = 64


# A function of `jax.jit`, which returns a tuple, and the operands that it takes before those of the program;
# or the Primitive's own.
_Compiled = tuple[ArrayFunction, list[Array]]


@dataclasses.dataclass(slots=True, eq=False)
class EqualPrograms:
    """How the function of a Primitive is compiled that may be made anew; see NOTE [functions made anew].

    Arguments:
        name: of the function, as profilers show it.
        flat: the function.
        alone: it, compiled by `jax.jit`: for calls whose program is not found.
        calls: a cache of the equations of ``flat``, see `known_call`.
    """

    name: str
    flat: ArrayFunction
    alone: ArrayFunction
    calls: dict[Hashable, KnownCall]
    _compiled: dict[tuple[JaxProgram, int], _Compiled] = dataclasses.field(default_factory=dict)

    def find(self, values: Sequence[Operand], depth: int) -> tuple[_Compiled, bool]:
        """What is compiled for such ``values``, and whether it has one result, not a tuple.

        Arguments:
            depth: `EXECUTED`; or 0 for a call that JAX may transform.
        """
        closed, single = known_call(self.calls, self.flat, values)
        if closed is None:
            return (self.alone, []), single
        compiled = self._compiled.get((closed, depth))
        if compiled is None:
            by_its_rules = not depth and has_rules(closed.jaxpr)  # no two have the same
            compiled = (self.alone, []) if by_its_rules else _compiled(self.name, closed, depth)
            self._compiled[closed, depth] = compiled
        return compiled, single

    def forget(self) -> None:
        """Forget what was compiled."""
        self._compiled.clear()

    def table(self) -> ArrayFunction:
        """The compiled function for calls on arrays."""

        def find(values: Sequence[Operand], _: object) -> tuple[object, ...]:
            depth = EXECUTED if at_top_level() else 0
            (jitted, before), single = self.find(values, depth)
            return jitted, before, list(values), _only if single else tuple

        table: ArrayFunction = call_table(self.name, find, self.flat, _nothing)
        return table

    def call(self, values: Sequence[Operand]) -> Outputs:
        """A call on what JAX transforms."""
        (jitted, before), single = self.find(values, 0)
        out = jitted(*before, *values)
        return out[0] if single and type(out) is tuple else out


def _only(outs: Sequence[Array]) -> Array:
    (out,) = outs
    return out


def _nothing() -> None:
    pass


_families = Cache()


def _compiled(name: str, closed: JaxProgram, depth: int) -> _Compiled:
    """What is compiled for a program."""
    if any(map(_hides_constants, closed.jaxpr.eqns)):
        inner = closed
        avals = [v.aval for v in closed.jaxpr.invars]
        closed, _ = trace(lambda *values: run_inlined(inner, values, _call), avals)
    numbers: list[JaxLiteral] = []
    program = jaxpr_key(closed.jaxpr, depth, numbers)
    of_numpy = {k: np.array(c) for k, c in enumerate(closed.consts) if isinstance(c, np.ndarray)}
    small = {k: c for k, c in of_numpy.items() if c.size <= LITERAL}
    key = (name, depth, program, tuple([(k, c.dtype, c.shape) for k, c in small.items()]))
    family: _Family = _families.get(key) or _families.put(key, _Family(name))
    return family.find(closed, numbers, small)


def _call(eqn: JaxEquation) -> JaxProgram | None:
    """The program that an equation calls, whatever its rules are."""
    program = called(eqn)
    return computed_by(eqn) if program is None else program


def _hides_constants(eqn: JaxEquation) -> bool:
    """Whether an equation calls a program that has arrays, or may have numbers, which a function of the
    user's closes over; inlined, they are constants and numbers of the program around it.
    """
    program = called(eqn)
    return has_own_rules(eqn) if program is None else bool(program.consts)


class Changes:
    """Which values of a list have been others in an earlier list of their ``kind``, by their ``places``."""

    MOST = 32  # kinds, before all are forgotten

    __slots__ = ("_first", "_lock", "places")

    def __init__(self) -> None:
        self.places: frozenset[int] = frozenset()
        self._first: dict[Hashable, Sequence[Hashable]] = {}
        self._lock = threading.Lock()

    def note(self, values: Sequence[Hashable], kind: Hashable = None) -> frozenset[int]:
        """Note one more list of this kind, whose lists have one length; the ``places`` then."""
        with self._lock:
            if len(self._first) > self.MOST:
                self._first.clear()
            pairs = zip(self._first.setdefault(kind, values), values, strict=True)
            self.places |= frozenset([k for k, (a, b) in enumerate(pairs) if a != b])
            return self.places


class _Family:
    """Programs that differ in numbers and small constants alone; the last of them, in which all of these that
    have differed are operands.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changes = Changes()
        self._lifted: frozenset[int] = frozenset()
        self._jitted: ArrayFunction | None = None
        self._lock = threading.Lock()

    def find(
        self,
        closed: JaxProgram,
        numbers: Sequence[JaxLiteral],
        small: dict[int, np.ndarray],
    ) -> _Compiled:
        """What is compiled for ``closed``."""
        count = len(numbers)
        values = [*[np.asarray(v.val) for v in numbers], *small.values()]
        changed = self._changes.note(list(map(bits, values)))
        fixed = {k: c for at, (k, c) in enumerate(small.items()) if count + at not in changed}
        lifted = sorted([k for k in changed if k < count])
        with self._lock:
            if self._jitted is None or changed != self._lifted:
                self._jitted = _jitted(self._name, closed, lifted, fixed)
                self._lifted = changed
            jitted = self._jitted
        operands = [c for k, c in enumerate(closed.consts) if k not in fixed]
        return jitted, list(map(as_array, [*[values[k] for k in lifted], *operands]))


def _jitted(
    name: str, closed: JaxProgram, lifted: Sequence[int], fixed: dict[int, np.ndarray]
) -> ArrayFunction:
    """``closed`` compiled, as a function of its numbers at the places ``lifted``, of its constants that are
    not ``fixed``, and of its operands.
    """
    run = _with_numbers(closed, lifted) if lifted else bind_jaxpr(closed)
    count = len(lifted)

    def program(*values: Array) -> tuple[Array, ...]:
        operands: list[Array | np.ndarray] = list(values)
        for k, c in fixed.items():  # in order
            operands.insert(count + k, c)
        return tuple(run(*operands))

    program.__name__ = program.__qualname__ = name
    return make_jit(without_collector(program), inline=True)


def _with_numbers(closed: JaxProgram, lifted: Sequence[int]) -> Callable[..., list[Array]]:
    """A function of (numbers at the places ``lifted``, consts, inputs) that evaluates a program."""
    jaxpr = closed.jaxpr
    count = len(lifted)

    def run(*values: Array) -> list[Array]:
        numbers = dict(zip(lifted, values[:count], strict=True))
        env: dict[Atom, Array] = dict(
            zip((*jaxpr.constvars, *jaxpr.invars), values[count:], strict=True)
        )
        at = 0
        for eqn in jaxpr.eqns:
            inputs = read(eqn.invars, env)
            for k, v in enumerate(eqn.invars):
                if is_number(v):
                    inputs[k] = numbers.get(at, inputs[k])
                    at += 1
            env.update(zip(eqn.outvars, evaluate_equation(eqn, inputs), strict=True))
        return read(jaxpr.outvars, env)

    return run
