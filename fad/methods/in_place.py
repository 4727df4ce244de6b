"""The in-place methods of Tensor: ``add_``, ``sin_``, ``copy_``, ``index_add_`` and the like, as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad.lax as flax
import fad.nn as fnn
import fad.numpy as fnp
from fad.arrays.operations import fast_function
from fad.core.borrowed import as_array
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.errors import ArgumentError, describe
from fad.tape.recorder import as_tensor
from fad.views.index_forms import parse_index
from fad.views.indexing import updater
from fad.views.inplace import replace, set_item, write

__all__ = ["IN_PLACE", "OPERATORS"]

# Method name without its underscore -> function of fad.numpy, where they differ.
_OTHER_NAMES = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "clamp": "clip",
    "div": "true_divide",
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "pow": "power",
    "sub": "subtract",
}
_SAME_NAMES = """abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and
bitwise_not bitwise_or bitwise_xor cbrt ceil clip conj conjugate copysign cos cosh cumprod cumsum
deg2rad degrees divide exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod gcd heaviside
hypot invert lcm ldexp left_shift log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not
logical_or logical_xor matmul maximum minimum mod multiply nan_to_num negative nextafter positive power
rad2deg radians reciprocal remainder right_shift rint round sign sin sinc sinh sqrt square subtract tan
tanh tril triu true_divide trunc""".split()
_NN = "celu elu gelu hard_tanh leaky_relu log_sigmoid relu relu6 selu sigmoid silu softplus".split()
_LAX = {
    "digamma": "digamma",
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erf_inv",
    "lgamma": "lgamma",
    "rsqrt": "rsqrt",
}

# Augmented assignment -> function of fad.numpy.
OPERATORS = {
    "iadd": "add",
    "isub": "subtract",
    "imul": "multiply",
    "itruediv": "true_divide",
    "ifloordiv": "floor_divide",
    "imod": "remainder",
    "ipow": "power",
    "imatmul": "matmul",
    "iand": "bitwise_and",
    "ior": "bitwise_or",
    "ixor": "bitwise_xor",
    "ilshift": "left_shift",
    "irshift": "right_shift",
}


def in_place(
    module: Any, function: str, name: str, with_keywords: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The in-place method that writes the result of ``module.function`` on a Tensor into that Tensor.

    The function is derived when the method is first called. ``with_keywords`` does what PyTorch's method
    of this name does with keyword arguments.
    """
    changed: Callable[..., Any] | None = None

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal changed
        if kwargs and with_keywords is not None:
            return with_keywords(self, *args, **kwargs)
        if changed is None:
            changed = fast_function(getattr(module, function).op, write)
        return changed(self, *args, **kwargs)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = (
        f"``{module.__name__}.{function}`` of this Tensor, written into it; returns it."
    )
    return method


def _operand(x: Any) -> Any:
    return as_array(x) if isinstance(x, (list, tuple, np.ndarray, np.generic)) else x


def _copy_(self: Tensor, source: Any) -> Tensor:
    """Take the values of ``source``, broadcast to the shape and converted to the dtype."""
    source = _operand(source)
    if np.ndim(source) > self.ndim:
        raise ArgumentError(
            f"copy_: cannot broadcast {describe(source)} to the shape {self.shape} of the Tensor"
        )
    return replace(self, source)


def _fill_(self: Tensor, value: Any) -> Tensor:
    """Set all elements to one value, a number or 0-d Tensor."""
    if np.ndim(value) != 0:
        raise ArgumentError(f"fill_: the value must have no dimensions, got {describe(value)}")
    return replace(self, value)


def _zero_(self: Tensor) -> Tensor:
    """Set all elements to zero."""
    return replace(self, 0)


def _masked_fill_(self: Tensor, mask: Any, value: Any) -> Tensor:
    """Set the elements where ``mask`` is true to one value."""
    mask = as_tensor(mask)
    if mask.dtype != bool:
        raise ArgumentError(f"masked_fill_: the mask must be of dtype bool, got {describe(mask)}")
    return write(_MASKED, [self, mask, _operand(value)])


def _where_masked(x: Any, mask: Any, v: Any) -> Any:
    return jnp.where(mask, jnp.asarray(v, x.dtype), x)


_MASKED = Primitive("masked_fill", _where_masked, lazy=True)


def _index_put_(
    self: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False
) -> Tensor:
    """Set (or, with ``accumulate``, add to) the elements at a tuple of index arrays."""
    if not isinstance(indices, (tuple, list)):
        raise ArgumentError(
            f"index_put_: indices must be a tuple of arrays, got {describe(indices)}"
        )
    if not accumulate:
        set_item(self, tuple(indices), values)
        return self
    form, numbers = parse_index(self, tuple(indices))
    return write(updater("add", form, ()), [self, _operand(values), *numbers])


def _along(self: Tensor, dim: int, index: Any, who: str) -> tuple[Any, ...]:
    """An index of ``index`` along ``dim`` and everything else."""
    if not -self.ndim <= dim < self.ndim:
        raise IndexError(f"{who}: dim {dim} is out of range for {describe(self)}")
    index = as_tensor(index)
    if index.ndim != 1:
        raise ArgumentError(f"{who}: the index must have one dimension, got {describe(index)}")
    return (*[slice(None)] * (dim % self.ndim), index)


