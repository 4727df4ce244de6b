"""`backward` and `grad` on the eager tape, as PyTorch has them, and inside of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, bare, is_idle, leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.errors import GradientError

# backward


def test_backward_accumulates() -> None:
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    assert_close(x.grad, np.array([2.0, 4.0], np.float32))
    (3.0 * x).sum().backward()
    assert_close(x.grad, np.array([5.0, 7.0], np.float32))
    assert not x.grad.requires_grad
    x.grad = None
    (3.0 * x).sum().backward()
    assert_close(x.grad, np.array([3.0, 3.0], np.float32))


def test_backward_fills_every_leaf_it_reaches() -> None:
    x, w, unused, constant = leaf([1.0, 2.0]), leaf(3.0), leaf(1.0), fad.tensor([5.0, 6.0])
    (x * w * constant).sum().backward()
    assert_close(x.grad, np.array([15.0, 18.0], np.float32))
    assert_close(w.grad, np.float32(17.0))
    assert unused.grad is None and constant.grad is None


def test_backward_takes_a_cotangent() -> None:
    x = leaf([1.0, 2.0])
    (x * x).backward(fad.tensor([1.0, 10.0]))
    assert_close(x.grad, np.array([2.0, 40.0], np.float32))
    (x * x).backward(jnp.array([1.0, 0.0]))
    assert_close(x.grad, np.array([4.0, 40.0], np.float32))


def test_backward_of_a_leaf_gives_it_its_cotangent() -> None:
    x = leaf(3.0)
    x.backward()
    assert_close(x.grad, np.float32(1.0))
    fad.autograd.backward(x, fad.tensor(4.0))
    assert_close(x.grad, np.float32(5.0))


def test_backward_from_several_roots() -> None:
    x = leaf(2.0)
    a, b = x * x, fnp.exp(x)
    fad.autograd.backward([a, b], [None, fad.tensor(2.0)])
    np.testing.assert_allclose(bare(x.grad), 4.0 + 2.0 * np.exp(2.0), rtol=1e-6)


def test_backward_from_a_root_that_another_root_leads_to() -> None:
    x = leaf(2.0)
    y = x * x
    z = y * y
    fad.autograd.backward([y, z])
    assert_close(x.grad, np.float32(4.0 + 32.0))


def test_backward_into_named_inputs_only() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    (y * y).backward(inputs=[w])
    assert x.grad is None
    assert_close(w.grad, np.float32(24.0))
    y = x * w
    (y * y).backward(inputs=y)
    assert_close(y.grad, np.float32(12.0))
    assert x.grad is None


def test_the_gradient_of_an_unused_output_is_zero() -> None:
    x = leaf([3.0, 1.0, 2.0])
    parts = fnp.split(x, 3)
    (parts[1] * 2.0).sum().backward()
    assert_close(x.grad, np.array([0.0, 2.0, 0.0], np.float32))


def test_gradients_have_the_dtype_of_their_leaf() -> None:
    x = fad.tensor([1.0, 2.0], dtype=jnp.bfloat16, requires_grad=True)
    w = leaf([3.0, 4.0])
    (x * w).sum().backward()
    assert x.grad.dtype == jnp.bfloat16 and w.grad.dtype == np.float32


# A second pass


def test_a_second_backward_raises_and_says_what_to_pass() -> None:
    x = leaf([1.0, 2.0])
    y = fnp.sin(x).sum()
    y.backward()
    with pytest.raises(GradientError, match=r"second time.*retain_graph=True"):
        y.backward()
    with pytest.raises(GradientError, match="second time"):
        fad.autograd.grad(y, x)
    assert is_idle()


def test_retain_graph_keeps_the_graph() -> None:
    x = leaf(2.0)
    y = fnp.exp(x)
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(bare(x.grad), 2 * np.exp(2.0), rtol=1e-6)
    with pytest.raises(GradientError, match="second time"):
        y.backward()


def test_only_the_part_that_ran_is_freed() -> None:
    x, w = leaf(2.0), leaf(3.0)
    a, b = fnp.sin(x), fnp.cos(w)
    y = a * b
    fad.autograd.grad(y, w)
    # The pass for w did not need the sine.
    a.backward()
    np.testing.assert_allclose(bare(x.grad), np.cos(2.0), rtol=1e-6)


def test_a_backward_that_fails_leaves_no_trace() -> None:
    class Broken(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            raise KeyError("on purpose")

    x = leaf(1.0)
    with pytest.raises(KeyError, match="on purpose"):
        Broken.apply(x).backward()
    with pytest.raises(KeyError, match="on purpose"), fad.no_grad(), fad.enable_grad():
        fad.autograd.grad(Broken.apply(x), x, create_graph=True)
    assert is_idle() and x.grad is None


# autograd.grad


def test_grad_returns_and_does_not_accumulate() -> None:
    x, w = leaf(2.0), leaf(3.0)
    got = fad.autograd.grad(x * x * w, [x, w])
    assert isinstance(got, tuple)
    assert_close(got, (np.float32(12.0), np.float32(4.0)))
    assert x.grad is None and w.grad is None
    assert not got[0].requires_grad


def test_grad_with_respect_to_an_intermediate() -> None:
    x = leaf(2.0)
    y = x * x
    z = fnp.exp(y)
    (gy,) = fad.autograd.grad(z, y, retain_graph=True)
    np.testing.assert_allclose(bare(gy), np.exp(4.0), rtol=1e-6)
    gx, gy, gz = fad.autograd.grad(z, (x, y, z))
    np.testing.assert_allclose(bare([gx, gy, gz]), [4 * np.exp(4.0), np.exp(4.0), 1.0], rtol=1e-6)


def test_grad_of_several_outputs_adds_up() -> None:
    x = leaf([1.0, 2.0])
    (g,) = fad.autograd.grad([x * x, x.sum()], x, [fad.tensor([1.0, 10.0]), None])
    assert_close(g, np.array([3.0, 41.0], np.float32))


def test_create_graph_gives_gradients_with_a_history() -> None:
    x = leaf(0.7)
    expected = [np.cos(0.7), -np.sin(0.7), -np.cos(0.7), np.sin(0.7)]
    y = fnp.sin(x)
    for value in expected:
        (y,) = fad.autograd.grad(y, x, create_graph=True)
        assert y.requires_grad
        np.testing.assert_allclose(bare(y), value, rtol=1e-5)


def test_backward_with_create_graph() -> None:
    x = leaf(2.0)
    (x * x * x).backward(create_graph=True)
    assert x.grad.requires_grad
    first = x.grad
    x.grad = None
    first.backward()
    assert_close(x.grad, np.float32(12.0))


def test_a_gradient_penalty() -> None:
    """The norm of a gradient as part of a loss, a classical use of create_graph."""

    def loss(xp: Any, w: Any, x: Any) -> Any:
        return xp.sum(xp.tanh(x @ w) ** 2)

    w, x = leaf(np.linspace(-1.0, 1.0, 6).reshape(3, 2)), fad.tensor([[0.1, 0.2, 0.3]])
    (g,) = fad.autograd.grad(loss(fnp, w, x), w, create_graph=True)
    ((g * g).sum() + loss(fnp, w, x)).backward()

    def total(w: Any) -> Any:
        g = jax.grad(lambda w: loss(jnp, w, x.array))(w)
        return jnp.sum(g * g) + loss(jnp, w, x.array)

    assert_close(w.grad, jax.grad(total)(w.array))


def test_unused_inputs() -> None:
    x, unused = leaf(2.0), leaf([1.0, 1.0])

    def y() -> Any:
        return x * x

    with pytest.raises(GradientError, match=r"index 1.*not have been used.*allow_unused=True"):
        fad.autograd.grad(y(), [x, unused])
    g, none = fad.autograd.grad(y(), [x, unused], allow_unused=True)
    assert none is None and float(g) == 4.0
    g, zero = fad.autograd.grad(y(), [x, unused], materialize_grads=True)
    assert_close((g, zero), (np.float32(4.0), np.zeros(2, np.float32)))
    with pytest.raises(ValueError, match=r"materialize_grads=True.*allow_unused=False"):
        fad.autograd.grad(y(), x, allow_unused=False, materialize_grads=True)


def test_batched_cotangents_give_a_jacobian() -> None:
    x = leaf([0.5, 1.5])

    def f(xp: Any, x: Any) -> Any:
        return xp.stack([xp.sin(x[0]) * x[1], x[0] * x[1] ** 2, x[1]])

    expected = jax.jacobian(lambda x: f(jnp, x))(x.array)
    y = f(fnp, x)
    (rows,) = fad.autograd.grad(y, x, fnp.eye(3), is_grads_batched=True, retain_graph=True)
    assert_close(rows, expected)
    assert isinstance(rows, fad.Tensor) and not rows.requires_grad
    (rows,) = fad.autograd.grad(y, x, fad.tensor(np.eye(3)), is_grads_batched=True)
    assert_close(rows, expected)


def test_batched_cotangents_with_create_graph() -> None:
    x = leaf([0.5, 1.5])
    y = fnp.sin(x) * x
    (rows,) = fad.autograd.grad(y, x, fnp.eye(2), is_grads_batched=True, create_graph=True)
    assert rows.requires_grad
    (g,) = fad.autograd.grad((rows * rows).sum(), x)

    def total(x: Any) -> Any:
        j = jax.jacobian(lambda x: jnp.sin(x) * x)(x)
        return jnp.sum(j * j)

    assert_close(g, jax.grad(total)(x.array))


def test_batched_cotangents_of_several_outputs_and_unused_inputs() -> None:
    x, unused = leaf(2.0), leaf([1.0])
    got = fad.autograd.grad(
        [x * x, x],
        [x, unused],
        [fad.tensor([1.0, 0.0]), fad.tensor([0.0, 1.0])],
        is_grads_batched=True,
        materialize_grads=True,
    )
    assert_close(got, (np.array([4.0, 1.0], np.float32), np.zeros((2, 1), np.float32)))


# PyTorch itself


def programs() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Scalar functions of x (3), w (3, 2) and z (2, complex), in a namespace both libraries have."""
    yield "arithmetic", lambda xp, x, w, z: ((x * 2 - 1) / (x * x + 1)).sum() + (-x).sum() ** 2
    yield "elementwise", lambda xp, x, w, z: (xp.sin(x) * xp.exp(w[:, 0]) + xp.tanh(x)).sum()
    yield "broadcast", lambda xp, x, w, z: (x[:, None] * w + w.sum(0)).sum() * x.mean()
    yield "matmul", lambda xp, x, w, z: ((x @ w) ** 2).sum()
    yield "indexing", lambda xp, x, w, z: (x[1:] * x[:-1]).sum() + w[[0, 2], [1, 0]].sum() * x[-1]
    yield "where", lambda xp, x, w, z: xp.where(x > 0.5, x * x, xp.sin(x)).sum() + w.sum()
    yield "maximum", lambda xp, x, w, z: (xp.maximum(x, w[:, 1]) * x).sum()
    yield "ties", lambda xp, x, w, z: (xp.maximum(x, x * 1) * x).sum()
    yield "abs at zero", lambda xp, x, w, z: xp.abs(x - x[1]).sum() + (w * w).sum()
    yield "stack", lambda xp, x, w, z: (xp.stack([x, w[:, 0], x * x]) ** 3).sum()
    yield "cumsum", lambda xp, x, w, z: (xp.cumsum(x, 0) * w[:, 0]).sum()
    yield "reshape", lambda xp, x, w, z: (w.reshape(2, 3) @ x).sum() + (w.T @ x).sum() ** 2
    yield "max", lambda xp, x, w, z: w.max() * x.min()
    yield "complex", lambda xp, x, w, z: xp.abs(z * z + z).sum() + (z * xp.conj(z)).real.sum()
    yield "complex parts", lambda xp, x, w, z: (z.real * xp.exp(z).imag).sum() * x.sum() + w.sum()


