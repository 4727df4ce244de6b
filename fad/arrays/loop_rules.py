"""The primitives of a while loop and of its derivatives, and their rules.

NOTE [the loop and its derivatives]

A loop is one primitive of JAX, whose derivatives are loops of the same kind:

* ``fad_while_loop`` runs it. Where it is differentiated it stores carries in ``slots``, the checkpoints.
* ``fad_while_linear`` is its Jacobian times tangents: the loop on the carry and its tangent (`augmented`).
* ``fad_while_pullback`` is the transpose: it goes back from checkpoint to checkpoint, and computes
  the carries in between again.
* ``fad_while_curvature`` is the derivative of the pullback in the loop's operands: the pullback of the
  augmented loop. Second derivatives are symmetric, so it is its own transpose.

The derivative of each is written with these four, so any order is there by construction; each is batched
as the same primitive of a batched loop.

NOTE [lanes that have finished]

A batched loop runs until its last lane is done, and the others keep their carries. A lane that has finished
would compute on, at a carry which its own condition excludes, where a derivative may be infinite, and
0 * inf is nan. So it is given the carry and the constants of a lane that is not done, and what comes of
it is dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fad.arrays.loops import Loop, Mask, parts_of, pull, rows_of, run
from fad.core.collector import make_jit
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import (
    WhileParts,
    Zero,
    batch_jaxpr,
    define_primitive,
    instantiate_zeros,
    is_undefined_primal,
    jvp_jaxpr,
    new_primitive,
    run_jaxpr,
)
from fad.core.masked import select, spread
from fad.core.types import Array, ArrayFunction, Aval, Operand, Outputs, PyTree

Values = Sequence[Any]  # arrays; None, or a zero of JAX, for tangents and cotangents that are zero

# Loops made of a loop


@functools.lru_cache(maxsize=1024)
def dependent(loop: Loop, consts: Mask, carries: Mask) -> Mask:
    """Which carries have a tangent, if these constants of the body and first carries have one."""
    while True:
        _, found = jvp_jaxpr(loop.body, [*consts, *carries], list(carries))
        inexact = [is_inexact(a.dtype) for a in loop.body.out_avals]
        after = tuple([a or (b and c) for a, b, c in zip(carries, found, inexact, strict=True)])
        if after == carries:
            return carries
        carries = after


@functools.lru_cache(maxsize=1024)
def augmented(loop: Loop, consts: Mask, carries: Mask) -> Loop:
    """The loop on (constants, their tangents) and (carries, their tangents)."""
    jvp, _ = jvp_jaxpr(loop.body, [*consts, *carries], list(carries))
    n, k, m = loop.body_count, sum(consts), len(carries)

    def body(*values: Array) -> list[Array]:
        primals, tangents = values[:n], values[n : n + k]
        carry, carry_t = values[n + k : n + k + m], values[n + k + m :]
        return run_jaxpr(jvp, *primals, *carry, *tangents, *carry_t)

    def cond(*values: Array) -> Outputs:
        return run_jaxpr(loop.cond, *values[: loop.cond_count + m])

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
        found = [
            [rows_of(v, size) if w and not h else v for v, h, w in zip(*part, strict=True)]
            for part in parts
        ]
        if self.lanes:
            found[1] = [*found[0], *found[1]]
        return found


def batched_loop(loop: Loop, axis_data: Any, wanted: Sequence[bool]) -> BatchedLoop:
    """The loop with operands batched, at least those that are ``wanted``."""
    in_cond, in_body, carries = (tuple(p) for p in loop.split(wanted))
    lanes = False
    while True:
        body, found = batch_jaxpr(loop.body, axis_data, [*in_body, *carries], list(carries))
        after = tuple([a or b for a, b in zip(carries, found, strict=True)])
        if after == carries:
            cond, (lanes,) = batch_jaxpr(loop.cond, axis_data, [*in_cond, *carries], False)
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
        return jnp.any(run_jaxpr(loop.cond, *values)[0])

    def body(*values: Array) -> list[Array]:
        cond_consts, consts, carry = values[:k], values[k:n], values[n:]
        (go,) = run_jaxpr(loop.cond, *cond_consts, *carry)
        some = jnp.argmax(go)

        def where(x: Array, y: Array) -> Array:
            mask = go.reshape(go.shape + (1,) * (x.ndim - 1))
            return jax.lax.select(jnp.broadcast_to(mask, x.shape), x, y)

        def safe(x: Array, has_lanes: bool) -> Outputs:
            return where(x, rows_of(jax.lax.stop_gradient(x)[some], len(x))) if has_lanes else x

        given = [
            safe(*pair) for pair in zip((*consts, *carry), batched[1] + batched[2], strict=True)
        ]
        outs = run_jaxpr(loop.body, *given)
        return [where(o, c) for o, c in zip(outs, carry, strict=True)]

    of_cond = list(loop.cond.in_avals)
    new_cond = jax.make_jaxpr(cond)(*of_cond)
    new_body = jax.make_jaxpr(body)(*of_cond[:k], *loop.body.in_avals)
    return loop._replace(cond=new_cond, body=new_body, body_count=n)


# The derivatives, as loops


def push(*values: Array, loop: Loop, consts: Mask, carries: Mask) -> list[Array]:
    """The tangents of the final carry."""
    operands, _, tangents = parts_of(loop, values)
    given, other = joined(consts, operands, tangents), augmented(loop, consts, carries)
    return list(loop_p.bind(*given, loop=other, stored=False))[len(carries) :]


def curve(*values: Array, loop: Loop, consts: Mask, carries: Mask) -> list[Array | None]:
    """The derivative of the pullback's results in direction of the tangents, cotangents fixed."""
    n, m = loop.operand_count, sum(carries)
    operands, cotangents, tangents = loop.split(values[:n]), values[n : n + m], values[n + m :]
    other = augmented(loop, consts, carries)
    given = joined(consts, operands, tangents)
    stored = loop_p.bind(*given, loop=other, stored=True)[len(carries) + m :]
    zeros = [jnp.zeros_like(c) for c in cotangents]
    consts = (*consts, *[False] * sum(consts))
    carries = (*carries, *[True] * m)
    options = {"loop": other, "consts": consts, "carries": carries}
    outs = pullback_p.bind(*given, *stored, *zeros, *cotangents, **options)
    return list(outs)[: len(outs) - m]


