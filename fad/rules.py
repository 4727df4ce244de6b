"""Rules: how one call of a custom operation is evaluated and differentiated, and rules made of rules.

NOTE [rules are closed]

A `Rules` says how one call is evaluated, pushed forward and pulled back. What a user wrote
(`UserRules`, `JaxRules`) is one kind; the others are made from it and are Rules again:

* `BatchedRules`, the call under vmap: the user's vmap rule, or the body run on batched values; it
  pulls back by the user's vjp, batched.
* `LinearRules`, the derivative of the call as a function of (inputs, outputs, tangents): it
  evaluates as the user's jvp; in the tangents it transposes as the user's vjp; in everything else
  it is differentiated like any body.

So every order of grad, jvp and vmap reaches the user's rules, under fad's levels and under native
JAX alike, which bind the same objects. All methods work on flat lists of values of any level.

NOTE [missing rules]

A rule that the user did not write is derived from those that are there: jvp from vjp by
transposing twice (the pullback is linear in the cotangent, at which it is differentiated does not
matter), vjp from jvp by transposing, both from the forward body by differentiating it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad import trees
from fad.context import VmapInfo
from fad.dispatch import bind, outlived
from fad.errors import RuleError, describe
from fad.jaxapi import is_inexact, zeros
from fad.levels import BatchLevel, JvpLevel
from fad.primitive import Primitive, aval_of
from fad.tape.engine import pull_back
from fad.tape.record import ROOT, GradLevel
from fad.templates import Template
from fad.tensor import Tensor, bottom, new_tensor

__all__ = [
    "BatchedRules",
    "LinearRules",
    "Rules",
    "Saved",
    "checked_arrays",
    "pull_through",
    "push_through",
    "transpose_pullback",
    "transpose_pushforward",
]


@dataclasses.dataclass(slots=True)
class Saved:
    """What one call leaves for its rules.

    ``values`` and ``outs`` are its inputs and outputs, at the level where a rule is to run; None
    where no rule reads them. ``extras`` are other arrays that setup kept, and ``notes`` is the rest
    of what it kept, in a form that is private to the Rules.
    ``closed``: nothing was kept but inputs, outputs and what has no derivative, so that the same
    notes serve the call at any level.
    """

    values: Sequence[Any]
    outs: Sequence[Any]
    template: Template
    in_avals: Sequence[Any]
    out_avals: Sequence[Any]
    notes: Any = None
    extras: Sequence[Any] = ()
    closed: bool = True

    def at(self, values: Sequence[Any], outs: Sequence[Any], extras: Sequence[Any]) -> Saved:
        """The same for the call at another level."""
        return dataclasses.replace(self, values=values, outs=outs, extras=extras)


def avals_of(values: Sequence[Any]) -> list[Any]:
    """The avals of ``values``, None for None."""
    return [None if v is None else aval_of(v) for v in values]


class Rules:
    """How one call is evaluated and differentiated; see NOTE [rules are closed].

    ``values`` are the call's array inputs. Tangents and cotangents of None are zero.
    """

    name: str

    @property
    def is_traceable(self) -> bool:
        """Whether the pullback may be part of a compiled backward pass."""
        return False

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        """Evaluate: the array outputs, and the structure around them."""
        raise NotImplementedError

    def run(
        self, values: Sequence[Any], needs: Sequence[bool] | None = None
    ) -> tuple[list[Any], Template, Saved | None]:
        """`forward` and, where it costs little to have both, `setup`."""
        return (*self.forward(values), None)

    def setup(
        self,
        values: Sequence[Any],
        outs: Sequence[Any],
        template: Template,
        needs: Sequence[bool] | None = None,
    ) -> Saved:
        """What the rules need, from inputs and outputs.

        ``needs`` says of which inputs a gradient may be wanted; None is all that can have one.
        """
        raise NotImplementedError

    def for_pullback(self, saved: Saved) -> Saved:
        """``saved`` without what `pullback` does not read."""
        return saved.at(saved.values, [None] * len(saved.outs), saved.extras)

    def pullback(self, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]) -> list[Any]:
        """Gradients of the inputs (those that ``need`` says; others may be None)."""
        raise NotImplementedError

    def pushforward(self, saved: Saved, tangents: Sequence[Any]) -> list[Any]:
        """Tangents of the outputs."""
        raise NotImplementedError

    def batch(
        self, values: Sequence[Any], dims: tuple[int | None, ...], info: VmapInfo
    ) -> tuple[list[Any], Template] | None:
        """Outputs batched along dimension 0, by a vmap rule of the user's; None if there is none."""
        return None

    def bodies(self) -> list[Callable[..., Any]]:
        """The user's code that the rules run, for messages."""
        return []


# Deriving one rule from another


