"""What a vmap returns of its arguments: them, or views of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import GradientError, LevelError

VALUES = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4) / 7

# What a lane returns of its argument; in_dims, out_dims.
VIEWS: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "itself": (lambda a: a, 0, 0),
    "itself, moved": (lambda a: a, 0, 1),
    "itself, of the last dimension": (lambda a: a, -1, 0),
    "transposed": (lambda a: a.T, 0, 0),
    "transposed, moved": (lambda a: a.T, 1, -1),
    "row": (lambda a: a[1], 0, 0),
    "window": (lambda a: a[1:, :2], 2, 0),
    "strided": (lambda a: a[:, ::2], 0, 2),
    "element": (lambda a: a[1, 1], 0, 0),
    "of a view": (lambda a: a[1:].T[:1], 0, 0),
    "reshaped": (lambda a: a.reshape(-1), 0, 0),
    "newaxis": (lambda a: a[None], 1, 1),
    "after a write": (lambda a: a.mul_(2.0)[1:], 0, 0),
    "written": (lambda a: a.sin_(), 0, 0),
    "written through a view": (lambda a: (a[1:].cos_(), a)[1], 0, 0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_the_result_reaches_the_argument(torch: Any, name: str) -> None:
    f, in_dims, out_dims = VIEWS[name]

    def run(xp: Any, vmap: Any, x: Any) -> Any:
        w = x.clone()
        z = w * 1.0
        y = vmap(f, in_dims, out_dims)(z)
        seen = y.sum()
        y.mul_(3.0)
        z.add_(1.0)
        return y, z, xp.autograd.grad((y * y).sum() + seen + z.sum(), x)[0]

    expected = run(torch, torch.func.vmap, torch.tensor(VALUES, requires_grad=True))
    for _ in range(4):  # the repeated call is replayed
        got = run(fad, fad.vmap, fad.tensor(VALUES, requires_grad=True))
        for ours, theirs in zip(got, expected, strict=True):
            assert_close(ours, theirs.detach().numpy())


@pytest.mark.parametrize("name", VIEWS)
def test_the_base_of_the_result_is_the_argument(torch: Any, name: str) -> None:
    f, in_dims, out_dims = VIEWS[name]
    x, t = fad.tensor(VALUES), torch.tensor(VALUES)
    y, s = fad.vmap(f, in_dims, out_dims)(x), torch.func.vmap(f, in_dims, out_dims)(t)
    assert (y is x) == (s is t)
    assert y is x or y.base is x
    part = x[1:]
    of_part = fad.vmap(f, in_dims, out_dims)(part)
    assert of_part is part or of_part.base is x


def test_arguments_that_all_lanes_share(torch: Any) -> None:
    def run(xp: Any, vmap: Any, tensor: Any) -> Any:
        x, w = tensor(VALUES), tensor(VALUES[0, 0])
        same = vmap(lambda a, b: b, (0, None), None)(x, w)
        repeated, part = vmap(lambda a, b: (b, b[1:]), (0, None))(x, w)
        w.add_(1.0)
        for view in (repeated, part):
            with pytest.raises((RuntimeError, ValueError), match="single memory location"):
                view.add_(1.0)
        return same is w, repeated.tolist(), part.tolist()

    assert run(fad, fad.vmap, fad.tensor) == run(torch, torch.func.vmap, torch.tensor)


def test_one_result_of_several_and_one_inside_of_another() -> None:
    x = fad.tensor(VALUES)
    whole, row, fresh = fad.vmap(lambda a: (a, a[0], a * 2.0))(x)
    assert whole is x and row.base is x and fresh.base is None
    fresh.zero_()
    assert_close(x, VALUES)
    inner = fad.vmap(fad.vmap(lambda a: a[1:]))(x)
    assert inner.base is x
    inner.zero_()
    assert_close(x, np.where(np.arange(4) == 0, VALUES, 0.0))
    split = fad.vmap(lambda a: a[1:], chunk_size=1)(x)
    assert split.base is None  # in chunks it is made of several


def test_of_an_array_nothing_is_a_view() -> None:
    x = jnp.asarray(VALUES)
    assert not isinstance(fad.vmap(lambda a: a[1:])(x), fad.Tensor)
    assert_close(fad.vmap(lambda a: a.mul_(2.0))(x), VALUES * 2)
    assert_close(x, VALUES)


def test_a_result_inside_of_other_transforms() -> None:
    def f(x: Any) -> Any:
        z = x * 1.0
        y = fad.vmap(lambda a: a[1:])(z)
        y.mul_(x[:, :2])
        return (z * z).sum()

    def plain(x: Any) -> Any:
        return (x[:, :1] ** 2).sum() + ((x[:, 1:] * x[:, :2]) ** 2).sum()

    x, t = jnp.asarray(VALUES), jnp.cos(jnp.asarray(VALUES))
    for m in (fad.grad, fad.hessian, lambda g: fad.jit(fad.grad(g)), fad.jacfwd):
        assert_close(m(f)(x), fad.jit(m(plain))(x))
    assert_close(fad.jvp(f, (x,), (t,)), fad.jit(lambda x: fad.jvp(plain, (x,), (t,)))(x))


def test_views_of_many_stay_what_they_are_in_each_lane() -> None:
    x = fad.tensor(VALUES, requires_grad=True)
    parts = fad.vmap(lambda a: tuple(a.unbind()))(x * 1.0)
    with pytest.raises(GradientError, match="returns multiple views"):
        parts[0].mul_(2.0)


def test_a_captured_tensor_is_still_refused() -> None:
    w = fad.tensor(VALUES[0])
    with pytest.raises(LevelError, match="captured from outside"):
        fad.vmap(lambda a: w.mul_(a))(fad.tensor(VALUES))
    assert_close(w, VALUES[0])
    assert_close(fnp.sum(w), VALUES[0].sum())
