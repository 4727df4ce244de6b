"""Norms and distances at their kinks: against PyTorch, differences, and JAX's cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.scipy.cluster.vq import vq

INF = math.inf
# Rows that are zero beside rows with zeros, with ties, and with neither.
ROWS = np.array([[0.0, 0, 0, 0], [3, 4, 0, 0], [1, -2, 0.5, 0], [2, 2, -2, 2], [1, 2, 3, 4]])
ORDERS = (1, 2, INF, -INF, 0, 0.5, 1.5, 2.5, 3, 4, -1, -2)


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: fnp.sum(f(*args))


@pytest.mark.parametrize("kind", ["real", "complex"])
@pytest.mark.sweep("p", ORDERS, sample=3)
def test_norms_of_vectors_vs_torch(p: float, kind: str, torch: Any) -> None:
    values = ROWS if kind == "real" else ROWS * (1 + 1j * np.roll(ROWS, 1, 0))
    with jax.enable_x64(True):
        x = jnp.array(values)
        f = lambda x: fnp.linalg.vector_norm(x, ord=p, axis=-1)
        t = torch.tensor(values, requires_grad=True)
        out = torch.linalg.vector_norm(t, p, dim=-1)
        expected = np.zeros_like(values)
        if p != 0:
            out.sum().backward()
            expected = t.grad.numpy()
        np.testing.assert_allclose(f(x), out.detach(), rtol=1e-12)
        for g in (
            f,
            lambda x: fnp.linalg.norm(x, p, -1),
            lambda x: fnp.linalg.norm(x.T, p, 0, keepdims=True),
            lambda x: fad.asarray(x).norm(p, dim=1),
            fad.vmap(lambda row: fnp.linalg.norm(row, p)),
        ):
            np.testing.assert_allclose(fad.grad(total(g))(x), expected, rtol=1e-9, atol=1e-12)
        along = jnp.array(values[::-1] + 0.3)
        moved = np.sum(np.real(np.conj(expected) * along), -1)
        np.testing.assert_allclose(fad.jvp(f, (x,), (along,))[1], moved, rtol=1e-9, atol=1e-12)
        second = fad.jvp(fad.grad(total(f)), (x,), (along,))[1]
        assert np.isfinite(second).all()
        assert not np.any(second[0])  # 0 where the whole row is 0


def test_second_derivatives_of_norms_vs_torch(torch: Any) -> None:
    with jax.enable_x64(True):
        for p in (2, 3, 4):
            wanted = torch.autograd.functional.hessian(
                lambda t, p=p: torch.linalg.vector_norm(t, p, dim=-1).sum(), torch.tensor(ROWS)
            ).numpy()
            f = total(lambda x, p=p: fnp.linalg.norm(x, p, -1))
            for hessian in (fad.hessian(f), fad.jacrev(fad.jacrev(f))):
                found = np.array(hessian(jnp.array(ROWS)))
                assert not np.any(found[0])
                # NaN in PyTorch where a whole row is 0
                np.testing.assert_allclose(found, np.nan_to_num(wanted), atol=1e-12)


def _ways(f: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """The derivative of ``f`` at ``x`` along ``v``, in many ways."""

    def dual(x: Any, v: Any) -> Any:
        with fad.dual_level():
            return fad.unpack_dual(f(fad.make_dual(x, v))).tangent

    def on_tape(x: Any, v: Any) -> Any:
        t = fad.tensor(x, requires_grad=True)
        fnp.sum(f(t)).backward()
        return fnp.sum(t.grad * v)

    native = fad.to_jax(f)
    reverse = lambda grad: lambda x, v: jnp.sum(grad(x) * v)
    return {
        "grad": reverse(fad.grad(f)),
        "jacrev": reverse(fad.jacrev(f)),
        "jacfwd": reverse(fad.jacfwd(f)),
        "jvp": lambda x, v: fad.jvp(f, (x,), (v,))[1],
        "dual level": dual,
        "jet": lambda x, v: fad.jet(f, (x,), ([v, None, None],))[1][0],
        "tape": on_tape,
        "vmap of grad": lambda x, v: jnp.sum(fad.vmap(fad.grad(f))(jnp.stack([x, x + 1.0]))[0] * v),
        "grad of vmap": lambda x, v: jnp.sum(
            fad.grad(total(fad.vmap(f)))(jnp.stack([x + 1.0, x]))[1] * v
        ),
        "jit": reverse(fad.jit(fad.grad(f))),
        "linearize": lambda x, v: fad.linearize(f, x)[1](v),
        "JAX's grad": reverse(jax.jit(jax.grad(native))),
        "JAX's jvp": lambda x, v: jax.jvp(native, (x,), (v,))[1],
        "JAX's vmap": lambda x, v: jnp.sum(jax.vmap(jax.grad(native))(x[None])[0] * v),
    }


AT_ZERO = {
    "2-norm": lambda x: fnp.linalg.norm(x),
    "3-norm of vectors": lambda x: fnp.sum(fnp.linalg.norm(x, 3, axis=1)),
    "nuclear norm": lambda x: fnp.linalg.norm(x, "nuc"),
    "std": lambda x: fnp.std(x, ddof=1),
}


@pytest.mark.sweep("way", list(_ways(fnp.sum)), sample=4)
def test_all_transforms_have_the_subgradient(way: str) -> None:
    x, v = jnp.zeros((2, 3)), jnp.arange(6.0).reshape(2, 3)
    for name, f in AT_ZERO.items():
        assert float(_ways(f)[way](x, v)) == 0.0, name


def test_series_at_zero() -> None:
    line = ([jnp.array([1.0, 2.0]), None, None, None],)
    for f in (fnp.linalg.norm, fnp.std):
        out, terms = fad.jet(f, (jnp.zeros(2),), line)
        assert float(out) == 0.0 and list(map(float, terms)) == [0.0] * 4
        assert float(fad.laplacian(f)(jnp.zeros(2))) == 0.0


Q = np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2 + np.eye(3))[0]
WIDE = np.array([[1.0, 2.0, -1.0, 0.5], [0.3, -1.0, 2.0, 1.0]])
# Matrices, and the subgradients of least norm: nuclear, of the greatest and of the least singular value.
MATRICES: dict[str, tuple[Any, Any, Any, Any]] = {
    "zero": (np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3))),
    "identity": (np.eye(3), np.eye(3), np.eye(3) / 3, np.eye(3) / 3),
    "orthogonal": (Q, Q, Q / 3, Q / 3),
    "ones": (np.ones((3, 3)), np.ones((3, 3)) / 3, np.ones((3, 3)) / 3, np.zeros((3, 3))),
    "zero row": (
        np.diag([2.0, 1.0, 0.0]), np.diag([1.0, 1.0, 0.0]),
        np.diag([1.0, 0.0, 0.0]), np.zeros((3, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MATRICES)
def test_norms_of_singular_values_at_kinks(name: str) -> None:
    values, *expected = MATRICES[name]
    with jax.enable_x64(True):
        x = jnp.array(values)
        for order, want in zip(("nuc", 2, -2), expected, strict=True):
            f = lambda x, order=order: fnp.linalg.norm(x, order)
            np.testing.assert_allclose(fad.grad(f)(x), want, atol=1e-12)
            # in a batch, beside a matrix without a kink
            batch = jnp.stack([x, x + jnp.diag(jnp.arange(1.0, 4.0))[: len(x)]])
            of_both = fad.grad(lambda b, f=f: f(b[0]) + f(b[1]))(batch)
            whole = lambda b, order=order: fnp.linalg.norm(b, order, (1, 2), keepdims=True)
            np.testing.assert_allclose(fad.grad(total(whole))(batch), of_both, atol=1e-12)
            hessian = fad.jacfwd(fad.grad(f))(x)
            assert np.isfinite(hessian).all()
            np.testing.assert_allclose(fad.jacrev(fad.grad(f))(x), hessian, atol=1e-9)
    single = fad.grad(lambda x: fnp.linalg.norm(x, "nuc"))(jnp.array(values, jnp.float32))
    np.testing.assert_allclose(single, expected[0], atol=1e-6)


@pytest.mark.parametrize("order", ["nuc", 2, -2, "fro", 1, -1, INF, -INF])
def test_norms_of_matrices_where_they_are_smooth(order: Any, torch: Any) -> None:
    rotated = Q @ np.diag([3.0, 1.0, 1.0]) @ Q.T
    with jax.enable_x64(True):
        for values in (WIDE, WIDE.T, WIDE[:, :2] + 1j * WIDE[:, 2:], rotated):
            if values is rotated and order == -2:
                continue  # the least two are equal
            f = lambda x: fnp.linalg.matrix_norm(x, ord=order)
            x = jnp.array(values)
            t = torch.tensor(values, requires_grad=True)
            torch.linalg.matrix_norm(t, order).backward()
            np.testing.assert_allclose(fad.grad(f)(x), t.grad, atol=1e-10)
            v, step = jnp.array(np.cos(values)), 1e-5
            first = fad.grad(f)
            second = (first(x + step * v) - first(x - step * v)) / (2 * step)
            np.testing.assert_allclose(fad.jvp(first, (x,), (v,))[1], second, atol=1e-7)


def test_second_derivatives_of_the_nuclear_norm_of_equal_singular_values() -> None:
    with jax.enable_x64(True):
        first = fad.grad(lambda x: fnp.linalg.norm(x, "nuc"))
        x, v, step = jnp.array(Q), jnp.array(np.cos(np.arange(9.0)).reshape(3, 3)), 1e-5
        second = (first(x + step * v) - first(x - step * v)) / (2 * step)
        np.testing.assert_allclose(fad.jvp(first, (x,), (v,))[1], second, atol=1e-8)


def test_condition_numbers() -> None:
    with jax.enable_x64(True):
        x = jnp.array(np.diag([3.0, 2.0, 2.0, 1.0]))
        step = 1e-6
        for p in (None, 2, -2, "fro", "nuc"):
            f = lambda x, p=p: fnp.linalg.cond(x, p)
            np.testing.assert_allclose(f(x), jnp.linalg.cond(x, p), rtol=1e-12)
            expected = (f(x.at[0, 0].add(step)) - f(x.at[0, 0].add(-step))) / (2 * step)
            np.testing.assert_allclose(fad.grad(f)(x)[0, 0], expected, atol=1e-8)
            assert np.isfinite(fad.hessian(f)(x)).all()
        for p in (1, INF):  # zeros have the derivative 0
            found = fad.grad(lambda x, p=p: fnp.linalg.cond(x, p))(x)
            np.testing.assert_allclose(found, np.diag(np.diag(found)), atol=1e-12)
        assert (
            float(fad.grad(lambda x: fnp.linalg.cond(x, -2))(jnp.diag(jnp.array([1.0, 0])))[1, 1])
            == 0
        )


def test_distances() -> None:
    a, b = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[1.0, 2.0], [0.0, 0.0]])
    far = [[0.0, 0.0], [0.6, 0.8]]
    for f in (
        lambda a: fnp.linalg.norm(a - b, axis=1),
        lambda a: fad.asarray(a[0]).dist(b[0]) + fad.asarray(a[1]).dist(b[1]),
        lambda a: vq(a, b[:1])[1][0] + vq(a[1:], b[1:])[1],
    ):
        np.testing.assert_allclose(fad.grad(total(f))(a), far, atol=1e-6)
    pairs = lambda a: fnp.linalg.norm(a[:, None] - a[None], axis=-1)
    assert np.isfinite(fad.hessian(total(pairs))(a)).all()
    scaled = fad.grad(lambda a: fnp.sum(fad.asarray(a).renorm(2, 0, 1.0)))(a - b)
    np.testing.assert_allclose(scaled[0], [1.0, 1.0])
    code, distance = vq(fad.tensor(a), b)
    assert code.tolist() == [0, 0] and code.dtype == jnp.argmax(a).dtype
    np.testing.assert_allclose(distance.numpy(), [0.0, np.sqrt(8.0)], rtol=1e-6)
    assert fad.grad(lambda x: vq(x, a[:, 0])[1].sum())(jnp.array([1.0, 2.5])).tolist() == [
        0.0,
        -1.0,
    ]


def test_nan_gives_what_jax_gives() -> None:
    x = jnp.array([[1.0, jnp.nan, 2.0], [0.0, 0.0, 0.0], [jnp.inf, 1.0, -2.0]])
    for p in (1, 2, 3):
        ours = fad.grad(total(lambda x, p=p: fnp.linalg.norm(x, p, axis=1)))(x)
        theirs = jax.grad(lambda x, p=p: jnp.linalg.norm(x, p, axis=1).sum())(x)
        np.testing.assert_array_equal(ours[0], theirs[0])
        if p < 3:
            np.testing.assert_array_equal(ours[2], theirs[2])
        assert not np.any(ours[1])


def test_errors_are_those_of_jax() -> None:
    x = jnp.ones((2, 2))
    with pytest.raises(ValueError, match="Invalid order"):
        fnp.linalg.norm(x, "no")
    with pytest.raises(ValueError, match="Improper number of axes"):
        fnp.linalg.norm(jnp.ones((2, 2, 2)), 2)


COSTS: dict[str, Callable[[Any, Any], Any]] = {
    **{f"{p}-norm": lambda m, x, p=p: m.linalg.norm(x, p, axis=-1) for p in (1, 2, INF, 3, 2.5)},
    "nuc": lambda m, x: m.linalg.norm(x, "nuc"),
    "matrix 1-norm": lambda m, x: m.linalg.norm(x, 1),
    "complex": lambda m, x: m.linalg.norm(x + 1j * x[::-1], 1, axis=-1),
    "std": lambda m, x: m.std(x, axis=-1),
    "nanstd": lambda m, x: m.nanstd(x, axis=0, ddof=1),
}


@pytest.mark.sweep("name", list(COSTS), sample=3)
def test_value_and_gradient_cost_what_those_of_jax_cost(name: str) -> None:
    x = jnp.array(np.random.default_rng(0).normal(size=(256, 512)), jnp.float32)

    def cost(module: Any) -> Any:
        f = lambda x: COSTS[name](module, x)
        f = fad.to_jax(f) if module is fnp else f
        program = jax.jit(jax.value_and_grad(lambda x: jnp.sum(f(x)))).lower(x).compile()
        found = program.cost_analysis()
        return [found.get(key, 0.0) for key in ("flops", "transcendentals", "bytes accessed")]

    for ours, theirs in zip(cost(fnp), cost(jnp), strict=True):
        assert ours <= 1.15 * theirs