def _index_add_(self: Tensor, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
    """Add ``alpha`` times the slices of ``source`` at the positions ``index`` along ``dim``."""
    form, numbers = parse_index(self, _along(self, dim, index, "index_add_"))
    source = _operand(source)
    if not isinstance(alpha, (int, float)) or alpha != 1:
        source = fnp.multiply(source, alpha)
    return write(updater("add", form, ()), [self, source, *numbers])


def _index_copy_(self: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """Copy the slices of ``source`` to the positions ``index`` along ``dim``."""
    set_item(self, _along(self, dim, index, "index_copy_"), source)
    return self


def _index_fill_(self: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """Set the slices at the positions ``index`` along ``dim`` to one value."""
    set_item(self, _along(self, dim, index, "index_fill_"), value)
    return self


def _scatter(method: str) -> Callable[..., Tensor]:
    def scatter(self: Tensor, dim: int, index: Any, src: Any) -> Tensor:
        index = as_tensor(index)
        if not -self.ndim <= dim < max(self.ndim, 1):
            raise IndexError(f"{name}: dim {dim} is out of range for {describe(self)}")
        if index.ndim != self.ndim:
            raise ArgumentError(
                f"{name}: the index must have the {self.ndim} dimensions of the Tensor, got {describe(index)}"
            )
        src = _operand(src)
        if isinstance(src, (Tensor, jax.Array)):
            if src.ndim and any(s < n for s, n in zip(src.shape, index.shape, strict=True)):
                raise ArgumentError(
                    f"{name}: src must be at least as large as the index, got {describe(src)} and "
                    f"{describe(index)}"
                )
            if src.ndim and src.shape != index.shape:
                src = src[tuple([slice(0, n) for n in index.shape])]
        return write(_scatterer(method, dim % max(self.ndim, 1)), [self, index, src])

    name = "scatter_" if method == "set" else f"scatter_{method}_"
    scatter.__name__ = name
    scatter.__doc__ = (
        f"``x[..., index[..., k, ...], ...]`` {'=' if method == 'set' else '+='} ``src[..., k, ...]`` "
        "along ``dim``, as PyTorch's method of this name."
    )
    return scatter


_SCATTERERS: dict[tuple[str, int], Primitive] = {}


def _scatterer(method: str, dim: int) -> Primitive:
    op = _SCATTERERS.get((method, dim))
    if op is None:

        def scatter(x: Any, index: Any, src: Any) -> Any:
            where = list(jnp.indices(index.shape, sparse=True))
            where[dim] = index
            src = jnp.broadcast_to(jnp.asarray(src), index.shape)
            return getattr(x.at[tuple(where)], method)(src)

        op = _SCATTERERS[method, dim] = Primitive(f"scatter_{method}", scatter, lazy=True)
    return op


def _lerp_(self: Tensor, end: Any, weight: Any) -> Tensor:
    """Move towards ``end`` by the fraction ``weight``."""
    return write(_LERP, [self, _operand(end), _operand(weight)])


def _addcmul_(self: Tensor, a: Any, b: Any, *, value: Any = 1) -> Tensor:
    """Add ``value * a * b``."""
    return write(_ADDCMUL, [self, _operand(a), _operand(b), value])


def _addcdiv_(self: Tensor, a: Any, b: Any, *, value: Any = 1) -> Tensor:
    """Add ``value * a / b``."""
    return write(_ADDCDIV, [self, _operand(a), _operand(b), value])


def _scaled(op: Primitive) -> Callable[..., Any]:
    """``add_`` or ``sub_`` of ``alpha`` times the other operand."""

    def scaled(self: Tensor, other: Any, *, alpha: Any = 1) -> Any:
        return write(op, [self, _operand(other), alpha])

    return scaled


_LERP = Primitive("lerp", lambda x, end, weight: x + weight * (end - x), lazy=True)
_ADD = Primitive("add", lambda x, y, alpha: x + alpha * y, lazy=True)
_SUB = Primitive("sub", lambda x, y, alpha: x - alpha * y, lazy=True)
_ADDCMUL = Primitive("addcmul", lambda x, a, b, value: x + value * a * b, lazy=True)
_ADDCDIV = Primitive("addcdiv", lambda x, a, b, value: x + value * a / b, lazy=True)


def _table() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _SAME_NAMES:
        found[f"{name}_"] = in_place(fnp, name, f"{name}_")
    for name, function in _OTHER_NAMES.items():
        found[f"{name}_"] = in_place(fnp, function, f"{name}_")
    found["add_"] = in_place(fnp, "add", "add_", _scaled(_ADD))
    found["sub_"] = in_place(fnp, "subtract", "sub_", _scaled(_SUB))
    for name in _NN:
        found[f"{name}_"] = in_place(fnn, name, f"{name}_")
    for name, function in _LAX.items():
        found[f"{name}_"] = in_place(flax, function, f"{name}_")
    return found | {
        "addcdiv_": _addcdiv_,
        "addcmul_": _addcmul_,
        "copy_": _copy_,
        "fill_": _fill_,
        "index_add_": _index_add_,
        "index_copy_": _index_copy_,
        "index_fill_": _index_fill_,
        "index_put_": _index_put_,
        "lerp_": _lerp_,
        "masked_fill_": _masked_fill_,
        "scatter_": _scatter("set"),
        "scatter_add_": _scatter("add"),
        "zero_": _zero_,
    }


IN_PLACE = _table()
