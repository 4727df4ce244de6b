"""What a Function class defines: which rules there are, and how the arguments of a call are bound."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

from fad.core.caches import Table
from fad.core.partition import Rest
from fad.core.types import PyTree
from fad.errors import RuleError
from fad.functions.context import Context

if TYPE_CHECKING:
    from fad.functions.nodes import FunctionNode
    from fad.functions.user_rules import UserRules

RULES = ("forward", "setup_context", "vjp", "backward", "jvp", "jet", "vmap", "sparsity")
SETTINGS = ("generate_vmap_rule", "jax_rules", "is_traceable")


class FunctionClass(Protocol):
    """What the rest of the room reads of a Function class: its settings, and what is kept on it.

    Rules are read by their names, since each may be missing, or be one of two names.

    ``_plans``: the compiled bodies of a class with ``jax_rules``. ``_backward_cls``: the class of the nodes
    that record its calls. ``_plain_forward``: with ``jax_rules``, forward differs where no input needs a
    gradient.
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
    _plain_forward: bool


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
    name, own, known = cls.__name__, cls.__dict__, (*RULES, *SETTINGS)
    for given in own:
        close = difflib.get_close_matches(given, known, n=1, cutoff=ALMOST)
        if close and given not in known and not given.startswith("_"):
            raise RuleError(
                f"{name}.{given} is never called: it is spelt almost like the rule "
                f"{close[0]}. Did you mean {close[0]}? A helper may have that name with an underscore "
                f"before it: _{given}"
            )
    for rule in RULES:
        if own.get(rule) is not None and not isinstance(own[rule], (staticmethod, classmethod)):
            raise RuleError(f"{name}.{rule} must be a static method: write @staticmethod above it")
    if own.get("vjp") is not None and own.get("backward") is not None:
        raise RuleError(
            f"{name} defines both vjp and backward, which are two names of one rule: keep one"
        )
    if own.get("generate_vmap_rule") and defines(cls, "vmap"):
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
    the fast path (`fad.functions.fast_calls`); ``fast_rules``: the rules of such calls, once there was one.
    ``asked``: see `fad.levels.batch.bind_among_lanes`.
    """

    def __init__(self, cls: FunctionClass) -> None:
        self.has_setup = defines(cls, "setup_context")
        depths = {name: _depth(cls, name) for name in ("vjp", "backward")}
        known = {name: d for name, d in depths.items() if d is not None}
        self.vjp = min(known, key=lambda name: known[name]) if known else ""
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
        self.is_fast = bool(self.vjp) and (self.has_setup or self.combined) and not cls.jax_rules
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
