"""Writes that read what they write over, in a form that XLA compiles right.

NOTE [writes that read what they write over]

    def f(x):
        u = fad.numpy.reshape(2.0 * x, 6)
        u[1:4] = u[:3] * u[3:]
        return u * fad.numpy.tanh(u)

    x = fad.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    assert abs(f(x) - fad.jit(f)(x)).max() < 1e-4

XLA for CPUs, that of JAX 0.10 and 0.12, computes a ``dynamic_update_slice`` in the memory of its operand,
together with the update. If the operand is another array in another shape, it does so even where the update
reads elements of it that have been written by then; the rows that a loop goes through are such. In these
programs the new elements are put among zeros, and chosen by ``select``.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

import jax
import jax.numpy as jnp

from fad.core.avals import struct_of
from fad.core.jaxapi import ClosedJaxpr, Literal, scan_parts
from fad.core.jaxprs import equations_in, with_programs
from fad.core.types import Array, JaxBody, JaxEquation, JaxObject, JaxProgram

_WINDOWS = {"dynamic_update_slice": 1, "scatter": 2}  # which operand is written


def with_safe_writes(closed: JaxProgram) -> JaxProgram:
    """The program, with each write that XLA may compile wrong in another form."""
    writes = any([eqn.primitive.name in _WINDOWS for eqn in equations_in(closed.jaxpr)])
    if not writes or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return closed
    jaxpr = _safe(closed.jaxpr, [False] * len(closed.jaxpr.invars))
    return closed if jaxpr is closed.jaxpr else ClosedJaxpr(jaxpr, closed.consts)


def _safe(jaxpr: JaxBody, moved: Sequence[bool]) -> JaxBody:
    """The body, with safe writes; ``moved``: which of its inputs are other arrays in another shape."""
    # Of values that are others in another shape, or computed of such: those which XLA may keep in one place
    # of memory have the same number, that of the equation that makes the first of them.
    begins: dict[JaxObject, int] = {v: -1 for v, x in zip(jaxpr.invars, moved, strict=True) if x}
    producer: dict[JaxObject, int] = {}
    eqns: list[JaxEquation] = []
    for k, eqn in enumerate(jaxpr.eqns):
        name, new = eqn.primitive.name, _with_safe_bodies(eqn, begins)
        values = [v for v in eqn.invars if not isinstance(v, Literal)]
        if name in _WINDOWS:
            x, window = eqn.invars[0], eqn.invars[_WINDOWS[name]]
            if not isinstance(x, Literal) and x in begins:
                if _reads(window, begins[x], begins, producer, jaxpr.eqns):
                    new = _chosen(eqn)
                begins[eqn.outvars[0]] = k
        else:
            for out in eqn.outvars:
                same = [v for v in values if math.prod(_shape_of(v)) == math.prod(_shape_of(out))]
                earlier = [begins[v] for v in same if v in begins]
                if earlier or any([_shape_of(v) != _shape_of(out) for v in same]):
                    begins.update(dict.fromkeys([out, *same], min(earlier, default=k)))
        producer.update(dict.fromkeys(eqn.outvars, k))
        eqns.append(new)
    changed = any([new is not eqn for new, eqn in zip(eqns, jaxpr.eqns, strict=True)])
    return jaxpr.replace(eqns=eqns) if changed else jaxpr


def _shape_of(v: JaxObject) -> tuple[int, ...]:
    shape: tuple[int, ...] = getattr(v.aval, "shape", ())
    return shape


def _reads(
    v: JaxObject,
    begin: int,
    begins: Mapping[JaxObject, int],
    producer: Mapping[JaxObject, int],
    eqns: Sequence[JaxEquation],
) -> bool:
    """Whether ``v`` is computed of a value with this number."""
    stack, seen = [v], set()
    while stack:
        v = stack.pop()
        if isinstance(v, Literal) or v in seen:
            continue
        seen.add(v)
        if begins.get(v) == begin:
            return True
        if producer.get(v, -1) > begin:
            stack += eqns[producer[v]].invars
    return False


def _with_safe_bodies(eqn: JaxEquation, begins: Container[JaxObject]) -> JaxEquation:
    """The equation, with safe writes in its programs."""
    moved = [not isinstance(v, Literal) and v in begins for v in eqn.invars]
    if eqn.primitive.name == "scan":  # its rows are cut out of arrays
        parts = scan_parts(eqn)
        moved = [k >= parts.constants + parts.carried for k in range(len(moved))]
    elif eqn.primitive.name in ("cond", "while"):
        moved = []
    changed = []

    def body(jaxpr: JaxBody) -> JaxBody:
        count = len(jaxpr.invars)
        new = _safe(jaxpr, moved if len(moved) == count else [False] * count)
        changed.append(new is not jaxpr)
        return new

    new = with_programs(eqn, body)
    return new if any(changed) else eqn


def _chosen(eqn: JaxEquation) -> JaxEquation:
    """The write, computed by ``select``."""
    at = _WINDOWS[eqn.primitive.name]

    def chosen(x: Array, *rest: Array) -> Array:
        def put(into: Array, window: Array) -> Array:
            operands = [*rest[: at - 1], window, *rest[at:]]
            out: Array = eqn.primitive.bind(into, *operands, **eqn.params)
            return out

        window = rest[at - 1]
        is_new = put(jnp.zeros(x.shape, bool), jnp.ones(window.shape, bool))
        return jax.lax.select(is_new, put(jnp.zeros_like(x), window), x)

    structs = [struct_of(v.aval) for v in eqn.invars]
    program: JaxProgram = jax.make_jaxpr(jax.jit(chosen))(*structs)
    return program.jaxpr.eqns[0].replace(invars=eqn.invars, outvars=eqn.outvars)
