"""Writes: the operations that make a base anew, and how a Tensor gets a new value and place in the graph."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import VALUES, struct_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.jaxapi import array_type
from fad.core.level import Level, batch_dim, bind, flush, layers, modes, outlived, outside, state
from fad.core.primitive import Primitive, VjpPlan, as_derivative, derived_plan
from fad.core.tensor import Tensor, has_history, meta_of, new_tensor, storage_of
from fad.core.types import Array, Aval, DType, Operand, PyTree, Value
from fad.errors import ArgumentError, GradientError, HostValueError, LevelError, describe
from fad.tape.anomaly import remember_write
from fad.tape.grad_mode import no_grad
from fad.tape.graph import AccumulateGrad, alias, gradient_edge
from fad.tape.recorder import ROOT, as_tensor
from fad.tape.vmap import broadcast, move_axis
from fad.views.aliases import (
    DEFAULT,
    DualLink,
    Link,
    MakeDualBackward,
    forbidden,
    has_only_values,
    link_of,
    move_retained,
    note_written_outputs,
    only_value,
    set_state,
    set_value,
    snapshot,
    stopped,
)
from fad.views.chains import (
    BROADCAST,
    Form,
    Step,
    chain_forward,
    chain_primitive,
    chain_put,
    form_of,
    numbers_of,
    overlaps,
    split_numbers,
)
from fad.views.indexing import getter, step_of, updater
from fad.views.make_view import same_view
from fad.views.pytree import original

# The Primitives of writes: a base with a new value in its view, and how that is differentiated.


@functools.lru_cache(maxsize=4096)
def whole_write(primitive: Primitive) -> Primitive:
    """``primitive`` with a result that fits its first argument."""
    name = primitive.name

    def changed(x: Array, *rest: Array) -> Array:
        return _fitted(primitive.flat(x, *rest), x, name)

    return Primitive(name, changed, deferrable=primitive.deferrable)


@functools.lru_cache(maxsize=4096)
def copy_write(form: Form) -> Primitive:
    """A base with a value in the place of its view; a Primitive of (base, *numbers, value)."""
    ops = [op for op, _ in form]
    view_shape = chain_primitive(form).flat

    def changed(base: Array, *rest: Array) -> Array:
        *numbers, v = rest
        view = jax.eval_shape(view_shape, base, *numbers)
        return chain_put(ops, base, _copied(view, v), split_numbers(form, numbers))

    deferrable = all([op.primitive.deferrable for op in ops])
    return Primitive("CopySlices", changed, positions=True, deferrable=deferrable)


@functools.lru_cache(maxsize=4096)
def part_write(primitive: Primitive, form: Form) -> Primitive:
    """A base with ``primitive`` applied to its view; a Primitive of (base, view, *numbers, *rest)."""
    inner = whole_write(primitive)
    ops = [op for op, _ in form]
    count = sum([n for _, n in form])

    add = ops[0].add if len(ops) == 1 and primitive.name in ADDITIVE else None
    negative = primitive.name == "subtract"

    def changed(base: Array, view: Array, *rest: Array) -> Array:
        numbers = split_numbers(form, rest[:count])
        if add is not None and len(rest) == count + 1 and isinstance(base, jax.core.Tracer):
            v = _same_kind(rest[-1], view)
            summed = None if v is None else add(base, -v if negative else v, *numbers[0])
            if summed is not None:
                changed_base: Array = summed
                return changed_base
        return chain_put(ops, base, inner.flat(view, *rest[count:]), numbers)

    selects = all([op.selects for op in ops])
    planner = functools.partial(copy_slices_plan, inner, form) if selects else None
    deferrable = primitive.deferrable and all([op.primitive.deferrable for op in ops])
    return Primitive("CopySlices", changed, planner=planner, positions=True, deferrable=deferrable)


def _same_kind(v: Any, view: Array) -> Any:
    """``v`` in the shape of the view, if it is an array of the dtype of it; else None."""
    if not isinstance(v, jax.Array) or v.dtype != view.dtype or view.dtype == bool:
        return None  # a number is none; in 64 bits JAX gives it a dtype, but no shape
    if v.shape == view.shape:
        return v
    fits = v.ndim <= view.ndim and all(
        [n in (1, m) for n, m in zip(reversed(v.shape), reversed(view.shape), strict=False)]
    )
    return jnp.broadcast_to(v, view.shape) if fits else None


ADDITIVE = frozenset(["add", "subtract"])


def copy_slices_plan(
    inner: Primitive,
    form: Form,
    primitive: Primitive,
    mask: tuple[bool, ...],
    avals: list[Aval],
) -> VjpPlan:
    """How `part_write` is differentiated."""
    if mask[0] and not mask[1]:
        return derived_plan(primitive, mask, avals)
    return CopySlicesPlan(inner, form, primitive, mask, avals)


class CopySlicesPlan(VjpPlan):
    """See NOTE [a write is an operation on the base]."""

    __slots__ = ("_form", "_inner", "_kept", "_whole")

    from_inputs = False

    def __init__(
        self,
        inner: Primitive,
        form: Form,
        primitive: Primitive,
        mask: tuple[bool, ...],
        avals: list[Aval],
    ) -> None:
        super().__init__(primitive, mask)
        count = sum([n for _, n in form])
        self._form = form
        self._whole = inner
        inner_args = (1, *range(2 + count, len(avals)))  # the arguments of the inner operation
        self._inner = derived_plan(
            inner, tuple([mask[i] for i in inner_args]), [avals[i] for i in inner_args]
        )
        plan = self._inner
        from_inputs = plan.from_inputs or plan.extras > 0 or bool(plan.kept_outputs)
        self._kept = tuple(range(len(inner_args))) if from_inputs else plan.kept_inputs
        self.routed = (mask[0], False, *mask[2:])
        self.kept_inputs = (*range(2, 2 + count), *[inner_args[i] for i in self._kept])
        self.out_avals = (struct_of(avals[0]),)
        self.differentiable = (is_inexact(avals[0].dtype),)
        self.single = True

    def _derive(self, present: tuple[bool, ...] | None, need: tuple[bool, ...]) -> Primitive:
        """The vjp: that of the inner operation, on this view of the gradient of the base."""
        plan = self._inner
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

        def vjp(*values: Array) -> tuple[Array, ...]:
            numbers = split_numbers(form, values[:count])
            saved, g = values[count:-1], values[-1]
            part = chain_forward(ops, g, numbers)
            grads = list(inner.flat(*saved, part))
            if base:
                new = grads[0].astype(part.dtype)
                grads[0] = g if additive else chain_put(ops, g, new, numbers)
            return tuple(grads)

        derived = self.primitive.derivative(
            "vjp", vjp, positions=True, deferrable=self.primitive.deferrable
        )
        return as_derivative(derived)


@functools.lru_cache(maxsize=4096)
def index_put(form: tuple[Hashable, ...]) -> Primitive:
    """``x`` with a value in the place of ``x[index]``, for an index with arrays."""
    update, get = updater("set", form, ()).flat, getter(form).flat

    def changed(x: Array, v: Array, *values: Array) -> Array:
        result: Array = update(x, _copied(jax.eval_shape(get, x, *values), v), *values)
        return result

    return Primitive("index_put", changed, positions=True, deferrable=True)


# What is written, made to fit


def _fitted(out: Array, x: Array, name: str) -> Array:
    """The result of an operation in the shape and dtype of the Tensor it is written to."""
    if out.shape != x.shape:
        raise ArgumentError(
            f"{name}_: output with shape {list(x.shape)} doesn't match the broadcast shape "
            f"{list(out.shape)}: an in-place operation cannot change the shape"
        )
    if _rank(out.dtype) > _rank(x.dtype):
        raise ArgumentError(
            f"{name}_: result type {out.dtype} can't be cast to the desired output type {x.dtype}: "
            f"write x = fad.numpy.{name}(x, ...), or convert first with x.astype({out.dtype})"
        )
    return _converted(out, x)


def _converted(out: Array, x: Array) -> Array:
    """``out`` in the dtype of ``x``, and not weakly typed where ``x`` is not."""
    weak = jax.typeof(out).weak_type and not jax.typeof(x).weak_type
    return jax.lax.convert_element_type(out, x.dtype) if weak or out.dtype != x.dtype else out


def _rank(dtype: DType) -> int:
    """The kind of a dtype, 0 to 3: bool, integer, floating, complex; casts go to the same or a higher one."""
    if jnp.issubdtype(dtype, np.bool_):
        return 0
    if jnp.issubdtype(dtype, np.integer):
        return 1
    return 3 if jnp.issubdtype(dtype, np.complexfloating) else 2


def _copied(view: Any, v: Any) -> Any:
    """``v`` broadcast to the shape, and converted to the dtype, of ``view``."""
    if v is None:
        raise ArgumentError("None was written into a Tensor: write a number or an array")
    v = jnp.asarray(v)
    if jnp.iscomplexobj(v) and not jnp.issubdtype(view.dtype, np.complexfloating):
        raise ArgumentError(
            f"a value of dtype {v.dtype} was written into a Tensor of dtype {view.dtype}, which would "
            "drop the imaginary part: write v.real"
        )
    extra = max(v.ndim - len(view.shape), 0)
    shape = v.shape[extra:] if set(v.shape[:extra]) <= {1} else v.shape
    try:
        fits = jnp.broadcast_shapes(shape, view.shape) == tuple(view.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            f"could not broadcast a value of shape {v.shape} into the shape {tuple(view.shape)} that "
            "is written to"
        )
    v = jax.lax.convert_element_type(v, view.dtype)
    return jnp.broadcast_to(v.reshape(shape), view.shape)


def _masked_fill(x: Array, mask: Array, v: Array) -> Array:
    """``x`` with the scalar ``v`` where ``mask``, over the first dimensions of ``x``, is true."""
    mask = mask.reshape((*mask.shape, *[1] * (x.ndim - mask.ndim)))
    return jnp.where(mask, _copied(jax.ShapeDtypeStruct((), x.dtype), v), x)


def _masked_put(x: Array, mask: Array, v: Array) -> Array:
    """``x`` with ``v`` where ``mask``, which broadcasts to its shape, is true."""
    return jnp.where(mask, _copied(x, v), x)


COPY = Primitive("copy", _copied, deferrable=True)
MASKED_PUT = Primitive("masked_fill", _masked_put, deferrable=True)
MASKED_FILL = Primitive("masked_fill", _masked_fill, deferrable=True)


# Writes under ``no_grad``: the value and the tangents are the new ones, the history is that of before.


def with_history(new: Value, old: Value) -> Any:
    """``new``, of a level that does not record now, with the history that ``old`` has there and below."""
    new, old = outlived(new), outlived(old)
    if not isinstance(new, Tensor) or not isinstance(old, Tensor) or new.level is not old.level:
        return new
    level = new.level
    if level.traces:
        return level.unrecorded_write(new, old)  # type: ignore[attr-defined]
    value, aux = old.value, old.aux
    if level.maps:
        value, aux = _with_lanes(value, aux, new), new.aux
    t: Tensor = new_tensor(with_history(new.value, value), level, with_history(new.aux, aux))
    if old.requires_grad:
        t._requires_grad = True
        t._node, t._output_nr = gradient_edge(old)
    level.note("unrecorded", t)
    return t


def moves_on_tape(new: Tensor, t: Tensor) -> bool:
    """Whether an unrecorded write of ``new`` takes ``t``, which requires grad on the eager tape, to another
    level of the tape: to a dual level, or back from one that has finished.
    """
    below = outlived(t)
    if not isinstance(below, Tensor) or new.level is t.level or not below.requires_grad:
        return False
    return all([x.level.on_tape for x in (*layers(below), *layers(new))])


def move_on_tape(t: Tensor, new: Tensor) -> None:
    """Give ``t`` the value and tangents of ``new``, at the level of that, and the history that it has.

    A leaf stays one: what the value leads to, at the levels below, is its accumulator.
    """
    is_leaf = not has_history(t)
    moved = _at_level_of(new, outlived(t))
    set_value(t, moved)
    if not is_leaf:
        t._node, t._output_nr = moved._node, moved._output_nr


def _at_level_of(new: Value, old: Tensor) -> Tensor:
    """``new``, of ``old``'s level or of a dual level above, with the history of ``old``."""
    new = as_tensor(outlived(new))
    if new.level.id <= old.level.id:
        moved: Tensor = as_tensor(with_history(new, old))
        return moved
    level: Any = new.level
    value = _at_level_of(new.value, old)
    t: Tensor = new_tensor(value, level, new.aux)
    t._requires_grad = True
    t._node = MakeDualBackward(level, value)
    level.tape_id = max(level.tape_id, value.level.id)
    return t


