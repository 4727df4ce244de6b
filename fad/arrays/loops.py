"""A while loop that stores checkpoints, and its pullback, which computes from these again.

NOTE [checkpoints]

The forward loop stores every ``stride``-th carry. With ``max_steps`` the stride is known before. Without, it
starts at 1; when all slots are full, every second one is dropped and the stride is doubled (Wang, Moin and
Iaccarino 2009, Stumm and Walther 2010: checkpoints of a run whose length is not known). The way back knows
the number of steps: between two checkpoints it places further ones by the binomial schedule, which computes
each step again as few times as the slots permit (Griewank and Walther 2000, Algorithm 799: revolve).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from fad.core.jaxapi import run_jaxpr, shaped_array
from fad.core.masked import select, spread
from fad.core.types import Array, Aval, JaxProgram, Outputs, PyTree

Mask = tuple[bool, ...]
T = TypeVar("T")


class Loop(NamedTuple):
    """A loop: operands are constants of the condition, constants of the body, and the carry.

    ``kept``, ``extra``: slots for checkpoints in the forward loop, and further ones on the way back.
    """

    cond: JaxProgram
    body: JaxProgram
    cond_count: int
    body_count: int
    max_steps: int | None
    kept: int
    extra: int

    def split(self, operands: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
        k, n = self.cond_count, self.cond_count + self.body_count
        return list(operands[:k]), list(operands[k:n]), list(operands[n:])

    @property
    def operand_count(self) -> int:
        """The number of operands."""
        return self.cond_count + self.body_count + len(self.body.out_avals)

    def stored_avals(self) -> list[Aval]:
        """Avals of the number of steps, of the stride, and of the slots."""
        number = shaped_array((), jnp.dtype("int32"))
        slots = [shaped_array((self.kept, *a.shape), a.dtype) for a in self.body.out_avals]
        return [number, number, *slots]


def parts_of(loop: Loop, values: Sequence[Array | None]) -> tuple[Any, list[Any], list[Any]]:
    """The operands by kind, what the forward loop stored, and the tangents or cotangents."""
    n = loop.operand_count
    stored = 2 + len(loop.body.out_avals)
    return loop.split(values[:n]), list(values[n : n + stored]), list(values[n + stored :])


def run(*operands: Array, loop: Loop, stored: bool) -> list[Array]:
    """The final carry; with ``stored`` also the number of steps, the stride and the slots."""
    cond_consts, body_consts, init = loop.split(operands)

    def active(i: Array, carry: Sequence[Array]) -> Array:
        (go,) = run_jaxpr(loop.cond, *cond_consts, *carry)
        return go if loop.max_steps is None else go & (i < loop.max_steps)

    def step(state: PyTree) -> Outputs:
        i, _, carry = state
        carry = run_jaxpr(loop.body, *body_consts, *carry)
        return i + 1, active(i + 1, carry), carry

    zero = jnp.int32(0)
    start = (zero, active(zero, init), init)
    if not stored:
        return list(jax.lax.while_loop(lambda s: s[1], step, start)[2])

    def fill(state: PyTree) -> Outputs:
        """Store the carry, and run to the next one to store."""
        at, stride, slots, inner = state
        end = inner[0] + stride
        slots = [_put(s, c, at) for s, c in zip(slots, inner[2], strict=True)]
        inner = jax.lax.while_loop(lambda s: s[1] & (s[0] < end), step, inner)
        return at + 1, stride, slots, inner

    slots = [rows_of(c, loop.kept) for c in init]
    if loop.max_steps is not None:
        stride = jnp.int32(max(1, -(-loop.max_steps // loop.kept)))
        state = (zero, stride, slots, start)
        _, stride, slots, end = jax.lax.while_loop(lambda s: s[3][1], fill, state)
    else:
        even = jnp.minimum(2 * jnp.arange(loop.kept), loop.kept - 1)

        def refill(state: PyTree) -> Outputs:
            """Drop every second slot, and fill them again."""
            at, stride, slots, inner = state
            stride = jnp.where(at == 0, 1, 2 * stride)
            state = (at // 2, stride, [s[even] for s in slots], inner)
            return jax.lax.while_loop(lambda s: s[3][1] & (s[0] < loop.kept), fill, state)

        state = (zero, jnp.int32(1), slots, start)
        _, stride, slots, end = jax.lax.while_loop(lambda s: s[3][1], refill, state)
    return [*end[2], end[0], stride, *slots]


def rows_of(x: Array, n: int) -> Array:
    return jnp.broadcast_to(x, (n, *jnp.shape(x)))


def _put(slots: Array, x: Array, at: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(slots, x, at, 0)


def _get(slots: Sequence[Array], at: Array) -> list[Array]:
    return [jax.lax.dynamic_index_in_dim(s, at, 0, keepdims=False) for s in slots]


def advance(distance: Array, free: Array) -> Array:
    """How far from a checkpoint the next one is placed, for steps 0 to ``distance`` with ``free`` slots.

    Source: Griewank and Walther 2000, Algorithm 799. With ``free`` slots and ``r`` computations of each step,
    C(free + r, free) steps can be reversed.
    """
    s, steps = free.astype(jnp.float32), (distance + 1).astype(jnp.float32)

    def more(state: PyTree) -> Outputs:
        r, reach = state
        return r + 1, reach * (s + r + 1) / (r + 1)

    r, reach = jax.lax.while_loop(lambda v: v[1] < steps, more, (jnp.float32(1), s + 1))
    least = reach * r / (s + r) * (r - 1) / (s + r - 1)
    right = reach * s / (s + r)
    apart = jnp.maximum(least, steps - right).astype(jnp.int32)
    return jnp.where(free == 1, distance, jnp.clip(apart, 1, distance))


def pull(*values: Array, loop: Loop, consts: Mask, carries: Mask) -> list[Array]:
    """The cotangents of the body's constants and of the first carry."""
    (_, body_consts, _), (steps, stride, *slots), cotangents = parts_of(loop, values)
    rows = loop.kept + loop.extra
    slots = [jnp.concatenate([s, rows_of(s[0], loop.extra)]) for s in slots]
    places = jnp.arange(rows, dtype=jnp.int32) * stride

    def further(t: Array, state: PyTree) -> Outputs:
        """Place one more checkpoint between the last one and step t - 1."""
        top, places, slots = state
        start = places[top]
        stop = start + advance(t - 1 - start, rows - 1 - top)
        _, carry = jax.lax.while_loop(
            lambda s: s[0] < stop,
            lambda s: (s[0] + 1, run_jaxpr(loop.body, *body_consts, *s[1])),
            (start, _get(slots, top)),
        )
        slots = [_put(s, c, top + 1) for s, c in zip(slots, carry, strict=True)]
        return top + 1, _put(places, stop, top + 1), slots

    def back(state: PyTree) -> Outputs:
        t, top, places, slots, totals, cotangents = state
        top, places, slots = jax.lax.while_loop(
            lambda s: s[1][s[0]] < t - 1, functools.partial(further, t), (top, places, slots)
        )
        carry = _get(slots, top)

        def body(some_consts: Any, some_carries: Any) -> list[Array | None]:
            given = [*spread(consts, some_consts, body_consts)]
            given += spread(carries, some_carries, carry)
            return select(carries, run_jaxpr(loop.body, *given))

        _, pullback = jax.vjp(body, select(consts, body_consts), select(carries, carry))
        parts, cotangents = pullback(list(cotangents))
        totals = [a + b for a, b in zip(totals, parts, strict=True)]
        return t - 1, top - 1, places, slots, totals, cotangents

    zeros = [jnp.zeros_like(c) for c in select(consts, body_consts)]
    top = (steps + stride - 1) // stride - 1
    state = (steps, top, places, slots, zeros, list(cotangents))
    *_, totals, cotangents = jax.lax.while_loop(lambda s: s[0] > 0, back, state)
    return [*totals, *cotangents]
