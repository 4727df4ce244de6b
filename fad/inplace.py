"""Writes: a Tensor, or the base that it is a view of, gets a new value and a new place in the graph.

NOTE [a write is an operation on the base]

``v.mul_(w)`` on a view ``v`` of ``b`` binds one Primitive, ``put(b, v * w)``, on ``b``, ``v`` and ``w``; its
output is what ``b`` is from then on. Recorded, differentiated, batched and traced as any operation,
it works at every level: writing a batched value into an unbatched Tensor makes that Tensor batched.

In reverse, the node of that Primitive is ``CopySlices``, PyTorch's: the gradient of the new base is
viewed as the base is, this slice of it goes through the vjp of ``multiply``, and the result takes its
place. So nothing of the size of the base is saved, and nothing is added up. The old ``v`` is an
argument that is read and has no edge: what it would add is in the edge of the base.

Everything is computed before anything is changed: a write that fails changes nothing. A lock of the
storage makes reading, computing and changing one step, so that threads that write to parts of one
Tensor lose nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.dispatch import bind, outlived, state
from fad.errors import GradientError, LevelError, describe
from fad.indexing import getter, is_basic, parse_index, updater, view_of
from fad.jaxapi import is_inexact
from fad.levels import BatchLevel
from fad.primitive import Primitive, VjpPlan, struct_of
from fad.stopping import stopped
from fad.tape.record import PrimitiveNode, as_tensor
from fad.tensor import Tensor, storage_of
from fad.views import (
    Creation,
    Form,
    Link,
    Step,
    TrackedTensor,
    chain_forward,
    chain_primitive,
    chain_put,
    check_creation,
    form_of,
    link_of,
    move_retained,
    numbers_of,
    overlaps,
    same_chain,
    set_state,
    set_value,
    snapshot,
    split_numbers,
)

__all__ = ["become", "check_writable", "replace", "set_item", "write"]


def write(primitive: Primitive, args: Sequence[Any]) -> Tensor:
    """Change ``args[0]`` in place to what ``primitive`` makes of ``args``; returns it.

    Raises:
        TypeError: the result has a dtype that the Tensor cannot hold.
        ValueError: the result has another shape, or elements of the Tensor overlap.
        GradientError: PyTorch's rules for leaves and special views.
        LevelError: the Tensor was captured by code that runs more than once, or by a vmap.
    """
    t, *rest = args
    if type(t) is TrackedTensor:
        t = t.origin
    _check(t, _link(t), rest, f"{primitive.name}_")
    link = _link(t)
    with storage_of(t).lock:
        if link is None:
            _commit(t, bind(whole_write(primitive), [snapshot(t), *rest]))
        else:
            base = _base_of(link)
            op = part_write(primitive, form_of(link.chain))
            _commit(base, bind(op, [snapshot(base), snapshot(t), *numbers_of(link.chain), *rest]))
    return t  # type: ignore[no-any-return]


def replace(t: Tensor, new: Any, step: Step | None = None, who: str = "copy_") -> Tensor:
    """Change ``t`` (or the view that ``step`` makes of it) in place to the values of ``new``.

    ``new`` is broadcast to the shape, and converted to the dtype. Errors are those of `write`.
    """
    if type(t) is TrackedTensor:
        t = t.origin
    link = _link(t)
    if step is not None:
        base, chain = (t, ()) if link is None else (link.base, link.chain)
        creation = Creation.DEFAULT if link is None else link.creation
        link = Link(base, (*chain, step), creation, 0)
    if isinstance(new, (list, tuple, np.ndarray, np.generic)):
        new = jnp.asarray(new)
    _check(t, link, (new,), who)
    with storage_of(t).lock:
        if link is None:
            _commit(t, bind(COPY, [snapshot(t), new]))
        else:
            base = _base_of(link)
            op = copy_write(form_of(link.chain))
            _commit(base, bind(op, [snapshot(base), *numbers_of(link.chain), new]))
    return t


def become(t: Tensor, new: Tensor, who: str) -> Tensor:
    """Change ``t`` in place to ``new``, a fresh result that nothing else refers to; errors as `write`."""
    if type(t) is TrackedTensor:
        t = t.origin
    if _link(t) is not None or new.shape != t.shape or new.dtype != t.dtype:
        return replace(t, new, who=who)
    _check(t, None, (new,), who)
    _commit(t, new)
    return t


def set_item(x: Tensor, index: Any, value: Any) -> None:
    """``x[index] = value``.

    Basic indices write to the view that they select; arrays of integers and bool masks scatter, and
    where an index occurs twice one of its values is kept. A mask alone with a value for all lanes
    (``x[x < 0] = 0``) works where the mask has no concrete value, inside vmap and jit.

    Raises:
        IndexError: see `fad.indexing.parse_index`.
        ValueError: the value cannot be broadcast to what is selected.
        TypeError: the value cannot be converted to the dtype.
        GradientError, LevelError: see `write`.
    """
    if isinstance(value, (list, tuple, np.ndarray, np.generic)):
        value = jnp.asarray(value)
    if _is_mask(index) and np.ndim(value) == 0:
        mask = as_tensor(index)
        if mask.shape != x.shape[: mask.ndim]:
            raise IndexError(
                f"a bool mask of shape {mask.shape} does not fit a Tensor of shape {x.shape}"
            )
        write(MASKED_FILL, [x, mask, value])
        return
    if type(x) is TrackedTensor:
        x = x.origin
    form, values = parse_index(x, index)
    if not is_basic(form):
        write(index_put(form), [x, value, *values])
        return
    step = Step(view_of(form), tuple(values))
    if isinstance(value, Tensor) and _same_view(x, step, value):
        return  # the last part of ``x[i] += v``: the view has been written to already
    replace(x, value, step, "x[i] = v")


def _is_mask(index: Any) -> bool:
    return isinstance(index, (Tensor, jax.Array, np.ndarray)) and index.dtype == bool


def _same_view(x: Tensor, step: Step, value: Tensor) -> bool:
    """Whether ``value`` is the very view of ``x`` that ``step`` makes."""
    known = link_of(value)
    if known is None:
        return False
    if known.creation is not Creation.DEFAULT and x.level.id > state.blocked:
        return False
    link = _link(x)
    base, chain = (x, ()) if link is None else (link.base, link.chain)
    return known.base is base and same_chain((*chain, step), known.chain)


def _link(t: Tensor) -> Link | None:
    """How ``t`` is a view of another Tensor; None if it is not."""
    link = link_of(t)
    return None if link is None or link.base is None else link


def _base_of(link: Link) -> Tensor:
    assert link.base is not None
    return link.base


# Before the write


def check_writable(t: Tensor, who: str) -> None:
    """Raise where ``t`` must not be written to."""
    _check(t, _link(t), (), who)


def _check(t: Any, link: Link | None, others: Sequence[Any], who: str) -> None:
    """Raise where the Tensor must not be written to."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{who}: only a Tensor can be changed in place, got {describe(t)}")
    root = t if link is None else link.base
    assert root is not None
    for owner in (t, root):
        if owner.meta is not None and owner.meta.inference and state.inference is None:
            raise GradientError(
                f"{who}: Inplace update to inference tensor outside InferenceMode is not allowed. Make a "
                "normal Tensor of it first: x.clone()"
            )
    recorded = _recorded(t) or _recorded(root) or any([_recorded(a) for a in others])
    if recorded:
        if link is not None:
            check_creation(t, link, who)
            if _recorded(root) and root.node is None:
                raise GradientError(
                    f"{who}: a view of a leaf Variable that requires grad is being used in an in-place "
                    f"operation. {_LEAF}"
                )
        if _recorded(t) and t.node is None:
            raise GradientError(
                f"{who}: a leaf Variable that requires grad is being used in an in-place operation. "
                f"{_LEAF}"
            )
    if link is not None and overlaps(link, root):
        raise ValueError(
            f"{who}: unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location, because it was broadcast. Please clone() the tensor before performing "
            "the operation."
        )
    for level in state.levels:
        if level.id > root.born and (level.kind in ("staged", "checkpoint") or level.deriving):
            where = {
                "staged": "jit, scan, cond or another staged function",
                "checkpoint": "checkpoint",
            }.get(level.kind, "a Function whose rule is derived")
            raise LevelError(
                f"{who}: a Tensor ({describe(root)}) from outside was written to in the body of "
                f"{where}, which runs more than once: pass it as an argument, or return the new value "
                "and write it outside"
            )


