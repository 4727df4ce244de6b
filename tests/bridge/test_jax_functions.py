"""``from_jax``: a JAX function as one operation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, LevelError


def test_from_jax_is_one_operation() -> None:
    f = fad.from_jax(lambda tree: {"y": jnp.sin(tree["x"]) @ tree["w"] + jnp.cos(tree["x"]).sum()})
    x = fad.tensor([0.3, -0.5], requires_grad=True)
    out = f({"x": x, "w": fad.tensor([1.0, 2.0], requires_grad=True)})["y"]
    assert [type(n).__name__ for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2


PARAMS = {"w": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": jnp.zeros(2)}


def energy(unravel: Any, v: Any) -> Any:
    p = unravel(v)
    return fnp.sum(fnp.tanh(p["w"] @ jnp.array([0.1, 0.2]) + p["b"]))


def test_unravel_of_a_tree_of_tensors_gives_tensors() -> None:
    """What JAX puts into the Tensors of a structure is the result of the function."""
    flat, unravel = ravel_pytree(PARAMS)
    expected = jax.grad(
        lambda v: jnp.tanh(unravel(v)["w"] @ jnp.array([0.1, 0.2]) + unravel(v)["b"]).sum()
    )(flat)
    _, of_tensors = ravel_pytree(jax.tree.map(fad.tensor, PARAMS))
    f = functools.partial(energy, fad.from_jax(of_tensors))
    rows = flat[None]
    t = fad.tensor(flat, requires_grad=True)
    f(t).backward()
    for found in (
        fad.grad(f)(flat),
        fad.jit(fad.grad(f))(flat),
        fad.vmap(fad.grad(f))(rows)[0],
        fad.grad(lambda v: fad.vmap(f)(v).sum())(rows)[0],
        fad.jacfwd(f)(flat),
        jax.grad(fad.to_jax(f))(flat),
        t.grad.array,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert isinstance(fad.from_jax(of_tensors)(flat)["w"], jax.Array)
    assert isinstance(fad.from_jax(of_tensors)(fad.tensor(flat))["w"], fad.Tensor)


C = fad.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * C,
        lambda x: C,
        lambda x: (x, C),
        lambda x: fnp.sin(fnp.array(x)),
        lambda x: x * fad.tensor([1.0, 2.0], requires_grad=True),
    ],
)
def test_a_function_that_computes_with_tensors_is_refused(f: Any) -> None:
    """What it closes over would be a constant of a program, and wrong once it is written to."""
    x = jnp.ones(2)
    for transform in (lambda f: f, fad.jit, fad.vmap, lambda f: functools.partial(fad.vjp, f)):
        with pytest.raises(
            LevelError, match="from_jax: .* computes with Tensors, .* call it as it is"
        ):
            transform(fad.from_jax(f))(x)
    with pytest.raises(LevelError, match="make the Tensor that it closes over an argument"):
        fad.grad(lambda y: fnp.sum(fad.from_jax(lambda x: x * y)(x)))(x)


def test_a_tensor_of_a_structure_that_is_written_to_is_refused() -> None:
    _, unravel = ravel_pytree(jax.tree.map(fad.tensor, PARAMS))

    def f(v: Any) -> Any:
        p = unravel(v)
        p["b"] += C
        return p

    with pytest.raises(LevelError, match="computes with Tensors"):
        fad.from_jax(f)(jnp.arange(6.0))


def test_a_function_among_the_results_is_said() -> None:
    with pytest.raises(
        ArgumentError, match=r"ravel_pytree returned .* leave it out, as in fad.from_jax\(lambda"
    ):
        fad.from_jax(ravel_pytree)(jax.tree.map(fad.tensor, PARAMS))
