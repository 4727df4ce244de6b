"""``while_loop`` and ``fori_loop`` with a reverse mode, of any order, in bounded memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from fad.errors import ArgumentError, describe
from fad.extend import (
    batched_program,
    derivative_program,
    native_primitive,
    run_program,
    while_parts,
)
from fad.extend.types import Array, ArrayFunction, Aval, JaxProgram, Operand, Outputs, PyTree
from fad.formulas.smooth_functions import is_inexact

# A while loop that stores checkpoints, and its pullback, which computes from these again.
#
# NOTE [checkpoints]
#
# The forward loop stores every ``stride``-th carry. With ``max_steps`` the stride is known before. Without,
# it starts at 1; when all slots are full, every second one is dropped and the stride is doubled (Wang, Moin
# and Iaccarino 2009, Stumm and Walther 2010: checkpoints of a run whose length is not known). The way back
# knows the number of steps: between two checkpoints it places further ones by the binomial schedule, which
# computes each step again as few times as the slots permit (Griewank and Walther 2000, Algorithm 799:
# revolve).

Mask = tuple[bool, ...]
T = TypeVar("T")
Values = Sequence[Any]  # arrays; None for tangents that are zero


def select(mask: Sequence[bool], values: Sequence[T]) -> list[T]:
    """The masked values."""
    return [v for v, m in zip(values, mask, strict=True) if m]


def spread(
    mask: Sequence[bool], some: Sequence[Any], others: Sequence[Any] | None = None
) -> list[Any]:
    """``others``, or None for each, with ``some`` in the masked places."""
    it = iter(some)
    rest = [None] * len(mask) if others is None else others
    return [next(it) if m else o for m, o in zip(mask, rest, strict=True)]


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
        number = jax.ShapeDtypeStruct((), jnp.dtype("int32"))
        slots = [jax.ShapeDtypeStruct((self.kept, *a.shape), a.dtype) for a in self.body.out_avals]
        return [number, number, *slots]


class DifferentiatedLoop(NamedTuple):
    """A loop, and in which constants of its body and in which carries it is differentiated."""

    loop: Loop
    consts: Mask
    carries: Mask


def parts_of(loop: Loop, values: Sequence[Array | None]) -> tuple[Any, list[Any], list[Any]]:
    """The operands by kind, what the forward loop stored, and the tangents or cotangents."""
    n = loop.operand_count
    stored = 2 + len(loop.body.out_avals)
    return loop.split(values[:n]), list(values[n : n + stored]), list(values[n + stored :])


def run(*operands: Array, loop: Loop, stored: bool) -> list[Array]:
    """The final carry; with ``stored`` also the number of steps, the stride and the slots."""
    cond_consts, body_consts, init = loop.split(operands)

    def active(i: Array, carry: Sequence[Array]) -> Array:
        (go,) = run_program(loop.cond, *cond_consts, *carry)
        return go if loop.max_steps is None else go & (i < loop.max_steps)

    def step(state: PyTree) -> Outputs:
        i, _, carry = state
        carry = run_program(loop.body, *body_consts, *carry)
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


def pull(*values: Array, of: DifferentiatedLoop) -> list[Array]:
    """The cotangents of the body's constants and of the first carry."""
    loop, consts, carries = of
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
            lambda s: (s[0] + 1, run_program(loop.body, *body_consts, *s[1])),
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
            operands = [*spread(consts, some_consts, body_consts)]
            operands += spread(carries, some_carries, carry)
            return select(carries, run_program(loop.body, *operands))

        _, pullback = jax.vjp(body, select(consts, body_consts), select(carries, carry))
        parts, cotangents = pullback(list(cotangents))
        totals = [a + b for a, b in zip(totals, parts, strict=True)]
        return t - 1, top - 1, places, slots, totals, cotangents

    zeros = [jnp.zeros_like(c) for c in select(consts, body_consts)]
    top = (steps + stride - 1) // stride - 1
    state = (steps, top, places, slots, zeros, list(cotangents))
    *_, totals, cotangents = jax.lax.while_loop(lambda s: s[0] > 0, back, state)
    return [*totals, *cotangents]


