"""Rules: what a Function class defines; how a call is evaluated and differentiated; missing ones derived."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.caches import Table
from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.jaxapi import refer_weakly
from fad.core.jaxprs import select, spread
from fad.core.level import (
    Event,
    batch_dim,
    layers,
    map_tensors,
    outlived,
    restores_modes,
    state,
)
from fad.core.tensor import Tensor, bottom, new_tensor
from fad.core.trees import Rest
from fad.core.types import Aval, Dims, MaybeValue, Operand, Operation, Outputs, PyTree, Value
from fad.errors import RuleError
from fad.functions.context import Context, Template, VmapInfo
from fad.tape.engine import pull_back
from fad.tape.graph import node_of, running
from fad.tape.recorder import ROOT, GradLevel, JvpLevel
from fad.tape.saved import allow_mutation_on_saved_tensors

if TYPE_CHECKING:
    from fad.functions.calls import FunctionNode
    from fad.functions.user_rules import UserRules

# What a Function class defines: which rules there are, and how the arguments of a call are bound.

RULES = ("forward", "setup_context", "vjp", "backward", "jvp", "jet", "vmap", "sparsity")
SETTINGS = ("generate_vmap_rule", "jax_rules", "is_traceable")


class FunctionClass(Protocol):
    """What the rest of the room reads of a Function class: its settings, and what is kept on it.

    Rules are read by their names, since each may be missing, or be one of two names.

    ``_plans``: the compiled bodies of a class with ``jax_rules``. ``_backward_cls``: the class of the nodes
    that record its calls.
    """

    __name__: str
    __dict__: dict[str, Any]
    __mro__: tuple[type, ...]
    generate_vmap_rule: bool
    jax_rules: bool
    is_traceable: bool
    forward: Callable[..., PyTree]
    setup_context: Callable[..., object]
    vmap: Callable[..., PyTree]
    sparsity: Callable[..., PyTree]
    _plans: Table
    _backward_cls: type[FunctionNode]


def defines(cls: FunctionClass | type, name: str) -> bool:
    """Whether a Function class or one of its bases, below Function itself, defines ``name``."""
    return _depth(cls, name) is not None


def _depth(cls: FunctionClass | type, name: str) -> int | None:
    """How far up the bases of ``cls`` a rule is defined; None if nowhere, or taken back by None."""
    for depth, base in enumerate(cls.__mro__):
        if base.__dict__.get("_is_root"):
            return None
        if name in base.__dict__:
            return None if base.__dict__[name] is None else depth
    return None


def has_rules(cls: FunctionClass | type) -> bool:
    """Whether a Function class has a rule for its derivatives or for vmap."""
    return any(defines(cls, rule) for rule in ("vjp", "backward", "jvp", "jet", "vmap"))


ALMOST = 0.8  # the similarity, by difflib: that of "bakcward" and "backward" is 0.88


def checked_signature(cls: FunctionClass) -> Signature | None:
    """The `Signature` of a class, None if it has no forward.

    Raises:
        RuleError: a rule is malformed, or a name is spelt almost like that of a rule, so that it would never
            be called.
    """
    name, members, valid = cls.__name__, cls.__dict__, (*RULES, *SETTINGS)
    for member in members:
        close = difflib.get_close_matches(member, valid, n=1, cutoff=ALMOST)
        if close and member not in valid and not member.startswith("_"):
            raise RuleError(
                f"{name}.{member} is never called: it is spelt almost like the rule "
                f"{close[0]}. Did you mean {close[0]}? A helper may have that name with an underscore "
                f"before it: _{member}"
            )
    for rule in RULES:
        if members.get(rule) is not None and not isinstance(
            members[rule], (staticmethod, classmethod)
        ):
            raise RuleError(f"{name}.{rule} must be a static method: write @staticmethod above it")
    if members.get("vjp") is not None and members.get("backward") is not None:
        raise RuleError(
            f"{name} defines both vjp and backward, which are two names of one rule: keep one"
        )
    if members.get("generate_vmap_rule") and defines(cls, "vmap"):
        raise RuleError(f"{name} defines vmap and sets generate_vmap_rule = True: keep one of them")
    if not defines(cls, "forward"):
        return None
    first = list(inspect.signature(cls.forward).parameters)[:3]
    if first[:1] == ["self"] and "ctx" in first[1:2]:
        raise RuleError(
            f"{name}.forward has self: it is a static method, without self: "
            f"forward({', '.join(first[1:])})"
        )
    signature = Signature(cls)
    if signature.has_setup and first[:1] == ["ctx"]:
        raise RuleError(
            f"{name}.forward takes ctx, and there is a setup_context too: with setup_context, "
            "forward takes the inputs alone; without it, forward(ctx, ...)"
        )
    names, count = signature.names, len(signature.names)
    listed = ", ".join(names)
    tangents, series = ", ".join([n + "_t" for n in names]), ", ".join([n + "_s" for n in names])
    fixed = not signature.variadic
    # The rule, whether it is to be checked, how many arguments it is called with, and how it is written.
    for rule, is_there, expected, form in (
        ("setup_context", signature.has_setup, 3, "(ctx, inputs, output)"),
        (signature.vjp, bool(signature.vjp), 2, "(ctx, g)"),
        ("jvp", signature.jvp and fixed, count + 1, f"(ctx, {tangents})"),
        ("jet", signature.jet and fixed, count + 1, f"(ctx, {series})"),
        ("sparsity", signature.sparsity and signature.plain == count, count, f"({listed})"),
        (
            "vmap",
            signature.vmap and fixed,
            count + 2 - len(signature.vmap_keywords),
            f"(info, in_dims, {listed})",
        ),
    ):
        if is_there:
            or_more = rule == signature.vjp
            least, most = arity(getattr(cls, rule))
            if most < expected or (least > expected and not or_more):
                written = ", ".join(inspect.signature(getattr(cls, rule)).parameters)
                raise RuleError(
                    f"{name}.{rule}({written}) takes {least if least > expected else most} positional "
                    f"parameters, expected {expected}{' or more' if or_more else ''}: {rule}{form}"
                )
    return signature


class Signature:
    """What the class says about its calls: how arguments are bound, and which rules there are.

    ``names`` are forward's parameters, without ctx. ``combined``: forward takes ctx. ``plain``: the
    number of parameters if all are positional, else -1. ``vjp``: the name under which there is a
    vjp rule, "" for none; ``jvp``, ``jet``, ``vmap`` and
    ``sparsity``: whether there is one. ``is_fast``: calls may take
    the fast path (`fad.functions.calls`); ``fast_rules``: the rules of such calls, once there was one.
    ``asked``: see `fad.tape.vmap.bind_among_lanes`.
    """

    def __init__(self, cls: FunctionClass) -> None:
        self.has_setup = defines(cls, "setup_context")
        depths = {name: _depth(cls, name) for name in ("vjp", "backward")}
        defined = {name: d for name, d in depths.items() if d is not None}
        self.vjp = min(defined, key=lambda name: defined[name]) if defined else ""
        self.vjp_arity = arity(getattr(cls, self.vjp)) if self.vjp else (0, 0)
        self.jvp, self.jet = defines(cls, "jvp"), defines(cls, "jet")
        self.vmap, self.sparsity = defines(cls, "vmap"), defines(cls, "sparsity")
        self.vmap_keywords = frozenset[str]()
        if self.vmap:
            rule = inspect.signature(cls.vmap).parameters.values()
            self.vmap_keywords = frozenset([p.name for p in rule if p.kind is p.KEYWORD_ONLY])
        full = inspect.signature(cls.forward)
        parameters = list(full.parameters.values())
        self.combined = not self.has_setup and self._takes_context(cls, parameters)
        if self.combined:
            parameters = parameters[1:]
        self.signature = full.replace(parameters=parameters)
        self.names = [p.name for p in parameters]
        self.variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        positional = sum(p.kind in _POSITIONAL for p in parameters)
        self.plain = len(parameters) if positional == len(parameters) else -1
        self.is_fast = bool(self.vjp) and (self.has_setup or self.combined)
        self.fast_rules: UserRules | None = None
        self.asked: set[Hashable] = set()

    def _takes_context(self, cls: FunctionClass, parameters: list[inspect.Parameter]) -> bool:
        """Whether the first of forward's parameters is the context.

        By its name, which may be that of the context in another rule; or because the body uses what
        only a Context has.
        """
        if not parameters or parameters[0].kind not in _POSITIONAL:
            return False
        names = {"ctx", "context", "_ctx", "_", "self"}
        for rule in (self.vjp, "jvp", "jet"):
            if rule and defines(cls, rule):
                names.add(next(iter(inspect.signature(getattr(cls, rule)).parameters), ""))
        if parameters[0].name in names:
            return True
        code = getattr(inspect.unwrap(cls.forward), "__code__", None)
        return code is not None and not _OF_CONTEXT.isdisjoint(code.co_names)

    def bind(
        self, who: str, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], tuple[str, ...]]:
        """All arguments in order, defaults filled in, and the names of the keyword-only ones."""
        if not kwargs and len(args) == self.plain:
            return args, ()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            hint = ""
            if len(args) + 1 == self.plain and not self.combined and not self.has_setup:
                hint = f". If {self.names[0]!r} is the context, call it ctx"
            raise TypeError(f"{who}.apply{self.signature}: {error}{hint}") from None
        bound.apply_defaults()
        return (*bound.args, *bound.kwargs.values()), tuple(bound.kwargs)

    def argument_names(self, inputs: Rest, keywords: tuple[str, ...]) -> list[str]:
        """A name for each bound argument."""
        if not self.variadic:
            return self.names
        count = len(inputs.structure.children()) - len(keywords)
        names: list[str] = []
        for p in self.signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}[{i}]" for i in range(count - len(names))]
            elif p.kind is p.VAR_KEYWORD:
                names += [k for k in keywords if k not in names]
            else:
                names.append(p.name)
        return names


_OF_CONTEXT = frozenset([name for name in vars(Context) if not name.startswith("_")])
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arity(f: Callable[..., object]) -> tuple[int, float]:
    """The smallest and the largest number of positional arguments that ``f`` takes."""
    parameters = inspect.signature(f).parameters.values()
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    least = sum(p.default is p.empty for p in positional)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return least, float("inf")
    return least, len(positional)


# Rules: how one call of a custom operation is evaluated and differentiated; missing ones derived.
#
# NOTE [rules are closed]
#
#     F = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0 * g)  # not the derivative of the body
#     assert fad.grad(lambda v: fad.vmap(F.apply)(v).sum())(array)[0] == 7.0
#     assert fad.jvp(fad.vmap(F.apply), (array,), (array,))[1][0] == 7.0 * array[0]
#     assert jax.vmap(jax.grad(F.apply))(array)[0] == 7.0
#
# A `CallRules` says how one call is evaluated, pushed forward and pulled back. What a user wrote
# (`UserRules`, `JaxRules`) is one kind; the others (`fad.functions.derived_rules`) are made from it and are
# CallRules again:
#
# * `BatchedRules`, the call under vmap: the user's vmap rule, or the body run on batched values; it
#   pulls back by the user's vjp, batched.
# * `DerivativeRules`, the derivative of the call as a function of (inputs, outputs, directions). With
#   tangents it evaluates as the user's jvp, and in the tangents it transposes as the user's vjp; with
#   derivatives along a curve it evaluates as the user's jet. In everything else it is differentiated like
#   any body.
#
# So every order of grad, jvp and vmap reaches the user's rules, under fad's levels and under native
# JAX alike, which bind the same objects. All methods work on flat lists of values of any level.
#
# NOTE [missing rules]
#
#     F = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0 * g)
#     G = function(forward=lambda x: x * 2.0, jvp=lambda ctx, t: 7.0 * t)
#     assert fad.jvp(F.apply, (1.0,), (1.0,))[1] == fad.grad(G.apply)(1.0) == 7.0
#     H = function(forward=lambda x: x * 2.0, vjp=lambda ctx, g: 7.0 * fad.stop_gradient(g))
#     fad.jvp(H.apply, (1.0,), (1.0,))  # raises GradientError
#
# A rule that the user did not write is derived from those that are there: jvp from vjp by
# transposing twice (the pullback is linear in the cotangent, at which it is differentiated does not
# matter), vjp from jvp by transposing, both from the forward body by differentiating it. A jet rule of
# order 1 is a jvp rule. How rules are transposed is in `fad.functions.derived_rules`.

Values: TypeAlias = Sequence[
    Any
]  # inputs or outputs of a call, of any level; None: no rule reads it
Needs: TypeAlias = Sequence[bool] | None  # of which inputs a gradient may be wanted
Grads: TypeAlias = list[MaybeValue]
# For each input or output its tangent; or with an order, a list of its derivatives along a curve.
Directions: TypeAlias = Sequence[Any]
Pushed: TypeAlias = list[Any]  # those of outputs


@dataclasses.dataclass(slots=True)
class Saved:
    """What one call saves for its rules.

    ``values`` and ``outs`` are its inputs and outputs, at the level where a rule is to run; None
    where no rule reads them. ``extras`` are other arrays that setup kept, and ``notes`` is the rest
    of what it kept, in a form that is private to the rules.
    ``closed``: only inputs, outputs and values without a derivative were kept, so that the same notes are
    valid at any level of the call.
    ``plain``: the call gave one array with a derivative, without marks, and this is what its vjp reads.
    ``args``: on the tape, the Tensors that ``values`` are the values of, for their places in the graph.
    """

    values: Values
    outs: Values
    template: Template
    in_avals: Sequence[Aval]
    out_avals: Sequence[Aval]
    notes: Any = None
    extras: Values = ()
    closed: bool = True
    args: Values = ()
    plain: bool = False

    def at(self, values: Values, outs: Values, extras: Values) -> Saved:
        """The same for the call at another level."""
        avals = self.in_avals, self.out_avals
        return Saved(values, outs, self.template, *avals, self.notes, extras, self.closed)


# What `CallRules.run` gives: outputs, their structure, and what was saved for the rules, if it was.
Outcome: TypeAlias = tuple[list[Any], Template, Saved | None]


def avals_of(values: Values) -> list[Any]:
    """The avals of ``values``, None for None."""
    return [None if v is None else aval_of(v) for v in values]


class CallRules:
    """How one call is evaluated and differentiated; see NOTE [rules are closed].

    ``values`` are the call's array inputs. Tangents and cotangents of None are zero.
    """

    def __init_subclass__(cls) -> None:
        refer_weakly(
            cls
        )  # they refer to the Function, which may be a class that is made anew in each step

    name: str
    separates_outputs = False  # for hooks, each output is that of a node of its own
    is_direct = False  # `forward` may be differentiated in all of its values, in place of the call
    is_replaced = (
        False  # the body has calls with rules: NOTE [calls with rules] in `fad.core.primitive`
    )
    solved = 0  # so many first inputs are functions of the others, in which alone the call is differentiated

    # The Function class whose call this is, batched or not; None for another operation.
    function: FunctionClass | None = None
    # Whether there is a rule of the user's for `jet`; if not, it is derived from the tangents.
    has_jet = False
    # Whether all derivatives are those of the body, as the user wrote no rule for them.
    are_of_the_body = False
    # Calls whose programs are equal have equal derivatives, if this is equal too; None: unknown.
    likeness: Hashable = None

    @property
    def lineage(self) -> tuple[str, ...]:
        """See `Operation`."""
        return (self.name,)

    @property
    def has_transpose(self) -> bool:
        """Whether its pullback, where it is linear in inputs, is by a rule that is not derived."""
        return not self.are_of_the_body

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        """Evaluate: the array outputs, and the structure around them."""
        raise NotImplementedError

    def run(self, values: Values, needs: Needs = None) -> Outcome:
        """`forward` and, where it costs little to have both, `setup`."""
        return (*self.forward(values), None)

    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        """What the rules need, from inputs and outputs: these, unless they say otherwise.

        ``needs`` says of which inputs a gradient may be wanted; None is all that can have one.
        """
        return Saved(values, outs, template, avals_of(values), avals_of(outs))

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        """``saved`` for the call with these inputs and outputs, without what `pullback` does not read."""
        return saved.at(values, [None] * len(outs), saved.extras)

    def saved_for_backward(self, saved: Saved) -> Sequence[object] | None:
        """What the call saved by ``ctx.save_for_backward``, a `Ref` for each array; None: unknown."""
        return None

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        """Gradients of the inputs (those that ``need`` says; others may be None)."""
        raise NotImplementedError

    def context(self, saved: Saved, need: Sequence[bool]) -> Context:
        """The ctx that a vjp rule of the user's reads.

        Raises:
            AttributeError: no rule of the user's reads one.
        """
        raise AttributeError(f"{self.name}: this call has no ctx to show")

    def pushforward(self, saved: Saved, directions: Directions, order: int | None = None) -> Pushed:
        """Directions of the outputs, from those of the inputs; None is zero.

        Arguments:
            directions: the tangent of each input; with an order, a list of its derivatives along a curve, of
                which some may be None.
            order: how many derivatives there are. Only for rules that `has_jet`.
        """
        raise NotImplementedError

    def batch(
        self, values: Values, dims: Dims, info: VmapInfo
    ) -> tuple[list[Value], Template] | None:
        """Outputs batched along dimension 0, by a vmap rule of the user's; None if there is none."""
        return None

    def bodies(self) -> list[Callable[..., object]]:
        """The user's code that the rules run, for messages."""
        return []


