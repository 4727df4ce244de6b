"""The one place where Tensor gains operators, methods, and its place among JAX's pytrees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad.numpy as fnp
from fad import views
from fad.copying import CLONE, deep_copy, reduce, shallow_copy
from fad.dispatch import bind, followed, outlived, state
from fad.errors import GradientError, HostValueError, LevelError, TrackedValueError, describe
from fad.indexing import At, get_item
from fad.inplace import replace, set_item
from fad.jaxapi import is_inexact, is_tracing
from fad.levels import BatchLevel, JvpLevel
from fad.mutation import IN_PLACE, OPERATORS, in_place
from fad.primitive import Primitive
from fad.staging import StagedLevel
from fad.tape import engine
from fad.tape.grad_mode import mark_inference
from fad.tape.hooks import register_hook, register_post_accumulate_grad_hook, retain_grad
from fad.tape.record import ROOT, as_tensor
from fad.tensor import Tensor, meta_of, new_tensor
from fad.views import stop_gradient

__all__ = ["asarray", "stop_gradient", "tensor"]


# Making Tensors


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A new Tensor that holds a copy of ``data``.

    Arguments:
        data: a number, array, Tensor, or nested sequence of them.
        dtype: the dtype; default is that of the data, float32 for Python floats.
        requires_grad: record what is computed from it; needs a floating or complex dtype.

    Raises:
        TypeError: ``requires_grad`` for an integer or bool dtype.

    Source: ``torch.tensor``.

    >>> import fad
    >>> fad.tensor([1.0, 2.0], requires_grad=True)
    Tensor([1., 2.], dtype=float32, requires_grad=True)
    """
    if isinstance(data, Tensor):
        data = data.detach()
        t = fnp.array(data) if dtype is None else fnp.array(data, dtype=dtype)
    else:
        out = fnp.array(data) if dtype is None else fnp.array(data, dtype=dtype)
        t = as_tensor(out)
        if isinstance(out, Tensor):
            t = t.detach()
    if state.inference is not None:
        mark_inference(t)
    return t.requires_grad_() if requires_grad else t


def asarray(x: Any, dtype: Any = None) -> Tensor:
    """``x`` as a Tensor: the same one if it is a Tensor of that dtype, else around a JAX array.

    >>> import fad, jax.numpy as jnp
    >>> fad.asarray(jnp.ones(2))
    Tensor([1., 1.], dtype=float32)
    """
    if isinstance(x, Tensor):
        return x if dtype is None or x.dtype == jnp.dtype(dtype) else x.astype(dtype)
    t = as_tensor(fnp.asarray(x, dtype=dtype))
    return t if state.inference is None else mark_inference(t)  # type: ignore[no-any-return]


# Values


def peel(x: Any) -> Any:
    """The bare primal value of a Tensor, under grad and jvp levels.

    Raises:
        HostValueError: it is batched or being traced, and so has no single value.
    """
    x = outlived(x)
    while isinstance(x, Tensor):
        if isinstance(x.level, BatchLevel) and x.aux is not None:
            raise HostValueError(
                f"a batched Tensor ({describe(x)} inside vmap) has a value for each lane, not one: "
                "write fad.numpy.where(condition, a, b) instead of a Python branch, fad.numpy.f(x) or "
                "fad.from_jax(f)(x) for a plain JAX function, and keep host code out of vmap."
            )
        if isinstance(x.level, StagedLevel):
            raise HostValueError(
                f"a Tensor ({describe(x)}) inside the body of a staged function (jit, scan, cond, "
                "...) has no value yet: use fad.numpy.where or fad.lax.cond instead of a Python "
                "branch, fad.numpy.f(x) or fad.from_jax(f)(x) for a plain JAX function f, such as an "
                "optimizer's update."
            )
        x = outlived(x.value)
    return x


