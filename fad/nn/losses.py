"""PyTorch's losses: the names, arguments and results of `torch.nn.functional`, in `fad.nn`.

Each is one operation, written in JAX. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``, and its mean is
PyTorch's: that of `cross_entropy` and `nll_loss` is over the weights of the targets that count. What differs:

- PyTorch's deprecated ``size_average`` and ``reduce`` are not there: what stands behind one of them is given
  by keyword.
- Shapes that PyTorch broadcasts with a warning (``(n, 1)`` with a target of ``(n,)``) are an error.
- Where PyTorch reads values to raise an error (a class that is not there, a negative variance), the loss
  is NaN.

NOTE [a kink of PyTorch's losses]

    x = fad.tensor(0.0, requires_grad=True)
    fad.nn.margin_ranking_loss(x, 0.0, 1.0).backward()
    x.grad.item()  # -> -1.0

Where a hinge begins the derivative is that of its slope, as in PyTorch: two equal scores are pushed apart.
JAX's would be half of it, or with `jax.nn.relu` none. That of an absolute value at 0 is 0, where JAX has 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import xlogy
from jax.typing import ArrayLike

from fad.errors import ArgumentError
from fad.errors import hints_of as _hints_of
from fad.extend import array_function
from fad.formulas import vector_norm

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = _hints_of(__name__)


def _operation(function: Callable[..., Array]) -> Any:
    """The function of JAX arrays as one operation, with its signature and docstring."""
    return array_function(function, module="fad.nn")


def _reduced(loss: Array, reduction: str, who: str) -> Array:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ArgumentError(f"{who}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def _same_shape(input: ArrayLike, target: ArrayLike, who: str) -> tuple[Array, Array]:
    """Both as arrays; a number goes with every shape."""
    x, t = jnp.asarray(input), jnp.asarray(target)
    if x.ndim and t.ndim and x.shape != t.shape:
        raise ArgumentError(
            f"{who}: input has the shape {x.shape}, and target {t.shape}, which would be broadcast to each "
            "other. Write target.reshape(input.shape), if each element has its target."
        )
    return x, t


def _weighted(loss: Array, weight: ArrayLike | None, reduction: str, who: str) -> Array:
    """The reduced loss; the mean of weighted elements is over the sum of the weights."""
    loss, total = _times(loss, weight, who)
    return loss.sum() / total if reduction == "mean" else _reduced(loss, reduction, who)


def _times(loss: Array, weight: ArrayLike | None, who: str) -> tuple[Array, Any]:
    """The weighted elements, and the sum of their weights."""
    if weight is None:
        return loss, loss.size
    weight = jnp.asarray(weight)
    if weight.shape != loss.shape:
        raise ArgumentError(
            f"{who}: weight has the shape {weight.shape}, expected {loss.shape}: one for each element"
        )
    return loss * weight, weight.sum()


def _absolute(x: Array) -> Array:
    """``|x|``, see NOTE [a kink of PyTorch's losses]."""
    return jnp.where(x == 0, 0, jnp.abs(x))


def _hinge(x: Array) -> Array:
    """``max(x, 0)``, see NOTE [a kink of PyTorch's losses]."""
    return jnp.where(x >= 0, x, 0)


# Regression


@_operation
def mse_loss(
    input: ArrayLike, target: ArrayLike, reduction: str = "mean", weight: ArrayLike | None = None
) -> Array:
    """The squared error, ``(input - target) ** 2``, element by element.

    Arguments:
        input: predictions, of any shape.
        target: an array of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: of each element; the mean is then over the sum of the weights.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input``.

    Raises:
        ArgumentError: the shapes differ.
        ArgumentError: ``reduction`` is none of the three.

    >>> fad.nn.mse_loss(fad.tensor([1.0, 2.0]), fad.tensor([1.0, 4.0])).item()
    2.0
    """
    x, t = _same_shape(input, target, "mse_loss")
    return _weighted((x - t) ** 2, weight, reduction, "mse_loss")


@_operation
def l1_loss(
    input: ArrayLike, target: ArrayLike, reduction: str = "mean", weight: ArrayLike | None = None
) -> Array:
    """The absolute error, ``|input - target|``; its derivative at 0 is 0.

    Arguments and results: those of `mse_loss`.

    >>> fad.nn.l1_loss(fad.tensor([1.0, 2.0]), fad.tensor([1.0, 4.0])).item()
    1.0
    """
    x, t = _same_shape(input, target, "l1_loss")
    return _weighted(_absolute(x - t), weight, reduction, "l1_loss")


@_operation
def smooth_l1_loss(
    input: ArrayLike, target: ArrayLike, reduction: str = "mean", beta: float = 1.0
) -> Array:
    """``0.5 * d**2 / beta`` where ``d = |input - target|`` is less than ``beta``, else ``d - 0.5 * beta``.

    Arguments:
        input, target, reduction: as in `mse_loss`.
        beta: where the parabola ends; with 0, `l1_loss`.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input``.

    Raises:
        ArgumentError: ``beta`` is negative.

    >>> fad.nn.smooth_l1_loss(fad.tensor([0.5, 3.0]), fad.tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    x, t = _same_shape(input, target, "smooth_l1_loss")
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    d = _absolute(x - t)
    loss = jnp.where(d < beta, 0.5 * d**2 / beta, d - 0.5 * beta) if beta else d
    return _reduced(loss, reduction, "smooth_l1_loss")


@_operation
def huber_loss(
    input: ArrayLike,
    target: ArrayLike,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: ArrayLike | None = None,
) -> Array:
    """``0.5 * d**2`` where ``d = |input - target|`` is at most ``delta``, else ``delta * (d - 0.5 * delta)``.

    Arguments:
        input, target, reduction: as in `mse_loss`.
        delta: where the parabola ends.
        weight: of each element; the mean is over all elements, as in PyTorch.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input``.

    Raises:
        ArgumentError: ``delta`` is not positive.

    >>> fad.nn.huber_loss(fad.tensor([0.5, 3.0]), fad.tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    x, t = _same_shape(input, target, "huber_loss")
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}")
    d = _absolute(x - t)
    loss = jnp.where(d <= delta, 0.5 * d**2, delta * (d - 0.5 * delta))
    loss, _ = _times(loss, weight, "huber_loss")
    return _reduced(loss, reduction, "huber_loss")


@_operation
def gaussian_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    var: ArrayLike,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Array:
    """What a normal distribution with mean ``input`` and variance ``var`` makes of ``target``: -log p.

    Arguments:
        input, target: as in `mse_loss`; these may be broadcast.
        var: a number, or an array of the shape of ``input``, or of that with a last dimension of 1 or
            without it. What is less than ``eps`` counts as ``eps``, which the derivative does not see.
        full: whether to add the constant ``log(2 * pi) / 2``.
        eps: the least variance.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or an array; NaN where a variance is negative.

    Raises:
        ArgumentError: ``var`` has none of these shapes.
        ArgumentError: ``eps`` is not positive.

    >>> fad.nn.gaussian_nll_loss(fad.tensor([1.0]), fad.tensor([3.0]), 4.0).item()
    1.1931...
    """
    x, t, var = jnp.asarray(input), jnp.asarray(target), jnp.asarray(var)
    if eps <= 0:
        raise ArgumentError(f"gaussian_nll_loss: eps must be positive, got {eps}")
    if var.ndim and var.shape != x.shape:
        if var.shape == x.shape[:-1]:
            var = var[..., None]
        elif var.shape != (*x.shape[:-1], 1):
            raise ArgumentError(
                f"gaussian_nll_loss: var has the shape {var.shape}, expected {x.shape}, that of input, "
                "with a last dimension of 1 or without it"
            )
    floor = jnp.where(var < 0, jnp.nan, jnp.maximum(var, eps))
    var = var + jax.lax.stop_gradient(floor - var)
    loss = 0.5 * (jnp.log(var) + (x - t) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction, "gaussian_nll_loss")


@_operation
def poisson_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Array:
    """What a Poisson distribution makes of the counts ``target``: ``exp(input) - target * input``.

    Arguments:
        input: the logarithm of the rate; with ``log_input=False`` the rate.
        target: counts; may be broadcast.
        log_input: see ``input``.
        full: whether to add Stirling's ``log(target!)`` where ``target`` is more than 1.
        eps: added to a rate before its logarithm is taken.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or an array.

    >>> fad.nn.poisson_nll_loss(fad.tensor([0.0, 1.0]), fad.tensor([1.0, 2.0]), reduction="none").tolist()
    [1.0, 0.7182...]
    """
    x, t = jnp.asarray(input), jnp.asarray(target)
    loss = jnp.exp(x) - t * x if log_input else x - t * jnp.log(x + eps)
    if full:
        n = jnp.where(t > 1, t, 1.0)
        stirling = n * jnp.log(n) - n + 0.5 * jnp.log(2 * math.pi * n)
        loss = loss + jnp.where(t > 1, stirling, 0.0)
    return _reduced(loss, reduction, "poisson_nll_loss")


# Classification


def _class_axis(x: Array, who: str) -> int:
    if not x.ndim:
        raise ArgumentError(
            f"{who}: input has no dimensions, expected (classes,) or (n, classes, ...)"
        )
    return 0 if x.ndim == 1 else 1


def _class_weights(weight: ArrayLike | None, x: Array, axis: int, who: str) -> Array | None:
    """The weights of the classes, with dimensions of 1 behind them."""
    if weight is None:
        return None
    weight = jnp.asarray(weight)
    if weight.shape != (x.shape[axis],):
        raise ArgumentError(
            f"{who}: weight has the shape {weight.shape}, expected one for each of {x.shape[axis]} classes"
        )
    return weight.reshape((-1,) + (1,) * (x.ndim - axis - 1))


def _of_classes(
    log_p: Array,
    target: Array,
    weight: ArrayLike | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
    who: str,
) -> Array:
    """The loss for one class index in place of each column of logarithms of probabilities."""
    axis = _class_axis(log_p, who)
    shape = log_p.shape[:axis] + log_p.shape[axis + 1 :]
    if target.shape != shape:
        raise ArgumentError(
            f"{who}: input has the shape {log_p.shape}, and target {target.shape}, expected {shape}: "
            "one class index for each"
        )
    classes = log_p.shape[axis]
    weights = _class_weights(weight, log_p, axis, who)
    counts = target != ignore_index
    index = jnp.where(counts, target, 0)
    there = (index >= 0) & (index < classes)
    at = jnp.expand_dims(jnp.where(there, index, 0), axis)

    def of_target(values: Array) -> Array:
        return jnp.take_along_axis(values, at, axis).squeeze(axis)

    scale = jnp.where(counts, 1, 0).astype(log_p.dtype)
    loss = -of_target(log_p)
    if weights is not None:
        per_class = jnp.broadcast_to(weights, log_p.shape)
        scale = jnp.where(counts, of_target(per_class), 0)
    loss = jnp.where(there, loss * scale, jnp.nan)
    loss = jnp.where(counts, loss, 0)
    if label_smoothing:
        smooth = -(log_p if weights is None else log_p * weights).sum(axis)
        smooth = jnp.where(counts, smooth, 0)
        loss = (1 - label_smoothing) * loss + label_smoothing / classes * smooth
    if reduction == "mean":
        return loss.sum() / scale.sum()
    return _reduced(loss, reduction, who)


@_operation
def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Array:
    """``-log_softmax(input)`` of the target class, or its mean under the probabilities of a target.

    Arguments:
        input: scores, of shape ``(classes,)``, ``(n, classes)`` or ``(n, classes, d1, ...)``.
        target: integers from 0 to ``classes - 1``, of the shape of ``input`` without the classes; or
            probabilities, of floating dtype and the shape of ``input``.
        weight: of each class, of shape ``(classes,)``.
        ignore_index: a class whose targets count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``. The mean is over the weights of those
            that count, that for probabilities over all.
        label_smoothing: from 0 to 1: how much of the target is spread evenly over the classes.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input`` without the classes. It is
        NaN where a class is not there, and where nothing counts, as a mean of nothing.

    Raises:
        ArgumentError: the shapes do not fit.
        ArgumentError: ``reduction`` or ``label_smoothing`` is not as above.

    >>> scores = fad.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    >>> fad.nn.cross_entropy(scores, fad.tensor([0, 1])).item()
    0.2512...
    >>> fad.nn.cross_entropy(scores, fad.tensor([0, -100]), label_smoothing=0.1).item()
    0.5076...
    """
    who = "cross_entropy"
    x, t = jnp.asarray(input), jnp.asarray(target)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentError(f"{who}: label_smoothing must be from 0 to 1, got {label_smoothing}")
    axis = _class_axis(x, who)
    log_p = jax.nn.log_softmax(x, axis)
    if not jnp.issubdtype(t.dtype, jnp.floating):
        return _of_classes(log_p, t, weight, ignore_index, label_smoothing, reduction, who)
    if t.shape != x.shape:
        raise ArgumentError(
            f"{who}: target has the dtype {t.dtype} and is read as probabilities, of the shape {x.shape} "
            f"of input, but its shape is {t.shape}. Class indices are integers: write target.astype(int)."
        )
    if ignore_index >= 0:
        raise ArgumentError(
            f"{who}: ignore_index is for class indices, and target has probabilities"
        )
    weights = _class_weights(weight, x, axis, who)
    t = t * (1 - label_smoothing) + label_smoothing / x.shape[axis]
    loss = -(log_p * t if weights is None else log_p * t * weights).sum(axis)
    return _reduced(loss, reduction, who)


@_operation
def nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Array:
    """``-input`` of the target class, for logarithms of probabilities.

    Arguments:
        input: as from `fad.nn.log_softmax`, of shape ``(classes,)`` or ``(n, classes, ...)``.
        target, weight, ignore_index, reduction: as in `cross_entropy`, with class indices.

    Returns:
        As `cross_entropy`.

    Raises:
        ArgumentError: the shapes do not fit.
        ArgumentError: the target is not of integers.

    >>> fad.nn.nll_loss(fad.tensor([[-0.5, -1.0], [-2.0, -0.1]]), fad.tensor([0, 1])).item()
    0.3...
    """
    x, t = jnp.asarray(input), jnp.asarray(target)
    if not jnp.issubdtype(t.dtype, jnp.integer):
        raise ArgumentError(
            f"nll_loss: target must be of integers, got {t.dtype}. Write target.astype(int), or "
            "cross_entropy for probabilities."
        )
    return _of_classes(x, t, weight, ignore_index, 0.0, reduction, "nll_loss")


@jax.custom_jvp
def _binary_entropy(x: Array, t: Array) -> Array:
    """``-(t * log(x) + (1 - t) * log(1 - x))``, with logarithms of at least -100."""
    return -(t * jnp.maximum(jnp.log(x), -100) + (1 - t) * jnp.maximum(jnp.log1p(-x), -100))


@_binary_entropy.defjvp
def _binary_entropy_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, t), (x_t, t_t) = primals, tangents
    of_input = (x - t) / jnp.maximum((1 - x) * x, 1e-12)
    of_target = jnp.maximum(jnp.log1p(-x), -100) - jnp.maximum(jnp.log(x), -100)
    return _binary_entropy(x, t), x_t * of_input + t_t * of_target


