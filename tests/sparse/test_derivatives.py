"""``sparsity``, ``sparse_jacobian`` and ``sparse_hessian``, against dense derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, GradientError, HostValueError, StructureError
from fad.sparse.plans import HESSIAN, JACOBIAN


class Square(fad.Function):
    """Has a vjp alone: its jvp, of which the pattern is found, is derived."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        return 2 * g * ctx.saved_tensors[0]


def burgers(u: Any) -> Any:
    """A step of Burgers' equation, written in place."""
    new = u.clone()
    new[1:-1] -= 0.01 * u[1:-1] * (u[2:] - u[:-2]) / 2
    new[1:-1] += 0.001 * (Square.apply(u[2:]) - 2 * u[1:-1] + u[:-2])
    new[0], new[-1] = 0.0, u[-2]
    return new


def five_points(u: Any) -> Any:
    out = -4.0 * u
    out[1:] += Square.apply(u[:-1])
    out[:-1] += u[1:] ** 2
    out[:, 1:] += u[:, :-1]
    out[:, :-1] += u[:, 1:]
    return out


def chain(x: Any) -> Any:
    return (Square.apply(x[1:] - x[:-1] ** 2)).sum() + (1 - x[0]) ** 2


def arrow(x: Any) -> Any:
    return (fnp.sin(x[:-1]) * x[-1]).sum() + (x**3).sum()


def product(x: Any) -> Any:
    return x[1:] ** 3 * x[:-1]


# The transform, the function, a small and a large argument, and the least number of products.
PROBLEMS: dict[str, tuple[str, Callable[..., Any], tuple[int, ...], tuple[int, ...], int]] = {
    "burgers": (JACOBIAN, burgers, (9,), (10_000,), 3),
    "five points": (JACOBIAN, five_points, (5, 6), (100, 100), 5),
    "chain": (HESSIAN, chain, (8,), (10_000,), 3),
    "arrow": (HESSIAN, arrow, (8,), (1_000,), 2),
    "rows": (JACOBIAN, lambda x: x.reshape(2, -1).sum(1), (8,), (1_000,), 1),
}
TRANSFORMS = {
    JACOBIAN: (fad.sparse_jacobian, fad.jacfwd),
    HESSIAN: (fad.sparse_hessian, fad.hessian),
}


def numbers(shape: tuple[int, ...]) -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("name", PROBLEMS)
def test_is_the_dense_derivative(name: str) -> None:
    who, f, shape, _, _ = PROBLEMS[name]
    sparse, dense = TRANSFORMS[who]
    x = numbers(shape)
    found = sparse(f)
    for scale in (1.0, -2.0):
        assert_close(found(scale * x).todense(), fad.jit(dense(f))(scale * x))


@pytest.mark.parametrize("name", PROBLEMS)
def test_products_are_within_one_of_the_optimum(name: str) -> None:
    who, f, _, shape, least = PROBLEMS[name]
    pattern = fad.sparse_pattern(f, hessian=who == HESSIAN)(jnp.ones(shape))
    assert pattern.products <= least + 1


def norm(x: Any) -> Any:
    return (fad.sparse_jacobian(product)(x).data ** 2).sum()


def dense_norm(x: Any) -> Any:
    return (fad.jacfwd(product)(x) ** 2).sum()


def tape(f: Callable[..., Any]) -> Callable[..., Any]:
    def gradient(x: Any) -> Any:
        leaf = fad.tensor(x, requires_grad=True)
        f(leaf).backward()
        return leaf.grad

    return gradient


AROUND: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": fad.grad,
    "grad of grad": fad.hessian,
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (fnp.ones_like(x),))[1],
    "vmap": lambda f: lambda x: fad.vmap(f)(fnp.stack([x, 2 * x])),
    "jit": fad.jit,
    "tape": tape,
    "jax.jit of jax.grad": lambda f: jax.jit(jax.grad(fad.to_jax(f))),
    "jax.vmap": lambda f: lambda x: jax.vmap(fad.to_jax(f))(jnp.stack([x, 2 * x])),
}


