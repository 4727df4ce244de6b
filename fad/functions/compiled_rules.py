"""The rules of a Function with ``jax_rules``: bodies on JAX arrays, each compiled as one Primitive.

NOTE [compiled bodies]

    runs = []
    F = function(jax_rules=True, forward=lambda x: runs.append(x) or jnp.sin(x))
    F.apply(array)
    before = len(runs)
    assert F.apply(array + 1.0)[0] == jnp.sin(array + 1.0)[0] and len(runs) == before

The first call with inputs of some shapes and dtypes traces forward and setup_context and draws up
`_CompiledBodies`: which inputs, outputs and other arrays the rules read, and what is static on ctx. Where
other arrays (extras) were saved, forward returns them besides its outputs, as JAX returns residuals. vjp,
jvp and vmap become Primitives of what they read. So each body is compiled once, and the Python in it
does not run again.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import trace_context
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Array, Aval, Dims, Outputs, Value
from fad.functions.context import INERT, Notes, Ref, Template, VmapInfo
from fad.functions.rules import Directions, Grads, Needs, Outcome, Saved, Values, closure_error
from fad.functions.user_rules import UserRules
from fad.tape.vmap import axes_of, bind_code, named_levels, traced_in

# What may stay on ctx from one trace to the next: it cannot refer to the trace.
_CONSTANT = (Ref, type(None), *INERT, float, complex, np.ndarray, np.generic)


class JaxRules(UserRules):
    """The rules of a Function class whose bodies take JAX arrays; see NOTE [compiled bodies]."""

    __slots__ = ()

    kept_types: ClassVar[tuple[type, ...]] = (jax.Array,)

    def wrap(self, x: Array) -> Array:
        return x

    def another(self, x: Array) -> Array:
        return jnp.copy(x)

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        bodies = self._bodies(values, [False] * len(values))
        return _listed(bind_code(bodies.forward, values)), bodies.template

    def run(self, values: Values, needs: Needs = None, with_setup: bool = True) -> Outcome:
        if needs is None:
            return (*self.forward(values), None)
        bodies = self._bodies(values, needs)
        results = _listed(bind_code(bodies.run, values))
        outs, extras = results[: bodies.count], results[bodies.count :]
        return outs, bodies.template, bodies.saved(values, outs, extras, bodies)

    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        bodies = self._bodies(values, needs)
        extras = _listed(bind_code(bodies.setup, [*values, *outs])) if bodies.extras else []
        return bodies.saved(values, outs, extras, bodies)

    def _bodies(self, values: Values, needs: Needs) -> _CompiledBodies:
        """Those for values of these shapes and dtypes."""
        flags = tuple([is_inexact(v.dtype) for v in values] if needs is None else needs)
        plans, key = self.cls._plans, (self, _avals(values), flags)
        bodies: _CompiledBodies | None = plans.get(key)
        return bodies or plans.put(key, _CompiledBodies(self, list(map(aval_of, values)), flags))

    def notes_of(self, saved: Saved) -> Notes | None:
        of_bodies = isinstance(saved.notes, _CompiledBodies)
        notes: Notes | None = saved.notes.notes if of_bodies else saved.notes
        return notes

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        if saved.notes.runs_again:
            return saved.at(values, outs, ())
        return UserRules.for_pullback(self, saved, values, outs)

    def _user_pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        need = tuple(map(bool, need))

        def vjp(saved: Saved, cotangents: Values) -> Grads:
            grads = UserRules._user_pullback(self, saved, cotangents, need)
            return [g if n else None for g, n in zip(grads, need, strict=True)]

        bodies: _CompiledBodies = saved.notes
        return bodies.call("vjp", vjp, saved, cotangents, need)

    def _user_pushforward(
        self, saved: Saved, directions: Directions, order: int | None
    ) -> list[Any]:
        def push(saved: Saved, directions: Directions) -> list[Any]:
            return UserRules._user_pushforward(self, saved, directions, order)

        bodies: _CompiledBodies = saved.notes
        return bodies.call("jvp" if order is None else "jet", push, saved, directions, order)

    def batch(
        self, values: Values, dims: Dims, info: VmapInfo
    ) -> tuple[list[Value], Template] | None:
        if not self.signature.vmap:
            return UserRules.batch(self, values, dims, info)
        plans = self.cls._plans
        key = (self, "vmap", dims, info, _avals(values))
        batched: tuple[Primitive, Template] | None = plans.get(key)
        if batched is None:
            template: list[Template] = []

            def run(*arrays: Array) -> list[Value]:
                batched = UserRules.batch(self, arrays, dims, info)
                assert batched is not None
                template[:] = [batched[1]]
                return self.bare(batched[0])

            _trace(run, list(map(aval_of, values)))
            batched = plans.put(key, (_primitive(f"{self.name}_vmap", run), template[0]))
        primitive, out_template = batched
        return _listed(bind_code(primitive, values)), out_template

    def bare(self, values: Values) -> list[Value]:
        """What a body returned, checked to be JAX arrays."""
        for x in values:
            if isinstance(x, Tensor):
                raise closure_error(self, x, lambda v: isinstance(v, Tensor))
        return list(values)


class _CompiledBodies:
    """How the rules run for inputs of certain shapes and dtypes: see NOTE [compiled bodies].

    ``count`` is the number of outputs, ``extras`` that of further arrays kept. ``notes`` is what setup kept;
    None where that may contain arrays inside of objects (``runs_again``): it then runs again inside of the
    rules.
    """

    def __init__(self, rules: JaxRules, avals: Sequence[Aval], needs: tuple[bool, ...]) -> None:
        self.rules = rules
        self.needs = needs
        self._rules: dict[Hashable, Primitive] = {}
        of_body: list[Saved] = []

        def body(saves: bool) -> Callable[..., list[Value]]:
            def run(*values: Array) -> list[Value]:
                outs, _, saved = UserRules.run(rules, values, needs, saves)
                of_body[:] = [saved] if saved is not None else []
                return rules.bare([*outs, *(saved.extras if saved and saves else ())])

            return run

        _trace(body(True), avals)
        (saved,) = of_body
        self.template = saved.template
        self._avals = saved.in_avals, saved.out_avals
        self.count = len(saved.outs)
        notes: Notes | None = saved.notes
        kept = [] if notes is None else notes.leaves()
        self.runs_again = not all([isinstance(x, _CONSTANT) for x in kept])
        self.notes = None if self.runs_again else notes
        self.extras = 0 if self.notes is None else len(saved.extras)
        self.forward = _primitive(rules.name, body(False))
        self.run = _primitive(f"{rules.name}_saving", body(True)) if self.extras else self.forward
        self.forward.lineage = self.run.lineage = rules.lineage
        self.setup = _primitive(
            f"{rules.name}_setup",
            lambda *xs: rules.bare(self._set_up(xs[: -self.count], xs[-self.count :]).extras),
        )

    def _set_up(self, values: Values, outs: Values) -> Saved:
        return UserRules.setup(self.rules, values, outs, self.template, self.needs)

    def saved(self, values: Values, outs: Values, extras: Values, notes: object) -> Saved:
        """What a call leaves for the rules."""
        return Saved(values, outs, self.template, *self._avals, notes, extras, not self.extras)

    def call(
        self,
        rule: str,
        body: Callable[[Saved, Any], list[Any]],
        saved: Saved,
        directions: Directions,
        static: Hashable,
    ) -> list[Any]:
        """Run the ``body`` of a rule on what a call saved, and on directions, compiled.

        ``static`` says which body it is of those for this rule.
        """
        values, outs = list(saved.values), list(saved.outs)
        if self.notes is not None:
            notes = self.notes.without_forward() if rule == "vjp" else self.notes.only_forward()
            values, outs = notes.read(values, outs)
        operands, structure = trees.flatten((values, outs, list(saved.extras), list(directions)))
        key = (rule, static, structure)
        primitive = self._rules.get(key)
        if primitive is None:

            def compiled(*operands: Array) -> list[Any]:
                values, outs, extras, directions = trees.unflatten(structure, operands)
                if self.runs_again:
                    inner = self._set_up(values, outs)
                else:
                    inner = self.saved(values, outs, extras, self.notes)
                pushed = body(inner, directions)
                self.rules.bare(trees.flatten(pushed)[0])
                return pushed

            primitive = self.forward.derivative(rule, compiled, shared=True)
            self._rules[key] = primitive
        result: list[Any] = primitive.unflatten(bind_code(primitive, operands))
        return result


_primitive = functools.partial(Primitive, shared=True)  # of a body, which may be made anew


def _avals(values: Values) -> tuple[Hashable, ...]:
    """What the trace of a body depends on, beside its own values."""
    return (trace_context(), axes_of(named_levels()), *map(aval_of, values))


def _trace(body: Callable[..., list[Value]], avals: Sequence[Aval]) -> None:
    """Run a body on tracers, where it may name the axes of the vmaps around it."""
    axes = axes_of(named_levels())
    with traced_in(axes) if axes else contextlib.nullcontext():
        jax.eval_shape(body, *avals)


def _listed(out: Outputs) -> list[Value]:
    return list(out) if type(out) is tuple else [out]
