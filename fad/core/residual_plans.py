"""The plan by which a Primitive is differentiated in reverse, derived from its function."""

from __future__ import annotations

import contextlib
import functools

from fad.core.jaxapi import run_jaxpr
from fad.core.masked import run_pullback
from fad.core.primitive import Primitive, VjpPlan, as_derivative
from fad.core.residuals import Residuals, dependence_of_jaxpr, residuals_of
from fad.core.types import Array, Aval


class ResidualPlan(VjpPlan):
    """A plan that saves what ``found`` says; see NOTE [what a derived vjp saves]."""

    __slots__ = ("_residuals",)

    from_inputs = False

    def __init__(self, primitive: Primitive, mask: tuple[bool, ...], found: Residuals) -> None:
        super().__init__(primitive, mask)
        self.single = found.single
        self.out_avals = found.out_avals
        self.differentiable = found.differentiable
        self.kept_inputs, self.kept_outputs = found.inputs, found.outputs
        self.extras = len(found.extras)
        self._residuals = found
        if found.rows is not None:
            self.narrow(found.rows)
        if found.extras:
            self.forward = _with_residuals(primitive, found)

    def _derive(self, given: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        found = self._residuals
        out = found.out_avals[0] if found.single else found.out_avals
        count = len(found.sources)

        def vjp(*values: Array) -> tuple[Array, ...]:
            pullback = found.pullback(values[:count])
            return run_pullback(pullback, out, values[count:], given, need, found.sparse)

        return as_derivative(
            Primitive(
                f"{self.primitive.name}_vjp",
                vjp,
                deferrable=self.primitive.deferrable,
                shared=self.primitive.shared is not None,
            )
        )


def derived_plan(primitive: Primitive, mask: tuple[bool, ...], avals: list[Aval]) -> VjpPlan:
    """The plan that follows from the function of ``primitive``."""
    if primitive.jit and not primitive.collective:
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            found = residuals_of(
                primitive.to_vjp, mask, avals, primitive.differentiable_outputs, primitive.paths
            )
            return ResidualPlan(primitive, mask, found)
    return VjpPlan(primitive, mask)


def _with_residuals(primitive: Primitive, found: Residuals) -> Primitive:
    """``primitive`` with the extras as further outputs, after its own."""
    run = functools.partial(run_jaxpr, found.closed)
    count = len(found.out_avals)

    def forward(*values: Array) -> tuple[Array, ...]:
        leaves = run(*values)
        return (*leaves[:count], *[leaves[i] for i in found.extras])

    saving = Primitive(
        f"{primitive.name}_saving",
        forward,
        deferrable=primitive.deferrable,
        shared=primitive.shared is not None,
    )
    jaxpr = found.closed.jaxpr
    saved = [*jaxpr.outvars[:count], *[jaxpr.outvars[i] for i in found.extras]]
    saving.dependence = functools.partial(dependence_of_jaxpr, jaxpr, saved)
    saving.paths = primitive.paths
    return saving


Primitive.derived_planner = staticmethod(derived_plan)
