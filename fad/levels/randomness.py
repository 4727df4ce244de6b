"""Random draws inside of vmap, and what a key that all lanes share draws.

NOTE [keys in staged code]

    key = fad.random.key(0)
    draw = fad.jit(lambda key: fad.random.normal(key))
    fad.vmap(draw)(fad.random.split(key, 3))
    fad.vmap(lambda x: x + draw(key))(fnp.ones(3))  # raises LevelError: all lanes share the key

Whether a key differs between the lanes of a vmap can be seen of a Tensor. It cannot of a tracer in the body
of ``jit`` or ``scan`` inside of that vmap: there it depends on what the body is called with, and on what it
does. So such a draw leaves a mark in the program, and when the body has been traced, the program is analysed
for which values differ between lanes (`check_draws`).

The body of a Function, or of `checkpoint`, on tracers is traced by JAX apart from the vmaps around
(`fad.core.level.traced_by_jax`). It is marked and analysed in the same way; the numbers of lanes are not
available there (`note_call`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NoReturn

import jax

from fad.core.dataflow import Dataflow
from fad.core.jaxapi import convert_constvars_jaxpr, define_primitive, flag_of, new_primitive
from fad.core.jaxprs import inner_jaxprs
from fad.core.level import Level, bind, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import JaxBody, JaxEquation, Operand, Operation, Outputs
from fad.errors import LevelError
from fad.levels.batch import BatchLevel, batch_levels, lanes_inside

draw_p = new_primitive("fad_draw")  # gives its key back
define_primitive(
    draw_p,
    lambda key, *, name: [key],
    lambda key, *, name: [key],
    jvp=lambda keys, tangents, *, name: (draw_p.bind(*keys, name=name), list(tangents)),
    batch=lambda _, keys, dims, *, name: (draw_p.bind(*keys, name=name), dims),
)


@functools.cache
def _marking(name: str) -> Primitive:
    return Primitive("draw", lambda key: draw_p.bind(key, name=name)[0])


_FOLD_IN = Primitive("fold_in", jax.random.fold_in)


def bind_random(op: Operation, args: Sequence[Operand]) -> Outputs:
    """`bind` for a Primitive that draws random numbers with the key ``args[0]``.

    Each running vmap has its ``randomness``. "same": a key that all lanes share draws once for all of them.
    "error": such a key raises. "different": the number of the lane is folded into the key, whatever it is.

    Raises:
        LevelError: in a vmap whose randomness is "error", all lanes share the key.

    Source: ``torch.func.vmap``'s randomness flag.
    """
    key = args[0]
    note_draw()
    marked = state.outside_jax_trace >= 0
    for level in drawing_levels():
        if level.draws.by_lane:
            key = bind(_FOLD_IN, (key, lanes_inside(level)))
        elif level.draws.strict:
            own = differs(key, level)
            marked = marked or own is None
            if own is False:
                _refuse(f"fad.random.{op.name}")
    if marked:
        key = bind(_marking(op.name), (key,))
    return bind(op, [key, *args[1:]])


def note_draw() -> None:
    """Note in the levels of bodies being traced that the body draws."""
    for level in state.levels:
        level.note_draw()


def note_call(name: str) -> None:
    """Note a call of a Function that is traced apart from outer levels, and whose body draws.

    Raises:
        LevelError: it is in a vmap whose lanes are to draw different numbers.
    """
    note_draw()
    if any([level.draws.by_lane for level in drawing_levels()]):
        raise LevelError(
            f"vmap: {name} draws random numbers in code that is compiled, where the numbers of the lanes "
            "of a vmap with randomness='different' cannot reach it: draw outside of it, and pass the "
            "numbers in; or map over keys, vmap(f)(fad.random.split(key, n)), without that randomness."
        )


def _refuse(name: str) -> NoReturn:
    raise LevelError(
        f"vmap: {name} was called with a key that all lanes share. Pass "
        "randomness='different' (each lane draws its own) or 'same' to vmap, or map over "
        "keys: vmap(f)(fad.random.split(key, n))."
    )


def drawing_levels() -> list[BatchLevel]:
    """The running vmaps, without those outside of what JAX traces now."""
    return [level for level in batch_levels() if level.id > state.outside_jax_trace]


def differs(x: Operand, level: Level) -> bool | None:
    """Whether a value differs between the lanes of a vmap; None for one of a body staged inside of it."""
    staged = False
    while isinstance(x, Tensor):
        if x.level is level:
            return x.aux is not None
        staged = staged or (x.level.traces and x.level.id > level.id)
        x = x.value
    return None if staged and isinstance(x, jax.core.Tracer) else False


def check_draws(jaxpr: JaxBody, values: Sequence[Operand]) -> None:
    """Refuse a staged body that draws with a key which all lanes of a vmap around it share.

    Arguments:
        jaxpr: the body, whose constants and inputs together are ``values``.

    Raises:
        LevelError: it does so.
    """
    levels = [level for level in drawing_levels() if level.draws.strict]
    if not levels or not has_draws(jaxpr):
        return
    for level in levels:
        differing = [differs(v, level) for v in values]
        if None in differing:
            continue  # a part of another body, which is analysed as a whole
        found = _Differing()
        found.results(convert_constvars_jaxpr(jaxpr), list(map(bool, differing)))
        if found.refused:
            _refuse(found.refused[0])


def has_draws(jaxpr: JaxBody) -> bool:
    """Whether there is a mark in a program."""
    return any(map(_marked, jaxpr.eqns))


def _marked(eqn: JaxEquation) -> bool:
    if eqn.primitive is draw_p or any(map(has_draws, inner_jaxprs(eqn))):
        return True
    drawing = flag_of(eqn, "drawing")
    return drawing is not None and drawing(eqn) is not None


class _Differing(Dataflow[bool]):
    """Whether a value differs between lanes. ``refused``: what draws with keys that do not, in order.

    Where lanes take different branches, or end a loop in different iterations, what it changes differs.
    """

    chooses = True

    def __init__(self) -> None:
        self.refused: list[str] = []

    def constant(self, value: Any) -> bool:
        return False

    def union(self, found: Sequence[bool]) -> bool:
        return any(found)

    def equation(self, eqn: Any, given: list[bool]) -> list[bool]:
        if eqn.primitive is draw_p:
            if not given[0]:
                self.refused.append(f"fad.random.{eqn.params['name']}")
            return given
        drawing = flag_of(eqn, "drawing")
        if drawing is not None:
            body = drawing(eqn)
            return self._joined(eqn, given) if body is None else self.results(body, given)
        found = self.inside(eqn, given)
        if found is not None:
            return found
        inner = list(inner_jaxprs(eqn))
        if len(inner) == 1 and len(inner[0].invars) == len(given) and not inner[0].constvars:
            found = self.results(inner[0], given)
            if len(found) == len(eqn.outvars):
                return found
        # Which operand is which input is not known: refuse too little rather than too much.
        for jaxpr in map(convert_constvars_jaxpr, inner):
            self.results(jaxpr, [any(given)] * len(jaxpr.invars))
        return self._joined(eqn, given)

    def _joined(self, eqn: Any, given: list[bool]) -> list[bool]:
        return [any(given)] * len(eqn.outvars)
