"""Functions at the top of fad with PyTorch's arguments, beside PyTorch's own."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.methods import functions

# Programs that run with `t` as fad and as torch.
PROGRAMS = """
t.zeros(2, 3)
t.zeros((2, 3))
t.zeros([2, 3])
t.zeros(size=(2, 3))
t.zeros(())
t.zeros(4, dtype=t.int32)
t.ones(t.ones(2, 3).shape)
t.ones(2, requires_grad=True)
t.full((2,), 3.0)
t.full((2,), True)
t.full((2, 2), 1.5, dtype=t.float16)
t.full(size=(2,), fill_value=1j)
t.zeros_like(t.empty(2, 3))
t.eye(2)
t.eye(2, 3, dtype=t.float32)
t.arange(5.0)
t.arange(1.0, 3.0)
t.arange(end=3.0)
t.arange(3.0, 1.0, -0.5)
t.arange(start=0.0, end=1.0, step=0.25)
t.arange(3, dtype=t.float32, requires_grad=True)
t.linspace(0, 1, 3)
t.linspace(start=0.0, end=1.0, steps=5)
t.zeros_like(t.ones(2, dtype=t.int32))
t.ones_like(t.zeros(2, 3), dtype=t.float16)
t.full_like(t.zeros(2), 3)
t.empty_like(t.ones(2), requires_grad=True) * 0
t.cat([t.ones(2), t.zeros(1)])
t.cat((t.ones(1, 2), t.zeros(1, 2)), 1)
t.cat([t.ones(1, 2), t.zeros(1, 2)], dim=-1)
t.cat([t.ones(1, 2), t.zeros(1, 2)], axis=1)
t.cat([t.empty(0), t.ones(2, 2)])
t.cat([t.empty(0), t.ones(2)])
t.cat([t.ones(2), t.ones(2, dtype=t.int32)])
t.stack([t.ones(2), t.zeros(2)])
t.stack((t.ones(2), t.zeros(2)), dim=1)
t.stack([t.ones(2), t.zeros(2)], axis=-1)
t.where(t.tensor([True, False]), 1.0, 2.0)
t.where(condition=t.tensor([True, False]), input=t.ones(2), other=t.zeros(2))
t.as_tensor([1.0, 2.0])
t.as_tensor(np.ones(2, np.float32), dtype=t.float16)
t.from_numpy(np.ones((2, 3), np.float32))
"""


@pytest.mark.parametrize("program", PROGRAMS.strip().splitlines())
def test_the_same_program_as_in_torch(torch, program):
    expected = eval(program, {"t": torch, "np": np})
    found = eval(program, {"t": fad, "np": np})
    assert isinstance(found, fad.Tensor)
    assert found.requires_grad == expected.requires_grad
    assert f"torch.{found.dtype.name}" == str(expected.dtype)
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())


@pytest.mark.parametrize(
    ("program", "kinds", "words"),
    [
        ("t.zeros()", TypeError, "give the size"),
        ("t.zeros(2.0)", TypeError, "ints or one tuple of ints, got float 2.0"),
        ("t.zeros(True)", TypeError, "must be ints"),
        ("t.ones(-1)", RuntimeError, "ones: the size must not be negative"),
        ("t.eye(-1)", RuntimeError, "eye: the size must not be negative"),
        ("t.zeros(2, dtype=t.int32, requires_grad=True)", RuntimeError, "floating or complex"),
        ("t.cat([])", ValueError, "cat: the list of Tensors must not be empty"),
        ("t.cat(t.ones(2))", TypeError, "cat: .* list or tuple of Tensors, got Tensor"),
        ("t.stack(t.ones(2, 2))", TypeError, "stack: .* list or tuple"),
        ("t.from_numpy([1.0])", TypeError, "NumPy array, got list"),
    ],
)
def test_the_same_errors_as_in_torch(torch, program, kinds, words):
    with pytest.raises(kinds):
        eval(program, {"t": torch})
    with pytest.raises(kinds, match=words):
        eval(program, {"t": fad})


def test_a_dtype_in_the_place_of_a_size_says_what_to_write():
    with pytest.raises(TypeError, match="a dtype as dtype="):
        fad.zeros((2, 3), jnp.float32)
    with pytest.raises(TypeError, match="two names of one argument"):
        fad.cat([fad.ones(2)], 0, axis=0)
    with pytest.raises(TypeError, match="give the size, and once"):
        fad.zeros(2, size=(2,))
    with pytest.raises(TypeError, match="arange: there is no end"):
        fad.arange()


def test_what_makes_an_array_makes_a_tensor_and_what_joins_follows_its_arguments():
    x = jnp.ones(2)
    assert isinstance(fad.zeros_like(x), fad.Tensor) and isinstance(fad.as_tensor(x), fad.Tensor)
    assert isinstance(fad.cat([x, x]), jax.Array) and isinstance(fad.stack([x, x]), jax.Array)
    assert isinstance(fad.where(x > 0, x, 0.0), jax.Array)
    assert isinstance(fad.cat([x, fad.ones(1)]), fad.Tensor)
    assert isinstance(fad.cat([np.ones(2), np.ones(1)]), fad.Tensor)
    assert isinstance(fad.where(np.array([True]), 1.0, 2.0), fad.Tensor)
    (index,) = fad.where(fad.tensor([False, True]))
    assert index.tolist() == [1]


def test_what_is_made_can_be_written_to_and_shares_nothing():
    host = np.ones(3, np.float32)
    x = fad.from_numpy(host)
    x[0] = 5.0
    host[1] = 7.0
    assert x.tolist() == [5.0, 1.0, 1.0] and host.tolist() == [1.0, 7.0, 1.0]
    y = fad.as_tensor(x)
    assert y is x
    w = fad.ones(2, requires_grad=True)
    assert fad.as_tensor(w, dtype=fad.float32) is w and w.is_leaf


def test_derivatives_go_through():
    def f(x):
        made = fad.full((2,), x) + fad.linspace(x, 2 * x, 2)
        return fad.where(made > 0, fad.cat([made[:1], fad.stack([x])]), 0.0).sum()

    def of_numpy(x):
        made = fnp.full((2,), x) + fnp.linspace(x, 2 * x, 2)
        return made[0] + x

    expected = fad.grad(of_numpy)(2.0)
    assert_close(fad.grad(f)(2.0), expected)
    assert_close(jax.grad(fad.to_jax(f))(2.0), expected)
    assert_close(fad.jit(fad.vmap(fad.grad(f)))(jnp.ones(3)), jnp.full(3, fad.grad(f)(1.0)))


def test_a_device():
    device = jax.devices()[1]
    for x in (
        fad.zeros(2, device=device, requires_grad=True),
        fad.arange(3, device=device),
        fad.as_tensor([1.0], device=device),
        fad.ones_like(fad.zeros(2), device=device),
        fad.tensor([1.0], device=device),
    ):
        assert x.device == device and x.is_leaf


@pytest.mark.parametrize(
    "name",
    [n for n in fad.__all__ if getattr(getattr(fad, n), "__module__", "") == functions.__name__],
)
def test_examples_in_docstrings(name):
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(getattr(fad, name), name, globs={})
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0


def test_complex_tensors_as_real_ones(torch: Any) -> None:
    """Views: writes and derivatives go through them, both ways."""
    Z, R = np.complex64([1 + 2j, 3 - 1j]), np.float32([[1.0, 2.0], [3.0, 4.0]])

    def program(library: Any) -> list[Any]:
        a = library.tensor(Z, requires_grad=True)
        w = a * 1.0
        r = library.view_as_real(w)
        r[:, 0] *= 2.0
        r.mul_(3.0)
        ((w.abs() ** 2).sum() + (r**3).sum()).backward()
        b = library.tensor(R, requires_grad=True)
        v = b * 1.0
        c = library.view_as_complex(v)
        c[0] *= 2 + 1j
        ((v**3).sum() + (c * c * (1 + 1j)).real.sum()).backward()
        plain = library.tensor(Z)
        library.view_as_real(plain)[0] = library.tensor([5.0, 6.0])
        return [t.detach().numpy() for t in (a.grad, b.grad, w, r, v, c, plain)]

    for got, want in zip(program(fad), program(torch), strict=True):
        assert_close(got, want, rtol=1e-5)
    batched = fad.vmap(fad.view_as_real)(np.stack([Z, 2 * Z]))
    assert_close(batched[1], fad.view_as_real(fad.tensor(2 * Z)))
    for wrong in (
        lambda: fad.view_as_real(fad.tensor(R)),
        lambda: fad.view_as_complex(fad.ones(2, 3)),
        lambda: fad.view_as_complex(fad.ones(2, dtype=fad.int32)),
    ):
        with pytest.raises(fad.errors.ArgumentError, match="must be"):
            wrong()


def test_signatures_are_whole():
    assert str(inspect.signature(fad.ones_like)).replace("'", "") == (
        "(input: Operand, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, "
        "requires_grad: bool = False) -> Tensor"
    )
