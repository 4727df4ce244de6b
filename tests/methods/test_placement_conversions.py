"""Methods that name a dtype or a device, and new Tensors of the kind of one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
from fad.errors import ArgumentError
from fad.methods.placement import DTYPES

SECOND = jax.devices()[1]


@pytest.mark.parametrize("name", DTYPES)
def test_methods_named_after_a_dtype(torch: Any, name: str) -> None:
    x = fad.tensor([0.0, 1.0, 2.0])
    y = getattr(x, name)()
    assert y.dtype == jax.dtypes.canonicalize_dtype(DTYPES[name])
    theirs = getattr(torch.tensor([0.0, 1.0, 2.0]), name)()
    assert str(theirs.dtype) == f"torch.{DTYPES[name]}"
    assert_close(y.to("complex64"), jnp.asarray(theirs.to(torch.complex64).numpy()))
    assert getattr(y, name)() is y


def test_derivatives_pass() -> None:
    x = leaf([1.0, 2.0])
    (x.half().float() * 3.0).sum().backward()
    assert_close(x.grad, jnp.full(2, 3.0))
    f = lambda x: (x.half().type_as(x) ** 2).sum()
    assert_close(fad.jit(fad.grad(f))(jnp.ones(2)), jnp.full(2, 2.0))


def test_to_takes_names_of_devices_and_several_targets() -> None:
    x = leaf([1.0, 2.0])
    for y in (
        x.to("cpu:1", jnp.float16),
        x.to(device="cpu:1", dtype="float16"),
        x.to(SECOND, "float16", non_blocking=True),
        x.to(x.detach().to("cpu:1").half()),
    ):
        assert y.device == SECOND and y.dtype == jnp.float16
        x.grad = None
        y.float().sum().backward()
        assert_close(x.grad, jnp.ones(2))
        assert x.grad.device == x.device
    assert x.to("float32") is x and x.to(x.dtype) is x and x.type(x.dtype) is x
    assert x.to("float32", copy=True) is not x
    assert x.type("int32").dtype == jnp.int32
    assert x.cpu().device == jax.devices()[0]
    with pytest.raises(ArgumentError, match="device 'cuda:1': there is no 'cuda' here, but 'cpu'"):
        x.cuda(1)
    with pytest.raises(ArgumentError, match="device 'floaty': there is no"):
        x.to("floaty")


def test_new_tensors_are_of_the_same_kind() -> None:
    x = fad.tensor(np.ones(2, np.float16)).to(SECOND)
    for y in (
        x.new_zeros(2, 3),
        x.new_ones((2, 3)),
        x.new_empty([2, 3]),
        x.new_full((2, 3), 4.0),
        x.new_tensor(np.zeros((2, 3))),
    ):
        assert (y.shape, y.dtype, y.device) == ((2, 3), x.dtype, SECOND)
        assert y.is_leaf and not y.requires_grad
    y = x.new_full((), 2, dtype="float32", device="cpu", requires_grad=True)
    assert y.requires_grad and y.dtype == jnp.float32 and y.device == jax.devices()[0]
    for call in (lambda: x.new_full((), 2, "float32"), lambda: x.new_tensor(2, "float32")):
        with pytest.raises(TypeError, match="by position, expected .: write dtype=..., device="):
            call()
    assert not x.new_tensor(leaf([1.0]) * 2).requires_grad
    lanes = fad.vmap(lambda r: r.new_zeros(2) + r)(jnp.ones((3, 2)))
    assert_close(lanes, jnp.ones((3, 2)))
    assert_close(fad.jit(lambda r: r.new_ones(2) + r)(jnp.ones(2)), jnp.full(2, 2.0))


def test_round_of_python() -> None:
    x = leaf([1.26, -0.74])
    assert_close(round(x, 1), jnp.array([1.3, -0.7]))
    assert round(x).tolist() == [1, -1] and round(x).dtype == round(x.array[0]).dtype
    assert fad.grad(lambda x: round(x, 1) * x)(1.26) == jnp.round(jnp.float32(1.26), 1)


def test_questions() -> None:
    x = fad.tensor([1.0])
    assert x.is_floating_point() and not x.is_complex() and x.is_signed() and x.is_nonzero()
    assert not fad.tensor(np.ones(1, np.uint8)).is_signed()
    assert x.contiguous() is x and x.resolve_conj() is x and x.is_contiguous()
    assert x.element_size() == 4 and x.is_same_size(x)
