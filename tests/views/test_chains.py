"""A view is made again in one call for each version of its base, and only if it is read."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
import fad.numpy as fnp
from fad.core.primitive import Primitive
from fad.views.chains import makes_views

X = jnp.arange(1.0, 7.0).reshape(2, 3)


def test_a_read_replays_once_for_each_version():
    x = fad.tensor(X)
    v = x.T[1:].ravel()
    x += 1
    assert v.array is v.array
    x += 1
    first = v.array
    assert math.isclose(float(v.sum()), float(first.sum()))
    assert v.array is first


V = jnp.array([1.0, 2.0, 3.0])


def test_the_numbers_of_a_view_are_those_it_was_made_with():
    scaled = fad.autograd.view_function(lambda x, k: x * k, lambda x, view, k: view / k)
    x, k = fad.tensor(V), leaf(2.0)
    n = k * 1
    view = scaled(x, n)
    with fad.no_grad():
        n += 5
    x += 1
    assert view.tolist() == [4.0, 6.0, 8.0]
    view.sum().backward()
    assert k.grad.item() == 9.0


def count_replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the Primitives that run from here on."""
    run: list[str] = []
    execute = Primitive.execute

    def counted(self: Primitive, values: Any) -> Any:
        run.append(self.name)
        return execute(self, values)

    monkeypatch.setattr(Primitive, "execute", counted)
    return run


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_chain_of_views_is_replayed_once_for_each_version(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = fad.tensor(np.arange(64.0, dtype=np.float32))
    v = x
    for _ in range(depth):
        v = v[1:]
    run = count_replays(monkeypatch)
    for _ in range(10):
        v.array, v.shape, v.level
    assert run == []  # nothing was written
    for version in (1, 2, 3):
        x += 1.0
        assert x.version == version
        run.clear()
        for _ in range(10):
            value = v.array
        assert len(run) == 1, run  # the whole chain is one call
        np.testing.assert_array_equal(value, np.arange(64.0)[depth:] + version)


def test_a_write_to_a_view_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one computes the view, where that is behind."""
    x = fad.tensor(np.zeros(8, np.float32))
    v = x[2:][1:]
    run = count_replays(monkeypatch)
    for _ in range(3):
        v.add_(1.0)
        v.mul_(2.0)
    assert run == ["CopySlices", *["getitem", "CopySlices"] * 5]
    assert x.tolist() == [0.0] * 3 + [14.0] * 5
    run.clear()
    x[6:] += x[:2]
    assert run == ["getitem", "getitem", "CopySlices"]
    assert v.tolist() == [14.0] * 5


def test_views_that_are_not_read_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fad.tensor(np.zeros(8, np.float32))
    views = [x[k:] for k in range(8)]
    run = count_replays(monkeypatch)
    for _ in range(5):
        x.add_(1.0)
    assert len(run) == 5, run  # the writes alone
    assert float(views[3].sum()) == 25.0
    assert len(run) == 7, run  # one replay, one sum


def test_writing_through_a_chain_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fad.tensor(np.zeros((4, 6), np.float32))
    v = x[1:].T.reshape(18)[2:]
    run = count_replays(monkeypatch)
    v.mul_(2.0)
    assert run == ["CopySlices"], run
    assert fnp.sum(x).item() == 0.0


def test_primitives_that_make_views_are_known() -> None:
    x = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    made = [x[1:], x[fad.numpy.array([0, 1])], x.sum()]
    assert [makes_views(y.grad_fn.plan.primitive) for y in made] == [True, False, False]