# The four primitives

loop_p = new_primitive("fad_while_loop", expensive=True)
linear_p = new_primitive("fad_while_linear", expensive=True)
pullback_p = new_primitive("fad_while_pullback", expensive=True)
curvature_p = new_primitive("fad_while_curvature", expensive=True)
loop_p.loop = lambda eqn: WhileParts(*eqn.params["loop"][:4])


def _loop_avals(*avals: Aval, loop: Loop, stored: bool) -> list[Aval]:
    outs = list(loop.body.out_avals)
    return [*outs, *loop.stored_avals()] if stored else outs


def _linear_avals(*avals: Aval, loop: Loop, consts: Mask, carries: Mask) -> list[Aval]:
    return select(carries, loop.body.out_avals)


def _gradient_avals(*avals: Aval, loop: Loop, consts: Mask, carries: Mask) -> list[Aval]:
    return select((*consts, *carries), loop.body.in_avals)


def _is_zero(t: object) -> bool:
    return isinstance(t, Zero)


def _filled(tangents: Values) -> list[Array | None]:
    return [instantiate_zeros(t) for t in tangents]


def _differentiated(loop: Loop, tangents: Values, carries: Mask | None = None) -> tuple[Mask, Mask]:
    """Which constants of the body, and which carries, have a tangent."""
    _, of_consts, of_carry = loop.split([not _is_zero(t) for t in tangents])
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
    zeros = [Zero(jax.typeof(o).to_tangent_aval()) for o in kept]
    if not any(carries):
        return kept, zeros
    _, of_consts, of_carry = loop.split(tangents)
    given = _filled([*select(consts, of_consts), *select(carries, of_carry)])
    options = {"loop": loop, "consts": consts, "carries": carries}
    found = linear_p.bind(*primals, *outs[n:], *given, **options)
    return kept, [*spread(carries, found, zeros[:n]), *zeros[n:]]


def _linear_jvp(
    primals: Values, tangents: Values, *, loop: Loop, consts: Mask, carries: Mask
) -> Outputs:
    n, options = loop.operand_count, {"loop": loop, "consts": consts, "carries": carries}
    operands, _, given = parts_of(loop, primals)
    operands_t, _, given_t = parts_of(loop, tangents)
    outs = linear_p.bind(*primals, **options)
    if all(map(_is_zero, tangents[:n])):
        first = len(primals) - len(given)
        return outs, linear_p.bind(*primals[:first], *_filled(given_t), **options)
    _, found = _loop_jvp(
        joined(consts, operands, given),
        joined(consts, operands_t, given_t),
        loop=augmented(loop, consts, carries),
        stored=False,
    )
    return outs, found[len(carries) :]


