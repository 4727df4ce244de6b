"""Which numbers in the bodies of staged functions are operands of the compiled program.

NOTE [numbers in bodies]

    for k in range(20):  # three programs, not 20
        y = fad.lax.fori_loop(0, 2, lambda i, y: y * float(k), 1.0)
        assert y == k * k

A Python number in a body (``s * k``) is a constant of its program, as in JAX: XLA makes more of a constant,
and an operand costs time at each call. But a body that is made anew for each call, a lambda in a loop,
closes over other numbers each time, and each would be one more program. So what is known of a body is kept by
its code: the numbers that its operations got, in their order, when it was traced last. Those that were
others at an earlier trace are operands from the next trace on, so that a number that changes costs three
programs, and no trace more: the Python of a body runs no more often for it. The same goes for small
constants of NumPy in the body of ``jit``, which become operands at once. Numbers that are no operands of
an operation, such as the position ``i`` of ``x[i]``, a length or an axis, are part of a program. Of
programs with one code the last `PROGRAMS` are kept.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fad.core.avals import SCALARS
from fad.core.caches import Cache
from fad.core.keys import exact
from fad.core.types import Operand, PyTree

PROGRAMS = 32  # kept for one code, and operands of the same avals

# Numbers of Python of which another value may come; of a bool there is one other.
_NUMBERS = frozenset(SCALARS) - {bool}


def is_number(x: Operand) -> bool:
    """Whether it is a number of Python or NumPy that may be an operand of a program.

    >>> is_number(2.0), is_number(np.float32(2.0)), is_number(True)
    (True, True, False)
    """
    return type(x) in _NUMBERS or isinstance(x, np.number)


class Body:
    """What is known of the bodies of one code: which of its numbers, and which of its constants of NumPy,
    have changed, by their places.
    """

    __slots__ = ("_constants", "_lock", "_numbers", "_programs", "constants", "numbers")

    def __init__(self) -> None:
        self.numbers: frozenset[int] = frozenset()
        self.constants: frozenset[int] = frozenset()
        self._numbers: dict[Hashable, list[Hashable]] = {}
        self._constants: dict[int, Hashable] = {}
        self._programs: collections.deque[Hashable] = collections.deque()
        self._lock = threading.Lock()

    @property
    def has_programs(self) -> bool:
        """Whether there is a program already."""
        return bool(self._programs)

    def note_numbers(self, numbers: Sequence[Operand]) -> None:
        """Note the numbers of a trace, in order."""
        kinds = tuple(map(type, numbers))
        now = list(map(exact, numbers))
        with self._lock:
            if len(self._numbers) > PROGRAMS:  # Python takes another path in each call
                self._numbers.clear()
            before = self._numbers.setdefault(kinds, now)
            changed = [k for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b]
            self.numbers |= frozenset(changed)

    def note_constants(self, constants: Sequence[Hashable]) -> None:
        """Note the constants of NumPy of a trace, in order."""
        with self._lock:
            changed = [k for k, c in enumerate(constants) if self._constants.setdefault(k, c) != c]
            self.constants |= frozenset(changed)

    def note_program(self, key: Hashable) -> Hashable | None:
        """Note the key of a new program; the key of one that is not to be kept, or None."""
        with self._lock:
            self._programs.append(key)
            return self._programs.popleft() if len(self._programs) > PROGRAMS else None


_bodies = Cache()


def body_of_code(key: Hashable) -> Body:
    """The one for a key with what `code_of` gives."""
    found: Body = _bodies.get(key) or _bodies.put(key, Body())
    return found


def code_of(f: Callable[..., PyTree]) -> Hashable:
    """What functions have in common that the same line of a program has made."""
    found: list[Any] = []
    while len(found) < 16:
        found.append(getattr(f, "__code__", type(f)))
        if isinstance(f, functools.partial):
            f = f.func
        elif hasattr(f, "__wrapped__"):
            f = f.__wrapped__
        elif hasattr(f, "__func__"):
            f = f.__func__
        else:
            break
    return tuple(found)