@_operation
def binary_cross_entropy(
    input: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = "mean"
) -> Array:
    """``-(target * log(input) + (1 - target) * log(1 - input))``, for probabilities.

    A logarithm counts as at least -100, and a derivative's denominator as at least 1e-12, as in PyTorch.
    `binary_cross_entropy_with_logits` needs neither.

    Arguments:
        input: probabilities.
        target: an array of the same shape, of numbers from 0 to 1.
        weight: of each element; may be broadcast.
        reduction: ``"mean"``, over all elements, ``"sum"`` or ``"none"``.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input``. It is NaN for what is not from 0 to 1.

    Raises:
        ArgumentError: the shapes differ.

    >>> fad.nn.binary_cross_entropy(fad.tensor([0.5, 0.25]), fad.tensor([1.0, 0.0])).item()
    0.4904...
    """
    x, t = _same_shape(input, target, "binary_cross_entropy")
    dtype = jnp.result_type(x, t)
    loss = _binary_entropy(*jnp.broadcast_arrays(x.astype(dtype), t.astype(dtype)))
    loss = loss if weight is None else loss * weight
    return _reduced(loss, reduction, "binary_cross_entropy")


@_operation
def binary_cross_entropy_with_logits(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    reduction: str = "mean",
    pos_weight: ArrayLike | None = None,
) -> Array:
    """`binary_cross_entropy` of ``sigmoid(input)``, by a formula that does not overflow.

    Arguments:
        input: scores: the logarithm of the odds.
        target: an array of the same shape, of numbers from 0 to 1.
        weight: of each element; may be broadcast.
        reduction: ``"mean"``, over all elements, ``"sum"`` or ``"none"``.
        pos_weight: of what is positive; may be broadcast.

    Returns:
        A scalar; with ``"none"``, an array.

    Raises:
        ArgumentError: the shapes differ.

    >>> fad.nn.binary_cross_entropy_with_logits(fad.tensor([0.0, 200.0]), fad.tensor([1.0, 1.0])).item()
    0.3465...
    """
    x, t = _same_shape(input, target, "binary_cross_entropy_with_logits")
    positive = 1 if pos_weight is None else 1 + (jnp.asarray(pos_weight) - 1) * t
    loss = (1 - t) * x + positive * jax.nn.softplus(-x)
    loss = loss if weight is None else loss * weight
    return _reduced(loss, reduction, "binary_cross_entropy_with_logits")