def _with_lanes(value: Value, dim: int | None, new: Tensor) -> Value:
    """``value``, batched along ``dim``, with its lanes where those of ``new`` are; recorded as ever."""
    if dim == new.aux or new.aux is None:
        return value
    with modes(watermark=-1, base_watermark=-1):
        if dim is None:
            return broadcast(value, new.level.batch_size, new.aux)  # type: ignore[attr-defined]
        return move_axis(value, dim, new.aux)


# Writes: a Tensor, or the base that it is a view of, gets a new value and a new place in the graph.
#
# NOTE [a write is an operation on the base]
#
#     def f(a):
#         b = a * 1.0
#         b[1:] *= a[:-1]
#         return b.sum()
#
#     assert fad.grad(f)(fnp.array([2.0, 3.0])).tolist() == [4.0, 2.0]
#
# ``v.mul_(w)`` on a view ``v`` of ``b`` binds one Primitive, ``put(b, v * w)``, on ``b``, ``v`` and ``w``;
# its output is what ``b`` is from then on. Recorded, differentiated, batched and traced as any operation, it
# works at every level: writing a batched value into an unbatched Tensor makes that Tensor batched.
#
# In reverse, the node of that Primitive is ``CopySlices``, PyTorch's: the gradient of the new base is
# viewed as the base is, this slice of it goes through the vjp of ``multiply``, and the result takes its
# place. So nothing of the size of the base is saved, and nothing is added up. The old ``v`` is an
# argument that is read and has no edge: what it would add is in the edge of the base.
#
# Everything is computed before anything is changed: a write that fails changes nothing. A lock of the
# storage makes reading, computing and changing one step, so that threads that write to parts of one
# Tensor lose nothing.


