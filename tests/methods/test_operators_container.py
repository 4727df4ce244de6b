"""A Tensor as a container: length, items, membership, hash and copies."""

from __future__ import annotations

import copy

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import HostValueError
from fad.views.indexing import CHUNK

VALUES = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def test_length_and_iteration() -> None:
    x = fad.tensor(VALUES)
    assert len(x) == 2 and [len(row) for row in x] == [3, 3]
    assert [v.item() for row in x for v in row] == list(range(6))
    a, b = x
    a *= 10.0  # items are views
    assert_close(x, np.stack([VALUES[0] * 10, VALUES[1]]))
    assert list(fad.tensor(VALUES[:0])) == []


@pytest.mark.parametrize("count", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 7])
def test_items_of_all_lengths_are_views(count: int) -> None:
    values = np.arange(2.0 * count, dtype=np.float32).reshape(count, 2)
    for _ in range(2):
        x = fad.tensor(values)
        rows = list(x)
        assert_close(np.stack([row.array for row in rows]), values)
        assert all(row.base is x for row in rows)
        rows[-1] += 1.0
        rows[count // 2][1] = 5.0
        assert x.tolist() == [row.tolist() for row in rows]
        assert x[count // 2, 1] == 5.0


def test_a_number_is_no_container() -> None:
    x = fad.tensor(1.0)
    for read, words in ((len, r"len\(\)"), (iter, "iteration"), (list, "iteration")):
        with pytest.raises(TypeError, match=f"{words} (of|over) a 0-d Tensor"):
            read(x)


def test_items_have_a_history() -> None:
    x = leaf(VALUES)
    sum([k * row for k, row in enumerate(x)]).sum().backward()
    assert_close(x.grad, np.float32([[0, 0, 0], [1, 1, 1]]))
    f = lambda x: sum([k * row.sum() for k, row in enumerate(x)])
    assert_close(fad.grad(f)(VALUES), x.grad)
    assert_close(fad.vmap(lambda x: [v * 2 for v in x])(VALUES)[2], VALUES[:, 2] * 2)


def test_membership() -> None:
    x = fad.tensor(VALUES)
    assert 3.0 in x and 3 in x and 7.0 not in x
    with pytest.raises(HostValueError):
        fad.vmap(lambda x: fnp.asarray(3.0 in x))(VALUES)


def test_the_hash_is_that_of_the_object() -> None:
    x, y = fad.tensor(VALUES), fad.tensor(VALUES)
    found = {x: "x", y: "y"}
    x += 1.0
    assert found[x] == "x" and found[y] == "y" and hash(x) != hash(y)


def test_items_are_assigned() -> None:
    x = fad.tensor(VALUES)
    x[0], x[1, 1:] = 7.0, jnp.array([8.0, 9.0])
    assert_close(x, np.float32([[7, 7, 7], [3, 8, 9]]))
    assert_close(x.at[0].set(1.0)[0], np.ones(3, np.float32))
    assert_close(x[0], np.full(3, 7, np.float32))  # ``at`` has changed nothing
    with pytest.raises((TypeError, ValueError), match="shape|broadcast"):
        x[0] = np.ones(2)
    assert x.version == 2


def test_copies() -> None:
    x = leaf(VALUES)
    y = x * 2.0
    for made in (y.clone(), y.copy()):
        assert made is not y and made.requires_grad
        made += 1.0
    assert_close(y.detach(), VALUES * 2)
    y.clone().sum().backward()
    assert_close(x.grad, np.full((2, 3), 2, np.float32))
    assert copy.copy(x).version == x.version and copy.deepcopy(x) is not x


def test_items_are_views_whatever_the_length() -> None:
    for shape in ((3,), (250,), (250, 2), (3, 2, 4)):
        data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        x = fad.tensor(data)
        for i, item in enumerate(x):
            assert item.base is x
            assert np.array_equal(item, data[i])
        items = list(x)
        items[1].mul_(2.0)
        data[1] *= 2.0
        x[2] = data[2] = 7.0
        assert np.array_equal(x, data)
        assert np.array_equal(items[2], data[2])
    assert list(fad.tensor(np.zeros((0, 2), np.float32))) == []
    (item,) = fad.tensor([3.0])
    assert item.shape == () and item.item() == 3.0
    w = fad.tensor(np.arange(3.0, dtype=np.float32), requires_grad=True)
    a, b, c = w
    (a * b + c).backward()
    assert w.grad.tolist() == [1.0, 0.0, 1.0]


def test_a_list_with_tensors_is_written_with_their_derivatives() -> None:
    """As NumPy programs do: ``A[0] = [p, 1 - p]``."""

    def f(p):
        a = fnp.zeros((3, 2))
        a[0] = [p, 1.0 - p]
        a[1] = (p * p, 3)
        a[2, [0, 1]] = [2.0 * p, p]
        return (a * fnp.array([[1.0, 10.0], [100.0, 1.0], [5.0, 7.0]])).sum()

    assert fad.grad(f)(2.0).item() == 1.0 - 10.0 + 400.0 + 17.0
    assert fad.vmap(fad.grad(f))(jnp.array([2.0, 1.0])).tolist() == [408.0, 208.0]
    assert fad.jit(fad.grad(f))(2.0).item() == fad.jvp(f, (2.0,), (1.0,))[1].item() == 408.0
    p = fad.tensor(2.0, requires_grad=True)
    f(p).backward()
    assert p.grad.item() == 408.0