_LEAF = (
    "Write to a copy (x = x.clone()), or inside no_grad if the change is not to be differentiated."
)


def _recorded(x: Any) -> bool:
    """Whether operations on ``x`` are recorded now."""
    return isinstance(x, Tensor) and x.level.id > state.blocked and x.requires_grad


# The write itself


def _commit(root: Tensor, new: Tensor) -> None:
    """Let a base, and so all its views, have the value and history of ``new``."""
    _refuse_captured(root, new)
    storage = storage_of(root)
    data = storage.data
    if data is not None:
        chain = root.meta.link.chain  # type: ignore[union-attr]
        fresh = stopped(new)
        if chain:
            fresh = bind(copy_write(form_of(chain)), [data, *numbers_of(chain), fresh])
        data = fresh
    version = storage.version + 1
    for t in (root, *[p() for p in storage.peers]):
        node = None if t is None else t.node
        if isinstance(node, PrimitiveNode):
            node.output_written(t.output_nr, version)  # type: ignore[union-attr]
    if new.level is root.level and new.level.id <= state.blocked:
        set_value(root, new)
    else:
        move_retained(root, root.node, root.output_nr, new)
        set_state(root, new)
    storage.data = data
    storage.version = version
    own = link_of(root)
    if own is not None:
        own.seen = version


