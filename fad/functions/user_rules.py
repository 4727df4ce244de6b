"""The rules that a user wrote in a Function class, checked where they return."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from fad.core import trees
from fad.core.avals import aval_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.jaxapi import array_type, varying_axes, zeros
from fad.core.level import Level, bind, outlived
from fad.core.primitive import Primitive, cast_to
from fad.core.tensor import Tensor, new_tensor
from fad.core.trees import HOLE
from fad.core.types import Array, Aval, Dims, MaybeValue, PyTree, Value
from fad.errors import GradientError, HostValueError, RuleError, StructureError, describe
from fad.functions.context import (
    EXTRA,
    INPUT,
    OUTPUT,
    SCALARS,
    SINGLE,
    Context,
    Notes,
    Ref,
    Template,
    View,
    VmapInfo,
    is_array,
    marked,
    split,
)
from fad.functions.derived_rules import transpose_pullback, transpose_pushforward
from fad.functions.rules import (
    RULES,
    CallRules,
    Directions,
    FunctionClass,
    Grads,
    Needs,
    Outcome,
    Saved,
    Signature,
    Values,
    defines,
    host_error,
    pull_through,
    push_through,
)
from fad.tape.engine import is_broadcast, sum_to
from fad.tape.graph import alias, running
from fad.tape.recorder import ROOT, as_tensor
from fad.tape.saved import PackedValue
from fad.tape.vmap import broadcast, move_axis
from fad.views.make_view import chain_from, peer_chain_from

# What a rule of the user's returned, checked against what was expected, with errors that name it.

_VALUES = (Tensor, jax.Array)


def gradients(
    who: str, grads: PyTree, inputs: Template, names: Sequence[str], avals: Sequence[Aval]
) -> list[MaybeValue]:
    """What a vjp rule returned, as a gradient for each array input.

    ``inputs`` is the structure of the bound arguments, and ``names`` has a name for each of them.
    """
    parts = inputs.parts()
    single = len(names) == 1 and parts[0].structure != trees.LEAF
    if not isinstance(grads, (tuple, list)) or (single and _is_for_whole(grads, parts[0])):
        grads = (grads,)
    if len(grads) > len(names) and all([g is None for g in grads[len(names) :]]):
        grads = grads[: len(names)]
    if len(grads) != len(names):
        raise RuleError(
            f"{who} returned {len(grads)} gradients, expected {len(names)}: one for each "
            f"argument of forward ({', '.join(names)}), None where there is none"
        )
    result: list[MaybeValue] = []
    for name, part, g in zip(names, parts, grads, strict=True):
        if HOLE not in part.leaves:
            continue
        what = f"{who}: the gradient for argument {name!r}"
        for x in part.collect(g, what):
            result.append(check_value(what, x, avals[len(result)], summed=True))
    return result


def directions_of(
    who: str, returned: PyTree, template: Template, avals: Sequence[Aval], order: int | None
) -> list[Any]:
    """What a jvp rule returned, as a tangent for each output; or a jet rule, as a list of derivatives."""
    what = f"{who}: the {'tangent' if order is None else 'series'}"
    directions = template.collect(returned, f"{what} of the output")
    for k in template.marks.non_differentiable:
        if directions[k] is not None:
            raise RuleError(
                f"{what} of output {k} is {describe(directions[k])}, and the output is marked "
                "with ctx.mark_non_differentiable: return None in its place"
            )
    if order is None:
        return [check_value(f"{what} of output {k}", t, avals[k]) for k, t in enumerate(directions)]
    result: list[Any] = []
    for k, s in enumerate(directions):
        if s is not None and (not isinstance(s, (tuple, list)) or len(s) != order):
            raise RuleError(
                f"{what} of output {k} must be a list of {order} derivatives, got {describe(s)}. "
                "Return as many as there are of each argument: [first, second, ...]."
            )
        terms = enumerate(s or (), 1)
        checked = [
            check_value(f"{who}: derivative {n} of output {k}", t, avals[k]) for n, t in terms
        ]
        result.append(checked or None)
    return result


def pair(who: str, form: str, returned: PyTree) -> tuple[PyTree, PyTree]:
    """What a rule that returns a pair returned; ``form`` says of what."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise RuleError(f"{who} must return a pair ({form}), got {describe(returned)}")
    first, second = returned
    return first, second


