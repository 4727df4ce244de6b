"""``torch.autograd.functional``'s names: derivatives of a function at given inputs.

The transforms (``fad.jacrev``, ``fad.vjp``, ...) make functions and nest; these give values, with PyTorch's
signatures and its ``strict`` mode. They run on the same levels. As in PyTorch, the function is recorded also
under ``no_grad``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.level import restores_modes
from fad.core.tensor import Tensor
from fad.core.types import PyTree, Value
from fad.errors import ArgumentError, GradientError, describe
from fad.errors.missing_names import hints_of
from fad.methods.values import is_tracked
from fad.tape.engine import pull_back
from fad.tape.grad_mode import enable_grad
from fad.tape.graph import running
from fad.tape.recorder import GradLevel, as_tensor
from fad.transforms import grad as reverse
from fad.transforms import jacobians
from fad.transforms import jvp as forward
from fad.transforms.backward import grad
from fad.transforms.boundary import Call, check_callable, leave, lower
from fad.views.make_view import stop_gradient

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = hints_of(__name__)


def _tuple(x: PyTree, who: str, what: str) -> tuple[bool, tuple[PyTree, ...]]:
    """Whether ``x`` was a tuple, and it as a tuple of Tensors."""
    is_tuple = isinstance(x, (tuple, list))
    items = tuple(x) if is_tuple else (x,)
    for k, item in enumerate(items):
        if not isinstance(item, (Tensor, jax.Array, np.ndarray, np.generic)):
            raise ArgumentError(
                f"{who}: {what} must be a Tensor or a tuple of Tensors, entry {k} is {describe(item)}"
            )
    if what == "inputs":
        Call(who, items)
    return is_tuple, tuple([as_tensor(t) for t in items])


def _untuple(is_tuple: bool, x: Sequence[Value]) -> PyTree:
    return tuple(x) if is_tuple else x[0]


def _result(x: PyTree, create_graph: bool) -> PyTree:
    """Results as Tensors, with history only for ``create_graph``, or in a rule, whose result may have one."""
    return leave(x if create_graph or running.records is not None else stop_gradient(x), True)


def _outputs(out: PyTree, who: str) -> list[PyTree]:
    """What a function returned, as a list, after a check that it is made of arrays."""
    outs = trees.flatten(out)[0]
    for k, o in enumerate(outs):
        if not isinstance(o, (Tensor, jax.Array, np.ndarray)):
            raise ArgumentError(
                f"{who}: the outputs of the function must be a Tensor or a tuple of Tensors, output {k} "
                f"is {describe(o)}"
            )
    return outs


@restores_modes
def _check_strict(
    who: str, func: PyTree, items: PyTree, v: PyTree, create_graph: bool, second: bool = False
) -> None:
    """Strict mode: refuse inputs on which the outputs do not depend, and results without a graph.

    The function is evaluated once more, at a level where all that depends on an input requires grad.
    ``second``: the outputs are the gradient of a function of one element.
    """
    each = who in ("jacobian", "hessian")  # each output has to depend on each input
    with GradLevel() as level:
        xs = [level.variable(lower(x.detach())) for x in items]  # tracked here alone
        out = func(*xs)
        outs = _outputs(out, who)
        _check_dependence(who, "Output", outs, xs, each and not second)
        if second:
            out = outs = list(grad(outs, xs, create_graph=True))
            _check_dependence(who, "The gradient for input", outs, xs, each)
        if not create_graph:
            return
        options: dict[str, PyTree] = {"create_graph": True, "allow_unused": True}
        if each:
            results = [g for o in outs for g in grad(o, xs, _ones(o), **options)]
        elif who == "jvp":  # the derivative of the product of a cotangent with the Jacobian
            cotangents = [level.variable(_ones(o)) for o in outs]
            products = grad(outs, xs, cotangents, **options)
            results = list(grad(products, cotangents, v, **options))
        else:
            cts = trees.flatten(_cotangent(v, out, who))[0]
            results = list(grad(outs, xs, cts, **options))
        for k, g in enumerate(results):
            if not is_tracked(g):
                raise GradientError(
                    f"{who}: result {k} is independent of the inputs. This is not allowed in strict "
                    "mode when create_graph=True."
                )


def _check_dependence(
    who: str, what: str, outs: Sequence[PyTree], xs: Sequence[Tensor], each: bool
) -> None:
    """Refuse an output that depends on no input, and an input that no output (with ``each``, not each)
    depends on.
    """
    of = "of the user-provided function is independent of"
    for i, o in enumerate(outs):
        if not (isinstance(o, Tensor) and o.level is xs[0].level and o.requires_grad):
            raise GradientError(
                f"{who}: {what} {i} {of} the inputs. This is not allowed in strict mode: it must be "
                "computed in a differentiable manner from them."
            )
    for i, group in enumerate([[o] for o in outs] if each else [list(outs)]):
        for j, g in enumerate(pull_back(group, [_ones(o) for o in group], xs, keep_graph=True)):
            if g is None:
                which = f"{what} {i}" if len(group) == 1 else "Each output"
                raise GradientError(
                    f"{who}: {which} {of} input {j}. This is not allowed in strict mode."
                )


def _ones(x: Value) -> Value:
    return jnp.ones(x.shape, x.dtype)


def _cotangent(v: PyTree, out: PyTree, who: str) -> PyTree:
    """The cotangent ``v`` in the structure of the output; 1 for None."""
    leaves, structure = trees.flatten(out)
    if v is None:
        if len(leaves) != 1 or leaves[0].size != 1:
            raise GradientError(
                f"{who}: The vector v can only be None if the user-provided function returns a single "
                "Tensor with a single element."
            )
        return trees.unflatten(structure, [_ones(leaves[0])])
    if isinstance(out, (Tensor, tuple, list)):  # one Tensor or a tuple of one are the same
        items = _tuple(v, who, "v")[1]
        if len(items) == len(leaves):
            return trees.unflatten(structure, list(items))
    return v


def _directions(items: tuple[PyTree, ...], v: PyTree, who: str) -> tuple[Value, ...]:
    if v is not None:
        return _tuple(v, who, "v")[1]
    if len(items) != 1 or items[0].size != 1:
        raise GradientError(
            f"{who}: The vector v can only be None if the input to the user-provided function is a "
            "single Tensor with a single element."
        )
    return (as_tensor(_ones(items[0])),)


class _OfOneElement:
    """A function of which one number is differentiated; ``shape`` is that of the output it had last."""

    def __init__(self, func: Callable[..., PyTree], who: str) -> None:
        self.func = func
        self.who = who
        self.shape: tuple[int, ...] = ()

    def __call__(self, *xs: Tensor) -> PyTree:
        out = self.func(*xs)
        (first, *_) = _outputs(out, self.who) or [None]
        if first is None or out is not first or first.size != 1:
            is_one = first is not None and out is first
            shown = describe(out) if is_one or out is None else type(out).__name__
            raise GradientError(
                f"{self.who}: the function must return a single Tensor with a single element, a real "
                f"scalar, got {shown}{f' of shape {first.shape}' if is_one else ''}"
            )
        self.shape = tuple(first.shape)
        return first.reshape(()) if self.shape else first


def vjp(
    func: Callable[..., PyTree],
    inputs: PyTree,
    v: PyTree = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[PyTree, PyTree]:
    """The output of ``func`` and the product of ``v`` with its Jacobian.

    Arguments:
        func: takes Tensors, returns a Tensor or a tuple of them.
        inputs: a Tensor or a tuple of them.
        v: like the output; may be left out if that is a single number.
        create_graph: let the results be differentiated again.
        strict: raise, instead of giving zeros, where an output does not depend on the inputs, or no output
            on one of them; and with ``create_graph`` where the product does not.

    Returns:
        ``(output, product)``; the product is like ``inputs``.

    Source: ``torch.autograd.functional.vjp``.

    >>> import fad
    >>> out, g = fad.autograd.functional.vjp(lambda x: (x**2).sum(), fad.tensor([1.0, 2.0]))
    >>> g.tolist()
    [2.0, 4.0]
    """
    is_tuple, items = _tuple(inputs, "vjp", "inputs")
    with enable_grad():
        if strict:
            _check_strict("vjp", func, items, v, create_graph)
        out, pull = reverse.pullback_of(func, items, False, "vjp", "vjp")
        _outputs(out, "vjp")
        grads = pull(_cotangent(v, out, "vjp"))
    return _result(out, create_graph), _result(_untuple(is_tuple, grads), create_graph)


def jvp(
    func: Callable[..., PyTree],
    inputs: PyTree,
    v: PyTree = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[PyTree, PyTree]:
    """The output of ``func`` and the product of its Jacobian with ``v``, in forward mode.

    Arguments:
        func, create_graph, strict: as in `vjp`.
        inputs: a Tensor or a tuple of them.
        v: like ``inputs``; may be left out if that is a single number.

    Source: ``torch.autograd.functional.jvp``, which differentiates backward twice.

    >>> import fad
    >>> x, v = fad.tensor([1.0, 2.0]), fad.tensor([1.0, 0.0])
    >>> fad.autograd.functional.jvp(lambda x: x**2, x, v)[1].tolist()
    [2.0, 0.0]
    """
    _, items = _tuple(inputs, "jvp", "inputs")
    directions = _directions(items, v, "jvp")
    with enable_grad():
        if strict:
            _check_strict("jvp", func, items, directions, create_graph)
        out, out_t = forward.push_forward(func, items, directions, False, "jvp")
        _outputs(out, "jvp")
    return _result(out, create_graph), _result(out_t, create_graph)


def vhp(
    func: Callable[..., PyTree],
    inputs: PyTree,
    v: PyTree = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[PyTree, PyTree]:
    """The output of a scalar function, and ``v`` times its Hessian.

    Source: ``torch.autograd.functional.vhp``. The Hessian is symmetric: the same as `hvp`.

    >>> import fad
    >>> x, v = fad.tensor([1.0, 2.0]), fad.tensor([0.0, 1.0])
    >>> fad.autograd.functional.vhp(lambda x: (x**3).sum(), x, v)[1].tolist()
    [0.0, 12.0]
    """
    return _second_product("vhp", func, inputs, v, create_graph, strict)


def hvp(
    func: Callable[..., PyTree],
    inputs: PyTree,
    v: PyTree = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[PyTree, PyTree]:
    """The output of a scalar function, and its Hessian times ``v``, by forward over reverse.

    Arguments:
        func: returns a Tensor with one element, of any shape.
        inputs, v, create_graph, strict: as in `jvp`.

    Source: ``torch.autograd.functional.hvp``.

    >>> import fad
    >>> x, v = fad.tensor([1.0, 2.0]), fad.tensor([1.0, 0.0])
    >>> fad.autograd.functional.hvp(lambda x: (x**3).sum(), x, v)[1].tolist()
    [6.0, 0.0]
    """
    return _second_product("hvp", func, inputs, v, create_graph, strict)


def _second_product(
    who: str,
    func: Callable[..., PyTree],
    inputs: PyTree,
    v: PyTree,
    create_graph: bool,
    strict: bool,
) -> tuple[PyTree, PyTree]:
    check_callable(func, who)
    scalar = _OfOneElement(func, who)
    is_tuple, items = _tuple(inputs, who, "inputs")
    directions = _directions(items, v, who)
    with enable_grad():
        if strict:
            _check_strict(who, scalar, items, directions, create_graph, second=True)
        nums = tuple(range(len(items)))
        gradient = reverse.gradient_function(scalar, nums, False, who, True)
        (out, _), (_, product) = forward.push_forward(gradient, items, directions, False, who)
        out = out.reshape(scalar.shape)
    return _result(out, create_graph), _result(_untuple(is_tuple, product), create_graph)


def jacobian(
    func: Callable[..., PyTree],
    inputs: PyTree,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    strategy: str = "reverse-mode",
) -> PyTree:
    """The Jacobian of ``func`` at ``inputs``.

    Arguments:
        func, inputs, create_graph, strict: as in `vjp`.
        vectorize: compute all rows (columns) at once, by ``vmap``; False takes them one by one, without
            ``vmap``, so that Functions whose bodies leave JAX (NumPy code) run.
        strategy: "reverse-mode" or "forward-mode".

    Returns:
        A Tensor of shape ``output.shape + input.shape``; nested in tuples where outputs or inputs
        are tuples, outputs outside.

    Source: ``torch.autograd.functional.jacobian``.

    >>> import fad
    >>> fad.autograd.functional.jacobian(lambda x: x**2, fad.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    check_callable(func, "jacobian")
    _check_strategy(strategy, "jacobian", "strategy")
    is_tuple, items = _tuple(inputs, "jacobian", "inputs")
    nums = tuple(range(len(items))) if is_tuple else 0
    with enable_grad():
        if strict:
            _check_strict("jacobian", func, items, None, create_graph)
        result = _jacobian(func, nums, vectorize, strategy, "jacobian")(*items)
    return _result(result, create_graph)


def _jacobian(
    func: Callable[..., PyTree], nums: PyTree, vectorize: bool, strategy: str, who: str
) -> Callable[..., PyTree]:
    in_reverse = strategy == "reverse-mode"
    transform = jacobians.reverse_jacobian if in_reverse else jacobians.forward_jacobian
    return transform(func, nums, False, None if vectorize else 1, who)


def _check_strategy(strategy: str, who: str, name: str) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError(
            f'{who}: Expected {name} to be either "forward-mode" or "reverse-mode", got {strategy!r}'
        )


def hessian(
    func: Callable[..., PyTree],
    inputs: PyTree,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = True,
    outer_jacobian_strategy: str = "forward-mode",
) -> PyTree:
    """The Hessian of a scalar function at ``inputs``.

    Arguments:
        func: returns a Tensor with one element, of any shape.
        inputs, create_graph, strict, vectorize: as in `jacobian`.
        outer_jacobian_strategy: how the gradient is differentiated, "forward-mode" or "reverse-mode".

    Returns:
        A Tensor of shape ``input.shape + input.shape``; a tuple of tuples for a tuple of inputs.

    Source: ``torch.autograd.functional.hessian``.

    >>> import fad
    >>> fad.autograd.functional.hessian(lambda x: (x**3).sum(), fad.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    _check_strategy(outer_jacobian_strategy, "hessian", "outer_jacobian_strategy")
    check_callable(func, "hessian")
    scalar = _OfOneElement(func, "hessian")
    is_tuple, items = _tuple(inputs, "hessian", "inputs")
    nums = tuple(range(len(items))) if is_tuple else 0
    with enable_grad():
        if strict:
            _check_strict("hessian", scalar, items, None, create_graph, second=True)
        gradient = reverse.gradient_function(scalar, nums, False, "hessian", False)
        result = _jacobian(gradient, nums, vectorize, outer_jacobian_strategy, "hessian")(*items)
    return _result(result, create_graph)