class DerivingGradLevel(GradLevel):
    """A grad level around the body of a rule."""

    __slots__ = ()

    deriving = True


class DerivingJvpLevel(JvpLevel):
    """A jvp level around the body of a rule."""

    __slots__ = ()

    deriving = True


def pull_through(
    f: Callable[[Sequence[Any]], tuple[list[Any], Any]],
    values: Sequence[Any],
    cotangents: Sequence[Any],
    need: Sequence[bool],
    kind: type[GradLevel] = DerivingGradLevel,
) -> list[Any]:
    """Gradients of a body, by running it in a grad level of its own."""
    with kind() as level:
        inside = [
            level.variable(v) if n and is_inexact(v.dtype) else v
            for v, n in zip(values, need, strict=True)
        ]
        variables = [x for x, v in zip(inside, values, strict=True) if x is not v]
        if not variables:
            return [None] * len(values)
        outs, _ = f(inside)
        grads = iter(pull_back(outs, cotangents, variables))
    return [next(grads) if x is not v else None for x, v in zip(inside, values, strict=True)]


def push_through(
    f: Callable[[Sequence[Any]], tuple[list[Any], Any]],
    values: Sequence[Any],
    tangents: Sequence[Any],
    kind: type[JvpLevel] = DerivingJvpLevel,
) -> list[Any]:
    """Tangents of a body, by running it in a jvp level of its own."""
    with kind() as level:
        duals = [
            v if t is None else level.dual(v, t) for v, t in zip(values, tangents, strict=True)
        ]
        outs, _ = f(duals)
        return [level.unpack(o)[1] for o in outs]


def transpose_pushforward(
    rules: Rules, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]
) -> list[Any]:
    """The pullback, from the pushforward: transpose it at any tangent (zero)."""
    with DerivingGradLevel() as level:
        tangents = [
            level.variable(zeros(a)) if n and is_inexact(a.dtype) else None
            for a, n in zip(saved.in_avals, need, strict=True)
        ]
        variables = [t for t in tangents if t is not None]
        if not variables:
            return tangents
        out_t = rules.pushforward(saved, tangents)
        grads = iter(pull_back(out_t, cotangents, variables))
    return [None if t is None else next(grads) for t in tangents]


def transpose_pullback(rules: Rules, saved: Saved, tangents: Sequence[Any]) -> list[Any]:
    """The pushforward, from the pullback: transpose that, see NOTE [missing rules]."""
    with DerivingGradLevel() as level:
        cotangents = [
            level.variable(zeros(a)) if is_inexact(a.dtype) else None for a in saved.out_avals
        ]
        variables = [c for c in cotangents if c is not None]
        if not variables:
            return cotangents
        grads = rules.pullback(saved, cotangents, [t is not None for t in tangents])
        out_t = iter(pull_back(grads, tangents, variables))
    return [None if c is None else next(out_t) for c in cotangents]


# Rules made of rules


@dataclasses.dataclass(frozen=True, slots=True)
class LinearRules(Rules):
    """The derivative of a call: (inputs, outputs, tangents) to tangents of outputs.

    ``mask`` says which inputs have a tangent among the operands, ``outputs`` which outputs have one
    in the result, ``out_template`` is the structure of the call's outputs.
    """

    base: Rules
    mask: tuple[bool, ...]
    outputs: tuple[bool, ...]
    out_template: Template

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.base.name}_jvp"

    @property
    def is_traceable(self) -> bool:
        return self.base.is_traceable

    def bodies(self) -> list[Callable[..., Any]]:
        return self.base.bodies()

    @property
    def known(self) -> int:
        """How many operands come before the tangents."""
        return len(self.mask) + len(self.outputs)

    def forward(
        self, values: Sequence[Any], given: Saved | None = None
    ) -> tuple[list[Any], Template]:
        """Evaluate; ``given`` is what the call left for its rules, if that is at hand."""
        if given is None:
            saved = self._saved(values)
        else:
            n = len(self.mask)
            saved = given.at(values[:n], values[n : self.known], given.extras)
        it = iter(values[self.known :])
        out_t = self.base.pushforward(saved, [next(it) if m else None for m in self.mask])
        blocked = saved.template.blocked
        result = [
            zeros(a) if t is None or k in blocked else t
            for k, (t, a, has) in enumerate(zip(out_t, saved.out_avals, self.outputs, strict=True))
            if has
        ]
        return Template.split(tuple(result))

    def _saved(self, values: Sequence[Any]) -> Saved:
        """What the call leaves for its rules."""
        n = len(self.mask)
        return self.base.setup(values[:n], values[n : self.known], self.out_template)

    def setup(
        self,
        values: Sequence[Any],
        outs: Sequence[Any],
        template: Template,
        needs: Sequence[bool] | None = None,
    ) -> Saved:
        return Saved(values, outs, template, avals_of(values), avals_of(outs))

    def pullback(self, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]) -> list[Any]:
        values, known = saved.values, self.known
        grads: list[Any] = [None] * known
        if any(need[:known]):  # differentiate the jvp body itself
            wanted = [*need[:known], *[False] * (len(need) - known)]
            grads = pull_through(self.forward, values, cotangents, wanted)[:known]
        if not any(need[known:]):
            return [*grads, *[None] * (len(need) - known)]
        inner = self._saved(values)
        given = iter(cotangents)
        full = [next(given) if has else None for has in self.outputs]
        full = [None if k in inner.template.blocked else c for k, c in enumerate(full)]
        flags = iter(need[known:])
        wanted = [next(flags) if m else False for m in self.mask]
        pulled: list[Any] = [None] * len(self.mask)
        if any([c is not None for c in full]):
            pulled = self.base.pullback(inner, full, wanted)
        return [*grads, *[g for g, m in zip(pulled, self.mask, strict=True) if m]]

    def pushforward(self, saved: Saved, tangents: Sequence[Any]) -> list[Any]:
        return push_through(self.forward, saved.values, tangents)