def batched_outputs(who: str, returned: PyTree, batch_size: int) -> tuple[list[Value], Template]:
    """What a vmap rule returned, ``(output, out_dims)``, as arrays with the batch along dimension 0."""
    out, out_dims = pair(who, "output, out_dims", returned)
    outs, template = split(out, SCALARS)
    arrays = list(map(as_value, outs))
    output = template.combine(arrays)
    try:
        spread = trees.broadcast_prefix(out_dims, output, f"{who}: out_dims")
    except StructureError as error:
        raise RuleError(str(error)) from error
    dims = [d for d, x in zip(spread, trees.flatten(output)[0]) if isinstance(x, _VALUES)]
    moved: list[Value] = []
    for k, (o, d) in enumerate(zip(arrays, dims, strict=True)):
        if d is None:
            moved.append(broadcast(o, batch_size, 0))
            continue
        if type(d) is not int or not -o.ndim <= d < o.ndim or o.shape[d] != batch_size:
            raise RuleError(
                f"{who}: output {k} has shape {tuple(o.shape)}, which does not have the batch "
                f"of {batch_size} at out_dims {d!r}"
            )
        moved.append(move_axis(o, d % o.ndim, 0))
    return moved, template


def _is_for_whole(grads: Sequence[PyTree], part: Template) -> bool:
    """Whether what a vjp returned is the gradient of its one argument, a tree, not a tuple around it."""
    if len(grads) != 1:
        return not all([g is None for g in grads[1:]])
    try:
        part.collect(grads[0], "")
    except RuleError:
        return True
    return False


def check_value(what: str, x: Any, aval: Aval, summed: bool = False) -> MaybeValue:
    """A gradient or tangent that a rule returned, checked against its primal and cast to its dtype.

    ``summed``: one whose shape the primal's can be broadcast to is summed to the primal's, as in PyTorch.
    """
    if x is None or not is_inexact(aval.dtype):
        return None
    if type(x) is Tensor and x._level is ROOT and x.meta is None and not x._requires_grad:
        value: Array = x._value
        same = value.shape == aval.shape and value.dtype == aval.dtype
        if same and type(value) is array_type and not varying_axes(aval):
            return value
    if isinstance(x, (float, int, complex, np.ndarray, np.generic)):
        x = as_array(x)
    if not isinstance(x, _VALUES):
        raise RuleError(
            f"{what} must be an array of shape {tuple(aval.shape)} or None, got {describe(x)}"
        )
    if tuple(x.shape) != tuple(aval.shape):
        if not summed or not is_broadcast(aval.shape, x.shape):
            also = ""
            if summed:
                also = ", that of the argument, or a larger one that the argument was broadcast to"
                if is_broadcast(x.shape, aval.shape):
                    also = f", that of the argument: write fad.numpy.broadcast_to(g, {tuple(aval.shape)})"
            raise RuleError(
                f"{what} has shape {tuple(x.shape)}, expected {tuple(aval.shape)}{also}"
            )
        x = bind(sum_to(tuple(aval.shape), len(x.shape)), (x,))
    if x.dtype != aval.dtype:
        x = bind(cast_to(aval.dtype), (x,))
    has, expected = varying_axes(aval_of(x)), varying_axes(aval)
    if has != expected:
        x = bind(over_devices(tuple(has - expected), tuple(expected - has)), (x,))
    checked: Value = lowered(x)
    return checked


