"""The exceptions: what catches them, and how values are described in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf

import fad
from fad import errors
from fad.errors import describe

CLASSES = [c for n in errors.__all__ if isinstance(c := getattr(errors, n), type)]


WARNINGS = [c for c in CLASSES if issubclass(c, Warning)]


@pytest.mark.parametrize("warning", WARNINGS, ids=lambda c: c.__name__)
def test_every_warning_is_a_user_warning(warning: type[Warning]) -> None:
    assert issubclass(warning, UserWarning) and warning.__doc__


@pytest.mark.parametrize(
    "error", [c for c in CLASSES if c not in WARNINGS], ids=lambda c: c.__name__
)
def test_every_exception_is_one_of_fads_and_one_of_python(error: type[Exception]) -> None:
    assert issubclass(error, errors.FadError) and error.__doc__
    if error is not errors.FadError:
        assert issubclass(error, (RuntimeError, TypeError, ValueError))


def test_what_catches_pytorchs_errors_of_gradients_catches_fads() -> None:
    for error in (errors.LevelError, errors.GradientError, errors.TrackedValueError):
        assert issubclass(error, RuntimeError)
    with pytest.raises(RuntimeError):
        (leaf([1.0, 2.0]) * 2.0).backward()
    assert issubclass(errors.TrackedValueError, errors.HostValueError)


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "None"),
        (2.5, "float 2.5"),
        ("abc", "str 'abc'"),
        ("x" * 100, "str 'xxxxxx"),
        ([1, 2], "list [1, 2]"),
        (np.zeros((2, 3), np.int8), "ndarray int8[2,3]"),
        (np.float32(1), "float32 float32[]"),
        (jnp.ones(3), "Array float32[3]"),
        (jax.ShapeDtypeStruct((2,), jnp.float16), "ShapeDtypeStruct float16[2]"),
    ],
    ids=lambda v: str(v)[:20],
)
def test_values_are_described_by_type_and_form(value: Any, text: str) -> None:
    assert describe(value).startswith(text) and len(describe(value)) < 80


def test_tensors_are_described_in_every_transform() -> None:
    seen: list[str] = []
    f = lambda x: (seen.append(describe(x)), x.sum())[1]
    x = jnp.ones((2, 3))
    f(fad.tensor(x)), fad.grad(f)(x), fad.vmap(f)(x), fad.jit(f)(x)
    assert seen == [f"Tensor float32[{s}]" for s in ("2,3", "2,3", "3", "2,3")]


def test_a_tensor_of_torch_is_called_so_and_what_to_write() -> None:
    class Parameter:
        __module__ = "torch.nn.parameter"
        shape, dtype = (4, 2), "torch.float32"

    expected = r"torch.Parameter float32\[4,2\] \(write fad.from_dlpack\(t\), or fad.tensor\(t\)"
    with pytest.raises(errors.ArgumentError, match=expected):
        fad.grad(lambda x: x)(Parameter())
    with pytest.raises(errors.StructureError, match=expected):
        fad.vmap(lambda x: x)(Parameter())
