"""Functions of jax.numpy whose results are views, or their argument itself, in a way of their own.

Which functions return views is in `fad.arrays.special_cases.VIEWS`; those here need more than the one rule of
`fad.views.make_view.view_binder`. The table in docs/views.md says what each returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.arrays.lists import Role
from fad.arrays.operations import Op, copy_signature, fast_function
from fad.arrays.results import FOLLOWS, TENSORS, as_tensors
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.views.addresses import has_strides
from fad.views.chains import Step, ViewOp, Write
from fad.views.make_view import bind_view, shares, view_binder

__all__ = ["ALIASING"]

Function = Callable[..., PyTree]
Roles = dict[str, Role]


def _with_signature(function: Function, op: Op) -> Function:
    function.op = op  # type: ignore[attr-defined]
    result: Function = copy_signature(function, op.jax_function, op.name, op.where)
    return result


def _reshape(name: str, where: str, jax_function: Callable[..., PyTree], roles: Roles) -> Function:
    """``reshape``, with NumPy's ``copy``: where it is False, a ValueError if it has to copy."""
    op = Op(name, where, jax_function, roles, view_binder(Write.RESHAPE, has_strides))
    reshape, copying = op.function, fast_function(op, bind)

    def function(*args: PyTree, copy: bool | None = None, **kwargs: PyTree) -> PyTree:
        if copy is None:
            return reshape(*args, **kwargs)
        if copy:
            return copying(*args, **kwargs)
        out = reshape(*args, **kwargs)
        if isinstance(out, Tensor) and not any([shares(out, x) for x in (*args, *kwargs.values())]):
            raise ValueError(
                "reshape: copy=False, but the elements are not stored so that this could be a view: "
                "leave copy out, or write x.view(shape)"
            )
        return out

    return _with_signature(function, op)


def _part(name: str, where: str, jax_function: Callable[..., PyTree], roles: Roles) -> Function:
    """``real`` and ``imag``: views of complex Tensors; ``real`` of a real Tensor is this Tensor."""
    parts = ViewOp(Primitive(name, jax_function), Write.FUNCTION, _PUT_PART[name], whole=False)
    op = Op(name, where, jax_function, roles)
    copy = op.function

    def function(x: object, /) -> PyTree:
        if isinstance(x, Tensor):
            if x.dtype.kind == "c":
                return bind_view(x, Step(parts))
            if name == "real":
                return x
        return copy(x)

    return _with_signature(function, op)


_PUT_PART: dict[str, Function] = {
    "real": lambda x, part: jax.lax.complex(part, x.imag),
    "imag": lambda x, part: jax.lax.complex(x.real, part),
}


def _diag(name: str, where: str, jax_function: Callable[..., PyTree], roles: Roles) -> Function:
    """``diag``: of a matrix a view, as `diagonal`; of anything else a matrix."""
    op = Op(name, where, jax_function, roles)
    make, view = op.function, fast_function(op, view_binder(Write.INDICES))

    def function(v: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
        is_view = isinstance(v, Tensor) and v.ndim == 2 and kwargs.keys() <= {"k"}
        return view(v, *args, **kwargs) if is_view else make(v, *args, **kwargs)

    return _with_signature(function, op)


def _at_least(name: str, where: str, jax_function: Callable[..., PyTree], roles: Roles) -> Function:
    """``atleast_1d`` and its like: each result is its argument, or a view of it."""
    ndim = int(name.removeprefix("atleast_")[0])
    op = Op(name, where, jax_function, roles, view_binder(Write.RESHAPE))
    view = op.function

    def one(x: PyTree) -> PyTree:
        return x if isinstance(x, Tensor) and x.ndim >= ndim else view(x)

    def function(*arys: PyTree) -> PyTree:
        return one(*arys) if len(arys) == 1 else [one(x) for x in arys]

    return _with_signature(function, op)


def _broadcast_arrays(
    name: str, where: str, jax_function: Callable[..., PyTree], roles: Roles
) -> Function:
    """``broadcast_arrays``: each result is a view of its argument."""
    one = Op("broadcast_to", where, jnp.broadcast_to, binder=view_binder(Write.BROADCAST)).function
    op = Op(name, where, jax_function, roles)

    def function(*args: PyTree) -> PyTree:
        if not any([isinstance(x, (Tensor, np.ndarray)) for x in args]):
            return jax_function(*args)
        shapes = [x.shape if isinstance(x, Tensor) else np.shape(x) for x in args]
        shape = jnp.broadcast_shapes(*shapes)
        return [as_tensors(one(x, shape)) for x in args]

    return _with_signature(function, op)


# ``copy=False``: the Tensor itself, if it has the dtype.


def _array(name: str, where: str, jax_function: Callable[..., PyTree], roles: Roles) -> Function:
    """``array`` and ``astype``, which copy unless it is said that they need not."""
    op = Op(name, where, jax_function, roles, results=TENSORS if name == "array" else FOLLOWS)
    convert = op.function

    def function(x: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
        copies = kwargs.get("copy", True) not in (None, False)
        if (
            copies
            or not isinstance(x, Tensor)
            or len(args) > 1
            or kwargs.keys() - {"dtype", "copy"}
        ):
            return convert(x, *args, **kwargs)
        dtype = args[0] if args else kwargs.get("dtype")
        same = dtype is None if name == "array" else False
        if same or (dtype is not None and jnp.dtype(dtype) == x.dtype):
            return x
        return convert(x, *args, **kwargs)

    return _with_signature(function, op)


ALIASING: dict[str, Callable[[str, str, Any, Roles], Function]] = {
    "array": _array,
    "astype": _array,
    "atleast_1d": _at_least,
    "atleast_2d": _at_least,
    "atleast_3d": _at_least,
    "broadcast_arrays": _broadcast_arrays,
    "diag": _diag,
    "imag": _part,
    "real": _part,
    "reshape": _reshape,
}
