"""The rules of a Function with ``jax_rules``: bodies on JAX arrays, each compiled as one Primitive.

NOTE [compiled bodies]

The first call with inputs of some shapes and dtypes traces forward and setup_context and draws up
`_CompiledBodies`: which inputs, outputs and other arrays the rules read, and what is static on ctx. Where
other arrays (extras) were saved, forward returns them besides its outputs, as JAX returns residuals. vjp,
jvp and vmap become Primitives of what they read. So each body is compiled once, and the Python in it
does not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import x64_enabled
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.functions.closures import closure_error
from fad.functions.context import INERT, Notes, Ref, VmapInfo
from fad.functions.rules import Needs, Saved, Values
from fad.functions.templates import Template
from fad.functions.user_rules import UserRules

__all__ = ["JaxRules"]

# What may stay on ctx from one trace to the next: it cannot refer to the trace.
_CONSTANT = (Ref, type(None), *INERT, float, complex, np.ndarray, np.generic)


class JaxRules(UserRules):
    """The rules of a Function class whose bodies take JAX arrays; see NOTE [compiled bodies]."""

    __slots__ = ()

    kept_types: ClassVar[tuple[type, ...]] = (jax.Array,)

    def wrap(self, x: Any) -> Any:
        return x

    def another(self, x: Any) -> Any:
        return jnp.copy(x)

    def forward(self, values: Values) -> tuple[list[Any], Template]:
        plan = _plan_for(self, values, [False] * len(values) if self.cls._plain_forward else None)
        return _listed(bind(plan.forward, values)), plan.template

    def run(self, values: Values, needs: Needs = None) -> tuple[list[Any], Template, Saved | None]:
        if needs is None:
            return (*self.forward(values), None)
        plan = _plan_for(self, values, needs)
        results = _listed(bind(plan.run, values))
        outs, extras = results[: plan.count], results[plan.count :]
        return outs, plan.template, plan.saved(values, outs, extras)

    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        plan = _plan_for(self, values, needs)
        extras = _listed(bind(plan.setup, [*values, *outs])) if plan.extras else []
        return plan.saved(values, outs, extras)

    def notes_of(self, saved: Saved) -> Notes | None:
        return saved.notes.notes if isinstance(saved.notes, _CompiledBodies) else saved.notes

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        if saved.notes.runs_again:
            return saved.at(values, outs, ())
        return UserRules.for_pullback(self, saved, values, outs)

    def notes_key(self, saved: Saved) -> Hashable | None:
        plan: _CompiledBodies = saved.notes  # by identity
        return plan

    def _user_pullback(
        self, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        need = tuple(map(bool, need))

        def vjp(saved: Saved, cotangents: Sequence[Any]) -> list[Any]:
            grads = UserRules._user_pullback(self, saved, cotangents, need)
            return [g if n else None for g, n in zip(grads, need, strict=True)]

        return saved.notes.call("vjp", vjp, saved, cotangents, need)

    def _user_pushforward(
        self, saved: Saved, directions: Sequence[Any], order: int | None
    ) -> list[Any]:
        def push(saved: Saved, directions: Sequence[Any]) -> list[Any]:
            return UserRules._user_pushforward(self, saved, directions, order)

        rule = "jvp" if order is None else "jet"
        return saved.notes.call(rule, push, saved, directions, order)

    def batch(
        self, values: Values, dims: tuple[int | None, ...], info: VmapInfo
    ) -> tuple[list[Any], Template] | None:
        if not self.signature.vmap:
            return UserRules.batch(self, values, dims, info)
        plans = self.cls._plans
        key = (self, "vmap", dims, info, _avals(values))
        found = plans.get(key)
        if found is None:
            template: list[Template] = []

            def run(*arrays: Any) -> list[Any]:
                batched = UserRules.batch(self, arrays, dims, info)
                assert batched is not None
                template[:] = [batched[1]]
                return self.bare(batched[0])

            jax.eval_shape(run, *map(aval_of, values))
            found = plans.put(key, (Primitive(f"{self.name}_vmap", run), template[0]))
        primitive, out_template = found
        return _listed(bind(primitive, values)), out_template

    def bare(self, values: Values) -> list[Any]:
        """What a body returned, checked to be JAX arrays."""
        for x in values:
            if isinstance(x, Tensor):
                raise closure_error(self, x, lambda v: isinstance(v, Tensor))
        return list(values)


class _CompiledBodies:
    """How the rules run for inputs of certain shapes and dtypes: see NOTE [compiled bodies].

    ``count`` is the number of outputs, ``extras`` that of further arrays kept. ``runs_again``: setup kept
    an object that may contain arrays, so that it runs again inside of the rules.
    """

    __slots__ = (
        "_bodies",
        "_in_avals",
        "_out_avals",
        "count",
        "extras",
        "forward",
        "needs",
        "notes",
        "rules",
        "run",
        "runs_again",
        "setup",
        "template",
    )

    def __init__(self, rules: JaxRules, avals: Sequence[Any], needs: tuple[bool, ...]) -> None:
        self.rules = rules
        self.needs = needs
        self._bodies: dict[Any, Primitive] = {}
        found: list[Saved] = []

        def body(saves: bool) -> Callable[..., list[Any]]:
            def run(*values: Any) -> list[Any]:
                outs, _, saved = UserRules._run(rules, values, needs, saves)
                found[:] = [saved] if saved is not None else []
                return rules.bare([*outs, *(saved.extras if saved and saves else ())])

            return run

        jax.eval_shape(body(True), *avals)
        saved = found[0]
        self.template = saved.template
        self._in_avals, self._out_avals = saved.in_avals, saved.out_avals
        self.count = len(saved.outs)
        self.notes: Notes | None = saved.notes
        kept = [] if self.notes is None else self.notes.leaves()
        self.runs_again = not all([isinstance(x, _CONSTANT) for x in kept])
        if self.runs_again:
            self.notes = None
        self.extras = 0 if self.notes is None else len(saved.extras)
        self.forward = Primitive(rules.name, body(False))
        self.run = Primitive(f"{rules.name}_saving", body(True)) if self.extras else self.forward
        self.setup = Primitive(f"{rules.name}_setup", self._setup)

    def _setup(self, *operands: Any) -> list[Any]:
        values, outs = operands[: -self.count], operands[-self.count :]
        return self.rules.bare(self._setup_again(values, outs).extras)

    def _setup_again(self, values: Values, outs: Values) -> Saved:
        return UserRules.setup(self.rules, values, outs, self.template, self.needs)

    def saved(
        self, values: Values, outs: Values, extras: Sequence[Any], notes: Any = None
    ) -> Saved:
        """What a call leaves for the rules."""
        avals = self._in_avals, self._out_avals
        return Saved(values, outs, self.template, *avals, notes or self, extras, not self.extras)

    def call(
        self,
        rule: str,
        body: Callable[[Saved, Any], list[Any]],
        saved: Saved,
        directions: Sequence[Any],
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
        primitive = self._bodies.get(key)
        if primitive is None:

            def compiled(*operands: Any) -> list[Any]:
                values, outs, extras, directions = trees.unflatten(structure, operands)
                if self.runs_again:
                    inner = self._setup_again(values, outs)
                else:
                    inner = self.saved(values, outs, extras, self.notes)
                found = body(inner, directions)
                self.rules.bare(trees.flatten(found)[0])
                return found

            primitive = self._bodies[key] = Primitive(f"{self.rules.name}_{rule}", compiled)
        result: list[Any] = primitive.unflatten(bind(primitive, operands))
        return result


def _plan_for(rules: JaxRules, values: Values, needs: Needs) -> _CompiledBodies:
    flags = [is_inexact(v.dtype) for v in values] if needs is None else needs
    key = (rules, _avals(values), tuple(flags))
    plan: _CompiledBodies | None = rules.cls._plans.get(key)
    if plan is None:
        plan = _CompiledBodies(rules, list(map(aval_of, values)), tuple(flags))
        plan = rules.cls._plans.put(key, plan)
    return plan


def _avals(values: Values) -> tuple[Any, ...]:
    return (x64_enabled(), *[aval_of(v) for v in values])


def _listed(out: Any) -> list[Any]:
    return list(out) if type(out) is tuple else [out]
