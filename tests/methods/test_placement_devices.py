"""Devices by name."""

from __future__ import annotations

import jax
import pytest

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError
from fad.methods.placement import device_of


def test_a_name_is_a_device() -> None:
    assert device_of("cpu") is jax.devices("cpu")[0]
    assert device_of("cpu:3") is jax.devices("cpu")[3]
    assert device_of(None) is None
    assert device_of(jax.devices()[1]) is jax.devices()[1]


@pytest.mark.parametrize("name", ["cpu:99", "cpu:x", "abacus", "abacus:1", ""])
def test_a_name_without_device_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="device '.*': there (is|are)"):
        device_of(name)
    with pytest.raises(ArgumentError, match="there (is|are)"):
        fnp.zeros(3, device=name)


def test_cuda_is_jaxs_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(jax, "local_devices", lambda backend: asked.append(backend) or ["a", "b"])
    assert [device_of("cuda"), device_of("cuda:1"), device_of("gpu:1")] == ["a", "b", "b"]
    assert set(asked) == {"gpu"}


def test_functions_that_make_arrays_take_names_of_devices() -> None:
    second = jax.devices()[1]
    x = fad.tensor([1.0, 2.0])
    for made in (
        fnp.zeros(3, device="cpu:1"),
        fnp.full((2,), 1.0, device="cpu:1"),
        fnp.zeros_like(x, device="cpu:1"),
        fnp.asarray([1.0], device="cpu:1"),
        fad.ones(2, device="cpu:1"),
        fad.tensor([1.0], device="cpu:1"),
        x.to("cpu:1"),
        x.new_ones(2, device="cpu:1"),
    ):
        assert made.device == second
    assert x.to("cpu:1").cpu().device == jax.devices()[0]
