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
_RESHAPES = frozenset(("reshape", "squeeze", "expand_dims", "transpose"))
_COMPUTED_APART = frozenset(("dot_general", "conv_general_dilated"))


def with_safe_writes(closed: JaxProgram) -> JaxProgram:
    """The program, with each write that XLA may compile wrong in another form."""
    writes = any([eqn.primitive.name in _WINDOWS for eqn in equations_in(closed.jaxpr)])
    if not writes or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return closed
    jaxpr = _safe(closed.jaxpr, [False] * len(closed.jaxpr.invars))
    return closed if jaxpr is closed.jaxpr else ClosedJaxpr(jaxpr, closed.consts)


def _safe(jaxpr: JaxBody, moved: Sequence[bool]) -> JaxBody:
    """The body, with safe writes; ``moved``: which of its inputs are other arrays in another shape."""
    # Of values that are others in another shape, or computed of such element by element: a number that those
    # which may be in one place of memory share, and from which equation on.
    places: dict[JaxObject, int] = {v: -1 for v, x in zip(jaxpr.invars, moved, strict=True) if x}
    producer: dict[JaxObject, int] = {}
    eqns: list[JaxEquation] = []
    for k, eqn in enumerate(jaxpr.eqns):
        name, new = eqn.primitive.name, _with_safe_bodies(eqn, places)
        values = [v for v in eqn.invars if not isinstance(v, Literal)]
        if name in _WINDOWS:
            x, window = eqn.invars[0], eqn.invars[_WINDOWS[name]]
            if not isinstance(x, Literal) and x in places:
                if _reads(window, places[x], places, producer, jaxpr.eqns):
                    new = _chosen(eqn)
                places[eqn.outvars[0]] = k
        elif name not in _COMPUTED_APART:
            for out in eqn.outvars:
                same = [v for v in values if _size_of(v) == _size_of(out)]
                earlier = [places[v] for v in same if v in places]
                if earlier or (same and name in _RESHAPES):
                    places.update(dict.fromkeys([out, *same], min(earlier, default=k)))
        producer.update(dict.fromkeys(eqn.outvars, k))
        eqns.append(new)
    changed = any([new is not eqn for new, eqn in zip(eqns, jaxpr.eqns, strict=True)])
    return jaxpr.replace(eqns=eqns) if changed else jaxpr


def _size_of(v: JaxObject) -> int:
    return math.prod(getattr(v.aval, "shape", ()))


def _reads(
    v: JaxObject,
    place: int,
    places: Mapping[JaxObject, int],
    producer: Mapping[JaxObject, int],
    eqns: Sequence[JaxEquation],
) -> bool:
    """Whether ``v`` is computed of a value in this place."""
    stack, seen = [v], set()
    while stack:
        v = stack.pop()
        if isinstance(v, Literal) or v in seen:
            continue
        seen.add(v)
        if places.get(v) == place:
            return True
        if producer.get(v, -1) > place:
            stack += eqns[producer[v]].invars
    return False


def _with_safe_bodies(eqn: JaxEquation, places: Container[JaxObject]) -> JaxEquation:
    """The equation, with safe writes in its programs."""
    moved = [not isinstance(v, Literal) and v in places for v in eqn.invars]
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