@_operation
def kl_div(
    input: ArrayLike, target: ArrayLike, *, reduction: str = "mean", log_target: bool = False
) -> Array:
    """The Kullback-Leibler divergence of ``input`` from ``target``: ``target * (log(target) - input)``.

    Arguments:
        input: logarithms of probabilities.
        target: probabilities; may be broadcast.
        reduction: ``"batchmean"``, the sum over the length of the first dimension, which is the divergence;
            ``"mean"``, over all elements; ``"sum"`` or ``"none"``.
        log_target: whether ``target`` has logarithms too.

    Returns:
        A scalar, or an array.

    >>> p, q = fad.tensor([[0.5, 0.5]]), fad.tensor([[0.25, 0.75]])
    >>> fad.nn.kl_div(fnp.log(q), p, reduction="batchmean").item()
    0.1438...
    """
    x, t = jnp.asarray(input), jnp.asarray(target)
    loss = jnp.exp(t) * (t - x) if log_target else xlogy(t, t) - t * x
    if reduction == "batchmean":
        return loss.sum() / (x.shape[0] if x.ndim else 1)
    return _reduced(loss, reduction, "kl_div")


@_operation
def multi_margin_loss(
    input: ArrayLike,
    target: ArrayLike,
    p: int = 1,
    margin: float = 1.0,
    weight: ArrayLike | None = None,
    *,
    reduction: str = "mean",
) -> Array:
    """By how much other classes come within ``margin`` of the target class, over the number of classes.

    Arguments:
        input: scores, of shape ``(classes,)`` or ``(n, classes)``.
        target: class indices, of shape ``()`` or ``(n,)``.
        p: 1 or 2: the power of what is too near.
        margin: how far below the others should be.
        weight: of each class, which the target chooses.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``target``.

    Raises:
        ArgumentError: ``p`` is neither 1 nor 2.

    >>> fad.nn.multi_margin_loss(fad.tensor([[0.5, 1.0, 0.0]]), fad.tensor([1])).item()
    0.1666...
    """
    who = "multi_margin_loss"
    x, t = jnp.asarray(input), jnp.asarray(target)
    if p not in (1, 2):
        raise ArgumentError(f"{who}: p must be 1 or 2, got {p}")
    if x.ndim not in (1, 2) or t.shape != x.shape[:-1]:
        raise ArgumentError(
            f"{who}: input has the shape {x.shape}, and target {t.shape}, expected (classes,) and (), or "
            "(n, classes) and (n,)"
        )
    classes = x.shape[-1]
    there = (t >= 0) & (t < classes)
    at = jnp.where(there, t, 0)[..., None]
    near = margin - jnp.take_along_axis(x, at, -1) + x
    near = jnp.where((near > 0) & (jnp.arange(classes) != at), near, 0) ** p
    if weight is not None:
        near = near * jnp.asarray(weight)[at]
    return _reduced(jnp.where(there, near.sum(-1) / classes, jnp.nan), reduction, who)