PROGRAMS = dict(programs())
VALUES = [
    np.array([0.3, 0.7, 1.1], np.float32),
    np.array([[0.5, -1.0], [0.25, 2.0], [1.5, 0.75]], np.float32),
    np.array([0.4 + 0.3j, -1.0 + 0.5j], np.complex64),
]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_pytorchs(torch: Any, program: Callable[..., Any]) -> None:
    mine = [leaf(v) for v in VALUES]
    theirs = [torch.tensor(v, requires_grad=True) for v in VALUES]
    y, t = program(fnp, *mine), program(torch, *theirs)
    assert_close(y, t.detach().numpy())
    first = fad.autograd.grad(y, mine, create_graph=True, allow_unused=True)
    expected = torch.autograd.grad(t, theirs, create_graph=True, allow_unused=True)
    assert [g is None for g in first] == [g is None for g in expected]
    pairs = [(g, e) for g, e in zip(first, expected, strict=True) if g is not None]
    for g, e in pairs:
        assert_close(g, e.detach().resolve_conj().numpy())
    # The gradient of a weighted sum of gradients: a second pass.
    pairs = [(g, e) for g, e in pairs if e.requires_grad]
    second = sum((fnp.abs(g * g) * 0.5).sum() + fnp.real(g).sum() for g, _ in pairs)
    other = sum((torch.abs(e * e) * 0.5).sum() + torch.real(e).sum() for _, e in pairs)
    second.backward()
    other.backward()
    for x, e in zip(mine, theirs, strict=True):
        if e.grad is not None:
            assert_close(x.grad, e.grad.resolve_conj().numpy(), rtol=1e-3)


