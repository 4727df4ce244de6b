"""PyTorch's `torch.nn.utils` of gradients and parameters: norms, clipping, one vector for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from fad import Tensor, no_grad
from fad.errors import ArgumentError, HostValueError, describe, hints_of, say_too
from fad.extend import array_function
from fad.extend.types import PyTree
from fad.formulas import vector_norm
from fad.numpy import zeros

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "vector_to_parameters",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = hints_of(__name__)


def _total_norm(tensors: Any, norm_type: float) -> Array:
    norms = [vector_norm(jnp.ravel(x), ord=norm_type) for x in tensors]
    dtype = jnp.result_type(*norms)
    return vector_norm(jnp.stack([n.astype(dtype) for n in norms]), ord=norm_type)


def _clip_factor(total_norm: Any, max_norm: Any) -> Array:
    return jnp.minimum(max_norm / (total_norm + 1e-6), 1.0)


_norm = array_function(_total_norm, name="get_total_norm", lists=["tensors"])
_factor = array_function(_clip_factor, name="clip_factor")
_concatenated = array_function(
    lambda tensors: jnp.concatenate([jnp.ravel(x) for x in tensors]),
    name="parameters_to_vector",
    lists=["tensors"],
)


def _tensors(parameters: Tensor | Iterable[PyTree] | PyTree, who: str) -> Iterator[Tensor]:
    """The Tensors of a tree, or of what is iterated over once."""
    is_leaf = jax.tree_util.all_leaves([parameters]) and not hasattr(parameters, "shape")
    tree = list(parameters) if is_leaf and isinstance(parameters, Iterable) else parameters
    for leaf in jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Tensor)):
        if not isinstance(leaf, Tensor):
            raise ArgumentError(f"{who}: expected Tensors, got {describe(leaf)}")
        yield leaf


def _grads(parameters: PyTree, who: str) -> list[Tensor]:
    return [p.grad for p in _tensors(parameters, who) if p.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[PyTree] | PyTree,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """The norm of all elements of several Tensors, as if they were one vector.

    Arguments:
        tensors: a Tensor, or an iterable or a tree of them.
        norm_type: which norm; ``math.inf`` for the greatest absolute value.
        error_if_nonfinite: whether NaN or infinity is an error.

    Returns:
        A scalar; 0 of no Tensors.

    Raises:
        ArgumentError: something else than a Tensor is among them.
        ArithmeticError: the norm is not finite, and shall be. This reads its value, which `fad.jit` refuses.

    Source: `torch.nn.utils.get_total_norm`.

    >>> fad.nn.utils.get_total_norm([fad.tensor([3.0]), fad.tensor([0.0, 4.0])]).item()
    5.0
    """
    leaves = list(_tensors(tensors, "get_total_norm"))
    if not leaves:
        empty: Tensor = zeros(())
        return empty
    total: Tensor = _norm(leaves, float(norm_type))
    if not error_if_nonfinite:
        return total
    try:
        norm = float(total)
    except HostValueError as error:
        say_too(
            error,
            "error_if_nonfinite=True reads the norm: leave it out, and look at the norm outside.",
        )
        raise
    if not math.isfinite(norm):
        raise ArithmeticError(
            f"get_total_norm: the norm of order {norm_type} is {norm}. Run the backward pass in "
            "fad.autograd.detect_anomaly() to see where it comes from, or pass error_if_nonfinite=False."
        )
    return total


def clip_grad_norm_(
    parameters: Tensor | Iterable[PyTree] | PyTree,
    max_norm: float | Tensor,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale the gradients of parameters, in place, so that their norm as one vector is at most ``max_norm``.

    Arguments:
        parameters: a Tensor, or an iterable or a tree of them; those without ``.grad`` are left out.
        max_norm: the greatest norm.
        norm_type, error_if_nonfinite: as for `get_total_norm`.

    Returns:
        The norm before.

    Raises:
        ArgumentError: something else than a Tensor is among the parameters.
        ArithmeticError: the norm is not finite, and shall be; no gradient is changed.

    Source: `torch.nn.utils.clip_grad_norm_`.

    >>> w = fad.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> fad.nn.utils.clip_grad_norm_([w], max_norm=1.0).item()
    10.0
    >>> w.grad.tolist()
    [0.5999..., 0.7999...]
    """
    grads = _grads(parameters, "clip_grad_norm_")
    with no_grad():
        total = get_total_norm(grads, norm_type, error_if_nonfinite)
        _scale(grads, max_norm, total)
    return total


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[PyTree] | PyTree, max_norm: float | Tensor, total_norm: Tensor
) -> None:
    """Scale the gradients of parameters, in place, as `clip_grad_norm_` does, by a norm that is known.

    Arguments:
        parameters: a Tensor, or an iterable or a tree of them; those without ``.grad`` are left out.
        max_norm: the greatest norm.
        total_norm: as from `get_total_norm`, of these gradients and perhaps others.

    Raises:
        ArgumentError: something else than a Tensor is among the parameters.

    Source: `torch.nn.utils.clip_grads_with_norm_`.

    >>> w = fad.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> fad.nn.utils.clip_grads_with_norm_(w, 1.0, fad.tensor(20.0))
    >>> w.grad.tolist()
    [0.2999..., 0.3999...]
    """
    with no_grad():
        _scale(_grads(parameters, "clip_grads_with_norm_"), max_norm, total_norm)


