"""Programs about Functions, hooks and ``.grad``, in PyTorch and in fad; see `two_libraries`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from two_libraries import compare

torch = pytest.importorskip("torch", reason="the oracle is PyTorch (extra: oracle)")

PROGRAMS: dict[str, Callable[[Any, Any], None]] = {}


def program(f: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    assert f.__name__ not in PROGRAMS
    PROGRAMS[f.__name__] = f
    return f


# What a rule returns


@program
def a_gradient_that_is_larger_by_broadcasting(lib: Any, log: Any) -> None:
    class Product(lib.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x

    for data in (2.0, [2.0], [[2.0]], [[2.0], [3.0]], [2.0, 3.0, 4.0]):
        x, y = lib.var([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), lib.var(data)
        Product.apply(x, y).sum().backward()
        log(x.grad, y.grad)
    x, y = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    with log.raises():
        lib.backward(Product.apply(x, y), [lib.tensor([1.0, 2.0, 3.0])])


@program
def a_tangent_of_an_output_without_derivative(lib: Any, log: Any) -> None:
    class Two(lib.Function):
        @staticmethod
        def forward(x):
            return x * 2.0, x * 3.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx, g, h):
            return g * 2.0

    class WithTangent(Two):
        @staticmethod
        def jvp(ctx, t):
            return t * 2.0, t * 3.0

    class WithNone(Two):
        @staticmethod
        def jvp(ctx, t):
            return t * 2.0, None

    ad = lib.forward_ad
    with ad.dual_level():
        x = ad.make_dual(lib.tensor([1.0]), lib.tensor([1.0]))
        with log.raises("return None"):
            WithTangent.apply(x)
        y, z = WithNone.apply(x)
        log(ad.unpack_dual(y).tangent, ad.unpack_dual(z).tangent)


@program
def a_rule_that_is_once_differentiable_does_not_record(lib: Any, log: Any) -> None:
    weight = lib.var([2.0, 3.0])

    class Square(lib.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @lib.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            log((x * g * weight).requires_grad, lib.is_grad_enabled())
            return 2.0 * x * g * weight

    for create_graph in (False, True):
        x = lib.var([1.0, 2.0])
        (g,) = lib.grad(Square.apply(x).sum(), [x], create_graph=create_graph)
        log(g)
    gradient = lib.var([1.0, 1.0])
    (g,) = lib.grad(Square.apply(x), [x], [gradient], create_graph=True)
    with log.raises("once_differentiable"):
        lib.grad(g.sum(), [gradient])


# .grad


@program
def zeros_for_an_unused_input(lib: Any, log: Any) -> None:
    x, z = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    for create_graph in (False, True):
        (g,) = lib.grad((x * x).sum(), [z], create_graph=create_graph, materialize_grads=True)
        log(g, g.requires_grad, g.grad_fn)


@program
def assigning_and_deleting_grad(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    with log.raises("as its own grad"):
        x.grad = x
    with log.raises("be a Tensor"):
        x.grad = [1.0, 2.0]
    log(x.grad)
    (x * x).sum().backward()
    log(x.grad)
    del x.grad
    log(x.grad)
    del x.grad
    (x * 3.0).sum().backward()
    log(x.grad)


@program
def reading_grad_of_an_inner_tensor_warns(lib: Any, log: Any) -> None:
    x = lib.var([1.0, 2.0])
    y, z = x * 2.0, x * 3.0
    z.retain_grad()
    with lib.warnings() as found:
        log(x.grad, y.grad, z.grad, y.detach().grad)
    log(found)
    (y + z).sum().backward()
    with lib.warnings() as found:
        log(x.grad, y.grad, z.grad)
    log(found)


@program
def post_accumulate_hooks_return_nothing(lib: Any, log: Any) -> None:
    for result in (lambda t: t.grad, lambda t: 3):
        x = lib.var([1.0, 2.0])
        x.register_post_accumulate_grad_hook(result)
        with log.raises():
            (x * x).sum().backward()
        log(x.grad)


@program
def incrementing_versions(lib: Any, log: Any) -> None:
    bump = lib.graph.increment_version
    x, w = lib.var([1.0, 2.0]), lib.tensor([3.0, 4.0])
    y = x * w
    bump(w)
    log(lib.version(w), w)
    with log.raises("modified by an inplace operation"):
        y.sum().backward()
    z = lib.tensor([1.0, 2.0, 3.0])
    v = z[1:]
    bump([v, x])
    log(lib.version(z), lib.version(v), lib.version(x), v, x.is_leaf)
    u = lib.exp(x)
    bump(u)
    log(u.grad_fn is not None, u.requires_grad)
    with log.raises("modified by an inplace operation"):
        u.sum().backward()
    with lib.inference_mode():
        i = lib.tensor([1.0]) * 2.0
    bump(i)
    log(i)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_story(name: str) -> None:
    compare(PROGRAMS[name])
