"""What is checked: a Function or a callable with arguments, its cases, and how its rules are watched."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from fad import Function, Tensor, extend, jvp, tensor, vjp
from fad.errors import GradientError, RuleError, describe
from fad.extend import HOST_ERRORS, outlived
from fad.testing.comparison import bare, difference
from fad.testing.finite_differences import random_like

HERE = "fad.testing"
ARRAYS = (Tensor, jax.Array, np.ndarray, np.generic)
RULES = ("forward", "setup_context", "vjp", "backward", "jvp", "jet", "vmap", "sparsity")


class NotChecked(Exception):
    """A law does not apply here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Violation:
    """A law that does not hold.

    Attributes:
        law: its name.
        function: the name of the Function.
        rule: which rule is wrong, such as ``vjp``; "vjp (derived from forward)" where there is none.
        argument: for which argument, or "" where it is about no single one.
        what: what is wrong, in a sentence.
        got, expected: the values, as text.
        case: how to see it, as text.

    >>> import fad, numpy as np
    >>> class Triple(fad.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return 3.0 * x
    ...     @staticmethod
    ...     def vjp(ctx, g):
    ...         return 2.0 * g
    >>> report = fad.testing.check_function(Triple, np.array(1.0), laws=("vjp",), raise_exception=False)
    >>> report.violations[0].rule, report.violations[0].argument
    ('vjp', "argument 'x'")
    """

    law: str
    function: str
    rule: str
    argument: str
    what: str
    got: str = ""
    expected: str = ""
    case: str = ""

    def __str__(self) -> str:
        of = f", {self.argument}" if self.argument else ""
        lines = [f"[{self.law}] {self.function}.{self.rule}{of}: {self.what}"]
        for label, text in (("got", self.got), ("expected", self.expected), ("case", self.case)):
            if text:
                indented = text.replace("\n", "\n" + " " * 12)
                lines.append(f"  {label:<10}{indented}")
        return "\n".join(lines)

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two violations the same fault."""
        return self.law, self.rule, self.argument


def shown(x: Any) -> str:
    """A value for a message."""
    if isinstance(x, (list, tuple)):
        return ", ".join(map(shown, x))
    if x is None or isinstance(x, str):
        return str(x)
    array = np.asarray(bare(x))
    text = np.array2string(array, precision=6, threshold=24, separator=", ")
    kind = "" if array.dtype in (np.float64, np.complex128) else f" ({array.dtype})"
    return text + kind if array.size else f"an empty array of shape {array.shape}"


class Subject:
    """A Function, or any function of fad, and arguments for it."""

    def __init__(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.cls: Any = None
        if isinstance(target, type) and issubclass(target, Function):
            self.cls = target
            self.apply: Callable[..., Any] = target.apply
            self.name = target.__name__
            bodies: Any = target._signature.signature if hasattr(target, "_signature") else None
            if bodies is None:
                raise RuleError(f"{self.name} has no forward: write forward(x, ...)")
        elif callable(target):
            self.apply = target
            self.name = getattr(target, "__name__", type(target).__name__)
            bodies = None
        else:
            raise TypeError(
                f"check_function: expected a Function class or a function, got {describe(target)}"
            )
        self.leaves, self.structure = extend.flatten((tuple(args), dict(kwargs)))
        self.names = _names(self.apply, bodies, args, kwargs)
        self.at = [k for k, x in enumerate(self.leaves) if isinstance(x, ARRAYS)]
        self.dirty = False

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays among the arguments."""
        return [np.asarray(bare(self.leaves[k])) for k in self.at]

    def argument(self, k: int) -> str:
        """What array number ``k`` is called."""
        return f"argument {self.names[self.at[k]]}"

    def call(self, arrays: Sequence[Any], target: Callable[..., Any] | None = None) -> list[Any]:
        """The arrays among the outputs."""
        leaves = list(self.leaves)
        for k, x in zip(self.at, arrays, strict=True):
            leaves[k] = x.clone() if self.dirty and isinstance(x, Tensor) else x
        args, kwargs = extend.unflatten(self.structure, leaves)
        out = (target or self.apply)(*args, **kwargs)
        return [o for o in extend.flatten(out)[0] if isinstance(o, ARRAYS)]

    # Rules

    def has(self, rule: str) -> bool:
        """Whether the user wrote this rule."""
        return self.cls is not None and bool(getattr(self.cls._signature, rule))

    def rule(self, kind: str) -> str:
        """The rule that is used in the mode ``kind`` ("vjp", "jvp" or "vmap")."""
        if self.cls is None:
            return f"{kind} (derived)"
        signature = self.cls._signature
        if kind == "vjp" and signature.vjp:
            return str(signature.vjp)
        if self.has(kind):
            return kind
        forward_rule = "jvp" if signature.jvp else "jet" if signature.jet else ""
        if kind == "jvp":
            other = "jet" if signature.jet else signature.vjp
        else:
            other = forward_rule
        source = other if kind != "vmap" and other else "forward"
        return f"{kind} (derived from {source})"

    @property
    def promises(self) -> bool:
        """Whether the Function says that its bodies can be traced."""
        return self.cls is not None and bool(self.cls.jax_rules or self.cls.is_traceable)

    def blame(self, error: BaseException) -> str:
        """The rule in which an error was raised; "forward" if none is on the traceback."""
        rule = "apply"
        if self.cls is None:
            return rule
        codes = {}
        for name in RULES:
            body = inspect.unwrap(getattr(self.cls, name, None) or (lambda: None))
            codes[getattr(body, "__code__", None)] = name
        trace = error.__traceback__
        while trace is not None:
            rule = codes.get(trace.tb_frame.f_code, rule)
            trace = trace.tb_next
        return rule

    def judge(self, law: str, error: Exception, case: str) -> Violation:
        """What an exception inside of a law means.

        Raises:
            NotChecked: it says that the law does not apply.
        """
        text = str(error)
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(HERE):
            raise error  # a fault of the checker's
        link: BaseException | None = error
        while link is not None:
            if isinstance(link, HOST_ERRORS) and not self.promises:
                raise NotChecked(text.partition("\n")[0])
            link = link.__cause__
        if isinstance(error, GradientError) and "once_differentiable" in text:
            raise NotChecked(text)
        if isinstance(error, RuleError) and "generate_vmap_rule is False" in text:
            raise NotChecked(text)
        rule = self.blame(error)
        refused = re.search(r"has no (jvp|vjp) rule, and none can be derived from", text)
        if refused:
            law, rule = refused.group(1), self.rule(refused.group(1))
        named = re.search(rf"{re.escape(self.name)}\.(\w+)", text)
        argument = re.search(r"argument '\w+'", text)
        if isinstance(error, RuleError):
            law = "well-formed" if law not in ("shapes", "broadcasting") else law
            if named and named.group(1) != "apply":
                rule = named.group(1)
            text = text.removeprefix(f"{self.name}.{rule}: ")  # the report begins with it
        else:
            text = f"it raised {type(error).__name__}: {text}"
        return Violation(
            law, self.name, rule, argument.group() if argument else "", text, case=case
        )


