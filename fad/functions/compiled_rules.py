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

from fad.core.avals import aval_of
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import x64_enabled
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.functions.closures import closure_error
from fad.functions.context import INERT, INPUT, OUTPUT, Notes, Ref, VmapInfo
from fad.functions.rules import CallRules, Needs, Saved, Values
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
        if needs is None and self.cls._plain_forward:
            return (*self.forward(values), None)
        plan = _plan_for(self, values, needs)
        if plan.extras and needs is None:
            return _listed(bind(plan.forward, values)), plan.template, None
        results = _listed(bind(plan.run, values))
        outs, extras = results[: plan.count], results[plan.count :]
        return outs, plan.template, plan.saved(values, outs, extras)

    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        plan = _plan_for(self, values, needs)
        extras = _listed(bind(plan.setup, [*values, *outs])) if plan.extras else []
        return plan.saved(values, outs, extras)

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        plan: _CompiledBodies = saved.notes
        if not saved.closed:  # the body may have to run again
            return saved.at(values, outs, saved.extras)
        if not self.signature.vjp and not self.has_forward_rule:
            return CallRules.for_pullback(self, saved, values, outs)
        inputs, outputs = plan.reads["vjp" if self.signature.vjp else "jvp"]
        return saved.at(
            [v if i in inputs else None for i, v in enumerate(values)],
            [o if k in outputs else None for k, o in enumerate(outs)],
            (),
        )

    def context(self, saved: Saved, need: Sequence[bool]) -> Any:
        plan: _CompiledBodies = saved.notes
        inner = saved.at(saved.values, saved.outs, saved.extras)
        inner.notes = plan.notes
        return UserRules.context(self, inner, need)

    def saved_for_backward(self, saved: Saved) -> Sequence[Any] | None:
        notes = saved.notes.notes
        return notes.backward if notes is not None and self.signature.vjp else None

    def notes_key(self, saved: Saved) -> Hashable | None:
        plan: _CompiledBodies = saved.notes  # by identity
        return plan

    def _user_pullback(
        self, saved: Saved, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        plan: _CompiledBodies = saved.notes
        given = tuple([c is not None for c in cotangents])
        need = tuple([bool(n) for n in need])

        def vjp(saved: Saved, rest: Sequence[Any]) -> list[Any]:
            it = iter(rest)
            cts = [next(it) if g else None for g in given]
            grads = UserRules._user_pullback(self, saved, cts, need)
            return [g if n else None for g, n in zip(grads, need, strict=True)]

        return plan.call("vjp", (given, need), vjp, saved, cotangents)

    def _user_pushforward(self, saved: Saved, tangents: Sequence[Any]) -> list[Any]:
        plan: _CompiledBodies = saved.notes
        mask = tuple([t is not None for t in tangents])

        def jvp(saved: Saved, rest: Sequence[Any]) -> list[Any]:
            it = iter(rest)
            given = [next(it) if m else None for m in mask]
            return UserRules._user_pushforward(self, saved, given)

        return plan.call("jvp", mask, jvp, saved, tangents)

    def jet(self, saved: Saved, series: Sequence[Any], order: int) -> list[Any]:
        plan: _CompiledBodies = saved.notes
        masks = tuple([s and tuple([t is not None for t in s]) for s in series])

        def jet(saved: Saved, rest: Sequence[Any]) -> list[Any]:
            it = iter(rest)
            given = [m and [next(it) if has else None for has in m] for m in masks]
            found = UserRules.jet(self, saved, given, order)
            return [t for s in found for t in s or [None] * order]

        terms = [t for s in series for t in s or ()]
        flat = plan.call("jet", (masks, order), jet, saved, terms)
        return [flat[k : k + order] for k in range(0, len(flat), order)]

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

    ``count`` is the number of outputs, ``extras`` that of further arrays kept; ``reads`` says which
    inputs and which outputs the vjp and the jvp rule read.
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
        "reads",
        "rules",
        "run",
        "setup",
        "template",
    )

    def __init__(self, rules: JaxRules, avals: Sequence[Any], needs: tuple[bool, ...]) -> None:
        self.rules = rules
        self.needs = needs
        self._bodies: dict[Any, Primitive] = {}
        found: list[Saved] = []

        def trace(*values: Any) -> None:
            outs, _, saved = UserRules._run(rules, values, needs, True)
            assert saved is not None
            rules.bare([*outs, *saved.extras])
            found.append(saved)

        jax.eval_shape(trace, *avals)
        saved = found[0]
        self.template = saved.template
        self._in_avals, self._out_avals = saved.in_avals, saved.out_avals
        self.count = len(saved.outs)
        notes: Notes | None = saved.notes
        if notes is not None and not all([isinstance(x, _CONSTANT) for x in notes.leaves()]):
            notes = None  # an object that may contain arrays: run setup again inside of the rules
        self.notes = notes
        self.extras = 0 if notes is None else len(saved.extras)
        everything: tuple[Sequence[int], Sequence[int]] = range(len(avals)), range(self.count)
        self.reads: dict[str, tuple[Sequence[int], Sequence[int]]] = {
            "vjp": everything,
            "jvp": everything,
        }
        if notes is not None:
            self.reads = {
                "vjp": _positions(notes.without_forward()),
                "jvp": _positions(notes.only_forward()),
            }
        name = rules.name
        self.forward = Primitive(name, self._forward)
        self.run = Primitive(f"{name}_saving", self._run) if self.extras else self.forward
        self.setup = Primitive(f"{name}_setup", self._setup)

    def _forward(self, *values: Any) -> list[Any]:
        outs, _, _ = UserRules._run(self.rules, values, self.needs, False)
        return self.rules.bare(outs)

    def _run(self, *values: Any) -> list[Any]:
        outs, _, saved = UserRules._run(self.rules, values, self.needs, True)
        assert saved is not None
        return self.rules.bare([*outs, *saved.extras])

    def _setup(self, *operands: Any) -> list[Any]:
        return self.rules.bare(
            self._setup_again(operands[: -self.count], operands[-self.count :]).extras
        )

    def _setup_again(self, values: Values, outs: Values) -> Saved:
        return UserRules.setup(self.rules, values, outs, self.template, self.needs)

    def saved(self, values: Values, outs: Values, extras: Sequence[Any]) -> Saved:
        """What a call leaves for the rules."""
        avals = self._in_avals, self._out_avals
        return Saved(values, outs, self.template, *avals, self, extras, not self.extras)

    def call(
        self,
        rule: str,
        key: Any,
        body: Callable[[Saved, list[Any]], list[Any]],
        saved: Saved,
        rest: Sequence[Any],
    ) -> list[Any]:
        """Run the ``body`` of a rule on what a call saved, and on the arrays in ``rest``, compiled."""
        inputs, outputs = self.reads["vjp" if rule == "vjp" else "jvp"]
        primitive = self._bodies.get((rule, key))
        if primitive is None:

            def compiled(*operands: Any) -> list[Any]:
                it = iter(operands)
                values: list[Any] = [None] * len(self._in_avals)
                outs: list[Any] = [None] * self.count
                for i in inputs:
                    values[i] = next(it)
                for k in outputs:
                    outs[k] = next(it)
                extras = [next(it) for _ in range(self.extras)]
                if self.notes is None:
                    inner = self._setup_again(values, outs)
                else:
                    inner = self.saved(values, outs, extras)
                    inner.notes = self.notes
                return self.rules.bare(body(inner, list(it)))

            primitive = self._bodies[rule, key] = Primitive(f"{self.rules.name}_{rule}", compiled)
        operands = [
            *[saved.values[i] for i in inputs],
            *[saved.outs[k] for k in outputs],
            *saved.extras,
            *[x for x in rest if x is not None],
        ]
        result: list[Any] = primitive.unflatten(bind(primitive, operands))
        return result


def _positions(notes: Notes) -> tuple[Sequence[int], Sequence[int]]:
    """The numbers of the inputs and of the outputs that are noted."""
    refs = {x for x in notes.leaves() if isinstance(x, Ref)}
    return (
        sorted([r.at for r in refs if r.kind == INPUT]),
        sorted([r.at for r in refs if r.kind == OUTPUT]),
    )


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