@_operation
def multilabel_soft_margin_loss(
    input: ArrayLike, target: ArrayLike, weight: ArrayLike | None = None, *, reduction: str = "mean"
) -> Array:
    """`binary_cross_entropy_with_logits` of several labels, as the mean over them.

    Arguments:
        input: scores, of shape ``(..., classes)``.
        target: an array of the same shape, of zeros and ones.
        weight: of each class.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, of what is left after the mean over the classes.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input`` without the last dimension.

    Raises:
        ArgumentError: the shapes differ.

    >>> fad.nn.multilabel_soft_margin_loss(fad.tensor([[0.0, 0.0]]), fad.tensor([[1.0, 0.0]])).item()
    0.6931...
    """
    x, t = _same_shape(input, target, "multilabel_soft_margin_loss")
    loss = t * jax.nn.softplus(-x) + (1 - t) * jax.nn.softplus(x)
    loss = loss if weight is None else loss * weight
    return _reduced(loss.mean(-1), reduction, "multilabel_soft_margin_loss")


@_operation
def soft_margin_loss(input: ArrayLike, target: ArrayLike, *, reduction: str = "mean") -> Array:
    """``log(1 + exp(-target * input))``, by a formula that does not overflow.

    Arguments:
        input: scores.
        target: an array of the same shape, of 1 and -1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar; with ``"none"``, an array of the shape of ``input``.

    Raises:
        ArgumentError: the shapes differ.

    >>> fad.nn.soft_margin_loss(fad.tensor([0.0, 500.0]), fad.tensor([1.0, -1.0])).item()
    250.3465...
    """
    x, t = _same_shape(input, target, "soft_margin_loss")
    return _reduced(jax.nn.softplus(-t * x), reduction, "soft_margin_loss")