def _pullback_jvp(
    primals: Values, tangents: Values, *, loop: Loop, consts: Mask, carries: Mask
) -> Outputs:
    n, options = loop.operand_count, {"loop": loop, "consts": consts, "carries": carries}
    outs = pullback_p.bind(*primals, **options)
    _, _, cotangents = parts_of(loop, primals)
    _, _, of_cotangents = parts_of(loop, tangents)
    first = len(primals) - len(cotangents)
    parts = []
    if not all(map(_is_zero, of_cotangents)):
        parts.append(pullback_p.bind(*primals[:first], *_filled(of_cotangents), **options))
    if not all(map(_is_zero, tangents[:n])):
        _, of_consts, of_carry = loop.split(tangents[:n])
        own = _differentiated(loop, tangents[:n], carries)
        all_consts = tuple([a or b for a, b in zip(consts, own[0], strict=True)])
        all_carries = dependent(loop, all_consts, own[1])
        zeros = [jnp.zeros(a.shape, a.dtype) for a in loop.body.out_avals if is_inexact(a.dtype)]
        places = tuple([is_inexact(a.dtype) for a in loop.body.out_avals])
        every = spread(carries, cotangents, spread(places, zeros))
        given = _filled([*select(all_consts, of_consts), *select(all_carries, of_carry)])
        found = curvature_p.bind(
            *primals[:n], *select(all_carries, every), *given,
            loop=loop, consts=all_consts, carries=all_carries,
        )  # fmt: skip
        asked = select((*all_consts, *all_carries), (*consts, *carries))
        parts.append(select(tuple(asked), found))
    if not parts:
        return outs, [Zero(jax.typeof(o).to_tangent_aval()) for o in outs]
    return outs, parts[0] if len(parts) == 1 else [a + b for a, b in zip(*parts, strict=True)]


def _curvature_jvp(primals: Values, tangents: Values, **options: PyTree) -> Outputs:
    differentiated = tuple([not _is_zero(t) for t in tangents])

    def of_differentiated(*some: Operand) -> list[Array | None]:
        return curve(*spread(differentiated, some, primals), **options)

    return jax.jvp(
        of_differentiated, select(differentiated, primals), select(differentiated, tangents)
    )


def _transpose(primitive: Any, cotangents: Values, *values: Operand, **options: PyTree) -> Values:
    """Transpose in the last values, the linear ones, by ``primitive``: what is the transpose."""
    loop, of_curvature = options["loop"], primitive is curvature_p
    others = sum(options["carries"]) if of_curvature else 2 + len(loop.body.out_avals)
    first = loop.operand_count + others
    found = iter(primitive.bind(*values[:first], *_filled(cotangents), **options))
    linear = [(v, next(found)) for v in values[first:]]
    return [None] * first + [g if is_undefined_primal(v) else None for v, g in linear]


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
    loop: Loop,
    consts: Mask,
    carries: Mask,
    primitive: Any,
) -> Outputs:
    """The other three: what is differentiated is batched, so that each lane has its own derivative."""
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
    outs = primitive.bind(
        *cond_consts, *body_consts, *carry, *stored, *rest,
        loop=made.loop, consts=consts, carries=carries,
    )  # fmt: skip
    return outs, [0] * len(outs)


def _batched_or_not(primitive: Any, rule: ArrayFunction) -> ArrayFunction:
    """``rule``, which JAX calls where no value is batched too."""

    def batch(
        axis_data: Any, values: Values, dims: Sequence[int | None], **options: object
    ) -> Outputs:
        if any([d is not None for d in dims]):
            return rule(axis_data, values, dims, **options)
        outs = primitive.bind(*values, **options)
        return outs, [None] * len(outs)

    return batch


def _define(
    primitive: Any,
    run: ArrayFunction,
    avals: ArrayFunction,
    jvp: ArrayFunction,
    batch: ArrayFunction,
    transpose: ArrayFunction | None = None,
) -> None:
    def eagerly(*values: Array, **options: object) -> Outputs:
        return make_jit(functools.partial(run, **options))(*values)

    batched = _batched_or_not(primitive, batch)
    define_primitive(
        primitive, eagerly, avals, traced=run, jvp=jvp, transpose=transpose, batch=batched
    )


_define(loop_p, run, _loop_avals, _loop_jvp, _batch_loop)
for _p, _run, _avals, _jvp, _transposed in (
    (linear_p, push, _linear_avals, _linear_jvp, pullback_p),
    (pullback_p, pull, _gradient_avals, _pullback_jvp, linear_p),
    (curvature_p, curve, _gradient_avals, _curvature_jvp, curvature_p),
):
    _batch = functools.partial(_batch_rule, primitive=_p)
    _define(_p, _run, _avals, _jvp, _batch, functools.partial(_transpose, _transposed))