@functools.lru_cache(maxsize=64)
def over_devices(summed: tuple[Hashable, ...], varying: tuple[Hashable, ...]) -> Primitive:
    """Under ``shard_map``: a sum over devices, along ``summed``; what varies along ``varying``, too."""

    def fit(x: Array) -> Array:
        x = jax.lax.psum(x, summed) if summed else x
        return jax.lax.pcast(x, varying, to="varying") if varying else x

    return Primitive("psum", fit)


def views_among(outs: Sequence[PyTree], handles: Sequence[PyTree]) -> tuple[View, ...]:
    """Which outputs of a body share storage with its inputs or with other outputs: a `View` for each.

    An input that is returned twice as it is makes two outputs.
    """
    last = {id(o): k for k, o in enumerate(outs)}
    inputs = set(map(id, handles))
    views: list[View] = []
    for k, o in enumerate(outs):
        if isinstance(o, Tensor) and (o.meta is not None or id(o) in inputs):
            origin = chain_from(o, handles)
            if origin is not None:
                views.append(View(k, *origin, as_is=o is handles[origin[0]]))
            elif (origin := peer_chain_from(o, handles)) is not None:
                views.append(View(k, *origin, detached=True))
            elif o.meta is not None and (origin := chain_from(o, outs)) is not None:
                base, chain = origin
                if base != k:
                    views.append(View(k, last[id(outs[base])], chain, of_output=True))
        if last[id(o)] != k and id(o) not in inputs:
            views.append(View(k, last[id(o)], None))
    return tuple(views)


def as_value(x: Any) -> Any:
    """An array that a body returned, or a number, as a value of the call."""
    return x if isinstance(x, _VALUES) else as_array(x)


def lowered(x: Any) -> Any:
    """A Tensor without a level or a history as its array."""
    if isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad:
        return x.value
    return x


# The rules that a user wrote in a Function class, checked where they return.