def write(primitive: Primitive, args: Sequence[Any]) -> Tensor:
    """Change ``args[0]`` in place to what ``primitive`` makes of ``args``; returns it.

    Raises:
        TypeError: the result has a dtype that cannot be cast to that of the Tensor.
        ValueError: the result has another shape, or elements of the Tensor overlap.
        GradientError: PyTorch's rules for leaves and special views.
        LevelError: the Tensor was captured by code that runs more than once, or by a vmap.
    """
    handle, *rest = args
    t = original(handle)
    link, who = _link(t), f"{primitive.name}_"
    if link is None:
        _write(t, None, whole_write(primitive), [t], rest, who)
    else:
        op = part_write(primitive, form_of(link.chain))
        _write(t, link, op, [_base_of(link), t], rest, who)
    return outside(t)


def replace(t: Tensor, new: Operand, step: Step | None = None, who: str = "copy_") -> Tensor:
    """Change ``t`` (or the view that ``step`` makes of it) in place to the values of ``new``.

    ``new`` is broadcast to the shape, and converted to the dtype. Errors are those of `write`.
    """
    t = original(t)
    link = _link(t)
    base = t if link is None else _base_of(link)
    if step is not None:
        chain = () if link is None else link.chain
        creation = DEFAULT if link is None else link.creation
        link = Link(base, (*chain, step), creation, 0)
    if isinstance(new, (list, tuple, np.ndarray, np.generic)):
        new = as_array(new)
    op = COPY if link is None else copy_write(form_of(link.chain))
    _write(t, link, op, [base], [new], who)
    return outside(t)


