"""Function: a custom operation that declares its own rules."""

from __future__ import annotations

import abc
import inspect
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fad.core.borrowed import as_array
from fad.core.caches import Table
from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.errors import RuleError
from fad.functions import fast_calls
from fad.functions.calls import FunctionOp
from fad.functions.closures import is_plain
from fad.functions.compiled_rules import JaxRules
from fad.functions.context import Context, VmapInfo
from fad.functions.definitions import (
    RULES,
    SETTINGS,
    Signature,
    arity,
    check_spelling,
    defines,
    has_rules,
)
from fad.functions.nodes import FunctionNode
from fad.functions.templates import ARRAYS, Template, split
from fad.functions.user_rules import UserRules
from fad.views.inplace import overwrite_from
from fad.views.make_view import attach_chain, attach_peer

if TYPE_CHECKING:
    from fad.functions.signatures import apply_method
else:
    apply_method = classmethod

__all__ = ["Context", "Function", "VmapInfo"]


_READ = frozenset([*RULES, *SETTINGS, "_plain_forward"])


def _forget(cls: Any) -> None:
    """Have the signature of a class, and of those made from it, read again at the next call."""
    for kept in ("_known_signature", "_mixed_signature"):
        if kept in cls.__dict__:
            delattr(cls, kept)
    for made_from_it in cls.__subclasses__():
        _forget(made_from_it)


class _FunctionType(abc.ABCMeta):
    """The type of Function classes; an ABCMeta, so that they may be abstract or protocols.

    What a class says about its calls is read once, and again after a rule was set or deleted.
    """

    @property
    def _signature(cls) -> Signature:
        """What the class says about its calls.

        Raises:
            RuleError: a rule is malformed.
        """
        return cls.__dict__.get("_known_signature") or _signature_of(cls)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name in RULES and isinstance(value, types.FunctionType):
            value = staticmethod(value)  # as which it is called in either case
        super().__setattr__(name, value)
        if name in _READ:
            _forget(cls)

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        if name in _READ:
            _forget(cls)

    def __repr__(cls) -> str:
        text = super().__repr__()
        if defines(cls, "forward") and not has_rules(cls):
            return f"{text[:-1]}, without rules: its derivatives are derived from forward>"
        return text


