"""The arguments of a call that a transform takes, and what comes of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import fad
from fad import extend
from fad.errors import ArgumentError, StructureError


class PlainLevel(extend.RecordingLevel):
    """A level that adds nothing."""

    kind = "plain"

    def evaluate(self, op, args):
        values, _, _ = self.unwrapped(args)
        return extend.map_outputs(self.lift, extend.bind(op, values))


def plain(f, argnums=None):
    def transformed(*args, **kwargs):
        call = extend.Call("plain", args, kwargs, argnums)
        with PlainLevel() as level:
            inputs = [extend.new_tensor(x, level) for x in call.values]
            outs = call.outputs(call.run(f, level, inputs))
            values = [level.value_and_aux(x)[0] for x in outs]
            written = call.written(inputs, lambda x: x.value)
        call.write_back(written)
        return call.result(values)

    return transformed


def test_arrays_give_arrays_and_a_tensor_gives_tensors():
    f = plain(lambda p, scale=1.0: {"y": p["b"] * scale, "x": p["a"]})
    arrays = f({"b": jnp.ones(2), "a": 3.0}, scale=2.0)
    assert list(arrays) == ["y", "x"] and all(isinstance(v, jax.Array) for v in arrays.values())
    tensors = f({"b": fad.tensor([1.0, 1.0]), "a": 3.0}, scale=2.0)
    assert isinstance(tensors["y"], fad.Tensor) and tensors["y"].tolist() == [2.0, 2.0]


def test_writes_in_place_reach_the_caller():
    x = fad.tensor([1.0, 2.0])
    plain(lambda x: x.mul_(3.0))(x)
    assert x.tolist() == [3.0, 6.0]


def test_it_is_part_of_other_transforms():
    square = plain(lambda x, y: x * x * y, argnums=0)
    assert float(fad.grad(square)(3.0, 2.0)) == 12.0
    assert fad.vmap(square)(jnp.arange(3.0), jnp.ones(3)).tolist() == [0.0, 1.0, 4.0]


def test_names_tangents_and_structure():
    call = extend.Call("plain", ({"w": 1.0, "b": jnp.ones(2)}, 2.0), argnums=(0,))
    assert call.names == ["argument 0['b']", "argument 0['w']"]
    assert call.argument(["b", "w"]) == ({"w": "w", "b": "b"},)
    assert call.tangent(0, None) is None
    with pytest.raises(StructureError, match=r"plain: the tangent of argument 0\['b'\] must have"):
        call.tangent(0, jnp.ones(3))


def test_bad_input():
    with pytest.raises(ArgumentError, match="plain: argument 0 must be an array, got str"):
        extend.Call("plain", ("a",))
    with pytest.raises(ArgumentError, match="plain: argument 0 must be an array, got str"):
        extend.Call("plain", ("a",), differentiated=False)
    with pytest.raises(ArgumentError, match="floating or complex dtype"):
        extend.Call("plain", (2,))
    with pytest.raises(StructureError, match="out of range"):
        extend.Call("plain", (2.0,), argnums=1)
    with pytest.raises(TypeError, match="plain: the first argument must be a function"):
        extend.Call.check(2.0, "plain")
    with pytest.raises(ArgumentError, match="plain: output 0 of the function must be an array"):
        plain(lambda x: "a")(1.0)
