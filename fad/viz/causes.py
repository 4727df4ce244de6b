"""``fad.why`` and ``fad.autograd.why``: where a derivative that is None, zero or NaN comes from.

NOTE [why]

    f = lambda x: fad.numpy.where(x > 0.0, fad.numpy.sqrt(x), 0.0).detach() * fad.nn.relu(x)
    assert [cause.kind for cause in fad.why(f)(-1.0).inputs[0].causes] == ["flat", "detach"]

A graph has only what a derivative goes through. Where it is cut there is nothing in it. So `why` runs the
function at a level of its own, which sees every operation, with its line and its operands, and follows two
things: which values depend on an input at all, and which of them its graph leads to. Below that level the
inputs are leaves of the eager tape. A derivative is *cut* where an operation takes a value that the graph
leads to and gives one that it does not. It is *flat* where a node takes a gradient that is not zero and
gives zero: the pass is made node by node. A NaN is followed from where it arrives to the operation, or the
node, that was given none.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import html
import importlib
import inspect
import linecache
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fad import autograd, errors, extend

_MOST_LINES = 10
_MOST_STEPS = 5000  # of more, what happens to single elements is not looked for
_SMALL = 60  # boxes of a picture
_LIBRARIES = tuple(
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
    """What is found of one input.

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
        self, title: str, inputs: Sequence[Finding], advice: str = "", boxes: Sequence[_Box] = ()
    ) -> None:
        self.inputs = tuple(inputs)
        self._title = title
        self._advice = advice
        self._boxes = boxes

    def __repr__(self) -> str:
        found = ", ".join(f"{x.name}: {x.derivative}" for x in self.inputs)
        return f"<fad.why: {found}>"

    def __str__(self) -> str:
        bad = [x for x in self.inputs if x.causes or x.derivative != "nonzero"]
        good = [x.name for x in self.inputs if x not in bad]
        end = [self._advice] if self._advice else []
        if good:
            end.insert(0, f"{_listed(good)}: a plain number, not zero")
        room = _MOST_LINES - 1 - len(end)
        lines: list[str] = []
        for number, x in enumerate(bad):
            left = len(bad) - number - 1
            most = max(1, room - len(lines) - 1 - min(left, 2))
            block = [f"{x.name}: {x.text}", *[f"  {cause}" for cause in x.causes[: min(most, 3)]]]
            if len(lines) + len(block) + bool(left) > room:
                lines.append(f"... and {left + 1} more inputs: see .inputs")
                break
            lines += block
        return "\n".join([self._title, *lines, *end])

    def dot(self) -> str:
        """The way from the inputs to the result in Graphviz's language; what is cut, or flat, is red."""
        lines = [
            "digraph why {",
            '  node [shape=box, style="filled,rounded", fontname="Helvetica"];',
        ]
        for k, box in enumerate(self._boxes):
            text = "\\n".join(t.replace("\\", "\\\\").replace('"', '\\"') for t in box.lines)
            lines.append(f'  b{k} [label="{text}", fillcolor="{_COLORS[box.state]}"];')
            lines += [f"  b{j} -> b{k};" for j in box.operands]
        return "\n".join([*lines, "}", ""])

    def svg(self) -> str:
        """The picture that `dot` says, drawn by Graphviz.

        Raises:
            MissingLibrary: Graphviz's Python package is not installed.
        """
        return self._drawn("svg").decode()

    def png(self) -> bytes:
        """The picture as a PNG file, drawn by Graphviz.

        Raises:
            MissingLibrary: Graphviz's Python package is not installed.
        """
        return self._drawn("png")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, in the format that its name ends with: ``.txt``, ``.dot``, ``.html``, ``.svg``, ``.png``.

        Raises:
            ArgumentError: it ends with something else.
            MissingLibrary: Graphviz's Python package is not installed, for ``.svg`` and ``.png``.
        """
        file = pathlib.Path(path)
        formats: dict[str, Callable[[], str | bytes]] = {
            ".txt": self.__str__,
            ".dot": self.dot,
            ".html": self._repr_html_,
            ".svg": self.svg,
            ".png": self.png,
        }
        if file.suffix.lower() not in formats:
            raise errors.ArgumentError(
                f"save: the name must end with one of {', '.join(formats)}, got {str(path)!r}"
            )
        content = formats[file.suffix.lower()]()
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def _drawn(self, format: str) -> bytes:
        try:
            graphviz = importlib.import_module("graphviz")
        except ImportError as error:
            raise errors.MissingLibrary(
                "why: a picture needs graphviz, which is not installed: pip install graphviz, and the program "
                'dot. Without it there are print(report), report.dot() and report.save("why.html")'
            ) from error
        picture: bytes = graphviz.Source(self.dot()).pipe(format=format)
        return picture

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
class _Box:
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


# What runs: operations with their lines


@dataclasses.dataclass(eq=False)
class _Value:
    """A value that depends on inputs. ``below`` is it on the tape; ``needs`` and ``linked`` are sets of inputs,
    as bits: what it depends on, and what its graph leads to.
    """

    below: Any
    needs: int
    linked: int
    step: _Step | None = None


@dataclasses.dataclass(eq=False)
class _Step:
    """An operation that was run on a value that depends on an input."""

    name: str
    op: Any
    args: list[Any]
    values: list[_Value | None]
    place: tuple[str, int]
    recording: bool
    outs: list[_Value] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Read:
    """A number that Python read."""

    what: str
    needs: int
    place: tuple[str, int]


class _WhyLevel(extend.Level):
    """Notes each operation on what depends on an input, and runs it on the eager tape."""

    kind = "why"

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[object, _Value] = {}
        self.steps: list[_Step] = []
        self.reads: list[_Read] = []

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        if op.expands:
            return op.expand(args)
        below = [a.value if self._owns(a) else a for a in args]
        out = extend.bind(op, below)
        self._note(_plain_name(op.name), op, below, out if type(out) is tuple else (out,))
        return extend.map_outputs(self.lift, out)

    def constant(self, t: Any, stop: Callable[[Any], Any]) -> Any:
        out = super().constant(t, stop)
        self._note("detach", None, [t.value], [out.value])
        return out

    def check_has_value(self, t: Any, what: str = "") -> None:
        value = self.known(t.value)
        if value is not None:
            self.reads.append(_Read(what or ".array", value.needs, _users_place()))

    def detach(self, x: Any) -> Any:
        return x

    def _owns(self, x: object) -> bool:
        return isinstance(x, extend.Tensor) and x.level is self

    def _note(self, name: str, op: Any, args: list[Any], outs: Iterable[Any]) -> None:
        values = [self.known(a) for a in args]
        if not any(values) or name in _SHAPES_ALONE:
            return
        step = _Step(name, op, args, values, _users_place(), _records())
        needs = functools.reduce(int.__or__, [v.needs for v in values if v is not None])
        for out in outs:
            linked = 0
            for _, v in _linked_operands(step, out):
                linked |= v.linked
            step.outs.append(self.noted(_Value(out, needs, linked, step)))
        self.steps.append(step)

    def noted(self, value: _Value) -> _Value:
        self.values[id(value.below)] = self.values[_state(value.below)] = value
        return value

    def known(self, below: Any) -> _Value | None:
        """What is known of a value; a Tensor that was written to has another one of the same state."""
        if not isinstance(below, extend.Tensor):
            return None
        return self.values.get(id(below)) or self.values.get(_state(below))


def _state(below: Any) -> tuple[int, int]:
    """An array, and its place in the graph."""
    node = autograd.graph.get_gradient_edge(below).node if below.requires_grad else None
    return id(below.array), id(node)


def _linked_operands(step: _Step, out: Any) -> Iterator[tuple[int, _Value]]:
    """The operands whose graph goes on through ``out``, with their places."""
    node = out.grad_fn if isinstance(out, extend.Tensor) and out.requires_grad else None
    if node is None or step.op is None:
        return
    edges = node.next_functions
    for k, v in enumerate(step.values):
        if v is not None and v.linked:
            if len(edges) != len(step.args) or edges[k][0] is not None:
                yield k, v


def _records() -> bool:
    return autograd.grad_mode.is_grad_enabled() and not autograd.is_inference_mode_enabled()


def _users_place() -> tuple[str, int]:
    """File and line of the innermost frame that is not fad's, JAX's or NumPy's."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_LIBRARIES) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _plain_name(name: str) -> str:
    while name.endswith(("_vmap", "_forward")):
        name = name.rpartition("_")[0]
    return name