def of_base(name: str) -> Any:
    """An attribute or method of rules that is that of their ``base``."""
    return property(operator.attrgetter(f"base.{name}"))


@dataclasses.dataclass(frozen=True, slots=True)
class SameCallRules(CallRules):
    """Rules for the same call as those of ``base``, in another form."""

    base: CallRules

    name = of_base("name")
    lineage = of_base("lineage")
    separates_outputs = of_base("separates_outputs")
    function = of_base("function")
    has_jet = of_base("has_jet")
    is_replaced = of_base("is_replaced")


def origin(rules: CallRules) -> CallRules:
    """The rules of the call that these are made from."""
    while hasattr(rules, "base"):
        rules = rules.base
    return rules


# What bodies must not do: close over tracked values, or read numbers where there are none.


class noting_leaves:
    """A block around a body; gives the Tensors on which ``requires_grad_`` was called in it."""

    __slots__ = ("before",)

    def __enter__(self) -> list[Tensor]:
        self.before = running.leaves
        leaves: list[Tensor] = []
        running.leaves = leaves
        return leaves

    def __exit__(self, *exc: object) -> None:
        running.leaves = self.before


def without_leaves(x: MaybeValue, leaves: Sequence[Tensor]) -> MaybeValue:
    """What a body returned, without a history that begins in leaves that it made itself."""
    if not leaves or not isinstance(x, Tensor) or x.level is not ROOT or not x.requires_grad:
        return x
    made = set(map(id, leaves))
    return new_tensor(x.value, ROOT) if all(id(t) in made for t in leaves_of(x)) else x


