"""Forward mode: ``jvp``, dual numbers by hand, and ``linearize``."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from fad.core import trees
from fad.core.dtypes import is_inexact
from fad.core.level import (
    Level,
    bind,
    flush,
    last_level_id,
    map_tensors,
    outlived,
    restores_modes,
    state,
)
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor, is_operand, new_tensor
from fad.core.types import MaybeValue, Operand, Operation, Outputs, PyTree, Value
from fad.errors import ArgumentError, GradientError, LevelError, StructureError, describe
from fad.tape.grad_mode import BlockType
from fad.tape.recorder import JvpLevel, RecordingLevel, as_tensor
from fad.transforms.boundary import (
    Call,
    filled,
    has_tensor,
    leave,
    lower,
    tangent_of,
)
from fad.views.aliases import DualLink, joined, link_of, made_dual

# Forward mode: ``jvp``.


def jvp(
    f: Callable[..., PyTree],
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> PyTree:
    """The output of ``f`` and its directional derivative along ``tangents``.

    Arguments:
        f: any function of the primals.
        primals: a tuple with the arguments of ``f``, each a pytree of arrays.
        tangents: a tuple of the same structure; each tangent has the shape and dtype of its primal.
            None stands for a zero tangent, and is the only tangent of an integer primal.
        strict: raise where an output does not depend on the primals, instead of giving zeros.
        has_aux: ``f`` returns ``(output, aux)``.

    Returns:
        ``(output, output_tangent)``, or ``(output, output_tangent, aux)``; the tangent has the
        structure, shapes and dtypes of the output.

    Raises:
        StructureError: primals and tangents differ in structure, shape or dtype.
        GradientError: an output is independent of the primals, and ``strict``.

    Source: ``torch.func.jvp``, ``jax.jvp``.

    >>> import fad, fad.numpy as fnp
    >>> y, t = fad.jvp(fnp.sin, (0.0,), (2.0,))
    >>> float(y), float(t)
    (0.0, 2.0)
    """
    return push_forward(f, primals, tangents, has_aux, "jvp", strict)


@restores_modes
def push_forward(
    f: Callable[..., PyTree],
    primals: PyTree,
    tangents: PyTree,
    has_aux: bool,
    who: str,
    strict: bool = False,
) -> PyTree:
    """`jvp`, under the name ``who`` in messages."""
    Call.check(f, who)
    call, directions = call_along(primals, tangents, who)
    call.tensors = call.tensors or has_tensor(tangents)
    with JvpLevel() as level:
        duals = [level.dual(v, t) for v, t in zip(call.values, directions, strict=True)]
        result = [level.unpack(o) for o in call.outputs(call.run(f, level, duals, has_aux))]
        changed = call.written(duals, lambda d: level.unpack(d)[0])
    for k, (_, t) in enumerate(result):
        if strict and t is None:
            raise GradientError(
                f"jvp(f, primals, tangents, strict=True): output {k} of f is independent of the "
                "inputs. This is not allowed with strict=True."
            )
    call.write_back(changed)
    primals_out = [p for p, _ in result]
    tangents_out = filled([t for _, t in result], primals_out)
    return call.and_aux(call.result(primals_out), call.result(tangents_out))


def call_along(primals: PyTree, tangents: PyTree, who: str) -> tuple[Call, list[MaybeValue]]:
    """The call with these primals, and the tangents of its values, checked against them."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(
            f"{who}: primals and tangents must be tuples, one entry for each argument, got "
            f"{describe(primals)} and {describe(tangents)}. Write {who}(f, (x,), (t,))."
        )
    call = Call(who, primals, differentiated=False)
    return call, directions_of(call, tangents)


def directions_of(call: Call, tangents: Sequence[PyTree]) -> list[MaybeValue]:
    """The tangents of the values of a call, checked against them."""
    tangents = tuple(tangents)
    leaves = trees.leaves_like(call.structure, tangents)
    if leaves is None:
        raise StructureError(
            f"{call.who}: tangents must have the structure of the primals (the same python structure), "
            f"{call.structure}, got {trees.flatten(tangents)[1]}"
        )
    return [call.tangent(k, t) for k, t in enumerate(leaves)]


# Dual numbers by hand: ``dual_level``, ``make_dual``, ``unpack_dual``, and the switch of forward mode.

P = ParamSpec("P")
R = TypeVar("R")


class UnpackedDual(NamedTuple):
    """What `unpack_dual` gives: the primal, and the tangent or None where it is zero.

    >>> import fad
    >>> with fad.dual_level():
    ...     primal, tangent = fad.unpack_dual(fad.tensor(2.0))
    >>> primal.item(), tangent
    (2.0, None)
    """

    primal: Tensor
    tangent: Tensor | None


