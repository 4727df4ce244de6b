"""``torch.autograd.functional``'s names: derivatives of a function at given inputs.

The transforms (``fad.jacrev``, ``fad.vjp``, ...) make functions and nest; these give values, with PyTorch's
signatures and its ``strict`` mode. They run on the same levels. As in PyTorch, the function is recorded also
under ``no_grad``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

import fad
from fad import Tensor, enable_grad
from fad.autograd import grad
from fad.errors import ArgumentError, FadError, GradientError, StructureError, describe, hints_of
from fad.extend import Call, flatten, layers, leave, unflatten
from fad.extend.types import PyTree, Value

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

if not TYPE_CHECKING:  # to a type checker a name that is not there is an error
    __getattr__ = hints_of(__name__)


def _tensors(x: PyTree, who: str, what: str) -> tuple[Tensor, ...]:
    """A Tensor, or several in a tuple, as a tuple of Tensors."""
    items = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    for k, item in enumerate(items):
        if not isinstance(item, (Tensor, jax.Array, np.ndarray, np.generic)):
            raise ArgumentError(
                f"{who}: {what} must be a Tensor or a tuple of Tensors, entry {k} is {describe(item)}"
            )
    return tuple([fad.asarray(t) for t in items])


def _inputs(func: Callable[..., PyTree], inputs: PyTree, who: str) -> tuple[Tensor, ...]:
    """The inputs as a tuple of Tensors, after a check that they and the function can be differentiated."""
    Call.check(func, who)
    items = _tensors(inputs, who, "inputs")
    Call(who, items)
    return items


@contextlib.contextmanager
def _named(who: str) -> Iterator[None]:
    """The errors of the transforms that ``who`` calls name it instead of them."""
    try:
        yield
    except FadError as error:
        name, colon, message = str(error).partition(": ")
        if name in ("grad", "jacfwd", "jacrev", "value_and_grad", "vjp_fn"):
            error.args = (f"{who}{colon}{message}",)
        raise


def _numbers(inputs: PyTree) -> int | tuple[int, ...]:
    """The inputs as positions of arguments; a single one as a number."""
    return tuple(range(len(inputs))) if isinstance(inputs, (tuple, list)) else 0


def _outputs(out: PyTree, who: str) -> list[PyTree]:
    """What a function returned, as a list, after a check that it is made of arrays."""
    outs = flatten(out)[0]
    for k, o in enumerate(outs):
        if not isinstance(o, (Tensor, jax.Array, np.ndarray)):
            raise ArgumentError(
                f"{who}: the outputs of the function must be a Tensor or a tuple of Tensors, output {k} "
                f"is {describe(o)}"
            )
    return outs


def _check_strict(
    who: str, func: PyTree, items: PyTree, v: PyTree, create_graph: bool, second: bool = False
) -> None:
    """Strict mode: refuse inputs on which the outputs do not depend, and results without a graph.

    The function is evaluated once more, at a level where all that depends on an input requires grad.
    ``second``: the outputs are the gradient of a function of one element.
    """
    each = who in ("jacobian", "hessian")  # each output has to depend on each input
    options: dict[str, PyTree] = {"create_graph": True, "allow_unused": True}

    def checked(*xs: Tensor) -> tuple[()]:
        out = func(*xs)
        outs = _outputs(out, who)
        _check_dependence(who, "Output", outs, xs, each and not second)
        if second:
            out = outs = list(grad(outs, xs, create_graph=True))
            _check_dependence(who, "The gradient for input", outs, xs, each)
        if not create_graph:
            return ()
        if each:
            results = [g for o in outs for g in grad(o, xs, _ones(o), **options)]
        elif who == "jvp":  # the derivative of the product of a cotangent with the Jacobian
            cotangents = [xs[0].level.lift(_ones(o)).requires_grad_() for o in outs]
            products = grad(outs, xs, cotangents, **options)
            results = list(grad(products, cotangents, v, **options))
        else:
            cts = flatten(_cotangent(v, out, who))[0]
            results = list(grad(outs, xs, cts, **options))
        for k, g in enumerate(results):
            if not any([t.requires_grad or t.level.tangent(t) is not None for t in layers(g)]):
                raise GradientError(
                    f"{who}: result {k} is independent of the inputs. This is not allowed in strict "
                    "mode when create_graph=True."
                )
        return ()

    fad.vjp(checked, *[x.detach() for x in items])  # tracked there alone


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
        cotangents = [_ones(o) for o in group]
        for j, g in enumerate(grad(group, xs, cotangents, retain_graph=True, allow_unused=True)):
            if g is None:
                which = f"{what} {i}" if len(group) == 1 else "Each output"
                raise GradientError(
                    f"{who}: {which} {of} input {j}. This is not allowed in strict mode."
                )


def _like(inputs: PyTree, results: Sequence[Value]) -> PyTree:
    """Results for the inputs: a tuple, if the inputs are one."""
    return tuple(results) if isinstance(inputs, (tuple, list)) else results[0]


def _ones(x: Value) -> Value:
    return jnp.ones(x.shape, x.dtype)


def _cotangent(v: PyTree, out: PyTree, who: str) -> PyTree:
    """The cotangent ``v`` in the structure of the output; 1 for None."""
    leaves, structure = flatten(out)
    if v is None:
        if len(leaves) != 1 or leaves[0].size != 1:
            raise GradientError(
                f"{who}: The vector v can only be None if the user-provided function returns a single "
                "Tensor with a single element."
            )
        return unflatten(structure, [_ones(leaves[0])])
    if isinstance(out, (Tensor, tuple, list)):  # one Tensor or a tuple of one are the same
        items = _tensors(v, who, "v")
        if len(items) == len(leaves):
            return unflatten(structure, list(items))
    return v


def _directions(items: tuple[Tensor, ...], v: PyTree, who: str) -> tuple[Tensor, ...]:
    """``v`` as a tuple of Tensors, one for each input and in its form; 1 for None."""
    if v is None:
        if len(items) != 1 or items[0].size != 1:
            raise GradientError(
                f"{who}: The vector v can only be None if the input to the user-provided function is a "
                "single Tensor with a single element."
            )
        v = _ones(items[0])
    directions = _tensors(v, who, "v")
    if len(directions) != len(items):
        raise StructureError(
            f"{who}: v must have one entry for each input, got {len(directions)} for {len(items)}"
        )
    call = Call(who, items)
    for k, direction in enumerate(directions):
        call.tangent(k, direction)
    return directions


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
    items = _inputs(func, inputs, "vjp")
    with enable_grad(), _named("vjp"):
        if strict:
            _check_strict("vjp", func, items, v, create_graph)
        out, pull = fad.vjp(func, *items)
        _outputs(out, "vjp")
        grads = pull(_cotangent(v, out, "vjp"))
    return leave(out, True, create_graph), leave(_like(inputs, grads), True, create_graph)


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
    items = _inputs(func, inputs, "jvp")
    directions = _directions(items, v, "jvp")
    with enable_grad():
        if strict:
            _check_strict("jvp", func, items, directions, create_graph)
        out, out_t = fad.jvp(func, items, directions)
        _outputs(out, "jvp")
    return leave(out, True, create_graph), leave(out_t, True, create_graph)


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
    scalar = _OfOneElement(func, who)
    items = _inputs(func, inputs, who)
    directions = _directions(items, v, who)
    with enable_grad(), _named(who):
        if strict:
            _check_strict(who, scalar, items, directions, create_graph, second=True)
        gradient = fad.value_and_grad(scalar, tuple(range(len(items))))
        (out, _), (_, product) = fad.jvp(gradient, items, directions)
        out = out.reshape(scalar.shape)
    return leave(out, True, create_graph), leave(_like(inputs, product), True, create_graph)


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
    _check_strategy(strategy, "jacobian", "strategy")
    items = _inputs(func, inputs, "jacobian")
    with enable_grad(), _named("jacobian"):
        if strict:
            _check_strict("jacobian", func, items, None, create_graph)
        result = _jacobian(func, _numbers(inputs), vectorize, strategy)(*items)
    return leave(result, True, create_graph)


def _jacobian(
    func: Callable[..., PyTree], nums: PyTree, vectorize: bool, strategy: str
) -> Callable[..., PyTree]:
    transform = fad.jacrev if strategy == "reverse-mode" else fad.jacfwd
    return transform(func, nums, chunk_size=None if vectorize else 1)


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
    scalar = _OfOneElement(func, "hessian")
    items = _inputs(func, inputs, "hessian")
    nums = _numbers(inputs)
    with enable_grad(), _named("hessian"):
        if strict:
            _check_strict("hessian", scalar, items, None, create_graph, second=True)
        gradient = fad.grad(scalar, nums)
        result = _jacobian(gradient, nums, vectorize, outer_jacobian_strategy)(*items)
    return leave(result, True, create_graph)