def leaves_of(x: Tensor) -> Iterator[Tensor]:
    """The leaves of the graph that ``x`` is computed from."""
    node = node_of(x)
    if node is None:
        yield x
        return
    todo = [node]
    seen = {node}
    while todo:
        node = todo.pop()
        if node._leaf is not None:
            yield node._leaf
        nexts = {edge[0] for edge in node.edges if edge is not None} - seen
        seen |= nexts
        todo.extend(nexts)


def checked_arrays(rules: CallRules, outs: Values, leaves: Sequence[Tensor] = ()) -> list[Any]:
    """Outputs of a body that ran on bare arrays, as bare arrays, or as deferred values.

    ``leaves`` are those that it made itself, see `noting_leaves`.

    Raises:
        RuleError: one of them is part of a running transform or graph: the body closed over it.
    """
    result: list[Any] = []
    for o in outs:
        if type(o) is Tensor and o.meta is None and o._level is ROOT and not o._requires_grad:
            result.append(o._value)  # most of them
            continue
        o = outlived(without_leaves(o, leaves))
        if isinstance(o, Tensor):
            if is_tracked(o):
                raise closure_error(rules, o, is_tracked)
            o = o.value
        result.append(o)
    return result


def bare_arrays(tree: PyTree) -> PyTree:
    """What a body of JAX returned, with Tensors that it made itself as arrays; others stay what they are."""

    def bare(x: PyTree) -> PyTree:
        untracked = isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad
        return x.value if untracked else x

    return trees.map_leaves(bare, tree)


