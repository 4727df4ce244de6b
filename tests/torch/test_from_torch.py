"""`from_torch`: laws of functions that PyTorch computes, against ``torch.func`` and closed forms."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, GradientError, StructureError
from fad.testing import gradcheck, gradgradcheck


@pytest.fixture(autouse=True)
def _precise():
    with jax.enable_x64(True):
        yield


def along_ones(f):
    return lambda x: fad.jvp(f, (x,), (jnp.ones_like(x),))[1]


def second_lane(f):
    return lambda x: fad.vmap(f)(fnp.stack([x * 2, x]))[1]


ORDER = {"grad": fad.grad, "jvp": along_ones, "jacfwd": fad.jacfwd, "jacrev": fad.jacrev}
STACKABLE = {**ORDER, "vmap": second_lane, "jit": fad.jit, "checkpoint": fad.checkpoint}
STACKS = [c for n in (1, 2, 3) for c in itertools.product(STACKABLE, repeat=n)]


def closed_form(order, x):
    """The derivative of sin(x)² of this order."""
    if order == 0:
        return math.sin(x) ** 2
    return -(2.0 ** (order - 1)) * math.cos(2 * x + order * math.pi / 2)


@pytest.mark.sweep("stack", STACKS, sample=36, ids="-".join)
def test_stacks_of_three_transforms_give_the_closed_form(torch, stack):
    f = fad.from_torch(lambda x: torch.sin(x) ** 2)
    for name in stack:
        f = STACKABLE[name](f)
    expected = closed_form(sum(name in ORDER for name in stack), 0.3)
    np.testing.assert_allclose(float(f(jnp.float64(0.3))), expected, rtol=1e-12)


NATIVE = {
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1],
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x * 2, x]))[1],
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
}


@pytest.mark.sweep("stack", STACKS, sample=20, ids="-".join)
def test_stacks_of_native_transforms_give_the_closed_form(torch, stack):
    f = fad.from_torch(lambda x: torch.sin(x) ** 2)
    for name in stack:
        f = NATIVE[name](f)
    expected = closed_form(sum(name in ORDER for name in stack), 0.3)
    np.testing.assert_allclose(float(f(jnp.float64(0.3))), expected, rtol=1e-12)


def pair(torch):
    """The same scalar function of a matrix and a vector, for fad and for PyTorch."""

    def f(a, x):
        y = torch.tanh(a @ x)
        return (y * x).sum() + torch.linalg.norm(a) ** 2 * y.prod()

    draw = np.random.default_rng(0)
    return fad.from_torch(f), f, draw.normal(size=(3, 3)), draw.normal(size=3)


DERIVATIVES = {
    "grad": lambda m: m.grad,
    "grad of both": lambda m: lambda f: m.grad(f, (0, 1)),
    "jacfwd": lambda m: m.jacfwd,
    "jacrev": lambda m: m.jacrev,
    "hessian": lambda m: m.hessian,
    "jacfwd(hessian)": lambda m: lambda f: m.jacfwd(m.hessian(f, 1), 1),
    "jacrev(hessian)": lambda m: lambda f: m.jacrev(m.hessian(f, 1), 1),
    "vmap(grad)": lambda m: lambda f: m.vmap(m.grad(f), (0, None)),
    "grad(vmap)": lambda m: lambda f: m.grad(lambda a, x: m.vmap(f, (None, 0))(a, x).sum(), 1),
    "vmap(hessian)": lambda m: lambda f: m.vmap(m.hessian(f, 1), (0, 0)),
    "vmap(vmap(grad))": lambda m: lambda f: m.vmap(m.vmap(m.grad(f), (0, None)), (None, 0)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_torch_func(torch, name, compiled):
    ours, theirs, a, x = pair(torch)
    stacked = np.stack([a, a.T, 2 * a])
    if name == "vmap(grad)":
        a = stacked
    elif name == "grad(vmap)":
        x = np.stack([x, 2 * x])
    elif name == "vmap(hessian)":
        a, x = stacked, np.stack([x, -x, 2 * x])
    elif name == "vmap(vmap(grad))":
        a, x = stacked, np.stack([x, 2 * x])
    f = DERIVATIVES[name](fad.func)(ours)
    got = (fad.jit(f) if compiled else f)(a, x)
    expected = DERIVATIVES[name](torch.func)(theirs)(torch.tensor(a), torch.tensor(x))
    for g, e in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(g, e.numpy(), rtol=1e-9, atol=1e-9)


def test_the_eager_tape(torch):
    ours, theirs, a, x = pair(torch)
    a_, x_ = fad.tensor(a, requires_grad=True), fad.tensor(x, requires_grad=True)
    ours(a_, x_).backward()
    expected = torch.func.grad(theirs, (0, 1))(torch.tensor(a), torch.tensor(x))
    assert_close((a_.grad, x_.grad), tuple(e.numpy() for e in expected), rtol=1e-9)
    f = lambda x: ours(a, x)
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


def test_taylor_mode_linearize_and_loops(torch):
    f = fad.from_torch(torch.sin)
    value, series = fad.jet(f, (0.3,), ((1.0, 0.0, 0.0),))
    assert_close(series, [math.cos(0.3), -math.sin(0.3), -math.cos(0.3)], rtol=1e-9)
    x = jnp.arange(3.0)
    assert_close(fad.linearize(f, x)[1](x), x * jnp.cos(x), rtol=1e-9)
    three = lambda x: fad.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]
    inner = lambda x: jnp.sin(jnp.sin(jnp.sin(x)))
    assert_close(fad.grad(lambda x: fnp.sum(three(x)))(x), jax.vmap(jax.grad(inner))(x), rtol=1e-9)


def test_complex_gradients_are_those_of_pytorch_and_of_jax_natively(torch):
    f = fad.from_torch(lambda z: (z * z.conj()).real + (z**2).imag)
    z = torch.tensor(1 + 2j, dtype=torch.complex128, requires_grad=True)
    ((z * z.conj()).real + (z**2).imag).backward()
    assert complex(fad.grad(f)(1 + 2j)) == z.grad.item()
    assert complex(jax.jit(jax.grad(f))(1 + 2j)) == z.grad.item().conjugate()


def test_pytrees_static_arguments_and_several_results(torch):
    def f(tree, *, power, name=None):
        x, y = tree["x"], tree["y"]
        return {"sum": (x**power).sum() + y, "none": None, "at": [x.argmax(), x > 0, name and y]}

    g = fad.from_torch(f)
    tree = {"x": jnp.array([1.0, 3.0]), "y": 2.0}
    out = g(tree, power=2)
    assert list(out) == ["sum", "none", "at"] and out["none"] is None
    assert float(out["sum"]) == 12.0 and out["at"][0].dtype == jnp.int64
    assert out["at"][1].dtype == bool and out["at"][2] is None
    assert float(g(tree, power=3, name="y")["at"][2]) == 2.0
    grads = fad.grad(lambda t: g(t, power=2)["sum"])(tree)
    assert_close(grads, {"x": np.array([2.0, 6.0]), "y": 1.0})
    tangents = fad.jvp(lambda t: g(t, power=2), (tree,), (tree,))[1]
    assert_close(tangents["sum"], 22.0)


def test_arrays_give_arrays_and_tensors_give_tensors(torch):
    f = fad.from_torch(torch.sin)
    assert isinstance(f(jnp.ones(2)), jax.Array) and isinstance(f(fad.tensor(1.0)), fad.Tensor)
    assert isinstance(f(np.ones(2)), jax.Array) and isinstance(f(0.5), jax.Array)
    assert_close(fad.from_torch(lambda: torch.ones(2))(), np.ones(2, "f4"))


def test_modes_of_pytorch_change_nothing(torch):
    f = fad.from_torch(lambda x: torch.sin(x) * x)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with mode:
            for g in (fad.grad(fad.grad(f)), fad.jit(fad.jacfwd(fad.grad(f)))):
                np.testing.assert_allclose(g(0.4), 2 * math.cos(0.4) - 0.4 * math.sin(0.4))


def test_parameters_are_constants_or_an_argument(torch):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    module[0].bias.requires_grad_(False)
    x = torch.randn(5, 3)
    module(x).sum().backward()
    f, values = fad.from_torch(module, parameters=True)
    assert list(values) == ["0.weight", "2.weight", "2.bias"]
    loss = lambda p: fnp.sum(f(p, x.numpy()))
    for g in (fad.grad(loss), fad.jit(fad.grad(loss))):
        found = g(values)
        for name, p in module.named_parameters():
            if p.requires_grad:
                assert_close(found[name], p.grad.numpy(), rtol=1e-5)
    with torch.no_grad():
        module[2].bias.add_(7)
    assert_close(fad.from_torch(module)(x.numpy()), module(x).detach().numpy(), rtol=1e-5)
    assert_close(f(values, x.numpy()), module(x).detach().numpy() - 7, rtol=1e-4)


def test_operations_without_a_forward_derivative(torch):
    torch.manual_seed(0)
    module = torch.nn.LSTM(3, 2, batch_first=True)
    f = fad.from_torch(lambda x: module(x)[0])
    x = np.random.default_rng(0).normal(size=(1, 4, 3)).astype("f4")
    t = torch.tensor(x, requires_grad=True)
    module(t)[0].sum().backward()
    assert_close(fad.grad(lambda x: fnp.sum(f(x)))(x), t.grad.numpy(), rtol=1e-4)
    along = fad.jvp(lambda x: fnp.sum(f(x)), (x,), (x,))[1]
    assert_close(along, np.sum(x * t.grad.numpy()), rtol=1e-4)


def test_the_function_passes_the_checks_of_rules(torch):
    f = fad.from_torch(lambda x, y: torch.sin(x) * y)
    assert gradcheck(lambda x, y: f(x, y), (np.ones(3), np.arange(3.0)))

    class Wrapped(fad.Function):
        forward = staticmethod(lambda x: f(x, x))

    assert_close(
        fad.hessian(lambda x: fnp.sum(Wrapped.apply(x)))(np.ones(1)),
        np.array([[2 * math.cos(1) - math.sin(1)]]),
        rtol=1e-9,
    )


def test_both_bridges(torch):
    there = fad.from_torch(fad.to_torch(lambda x: fnp.sin(x) * x))
    g = fad.grad(fad.grad(there))
    assert_close(g(0.4), 2 * math.cos(0.4) - 0.4 * math.sin(0.4), rtol=1e-9)


def test_threads(torch):
    f = fad.from_torch(lambda x: torch.sin(x) * x)
    g = fad.grad(fad.grad(f))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: float(g(fad.tensor(float(k)))), range(16)))
    k = np.arange(16.0)
    np.testing.assert_allclose(found, 2 * np.cos(k) - k * np.sin(k), rtol=1e-4, atol=1e-4)


BAD = [
    (lambda torch: fad.from_torch(3), ArgumentError, "must be a function, got int 3"),
    (lambda torch: fad.from_torch(abs, parameters=True), ArgumentError, "needs a torch.nn.Module"),
    (lambda torch: fad.from_torch(torch.sin)(torch.ones(2)), ArgumentError, "fad.from_dlpack"),
    (lambda torch: fad.from_torch(torch.sin)({1}), ArgumentError, "must be hashable"),
    (lambda torch: fad.from_torch(lambda x: 1.0)(1.0), ArgumentError, "must return tensors.*float"),
    (lambda torch: fad.from_torch(lambda x: x.item())(1.0), ArgumentError, "torch.as_tensor"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[2])
def test_bad_calls(torch, bad):
    call, error, match = bad
    with pytest.raises(error, match=match):
        call(torch)


def test_shapes_that_depend_on_numbers_are_refused(torch):
    f = fad.from_torch(lambda x: x[x > 0])
    assert f(jnp.ones(3)).shape == (3,)
    with pytest.raises(StructureError, match="shapes must not depend on numbers"):
        f(-jnp.ones(3))


def test_linear_transpose_says_to_take_the_pullback(torch):
    """What PyTorch computes is not known to be linear; the pullback is the transpose of what is."""
    matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)
    f = fad.from_torch(lambda x: matrix @ x)
    x, g = jnp.zeros(2), jnp.array([1.0, -1.0, 2.0])
    for transpose in (jax.linear_transpose, fad.linear_transpose):
        for body in (f, lambda x: f(x) * 2.0 + f(x)):
            with pytest.raises(
                GradientError, match=r"linear_transpose: .*host.*write jax.vjp\(f, \*args\)"
            ):
                transpose(body, x)(g)
    expected = matrix.numpy().T @ np.asarray(g)
    np.testing.assert_allclose(jax.vjp(f, x)[1](g)[0], expected)
    np.testing.assert_allclose(fad.vjp(f, x)[1](g)[0], expected)