class dual_level(contextlib.ContextDecorator, metaclass=BlockType):
    """A block in which `make_dual` makes dual Tensors; operations on them carry tangents along.

    Blocks nest without limit, and each thread has its own. ``with dual_level() as level`` gives the
    level, to name it in `make_dual` and `unpack_dual`. After the block its dual Tensors read as
    their primals. Also a decorator of functions.

    Raises:
        LevelError: a level was left that is not the innermost one. It is closed, and all inside of it.

    Source: ``torch.autograd.forward_ad.dual_level``, which refuses to nest.

    >>> import fad, fad.numpy as fnp
    >>> with fad.dual_level():
    ...     x = fad.make_dual(fad.tensor(0.0), fad.tensor(1.0))
    ...     float(fad.unpack_dual(fnp.sin(x)).tangent)
    1.0
    """

    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level: list[JvpLevel] = []

    def __enter__(self) -> JvpLevel:
        level = _DualLevel()
        self.level.append(level)
        level.__enter__()
        try:
            begin_trace(level, (), None)
        except BaseException:  # an interrupt: `__exit__` would not be called
            self.__exit__()
            raise
        return level

    def __exit__(self, *exc: object) -> None:
        level = self.level.pop()
        inner = _levels_inside(level)
        for other in reversed(inner):
            other.__exit__(*exc)
        if level.alive:
            level.__exit__(*exc)
        if inner and exc[:1] in ((), (None,)):
            raise LevelError(
                f"{level!r} was left before {inner[-1]!r}, which is inside of it; both are closed now. "
                "Leave the one entered last first, as with blocks do."
            )


def _levels_inside(level: Level) -> list[Level]:
    """The running levels of this thread inside of ``level``, outermost first."""
    levels = list(state.levels)
    return levels[levels.index(level) + 1 :] if level in levels else []


