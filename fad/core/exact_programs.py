"""Programs of small arrays that give, bit for bit, what their operations give one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental.layout import Layout, with_layout_constraint

from fad.core.jaxapi import (
    barrier_op,
    current_program,
    define_primitive,
    new_primitive,
)
from fad.core.jaxprs import (
    select,
    spread,
)
from fad.core.threads import sleep
from fad.core.types import (
    Array,
    Operand,
)

# How a thread that traces and lowers programs yields the GIL to other threads.
#
# NOTE [pace]
#
#     deep = lambda x: functools.reduce(lambda a, k: fnp.sin(a) * k, range(300), x)
#     threading.Thread(target=fad.jit(deep), args=(1.0,)).start()  # traces for a second
#     for _ in range(300):
#         x = x + 1.0  # without a pause of the other thread, 5 ms each
#
# A thread that returns from XLA has to acquire the GIL. If another thread holds it, Python asks that
# thread to release it only after 5 ms. So while one thread traces a program, each operation of the others
# would take 5 ms. Therefore the tracing thread checks, after each operation that it has traced or lowered
# (`barrier`), whether it has worked for ``WORK`` seconds. If so, it releases the GIL
# for ``MOMENT`` seconds. If it does not get the GIL back at once, other threads need it, and it sleeps for
# ``SLEEP`` seconds. This changes timing only, never a result.


class Pace(threading.local):
    """Per thread: whether it ``yields`` the GIL, and when it last did (``began`` to work again)."""

    WORK = 0.0003
    MOMENT = 0.00005
    SLEEP = 0.002
    yields = False
    began = 0.0

    def yield_gil(self) -> None:
        """Release the GIL if this thread ``yields`` and has worked for ``WORK`` seconds since it last
        did.
        """
        if not self.yields:
            return
        now = time.perf_counter()
        if now - self.began < self.WORK:
            return
        time.sleep(self.MOMENT)
        self.began = time.perf_counter()
        if self.began - now > 10 * self.MOMENT:
            sleep(self.SLEEP)
            self.began = time.perf_counter()


pace = Pace()

# Programs of small arrays that give, bit for bit, what their operations give one by one.
#
# NOTE [exact programs]
#
#     f = fad.grad(lambda x: fnp.sum(fnp.tanh(x * x) * x - x))
#     with fad.autograd.compiled(False):
#         eager = f(array)
#     for _ in range(9):  # the last ones are one program
#         assert (f(array) == eager).all()
#
# There are barriers around each operation of such a program (`barrier`), across which XLA
# neither fuses nor rewrites. Two things remain that an operation in a program has otherwise than alone.
#
# *Results that nothing reads.* XLA would drop them, and fuse the rest of the operation in another way. So the
# program also returns one element of each.
#
# *Operands in one buffer.* An operation that runs alone is compiled for operands in buffers of their own,
# also where it is called on one array twice. In a program, XLA finds that two operands are in one buffer,
# loads from it once, and LLVM can then infer more: that ``x * x`` is not negative, or that two products are
# equal. It contracts other sums of products to fused multiply-adds, and rounds otherwise. Two operands are in
# one buffer if they are one value; if XLA takes one for the other as it is, such as ``x.reshape(n, 1)`` or
# the sum over an axis of length 1; and if equal operations give them, which it computes once. So values are
# numbered, equal numbers for what may be in one buffer, and where an operation gets a number twice, a copy is
# made. (To copy all operands but the first, without numbers, takes up to 1.6 times as long.)


def barrier(values: Sequence[Any]) -> list[Array]:
    """The same values, behind an optimization barrier and in row-major layout.

    XLA does not fuse an operation with others across a barrier: it compiles it as it would alone.
    """
    plain = [
        isinstance(v, jax.Array) and not jax.dtypes.issubdtype(v.dtype, jax.dtypes.extended)
        for v in values
    ]
    rows = [
        with_layout_constraint(v, Layout(tuple(range(v.ndim)))) if v.ndim > 1 else v
        for v in select(plain, values)
    ]
    bind = (
        barrier_primitive.bind if rows and current_program() is not None else optimization_barrier
    )
    pace.yield_gil()
    return spread(plain, bind(*rows), values)


def optimization_barrier(*values: Operand) -> Sequence[Array]:
    found: Sequence[Array] = jax.lax.optimization_barrier(values)
    return found


def _lower_barrier(_: object, *values: object) -> Sequence[object]:
    pace.yield_gil()
    return list(barrier_op(values).results)


# `jax.lax.optimization_barrier`, in programs that the compile thread lowers; see NOTE [pace].
barrier_primitive = new_primitive("barrier")
define_primitive(
    barrier_primitive,
    lambda *values: list(values),
    lambda *avals: avals,
    lowering=_lower_barrier,
)
