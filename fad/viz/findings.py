"""What `fad.why` finds: a backward pass made node by node, reports, their pictures, and causes in words."""

from __future__ import annotations

import collections
import dataclasses
import functools
import html
import linecache
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from fad import autograd, errors, extend
from fad.viz.drawing import draw, quoted, write

# A backward pass, made node by node, and what its numbers are.

# What has numbers: a Tensor, an array, a number. None is a gradient of zero.
Value: TypeAlias = Any
# A nest of containers around values of any types: arguments and results of a user's function.
PyTree: TypeAlias = Value
Node: TypeAlias = autograd.Node
NumpyArray: TypeAlias = NDArray[np.generic]


@dataclasses.dataclass(eq=False)
class Visit:
    """A node of a pass: the gradients that came in, and the gradients that went out."""

    node: Node
    incoming: list[Value]
    outgoing: list[Value]


class Pass:
    """A backward pass, made by calling one node after the other; nothing is freed, no hook is called."""

    def __init__(self, roots: Sequence[tuple[Node, int, Value]]) -> None:
        self.visits: dict[Node, Visit] = {}
        # What arrives at an input of a node: from which visit, by which of its edges.
        self.arrivals: dict[tuple[Node, int], list[tuple[Visit | None, int, Value]]] = {}
        counts: dict[Node, int] = collections.Counter()
        todo, seen = [node for node, _, _ in roots], set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            for target, _ in edges_of(node):
                if target is not None:
                    counts[target] += 1
                    todo.append(target)
        for node, nr, gradient in roots:
            self.arrivals.setdefault((node, nr), []).append((None, 0, gradient))
        ready = [node for node in dict.fromkeys(node for node, _, _ in roots) if not counts[node]]
        while ready:
            node = ready.pop()
            visit = self._visited(node)
            for k, (target, nr) in enumerate(edges_of(node)):
                if target is None:
                    continue
                arrival = (visit, k, item(visit.outgoing, k))
                self.arrivals.setdefault((target, nr), []).append(arrival)
                counts[target] -= 1
                if not counts[target]:
                    ready.append(target)

    def _visited(self, node: Node) -> Visit:
        count = max([1, node.num_inputs, *[nr + 1 for n, nr in self.arrivals if n is node]][:3])
        incoming = [self.total(node, nr) for nr in range(count)]
        outgoing: list[Value] = [None] * len(edges_of(node))
        if not is_leaf(node) and any(g is not None for g in incoming):
            with autograd.no_grad():
                results = node(*incoming)
            outgoing = list(results) if isinstance(results, (tuple, list)) else [results]
        visit = self.visits[node] = Visit(node, incoming, outgoing)
        return visit

    def total(self, node: Node, nr: int) -> Value:
        """The gradient that arrives at an input of a node; None is zero."""
        parts = [g for _, _, g in self.arrivals.get((node, nr), []) if g is not None]
        with autograd.no_grad():
            return functools.reduce(lambda a, b: a + b, parts) if parts else None

    def leading_to(self, target: tuple[Node, int]) -> set[Node]:
        """The nodes whose gradients reach ``target``, an input of a node."""
        leading: set[Node] = set()
        for node in reversed(self.visits):
            if any(t in leading or (t, nr) == target for t, nr in edges_of(node)):
                leading.add(node)
        return leading

    def deaths(self, target: tuple[Node, int]) -> list[tuple[Visit, int]]:
        """Where gradients that are not zero become zero, on the way to ``target``: node and edge."""
        reach = self.leading_to(target)
        return [
            (visit, k)
            for node, visit in self.visits.items()
            if node in reach and any(map(any_nonzero, visit.incoming))
            for k, (t, nr) in enumerate(edges_of(node))
            if (t in reach or (t, nr) == target) and not any_nonzero(item(visit.outgoing, k))
        ]

    def cancellations(self, target: tuple[Node, int]) -> list[tuple[Node, int]]:
        """Where gradients that are not zero add up to zero, on the way to ``target``."""
        reach = self.leading_to(target)
        return [
            key
            for key, arrived in self.arrivals.items()
            if (key[0] in reach or key == target)
            and sum(any_nonzero(g) for _, _, g in arrived) > 1
            and not any_nonzero(self.total(*key))
        ]

    def birth(self, target: tuple[Node, int]) -> tuple[Visit, int] | None:
        """The node that gave the NaN or infinity at ``target`` when it was given none; None for a sum."""
        edge: tuple[Visit, int] | None = None
        while True:
            bad = [
                (visit, k)
                for visit, k, g in self.arrivals.get(target, [])
                if visit is not None and any_not_finite(g)
            ]
            if not bad:
                return edge
            edge = bad[0]
            visit = edge[0]
            inputs = [nr for nr, g in enumerate(visit.incoming) if any_not_finite(g)]
            if not inputs:
                return edge
            target = (visit.node, inputs[0])


