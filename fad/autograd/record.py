"""The one recorder: adds a Node where an argument of the level at work requires grad.

The eager tape is this recorder at level 0 (`ROOT`); ``fad.grad`` is it at a level of its own; a
dual or batched Tensor that requires grad is recorded at its level in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.dispatch import Level, bind, state
from fad.errors import GradientError
from fad.graph import Node, gradient_edge
from fad.jaxapi import is_inexact
from fad.primitive import Primitive, VjpPlan, aval_of
from fad.tensor import Tensor, new_tensor

__all__ = ["ROOT", "GradLevel", "PrimitiveNode", "RecordingLevel", "as_tensor", "raise_released"]


def raise_released(node: Node) -> None:
    """The error for a second backward pass through a freed part of the graph."""
    raise GradientError(
        f"Trying to backward through the graph a second time, at {node.name()}: its saved values "
        "were freed by the first pass. Pass retain_graph=True to the first backward() or "
        "autograd.grad() call."
    )


class PrimitiveNode(Node):
    """A recorded call of a Primitive."""

    __slots__ = ("plan", "tensors", "values", "versions")

    def __init__(
        self,
        level: Level,
        next_edges: Sequence[tuple[Node, int]],
        plan: VjpPlan,
        tensors: list[Any],
        values: list[Any] | None,
    ) -> None:
        super().__init__(level, next_edges)
        self.plan = plan
        self.tensors = tensors
        self.values = values
        self.versions = _versions(tensors)

    def name(self) -> str:
        return _node_name(self.plan.primitive.name)

    @property
    def num_inputs(self) -> int:
        return 1 if self.plan.out_avals is None else len(self.plan.out_avals)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        edges = iter(self.next_edges)
        return tuple([next(edges) if m else (None, 0) for m in self.plan.mask])

    def apply(
        self, cotangents: Sequence[Any], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[Any]:
        plan = self.plan
        values = self.values
        if values is None:
            raise_released(self)
        if self.versions != (now := _versions(self.tensors)):
            _raise_version(self, self.versions, now)
        if plan.single:
            given = None
            cts = cotangents
        else:
            given = tuple([c is not None for c in cotangents])
            cts = [c for c in cotangents if c is not None]
        if not create_graph:
            return bind(plan.vjp(given, need), [*values, *cts])
        saved = self._tracked()
        if plan.extras:  # residuals have no history of their own: start again from the inputs
            return bind(plan.primitive.full_vjp(plan.mask, given, need), [*saved, *cts])
        return bind(plan.vjp(given, need), [*saved, *cts])

    def _tracked(self) -> list[Any]:
        """Kept inputs and outputs as Tensors with their history."""
        plan = self.plan
        saved = list(self.tensors)
        if plan.extras:
            return saved
        assert self.values is not None
        for i, v in zip(plan.kept_outputs, self.values[len(saved) :], strict=True):
            t = self.level.lift(v)
            t.requires_grad = True
            t.node = self
            t.output_nr = i
            saved.append(t)
        return saved

    def release(self) -> None:
        self.values = None
        self.tensors = []
        self.versions = None


def _node_name(primitive: str) -> str:
    words = primitive.replace(".", "_").strip("_").split("_")
    return "".join(w[:1].upper() + w[1:] for w in words) + "Backward"


def _versions(tensors: Sequence[Any]) -> list[int] | None:
    """Versions of saved Tensors, None if none was ever written to."""
    for t in tensors:
        if isinstance(t, Tensor) and t.meta is not None and t.meta.version:
            return [
                t.meta.version if isinstance(t, Tensor) and t.meta is not None else 0
                for t in tensors
            ]
    return None


def _raise_version(node: Node, saved: list[int] | None, now: list[int] | None) -> None:
    raise GradientError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {node.name()} saved its inputs at versions {saved or 'all 0'}, they are now at "
        f"versions {now}. Write to a copy (x.clone()) instead, or write before the operation."
    )


class RecordingLevel(Level):
    """A level whose Tensors may require grad. Subclasses say how it evaluates a call."""

    __slots__ = ()

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        if self.id > state.blocked:
            for a in args:
                if isinstance(a, Tensor) and a.requires_grad and a.level is self:
                    if type(op) is Primitive:
                        return record(self, op, args)
                    return op.record(self, args)
        return self.evaluate(op, args)

    def evaluate(self, op: Any, args: Sequence[Any]) -> Any:
        """Run ``op`` without recording; outputs are Tensors of this level."""
        raise NotImplementedError


class GradLevel(RecordingLevel):
    """A level that adds nothing but wrappers: its inputs require grad, the recorder does the rest."""

    __slots__ = ()

    kind = "grad"

    def __enter__(self) -> GradLevel:
        super().__enter__()
        state.blocked = state.floor = self._saved[1]
        return self

    def evaluate(self, op: Any, args: Sequence[Any]) -> Any:
        out = bind(op, [a.value if isinstance(a, Tensor) and a.level is self else a for a in args])
        if type(out) is tuple:
            return tuple([new_tensor(o, self) for o in out])
        return new_tensor(out, self)

    def detach(self, x: Any) -> Any:
        while isinstance(x, Tensor) and x.level is self:
            x = x.value
        return x

    def variable(self, value: Any) -> Tensor:
        """A fresh input of this level, which requires grad."""
        t = new_tensor(value, self)
        t.requires_grad = True
        return t


class RootLevel(GradLevel):
    """Level 0: values are JAX arrays, or the tracers of a JAX transform around fad."""

    __slots__ = ()

    kind = "eager"

    def evaluate(self, op: Any, args: Sequence[Any]) -> Any:
        out = op.execute([a.value if isinstance(a, Tensor) else a for a in args])
        if type(out) is tuple:
            return tuple([new_tensor(o, self) for o in out])
        return new_tensor(out, self)


ROOT = RootLevel()


def as_tensor(x: Any) -> Tensor:
    """``x`` itself if it is a Tensor, else a Tensor of level 0 around it as a JAX array."""
    if isinstance(x, Tensor):
        return x
    return new_tensor(x if isinstance(x, jax.Array) else jnp.asarray(x), ROOT)


def record(level: Any, op: Primitive, args: Sequence[Any]) -> Any:
    """Evaluate ``op`` at ``level`` and add a node for it."""
    args = [jnp.array(a) if type(a) is np.ndarray else a for a in args]
    mask = tuple([isinstance(a, Tensor) and a.requires_grad and a.level is level for a in args])
    plan = op.plan(mask, args)
    out = level.evaluate(plan.forward, args)
    single = type(out) is not tuple
    outs = (out,) if single else out
    if plan.differentiable is None:  # not analysed ahead: what came out decides
        plan.single = single
        plan.out_avals = tuple([aval_of(o) for o in outs])
        plan.differentiable = tuple([is_inexact(a.dtype) for a in plan.out_avals])
    differentiable = plan.differentiable
    count = len(differentiable)
    if not any(differentiable):
        return out
    edges = [gradient_edge(a) for a, m in zip(args, mask, strict=True) if m]
    tensors = [args[i] for i in plan.kept_inputs]
    values = [level.detach(a) for a in tensors]
    values.extend([level.detach(outs[i]) for i in plan.kept_outputs])
    values.extend([level.detach(o) for o in outs[count:]])
    node = PrimitiveNode(level, edges, plan, tensors, values)
    for i, (t, d) in enumerate(zip(outs[:count], differentiable, strict=True)):
        if d:
            t.requires_grad = True
            t.node = node
            t.output_nr = i
    if plan.extras:
        return outs[0] if plan.single else outs[:count]
    return out