@pytest.mark.parametrize("name", AROUND)
def test_is_part_of_transforms(name: str) -> None:
    x = numbers((5,))
    around = AROUND[name]
    assert_close(np.asarray(around(norm)(x)), np.asarray(around(dense_norm)(x)))


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap", "jit", "tape"])
def test_closes_over_values_of_transforms(name: str) -> None:
    x = numbers((4,))

    def of(jacobian: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a: (jacobian(lambda x: (a * x)[1:] * x[:-1])(x) ** 2).sum()

    found = AROUND[name](of(lambda f: lambda x: fad.sparse_jacobian(f)(x).data))
    assert_close(np.asarray(found(2.0)), np.asarray(AROUND[name](of(fad.jacfwd))(2.0)))


def test_matrix_multiplies_and_is_a_pytree() -> None:
    x = numbers((5,))
    found = fad.sparse_jacobian(product)(x)
    assert isinstance(found, jax.experimental.sparse.BCOO)
    assert_close(found @ jnp.ones(5), fad.jacfwd(product)(x) @ jnp.ones(5))
    assert_close(fad.jit(fad.sparse_jacobian(product))(x).todense(), found.todense())
    of_tensor = fad.sparse_jacobian(product)(fad.tensor(x))
    assert isinstance(of_tensor.data, fad.Tensor)


def test_pattern_follows_tensors_that_are_closed_over() -> None:
    mask = fad.tensor([1.0, 0.0, 1.0])
    jacobian = fad.sparse_jacobian(lambda x: x @ fnp.diag(mask))
    assert jacobian(jnp.ones(3)).nse == 2
    mask.fill_(2.0)
    assert jacobian(jnp.ones(3)).data.tolist() == [2.0, 2.0, 2.0]


def test_pattern_is_found_once_for_each_shape() -> None:
    calls = []

    def counted(x: Any) -> Any:
        calls.append(x.shape)
        return x**2

    jacobian = fad.sparse_jacobian(counted)
    jacobian(jnp.ones(3))
    once = len(calls)
    jacobian(2 * jnp.ones(3))
    assert len(calls) == once
    assert jacobian(jnp.ones(4)).shape == (4, 4)
    assert len(calls) > once


def test_complex_on_one_side() -> None:
    x, z = jnp.arange(1.0, 4.0), jnp.array([1 + 2j, 3 - 1j, -1j])
    for f, v in [
        (lambda x: x * (1 + 2j), x),
        (lambda x: fnp.sum(x)[None] * 1j, x),  # in reverse
        (fnp.abs, z),
        (lambda z: fnp.sum(abs(z))[None], z),
    ]:
        assert_close(fad.sparse_jacobian(f)(v).todense(), fad.jacrev(f)(v))


def test_other_arguments_and_complex_numbers() -> None:
    x = numbers((3,))
    found = fad.sparse_jacobian(lambda p, x, *, k: p["a"] * x**k, 1)({"a": x}, 2 * x, k=2)
    assert_close(found.data, 4 * x**2)
    z = x + 1j * x[::-1]
    for f in (lambda z: 1j * z**2, lambda z: (1j * z**2).sum()):
        assert_close(fad.sparse_jacobian(f)(z).todense(), fad.jacfwd(f)(z))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    found = fad.sparse_jacobian(lambda x: x * x)(jnp.full(shape, 3.0))
    assert found.shape == shape * 2
    assert found.data.tolist() == ([6.0] if shape == () else [])


def test_functions_without_outputs() -> None:
    for nothing in (None, [], {"a": ()}):
        f = lambda x, nothing=nothing: nothing
        for transform in (fad.sparsity, fad.sparse_jacobian):
            assert transform(f)(X) == fad.jacfwd(f)(X) == nothing
        assert fad.sparse_pattern(f)(X).shape == (0, 3)


X = np.ones(3, np.float32)
BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "called on an array": (
        lambda: fad.sparse_jacobian(jnp.ones(3)),
        TypeError,
        "must be a function",
    ),
    "a branch of Python": (
        lambda: fad.sparse_jacobian(lambda x: x if x.sum() > 0 else -x)(X),
        HostValueError,
        "has no value yet",
    ),
    "integers": (
        lambda: fad.sparsity(lambda x: x)(np.arange(3)),
        ArgumentError,
        "must have a floating or complex dtype",
    ),
    "a predicate": (
        lambda: fad.sparse_jacobian(lambda x: x > 0)(X),
        GradientError,
        "has dtype bool, which has no derivatives",
    ),
    "not a scalar": (
        lambda: fad.sparse_hessian(lambda x: x)(X),
        GradientError,
        "must return a real scalar",
    ),
    "complex": (
        lambda: fad.sparse_hessian(lambda z: (z * z).real.sum())(X + 0j),
        GradientError,
        "argument 0 is complex",
    ),
    "the pattern of integers": (
        lambda: fad.sparse_pattern(lambda x: x)(np.arange(3)),
        ArgumentError,
        "sparse_pattern: argument 0",
    ),
    "not sparse": (
        lambda: fad.sparse_jacobian(fnp.cumsum)(jnp.ones(20_000)),
        StructureError,
        "it is not sparse",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


def test_loops_that_are_differentiated_in_reverse() -> None:
    """They are primitives of fad's own, as calls of Functions are, and have no ``sparsity`` rule."""

    def f(x: Any) -> Any:
        turned = fad.lax.while_loop(
            lambda s: s.sum() < 50.0, lambda s: s[::-1] * 2.0, x, max_steps=9
        )
        return turned * x

    x = jnp.arange(1.0, 5.0)
    found = fad.sparse_jacobian(f)(x).todense()
    np.testing.assert_array_equal(found, np.asarray(fad.jacrev(f)(x)))
    assert fad.sparsity(f)(x).nse == 8
