"""``with_derivative``: values that were computed in another way, under every transform."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad import extend


@dataclasses.dataclass(frozen=True)
class Root:
    """Of x³ = a."""

    name = "cube_root"

    def pushforward(self, values: Any, inputs: Any, tangents: Any) -> list[Any]:
        return [
            None if t is None else t / (3.0 * x**2) for x, t in zip(values, tangents, strict=True)
        ]

    def pullback(
        self, values: Any, inputs: Any, cotangents: Any, need: Sequence[bool]
    ) -> list[Any]:
        pairs = zip(values, cotangents, need, strict=True)
        return [g / (3.0 * x**2) if n else None for x, g, n in pairs]


def cube_root(a: Any) -> Any:
    with fad.no_grad():
        x = fad.stop_gradient(fnp.cbrt(a))
    return extend.with_derivative(Root(), [x], [a])[0]


X = jnp.array([1.0, 8.0])
TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda f: fad.grad(lambda x: f(x).sum())(X),
    "jvp": lambda f: fad.jvp(f, (X,), (X,))[1],
    "hessian": lambda f: fad.hessian(lambda x: f(x).sum())(X),
    "vmap of grad": lambda f: fad.vmap(fad.grad(f))(X),
    "grad of vmap": lambda f: fad.grad(lambda x: fad.vmap(f)(x).sum())(X),
    "jit of grad": lambda f: fad.jit(fad.grad(lambda x: f(x).sum()))(X),
    "grad of jit": lambda f: fad.grad(lambda x: fad.jit(f)(x).sum())(X),
    "jacfwd of jacrev": lambda f: fad.jacfwd(fad.jacrev(f))(X),
    "linearize": lambda f: fad.linearize(f, X)[1](X),
    "jet": lambda f: fad.derivatives(f, 8.0, 3)[3],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    transform = TRANSFORMS[name]
    assert_close(transform(cube_root), transform(lambda a: fnp.asarray(a) ** (1 / 3)), rtol=1e-4)


def test_on_the_tape() -> None:
    a = fad.tensor([1.0, 8.0], requires_grad=True)
    y = cube_root(a)
    assert y.grad_fn.name() == "cube_rootBackward"
    y.sum().backward()
    assert_close(a.grad, jnp.array([1 / 3, 1 / 12]))


def test_inputs_that_are_constant_have_no_gradient() -> None:
    a, b = fad.tensor(8.0, requires_grad=True), fad.tensor(27.0)
    x, y = extend.with_derivative(Root(), [fad.tensor(2.0), fad.tensor(3.0)], [a, b])
    (x + 2.0 * y).backward()
    assert a.grad is not None and b.grad is None
    assert np.isclose(float(a.grad), 1 / 12)
    tangent = fad.jvp(
        lambda b: extend.with_derivative(Root(), [x, y], [8.0, b])[1], (27.0,), (1.0,)
    )[1]
    assert np.isclose(float(tangent), 1 / 27)