class Function(metaclass=_FunctionType):
    """A custom operation with rules of its own, used the same way by every transform.

    Subclass it with static methods (or class methods):

    * ``forward(x, ...)`` computes the output from Tensors (or ``forward(ctx, x, ...)``, without
      ``setup_context``; the context may have any name). Inputs and outputs may be pytrees.
    * ``setup_context(ctx, inputs, output)`` keeps what the rules need: ``ctx.save_for_backward``,
      ``ctx.save_for_forward``, ``ctx.saved_data``, marks.
    * ``vjp(ctx, g)``, or ``backward``: gradients of the inputs, one for each argument of forward,
      None where there is none. One that is larger by broadcasting is summed to its argument's shape.
      For a tuple of outputs, one ``g`` for each.
    * ``jvp(ctx, x_t, ...)``: the tangent of the output, from one tangent for each argument.
    * ``jet(ctx, x_s, ...)``: for `fad.jet`, the derivatives of the output along a curve, from those of
      each argument: lists, with the first, the second, and so on, each in the place of an array.
    * ``vmap(info, in_dims, x, ...)``: ``(output, out_dims)`` for batched inputs; ``info.batch_size``.

    * ``sparsity(x, ...)``: for `fad.sparsity`, on which elements of each argument the output depends, from
      their shapes: for each argument an array of bools or a ``BCOO``, of the shape of the output followed
      by that of the argument, or None. It is for a Function with one output.

    Every rule is optional. Those that are missing are derived: jvp from vjp, vjp from jvp, both from
    jet or from forward, jet from jvp, vmap from the others. Call it with `apply`. A rule may be set or
    replaced later: the next call uses it.

    Class attributes:
        generate_vmap_rule: False refuses to derive a vmap rule.
        jax_rules: the bodies take JAX arrays and may use ``jax.numpy``; each is compiled whole.
        is_traceable: vjp is pure, so that it may be part of a compiled backward pass; ``jax_rules``
            implies it.

    Raises (when the class is made):
        RuleError: a rule is malformed: ``vjp`` and ``backward`` both given, a wrong number of
            parameters, ``vmap`` together with ``generate_vmap_rule``, a rule that is not static; or a
            name is spelt almost like that of a rule (begin that of a helper with an underscore).

    Source: ``torch.autograd.Function``.

    >>> import fad, fad.numpy as fnp
    >>> class Exp(fad.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return fnp.exp(x)
    ...     @staticmethod
    ...     def setup_context(ctx, inputs, output):
    ...         ctx.save_for_backward(output)
    ...     @staticmethod
    ...     def vjp(ctx, g):
    ...         return g * ctx.saved_tensors[0]
    >>> float(fad.grad(Exp.apply)(0.0)), float(fad.jacfwd(fad.jacfwd(Exp.apply))(0.0))
    (1.0, 1.0)
    """

    _is_root = True
    _known_signature: Signature  # once it was read
    _mixed_signature: tuple[Any, Signature | None]  # in its place, where a base is no Function
    _plans: Table
    _backward_cls: type[FunctionNode]  # of the nodes that record its calls
    _plain_forward = False  # with ``jax_rules``: forward differs where no input needs a gradient

    generate_vmap_rule = True
    jax_rules = False
    is_traceable = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        name = type(self).__name__
        raise RuleError(f"{name} is not instantiated: call {name}.apply(...)")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _read_signature(cls)

    @apply_method
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the Function. Given a Tensor it returns Tensors, given only arrays it returns arrays.

        Tensors, arrays and NumPy's floating scalars are differentiated; other arguments are handed on
        as they are (with ``jax_rules``, Python floats are arrays too).

        Raises:
            TypeError: the arguments do not fit forward's signature.
            RuleError: a body returned something of the wrong form, leaves JAX where it must not, or
                closes over a value that a running transform tracks.
        """
        signature = cls.__dict__.get("_known_signature") or _signature_of(cls)
        if signature.is_fast and not kwargs and len(args) == signature.plain:
            found = fast_calls.call(cls, args, signature)
            if type(found) is Tensor:
                return found
            if found is not None:
                template, outs = found
                return _result(cls.__name__, template, outs, args)
        bound, keywords = signature.bind(cls.__name__, args, kwargs)
        kind, leaves = (JaxRules, _NUMBERS) if cls.jax_rules else (UserRules, ARRAYS)
        arrays, template = split(bound, leaves)
        operands = [as_array(a) if isinstance(a, _HOST) else a for a in arrays]
        op = FunctionOp(kind(cls, signature, template, keywords))
        outs = list(bind(op, operands))
        return _result(cls.__name__, op.ran.template, outs, arrays)


def _signature_of(cls: Any) -> Signature:
    """The signature of a class that was not checked when it was made, may have changed since, or did.

    It had no forward, or one of its bases is no Function, or has an ``__init_subclass__`` that does not call
    the next one.
    """
    mixed, signature = cls.__dict__.get("_mixed_signature") or (None, None)
    if mixed is None or mixed != _mixed_in(cls):
        signature = _read_signature(cls)
    if signature is None:
        raise RuleError(f"{cls.__name__} has no forward: write forward(x, ...)")
    return signature


def _read_signature(cls: Any) -> Signature | None:
    """Check a class and read its signature, None if it has no forward."""
    mixed = _mixed_in(cls)
    signature = _check_class(cls)
    if mixed:
        cls._mixed_signature = mixed, signature
    elif signature is not None:
        cls._known_signature = signature
    return signature


def _mixed_in(cls: Any) -> list[Any]:
    """What bases that are no Functions define: nothing says when that changes."""
    bases = [
        b
        for b in cls.__mro__
        if not isinstance(b, _FunctionType) and b.__module__ not in ("abc", "builtins", "typing")
    ]
    return [b.__dict__.get(name) for b in bases for name in (*RULES, *SETTINGS)]


def _result(name: str, template: Template, outs: list[Any], arrays: Sequence[Any]) -> Any:
    """What a call returns, from its outputs."""
    if template.aliases:
        outs = _write_back(name, template, arrays, outs)
    for v in template.views:
        if v.chain is None:
            outs[v.at] = outs[v.of]
            continue
        out, x = outs[v.at], outs[v.of] if v.of_output else arrays[v.of]
        if not isinstance(x, Tensor):
            continue
        own = False  # whether it has a history or tangent of its own, which a write to x leaves as it is
        if not out.requires_grad:
            own = v.as_is if x.requires_grad else not is_plain(x)
        if v.detached or own:
            attach_peer(out, x, () if v.as_is else v.chain)
        else:
            slots = template.slots
            attach_chain(out, x, v.chain, v.at if slots is None else slots[v.at])
    return template.combine(outs)


_NUMBERS = (*ARRAYS, float, complex)
_HOST = (np.ndarray, np.generic, float, complex)


def _write_back(
    name: str, template: Template, args: Sequence[Any], outs: Sequence[Any]
) -> list[Any]:
    """Overwrite inputs that were changed in place (``mark_dirty``) from their outputs, and return them."""
    results = list(outs)
    for k, i in enumerate(template.aliases):
        if i is None or not isinstance(args[i], Tensor):
            continue
        results[k] = overwrite_from(args[i], outs[k], name)
    return results


def _check_class(cls: Any) -> Signature | None:
    """The checks of a class, when it was made and after it has changed; gives its signature."""
    name, own = cls.__name__, cls.__dict__
    check_spelling(cls)
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
    cls._plans = Table(1024)
    if "_backward_cls" not in own:
        members = {"__slots__": (), "__module__": cls.__module__, "_forward_cls": cls}
        cls._backward_cls = type(f"{name}Backward", (FunctionNode,), members)
    signature = Signature(cls)
    if signature.has_setup:
        _check_arity(cls, "setup_context", 3, "(ctx, inputs, output)")
        if next(iter(inspect.signature(cls.forward).parameters), "") == "ctx":
            raise RuleError(
                f"{name}.forward takes ctx, and there is a setup_context too: with setup_context, "
                "forward takes the inputs alone; without it, forward(ctx, ...)"
            )
    if signature.vjp:
        _check_arity(cls, signature.vjp, 2, "(ctx, g)", or_more=True)
    if not signature.variadic:
        names, count = signature.names, len(signature.names)
        listed, keywords = ", ".join(names), len(signature.vmap_keywords)
        if signature.jvp:
            _check_arity(cls, "jvp", count + 1, f"(ctx, {_suffixed(names, '_t')})")
        if signature.jet:
            _check_arity(cls, "jet", count + 1, f"(ctx, {_suffixed(names, '_s')})")
        if signature.sparsity and signature.plain == count:
            _check_arity(cls, "sparsity", count, f"({listed})")
        if signature.vmap:
            _check_arity(cls, "vmap", count + 2 - keywords, f"(info, in_dims, {listed})")
    return signature


def _suffixed(names: Sequence[str], suffix: str) -> str:
    return ", ".join([n + suffix for n in names])


def _check_arity(cls: Any, rule: str, count: int, form: str, or_more: bool = False) -> None:
    f: Callable[..., Any] = getattr(cls, rule)
    least, most = arity(f)
    if most < count or (least > count and not or_more):
        names = ", ".join(inspect.signature(f).parameters)
        raise RuleError(
            f"{cls.__name__}.{rule}({names}) takes {least if least > count else most} positional "
            f"parameters, expected {count}{' or more' if or_more else ''}: {rule}{form}"
        )
