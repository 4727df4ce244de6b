"""What docs/differences-from-pytorch.md says that fad allows and PyTorch refuses, or has silently wrong."""

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


def once(lib: Any) -> Any:
    class Square(lib.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @lib.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 * ctx.saved_tensors[0]

    return Square.apply


def detached(lib: Any) -> Any:
    x = lib.ones(2, requires_grad=True)
    y = x * 2
    z = y * y
    y.detach_()
    z.sum().backward()
    return x.grad


def second(lib: Any) -> Any:
    x = lib.ones(2, requires_grad=True)
    (g,) = lib.autograd.grad(once(lib)(x).sum(), x, create_graph=True)
    return lib.autograd.grad((g * x).sum(), x)[0]


REFUSED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "requires_grad_": (
        lambda lib: lib.func.grad(lambda x: (x.requires_grad_() * x).sum())(lib.ones(2)),
        [2, 2],
    ),
    "number": (lambda lib: lib.func.jvp(lambda x: 1.0, (lib.ones(2),), (lib.ones(2),))[1], 0.0),
    "strict": (
        lambda lib: lib.autograd.functional.jacobian(
            lambda x: x * x, lib.ones(1), strict=True, vectorize=True
        ),
        [[2]],
    ),
    "view": (lambda lib: lib.zeros(2, 3).T.view(6), [0] * 6),
    "detach_": (detached, [8, 8]),
    "complex": (lambda lib: lib.func.jacrev(lambda z: z**2)(lib.tensor([1 + 2j])), [[2 + 4j]]),
    "gradcheck": (lambda lib: lib.autograd.gradcheck(lambda x: x * 2, lib.ones(2)), True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses(name: str, torch: Any) -> None:
    call, expected = REFUSED[name]
    np.testing.assert_allclose(np.asarray(call(fad)), expected)
    with pytest.raises((RuntimeError, ValueError)):
        call(torch)


def test_a_second_derivative_of_a_rule_that_has_none(torch: Any) -> None:
    assert second(torch).tolist() == [2.0, 2.0]  # 6 x is right
    with pytest.raises(fad.errors.GradientError, match="once_differentiable"):
        second(fad)


def test_tangents_pass_through_no_grad(torch: Any) -> None:
    def f(lib: Any, x: Any) -> Any:
        with lib.no_grad():
            return x * 2

    for lib in (fad, torch):
        out, tangent = lib.func.jvp(lambda x, lib=lib: f(lib, x), (lib.ones(2),), (lib.ones(2),))
        assert tangent.tolist() == [2.0, 2.0]

    def g(x: Any) -> Any:
        with fad.autograd.forward_ad.set_fwd_grad_enabled(False):
            return x * 2

    assert_close(fad.jvp(g, (np.float32(1),), (np.float32(1),)), (np.float32(2), np.float32(0)))


# What works in fad without a step of its own, and is refused by PyTorch

QUERY, KEY, VALUE = np.random.default_rng(0).normal(size=(3, 2, 5, 3, 4)).astype("f4")


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_in_both_modes_and_twice(causal: bool, torch: Any) -> None:
    """Arrays are (batch, positions, heads, features), in PyTorch (batch, heads, positions, features)."""

    def of(attention: Callable[..., Any], xp: Any) -> Callable[[Any], Any]:
        return lambda q: xp.sum(xp.sin(attention(q, KEY, VALUE, is_causal=causal)))

    ours, jaxs = of(fad.nn.dot_product_attention, fnp), of(jax.nn.dot_product_attention, jnp)
    k, v = [torch.tensor(a).transpose(1, 2) for a in (KEY, VALUE)]
    fused = torch.nn.functional.scaled_dot_product_attention

    def torchs(q: Any) -> Any:
        return fused(q.transpose(1, 2), k, v, is_causal=causal).sin().sum()

    q = torch.tensor(QUERY)
    assert_close(fad.grad(ours)(QUERY), torch.func.grad(torchs)(q).numpy(), rtol=1e-4, atol=1e-6)
    one, other = fad.jvp(ours, (QUERY,), (VALUE,)), jax.jvp(jaxs, (QUERY,), (VALUE,))
    assert_close(one, other, rtol=1e-4)
    expected = jax.hessian(jaxs)(QUERY)
    assert_close(fad.hessian(ours)(QUERY), expected, rtol=1e-4, atol=1e-6)
    twice = fad.jacrev(fad.jit(fad.grad(ours)))(QUERY)
    assert_close(twice, expected, rtol=1e-4, atol=1e-6)
    lanes = fad.vmap(fad.grad(ours))(np.stack([QUERY, 2.0 * QUERY]))
    assert_close(lanes[1], jax.grad(jaxs)(2.0 * QUERY), rtol=1e-4, atol=1e-6)
    with pytest.raises(NotImplementedError, match="forward AD"):
        torch.func.jvp(torchs, (q,), (q,))
    with pytest.raises(RuntimeError, match="not implemented"):
        torch.func.jacrev(torch.func.grad(torchs))(q)


def test_compiled_double_backward(torch: Any) -> None:
    def penalty(lib: Any, f: Callable[[Any], Any]) -> Any:
        x = lib.tensor([0.5, -1.0, 2.0], requires_grad=True)
        (g,) = lib.autograd.grad(f(x), x, create_graph=True)
        (g * g).sum().backward()
        return x.grad

    f = lambda x: (x.sin() * x).sum()
    assert_close(penalty(fad, fad.jit(f)).numpy(), penalty(torch, f).numpy(), rtol=1e-5)
    with pytest.raises(RuntimeError, match="double backward"):
        penalty(torch, torch.compile(f, backend="aot_eager"))


def test_vmap_over_loops_with_conditions(torch: Any) -> None:
    """Each lane has a number of steps of its own; derivatives in both modes, and twice."""
    x = np.array([0.5, 3.0, 20.0], np.float32)

    def loop(x: Any) -> Any:
        return fad.lax.while_loop(lambda y: y < 10.0, lambda y: y * 1.5 + fnp.sin(y), x)

    def steps(x: Any, sin: Callable[[Any], Any] = jnp.sin) -> Any:
        while x < 10.0:
            x = x * 1.5 + sin(x)
        return x

    for ours, jaxs in (
        (loop, steps),
        (fad.grad(loop), jax.grad(steps)),
        (fad.grad(fad.grad(loop)), jax.grad(jax.grad(steps))),
        (lambda x: fad.jvp(loop, (x,), (x,))[1], lambda x: jax.jvp(steps, (x,), (x,))[1]),
    ):
        expected = jnp.stack([jaxs(v) for v in x])
        for mapped in (fad.vmap(ours), fad.jit(fad.vmap(ours))):
            assert_close(mapped(x), expected, rtol=1e-4)
    with pytest.raises(RuntimeError, match="data-dependent control flow"):
        torch.func.vmap(lambda x: steps(x, torch.sin))(torch.tensor(x))
