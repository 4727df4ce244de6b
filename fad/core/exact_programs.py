"""Programs of small arrays, compiled so that they give bitwise what their operations give one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint

from fad.core.collector import make_jit, without_collector
from fad.core.jaxapi import (
    Literal,
    barrier_op,
    current_program,
    define_primitive,
    new_primitive,
    write_equations,
)
from fad.core.pace import pace

__all__ = ["barrier", "jit_exact", "jit_of_small"]


@functools.cache
def _options_of_small_programs() -> dict[str, Any]:
    """XLA's options for a program of small arrays, compiled at the top level: run its parts one by one.

    By default XLA schedules parts of a program on other threads, which takes longer than to compute
    small ones. The operations of such a program are separated by `barrier`.
    """
    options: dict[str, Any] = {
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
        # This pass would remove the barriers before XLA fuses operations.
        "xla_disable_hlo_passes": "cse_barrier_expander",
    }
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except Exception:  # this version of XLA does not know it: nothing depends on it
        return {}
    return options


def jit_of_small(f: Callable[..., Any]) -> Any:
    """``jax.jit`` for a program of small arrays, which is called outside of all JAX transforms."""
    return make_jit(without_collector(f), compiler_options=_options_of_small_programs())


def barrier(values: Sequence[Any]) -> list[Any]:
    """The same values, behind an optimization barrier and in row-major layout.

    XLA does not fuse an operation with others across a barrier: it compiles it as it would alone.
    """
    plain = [
        isinstance(v, jax.Array) and not jax.dtypes.issubdtype(v.dtype, jax.dtypes.extended)
        for v in values
    ]
    rows = [
        with_layout_constraint(v, Layout(tuple(range(v.ndim)))) if v.ndim > 1 else v
        for v, p in zip(values, plain)
        if p
    ]
    bind = (
        _barrier_primitive.bind if rows and current_program() is not None else _optimization_barrier
    )
    pace.yield_gil()
    kept = iter(bind(*rows))
    return [next(kept) if p else v for v, p in zip(values, plain)]


def _optimization_barrier(*values: Any) -> Sequence[Any]:
    found: Sequence[Any] = jax.lax.optimization_barrier(values)
    return found


def _lower_barrier(_: Any, *values: Any) -> Sequence[Any]:
    pace.yield_gil()
    return list(barrier_op(values).results)


# `jax.lax.optimization_barrier`, in programs that the compile thread lowers; see NOTE [pace].
_barrier_primitive = new_primitive("barrier")
define_primitive(
    _barrier_primitive,
    lambda *values: list(values),
    lambda *avals: avals,
    lowering=_lower_barrier,
)


def jit_exact(f: Callable[..., Any], avals: Sequence[Any]) -> Callable[..., Any]:
    """``f``, which returns a tuple, compiled for small arrays, with bitwise the results of eager
    execution.

    There are barriers between the operations of ``f``. If nothing reads one of several results of an
    operation, XLA would drop it and fuse the rest of the operation in another way. So the compiled
    program also returns one element of each unread result; they are cut off from what the caller gets.
    """
    as_it_is = jit_of_small(f)
    traced = as_it_is.trace(*avals)
    closed = traced.jaxpr
    unread = _unread(closed.jaxpr)
    if not unread:
        traced.lower()  # cached: the first call finds it
        return as_it_is
    count = len(closed.jaxpr.outvars)
    whole = closed.replace(jaxpr=closed.jaxpr.replace(outvars=[*closed.jaxpr.outvars, *unread]))

    def keeping(*values: Any) -> tuple[Any, ...]:
        outs = write_equations(current_program(), whole, values)
        read = [jax.numpy.ravel(x)[:1].real.astype(np.float32) for x in outs[count:]]
        return (*outs[:count], jax.numpy.concatenate(read))

    compiled = jit_of_small(keeping)
    compiled.lower(*avals)
    return lambda *values: compiled(*values)[:count]


def _unread(jaxpr: Any) -> list[Any]:
    """Results of barriers that are not read, where another result of the same barrier is."""
    live = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if live.isdisjoint(eqn.outvars):
            continue
        live.update([v for v in eqn.invars if not isinstance(v, Literal)])
        if eqn.primitive is _barrier_primitive:
            found += [v for v in eqn.outvars if v not in live and v.aval.size]
    return found
