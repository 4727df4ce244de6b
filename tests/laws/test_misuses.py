"""Misuses: what catches PyTorch's error around a call catches fad's.

Each is written once, for both libraries. The class of PyTorch's error is the oracle: fad's must be one
of that class too, so that an ``except`` clause of a PyTorch program works as it is. Not here: what only one
of the two refuses; what PyTorch refuses by an assertion or an attribute that it misses, by chance; and errors
of array functions, which are those of their JAX twins.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fad
import fad.numpy as fnp
import fad.testing
from fad import errors

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

FAD = types.SimpleNamespace(
    name="fad",
    lib=fad,
    np=fnp,
    autograd=fad.autograd,
    func=fad,
    graph=fad.autograd,
    functional=fad.autograd.functional,
    forward=fad,
    gradcheck=fad.testing.gradcheck,
    gradgradcheck=fad.testing.gradgradcheck,
    Function=fad.Function,
    once=fad.autograd.once_differentiable,
)
TORCH = types.SimpleNamespace(
    name="torch",
    lib=torch,
    np=torch,
    autograd=torch.autograd,
    func=torch.func,
    graph=torch.autograd.graph,
    functional=torch.autograd.functional,
    forward=torch.autograd.forward_ad,
    gradcheck=torch.autograd.gradcheck,
    gradgradcheck=torch.autograd.gradgradcheck,
    Function=torch.autograd.Function,
    once=torch.autograd.function.once_differentiable,
)


def vec(m: Any, requires_grad: bool = True) -> Any:
    return m.lib.tensor([1.0, 2.0, 3.0], requires_grad=requires_grad)


def ints(m: Any) -> Any:
    return m.lib.tensor([1, 2, 3])


def one(m: Any, requires_grad: bool = True) -> Any:
    return m.lib.tensor(2.0, requires_grad=requires_grad)


def custom(m: Any, **members: Any) -> Any:
    """A Function of one argument, x * x, with some of its members replaced."""

    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx: Any, g: Any) -> Any:
        return 2.0 * g * ctx.saved_tensors[0]

    body = {"forward": forward, "backward": backward, **members}
    return type("Custom", (m.Function,), {k: staticmethod(f) for k, f in body.items()}).apply


def twice(m: Any) -> None:
    y = (vec(m) ** 2).sum()
    y.backward()
    y.backward()


def attribute(name: str, value: Any, of: Callable[[Any], Any] = vec) -> Callable[[Any], None]:
    return lambda m: setattr(of(m), name, value(m) if callable(value) else value)


def changed_after_saving(m: Any) -> None:
    x = vec(m)
    y = x.exp() if m.name == "torch" else fnp.exp(x)
    y += 1.0
    y.sum().backward()


def hook_returning(result: Callable[[Any], Any]) -> Callable[[Any], None]:
    def misuse(m: Any) -> None:
        x = vec(m)
        x.register_hook(lambda g: result(m))
        (x * 2.0).sum().backward()

    return misuse


def node_hook_returning(result: Callable[[Any], Any]) -> Callable[[Any], None]:
    def misuse(m: Any) -> None:
        y = (vec(m) * 2.0).sum()
        y.grad_fn.register_hook(lambda *a: result(m))
        y.backward()

    return misuse


def unpack_hook_returning_text(m: Any) -> None:
    with m.graph.saved_tensors_hooks(lambda x: x, lambda x: "text"):
        y = (vec(m) ** 2).sum()
    y.backward()


def save_where_disabled(m: Any) -> None:
    with m.graph.disable_saved_tensors_hooks("no hooks here"):
        with m.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            pass


def inference_tensor_saved(m: Any) -> None:
    with m.lib.inference_mode():
        x = vec(m, False)
    x * vec(m)


def inference_tensor_written(m: Any) -> None:
    with m.lib.inference_mode():
        x = vec(m, False)
    x += 1.0


def dual_without_level(m: Any) -> None:
    m.forward.make_dual(vec(m, False), vec(m, False))


def dual(primal: Callable[[Any], Any], tangent: Callable[[Any], Any]) -> Callable[[Any], None]:
    def misuse(m: Any) -> None:
        with m.forward.dual_level():
            m.forward.make_dual(primal(m), tangent(m))

    return misuse


def write_to(make: Callable[[Any], Any], write: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda m: write(make(m))


def put(index: Any, value: Any) -> Callable[[Any], None]:
    return lambda x: x.__setitem__(index, value)


def broadcast(m: Any) -> Any:
    return (
        torch.ones(1).expand(3)
        if m.name == "torch"
        else fnp.broadcast_to(fad.tensor(np.ones(1)), (3,))
    )


def view_of_leaf_written(m: Any) -> None:
    x = vec(m)
    x[:2] += 1.0


def view_made_without_grad(m: Any) -> None:
    base = vec(m) * 2.0
    with m.lib.no_grad():
        view = base[:2]
    view += 1.0


def unbound_view_written(m: Any) -> None:
    parts = (vec(m) * 2.0).split(1) if m.name == "torch" else fnp.split(vec(m) * 2.0, 3)
    parts[0].add_(1.0)


def second_derivative_of_once(m: Any) -> None:
    f = custom(m, backward=m.once(lambda ctx, g: 2.0 * g * ctx.saved_tensors[0]))
    x = vec(m)
    (g,) = m.autograd.grad(f(x).sum(), x, create_graph=True)
    g.sum().backward()


def dirty_leaf(m: Any) -> None:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        x += 1.0
        return x

    custom(m, forward=forward, backward=lambda ctx, g: g)(vec(m))


MISUSES: dict[str, Callable[[Any], Any]] = {
    # backward and grad
    "backward of what does not require grad": lambda m: vec(m, False).sum().backward(),
    "backward of a vector": lambda m: (vec(m) * 2.0).backward(),
    "backward twice": twice,
    "backward with a gradient of another shape": lambda m: (vec(m) * 2.0).backward(one(m, False)),
    "backward with a number for a gradient": lambda m: (vec(m) * 2.0).sum().backward("text"),
    "backward of a number": lambda m: m.autograd.backward(3.0),
    "backward to no inputs": lambda m: vec(m).sum().backward(inputs=[]),
    "backward to what does not require grad": lambda m: (
        vec(m).sum().backward(inputs=[vec(m, False)])
    ),
    "backward to a number": lambda m: vec(m).sum().backward(inputs=[3.0]),
    "backward of a complex number": lambda m: (vec(m) * 1j).sum().backward(),
    "grad of what does not require grad": lambda m: m.autograd.grad(vec(m, False).sum(), vec(m)),
    "grad of a vector": lambda m: (lambda x: m.autograd.grad(x * 2.0, x))(vec(m)),
    "grad to an unused input": lambda m: m.autograd.grad(vec(m).sum(), vec(m)),
    "grad to what does not require grad": lambda m: m.autograd.grad(vec(m).sum(), vec(m, False)),
    "grad to a number": lambda m: m.autograd.grad(vec(m).sum(), 3.0),
    "grad to None": lambda m: m.autograd.grad(vec(m).sum(), None),
    "grad to a list with None": lambda m: m.autograd.grad(vec(m).sum(), [None]),
    "grad to nothing": lambda m: m.autograd.grad(vec(m).sum(), []),
    "grad of nothing": lambda m: m.autograd.grad([], [vec(m)]),
    "grad of None": lambda m: m.autograd.grad(None, [vec(m)]),
    "grad with materialize_grads and without allow_unused": lambda m: m.autograd.grad(
        vec(m).sum(), vec(m), allow_unused=False, materialize_grads=True
    ),
    "grad with a cotangent of another shape": lambda m: (
        lambda x: m.autograd.grad(x * 2.0, x, one(m, False))
    )(vec(m)),
    "grad with a complex cotangent": lambda m: (
        lambda x: m.autograd.grad(x * 2.0, x, vec(m, False) * 1j)
    )(vec(m)),
    "grad with a batched cotangent without a batch": lambda m: (
        lambda x: m.autograd.grad(x * 2.0, x, vec(m, False), is_grads_batched=True)
    )(vec(m)),
    # attributes
    "requires_grad_ of integers": lambda m: ints(m).requires_grad_(),
    "requires_grad of integers": attribute("requires_grad", True, ints),
    "a tensor of integers that requires grad": lambda m: m.lib.tensor([1, 2], requires_grad=True),
    "requires_grad_ of a result": lambda m: (vec(m) * 2.0).requires_grad_(False),
    "requires_grad of a result": attribute("requires_grad", False, lambda m: vec(m) * 2.0),
    "requires_grad set to text": attribute("requires_grad", "text"),
    "requires_grad set to None": attribute("requires_grad", None),
    "retain_grad without grad": lambda m: vec(m, False).retain_grad(),
    "a gradient of another shape": attribute("grad", one),
    "a gradient of another dtype": attribute("grad", ints),
    "a gradient that is text": attribute("grad", "text"),
    "a gradient that is a number": attribute("grad", 3.0),
    "grad_fn set": attribute("grad_fn", 3),
    "is_leaf set": attribute("is_leaf", True),
    "shape set": attribute("shape", (3, 1)),
    "an unknown attribute": lambda m: vec(m).no_such_name,
    "detach_ of a view": lambda m: (vec(m) * 2.0)[:2].detach_(),
    "numpy of what requires grad": lambda m: vec(m).numpy(),
    "numpy's array of what requires grad": lambda m: np.asarray(vec(m)),
    "item of a vector": lambda m: vec(m).item(),
    "float of a vector": lambda m: float(vec(m, False)),
    "bool of a vector": lambda m: bool(vec(m)),
    "index of a float": lambda m: [1, 2, 3][one(m, False)],
    "len of a number": lambda m: len(one(m)),
    "iteration over a number": lambda m: list(one(m)),
    "format of a vector": lambda m: f"{vec(m):.3f}",
    "a tensor of text": lambda m: m.lib.tensor("text"),
    "a tensor of ragged lists": lambda m: m.lib.tensor([[1.0], [2.0, 3.0]]),
    "a tensor of None": lambda m: m.lib.tensor(None),
    # hooks
    "hook without grad": lambda m: vec(m, False).register_hook(print),
    "hook that returns a number": hook_returning(lambda m: 3.0),
    "hook that returns another shape": hook_returning(lambda m: one(m, False)),
    "node's hook that returns a number": node_hook_returning(lambda m: 3.0),
    "node's hook that returns too many": node_hook_returning(lambda m: (one(m), one(m))),
    "post accumulate hook of a result": lambda m: (vec(m) * 2.0).register_post_accumulate_grad_hook(
        print
    ),
    "post accumulate hook without grad": lambda m: vec(m, False).register_post_accumulate_grad_hook(
        print
    ),
    "multi grad hook in an unknown mode": lambda m: m.graph.register_multi_grad_hook(
        [vec(m)], print, mode="most"
    ),
    "unpack hook that returns text": unpack_hook_returning_text,
    "saved tensor hooks where disabled": save_where_disabled,
    "edge of what has no graph": lambda m: m.graph.get_gradient_edge(vec(m, False)),
    # modes
    "set_grad_enabled of text": lambda m: m.lib.set_grad_enabled("text"),
    "inference tensor saved": inference_tensor_saved,
    "inference tensor written to": inference_tensor_written,
    # writing
    "write to a leaf": lambda m: vec(m).add_(1.0),
    "write to a view of a leaf": view_of_leaf_written,
    "write to a view made without grad": view_made_without_grad,
    "write to one of several views": unbound_view_written,
    "write to what was saved": changed_after_saving,
    "write to a broadcast tensor": write_to(broadcast, lambda x: x.add_(1.0)),
    "write of a larger shape": lambda m: one(m, False).add_(vec(m, False)),
    "write of floats to integers": lambda m: ints(m).add_(vec(m, False)),
    "write of a complex number": lambda m: vec(m, False).add_(1j),
    "write of text": lambda m: vec(m, False).add_("text"),
    "item set beyond the end": write_to(lambda m: vec(m, False), put(7, 1.0)),
    "item set with too many indices": write_to(lambda m: vec(m, False), put((0, 0), 1.0)),
    "item set with a float index": write_to(lambda m: vec(m, False), put(0.5, 1.0)),
    "item set to another shape": lambda m: put(slice(0, 2), vec(m, False))(vec(m, False)),
    "item set to text": write_to(lambda m: vec(m, False), put(0, "text")),
    "item set to a complex number": write_to(lambda m: vec(m, False), put(0, 1j)),
    "item set to None": write_to(lambda m: vec(m, False), put(0, None)),
    "item beyond the end": lambda m: vec(m)[7],
    "items with too many indices": lambda m: vec(m)[0, 0],
    "items at a float": lambda m: vec(m)[0.5],
    "items at text": lambda m: vec(m)["text"],
    "items at a mask of another shape": lambda m: vec(m)[m.lib.tensor([True, False])],
    "item of a number": lambda m: one(m)[0],
    "copy_ of a larger tensor": lambda m: vec(m, False).copy_(m.np.ones((2, 3))),
    "copy_ of another shape": lambda m: vec(m, False).copy_(m.np.ones(2)),
    "fill_ with a vector": lambda m: vec(m, False).fill_(vec(m, False)),
    "masked_fill_ with integers": lambda m: vec(m, False).masked_fill_(ints(m), 1.0),
    "index_put_ with a number": lambda m: vec(m, False).index_put_(3, 1.0),
    "index_add_ along no dimension": lambda m: vec(m, False).index_add_(3, ints(m), vec(m, False)),
    "scatter_ along no dimension": lambda m: vec(m, False).scatter_(2, ints(m), vec(m, False)),
    "scatter_ at a matrix": lambda m: vec(m, False).scatter_(0, ints(m)[None], vec(m, False)),
    "scatter_ of too few": lambda m: vec(m, False).scatter_(0, ints(m), vec(m, False)[:1]),
    "expand to too few sizes": lambda m: vec(m, False)[None].expand(3),
    "increment_version of a number": lambda m: m.graph.increment_version(3),
    # Functions
    "a backward with too many gradients": lambda m: (
        custom(m, backward=lambda ctx, g: (g, g))(vec(m)).sum().backward()
    ),
    "a backward that returns another shape": lambda m: (
        custom(m, backward=lambda ctx, g: g[:2])(vec(m)).sum().backward()
    ),
    "a backward that returns text": lambda m: (
        custom(m, backward=lambda ctx, g: "text")(vec(m)).sum().backward()
    ),
    "a Function without forward": lambda m: type(
        "Half", (m.Function,), {"backward": staticmethod(lambda ctx, g: g)}
    ).apply(vec(m)),
    "a Function that returns text": lambda m: custom(m, forward=lambda ctx, x: "text")(
        vec(m)
    ).sum(),
    "save_for_backward of text": lambda m: custom(
        m, forward=lambda ctx, x: (ctx.save_for_backward("text"), x * x)[1]
    )(vec(m)),
    "mark_dirty of text": lambda m: custom(
        m, forward=lambda ctx, x: (ctx.mark_dirty("text"), x * x)[1]
    )(vec(m)),
    "mark_dirty of a leaf": dirty_leaf,
    "second derivative of once_differentiable": second_derivative_of_once,
    # forward mode
    "make_dual outside of a level": dual_without_level,
    "make_dual of integers": dual(ints, lambda m: vec(m, False)),
    "make_dual with integers": dual(lambda m: vec(m, False), ints),
    "make_dual with another shape": dual(lambda m: vec(m, False), lambda m: one(m, False)),
    # transforms
    "grad of a function of integers": lambda m: m.func.grad(lambda x: x.sum())(ints(m)),
    "grad of a function with a vector": lambda m: m.func.grad(lambda x: x * 2.0)(vec(m, False)),
    "grad of a function with text": lambda m: m.func.grad(lambda x: "text")(vec(m, False)),
    "grad of a function with a tuple": lambda m: m.func.grad(lambda x: (x.sum(), 1))(vec(m, False)),
    "grad with argnums out of range": lambda m: m.func.grad(lambda x: x.sum(), 1)(vec(m, False)),
    "grad with argnums that is text": lambda m: m.func.grad(lambda x: x.sum(), "x")(vec(m, False)),
    "grad with argnums twice": lambda m: m.func.grad(lambda x: x.sum(), (0, 0))(vec(m, False)),
    "grad with no argnums": lambda m: m.func.grad(lambda x: x.sum(), ())(vec(m, False)),
    "grad with has_aux without aux": lambda m: m.func.grad(lambda x: x.sum(), has_aux=True)(
        vec(m, False)
    ),
    "grad of text": lambda m: m.func.grad(lambda x: x)("text"),
    "vjp with another shape": lambda m: m.func.vjp(lambda x: x * 2.0, vec(m, False))[1](
        one(m, False)
    ),
    "vjp with another structure": lambda m: m.func.vjp(lambda x: (x, x), vec(m, False))[1](
        vec(m, False)
    ),
    "vjp of integers": lambda m: m.func.vjp(lambda x: x * 2, ints(m)),
    "jvp without tuples": lambda m: m.func.jvp(lambda x: x, vec(m, False), vec(m, False)),
    "jvp with another structure": lambda m: m.func.jvp(
        lambda x: x, (vec(m, False),), (vec(m, False), vec(m, False))
    ),
    "jvp with another shape": lambda m: m.func.jvp(lambda x: x, (vec(m, False),), (one(m, False),)),
    "jacrev with a chunk of no size": lambda m: m.func.jacrev(lambda x: x, chunk_size=0)(
        vec(m, False)
    ),
    "jacrev of a function with integers": lambda m: m.func.jacrev(lambda x: ints(m))(vec(m, False)),
    "jacrev of a function with text": lambda m: m.func.jacrev(lambda x: "text")(vec(m, False)),
    "jacfwd of a function with text": lambda m: m.func.jacfwd(lambda x: "text")(vec(m, False)),
    "vmap over a number": lambda m: m.func.vmap(lambda x: x)(one(m, False)),
    "vmap over text": lambda m: m.func.vmap(lambda x: x)("text"),
    "vmap over different sizes": lambda m: m.func.vmap(lambda x, y: x + y)(
        vec(m, False), m.lib.tensor([1.0])
    ),
    "vmap of nothing": lambda m: m.func.vmap(lambda: 1.0)(),
    "vmap with in_dims out of range": lambda m: m.func.vmap(lambda x: x, in_dims=2)(vec(m, False)),
    "vmap with in_dims of another structure": lambda m: m.func.vmap(lambda x: x, in_dims=(0, 0))(
        vec(m, False)
    ),
    "vmap with in_dims that is text": lambda m: m.func.vmap(lambda x: x, in_dims="0")(
        vec(m, False)
    ),
    "vmap over no dimension": lambda m: m.func.vmap(lambda x: x, in_dims=None)(vec(m, False)),
    "vmap with out_dims of another structure": lambda m: m.func.vmap(lambda x: x, out_dims=(0, 0))(
        vec(m, False)
    ),
    "vmap with an unknown randomness": lambda m: m.func.vmap(lambda x: x, randomness="some")(
        vec(m, False)
    ),
    "vmap in chunks of no size": lambda m: m.func.vmap(lambda x: x, chunk_size=0)(vec(m, False)),
    "vmap of a function that returns text": lambda m: m.func.vmap(lambda x: "text")(vec(m, False)),
    "item inside of vmap": lambda m: m.func.vmap(lambda x: x.item())(vec(m, False)),
    "branch inside of vmap": lambda m: m.func.vmap(lambda x: x if x > 0 else -x)(vec(m, False)),
    "linearize at integers": lambda m: m.func.linearize(lambda x: x * 2, ints(m)),
    "linearized with another shape": lambda m: m.func.linearize(lambda x: x * 2, vec(m, False))[1](
        one(m, False)
    ),
    # autograd.functional
    **{
        f"functional.{name} of text": lambda m, name=name: getattr(m.functional, name)(
            lambda x: x.sum(), "text"
        )
        for name in "vjp jvp hvp vhp jacobian hessian".split()
    },
    **{
        f"functional.{name} of integers": lambda m, name=name: getattr(m.functional, name)(
            lambda x: x.sum(),
            ints(m),
            *(() if name in ("vjp", "jacobian", "hessian") else (ints(m),)),
        )
        for name in "vjp jvp hvp vhp jacobian hessian".split()
    },
    **{
        f"functional.{name} of a function with text": lambda m, name=name: getattr(
            m.functional, name
        )(lambda x: "text", one(m))
        for name in "vjp jvp hvp vhp jacobian hessian".split()
    },
    **{
        f"functional.{name} of a function with a vector": lambda m, name=name: getattr(
            m.functional, name
        )(lambda x: x * vec(m), one(m))
        for name in "vjp hvp vhp hessian".split()
    },
    **{
        f"functional.{name} of a function with a tuple": lambda m, name=name: getattr(
            m.functional, name
        )(lambda x: (x * x,), one(m))
        for name in "hvp vhp hessian".split()
    },
    **{
        f"functional.{name} without v": lambda m, name=name: getattr(m.functional, name)(
            lambda x: x.sum(), vec(m)
        )
        for name in "jvp hvp vhp".split()
    },
    **{
        f"functional.{name} with v of another shape": lambda m, name=name: getattr(
            m.functional, name
        )(lambda x: x.sum(), vec(m), m.lib.tensor([1.0, 2.0]))
        for name in "vjp jvp hvp vhp".split()
    },
    **{
        f"functional.{name} with v of another length": lambda m, name=name: getattr(
            m.functional, name
        )(lambda x: x.sum(), vec(m), (vec(m), vec(m)))
        for name in "vjp jvp hvp vhp".split()
    },
    **{
        f"functional.{name} with text for v": lambda m, name=name: getattr(m.functional, name)(
            lambda x: x.sum(), vec(m), "text"
        )
        for name in "vjp jvp hvp vhp".split()
    },
    **{
        f"functional.{name}, strict, of a constant": lambda m, name=name: getattr(
            m.functional, name
        )(lambda x: one(m, False), one(m), strict=True)
        for name in "vjp jvp hvp vhp jacobian hessian".split()
    },
    # gradcheck
    "gradcheck of what does not require grad": lambda m: m.gradcheck(lambda x: x, [ints(m)]),
    "gradcheck of a wrong derivative": lambda m: m.gradcheck(
        lambda x: x.detach() * x, [m.lib.tensor([1.0], requires_grad=True)]
    ),
    "gradgradcheck of what does not require grad": lambda m: m.gradgradcheck(
        lambda x: x, [ints(m)]
    ),
}


def error_of(misuse: Callable[[Any], Any], m: Any) -> Exception | None:
    try:
        misuse(m)
    except Exception as error:
        return error
    return None


def builtin_class(error: Exception) -> type[Exception]:
    kind = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
    return RuntimeError if kind is NotImplementedError else kind


@pytest.mark.parametrize("name", MISUSES)
def test_what_catches_pytorchs_error_catches_fads(name: str) -> None:
    theirs, ours = (error_of(MISUSES[name], m) for m in (TORCH, FAD))
    assert theirs is not None, "PyTorch accepts it: it is no misuse"
    assert ours is not None, f"fad accepts what PyTorch refuses: {theirs!r}"
    assert isinstance(ours, builtin_class(theirs)), (
        f"PyTorch raises {theirs!r}, fad {type(ours).__mro__[:-3]}: {ours}"
    )


def test_every_error_of_fads_own_is_a_runtime_error() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert not isinstance(kind, type) or issubclass(kind, (RuntimeError, Warning)), name
