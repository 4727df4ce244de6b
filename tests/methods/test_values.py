"""What leaves a Tensor: arrays, Python numbers and text; and what a value that has none says."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, GradientError, HostValueError, LevelError
from fad.methods.values import is_tracked, unwrap

VALUES = np.array([0.5, 2.0, 3.0], np.float32)
READS: dict[str, Any] = {
    "item": lambda x: x[0].item(),
    "item at": lambda x: x.item(0),
    "tolist": lambda x: x.tolist()[0],
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0] * 2),
    "bool": lambda x: bool(x[0] > 0),
    "complex": lambda x: complex(x[0]),
    "math": lambda x: math.floor(x[0]),
    "format": lambda x: f"{x[0]:.2f}",
}


@pytest.mark.parametrize("name", READS)
def test_python_values_are_those_of_the_array(name: str) -> None:
    read, expected = READS[name], READS[name](VALUES)
    for x in (fad.tensor(VALUES), leaf(VALUES).detach()):
        assert read(x) == expected and type(read(x)) in (type(expected), float, int, bool, str)


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("around", ["vmap", "fad.jit", "jax.jit"])
def test_there_is_no_python_value_where_there_is_no_single_one(name: str, around: str) -> None:
    transform = {"vmap": fad.vmap, "fad.jit": fad.jit, "jax.jit": jax.jit}[around]
    with pytest.raises(HostValueError):
        transform(lambda x: fnp.asarray(len(str(READS[name](fad.asarray(x))))))(VALUES[None])


def test_an_index_is_an_integer() -> None:
    x = fad.tensor([1, 2])
    assert [10, 20, 30][x[0]] == 20 and list(range(x[1])) == [0, 1]
    with pytest.raises(TypeError):
        [10, 20][fad.tensor(1.0)]


def test_only_one_element_is_a_number() -> None:
    x = fad.tensor(VALUES)
    for convert in (float, int, bool, lambda x: x.item()):
        with pytest.raises((TypeError, ValueError)):
            convert(x)
    assert fad.tensor([[2.0]]).item() == 2.0


@pytest.mark.parametrize(
    ("read", "data", "words"),
    [
        (
            lambda x: x.item(),
            [1.0, 2.0],
            ("item() of Tensor float32[2]", "2 elements", "write x[i].item()"),
        ),
        (
            float,
            [1.0, 2.0],
            ("float() of Tensor", "float(x[i]) for one", "x.tolist() or x.numpy() for all"),
        ),
        (math.sin, [1.0, 2.0], ("write fad.numpy.sin(x) for math.sin(x)",)),
        (int, [1.0, 2.0], ("int() of Tensor float32[2]", "write x.astype(int), or int(x[i])")),
        (complex, [1.0, 2.0], ("complex() of Tensor", "complex(x[i])")),
        (range, [1, 2], ("index() of Tensor int32[2]", "write x[i]")),
        (range, 1.0, ("index() of Tensor float32[]", "write int(x)")),
        (float, 1j, ("float() of Tensor complex64[]", "write x.real or abs(x)")),
        (int, 1j, ("int() of Tensor complex64[]", "write x.real or abs(x)")),
        (lambda x: x.item(), [], ("a Tensor with 0 elements", "there is no number in it")),
        (bool, [1.0, 2.0], ("bool() of Tensor float32[2]", "a.any() or a.all()")),
        (lambda x: f"{x:.1f}", [1.0, 2.0], ("'.1f' is for one number", "format x.tolist()")),
        (float, jax.random.key(0), ("float() of Tensor key<fry>[]", "fad.random.key_data(key)")),
        (
            lambda x: x.item(),
            jax.random.key(0),
            ("item() of Tensor", "fad.random.normal(key, shape)"),
        ),
        (lambda x: x.numpy(), jax.random.key(0), ("numpy() of Tensor", "fad.random.key_data(key)")),
        (
            lambda x: x.tolist(),
            jax.random.key(0),
            ("tolist() of Tensor", "fad.random.key_data(key)"),
        ),
    ],
)
def test_what_is_no_number_is_refused_with_what_to_write(
    read: Any, data: Any, words: tuple[str, ...]
) -> None:
    for x in (fad.tensor(data), fad.asarray(fad.tensor(data).array)):
        with pytest.raises(ArgumentError) as caught:
            read(x)
        for word in words:
            assert word in str(caught.value)
    if str(x.dtype) == "float32":  # the same of what is tracked
        with pytest.raises(ArgumentError, match=r"elements|one number|a.any\(\)|write int"):
            fad.grad(lambda x: (read(x), x.sum())[1])(x)


def test_the_array_is_the_primal_inside_of_derivatives() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2.0
        seen.append((y.array, unwrap(y), is_tracked(y), is_tracked(y.detach())))
        return fnp.sum(y)

    fad.grad(f)(VALUES)
    fad.jvp(lambda x: fad.grad(f)(x), (VALUES,), (VALUES,))
    f(leaf(VALUES)).backward()
    for array, value, tracked, detached in seen:
        assert_close((array, value), (jnp.asarray(VALUES) * 2,) * 2)
        assert tracked and not detached


def test_what_outlives_its_transform_reads_as_its_primal() -> None:
    kept: list[Any] = []
    fad.grad(lambda x: kept.append(x) or x * x)(2.0)
    fad.jvp(lambda x: kept.append(x) or x, (2.0,), (1.0,))
    for x in kept:
        assert x.numpy() == float(x) == x.item() == 2.0
        assert not is_tracked(x)


def test_arrays_that_leave() -> None:
    x = fad.tensor(VALUES)
    assert isinstance(x.array, jax.Array) and type(x.numpy()) is np.ndarray
    copied = np.array(x)
    copied[0] = 9.0
    assert_close(x, VALUES)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    with pytest.raises(GradientError, match=r"write x\.detach\(\)\.numpy\(\)"):
        leaf(VALUES).numpy()
    assert x.block_until_ready() is x


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: fad.tensor([1.0, 2.0]), "Tensor([1., 2.], dtype=float32)"),
        (lambda: leaf([1.0]), "Tensor([1.], dtype=float32, requires_grad=True)"),
        (lambda: leaf([1.0]) * 2, "Tensor([2.], dtype=float32, grad_fn=<MultiplyBackward>)"),
        (lambda: fad.tensor(True), "Tensor(True, dtype=bool)"),
        (lambda: fad.tensor([]), "Tensor([], dtype=float32)"),
    ],
)
def test_text_of_tensors(make: Any, text: str) -> None:
    assert repr(make()).lower() == text.lower() and str(make()) == repr(make())


def test_text_inside_of_transforms_and_after_them() -> None:
    seen: list[Any] = []
    texts: list[str] = []

    def f(x: Any) -> Any:
        seen.append(x)
        texts.append(repr(x))
        return fnp.sum(x * x)

    fad.grad(f)(VALUES)
    fad.vmap(f)(VALUES[:, None])
    fad.jvp(f, (VALUES,), (VALUES,))
    with pytest.raises(LevelError, match=r"seen\[3\] is a Tensor of it"):
        fad.jit(f)(VALUES)
    for text, words in zip(texts, ["(grad)", "batch_dim=0", "tangent=[0.5, 2. , 3. ]", "<"]):
        assert words in text, text
    assert "finished)" in repr(seen[1])
    assert "..." in repr(fad.tensor(np.zeros(1000)))
    deleted = fad.asarray(jnp.ones(3))
    deleted.array.delete()
    assert "deleted" in repr(deleted)
