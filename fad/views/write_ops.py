"""The Primitives of writes: a base with a new value in its view, and how that is differentiated."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import struct_of
from fad.core.dtypes import is_inexact
from fad.core.primitive import Primitive, VjpPlan, as_derivative, derived_plan
from fad.core.types import Array, Aval, DType
from fad.errors import ArgumentError
from fad.views.chains import Form, chain_forward, chain_primitive, chain_put, split_numbers
from fad.views.indexing import getter, updater


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


@functools.lru_cache(maxsize=4096)
def part_write_of_values(primitive: Primitive, form: Form) -> Primitive | None:
    """`part_write` as a Primitive of (base, *numbers, *rest), which computes the view itself.

    Only for the operations in `ARITHMETIC`, and for steps that select elements: there XLA computes the same
    bits, whatever else is in the program. Else None.
    """
    ops = [op for op, _ in form]
    if primitive.name not in ARITHMETIC or not all([op.selects for op in ops]):
        return None
    view, write = chain_primitive(form).flat, part_write(primitive, form).flat
    count = sum([n for _, n in form])

    def changed(base: Array, *rest: Array) -> Array:
        changed_base: Array = write(base, view(base, *rest[:count]), *rest)
        return changed_base

    return Primitive("CopySlices", changed, positions=True)


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
# Names of operations in which no element depends on another one.
ARITHMETIC = ADDITIVE | {
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "div",
    "divide",
    "float_power",
    "floor_divide",
    "fmod",
    "left_shift",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "pow",
    "power",
    "remainder",
    "right_shift",
    "true_divide",
}


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

        derived = Primitive(
            "CopySlices_vjp", vjp, positions=True, deferrable=self.primitive.deferrable
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