def is_tracked(x: object) -> bool:
    """Whether ``x`` belongs to a running fad transform or to the eager graph."""
    x = outlived(x)
    return isinstance(x, Tensor) and (x.level is not ROOT or x.requires_grad)


def is_tracer(x: object) -> bool:
    """Whether a JAX transform traces ``x``."""
    return isinstance(bottom(x), jax.core.Tracer)


def closure_error(rules: CallRules, reached: object, blamed: Callable[[object], bool]) -> RuleError:
    """The error for a body that closes over a value which a transform tracks.

    Arguments:
        reached: an output that depends on it, None if unknown.
        blamed: says of a value whether it is such a one.
    """
    rules = origin(rules)
    made_of_function = hasattr(rules.function, "__wrapped__")  # by `custom_rules`
    name, bodies = rules.name, rules.bodies()
    called = name if made_of_function else f"{name}.apply"
    return RuleError(tool("hints.functions").closes_over(name, called, bodies, reached, blamed))


def is_plain(x: object) -> bool:
    """Whether ``x`` is an array, or a batch of arrays, that no level or JAX transform tracks."""
    tracked = [t.requires_grad or (t.aux is not None and not t.level.maps) for t in layers(x)]
    return not any(tracked) and not is_tracer(x)


def numbers_suffice(values: Sequence[object]) -> bool:
    """Whether values known as numbers alone suffice for a call; see NOTE [one run of the body].

    In a checkpointed body they do not: they would be numbers from outside of it.
    """
    return all(map(is_plain, values)) and not any(
        [t.level.notes_captures for v in values for t in layers(v)]
    )


