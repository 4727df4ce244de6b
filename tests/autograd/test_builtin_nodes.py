"""Built-in nodes: errors on the way back, copies, and nodes between devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from nodes import edge, like

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import GradientEdge
from fad.errors import GradientError

DEVICES = jax.devices("cpu")


def test_error() -> None:
    x = leaf(1.0)
    node = autograd.Error("no derivative here", [edge(x)])
    out = autograd.set_history(fad.tensor(1.0), node)
    with pytest.raises(GradientError, match="no derivative here"):
        out.backward()
    assert x.grad is None


def test_not_implemented() -> None:
    x = leaf(1.0)
    out = autograd.set_history(fad.tensor(1.0), autograd.NotImplemented("besselk", [edge(x)]))
    with pytest.raises(GradientError, match="derivative for besselk is not implemented"):
        out.backward()


def test_delayed_error() -> None:
    x, c = leaf([1.0, 2.0]), fad.tensor(3.0)
    y, d = autograd.DelayedError("not twice")(x * 2.0, c)
    assert y.tolist() == [2.0, 4.0] and y.grad_fn.name() == "Error" and not d.requires_grad
    with pytest.raises(GradientError, match="not twice"):
        (y * d).sum().backward()
    with fad.no_grad():
        assert not autograd.DelayedError("not twice")(x).requires_grad
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        autograd.DelayedError("not twice", num_inputs=1)(x, x)
    assert autograd.DelayedError("not twice", num_inputs=2)(x, None)[1] is None


def test_delayed_error_guards_every_level() -> None:
    guard = autograd.DelayedError("stop here")
    with pytest.raises(GradientError, match="stop here"):
        fad.grad(lambda x: guard(x) * 2.0)(1.0)
    x = leaf(2.0)
    out = fad.grad(lambda t: t * t * x)(guard(x))
    with pytest.raises(GradientError, match="stop here"):
        out.backward()
    inner = fad.grad(lambda t: t * t * guard(x))(1.0)  # x is from outside of this level
    with pytest.raises(GradientError, match="stop here"):
        fad.asarray(inner).backward()
    assert fad.vmap(guard)(jnp.arange(3.0)).tolist() == [0.0, 1.0, 2.0]
    assert fad.jvp(guard, (1.0,), (2.0,))[1] == 2.0, "it is about gradients alone"


def test_undefined_grad() -> None:
    x = leaf([1.0, 2.0])
    y = autograd.UndefinedGrad()(x)
    assert y.tolist() == [1.0, 2.0] and y.grad_fn.name() == "UndefinedGradBackward"
    y.sum().backward()
    assert x.grad is None
    assert autograd.grad(y.sum(), x, allow_unused=True) == (None,)


def test_graph_root() -> None:
    x, y = leaf(1.0), leaf([1.0, 2.0])
    root = autograd.GraphRoot([edge(x * 3.0), edge(y)], [fad.tensor(5.0), fad.tensor([6.0, 7.0])])
    assert root.num_inputs == 2 and root.input_metadata(1).shape == (2,)
    autograd.backward(GradientEdge(root, 0))
    assert float(x.grad) == 15.0 and y.grad.tolist() == [6.0, 7.0]
    assert root()[0].item() == 5.0


def test_identity() -> None:
    x = leaf(1.0)
    node = like(autograd.Identity([edge(x)]), x)
    autograd.backward(GradientEdge(node, 0), fad.tensor(4.0))
    assert float(x.grad) == 4.0 and node.is_traceable
    assert isinstance(node, autograd.TraceableNode)


def test_copy_by_dtype() -> None:
    x = leaf([1.0, 2.0])
    y = x.to(jnp.bfloat16)
    assert y.dtype == jnp.bfloat16 and y.grad_fn.name() == "CopyBackwards"
    (y * 2.0).sum().backward()
    assert x.grad.dtype == np.float32 and x.grad.tolist() == [2.0, 2.0]
    assert x.to(np.float32) is x and x.to("float32") is x
    assert not x.to(int).requires_grad
    assert fad.grad(lambda t: t.to(jnp.float16).sum())(jnp.ones(2)).dtype == np.float32
    assert fad.vmap(lambda t: t.to(jnp.float16))(jnp.ones(2)).dtype == np.float16


def test_copy_to_a_device_and_back() -> None:
    x = leaf([1.0, 2.0])
    y = x.to(DEVICES[5])
    assert y.devices() == {DEVICES[5]} and y.grad_fn.name() == "CopyBackwards"
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.devices()))
    (y * y).sum().backward()
    assert seen == [{DEVICES[5]}] and x.grad.devices() == {DEVICES[0]}
    assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_copy_to_a_sharding(kind: str) -> None:
    axis_type = getattr(jax.sharding.AxisType, kind)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(axis_type,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    x = leaf(np.arange(8.0, dtype=np.float32))
    y = x.to(sharding)
    assert y.sharding == sharding
    (y * y).sum().backward()
    assert x.grad.devices() == {DEVICES[0]} and x.grad.tolist() == [2.0 * k for k in range(8)]


def test_copy_backwards_by_hand() -> None:
    x = leaf([1.0, 2.0])
    node = autograd.CopyBackwards([edge(x)], jnp.float32, x.sharding)
    node.add_input_metadata((2,), jnp.float16)
    g = fad.asarray(jax.device_put(jnp.ones(2, jnp.float16), DEVICES[1]))
    autograd.backward(GradientEdge(node, 0), g)
    assert x.grad.dtype == np.float32 and x.grad.devices() == {DEVICES[0]}


# Several devices


def test_scatter() -> None:
    assert len(DEVICES) == 8
    x = leaf(np.arange(16.0, dtype=np.float32))
    parts = autograd.Scatter(DEVICES)(x)
    assert [p.devices() for p in parts] == [{d} for d in DEVICES]
    assert [p.tolist() for p in parts] == [[2.0 * k, 2.0 * k + 1.0] for k in range(8)]
    assert parts[0].grad_fn is parts[7].grad_fn and parts[0].grad_fn.name() == "Gather"
    for k, p in enumerate(parts):
        (p * (k + 1.0)).sum().backward(retain_graph=True)
    assert x.grad.devices() == {DEVICES[0]}
    assert x.grad.tolist() == [float(k // 2 + 1) for k in range(16)]


def test_scatter_in_uneven_parts() -> None:
    x = leaf(np.ones((2, 10), np.float32))
    parts = autograd.Scatter(DEVICES[:4], dim=1)(x)
    assert [p.shape for p in parts] == [(2, 3), (2, 3), (2, 3), (2, 1)]
    assert len(autograd.Scatter(DEVICES[:4], dim=-1)(x[:, :5])) == 3
    parts = autograd.Scatter(DEVICES[:2], [7, 3], dim=1)(x)
    assert [p.shape for p in parts] == [(2, 7), (2, 3)]
    (parts[1] * 5.0).sum().backward()
    assert x.grad[0].tolist() == [0.0] * 7 + [5.0] * 3
    for sizes in ([5, 4], [5, 3, 2]):
        with pytest.raises(ValueError, match="numbers that add up to 10"):
            autograd.Scatter(DEVICES[:2], sizes, dim=1)(x)


def test_gather() -> None:
    xs = [
        fad.asarray(jax.device_put(jnp.full(2, float(k)), d)).requires_grad_()
        for k, d in enumerate(DEVICES)
    ]
    y = autograd.Gather(DEVICES[3])(*xs)
    assert y.devices() == {DEVICES[3]} and y.grad_fn.name() == "Scatter"
    assert y.tolist() == [float(k // 2) for k in range(16)]
    (y * y).sum().backward()
    for k, (x, d) in enumerate(zip(xs, DEVICES, strict=True)):
        assert x.grad.devices() == {d} and x.grad.tolist() == [2.0 * k] * 2
    with pytest.raises(ValueError, match="at least one Tensor"):
        autograd.Gather(DEVICES[0])()


def test_gather_of_scalars_gives_a_vector() -> None:
    """As in PyTorch, whose Gather unsqueezes them."""
    x, y = leaf(2.0), fad.asarray(jax.device_put(jnp.array(3.0), DEVICES[1])).requires_grad_()
    z = autograd.Gather(DEVICES[2])(x, y)
    assert z.tolist() == [2.0, 3.0] and z.devices() == {DEVICES[2]}
    assert [g.shape for g in z.grad_fn(fad.tensor([1.0, 1.0]))] == [(), ()]
    (z * fad.asarray(jax.device_put(jnp.array([5.0, 7.0]), DEVICES[2]))).sum().backward()
    assert (float(x.grad), float(y.grad)) == (5.0, 7.0) and y.grad.devices() == {DEVICES[1]}
    with pytest.raises(ValueError, match=r"Scatter: Tensor float32\[\] has no dimension 0"):
        autograd.Scatter(DEVICES)(x)


def test_gather_of_what_requires_no_grad() -> None:
    c = fad.tensor([1.0])
    assert not autograd.Gather(DEVICES[0])(c, c).requires_grad
    x = leaf([2.0])
    y = autograd.Gather(DEVICES[0])(c, x)
    assert [e.is_valid() for e in y.grad_fn.next_edges] == [False, True]
    y.sum().backward()
    assert x.grad.tolist() == [1.0]


def test_scatter_and_gather_are_each_others_backward() -> None:
    x = leaf(np.arange(8.0, dtype=np.float32))
    y = autograd.Gather(DEVICES[0])(*[fnp.sin(p) * p for p in autograd.Scatter(DEVICES)(x)])
    v = np.linspace(1.0, 2.0, 8, dtype=np.float32)
    (g,) = autograd.grad(y, x, fad.tensor(v), create_graph=True)
    expected = jax.grad(lambda t: jnp.sum(jnp.sin(t) * t * v))(x.array)
    np.testing.assert_allclose(g.detach().numpy(), expected, rtol=1e-5)
    (h,) = autograd.grad(g.sum(), x)
    second = jax.grad(lambda t: jax.grad(lambda t: jnp.sum(jnp.sin(t) * t * v))(t).sum())(x.array)
    np.testing.assert_allclose(h.numpy(), second, rtol=1e-4)


def test_scatter_and_gather_under_transforms() -> None:
    w = leaf([3.0, 4.0])

    def f(x: Any) -> Any:
        a, b = autograd.Scatter(DEVICES[:2])(x)
        y = autograd.Gather(DEVICES[0])(a * a, b, w)  # w is of a level outside
        return (y * y).sum()

    x = jnp.array([1.0, 2.0])
    assert fad.grad(f)(x).tolist() == [4.0, 4.0]
    assert fad.jvp(f, (x,), (jnp.ones(2),))[1] == 8.0
    value = fad.value_and_grad(f)(fad.asarray(x))[0]
    value.backward()
    assert w.grad.tolist() == [6.0, 8.0]
    assert fad.vmap(fad.grad(f))(jnp.stack([x, 2 * x])).tolist() == [[4.0, 4.0], [32.0, 8.0]]