def edges_of(node: Node) -> Sequence[tuple[Value, int]]:
    return () if is_leaf(node) else node.next_functions


def is_leaf(node: Node) -> bool:
    return isinstance(node, autograd.AccumulateGrad)


def item(items: Sequence[Value], k: int) -> Value:
    return items[k] if k < len(items) else None


def numbers(x: Value) -> NumpyArray | None:
    """A value in NumPy, where it has numbers; else None."""
    if isinstance(x, extend.Tensor):
        try:
            x = x.array
        except errors.FadError:  # it is batched
            return None
    if x is None or isinstance(x, jax.core.Tracer):
        return None
    dtype = getattr(x, "dtype", None)
    if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return None
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def is_inexact(x: Value) -> bool:
    dtype = getattr(x, "dtype", None)
    return (
        isinstance(x, (float, complex))
        if dtype is None
        else jax.numpy.issubdtype(dtype, np.inexact)
    )


def any_nonzero(x: Value) -> bool:
    array = numbers(x)
    return array is not None and bool((array != 0).any())  # NaN is not zero


def not_finite(x: Value) -> NumpyArray | None:
    """Where a value is NaN or infinite; None if its dtype is not floating."""
    array = numbers(x) if is_inexact(x) else None
    return None if array is None else ~np.isfinite(array)


def any_nan(x: Value) -> bool:
    array = numbers(x) if is_inexact(x) else None
    return array is not None and bool((array != array).any())


def any_not_finite(x: Value) -> bool:
    bad = not_finite(x)
    return bad is not None and bool(bad.any())


# Reports

_MOST_LINES = 10
SMALL = 60  # boxes of a picture
LIBRARIES = tuple(
    os.path.join(os.path.dirname(sys.modules[name].__file__ or "?"), "")
    for name in ("fad", "jax", "numpy")
)


@dataclasses.dataclass(frozen=True)
class Cause:
    """One place that a derivative does not get past.

    Attributes:
        kind: ``"detach"``, ``"no_grad"``, ``"integers"``, ``"comparison"``, ``"read"``, ``"rule"``,
            ``"flat"``, ``"cancels"``, ``"unused"``, ``"nan"``, ``"leaf"`` or ``"not in the graph"``.
        text: what happens there, in words, with the operands.
        line: the line of the program, ``"model.py:12"``; empty where it is not known.
        source: what stands in that line.
        operation: the name of the operation; empty where there is none.

    >>> import fad
    >>> (cause,) = fad.why(lambda x: 3.0 * x.detach())(2.0).inputs[0].causes
    >>> cause.kind, cause.operation
    ('detach', 'detach')
    """

    kind: str
    text: str
    line: str = ""
    source: str = ""
    operation: str = ""

    def __str__(self) -> str:
        source = self.source if len(self.source) <= 60 else f"{self.source[:57]}..."
        return f"{self.line}  {source}  <- {self.text}" if self.line else self.text