# The primitives of a while loop and of its derivatives, and their rules.
#
# NOTE [the loop and its derivatives]
#
# A loop is one primitive of JAX, whose derivatives are loops of the same kind:
#
# * ``fad_while_loop`` runs it. Where it is differentiated it stores carries in ``slots``, the checkpoints.
# * ``fad_while_linear`` is its Jacobian times tangents: the loop on the carry and its tangent (`augmented`).
# * ``fad_while_pullback`` is the transpose: it goes back from checkpoint to checkpoint, and computes
#   the carries in between again.
# * ``fad_while_curvature`` is the derivative of the pullback in the loop's operands: the pullback of the
#   augmented loop. Second derivatives are symmetric, so it is its own transpose.
#
# The derivative of each is written with these four, so any order is there by construction; each is batched
# as the same primitive of a batched loop.
#
# NOTE [lanes that have finished]
#
# A batched loop runs until its last lane is done, and the others keep their carries. A lane that has finished
# would compute on, at a carry which its own condition excludes, where a derivative may be infinite, and
# 0 * inf is nan. So it is given the carry and the constants of a lane that is not done, and what comes of
# it is dropped.

# Loops made of a loop


@functools.lru_cache(maxsize=1024)
def dependent(loop: Loop, consts: Mask, carries: Mask) -> Mask:
    """Which carries have a tangent, if these constants of the body and first carries have one."""
    while True:
        _, moved = derivative_program(loop.body, [*consts, *carries], list(carries))
        inexact = [is_inexact(a.dtype) for a in loop.body.out_avals]
        after = tuple([a or (b and c) for a, b, c in zip(carries, moved, inexact, strict=True)])
        if after == carries:
            return carries
        carries = after


@functools.lru_cache(maxsize=1024)
def augmented(of: DifferentiatedLoop) -> Loop:
    """The loop on (constants, their tangents) and (carries, their tangents)."""
    loop, consts, carries = of
    jvp, _ = derivative_program(loop.body, [*consts, *carries], list(carries))
    n, k, m = loop.body_count, sum(consts), len(carries)

    def body(*values: Array) -> list[Array]:
        primals, tangents = values[:n], values[n : n + k]
        carry, carry_t = values[n + k : n + k + m], values[n + k + m :]
        return run_program(jvp, *primals, *carry, *tangents, *carry_t)

    def cond(*values: Array) -> Outputs:
        return run_program(loop.cond, *values[: loop.cond_count + m])

    of_consts, of_carry = loop.body.in_avals[:n], loop.body.in_avals[n:]
    of_carry = [*of_carry, *select(carries, of_carry)]
    new_body = jax.make_jaxpr(body)(*of_consts, *select(consts, of_consts), *of_carry)
    new_cond = jax.make_jaxpr(cond)(*loop.cond.in_avals[: loop.cond_count], *of_carry)
    return loop._replace(cond=new_cond, body=new_body, body_count=n + k)


def joined(consts: Mask, operands: Sequence[Values], tangents: Values) -> list[Array]:
    """The operands of the augmented loop."""
    cond_consts, body_consts, carry = operands
    k = sum(consts)
    return [*cond_consts, *body_consts, *tangents[:k], *carry, *tangents[k:]]


class BatchedLoop(NamedTuple):
    """A batched loop, which of its operands are batched, and whether lanes may end at different steps."""

    loop: Loop
    batched: tuple[Mask, Mask, Mask]
    lanes: bool

    def operands(self, loop: Loop, values: Values, have: Sequence[bool], size: int) -> Outputs:
        """Operands of the loop as those of this one, by kind; ``have`` are batched, along dimension 0."""
        parts = zip(loop.split(values), loop.split(have), self.batched, strict=True)
        by_kind = [
            [rows_of(v, size) if w and not h else v for v, h, w in zip(*part, strict=True)]
            for part in parts
        ]
        if self.lanes:
            by_kind[1] = [*by_kind[0], *by_kind[1]]
        return by_kind


def batched_loop(loop: Loop, axis_data: Any, wanted: Sequence[bool]) -> BatchedLoop:
    """The loop with operands batched, at least those that are ``wanted``."""
    in_cond, in_body, carries = (tuple(p) for p in loop.split(wanted))
    lanes = False
    while True:
        body, are_batched = batched_program(
            loop.body, axis_data, [*in_body, *carries], list(carries)
        )
        after = tuple([a or b for a, b in zip(carries, are_batched, strict=True)])
        if after == carries:
            cond, (lanes,) = batched_program(loop.cond, axis_data, [*in_cond, *carries], False)
            if not lanes or all(carries):
                break
            after = (True,) * len(carries)
        carries = after
    masks = (in_cond, in_body, carries)
    other = loop._replace(cond=cond, body=body)
    return BatchedLoop(_until_all(other, masks) if lanes else other, masks, lanes)


