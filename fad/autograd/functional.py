"""``torch.autograd.functional``'s names: derivatives of a function at given inputs.

The transforms (``fad.jacrev``, ``fad.vjp``, ...) make functions and nest; these give values, with PyTorch's
signatures and its ``strict`` mode. They run on the same levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from fad.core import trees
from fad.core.level import restores_modes
from fad.core.tensor import Tensor
from fad.errors import GradientError, describe
from fad.tape.engine import pull_back
from fad.tape.recorder import GradLevel, as_tensor
from fad.transforms import forward, jacobians, reverse
from fad.transforms.boundary import leave, lower
from fad.views.make_view import stop_gradient

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(x: Any, who: str, what: str) -> tuple[bool, tuple[Any, ...]]:
    """Whether ``x`` was a tuple, and it as a tuple of Tensors."""
    is_tuple = isinstance(x, (tuple, list))
    items = tuple(x) if is_tuple else (x,)
    for k, item in enumerate(items):
        if not hasattr(item, "shape") or not hasattr(item, "dtype"):
            raise TypeError(
                f"{who}: {what} must be a Tensor or a tuple of Tensors, entry {k} is {describe(item)}"
            )
    return is_tuple, tuple([as_tensor(t) for t in items])


def _inputs(func: Any, inputs: Any, strict: bool, who: str) -> tuple[bool, tuple[Any, ...]]:
    """`_tuple` of the inputs; in strict mode, after a check that all outputs depend on them."""
    is_tuple, items = _tuple(inputs, who, "inputs")
    if strict:
        _check_strict(func, items, who)
    return is_tuple, items


def _untuple(is_tuple: bool, x: Sequence[Any]) -> Any:
    return tuple(x) if is_tuple else x[0]


def _result(x: Any, create_graph: bool) -> Any:
    """Results as Tensors, with history only for ``create_graph``."""
    return leave(x if create_graph else stop_gradient(x), True)


@restores_modes
def _check_strict(func: Any, inputs: tuple[Any, ...], who: str) -> None:
    """Raise where an output does not depend on an input."""
    with GradLevel() as level:
        variables = [level.variable(lower(x)) for x in inputs]
        outs, _ = trees.flatten(func(*variables))
        for i, o in enumerate(outs):
            tracked = isinstance(o, Tensor) and o.level is level and o.requires_grad
            seed = [jnp.ones(o.shape, o.dtype)] if tracked else [None]
            for j, g in enumerate(pull_back([o], seed, variables, keep_graph=True)):
                if g is None:
                    raise GradientError(
                        f"{who}: Output {i} of the user-provided function is independent of input {j}. "
                        "This is not allowed in strict mode."
                    )


def _cotangent(v: Any, out: Any, who: str) -> Any:
    if v is not None:
        return v
    leaves, structure = trees.flatten(out)
    if len(leaves) != 1 or leaves[0].size != 1:
        raise GradientError(
            f"{who}: The vector v can only be None if the user-provided function returns a single "
            "Tensor with a single element."
        )
    return trees.unflatten(structure, [jnp.ones(leaves[0].shape, leaves[0].dtype)])


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output of ``func`` and the product of ``v`` with its Jacobian.

    Arguments:
        func: takes Tensors, returns a Tensor or a tuple of them.
        inputs: a Tensor or a tuple of them.
        v: like the output; may be left out if that is a single number.
        create_graph: let the results be differentiated again.
        strict: raise where an output does not depend on an input, instead of giving zeros.

    Returns:
        ``(output, product)``; the product is like ``inputs``.

    Source: ``torch.autograd.functional.vjp``.

    >>> import fad
    >>> out, g = fad.autograd.functional.vjp(lambda x: (x**2).sum(), fad.tensor([1.0, 2.0]))
    >>> g.tolist()
    [2.0, 4.0]
    """
    is_tuple, items = _inputs(func, inputs, strict, "vjp")
    out, pull = reverse.vjp(func, *items)
    grads = pull(_cotangent(v, out, "vjp"))
    return _result(out, create_graph), _result(_untuple(is_tuple, grads), create_graph)


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output of ``func`` and the product of its Jacobian with ``v``, in forward mode.

    Arguments:
        func, create_graph, strict: as in `vjp`.
        inputs: a Tensor or a tuple of them.
        v: like ``inputs``; may be left out if that is a single number.

    Source: ``torch.autograd.functional.jvp``, which differentiates backward twice.
    """
    _, items = _inputs(func, inputs, strict, "jvp")
    directions = _directions(items, v, "jvp")
    out, out_t = forward.jvp(func, items, directions)
    return _result(out, create_graph), _result(out_t, create_graph)


def _directions(items: tuple[Any, ...], v: Any, who: str) -> tuple[Any, ...]:
    if v is not None:
        return _tuple(v, who, "v")[1]
    if len(items) != 1 or items[0].size != 1:
        raise GradientError(
            f"{who}: The vector v can only be None if the input to the user-provided function is a "
            "single Tensor with a single element."
        )
    return (as_tensor(jnp.ones(items[0].shape, items[0].dtype)),)


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output of a scalar function, and ``v`` times its Hessian.

    Source: ``torch.autograd.functional.vhp``. The Hessian is symmetric: the same as `hvp`.
    """
    return hvp(func, inputs, v, create_graph, strict)


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output of a scalar function, and its Hessian times ``v``, by forward over reverse.

    Arguments:
        func: returns a scalar Tensor.
        inputs, v, create_graph, strict: as in `jvp`.

    Source: ``torch.autograd.functional.hvp``.
    """
    is_tuple, items = _inputs(func, inputs, strict, "hvp")
    directions = _directions(items, v, "hvp")
    nums = tuple(range(len(items)))
    (out, _), (_, product) = forward.jvp(reverse.value_and_grad(func, nums), items, directions)
    return _result(out, create_graph), _result(_untuple(is_tuple, product), create_graph)


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of ``func`` at ``inputs``.

    Arguments:
        func, inputs, create_graph, strict: as in `vjp`.
        vectorize: compute all rows (columns) at once; False takes them one by one.
        strategy: "reverse-mode" or "forward-mode".

    Returns:
        A Tensor of shape ``output.shape + input.shape``; nested in tuples where outputs or inputs
        are tuples, outputs outside.

    Source: ``torch.autograd.functional.jacobian``.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(
            f'jacobian: Expected strategy to be either "forward-mode" or "reverse-mode". Hint: ... got '
            f"{strategy!r}"
        )
    is_tuple, items = _inputs(func, inputs, strict, "jacobian")
    transform = jacobians.jacrev if strategy == "reverse-mode" else jacobians.jacfwd
    nums = tuple(range(len(items))) if is_tuple else 0
    result = transform(func, nums, chunk_size=None if vectorize else 1)(*items)
    return _result(result, create_graph)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    outer_jacobian_strategy: str = "forward-mode",
) -> Any:
    """The Hessian of a scalar function at ``inputs``.

    Arguments:
        func: returns a scalar Tensor.
        inputs, create_graph, strict, vectorize: as in `jacobian`.
        outer_jacobian_strategy: how the gradient is differentiated, "forward-mode" or "reverse-mode".

    Returns:
        A Tensor of shape ``input.shape + input.shape``; a tuple of tuples for a tuple of inputs.

    Source: ``torch.autograd.functional.hessian``.
    """
    is_tuple, items = _inputs(func, inputs, strict, "hessian")
    nums = tuple(range(len(items)))
    gradient = reverse.grad(func, nums if is_tuple else 0)
    target: Any = items if is_tuple else items[0]
    return jacobian(gradient, target, create_graph, False, vectorize, outer_jacobian_strategy)
