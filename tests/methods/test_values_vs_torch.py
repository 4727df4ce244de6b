"""What leaves a Tensor: NumPy arrays, Python numbers, text; next to PyTorch's; and ``hasattr``."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
from fad.errors import ArgumentError, HostValueError, LevelError, TrackedValueError

NUMBERS = [3.0, 1.0 / 3.0, -2, True, 1 - 2j, float("nan")]


@pytest.mark.parametrize("data", NUMBERS)
@pytest.mark.parametrize("spec", ["", ".3f", ">12", "e", "+"])
def test_a_tensor_without_dimensions_is_formatted_as_its_number(
    torch: Any, data: Any, spec: str
) -> None:
    def text(t: Any) -> Any:
        try:
            return format(t, spec)
        except (ValueError, TypeError):
            return "refused"

    assert text(fad.tensor(data)) == text(torch.tensor(data))


def test_text_of_other_tensors(torch: Any) -> None:
    x = fad.tensor(2.0, requires_grad=True)
    assert f"{x}" == f"{torch.tensor(2.0, requires_grad=True)}" == "2.0"
    assert f"{x * 2.0:.2f}" == "4.00"
    v = fad.tensor([1.0, 2.0])
    assert f"{v}" == str(v) == repr(v)
    with pytest.raises(TypeError, match=r"'.3f' is for one number, got Tensor float32\[2\]"):
        f"{v:.3f}"
    seen = []

    def f(x: Any) -> Any:
        seen.append(f"{x}")
        with pytest.raises(HostValueError):
            f"{x:.2f}"
        return x * 2.0

    fad.vmap(f)(jnp.ones(2))
    fad.jit(f)(jnp.float32(1.0))
    assert all(text.startswith("Tensor(") for text in seen)
    assert fad.grad(lambda x: (seen.append(f"{x}"), x * x)[1])(3.0) == 6.0
    assert seen[-1] == "3.0"


@pytest.mark.parametrize("convert", [float, int, complex, bool, lambda t: t.item()])
def test_a_tensor_with_one_element_is_a_number(torch: Any, convert: Callable[[Any], Any]) -> None:
    for data in (2.0, [2.0], [[2.0]]):
        ours, theirs = convert(fad.tensor(data)), convert(torch.tensor(data))
        assert ours == theirs
        assert type(ours) is type(theirs)
    with pytest.raises(ArgumentError, match=r"of Tensor float32\[2\]"):
        convert(fad.tensor([1.0, 2.0]))


def test_numpy_copies_where_asked_and_forces_where_asked(torch: Any) -> None:
    x = fad.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 5.0
    a = x.numpy(copy=True)
    a[0] = 5.0
    assert a.tolist() == [5.0, 2.0]
    assert x.tolist() == [1.0, 2.0]

    leaf, theirs = (lib.tensor([1.0], requires_grad=True) for lib in (fad, torch))
    for t in (leaf, theirs):
        with pytest.raises(RuntimeError, match="detach"):
            t.numpy()
        assert t.numpy(force=True).tolist() == [1.0]
    with pytest.raises(TrackedValueError):
        leaf.numpy(copy=True)


def _states() -> dict[str, Any]:
    """Tensors in every state, by a name; those inside of a transform are looked at there."""
    base = fad.tensor(np.ones((2, 2))) * 1.0
    view = base[0]
    base += 1.0
    deleted = fad.tensor([1.0])
    deleted.array.delete()
    with fad.inference_mode():
        inference = fad.tensor([1.0])
    with fad.dual_level():
        dual = fad.make_dual(jnp.ones(2), jnp.ones(2))
    return {
        "number": fad.tensor(1.0),
        "vector": fad.tensor([1.0, 2.0]),
        "matrix": fad.tensor(np.ones((2, 3))),
        "empty": fad.tensor(np.ones(0)),
        "integer": fad.tensor([1]),
        "bool": fad.tensor(True),
        "complex": fad.tensor(1j),
        "leaf": fad.tensor([1.0], requires_grad=True),
        "result": fad.tensor([1.0], requires_grad=True) * 2.0,
        "view": view,
        "deleted": deleted,
        "inference": inference,
        "dual of a finished level": dual,
    }


def in_jit(f: Any) -> None:
    with contextlib.suppress(LevelError):  # it finds what is kept
        fad.jit(f)(jnp.ones(2))


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: fad.grad(f)(jnp.ones(2)),
    "jvp": lambda f: fad.jvp(f, (jnp.ones(2),), (jnp.ones(2),)),
    "vmap": lambda f: fad.vmap(f)(jnp.ones((2, 2))),
    "vmap of grad": lambda f: fad.vmap(fad.grad(f))(jnp.ones((2, 2))),
    "jit": lambda f: in_jit(f),
    "jax.jit": lambda f: jax.jit(fad.to_jax(f))(jnp.ones(2)),
    "checkpoint": lambda f: fad.grad(fad.checkpoint(f))(jnp.ones(2)),
    "scan": lambda f: fad.lax.scan(lambda c, x: (f(x), x), fad.tensor(0.0), jnp.ones((2, 2))),
    "dual_level": lambda f: [f(fad.make_dual(jnp.ones(2), jnp.ones(2))) for _ in [0]],
}
NAMES = sorted({*dir(fad.Tensor), *fad.Tensor.__slots__})


def look(x: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the gradient of what is no leaf
        for name in NAMES:
            hasattr(x, name)  # raises what is no AttributeError


def test_hasattr_is_never_an_error_in_any_state() -> None:
    for x in _states().values():
        look(x)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_hasattr_is_never_an_error_in_a_transform_or_after_it(name: str) -> None:
    kept = []

    def f(x: Any) -> Any:
        for t in (x, x * 2.0):
            look(t)
            kept.append(t)
        return (x * x).sum()

    with fad.dual_level():
        TRANSFORMS[name](f)
    for t in kept:
        look(t)


def test_what_an_attribute_raises_is_what_it_was_as_well() -> None:
    def f(x: Any) -> Any:
        assert not hasattr(x, "array")
        for error in (HostValueError, AttributeError):
            with pytest.raises(error, match="a value for each lane"):
                x.array
        kept.append(x)
        return x

    kept: list[Any] = []
    fad.vmap(f)(jnp.ones(2))
    with pytest.raises(LevelError, match="after its vmap had finished"):
        kept[0].T
    for name in ("mT", "view_fn"):
        x = fad.tensor([1.0])
        assert not hasattr(x, name)
        assert getattr(x, name, None) is None
        with pytest.raises(RuntimeError, match=name):
            getattr(x, name)
    assert hasattr(fad.tensor(np.ones((2, 3))), "mT")
    assert hasattr(fad.tensor(np.ones(3))[:1], "view_fn")
    for x in (fad.tensor(1.0), fad.tensor(np.ones(3))[:1], fad.tensor(np.ones((1, 2, 2)))):
        assert all(hasattr(x, name) for name in dir(x))
