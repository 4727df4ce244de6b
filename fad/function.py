"""Function: a custom operation that declares its own rules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import native, trees
from fad.tape.engine import ONES_LIKE
from fad.tape.record import ROOT, raise_released
from fad.dispatch import Level, bind, last_level_id, outlived, state
from fad.errors import GradientError, RuleError, describe
from fad.graph import Node, gradient_edge
from fad.jaxapi import is_inexact
from fad.primitive import aval_of
from fad.rules import (
    HOLE,
    BatchedRules,
    Context,
    JaxRules,
    LinearRules,
    Rules,
    Signature,
    Template,
    UserRules,
    VmapInfo,
    checked_arrays,
    non_differentiable,
    run_setup,
)
from fad.tensor import Tensor, meta_of, new_tensor

__all__ = ["Context", "Function", "VmapInfo", "once_differentiable"]


class FunctionOp:
    """One call of `Rules`, as an operation that `bind` can run. ``found`` gets the outputs' Template."""

    __slots__ = ("found", "rules")

    def __init__(self, rules: Rules, found: dict[str, Any] | None = None) -> None:
        self.rules = rules
        self.found: dict[str, Any] = {} if found is None else found

    @property
    def name(self) -> str:
        return self.rules.name

    @property
    def template(self) -> Template:
        """Structure of the outputs; known once the call has run."""
        template: Template = self.found["template"]
        return template

    def execute(self, values: Sequence[Any]) -> tuple[Any, ...]:
        if native.is_traced(values):
            outs, template = native.call(self.rules, values)
        else:
            outs, template = self.rules.forward(values)
            outs = checked_arrays(self.name, outs)
        self.found["template"] = template
        return tuple(outs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs = bind(self, primals)
        mask = tuple([t is not None for t in tangents])
        linear, operands = self.linear(mask, primals, outs)
        out_t = iter(bind(linear, [*operands, *[t for t in tangents if t is not None]]))
        return outs, tuple([next(out_t) if is_inexact(o.dtype) else None for o in outs])

    def linear(
        self, mask: tuple[bool, ...], primals: Sequence[Any], outs: Sequence[Any]
    ) -> tuple[FunctionOp, list[Any]]:
        """The derivative in the masked inputs, and the operands that go before the tangents."""
        inexact = tuple([is_inexact(o.dtype) for o in outs])
        rules = LinearRules(self.rules, mask, inexact, self.template)
        return FunctionOp(rules), [*primals, *outs]

    def batch(
        self, values: Sequence[Any], dims: tuple[int | None, ...], level: Any
    ) -> tuple[Any, ...]:
        rules = BatchedRules(
            self.rules, dims, level.batch_size, level.axis_name, level.randomness
        )
        out: tuple[Any, ...] = bind(FunctionOp(rules, self.found), values)
        return out

    def record(self, level: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        """Evaluate at ``level`` and add a node; see `fad.tape.record`."""
        args = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
        mask = [isinstance(a, Tensor) and a.requires_grad and a.level is level for a in args]
        outs = level.evaluate(self, args)
        node = FunctionNode(level, self.rules, args, mask)
        for i, o in enumerate(outs):
            if is_inexact(o.dtype):
                o.requires_grad = True
                o.node = node
                o.output_nr = i
        node.fill(outs, self.template)
        for k in node.blocked:
            outs[k].requires_grad = False
            outs[k].node = None
        return tuple(outs)


class FunctionNode(Node):
    """A recorded call of a Function: its vjp rule runs in the backward pass."""

    __slots__ = ("args", "blocked", "ctx", "mask", "outs", "rules", "versions")

    def __init__(self, level: Level, rules: Rules, args: Sequence[Any], mask: list[bool]) -> None:
        edges = [gradient_edge(a) for a, m in zip(args, mask, strict=True) if m]
        super().__init__(level, edges)
        self.rules = rules
        self.mask = mask
        self.args = args
        self.outs = 1
        self.blocked: set[int] = set()

    def name(self) -> str:
        return f"{self.rules.name}Backward"

    @property
    def num_inputs(self) -> int:
        return self.outs

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        edges = iter(self.next_edges)
        return tuple([next(edges) if m else (None, 0) for m in self.mask])

    def fill(self, outs: Sequence[Any], template: Template) -> None:
        """Run setup_context, and keep what it saved without keeping the outputs alive in a cycle."""
        self.outs = len(outs)
        # Handles of their own: a Tensor that the caller changes in place later must not change here.
        ctx: Context | None = run_setup(self.rules, self.args, outs, template)
        assert ctx is not None
        self.blocked = non_differentiable(ctx, outs)
        ctx._outs = ()
        index = {id(o): i for i, o in enumerate(outs)}
        self.versions: list[tuple[Tensor, int]] = []

        def keep(x: Any) -> Any:
            if isinstance(x, Tensor) and id(x) in index:
                return _SavedOutput(self.level.detach(x), index[id(x)])
            if isinstance(x, Tensor):
                self.versions.append((x, 0 if x.meta is None else x.meta.version))
            return x

        ctx._saved = [keep(x) for x in ctx._saved]
        if ctx._saved_forward is not None:  # wanted only where the vjp is derived from the jvp
            derived = isinstance(self.rules, UserRules) and not self.rules.has_vjp
            ctx._saved_forward = [keep(x) for x in ctx._saved_forward] if derived else []
        ctx._hidden = [keep(x) for x in ctx._hidden]
        ctx._dirty = ()
        ctx._non_differentiable = ()
        self.ctx: Context | None = ctx
        self.args = ()

    def apply(
        self, cotangents: Sequence[Any], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[Any]:
        ctx, level = self.ctx, self.level
        if ctx is None:
            raise_released(self)
            raise AssertionError
        for t, version in self.versions:
            now = 0 if t.meta is None else t.meta.version
            if now != version:
                raise GradientError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: {self.name()} saved it at version {version}, it is now at "
                    f"version {now}. Save a copy (x.clone()) instead."
                )

        def resolve(x: Any) -> Any:
            if isinstance(x, _SavedOutput):
                t = level.lift(x.value)
                if not create_graph:
                    return self.rules_wrap(level.detach(t))
                t.requires_grad = True
                t.node = self
                t.output_nr = x.index
                return t
            if not isinstance(x, (Tensor, jax.Array)):
                return x
            return x if create_graph else self.rules_wrap(level.detach(x))

        ctx._resolve = resolve
        flags = iter(need)
        wanted = [next(flags) if m else False for m in self.mask]
        grads = self.rules.pullback(ctx, cotangents, wanted)
        result = [g for g, m in zip(grads, self.mask, strict=True) if m]
        if not create_graph:
            result = [None if g is None else level.detach(outlived(g)) for g in result]
        return result

    def rules_wrap(self, x: Any) -> Any:
        """A saved value in the form that the bodies take."""
        return self.rules.wrap(x) if isinstance(self.rules, UserRules) else x

    def release(self) -> None:
        self.ctx = None
        self.versions = []


class _SavedOutput:
    """A saved output: its value, and which output it is; the Tensor itself would make a cycle."""

    __slots__ = ("index", "value")

    def __init__(self, value: Any, index: int) -> None:
        self.value = value
        self.index = index


class Function:
    """A custom operation with rules of its own, used the same way by every transform.

    Subclass it with static methods:

    * ``forward(x, ...)`` computes the output from Tensors (or ``forward(ctx, x, ...)``, without
      ``setup_context``). Inputs and outputs may be pytrees.
    * ``setup_context(ctx, inputs, output)`` keeps what the rules need: ``ctx.save_for_backward``,
      ``ctx.save_for_forward``, ``ctx.saved_data``, marks.
    * ``vjp(ctx, g)``, or ``backward``: gradients of the inputs, one for each argument of forward,
      None where there is none. For a tuple of outputs, one ``g`` for each.
    * ``jvp(ctx, x_t, ...)``: the tangent of the output, from one tangent for each argument.
    * ``vmap(info, in_dims, x, ...)``: ``(output, out_dims)`` for batched inputs; ``info.batch_size``.

    Every rule is optional. Those that are missing are derived: jvp from vjp, vjp from jvp, both from
    forward, vmap from the others. Call it with `apply`.

    Class attributes:
        generate_vmap_rule: False refuses to derive a vmap rule.
        jax_rules: the bodies take JAX arrays and may use ``jax.numpy``; each is compiled whole.
        is_traceable: vjp is pure, so that it may be part of a compiled backward pass.

    Raises (when the class is made):
        RuleError: a rule is malformed: ``vjp`` and ``backward`` both given, a wrong number of
            parameters, ``vmap`` together with ``generate_vmap_rule``, a rule that is not static.

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

    _is_root_function = True
    _signature: Signature

    generate_vmap_rule = True
    jax_rules = False
    is_traceable = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(
            f"{type(self).__name__} is not instantiated: call {type(self).__name__}.apply(...)"
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_class(cls)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the Function. Given a Tensor it returns Tensors, given only arrays it returns arrays.

        Raises:
            TypeError: the arguments do not fit forward's signature.
            RuleError: a body returned something of the wrong form, or closes over a Tensor that a
                running transform tracks.
        """
        signature = getattr(cls, "_signature", None)
        if signature is None:
            raise RuleError(f"{cls.__name__} has no forward: write forward(x, ...)")
        bound, keywords = signature.bind(cls.__name__, args, kwargs)
        arrays, template = Template.split(bound)
        arrays = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]
        rules = (JaxRules if cls.jax_rules else UserRules)(cls, template, keywords)
        op = FunctionOp(rules)
        outs = bind(op, arrays)
        outs = _apply_aliases(rules, op.template, arrays, outs)
        return op.template.join(outs)


def _apply_aliases(
    rules: UserRules, template: Template, args: Sequence[Any], outs: Sequence[Any]
) -> Sequence[Any]:
    """Give outputs that forward marked dirty back as the inputs that they are."""
    if all(a is None for a in template.aliases):
        return outs
    handles = [a if isinstance(a, Tensor) else new_tensor(a, ROOT) for a in args]
    results = [handles[i] if i is not None else o for i, o in zip(template.aliases, outs, strict=True)]
    marks = Context()
    saved = state.blocked
    state.blocked = last_level_id()
    try:
        rules.setup(marks, handles, results, template)
    finally:
        state.blocked = saved
    dirty = {id(t) for t in marks._dirty}
    final = list(outs)
    for k, i in enumerate(template.aliases):
        if i is None or id(handles[i]) not in dirty or not isinstance(args[i], Tensor):
            continue
        target, new = args[i], outs[k]
        if target.requires_grad and target.node is None and target.level.id > state.blocked:
            raise GradientError(
                f"{rules.name}: a leaf Tensor that requires grad is being used in an in-place "
                "operation (mark_dirty). Pass x.clone(), or call it under no_grad."
            )
        target.value, target.aux, target.level = new.value, new.aux, new.level
        target.requires_grad, target.node = new.requires_grad, new.node
        target.output_nr = new.output_nr
        meta_of(target).version += 1
        final[k] = target
    return final


_STATIC = ("forward", "setup_context", "vjp", "backward", "jvp", "vmap")


def _check_class(cls: Any) -> None:
    """The checks at class creation; also reads forward's signature."""
    name = cls.__name__
    for rule in _STATIC:
        found = cls.__dict__.get(rule)
        if found is not None and not isinstance(found, staticmethod):
            raise RuleError(f"{name}.{rule} must be a static method: write @staticmethod above it")
    if "vjp" in cls.__dict__ and "backward" in cls.__dict__:
        raise RuleError(
            f"{name} defines both vjp and backward, which are two names of one rule: keep one"
        )
    if cls.__dict__.get("generate_vmap_rule") and "vmap" in cls.__dict__:
        raise RuleError(
            f"{name} defines vmap and asks for generate_vmap_rule = True: keep one of them"
        )
    if not any("forward" in base.__dict__ for base in cls.__mro__):
        return
    cls._signature = signature = Signature(cls)
    count = None if signature.variadic else len(signature.names)
    listed = ", ".join(signature.names)
    if signature.has_setup:
        _check_arity(name, "setup_context", cls.setup_context, 3, "(ctx, inputs, output)")
        first = next(iter(inspect.signature(cls.forward).parameters), "")
        if first == "ctx":
            raise RuleError(
                f"{name}.forward takes ctx, and there is a setup_context too: with setup_context, "
                "forward takes the inputs alone; without it, forward(ctx, ...)"
            )
    if count is not None:
        if hasattr(cls, "jvp"):
            _check_arity(name, "jvp", cls.jvp, count + 1,
                         f"(ctx, {', '.join(n + '_t' for n in signature.names)})")
        if hasattr(cls, "vmap"):
            _check_arity(name, "vmap", cls.vmap, count + 2, f"(info, in_dims, {listed})")
    rule = getattr(cls, signature.vjp, None)
    if rule is not None:
        _check_arity(name, signature.vjp, rule, 2, "(ctx, g)", more=True)


def _check_arity(
    name: str, rule: str, f: Callable[..., Any], count: int, form: str, more: bool = False
) -> None:
    parameters = list(inspect.signature(f).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    required = sum(p.default is p.empty for p in positional)
    if (required > count and not more) or len(positional) < count:
        raise RuleError(
            f"{name}.{rule} takes {len(positional)} parameters "
            f"({', '.join(p.name for p in positional)}), expected {count}{' or more' if more else ''}:"
            f" {rule}{form}"
        )


# once_differentiable


class _DelayedError(Node):
    """Lets values through forward; raises when a gradient comes back."""

    __slots__ = ("count", "message")

    def __init__(self, level: Any, edges: Any, count: int, message: str) -> None:
        super().__init__(level, edges)
        self.count = count
        self.message = message

    def name(self) -> str:
        return "DelayedError"

    @property
    def num_inputs(self) -> int:
        return self.count

    def apply(
        self, cotangents: Sequence[Any], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[Any]:
        raise GradientError(self.message)


class _Guard:
    """Identity on the first ``count`` operands; an error to differentiate in any operand."""

    __slots__ = ("count", "message", "name")

    def __init__(self, count: int, message: str) -> None:
        self.count = count
        self.message = message
        self.name = "once_differentiable"

    def execute(self, values: Sequence[Any]) -> tuple[Any, ...]:
        if native.is_traced(values):
            return _guard_traced(self.message, self.count, *values)
        return tuple(values[: self.count])

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        raise GradientError(self.message)

    def batch(
        self, values: Sequence[Any], dims: tuple[int | None, ...], level: Any
    ) -> tuple[Any, ...]:
        out = bind(self, values)
        return tuple(
            [level.unwrap(new_tensor(o, level, d), 0) for o, d in zip(out, dims, strict=False)]
        )

    def record(self, level: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        outs = level.evaluate(self, args)
        edges = [
            gradient_edge(a)
            for a in args
            if isinstance(a, Tensor) and a.requires_grad and a.level is level
        ]
        node = _DelayedError(level, edges, len(outs), self.message)
        for i, o in enumerate(outs):
            o.requires_grad, o.node, o.output_nr = True, node, i
        return tuple(outs)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _guard_traced(message: str, count: int, *values: Any) -> tuple[Any, ...]:
    return tuple(values[:count])


@_guard_traced.defjvp
def _guard_traced_jvp(message: str, count: int, primals: Any, tangents: Any) -> Any:
    raise GradientError(message)


def once_differentiable(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a vjp (backward) rule whose result must not be differentiated again.

    Inside, nothing is recorded; a second derivative raises GradientError instead of being wrong.

    Source: ``torch.autograd.function.once_differentiable``.
    """

    @functools.wraps(vjp)
    def wrapper(ctx: Context, *cotangents: Any) -> Any:
        saved = state.blocked
        state.blocked = last_level_id()
        try:
            grads = vjp(ctx, *cotangents)
        finally:
            state.blocked = saved
        leaves, structure = jax.tree_util.tree_flatten(grads, is_leaf=trees.is_leaf)
        inputs = [
            x
            for x in trees.flatten((cotangents, ctx.saved_tensors))[0]
            if isinstance(x, (Tensor, jax.Array))
        ]
        message = (
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
        guarded = bind(_Guard(len(leaves), message), [*leaves, *inputs])
        return jax.tree_util.tree_unflatten(structure, guarded)

    return wrapper


