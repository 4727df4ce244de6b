"""What is a view and what is a copy, also of what a Function returns; and what a view keeps alive."""

from __future__ import annotations

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = jnp.arange(1.0, 7.0).reshape(2, 3)


def test_array_indices_copy():
    x = fad.tensor(X)
    for copy in (
        x[jnp.array([0, 1])],
        x[x > 2.0],
        x[[0, 1]],
        x.at[0].get(),
        x.flatten(),
        x.clone(),
    ):
        assert not copy.is_view and copy.base is None
        copy.zero_()
        assert_close(x, X)


def test_complex_parts_are_views():
    z = fad.tensor(X + 1j * X[::-1])
    z.real.mul_(2.0)
    z.imag[0] = 0.0
    expected = np.array(2 * X + 1j * X[::-1])
    expected.imag[0] = 0
    assert_close(z, expected)
    x = fad.tensor(X)
    assert fnp.real(x) is x.real is x and not fnp.imag(x).is_view

    def f(z, w):
        y = z * 1.0
        y.imag.mul_(w)
        y.real[0] = w
        return (abs(y) ** 2).sum()

    def pure(z, w):
        real = z.real.at[0].set(w)
        return (real**2 + (z.imag * w) ** 2).sum()

    z = X + 1j * X[::-1]
    got = fad.grad(f, (0, 1))(z, 3.0)
    expected = jax.grad(pure, (0, 1))(z, 3.0)
    assert_close(got, (jnp.conj(expected[0]), expected[1]))


def test_views_keep_their_base_and_nothing_keeps_views():
    x = fad.tensor(X)
    v = x[0]
    alive = weakref.ref(v)
    base = weakref.ref(x)
    del x
    v += 1
    assert_close(v, X[0] + 1)
    assert base() is v.base
    del v
    assert alive() is None and base() is None


class First(fad.Function):
    """Returns a view of its input."""

    @staticmethod
    def forward(x):
        return x[0]

    @staticmethod
    def vjp(ctx, g):
        return fnp.stack([g, 0 * g])


class Same(fad.Function):
    """Returns its input."""

    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def vjp(ctx, g):
        return 2 * g


@pytest.mark.parametrize("F", [First, Same])
def test_views_that_functions_return(F):
    x = fad.tensor(X)
    y = F.apply(x)
    assert y.is_view and y.base is x
    y.zero_()
    assert_close(x, X.at[0].set(0.0) if F is First else jnp.zeros((2, 3)))
    x = leaf(X) * 1.0
    y = F.apply(x)
    with pytest.raises(GradientError, match="created inside a custom Function"):
        y.mul_(2.0)
    assert_close(x.detach(), X)
    assert_close(fad.grad(lambda x: F.apply(x * 1.0).sum())(X), F.vjp(None, jnp.ones(y.shape)))
    x.mul_(2.0)
    with pytest.raises(
        GradientError, match="its base or another view of its base has been modified"
    ):
        y * 1.0


def inference_views(lib):
    """What views of an inference Tensor that requires grad are, made inside and outside of the mode."""
    with lib.inference_mode():
        x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        inside = x[:2]
    views = [inside, x[:2], x.reshape(3, 1), x.split(1)[0], inside[:1], x[:2][:1]]
    return [(v.requires_grad, v.grad_fn is None, v.is_leaf, v.is_inference()) for v in views]


def test_views_of_inference_tensors_are_as_in_torch(torch):
    assert inference_views(fad) == inference_views(torch)


class Seven(fad.Function):
    """Returns its input, whose derivative it says is 7."""

    @staticmethod
    def forward(x):
        return x

    @staticmethod
    def vjp(ctx, g):
        return 7 * g


@pytest.mark.parametrize(("written", "slope"), [("none", 15.0), ("input", 17.0), ("output", 43.0)])
def test_an_input_that_is_returned_keeps_its_derivative_when_one_of_them_is_written_to(
    written, slope
):
    """As in torch.func; where a graph records the call itself, the write is refused, as in torch.autograd."""

    def f(x):
        a = x * 1
        y = Seven.apply(a)
        if written != "none":
            {"input": a, "output": y}[written].mul_(3)
        return (2 * y + a).sum()

    x = jnp.array([1.0, 2.0])
    rows = jnp.stack([x, 2 * x])
    expected = jnp.full(2, slope)
    assert float(f(fad.tensor(x))) == (9.0 if written == "none" else 27.0)
    assert_close(fad.jacfwd(f)(x), expected)
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(rows), jnp.stack([expected, expected]))
    assert_close(fad.grad(fad.jit(f))(x), expected)
    if written == "none":
        assert_close(fad.grad(f)(x), expected)
    else:
        with pytest.raises(GradientError, match="created inside a custom Function"):
            fad.grad(f)(x)
