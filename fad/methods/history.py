"""The autograd attributes of a Tensor: its place in the graph, its gradient, hooks, detaching."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np

from fad.core.dtypes import is_inexact
from fad.core.level import captured_by_jit, flush, last_level_id, state
from fad.core.tensor import Tensor, has_history, meta_of, version_of
from fad.errors import ArgumentError, GradientError, attribute, describe
from fad.tape.grad_mode import no_grad
from fad.tape.graph import Node, node_of, running
from fad.tape.hooks import register_hook, register_post_accumulate_grad_hook, retain_grad
from fad.tape.recorder import ROOT, as_tensor
from fad.transforms import backward
from fad.views.aliases import DualLink, has_error, link_of, set_state
from fad.views.copying import clone
from fad.views.inplace import replace
from fad.views.make_view import detach, same_view, shares, stop_gradient
from fad.views.pytree import original


def _is_leaf(self: Tensor) -> bool:
    """Whether no recorded operation produced it."""
    t = original(self)
    return not has_error(t) and not has_history(t)


def _grad_fn(self: Tensor) -> Node | None:
    """The node that produced it, None for a leaf.

    Raises:
        GradientError: it is a view made under `no_grad`, of a Tensor that was changed in place since.
    """
    return node_of(original(self))


def _get_grad(self: Tensor) -> Tensor | None:
    """The gradient that ``backward`` accumulated, None if there is none.

    Warns (UserWarning) where there can be none: the Tensor is not a leaf, and does not retain it.
    """
    t = original(self)
    meta = t.meta
    gradient = None if meta is None else meta.grad
    retains = meta is not None and meta.retains_grad
    if gradient is None and not retains and not has_error(t) and not _is_leaf(t):
        warnings.warn(
            "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad "
            "attribute won't be populated during autograd.backward(): call .retain_grad() on it first, "
            "or read .grad of the leaf. After w = w - rate * w.grad, w is no leaf: write w -= rate * w.grad "
            "under no_grad.",
            stacklevel=2,
        )
    return gradient


def _set_grad(self: Tensor, value: object) -> None:
    """Take a gradient that fits; None takes it away, as ``del x.grad`` does.

    Raises:
        ArgumentError: it is neither a Tensor nor an array.
        GradientError: it is the Tensor itself, or has another shape or dtype.
    """
    if value is self:
        raise GradientError("can't assign a Tensor as its own grad: pass x.detach().clone()")
    if value is not None:
        if not isinstance(value, (Tensor, jax.Array, np.ndarray, np.generic)):
            raise ArgumentError(f"grad must be a Tensor, an array or None, got {describe(value)}")
        value = as_tensor(value)
        if value.shape != self.shape or value.dtype != self.dtype:
            raise GradientError(
                "attempting to assign a gradient of another size or dtype: grad must have the shape and "
                f"dtype of the Tensor, {self.dtype}{list(self.shape)}, got {value.dtype}{list(value.shape)}"
            )
    meta_of(self).grad = value


def _del_grad(self: Tensor) -> None:
    """Take the gradient away."""
    _set_grad(self, None)


def _retains_grad(self: Tensor) -> bool:
    """Whether ``.grad`` of this non-leaf is kept."""
    meta = original(self).meta
    return meta is not None and meta.retains_grad


def _version(self: Tensor) -> int:
    """How often it was changed in place.

    Raises:
        GradientError: it is an inference Tensor, which keeps no count; an AttributeError too.
    """
    if _is_inference(self):
        raise GradientError(
            "Inference tensors do not track version counter. Make a normal Tensor of it first: x.clone()"
        )
    return version_of(self)


def _is_inference(self: Tensor) -> bool:
    """Whether it was made in `fad.inference_mode`, so that no graph may save it."""
    meta = original(self).meta
    return meta is not None and meta.inference


def _requires_grad_(self: Tensor, requires_grad: bool = True) -> Tensor:
    """Switch the recording of computations from this leaf on or off; returns the Tensor.

    Raises:
        ArgumentError: its dtype has no derivatives, or ``requires_grad`` is not a bool.
        GradientError: it is not a leaf.
    """
    if not isinstance(requires_grad, (bool, np.bool_)):
        raise ArgumentError(f"requires_grad must be a bool, got {describe(requires_grad)}")
    if requires_grad and not is_inexact(self.dtype):
        raise ArgumentError(
            f"only Tensors of floating or complex dtype can require gradients, got {self.dtype}"
            + (": convert it with x.astype(float)" if isinstance(self.dtype, np.dtype) else "")
        )
    handle, self = self, original(self)
    if not _is_leaf(self):
        if requires_grad:
            return handle
        raise GradientError(_ONLY_LEAVES)
    if requires_grad and state.inference is None and _is_inference(self):
        raise GradientError(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed. "
            "Make a normal Tensor of it first: x.clone()"
        )
    flush()
    if state.body is not None and self.level is ROOT and not captured_by_jit(self):
        # Operations on it in compiled code are recorded at the level of the body.
        self._level = state.body
    newest = last_level_id()
    if not self._requires_grad and (self.born < newest or not self._level.on_tape):
        meta_of(self).made_leaf = newest if requires_grad else -1
    self._requires_grad = bool(requires_grad)
    if running.leaves is not None:
        running.leaves.append(self)
    return handle


_ONLY_LEAVES = (
    "you can only change requires_grad flags of leaf Tensors (leaf variables): use x.detach() for a Tensor "
    "without history"
)


def _set_requires_grad(self: Tensor, requires_grad: bool) -> None:
    """`_requires_grad_`, which refuses every result of a recorded operation, as PyTorch does."""
    if not _is_leaf(self):
        raise GradientError(_ONLY_LEAVES)
    _requires_grad_(self, requires_grad)


def _backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """`fad.autograd.backward` from this Tensor."""
    backward.backward(
        self, None if gradient is None else [gradient], retain_graph, create_graph, inputs
    )


def _detach(self: Tensor) -> Tensor:
    """The same value without history and without tangents; it shares storage and version."""
    return detach(self)


def _detach_(self: Tensor) -> Tensor:
    """Drop history and tangents in place.

    Raises:
        GradientError: it is a view, whose history is that of its base.
    """
    handle, self = self, original(self)
    link = link_of(self)
    if link is not None and (link.base is not None or isinstance(link, DualLink)):
        raise GradientError(
            "Can't detach views in-place. Use detach() instead, which gives a Tensor that shares the "
            "storage"
        )
    set_state(self, stop_gradient(self))
    return handle


def _get_data(self: Tensor) -> Tensor:
    """`detach`: the value without history. ``x.data = v`` writes ``v`` into the Tensor, unrecorded.

    Unlike PyTorch's, the writes count: what was saved before them and is used after them is an error.
    """
    return detach(self)


def _set_data(self: Tensor, value: object) -> None:
    if not isinstance(value, (Tensor, jax.Array)):
        raise TypeError(f"x.data = v: v must be a Tensor or an array, got {describe(value)}")
    if value.shape != self.shape or value.dtype != self.dtype:
        raise ArgumentError(
            f"x.data = v: {describe(self)} keeps its shape and dtype, got {describe(value)}. Make a new "
            "Tensor, or write x.data = v.astype(x.dtype)"
        )
    if isinstance(value, Tensor):
        if _is_all_of(value, self):  # as in the last part of ``x.data -= v``
            return
        value = clone(value) if shares(value, self) else value
        value = detach(value)
    with no_grad():
        replace(self, value, who="x.data = v")


def _is_all_of(a: Tensor, b: Tensor) -> bool:
    """Whether two Tensors are aliases that show the same elements."""
    whole = all([link is None or link.base is None for link in map(link_of, (a, b))])
    return a is b or same_view(a, b) or (whole and shares(a, b))


MEMBERS: dict[str, object] = {
    "backward": _backward,
    "data": attribute(_get_data, _set_data),
    "detach": _detach,
    "detach_": _detach_,
    "grad": property(_get_grad, _set_grad, _del_grad, doc=_get_grad.__doc__),
    "grad_fn": property(_grad_fn, doc=_grad_fn.__doc__),
    "is_inference": _is_inference,
    "is_leaf": property(_is_leaf, doc=_is_leaf.__doc__),
    "register_hook": register_hook,
    "requires_grad": Tensor.requires_grad.setter(_set_requires_grad),  # type: ignore[attr-defined]
    "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
    "requires_grad_": _requires_grad_,
    "retain_grad": retain_grad,
    "retains_grad": property(_retains_grad, doc=_retains_grad.__doc__),
    "version": attribute(_version),
    "_version": attribute(_version),  # PyTorch's name
}