def _concrete(x: Tensor, what: str) -> Any:
    value = peel(x)
    if isinstance(value, jax.core.Tracer):
        raise HostValueError(
            f"{what} of a Tensor ({describe(x)}) under a JAX trace: it has no value yet. Use "
            "fad.numpy.where or fad.lax.cond instead of a Python branch."
        )
    return value


def is_tracked(x: Any) -> bool:
    while isinstance(x, Tensor):
        if x.requires_grad or (isinstance(x.level, JvpLevel) and x.aux is not None):
            return True
        x = outlived(x.value)
    return False


def _constant(x: Tensor, what: str) -> None:
    """Refuse to make a constant of a value in a body from which a derivative is being derived."""
    v: Any = x
    while isinstance(v, Tensor):
        if v.level.deriving and (v.requires_grad or v.aux is not None):
            raise TrackedValueError(f"{what} of a Tensor would lose its derivative")
        v = outlived(v.value)


def _array(self: Tensor) -> Any:
    """The JAX array that holds the value.

    Inside ``grad`` and ``jvp`` it is the primal value, without its derivatives.
    """
    _constant(self, "array")
    return peel(self)


def _numpy(self: Tensor) -> np.ndarray:
    """The value as a NumPy array.

    Raises:
        GradientError: the Tensor requires grad: write ``x.detach().numpy()``.
        HostValueError: it is batched or being traced.
    """
    value = _concrete(self, "numpy()")
    if is_tracked(self):
        raise TrackedValueError(
            "numpy() of a Tensor that requires grad or has a tangent would lose its derivative: "
            "write x.detach().numpy()"
        )
    return np.asarray(value)


def _dunder_array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    value = _numpy(self)
    return np.array(value, dtype=dtype, copy=True) if copy else np.asarray(value, dtype=dtype)


def _item(self: Tensor, *args: Any) -> Any:
    """The element of a Tensor with one element, or that at ``args``, as a Python scalar."""
    _constant(self, "item()")
    return _concrete(self, "item()").item(*args)


def _tolist(self: Tensor) -> Any:
    """The value as nested lists of Python scalars."""
    _constant(self, "tolist()")
    return np.asarray(_concrete(self, "tolist()")).tolist()


def _scalar(convert: Callable[[Any], Any], what: str) -> Callable[[Tensor], Any]:
    def scalar(self: Tensor) -> Any:
        if convert in (float, complex):
            _constant(self, what)
        return convert(_concrete(self, what))

    scalar.__name__ = what
    return scalar


def _len(self: Tensor) -> int:
    if not self.shape:
        raise TypeError("len() of a 0-d Tensor")
    return self.shape[0]


def _iter(self: Tensor) -> Iterator[Any]:
    if not self.shape:
        raise TypeError("iteration over a 0-d Tensor")
    return iter([self[i] for i in range(self.shape[0])])


def _contains(self: Tensor, value: Any) -> bool:
    return bool(fnp.any(fnp.equal(self, value)))


def _repr(self: Tensor) -> str:
    """Value, dtype, level and kind where wrapped, and place in the graph."""
    parts = [f"dtype={_safe(lambda: self.dtype)}"]
    inner = self.value
    if self.level is not ROOT:
        parts.append(f"level={self.level.id} ({self.level.kind})")
        if not self.level.alive:
            parts[-1] = parts[-1][:-1] + ", finished)"
        if isinstance(self.level, BatchLevel) and self.aux is not None:
            parts.append(f"batch_dim={self.aux}")
        if isinstance(self.level, JvpLevel) and self.aux is not None:
            parts.append(f"tangent={_short(self.aux)}")
    if self.node is not None:
        parts.append(f"grad_fn=<{self.node.name()}>")
    elif self.requires_grad:
        parts.append("requires_grad=True")
    return f"Tensor({_short(inner)}, {', '.join(parts)})"


def _safe(f: Callable[[], Any]) -> Any:
    try:
        return f()
    except (AttributeError, LevelError):
        return "?"


