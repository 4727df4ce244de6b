"""The rules of a Function, and the rules that follow from them.

NOTE [rules are closed]

A `Rules` says how one call is evaluated, pushed forward and pulled back. What a user wrote
(`UserRules`, `JaxRules`) is one kind; the others are made from it and are Rules again:

* `BatchedRules`, the call under vmap: the user's vmap rule, or the body run on batched values; it
  pulls back by the user's vjp, batched.
* `LinearRules`, the derivative of the call as a function of (inputs, outputs, tangents): it
  evaluates as the user's jvp; in the tangents it transposes as the user's vjp; in everything else
  it is differentiated like any body.

So every order of grad, jvp and vmap reaches the user's rules, under fad's levels and under native
JAX alike, which bind the same objects. All methods work on flat lists of values of any level.

NOTE [missing rules]

A rule that the user did not write is derived from those that are there: jvp from vjp by
transposing twice (the pullback is linear in the cotangent, at which it is differentiated does not
matter), vjp from jvp by transposing, both from the forward body by differentiating it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import trees
from fad.tape.engine import pull_back
from fad.tape.record import ROOT, GradLevel, as_tensor
from fad.dispatch import bind, outlived
from fad.errors import HostValueError, RuleError, StructureError, describe
from fad.jaxapi import is_inexact
from fad.levels import BatchLevel, JvpLevel, broadcast, move_axis
from fad.primitive import Primitive, aval_of, struct_of
from fad.tensor import Tensor, new_tensor

__all__ = [
    "BatchedRules",
    "Context",
    "JaxRules",
    "LinearRules",
    "Rules",
    "Signature",
    "Template",
    "UserRules",
    "VmapInfo",
]


class _Hole:
    """Marks the place of an array in a Template."""

    def __repr__(self) -> str:
        return "*"


HOLE = _Hole()


class _Static:
    """A static leaf that compares by type and value, by identity if it cannot be compared."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        try:
            return hash((type(self.value), self.value))
        except TypeError:
            return id(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static) or type(self.value) is not type(other.value):
            return False
        if self.value is other.value:
            return True
        try:
            return bool(self.value == other.value) and hash(self) == hash(other)
        except Exception:  # noqa: BLE001 - any comparison may refuse: then they are not the same
            return False


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """A pytree with its arrays taken out: structure, and what its other leaves are.

    ``aliases`` names, for each array of an output, the input that it is (the same Tensor), or None.
    """

    structure: Any
    leaves: tuple[Any, ...]
    aliases: tuple[int | None, ...] = ()

    @staticmethod
    def split(tree: Any, inputs: Sequence[Any] = ()) -> tuple[list[Any], Template]:
        """The arrays of ``tree``, in order, and what is left."""
        leaves, structure = jax.tree_util.tree_flatten(
            tree, is_leaf=lambda x: x is None or isinstance(x, Tensor)
        )
        arrays = [x for x in leaves if isinstance(x, (Tensor, jax.Array, np.ndarray))]
        rest = tuple(
            [HOLE if isinstance(x, (Tensor, jax.Array, np.ndarray)) else _Static(x) for x in leaves]
        )
        aliases = tuple([next((i for i, v in enumerate(inputs) if v is a), None) for a in arrays])
        return arrays, Template(structure, rest, aliases)

    def join(self, arrays: Sequence[Any]) -> Any:
        """The tree with ``arrays`` in it."""
        if len(self.leaves) == 1 and self.leaves[0] is HOLE and self.structure == trees.LEAF:
            return arrays[0]
        it = iter(arrays)
        return self.structure.unflatten(
            [next(it) if x is HOLE else x.value for x in self.leaves]
        )

    def join_only(self, arrays: Sequence[Any]) -> Any:
        """The tree with ``arrays`` in it and None for all else."""
        it = iter(arrays)
        return self.structure.unflatten([next(it) if x is HOLE else None for x in self.leaves])

    def collect(self, tree: Any, who: str, what: str) -> list[Any]:
        """An entry (array or None) for each hole, from a tree that matches; None covers subtrees."""
        skeleton = self.structure.unflatten(list(range(len(self.leaves))))
        found: list[Any] = [None] * len(self.leaves)
        try:
            jax.tree_util.tree_map(
                lambda sub, got: _assign(found, sub, got),
                skeleton,
                _cover(skeleton, tree),
                is_leaf=lambda x: x is None,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise RuleError(
                f"{who}: {what} must have the structure {self.structure}, got {describe(tree)}"
            ) from error
        return [f for f, x in zip(found, self.leaves, strict=True) if x is HOLE]


def _assign(found: list[Any], index: int, value: Any) -> None:
    found[index] = value.value if isinstance(value, _Leaf) else None


@dataclasses.dataclass(slots=True)
class _Leaf:
    """Holds one leaf while two trees are walked together."""

    value: Any


def _cover(skeleton: Any, tree: Any) -> Any:
    """``tree`` in the structure of ``skeleton``, None spread over the subtrees that it covers."""
    if tree is None:
        return jax.tree_util.tree_map(lambda _: _Leaf(None), skeleton)
    if isinstance(skeleton, int):
        return _Leaf(tree)
    if isinstance(skeleton, (tuple, list)):
        if not isinstance(tree, (tuple, list)) or len(tree) != len(skeleton):
            raise ValueError("sequence length")
        parts = [_cover(s, t) for s, t in zip(skeleton, tree, strict=True)]
        if hasattr(skeleton, "_fields"):
            return type(skeleton)(*parts)
        return type(skeleton)(parts)
    if isinstance(skeleton, dict):
        if not isinstance(tree, dict) or set(tree) - set(skeleton):
            raise ValueError("dict keys")
        return {k: _cover(s, tree.get(k)) for k, s in skeleton.items()}
    return jax.tree_util.tree_map(
        lambda _, got: _Leaf(got),
        skeleton,
        tree,
        is_leaf=lambda x: x is None or isinstance(x, Tensor),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class VmapInfo:
    """What a vmap rule is told: the batch size, and the randomness mode of the vmap."""

    batch_size: int
    randomness: str


class Context:
    """``ctx``: what a forward pass hands to the rules that follow it.

    Attributes:
        saved_data: a dict for anything that is not to be differentiated.
        needs_input_grad: for each argument of forward, whether its gradient is wanted in this very
            backward pass.

    Free attributes may be set too.
    """

    def __init__(self) -> None:
        self.saved_data: dict[str, Any] = {}
        self.needs_input_grad: tuple[bool, ...] = ()
        self._saved: list[Any] = []
        self._saved_forward: list[Any] | None = None
        self._hidden: list[Any] = []
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._materialize = True
        self._resolve: Callable[[Any], Any] | None = None
        self._in_forward_mode = False
        self._template: Template | None = None
        self._outs: Sequence[Any] = ()
        self._out_avals: list[Any] = []
        self._in_avals: list[Any] = []

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep Tensors (or None) for the vjp rule, which reads them as ``ctx.saved_tensors``."""
        self._saved = list(tensors)

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep Tensors (or None) for the jvp rule; default are those saved for backward."""
        self._saved_forward = list(tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, in order."""
        saved = self._saved
        if self._in_forward_mode and self._saved_forward is not None:
            saved = self._saved_forward
        return tuple(saved if self._resolve is None else [self._resolve(s) for s in saved])

    def _hidden_values(self) -> list[Any]:
        return self._hidden if self._resolve is None else [self._resolve(s) for s in self._hidden]

    def mark_dirty(self, *tensors: Any) -> None:
        """Say that forward changed these inputs in place; they must be outputs too."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say that these outputs have no derivative."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether zero cotangents and tangents reach the rules as zeros (default) or as None."""
        self._materialize = bool(value)


class Rules:
    """How one call is evaluated and differentiated; see NOTE [rules are closed].

    ``values`` are the call's array inputs, ``outs`` its array outputs, ``template`` the structure
    of the outputs. Tangents and cotangents of None are zero.
    """

    name: str

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        """Evaluate."""
        raise NotImplementedError

    def setup(
        self, ctx: Context, values: Sequence[Any], outs: Sequence[Any], template: Template
    ) -> None:
        """Fill in ``ctx``, from inputs and outputs."""
        raise NotImplementedError

    def pullback(
        self, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        """Gradients of the inputs (those that ``need`` says; others may be None)."""
        raise NotImplementedError

    def pushforward(
        self, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        """Tangents of the outputs."""
        raise NotImplementedError


# What a user wrote


class Signature:
    """How the arguments of one Function class are bound and named. Made once, at class creation."""

    __slots__ = ("combined", "has_setup", "names", "plain", "signature", "variadic", "vjp")

    def __init__(self, cls: Any) -> None:
        self.has_setup = _defines(cls, "setup_context")
        full = inspect.signature(cls.forward)
        parameters = list(full.parameters.values())
        first = parameters[0].name if parameters else ""
        self.combined = not self.has_setup and first in ("ctx", "context", "_ctx", "_")
        if self.combined:
            parameters = parameters[1:]
        self.signature = full.replace(parameters=parameters)
        self.names = [p.name for p in parameters]
        self.variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.plain = len(parameters) if len(positional) == len(parameters) else -1
        self.vjp = "backward" if _defines(cls, "backward") else "vjp"

    def bind(self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[
        tuple[Any, ...], tuple[str, ...]
    ]:
        """All arguments in order, defaults filled in, and the names of the keyword-only ones."""
        if not kwargs and len(args) == self.plain:
            return args, ()
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{who}.apply{self.signature}: {error}") from None
        bound.apply_defaults()
        return (*bound.args, *bound.kwargs.values()), tuple(bound.kwargs)


def _defines(cls: Any, name: str) -> bool:
    """Whether a Function class or one of its bases, below Function itself, defines ``name``."""
    return any(name in base.__dict__ for base in cls.__mro__ if "_is_root_function" not in base.__dict__)


@dataclasses.dataclass(frozen=True, slots=True)
class UserRules(Rules):
    """The rules of a Function class, for one structure of arguments.

    ``template`` is the structure of the bound arguments; ``keywords`` names the last of them, which
    forward takes by keyword.
    """

    cls: Any
    inputs: Template
    keywords: tuple[str, ...] = ()

    @property
    def name(self) -> str:  # type: ignore[override]
        name: str = self.cls.__name__
        return name

    def wrap(self, x: Any) -> Any:
        """A value as the bodies receive it."""
        return as_tensor(x) if x is not None else None

    def materialize(self, x: Any, aval: Any) -> Any:
        """`wrap`, with zeros for None."""
        return self.wrap(jnp.zeros(aval.shape, aval.dtype) if x is None else x)

    def arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The bound arguments around ``values``."""
        args: tuple[Any, ...] = self.inputs.join(values)
        return args

    def call_forward(self, ctx: Context | None, handles: Sequence[Any]) -> Any:
        args = self.arguments(handles)
        split = len(args) - len(self.keywords)
        kwargs = dict(zip(self.keywords, args[split:], strict=True))
        signature: Signature = self.cls._signature
        try:
            if signature.combined:
                return self.cls.forward(ctx, *args[:split], **kwargs)
            return self.cls.forward(*args[:split], **kwargs)
        except HostValueError as error:
            raise _host_error(self.name, "forward", error) from error

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        handles = [self.wrap(fresh(v)) for v in values]
        out = self.call_forward(Context() if self.cls._signature.combined else None, handles)
        return split_output(self.name, out, handles)

    def setup(
        self, ctx: Context, values: Sequence[Any], outs: Sequence[Any], template: Template
    ) -> None:
        ctx._in_avals = [aval_of(v) for v in values]
        ctx._out_avals = [aval_of(o) for o in outs]
        if self.cls._signature.has_setup:
            self.cls.setup_context(
                ctx,
                self.arguments([self.wrap(v) for v in values]),
                template.join([self.wrap(o) for o in outs]),
            )
        elif self.cls._signature.combined:
            handles = [self.wrap(v) for v in values]
            again, _ = split_output(self.name, self.call_forward(ctx, handles), handles)
            swap_outputs(ctx, again, [self.wrap(o) for o in outs])
        if not self.has_vjp and not self.has_jvp:
            ctx._hidden = list(values)
        ctx._template = template

    @property
    def has_vjp(self) -> bool:
        """Whether the user wrote a vjp."""
        return _defines(self.cls, self.cls._signature.vjp)

    @property
    def has_jvp(self) -> bool:
        """Whether the user wrote a jvp."""
        return _defines(self.cls, "jvp")

    def needs(self, need: Sequence[bool]) -> tuple[bool, ...]:
        """``need`` for each argument, from ``need`` for each array."""
        tree = self.inputs.join_only(list(need))
        return tuple([any(bool(x) for x in jax.tree_util.tree_leaves(a)) for a in tree])

    def pullback(
        self, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        if self.has_vjp:
            return self._user_pullback(ctx, cotangents, need)
        if self.has_jvp:
            return transpose_pushforward(self, ctx, cotangents, need)
        try:
            return pull_through(self.forward, saved_inputs(ctx), cotangents, need)
        except HostValueError as error:
            raise _host_error(self.name, "forward", error, missing="vjp (or jvp)") from error

    def _user_pullback(
        self, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        rule = self.cls._signature.vjp
        who = f"{self.name}.{rule}"
        template = ctx._template
        assert template is not None
        g = template.join_only(
            [
                self.materialize(c, a) if ctx._materialize else self.wrap(c)
                for c, a in zip(cotangents, ctx._out_avals, strict=True)
            ]
        )
        ctx.needs_input_grad = self.needs(need)
        ctx._in_forward_mode = False
        try:
            grads = (
                getattr(self.cls, rule)(ctx, *g)
                if type(g) in (tuple, list)
                else getattr(self.cls, rule)(ctx, g)
            )
        except HostValueError as error:
            raise _host_error(self.name, rule, error) from error
        return self.check_gradients(who, grads, ctx._in_avals)

    def check_gradients(self, who: str, grads: Any, avals: Sequence[Any]) -> list[Any]:
        """What a vjp rule returned, as a gradient for each array input."""
        names = self.argument_names()
        if not isinstance(grads, (tuple, list)) or (
            len(names) == 1 and len(grads) != 1 and not _is_none_padded(grads, 1)
        ):
            grads = (grads,)
        if len(grads) > len(names) and _is_none_padded(grads, len(names)):
            grads = grads[: len(names)]
        if len(grads) != len(names):
            raise RuleError(
                f"{who} returned {len(grads)} gradients, expected {len(names)}: one for each "
                f"argument of forward ({', '.join(names)}), None where there is none"
            )
        found = self.inputs.collect(tuple(grads), who, "the gradients")
        owners = self.owners()
        return [
            check_value(f"{who}: the gradient for argument {owners[i]!r}", g, a)
            for i, (g, a) in enumerate(zip(found, avals, strict=True))
        ]

    def argument_names(self) -> list[str]:
        """A name for each bound argument."""
        count = self.inputs.structure.num_nodes and len(self.inputs.structure.children())
        names: list[str] = []
        for p in self.cls._signature.signature.parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                fixed = len(self.keywords)
                names.extend(f"{p.name}[{i}]" for i in range(count - fixed - len(names)))
            elif p.kind is p.VAR_KEYWORD:
                names.extend(k for k in self.keywords if k not in names)
            else:
                names.append(p.name)
        return names

    def owners(self) -> list[str]:
        """The name of the argument that each array belongs to."""
        names = self.argument_names()
        tree = self.inputs.structure.unflatten(range(len(self.inputs.leaves)))
        owner: dict[int, str] = {}
        for name, sub in zip(names, tree, strict=True):
            for index in jax.tree_util.tree_leaves(sub):
                owner[index] = name
        return [owner[i] for i, x in enumerate(self.inputs.leaves) if x is HOLE]

    def pushforward(
        self, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        if self.has_jvp:
            return self._user_pushforward(ctx, tangents, outs)
        if self.has_vjp:
            return transpose_pullback(self, ctx, tangents, outs)
        try:
            return push_through(self.forward, saved_inputs(ctx), tangents)
        except HostValueError as error:
            raise _host_error(self.name, "forward", error, missing="jvp (or vjp)") from error

    def _user_pushforward(
        self, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        who = f"{self.name}.jvp"
        given = [
            (self.materialize(t, a) if ctx._materialize and is_inexact(a.dtype) else self.wrap(t))
            for t, a in zip(tangents, ctx._in_avals, strict=True)
        ]
        ctx._in_forward_mode = True
        try:
            out_t = self.cls.jvp(ctx, *self.inputs.join_only(given))
        except HostValueError as error:
            raise _host_error(self.name, "jvp", error) from error
        finally:
            ctx._in_forward_mode = False
        template = ctx._template
        assert template is not None
        if out_t is None:
            found: list[Any] = [None] * len(outs)
        else:
            found = template.collect(out_t, who, "the tangents")
        return [
            check_value(f"{who}: the tangent of output {k}", t, aval_of(o))
            if is_inexact(o.dtype)
            else None
            for k, (t, o) in enumerate(zip(found, outs, strict=True))
        ]

    def batch(
        self,
        values: Sequence[Any],
        dims: tuple[int | None, ...],
        info: VmapInfo,
    ) -> tuple[list[Any], list[int | None], Template] | None:
        """Run the user's vmap rule, if there is one: outputs and where their batch dimension is."""
        if not _defines(self.cls, "vmap"):
            if not self.cls.generate_vmap_rule:
                raise RuleError(
                    f"{self.name}: generate_vmap_rule is False and there is no vmap rule. Write "
                    f"vmap(info, in_dims, {', '.join(self.argument_names())}), returning (output, "
                    "out_dims), or set generate_vmap_rule = True."
                )
            return None
        who = f"{self.name}.vmap"
        handles = [self.wrap(v) for v in values]
        in_dims = self.inputs.join_only(list(dims))
        returned = self.cls.vmap(info, in_dims, *self.arguments(handles))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise RuleError(
                f"{who} must return a pair (output, out_dims), got {describe(returned)}"
            )
        out, out_dims = returned
        outs, template = split_output(self.name, out, handles)
        try:
            spread = trees.broadcast_prefix(out_dims, template.join(outs), f"{who}: out_dims")
        except StructureError as error:
            raise RuleError(str(error)) from error
        array_dims = [d for d, x in zip(spread, _array_mask(template, outs), strict=True) if x]
        for k, (o, d) in enumerate(zip(outs, array_dims, strict=True)):
            if d is not None and (
                not isinstance(d, int)
                or not -o.ndim <= d < o.ndim
                or o.shape[d] != info.batch_size
            ):
                raise RuleError(
                    f"{who}: output {k} has shape {tuple(o.shape)}, which does not have the batch "
                    f"of {info.batch_size} at out_dims {d!r}"
                )
        return outs, [None if d is None else d % o.ndim for o, d in zip(outs, array_dims, strict=True)], template


def _array_mask(template: Template, outs: Sequence[Any]) -> list[bool]:
    leaves = trees.flatten(template.join(outs))[0]
    return [isinstance(x, (Tensor, jax.Array, np.ndarray)) for x in leaves]


def _is_none_padded(grads: Any, count: int) -> bool:
    return len(grads) > count and all(g is None for g in grads[count:])


def fresh(x: Any) -> Any:
    """A new handle, so that a body cannot change the caller's Tensor in place."""
    if isinstance(x, Tensor) and not x.requires_grad:
        return new_tensor(x.value, x.level, x.aux)
    return x


def split_output(
    name: str, out: Any, inputs: Sequence[Any]
) -> tuple[list[Any], Template]:
    """The arrays that a forward body returned, and the structure around them."""
    out = trees.map_leaves(
        lambda x: jnp.asarray(x) if isinstance(x, (np.generic, float, complex)) else x, out
    )
    arrays, template = Template.split(out, inputs)
    return [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays], template


def swap_outputs(ctx: Context, old: Sequence[Any], new: Sequence[Any]) -> None:
    """Let ``ctx`` refer to the real outputs in place of those of a second run of the body."""
    index = {id(o): n for o, n in zip(old, new, strict=True)}

    def swap(items: Sequence[Any]) -> list[Any]:
        return [index.get(id(x), x) for x in items]

    ctx._saved = swap(ctx._saved)
    if ctx._saved_forward is not None:
        ctx._saved_forward = swap(ctx._saved_forward)
    ctx._non_differentiable = tuple(swap(ctx._non_differentiable))
    for key, value in list(vars(ctx).items()):
        if id(value) in index:
            setattr(ctx, key, index[id(value)])


def _host_error(name: str, rule: str, error: Exception, missing: str = "") -> RuleError:
    if missing:
        advice = f"Write {missing}: it cannot be derived from a body that leaves JAX."
    else:
        advice = (
            "Write it with fad.numpy, add a vmap rule (under vmap), or wrap the host code in "
            "fad.from_jax(jax.pure_callback(...)) (under jit)."
        )
    return RuleError(f"{name}.{rule} needs concrete values on the host: {error} {advice}")


_CASTS: dict[Any, Primitive] = {}


def check_value(what: str, x: Any, aval: Any) -> Any:
    """A gradient or tangent that a rule returned, checked against its primal and cast to its dtype."""
    if x is None or not is_inexact(aval.dtype):
        return None
    if isinstance(x, (float, int, complex, np.ndarray, np.generic)):
        x = jnp.asarray(x)
    if not isinstance(x, (Tensor, jax.Array)):
        raise RuleError(
            f"{what} must be an array of shape {tuple(aval.shape)} or None, got {describe(x)}"
        )
    if tuple(x.shape) != tuple(aval.shape):
        raise RuleError(
            f"{what} has shape {tuple(x.shape)}, expected {tuple(aval.shape)}. Where forward "
            "broadcasts, sum the gradient over the broadcast dimensions."
        )
    if x.dtype != aval.dtype:
        if jnp.issubdtype(x.dtype, np.complexfloating) and not jnp.issubdtype(
            aval.dtype, np.complexfloating
        ):
            cast = _CASTS.setdefault(
                ("real", aval.dtype), Primitive("astype", lambda v: v.real.astype(aval.dtype))
            )
        else:
            cast = _CASTS.setdefault(
                aval.dtype, Primitive("astype", lambda v: v.astype(aval.dtype))
            )
        x = bind(cast, (x,))
    if isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad:
        return x.value
    return x


@functools.lru_cache(maxsize=4096)
def _lifted(rules: JaxRules, what: str, key: Any) -> Primitive:
    """A body that takes JAX arrays, as a Primitive."""
    body = getattr(rules, f"jax_{what}")
    return Primitive(f"{rules.name}_{what}", functools.partial(body, *key))


@dataclasses.dataclass(frozen=True, slots=True)
class JaxRules(UserRules):
    """The rules of a Function with ``jax_rules``: each body takes JAX arrays and is one Primitive.

    Inputs and outputs are what is saved; contexts are made inside the compiled rule.
    """

    def wrap(self, x: Any) -> Any:
        return x

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        primitive = _lifted(self, "forward", ())
        out = bind(primitive, values)
        return Template.split(primitive.unflatten(out))

    def jax_forward(self, *values: Any) -> Any:
        outs, template = UserRules.forward(self, values)
        return template.join(outs)

    def setup(
        self, ctx: Context, values: Sequence[Any], outs: Sequence[Any], template: Template
    ) -> None:
        ctx._hidden = [*values, *outs]
        ctx._template = template
        ctx._in_avals = [aval_of(v) for v in values]
        ctx._out_avals = [aval_of(o) for o in outs]
        marked = _marked(self, template, tuple(ctx._in_avals), tuple(ctx._out_avals))
        ctx._non_differentiable = tuple([outs[k] for k in marked])

    def context(self, values: Sequence[Any], outs: Sequence[Any], template: Template) -> Context:
        """A context filled in by the user's bodies, on arrays."""
        ctx = Context()
        UserRules.setup(self, ctx, values, outs, template)
        return ctx

    def pullback(
        self, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        if not self.has_vjp:
            return UserRules.pullback(self, ctx, cotangents, need)
        assert ctx._template is not None
        given = tuple([c is not None for c in cotangents])
        primitive = _lifted(self, "pullback", (ctx._template, given, tuple(need)))
        operands = [*ctx._hidden_values(), *[c for c in cotangents if c is not None]]
        grads: list[Any] = primitive.unflatten(bind(primitive, operands))
        return grads

    def jax_pullback(
        self, template: Template, given: tuple[bool, ...], need: tuple[bool, ...], *operands: Any
    ) -> list[Any]:
        n, m = len(need), len(given)
        values, outs = operands[:n], operands[n : n + m]
        it = iter(operands[n + m :])
        cts = [next(it) if g else None for g in given]
        grads = self._user_pullback(self.context(values, outs, template), cts, need)
        return [g if wanted else None for g, wanted in zip(grads, need, strict=True)]

    def pushforward(
        self, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        if not self.has_jvp:
            return UserRules.pushforward(self, ctx, tangents, outs)
        assert ctx._template is not None
        mask = tuple([t is not None for t in tangents])
        primitive = _lifted(self, "pushforward", (ctx._template, mask, len(outs)))
        out = bind(primitive, [*ctx._hidden_values(), *[t for t in tangents if t is not None]])
        out_t: list[Any] = primitive.unflatten(out)
        return out_t

    def jax_pushforward(
        self, template: Template, mask: tuple[bool, ...], count: int, *operands: Any
    ) -> list[Any]:
        n = len(mask)
        values, outs = operands[:n], operands[n : n + count]
        it = iter(operands[n + count :])
        tangents = [next(it) if m else None for m in mask]
        return self._user_pushforward(self.context(values, outs, template), tangents, outs)

    def batch(
        self, values: Sequence[Any], dims: tuple[int | None, ...], info: VmapInfo
    ) -> tuple[list[Any], list[int | None], Template] | None:
        if not _defines(self.cls, "vmap"):
            return UserRules.batch(self, values, dims, info)
        found: dict[str, Any] = {}

        def run(*arrays: Any) -> list[Any]:
            batched = UserRules.batch(self, arrays, dims, info)
            assert batched is not None
            outs, found["dims"], found["template"] = batched
            return outs

        shapes = jax.eval_shape(run, *[struct_of(aval_of(v)) for v in values])
        primitive = _lifted_batch(self, dims, info)
        out = bind(primitive, values)
        outs = out if type(out) is tuple else (out,)
        assert len(outs) == len(shapes)
        return list(outs), found["dims"], found["template"]


@functools.lru_cache(maxsize=4096)
def _lifted_batch(rules: JaxRules, dims: tuple[int | None, ...], info: VmapInfo) -> Primitive:
    def run(*arrays: Any) -> tuple[Any, ...]:
        batched = UserRules.batch(rules, arrays, dims, info)
        assert batched is not None
        return tuple(batched[0])

    return Primitive(f"{rules.name}_vmap", run)


@functools.lru_cache(maxsize=4096)
def _marked(
    rules: JaxRules, template: Template, in_avals: tuple[Any, ...], out_avals: tuple[Any, ...]
) -> tuple[int, ...]:
    """Which outputs a body marks as not differentiable, found by tracing it."""
    found: list[int] = []
    n = len(in_avals)

    def run(*operands: Any) -> None:
        ctx = rules.context(operands[:n], operands[n:], template)
        found.extend(non_differentiable(ctx, operands[n:]))

    jax.eval_shape(run, *[struct_of(a) for a in (*in_avals, *out_avals)])
    return tuple(sorted(set(found)))


# Rules that are derived


def saved_inputs(ctx: Context) -> list[Any]:
    """The inputs of the call, where they were kept for a derived rule."""
    return ctx._hidden_values()[: len(ctx._in_avals)]


def pull_through(
    f: Callable[[Sequence[Any]], tuple[list[Any], Any]],
    values: Sequence[Any],
    cotangents: Sequence[Any],
    need: Sequence[bool],
) -> list[Any]:
    """Gradients of a body, by running it in a grad level of its own."""
    with GradLevel() as level:
        inside = [
            level.variable(v) if n and is_inexact(v.dtype) else v
            for v, n in zip(values, need, strict=True)
        ]
        variables = [x for x, v in zip(inside, values, strict=True) if x is not v]
        outs, _ = f(inside)
        if not variables:
            return [None] * len(values)
        grads = iter(pull_back(outs, cotangents, variables))
    return [next(grads) if x is not v else None for x, v in zip(inside, values, strict=True)]


def push_through(
    f: Callable[[Sequence[Any]], tuple[list[Any], Any]],
    values: Sequence[Any],
    tangents: Sequence[Any],
) -> list[Any]:
    """Tangents of a body, by running it in a jvp level of its own."""
    with JvpLevel() as level:
        outs, _ = f(
            [
                v if t is None else level.dual(v, t)
                for v, t in zip(values, tangents, strict=True)
            ]
        )
        return [level.unpack(o)[1] for o in outs]


def transpose_pushforward(
    rules: Rules, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
) -> list[Any]:
    """The pullback, from the pushforward: transpose it at any tangent (zero)."""
    avals = ctx._in_avals
    with GradLevel() as level:
        tangents = [
            level.variable(jnp.zeros(a.shape, a.dtype)) if n and is_inexact(a.dtype) else None
            for a, n in zip(avals, need, strict=True)
        ]
        variables = [t for t in tangents if t is not None]
        outs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ctx._out_avals]
        out_t = rules.pushforward(ctx, tangents, outs)
        grads = iter(pull_back(out_t, cotangents, variables) if variables else [])
    return [None if t is None else next(grads) for t in tangents]


def transpose_pullback(
    rules: Rules, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
) -> list[Any]:
    """The pushforward, from the pullback: transpose that, see NOTE [missing rules]."""
    with GradLevel() as level:
        cotangents = [
            level.variable(jnp.zeros(o.shape, o.dtype)) if is_inexact(o.dtype) else None
            for o in outs
        ]
        variables = [c for c in cotangents if c is not None]
        need = [t is not None for t in tangents]
        grads = rules.pullback(ctx, cotangents, need)
        out_t = iter(pull_back(grads, tangents, variables) if variables else [])
    return [None if c is None else next(out_t) for c in cotangents]


def run_setup(
    rules: Rules, values: Sequence[Any], outs: Sequence[Any], template: Template
) -> Context:
    """A fresh context, filled in."""
    ctx = Context()
    rules.setup(ctx, values, outs, template)
    ctx._outs = outs
    return ctx


@dataclasses.dataclass(frozen=True, slots=True)
class LinearRules(Rules):
    """The derivative of a call: (inputs, outputs, masked tangents) to tangents of inexact outputs."""

    base: Rules
    mask: tuple[bool, ...]
    outputs: tuple[bool, ...]  # which outputs have a tangent
    out_template: Template

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.base.name}_jvp"

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Inputs, outputs, and a tangent or None for each input."""
        n, m = len(self.mask), len(self.outputs)
        it = iter(values[n + m :])
        return (
            list(values[:n]),
            list(values[n : n + m]),
            [next(it) if x else None for x in self.mask],
        )

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        primals, outs, tangents = self.split(values)
        ctx = run_setup(self.base, primals, outs, self.out_template)
        out_t = self.base.pushforward(ctx, tangents, outs)
        blocked = non_differentiable(ctx, outs)
        result = [
            jnp.zeros(o.shape, o.dtype) if t is None or k in blocked else t
            for k, (t, o, has) in enumerate(zip(out_t, outs, self.outputs, strict=True))
            if has
        ]
        return Template.split(tuple(result))

    def setup(
        self, ctx: Context, values: Sequence[Any], outs: Sequence[Any], template: Template
    ) -> None:
        ctx._hidden = list(values)
        ctx._in_avals = [aval_of(v) for v in values]
        ctx._out_avals = [aval_of(o) for o in outs]

    def pullback(
        self, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        values = ctx._hidden_values()
        primals, outs, _ = self.split(values)
        known = len(self.mask) + len(self.outputs)
        grads: list[Any] = [None] * known
        if any(need[:known]):  # differentiate the jvp body itself
            wanted = [*need[:known], *[False] * (len(need) - known)]
            grads = pull_through(self.forward, values, cotangents, wanted)[:known]
        if not any(need[known:]):
            return [*grads, *[None] * (len(need) - known)]
        inner = run_setup(self.base, primals, outs, self.out_template)
        blocked = non_differentiable(inner, outs)
        it = iter(cotangents)
        full = [next(it) if has else None for has in self.outputs]
        full = [None if k in blocked else c for k, c in enumerate(full)]
        flags = iter(need[known:])
        wanted = [next(flags) if m else False for m in self.mask]
        if all(c is None for c in full):
            return [*grads, *[None] * (len(need) - known)]
        pulled = self.base.pullback(inner, full, wanted)
        return [*grads, *[g for g, m in zip(pulled, self.mask, strict=True) if m]]

    def pushforward(
        self, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        return push_through(self.forward, ctx._hidden_values(), tangents)


def non_differentiable(ctx: Context, outs: Sequence[Any]) -> set[int]:
    """Positions of the outputs that a rule marked as not differentiable."""
    marked = ctx._non_differentiable
    if not marked:
        return set()
    found = set()
    for k, o in enumerate(outs):
        for m in marked:
            if m is o or (isinstance(m, Tensor) and m.value is o):
                found.add(k)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class BatchedRules(Rules):
    """A call under vmap; outputs have the batch along dimension 0."""

    base: Rules
    dims: tuple[int | None, ...]
    batch_size: int
    axis_name: Any = None
    randomness: str = "error"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.base.name

    def level(self) -> BatchLevel:
        """A fresh level to run the base's bodies in."""
        return BatchLevel(self.batch_size, self.axis_name, self.randomness)

    def _wrap(self, level: BatchLevel, values: Sequence[Any]) -> list[Any]:
        return [
            v if d is None else new_tensor(v, level, d)
            for v, d in zip(values, self.dims, strict=True)
        ]

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], Template]:
        if isinstance(self.base, UserRules):
            info = VmapInfo(self.batch_size, self.randomness)
            batched = self.base.batch(values, self.dims, info)
            if batched is not None:
                outs, dims, template = batched
                moved = [
                    broadcast(o, self.batch_size, 0) if d is None else move_axis(o, d, 0)
                    for o, d in zip(outs, dims, strict=True)
                ]
                return moved, template
        with self.level() as level:
            outs, template = self.base.forward(self._wrap(level, values))
            return [level.unwrap(o, 0) for o in outs], template

    def setup(
        self, ctx: Context, values: Sequence[Any], outs: Sequence[Any], template: Template
    ) -> None:
        ctx._hidden = [*values, *outs]
        ctx._in_avals = [aval_of(v) for v in values]
        ctx._out_avals = [aval_of(o) for o in outs]
        ctx._template = template
        if isinstance(self.base, (UserRules, BatchedRules)):
            with self.level() as level:
                inner = self._inner(level, ctx)
                marked = non_differentiable(inner, inner._outs)
            ctx._non_differentiable = tuple([outs[k] for k in marked])

    def _inner(self, level: BatchLevel, ctx: Context) -> Context:
        """The base's context, inside of ``level``."""
        hidden = ctx._hidden_values()
        values, outs = hidden[: len(self.dims)], hidden[len(self.dims) :]
        wrapped = [new_tensor(o, level, 0) for o in outs]
        assert ctx._template is not None
        return run_setup(self.base, self._wrap(level, values), wrapped, ctx._template)

    def pullback(
        self, ctx: Context, cotangents: Sequence[Any], need: Sequence[bool]
    ) -> list[Any]:
        with self.level() as level:
            inner = self._inner(level, ctx)
            cts = [None if c is None else new_tensor(c, level, 0) for c in cotangents]
            grads = self.base.pullback(inner, cts, need)
            result = []
            for g, d in zip(grads, self.dims, strict=True):
                if g is None:
                    result.append(None)
                elif d is None:
                    result.append(bind(_SUM_LANES, (level.unwrap(g, 0),)))
                else:
                    result.append(level.unwrap(g, d))
            return result

    def pushforward(
        self, ctx: Context, tangents: Sequence[Any], outs: Sequence[Any]
    ) -> list[Any]:
        with self.level() as level:
            inner = self._inner(level, ctx)
            given = [
                t if t is None or d is None else new_tensor(t, level, d)
                for t, d in zip(tangents, self.dims, strict=True)
            ]
            out_t = self.base.pushforward(inner, given, inner._outs)
            return [None if t is None else level.unwrap(t, 0) for t in out_t]


_SUM_LANES = Primitive("sum", lambda x: jnp.sum(x, axis=0))


def checked_arrays(name: str, outs: Sequence[Any]) -> list[Any]:
    """Outputs of a body that ran on bare arrays, as bare arrays.

    Raises:
        RuleError: one of them is part of a running transform or graph: the body closed over it.
    """
    result = []
    for o in outs:
        o = outlived(o)
        if isinstance(o, Tensor):
            if o.level is not ROOT or o.requires_grad:
                where = repr(o.level) if o.level is not ROOT else "the eager graph"
                raise RuleError(
                    f"{name} closes over a Tensor that is tracked by {where} and is not among its "
                    f"arguments, so its derivative would be lost; it reached the output "
                    f"{describe(o)}. Pass the Tensor as an argument of {name}.apply, or use "
                    "stop_gradient(tensor) if no derivative is wanted."
                )
            o = o.value
        result.append(o)
    return result