def _until_all(loop: Loop, batched: tuple[Mask, Mask, Mask]) -> Loop:
    """A loop whose condition has lanes; see NOTE [lanes that have finished]."""
    k, n = loop.cond_count, loop.cond_count + loop.body_count

    def cond(*values: Array) -> Outputs:
        return jnp.any(run_program(loop.cond, *values)[0])

    def body(*values: Array) -> list[Array]:
        cond_consts, consts, carry = values[:k], values[k:n], values[n:]
        (go,) = run_program(loop.cond, *cond_consts, *carry)
        some = jnp.argmax(go)

        def where(x: Array, y: Array) -> Array:
            mask = go.reshape(go.shape + (1,) * (x.ndim - 1))
            return jax.lax.select(jnp.broadcast_to(mask, x.shape), x, y)

        def safe(x: Array, has_lanes: bool) -> Outputs:
            return where(x, rows_of(jax.lax.stop_gradient(x)[some], len(x))) if has_lanes else x

        operands = [
            safe(*pair) for pair in zip((*consts, *carry), batched[1] + batched[2], strict=True)
        ]
        outs = run_program(loop.body, *operands)
        return [where(o, c) for o, c in zip(outs, carry, strict=True)]

    of_cond = list(loop.cond.in_avals)
    new_cond = jax.make_jaxpr(cond)(*of_cond)
    new_body = jax.make_jaxpr(body)(*of_cond[:k], *loop.body.in_avals)
    return loop._replace(cond=new_cond, body=new_body, body_count=n)


# The derivatives, as loops


def push(*values: Array, of: DifferentiatedLoop) -> list[Array]:
    """The tangents of the final carry."""
    operands, _, tangents = parts_of(of.loop, values)
    both = joined(of.consts, operands, tangents)
    return list(loop_p.bind(*both, loop=augmented(of), stored=False))[len(of.carries) :]


def curve(*values: Array, of: DifferentiatedLoop) -> list[Array | None]:
    """The derivative of the pullback's results in direction of the tangents, cotangents fixed."""
    loop, consts, carries = of
    n, m = loop.operand_count, sum(carries)
    operands, cotangents, tangents = loop.split(values[:n]), values[n : n + m], values[n + m :]
    other = augmented(of)
    both = joined(consts, operands, tangents)
    stored = loop_p.bind(*both, loop=other, stored=True)[len(carries) + m :]
    zeros = [jnp.zeros_like(c) for c in cotangents]
    of_other = DifferentiatedLoop(other, (*consts, *[False] * sum(consts)), (*carries, *[True] * m))
    outs = pullback_p.bind(*both, *stored, *zeros, *cotangents, of=of_other)
    return list(outs)[: len(outs) - m]


# The four primitives


def _loop_avals(*avals: Aval, loop: Loop, stored: bool) -> list[Aval]:
    outs = list(loop.body.out_avals)
    return [*outs, *loop.stored_avals()] if stored else outs


def _linear_avals(*avals: Aval, of: DifferentiatedLoop) -> list[Aval]:
    return select(of.carries, of.loop.body.out_avals)


def _gradient_avals(*avals: Aval, of: DifferentiatedLoop) -> list[Aval]:
    return select((*of.consts, *of.carries), of.loop.body.in_avals)


def _filled(tangents: Values, primals: Sequence[Array]) -> list[Array]:
    """The tangents, with zeros for None."""
    return [jnp.zeros_like(p) if t is None else t for t, p in zip(tangents, primals, strict=True)]


def _differentiated(loop: Loop, tangents: Values, carries: Mask | None = None) -> tuple[Mask, Mask]:
    """Which constants of the body, and which carries, have a tangent."""
    _, of_consts, of_carry = loop.split([t is not None for t in tangents])
    if carries is not None:
        of_carry = [a or b for a, b in zip(of_carry, carries, strict=True)]
    consts = tuple(of_consts)
    return consts, dependent(loop, consts, tuple(of_carry))


