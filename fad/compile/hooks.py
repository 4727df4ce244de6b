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

A transform of such a call is a call of the transformed function: `_BatchedHostFunction` runs ``fad.vmap`` of
the hook on the host, so that the hook is called once, with a batched Tensor, as it is eagerly; `_Jvp` and
`_Transposed` run ``fad.jvp`` and ``fad.vjp``. These derivatives call the hook again, on the same
gradients. So a hook that returns another gradient then has no derivative, which is an error.
"""

from __future__ import annotations

import functools
import itertools
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import jaxapi
from fad.core.jaxapi import Zero, define_primitive, instantiate_zeros, io_callback, new_primitive
from fad.core.jaxprs import active, conjugate, select, where_batched
from fad.core.level import bind, flush, state, with_default_state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, bottom
from fad.core.types import Array, ArrayFunction, DType, Operand, Outputs, PyTree
from fad.errors import GradientError
from fad.errors.tracebacks import users_frames
from fad.tape.anomaly import has_nan
from fad.tape.grad_mode import no_grad
from fad.tape.recorder import as_tensor
from fad.transforms.grad import vjp
from fad.transforms.jvp import jvp
from fad.transforms.vmap import vmap

# For each result of a call, its shape and dtype.
Avals = tuple[tuple[tuple[int, ...], DType], ...]


@dataclass(frozen=True)
class _HostFunction:
    """A function of Tensors that is called on the host; equal to itself alone."""

    name: str
    run: Callable[..., Sequence[Any]]

    def __call__(self, *values: Array) -> tuple[Array, ...]:
        return tuple(self.run(*values))


@dataclass(frozen=True)
class _OfHostFunction:
    """A function that is derived from one on the host, ``base``, and has its name."""

    base: Any

    @property
    def name(self) -> str:
        name: str = self.base.name
        return name


@dataclass(frozen=True)
class _BatchedHostFunction(_OfHostFunction):
    """``vmap`` of ``base`` over ``dims``."""

    dims: tuple[int | None, ...]
    size: int

    def __call__(self, *values: Array) -> tuple[Array, ...]:
        out: tuple[Array, ...] = vmap(self.base, in_dims=self.dims)(*values)
        return out


@dataclass(frozen=True)
class _Jvp(_OfHostFunction):
    """Tangents of ``base``, from its arguments, its results, and the tangents of those in ``mask``."""

    mask: tuple[bool, ...]

    def __call__(self, *values: Array) -> tuple[Array, ...]:
        count = sum(self.mask)
        n = len(self.mask)
        primals, before, tangents = values[:n], values[n : len(values) - count], values[-count:]
        f, masked = active(self.base, self.mask, primals)
        outs, out_t = jvp(f, tuple(masked), tuple(tangents))
        for new, old in zip(outs, before, strict=True):
            if has_nan(bind(_DIFFERENCE, (new, old))):
                raise GradientError(
                    f"hook '{self.name}' returned another gradient when it was called again for its "
                    "derivative. In compiled code a hook that is differentiated must return the same for "
                    "the same gradient; or differentiate the function without fad.jit."
                )
        return tuple(out_t)


@dataclass(frozen=True)
class _Transposed(_OfHostFunction):
    """The transpose of ``base``, linear in its arguments from ``fixed_count`` on, which have ``avals``."""

    fixed_count: int
    avals: Avals

    def __call__(self, *values: Array) -> tuple[Array, ...]:
        fixed, cotangents = values[: self.fixed_count], values[self.fixed_count :]
        zeros = [jnp.zeros(shape, dtype) for shape, dtype in self.avals]
        _, pull = vjp(lambda *linear: self.base(*fixed, *linear), *zeros)
        out: tuple[Array, ...] = pull(tuple(cotangents))
        return out


def _differ(new: Array, old: Array) -> Array:
    same = (new == old) | (jnp.isnan(new) & jnp.isnan(old))
    return jnp.where(same, jnp.float32(0), jnp.float32(jnp.nan))


_DIFFERENCE = Primitive("host_call_check", _differ)


# On the host

_FAILURES = 64
_numbers = itertools.count()
_failed: dict[str, BaseException] = {}
_lock = threading.RLock()


@with_default_state()
def _evaluate(fn: Any, *arrays: Any) -> tuple[Any, ...]:
    """What ``fn`` gives for these arrays, with the modes of a new thread, unrecorded."""
    try:
        with jax.ensure_compile_time_eval(), no_grad():
            outs = fn(*[as_tensor(jnp.asarray(a)) for a in arrays])
            flush()
            return tuple([np.asarray(o.numpy() if isinstance(o, Tensor) else o) for o in outs])
    except BaseException as error:
        number = f"[fad host call {next(_numbers)}]"
        error.add_note(f"in hook {fn.name!r} of code that fad.jit(hooks=True) compiled")
        with _lock:
            _failed[number] = error
            if len(_failed) > _FAILURES:
                del _failed[next(iter(_failed))]
        frames = "".join(users_frames(traceback.format_tb(error.__traceback__)))
        # JAX logs this error, and `executed` raises the other one, whose context would be logged too.
        raise RuntimeError(
            f"{fn.name!r} raised {type(error).__name__}: {error} {number}\n{frames}".rstrip()
        ) from None


def executed(call: ArrayFunction, operands: Sequence[Operand]) -> Outputs:
    """``call(*operands)``, which runs a program, when it has run.

    An exception of a function on the host is raised as it was there.
    """
    try:
        out = call(*operands)
        if jaxapi.is_tracing():
            return out
        flush()
        outs = [bottom(o) for o in (out if type(out) is tuple else (out,))]
        jax.block_until_ready(outs)
        if not outs:
            jax.effects_barrier()
        return out
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        with _lock:
            number = next((n for n in _failed if n in text), "")
            original = _failed.pop(number, None)
        if original is None:
            raise
        jaxapi.forget_failed_effects()
        raise original from None


# The equation
#
# A call that is not linear is an ordered effect. The derivative of one is linear in its operands from
# ``fixed_count`` on, and pure.

_call_p = new_primitive("fad_host_call")


def _run(
    *values: Array, fn: Callable[..., Sequence[Array]], outs: Avals, fixed_count: int | None
) -> list[Array]:
    structs = tuple([jax.ShapeDtypeStruct(*o) for o in outs])
    run = functools.partial(_evaluate, fn)
    if fixed_count is None:
        return list(io_callback(run, structs, *values, ordered=True))
    return list(jax.pure_callback(run, structs, *values))


@functools.cache
def _ordered() -> object:
    """The effect of an ordered callback."""
    return jax.make_jaxpr(lambda: io_callback(lambda: None, None, ordered=True))().effects


def _described(values: Sequence[PyTree]) -> Avals:
    return tuple([(tuple(v.aval.shape), v.aval.dtype) for v in values])


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Array],
    *,
    fn: Callable[..., Outputs],
    outs: Avals,
    fixed_count: int | None,
) -> tuple[Outputs, Outputs]:
    results = _call_p.bind(*primals, fn=fn, outs=outs, fixed_count=fixed_count)
    mask = tuple([type(t) is not Zero for t in tangents])
    if not any(mask) or not outs:
        return results, [Zero(r.aval.to_tangent_aval()) for r in results]
    fixed = [*primals, *results]
    return results, _call_p.bind(
        *fixed, *select(mask, tangents), fn=_Jvp(fn, mask), outs=outs, fixed_count=len(fixed)
    )


def _transpose(
    cotangents: Sequence[Array],
    *operands: Array,
    fn: Callable[..., Outputs],
    outs: Avals,
    fixed_count: int,
) -> list[Any]:
    described = _described(operands[fixed_count:])
    cts = [conjugate(instantiate_zeros(c)) for c in cotangents]
    transposed = _Transposed(fn, fixed_count, described)
    grads = _call_p.bind(
        *operands[:fixed_count], *cts, fn=transposed, outs=described, fixed_count=fixed_count
    )
    return [None] * fixed_count + [conjugate(g) for g in grads]


def _batch(
    axis_data: Any,
    values: Sequence[Array],
    dims: Any,
    *,
    fn: Callable[..., Outputs],
    outs: Avals,
    fixed_count: int | None,
) -> tuple[Outputs, Outputs]:
    batched = _BatchedHostFunction(fn, tuple(dims), axis_data.size)
    wide = tuple([((axis_data.size, *shape), dtype) for shape, dtype in outs])
    results = _call_p.bind(*values, fn=batched, outs=wide, fixed_count=fixed_count)
    return results, [0] * len(results)


define_primitive(
    _call_p,
    _run,
    lambda *_, outs, **__: [jaxapi.shaped_array(*o) for o in outs],
    effects=lambda *_, fixed_count, **__: _ordered() if fixed_count is None else frozenset(),
    jvp=_jvp,
    transpose=_transpose,
    batch=where_batched(_call_p, _batch),
)


# In a trace


class _Host:
    """What ``state.host`` is while the body of ``jit(hooks=True)`` is traced.

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
        fn = _HostFunction(name, f)

        def flat(*arrays: Array) -> tuple[Array, ...]:
            arrays = tuple([jnp.asarray(a) for a in arrays])
            outs = tuple([(a.shape, a.dtype) for a in arrays[:count]])
            return tuple(_call_p.bind(*arrays, fn=fn, outs=outs, fixed_count=None))

        op = Primitive(name, flat, jit=False)
        levels = [v.level.id for v in values if isinstance(v, Tensor)]
        if max(levels, default=-1) >= self.since:
            out = bind(op, values)
        else:  # of numbers alone
            out = [x for x in state.levels if x.traces][-1].process(op, values)
        return list(out)


def with_host_calls(f: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``f``, the body of a `jit`: its hooks are called on the host, at each execution."""

    @functools.wraps(f)
    def body(*args: PyTree, **kwargs: PyTree) -> PyTree:
        assert state.body is not None
        before, state.host = state.host, _Host(state.body.id)
        try:
            return f(*args, **kwargs)
        finally:
            state.host = before

    return body