def overwrite_from(t: Tensor, new: Tensor, who: str) -> Tensor:
    """Overwrite ``t`` from ``new``, a fresh result that nothing else refers to; errors as `write`."""
    t = original(t)
    if _link(t) is not None or new.shape != t.shape or new.dtype != t.dtype:
        return replace(t, new, who=who)
    _check(t, None, (new,), who)
    _commit(t, new)
    return t


def write_value(t: Tensor, level: Level, value: Operand) -> None:
    """Change ``t`` in place to a detached value of ``level``, unrecorded, as `no_grad` would."""
    meta = t.meta
    usual = t._level is ROOT and t._node is None and not t._requires_grad and not state.levels
    if usual and (meta is None or not (meta.link or meta.inference)) and type(value) is array_type:
        storage = storage_of(t)  # what follows, where it has nothing to look for
        with storage.lock:
            storage.owned = False
            set_value(t, new_tensor(value, ROOT))
            storage.version += 1
            remember_write(storage, storage.version)
        return
    # At other levels than those of the tape, those below record what is written.
    watermark = state.watermark
    around = [x.level for x in (*layers(t), *layers(value))]
    if level.on_tape and all([x.on_tape for x in around]):
        watermark = max([watermark, level.id, *[x.id for x in around]])
    with modes(watermark=watermark):
        overwrite_from(t, level.lift(value), "accumulating into .grad")


