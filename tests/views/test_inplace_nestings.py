"""Writes to what was saved, in nested transforms: an error where PyTorch has one, or the right gradient."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad.errors import GradientError

X = jnp.linspace(0.5, 1.5, 6)
ROWS = jnp.stack([X, 1.1 * X, 0.7 * X])


def product_of_parts(x: Any) -> Any:
    u = x.copy()
    u[1:3] = u[3:5] * x[0]
    return fnp.sin(u)


def square_of_itself(x: Any) -> Any:
    """PyTorch's checkpoint gives another gradient than the right one, without an error."""
    u = x.copy()
    u[1:3] += u[1:3] * u[1:3]
    return fnp.sin(u)


def output_of_exp(x: Any) -> Any:
    u = fnp.exp(x * 0.1)
    u *= x
    return u


PURE: dict[Any, Callable[[jax.Array], jax.Array]] = {
    product_of_parts: lambda x: jnp.sin(x.at[1:3].set(x[3:5] * x[0])),
    square_of_itself: lambda x: jnp.sin(x.at[1:3].add(x[1:3] * x[1:3])),
    output_of_exp: lambda x: jnp.exp(x * 0.1) * x,
}


def total(f: Any) -> Any:
    return lambda x: fnp.sum(f(x))


def on_tape(f: Any, x: jax.Array) -> Any:
    t = leaf(x)
    f(t).sum().backward()
    return t.grad.array


grad, vmap, jit, checkpoint = fad.grad, fad.vmap, fad.jit, fad.checkpoint

# The writes are recorded by the transform that differentiates them: an error, as in PyTorch.
RECORDED: dict[str, Callable[[Any], Any]] = {
    "tape": lambda f: on_tape(f, X),
    "grad": lambda f: grad(total(f))(X),
    "vmap of grad": lambda f: vmap(grad(total(f)))(ROWS),
    "jit of grad": lambda f: jit(grad(total(f)))(X),
    "checkpoint of grad": lambda f: checkpoint(grad(total(f)))(X),
    "vmap of checkpoint of grad": lambda f: vmap(checkpoint(grad(total(f))))(ROWS),
    "jacrev": lambda f: fad.jacrev(f)(X).sum(0),
    "vjp": lambda f: fad.vjp(f, X)[1](jnp.ones(6))[0],
    "functionalize": lambda f: grad(total(fad.functionalize(f)))(X),
}