# What a body raises when it reads a traced, batched or tracked value as a number.
HOST_ERRORS = (
    HostValueError,
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
# What Python says of an element of an empty tuple.
_OF_NOTHING = re.compile("tuple index out of range|values to unpack")


@dataclasses.dataclass(unsafe_hash=True, slots=True)  # never changed; making a frozen one is slow
class UserRules(CallRules):
    """The rules of a Function class, for one structure of arguments.

    ``signature`` is what the class says about its calls: another one once its rules have changed.
    ``inputs`` is the structure of the bound arguments; ``keywords`` names the last of them, which
    forward takes by keyword.
    """

    cls: FunctionClass
    signature: Signature
    inputs: Template
    keywords: tuple[str, ...] = ()

    kept_types: ClassVar[tuple[type, ...]] = (Tensor,)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.cls.__name__

    @property
    def function(self) -> FunctionClass:  # type: ignore[override]
        return self.cls

    @property
    def are_of_the_body(self) -> bool:  # type: ignore[override]
        return not (self.signature.vjp or self.has_forward_rule)

    @property
    def has_jet(self) -> bool:  # type: ignore[override]
        return self.signature.jet

    @property
    def has_transpose(self) -> bool:
        return bool(self.signature.vjp)

    def bodies(self) -> list[Callable[..., object]]:
        return [getattr(self.cls, name) for name in RULES if defines(self.cls, name)]

    # Evaluating

    def wrap(self, x: Any) -> PyTree:
        """A value as the bodies receive it."""
        return as_tensor(x) if is_array(x) else x

    def another(self, x: Any) -> Any:
        """Another object for a value as the bodies receive it."""
        return alias(x)

    def arguments(self, arrays: Sequence[object]) -> tuple[Sequence[PyTree], dict[str, PyTree]]:
        """The arguments of forward with these arrays, by position and by keyword."""
        args = self.inputs.combine(arrays)
        if not self.keywords:
            return args, {}
        count = len(args) - len(self.keywords)
        return args[:count], dict(zip(self.keywords, args[count:], strict=True))

    def call_forward(self, ctx: Context | None, handles: Sequence[object]) -> PyTree:
        """Run the user's forward."""
        args, kwargs = self.arguments(handles)
        first = (ctx,) if self.signature.combined else ()
        try:
            return self.cls.forward(*first, *args, **kwargs)
        except HOST_ERRORS as error:
            raise host_error(self, "forward", error, handles) from error

    def forward(self, values: Values) -> tuple[list[Value], Template]:
        return self.run(values, None, self.signature.combined)[:2]

    def run(self, values: Values, needs: Needs = None, with_setup: bool = True) -> Outcome:
        handles: list[Any] = []
        before: list[Any] = []
        for v in values:
            plain = type(v) is array_type
            handle = new_tensor(v, ROOT) if plain else self.wrap(alias(v))
            handles.append(handle)
            before.append(v if plain else _value(handle))
        ctx = self._context(values, needs)
        output = self.call_forward(ctx, handles)
        # Most bodies give one Tensor of their own: the same as what follows, where there is nothing to tell
        # apart by identity.
        if with_setup and self.signature.vjp and _is_plain(output, handles, before):
            self._call_setup(ctx, handles, output)
            saved = _plain_saved(ctx, handles, before, output)
            if saved is None:
                kept = dict(enumerate(handles))
                saved = self.save(ctx, handles, kept, ([output],), values, [output], SINGLE)
            return [output], saved.template, saved
        # An input that a body returns, or a view of one, is told by identity: so views are looked for in
        # what it returned itself, before anything is wrapped or copied.
        outs, template = split(output, SCALARS)
        template = template.marked(template.marks._replace(views=views_among(outs, handles)))
        arrays = list(map(as_value, outs))
        kept = {i: h for i, h in enumerate(handles) if _value(h) is before[i]}
        if not with_setup and len(kept) == len(handles):
            return arrays, template, None
        tensors = [o if type(o) is Tensor else self.wrap(o) for o in arrays]
        if self.signature.has_setup:  # to which an output is one object, and an input another
            inputs = set(map(id, handles))
            tensors = [self.another(t) if id(t) in inputs else t for t in tensors]
        self._call_setup(ctx, handles, template.combine(tensors))
        saved = self.save(ctx, handles, kept, (outs, tensors), values, arrays, template)
        return arrays, saved.template, saved

    def setup(self, values: Values, outs: Values, template: Template, needs: Needs = None) -> Saved:
        # The call has run, at another level: here setup runs on its values at this one. In the one-method
        # style the body must, since it is what saves; what it returns again is told apart in `save`.
        handles = [self.wrap(alias(v)) for v in values]
        tensors = [self.wrap(alias(o)) for o in outs]
        ctx = self._context(values, needs)
        again: Sequence[object] = tensors
        if self.signature.combined:
            again = split(self.call_forward(ctx, handles), SCALARS)[0]
        kept = dict(enumerate(handles))
        for k, i in enumerate(template.marks.aliases):
            if i is not None:  # changed in place: the handle stands for the output
                del kept[i]
                if not self.signature.combined:
                    handles[i] = tensors[k]
        self._call_setup(ctx, handles, template.combine(tensors))
        return self.save(ctx, handles, kept, (again, tensors), values, outs, template)

    def _context(self, values: Values, needs: Needs) -> Context:
        flags = [is_inexact(v.dtype) for v in values] if needs is None else needs
        return Context(self.inputs.any_of(flags))

    def _call_setup(self, ctx: Context, handles: Sequence[object], output: PyTree) -> None:
        if self.signature.has_setup:
            try:
                self.cls.setup_context(ctx, self.inputs.combine(handles), output)
            except HOST_ERRORS as error:
                raise host_error(self, "setup_context", error, handles) from error

    def save(
        self,
        ctx: Context,
        handles: Sequence[object],
        kept: dict[int, Any],
        outputs: Sequence[Sequence[object]],
        values: Values,
        outs: Values,
        template: Template,
    ) -> Saved:
        """What a body left on ``ctx``.

        ``kept`` are the handles of inputs that were not changed in place; ``outputs`` are lists of
        the objects that the body may take for its outputs.
        """
        # An input that is an output too is read as the input, unless it was changed: later entries win.
        places = {id(x): Ref(OUTPUT, k) for xs in outputs for k, x in enumerate(xs)}
        template = marked(self.name, ctx, handles, outputs, template)
        dirty = template.marks.aliases
        places.update({id(h): Ref(INPUT, i) for i, h in kept.items() if i not in dirty})
        places.update(
            {id(handles[i]): Ref(OUTPUT, k) for k, i in enumerate(dirty) if i is not None}
        )
        if len(kept) < len(handles):  # what a body changes without a mark stays inside
            views = [
                v
                for v in template.marks.views
                if v.chain is None or v.of_output or v.of in (*kept, *dirty)
            ]
            template = template.marked(template.marks._replace(views=tuple(views)))
        saved = Saved(values, outs, template, list(map(aval_of, values)), list(map(aval_of, outs)))
        if self.signature.vjp or self.has_forward_rule:
            saved.notes, extras, saved.closed = Notes.take(ctx, places, self.kept_types)
            saved.extras = [lowered(x) for x in extras]
        return saved

    # Differentiating

    def notes_of(self, saved: Saved) -> Notes | None:
        """What a body left on its ctx; None where there is no rule that reads it."""
        notes: Notes | None = saved.notes
        return notes

    def for_pullback(self, saved: Saved, values: Values, outs: Values) -> Saved:
        notes = self.notes_of(saved)
        if notes is None:
            return saved.at(values, [None] * len(outs), ())
        if not saved.closed:  # the body may have to run again
            return saved.at(values, outs, saved.extras)
        if self.signature.vjp:
            notes = notes.without_forward()
        return saved.at(*notes.read(values, outs), ())

    def saved_for_backward(self, saved: Saved) -> Sequence[object] | None:
        notes = self.notes_of(saved)
        return notes.backward if notes is not None and self.signature.vjp else None

    def pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        if self.signature.vjp:
            return self._user_pullback(saved, cotangents, need)
        if self.has_forward_rule:
            return transpose_pushforward(
                self, saved, cotangents, need, "jvp" if self.signature.jvp else "jet"
            )
        return pull_through(self.forward, saved.values, cotangents, need)

    def pushforward(
        self, saved: Saved, directions: Directions, order: int | None = None
    ) -> list[Any]:
        if order is not None or self.signature.jvp:
            return self._user_pushforward(saved, directions, order)
        if self.signature.jet:
            series = self._user_pushforward(saved, [t if t is None else [t] for t in directions], 1)
            return [s and s[0] for s in series]
        if self.signature.vjp:
            if hasattr(getattr(self.cls, self.signature.vjp), "once_differentiable"):
                raise GradientError(
                    f"{self.name} has no jvp rule, and none can be derived from a "
                    f"{self.signature.vjp} that is marked with @once_differentiable: write "
                    f"jvp(ctx, {self._listed('_t')})"
                )
            return transpose_pullback(self, saved, directions, self.signature.vjp)
        return push_through(self.forward, saved.values, directions)

    @property
    def has_forward_rule(self) -> bool:
        """Whether the user wrote a rule of forward mode."""
        return self.signature.jvp or self.signature.jet

    def context(self, saved: Saved, need: Sequence[bool]) -> Context:
        if self.notes_of(saved) is None:
            return CallRules.context(self, saved, need)
        return self._restore(saved, need, False, _highest(saved))

    def _restore(self, saved: Saved, needs: Sequence[bool], forward: bool, level: Level) -> Context:
        """The context of one pass through the rules, which runs at ``level``."""
        kinds = {INPUT: saved.values, OUTPUT: saved.outs, EXTRA: saved.extras}
        notes = self.notes_of(saved)
        assert notes is not None
        args = saved.args

        def lookup(ref: Ref) -> MaybeValue:
            x = kinds[ref.kind][ref.at]
            if args and ref.kind == INPUT and type(x) is array_type:
                x = _placed(x, args[ref.at])
            return _lifted(level, x)

        return notes.context(lookup, self.wrap, self.inputs.any_of(needs), forward)

    def _argument(self, level: Level, x: Any, aval: Aval, zeros_for_none: bool) -> PyTree:
        """A tangent or cotangent, as a rule that runs at ``level`` receives it: it may write to that."""
        if x is None and (
            not zeros_for_none or jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)
        ):
            return None
        return self.wrap(alias(_lifted(level, zeros(aval) if x is None else x)))

    def _call_rule(
        self, rule: str, ctx: Context, args: Sequence[object], directions: Sequence[object]
    ) -> PyTree:
        """Run a rule of the user's; ``directions`` are the tangents or cotangents among ``args``.

        Where these require grad, backward passes in the rule are recorded: what they give depends on the
        tangents or cotangents.
        """
        before = running.records
        running.records = any([isinstance(x, Tensor) and x.requires_grad for x in directions])
        try:
            return getattr(self.cls, rule)(ctx, *args)
        except HOST_ERRORS as error:
            raise host_error(self, rule, error, [*directions, *ctx.saved_tensors]) from error
        except (IndexError, ValueError) as error:  # ctx.saved_tensors[0], (x,) = ctx.saved_tensors
            if not (ctx._record.read_nothing and _OF_NOTHING.search(str(error))):
                raise
            raise RuleError(tool("hints.functions").saved_nothing(self, rule)) from error
        finally:
            running.records = before

    def _user_pullback(self, saved: Saved, cotangents: Values, need: Sequence[bool]) -> Grads:
        rule = self.signature.vjp
        who = f"{self.name}.{rule}"
        level = _highest(saved, cotangents)
        ctx = self._restore(saved, need, False, level)
        zeros_for_none = ctx._record.zeros_for_none
        pairs = zip(cotangents, saved.out_avals, strict=True)
        arguments = [self._argument(level, c, a, zeros_for_none) for c, a in pairs]
        g = saved.template.combine_only(arguments)
        args = tuple(g) if type(g) in (tuple, list) else (g,)
        least, most = self.signature.vjp_arity
        if not least <= len(args) + 1 <= most:
            raise RuleError(
                f"{who} takes {most if len(args) + 1 > most else least} arguments, but is called with "
                f"ctx and {len(args)}: one cotangent for each of the outputs that forward returned"
            )
        grads = self._call_rule(rule, ctx, args, arguments)
        return gradients(who, grads, self.inputs, self.argument_names(), saved.in_avals)

    def argument_names(self) -> list[str]:
        """A name for each bound argument."""
        return self.signature.argument_names(self.inputs, self.keywords)

    def _listed(self, suffix: str = "") -> str:
        return ", ".join([n + suffix for n in self.argument_names()])

    def _user_pushforward(
        self, saved: Saved, directions: Directions, order: int | None
    ) -> list[Any]:
        """By the rule jvp, or with an order by jet."""
        rule = "jvp" if order is None else "jet"
        level = _highest(saved, trees.flatten(directions)[0])
        ctx = self._restore(saved, [d is not None for d in directions], True, level)
        arguments: list[Any] = []
        for d, a in zip(directions, saved.in_avals, strict=True):
            zeros_for_none = ctx._record.zeros_for_none and is_inexact(a.dtype)
            if order is None:
                arguments.append(self._argument(level, d, a, zeros_for_none))
            else:
                terms = d or ([None] * order if zeros_for_none else None)
                arguments.append(
                    terms and [self._argument(level, t, a, zeros_for_none) for t in terms]
                )
        args = self.inputs.combine_only(arguments)
        returned = self._call_rule(rule, ctx, args, trees.flatten(arguments)[0])
        who = f"{self.name}.{rule}"
        return directions_of(who, returned, saved.template, saved.out_avals, order)

    # Batching

    def batch(
        self, values: Values, dims: Dims, info: VmapInfo
    ) -> tuple[list[Value], Template] | None:
        if not self.signature.vmap:
            if not self.cls.generate_vmap_rule:
                raise RuleError(
                    f"{self.name}: generate_vmap_rule is False and there is no vmap rule. Write "
                    f"vmap(info, in_dims, {self._listed()}), returning (output, out_dims), or leave "
                    "generate_vmap_rule out."
                )
            return None
        handles = [self.wrap(alias(v)) for v in values]
        args, by_keyword = self.arguments(handles)
        taken = self.signature.vmap_keywords  # the others are handed on by position
        others = [x for k, x in by_keyword.items() if k not in taken]
        kwargs = {k: x for k, x in by_keyword.items() if k in taken}
        in_dims = self.inputs.combine_only(dims)
        try:
            returned = self.cls.vmap(info, in_dims, *args, *others, **kwargs)
        except HOST_ERRORS as error:
            raise host_error(self, "vmap", error, handles) from error
        return batched_outputs(f"{self.name}.vmap", returned, info.batch_size)


