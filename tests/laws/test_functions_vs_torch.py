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
        g.sum().backward()


# How a Function is written


@program
def the_context_has_any_name(lib: Any, log: Any) -> None:
    class Self(lib.Function):
        @staticmethod
        def forward(self, x, scale=2.0):
            self.scale = scale
            return x * scale

        @staticmethod
        def backward(self, g):
            return g * self.scale, None

    class Saves(lib.Function):
        @staticmethod
        def forward(notes, *xs):
            notes.save_for_backward(*xs)
            return xs[0] * xs[1]

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x

    class ByName(lib.Function):
        @staticmethod
        def forward(notes, x):
            notes.factor = 5.0
            return x * 5.0

        @staticmethod
        def backward(notes, g):
            return g * notes.factor

    for F in (Self, ByName):
        x = lib.var([1.0, 2.0])
        y = F.apply(x)
        y.sum().backward()
        log(y, x.grad, y.grad_fn.name())
    x, y = lib.var([1.0, 2.0]), lib.var([3.0, 4.0])
    Saves.apply(x, y).sum().backward()
    log(x.grad, y.grad)
    x = lib.var([1.0, 2.0])
    Self.apply(x, 3.0).sum().backward()
    log(x.grad)


@program
def class_methods_are_rules(lib: Any, log: Any) -> None:
    class Scale(lib.Function):
        factor = 3.0

        @classmethod
        def forward(cls, ctx, x):
            ctx.save_for_backward(x)
            return x * cls.factor

        @classmethod
        def backward(cls, ctx, g):
            log(ctx.saved_tensors[0])
            return g * cls.factor

    class Larger(Scale):
        factor = 5.0

    for F in (Scale, Larger):
        x = lib.var([1.0, 2.0])
        F.apply(x).sum().backward()
        log(x.grad)


@program
def a_node_is_of_a_class_of_its_function(lib: Any, log: Any) -> None:
    class Double(lib.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    class Other(Double):
        pass

    for F in (Double, Other):
        node = F.apply(lib.var([1.0])).grad_fn
        log(type(node).__name__, node.name(), type(node) is F._backward_cls)
        log(type(node)._forward_cls is F, isinstance(node, Double._backward_cls))
        log(isinstance(node, lib.graph.Node))


@program
def one_tensor_is_returned_twice(lib: Any, log: Any) -> None:
    class Twice(lib.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 3.0
            return y, x * 2.0, y

        @staticmethod
        def backward(ctx, *gs):
            log(gs)
            return gs[0] * 3.0 + gs[1] * 2.0 + gs[2] * 3.0

    x = lib.var([1.0, 2.0])
    a, b, c = Twice.apply(x)
    log(a is c, a is b, a.output_nr, b.output_nr, c.output_nr)
    (a + b + 2.0 * c).sum().backward()
    log(x.grad)


@program
def a_saved_input_keeps_its_place_in_the_graph(lib: Any, log: Any) -> None:
    class Square(lib.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * x + y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            log(x.output_nr, x.grad_fn is halves[1].grad_fn, y.grad_fn, y.output_nr, x)
            return 2.0 * x * g, g

    for create_graph in (False, True):
        x, y = lib.var([1.0, 2.0, 3.0, 4.0]), lib.var([1.0, 1.0])
        halves = lib.halves(x * 1.0)
        (g,) = lib.grad(Square.apply(halves[1], y).sum(), [x], create_graph=create_graph)
        log(g, g.requires_grad)


@program
def a_node_shows_the_context(lib: Any, log: Any) -> None:
    class Scale(lib.Function):
        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.save_for_backward(x, y)
            ctx.factor = factor
            return x * y * factor

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y * ctx.factor, g * x * ctx.factor, None

    x, y = lib.var([1.0, 2.0]), lib.tensor([3.0, 4.0])
    inner = x * 2.0
    out = Scale.apply(inner, y, 5.0)
    node = out.grad_fn
    log(node.saved_tensors, node.needs_input_grad, node.factor)
    log(node.saved_tensors[0].requires_grad, node.saved_tensors[0].grad_fn is inner.grad_fn)
    log(hasattr(node, "nothing"))
    out.sum().backward()
    with log.raises("second time"):
        node.saved_tensors
    log(x.grad, hasattr(node, "nothing"))


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
    with log.raises("be a Tensor", TypeError):
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
