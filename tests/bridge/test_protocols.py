"""Tensors among other array libraries: the array API, DLPack, NumPy's ufuncs."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from helpers import assert_close

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError

VALUES = np.array([0.5, 2.0, 3.0], np.float32)


def x_(**options):
    return fad.tensor(VALUES, **options)


# Ufuncs


def test_ufuncs_compute_with_fad_and_keep_derivatives():
    f = lambda x: np.add(np.sin(x), np.multiply(x, VALUES)).sum()
    plain = lambda x: (jnp.sin(x) + x * VALUES).sum()
    x = x_(requires_grad=True)
    f(x).backward()
    expected = jax.grad(plain)(VALUES)
    assert_close(x.grad, expected)
    assert_close(fad.grad(f)(VALUES), expected)
    assert_close(fad.jvp(f, (VALUES,), (VALUES,)), jax.jvp(plain, (VALUES,), (VALUES,)))
    assert_close(fad.vmap(np.exp)(VALUES), jnp.exp(VALUES))
    assert_close(fad.jit(np.exp)(VALUES), jnp.exp(VALUES))


UFUNCS = sorted(
    {u.__name__ for u in vars(np).values() if isinstance(u, np.ufunc)} - {"isnat", "frompyfunc"}
)


@pytest.mark.parametrize("name", UFUNCS)
def test_every_ufunc_of_numpy_has_its_counterpart(name):
    ufunc, jax_function = getattr(np, name), getattr(jnp, name)
    integers = "F" not in "".join(ufunc.types).upper() and "D" not in "".join(ufunc.types).upper()
    base = np.array([1, 2, 3], np.int32) if integers else VALUES / 4
    if name == "ldexp":
        args = [VALUES, np.array([1, 2, 3], np.int32)]
    elif name in ("vecmat", "matvec"):
        args = [VALUES, np.eye(3, dtype=np.float32)][:: 1 if name == "vecmat" else -1]
    else:
        args = [base] * ufunc.nin
    got = ufunc(*[fad.tensor(a) for a in args])
    assert all(isinstance(g, fad.Tensor) for g in (got if ufunc.nout > 1 else [got]))
    assert_close(tuple(got) if ufunc.nout > 1 else got, jax_function(*args))


def test_methods_and_arguments_of_ufuncs():
    x = x_()
    assert_close(np.add.reduce(x), VALUES.sum())
    assert_close(np.multiply.accumulate(x), np.multiply.accumulate(VALUES))
    assert_close(np.multiply.outer(x, VALUES), np.multiply.outer(VALUES, VALUES))
    assert_close(np.add(x, [1.0, 2.0, 3.0]), VALUES + np.float32([1, 2, 3]))
    assert np.add(x, 1, dtype=np.float16).dtype == np.float16
    assert_close(scipy.special.erf(x), jax.scipy.special.erf(VALUES))
    assert isinstance(np.add(jnp.asarray(VALUES), x), fad.Tensor)


def test_what_ufuncs_cannot_do_is_refused_in_words():
    x, y = x_(), VALUES.copy()
    with pytest.raises(
        TypeError, match=r"into ndarray float32\[3\]: make that an array of fad.numpy"
    ):
        y += x
    with pytest.raises(TypeError, match=r"numpy\.add of a Tensor takes no argument 'where'"):
        np.add(x, x, where=VALUES > 1)
    with pytest.raises(TypeError, match=r"numpy\.isnat has no counterpart in fad\.numpy"):
        np.isnat(x)
    with pytest.raises(TypeError, match="no counterpart"):
        np.frompyfunc(lambda v: v, 1, 1)(x)

    class Other:
        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            return "theirs"

    assert np.add(x, Other()) == "theirs"


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


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "numpy.concatenate": lambda x: np.concatenate([x, x]),
        "numpy.stack": lambda x: np.stack([x, x]),
        "numpy.dot": lambda x: np.dot(x, VALUES),
        "numpy.where": lambda x: np.where(VALUES > 1, x, 0.0),
        "numpy.einsum": lambda x: np.einsum("i,i->", x, x),
        "numpy.linalg.norm": np.linalg.norm,
        "numpy.fft.rfft": np.fft.rfft,
    }.items(),
)
def test_other_functions_of_numpy_convert_or_say_what_to_write(name, call):
    found = call(x_())
    assert isinstance(found, (np.ndarray, np.generic))
    assert_close(found, call(VALUES))
    for program in (fad.grad, fad.jit, fad.vmap, lambda f: lambda x: f(x_(requires_grad=True))):
        argument = np.stack([VALUES, VALUES]) if program is fad.vmap else VALUES
        with pytest.raises(HostValueError, match=f"^{name} of a Tensor .* write fad.{name}"):
            program(lambda x: fnp.sum(call(x)))(argument)


def test_functions_of_numpy_without_a_twin_and_of_others():
    with pytest.raises(GradientError, match=r"^numpy\(\) of a Tensor"):
        np.savez_compressed(io.BytesIO(), x=x_(requires_grad=True))

    class Other:
        def __array_function__(self, function, types, args, kwargs):
            return "of another"

    assert np.concatenate([x_(), Other()]) == "of another"


def test_from_dlpack_refuses_what_is_no_array():
    with pytest.raises(TypeError, match=r"must have __dlpack__, got list .*write fad.tensor"):
        fad.from_dlpack([1.0])
