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

import dataclasses
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import jax
import numpy as np

from fad import autograd, errors, extend
from fad.viz.findings import (
    COMPARISONS,
    LIBRARIES,
    POSITIONS,
    SHAPES_ALONE,
    SMALL,
    Box,
    Cause,
    Finding,
    Node,
    Pass,
    PyTree,
    Value,
    Why,
    any_nan,
    any_nonzero,
    any_not_finite,
    at_place,
    born_backwards,
    edges_of,
    first_place,
    flat_cause,
    gives_zero,
    index_text,
    instead_of,
    is_inexact,
    is_leaf,
    line_of,
    lineage_of,
    listed,
    name_of,
    not_finite,
    number_text,
    numbers,
    operands_text,
    saved_operands,
    shown_name,
    unique,
    zero_causes,
    zero_text,
)

_DERIVATIVES = ("grad", "jvp", "dual", "linearize")  # kinds of levels
_MOST_STEPS = 5000  # of more, what happens to single elements is not looked for
_MAKING_CONSTANTS = ("stop_gradient", ".data", "detach", "fad.tensor(")
_CUTTING = {"detach": ("detach", "stop_gradient", ".data", "fad.tensor", "")}


@dataclasses.dataclass(eq=False)
class _Value:
    """A value that depends on inputs.

    ``below`` is it on the tape. ``needs`` and ``linked`` are sets of inputs, as bits: what it depends on, and
    what its graph leads to.
    """

    below: Value
    needs: int
    linked: int
    step: _NotedCall | None = None


@dataclasses.dataclass(eq=False)
class _NotedCall:
    """An operation that was run on a value that depends on an input.

    ``lineage`` is that of the operation. ``primals`` are its operands, without tangents and gradients.
    ``inside``: of a transform that differentiates.
    """

    lineage: tuple[str, ...]
    op: Value
    args: list[Value]
    primals: list[Value]
    values: list[_Value | None]
    place: tuple[str, int]
    recording: bool
    inside: bool
    outs: list[_Value] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return self.lineage[0]

    @property
    def is_derived(self) -> bool:
        return len(self.lineage) > 1


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
        self.steps: list[_NotedCall] = []
        self.calls: dict[tuple[object, ...], _NotedCall] = {}  # by name, and ids of operands
        self.reads: list[_Read] = []

    def process(self, op: Value, args: Sequence[Value]) -> Value:
        if op.expands:
            return op.expand(args)
        below = [a.value if self._owns(a) else a for a in args]
        out = extend.bind(op, below)
        self._note(op.lineage, op, below, out if type(out) is tuple else (out,))
        return extend.map_outputs(self.lift, out)

    def constant(self, t: Value, stop: Callable[[Value], Value]) -> Value:
        out = super().constant(t, stop)
        self._note(("detach",), None, [t.value], [out.value])
        return out

    def readable(self, t: Value, what: str = "") -> Value:
        value = self.note_of(t.value)
        if value is not None:
            self.reads.append(_Read(what or ".array", value.needs, _users_place()))
        return super().readable(t, what)

    def detach(self, x: Value) -> Value:
        return x

    def _owns(self, x: object) -> bool:
        return isinstance(x, extend.Tensor) and x.level is self

    def _note(
        self, lineage: tuple[str, ...], op: Value, args: list[Value], outs: Iterable[Value]
    ) -> None:
        values = [self.note_of(a) for a in args]
        if not any(values) or lineage[-1] in SHAPES_ALONE:
            return
        levels = extend.running_levels()
        inside = any(level.kind in _DERIVATIVES for level in levels[levels.index(self) + 1 :])
        primals = self._primals(lineage, args)
        step = _NotedCall(lineage, op, args, primals, values, _users_place(), _records(), inside)
        needs = functools.reduce(int.__or__, [v.needs for v in values if v is not None])
        for out in outs:
            linked = 0
            for _, v in _linked_operands(step, out):
                linked |= v.linked
            step.outs.append(self.noted(_Value(out, needs, linked, step)))
        self.steps.append(step)
        self.calls[lineage[0], *map(id, args)] = step

    def _primals(self, lineage: tuple[str, ...], args: list[Value]) -> list[Value]:
        """The operands of the operation of which this one is the derivative, or may be."""
        if len(lineage) == 1:
            return args
        counts = range(len(args) - 1, 0, -1)
        called = [n for n in counts if (lineage[1], *map(id, args[:n])) in self.calls]
        return args[: called[0]] if called else args[:-1]

    def noted(self, value: _Value) -> _Value:
        self.values[id(value.below)] = self.values[_state(value.below)] = value
        return value

    def note_of(self, below: Value) -> _Value | None:
        """What was noted of a value; a Tensor that was written to has another one of the same state."""
        if not isinstance(below, extend.Tensor):
            return None
        return self.values.get(id(below)) or self.values.get(_state(below))