# A pass, node by node


@dataclasses.dataclass(eq=False)
class _Visit:
    """A node of a pass: the gradients that it was given, and those that it gave."""

    node: Any
    incoming: list[Any]
    outgoing: list[Any]


class _Pass:
    """A backward pass, made by calling one node after the other; nothing is freed, no hook is called."""

    def __init__(self, roots: Sequence[tuple[Any, int, Any]], ends: Sequence[Any]) -> None:
        self.visits: dict[Any, _Visit] = {}
        # What arrives at an input of a node: from which visit, by which of its edges.
        self.arrivals: dict[tuple[Any, int], list[tuple[_Visit | None, int, Any]]] = {}
        counts: dict[Any, int] = collections.Counter()
        todo, seen = [node for node, _, _ in roots], set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            for target, _ in _edges(node):
                if target is not None:
                    counts[target] += 1
                    todo.append(target)
        for node, nr, gradient in roots:
            self.arrivals.setdefault((node, nr), []).append((None, 0, gradient))
        ready = [node for node in dict.fromkeys(node for node, _, _ in roots) if not counts[node]]
        while ready:
            node = ready.pop()
            visit = self._visited(node, node in ends)
            for k, (target, nr) in enumerate(_edges(node)):
                if target is None:
                    continue
                given = visit.outgoing[k] if k < len(visit.outgoing) else None
                self.arrivals.setdefault((target, nr), []).append((visit, k, given))
                counts[target] -= 1
                if not counts[target]:
                    ready.append(target)

    def _visited(self, node: Any, end: bool) -> _Visit:
        count = max([1, node.num_inputs, *[nr + 1 for n, nr in self.arrivals if n is node]][:3])
        incoming = [self.total(node, nr) for nr in range(count)]
        outgoing: list[Any] = [None] * len(_edges(node))
        if not _is_leaf(node) and any(g is not None for g in incoming):
            with autograd.no_grad():
                found = node(*incoming)
            outgoing = list(found) if isinstance(found, (tuple, list)) else [found]
        visit = self.visits[node] = _Visit(node, incoming, outgoing)
        return visit

    def total(self, node: Any, nr: int) -> Any:
        """The gradient that arrives at an input of a node; None is zero."""
        parts = [g for _, _, g in self.arrivals.get((node, nr), []) if g is not None]
        with autograd.no_grad():
            return functools.reduce(lambda a, b: a + b, parts) if parts else None

    def leading_to(self, target: tuple[Any, int]) -> set[Any]:
        """The nodes whose gradients reach ``target``, an input of a node."""
        found: set[Any] = set()
        for node in reversed(self.visits):
            if any(t in found or (t, nr) == target for t, nr in _edges(node)):
                found.add(node)
        return found

    def deaths(self, target: tuple[Any, int]) -> list[tuple[_Visit, int]]:
        """Where gradients that are not zero become zero, on the way to ``target``: the node, and which edge."""
        reach = self.leading_to(target)
        return [
            (visit, k)
            for node, visit in self.visits.items()
            if node in reach and any(map(_any_nonzero, visit.incoming))
            for k, (t, nr) in enumerate(_edges(node))
            if (t in reach or (t, nr) == target) and not _any_nonzero(_get(visit.outgoing, k))
        ]

    def cancellations(self, target: tuple[Any, int]) -> list[tuple[Any, int]]:
        """Where gradients that are not zero add up to zero, on the way to ``target``."""
        reach = self.leading_to(target)
        return [
            key
            for key, arrived in self.arrivals.items()
            if (key[0] in reach or key == target)
            and sum(_any_nonzero(g) for _, _, g in arrived) > 1
            and not _any_nonzero(self.total(*key))
        ]

    def birth(self, target: tuple[Any, int]) -> tuple[_Visit, int] | None:
        """The node that gave the NaN or infinity at ``target`` when it was given none; None for a sum."""
        found: tuple[_Visit, int] | None = None
        while True:
            bad = [
                (visit, k)
                for visit, k, g in self.arrivals.get(target, [])
                if visit is not None and _any_bad(g)
            ]
            if not bad:
                return found
            visit, k = found = bad[0]
            inputs = [nr for nr, g in enumerate(visit.incoming) if _any_bad(g)]
            if not inputs:
                return found
            target = (visit.node, inputs[0])


