"""Hooks for saved values: what they may return, and errors that name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.errors import GradientError

X, W = jnp.array([0.5, -1.25, 2.0]), jnp.array([2.0, 0.75, -4.0])


def half(t: Any) -> Any:
    return t.to(fad.float16)


def same(t: Any) -> Any:
    return t


class Cube(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * g


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "multiply": lambda lib, x, w: x * w,
    "divide": lambda lib, x, w: x / w,
    "exp": lambda lib, x, w: lib.exp(x) * w,
    "power": lambda lib, x, w: x**3 * w,
    "tanh": lambda lib, x, w: lib.tanh(x) * w,
    "cumsum": lambda lib, x, w: (x * x).cumsum(0) * w,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_come_back_in_another_dtype(torch: Any, name: str) -> None:
    """PyTorch promotes them; here they are what was saved, in its dtype."""
    f = PROGRAMS[name]
    found: list[Any] = []
    for lib, graph, tensor in ((torch, torch.autograd.graph, torch.tensor), (fnp, autograd, leaf)):
        x, w = (tensor(np.asarray(v)).requires_grad_() for v in (X, W))
        to = lambda t, lib=lib: t.to(lib.float16)
        with graph.saved_tensors_hooks(to, lambda t: t):
            y = f(lib, x, w)
        y.sum().backward()
        found.append([t.grad.tolist() for t in (x, w)])
    np.testing.assert_allclose(found[1], found[0], rtol=2e-3)


@pytest.mark.parametrize("f", [lambda x: fnp.exp(x).sum(), lambda x: Cube.apply(x).sum()])
def test_another_dtype_at_every_level_and_order(f: Any) -> None:
    def g(x: Any) -> Any:
        with autograd.saved_tensors_hooks(half, same):
            return f(x)

    x = jnp.array([0.5, 1.25])  # which float16 has
    rows = jnp.stack([x, 2 * x])
    close = lambda a, b: assert_close(a, b, rtol=1e-3)
    close(fad.grad(g)(x), fad.grad(f)(x))
    close(fad.vmap(fad.grad(g))(rows), fad.vmap(fad.grad(f))(rows))
    close(fad.grad(lambda x: fad.vmap(g)(x).sum())(rows), fad.vmap(fad.grad(f))(rows))
    close(fad.hessian(g)(x), fad.hessian(f)(x))
    t = leaf(x)
    (first,) = autograd.grad(g(t), t, create_graph=True)
    assert first.dtype == jnp.float32
    close(autograd.grad(first.sum(), t)[0].array, jnp.diag(fad.hessian(f)(x)))


def test_what_cannot_be_converted_is_an_error_that_names_the_hook() -> None:
    def first_two(t: Any) -> Any:
        return t[:2]

    def whole(t: Any) -> Any:
        return t.to(fad.int32)

    for hook in (first_two, whole):
        x = leaf(X)
        with autograd.saved_tensors_hooks(half, hook):
            y = fnp.exp(x)
        with pytest.raises(
            GradientError,
            match=rf"unpack hook .*{hook.__name__} returned .* for a saved value float32\[3\], which was "
            "packed by half",
        ):
            y.sum().backward()
    x = leaf(X)
    with autograd.saved_tensors_hooks(same, lambda t: None):
        y = fnp.exp(x)
    with pytest.raises(
        TypeError, match=r"expected to be a Tensor but got .* NoneType \(from .*<lambda>"
    ):
        y.sum().backward()


def test_a_pack_hook_may_not_change_what_it_is_given() -> None:
    def doubles(t: Any) -> Any:
        return t.mul_(2)

    x = leaf(X)
    y = Cube.apply(fnp.exp(x))
    function, power = y.grad_fn, y.grad_fn.next_functions[0][0]
    for saved in (function._raw_saved_tensors[0], power._raw_saved_result):
        with pytest.raises(GradientError, match="is modifying its input in place: .*doubles"):
            saved.register_hooks(doubles, same)
        saved.register_hooks(half, same)  # nothing of it is left
    y.sum().backward()
    assert_close(x.grad.array, 3 * jnp.exp(X) ** 3, rtol=1e-2)
    with (
        pytest.raises(GradientError, match="is modifying its input in place: .*doubles"),
        autograd.saved_tensors_hooks(doubles, same),
    ):
        x * x


def _adds_its_product(a: Any, x: Any) -> Any:
    y = x * 1.0
    y[1:] += a * y[1:]
    return (y**2).sum()


def _writes_what_it_read(a: Any, x: Any) -> Any:
    y = x * 1.0
    z = a * y[1:]
    y[1:] = z
    return (y**2).sum()


def _clears_a_view(a: Any, x: Any) -> Any:
    y = x * 1.0
    part = y[1:]
    z = fnp.sin(part * a)
    w = z * part
    part.zero_()
    z.zero_()
    return w.sum()


@pytest.mark.parametrize(
    "function", [_adds_its_product, _writes_what_it_read, _clears_a_view], ids=lambda f: f.__name__
)
def test_writes_to_saved_values_in_an_outer_transform(function: Any) -> None:
    """A write goes through all levels; what was saved stays, see NOTE [saved values of lower levels]."""
    x = jnp.array([1.0, 2.0, 3.0])
    expected = fad.jvp(lambda a: function(a, fnp.array(x)), (0.5,), (1.0,))[1]
    of_x = fad.jacfwd(lambda x: fad.jvp(lambda a: function(a, x), (0.5,), (1.0,))[1])(x)
    gradient = fad.grad(function)
    with fad.autograd.allow_mutation_on_saved_tensors():
        found = [
            gradient(0.5, x),
            fad.jit(gradient)(0.5, x),
            fad.vmap(gradient, (None, 0))(0.5, x[None])[0],
            fad.jvp(lambda x: gradient(0.5, x), (x,), (x,))[0],
            fad.value_and_grad(lambda x: gradient(0.5, x))(x)[0],
            jax.jit(fad.to_jax(gradient))(0.5, x),
            fad.jit(lambda a, x: fad.vjp(lambda a: function(a, x), a)[1](1.0)[0])(0.5, x),
        ]
        again = [
            fad.grad(lambda x: gradient(0.5, x))(x),
            fad.jit(fad.grad(lambda x: gradient(0.5, x)))(x),
            fad.jacfwd(lambda x: gradient(0.5, x))(x),
        ]
    np.testing.assert_allclose([float(v) for v in found], float(expected), rtol=1e-6)
    for v in again:
        np.testing.assert_allclose(v, of_x, rtol=1e-5, atol=1e-6)
