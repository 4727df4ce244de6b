"""Tensors in functions of NumPy: ufuncs compute with `fad.numpy`, others convert or say what to write."""

from __future__ import annotations

import inspect
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

    assert inspect.signature(fad.Tensor.__array_ufunc__).parameters["out"].default is None

    class Other:
        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            return "theirs"

    assert np.add(x, Other()) == "theirs"


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
    result = call(x_())
    assert isinstance(result, (np.ndarray, np.generic))
    assert_close(result, call(VALUES))
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