def _edges(node: Any) -> Sequence[tuple[Any, int]]:
    return () if _is_leaf(node) else node.next_functions


def _is_leaf(node: Any) -> bool:
    return isinstance(node, autograd.AccumulateGrad)


def _get(items: Sequence[Any], k: int) -> Any:
    return items[k] if k < len(items) else None


def _array(x: Any) -> np.ndarray[Any, Any] | None:
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


def _inexact(x: Any) -> bool:
    dtype = getattr(x, "dtype", None)
    return (
        isinstance(x, (float, complex))
        if dtype is None
        else jax.numpy.issubdtype(dtype, np.inexact)
    )


def _any_nonzero(x: Any) -> bool:
    array = _array(x)
    return array is not None and bool((array != 0).any())  # NaN is not zero


def _bad(x: Any) -> np.ndarray[Any, Any] | None:
    """Where a value is NaN or infinite; None for what is not of floating dtype."""
    array = _array(x) if _inexact(x) else None
    return None if array is None else ~np.isfinite(array)


def _any_bad(x: Any) -> bool:
    bad = _bad(x)
    return bad is not None and bool(bad.any())


# In words

_SHAPES_ALONE = frozenset("unit_cotangent zeros_like ones_like empty_like full_like".split())
_COMPARISONS = frozenset(
    "greater greater_equal less less_equal equal not_equal eq ne gt ge lt le isclose isnan isinf isfinite "
    "sign signbit logical_and logical_or logical_not heaviside".split()
)
_POSITIONS = frozenset(
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
    **dict.fromkeys("CopySlices set scatter dynamic_update_slice".split(), "writes over it"),
    **dict.fromkeys("abs absolute norm".split(), "has the derivative 0 at 0"),
}


def _flat_text(name: str, out: Any, rule: bool, operands: str) -> str:
    if rule:
        return f"the rule of {name} returns {'None' if out is None else 'zeros'} for it"
    base = re.sub(r"(_(vjp|jvp))+$", "", name)
    what = _FLAT.get(name)
    if base != name:
        what = f"(the derivative of {base}) does not change with it"
    shown = "a write in place" if name == "CopySlices" else name
    return f"{shown} {what or 'has the derivative 0'}{operands}"


def _number(x: Any) -> str:
    return f"{x:.6g}" if isinstance(x, (float, np.floating)) else str(x)


def _operands(args: Sequence[Any], shape: tuple[int, ...], at: tuple[int, ...] | None) -> str:
    """Operands at an element of the output of their operation; their shapes where they have other ones."""
    texts = []
    for a in args:
        array = _array(a)
        if array is None or (array.ndim and (at is None or array.shape != shape)):
            texts.append("..." if array is None else f"{array.dtype}{list(array.shape)}")
        else:
            texts.append(_number(array[at if array.ndim else ()][()]))
    place = f" at element {_index(at)}" if at else ""
    return (f"({', '.join(texts)})" if texts else "") + place


def _index(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]"