@dataclasses.dataclass(frozen=True, slots=True)
class _BatchedNotes:
    """What the base left, and where the batch dimension of each of its extras is."""

    inner: Saved
    extra_dims: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class BatchedRules(Rules):
    """A call under vmap; outputs have the batch along dimension 0."""

    base: Rules
    dims: tuple[int | None, ...]
    batch_size: int
    axis_name: Any = None
    randomness: str = "error"
    first: int = 0

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.base.name

    @property
    def info(self) -> VmapInfo:
        """What a vmap rule of the user's is told."""
        return VmapInfo(self.batch_size, self.randomness)

    @property
    def is_traceable(self) -> bool:
        return self.base.is_traceable

    def bodies(self) -> list[Callable[..., Any]]:
        return self.base.bodies()

    def level(self) -> BatchLevel:
        """A fresh level to run the base's bodies in."""
        return BatchLevel(self.batch_size, self.axis_name, self.randomness, self.first)

    def _inside(self, level: BatchLevel, values: Sequence[Any]) -> list[Any]:
        return [_batched(level, v, d) for v, d in zip(values, self.dims, strict=True)]

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        batched = self.base.batch(values, self.dims, self.info)
        if batched is not None:
            return batched
        with self.level() as level:
            outs, template = self.base.forward(self._inside(level, values))
            return [level.unwrap(o, 0) for o in outs], template

    def run(
        self, values: Sequence[Any], needs: Sequence[bool] | None = None
    ) -> tuple[list[Any], Template, Saved | None]:
        batched = self.base.batch(values, self.dims, self.info)
        if batched is not None:
            return (*batched, None)
        with self.level() as level:
            outs, template, inner = self.base.run(self._inside(level, values), needs)
            lowered = [level.unwrap(o, 0) for o in outs]
            saved = None if inner is None else self._outside(level, values, lowered, inner)
            return lowered, template, saved

    def setup(
        self,
        values: Sequence[Any],
        outs: Sequence[Any],
        template: Template,
        needs: Sequence[bool] | None = None,
    ) -> Saved:
        with self.level() as level:
            inner_outs = [_batched(level, o, 0) for o in outs]
            inner = self.base.setup(self._inside(level, values), inner_outs, template, needs)
            return self._outside(level, values, outs, inner)

    def _outside(
        self, level: BatchLevel, values: Sequence[Any], outs: Sequence[Any], inner: Saved
    ) -> Saved:
        """What this call leaves, from what the base left inside of ``level``."""
        extras: list[Any] = []
        dims: list[int | None] = []
        for x in inner.extras:
            x = outlived(x)
            batched = isinstance(x, Tensor) and x.level is level and x.aux is not None
            dims.append(0 if batched else None)
            extras.append(level.unwrap(x, 0 if batched else None))
        notes = _BatchedNotes(inner.at((), (), ()), tuple(dims))
        avals = avals_of(values), avals_of(outs)
        return Saved(values, outs, inner.template, *avals, notes, extras, inner.closed)

    def inner_saved(self, saved: Saved, level: BatchLevel) -> Saved:
        """What the base left, as Tensors of ``level``; values and outputs are not filled in."""
        notes: _BatchedNotes = saved.notes
        pairs = zip(saved.extras, notes.extra_dims, strict=True)
        return notes.inner.at((), (), [_batched(level, x, d) for x, d in pairs])

    def _at(self, level: BatchLevel, saved: Saved) -> Saved:
        inner = self.inner_saved(saved, level)
        outs = [_batched(level, o, 0) for o in saved.outs]
        return inner.at(self._inside(level, saved.values), outs, inner.extras)

    def for_pullback(self, saved: Saved) -> Saved:
        notes: _BatchedNotes = saved.notes
        inner = self.base.for_pullback(notes.inner.at(saved.values, saved.outs, saved.extras))
        return dataclasses.replace(
            saved,
            values=inner.values,
            outs=inner.outs,
            notes=_BatchedNotes(inner.at((), (), ()), notes.extra_dims),
        )

    def pullback(self, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]) -> list[Any]:
        with self.level() as level:
            cts = [_batched(level, c, 0) for c in cotangents]
            grads = self.base.pullback(self._at(level, saved), cts, need)
            result: list[Any] = []
            for g, d in zip(grads, self.dims, strict=True):
                if g is None:
                    result.append(None)
                elif d is None:
                    result.append(bind(_SUM_LANES, (level.unwrap(g, 0),)))
                else:
                    result.append(level.unwrap(g, d))
            return result

    def pushforward(self, saved: Saved, tangents: Sequence[Any]) -> list[Any]:
        with self.level() as level:
            given = self._inside(level, tangents)
            out_t = self.base.pushforward(self._at(level, saved), given)
            return [None if t is None else level.unwrap(t, 0) for t in out_t]