def derived(f: Any) -> Any:
    """``f`` as a Function without rules."""

    class Derived(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return f(x)

    return Derived.apply


# What writes is one operation for the transform that differentiates it: the gradient.
ENCLOSED: dict[str, Callable[[Any], Any]] = {
    "grad of vmap": lambda f: grad(total(vmap(f)))(ROWS),
    "grad of vmap of vmap": lambda f: grad(total(vmap(vmap(f))))(ROWS[None])[0],
    "tape of vmap": lambda f: on_tape(vmap(f), ROWS),
    "jacfwd": lambda f: fad.jacfwd(f)(X).sum(0),
    "grad of checkpoint": lambda f: grad(total(checkpoint(f)))(X),
    "grad of checkpoint of checkpoint": lambda f: grad(total(checkpoint(checkpoint(f))))(X),
    "tape of checkpoint": lambda f: on_tape(checkpoint(f), X),
    "vmap of grad of checkpoint": lambda f: vmap(grad(total(checkpoint(f))))(ROWS),
    "grad of vmap of checkpoint": lambda f: grad(total(vmap(checkpoint(f))))(ROWS),
    "grad of checkpoint of vmap": lambda f: grad(total(checkpoint(vmap(f))))(ROWS),
    "tape of checkpoint of vmap": lambda f: on_tape(checkpoint(vmap(f)), ROWS),
    "jit of vmap of grad of checkpoint": lambda f: jit(vmap(grad(total(checkpoint(f)))))(ROWS),
    "vjp of checkpoint": lambda f: fad.vjp(checkpoint(f), X)[1](jnp.ones(6))[0],
    "jacrev of checkpoint": lambda f: fad.jacrev(checkpoint(f))(X).sum(0),
    "grad of jit": lambda f: grad(total(jit(f)))(X),
    "grad of jit of vmap of checkpoint": lambda f: grad(total(jit(vmap(checkpoint(f)))))(ROWS),
    "grad of scan": lambda f: grad(
        lambda x: fnp.sum(fad.lax.scan(lambda c, _: (c, f(c)), x, None, length=1)[1])
    )(X),
    "jax.grad of to_jax": lambda f: jax.grad(lambda x: fad.to_jax(f)(x).sum())(X),
    "grad of a Function": lambda f: grad(total(derived(f)))(X),
    "vmap of grad of a Function": lambda f: vmap(grad(total(derived(f))))(ROWS),
    "jax.grad of a Function": lambda f: jax.grad(total(derived(f)))(X),
}


@pytest.fixture(params=[True, False], ids=["replay", "one by one"])
def replayed(request: Any) -> Iterator[None]:
    with fad.autograd.compiled(request.param):
        yield


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("name", RECORDED)
def test_a_write_to_what_is_saved_is_an_error_where_it_is_recorded(name: str) -> None:
    for f in (product_of_parts, square_of_itself):
        for _ in range(3):
            with pytest.raises(GradientError, match="has been modified by an inplace operation"):
                RECORDED[name](f)


@functools.cache
def slopes(f: Any) -> tuple[Any, Any]:
    """The gradients of `PURE` at a point, and at each of some."""
    slope = jax.grad(lambda x: PURE[f](x).sum())
    return jax.jit(slope)(X), jax.jit(jax.vmap(slope))(ROWS)


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("name", ENCLOSED)
def test_a_write_inside_of_what_is_one_operation_is_not_seen_from_outside(name: str) -> None:
    for f in PURE:
        for _ in range(3):
            found = ENCLOSED[name](f)
            want = slopes(f)[found.shape == ROWS.shape]
            np.testing.assert_allclose(found, want, rtol=1e-5, err_msg=f.__name__)


def test_second_derivatives_of_a_checkpointed_body_that_writes() -> None:
    pure = jax.hessian(lambda x: PURE[square_of_itself](x).sum())(X)
    for f in (checkpoint(square_of_itself), derived(square_of_itself)):
        for second in (
            fad.hessian,
            lambda f: fad.jacrev(fad.grad(f)),
            lambda f: fad.jacrev(fad.jacrev(f)),
        ):
            np.testing.assert_allclose(second(total(f))(X), pure, rtol=1e-4, atol=1e-6)
    t = leaf(X)
    (slope,) = fad.autograd.grad(checkpoint(square_of_itself)(t).sum(), t, create_graph=True)
    (found,) = fad.autograd.grad(slope.sum(), t)
    np.testing.assert_allclose(found.array, pure.sum(0), rtol=1e-4, atol=1e-6)


def test_a_body_that_writes_closes_over_what_other_levels_track() -> None:
    """What is saved of them are Tensors of lower levels, which a write would reach."""

    def of(a: Any) -> Any:
        def body(x: Any) -> Any:
            y = x * 1.0
            z = a * y
            y[1:] = z[1:] * y[1:]
            return (y * z).sum()

        return fad.grad(checkpoint(body))(X)

    def expected(a: Any) -> Any:
        return jax.grad(lambda x: (x.at[1:].set(a * x[1:] * x[1:]) * a * x).sum())(X)

    for f in (of, jit(of)):
        np.testing.assert_allclose(f(0.5), expected(0.5), rtol=1e-6)
    np.testing.assert_allclose(fad.jacfwd(of)(0.5), jax.jacfwd(expected)(0.5), rtol=1e-5)


def test_a_hook_for_saved_values_goes_on_for_a_body_that_writes() -> None:
    packed = []

    def pack(t: Any) -> Any:
        packed.append(t.shape)
        return t

    t = leaf(X)
    with fad.autograd.saved_tensors_hooks(pack, lambda t: t):
        y = checkpoint(square_of_itself)(t)
    before = len(packed)
    with fad.autograd.saved_tensors_hooks(pack, lambda t: t):
        y.sum().backward()
    assert len(packed) > before
    expected = jax.grad(lambda x: PURE[square_of_itself](x).sum())(X)
    np.testing.assert_allclose(t.grad.array, expected, rtol=1e-6)
