"""What a Function class defines: which rules there are, and how the arguments of a call are bound."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from fad.core.partition import Rest
from fad.errors import RuleError
from fad.functions.context import Context

__all__ = ["RULES", "SETTINGS", "Signature", "arity", "check_spelling", "defines", "has_rules"]

RULES = ("forward", "setup_context", "vjp", "backward", "jvp", "jet", "vmap", "sparsity")
SETTINGS = ("generate_vmap_rule", "jax_rules", "is_traceable")


def defines(cls: Any, name: str) -> bool:
    """Whether a Function class or one of its bases, below Function itself, defines ``name``."""
    return _depth(cls, name) is not None


def _depth(cls: Any, name: str) -> int | None:
    """How far up the bases of ``cls`` a rule is defined; None if nowhere, or taken back by None."""
    for depth, base in enumerate(cls.__mro__):
        if base.__dict__.get("_is_root"):
            return None
        if name in base.__dict__:
            return None if base.__dict__[name] is None else depth
    return None


def has_rules(cls: Any) -> bool:
    """Whether a Function class has a rule for its derivatives or for vmap."""
    return any(defines(cls, rule) for rule in ("vjp", "backward", "jvp", "jet", "vmap"))


def check_spelling(cls: Any) -> None:
    """Refuse what is spelt almost like a rule: it would never be called.

    Raises:
        RuleError: the class itself defines such a name.
    """
    known = (*RULES, *SETTINGS)
    for name in cls.__dict__:
        if name.startswith("_") or name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=ALMOST)
        if close:
            raise RuleError(
                f"{cls.__name__}.{name} is never called: it is spelt almost like the rule "
                f"{close[0]}. Did you mean {close[0]}? A helper may have that name with an underscore "
                f"before it: _{name}"
            )


ALMOST = 0.8  # the similarity, by difflib: that of "bakcward" and "backward" is 0.88


class Signature:
    """What the class says about its calls: how arguments are bound, and which rules there are.

    ``names`` are forward's parameters, without ctx. ``combined``: forward takes ctx. ``plain``: the
    number of parameters if all are positional, else -1. ``vjp``: the name under which there is a
    vjp rule, "" for none; ``jvp``, ``jet``, ``vmap`` and
    ``sparsity``: whether there is one. ``is_fast``: calls may take
    the fast path (`fad.functions.fast_calls`); ``fast_rules``: the rules of such calls, once there was one.
    """

    __slots__ = (
        "combined",
        "fast_rules",
        "has_setup",
        "is_fast",
        "jet",
        "jvp",
        "names",
        "plain",
        "signature",
        "sparsity",
        "variadic",
        "vjp",
        "vjp_arity",
        "vmap",
        "vmap_keywords",
    )

    def __init__(self, cls: Any) -> None:
        self.has_setup = defines(cls, "setup_context")
        depths = {name: _depth(cls, name) for name in ("vjp", "backward")}
        known = {name: d for name, d in depths.items() if d is not None}
        self.vjp = min(known, key=lambda name: known[name]) if known else ""
        self.vjp_arity = arity(getattr(cls, self.vjp)) if self.vjp else (0, 0)
        self.jvp = defines(cls, "jvp")
        self.jet = defines(cls, "jet")
        self.vmap = defines(cls, "vmap")
        self.sparsity = defines(cls, "sparsity")
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
        self.fast_rules: Any = None

    def _takes_context(self, cls: Any, parameters: list[inspect.Parameter]) -> bool:
        """Whether the first of forward's parameters is the context.

        By its name, which may be that of the context in another rule; or because the body uses what
        only a Context has.
        """
        if not parameters or parameters[0].kind not in _POSITIONAL:
            return False
        names = {"ctx", "context", "_ctx", "_", "self"}
        for rule in (self.vjp, "jvp" if self.jvp else "", "jet" if self.jet else ""):
            if rule:
                names.add(next(iter(inspect.signature(getattr(cls, rule)).parameters), ""))
        if parameters[0].name in names:
            return True
        code = getattr(inspect.unwrap(cls.forward), "__code__", None)
        return code is not None and not _OF_CONTEXT.isdisjoint(code.co_names)

    def bind(
        self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[str, ...]]:
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


def arity(f: Callable[..., Any]) -> tuple[int, float]:
    """The smallest and the largest number of positional arguments that ``f`` takes."""
    parameters = inspect.signature(f).parameters.values()
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    least = sum(p.default is p.empty for p in positional)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return least, float("inf")
    return least, len(positional)