def host_error(
    rules: UserRules, rule: str, error: Exception, values: Sequence[object]
) -> RuleError:
    """The error for a body that needs numbers where its arguments have none."""
    batched = any([batch_dim(t) is not None for v in values for t in layers(v)])
    traced = any(map(is_tracer, values))
    return RuleError(tool("hints.functions").needs_numbers(rules, rule, error, batched, traced))


# Deriving one rule from another

DERIVED = "a Function whose rule is derived"


class DerivingGradLevel(GradLevel):
    """A grad level around the body of a rule.

    ``writes``: the body writes to Tensors of its own.
    """

    __slots__ = ("writes",)

    runs_again = DERIVED
    deriving = True

    def __init__(self) -> None:
        super().__init__()
        self.writes = False

    def note(self, event: Event, t: Tensor | None = None) -> None:
        self.writes = self.writes or event == "write"


class DerivingJvpLevel(JvpLevel):
    """A jvp level around the body of a rule.

    NOTE [derivatives of derivatives]

        runs = []
        rule = lambda ctx, t: runs.append(t) or F.apply(ctx.saved_tensors[0]) * t
        keep = lambda ctx, inputs, output: ctx.save_for_forward(*inputs)
        F = function(forward=fnp.exp, setup_context=keep, jvp=rule)
        derivative = lambda f: lambda x: fad.jvp(f, (x,), (1.0,))[1]
        derivative(derivative(derivative(derivative(F.apply))))(1.0)
        assert len(runs) == 40  # not 51; for the sixth 364, not 876

    The derivative of a call is an operation, through which a reverse mode around pulls back by the user's
    vjp. Its derivative is one again, and so on: of the n-th, the rule runs in n levels of this kind. A rule
    that calls its own Function would bind all lower derivatives in each of them again. So where nothing is
    recorded, a derivative in such a level is not an operation: its body runs there.
    """

    __slots__ = ()

    runs_again = DERIVED
    deriving = True

    def evaluate(self, op: Operation, args: Sequence[Operand]) -> Outputs:
        body = op.body()
        if body is None or not self.unwrapped(args)[2]:
            return super().evaluate(op, args)
        if any([t.requires_grad for a in args for t in layers(a)]):
            return super().evaluate(
                op, args
            )  # a call, so that a reverse mode meets the user's rule
        return map_tensors(self.lift, body(args))