def _loop_jvp(
    primals: Values, tangents: Values, *, loop: Loop, stored: bool
) -> tuple[Outputs, Outputs]:
    consts, carries = _differentiated(loop, tangents)
    outs = loop_p.bind(*primals, loop=loop, stored=stored or any(carries))
    n = len(carries)
    kept = outs if stored else outs[:n]
    if not any(carries):
        return kept, [None] * len(kept)
    _, body_consts, init = loop.split(primals)
    _, of_consts, of_carry = loop.split(tangents)
    some = _filled(
        [*select(consts, of_consts), *select(carries, of_carry)],
        [*select(consts, body_consts), *select(carries, init)],
    )
    of = DifferentiatedLoop(loop, consts, carries)
    out_t = linear_p.bind(*primals, *outs[n:], *some, of=of)
    return kept, [*spread(carries, out_t), *[None] * (len(kept) - n)]


def _linear_jvp(primals: Values, tangents: Values, *, of: DifferentiatedLoop) -> Outputs:
    loop, n = of.loop, of.loop.operand_count
    operands, _, linear = parts_of(loop, primals)
    operands_t, _, linear_t = parts_of(loop, tangents)
    outs = linear_p.bind(*primals, of=of)
    if not any([t is not None for t in tangents[:n]]):
        first = len(primals) - len(linear)
        return outs, linear_p.bind(*primals[:first], *_filled(linear_t, linear), of=of)
    both, both_t = joined(of.consts, operands, linear), joined(of.consts, operands_t, linear_t)
    _, out_t = _loop_jvp(both, both_t, loop=augmented(of), stored=False)
    return outs, out_t[len(of.carries) :]


def _pullback_jvp(primals: Values, tangents: Values, *, of: DifferentiatedLoop) -> Outputs:
    loop, consts, carries = of
    n = loop.operand_count
    outs = pullback_p.bind(*primals, of=of)
    _, _, cotangents = parts_of(loop, primals)
    _, _, of_cotangents = parts_of(loop, tangents)
    first = len(primals) - len(cotangents)
    parts = []
    if any([t is not None for t in of_cotangents]):
        of_cotangents = _filled(of_cotangents, cotangents)
        parts.append(pullback_p.bind(*primals[:first], *of_cotangents, of=of))
    if any([t is not None for t in tangents[:n]]):
        _, body_consts, carry = loop.split(primals[:n])
        _, of_consts, of_carry = loop.split(tangents[:n])
        moved = _differentiated(loop, tangents[:n], carries)
        all_consts = tuple([a or b for a, b in zip(consts, moved[0], strict=True)])
        all_carries = dependent(loop, all_consts, moved[1])
        places = tuple([is_inexact(a.dtype) for a in loop.body.out_avals])
        zeros = [jnp.zeros(a.shape, a.dtype) for a in select(places, loop.body.out_avals)]
        every = select(all_carries, spread(carries, cotangents, spread(places, zeros)))
        moved_t = _filled(
            [*select(all_consts, of_consts), *select(all_carries, of_carry)],
            [*select(all_consts, body_consts), *select(all_carries, carry)],
        )
        of_all = DifferentiatedLoop(loop, all_consts, all_carries)
        bent = curvature_p.bind(*primals[:n], *every, *moved_t, of=of_all)
        asked = select((*all_consts, *all_carries), (*consts, *carries))
        parts.append(select(tuple(asked), bent))
    if not parts:
        return outs, [None] * len(outs)
    return outs, parts[0] if len(parts) == 1 else [a + b for a, b in zip(*parts, strict=True)]


def _curvature_jvp(primals: Values, tangents: Values, *, of: DifferentiatedLoop) -> Outputs:
    differentiated = tuple([t is not None for t in tangents])

    def of_differentiated(*some: Operand) -> list[Array | None]:
        return curve(*spread(differentiated, some, primals), of=of)

    return jax.jvp(
        of_differentiated, select(differentiated, primals), select(differentiated, tangents)
    )


def _transpose(
    name: str, cotangents: Values, values: Values, linear: Sequence[bool], *, of: DifferentiatedLoop
) -> Values:
    """Transpose in the last values, the linear ones, by the primitive that is the transpose."""
    primitive = globals()[name]
    others = sum(of.carries) if primitive is curvature_p else 2 + len(of.carries)
    first = of.loop.operand_count + others
    pulled = primitive.bind(*values[:first], *cotangents, of=of)
    return [*[None] * first, *spread(linear[first:], select(linear[first:], pulled))]


