"""What docs/differences-from-pytorch.md says that fad allows and PyTorch refuses, or has silently wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import assert_close

import fad


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
