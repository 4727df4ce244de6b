"""Indices: integers, bools, and positions that are known when code is traced."""

from __future__ import annotations

import array
import collections
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad


def test_positions_are_constants_in_traced_code() -> None:
    def f(x):
        x[2:5] = x[1:4] * 2.0
        x[3] += x[0]
        return x

    def names(jaxpr: Any) -> list[str]:
        return [e.primitive.name for e in jaxpr.eqns]

    plain = names(jax.make_jaxpr(fad.to_jax(f))(jnp.zeros(8)).jaxpr)
    assert "slice" in plain and "dynamic_slice" not in plain
    batched = names(jax.make_jaxpr(jax.vmap(fad.to_jax(f)))(jnp.zeros((2, 8))).jaxpr)
    assert "gather" not in batched
    inside = names(jax.make_jaxpr(fad.to_jax(fad.vmap(f)))(jnp.zeros((2, 8))).jaxpr)
    assert "gather" not in inside and "dynamic_slice" not in inside


def test_what_is_remembered_of_an_index_holds_in_32_and_64_bits() -> None:
    """The numbers of an index are kept as arrays, whose dtype depends on JAX's setting."""
    data = np.arange(48.0, dtype=np.float32).reshape(6, 8)

    def run() -> None:
        x = fad.tensor(data)
        expected = data.copy()
        for _ in range(2):
            part, row = x[1:-1, 2:5], x[-1]
            assert np.array_equal(part, expected[1:-1, 2:5]) and np.array_equal(row, expected[-1])
            assert part.dtype == np.float32
            x[1:-1, 2:5] = -part
            expected[1:-1, 2:5] *= -1.0
            x[-1] += 1.0
            expected[-1] += 1.0
            assert np.array_equal(x, expected) and np.array_equal(row, expected[-1])

    for on in (False, True, False):
        with jax.enable_x64(on):
            run()


def test_an_index_is_remembered_by_the_types_of_its_numbers() -> None:
    x = fad.tensor(np.arange(6.0, dtype=np.float32))
    assert x[1:3].tolist() == [1.0, 2.0]
    with pytest.raises(TypeError):
        x[1.0:3]
    assert x[True].shape == (1, 6) and x[1].item() == 1.0


