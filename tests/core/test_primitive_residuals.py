"""What a vjp keeps: a constant where no differentiated input reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from namespace_cases import A, M, assert_same

import fad


def test_what_does_not_depend_on_differentiated_inputs_is_not_differentiated() -> None:
    """The factorization that solve saves is a constant where b alone is differentiated, at any order."""
    a, b = A[:2, :2], M[:2, :2]

    def pulled(m: Any) -> Any:
        return lambda b: m.vjp(m.numpy.linalg.solve, a, b)[1](b * 0.5)

    def check(f: Callable[[Any], Any]) -> None:
        assert_same(f(fad), f(jax))

    check(lambda m: m.jvp(pulled(m), (b,), (a,))[1])
    check(lambda m: m.vjp(pulled(m), b)[1]((a, b)))
    check(lambda m: m.linearize(pulled(m), b)[1](a))
    check(lambda m: m.vmap(lambda t: m.jvp(pulled(m), (b,), (t,))[1])(jnp.stack([a, b])))
    check(lambda m: m.jvp(m.vmap(pulled(m)), (b[None],), (a[None],))[1])
    check(lambda m: m.jvp(lambda b: m.jvp(pulled(m), (b,), (a,))[1], (b,), (b,))[1])
    check(lambda m: m.vjp(lambda b: m.jvp(pulled(m), (b,), (a,))[1], b)[1]((a, b)))


@pytest.mark.parametrize("name", ["cumprod", "cumlogsumexp", "igammac"])
def test_a_loop_or_a_scan_of_pairs_is_computed_once(name: str) -> None:
    """JAX differentiates the first two by a scan of pairs, XLA computes the last one by a loop."""

    def flops(m: Any) -> float:
        f = getattr(m.lax, name)
        loss = lambda x: (m.numpy.log(f(x, x) if name == "igammac" else f(x)) * x).sum()
        step = m.jit(m.value_and_grad(m.jit(loss)))
        return step.lower(jnp.full(256, 1.5)).compile().cost_analysis()["flops"]

    assert flops(fad) <= 1.05 * flops(jax)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("write", ["cos_", "sin_", "exp_", "square_"])
def test_a_diagonal_saves_nothing(torch: Any, write: str, k: int) -> None:
    """So its matrix may be written to, and the gradients differentiated again."""

    def second(xp: Any, x: Any) -> Any:
        b = x * x
        getattr(b.diagonal(k)[1:], write)()
        (g,) = xp.autograd.grad((b * b).sum(), x, create_graph=True)
        return xp.autograd.grad((g * g).sum(), x)[0]

    values = np.arange(1.0, 10.0, dtype=np.float32).reshape(3, 3) / 7
    x = torch.tensor(values, requires_grad=True)
    for _ in range(3):
        assert_same(
            second(fad, fad.tensor(values, requires_grad=True)), second(torch, x).detach().numpy()
        )


def test_a_diagonal_under_every_transform() -> None:
    x = jnp.arange(9.0).reshape(3, 3) / 7
    t = jnp.ones((3, 3))

    def f(m: Any) -> Callable[[Any], Any]:
        return lambda x: (m.numpy.diagonal(x * x) ** 2).sum()

    gradient = jax.jit(jax.grad(f(jax)))
    assert_same(fad.grad(f(fad))(x), gradient(x))
    assert_same(fad.hessian(f(fad))(x), jax.jit(jax.hessian(f(jax)))(x))
    assert_same(fad.jvp(fad.grad(f(fad)), (x,), (t,))[1], jax.jvp(gradient, (x,), (t,))[1])
    both = jnp.stack([x, t])
    assert_same(fad.vmap(fad.grad(f(fad)))(both), jax.jit(jax.vmap(gradient))(both))
    assert_same(fad.jit(fad.grad(f(fad)))(x), gradient(x))