def _to_front(values: Values, dims: Sequence[int | None]) -> tuple[Values, list[bool]]:
    front = [v if d is None else jnp.moveaxis(v, d, 0) for v, d in zip(values, dims, strict=True)]
    return front, [d is not None for d in dims]


def _batch_loop(
    axis_data: Any, values: Values, dims: Sequence[int | None], *, loop: Loop, stored: bool
) -> Outputs:
    values, have = _to_front(values, dims)
    made = batched_loop(loop, axis_data, have)
    cond_consts, body_consts, carry = made.operands(loop, values, have, axis_data.size)
    outs = loop_p.bind(*cond_consts, *body_consts, *carry, loop=made.loop, stored=stored)
    of_carry = made.batched[2]
    out_dims = [0 if b else None for b in of_carry]
    if stored:
        out_dims += [None, None, *[1 if b else None for b in of_carry]]
    return outs, out_dims


def _batch_rule(
    axis_data: Any,
    values: Values,
    dims: Sequence[int | None],
    *,
    of: DifferentiatedLoop,
    primitive: Any,
) -> Outputs:
    """The other three: what is differentiated is batched, so that each lane has its own derivative."""
    loop, consts, carries = of
    n, size = loop.operand_count, axis_data.size
    values, have = _to_front(values, dims)
    differentiated = [*[False] * loop.cond_count, *consts, *carries]
    made = batched_loop(
        loop, axis_data, [a or b for a, b in zip(have[:n], differentiated, strict=True)]
    )
    cond_consts, body_consts, carry = made.operands(loop, values[:n], have[:n], size)
    rest, rest_have = values[n:], have[n:]
    stored: Values = []
    if primitive is not curvature_p:
        m = 2 + len(carries)
        stored, stored_have = rest[:m], rest_have[:m]
        rest, rest_have = rest[m:], rest_have[m:]
        wanted = [False, False, *made.batched[2]]
        if any([h and not w for h, w in zip(stored_have, wanted, strict=True)]):
            # They may come from one call for each lane, with other steps: store again.
            outs = loop_p.bind(*cond_consts, *body_consts, *carry, loop=made.loop, stored=True)
            stored = outs[len(carries) :]
        else:
            stored = [
                jnp.moveaxis(s if h else rows_of(s, size), 0, 1) if w else s
                for s, h, w in zip(stored, stored_have, wanted, strict=True)
            ]
    rest = [v if h else rows_of(v, size) for v, h in zip(rest, rest_have, strict=True)]
    if made.lanes:
        consts = (*[False] * loop.cond_count, *consts)
    of = DifferentiatedLoop(made.loop, consts, carries)
    outs = primitive.bind(*cond_consts, *body_consts, *carry, *stored, *rest, of=of)
    return outs, [0] * len(outs)


def _linear_primitive(
    name: str, run: ArrayFunction, avals: ArrayFunction, jvp: ArrayFunction, transposed: str
) -> Any:
    """A primitive that is linear in its last operands; ``transposed`` is the one that is its transpose."""

    def batch(*args: Any, of: DifferentiatedLoop) -> Outputs:
        return _batch_rule(*args, of=of, primitive=primitive)

    transpose = functools.partial(_transpose, transposed)
    primitive = native_primitive(name, run, avals, jvp=jvp, batch=batch, transpose=transpose)
    return primitive


loop_p = native_primitive(
    "fad_while_loop",
    run,
    _loop_avals,
    jvp=_loop_jvp,
    batch=_batch_loop,
    loop=lambda loop, stored: loop[:4],
)
linear_p = _linear_primitive("fad_while_linear", push, _linear_avals, _linear_jvp, "pullback_p")
pullback_p = _linear_primitive(
    "fad_while_pullback", pull, _gradient_avals, _pullback_jvp, "linear_p"
)
curvature_p = _linear_primitive(
    "fad_while_curvature", curve, _gradient_avals, _curvature_jvp, "curvature_p"
)

# ``while_loop`` and ``fori_loop`` with a reverse mode, of any order, in bounded memory.

# Without a bound: carries that are kept, and further ones on the way back.
UNBOUNDED = (32, 32)


