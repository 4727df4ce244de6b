"""Hooks and checks of compiled code: functions that a program calls on the host at each execution.

NOTE [calls of the host]

    def f(v):
        y = v * v
        y.register_hook(seen.append)
        return y

    seen = []
    slope = fad.jit(fad.grad(f), hooks=True)
    slope(1.0), slope(2.0)
    assert len(seen) == 2  # it is traced once

In the body of ``jit(f, hooks=True)`` a backward pass that comes to a hook writes a call of the host into the
program: one equation, whose function is the hook. It is an ordered effect, so hooks run at each execution,
in the order in which the pass came to them, and none is dropped.

A transform of such a call is a call of the transformed function: a batched one runs ``fad.vmap`` of the hook
on the host, so that the hook is called once, with a batched Tensor, as it is eagerly; derivatives run
``fad.jvp`` and ``fad.vjp``. These call the hook again, on the same gradients. So a hook that returns another
gradient then has no derivative, which is an error.

A tool: `jit` imports it for ``hooks=True`` alone.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import fad
from fad.errors import GradientError, traceback_filtering
from fad.extend import (
    Primitive,
    Tensor,
    bind,
    bottom,
    flush,
    native_primitive,
    running_levels,
    with_default_state,
)
from fad.extend.types import Array, Operand, Outputs

# A function of Tensors that is called on the host.
HostFunction = Callable[..., Outputs]
# For each result of a call, its shape and dtype.
Avals = tuple[jax.ShapeDtypeStruct, ...]


# On the host

_FAILURES = 64
_numbers = itertools.count()
_failed: dict[str, BaseException] = {}
_lock = threading.RLock()
_FAD, _JAX = [os.path.join(os.path.dirname(str(m.__file__)), "") for m in (fad, jax)]


def _hidden(file: str) -> bool:
    """Whether frames of a file are left out: of fad, and of JAX where JAX filters them too."""
    if traceback_filtering() == "off":
        return False
    unfiltered = jax.config.jax_traceback_filtering == "off"  # type: ignore[attr-defined]
    return file.startswith(_FAD if unfiltered else (_FAD, _JAX))


@with_default_state()
def _evaluate(name: str, fn: HostFunction, *arrays: Any) -> tuple[Any, ...]:
    """What ``fn`` gives for these arrays, with the modes of a new thread, unrecorded."""
    try:
        with jax.ensure_compile_time_eval(), fad.no_grad():
            outs = fn(*[fad.as_tensor(jnp.asarray(a)) for a in arrays])
            flush()
            return tuple([np.asarray(o.numpy() if isinstance(o, Tensor) else o) for o in outs])
    except BaseException as error:
        number = f"[fad host call {next(_numbers)}]"
        error.add_note(f"in hook {name!r} of code that fad.jit(hooks=True) compiled")
        with _lock:
            _failed[number] = error
            if len(_failed) > _FAILURES:
                del _failed[next(iter(_failed))]
        frames = traceback.extract_tb(error.__traceback__)
        shown = [frame for frame in frames if not _hidden(frame.filename)]
        # JAX logs this error, and the other one is raised, whose context would be logged too.
        raise RuntimeError(
            f"{name!r} raised {type(error).__name__}: {error} {number}\n"
            f"{''.join(traceback.format_list(shown))}".rstrip()
        ) from None


def raised(error: Exception) -> BaseException | None:
    """The exception of a function on the host that ``error``, of JAX, tells of; None if it tells of none."""
    text = str(error)
    with _lock:
        return _failed.pop(next((n for n in _failed if n in text), ""), None)


def _batched(fn: HostFunction, dims: Sequence[int | None]) -> HostFunction:
    """``vmap`` of a function over ``dims``."""
    return fad.vmap(fn, in_dims=tuple(dims))


def _tangents(name: str, fn: HostFunction, mask: Sequence[bool]) -> HostFunction:
    """Tangents of a function, from its arguments, its results, and the tangents of the masked arguments."""

    def tangents(*values: Array) -> Outputs:
        n, count = len(mask), sum(mask)
        primals, before, directions = values[:n], values[n:-count], values[-count:]

        def f(*masked: Array) -> Outputs:
            rest = iter(masked)
            return fn(*[next(rest) if m else p for p, m in zip(primals, mask, strict=True)])

        outs, out_t = fad.jvp(f, tuple(itertools.compress(primals, mask)), directions)
        for new, old in zip(outs, before, strict=True):
            if jnp.isnan(bottom(bind(_DIFFERENCE, (new, old)))).any():
                raise GradientError(
                    f"hook '{name}' returned another gradient when it was called again for its "
                    "derivative. In compiled code a hook that is differentiated must return the same for "
                    "the same gradient; or differentiate the function without fad.jit."
                )
        return tuple(out_t)

    return tangents


def _differ(new: Array, old: Array) -> Array:
    same = (new == old) | (jnp.isnan(new) & jnp.isnan(old))
    return jnp.where(same, jnp.float32(0), jnp.float32(jnp.nan))


_DIFFERENCE = Primitive("host_call_check", _differ)


def _transposed(fn: HostFunction, fixed_count: int, avals: Avals) -> HostFunction:
    """The transpose of a function, linear in its arguments from ``fixed_count`` on, which have ``avals``."""

    def transposed(*values: Array) -> Outputs:
        fixed, cotangents = values[:fixed_count], values[fixed_count:]
        zeros = [jnp.zeros(a.shape, a.dtype) for a in avals]
        return tuple(fad.vjp(lambda *linear: fn(*fixed, *linear), *zeros)[1](cotangents))

    return transposed


# The equation
#
# A call that is not linear is an ordered effect. The derivative of one is linear in its operands from
# ``fixed_count`` on, and pure.


def _run(
    *values: Array, name: str, fn: HostFunction, outs: Avals, fixed_count: int | None
) -> list[Array]:
    run = functools.partial(_evaluate, name, fn)
    if fixed_count is None:
        return list(io_callback(run, outs, *values, ordered=True))
    return list(jax.pure_callback(run, outs, *values))


@functools.cache
def _ordered() -> object:
    """The effect of an ordered callback."""
    return jax.make_jaxpr(lambda: io_callback(lambda: None, None, ordered=True))().effects


def _jvp(
    primals: Sequence[Array], tangents: Sequence[Array | None], **call: Any
) -> tuple[Outputs, Sequence[Array | None]]:
    results = _call_p.bind(*primals, **call)
    mask = [t is not None for t in tangents]
    if not any(mask) or not results:
        return results, [None] * len(results)
    fixed = [*primals, *results]
    call |= {"fn": _tangents(call["name"], call["fn"], mask), "fixed_count": len(fixed)}
    return results, _call_p.bind(*fixed, *itertools.compress(tangents, mask), **call)


def _transpose(
    cotangents: Sequence[Array], operands: Sequence[Any], linear: Sequence[bool], **call: Any
) -> list[Array | None]:
    count = call["fixed_count"]
    avals = tuple([jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in operands[count:]])
    call |= {"fn": _transposed(call["fn"], count, avals), "outs": avals}
    grads = _call_p.bind(*operands[:count], *map(jnp.conj, cotangents), **call)
    return [*[None] * count, *map(jnp.conj, grads)]


def _batch(
    axis: Any, values: Sequence[Array], dims: Sequence[Any], **call: Any
) -> tuple[Outputs, Sequence[int]]:
    wide = tuple([jax.ShapeDtypeStruct((axis.size, *o.shape), o.dtype) for o in call["outs"]])
    call |= {"fn": _batched(call["fn"], dims), "outs": wide}
    results = _call_p.bind(*values, **call)
    return results, [0] * len(results)


_call_p = native_primitive(
    "fad_host_call",
    _run,
    lambda *_, outs, **__: list(outs),
    jvp=_jvp,
    batch=_batch,
    transpose=_transpose,
    effects=lambda *_, fixed_count, **__: _ordered() if fixed_count is None else frozenset(),
)


# In a trace


def _called(f: Callable[..., Sequence[Any]], *values: Any) -> Outputs:
    return tuple(f(*values))


class Host:
    """What calls the host while the body of ``jit(hooks=True)`` is traced.

    ``since``: what was made at a lower id is from outside of the body.
    """

    __slots__ = ("since",)

    def __init__(self, since: int) -> None:
        self.since = since

    def call(
        self, name: str, f: Callable[..., Sequence[Any]], values: Sequence[Operand], count: int
    ) -> list[Array]:
        """Write a call of ``f(*values)`` into the program, whose results are like the first ``count``
        values.
        """

        def flat(*arrays: Array) -> tuple[Array, ...]:
            arrays = tuple([jnp.asarray(a) for a in arrays])
            outs = tuple([jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays[:count]])
            fn = functools.partial(_called, f)
            return tuple(_call_p.bind(*arrays, name=name, fn=fn, outs=outs, fixed_count=None))

        op = Primitive(name, flat, jit=False)
        levels = [v.level.id for v in values if isinstance(v, Tensor)]
        if max(levels, default=-1) >= self.since:
            out = bind(op, values)
        else:  # of numbers alone
            out = [x for x in running_levels() if x.traces][-1].process(op, values)
        return list(out)
