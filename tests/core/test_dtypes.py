"""Dtypes at the top of fad, under PyTorch's names."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.core import dtypes

NAMES = [n.removesuffix("_") for n, dtype in vars(dtypes).items() if isinstance(dtype, np.dtype)]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_means_what_it_means_in_torch(torch, name):
    assert str(getattr(torch, name)) == f"torch.{getattr(fad, name).name}"


def test_which_of_torchs_names_there_are(torch):
    theirs = {n for n in dir(torch) if isinstance(getattr(torch, n), torch.dtype)}
    without = ("bit", "q", "float8", "float4", "chalf", "complex32")
    small = {f"{sign}int{n}" for sign in ("", "u") for n in range(1, 8)}
    assert theirs - small - {n for n in theirs if n.startswith(without)} == set(NAMES)


def test_they_are_the_dtypes_of_tensors():
    x = fad.ones(2)
    assert x.dtype is fad.float32 and x.dtype == fad.float and {fad.float32: 1}[x.dtype] == 1
    assert fnp.ones(2, dtype=fad.bfloat16).dtype is fad.bfloat16
    assert fad.tensor([1, 0], dtype=fad.bool).dtype is fad.bool
    assert x.to(fad.int).dtype is fad.int32 and x.astype(fad.half).dtype == jnp.float16
    assert fad.float32 == jnp.float32 and np.zeros(2, fad.float64).dtype is fad.double
    with jax.enable_x64(True):
        assert fad.zeros(2, dtype=fad.double).dtype is fad.float64
        assert fad.arange(2).dtype is fad.long


def test_where_64_bits_are_off_jax_warns():
    if not jax.config.jax_enable_x64:
        with pytest.warns(UserWarning, match="float64"):
            assert fad.zeros(2, dtype=fad.float64).dtype is fad.float32
