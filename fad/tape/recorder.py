"""The one recorder: adds a Node where an argument of the current level requires grad.

The eager tape is this recorder at level 0 (`ROOT`); ``fad.grad`` is it at another level (`GradLevel`); a
dual Tensor (`JvpLevel`) or a batched one that requires grad is recorded at its level in the same way.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Self

import jax
import numpy as np

from fad.core import trees
from fad.core.avals import SCALARS, VALUES, aval_of
from fad.core.borrowed import as_array, copied
from fad.core.dtypes import is_inexact
from fad.core.jaxapi import x64_enabled
from fad.core.level import (
    Level,
    RecorderLevel,
    bind,
    bodies,
    captured_by_jit,
    map_tensors,
    new_argument,
    outlived,
    state,
)
from fad.core.primitive import Primitive, VjpPlan
from fad.core.replay_protocol import Deferred, seam
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import MaybeValue, Operand, Operation, Outputs, PyTree, Value
from fad.errors import GradientError, describe
from fad.tape.anomaly import mode as anomaly
from fad.tape.anomaly import remember, watched_call
from fad.tape.grad_mode import mark_inference
from fad.tape.graph import (
    Edge,
    GradientEdge,
    InputMetadata,
    Node,
    alias,
    current_edge,
    gradient_edge,
    running,
)
from fad.tape.saved import (
    SavingNode,
    for_edges,
    keep_bases,
    node_name,
    raise_released,
    versions_of,
)


class PrimitiveNode(SavingNode):
    """A recorded call of a Primitive."""

    __slots__ = ("plan",)

    _is_derived = True
    _kind = "operation"
    is_traceable = True

    def __init__(
        self,
        level: Level,
        edges: Sequence[tuple[Node, int] | None],
        plan: VjpPlan,
        tensors: list[Any],
        values: list[Any],
        has_views: bool = False,
    ) -> None:
        self._start(level, edges)
        self.plan = plan
        # What `_keep` does, without what most calls have none of.
        self.tensors = tensors
        self.values = values
        self.packed = has_views
        self.written = None
        self.versions = None
        for t in tensors:
            if isinstance(t, Tensor) and t.meta is not None and t.meta.storage.version:
                self.versions = versions_of(tensors)
                break
        if state.saved_hooks:
            self._pack()

    @property
    def kept_outputs(self) -> Sequence[int]:  # type: ignore[override]
        return self.plan.kept_outputs

    def name(self) -> str:
        return node_name(self.plan.primitive.name)

    @property
    def num_inputs(self) -> int:
        return 1 if self.plan.out_avals is None else len(self.plan.out_avals)

    def metadata_of_inputs(self) -> list[InputMetadata]:
        avals = self.plan.out_avals or ()
        where = self._own_sharding()
        return [InputMetadata(a.shape, a.dtype, where) for a in avals]

    def run(
        self, cotangents: Sequence[Any], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[MaybeValue]:
        plan = self.plan
        if True not in need:
            if self.values is None:
                raise_released(self)
            return [None] * len(need)
        for c in cotangents:
            if c is not None:
                break
        else:
            return [None] * len(need)
        # Another thread may release the node now: it takes `values` away first.
        tensors, saved = self.tensors, self.values
        plain = saved is not None and not (create_graph or self.packed)
        for t in tensors:
            if isinstance(t, Tensor) and t.meta is not None and t.meta.storage.version:
                plain = False  # it may have been changed in place
                break
        if not plain or self.written is not None:
            saved = self.opened(create_graph)
        assert saved is not None
        if plan.single:
            present = None
            cts = cotangents
        else:
            present = tuple([c is not None for c in cotangents])
            cts = [c for c in cotangents if c is not None]
            if plan.rows is not None:
                need = plan.sends(cotangents, need)
        wanted = tuple([n for n, m in zip(need, plan.mask, strict=True) if m])
        if create_graph and plan.extras:
            # Residuals have no history of their own: start again from the inputs.
            inputs = saved[: len(plan.mask)]
            grads = bind(plan.primitive.full_vjp(plan.mask, present, wanted), [*inputs, *cts])
        else:
            grads = bind(plan.vjp(present, wanted), [*saved, *cts])
        return grads if plan.rows is None else for_edges(grads, need)

    def release_variables(self) -> None:
        if self.values:
            self.values = None
            self.tensors = []
            self.versions = None

    def __getattr__(self, name: str) -> Any:
        """``_saved_0``, ``_saved_self``, ``_saved_other``: inputs; ``_saved_result``: the output."""
        plan = self.plan
        places = {f"{i}": k for k, i in enumerate(plan.kept_inputs)}
        for other, position in (("self", "0"), ("other", "1")):
            if position in places:
                places[other] = places[position]
        for k, i in enumerate(plan.kept_outputs):
            places["result" if plan.single else f"result{i}"] = len(plan.kept_inputs) + k
        return self.attribute(name, places)


class RecordingLevel(RecorderLevel):
    """A level whose Tensors may require grad. Subclasses say how it evaluates a call.

    >>> import fad
    >>> class DoubleLevel(fad.extend.RecordingLevel):
    ...     def evaluate(self, op, args):
    ...         values, _, _ = self.unwrapped(args)
    ...         return self.lift(fad.extend.bind(op, values) * 2.0)
    >>> with DoubleLevel() as level:
    ...     x = level.lift(fad.tensor(3.0)).requires_grad_()
    ...     y = -x
    >>> y.value, y.grad_fn.name()
    (Tensor(-6., dtype=float32), 'NegativeBackward')
    """

    __slots__ = ("trace",)

    def __init__(self) -> None:
        super().__init__()
        self.trace: Deferred | None = None  # what is deferred, see `fad.core.replay_protocol`

    def process(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        trace = self.trace
        if trace is not None:
            out = trace.append(op, args)
            if out is not None:
                return out
        if op.expands:
            return op.expand(args)
        if anomaly.watch and running.watched is not True and running.watched is not op:
            return watched_call(self, op, args, not op.runs_python)
        body = state.body if bodies.traced and self is ROOT else None
        if body is not None and any(map(captured_by_jit, args)):
            return body.process(op, args)
        if self.id > state.watermark:
            for a in args:
                if isinstance(a, Tensor) and a._requires_grad and a._level is self:
                    return op.record(self, args)
        elif state.inference is not None:
            return mark_inference(self.evaluate(op, args))
        return self.evaluate(op, args)

    def __exit__(self, *exc: object) -> None:
        try:
            trace = self.trace
            if trace is not None:
                trace.close()
        finally:
            super().__exit__(*exc)

    def unwrapped(self, args: Sequence[Any]) -> tuple[list[Operand], list[Any], bool]:
        """The arguments one level down, what this level has beside each (`Tensor.aux`), and whether there
        is any.
        """
        values: list[Operand] = []
        beside: list[Any] = []
        for a in args:
            is_here = isinstance(a, Tensor) and a._level is self
            values.append(a._value if is_here else a)
            beside.append(a._aux if is_here else None)
        return values, beside, any([b is not None for b in beside])

    def value_and_aux(self, x: Operand) -> tuple[Any, Any]:
        """`unwrapped`, of one value that may have outlived its level."""
        x = outlived(x)
        return (x.value, x.aux) if isinstance(x, Tensor) and x.level is self else (x, None)

    def detach(self, x: Any) -> Any:
        if isinstance(x, Tensor) and x.level is self and x.requires_grad:
            return new_tensor(x.value, self, x.aux)
        return x

    def outlive(self, t: Tensor) -> Any:
        return as_tensor(t.value)

    def seed(self, x: Operand) -> Tensor:
        """The cotangent that a recorded backward pass starts with, as a Tensor of this level."""
        return self.lift(x)

    def stands_for(self, leaf: Tensor, arguments: bool) -> Operand | None:
        """The capture or, with ``arguments``, the argument that a leaf stands for; None if there is none."""
        return None

    def captured(self) -> tuple[Sequence[Tensor], Sequence[Tensor]] | None:
        """Tensors from outside that were used, and what stood for them here; None where that is unknown."""
        return None


class GradLevel(RecordingLevel):
    """A level that adds nothing but wrappers: its inputs require grad, the recorder does the rest."""

    __slots__ = ()

    kind = "grad"
    settings = ()
    wraps = True

    def __enter__(self) -> Self:
        super().__enter__()
        state.watermark = state.base_watermark = self._saved[1]
        return self

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        out = bind(
            op, [a._value if isinstance(a, Tensor) and a._level is self else a for a in args]
        )
        if type(out) is tuple:
            return tuple([new_tensor(o, self) for o in out])
        return new_tensor(out, self)

    def detach(self, x: Any) -> Any:
        while isinstance(x, Tensor):
            if x.meta is not None:  # it may be a view, whose value has to be made again
                if x.level is not self:
                    break
                x = x.value
            elif x._level is self:
                x = x._value
            else:
                break
        return x

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        return (t._value,), t._requires_grad

    def unflatten(self, rest: Hashable, parts: Iterator[Operand]) -> Tensor:
        return self.variable(next(parts)) if rest else new_tensor(next(parts), self)

    def variable(self, value: Operand) -> Tensor:
        """A fresh input of this level, which requires grad."""
        if isinstance(value, Tensor):
            self.arguments.append(value)
        t = new_tensor(value, self)
        t._requires_grad = True
        return t


class JvpLevel(RecordingLevel):
    """Forward mode: each Tensor has a primal (``value``) and a tangent (``aux``; None is zero)."""

    __slots__ = ()

    kind = "jvp"
    settings = ()

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        primals, tangents, has_tangent = self.unwrapped(args)
        if not has_tangent or self.is_off():
            return map_tensors(lambda o: new_tensor(o, self), bind(op, primals))
        out, out_t = op.jvp(primals, tangents)
        if type(out) is tuple:
            return tuple([new_tensor(o, self, t) for o, t in zip(out, out_t, strict=True)])
        return new_tensor(out, self, out_t)

    def is_off(self) -> bool:
        """Whether this thread has switched off the tangents of this level."""
        return self.id <= state.tangents_off

    def tangent(self, t: Tensor) -> MaybeValue:
        return None if self.is_off() else t.aux

    def flatten(self, t: Tensor) -> tuple[tuple[Value, ...], Hashable]:
        return ((t._value,), False) if t._aux is None else ((t._value, t._aux), True)

    def unflatten(self, rest: Hashable, parts: Iterator[Operand]) -> Tensor:
        return new_tensor(next(parts), self, next(parts) if rest else None)

    def dual(self, primal: Operand, tangent: MaybeValue) -> Tensor:
        """An argument, a Tensor of this level."""
        return new_argument(primal, self, tangent)

    def unpack(self, x: Operand) -> tuple[Any, Any]:
        """Primal and tangent of ``x`` at this level; the tangent is None where it is zero."""
        value, tangent = self.value_and_aux(x)
        return value, None if self.is_off() else tangent


class RootLevel(GradLevel):
    """Level 0: values are JAX arrays, or the tracers of a JAX transform around fad."""

    __slots__ = ()

    kind = "eager"
    on_tape = True

    @property
    def tape_id(self) -> int:  # type: ignore[override]
        return self.id

    @property
    def trace(self) -> Deferred | None:
        """That of this thread."""
        trace: Deferred | None = state.__dict__.get("trace")
        return trace

    @trace.setter
    def trace(self, trace: Deferred | None) -> None:
        state.trace = trace

    def process(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        # Of untracked arguments, with no mode on: the most frequent case of eager code.
        if not anomaly.watch and not bodies.traced:
            values = []
            for a in args:
                if type(a) is Tensor:
                    if a._requires_grad or a._lazy is not None:
                        return super().process(op, args)
                    a = a._value
                if type(a) not in VALUES and isinstance(a, Tensor):
                    return super().process(op, args)
                values.append(a)
            if state.__dict__.get("inference") is None:
                out = op.execute(values)
                if type(out) is tuple:
                    return tuple([new_tensor(o, self) for o in out])
                return new_tensor(out, self)
        return super().process(op, args)


ROOT = RootLevel()


def as_tensor(x: Any) -> Tensor:
    """``x`` itself if it is a Tensor, else a Tensor of level 0 around it as a JAX array."""
    if isinstance(x, Tensor):
        return x
    return new_tensor(x if isinstance(x, jax.Array) else as_array(x), ROOT)


def level_of(node: Node) -> Any:
    """The level of a node; that of the tape for one built by hand that leads nowhere."""
    return node.level or ROOT


def detached(level: Level, out: Outputs) -> Outputs:
    """The value of an output without a reference to the node that will be set on it."""
    value = level.detach(out)
    return alias(value) if value is out else value


# NOTE [the hot path]
#
#     y = x
#     for _ in range(1000):
#         y = y * x + 1.0  # XLA takes a microsecond for each: all else is what Python does here
#
# Eager code spends its time here. One pass over the arguments gives the mask, the avals that name the
# plan, and the values one level down; what is kept is picked out of those by position. A level that
# adds nothing but wrappers (``wraps``) is evaluated in place. The hot path does not flatten
# pytrees, does not trace, and checks nothing twice; features that are off (hooks, anomaly mode,
# versions) cost one look at an attribute each. Its lists are made by loops: in Python 3.11 a
# comprehension is a call of a function.


def record(op: Primitive, level: RecorderLevel, args: Sequence[Any]) -> Outputs:
    """Evaluate ``op`` at ``level`` and add a node for it: `Primitive.record`. See NOTE [the hot path]."""
    mask: list[bool] = []
    key: list[object] = []
    lower: list[Any] = []
    wraps = level.wraps
    scalars = deep = False  # deep: there are Tensors one level down, for which `bind` is needed
    for a in args:
        if isinstance(a, Tensor):
            its_level = a._level
            if its_level is level:
                value = a._value
                key.append(value.aval if wraps else level.aval(a))
                mask.append(a._requires_grad)
                lower.append(value)
                deep = deep or isinstance(value, Tensor)
                continue
            key.append(its_level.aval(a))
            # Of the eager tape and untracked: its value will do, and spares `bind`.
            if its_level is ROOT and not a._requires_grad and not captured_by_jit(a):
                a = a._value
            else:
                deep = True
        elif type(a) in SCALARS:
            key.append(type(a))
            scalars = True
        elif type(a) is np.ndarray:  # it may be written to later, when what is saved of it is read
            return record(op, level, [copied(x) if type(x) is np.ndarray else x for x in args])
        else:
            key.append(aval_of(a))
        mask.append(False)
        lower.append(a)
    if scalars:  # the dtype of a Python number depends on that
        key.insert(0, x64_enabled())
    plan = op.plan_of(tuple(mask), tuple(key), args)
    if plan.as_called is not None and level.as_called:
        plan = plan.as_called
    if wraps:
        if level is ROOT and level.trace is None and state.replaying:
            # Now that it is known to be recorded, and before it has run: a trace may begin with it.
            out = seam.replay.open_step(op, args, plan)
            if out is not None:
                return out
        out = bind(plan.forward, lower) if deep else plan.forward.execute(lower)
        if plan.simple:  # one differentiable output and no extras: what `_with_node` does, in place
            result = new_tensor(out, level)
            values: list[Any] = []
            tensors: list[Operand] = []
            for i in plan.kept_inputs:
                values.append(lower[i])
                tensors.append(args[i])
            # Values of inputs come first: what follows has no Tensor.
            has_views = level is ROOT and keep_bases(tensors, values)
            if plan.kept_outputs:
                values.append(out)  # not ``result``, which refers to the node
            edges: list[tuple[Node, int] | None] = []
            for a, m in zip(args, plan.routed):
                edges.append(current_edge(a) if m else None)
            node = PrimitiveNode(level, edges, plan, tensors, values, has_views)
            if anomaly.remembers:
                remember(node)
            result._requires_grad = True
            result._node = node
            return result
        out = map_tensors(lambda o: new_tensor(o, level), out)
    else:
        out = level.evaluate(plan.forward, args)
    return _with_node(level, plan, args, out)


Primitive.record = record  # type: ignore[method-assign, assignment]  # the core knows no nodes


def _with_node(level: RecorderLevel, plan: VjpPlan, args: Sequence[Any], out: Outputs) -> Outputs:
    """The outputs of a recorded call, with their node: the general case of `record`."""
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
    edges = [gradient_edge(a) if m else None for a, m in zip(args, plan.routed, strict=True)]
    tensors = [args[i] for i in plan.kept_inputs]
    for t, d in zip(outs, differentiable, strict=False):
        t._requires_grad = d
    values = [level.detach(a) for a in tensors]
    has_views = level is ROOT and keep_bases(tensors, values)
    values.extend([detached(level, outs[i]) for i in plan.kept_outputs])
    values.extend([level.detach(o) for o in outs[count:]])
    node = PrimitiveNode(level, edges, plan, tensors, values, has_views)
    if anomaly.remembers:
        remember(node)
    for i, (t, d) in enumerate(zip(outs, differentiable, strict=False)):
        if d:
            t._node = node
            t._output_nr = i
    if plan.extras:
        return outs[0] if plan.single else outs[:count]
    return out


# Graphs that are built by hand: the edges of Tensors, and nodes between Tensors.


def create_gradient_edge(t: Tensor) -> Edge:
    """The edge along which the gradient of ``t`` flows: into its ``grad_fn``, or its accumulator.

    An invalid edge for a Tensor that does not require grad.

    Source: ``torch::autograd::impl::gradient_edge`` in C++.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> fad.autograd.create_gradient_edge(x * x).node
    <MultiplyBackward>
    """
    _check_tensor("create_gradient_edge", t)
    return Edge(*gradient_edge(t)) if t.requires_grad else Edge(None, 0)


def _check_tensor(who: str, t: object) -> None:
    if not isinstance(t, Tensor):
        raise TypeError(f"{who} expects a Tensor, got {describe(t)}")


def get_gradient_edge(t: Tensor) -> GradientEdge:
    """The place of ``t`` in the graph, as a root or input for `backward` and `grad`.

    Raises:
        GradientError: the Tensor does not require grad.

    Source: ``torch.autograd.graph.get_gradient_edge``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> edge = fad.autograd.get_gradient_edge(x * x)
    >>> fad.autograd.grad(edge, x)[0].item()
    6.0
    """
    _check_tensor("get_gradient_edge", t)
    if not t.requires_grad:
        raise GradientError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients: write "
            "x.requires_grad_() before it is used"
        )
    return GradientEdge(*gradient_edge(t))


def collect_next_edges(*tensors: PyTree) -> list[Edge]:
    """Edges for a node that computes from ``tensors``; all invalid where nothing is recorded.

    Tensors may stand in lists and other containers; anything but a Tensor has an invalid edge.

    Source: ``torch::autograd::collect_next_edges`` in C++.

    >>> import fad
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> [edge.node for edge in fad.autograd.collect_next_edges(x, fad.tensor(1.0))]
    [<AccumulateGrad>, None]
    """
    leaves = trees.flatten_with_none(tensors)[0]
    return [create_gradient_edge(t) if _is_recorded(t) else Edge() for t in leaves]


def set_history(outputs: PyTree, node: Node) -> PyTree:
    """Make ``node`` the ``grad_fn`` of ``outputs``, a Tensor or a sequence of one level; returns them.

    Source: ``torch::autograd::set_history`` in C++.

    >>> import fad
    >>> from fad import autograd
    >>> x = fad.tensor(2.0, requires_grad=True)
    >>> node = autograd.Identity([autograd.create_gradient_edge(x)])
    >>> autograd.set_history(fad.tensor(2.0), node)
    Tensor(2., dtype=float32, grad_fn=<Identity>)
    """
    if anomaly.remembers:
        remember(node)
    for t in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        nr = node.add_input_metadata(t)
        t._requires_grad, t._node, t._output_nr = True, node, nr
        node.level = t.level
    return outputs


def _is_recorded(t: object) -> bool:
    """Whether an operation on ``t`` is recorded at its level."""
    return isinstance(t, Tensor) and t.requires_grad and t.level.id > state.watermark
