"""Functions of jax.numpy whose results are views, or their argument itself, in a way of their own.

Which functions return views is in `fad.arrays.special_cases.VIEWS`; those here need more than the one rule of
`fad.views.make_view.view_binder`. The table in docs/views.md says what each returns.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fad.arrays.lists import Function
from fad.arrays.operations import Op, fast_function
from fad.arrays.results import as_tensors
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.views.addresses import has_strides
from fad.views.chains import Step, ViewOp, Write
from fad.views.make_view import bind_view, shares, view_binder


def _reshape(op: Op) -> Function:
    """``reshape``, with NumPy's ``copy``: where it is False, a ValueError if it has to copy."""
    reshape = fast_function(op, view_binder(Write.RESHAPE, has_strides))

    def function(*args: PyTree, copy: bool | None = None, **kwargs: PyTree) -> PyTree:
        if copy:
            return op.function(*args, **kwargs)
        out = reshape(*args, **kwargs)
        if copy is None or not isinstance(out, Tensor):
            return out
        if not any([shares(out, x) for x in (*args, *kwargs.values())]):
            raise ValueError(
                "reshape: copy=False, but the elements are not stored so that this could be a view: "
                "leave copy out, or write x.view(shape)"
            )
        return out

    return op.wrap(function)


def _part(op: Op) -> Function:
    """``real`` and ``imag``: views of complex Tensors; ``real`` of a real Tensor is this Tensor."""
    put, copy = _PUT_PART[op.name], op.function
    second = op.name == "imag"
    parts = ViewOp(
        Primitive(op.name, op.jax_function),
        Write.FUNCTION,
        put,
        whole=False,
        places=lambda addresses, _: 2 * addresses + second,
    )

    def function(x: object, /) -> PyTree:
        if isinstance(x, Tensor):
            if x.dtype.kind == "c":
                return bind_view(x, Step(parts))
            if op.name == "real":
                return x
        return copy(x)

    return op.wrap(function)


_PUT_PART: dict[str, Function] = {
    "real": lambda x, part: jax.lax.complex(part, x.imag),
    "imag": lambda x, part: jax.lax.complex(x.real, part),
}


def _diag(op: Op) -> Function:
    """``diag``: of a matrix a view, as `diagonal`; of anything else a matrix."""
    make, view = op.function, fast_function(op, view_binder(Write.INDICES))

    def function(v: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
        is_view = isinstance(v, Tensor) and v.ndim == 2 and kwargs.keys() <= {"k"}
        return view(v, *args, **kwargs) if is_view else make(v, *args, **kwargs)

    return op.wrap(function)


def _at_least(op: Op) -> Function:
    """``atleast_1d`` and its like: each result is its argument, or a view of it."""
    ndim = int(op.name.removeprefix("atleast_")[0])
    view = fast_function(op, view_binder(Write.RESHAPE))

    def one(x: PyTree) -> PyTree:
        return x if isinstance(x, Tensor) and x.ndim >= ndim else view(x)

    def function(*arys: PyTree) -> PyTree:
        return one(*arys) if len(arys) == 1 else [one(x) for x in arys]

    return op.wrap(function)


def _broadcast_arrays(op: Op) -> Function:
    """``broadcast_arrays``: each result is a view of its argument."""
    binder = view_binder(Write.BROADCAST)
    one = Op("broadcast_to", op.where, jnp.broadcast_to, binder=binder).function

    def function(*args: PyTree) -> PyTree:
        if not any([isinstance(x, (Tensor, np.ndarray)) for x in args]):
            return op.jax_function(*args)
        shape = jnp.broadcast_shapes(*map(np.shape, args))
        return [as_tensors(one(x, shape)) for x in args]

    return op.wrap(function)


# ``copy=False``: the Tensor itself, if it has the dtype.


def _array(op: Op) -> Function:
    """``array`` and ``astype``, which copy unless it is said that they need not."""
    convert, keeps = op.function, op.name == "array"  # ``array`` without a dtype keeps that of x

    def function(x: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
        known = len(args) <= 1 and not kwargs.keys() - {"dtype", "copy"}
        if isinstance(x, Tensor) and known and kwargs.get("copy", True) in (None, False):
            dtype = args[0] if args else kwargs.get("dtype")
            if keeps if dtype is None else jnp.dtype(dtype) == x.dtype:
                return x
        return convert(x, *args, **kwargs)

    return op.wrap(function)


ALIASING: dict[str, Callable[[Op], Function]] = {
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