def _scale(grads: list[Tensor], max_norm: float | Tensor, total_norm: Tensor) -> None:
    if grads:
        factor = _factor(total_norm, max_norm)
        for grad in grads:
            grad.mul_(factor.astype(grad.dtype))


def clip_grad_value_(parameters: Tensor | Iterable[PyTree] | PyTree, clip_value: float) -> None:
    """Clip each element of the gradients of parameters, in place, to ``[-clip_value, clip_value]``.

    Arguments:
        parameters: a Tensor, or an iterable or a tree of them; those without ``.grad`` are left out.
        clip_value: the greatest absolute value.

    Raises:
        ArgumentError: something else than a Tensor is among the parameters.

    Source: `torch.nn.utils.clip_grad_value_`.

    >>> w = fad.tensor([3.0, -0.25], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> fad.nn.utils.clip_grad_value_(w, 1.0)
    >>> w.grad.tolist()
    [1.0, -0.5]
    """
    with no_grad():
        for grad in _grads(parameters, "clip_grad_value_"):
            grad.clip_(-float(clip_value), float(clip_value))


def parameters_to_vector(parameters: Tensor | Iterable[PyTree] | PyTree) -> Tensor:
    """The elements of several Tensors as one vector, one Tensor after the other.

    Arguments:
        parameters: a Tensor, or an iterable or a tree of them.

    Returns:
        A Tensor of one dimension, through which gradients go.

    Raises:
        ArgumentError: something else than a Tensor is among them, or nothing is.

    Source: `torch.nn.utils.parameters_to_vector`.

    >>> fad.nn.utils.parameters_to_vector([fad.ones(2, 1), fad.zeros(1)]).tolist()
    [1.0, 1.0, 0.0]
    """
    leaves = list(_tensors(parameters, "parameters_to_vector"))
    if not leaves:
        raise ArgumentError(
            "parameters_to_vector: expected Tensors, got none; an iterator has its items once: write "
            "list(...) where it is made"
        )
    out: Tensor = _concatenated(leaves)
    return out


def vector_to_parameters(vec: Tensor, parameters: Tensor | Iterable[PyTree] | PyTree) -> None:
    """Write the elements of a vector into several Tensors, one after the other: into their values alone.

    Arguments:
        vec: of one dimension, with as many elements as all of them.
        parameters: a Tensor, or an iterable or a tree of them.

    Raises:
        ArgumentError: something else than a Tensor is among them, or the number of elements is another one.

    Source: `torch.nn.utils.vector_to_parameters`.

    >>> w, b = fad.zeros(2, requires_grad=True), fad.zeros(1, requires_grad=True)
    >>> fad.nn.utils.vector_to_parameters(fad.tensor([1.0, 2.0, 3.0]), [w, b])
    >>> w.tolist(), b.tolist()
    ([1.0, 2.0], [3.0])
    """
    leaves = list(_tensors(parameters, "vector_to_parameters"))
    count = sum(p.size for p in leaves)
    if vec.shape != (count,):
        raise ArgumentError(
            f"vector_to_parameters: the parameters have {count} elements, and vec the shape {vec.shape}; "
            f"expected ({count},)"
        )
    at = 0
    with no_grad():
        for p in leaves:
            p[...] = vec[at : at + p.size].reshape(p.shape).astype(p.dtype)
            at += p.size