_SUM_LANES = Primitive("sum", lambda x: jnp.sum(x, axis=0))


def _batched(level: BatchLevel, x: Any, dim: int | None) -> Any:
    """``x``, which has the batch along ``dim``, as a value inside of ``level``."""
    return x if x is None or dim is None else new_tensor(x, level, dim)


# Bodies that close over what they should be given


def checked_arrays(rules: Rules, outs: Sequence[Any]) -> list[Any]:
    """Outputs of a body that ran on bare arrays, as bare arrays.

    Raises:
        RuleError: one of them is part of a running transform or graph: the body closed over it.
    """
    result = []
    for o in outs:
        o = outlived(o)
        if isinstance(o, Tensor):
            if is_tracked(o):
                raise closure_error(rules, o, is_tracked)
            o = o.value
        result.append(o)
    return result


def is_tracked(x: Any) -> bool:
    """Whether ``x`` belongs to a running fad transform or to the eager graph."""
    x = outlived(x)
    return isinstance(x, Tensor) and (x.level is not ROOT or x.requires_grad)


def is_tracer(x: Any) -> bool:
    """Whether a JAX transform is at work on ``x``."""
    return isinstance(bottom(x), jax.core.Tracer)


def closure_error(rules: Rules, reached: Any, blamed: Callable[[Any], bool]) -> RuleError:
    """The error for a body that closes over a value which a transform is at work on.

    Arguments:
        reached: an output that depends on it, None if unknown.
        blamed: says of a value whether it is such a one.
    """
    name = rules.name.removesuffix("_jvp")
    for body in rules.bodies():
        for variable, value in _closed_over(body):
            if blamed(value):
                what = f"{variable!r} ({describe(value)}{_where(value)})"
                return RuleError(
                    f"{name}.{body.__name__} closes over {what}, which is not among its arguments, "
                    f"so its derivative would be lost. Pass {variable} as an argument of "
                    f"{name}.apply, or use fad.stop_gradient({variable}) if no derivative is wanted."
                )
    through = "" if reached is None else f"; it reached the output {describe(reached)}"
    lanes = (
        " (A body that draws random numbers or names the axis of a vmap needs an argument that this "
        "vmap maps over.)"
        if isinstance(reached, Tensor) and isinstance(reached.level, BatchLevel)
        else ""
    )
    return RuleError(
        f"{name} closes over a value{_where(reached)} that is not among its arguments, so its "
        f"derivative would be lost{through}. Pass the value as an argument of {name}.apply, or use "
        f"fad.stop_gradient on it if no derivative is wanted.{lanes}"
    )


def _closed_over(body: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The variables of outer scopes that ``body`` names, and the leaves of their values."""
    try:
        found = inspect.getclosurevars(inspect.unwrap(body))
    except TypeError:  # not written in Python
        return
    for variable, value in (*found.nonlocals.items(), *found.globals.items()):
        try:
            leaves = trees.flatten(value)[0]
        except (TypeError, ValueError):  # a dict whose keys do not compare
            leaves = [value]
        for leaf in leaves:
            yield variable, leaf


def _where(x: Any) -> str:
    """Which transform is at work on ``x``, for a message."""
    x = outlived(x)
    if isinstance(x, Tensor) and x.level is not ROOT:
        return f" of {x.level!r}"
    if isinstance(x, Tensor) and x.requires_grad:
        return " of the eager graph"
    return " of a running JAX transform" if is_tracer(x) else ""
