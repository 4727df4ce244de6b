"""Function: a custom operation that declares its own rules."""

from __future__ import annotations

import abc
import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np

from fad.core import trees
from fad.core.borrowed import as_array
from fad.core.caches import Table
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import GradientError, RuleError
from fad.functions import calls
from fad.functions.calls import FunctionNode, FunctionOp, with_derivative
from fad.functions.compiled_rules import JaxRules
from fad.functions.context import ARRAYS, SINGLE, Context, Notes, Template, VmapInfo, split
from fad.functions.rules import (
    RULES,
    SETTINGS,
    Signature,
    checked_signature,
    defines,
    has_rules,
    is_plain,
)
from fad.functions.user_rules import UserRules, as_value
from fad.tape.grad_mode import no_grad
from fad.tape.vmap import bind_among_lanes
from fad.views.inplace import overwrite_from
from fad.views.make_view import attach_chain, attach_peer, stop_gradient

# ``once_differentiable``: a vjp rule whose result must not be differentiated again.


def once_differentiable(vjp: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Decorator for a vjp (backward) rule whose result must not be differentiated again.

    The rule runs without recording, on values that nothing tracks, so it may leave JAX. To
    differentiate its result, in reverse or in forward mode, raises GradientError.

    Source: ``torch.autograd.function.once_differentiable``.

    >>> import fad
    >>> class Cube(fad.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...     @staticmethod
    ...     @once_differentiable
    ...     def vjp(ctx, g):
    ...         return 3 * ctx.saved_tensors[0].numpy() ** 2 * g.numpy()
    >>> float(fad.grad(Cube.apply)(2.0))
    12.0
    """

    @functools.wraps(vjp)
    def wrapper(ctx: Context, *cotangents: PyTree) -> PyTree:
        notes, kept, _ = Notes.take(ctx, {}, _ARRAYS)
        leaves, structure = trees.flatten(cotangents)
        operands = [*kept, *[x for x in leaves if isinstance(x, _ARRAYS)]]
        if all(map(is_plain, operands)):
            with no_grad():
                return vjp(ctx, *cotangents)
        stopped = {id(x): stop_gradient(x) for x in operands}
        inner = notes.context(
            lambda ref: stopped[id(kept[ref.at])], lambda x: x, ctx.needs_input_grad, False
        )
        with no_grad():
            grads = vjp(inner, *trees.unflatten(structure, [stopped.get(id(x), x) for x in leaves]))
        arrays, template = split(grads)
        once = with_derivative(_Once(vjp.__qualname__), list(map(as_value, arrays)), operands)
        return template.combine(once)

    wrapper.once_differentiable = True  # type: ignore[attr-defined]
    return wrapper


_ARRAYS = (Tensor, jax.Array)


@dataclasses.dataclass(frozen=True)
class _Once:
    """The derivative of what a rule gave that must not be differentiated again: an error."""

    rule: str
    name = "once_differentiable"

    def pushforward(self, *_: object) -> NoReturn:
        raise GradientError(
            f"{self.rule}: trying to differentiate twice a function that was marked with "
            "@once_differentiable. Leave the mark out if the rule is written with fad.numpy."
        )

    pullback = pushforward


# Function: a custom operation that declares its own rules.

if TYPE_CHECKING:
    from fad.functions.signatures import apply_method
else:
    apply_method = classmethod

__all__ = ["Context", "Function", "VmapInfo"]


_READ = frozenset([*RULES, *SETTINGS])


def _forget(cls: _FunctionType) -> None:
    """Have the signature of a class, and of those made from it, read again at the next call."""
    if "_known_signature" in cls.__dict__:
        del cls._known_signature
    made_from_it: list[Any] = cls.__subclasses__()
    for each in made_from_it:
        _forget(each)


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
        return _signature_of(cls)

    _known_signature: Signature | None  # once it was read; None if there is no forward

    def __setattr__(cls, name: str, value: object) -> None:
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
    jet or from forward, jet from jvp, vmap from the others. A rule is transposed by what it records: a part
    of its result that comes from under ``no_grad``, from ``detach`` or ``.data``, makes that an error. A rule
    may call its own Function: where vjp is derived from a jvp rule, a Function without vjp that is called on
    a tangent there is transposed as its forward computes. Call it with `apply`. A rule may be set or replaced
    later: the next call uses it.

    Class attributes:
        generate_vmap_rule: False refuses to derive a vmap rule.
        jax_rules: the bodies take JAX arrays and may use ``jax.numpy``; each is compiled whole.
        is_traceable: vjp is pure, so that it may be part of a compiled backward pass; ``jax_rules``
            implies it.

    Raises:
        RuleError: when the class is made, for a malformed rule: ``vjp`` and ``backward`` both given, a
            wrong number of parameters, ``vmap`` together with ``generate_vmap_rule``, a rule that is not
            static; or a name that is spelt almost like that of a rule (begin that of a helper with an
            underscore).

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
    _mixed: list[object]  # what its bases defined then that are no Functions
    _plans: Table
    _backward_cls: type[FunctionNode]  # of the nodes that record its calls

    generate_vmap_rule = True
    jax_rules = False
    is_traceable = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        name = type(self).__name__
        raise RuleError(f"{name} is not instantiated: call {name}.apply(...)")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _signature_of(cls, True)

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
        signature = cls.__dict__.get("_known_signature")
        if signature is None or cls._mixed:
            signature = _signature_of(cls)
        if signature.is_fast and not kwargs and len(args) == signature.plain:
            result = calls.fast_call(cls, args, signature)
            if result is not None:
                return _result(cls.__name__, *result, args)
        bound, keywords = signature.bind(cls.__name__, args, kwargs)
        kind, leaves = (JaxRules, _NUMBERS) if cls.jax_rules else (UserRules, ARRAYS)
        arrays, template = split(bound, leaves)
        operands = [as_array(a) if isinstance(a, _HOST) else a for a in arrays]
        op = FunctionOp(kind(cls, signature, template, keywords))
        outs, had = bind_among_lanes(op, operands, signature.asked)
        arrays = arrays if had is operands else list(had)
        return _result(cls.__name__, op.ran.template, list(outs), arrays)


_NUMBERS = (*ARRAYS, float, complex)
_HOST = (np.ndarray, np.generic, float, complex)


def _signature_of(cls: Any, may_lack_forward: bool = False) -> Signature:
    """The signature of a class, which is checked where it was not since it has changed.

    Bases that are not Functions may change without a notice: their definitions are compared at each call.
    """
    mixed = [
        base.__dict__.get(name)
        for base in cls.__mro__
        if not isinstance(base, _FunctionType) and base.__module__ not in _OF_PYTHON
        for name in (*RULES, *SETTINGS)
    ]
    namespace = cls.__dict__
    if "_known_signature" not in namespace or namespace["_mixed"] != mixed:
        signature = checked_signature(cls)
        cls._plans = Table(1024)
        if signature is not None and "_backward_cls" not in namespace:
            members = {"__slots__": (), "__module__": cls.__module__, "_forward_cls": cls}
            cls._backward_cls = type(f"{cls.__name__}Backward", (FunctionNode,), members)
        cls._mixed, cls._known_signature = mixed, signature
    if cls._known_signature is None and not may_lack_forward:
        raise RuleError(f"{cls.__name__} has no forward: write forward(x, ...)")
    checked: Signature = cls._known_signature
    return checked


_OF_PYTHON = ("abc", "builtins", "typing")


def _result(name: str, template: Template, outs: list[Any], args: Sequence[Any]) -> PyTree:
    """What a call returns: inputs that it changed are written to, and views share storage with theirs."""
    if template is SINGLE:  # most are: one array, unmarked
        return outs[0]
    marks = template.marks
    for k, i in enumerate(marks.aliases):
        if i is not None and isinstance(args[i], Tensor):
            outs[k] = overwrite_from(args[i], outs[k], name)
    for v in marks.views:
        if v.chain is None:
            outs[v.at] = outs[v.of]
            continue
        out, x = outs[v.at], outs[v.of] if v.of_output else args[v.of]
        if not isinstance(x, Tensor):
            continue
        separate = False  # whether it has a history or tangent of its own, which a write to x leaves as it is
        if not out.requires_grad:
            separate = v.as_is if x.requires_grad else not is_plain(x)
        if v.detached or separate:
            attach_peer(out, x, () if v.as_is else v.chain)
        else:
            attach_chain(out, x, v.chain, template.slots[v.at])
    return template.combine(outs)
