"""The backward passes of the public API: `backward` and `grad`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, overload

import jax.numpy as jnp

from fad.core.borrowed import as_array
from fad.core.jaxapi import array_type
from fad.core.level import Level, bind, constants, restores_modes, state
from fad.core.tensor import Tensor, bodies, new_tensor
from fad.core.types import MaybeValue, PyTree, Value
from fad.errors import GradientError
from fad.levels.batch import BatchLevel
from fad.tape.accumulate import accumulate
from fad.tape.edges import GradientEdge
from fad.tape.endpoints import (
    as_list,
    edges_of,
    inputs_outside,
    refuse_leaves_outside,
    roots_of,
)
from fad.tape.engine import ONES_LIKE, ZEROS_LIKE, pull_back, run
from fad.tape.graph import accumulator_of
from fad.tape.hooks import retain_grad
from fad.tape.outside_node import is_of_outer_graph
from fad.tape.recorder import level_of
from fad.tape.running import running
from fad.views.aliases import only_value

Tensors = Tensor | GradientEdge | Iterable[Tensor | GradientEdge]
Key = TypeVar("Key")


def backward(
    tensors: PyTree,
    grad_tensors: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: PyTree = None,
) -> None:
    """Accumulate gradients of ``tensors`` into the ``.grad`` of the leaves they depend on.

    Arguments:
        tensors: a Tensor or `GradientEdge`, or an iterable of them, each part of a graph.
        grad_tensors: the cotangent of each, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the gradients can be differentiated.
        inputs: the Tensors (or edges; an iterable or a dict of them) to accumulate into;
            default all leaves. One that is not a leaf is made to retain its gradient (`Tensor.retain_grad`).

    Raises:
        GradientError: an output does not require grad, is not scalar and has no cotangent, or the
            graph was freed by an earlier pass; or it is called inside of a transform, for a leaf outside of
            it, which would get nothing.

    Source: ``torch.autograd.backward``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> fad.autograd.backward(x * x)
    >>> float(x.grad)
    6.0
    """
    create_graph = create_graph or running.records is True
    keep = create_graph if retain_graph is None else retain_graph
    tensors = as_list(tensors)
    cts = None if grad_tensors is None else as_list(grad_tensors)
    inputs = None if inputs is None else as_list(inputs)
    refuse_leaves_outside(tensors, cts, inputs)
    if not keep and not create_graph and inputs is None:
        found = _of_trace(tensors, cts)
        if found is not None:
            for t, g in zip(*found, strict=True):
                if g is not None:
                    accumulate(accumulator_of(t), g)
            return
    roots = roots_of(tensors, cts, create_graph, "backward()")
    if inputs is None:
        run(roots, None, create_graph=create_graph, keep_graph=keep)
        return
    if not inputs:
        raise GradientError(
            "backward(): `inputs` argument to `backward()` cannot be empty: pass at least one Tensor, "
            "or leave it out for all leaves"
        )
    targets = [node for node, _ in edges_of(inputs, "backward()")]
    for t in inputs:
        if isinstance(t, Tensor):
            retain_grad(t)
    run(roots, None, targets=targets, create_graph=create_graph, keep_graph=keep)


def _of_trace(
    tensors: Sequence[Value],
    cotangents: Sequence[MaybeValue] | None,
    inputs: Sequence[Value] | None = None,
) -> tuple[Sequence[Tensor], Sequence[MaybeValue]] | None:
    """Leaves of a deferred step, all or the ``inputs``, and their gradients, if its trace gives them.

    None if the step has to be recorded first, or if an input is no leaf of it.
    """
    trace = state.trace
    if trace is None or not tensors:
        return None
    cts = [_array_of(c) for c in cotangents or ()]
    if cotangents is not None and len(cts) != len(tensors):
        return None  # an error
    for k, t in enumerate(tensors):
        if type(t) is not Tensor or not t._requires_grad:
            return None
        if cotangents is None:
            fits = t.shape == () and jnp.issubdtype(t.dtype, jnp.floating)
        else:
            c = cts[k]
            fits = c is not None and (c.shape, c.dtype) == (t.shape, t.dtype)
        if not fits:
            return None
    given = [c for c in cts if c is not None]
    return trace.finish(list(tensors), _of_leaves, leaves=inputs, cotangents=given, values=True)


def _array_of(c: MaybeValue) -> MaybeValue:
    """The array of a cotangent; None where it has a history or a tangent, or is of no array."""
    value: MaybeValue = only_value(c) if type(c) is Tensor else c
    return value if type(value) is array_type else None


def _of_leaves(
    level: Level,
    outs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    values: Sequence[Value],
    *cotangents: Value,
) -> list[MaybeValue]:
    """Gradients of outputs with respect to the leaves of a step; None where nothing arrives."""
    seeds = cotangents or [bind(ONES_LIKE, (o.level.detach(o),)) for o in outs]
    return pull_back(outs, seeds, leaves)


@overload
def grad(  # type: ignore[overload-overlap]
    outputs: Tensors,
    inputs: Mapping[Key, Tensor | GradientEdge],
    grad_outputs: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> dict[Key, Tensor]: ...
@overload
def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: Literal[False] | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]: ...
@overload
def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    *,
    allow_unused: bool,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]: ...
def grad(
    outputs: Any,
    inputs: PyTree,
    grad_outputs: PyTree = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Gradients of ``outputs`` with respect to ``inputs``, returned rather than accumulated.

    Arguments:
        outputs: a Tensor or `GradientEdge`, or an iterable of them.
        inputs: a Tensor or `GradientEdge`, an iterable (``model.parameters()``), or a dict of them; leaves
            or not.
        grad_outputs: the cotangent of each output, of its shape; None is 1 for a scalar.
        retain_graph: keep saved values for another pass; default ``create_graph``.
        create_graph: record the pass, so that the results can be differentiated again.
        only_inputs: ignored, as in PyTorch; False warns.
        allow_unused: give None for an input that the outputs do not depend on, rather than raise;
            default is the value of ``materialize_grads``.
        is_grads_batched: ``grad_outputs`` have a leading batch dimension, and so have the results.
        materialize_grads: give zeros rather than None for unused inputs; with ``create_graph``, zeros that
            require grad.

    Returns:
        A tuple with one Tensor (or None) for each input, of its shape and dtype; a dict for a dict.

    Raises:
        GradientError: as `backward`; or an input was unused and that was not allowed.

    Source: ``torch.autograd.grad``.

    >>> import fad
    >>> x = fad.tensor(3.0, requires_grad=True)
    >>> (g,) = fad.autograd.grad(x * x * x, x, create_graph=True)
    >>> float(g), float(fad.autograd.grad(g, x)[0])
    (27.0, 18.0)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "autograd.grad(): Expected allow_unused to be True or not passed when "
            "materialize_grads=True, but got: allow_unused=False."
        )
    if not only_inputs:
        warnings.warn(
            "autograd.grad(): only_inputs is ignored: to accumulate gradients of other leaves, call "
            "fad.autograd.backward",
            FutureWarning,
            stacklevel=2,
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    create_graph = create_graph or running.records is True
    keep = create_graph if retain_graph is None else retain_graph
    options = _Options(keep, create_graph, allow_unused, materialize_grads)
    names = list(inputs) if isinstance(inputs, dict) else None
    outputs, inputs = as_list(outputs), as_list(inputs)
    if not inputs:
        raise GradientError(
            "autograd.grad(): `inputs` argument to `grad()` cannot be empty: pass what to differentiate with "
            "respect to"
        )
    cts = None if grad_outputs is None else as_list(grad_outputs)
    if is_grads_batched:
        if cts is None:
            raise GradientError(
                "autograd.grad(): is_grads_batched=True needs grad_outputs: a cotangent for each output, "
                "with a leading batch dimension"
            )
        result = _batched_grad(outputs, inputs, cts, options)
    else:
        result = tuple(_grad(outputs, inputs, cts, options))
    return result if names is None else dict(zip(names, result, strict=True))


class _Options(NamedTuple):
    """Options of `grad`, once all are decided."""

    keep_graph: bool
    create_graph: bool
    allow_unused: bool
    zeros_for_unused: bool

    def run(self, roots: PyTree, edges: PyTree, keep_graph: bool = False) -> list[MaybeValue]:
        """A pass from these roots: the gradients that arrive at the edges."""
        keep = keep_graph or self.keep_graph
        return run(roots, edges, create_graph=self.create_graph, keep_graph=keep)


def _grad(
    outputs: Sequence[Tensor],
    inputs: Sequence[Value],
    cotangents: Sequence[MaybeValue] | None,
    options: _Options,
) -> list[MaybeValue]:
    """`grad` of lists."""
    if bodies.traced and state.body is not None and all(map(is_of_outer_graph, outputs)):
        with constants():  # the pass is over the graph outside
            return _grad(outputs, inputs, cotangents, options)
    found = None
    if not options.keep_graph and not options.create_graph:
        found = _of_trace(outputs, cotangents, inputs)
    if found is not None:
        grads = list(found[1])
    else:
        roots = roots_of(outputs, cotangents, options.create_graph, "autograd.grad()")
        edges = edges_of(inputs, "autograd.grad()")
        outside = inputs_outside(outputs, inputs)
        if outside:
            grads = _through_captures(roots, inputs, outside, options)
        else:
            grads = options.run(roots, edges)
    pairs = zip(inputs, grads, strict=True)
    return [_finish(k, x, g, options) for k, (x, g) in enumerate(pairs)]


def _through_captures(
    roots: Sequence[PyTree], inputs: Sequence[Value], outside: Sequence[int], options: _Options
) -> list[MaybeValue]:
    """Gradients with respect to inputs some of which are ``outside`` of the level of the roots.

    First those of what the level captured; from there on through the graph outside, which is kept.
    """
    level = level_of(roots[0][0][0])
    pairs = [(t, s) for t, s in zip(*level.captured(), strict=True) if s.requires_grad]
    own = [x for k, x in enumerate(inputs) if k not in outside]
    ends = edges_of([*[s for _, s in pairs], *own], "autograd.grad()")
    grads = options.run(roots, ends)
    found = [(t, g) for (t, _), g in zip(pairs, grads) if g is not None]
    if not all([t.requires_grad for t, _ in found]):
        raise GradientError(
            f"autograd.grad(): input {outside[0]} is from outside of {level!r}, which runs again after the "
            "transform outside of it has finished: pass it as an argument of the function"
        )
    outer = edges_of([inputs[k] for k in outside], "autograd.grad()")
    further = [(edges_of([t], "autograd.grad()")[0], g) for t, g in found]
    beyond = iter(options.run(further, outer, keep_graph=True))
    rest = iter(grads[len(pairs) :])
    return [next(beyond) if k in outside else next(rest) for k in range(len(inputs))]


def _level(x: Tensor | GradientEdge) -> Level:
    """The level of a Tensor or of a gradient edge."""
    return x.level if isinstance(x, Tensor) else level_of(x.node)


def _finish(k: int, x: PyTree, g: PyTree, options: _Options) -> PyTree:
    """What `grad` returns for input ``k``, which got the value ``g`` of its level, None if nothing."""
    level = _level(x)
    if g is not None:
        return level.lift(g)
    if options.zeros_for_unused:
        if isinstance(x, Tensor):
            zeros = level.lift(bind(ZEROS_LIKE, (level.detach(x),)))
        else:
            m = x.node.input_metadata(x.output_nr)
            zeros = level.lift(jnp.zeros(m.shape, m.dtype))
        return zeros.requires_grad_() if options.create_graph else zeros
    if not options.allow_unused:
        raise GradientError(
            f"autograd.grad(): The differentiated Tensor at index {k} appears to not have been used "
            "in the graph. Set allow_unused=True if this is the desired behavior."
        )
    return None


@restores_modes
def _batched_grad(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Value],
    options: _Options,
) -> tuple[MaybeValue, ...]:
    """`grad` for cotangents with a leading batch dimension, by a vmap over the backward pass."""
    cotangents = [c if c is None or isinstance(c, Tensor) else as_array(c) for c in cotangents]
    sizes = {tuple(c.shape[:1]) for c in cotangents if c is not None}
    if len(sizes) != 1 or sizes == {()}:
        raise GradientError(
            "autograd.grad(): with is_grads_batched=True each of grad_outputs needs the same "
            f"leading batch dimension, got leading sizes {sorted(sizes)}"
        )
    for k, (y, c) in enumerate(zip(outputs, cotangents)):
        shape = () if c is None else tuple(c.shape[1:])
        if c is not None and isinstance(y, Tensor) and shape != tuple(y.shape):
            raise GradientError(
                "autograd.grad(): If `is_grads_batched=True`, we interpret the first dimension of each "
                "grad_output as the batch dimension. The sizes of the remaining dimensions are "
                "expected to match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{k}] has a shape of {shape} and output[{k}] has a shape of "
                f"{tuple(y.shape)}"
            )
    with BatchLevel(sizes.pop()[0], randomness="same") as level:
        cts = [None if c is None else new_tensor(c, level, 0) for c in cotangents]
        pairs = zip(inputs, _grad(outputs, inputs, cts, options), strict=True)
        return tuple([g if g is None else _level(x).lift(level.unwrap(g, 0)) for x, g in pairs])