def _short(value: Any) -> str:
    """An array's values as text; the type and shape of what has none."""
    while isinstance(value, Tensor) and not isinstance(value.level, BatchLevel):
        value = value.value
    if isinstance(value, Tensor):
        return repr(value)
    if isinstance(value, jax.core.Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return f"<{describe(value)}>"
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return f"<{describe(value)}>"
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return f"<{describe(value)}, in part on other processes>"
    if isinstance(value, jax.Array) and value.is_deleted():
        return f"<{describe(value)}, deleted>"
    return np.array2string(
        np.asarray(value), separator=", ", threshold=20, edgeitems=3, prefix="Tensor("
    )


# Autograd attributes


def _is_leaf(self: Tensor) -> bool:
    """Whether no recorded operation produced it."""
    return self.node is None


def _grad_fn(self: Tensor) -> Any:
    """The node that produced it, None for a leaf."""
    return self.node


def _get_grad(self: Tensor) -> Tensor | None:
    """The gradient that ``backward`` accumulated, None if there is none."""
    return None if self.meta is None else self.meta.grad


def _set_grad(self: Tensor, value: Any) -> None:
    if value is not None:
        value = as_tensor(value)
        if value.shape != self.shape or value.dtype != self.dtype:
            raise GradientError(
                f"grad must have the shape and dtype of the Tensor, {self.dtype}{list(self.shape)}, "
                f"got {value.dtype}{list(value.shape)}"
            )
    meta_of(self).grad = value


def _retains_grad(self: Tensor) -> bool:
    """Whether ``.grad`` of this non-leaf is kept."""
    return self.meta is not None and self.meta.retains_grad


def _version(self: Tensor) -> int:
    """How often it was changed in place.

    Raises:
        GradientError: it is an inference Tensor, which keeps no count.
    """
    if self.meta is not None and self.meta.inference:
        raise GradientError("Inference tensors do not track version counter.")
    return 0 if self.meta is None else self.meta.storage.version


def _is_inference(self: Tensor) -> bool:
    """Whether it was made in `fad.inference_mode`, so that no graph may save it."""
    return self.meta is not None and self.meta.inference


def _requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Switch recording of what is computed from this leaf on or off; returns the Tensor.

    Raises:
        TypeError: its dtype has no derivatives.
        GradientError: it is not a leaf.
    """
    if requires_grad and not is_inexact(self.dtype):
        raise TypeError(
            f"only Tensors of floating or complex dtype can require gradients, got {self.dtype}: "
            "convert it with x.astype(float)"
        )
    if self.node is not None:
        if requires_grad:
            return self
        raise GradientError(
            "you can only change requires_grad of leaf Tensors: use x.detach() for a Tensor without "
            "history"
        )
    if requires_grad and state.inference is None and _is_inference(self):
        raise GradientError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. "
            "Make a normal Tensor of it first: x.clone()"
        )
    if state.body is not None and self.level is ROOT and not followed(self):
        self.level = state.body  # so that what it meets in compiled code is recorded where it is
    self.requires_grad = bool(requires_grad)
    return self


def _backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """`fad.autograd.backward` from this Tensor."""
    engine.backward(
        self, None if gradient is None else [gradient], retain_graph, create_graph, inputs
    )


def _detach(self: Tensor) -> Tensor:
    """The same value without history and without tangents; it shares storage and version."""
    return views.detach(self)


def _detach_(self: Tensor) -> Tensor:
    """Drop history and tangents in place.

    Raises:
        GradientError: it is a view, whose history is that of its base.
    """
    if _is_view(self):
        raise GradientError(
            "Can't detach views in-place. Use detach() instead, which gives a Tensor that shares the "
            "storage"
        )
    views.set_state(self, stop_gradient(self))
    return self


# Views


def _is_view(self: Tensor) -> bool:
    """Whether it shows a part of another Tensor, `base`."""
    return _base(self) is not None


def _base(self: Tensor) -> Tensor | None:
    """The Tensor that this is a view of, None if it is none."""
    link = views.link_of(self)
    return None if link is None else link.base


def _view_fn(self: Tensor) -> Callable[[Any], Any]:
    """The function that makes this view of its base; of anything with the base's shape.

    Raises:
        GradientError: it is not a view.
    """
    if not _is_view(self):
        raise GradientError(f"view_fn: {describe(self)} is not a view")
    chain = self.meta.link.chain  # type: ignore[union-attr]

    def view_fn(base: Any) -> Any:
        for step in chain:
            base = views.bind_view(step.op, (base, *step.numbers))
        return base

    return view_fn


def _replay_on(self: Tensor, new_base: Any) -> Any:
    """The view of ``new_base`` that this is of its own base.

    Raises:
        GradientError: it is not a view.
        ValueError: ``new_base`` has another shape than the base.
    """
    view_fn = _view_fn(self)
    base = _base(self)
    assert base is not None
    if tuple(new_base.shape) != base.shape:
        raise ValueError(
            f"replay_on: the new base must have the shape of the base, {base.shape}, got "
            f"{describe(new_base)}"
        )
    return view_fn(new_base)


def _expand(self: Tensor, *sizes: Any) -> Any:
    """Dimensions of length 1 repeated to ``sizes``, as a view; -1 keeps a length."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    offset = len(sizes) - self.ndim
    if offset < 0:
        raise ValueError(f"expand: {len(sizes)} sizes are too few for {describe(self)}")
    lengths = [
        self.shape[k - offset] if n == -1 and k >= offset else n for k, n in enumerate(sizes)
    ]
    return fnp.broadcast_to(self, tuple(lengths))


def _unbind(self: Tensor, dim: int = 0) -> Any:
    """A tuple of views, one for each index along ``dim``."""
    return fnp.unstack(self, axis=dim)


def _split(self: Tensor, indices_or_sections: Any, axis: int = 0) -> Any:
    """``fad.numpy.split`` of this Tensor: a list of views."""
    return fnp.split(self, indices_or_sections, axis)


def _clone(self: Tensor) -> Tensor:
    """A copy with the same history."""
    t: Tensor = bind(CLONE, (self,))
    return t


# Operators


def _binary(op: Any, swap: bool = False) -> Callable[[Tensor, Any], Any]:
    if swap:

        def operator(self: Tensor, other: Any) -> Any:
            if isinstance(other, _OPERANDS):
                return op(other, self)
            return NotImplemented
    else:

        def operator(self: Tensor, other: Any) -> Any:
            if isinstance(other, _OPERANDS):
                return op(self, other)
            return NotImplemented

    return operator


def _augmented(change: Callable[..., Any]) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return change(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return operator


_OPERANDS = (Tensor, float, int, complex, jax.Array, np.ndarray, np.generic)

_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_COMPARE = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "invert"}

# Methods that are the function of the same name with the Tensor as first argument.
_METHODS = """all any argmax argmin argpartition argsort choose clip compress conj conjugate cumprod
cumsum diagonal dot expand_dims max mean min moveaxis nonzero prod ptp ravel repeat round
searchsorted sort squeeze std sum swapaxes take trace unstack var""".split()
_PARTS = ("real", "imag")


def _set_part(name: str) -> Callable[[Tensor, Any], None]:
    """The setter of ``x.real`` and ``x.imag``."""

    def put(self: Tensor, value: Any) -> None:
        if name == "imag" and not jnp.issubdtype(self.dtype, np.complexfloating):
            raise TypeError(f"imag: {describe(self)} has no imaginary part to write to")
        part = getattr(self, name)
        if not views.same_view(part, value):  # as in the last part of ``x.real += v``
            replace(part, value, who=f"x.{name} = v")

    return put


def _method(op: Any, name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return op(self, *args, **kwargs)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"``fad.numpy.{name}`` of this Tensor."
    return method


def _reshape(self: Tensor, *shape: Any, order: str = "C", **kwargs: Any) -> Any:
    """The same elements in another shape; ``x.reshape(2, -1)`` or ``x.reshape((2, -1))``."""
    if "shape" in kwargs:
        return fnp.reshape(self, kwargs["shape"], order)
    target = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    return (
        fnp.reshape(self, tuple(target))
        if order == "C"
        else fnp.reshape(self, tuple(target), order)
    )


def _transpose(self: Tensor, *axes: Any) -> Any:
    """Dimensions permuted; reversed if no ``axes`` are given."""
    if not axes or axes == (None,):
        return fnp.transpose(self)
    return fnp.transpose(
        self, tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    )


def _flatten(self: Tensor, order: str = "C") -> Any:
    """A copy with one dimension; `ravel` is a view."""
    return _clone(fnp.ravel(self, order))


def _astype(self: Tensor, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """Converted to ``dtype``."""
    return fnp.astype(self, dtype)


def _view(self: Tensor, dtype: Any = None) -> Any:
    """The same bytes read as another dtype, as a view; it has no derivative."""
    dtype = jnp.dtype(dtype)
    op = _VIEWS.get(dtype)
    if op is None:
        op = _VIEWS[dtype] = views.ViewOp(
            Primitive("view", lambda x: x.view(dtype)),
            views.Write.FUNCTION,
            lambda x, part: part.view(x.dtype),
            selects=False,
            whole=False,
        )
    return views.bind_view(op, (self,))


_VIEWS: dict[Any, views.ViewOp] = {}


_PUT: dict[Any, Primitive] = {}


def _put(x: Any, target: Any) -> Any:
    if isinstance(target, jax.sharding.NamedSharding) and is_tracing():
        # In compiled code JAX's device_put leaves the layout to XLA; this one says it.
        return jax.lax.with_sharding_constraint(x, target)
    return jax.device_put(x, target)


def _to(self: Tensor, target: Any) -> Any:
    """The Tensor on another device or sharding, or in another dtype; derivatives follow it back.

    The Tensor itself if it has the dtype already. Its node is called CopyBackwards.

    Arguments:
        target: a ``jax.Device``, a ``jax.sharding.Sharding``, or a dtype.
    """
    if isinstance(target, (jax.Device, jax.sharding.Sharding)):
        op = _PUT.get(target)
        if op is None:
            op = _PUT[target] = Primitive("to", lambda x: _put(x, target), jit=False)
        return bind(op, (self,))
    if jnp.dtype(target) == self.dtype:
        return self
    op = _PUT.get(target)
    if op is None:
        op = _PUT[target] = Primitive("to", lambda x: jnp.astype(x, target))
    return bind(op, (self,))


def _block_until_ready(self: Tensor) -> Tensor:
    """Wait until the value has been computed."""
    value = peel(self)
    if isinstance(value, jax.Array):
        jax.block_until_ready(value)
    return self


def _no_format(self: Tensor, spec: str) -> str:
    if not spec:
        return str(self)
    return format(_concrete(self, "format()").item(), spec)


def _install() -> None:
    for name, member in IN_PLACE.items():
        setattr(Tensor, name, member)
    for name, twin in OPERATORS.items():
        setattr(Tensor, f"__{name}__", _augmented(in_place(fnp, twin, f"__{name}__")))
    for name, twin in _BINARY.items():
        op = getattr(fnp, twin)
        setattr(Tensor, f"__{name}__", _binary(op))
        setattr(Tensor, f"__r{name}__", _binary(op, swap=True))
    for name, twin in _COMPARE.items():
        setattr(Tensor, f"__{name}__", _binary(getattr(fnp, twin)))
    for name, twin in _UNARY.items():
        setattr(Tensor, f"__{name}__", _method(getattr(fnp, twin), f"__{name}__"))
    for name in _METHODS:
        method = _method(getattr(fnp, name), name)
        setattr(Tensor, name, method)
    for name in _PARTS:
        part = _method(getattr(fnp, name), name)
        setattr(Tensor, name, property(part, _set_part(name), doc=part.__doc__))
    members: dict[str, Any] = {
        "__array__": _dunder_array,
        "__array_priority__": 1000,
        "__bool__": _scalar(bool, "bool()"),
        "__complex__": _scalar(complex, "complex()"),
        "__contains__": _contains,
        "__copy__": shallow_copy,
        "__deepcopy__": deep_copy,
        "__float__": _scalar(float, "float()"),
        "__format__": _no_format,
        "__getitem__": get_item,
        "__hash__": object.__hash__,
        "__index__": _scalar(lambda v: v.__index__(), "index()"),
        "__int__": _scalar(int, "int()"),
        "__iter__": _iter,
        "__len__": _len,
        "__reduce_ex__": reduce,
        "__repr__": _repr,
        "__setitem__": set_item,
        "T": property(lambda self: fnp.transpose(self), doc="Dimensions reversed."),
        "mT": property(lambda self: fnp.matrix_transpose(self), doc="Last two dimensions swapped."),
        "array": property(_array, doc=_array.__doc__),
        "astype": _astype,
        "base": property(_base, doc=_base.__doc__),
        "expand": _expand,
        "is_view": property(_is_view, doc=_is_view.__doc__),
        "replay_on": _replay_on,
        "split": _split,
        "unbind": _unbind,
        "view_fn": property(_view_fn, doc=_view_fn.__doc__),
        "at": property(At, doc=At.__doc__),
        "backward": _backward,
        "block_until_ready": _block_until_ready,
        "clone": _clone,
        "copy": _clone,
        "detach": _detach,
        "detach_": _detach_,
        "register_hook": register_hook,
        "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
        "retain_grad": retain_grad,
        "retains_grad": property(_retains_grad, doc=_retains_grad.__doc__),
        "device": property(lambda self: peel(self).device, doc="Where the value lives."),
        "devices": lambda self: peel(self).devices(),
        "flatten": _flatten,
        "grad": property(_get_grad, _set_grad, doc=_get_grad.__doc__),
        "grad_fn": property(_grad_fn, doc=_grad_fn.__doc__),
        "is_inference": _is_inference,
        "is_leaf": property(_is_leaf, doc=_is_leaf.__doc__),
        "item": _item,
        "itemsize": property(lambda self: self.dtype.itemsize, doc="Bytes of one element."),
        "nbytes": property(lambda self: self.size * self.dtype.itemsize, doc="Bytes of all."),
        "numpy": _numpy,
        "requires_grad_": _requires_grad_,
        "reshape": _reshape,
        "sharding": property(lambda self: peel(self).sharding, doc="How the value is laid out."),
        "to": _to,
        "tolist": _tolist,
        "transpose": _transpose,
        "version": property(_version, doc=_version.__doc__),
        "view": _view,
        "weak_type": property(lambda self: bool(self.aval.weak_type), doc="As in JAX."),
    }
    for name, member in members.items():
        setattr(Tensor, name, member)


_install()


# Pytrees
#
# NOTE [Tensors in JAX's pytrees]
# A Tensor is a node with its array for a child, so that jax.jit and optax take it. A Tensor that is
# part of a graph or of a running transform must not lose that on the way: its child is a Tensor
# too, of a type that JAX takes for a leaf. `jax.tree.map(lambda p: 2 * p, params)` then computes with
# the Tensor itself, and plain JAX functions refuse it.


def _flatten_tensor(t: Tensor) -> tuple[tuple[Any], None]:
    bare = not t.requires_grad or ROOT.id <= state.blocked
    if t.level is ROOT and bare and not followed(t):
        return (t.value,), None
    if not t.level.alive:
        return _flatten_tensor(outlived(t))
    leaf: Any = object.__new__(views.TrackedTensor)
    leaf.origin = t
    return (leaf,), None


def _unflatten_tensor(_: None, children: tuple[Any]) -> Tensor:
    (child,) = children
    if isinstance(child, views.TrackedTensor):
        return child.origin
    return child if isinstance(child, Tensor) else new_tensor(child, ROOT)


jax.tree_util.register_pytree_node(Tensor, _flatten_tensor, _unflatten_tensor)