@restores_modes
def pull_through(
    f: Callable[[Values], tuple[list[Any], object]],
    values: Values,
    cotangents: Values,
    need: Sequence[bool],
    kind: type[GradLevel] = DerivingGradLevel,
) -> Grads:
    """Gradients of a body, by running it in a grad level of its own.

    A body that writes runs once more, and may write to what is saved: from outside it is one operation.
    """
    mask = [n and is_inexact(v.dtype) for v, n in zip(values, need, strict=True)]
    if not any(mask):
        return [None] * len(mask)
    with kind() as level:
        inside = [level.variable(v) if m else v for v, m in zip(values, mask, strict=True)]
        outs, _ = f(inside)
        unseen = isinstance(level, DerivingGradLevel) and level.writes and not state.saved_hooks
        if not unseen:
            return spread(mask, pull_back(outs, cotangents, select(mask, inside)))
    with allow_mutation_on_saved_tensors():
        return pull_through(f, values, cotangents, need, kind)


@restores_modes
def push_through(
    f: Callable[[Values], tuple[list[Any], object]],
    values: Values,
    tangents: Values,
    kind: type[JvpLevel] = DerivingJvpLevel,
) -> Grads:
    """Tangents of a body, by running it in a jvp level of its own."""
    with kind() as level:
        duals = [
            v if t is None else level.dual(v, t) for v, t in zip(values, tangents, strict=True)
        ]
        outs, _ = f(duals)
        return [level.unpack(o)[1] for o in outs]