def _first(mask: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _listed(names: Sequence[str]) -> str:
    return (
        ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"
    )


def _at_place(kind: str, text: str, place: tuple[str, int] | None, operation: str = "") -> Cause:
    if place is None:
        return Cause(kind, text, operation=operation)
    file, number = place
    source = linecache.getline(file, number).strip()
    return Cause(kind, text, f"{os.path.basename(file)}:{number}", source, operation)


# `fad.why`


def why(f: Callable[..., Any]) -> Callable[..., Why]:
    """Why the derivative of a function is None, zero or NaN: for each input the line, and the operands.

    The function is run once, operation by operation: what `fad.jit` or `checkpoint` would compile, and loops
    and branches of `fad.lax`, run as Python. Then a backward pass is made node by node. It takes the time of a
    debugger, not that of training.

    Arguments:
        f: the function that is differentiated: not its gradient, but what `fad.grad` is called with. It may
            have transforms inside, and be one; its result is any pytree. Where that is not one real number,
            derivatives are those of a sum of its elements with weights.

    Returns:
        A function with f's arguments that returns a `fad.viz.Why`. Every floating array or number in the
        arguments is an input.

    Raises:
        ArgumentError: ``f`` is no function, or an argument has no value, as it is traced or batched: call it
            outside of transforms.

    Source: it answers what PyTorch users ask of ``.grad is None``; nothing like it is in PyTorch or JAX.

    >>> import fad, fad.numpy as fnp
    >>> print(fad.why(lambda x: fnp.round(x) * 2.0)(0.7))
    <lambda>: the result is 2, float32[]
    x: the derivative is zero
      <doctest ...  <- round is constant in pieces: its derivative is 0 everywhere (0.7)
    """
    if not callable(f):
        raise errors.ArgumentError(
            f"why: the first argument must be a function, got {errors.describe(f)}: write fad.why(f)(x). For a "
            "Tensor that has been computed there is fad.autograd.why(loss, x)"
        )

    @extend.restores_modes
    def explained(*args: Any, **kwargs: Any) -> Why:
        with autograd.compiled(False), autograd.enable_grad(), extend.uncompiled():
            return _Run(f, args, kwargs).report()

    return explained


class _Run:
    """One run of a function, and what is found in it."""

    def __init__(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.name = getattr(f, "__name__", type(f).__name__)
        paths, structure = jax.tree_util.tree_flatten_with_path(
            (args, kwargs), is_leaf=lambda x: isinstance(x, extend.Tensor)
        )
        names = _parameter_names(f, args)
        self.names: list[str] = []
        self.inputs: list[_Value] = []
        self.ends: list[Any] = []
        leaves = []
        with _WhyLevel() as self.level:
            for path, leaf in paths:
                if not _inexact(leaf):
                    leaves.append(extend.enter(leaf))
                    continue
                array = _array(leaf)
                if array is None:
                    raise errors.ArgumentError(
                        f"why: {_input_name(path, names)} has no value here, as it is traced or batched "
                        f"({errors.describe(leaf)}): call fad.why outside of transforms, with the function that has them"
                    )
                below = extend.enter(jax.numpy.asarray(array, getattr(leaf, "dtype", None)))
                below = below.requires_grad_()
                bit = 1 << len(self.inputs)
                self.ends.append(autograd.graph.get_gradient_edge(below))
                self.inputs.append(self.level.noted(_Value(below, bit, bit)))
                self.names.append(_input_name(path, names))
                leaves.append(self.level.lift(below))
            args, kwargs = jax.tree_util.tree_unflatten(structure, leaves)
            result = f(*args, **kwargs)
            self.results = [self._result(x) for x in _tensors(result)]
        self.result = result
        self.outs = [v for v in self.results if v is not None]
        self.needed = self._ancestors()
        roots = self._roots()
        self.passed = _Pass(roots, [e.node for e in self.ends])
        self.by_node = {
            out.below.grad_fn: step
            for step in self.level.steps
            for out in step.outs
            if isinstance(out.below, extend.Tensor) and out.below.grad_fn is not None
        }

    def _result(self, x: Any) -> _Value | None:
        while isinstance(x, extend.Tensor) and x.level is not self.level and not x.level.alive:
            x = x.level.outlive(x)
        if not isinstance(x, extend.Tensor) or x.level is not self.level:
            return None
        return self.level.known(x.value)

    def _ancestors(self) -> set[_Value]:
        """The values that the result is computed from."""
        found: set[_Value] = set()
        todo = list(self.outs)
        while todo:
            v = todo.pop()
            if v not in found:
                found.add(v)
                if v.step is not None:
                    todo += [a for a in v.step.values if a is not None]
        return found

    def _roots(self) -> list[tuple[Any, int, Any]]:
        """Where the pass begins. Weights of elements differ, so that what cancels in a plain sum does not."""
        random = np.random.default_rng(0)
        roots = []
        for v in dict.fromkeys(self.outs):
            if v.linked and _inexact(v.below):
                shape = v.below.shape
                weights = random.uniform(0.5, 1.5, shape) if shape or len(self.outs) > 1 else 1.0
                edge = autograd.graph.get_gradient_edge(v.below)
                gradient = extend.enter(jax.numpy.asarray(weights, v.below.dtype))
                roots.append((edge.node, edge.output_nr, gradient))
        return roots

    def report(self) -> Why:
        findings = [self._finding(k) for k in range(len(self.inputs))]
        array = _array(_tensors(self.result)[0]) if len(_tensors(self.result)) == 1 else None
        said = f"{len(self.results)} arrays"
        if array is not None:
            value = f"{_number(array[()])}, " if array.ndim == 0 else ""
            said = f"{value}{array.dtype}{list(array.shape)}"
        if any(_any_bad(v.below) for v in self.outs):
            said += ", not finite"
        advice = (
            "" if findings else "No argument is of floating dtype: integers have no derivative."
        )
        return Why(f"{self.name}: the result is {said}", findings, advice, self._boxes(findings))

    def _finding(self, k: int) -> Finding:
        bit, name, edge = 1 << k, self.names[k], self.ends[k]
        target = (edge.node, edge.output_nr)
        depends = any(v.needs & bit for v in self.outs)
        if not depends:
            causes = self._reads(bit) or [self._unused(k)]
            return Finding(
                name, False, "None", "None: no operation leads from it to the result", tuple(causes)
            )
        cuts = self._cuts(bit)
        if not any(v.linked & bit for v in self.outs):
            text = "None: every way to the result is cut"
            return Finding(name, True, "None", text, tuple(cuts))
        gradient = self.passed.total(*target)
        bad = _bad(gradient)
        if bad is not None and bad.any():
            return self._bad_finding(name, target, gradient, bad)
        forward = self._born_forwards()
        if not _any_nonzero(gradient):
            deaths = [self._death(v, edge) for v, edge in self.passed.deaths(target)]
            if not deaths:
                deaths = [
                    _cancelled(key, self.passed, self._place_of)
                    for key in self.passed.cancellations(target)
                ]
            derivative, text = _zero(gradient, "derivative")
            telling = [c for c in cuts if c.kind not in ("comparison", "integers")]
            causes = _unique([*forward, *deaths, *telling]) or cuts
            return Finding(name, True, derivative, text, tuple(causes))
        causes = self._zero_elements(k, gradient)
        zeros = int((_array(gradient) == 0).sum()) if causes else 0
        total = int(np.size(_array(gradient)))
        text = (
            f"not zero, but for {zeros} of {total} elements"
            if zeros
            else "a plain number, not zero"
        )
        if not causes:
            causes = [c for c in cuts if c.kind in ("detach", "no_grad") and c.operation]
            text = "not zero; another way to the result is cut" if causes else text
        if forward:
            causes, text = [*forward, *causes], "not zero; but the result is not finite"
        return Finding(name, True, "nonzero", text, tuple(causes))

    # Where no graph leads

    def _cuts(self, bit: int) -> list[Cause]:
        """Where an operation takes a value that the graph of an input leads to, and gives another one."""
        found: list[Cause] = []
        for step in self.level.steps:
            outs = [out for out in step.outs if out in self.needed]
            for out in outs:
                going_on = {k for k, _ in _linked_operands(step, out.below)}
                if any(
                    v is not None and v.linked & bit and k not in going_on
                    for k, v in enumerate(step.values)
                ):
                    found.append(self._cut(step, out))
        found.sort(key=lambda c: c.kind in ("comparison", "integers"))
        return _unique(found)

    def _cut(self, step: _Step, out: _Value) -> Cause:
        name = step.name
        if step.op is None:
            source = linecache.getline(*step.place)
            name = next((w for w in ("stop_gradient", ".data", "detach") if w in source), "")
            what = f"{name}: a constant" if name else "what is called here makes it a constant,"
            kind, text = "detach", f"{what} from here on"
        elif name in _COMPARISONS:
            kind, text = "comparison", f"{name} compares: no derivative goes through it"
        elif name in _POSITIONS:
            kind, text = (
                "integers",
                f"{name} gives positions, which are integers: no derivative goes through it",
            )
        elif not _inexact(out.below):
            dtype = getattr(out.below, "dtype", "")
            cast = "a cast" if "astype" in name or "convert" in name else name
            kind, text = "integers", f"{cast} to {dtype}, which has no derivative"
        elif not step.recording:
            kind, text = "no_grad", f"{name} under no_grad or inference_mode is not recorded"
        else:
            kind, text = (
                "rule",
                f"{name} gives no derivative for it (stop_gradient inside, or marked so)",
            )
        return _at_place(kind, text, step.place, name)

    def _reads(self, bit: int) -> list[Cause]:
        reads = [r for r in self.level.reads if r.needs & bit]
        numbers = [r for r in reads if r.what != "bool()"]
        return _unique(
            _at_place(
                "read",
                f"{r.what} makes a number of Python: what is computed with it is a constant"
                if r.what != "bool()"
                else "it only chooses a branch, by bool()",
                r.place,
                r.what,
            )
            for r in numbers or reads
        )

    def _unused(self, k: int) -> Cause:
        bit = 1 << k
        last = [step for step in self.level.steps if any(o.needs & bit for o in step.outs)]
        if not last:
            return Cause("unused", "no operation uses it")
        text = f"{last[-1].name} is the last operation that depends on it, and the result is not computed from that"
        return _at_place("unused", text, last[-1].place, last[-1].name)

    # Where a gradient becomes zero

    def _place_of(self, node: Any) -> tuple[str, int] | None:
        step = self.by_node.get(node)
        return step.place if step is not None else None

    def _death(self, visit: _Visit, edge: int) -> Cause:
        step = self.by_node.get(visit.node)
        gradient = next(g for g in visit.incoming if _any_nonzero(g))
        return _flat_cause(visit.node, step, _get(visit.outgoing, edge), _array(gradient))

    def _zero_elements(self, k: int, gradient: Any) -> list[Cause]:
        """Why the first of the elements whose derivative is zero has none, by pushing its tangent forwards."""
        array = _array(gradient)
        steps = self.level.steps
        if array is None or array.all() or len(steps) > _MOST_STEPS:
            return []
        at = _first(array == 0)
        tangent = np.zeros(array.shape, array.dtype)
        tangent[at] = 1
        tangents: dict[_Value, Any] = {self.inputs[k]: jax.numpy.asarray(tangent)}
        died: list[tuple[_Step, int]] = []
        for step in steps:
            known = [tangents.get(v) if v is not None else None for v in step.values]
            if all(t is None for t in known) or not any(o in self.needed for o in step.outs):
                continue
            found = self._pushed(step, known)
            alive = False
            for out, t in zip(step.outs, found, strict=False):
                if t is not None and _any_nonzero(t):
                    tangents[out] = t
                    alive = alive or out in self.needed
            if not alive:
                died.append((step, next(i for i, t in enumerate(known) if t is not None)))
        if not died or any(out in tangents for out in self.outs):
            return []
        step, operand = next((d for d in died if d[0].outs[0].linked), died[0])
        if step.op is None or not any(o.linked for o in step.outs):
            cause = self._cut(step, step.outs[0])
        else:
            cause = _flat_cause(None, step, (), _array(tangents[step.values[operand]]))  # type: ignore[index]
        return [
            dataclasses.replace(
                cause, text=f"element {_index(at)}: {cause.text}" if at else cause.text
            )
        ]

    def _pushed(self, step: _Step, tangents: list[Any]) -> list[Any]:
        """The tangents of the outputs of a step."""
        if step.op is None or not any(o.linked for o in step.outs):
            return [None] * len(step.outs)
        primals = [a.array if isinstance(a, extend.Tensor) else a for a in step.args]
        _, found = step.op.jvp(primals, tangents)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    # Where a NaN is born

    def _born_forwards(self) -> list[Cause]:
        """The operation that gave the NaN or infinity in the result when it was given none."""
        v = next((v for v in self.outs if _any_bad(v.below)), None)
        while v is not None and v.step is not None:
            bad = next((a for a in v.step.values if a is not None and _any_bad(a.below)), None)
            if bad is None:
                break
            v = bad
        if v is None:
            return []
        if v.step is None:
            return [Cause("nan", "the input has NaN or infinity in it")]
        mask = _bad(v.below)
        assert mask is not None
        at = _first(mask)
        value = _array(v.below)[at]  # type: ignore[index]
        text = f"{v.step.name} gives {_number(value)}, forwards, of {_operands(v.step.args, mask.shape, at)}"
        return [_at_place("nan", text, v.step.place, v.step.name)]

    def _bad_finding(self, name: str, target: tuple[Any, int], gradient: Any, bad: Any) -> Finding:
        derivative = "NaN" if np.isnan(_array(gradient)).any() else "infinite"
        count = f" at {int(bad.sum())} of {bad.size} elements" if bad.ndim else ""
        born = self.passed.birth(target)
        causes = [
            *self._born_forwards(),
            *([_born_backwards(self.by_node.get(born[0].node), *born)] if born else []),
        ]
        causes = causes or [Cause("nan", "finite gradients add up to infinity")]
        return Finding(
            name, True, derivative, f"the derivative is {derivative}{count}", tuple(causes)
        )

    # The picture

    def _boxes(self, findings: Sequence[Finding]) -> list[_Box]:
        steps = [s for s in self.level.steps if any(o in self.needed for o in s.outs)]
        steps = steps[-_SMALL:]
        bad = {(c.line, c.operation) for f in findings for c in f.causes if c.line}
        numbers: dict[_Value, int] = {}
        boxes = []
        for k, (name, v) in enumerate(zip(self.names, self.inputs, strict=True)):
            numbers[v] = k
            boxes.append(_Box([name, findings[k].text], "input", []))
        for step in steps:
            cause = _at_place("", "", step.place)
            cut = any((cause.line, n) in bad for n in (step.name, *_CUTTING.get(step.name, ())))
            state = "cut" if cut else "alive" if any(o.linked for o in step.outs) else "dead"
            operands = [numbers[v] for v in step.values if v in numbers]
            for out in step.outs:
                numbers[out] = len(boxes)
            boxes.append(_Box([step.name, f"{cause.line}  {cause.source}"], state, operands))
        ends = [numbers[v] for v in dict.fromkeys(self.outs) if v in numbers]
        return [*boxes, _Box(["result"], "result", ends)]


_CUTTING = {"detach": ("detach", "stop_gradient", ".data", "")}


def _flat_cause(node: Any, step: _Step | None, out: Any, incoming: Any) -> Cause:
    """A node, or a step, whose derivative is zero; ``incoming`` is a gradient or tangent that is not."""
    args = _saved(node) if step is None else step.args
    name = _name_of(node) if step is None else step.name
    rule = node is not None and hasattr(node, "needs_input_grad")
    at = _first(incoming != 0) if incoming.ndim else ()
    operands = "" if rule or not args else f" {_operands(args, incoming.shape, at)}"
    text = _flat_text(name, out, rule, operands)
    return _at_place(
        "rule" if rule else "flat", text, _line_of(node) if step is None else step.place, name
    )


def _born_backwards(step: _Step | None, visit: _Visit, edge: int) -> Cause:
    name = _name_of(visit.node) if step is None else step.name
    args = _saved(visit.node) if step is None else step.args
    out = _array(visit.outgoing[edge])
    assert out is not None
    at = _first(~np.isfinite(out))
    given = next((_array(g) for g in visit.incoming if g is not None), None)
    value = _number(out[at])
    fits = given is not None and given.shape == out.shape
    gradient = given[at] if fits else None  # type: ignore[index]
    result = getattr(visit.node, "_saved_result", None) if not args else None
    of = "" if result is None else "the result "
    of += _operands(args if result is None else [result], out.shape, at)
    text = f"{name} gives {value}, backwards, {'of' if args or of else ''} {of}".rstrip(", ")
    if gradient is not None:
        text += f", of the gradient {_number(gradient)}"
        if gradient == 0:
            text += ": 0 times an infinite derivative, see fad.safe_where"
    return _at_place("nan", text, _line_of(visit.node) if step is None else step.place, name)


def _zero(gradient: Any, what: str) -> tuple[str, str]:
    """What a gradient without a number that is not zero is called, and in words."""
    if gradient is None:
        return "None", "None: a rule gives None, which is a zero, for it"
    return "zero", f"the {what} is zero"


def _cancelled(
    key: tuple[Any, int], passed: _Pass, place_of: Callable[[Any], tuple[str, int] | None]
) -> Cause:
    nodes = [visit.node for visit, _, g in passed.arrivals[key] if visit is not None]
    names = _listed(list(dict.fromkeys(map(_name_of, nodes))))
    return _at_place("cancels", f"what its uses give ({names}) adds up to 0", place_of(nodes[0]))


def _unique(causes: Iterable[Cause]) -> list[Cause]:
    return list(dict.fromkeys(causes))


def _tensors(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree, is_leaf=lambda x: isinstance(x, extend.Tensor))


def _parameter_names(f: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """A name for each positional argument."""
    try:
        bound = inspect.signature(f).bind_partial(*args).arguments
    except (TypeError, ValueError):
        bound = {}
    names = []
    for name, value in bound.items():
        kind = inspect.signature(f).parameters[name].kind
        names += (
            [f"{name}[{k}]" for k in range(len(value))] if kind is kind.VAR_POSITIONAL else [name]
        )
    return names + [f"argument {k}" for k in range(len(names), len(args))]


def _input_name(path: Sequence[Any], names: Sequence[str]) -> str:
    """``w['bias']`` for a leaf of ``(args, kwargs)``."""
    first, key, *rest = path
    start = names[key.idx] if first.idx == 0 else str(key.key)
    return start + jax.tree_util.keystr(tuple(rest))


# `fad.autograd.why`


def why_of(loss: Any, inputs: Any) -> Why:
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
        ArgumentError: ``loss``, or a leaf of ``inputs``, is no Tensor, or has no value, as it is traced.
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
    if _array(loss) is None:
        raise errors.ArgumentError(
            f"autograd.why: loss has no value here, as it is traced or batched ({errors.describe(loss)}): use "
            "fad.why(f)(x) outside of the transform"
        )
    wanted = f"{loss.dtype}{list(loss.shape)}"
    if not loss.requires_grad:
        reasons = "everything that it is computed from was detached, was computed under no_grad, or has no requires_grad"
        cause = Cause("leaf", f"loss has no graph (requires_grad is False): {reasons}")
        found = [Finding(n, False, "None", "None: loss has no graph", (cause,)) for n, _ in named]
        return Why(f"loss: {wanted}, no graph", found, _FOR_LINES)
    edge = autograd.graph.get_gradient_edge(loss)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, loss.shape) if loss.shape else 1.0
    gradient = extend.enter(jax.numpy.asarray(weights, loss.dtype))
    try:
        passed = _Pass([(edge.node, edge.output_nr, gradient)], [])
    except errors.GradientError as error:
        raise errors.GradientError(
            "autograd.why: the graph of loss has been freed by a backward pass: call it before loss.backward(), or "
            "write loss.backward(retain_graph=True)"
        ) from error
    findings = [_graph_finding(passed, loss, name, x) for name, x in named]
    count = sum(not _is_leaf(node) for node in passed.visits)
    lines_known = all(c.line for f in findings for c in f.causes)
    title = f"loss: {wanted}, {count} node{'s' * (count != 1)}"
    title += ", not finite" if _any_bad(loss) else ""
    return Why(
        title, findings, "" if lines_known else _FOR_LINES, _graph_boxes(passed, named, findings)
    )


_FOR_LINES = "For lines: fad.why(f)(x) on the computation as a function, or compute loss under fad.autograd.detect_anomaly(False)"


def _graph_finding(passed: _Pass, loss: Any, name: str, x: Any) -> Finding:
    if not x.requires_grad:
        floating = "" if _inexact(x) else f", and {x.dtype} can have none"
        text = f"requires_grad is False{floating}: write fad.tensor(..., requires_grad=True) before it is used"
        return Finding(
            name, False, "None", "None: nothing is recorded of it", (Cause("leaf", text),)
        )
    edge = autograd.graph.get_gradient_edge(x)
    target = (edge.node, edge.output_nr)
    if target not in passed.arrivals:
        leaves = [
            f"{n.variable.dtype}{list(n.variable.shape)}" for n in passed.visits if _is_leaf(n)
        ]
        text = (
            f"the graph of loss ends at {len(leaves)} other leaves ({_listed(leaves)}): on the way from it there is "
            "a detach, no_grad, cast to integers, comparison, argmax, .item() or .numpy(); or loss was "
            "computed from another Tensor, a copy of it or its value before a write in place"
        )
        return Finding(
            name, False, "None", "None: no graph leads to it", (Cause("not in the graph", text),)
        )
    gradient = passed.total(*target)
    bad = _bad(gradient)
    if bad is not None and bad.any():
        derivative = "NaN" if np.isnan(_array(gradient)).any() else "infinite"
        born = passed.birth(target)
        causes = [*_forward_of(passed, loss), *([_born_backwards(None, *born)] if born else [])]
        return Finding(name, True, derivative, f"the gradient is {derivative}", tuple(causes))
    if not _any_nonzero(gradient):
        causes = [
            _flat_cause(
                v.node,
                None,
                _get(v.outgoing, k),
                _array(next(g for g in v.incoming if _any_nonzero(g))),
            )
            for v, k in passed.deaths(target)
        ]
        causes = causes or [
            _cancelled(key, passed, _line_of) for key in passed.cancellations(target)
        ]
        return Finding(name, True, *_zero(gradient, "gradient"), tuple(_unique(causes)))
    return Finding(name, True, "nonzero", "a plain number, not zero")


def _forward_of(passed: _Pass, loss: Any) -> list[Cause]:
    """The first node whose output is known to be NaN or infinite, and no operand: by what nodes have saved."""
    if not _any_bad(loss):
        return []
    outputs: dict[Any, Any] = {autograd.graph.get_gradient_edge(loss).node: loss}
    for node in passed.visits:
        for (target, nr), value in zip(_edges(node), _saved(node), strict=False):
            if target is not None and not nr and value is not None:
                outputs.setdefault(target, value)
        outputs.setdefault(node, getattr(node, "_saved_result", None))
    for node in reversed(passed.visits):
        if _any_bad(outputs.get(node)):
            if _is_leaf(node):
                return [Cause("nan", "a leaf has NaN or infinity in it")]
            mask = _bad(outputs[node])
            assert mask is not None
            at = _first(mask)
            value = _number(_array(outputs[node])[at])  # type: ignore[index]
            text = f"{_name_of(node)} gives {value}, forwards, of {_operands(_saved(node), mask.shape, at)}"
            if not _saved(node):  # it may have had it from its operands
                text = f"the result of {_name_of(node)} is {value}, the first value known that is not finite"
            return [_at_place("nan", text, _line_of(node), _name_of(node))]
    return []


def _saved(node: Any) -> list[Any]:
    """The operands of a node, as far as it has saved them; None for others."""
    if node is None or _is_leaf(node):
        return []
    found = []
    for k in range(len(_edges(node))):
        try:
            found.append(getattr(node, f"_saved_{k}", None))
        except errors.FadError:  # hooks of saved values may refuse
            found.append(None)
    return found if any(v is not None for v in found) else []


def _name_of(node: Any) -> str:
    """``sin`` for a SinBackward."""
    name = node.name()
    if name == "CopySlices" or hasattr(node, "needs_input_grad"):
        return str(name.removesuffix("Backward"))
    return _plain_name(
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Backward")).lower()
    )


def _line_of(node: Any) -> tuple[str, int] | None:
    """Where a node was recorded, if anomaly mode was on."""
    if node is None:
        return None
    for frame in reversed(node.metadata.get("traceback_", ())):
        found = re.match(r'\s*File "(.+)", line (\d+)', frame)
        if found and not found[1].startswith(_LIBRARIES):
            return found[1], int(found[2])
    return None


def _graph_boxes(
    passed: _Pass, named: Sequence[tuple[str, Any]], findings: Sequence[Finding]
) -> list[_Box]:
    """The graph, inputs first; nodes that give zero or NaN to what is asked for are red."""
    names = {}
    for (name, x), finding in zip(named, findings, strict=True):
        if x.requires_grad:
            names[autograd.graph.get_gradient_edge(x).node] = [name, finding.text]
    bad = {(c.line, c.operation) for f in findings for c in f.causes}
    order = list(reversed(passed.visits))[-_SMALL:]
    numbers = {node: k for k, node in enumerate(order)}
    boxes = []
    for node in order:
        name = _name_of(node)
        cut = (_at_place("", "", _line_of(node)).line, name) in bad
        given = any(map(_any_nonzero, passed.visits[node].incoming))
        state = "input" if node in names else "cut" if cut else "alive" if given else "dead"
        operands = [numbers[t] for t, _ in _edges(node) if t in numbers]
        boxes.append(_Box(names.get(node, ["leaf" if _is_leaf(node) else name]), state, operands))
    return [*boxes, _Box(["loss"], "result", [len(boxes) - 1] if boxes else [])]