def _refuse_captured(root: Tensor, new: Any) -> None:
    """Refuse lanes of a vmap in a Tensor that was there before the vmap."""
    own: list[Any] = []
    x: Any = root
    while isinstance(x, Tensor):
        own.append(x.level)
        x = outlived(x.value)
    x = new
    while isinstance(x, Tensor):
        level = x.level
        batched = isinstance(level, BatchLevel) and x.aux is not None
        if batched and level.id > root.born and level not in own:
            raise LevelError(
                f"vmap: a value that differs between lanes ({describe(new)}) was written into a Tensor "
                f"({describe(root)}) captured from outside of the mapped function, which has one "
                "value for all lanes: pass that Tensor as a mapped argument, or make it inside"
            )
        x = outlived(x.value)


def fitted(out: Any, x: Any, name: str) -> Any:
    """The result of an operation in the shape and dtype of the Tensor it is written to."""
    if out.shape != x.shape:
        raise ValueError(
            f"{name}_: output with shape {list(x.shape)} doesn't match the broadcast shape "
            f"{list(out.shape)}: an in-place operation cannot change the shape"
        )
    if _rank(out.dtype) > _rank(x.dtype):
        raise TypeError(
            f"{name}_: result type {out.dtype} can't be cast to the desired output type {x.dtype}: "
            f"write x = fad.numpy.{name}(x, ...), or convert first with x.astype({out.dtype})"
        )
    return _converted(out, x)


def _converted(out: Any, x: Any) -> Any:
    weak = jax.typeof(out).weak_type and not jax.typeof(x).weak_type
    return jax.lax.convert_element_type(out, x.dtype) if weak or out.dtype != x.dtype else out


def _rank(dtype: Any) -> int:
    if jnp.issubdtype(dtype, np.bool_):
        return 0
    if jnp.issubdtype(dtype, np.integer):
        return 1
    return 3 if jnp.issubdtype(dtype, np.complexfloating) else 2


def _copied(view: Any, v: Any) -> Any:
    """``v`` broadcast to the shape, and converted to the dtype, of ``view``."""
    v = jnp.asarray(v)
    if v.dtype.kind == "c" and view.dtype.kind != "c":
        raise TypeError(
            f"a value of dtype {v.dtype} was written into a Tensor of dtype {view.dtype}, which would "
            "drop the imaginary part: write v.real"
        )
    extra = max(v.ndim - len(view.shape), 0)
    shape = v.shape[extra:] if set(v.shape[:extra]) <= {1} else v.shape
    try:
        fits = np.broadcast_shapes(shape, view.shape) == tuple(view.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"could not broadcast a value of shape {v.shape} into the shape {tuple(view.shape)} that "
            "is written to"
        )
    v = jax.lax.convert_element_type(v, view.dtype)
    return jnp.broadcast_to(v.reshape(shape), view.shape)


def _masked_fill(x: Any, mask: Any, v: Any) -> Any:
    mask = mask.reshape((*mask.shape, *[1] * (x.ndim - mask.ndim)))
    return jnp.where(mask, _copied(jax.ShapeDtypeStruct((), x.dtype), v), x)


@functools.lru_cache(maxsize=4096)
def index_put(form: tuple[Any, ...]) -> Primitive:
    """``x`` with a value in the place of ``x[index]``, for an index with arrays."""
    update, get = updater("set", form, ()).flat, getter(form).flat

    def changed(x: Any, v: Any, *values: Any) -> Any:
        return update(x, _copied(jax.eval_shape(get, x, *values), v), *values)

    return Primitive("index_put", changed, positions=True)


COPY = Primitive("copy", _copied)
MASKED_FILL = Primitive("masked_fill", _masked_fill)


@functools.lru_cache(maxsize=4096)
def whole_write(primitive: Primitive) -> Primitive:
    """``primitive`` with a result that fits its first argument."""
    name = primitive.name

    def changed(x: Any, *rest: Any) -> Any:
        return fitted(primitive.flat(x, *rest), x, name)

    return Primitive(name, changed)