# Embeddings


@_operation
def hinge_embedding_loss(
    input: ArrayLike, target: ArrayLike, margin: float = 1.0, *, reduction: str = "mean"
) -> Array:
    """``input`` where the target is 1, and ``max(margin - input, 0)`` where it is -1.

    Arguments:
        input: distances.
        target: 1 for what is alike, -1 for what is not; may be broadcast.
        margin: how far apart the latter should be.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or an array.

    >>> fad.nn.hinge_embedding_loss(fad.tensor([0.5, 0.25]), fad.tensor([1, -1])).item()
    0.625
    """
    x, t = jnp.asarray(input), jnp.asarray(target)
    loss = jnp.where(t != 1, _hinge(margin - x), 0) + jnp.where(t != -1, x, 0)
    return _reduced(loss, reduction, "hinge_embedding_loss")


@_operation
def cosine_embedding_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Array:
    """``1 - cos`` where the target is 1, and ``max(cos - margin, 0)`` where it is -1.

    Arguments:
        input1, input2: vectors, of shape ``(n, d)`` or ``(d,)``, whose angle it is.
        target: 1 for what is alike, -1 for what is not, of shape ``(n,)`` or ``()``.
        margin: from -1 to 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or an array of the shape of ``target``.

    Raises:
        ArgumentError: the target has other dimensions.

    >>> x, y = fad.tensor([[1.0, 0.0]]), fad.tensor([[1.0, 1.0]])
    >>> fad.nn.cosine_embedding_loss(x, y, fad.tensor([1])).item()
    0.2928...
    """
    a, b, t = jnp.asarray(input1), jnp.asarray(input2), jnp.asarray(target)
    if t.ndim not in (0, 1) or a.ndim != t.ndim + 1 or b.ndim != t.ndim + 1:
        raise ArgumentError(
            f"cosine_embedding_loss: the shapes are {a.shape}, {b.shape} and {t.shape}, expected (n, d), "
            "(n, d) and (n,), or (d,), (d,) and ()"
        )
    squares = ((a * a).sum(-1) + 1e-12) * ((b * b).sum(-1) + 1e-12)
    cosine = (a * b).sum(-1) / jnp.sqrt(squares)
    unlike = jnp.where(t == -1, _hinge(cosine - margin), 0)
    return _reduced(jnp.where(t == 1, 1 - cosine, unlike), reduction, "cosine_embedding_loss")