def while_loop(
    cond_fun: Callable[[PyTree], PyTree],
    body_fun: Callable[[Any], Any],
    init_val: PyTree,
    max_steps: int | None = None,
    checkpoints: int | str = "auto",
) -> PyTree:
    """``jax.lax.while_loop`` with a reverse mode: ``body_fun`` is applied while ``cond_fun`` is true.

    The backward pass computes the steps again from checkpoints, so its memory does not grow with
    the number of steps; see docs/loops.md.

    Arguments:
        cond_fun: from the carry to a bool.
        body_fun: from the carry to the next one, of the same structure, shapes and dtypes.
        init_val: the first carry, a pytree of arrays.
        max_steps: the loop stops after so many steps, whatever cond_fun says.
        checkpoints: how many carries the memory of the backward pass holds. "auto": twice the root of
            max_steps, where each step is computed again once; 64 without a bound.

    Returns:
        The last carry.

    Raises:
        ArgumentError: max_steps or checkpoints is no such number.
        TypeError: as in JAX, for a carry that changes its structure or type.

    >>> import fad
    >>> root = lambda a: fad.lax.while_loop(lambda x: x * x - a > 1e-5, lambda x: (x + a / x) / 2, a)
    >>> round(float(fad.grad(root)(4.0)), 3)
    0.25
    """
    slots = _slots(max_steps, checkpoints)
    return _with_derivatives(
        lambda init: jax.lax.while_loop(cond_fun, body_fun, init), (init_val,), max_steps, slots
    )


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, PyTree], PyTree],
    init_val: PyTree,
    *,
    unroll: int | bool | None = None,
) -> PyTree:
    """``jax.lax.fori_loop``, with a reverse mode for bounds that are arrays too.

    Arguments:
        lower, upper: the first number, and the one after the last.
        body_fun: from a number and the carry to the next carry.
        init_val: the first carry, a pytree of arrays.
        unroll: as in JAX, where both bounds are Python numbers.

    Returns:
        The last carry.

    >>> import fad, fad.numpy as fnp
    >>> power = lambda x, n: fad.lax.fori_loop(0, n, lambda i, y: y * x, 1.0)
    >>> float(fad.grad(power)(2.0, fnp.asarray(5)))
    80.0
    """
    bounds = [b for b in (lower, upper) if isinstance(b, jax.Array)]

    def loop(bounds: list[Operand], init: PyTree) -> PyTree:
        it = iter(bounds)
        ends = [next(it) if isinstance(b, jax.Array) else b for b in (lower, upper)]
        return jax.lax.fori_loop(ends[0], ends[1], body_fun, init, unroll=unroll)

    return _with_derivatives(loop, (bounds, init_val), None, UNBOUNDED)


def _slots(max_steps: Any, checkpoints: Any) -> tuple[int, int]:
    """Slots of the forward loop, and further ones on the way back."""
    if max_steps is not None and (
        not isinstance(max_steps, int) or isinstance(max_steps, bool) or not 0 <= max_steps < 2**31
    ):
        raise ArgumentError(
            "while_loop: max_steps must be None or a Python int from 0 to 2**31 - 1, got "
            f"{describe(max_steps)}: a bound that is an array belongs into cond_fun, with a counter in the "
            "carry"
        )
    if checkpoints == "auto":
        if max_steps is None:
            return UNBOUNDED
        kept = max(1, math.isqrt(max(max_steps - 1, 0)) + 1)
        return kept, max(1, -(-max_steps // kept))
    if not isinstance(checkpoints, int) or isinstance(checkpoints, bool) or checkpoints < 3:
        raise ArgumentError(
            f'while_loop: checkpoints must be "auto" or a Python int, 3 or more, got {describe(checkpoints)}'
        )
    kept = max(2, checkpoints // 4 * 2)  # even: every second one is dropped
    return kept, checkpoints - kept


def _with_derivatives(
    f: ArrayFunction, args: tuple[PyTree, ...], max_steps: int | None, slots: tuple[int, int]
) -> PyTree:
    """A call of ``f`` with the loop that it binds replaced by the primitive of this module."""
    closed, shape = jax.make_jaxpr(f, return_shape=True)(*args)
    eqns = []
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "while" and not (eqn.effects and max_steps is None):
            if eqn.effects:
                raise ArgumentError(
                    "while_loop: cond_fun or body_fun has an effect (a print or a callback), which "
                    "max_steps does not support: count the steps in the carry, and stop in cond_fun"
                )
            loop = Loop(*while_parts(eqn), max_steps, *slots)
            eqn = eqn.replace(primitive=loop_p, params={"loop": loop, "stored": False})
        eqns.append(eqn)
    program = closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns))
    outs = run_program(program, *jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shape), outs)