class _DualLevel(JvpLevel):
    """A JvpLevel that `make_dual` uses by default; its Tensors may be part of the eager tape."""

    __slots__ = ("tape_id",)

    kind = "dual"
    on_tape = True

    def __init__(self) -> None:
        super().__init__()
        self.tape_id = -1

    def process(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        return super().process(op, joined(self, args) if self.id > state.watermark else args)


def _innermost() -> _DualLevel | None:
    for running in reversed(state.levels):
        if isinstance(running, _DualLevel):
            return running
    return None


def _level(level: Level | None, who: str) -> JvpLevel:
    if level is None:
        level = _innermost()
        if level is None:
            raise LevelError(
                f"{who} was called outside of a dual_level: no level exists. Write: with "
                "fad.dual_level(): ..."
            )
    if isinstance(level, dual_level):
        level = level.level[-1] if level.level else None
    if not isinstance(level, JvpLevel) or not level.alive:
        raise LevelError(
            f"{who}: level must be a running dual level (with fad.dual_level() as level), "
            f"got {describe(level)}"
        )
    return level


def make_dual(x: Any, tangent: MaybeValue, level: Level | None = None) -> Tensor:
    """A dual Tensor with primal ``x`` and the given tangent.

    It shares its values with them, where they are Tensors: a write to the dual changes both, a write to
    one of them is seen in the dual. If ``x`` requires grad, so does the dual, and the gradient that
    `fad.autograd.grad` gives with respect to ``x`` is a dual too; so is ``x.grad`` after
    ``backward(create_graph=True)``. As in PyTorch, a pass that is not recorded starts ``x.grad`` with the
    primal alone, and adds duals to a gradient that is there already.

    Arguments:
        x: a floating or complex Tensor or array.
        tangent: of the shape and dtype of ``x``; None is zero.
        level: the dual level, as ``with dual_level() as level`` gives it; default the innermost.

    Raises:
        LevelError: outside of a dual level, or at one that has finished; or the primal or the tangent
            has a tangent at this level already.
        StructureError: the tangent has another shape or dtype.

    Source: ``torch.autograd.forward_ad.make_dual``.

    >>> import fad
    >>> with fad.dual_level():
    ...     x = fad.make_dual(fad.tensor(3.0), fad.tensor(1.0))
    ...     float(fad.unpack_dual(x * x).tangent)
    6.0
    """
    dual = _level(level, "make_dual")
    if not is_operand(x):
        raise ArgumentError(f"make_dual: the primal must be an array, got {describe(x)}")
    primal = outlived(x)
    primal = primal if isinstance(primal, Tensor) else lower(primal)
    if not is_inexact(primal.dtype):
        raise ArgumentError(
            f"make_dual: the primal must have a floating or complex dtype, got {describe(x)}. Convert "
            "it: x.astype(float)."
        )
    value, old = dual.unpack(primal)
    if old is not None:
        raise LevelError(
            "make_dual: the primal already has a tangent: it has a forward gradient at the same level. "
            "Open another dual_level around or inside this one for a second direction."
        )
    direction = tangent_of(value, tangent, "make_dual", "the primal")
    if isinstance(tangent, Tensor):
        direction, of_tangent = dual.unpack(tangent)
        if of_tangent is not None:
            raise LevelError(
                "make_dual: the tangent has itself a tangent at this level. Open another dual_level "
                "around or inside this one for second derivatives."
            )
        direction = as_tensor(direction)
    _check_below(dual, value, direction)
    return made_dual(dual, primal, direction)


def _check_below(level: JvpLevel, *values: PyTree) -> None:
    for v in values:
        if isinstance(v, Tensor) and v.level.id > level.id:
            raise LevelError(
                f"make_dual: {describe(v)} belongs to {v.level!r}, which is inside of {level!r}: "
                "make the dual outside of that transform, or open a dual_level inside of it"
            )


def unpack_dual(x: Any, level: Level | None = None) -> UnpackedDual:
    """Primal and tangent of a dual Tensor, as a named tuple; the tangent is None where it is zero.

    Of a Tensor from `make_dual` they are what it was made from. Outside of every dual level the tangent
    is None.

    Arguments:
        x: any Tensor or array.
        level: the dual level; default the innermost.

    Raises:
        LevelError: the level that was given has finished.

    Source: ``torch.autograd.forward_ad.unpack_dual``.

    >>> import fad
    >>> x, t = fad.tensor(2.0), fad.tensor(1.0)
    >>> with fad.dual_level():
    ...     fad.unpack_dual(fad.make_dual(x, t)).tangent is t
    True
    """
    dual = _innermost() if level is None else _level(level, "unpack_dual")
    if dual is None:
        return UnpackedDual(leave(x, True), None)
    primal, tangent = dual.unpack(x)
    link = link_of(x) if isinstance(x, Tensor) and x.level is dual else None
    if isinstance(link, DualLink):
        primal = dual.unpack(link.primal)[0]
        if link.tangent is not None and tangent is not None:
            tangent = link.tangent
    return UnpackedDual(leave(primal, True), None if tangent is None else leave(tangent, True))


def enter_dual_level() -> JvpLevel:
    """Enter a `dual_level` without a block; it ends with `exit_dual_level`.

    Source: ``torch.autograd.forward_ad.enter_dual_level``.

    >>> import fad
    >>> from fad.autograd import forward_ad
    >>> level = forward_ad.enter_dual_level()
    >>> x = fad.make_dual(fad.tensor(3.0), fad.tensor(1.0))
    >>> slope = float(fad.unpack_dual(x * x).tangent)
    >>> forward_ad.exit_dual_level()
    >>> slope
    6.0
    """
    return dual_level().__enter__()


def exit_dual_level(*, level: Level | None = None) -> None:
    """Leave a dual level.

    Arguments:
        level: the level; default the innermost.

    Raises:
        LevelError: there is none, or it is not the innermost one.

    Source: ``torch.autograd.forward_ad.exit_dual_level``.

    >>> import fad
    >>> level = fad.autograd.forward_ad.enter_dual_level()
    >>> x = fad.make_dual(2.0, 1.0)
    >>> float(fad.unpack_dual(x * x).tangent)
    4.0
    >>> fad.autograd.forward_ad.exit_dual_level()
    """
    dual = _level(level, "exit_dual_level")
    inner = _levels_inside(dual)
    if inner or dual not in state.levels:
        last = inner[-1] if inner else "none in this thread"
        raise LevelError(
            f"exit_dual_level: {dual!r} is not the last one that was entered, which is {last!r}: leave that "
            "one first"
        )
    dual.__exit__()


class set_fwd_grad_enabled:
    """Switch tangents off and on for this thread: at once, and as a block, which restores what was before.

    While they are off, Tensors of the dual levels (and ``jvp`` transforms) that run here have no
    tangents, and what is computed from them has none later either. Levels that begin inside are not
    affected.

    Arguments:
        mode: whether there are tangents.

    Source: ``torch.autograd.forward_ad._set_fwd_grad_enabled``.

    >>> import fad
    >>> with fad.dual_level():
    ...     x = fad.make_dual(2.0, 1.0)
    ...     with fad.autograd.forward_ad.set_fwd_grad_enabled(False):
    ...         y = x * x
    ...     fad.unpack_dual(y).tangent, float(fad.unpack_dual(x * x).tangent)
    (None, 4.0)
    """

    __slots__ = ("before", "mode")

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.before = _switch(-1 if mode else last_level_id())

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _switch(self.before)

    def __call__(self, f: Callable[P, R]) -> Callable[P, R]:
        """``f`` with this mode, as a decorator."""
        _switch(self.before)

        @functools.wraps(f)
        def switched(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_fwd_grad_enabled(self.mode):
                return f(*args, **kwargs)

        return switched


def _switch(off: int) -> int:
    """Switch tangents of levels up to this id off; returns what was before."""
    flush()
    before, state.tangents_off = state.tangents_off, off
    return before


def is_fwd_grad_enabled() -> bool:
    """Whether tangents are on in this thread, see `set_fwd_grad_enabled`.

    Source: ``torch.autograd.forward_ad._is_fwd_grad_enabled``.

    >>> import fad
    >>> with fad.autograd.forward_ad.set_fwd_grad_enabled(False):
    ...     fad.autograd.forward_ad.is_fwd_grad_enabled()
    False
    """
    return state.tangents_off < 0


# ``linearize``: run a function once, then apply its derivative to any number of tangents.


class LinearizeLevel(RecordingLevel):
    """Forward mode with tangents left open: ``aux`` is the number of a tangent that is not known yet.

    Each call that a tangent reaches is written on ``tape`` as (operation for its tangents, primal
    inputs, numbers of the tangents that go in, numbers of those that come out).
    """

    __slots__ = ("count", "tape")

    kind = "linearize"
    settings = ()

    def __init__(self) -> None:
        super().__init__()
        self.tape: list[tuple[Operation, list[Value], list[int], list[int]]] = []
        self.count = 0

    def variable(self, value: PyTree) -> Tensor:
        """A fresh input."""
        self.count += 1
        return new_tensor(value, self, self.count - 1)

    def evaluate(self, op: Any, args: Sequence[PyTree]) -> Outputs:
        primals, numbers, some = self.unwrapped(args)
        out = bind(op, primals)
        if not some:
            return map_tensors(lambda o: new_tensor(o, self), out)
        mask = tuple([n is not None for n in numbers])
        outs = out if type(out) is tuple else (out,)
        tangent, operands, differentiable = op.linear(mask, primals, outs)
        results: list[Tensor] = []
        produced: list[int] = []
        for o, is_differentiable in zip(outs, differentiable, strict=True):
            if is_differentiable:
                produced.append(self.count)
                results.append(self.variable(o))
            else:
                results.append(new_tensor(o, self))
        if produced:
            self.tape.append((tangent, operands, [n for n in numbers if n is not None], produced))
        return tuple(results) if type(out) is tuple else results[0]

    def push(self, tangents: Sequence[Value]) -> dict[int, Value]:
        """Tangents of everything on the tape, from those of the inputs."""
        by_number: dict[int, Value] = dict(enumerate(tangents))
        for op, operands, numbers, produced in self.tape:
            out = bind(op, [*operands, *[by_number[n] for n in numbers]])
            by_number.update(zip(produced, out if type(out) is tuple else (out,), strict=True))
        return by_number


def linearize(f: Callable[..., PyTree], *primals: PyTree, has_aux: bool = False) -> PyTree:
    """The output of ``f`` and its derivative as a linear function of tangents.

    Arguments:
        f: any function of the primals.
        primals: pytrees of floating or complex arrays.
        has_aux: ``f`` returns ``(output, aux)``.

    Returns:
        ``(output, jvp_fn)``, or ``(output, jvp_fn, aux)``. ``jvp_fn(*tangents)`` takes a tangent for
        each primal (None is zero) and returns the output tangent; f does not run again.

    Raises:
        StructureError: a tangent differs from its primal in structure, shape or dtype.

    Source: ``torch.func.linearize``, ``jax.linearize``.

    >>> import fad, fad.numpy as fnp
    >>> y, push = fad.linearize(fnp.sin, 0.0)
    >>> [float(push(t)) for t in (1.0, 2.0)]
    [1.0, 2.0]
    """
    return linearization_of(f, primals, has_aux, "linearize")


@restores_modes
def linearization_of(f: Callable[..., PyTree], primals: PyTree, has_aux: bool, who: str) -> PyTree:
    """`linearize`, under the name ``who`` in messages."""
    Call.check(f, who)
    call = Call(who, primals)
    with LinearizeLevel() as level:
        variables = [level.variable(v) for v in call.values]
        level.arguments += [v for v in call.values if isinstance(v, Tensor)]
        outs = call.outputs(call.run(f, None, variables, has_aux))
        numbers = [level.value_and_aux(o)[1] for o in outs]
        written = call.written(variables, lambda x: level.value_and_aux(x)[0])
    call.write_back(written)
    results = [outlived(o) for o in outs]

    def jvp_fn(*tangents: PyTree) -> PyTree:
        pushed = level.push(filled(directions_of(call, tangents), call.values))
        out_t = filled([None if n is None else pushed[n] for n in numbers], results)
        out_t = trees.unflatten(call.out_structure, out_t, call.out_like)
        return leave(out_t, call.tensors or has_tensor(tangents))

    result = call.result(results)
    call.who = "jvp_fn"
    return call.and_aux(result, jvp_fn)
