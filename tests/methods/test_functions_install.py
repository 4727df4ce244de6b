"""How Tensors are made, and that each member is installed once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
from fad.core.faces import ToolMember, tool
from fad.methods import LATER, history, in_place, names, operators, values, views

TABLES = [m.MEMBERS for m in (operators, values, views, history, names, in_place)]


def test_every_member_is_installed_and_stands_in_one_table() -> None:
    names = [name for table in TABLES for name in table]
    for module, members in LATER.items():
        assert {*tool(module).MEMBERS} == {*members.split()}
        names += members.split()
    assert len(names) == len(set(names))
    assert all([hasattr(fad.Tensor, name) for name in names])


def test_public_members_have_docstrings() -> None:
    public = [n for n in dir(fad.Tensor) if not n.startswith("_")]
    without = [
        n for n in public if callable(getattr(fad.Tensor, n)) and not getattr(fad.Tensor, n).__doc__
    ]
    assert not without


def test_the_first_use_of_a_member_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reshape", "mT"):
        monkeypatch.setattr(fad.Tensor, name, ToolMember(fad.Tensor, "methods.shapes", name))
    calls = []

    class Counting(fad.Tensor):
        __slots__ = ()

        def reshape(self, *shape: Any, **kwargs: Any) -> Any:
            calls.append("reshape")
            return super().reshape(*shape, **kwargs)

        @property
        def mT(self) -> Any:
            calls.append("mT")
            return super().mT

    x = fad.asarray(jnp.ones((2, 3)))
    x.__class__ = Counting
    assert x.reshape(6).shape == (6,) and calls == ["reshape"]
    assert x.mT.shape == (3, 2) and calls == ["reshape", "mT"]
    monkeypatch.setattr(fad.Tensor, "mT", ToolMember(fad.Tensor, "methods.shapes", "mT"))
    assert x.mT.shape == (3, 2)
    monkeypatch.setattr(fad.Tensor, "mT", ToolMember(fad.Tensor, "methods.shapes", "mT"))
    with pytest.raises(AttributeError):
        fad.Tensor.__dict__["mT"].__set__(x, 1)
    assert calls == ["reshape", "mT", "mT"]


@pytest.mark.parametrize(
    "data",
    [1.5, 2, True, 1j, [1.0, 2.0], [[1, 2], [3, 4]], np.ones(3, np.int16), jnp.ones((2, 2)), []],
    ids=str,
)
def test_data_is_copied_with_the_dtype_that_jax_gives_it(data: Any) -> None:
    for make in (fad.tensor, fad.asarray):
        x = make(data)
        assert isinstance(x, fad.Tensor) and not x.requires_grad and x.is_leaf
        assert_close(x.array, jnp.asarray(data))
        assert make(data, dtype="complex64").dtype == jnp.complex64


def test_a_new_tensor_shares_nothing() -> None:
    data = np.ones(3, np.float32)
    y = leaf(data) * 2.0
    for source in (data, jnp.asarray(data), y, [1.0, 1.0, 1.0]):
        x = fad.tensor(source)
        assert not x.requires_grad and x.is_leaf
        x += 1.0
    assert_close((data, y.detach()), (np.ones(3, np.float32), np.full(3, 2, np.float32)))
    mixed = fad.tensor([fad.tensor(1.0), 2.0])
    assert mixed.tolist() == [1.0, 2.0]


def test_asarray_returns_a_tensor_as_it_is() -> None:
    x = leaf([1.0])
    assert fad.asarray(x) is x and fad.asarray(x, "float32") is x
    half = fad.asarray(x, "float16")
    assert half is not x and half.requires_grad and half.dtype == jnp.float16


def test_made_in_transforms_they_are_constants() -> None:
    def f(x: Any) -> Any:
        made = fad.tensor(x)
        assert made.shape == x.shape and not made.requires_grad
        return (made * x).sum()

    x = jnp.arange(3.0)
    assert_close(fad.grad(f)(x), x)
    assert_close(fad.jvp(f, (x,), (jnp.ones(3),))[1], x.sum())
    assert_close(fad.vmap(f)(x[:, None]), x * x)
    assert_close(jax.jit(lambda x: fad.tensor(x).array * 2)(x), x * 2)


def test_integers_cannot_require_grad() -> None:
    with pytest.raises(TypeError, match="floating or complex"):
        fad.tensor([1, 2], requires_grad=True)


def test_in_inference_mode_they_are_inference_tensors() -> None:
    with fad.inference_mode():
        made = [fad.tensor([1.0]), fad.asarray(np.ones(2))]
    assert all([t.is_inference() for t in made])
