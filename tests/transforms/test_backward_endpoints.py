"""Roots and inputs of a pass: every form of them, and errors that name what was passed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, is_idle, leaf
from nodes import edge

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import Edge, GradientEdge
from fad.errors import GradientError

# Errors


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: (x * x).backward(), ["scalar outputs", r"\(2,\)", "y.sum()"]),
        (
            lambda x: (x * x).backward(fad.tensor([1.0])),
            ["Mismatch in shape", r"\(1,\)", r"\(2,\)"],
        ),
        (lambda x: x.detach().sum().backward(), ["does not require grad", "requires_grad=True"]),
        (lambda x: x.sum().backward(inputs=[]), ["cannot be empty"]),
        (lambda x: fad.autograd.backward([x.sum()], [None, None]), ["1 tensors", "2 gradients"]),
        (lambda x: fad.autograd.grad(x.sum(), x.detach()), ["input 0", "requires_grad_()"]),
        (
            lambda x: fad.autograd.grad(x, x, is_grads_batched=True),
            ["is_grads_batched=True", "grad_outputs"],
        ),
        (
            lambda x: fad.autograd.grad(x, x, fad.tensor(1.0), is_grads_batched=True),
            ["leading batch dimension"],
        ),
    ],
)
def test_bad_calls_say_what_to_pass(call: Callable[[Any], Any], words: list[str]) -> None:
    with pytest.raises(GradientError) as caught:
        call(leaf([1.0, 2.0]))
    for word in words:
        assert word.replace("\\", "") in str(caught.value)
    assert is_idle()


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"output 0 must be a Tensor, got float 3\.0"):
        fad.autograd.backward(3.0)
    with pytest.raises(TypeError, match="input 0 must be a Tensor"):
        fad.autograd.grad(leaf(1.0) * 2.0, 3.0)


def test_the_input_of_a_gradient_must_be_of_the_outputs_level() -> None:
    w = leaf(2.0)

    def f(x: Any) -> Any:
        return fad.autograd.grad(x * w, w, allow_unused=True)[0]

    # None or a constant would be wrong without a word: the result depends on x.
    with pytest.raises(GradientError, match=r"level.*inside"):
        fad.grad(f)(1.0)
    with pytest.raises(GradientError, match=r"level.*inside"):
        fad.vmap(lambda x: (x * w).backward())(jnp.ones(2))
    assert is_idle() and w.grad is None


# Roots and inputs


def test_roots_and_inputs_in_every_form() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    edge = autograd.get_gradient_edge(y)
    assert edge == GradientEdge(y.grad_fn, 0) and edge.node is y.grad_fn
    root: Any
    for root in (y, edge, [y], (edge,)):
        for inputs in (x, [x], (autograd.get_gradient_edge(x),), {"x": x}):
            g = autograd.grad(root, inputs, retain_graph=True)
            assert float(g["x"] if isinstance(g, dict) else g[0]) == 3.0
    autograd.backward([y, edge], [fad.tensor(1.0), None], retain_graph=True, inputs={"w": w})
    assert float(w.grad) == 4.0 and x.grad is None
    autograd.backward(edge, 5.0)
    assert float(w.grad) == 14.0 and float(x.grad) == 15.0


def test_errors_name_what_was_passed() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(TypeError, match="output 0 must be a Tensor, got str 'text'"):
        autograd.backward("text")
    with pytest.raises(TypeError, match="input 0 must be a Tensor, got int 3"):
        autograd.grad(x.sum(), 3)
    with pytest.raises(GradientError, match="got 1 tensors and 2 gradients"):
        autograd.backward([x.sum()], [None, None])
    with pytest.raises(GradientError, match="needs grad_outputs"):
        autograd.grad(x, x, is_grads_batched=True)
    with pytest.raises(GradientError, match="same leading batch dimension"):
        y = x * 2.0
        autograd.grad([y, y], x, [fnp.ones((3, 2)), fnp.ones((2, 2))], is_grads_batched=True)


def test_plain_edges_are_roots_and_inputs_too() -> None:
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    assert float(autograd.grad(edge(z), [edge(x)], retain_graph=True)[0]) == 3.0
    autograd.backward([edge(z)], inputs=edge(y))
    assert float(y.grad) == 2.0 and x.grad is None
    with pytest.raises(TypeError, match="output 0 must be a Tensor, got Edge"):
        autograd.backward([Edge()])
    with pytest.raises(
        GradientError, match="edge to input 3 of MultiplyBackward, which takes 1 gradients"
    ):
        autograd.backward(GradientEdge(z.grad_fn, 3), fad.tensor(1.0))


# Leaves from outside of a transform

X = np.array([1.0, 2.0], np.float32)
TRANSFORMS: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "grad": lambda f, x: fad.grad(f)(x),
    "value_and_grad": lambda f, x: fad.value_and_grad(f)(x),
    "vjp": lambda f, x: fad.vjp(f, x),
    "jacrev": lambda f, x: fad.jacrev(f)(x),
    "hessian": lambda f, x: fad.hessian(f)(x),
    "hvp": lambda f, x: fad.hvp(f, (x,), (x,)),
    "ggnvp": lambda f, x: fad.ggnvp(lambda p: p * 2.0, f, x, x),
    "jvp": lambda f, x: fad.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: fad.jacfwd(f)(x),
    "linearize": lambda f, x: fad.linearize(f, x),
    "vmap": lambda f, x: fad.vmap(f)(fnp.stack([x, x])),
    "jet": lambda f, x: fad.jet(f, (x,), ([x],)),
    "laplacian": lambda f, x: fad.laplacian(f)(x),
    "checkpoint": lambda f, x: fad.checkpoint(f)(x),
    "functionalize": lambda f, x: fad.functionalize(f)(x),
    "functional.jacobian": lambda f, x: autograd.functional.jacobian(f, fad.asarray(x)),
    "grad of grad": lambda f, x: fad.grad(lambda y: fad.grad(f)(y).sum())(x),
    "vmap of grad": lambda f, x: fad.vmap(fad.grad(f))(fnp.stack([x, x])),
    "grad of vmap": lambda f, x: fad.grad(lambda y: fad.vmap(f)(fnp.stack([y, y])).sum())(x),
    "jvp of grad": lambda f, x: fad.jvp(fad.grad(f), (x,), (x,)),
    "grad of checkpoint": lambda f, x: fad.grad(fad.checkpoint(f))(x),
    "checkpoint of grad": lambda f, x: fad.checkpoint(fad.grad(f))(x),
    "grad of functionalize": lambda f, x: fad.grad(fad.functionalize(f))(x),
    "dual level in grad": lambda f, x: fad.grad(fad.dual_level()(f))(x),
    "jit of grad": lambda f, x: fad.jit(fad.grad(f))(x),
    "jit of vjp": lambda f, x: fad.jit(lambda x: fad.vjp(f, x)[0])(x),
    "jit of jit of grad": lambda f, x: fad.jit(lambda x: fad.jit(fad.grad(f))(x))(x),
}


def _local(x: Any) -> fad.Tensor:
    """A leaf that the function itself makes."""
    return x.detach().requires_grad_()


OUTSIDE: dict[str, Callable[[Any, fad.Tensor], Any]] = {
    "of an argument and the leaf": lambda x, w: (x * w).sum().backward(),
    "of what is computed from the leaf": lambda x, w: (x * (w * 2.0)).sum().backward(),
    "of what was computed outside": lambda x, w: (x * w.twice).sum().backward(),
    "of a leaf inside, too": lambda x, w: (_local(x) ** 2 * w * x).sum().backward(),
    "of several": lambda x, w: autograd.backward([(_local(x) * x).sum(), (_local(x) * w).sum()]),
    "inputs": lambda x, w: (_local(x) * w * x).sum().backward(inputs=[w]),
    "inputs inside and outside": lambda x, w: (lambda t: (t * w).sum().backward(inputs=[t, w]))(
        _local(x)
    ),
    "a cotangent": lambda x, w: (w * w).backward(x),
    "a view": lambda x, w: (_local(x)[1:] * w[:1]).sum().backward(),
    "a dual level": lambda x, w: _at_a_dual_level(x, w),
    "a hook": lambda x, w: _in_a_hook(x, w),
}


def _at_a_dual_level(x: Any, w: fad.Tensor) -> None:
    with fad.dual_level():
        (fad.make_dual(x, fad.tensor([1.0, 1.0])) * w * _local(w)).sum().backward()


def _in_a_hook(x: Any, w: fad.Tensor) -> None:
    t = _local(x)
    t.register_hook(lambda g: (_local(x) * w).sum().backward())
    (t * t).sum().backward()


@pytest.mark.sweep("transform, name", [*itertools.product(TRANSFORMS, OUTSIDE)], sample=60)
def test_a_leaf_from_outside_of_a_transform_is_refused(transform: str, name: str) -> None:
    w = leaf([3.0, 4.0])
    w.twice = w * 2.0  # type: ignore[attr-defined]

    def f(x: Any) -> Any:
        OUTSIDE[name](x, w)
        return (x * x).sum()

    for _ in range(2):
        with pytest.raises(GradientError, match="outside"):
            TRANSFORMS[transform](f, X)
        assert w.grad is None and w.requires_grad and w.is_leaf and is_idle()


def _own(x: Any) -> Any:
    t = _local(x)
    (t * t).sum().backward()
    return t.grad


def _own_and_argument(x: Any) -> Any:
    t = _local(x)
    (t * t * x).sum().backward()
    return t.grad / x.detach()


def _own_by_inputs(x: Any) -> Any:
    t, w = _local(x), leaf([3.0, 4.0])
    (t * t * w).sum().backward(inputs=[t])
    return t.grad / w.detach()


def _of_detached(x: Any) -> Any:
    t, w = _local(x), leaf([3.0, 4.0])
    (t * t * w.detach()).sum().backward()
    return t.grad / w.detach()


def _at_level_0(x: Any) -> Any:
    t = leaf([1.0, 2.0])
    (t * t).sum().backward()
    return t.grad * x.detach() / x.detach()


INSIDE = [_own, _own_and_argument, _own_by_inputs, _of_detached, _at_level_0]


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("of", [fad.tensor, leaf])
def test_a_leaf_from_inside_of_a_transform_is_reached(inside: Any, of: Any) -> None:
    def f(x: Any) -> Any:
        return (inside(x) * x).sum()  # 2 * x, a constant, times x, but where the second is x itself

    x = of(X)
    twice = 2.0 * X
    of_x = inside is _own_and_argument  # outer levels differentiate that
    assert_close(fad.grad(f)(x), twice)
    assert_close(fad.jvp(f, (x,), (fad.tensor([1.0, 0.0]),))[1], np.float32(4.0 if of_x else 2.0))
    assert_close(fad.vmap(f)(x[None]), np.array([10.0], np.float32))
    assert_close(fad.vmap(fad.grad(f))(x[None]), twice[None])
    if of is fad.tensor or inside is not _own_and_argument:  # else the pass does reach the argument
        assert_close(fad.functionalize(f)(x), np.float32(10.0))
    assert_close(fad.linearize(f, x)[0], np.float32(10.0))
    assert_close(fad.checkpoint(f)(x), np.float32(10.0))
    assert x.grad is None


def test_what_an_outer_transform_differentiates_is_no_leaf_of_the_users() -> None:
    def f(x: Any) -> Any:
        def g(y: Any) -> Any:
            t = _local(y)
            (t * t * x).sum().backward()  # x is an argument of the outer function
            return (t.grad * y).sum()

        return fad.grad(g)(x).sum()  # 2 * x * x

    assert_close(fad.grad(f)(X), 2.0 * X)

    def h(x: Any) -> Any:
        t = _local(x)
        return fad.grad(lambda y: (t * y).sum().backward() or (y * y).sum())(x).sum()

    with pytest.raises(GradientError, match="from outside"):
        fad.grad(h)(X)


def test_an_argument_that_is_a_leaf_outside() -> None:
    def f(x: Any) -> Any:
        (x * x).sum().backward()
        return (x * x.grad).sum()

    assert_close(fad.grad(f)(X), 2.0 * X)  # of the argument itself
    x = leaf(X)
    for transform in (fad.grad, fad.checkpoint, fad.functionalize):
        with pytest.raises(GradientError, match="from outside"):
            transform(f)(x)
    assert x.grad is None


def test_a_leaf_of_the_tape_that_was_made_inside() -> None:
    def f(x: Any) -> Any:
        t = leaf([1.0, 1.0])
        (t * x).sum().backward()
        return (x * x).sum()

    for transform in ("grad", "jacrev", "checkpoint"):
        with pytest.raises(GradientError, match="made inside"):
            TRANSFORMS[transform](f, X)


def test_a_leaf_from_outside_in_rules_of_functions() -> None:
    w = leaf([3.0, 4.0])

    class Twice(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            with fad.enable_grad():
                (_local(g) * w * g).sum().backward()
            return g * 2.0

    x = leaf(X)
    Twice.apply(x).sum().backward()  # on the tape it is a pass within the pass, as in PyTorch
    assert_close((x.grad, w.grad), (np.full(2, 2.0, np.float32), np.ones(2, np.float32)))
    w.grad = None
    f = lambda x: (Twice.apply(x) * x).sum()
    for call in (fad.hessian(f), fad.vmap(fad.grad(f)), lambda x: fad.jvp(f, (x,), (x,))):
        with pytest.raises(GradientError, match="outside"):
            call(fnp.stack([X, X]))
        assert w.grad is None and is_idle()


def test_a_leaf_from_outside_of_a_program_of_jax() -> None:
    w = leaf([3.0, 4.0])

    def f(x: Any) -> Any:
        (x * w).sum().backward()
        return (x * x).sum()

    for call in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(GradientError, match="from outside"):
            call(fad.to_jax(f))(X)
    assert w.grad is None
    fad.to_jax(f)(X)  # nothing is traced
    assert_close(w.grad, X)


def test_pytorch_refuses_every_backward_inside_of_a_transform(torch: Any) -> None:
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    func = torch.func

    def f(x: Any) -> Any:
        (x * w).sum().backward()
        return (x * x).sum()

    x = torch.tensor([1.0, 2.0])
    calls = [func.grad(f), func.jacrev(f), func.functionalize(f), lambda x: func.vjp(f, x)]
    for call in [*calls, lambda x: func.jvp(f, (x,), (x,))]:
        with pytest.raises(RuntimeError, match="inside a functorch transform"):
            call(x)


# Of p, v -> p's gradient, and two rows v.
BODIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scan": lambda f, p, xs: fad.lax.scan(lambda c, v: (c, f(c, v)), p, xs)[1],
    "map": lambda f, p, xs: fad.lax.map(lambda pv: f(*pv), (fnp.stack([p, p]), xs)),
    "fori_loop": lambda f, p, xs: fad.lax.fori_loop(
        0, 2, lambda i, c: (c[0], c[1].at[i].set(f(c[0], xs[i]))), (p, xs)
    )[1],
    "cond": lambda f, p, xs: fnp.stack([fad.lax.cond(v.sum() > 0, f, f, p, v) for v in xs]),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_a_pass_in_a_loop_to_a_leaf_outside_says_what_to_write(body: str, compiled: bool) -> None:
    p, xs = leaf([3.0]), fad.tensor([[2.0], [5.0]])
    jit: Any = fad.jit if compiled else lambda f: f

    def of_outside(c: Any, v: Any) -> Any:
        return fad.autograd.grad((p * p * v).sum(), p)[0]

    def of_carry(c: Any, v: Any) -> Any:
        return fad.autograd.grad((c * c * v).sum(), c)[0]

    def of_leaf(c: Any, v: Any) -> Any:
        q = c.detach().requires_grad_()
        return fad.autograd.grad((q * q * v).sum(), q)[0]

    def of_function(c: Any, v: Any) -> Any:
        return fad.grad(lambda q: (q * q * v).sum())(p)

    for f in (of_outside, of_carry):
        with pytest.raises(GradientError, match=r"body of scan, cond.*c\.detach\(\).*fad\.grad"):
            jit(lambda xs, f=f: BODIES[body](f, p, xs))(xs)
    for f in (of_leaf, of_function):
        got = jit(lambda xs, f=f: BODIES[body](f, p, xs))(xs)
        assert got.tolist() == [[12.0], [30.0]]
    with pytest.raises(GradientError, match="Set requires_grad=True"):
        fad.jit(lambda x: x.sum().backward())(xs)
