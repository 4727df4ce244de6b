"""Updates of what a mask without concrete values selects: under vmap and jit as eagerly, and as in NumPy."""

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
from fad.errors import ArgumentError, HostValueError

X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, 0.0]], np.float32)
Y = np.array([[0.5, 1.5, 2.0], [0.7, -1.5, 0.0]], np.float32)


def change(x: Any, y: Any, update: str) -> Any:
    """``x`` after an update; ``m`` is where it is positive, ``r`` the same of its first row."""
    x = x * 1.0
    library = np if isinstance(x, np.ndarray) else fnp
    names = {"x": x, "y": y * 1.0, "m": x > 0, "r": x[0] > 0, "np": library}
    exec(update, names)
    return names["x"]


UPDATES = [
    *[f"x[m] {op}= 2.0" for op in "+ - * / // % **".split()],
    "x[m] = 7.0",
    "x[m] *= y[m]",
    "x[m] /= y[m]",  # 0 / 0 where the mask is false
    "x[m] = x[m] / (y[m] - 2 * y[m]) ** 2",
    "x[m] = 1.0 / y[m]",
    "x[m] += 3.0 - y[m] * y[m]",
    "x[m] = -abs(y[m])",
    "x[~m] *= -1.0",
    "x[..., r] *= 3.0",
    "x[:, r] += y[:, r]",
    "x[1, r] = y[0, r] + 1.0",
    "x[1:][:, r] -= 2.0",
    "x[0][r] *= 4.0",
    "x.T[r] += 1.0",
    "x[r[:2]] *= y[0]",  # a row for each that is selected
    "x[r[:2]] = y[0]",
    "x[None][0, m] *= 2.0",
    "k = x < -99; x[k] /= 0.0",  # selects nothing
    "x.reshape(-1)[m.reshape(-1)] *= 5.0",
    "x[m] = np.sin(x[m])",
    "x[m] = np.log(x[m]) * np.exp(-y[m])",  # the logarithm of numbers below 0 where the mask is false
    "x[m] = np.where(y[m] > 1, x[m], -x[m])",
    "x[m] = np.maximum(x[m], y[m] + 1.0)",
    "x[m] = np.hypot(np.arctan2(y[m], x[m]), 2.0)",
    "x[m] = x[m].clip(0.5, 2.0)",
    "x[m] = x[m].round(0).astype(np.int32)",
    "x[m] = np.square(x[m].astype(np.float32) + np.float32(1))",
    "x[m], y[m] = np.divmod(x[m], 2.0)",
    "x[:, r] = np.cbrt(x[:, r])",
    "k = r[:2]; x[k] = np.add(x[k], y[0])",
    "x[m] = np.clip(np.power(x[m], 2), None, 4.0)",
]


@pytest.mark.parametrize("update", UPDATES)
def test_an_update_is_numpys_under_vmap_and_jit(update: str) -> None:
    expected = change(X, Y, update)
    f = lambda x, y: change(x, y, update)
    assert_close(f(fad.asarray(X), fad.asarray(Y)).array, expected)
    both = fad.jit(fad.vmap(f))(jnp.stack([X, -X]), jnp.stack([Y, Y]))
    assert_close(both[0], expected)
    assert_close(both[1], change(-X, Y, update))


@pytest.mark.parametrize(
    "update",
    [
        "x[m] /= y[m]",
        "x[m] = x[m] ** y[m]",
        "x[:, r] *= y[:, r]",
        "x[m] = np.log(x[m]) * np.sin(y[m])",
        "x[m] = x[m].sqrt() if hasattr(x, 'sqrt') else x[m] ** 0.5",
    ],
)
def test_derivatives_are_those_of_the_selected_elements(update: str) -> None:
    def loss(x: Any, y: Any) -> Any:
        return (change(x, y, update) ** 2).sum()

    eager = fad.grad(loss, (0, 1))(X, Y)
    assert np.isfinite(np.asarray(eager)).all()
    assert_close(fad.jit(fad.grad(loss, (0, 1)))(X, Y), eager)
    assert_close(fad.vmap(fad.grad(loss, (0, 1)))(X[None], Y[None]), tuple(g[None] for g in eager))
    tangents = (jnp.ones_like(X), jnp.full_like(Y, 0.5))
    assert_close(
        fad.jit(lambda: fad.jvp(loss, (X, Y), tangents))(), fad.jvp(loss, (X, Y), tangents)
    )
    product = lambda f: fad.jvp(fad.grad(f), (X, Y), tangents)
    assert_close(fad.jit(lambda: product(loss))(), product(loss))


def test_updates_out_of_place() -> None:
    x = jnp.asarray(X)
    for name, by in [("set", 3.0), ("add", 1.0), ("multiply", 2.0), ("max", 2.0), ("power", 2.0)]:
        f: Callable[[Any], Any] = lambda x, name=name, by=by: getattr(x.at[x > 0], name)(by)
        assert_close(fad.vmap(f)(x[None])[0], getattr(x.at[x > 0], name)(by))


USES: list[Callable[[Any, Any], Any]] = [
    lambda x, m: x[m].sum(),
    lambda x, m: fnp.sum(x[m]),
    lambda x, m: x[m],
    lambda x, m: [x[m]],
    lambda x, m: len(x[m]),
    lambda x, m: x[m] + x,
    lambda x, m: x[m].shape,
    lambda x, m: x[m][0],
    lambda x, m: x.at[m].set(jnp.ones(3)),
    lambda x, m: fnp.concatenate([x[m], x[0]]),
    lambda x, m: fnp.cumsum(x[m]),
    lambda x, m: fnp.sort(x[m]),
    lambda x, m: x[m] - fnp.mean(x[m]),
    lambda x, m: fnp.add(x[m], x),
    lambda x, m: fnp.linalg.norm(x[m]),
    lambda x, m: fnp.tril(x[m]),
    lambda x, m: fnp.transpose(x[m]),
    lambda x, m: x[m].reshape(-1),
    lambda x, m: x[m].mul_(2.0),
    lambda x, m: fnp.broadcast_to(x[m], (4, *x.shape)),
]


@pytest.mark.parametrize("transform", [fad.vmap, fad.jit])
def test_what_needs_the_number_of_elements_is_refused(transform: Any) -> None:
    for use in USES:
        with pytest.raises(HostValueError, match=r"depends on data.*x\[mask\] \*= v"):
            transform(lambda x, use=use: use(x * 1.0, x > 0))(X[None])
    with pytest.raises(ArgumentError, match=r"another mask.*:\n    m = x > 0\n    x\[m\] \+= y"):
        transform(lambda x: change(x, x, "x[x > 0] += y[x < 0]"))(X[None])
    with pytest.raises(IndexError, match="shape of the mask"):
        transform(lambda x: change(x, x, "x[m[..., :1]] += 1.0"))(X[None])
    with pytest.raises(ArgumentError, match="can't be cast"):
        transform(lambda x: change(x.astype(int), x, "x = x.astype(int); x[m] /= 2.5"))(X[None])


def test_under_jax(torch: Any) -> None:
    f = fad.to_jax(lambda x: (change(x, fad.asarray(Y), "x[m] *= x[m] * y[m]") ** 2).sum())
    x = torch.tensor(X, requires_grad=True)
    z = x * 1.0
    m = z > 0
    z[m] *= x[m] * torch.tensor(Y)[m]
    (z**2).sum().backward()
    assert_close(jax.jit(jax.grad(f))(X), x.grad.numpy())
