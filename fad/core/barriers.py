"""Barriers: XLA compiles what stands between them as it would alone.

See NOTE [exact programs] in `fad.replay.exact_programs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental.layout import Layout, with_layout_constraint

from fad.core.jaxapi import barrier_op, current_program, define_primitive, new_primitive
from fad.core.jaxprs import select, spread
from fad.core.threads import pace
from fad.core.types import Array, Operand


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


# `jax.lax.optimization_barrier`, in programs of the compile thread: see NOTE [pace] in `fad.core.threads`.
barrier_primitive = new_primitive("barrier")
define_primitive(
    barrier_primitive,
    lambda *values: list(values),
    lambda *avals: avals,
    lowering=_lower_barrier,
)