def test_views_of_values_are_seen_by_modes() -> None:
    """What has no history takes a shorter way, but not where a mode is on."""
    x = fad.tensor(np.arange(6.0, dtype=np.float32))
    assert x[1:3].tolist() == [1.0, 2.0]  # is remembered
    with fad.inference_mode():
        part = x[1:3]
    x[1:3] = 5.0
    assert part.tolist() == [5.0, 5.0] and part.base is x
    with fad.no_grad():
        part = x[1:3]
    leaf = fad.tensor([2.0, 3.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="no_grad"):
        part.mul_(leaf)
    double = fad.jit(lambda y: x[1:3] * y)  # captures x
    assert double(2.0).tolist() == [10.0, 10.0]
    x[1] = 1.0
    assert double(2.0).tolist() == [2.0, 10.0]
    assert fad.grad(lambda y: (x[1:3] * y).sum())(2.0) == 6.0


AT = {  # what `x.at[index]` does with indices that are out of range, or negative
    "add drop": lambda x: x.at[7].add(5.0 * x[0], mode="drop"),
    "set drop, a row": lambda x: x[None].at[0, jnp.array([1, 7])].set(x[2:], mode="drop"),
    "set clip": lambda x: x.at[-9].set(5.0 * x[1], mode="clip"),
    "no wrap": lambda x: x.at[-1].set(5.0 * x[1], mode="drop", wrap_negative_indices=False),
    "no wrap, arrays": lambda x: x.at[jnp.array([-1, 1])].add(
        x[0], mode="drop", wrap_negative_indices=False
    ),
    "get fill": lambda x: x.at[jnp.array([0, -1, 9])].get(mode="fill", fill_value=2.0),
    "get fill, an int": lambda x: x.at[9].get(mode="fill", fill_value=-0.0),
    "get NaN": lambda x: x.at[jnp.array([1, 9])].get(mode="fill"),
    "get fill, a bool": lambda x: x[None].at[True, 0, 9].get(mode="fill", fill_value=2.0),
    "get clip, no bool": lambda x: x.at[False].get(mode="clip"),
    "get clip, a window": lambda x: x[None].at[0:1, 9].get(mode="clip"),
    "apply drop": lambda x: x.at[jnp.array([1, 9])].apply(lambda v: v * v, mode="drop"),
}


@pytest.mark.parametrize("name", AT)
def test_options_of_at_are_those_of_jax(name: str) -> None:
    f = AT[name]
    x = jnp.array([1.0, 2.0, -3.0, 4.0])
    if name == "apply drop":  # has no derivative in JAX
        want, slopes = x.at[1].set(4.0), jnp.diag(jnp.array([1.0, 4.0, 1.0, 1.0]))
    else:
        want, slopes = f(x), jax.jit(jax.jacfwd(f))(x)
    np.testing.assert_array_equal(f(fad.tensor(x)).numpy(), want)
    np.testing.assert_array_equal(np.signbit(f(fad.tensor(x)).numpy()), np.signbit(want))
    for jacobian in fad.jacrev(f), fad.jacfwd(f), fad.jit(fad.jacrev(f)):
        np.testing.assert_array_equal(jacobian(x), slopes)
    np.testing.assert_array_equal(fad.vmap(f)(jnp.stack([x, x])), jnp.stack([want, want]))


def test_a_fill_value_is_a_number() -> None:
    x = fad.tensor([1.0, 2.0])
    assert x.at[5].get(mode="fill", fill_value=0.0).item() == 0.0
    with pytest.raises(TypeError, match=r"fill_value is Tensor float32\[\]\. Write float\(x\)"):
        x.at[5].get(mode="fill", fill_value=fad.tensor(1.0))
    with pytest.raises(IndexError, match="out of bounds"):
        x.at[5].get()


BEYOND = {
    "a list": ([0, 3], "index 3 is out of bounds for dimension 0 with size 3"),
    "from the end": ([-4, 0], "index -4 is out of bounds for dimension 0 with size 3"),
    "NumPy's": (np.array([[0, 1], [7, 2]]), "index 7 is out"),
    "after a slice": (
        (slice(None), [0, 4]),
        "index 4 is out of bounds for dimension 1 with size 4",
    ),
    "a range": (range(2, 4), "index 3 is out of bounds for dimension 0 with size 3"),
    "two": (([0, 1], np.array([1, -5])), "index -5 is out of bounds for dimension 1"),
}
READERS = {
    "read": lambda x, i: x[i],
    "written": lambda x, i: x.__setitem__(i, 1.0),
    "added to": lambda x, i: x.index_put_(
        i if isinstance(i, tuple) else (i,), 1.0, accumulate=True
    ),
    "jit": lambda x, i: fad.jit(lambda v: v[i])(x),
    "grad": lambda x, i: fad.grad(lambda v: v[i].sum())(x),
    "vmap": lambda x, i: fad.vmap(lambda v, _: v[i], in_dims=(None, 0))(x, x),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("index", "says"), BEYOND.values(), ids=BEYOND)
def test_indices_on_the_host_are_checked(index: Any, says: str, read: Any) -> None:
    x = fad.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    with pytest.raises(IndexError, match=says):
        read(x, index)
    assert x.tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert x.version == 0


def test_indices_on_the_host_that_are_within_bounds() -> None:
    x = fad.tensor([0.0, 1.0, 2.0])
    assert x[[]].shape == (0,) and x[np.zeros((0, 2), int)].shape == (0, 2)
    assert x[[-3, 2]].tolist() == [0.0, 2.0]


SEQUENCES = {
    "a range": range(2),
    "from the end": range(-1, -3, -1),
    "none": range(0),
    "after a slice": (slice(None), range(1, 4, 2)),
    "after a number": (1, range(3)),
    "two": (range(2), range(2)),
    "a list of ranges": [range(2), range(2)],
    "a deque": collections.deque([0, 2]),
    "an array of Python": array.array("i", [2, 0]),
}


@pytest.mark.parametrize("index", SEQUENCES.values(), ids=SEQUENCES)
def test_sequences_index_as_lists_do(index: Any) -> None:
    data = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    read = data[index]
    added, written = data.copy(), data.copy()
    added[index] *= 2.0
    written[index] = 7.0
    gradient = np.zeros_like(data)
    np.add.at(gradient, index, 2.0 * read)
    x = fad.tensor(data)
    np.testing.assert_array_equal(x[index], read)
    np.testing.assert_array_equal(fad.jit(lambda v: v[index])(x), read)
    np.testing.assert_array_equal(x.at[index].set(7.0), written)
    np.testing.assert_array_equal(fad.grad(lambda v: (v[index] ** 2).sum())(x), gradient)
    x[index] *= 2.0
    np.testing.assert_array_equal(x, added)
    x = fad.tensor(data)
    x[index] = 7.0
    np.testing.assert_array_equal(x, written)


def test_indices_of_jax_and_of_at_are_those_of_jax() -> None:
    x = jnp.arange(3.0)
    assert fad.tensor(x)[jnp.array([0, 7])].tolist() == [0.0, 2.0]
    for i in ([0, 7], np.array([0, 7])):
        assert fad.tensor(x).at[i].set(5.0, mode="drop").tolist() == [5.0, 1.0, 2.0]
        assert fad.tensor(x).at[i].get(mode="fill", fill_value=9.0).tolist() == [0.0, 9.0]