X = jnp.array([0.3, -0.8, 1.2])


# Inside of transforms


def test_backward_inside_of_transforms() -> None:
    def slope(x: Any) -> Any:
        leaf = fad.asarray(x).clone().requires_grad_()
        fnp.sin(leaf).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    assert_close(fad.vmap(slope)(X), jnp.cos(X))
    assert_close(fad.jit(slope)(X), jnp.cos(X))
    assert_close(fad.jacfwd(slope)(X), jnp.diag(-jnp.sin(X)))
    assert_close(fad.checkpoint(slope)(X), jnp.cos(X))


# Edges


def test_materialized_zeros_for_an_edge() -> None:
    x, other = leaf(2.0), leaf([1.0, 2.0])
    edge = autograd.get_gradient_edge(other)
    (g,) = autograd.grad(x * x, edge, materialize_grads=True)
    assert g.tolist() == [0.0, 0.0], "PyTorch refuses this"


def test_batched_gradients_with_edges_and_create_graph() -> None:
    x = leaf([1.0, 2.0])
    y = x * x * x
    (g,) = autograd.grad(
        y, autograd.get_gradient_edge(x), fnp.eye(2), is_grads_batched=True, create_graph=True
    )
    assert np.allclose(g.detach().numpy(), np.diag([3.0, 12.0]))
    (h,) = autograd.grad(g, x, fnp.ones((3, 2, 2)), is_grads_batched=True)
    assert np.allclose(h.numpy(), [[6.0, 12.0]] * 3)


def test_iterables_are_taken_for_sequences(torch: Any) -> None:
    """As ``model.parameters()``, a generator; PyTorch's `backward` asks for its length, fad's does not."""
    for lib in (fad, torch):
        xs = [lib.tensor(v, requires_grad=True) for v in (2.0, 3.0)]

        def some() -> Any:
            yield from xs

        product = lambda: xs[0] * xs[1]
        assert [float(g) for g in lib.autograd.grad(product(), some())] == [3.0, 2.0]
        ones = (lib.tensor(1.0) for _ in range(2))
        grads = lib.autograd.grad((product() for _ in range(2)), some(), ones)
        assert [float(g) for g in grads] == [6.0, 4.0]
        lib.autograd.backward((product() for _ in range(2)), inputs=xs)
        assert float(xs[0].grad) == 6.0
    x = leaf([1.0])
    (x * 3.0).sum().backward(inputs=(t for t in [x]))
    assert float(x.grad[0]) == 3.0
    seen: list[Any] = []
    fad.autograd.register_multi_grad_hook((t for t in [x]), seen.append)
    (x * 3.0).sum().backward()
    assert len(seen) == 1