# How bodies are run, and what they saved is read


def _value(x: Any) -> Any:
    """What an in-place change of ``x`` replaces."""
    if type(x) is Tensor and x.meta is None:
        return x._value
    return x.value if isinstance(x, Tensor) else x


def _is_plain(out: PyTree, handles: Sequence[Tensor], before: Values) -> bool:
    """Whether a body gave one Tensor of its own with a derivative, and wrote to no input: the usual case."""
    if type(out) is not Tensor or out.meta is not None or out._level is not ROOT:
        return False
    value = out._value
    if out._requires_grad or type(value) is not array_type:
        return False
    for h, v in zip(handles, before):
        if h is out or h.meta is not None or h._value is not v:
            return False
    return is_inexact(value.aval.dtype)


def _plain_saved(
    ctx: Context, handles: Sequence[Tensor], values: Values, out: Tensor
) -> Saved | None:
    """What a plain body saved for backward, if that is inputs and its output; None if there is more to it.

    Most bodies are such, and `UserRules.save` would take longer than they do.
    """
    record = ctx._record
    if record.forward is not None or record.dirty or record.non_differentiable:
        return None
    if not record.zeros_for_none or ctx.saved_data or ctx.__dict__:
        return None
    if out.meta is not None or out._requires_grad:
        return None
    places: list[int] = []
    read: list[Any] = [None] * len(values)
    read_out = None
    for x in record.backward:
        if x is out:
            places.append(-1)
            read_out = out._value
            continue
        for i, h in enumerate(handles):
            if x is h:
                places.append(i)
                read[i] = values[i]
                break
        else:
            return None
    notes, avals = Notes.of_places(tuple(places)), [v.aval for v in values]
    return Saved(read, [read_out], SINGLE, avals, [out._value.aval], notes, plain=True)


def _highest(saved: Saved, directions: Values = ()) -> Level:
    """The highest level of what a rule reads.

    It gets all as Tensors of that level, so that it can differentiate in each what it computes from all.
    """
    highest: Level = ROOT
    for x in (*saved.values, *saved.outs, *saved.extras, *directions):
        if isinstance(x, Tensor):
            x = outlived(x)
            if isinstance(x, Tensor) and x._level.id > highest.id:
                highest = x._level
    return highest


def _lifted(level: Level, x: Value) -> Value:
    """``x`` as a Tensor of ``level``, if it can have a derivative."""
    return x if level is ROOT or not is_inexact(x.dtype) else level.lift(outlived(x))


def _placed(value: jax.Array, t: object) -> Value:
    """A value that was saved on the tape, with the place in the graph of the Tensor that it is of."""
    if type(t) is Tensor:
        node, output_nr = t._node, t._output_nr
    else:
        node, output_nr = t.place() if type(t) is PackedValue else (None, 0)
    if node is None:
        return value
    x = new_tensor(value, ROOT)
    x._node, x._output_nr = node, output_nr
    return x
