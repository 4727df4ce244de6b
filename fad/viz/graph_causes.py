"""``fad.autograd.why``: what a graph that is there tells of a gradient that is None, zero or NaN."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from fad import autograd, errors, extend
from fad.viz.findings import (
    SMALL,
    Box,
    Cause,
    Finding,
    Why,
    at_place,
    born_backwards,
    cancelled,
    first_place,
    flat_cause,
    instead_of,
    line_of,
    listed,
    name_of,
    number_text,
    operands_text,
    saved_operands,
    unique,
    zero_text,
)
from fad.viz.pullbacks import (
    Node,
    Pass,
    Value,
    any_nan,
    any_nonzero,
    any_not_finite,
    edges_of,
    is_inexact,
    is_leaf,
    item,
    not_finite,
    numbers,
)


def why_of(loss: Value, inputs: Value) -> Why:
    """Why the gradient of a Tensor that has been computed is None, zero or NaN.

    The graph has the nodes, not the lines, and nothing of what is cut off it. Lines are known if the Tensor
    was computed under `fad.autograd.detect_anomaly` (``check_nan=False`` where a NaN is looked for); where
    they matter more than the Tensor, write the computation as a function, for `fad.why`. Nothing is freed, no
    hook is called and no ``.grad`` changes.

    Arguments:
        loss: a Tensor of the eager tape, before ``backward`` or with ``retain_graph=True``.
        inputs: a Tensor, or a pytree of Tensors.

    Returns:
        A `fad.viz.Why`.

    Raises:
        ArgumentError: ``loss``, or a leaf of ``inputs``, is not a Tensor, or is traced and has no value.
        GradientError: a backward pass has freed the graph.

    Source: it answers what PyTorch users ask of ``.grad is None``.

    >>> import fad, fad.numpy as fnp
    >>> x = fad.tensor([-1.0, -2.0], requires_grad=True)
    >>> print(fad.autograd.why(fad.nn.relu(x).sum(), x))
    loss: float32[], 2 nodes
    x: the gradient is zero
      relu does not pass derivatives on where its operand is not above 0 ...
    """
    if not isinstance(loss, extend.Tensor):
        raise errors.ArgumentError(
            f"autograd.why: loss must be a Tensor, got {errors.describe(loss)}. For a function write "
            "fad.why(f)(x)"
        )
    paths = jax.tree_util.tree_flatten_with_path(
        inputs, is_leaf=lambda x: isinstance(x, extend.Tensor)
    )[0]
    named = [(f"x{jax.tree_util.keystr(path)}", x) for path, x in paths]
    for name, x in named:
        if not isinstance(x, extend.Tensor):
            raise errors.ArgumentError(
                f"autograd.why: {name} must be a Tensor, got {errors.describe(x)}"
            )
    if numbers(loss) is None:
        raise errors.ArgumentError(
            f"autograd.why: loss has no value here, as it is traced or batched ({errors.describe(loss)}): "
            "use fad.why(f)(x) outside of the transform, or call what calls this once without fad.jit"
        )
    wanted = f"{loss.dtype}{list(loss.shape)}"
    if not loss.requires_grad:
        text = (
            "loss has no graph (requires_grad is False): everything that it is computed from was detached, "
            "was computed under no_grad, or has no requires_grad"
        )
        cause = Cause("leaf", text)
        result = [Finding(n, False, "None", "None: loss has no graph", (cause,)) for n, _ in named]
        return Why(f"loss: {wanted}, no graph", result, _FOR_LINES)
    edge = autograd.graph.get_gradient_edge(loss)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, loss.shape) if loss.shape else 1.0
    gradient = extend.enter(jax.numpy.asarray(weights, loss.dtype))
    try:
        passed = Pass([(edge.node, edge.output_nr, gradient)], [])
    except errors.GradientError as error:
        raise errors.GradientError(
            "autograd.why: the graph of loss has been freed by a backward pass: call it before "
            "loss.backward(), or write loss.backward(retain_graph=True)"
        ) from error
    findings = [_graph_finding(passed, loss, name, x) for name, x in named]
    count = sum(not is_leaf(node) for node in passed.visits)
    lines_known = all(c.line for f in findings for c in f.causes)
    title = f"loss: {wanted}, {count} node{'s' * (count != 1)}"
    title += ", not finite" if any_not_finite(loss) else ""
    return Why(
        title, findings, "" if lines_known else _FOR_LINES, _graph_boxes(passed, named, findings)
    )


_FOR_LINES = (
    "For lines: fad.why(f)(x) on the computation as a function, or compute loss under "
    "fad.autograd.detect_anomaly(False)"
)


def _graph_finding(passed: Pass, loss: Value, name: str, x: Value) -> Finding:
    if not x.requires_grad:
        floating = "" if is_inexact(x) else f", and {x.dtype} can have none"
        text = (
            f"requires_grad is False{floating}: write fad.tensor(..., requires_grad=True) before "
            "it is used"
        )
        return Finding(
            name, False, "None", "None: nothing is recorded of it", (Cause("leaf", text),)
        )
    edge = autograd.graph.get_gradient_edge(x)
    target = (edge.node, edge.output_nr)
    if target not in passed.arrivals:
        leaves = [
            f"{m.dtype}{list(m.shape)}"
            for m in [n.variable for n in passed.visits if isinstance(n, autograd.AccumulateGrad)]
        ]
        text = (
            f"the graph of loss ends at {len(leaves)} other leaves ({listed(leaves)}): on the way from it "
            "there is a detach, no_grad, cast to integers, comparison, argmax, .item() or .numpy(); or loss "
            "was computed from another Tensor, a copy of it or its value before a write in place"
        )
        return Finding(
            name, False, "None", "None: no graph leads to it", (Cause("not in the graph", text),)
        )
    gradient = passed.total(*target)
    bad = not_finite(gradient)
    if bad is not None and bad.any():
        derivative = "NaN" if any_nan(gradient) else "infinite"
        born = passed.birth(target)
        causes = [*_forward_of(passed, loss), *([born_backwards(None, *born)] if born else [])]
        return Finding(name, True, derivative, f"the gradient is {derivative}", tuple(causes))
    if not any_nonzero(gradient):
        causes = [
            flat_cause(
                v.node,
                None,
                item(v.outgoing, k),
                numbers(next(g for g in v.incoming if any_nonzero(g))),
            )
            for v, k in passed.deaths(target)
        ]
        causes = causes or [cancelled(key, passed, line_of) for key in passed.cancellations(target)]
        return Finding(name, True, *zero_text(gradient, "gradient"), tuple(unique(causes)))
    return Finding(name, True, "nonzero", "a plain number, not zero")


def _forward_of(passed: Pass, loss: Value) -> list[Cause]:
    """The first node whose output is NaN or infinite, and no operand, by what nodes have saved."""
    if not any_not_finite(loss):
        return []
    outputs: dict[Node, Value] = {autograd.graph.get_gradient_edge(loss).node: loss}
    for node in passed.visits:
        for (target, nr), value in zip(edges_of(node), saved_operands(node), strict=False):
            if target is not None and not nr and value is not None:
                outputs.setdefault(target, value)
        outputs.setdefault(node, getattr(node, "_saved_result", None))
    bad = [node for node in reversed(passed.visits) if any_not_finite(outputs.get(node))]
    if not bad:
        return []
    put_in: dict[Node, None] = {}
    for node in bad:
        was_put_in = any(target in put_in for target, _ in edges_of(node))
        if any_nan(outputs[node]) or not (was_put_in or _may_put_in(node)):
            break
        put_in[node] = None
    else:
        node = bad[0]
    if is_leaf(node):
        return [Cause("nan", "a leaf has NaN or infinity in it")]
    mask = not_finite(outputs[node])
    assert mask is not None
    at = first_place(mask)
    value = number_text(numbers(outputs[node])[at])  # type: ignore[index]
    operands = operands_text(saved_operands(node), mask.shape, at)
    text = f"{name_of(node)} gives {value}, forwards, of {operands}{instead_of(name_of(node))}"
    if not saved_operands(node):  # it may have had it from its operands
        text = f"the result of {name_of(node)} is {value}, the first value known that is not finite"
    return [at_place("nan", text, line_of(node), name_of(node))]


def _may_put_in(node: Node) -> bool:
    """Whether an infinity in the output of a node may come from a constant operand, such as a mask."""
    if is_leaf(node):
        return False
    edges = edges_of(node)
    saved = saved_operands(node) or [None] * len(edges)
    pairs = zip(edges, saved, strict=True)
    return any(target is None and (a is None or any_not_finite(a)) for (target, _), a in pairs)


def _graph_boxes(
    passed: Pass, named: Sequence[tuple[str, Value]], findings: Sequence[Finding]
) -> list[Box]:
    """The graph, inputs first; nodes that give zero or NaN to what is asked for are red."""
    names = {}
    for (name, x), finding in zip(named, findings, strict=True):
        if x.requires_grad:
            names[autograd.graph.get_gradient_edge(x).node] = [name, finding.text]
    bad = {(c.line, c.operation) for f in findings for c in f.causes}
    order = list(reversed(passed.visits))[-SMALL:]
    places = {node: k for k, node in enumerate(order)}
    boxes = []
    for node in order:
        name = name_of(node)
        cut = (at_place("", "", line_of(node)).line, name) in bad
        has_gradient = any(map(any_nonzero, passed.visits[node].incoming))
        state = "input" if node in names else "cut" if cut else "alive" if has_gradient else "dead"
        operands = [places[t] for t, _ in edges_of(node) if t in places]
        boxes.append(Box(names.get(node, ["leaf" if is_leaf(node) else name]), state, operands))
    return [*boxes, Box(["loss"], "result", [len(boxes) - 1] if boxes else [])]