def _names(
    apply: Callable[..., Any], signature: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """A name for each leaf of ``(args, kwargs)``."""
    positional: list[str] = []
    try:
        signature = signature or inspect.signature(apply)
        for p in signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                extra = len(args) - len(positional)
                positional += [f"'{p.name}[{i}]'" for i in range(extra)]
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                positional.append(f"'{p.name}'")
    except (TypeError, ValueError):  # not written in Python
        pass
    positional += [str(k) for k in range(len(positional), len(args))]
    leaves, _ = tree_util.tree_flatten_with_path(
        (tuple(args), dict(kwargs)), is_leaf=lambda x: isinstance(x, Tensor)
    )
    names = []
    for path, _ in leaves:
        key = path[1]
        if isinstance(key, tree_util.SequenceKey):
            first = positional[key.idx]
        else:
            first = repr(getattr(key, "key", key))
        names.append(first + tree_util.keystr(path[2:]))
    return names


@dataclasses.dataclass(frozen=True)
class Precision:
    """Tolerances: ``step`` and ``coarse`` for finite differences, ``fine`` for what must be equal."""

    step: float
    coarse: float
    fine: float


_DOUBLE = Precision(1e-5, 1e-5, 1e-8)
_SINGLE = Precision(1e-2, 2e-2, 1e-4)
_HALF = Precision(1e-1, 0.2, 5e-2)


class Case:
    """One set of arrays for a Subject, with directions to differentiate along."""

    def __init__(self, subject: Subject, arrays: Sequence[np.ndarray], seed: int = 0) -> None:
        self.subject = subject
        self.arrays = [np.asarray(a) for a in arrays]
        self.seed = seed
        self.differentiable = [
            k for k, a in enumerate(self.arrays) if jnp.issubdtype(a.dtype, jnp.inexact)
        ]
        self.xs = [self.arrays[k] for k in self.differentiable]
        operands = [
            tensor(a, requires_grad=True) if jnp.issubdtype(a.dtype, jnp.inexact) else tensor(a)
            for a in self.arrays
        ]
        outs = subject.call(operands)
        self.outs = [np.asarray(o.detach().array if isinstance(o, Tensor) else o) for o in outs]
        self.differentiable_outs = [
            k for k, o in enumerate(outs) if isinstance(o, Tensor) and o.requires_grad
        ]
        self.ys = [self.outs[k] for k in self.differentiable_outs]
        rng = np.random.default_rng(seed)
        self.vs = [random_like(x, rng) for x in self.xs]
        self.ws = [random_like(y, rng) for y in self.ys]
        kinds = [a.dtype for a in (*self.xs, *self.ys)]
        bits = min([jnp.finfo(d).bits for d in kinds], default=64)
        self.precision = _DOUBLE if bits == 64 else _SINGLE if bits == 32 else _HALF

    def __str__(self) -> str:
        parts = [
            f"{self.subject.names[k]}={shown(a)}"
            for k, a in zip(self.subject.at, self.arrays, strict=True)
        ]
        return ", ".join([p.replace("'", "", 2) for p in parts])

    def argument(self, i: int) -> str:
        """What differentiated array number ``i`` is called."""
        return self.subject.argument(self.differentiable[i])

    def need_derivative(self) -> None:
        """Raises NotChecked where there is nothing to differentiate."""
        if not self.xs:
            raise NotChecked("no argument is an array of floating or complex dtype")
        if not self.ys:
            raise NotChecked("no output has a derivative")

    def merged(self, xs: Sequence[Any]) -> list[Any]:
        """All arrays, with ``xs`` in the place of those that are differentiated."""
        arrays: list[Any] = list(self.arrays)
        for k, x in zip(self.differentiable, xs, strict=True):
            arrays[k] = x
        return [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]

    def f(self, *xs: Any) -> list[Any]:
        """The outputs that have a derivative, from the inputs that have one."""
        outs = self.subject.call(self.merged(xs))
        return [outs[k] for k in self.differentiable_outs]

    def numbers(self, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`f` from arrays to arrays, for finite differences."""
        return like(self.ys, [bare(o) for o in self.f(*[jnp.asarray(x) for x in xs])])

    def pull(
        self, ws: Sequence[Any], wanted: Sequence[int] | None = None, explicit: bool = True
    ) -> list[np.ndarray]:
        """Gradients of the inputs ``wanted`` (default: all), for the cotangents ``ws``."""
        at = range(len(self.xs)) if wanted is None else wanted

        def g(*xs: Any) -> list[Any]:
            operands: list[Any] = [jnp.asarray(x) for x in self.xs]
            for i, x in zip(at, xs, strict=True):
                operands[i] = x
            return self.f(*operands)

        _, pull = vjp(g, *[jnp.asarray(self.xs[i]) for i in at])
        return [bare(x) for x in pull([None if w is None else jnp.asarray(w) for w in ws])]

    def push(self, vs: Sequence[Any]) -> list[np.ndarray]:
        """Tangents of the outputs, for the tangents ``vs`` (None is zero)."""
        primals = tuple([jnp.asarray(x) for x in self.xs])
        tangents = tuple([None if v is None else jnp.asarray(v) for v in vs])
        return [bare(t) for t in jvp(self.f, primals, tangents)[1]]

    def alone(self, i: int) -> list[Any]:
        """The tangent of input ``i``; None for all others."""
        return [v if j == i else None for j, v in enumerate(self.vs)]

    def differs(self, got: Any, expected: Any, tolerance: float | None = None) -> bool:
        """Whether two trees differ by more than rounding."""
        t = self.precision.fine if tolerance is None else tolerance
        return difference(got, expected, t, t) is not None


def like(shapes: Sequence[Any], values: list[Any]) -> list[Any]:
    """``values``, if they have the shapes of ``shapes``: without that there are no finite differences."""
    if [x.shape for x in values] != [x.shape for x in shapes]:
        raise NotChecked("the shapes of the outputs change with the values of the arguments")
    return values


# Watching the calls of rules


@dataclasses.dataclass
class RuleCall:
    """One run of a body: its name, what it was given, what it returned, and how things were before."""

    rule: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    before: list[tuple[Any, Any, int, str]]
    containers: Any
    returned: Any = None

    @property
    def ctx(self) -> Any:
        """The context, where the body takes one."""
        return self.args[0]

    def changed(self) -> list[str]:
        """The names of the Tensors that the body changed in place."""
        return [
            name
            for x, value, version, name in self.before
            if x.value is not value or x.version != version
        ]


def watched(cls: Any) -> tuple[Any, list[RuleCall]]:
    """A subclass of a Function whose bodies note how they are called, and the list of notes."""
    log: list[RuleCall] = []
    signature = cls._signature
    rules = ["forward"]
    rules += ["setup_context"] if signature.has_setup else []
    rules += [rule for rule in (signature.vjp,) if rule]
    rules += [rule for rule in ("jvp", "jet") if getattr(signature, rule)]
    rules += ["vmap"] if signature.vmap else []

    def watch(rule: str) -> staticmethod[Any, Any]:
        body = getattr(cls, rule)

        @functools.wraps(body)
        def run(*args: Any, **kwargs: Any) -> Any:
            note = RuleCall(
                rule, args, kwargs, _tensors(args, kwargs, rule), containers(args, kwargs)
            )
            log.append(note)
            note.returned = body(*args, **kwargs)
            return note.returned

        return staticmethod(run)

    members: dict[str, Any] = {rule: watch(rule) for rule in rules}
    members["__qualname__"] = cls.__qualname__
    members["__module__"] = cls.__module__
    return type(cls.__name__, (cls,), members), log


def watched_calls(case: Case, rules: bool = True) -> list[RuleCall]:
    """One call of every body: forward and, with ``rules``, vjp and jvp."""
    s = case.subject
    if s.cls is None:
        raise NotChecked("it is not a Function, so that there are no bodies to watch")
    cls, log = watched(s.cls)
    apply, s.apply = s.apply, cls.apply
    try:
        s.call([tensor(a) for a in case.arrays])
        if rules and case.xs and case.ys:
            case.pull(case.ws)
            if s.has("jvp"):
                case.push(case.vs)
    finally:
        s.apply = apply
    return log


def returned(call: RuleCall) -> list[Any]:
    """The arrays of floating or complex dtype that a body returned."""
    leaves = map(outlived, extend.flatten(call.returned)[0])
    return [x for x in leaves if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.inexact)]


def containers(args: Any, kwargs: Any) -> str:
    """The containers among the arguments, as text."""
    shown_args = [a for a in args if isinstance(a, (list, dict, tuple))]
    return repr(
        tree_util.tree_structure((shown_args, kwargs), is_leaf=lambda x: isinstance(x, Tensor))
    )


def _tensors(args: Any, kwargs: Any, rule: str) -> list[tuple[Any, Any, int, str]]:
    positional = list(args)
    tensors = []
    if rule in ("vjp", "backward", "jvp", "jet"):
        for k, x in enumerate(positional[0].saved_tensors):
            if isinstance(x, Tensor):
                tensors.append((x, x.value, x.version, f"saved tensor {k}"))
        positional = positional[1:]
    leaves, _ = tree_util.tree_flatten_with_path(
        (positional, kwargs), is_leaf=lambda x: isinstance(x, Tensor)
    )
    for path, x in leaves:
        if isinstance(x, Tensor):
            tensors.append((x, x.value, x.version, tree_util.keystr(path[1:])))
    return tensors
