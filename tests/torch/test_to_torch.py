"""`to_torch`: laws of functions that fad computes, under autograd and ``torch.func``."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, LevelError


@pytest.fixture(autouse=True)
def _precise():
    with jax.enable_x64(True):
        yield


def transforms(torch):
    func = torch.func
    return {
        "grad": func.grad,
        "jvp": lambda f: lambda x: func.jvp(f, (x,), (torch.ones_like(x),))[1],
        "jacfwd": func.jacfwd,
        "jacrev": func.jacrev,
        "vmap": lambda f: lambda x: func.vmap(f)(torch.stack([x * 2, x]))[1],
    }


STACKS = [
    c for n in (1, 2, 3) for c in itertools.product("grad jvp jacfwd jacrev vmap".split(), repeat=n)
]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.sweep("stack", STACKS, sample=24, ids="-".join)
def test_stacks_of_three_transforms_give_the_closed_form(torch, stack, jit):
    f = fad.to_torch(lambda x: fnp.sin(x) ** 2, jit=jit)
    for name in stack:
        f = transforms(torch)[name](f)
    order = len(stack) - stack.count("vmap")
    expected = math.sin(0.3) ** 2
    if order:
        expected = -(2.0 ** (order - 1)) * math.cos(0.6 + order * math.pi / 2)
    x = torch.tensor(0.3, dtype=torch.float64)
    np.testing.assert_allclose(f(x).item(), expected, rtol=1e-12)


def test_forward_mode_of_any_depth(torch):
    """Where a Function of PyTorch with a jvp of plain operations gives zero, in silence."""
    along = transforms(torch)["jvp"]
    f = along(along(along(torch.func.grad(fad.to_torch(lambda x: x**5)))))
    assert f(torch.tensor(2.0, dtype=torch.float64)).item() == 240.0


@pytest.mark.parametrize("jit", [False, True])
def test_gradcheck_of_pytorch(torch, jit):
    f = fad.to_torch(lambda x, y: (fnp.sin(x) * y, fnp.sum(x * x)), jit=jit)
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x, y), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, (x, y), check_fwd_over_rev=True)
    z = torch.randn(2, dtype=torch.complex128, requires_grad=True)
    square = fad.to_torch(lambda z: z * z * fnp.conj(z), jit=jit)
    assert torch.autograd.gradcheck(square, (z,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(square, (z,))


def test_derivatives_are_those_of_torch_func(torch):
    def ours(a, x):
        return fnp.sum(fnp.tanh(a @ x) * x)

    def theirs(a, x):
        return (torch.tanh(a @ x) * x).sum()

    f, func = fad.to_torch(ours), torch.func
    a, x = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    many = torch.stack([a, a.T])
    for d, args in (
        (lambda f: func.grad(f, (0, 1)), (a, x)),
        (func.hessian, (a, x)),
        (lambda f: func.jacfwd(func.hessian(f, 1), 1), (a, x)),
        (lambda f: func.vmap(func.hessian(f, 1), (0, None)), (many, x)),
        (lambda f: func.grad(lambda a, x: func.vmap(f, (0, None))(a, x).sum()), (many, x)),
        (lambda f: func.vmap(f, (2, None)), (many.movedim(0, 2), x)),
        (lambda f: func.vmap(func.vmap(f, (None, 0)), (0, None)), (many, torch.stack([x, x * 2]))),
    ):
        torch.testing.assert_close(d(f)(*args), d(theirs)(*args))


def test_a_custom_rule_is_used(torch):
    class Clipped(fad.Function):
        forward = staticmethod(lambda x: x * 1.0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vjp(ctx, g):
            return fnp.clip(g, -1.0, 1.0)

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (fad.to_torch(Clipped.apply)(x) * torch.tensor([5.0, 0.5])).sum().backward()
    assert x.grad.tolist() == [1.0, 0.5]


def test_training_a_module_of_pytorch_through_a_function_of_fad(torch):
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    loss = fad.to_torch(lambda y: fnp.mean((y - 1.0) ** 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    x, values = torch.randn(8, 3), []
    for _ in range(30):
        optimizer.zero_grad()
        value = loss(module(x))
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.1 * values[0]


def test_pytrees_static_arguments_and_results_without_a_derivative(torch):
    f = fad.to_torch(lambda d, n: {"b": d["x"] * n, "a": None, "i": [fnp.argmax(d["x"])]})
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    out = f({"x": x}, 3)
    assert list(out) == ["b", "a", "i"] and out["a"] is None
    assert out["i"][0].item() == 1 and not out["i"][0].requires_grad
    out["b"].sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert fad.to_torch(lambda: fnp.ones(2))().tolist() == [1.0, 1.0]
    assert fad.to_torch(lambda x: None)(x) is None
    assert fad.to_torch(lambda x: (x[::2], x.T))(torch.ones(4))[0].shape == (2,)


def test_writes_in_place_stay_in_the_function(torch):
    def f(x):
        x[0] = 0.0
        return x

    t = torch.ones(3)
    assert fad.to_torch(f)(t).tolist() == [0.0, 1.0, 1.0] and t.tolist() == [1.0] * 3


def test_a_saved_argument_that_is_changed_in_place_is_an_error_of_pytorch(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 1
    out = fad.to_torch(lambda x: x * x)(y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# PyTorch warns of itself, at any break of a graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("jit", [False, True])
def test_torch_compile_calls_it(torch, jit):
    f = fad.to_torch(lambda x, k=1.0: fnp.sum(x**3) * k, jit=jit)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    for function, factor in ((f, 1.0), (lambda x: f(x, k=2.0) + 1.0, 2.0)):
        compiled = torch.compile(function, backend="eager")
        for _ in range(2):
            assert compiled(x).item() == function(x).item()
            (gradient,) = torch.autograd.grad(compiled(x), x)
            assert torch.equal(gradient, 3.0 * factor * x**2)


BAD = [
    (lambda torch: fad.to_torch(3), ArgumentError, "must be a function, got int 3"),
    (lambda torch: fad.to_torch(fnp.sin)(jnp.ones(2)), ArgumentError, r"torch.from_dlpack\(x\)"),
    (lambda torch: fad.to_torch(fnp.sin)({1}), ArgumentError, "must be hashable"),
    (lambda torch: fad.to_torch(lambda x: 1.0)(torch.ones(2)), ArgumentError, r"fad.tensor\(...\)"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[2])
def test_bad_calls(torch, bad):
    call, error, match = bad
    with pytest.raises(error, match=match):
        call(torch)


@pytest.mark.parametrize("jit", [False, True])
def test_a_tensor_that_the_function_closes_over_is_refused(torch, jit):
    def f(w):
        return fad.to_torch(lambda x: x * w, jit=jit)(torch.ones(2))

    with pytest.raises(LevelError, match="pass the Tensor that the function closes over") as caught:
        fad.grad(f)(2.0)
    assert "in to_torch(<lambda>), called with" in "".join(caught.value.__notes__)