AccumulateGrad.write = staticmethod(write_value)


def set_item(x: Tensor, index: PyTree, value: PyTree) -> None:
    """``x[index] = value``.

    Basic indices write to the view that they select; arrays of integers and bool masks scatter, and
    where an index occurs twice one of its values is kept. A mask that has no concrete values, inside vmap and
    jit, works with one value for all that is selected, and as ``x[m] *= 2``, see NOTE [masked parts].

    Raises:
        IndexError: see `fad.views.indexing.parse_index`.
        ValueError: the value cannot be broadcast to what is selected.
        TypeError: the value cannot be converted to the dtype.
        GradientError, LevelError: see `write`.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = as_array(value)
    if type(index) not in _NO_MASKS and _is_mask(index) and np.ndim(value) == 0:
        mask = as_tensor(index)
        if mask.shape != x.shape[: mask.ndim]:
            raise IndexError(
                f"a bool mask of shape {mask.shape} does not fit a Tensor of shape {x.shape}"
            )
        write(MASKED_FILL, [x, mask, value])
        return
    x = original(x)
    try:
        step = step_of(x, index)
    except HostValueError as error:
        view, part = tool("views.masked_parts").masked_part(x, index, error)
        write(MASKED_PUT, [view, part.selected, part.elements(value)])
        return
    if not isinstance(step, Step):
        form, values = step
        write(index_put(form), [x, value, *values])
        return
    if same_view(x, value, step):
        # Python ends ``x[i] += v`` with this assignment: the view has been written to, if that was allowed.
        link = link_of(value)
        if link is not None and (link.creation is DEFAULT or x.level.id <= state.watermark):
            return
    replace(x, value, step, "x[i] = v")


_NO_MASKS = frozenset([int, slice, tuple])  # the types of most indices: `isinstance` takes longer


def _is_mask(index: object) -> bool:
    """Whether an index is one bool array, which also serves without concrete values."""
    return isinstance(index, (Tensor, jax.Array, np.ndarray)) and index.dtype == bool


def _link(t: Tensor) -> Link | None:
    """How ``t`` is a view of another Tensor; None if it is not."""
    link = link_of(t)
    return None if link is None or link.base is None else link


def _base_of(link: Link) -> Tensor:
    """The base of a link that `_link` returned, and so has one."""
    base = link.base
    assert base is not None
    return base


# Before the write


def check_writable(t: Tensor, who: str, elements: bool = True) -> None:
    """Raise where ``t`` must not be changed; ``elements``: these are written, not its shape alone."""
    t = original(t)
    _check(t, _link(t), (), who, elements)


def _check(
    t: Operand, link: Link | None, others: Sequence[Operand], who: str, elements: bool = True
) -> None:
    """Raise where the Tensor must not be written to."""
    if not isinstance(t, Tensor):
        raise ArgumentError(f"{who}: only a Tensor can be changed in place, got {describe(t)}")
    root = t if link is None else link.base
    assert root is not None
    dual = link_of(root)
    if isinstance(dual, DualLink) and root.level.alive:
        for part in (dual.primal, dual.tangent):
            if part is not None:
                _check(part, _link(part), others, who, elements)
    for owner in (t, root):
        if owner.meta is not None and owner.meta.inference and state.inference is None:
            raise GradientError(
                f"{who}: Inplace update to inference tensor outside InferenceMode is not allowed. Make a "
                "normal Tensor of it first: x.clone()"
            )
    _check_history(t, root, link, others, who)
    if elements and link is not None and overlaps(link.chain, root):
        raise ArgumentError(
            f"{who}: unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location, because it was broadcast. Please clone() the tensor before performing "
            "the operation."
        )
    for level in state.levels:
        level.note("write", root)
        if level.id > root.born and level.runs_again:
            raise LevelError(
                f"{who}: a Tensor ({describe(root)}) from outside was written to in the body of "
                f"{level.runs_again}, which runs more than once: pass it as an argument (of a loop: "
                f"carry it), or "
                "return the new value and write it outside"
            )


def _check_history(
    t: Tensor, root: Tensor, link: Link | None, others: Sequence[Operand], who: str
) -> None:
    """Raise where the graph cannot have the write; it is recorded if anything that it reads is."""
    if not any([_recorded(a) for a in (t, root, *others)]):
        return
    if link is not None:
        if link.creation is not DEFAULT:
            why = forbidden(t, link.creation, link.output_nr, indirect=False)
            raise GradientError(f"{who}: {why}")
        if _recorded(root) and _is_leaf(root):
            raise GradientError(
                f"{who}: a view of a leaf Variable that requires grad is being used in an in-place "
                f"operation. {_LEAF}"
            )
    if _recorded(t) and _is_leaf(t):
        raise GradientError(
            f"{who}: a leaf Variable that requires grad is being used in an in-place operation. "
            f"{_LEAF}"
        )


_LEAF = (
    "Write to a copy (x = x.clone()), or inside no_grad if the change is not to be differentiated."
)


def _recorded(x: Operand) -> bool:
    """Whether operations on ``x`` are recorded now."""
    return isinstance(x, Tensor) and x.level.id > state.watermark and x.requires_grad


def _is_leaf(x: Tensor) -> bool:
    """Whether no operation has made ``x``, which requires grad."""
    return not has_history(x)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a change in place, for a Tensor or several whose values were changed behind fad's back.

    A backward pass that needs a value which was saved before raises then, as after any write. Inference
    Tensors have no version and are left as they are.

    Raises:
        TypeError: there is something else than Tensors.

    Source: ``torch.autograd.graph.increment_version``.

    >>> import fad
    >>> x = fad.tensor([1.0, 2.0])
    >>> fad.autograd.increment_version(x)
    >>> x.version
    1
    """
    tensors = (
        list(tensor)
        if isinstance(tensor, Iterable) and not isinstance(tensor, Tensor)
        else [tensor]
    )
    for t in tensors:
        if not isinstance(t, Tensor):
            raise ArgumentError(f"increment_version: expected Tensors, got {describe(t)}")
    for t in tensors:
        if t.meta is None or not t.meta.inference:
            link = _link(t)
            root = t if link is None else _base_of(link)
            with no_grad(), storage_of(t).lock:
                _commit(root, root)  # a write of what is there