@functools.lru_cache(maxsize=4096)
def copy_write(form: Form) -> Primitive:
    """A base with a value in the place of its view; a Primitive of (base, *numbers, value)."""
    ops = [op for op, _ in form]
    view_shape = chain_primitive(form).flat

    def changed(base: Any, *rest: Any) -> Any:
        *numbers, v = rest
        view = jax.eval_shape(view_shape, base, *numbers)
        return chain_put(ops, base, _copied(view, v), split_numbers(form, numbers))

    return Primitive("CopySlices", changed, positions=True)


@functools.lru_cache(maxsize=4096)
def part_write(primitive: Primitive, form: Form) -> Primitive:
    """A base with ``primitive`` applied to its view; a Primitive of (base, view, *numbers, *rest)."""
    inner = whole_write(primitive)
    ops = [op for op, _ in form]
    count = sum([n for _, n in form])

    add = ops[0].add if len(ops) == 1 and primitive.name in ADDITIVE else None
    negative = primitive.name == "subtract"

    def changed(base: Any, view: Any, *rest: Any) -> Any:
        numbers = split_numbers(form, rest[:count])
        if add is not None and len(rest) == count + 1 and isinstance(base, jax.core.Tracer):
            v = _same_kind(rest[-1], view)
            summed = None if v is None else add(base, -v if negative else v, *numbers[0])
            if summed is not None:
                return summed
        return chain_put(ops, base, inner.flat(view, *rest[count:]), numbers)

    planner: Any = functools.partial(CopySlicesPlan, inner, form)
    selects = all([op.selects for op in ops])
    return Primitive("CopySlices", changed, planner=planner if selects else None, positions=True)


def _same_kind(v: Any, view: Any) -> Any:
    """``v`` in the shape of the view, if it has the dtype of it; else None."""
    if getattr(v, "dtype", None) != view.dtype or view.dtype == bool:
        return None
    if v.shape == view.shape:
        return v
    fits = v.ndim <= view.ndim and all(
        [n in (1, m) for n, m in zip(reversed(v.shape), reversed(view.shape), strict=False)]
    )
    return jnp.broadcast_to(v, view.shape) if fits else None


ADDITIVE = frozenset(["add", "subtract"])


class CopySlicesPlan(VjpPlan):
    """How `part_write` is differentiated; see NOTE [a write is an operation on the base]."""

    __slots__ = ("_form", "_inner", "_kept", "_whole")

    def __init__(
        self,
        inner: Primitive,
        form: Form,
        primitive: Primitive,
        mask: tuple[bool, ...],
        avals: list[Any],
    ) -> None:
        if mask[0] and not mask[1]:
            super().__init__(primitive, mask, avals)
            self._inner: VjpPlan | None = None
            return
        count = sum([n for _, n in form])
        self._start(primitive, mask, len(avals))
        self._form = form
        self._whole = inner
        own = (1, *range(2 + count, len(avals)))  # the arguments of the inner operation
        self._inner = VjpPlan(inner, tuple([mask[i] for i in own]), [avals[i] for i in own])
        plan = self._inner
        from_inputs = plan.from_inputs or plan.extras > 0 or bool(plan.kept_outputs)
        self._kept = tuple(range(len(own))) if from_inputs else plan.kept_inputs
        self.routed = (mask[0], False, *mask[2:])
        self.kept_inputs = (*range(2, 2 + count), *[own[i] for i in self._kept])
        self.from_inputs = False
        self.out_avals = (struct_of(avals[0]),)
        self.differentiable = (is_inexact(avals[0].dtype),)
        self.single = True

    def _derive(self, given: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        plan = self._inner
        if plan is None:
            return super()._derive(given, need)
        form, whole, name = self._form, self._whole, self._whole.name
        ops = [op for op, _ in form]
        count = sum([n for _, n in form])
        wanted = iter(need)
        base = self.mask[0] and next(wanted)
        if self.mask[1]:
            next(wanted)
        inner_need = (*([base] if self.mask[1] else []), *wanted)
        from_inputs = len(self._kept) == len(plan.mask)
        if from_inputs:
            inner = whole.full_vjp(plan.mask, None, inner_need)
        else:
            inner = plan.vjp(None, inner_need)
        additive = name in ADDITIVE

        def vjp(*values: Any) -> tuple[Any, ...]:
            numbers = split_numbers(form, values[:count])
            saved, g = values[count:-1], values[-1]
            part = chain_forward(ops, g, numbers)
            grads = list(inner.flat(*saved, part))
            if base:
                new = grads[0].astype(part.dtype)
                grads[0] = g if additive else chain_put(ops, g, new, numbers)
            return tuple(grads)

        return Primitive("CopySlices_vjp", vjp, positions=True)
