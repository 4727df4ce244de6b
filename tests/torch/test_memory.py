"""Memory that JAX and PyTorch share, and what is copied."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT

import fad
from fad.core.borrowed import is_borrowed
from fad.errors import ArgumentError
from fad.torch import memory

LARGE = 1 << 12


def pointer(array):
    return array.unsafe_buffer_pointer()


def test_an_argument_and_a_result_of_pytorch_are_not_copied(torch):
    x = jnp.arange(LARGE, dtype=jnp.float32)
    seen = []
    f = fad.from_torch(lambda t: (seen.append(t.data_ptr()), t * 2)[1])
    y = f(x)
    assert seen[-1] == pointer(x)
    tensor = torch.ones(LARGE)
    (array,) = memory.taken([tensor], [], None, [jax.ShapeDtypeStruct((LARGE,), jnp.float32)], "f")
    assert pointer(array) == tensor.data_ptr() and not is_borrowed(array)
    np.testing.assert_array_equal(y, 2 * np.arange(LARGE))


def test_a_result_with_the_memory_of_others_is_copied(torch):
    parameter, x = torch.ones(LARGE), jnp.ones(LARGE)
    same, view, own, twice, again = fad.from_torch(
        lambda t: (t, t[None], parameter, y := t + 1, y)
    )(x)
    assert len({pointer(a) for a in (x, same, view, own, twice, again)}) == 6
    parameter.add_(1)
    assert float(own.sum()) == LARGE


def test_a_tensor_given_to_fad_may_be_written_to_after_the_call(torch):
    t = torch.ones(LARGE)
    f = fad.to_torch(lambda x: (x, x * 2))
    same, twice = f(t)
    t.add_(5)
    same.add_(1)
    assert torch.equal(same, torch.full((LARGE,), 2.0)) and torch.equal(twice, same)


def test_a_constant_that_fad_returns_is_not_what_pytorch_writes_to(torch):
    constant = jnp.ones(LARGE)
    f = fad.to_torch(lambda x: constant)
    f(torch.ones(1)).add_(1)
    assert float(constant.sum()) == LARGE


DTYPES = "bool int8 uint8 int16 int32 float16 bfloat16 float32 complex64".split()


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_come_and_go(torch, name):
    x = jnp.arange(4).astype(name)
    f = fad.from_torch(lambda t: t.clone())
    assert f(x).dtype == fad.jit(f)(x).dtype == x.dtype
    t = torch.arange(4).to(getattr(torch, name))
    back = fad.to_torch(lambda y: y.copy())(t)
    assert back.dtype is t.dtype and torch.equal(back, t)


def test_64_bits(torch):
    double = fad.from_torch(lambda t: (t.double(), t.long()))
    a, b = double(jnp.ones(2))
    assert (a.dtype, b.dtype) == (jnp.float32, jnp.int32)
    too_large = fad.from_torch(lambda t: t.long() + 2**40)
    with pytest.raises(ArgumentError, match="does not fit into int32"):
        too_large(jnp.ones(2))
    identity = fad.to_torch(lambda x: x + 1)
    assert identity(torch.tensor([1])).dtype is torch.int32
    with pytest.raises(ArgumentError, match=r"float64\[1\], but JAX computes in 32 bits"):
        identity(torch.ones(1, dtype=torch.float64))
    with jax.enable_x64(True):
        a, b = double(jnp.ones(2))
        assert (a.dtype, b.dtype) == (jnp.float64, jnp.int64)
        assert int(too_large(jnp.ones(2))[0]) == 2**40 + 1
        assert identity(torch.ones(1, dtype=torch.float64)).dtype is torch.float64


def test_tensors_of_any_strides(torch):
    t = torch.arange(12.0).reshape(3, 4)
    for view in (t.T, t[:, ::2], t[0].expand(5, 4), t[1:], torch.tensor(2.0), torch.zeros(0, 3)):
        assert torch.equal(fad.to_torch(lambda x: x * 2)(view), view * 2)
        numbers = jnp.asarray(view.numpy())
        got = fad.from_torch(lambda x, v=view: v + x)(numbers)
        np.testing.assert_array_equal(got, 2 * view.numpy())
    z = torch.tensor([1 + 2j]).conj()
    assert torch.equal(fad.to_torch(lambda x: x * 1)(z), z.resolve_conj())


def test_what_is_no_dense_tensor_on_the_cpu_is_refused(torch):
    with pytest.raises(ArgumentError, match="must be dense.*to_dense"):
        fad.from_torch(lambda t: t.to_sparse())(jnp.ones(2))
    with warnings.catch_warnings(action="ignore"):  # PyTorch says that they will be gone
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(ArgumentError, match=r"must be dense.*dequantize"):
        fad.to_torch(lambda x: x)(quantized)
    with pytest.raises(ArgumentError, match=r"must be on the CPU.*pass t.cpu\(\)"):
        fad.to_torch(lambda x: x)(torch.ones(2, device="meta"))
    with pytest.raises(ArgumentError, match=r"PyTorch cannot have.*astype"):
        fad.from_torch(torch.sin)(jnp.ones(2, jnp.int4))
    with pytest.raises(ArgumentError, match="key_data"):
        fad.from_torch(torch.sin)(jax.random.key(0))


PROGRAM = """
import jax, jax.numpy as jnp, numpy as np, torch, fad
from jax.sharding import NamedSharding, PartitionSpec
first, second = jax.devices()
f = fad.from_torch(torch.sin)
x = jax.device_put(jnp.ones(4), second)
assert f(x).devices() == {second} == fad.grad(lambda x: f(x).sum())(x).devices()
mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
shards = jax.device_put(jnp.ones(4), NamedSharding(mesh, PartitionSpec("i")))
np.testing.assert_allclose(f(shards), np.sin(np.ones(4)), rtol=1e-6)
np.testing.assert_allclose(fad.jit(f)(shards), np.sin(np.ones(4)), rtol=1e-6)
"""


def test_other_devices_give_and_get_copies(torch):
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_without_pytorch_an_error_says_what_to_install(monkeypatch):
    def missing(name, *args):
        raise ImportError(name)

    bridges = fad.from_torch, fad.to_torch  # imported when they are asked for
    memory.load.cache_clear()
    monkeypatch.setattr(importlib, "import_module", missing)
    for bridge in bridges:
        with pytest.raises(ImportError, match=r"pip install 'fad-jax\[torch\]'"):
            bridge(abs)


def test_importing_fad_does_not_import_pytorch():
    program = "import sys, fad; sys.exit('torch' in sys.modules)"
    environment = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0