# The write itself


def _write(
    t: Tensor,
    link: Link | None,
    op: Primitive,
    targets: list[Tensor],
    rest: list[Operand],
    who: str,
) -> None:
    """Change ``targets[0]``, which is ``t`` or the base of which it is a view by ``link``, to what ``op``
    makes of ``targets``, the numbers of the view, and ``rest``.
    """
    chain = () if link is None else link.chain
    with storage_of(t).lock:
        if not _write_values(t, link, op, targets, rest):
            others = [*numbers_of(chain), *rest]
            _check(t, link, others, who)
            flush()  # what is deferred is recorded now: reading what is written to would run it first
            _commit(targets[0], bind(op, [*map(snapshot, targets), *others]))


def _write_values(
    t: Tensor,
    link: Link | None,
    op: Primitive,
    targets: Sequence[Tensor],
    rest: Sequence[Operand],
) -> bool:
    """`_write` where there are only values: no level, no history and no mode; else returns False."""
    if state.levels or not has_only_values():
        return False
    root = targets[0]
    meta = root.meta
    assert meta is not None  # there is a storage
    if t._requires_grad or meta.link is not None or meta.inference:
        return False
    value = only_value(root)
    if value is None or (link is not None and link.deferred_error is not None):
        return False
    # In traced code, numbers are constants of the program, and JAX differentiates an addition as one.
    is_traced = type(value) is not array_type
    operands: list[Operand] = [value, *targets[1:]]
    for step in () if link is None else link.chain:
        if step.op.write is BROADCAST:
            return False
        operands += step.numbers if is_traced or not step.constants else step.constants
    operands += rest
    values = []
    for x in operands:
        if type(x) not in VALUES and isinstance(x, Tensor):
            x = only_value(x)
            if x is None:
                return False
        values.append(x)
    new = op.execute(values)
    while state.trace is not None:  # of before, or of a finalizer in the middle of the operation
        flush()
    meta.storage.owned = False
    root._value = new
    meta.storage.version += 1
    return True