@dataclasses.dataclass(frozen=True)
class Finding:
    """What there is to say about one input.

    Attributes:
        name: its parameter, and its place in a pytree.
        depends: whether the result is computed from its value, by operations that fad sees.
        derivative: ``"nonzero"``, ``"zero"``, ``"None"``, ``"NaN"`` or ``"infinite"``.
        text: the same in words.
        causes: a `Cause` for each place, the most telling one first.

    >>> import fad
    >>> finding = fad.why(lambda x: fad.nn.relu(x))(-2.0).inputs[0]
    >>> finding.depends, finding.derivative
    (True, 'zero')
    """

    name: str
    depends: bool
    derivative: str
    text: str
    causes: tuple[Cause, ...] = ()


class Why:
    """What `fad.why` and `fad.autograd.why` return. ``print`` gives at most ten lines.

    Attributes:
        inputs: a `Finding` for each input, in their order.

    >>> import fad
    >>> report = fad.why(lambda x, y: x * y.detach())(2.0, 3.0)
    >>> [finding.derivative for finding in report.inputs]
    ['nonzero', 'None']
    """

    def __init__(
        self, title: str, inputs: Sequence[Finding], advice: str = "", boxes: Sequence[Box] = ()
    ) -> None:
        self.inputs = tuple(inputs)
        self._title = title
        self._advice = advice
        self._boxes = boxes

    def __repr__(self) -> str:
        inputs = ", ".join(f"{x.name}: {x.derivative}" for x in self.inputs)
        return f"<fad.why: {inputs}>"

    def __str__(self) -> str:
        bad = [x for x in self.inputs if x.causes or x.derivative != "nonzero"]
        good = [x.name for x in self.inputs if x not in bad]
        end = [self._advice] if self._advice else []
        if good:
            end.insert(0, f"{listed(good)}: a plain number, not zero")
        room = _MOST_LINES - 1 - len(end)
        lines: list[str] = []
        alike: dict[tuple[str, tuple[Cause, ...]], list[str]] = {}
        for x in bad:
            alike.setdefault((x.text, x.causes), []).append(x.name)
        left = len(bad)
        for number, ((text, causes), names) in enumerate(alike.items()):
            others = len(alike) - number - 1
            most = max(1, room - len(lines) - 1 - min(others, 2))
            block = [f"{listed(names)}: {text}", *[f"  {c}" for c in causes[: min(most, 3)]]]
            if len(lines) + len(block) + bool(others) > room:
                lines.append(f"... and {left} more inputs: see .inputs")
                break
            left -= len(names)
            lines += block
        return "\n".join([self._title, *lines, *end])

    def dot(self) -> str:
        """The way from the inputs to the result in Graphviz's language; what is cut, or flat, is red."""
        lines = [
            "digraph why {",
            '  node [shape=box, style="filled,rounded", fontname="Helvetica"];',
        ]
        for k, box in enumerate(self._boxes):
            lines.append(f'  b{k} [label={quoted(box.lines)}, fillcolor="{_COLORS[box.state]}"];')
            lines += [f"  b{j} -> b{k};" for j in box.operands]
        return "\n".join([*lines, "}", ""])

    def svg(self) -> str:
        """The picture that `dot` says, drawn by Graphviz.

        Raises:
            MissingLibrary: Graphviz, or its Python package, is not installed.
        """
        return draw(self.dot(), "svg").decode()

    def png(self) -> bytes:
        """The picture as a PNG file, drawn by Graphviz.

        Raises:
            MissingLibrary: Graphviz, or its Python package, is not installed.
        """
        return draw(self.dot(), "png")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, in the format that its name ends with.

        Arguments:
            path: ends with ``.txt``, ``.dot``, ``.html``, ``.svg`` or ``.png``.

        Raises:
            ArgumentError: it ends with something else.
            MissingLibrary: Graphviz, or its Python package, is not installed, for ``.svg`` and ``.png``.
        """
        write(path, self, dot=self.dot, html=self._repr_html_)

    def _repr_html_(self) -> str:
        """For notebooks: the text, and the operations in a row of boxes, those that cut the way in red."""
        text = f"<pre>{html.escape(str(self))}</pre>"
        boxes = [
            f'<tr><td style="background:{_COLORS[box.state]};padding:2px 8px">'
            f"{html.escape('  '.join(box.lines))}</td></tr>"
            for box in self._boxes
        ]
        return f"{text}<table>{''.join(boxes)}</table>" if boxes else text


@dataclasses.dataclass
class Box:
    """One box of the picture: its lines, whether a derivative gets past it, and the boxes of its operands."""

    lines: list[str]
    state: str
    operands: list[int]


_COLORS = {
    "input": "#d9f2d9",
    "alive": "#ffffff",
    "cut": "#ffcdd2",
    "dead": "#eeeeee",
    "result": "#e3f2fd",
}


# In words

SHAPES_ALONE = frozenset("unit_cotangent zeros_like ones_like empty_like full_like".split())
COMPARISONS = frozenset(
    "greater greater_equal less less_equal equal not_equal eq ne gt ge lt le isclose isnan isinf isfinite "
    "sign signbit logical_and logical_or logical_not heaviside".split()
)
POSITIONS = frozenset(
    "argmax argmin argsort argpartition nanargmax nanargmin searchsorted digitize nonzero".split()
)
_FLAT: dict[str, str] = {
    **dict.fromkeys(
        "relu relu6 leaky_relu".split(),
        "does not pass derivatives on where its operand is not above 0",
    ),
    **dict.fromkeys("where select".split(), "takes the other branch"),
    **dict.fromkeys(
        "clip clamp hard_tanh hard_sigmoid".split(), "is constant outside of its bounds"
    ),
    **dict.fromkeys("maximum minimum fmax fmin max min amax amin".split(), "picks another one"),
    **dict.fromkeys("sort partition top_k median".split(), "picks others"),
    **dict.fromkeys(
        "round rint floor ceil trunc fix sign heaviside floor_divide around".split(),
        "is constant in pieces: its derivative is 0 everywhere",
    ),
    **dict.fromkeys(
        "sigmoid tanh erf expit softplus silu gelu exp arctan logistic erfc".split(),
        "is saturated: its derivative is 0 in this dtype",
    ),
    **dict.fromkeys(
        "softmax log_softmax".split(), "is saturated, or only the sum of what it gives is used"
    ),
    **dict.fromkeys(
        "multiply matmul dot einsum tensordot vdot inner".split(), "multiplies by 0, or underflows"
    ),
    **dict.fromkeys(
        "getitem slice take take_along_axis gather dynamic_slice index_select".split(),
        "leaves it out: the index takes others",
    ),
    **dict.fromkeys("CopySlices at_set scatter dynamic_update_slice".split(), "writes over it"),
    **dict.fromkeys("abs absolute norm".split(), "has the derivative 0 at 0"),
}


# What to write, where a NaN or an infinity is born.
_INSTEAD: dict[str, str] = {
    "sqrt rsqrt": "for a root of squares write fad.numpy.linalg.norm; else sqrt(x + eps), or fad.safe_where",
    "log log2 log10": "write log(x + eps), fad.nn.log_softmax, log1p, or fad.scipy.special.xlogy",
    "true_divide divide reciprocal": "write the divisor + eps, or fad.safe_where",
    "exp exp2 expm1 sinh cosh": "write fad.nn.logsumexp, softmax or log_softmax, which take the maximum off",
    "power float_power": "write fad.safe_where, or a base that is above 0",
    "arctan2 arccos arcsin arccosh arctanh": "write fad.safe_where, or keep away from the point",
    "softmax log_softmax": "a row that is masked as a whole has no largest element: keep one, or mask "
    "with fad.numpy.finfo(x.dtype).min",
    "eigh svd eig": "equal eigenvalues have no vectors of their own: use the values alone, or add noise",
    "inv det slogdet solve cholesky": "the matrix is singular: add eps on its diagonal",
}
_INSTEAD = {name: text for names, text in _INSTEAD.items() for name in names.split()}


def instead_of(lineage: tuple[str, ...]) -> str:
    """What to write for an operation that gives a NaN or an infinity; "" where that is not known."""
    text = _INSTEAD.get(lineage[-1], "")
    return f"; {text}" if text else ""


def _flat_text(lineage: tuple[str, ...], directions: Sequence[Value], operands: str) -> str:
    if len(lineage) == 1:
        what = _FLAT.get(lineage[0], "has the derivative 0")
    elif directions and not any(map(any_nonzero, directions)):
        what = "takes a tangent, or gradient, that is 0"
    else:
        what = "does not change with it"
    shown = "a write in place" if lineage[0] == "CopySlices" else shown_name(lineage)
    return f"{shown} {what}{operands}"


def shown_name(lineage: tuple[str, ...]) -> str:
    name = lineage[0]
    return f"{name} (the derivative of {lineage[-1]})" if len(lineage) > 1 else name


def number_text(x: Value) -> str:
    return f"{x:.6g}" if isinstance(x, (float, np.floating)) else str(x)


def operands_text(args: Sequence[Value], shape: tuple[int, ...], at: tuple[int, ...] | None) -> str:
    """Operands at an element of the output of their operation; their shapes where they have other ones."""
    texts = []
    for a in args:
        array = numbers(a)
        if array is None or (array.ndim and (at is None or array.shape != shape)):
            texts.append("..." if array is None else f"{array.dtype}{list(array.shape)}")
        else:
            texts.append(number_text(array[at if array.ndim else ()][()]))
    place = f" at element {index_text(at)}" if at else ""
    return (f"({', '.join(texts)})" if texts else "") + place


def index_text(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]"


def first_place(mask: Value) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def listed(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"
    )


def at_place(kind: str, text: str, place: tuple[str, int] | None, operation: str = "") -> Cause:
    if place is None:
        return Cause(kind, text, operation=operation)
    file, number = place
    source = linecache.getline(file, number).strip()
    return Cause(kind, text, f"{os.path.basename(file)}:{number}", source, operation)


def flat_cause(node: Node | None, step: Value, out: Value, incoming: Value) -> Cause:
    """A node, or a step, whose derivative is zero; ``incoming`` is a gradient or tangent that is not."""
    args = saved_operands(node) if step is None else step.args
    lineage = lineage_of(node) if step is None else step.lineage  # type: ignore[arg-type]
    directions = (
        [a for a in args[-1:] if a is not None] if step is None else args[len(step.primals) :]
    )
    if step is not None and gives_zero(step):
        lineage = lineage[1:]
        name = lineage[0]
        several = step.op.primitive is not None and len(args) - len(step.primals) > 1
        if several and name not in _FLAT:  # tangents that are added
            return at_place("cancels", _cancels_text(name), step.place, name)
        args = step.primals
    rule = node is not None and hasattr(node, "needs_input_grad")
    at = first_place(incoming != 0) if incoming.ndim else ()
    operands = "" if rule or not args else f" {operands_text(args, incoming.shape, at)}"
    text = _flat_text(lineage, directions, operands)
    if rule:
        text = f"the rule of {lineage[0]} returns {'None' if out is None else 'zeros'} for it"
    return at_place("rule" if rule else "flat", text, _place_of(node, step), lineage[0])


def _place_of(node: Node | None, step: Value) -> tuple[str, int] | None:
    return line_of(node) if step is None else step.place


def zero_causes(passed: Pass, target: tuple[Node, int], steps: dict[Node, Value]) -> list[Cause]:
    """Where gradients that are not zero become zero on the way to ``target``, or add up to it.

    Arguments:
        steps: the operations that nodes were recorded for, as far as they are known.
    """
    flat: list[Cause] = []
    derived: list[Cause] = []
    for visit, edge in passed.deaths(target):
        incoming = numbers(next(g for g in visit.incoming if any_nonzero(g)))
        step = steps.get(visit.node)
        cause = flat_cause(visit.node, step, item(visit.outgoing, edge), incoming)
        lineage = lineage_of(visit.node) if step is None else step.lineage
        (derived if cause.operation == lineage[0] and len(lineage) > 1 else flat).append(cause)
    return [*flat, *derived] or [
        _cancelled(key, passed, steps) for key in passed.cancellations(target)
    ]


def _cancelled(key: tuple[Node, int], passed: Pass, steps: dict[Node, Value]) -> Cause:
    nodes = [visit.node for visit, _, _ in passed.arrivals[key] if visit is not None]
    names = listed(list(dict.fromkeys(map(name_of, nodes))))
    place = _place_of(nodes[0], steps.get(nodes[0]))
    return at_place("cancels", _cancels_text(names), place, name_of(nodes[0]))


def _cancels_text(names: str) -> str:
    return f"what its uses give ({names}) adds up to 0"


def born_backwards(passed: Pass, target: tuple[Node, int], steps: dict[Node, Value]) -> list[Cause]:
    """The node that gave the NaN or infinity at ``target`` when it was given none, if there is one."""
    birth = passed.birth(target)
    if birth is None:
        return []
    visit, edge = birth
    step = steps.get(visit.node)
    lineage = lineage_of(visit.node) if step is None else step.lineage
    args = saved_operands(visit.node) if step is None else step.args
    out = numbers(visit.outgoing[edge])
    assert out is not None
    at = first_place(~np.isfinite(out))
    incoming = next((numbers(g) for g in visit.incoming if g is not None), None)
    result = getattr(visit.node, "_saved_result", None) if not args else None
    of = "" if result is None else "the result "
    of += operands_text(args if result is None else [result], out.shape, at)
    text = f"{shown_name(lineage)} gives {number_text(out[at])}, backwards, {'of' if args or of else ''} {of}"
    text = text.rstrip(", ")
    gradient = None
    if incoming is not None and incoming.shape == out.shape:
        gradient = incoming[at]
        text += f", of the gradient {number_text(gradient)}"
    if gradient is not None and gradient == 0:
        text += ": 0 times an infinite derivative, see fad.safe_where"
    else:
        text += instead_of(lineage)
    return [at_place("nan", text, _place_of(visit.node, step), lineage[0])]


def zero_text(gradient: Value, what: str) -> tuple[str, str]:
    """What a gradient without a number that is not zero is called, and in words."""
    if gradient is None:
        return "None", "None: a rule gives None, which is a zero, for it"
    return "zero", f"the {what} is zero"


def unique(causes: Iterable[Cause]) -> list[Cause]:
    return list(dict.fromkeys(causes))


# Of operations and of nodes


def gives_zero(step: Value) -> bool:
    """Whether an operation is a derivative that takes a tangent, or gradient, and gives zeros."""
    return (
        step.is_derived
        and not any(any_nonzero(o.below) for o in step.outs)
        and any_nonzero(step.args[-1])
    )


def saved_operands(node: Node | None) -> list[Value]:
    """The operands of a node, as far as it has saved them; None for others."""
    if node is None or is_leaf(node):
        return []
    operands = []
    for k in range(len(edges_of(node))):
        try:
            operands.append(getattr(node, f"_saved_{k}", None))
        except errors.FadError:  # hooks of saved values may refuse
            operands.append(None)
    return operands if any(v is not None for v in operands) else []


def name_of(node: Node) -> str:
    """``sin`` for a SinBackward."""
    return lineage_of(node)[0]


def lineage_of(node: Node) -> tuple[str, ...]:
    """That of the operation that a node was recorded for."""
    if hasattr(node, "needs_input_grad"):  # of a Function
        return (node.name().removesuffix("Backward"),)
    plan = getattr(node, "plan", None)
    if plan is not None:
        lineage: tuple[str, ...] = plan.primitive.lineage
        return lineage
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name().removesuffix("Backward"))
    return (name.lower(),)


def line_of(node: Node | None) -> tuple[str, int] | None:
    """Where a node was recorded, if anomaly mode was on."""
    if node is None:
        return None
    for frame in reversed(node.metadata.get("traceback_", ())):
        place = re.match(r'\s*File "(.+)", line (\d+)', frame)
        if place and not place[1].startswith(LIBRARIES):
            return place[1], int(place[2])
    return None
