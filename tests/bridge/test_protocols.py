"""Tensors among other array libraries: the array API, DLPack, NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError

VALUES = np.array([0.5, 2.0, 3.0], np.float32)


def x_(**options):
    return fad.tensor(VALUES, **options)


# The array API


def softplus(x):
    """Written for any library that follows the array API."""
    xp = x.__array_namespace__()
    big = xp.maximum(x, xp.zeros_like(x))
    return xp.sum(big + xp.log1p(xp.exp(-xp.abs(x))), axis=-1)


def test_code_for_the_array_api_runs_and_differentiates():
    expected = softplus(VALUES)
    assert_close(softplus(jnp.asarray(VALUES)), expected)
    assert_close(softplus(x_()), expected)
    slope = 1 / (1 + np.exp(-VALUES))
    assert_close(fad.grad(softplus)(VALUES), slope)
    assert_close(fad.jit(fad.grad(softplus))(VALUES), slope)
    x = x_(requires_grad=True)
    softplus(x).backward()
    assert_close(x.grad, slope)


def test_the_namespace_describes_itself():
    xp = x_().__array_namespace__()
    assert xp is fnp
    assert x_().__array_namespace__(api_version=jnp.__array_api_version__) is fnp
    with pytest.raises(ValueError, match="api_version"):
        x_().__array_namespace__(api_version="1999.12")
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == jnp.float32
    assert xp.__array_api_version__ == jnp.__array_api_version__
    assert xp.isdtype(x_().dtype, "real floating")
    for name in "ndim shape size dtype device T".split():
        assert getattr(x_(), name) is not None


def test_to_device():
    x = x_(requires_grad=True)
    there = x.to_device(jax.devices()[1])
    assert there.devices() == {jax.devices()[1]}
    there.sum().backward()
    assert_close(x.grad, np.ones_like(VALUES))
    with pytest.raises(ValueError, match="streams"):
        x.to_device(jax.devices()[1], stream=1)


def test_what_a_tensor_says_of_its_array():
    x = x_()
    assert x.is_fully_addressable and x.is_fully_replicated and not x.committed
    assert len(x.addressable_shards) == 1 and not x.is_deleted()
    assert_close(x.addressable_data(0), VALUES)
    x.block_until_ready()
    assert x.is_ready()
    assert x.copy_to_host_async() is None


# DLPack and __array__


def test_numpy_reads_a_tensor_and_back():
    x = x_()
    for read in (np.asarray, np.from_dlpack, lambda x: x.__array__(), lambda x: x.numpy()):
        assert isinstance(read(x), np.ndarray)
        assert_close(read(x), VALUES)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    copied = np.array(x, copy=True)
    copied[0] = 9.0
    assert_close(x, VALUES)
    assert x.__dlpack_device__() == x.array.__dlpack_device__()
    for source in (VALUES, np.arange(3), x.array, x):
        back = fad.from_dlpack(source)
        assert isinstance(back, fad.Tensor) and not back.requires_grad
        assert_close(back, jnp.asarray(np.asarray(source)))


def test_torch_reads_a_tensor_and_back(torch):
    x = x_()
    there = torch.from_dlpack(x)
    assert_close(there.numpy(), VALUES)
    back = fad.from_dlpack(2.0 * there)
    assert_close(back, 2.0 * VALUES)
    assert_close(fad.from_dlpack(there, copy=True), VALUES)
    with pytest.raises((BufferError, RuntimeError)):
        fad.from_dlpack(there.clone().requires_grad_())


def test_what_is_tracked_does_not_leave():
    x = x_(requires_grad=True)
    for leave in (np.asarray, np.from_dlpack, lambda x: x.__dlpack__(), lambda x: x.numpy()):
        with pytest.raises(GradientError, match="would lose its derivative"):
            leave(x)
        assert_close(np.asarray(x.detach()), VALUES)
        with pytest.raises(GradientError, match="would lose its derivative"):
            fad.grad(lambda x: fnp.sum(x) * float(leave(x).sum()))(VALUES)
        for staged in (fad.vmap, fad.jit, jax.jit):
            with pytest.raises(HostValueError):
                staged(lambda x: fnp.asarray(leave(fad.asarray(x))))(VALUES)


def test_from_dlpack_refuses_what_is_no_array():
    with pytest.raises(TypeError, match=r"must have __dlpack__, got list .*write fad.tensor"):
        fad.from_dlpack([1.0])