def _state(below: Value) -> tuple[int, int]:
    """An array, and its place in the graph."""
    node = autograd.graph.get_gradient_edge(below).node if below.requires_grad else None
    return id(below.array), id(node)


def _linked_operands(step: _NotedCall, out: Value) -> Iterator[tuple[int, _Value]]:
    """The operands whose graph goes on through ``out``, with their places."""
    node = out.grad_fn if isinstance(out, extend.Tensor) and out.requires_grad else None
    if node is None or step.op is None:
        return
    edges = node.next_functions
    for k, v in enumerate(step.values):
        goes_on = len(edges) != len(step.args) or edges[k][0] is not None
        if v is not None and v.linked and goes_on:
            yield k, v


def _records() -> bool:
    return autograd.grad_mode.is_grad_enabled() and not autograd.is_inference_mode_enabled()


def _users_place() -> tuple[str, int]:
    """File and line of the innermost frame that is not fad's, JAX's or NumPy's."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(LIBRARIES) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def why(f: Callable[..., PyTree]) -> Callable[..., Why]:
    """Why the derivative of a function is None, zero or NaN: for each input the line, and the operands.

    The function is run once, operation by operation: what `fad.jit` or `checkpoint` would compile, and loops
    and branches of `fad.lax`, run as Python. Then a backward pass is made node by node. It takes the time of
    a debugger, not of a training step.

    Arguments:
        f: the function that is differentiated: not its gradient, but what `fad.grad` is called with. It may
            have transforms inside, and be one; its result is any pytree. Where that is not one real number,
            a weighted sum of its elements is differentiated.

    Returns:
        A function with f's arguments that returns a `fad.viz.Why`. Every floating array or number in the
        arguments is an input.

    Raises:
        ArgumentError: ``f`` is not a function, or an argument is traced or batched and has no value:
            call it outside of transforms.

    Source: it answers what PyTorch users ask of ``.grad is None``; nothing like it is in PyTorch or JAX.

    >>> import fad, fad.numpy as fnp
    >>> print(fad.why(lambda x: fnp.round(x) * 2.0)(0.7))
    <lambda>: the result is 2, float32[]
    x: the derivative is zero
      ...:1  ...  <- round is constant in pieces: its derivative is 0 everywhere (0.7)
    """
    if not callable(f):
        raise errors.ArgumentError(
            f"why: the first argument must be a function, got {errors.describe(f)}: write fad.why(f)(x). For "
            "a Tensor that has been computed there is fad.autograd.why(loss, x)"
        )

    @extend.restores_modes
    def explained(*args: Value, **kwargs: Value) -> Why:
        with autograd.compiled(False), autograd.enable_grad(), extend.uncompiled():
            return _Run(f, args, kwargs).report()

    return explained


class _Run:
    """One run of a function, and what is found in it."""

    def __init__(
        self, f: Callable[..., PyTree], args: tuple[PyTree, ...], kwargs: dict[str, PyTree]
    ) -> None:
        self.name = getattr(f, "__name__", type(f).__name__)
        paths, structure = jax.tree_util.tree_flatten_with_path(
            (args, kwargs), is_leaf=lambda x: isinstance(x, extend.Tensor)
        )
        names = _parameter_names(f, args)
        self.names: list[str] = []
        self.inputs: list[_Value] = []
        self.ends: list[Value] = []
        leaves = []
        with _WhyLevel() as self.level:
            for path, leaf in paths:
                if not is_inexact(leaf):
                    leaves.append(extend.enter(leaf))
                    continue
                array = numbers(leaf)
                if array is None:
                    raise errors.ArgumentError(
                        f"why: {_input_name(path, names)} has no value here, as it is traced or batched "
                        f"({errors.describe(leaf)}): call fad.why outside of transforms, with the "
                        "function that has them"
                    )
                below = extend.enter(jax.numpy.asarray(array, getattr(leaf, "dtype", None)))
                below = below.requires_grad_()
                bit = 1 << len(self.inputs)
                self.ends.append(autograd.graph.get_gradient_edge(below))
                self.inputs.append(self.level.noted(_Value(below, bit, bit)))
                self.names.append(_input_name(path, names))
                leaves.append(self.level.lift(below))
            args, kwargs = jax.tree_util.tree_unflatten(structure, leaves)
            try:
                result = f(*args, **kwargs)
            except errors.GradientError as error:
                if "backward()" in str(error) and self.level.kind in str(error):
                    raise errors.GradientError(
                        f"why: {self.name} calls backward(), which a function that is differentiated cannot: "
                        "give fad.why the loss as a function of the parameters, fad.why(loss)(params, "
                        "batch); or, where the loss is a Tensor, write fad.autograd.why(loss, params) before "
                        "loss.backward(), in a call without fad.jit"
                    ) from error
                raise
            self.results = [self._result(x) for x in _tensors(result)]
        self.result = result
        self.outs = [v for v in self.results if v is not None]
        self.needed = self._ancestors()
        self.passed = Pass(self._roots())
        self.by_node = {
            out.below.grad_fn: step
            for step in self.level.steps
            for out in step.outs
            if isinstance(out.below, extend.Tensor) and out.below.grad_fn is not None
        }

    def _result(self, x: Value) -> _Value | None:
        while isinstance(x, extend.Tensor) and x.level is not self.level and not x.level.alive:
            x = x.level.outlive(x)
        if not isinstance(x, extend.Tensor) or x.level is not self.level:
            return None
        return self.level.note_of(x.value)

    def _ancestors(self) -> set[_Value]:
        """The values that the result is computed from."""
        ancestors: set[_Value] = set()
        todo = list(self.outs)
        while todo:
            v = todo.pop()
            if v not in ancestors:
                ancestors.add(v)
                if v.step is not None:
                    todo += [a for a in v.step.values if a is not None]
        return ancestors

    def _roots(self) -> list[tuple[Node, int, Value]]:
        """Where the pass begins. Weights of elements differ, so that what cancels in a plain sum does not."""
        random = np.random.default_rng(0)
        roots = []
        for v in dict.fromkeys(self.outs):
            if v.linked and is_inexact(v.below):
                roots.append(_root(v.below, random, bool(v.below.shape) or len(self.outs) > 1))
        return roots

    def report(self) -> Why:
        findings = [self._finding(k) for k in range(len(self.inputs))]
        array = numbers(_tensors(self.result)[0]) if len(_tensors(self.result)) == 1 else None
        said = f"{len(self.results)} arrays"
        if array is not None:
            value = f"{number_text(array[()])}, " if array.ndim == 0 else ""
            said = f"{value}{array.dtype}{list(array.shape)}"
        if any(any_not_finite(v.below) for v in self.outs):
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
            causes = self._lost(bit) or [self._unused(k)]
            return Finding(
                name, False, "None", "None: no operation leads from it to the result", tuple(causes)
            )
        cuts = self._cuts(bit, self.needed)
        if not any(v.linked & bit for v in self.outs):
            text = "None: every way to the result is cut"
            return Finding(name, True, "None", text, tuple(cuts))
        gradient = self.passed.total(*target)
        bad = not_finite(gradient)
        if bad is not None and bad.any():
            return self._bad_finding(name, target, gradient, bad)
        forward = self._born_forwards()
        if not any_nonzero(gradient):
            zeros = zero_causes(self.passed, target, self.by_node)
            derivative, text = zero_text(gradient, "derivative")
            telling = [c for c in cuts if c.kind not in ("comparison", "integers", "flat")]
            causes = unique([*forward, *zeros, *telling]) or cuts
            return Finding(name, True, derivative, text, tuple(causes))
        causes = self._zero_elements(k, gradient)
        array = np.asarray(numbers(gradient))
        count = int(np.sum(array == 0)) if causes else 0
        text = "a plain number, not zero"
        if count:
            text = f"not zero, but for {count} of {array.size} elements"
        if not causes:
            causes = [c for c in cuts if c.kind in ("detach", "no_grad") and c.operation]
            text = "not zero; another way to the result is cut" if causes else text
        if forward:
            causes, text = [*forward, *causes], "not zero; but the result is not finite"
        return Finding(name, True, "nonzero", text, tuple(causes))

    # Where no graph leads

    def _cuts(self, bit: int, needed: Container[_Value]) -> list[Cause]:
        """Where an operation takes a value that the graph of an input leads to, and gives another one."""
        causes: list[Cause] = []
        constants: list[Cause] = []  # derivatives that do not depend on where they are taken
        for step in self.level.steps:
            outs = [out for out in step.outs if out in needed]
            for out in outs:
                going_on = {k for k, _ in _linked_operands(step, out.below)}
                if any(
                    v is not None and v.linked & bit and k not in going_on
                    for k, v in enumerate(step.values)
                ):
                    constant = step.is_derived and step.recording and not gives_zero(step)
                    (constants if constant else causes).append(self._cut(step, out))
        telling = [c for c in causes if c.kind not in ("comparison", "integers")]
        if telling and not any(any_nonzero(v.below) for v in self.outs):
            constants = []
        return unique([*telling, *constants, *causes])

    def _lost(self, bit: int) -> list[Cause]:
        """Why no operation leads to the result: by Python, or where a derivative inside of it is cut."""
        reads = self._reads(bit)
        if any(c.operation != "bool()" for c in reads):
            return reads
        inside = {o for step in self.level.steps if step.inside for o in step.outs if o.needs & bit}
        cuts = [c for c in self._cuts(bit, inside) if ", a part of" not in c.text]
        telling = [c for c in cuts if c.kind not in ("comparison", "integers")]
        return telling or reads or cuts

    def _cut(self, step: _NotedCall, out: _Value) -> Cause:
        name = step.name
        if step.op is None:
            source = linecache.getline(*step.place)
            name = next((w for w in _MAKING_CONSTANTS if w in source), "").rstrip("(")
            what = f"{name}: a constant" if name else "what is called here makes it a constant,"
            kind, text = "detach", f"{what} from here on"
        elif name in COMPARISONS:
            kind, text = "comparison", f"{name} compares: no derivative goes through it"
        elif name in POSITIONS:
            kind, text = (
                "integers",
                f"{name} gives positions, which are integers: no derivative goes through it",
            )
        elif not is_inexact(out.below):
            dtype = getattr(out.below, "dtype", "")
            cast = "a cast" if "astype" in name or "convert" in name else name
            kind, text = "integers", f"{cast} to {dtype}, which has no derivative"
        elif step.recording and gives_zero(step):
            return flat_cause(None, step, (), np.asarray(numbers(out.below)) == 0)
        elif step.recording and step.is_derived:
            kind, text = "flat", f"{name}, a part of a derivative, does not change with it"
        elif not step.recording:
            name = step.lineage[-1]
            kind, text = "no_grad", f"{name} under no_grad or inference_mode is not recorded"
        else:
            kind, text = (
                "rule",
                f"{name} gives no derivative for it (stop_gradient inside, or marked so)",
            )
        return at_place(kind, text, step.place, name)

    def _reads(self, bit: int) -> list[Cause]:
        reads = [r for r in self.level.reads if r.needs & bit]
        by_value = [r for r in reads if r.what != "bool()"]
        return unique(
            at_place(
                "read",
                f"{r.what} makes a number of Python: what is computed with it is a constant"
                if r.what != "bool()"
                else "it only chooses a branch, by bool()",
                r.place,
                r.what,
            )
            for r in by_value or reads
        )

    def _unused(self, k: int) -> Cause:
        bit = 1 << k
        last = [step for step in self.level.steps if any(o.needs & bit for o in step.outs)]
        if not last:
            return Cause("unused", "no operation uses it")
        text = f"{last[-1].name} is the last operation that depends on it; the result is not made of that"
        return at_place("unused", text, last[-1].place, last[-1].name)

    # Where a gradient becomes zero

    def _zero_elements(self, k: int, gradient: Value) -> list[Cause]:
        """Why the first element whose derivative is zero has none, by pushing its tangent forwards."""
        array = numbers(gradient)
        steps = self.level.steps
        if array is None or array.all() or len(steps) > _MOST_STEPS:
            return []
        at = first_place(array == 0)
        tangent = np.zeros(array.shape, array.dtype)
        tangent[at] = 1
        tangents: dict[_Value, Value] = {self.inputs[k]: jax.numpy.asarray(tangent)}
        died: list[tuple[_NotedCall, int]] = []
        for step in steps:
            incoming = [tangents.get(v) if v is not None else None for v in step.values]
            if all(t is None for t in incoming) or not any(o in self.needed for o in step.outs):
                continue
            outgoing = self._pushed(step, incoming)
            alive = False
            for out, t in zip(step.outs, outgoing, strict=False):
                if t is not None and any_nonzero(t):
                    tangents[out] = t
                    alive = alive or out in self.needed
            if not alive:
                died.append((step, next(i for i, t in enumerate(incoming) if t is not None)))
        if not died or any(out in tangents for out in self.outs):
            return []
        step, operand = next((d for d in died if d[0].outs[0].linked), died[0])
        if step.op is None or not any(o.linked for o in step.outs):
            cause = self._cut(step, step.outs[0])
        else:
            cause = flat_cause(None, step, (), numbers(tangents[step.values[operand]]))  # type: ignore[index]
        return [
            dataclasses.replace(
                cause, text=f"element {index_text(at)}: {cause.text}" if at else cause.text
            )
        ]

    def _pushed(self, step: _NotedCall, tangents: list[Value]) -> list[Value]:
        """The tangents of the outputs of a step."""
        if step.op is None or not any(o.linked for o in step.outs):
            return [None] * len(step.outs)
        primals = [a.array if isinstance(a, extend.Tensor) else a for a in step.args]
        _, pushed = step.op.jvp(primals, tangents)
        return list(pushed) if isinstance(pushed, (tuple, list)) else [pushed]

    # Where a NaN is born

    def _born_forwards(self) -> list[Cause]:
        """The operation that made the NaN or infinity in the result from finite operands.

        An infinity that was put in, as a mask is, is not looked for: what makes a NaN of it is.
        """
        v = next((v for v in self.outs if any_not_finite(v.below)), None)
        while v is not None and v.step is not None:
            bad = [a for a in v.step.values if a is not None and any_not_finite(a.below)]
            origin = next((a for a in bad if any_nan(a.below)), None)
            made = any_nan(v.below)
            origin = origin or next((a for a in bad if not (made and self._was_put_in(a))), None)
            if origin is None:
                break
            v = origin
        if v is None:
            return []
        if v.step is None:
            return [Cause("nan", "the input has NaN or infinity in it")]
        mask = not_finite(v.below)
        assert mask is not None
        at = first_place(mask)
        value = numbers(v.below)[at]  # type: ignore[index]
        operands = operands_text(v.step.args, mask.shape, at)
        text = f"{shown_name(v.step.lineage)} gives {number_text(value)}, forwards, of {operands}"
        pairs = enumerate(zip(v.step.args, v.step.values, strict=True))
        constant = [k for k, (a, noted) in pairs if noted is None and any_nan(a)]
        if constant:
            text += f": operand {constant[0]}, a constant, has a NaN already"
        else:
            text += instead_of(v.step.lineage)
        return [at_place("nan", text, v.step.place, v.step.name)]

    def _was_put_in(self, v: _Value) -> bool:
        """Whether a constant operand brought the infinity of a value that has no NaN."""
        todo, seen = [v], {v}
        while todo:
            v = todo.pop()
            if v.step is None:
                return False
            pairs = zip(v.step.args, v.step.values, strict=True)
            bad = [(a, noted) for a, noted in pairs if any_not_finite(a)]
            if not bad:
                return False
            more = {noted for _, noted in bad if noted is not None} - seen
            seen |= more
            todo += more
        return True

    def _bad_finding(
        self, name: str, target: tuple[Node, int], gradient: Value, bad: Value
    ) -> Finding:
        derivative = "NaN" if any_nan(gradient) else "infinite"
        count = f" at {int(bad.sum())} of {bad.size} elements" if bad.ndim else ""
        causes = self._born_forwards() + born_backwards(self.passed, target, self.by_node)
        causes = causes or [Cause("nan", "finite gradients add up to infinity")]
        return Finding(
            name, True, derivative, f"the derivative is {derivative}{count}", tuple(causes)
        )

    # The picture

    def _boxes(self, findings: Sequence[Finding]) -> list[Box]:
        steps = [s for s in self.level.steps if any(o in self.needed for o in s.outs)]
        steps = steps[-SMALL:]
        bad = {(c.line, c.operation) for f in findings for c in f.causes if c.line}
        places: dict[_Value, int] = {}
        boxes = []
        for k, (name, v) in enumerate(zip(self.names, self.inputs, strict=True)):
            places[v] = k
            boxes.append(Box([name, findings[k].text], "input", []))
        for step in steps:
            cause = at_place("", "", step.place)
            cut = any((cause.line, n) in bad for n in (step.name, *_CUTTING.get(step.name, ())))
            state = "cut" if cut else "alive" if any(o.linked for o in step.outs) else "dead"
            operands = [places[v] for v in step.values if v in places]
            for out in step.outs:
                places[out] = len(boxes)
            boxes.append(Box([step.name, f"{cause.line}  {cause.source}"], state, operands))
        ends = [places[v] for v in dict.fromkeys(self.outs) if v in places]
        return [*boxes, Box(["result"], "result", ends)]


def _root(x: Value, random: np.random.Generator, several: bool) -> tuple[Node, int, Value]:
    """Where a pass begins: at a Tensor, with the gradient 1, or weights where there are several elements."""
    weights = random.uniform(0.5, 1.5, x.shape) if several else 1.0
    edge = autograd.graph.get_gradient_edge(x)
    return edge.node, edge.output_nr, extend.enter(jax.numpy.asarray(weights, x.dtype))


def _tensors(tree: PyTree) -> list[Value]:
    return jax.tree_util.tree_leaves(tree, is_leaf=lambda x: isinstance(x, extend.Tensor))


def _parameter_names(f: Callable[..., PyTree], args: tuple[PyTree, ...]) -> list[str]:
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


def _input_name(path: Sequence[Value], names: Sequence[str]) -> str:
    """``w['bias']`` for a leaf of ``(args, kwargs)``."""
    first, key, *rest = path
    start = names[key.idx] if first.idx == 0 else str(key.key)
    return start + jax.tree_util.keystr(tuple(rest))


# What a graph that is there tells of a gradient.


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
    form = f"{loss.dtype}{list(loss.shape)}"
    if not loss.requires_grad:
        text = (
            "loss has no graph (requires_grad is False): everything that it is computed from was detached, "
            "was computed under no_grad, or has no requires_grad"
        )
        cause = Cause("leaf", text)
        none = [Finding(n, False, "None", "None: loss has no graph", (cause,)) for n, _ in named]
        return Why(f"loss: {form}, no graph", none, _FOR_LINES)
    try:
        passed = Pass([_root(loss, np.random.default_rng(0), bool(loss.shape))])
    except errors.GradientError as error:
        raise errors.GradientError(
            "autograd.why: the graph of loss has been freed by a backward pass: call it before "
            "loss.backward(), or write loss.backward(retain_graph=True)"
        ) from error
    findings = [_graph_finding(passed, loss, name, x) for name, x in named]
    count = sum(not is_leaf(node) for node in passed.visits)
    lines_known = all(c.line for f in findings for c in f.causes)
    title = f"loss: {form}, {count} node{'s' * (count != 1)}"
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
        causes = _forward_of(passed, loss) + born_backwards(passed, target, {})
        return Finding(name, True, derivative, f"the gradient is {derivative}", tuple(causes))
    if not any_nonzero(gradient):
        causes = zero_causes(passed, target, {})
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
        passed_on = any(target in put_in for target, _ in edges_of(node))
        if any_nan(outputs[node]) or not (passed_on or _may_put_in(node)):
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
    text = f"{name_of(node)} gives {value}, forwards, of {operands}{instead_of(lineage_of(node))}"
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
        alive = any(map(any_nonzero, passed.visits[node].incoming))
        state = "input" if node in names else "cut" if cut else "alive" if alive else "dead"
        operands = [places[t] for t, _ in edges_of(node) if t in places]
        boxes.append(Box(names.get(node, ["leaf" if is_leaf(node) else name]), state, operands))
    return [*boxes, Box(["loss"], "result", [len(boxes) - 1] if boxes else [])]
