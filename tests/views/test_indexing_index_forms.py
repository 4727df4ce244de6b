"""The forms of indices: what is static in each, and what is remembered of it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from jax import export
from values import assert_close

import fad
import fad.numpy as fnp
from fad.core.caches import Table
from fad.core.primitive import Primitive
from fad.views import indexing
from fad.views.indexing import parse_index

BOOLS = [True, False, (True, 0), (0, True), (True, [0, 1]), (..., True), (True, None, 1), np.True_]
# Of these JAX loses elements, or has an error.
BOOLS += [
    (None, True),
    (None, True, slice(1, 2)),
    (slice(None), True, None, True),
    (True, None, False),
]
BOOLS += [(slice(0, 1), None, True), ([0, 1], None, True), (slice(None, None, -1), None, True, 1)]

SIMILAR = [
    0,
    (0,),
    False,
    True,
    1,
    -1,
    slice(0, 1),
    slice(None, 1),
    slice(0, 1, 1),
    slice(0, 1, -1),
]
SIMILAR += [None, ..., (slice(0, 2), 1), (slice(0, 2), True), ((0, 1),), ([0, 1],), (0, None, 1)]
SIMILAR += [np.int32(1), (np.int64(1), slice(np.int32(0), 2)), (slice(None), slice(1, -1))]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3), (1,) * 5])
def test_one_integer_as_an_index(shape):
    """As in NumPy, also where it is a bool, and with the same form as in a tuple."""
    a = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    x = fad.tensor(a)
    for i in (*range(-3, 4), True, False):
        try:
            expected = a[i]
        except IndexError:
            with pytest.raises(IndexError):
                x[i]
            continue
        np.testing.assert_array_equal(x[i].array, expected)
        assert parse_index(x, i) == parse_index(x, (i,))


@pytest.mark.parametrize("index", [*BOOLS, np.array(True), (slice(1), True)], ids=str)
def test_one_bool_as_an_index_is_a_dimension(index):
    n = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    x = leaf(n)
    assert_close(x[index].detach().array, n[index])
    y = x * 1
    y[index] = 9.0
    part = x.at[index].multiply(2.0)
    n2 = n.copy()
    n2[index] *= 2
    n[index] = 9.0
    assert_close([y.detach().array, part.detach().array], [n, n2])
    y.sum().backward()
    assert_close(x.grad.array, (n != 9.0).astype(np.float32))


def test_tensors_in_a_list_are_stacked_by_one_operation_for_all_calls():
    """Each call made one of its own, which was compiled: 20 ms."""
    x, i, j = fad.tensor([1.0, 2.0, 3.0]), fad.tensor(2), fad.tensor(0)
    x[[i, j]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Primitive, "__init__", lambda *_, **__: pytest.fail("an operation is made"))
        assert x[[j, i]].tolist() == [1.0, 3.0]


def test_what_is_remembered_of_an_index_tells_similar_ones_apart():
    for shape in [(3, 4), (2, 2)]:
        data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for index in [*SIMILAR, *SIMILAR]:
            assert np.array_equal(fad.tensor(data)[index], data[index]), (shape, index)
            x, expected = fad.tensor(data), data.copy()
            x[index] = expected[index] = 9.0
            assert np.array_equal(x, expected), (shape, index)
            x[index] += 1.0
            expected[index] += 1.0
            assert np.array_equal(x, expected), (shape, index)


def test_no_more_is_remembered_of_indices_than_a_bound(monkeypatch):
    monkeypatch.setattr(indexing, "_steps", Table(8))
    x = fad.tensor(np.arange(3, dtype=np.float32))
    for stop in range(20):
        assert x[:stop].shape == (min(stop, 3),)
        assert len(indexing._steps) <= 8


def test_a_mask_has_the_shape_of_what_it_selects_from(torch: Any) -> None:
    """A mask that is too short selected silently; JAX and PyTorch refuse it."""
    x, mask = fad.tensor(np.arange(6.0).reshape(2, 3)), np.array([True, False])
    for index in [
        (mask,),
        (slice(None), np.array([True, False, True])),
        (..., np.array([True, False, True])),
        (None, mask, 1),
        (np.ones((2, 3), bool),),
        (0, np.ones(3, bool)),
    ]:
        assert_close(x[index], x.numpy()[index])
    for index in [
        (slice(None), mask),
        (..., mask),
        (0, mask),
        (np.ones(3, bool),),
        (np.ones((3, 2), bool),),
    ]:
        with pytest.raises(IndexError, match="does not match"):
            x[index]
        with pytest.raises(IndexError, match=r"does not (match|fit)"):
            x[index] = 0.0
        tensors = [torch.tensor(i) if isinstance(i, np.ndarray) else i for i in index]
        with pytest.raises(IndexError):
            torch.tensor(x.tolist())[tuple(tensors)]


def _written(x: Any) -> Any:
    y = fnp.array(x)
    y[:, 0] = 0.0
    y[:, 1:] *= x[:, 1:]
    y[0] = x[-1]
    y[1:] = x[1:] + 1.0
    return y


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[:, None],
        lambda x: x[None, ..., 1:],
        lambda x: x[:, 0],
        lambda x: x[1:],
        lambda x: x[-1],
        lambda x: x[::2] * 2.0,
        _written,
    ],
)
def test_a_dimension_may_have_a_symbolic_size(read: Any) -> None:
    """`jax.export` of a batch of unknown size gives what each size gives."""

    def loss(x: Any) -> Any:
        return (fnp.sin(read(x)) ** 2).sum()

    (size,) = export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((size, 3), jnp.float32)
    for f in (read, fad.grad(loss)):
        exported = export.export(jax.jit(fad.to_jax(f)))(shape)
        for n in (2, 5):
            x = jnp.linspace(0.1, 2.0, 3 * n).reshape(n, 3)
            found = f(x)
            expected = found.array if isinstance(found, fad.Tensor) else found
            np.testing.assert_allclose(exported.call(x), expected, rtol=1e-6)