def _commit(root: Tensor, new: Tensor) -> None:
    """Give a base, and so all its views, the value and history of ``new``."""
    check_captured(root, new)
    dual = link_of(root)
    if isinstance(dual, DualLink):
        dual.write(root, new, overwrite_from)
        return
    storage = storage_of(root)
    data = storage.data
    if data is not None:
        chain = root.meta.link.chain  # type: ignore[union-attr]
        fresh = stopped(new)
        if chain:
            fresh = bind(copy_write(form_of(chain)), [data, *numbers_of(chain), fresh])
        data = fresh
    version = storage.version + 1
    note_written_outputs(root, storage, version)
    storage.owned = False
    recorded = new.level.id > state.watermark
    if new.level is root.level and not recorded:
        set_value(root, new if new.level is ROOT else with_history(new, root))
    elif not recorded and moves_on_tape(new, root):
        move_on_tape(root, new)
    else:
        move_retained(root, root._node, root._output_nr, new)
        set_state(root, new)
    storage.data = data
    storage.version = version
    remember_write(storage, version)
    link = link_of(root)
    if link is not None:
        link.seen = version
        link.detached = False
    if root._lazy is None:
        flush()  # a trace that a finalizer has begun meanwhile may have the state of before as an input


def check_captured(root: Tensor, new: Any) -> None:
    """Refuse lanes of a vmap in a Tensor that was there before the vmap."""
    if new.level is ROOT:
        return
    levels = [x.level for x in layers(root)]
    for x in layers(new):
        level = x.level
        if batch_dim(x) is not None and level.id > root.born and level not in levels:
            raise LevelError(
                f"vmap: a value that differs between lanes ({describe(new)}) was written into a Tensor "
                f"({describe(root)}) captured from outside of the mapped function, which has one "
                "value for all lanes: pass that Tensor as a mapped argument, or make it inside"
            )


# Changes of shape in place: a Tensor becomes a view of what it was.

_NEVER = -(2**63)  # a version that no storage has


def become_view(t: Tensor, view: Callable[[Tensor], Tensor], who: str) -> Tensor:
    """Make ``t`` the view of itself that ``view`` makes; returns it.

    It shares its elements with its views, and with what it is a view of, as before. A Tensor that was
    no view is one then, of a Tensor that has its place, to which its views turn; see `Link.base`.

    Raises:
        GradientError, LevelError: as for a write, see `write`.
        ValueError: from ``view``.
    """
    t = original(t)
    check_writable(t, who, elements=False)
    storage = storage_of(t)
    with storage.lock:
        made = link_of(view(t))
        assert made is not None
        old = link_of(t)
        link = made
        if old is None or old.base is None:
            link = Link(_in_place_of(t, old), made.chain, DEFAULT, _NEVER)
        else:  # the history of before goes on, whatever the grad mode is
            link.creation = old.creation
        meta = meta_of(t)
        note_written_outputs(t, storage, storage.version + 1)
        storage.owned = False
        storage.version += 1
        remember_write(storage, storage.version)
        link.seen = _NEVER
        meta.link = link
        link.sync(t)
    return outside(t)


def _in_place_of(t: Tensor, link: Any) -> Tensor:
    """A Tensor that is what ``t`` is now, to all its aliases."""
    if t.requires_grad and not has_history(t):  # a leaf, in no_grad; it stays the leaf
        base: Tensor = new_tensor(t.value, t.level, t.aux)
        meta_of(base).of_leaf = True
    else:
        base = alias(t)
    base.born = t.born
    meta, storage = meta_of(base), storage_of(t)
    meta.storage, meta.link = storage, link
    meta.inference = meta_of(t).inference
    storage.peers = [weakref.ref(base) if p() is t else p for p in storage.peers]
    return base