@_operation
def margin_ranking_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0.0,
    *,
    reduction: str = "mean",
) -> Array:
    """``max(margin - target * (input1 - input2), 0)``: which of two should be ranked higher.

    Arguments:
        input1, input2: scores; all three may be broadcast.
        target: 1 if the first should be higher, -1 if the second should.
        margin: by how much.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or an array.

    >>> x, y = fad.tensor([1.0, 2.0]), fad.tensor([3.0, 0.0])
    >>> fad.nn.margin_ranking_loss(x, y, fad.tensor([1.0, 1.0]), margin=0.5).item()
    1.25
    """
    difference = jnp.asarray(input1) - jnp.asarray(input2)
    loss = _hinge(margin - jnp.asarray(target) * difference)
    return _reduced(loss, reduction, "margin_ranking_loss")


@_operation
def triplet_margin_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Array:
    """``max(|anchor - positive| - |anchor - negative| + margin, 0)``, with norms over the last dimension.

    Arguments:
        anchor, positive, negative: vectors, of shape ``(..., d)``.
        margin: by how much the negative one should be farther.
        p: of the norm.
        eps: added to each difference.
        swap: whether the nearer of anchor and positive counts for the negative one.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or an array without the last dimension.

    >>> a, near, far = fad.tensor([[0.0, 0.0]]), fad.tensor([[0.0, 1.0]]), fad.tensor([[1.5, 0.0]])
    >>> round(fad.nn.triplet_margin_loss(a, near, far).item(), 3)
    0.5
    """
    a, b, c = jnp.asarray(anchor), jnp.asarray(positive), jnp.asarray(negative)

    distance = functools.partial(vector_norm, ord=p, axis=-1)
    far = distance(a - c + eps)
    if swap:
        far = jnp.minimum(far, distance(b - c + eps))
    return _reduced(_hinge(distance(a - b + eps) - far + margin), reduction, "triplet_margin_loss")
