"""What goes into each transform and comes out of it: argnums, aux, pytrees, arrays and Tensors, names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from pytree_functions import PARAMS, W, f_loss, j_loss

import fad
import fad.numpy as fnp
from fad.errors import StructureError

X = jnp.array([0.3, -0.8, 1.2])


# argnums, has_aux, keyword arguments


@pytest.mark.sweep(
    "argnums", [0, 1, -1, -2, 2, (0,), (0, 1), (1, 0), (-1, 0), (2, 0, 1), [1]], sample=5
)
@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacrev", "jacfwd", "hessian"])
def test_argnums(name: str, argnums: Any) -> None:
    args = (X, X[::-1] * 2.0, jnp.float32(0.5))

    def f(xp: Any, x: Any, y: Any, s: Any) -> Any:
        return xp.sum(xp.sin(x) * y * y) * s * s

    in_jax = tuple(argnums) if isinstance(argnums, list) else argnums
    got = getattr(fad, name)(functools.partial(f, fnp), argnums)(*args)
    assert_close(got, jax.jit(getattr(jax, name)(functools.partial(f, jnp), in_jax))(*args))


def test_arguments_that_are_not_differentiated_may_be_anything() -> None:
    def f(x: Any, how: str, table: dict[str, Any], n: Any = None) -> Any:
        assert how == "twice" and n is None
        assert isinstance(table["k"], fad.Tensor) and table["name"] == "t"
        return fnp.sum(x * table["k"]) * 2.0

    got = fad.grad(f)(X, "twice", {"k": np.array([1, 2, 3]), "name": "t"})
    assert_close(got, np.array([2.0, 4.0, 6.0], np.float32))


@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_has_aux(argnums: Any) -> None:
    def f(xp: Any, x: Any, s: Any) -> Any:
        y = xp.sin(x) * s
        return xp.sum(y), {"y": y, "n": 3, "name": "aux", "bits": x > 0}

    ff, jf = functools.partial(f, fnp), functools.partial(f, jnp)
    args = (X, jnp.float32(2.0))

    def same(got: Any, expected: Any) -> None:
        assert got.pop("name") == "aux" and expected.pop("name") == "aux"
        assert_close(got, expected)

    for name in ("grad", "jacrev", "jacfwd"):
        got, aux = getattr(fad, name)(ff, argnums, has_aux=True)(*args)
        expected, expected_aux = getattr(jax, name)(
            lambda *a: (jf(*a)[0], {k: v for k, v in jf(*a)[1].items() if k != "name"}),
            argnums,
            has_aux=True,
        )(*args)
        assert_close(got, expected)
        same(aux, {**expected_aux, "name": "aux"})
    (value, aux), got = fad.value_and_grad(ff, argnums, has_aux=True)(*args)
    assert_close(value, jf(*args)[0])
    same(aux, jf(*args)[1])
    assert_close(got, jax.grad(lambda *a: jf(*a)[0], argnums)(*args))


def test_has_aux_of_functions_with_a_pullback_or_a_tangent() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x), {"twice": x * 2.0}

    y, pull, aux = fad.vjp(f, X, has_aux=True)
    assert_close((y, aux), (jnp.sin(X), {"twice": X * 2.0}))
    assert_close(pull(X), (jnp.cos(X) * X,))
    y, y_t, aux = fad.jvp(f, (X,), (X,), has_aux=True)
    assert_close((y, y_t, aux), (jnp.sin(X), jnp.cos(X) * X, {"twice": X * 2.0}))
    y, push, aux = fad.linearize(f, X, has_aux=True)
    assert_close((y, push(X), aux), (jnp.sin(X), jnp.cos(X) * X, {"twice": X * 2.0}))
    for value in jax.tree.leaves(aux):
        assert isinstance(value, jax.Array)


def test_aux_of_nested_transforms_keeps_the_outer_derivative() -> None:
    def f(x: Any) -> Any:
        g, aux = fad.grad(lambda v: (fnp.sum(v**3), fnp.sin(v)), has_aux=True)(x)
        return fnp.sum(g * aux)

    expected = jax.grad(lambda x: jnp.sum(3 * x**2 * jnp.sin(x)))(X)
    assert_close(fad.grad(f)(X), expected)
    assert_close(fad.jacfwd(f)(X), expected)


def test_keyword_arguments_are_passed_on() -> None:
    for name in ("grad", "value_and_grad", "jacrev", "jacfwd", "hessian"):
        got = getattr(fad, name)(f_loss)(PARAMS, X, scale=jnp.array([1.0, 2.0]))
        expected = jax.jit(getattr(jax, name)(j_loss))(PARAMS, X, scale=jnp.array([1.0, 2.0]))
        assert_close(got, expected)
    got = fad.vmap(lambda x, *, k: x * k)(X, k=X)  # keyword arguments are mapped, as in JAX
    assert_close(got, X * X)


# Pytrees


def test_registered_classes_pass_through() -> None:
    class Point:
        def __init__(self, x: Any, y: Any) -> None:
            self.x, self.y = x, y

    jax.tree_util.register_pytree_node(
        Point, lambda p: ((p.x, p.y), None), lambda _, children: Point(*children)
    )
    p = Point(X, W)
    g = fad.grad(lambda p: fnp.sum(p.y @ p.x))(p)
    assert isinstance(g, Point)
    assert_close((g.x, g.y), (W.sum(0), jnp.stack([X, X])))
    doubled = fad.vmap(lambda p: Point(p.x * 2.0, p.y))(Point(X, W.T))
    assert_close((doubled.x, doubled.y), (X * 2.0, W.T))


def test_a_class_that_is_no_pytree_is_told_how_to_become_one() -> None:
    class Plain:
        def __init__(self) -> None:
            self.x = X

    @dataclass
    class Model:
        x: Any

    advice = r"register it once: jax.tree_util.register_dataclass\(Model\)"
    for transform in (fad.grad, fad.jit, fad.vmap):
        with pytest.raises((TypeError, ValueError), match=advice):
            transform(lambda m: fnp.sum(m.x))(Model(X))
    with pytest.raises(TypeError, match="make Plain a dataclass, and register it"):
        fad.grad(lambda m: fnp.sum(m.x))(Plain())
    with pytest.raises(TypeError, match=r"as another argument\.$"):
        fad.grad(fnp.sum)("text")
    jax.tree_util.register_dataclass(Model)
    assert_close(fad.grad(lambda m: fnp.sum(m.x))(Model(X)).x, jnp.ones(3))


def test_empty_trees_and_unused_arguments() -> None:
    assert fad.grad(lambda t: fnp.float32(1.0) * 1.0)({}) == {}
    got = fad.grad(lambda t: fnp.sum(t["a"]))({"a": X, "b": None, "c": W})
    assert got["b"] is None
    assert_close((got["a"], got["c"]), (jnp.ones(3), jnp.zeros((2, 3))))


# Arrays in, arrays out; Tensors in, Tensors out


def calls() -> dict[str, Callable[[Any], Any]]:
    """Each transform as a function of one array."""
    return {
        "grad": fad.grad(lambda x: fnp.sum(fnp.sin(x))),
        "value_and_grad": fad.value_and_grad(lambda x: fnp.sum(fnp.sin(x))),
        "grad aux": fad.grad(lambda x: (fnp.sum(fnp.sin(x)), x), has_aux=True),
        "vjp": lambda x: (lambda y, pull: (y, pull(y)))(*fad.vjp(fnp.sin, x)),
        "jvp": lambda x: fad.jvp(fnp.sin, (x,), (x,)),
        "linearize": lambda x: (lambda y, push: (y, push(x)))(*fad.linearize(fnp.sin, x)),
        "jacrev": fad.jacrev(fnp.sin),
        "jacfwd": fad.jacfwd(fnp.sin),
        "hessian": fad.hessian(lambda x: fnp.sum(fnp.sin(x))),
        "hvp": lambda x: fad.hvp(lambda x: fnp.sum(fnp.sin(x)), (x,), (x,)),
        "vmap": fad.vmap(fnp.sin),
        "vmap const": fad.vmap(lambda x: fnp.ones(2)),
        "checkpoint": fad.checkpoint(fnp.sin),
        "functionalize": fad.functionalize(fnp.sin),
        "jit": fad.jit(fnp.sin),
        "nested": fad.vmap(fad.grad(fad.grad(fnp.sin))),
    }


BIASED: dict[str, Any] = {"w": X, "b": None, "c": (W, None)}
TANGENTS: list[Callable[[Any, Any], Any]] = [
    lambda v, w: {"w": v, "b": None, "c": (w, None)},  # as in JAX
    lambda v, w: {"w": v, "b": None, "c": (None, None)},
    lambda v, w: {"w": v, "b": None, "c": None},
]


@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize("name", ["jvp", "linearize", "hvp", "ggnvp"])
def test_none_in_tangents_is_an_empty_subtree_or_a_zero(name: str, form: int) -> None:
    def model(p: Any) -> Any:
        return {"y": fnp.sin(p["w"]) * fnp.sum(p["c"][0]), "z": None}

    def loss(out: Any) -> Any:
        return fnp.sum(out["y"] ** 2)

    def tangent(t: Any) -> Any:
        if name == "linearize":
            return fad.linearize(model, BIASED)[1](t)
        if name == "hvp":
            return fad.hvp(lambda p: loss(model(p)), (BIASED,), (t,))[1]
        if name == "ggnvp":
            return fad.ggnvp(model, loss, BIASED, t)
        return fad.jvp(model, (BIASED,), (t,))[1]

    v, w = X + 1.0, W * 2.0 if form == 0 else jnp.zeros_like(W)
    full = {"w": v, "b": None, "c": (w, None)}
    assert_close(tangent(TANGENTS[form](v, w)), tangent(full))
    if name == "jvp":
        expected = jax.jvp(lambda v, w: jnp.sin(v) * jnp.sum(w), (X, W), (v, w))[1]
        assert_close(tangent(full), {"y": expected, "z": None})
    with pytest.raises(StructureError, match=r"structure of the primals.*'b': None.*got .*'b': \*"):
        tangent({**full, "b": v})


def test_none_in_a_series_is_an_empty_subtree_or_a_zero() -> None:
    def f(p: Any) -> Any:
        return {"y": p["w"] * fnp.sum(p["c"][0]), "z": None}

    v, w = X + 1.0, jnp.zeros_like(W)
    for series in (
        {"w": [v], "b": None, "c": ([w], None)},
        {"w": [v], "b": None, "c": (None, None)},
    ):
        assert_close(fad.jet(f, (BIASED,), (series,))[1], {"y": [v * jnp.sum(W)], "z": None})


def test_a_pullback_takes_the_output_of_its_function() -> None:
    def f(x: Any) -> Any:
        return {"y": x * x, "z": None, "u": (x, 3.0 * x)}

    pull = fad.vjp(f, X)[1]
    assert_close(pull(f(X)), (2 * X**3 + X + 9 * X,))
    assert_close(pull({"y": None, "z": None, "u": (X, None)}), (X,))
    assert_close(pull({"y": X, "z": None, "u": None}), (2 * X * X,))
    assert_close(pull(None), (0 * X,))
    with pytest.raises(
        StructureError, match=r"structure of the output, .*'z': None.*got .*'z': \*"
    ):
        pull({**f(X), "z": X})


@pytest.mark.parametrize("name", calls())
def test_arrays_give_arrays_and_tensors_give_tensors(name: str) -> None:
    call = calls()[name]
    from_jax, from_numpy = call(X), call(np.asarray(X))
    assert all(isinstance(v, jax.Array) for v in jax.tree.leaves(from_jax))
    assert all(isinstance(v, jax.Array) for v in jax.tree.leaves(from_numpy))
    is_tensor = lambda v: isinstance(v, fad.Tensor)
    from_tensor = call(fad.asarray(X))
    leaves = jax.tree.leaves(from_tensor, is_leaf=is_tensor)
    assert leaves and all(is_tensor(v) and not v.requires_grad for v in leaves)
    assert_close(from_tensor, from_jax)
    assert_close(from_numpy, from_jax)


@pytest.mark.parametrize("name", [n for n in calls() if n != "vmap const"])
def test_a_tracked_tensor_keeps_its_history_through_every_transform(name: str) -> None:
    x = fad.tensor(X, requires_grad=True)
    out = jax.tree.leaves(calls()[name](x), is_leaf=lambda v: isinstance(v, fad.Tensor))[-1]
    assert out.requires_grad
    (g,) = fad.autograd.grad(fnp.sum(out * out), x)
    reference = {
        "grad": jnp.cos,
        "value_and_grad": jnp.cos,
        "grad aux": lambda x: x,
        "vjp": lambda x: jnp.cos(x) * jnp.sin(x),
        "jvp": lambda x: jnp.cos(x) * x,
        "linearize": lambda x: jnp.cos(x) * x,
        "jacrev": jnp.cos,
        "jacfwd": jnp.cos,
        "hessian": lambda x: -jnp.sin(x),
        "hvp": lambda x: -jnp.sin(x) * x,
        "nested": lambda x: -jnp.sin(x),
    }.get(name, jnp.sin)
    assert_close(g, jax.grad(lambda x: jnp.sum(reference(x) ** 2))(X))


def test_inside_a_transform_the_user_sees_tensors() -> None:
    seen = []

    def f(x: Any, y: Any) -> Any:
        seen.extend([x, y["a"]])
        return fnp.sum(x * y["a"])

    fad.grad(f)(X, {"a": X})
    fad.jvp(f, (X, {"a": X}), (X, {"a": X}))
    fad.vmap(f, in_dims=(0, None))(X, {"a": X})
    fad.linearize(f, X, {"a": X})
    fad.checkpoint(f)(X, {"a": X})
    assert len(seen) >= 10 and all(isinstance(v, fad.Tensor) for v in seen)
    assert all(v.dtype == np.float32 and v.shape in ((3,), ()) for v in seen)


def test_python_scalars_are_weakly_typed() -> None:
    value, g = fad.value_and_grad(lambda x: x**2)(3.0)
    assert value.dtype == g.dtype == np.float32 and g.weak_type
    x = jnp.ones(2, jnp.bfloat16)
    assert fad.vmap(lambda x: x * 2.0)(x).dtype == jnp.bfloat16
    assert fad.grad(lambda s: fnp.sum(x * s).astype(float))(3.0).dtype == np.float32
    assert fad.grad(lambda x: fnp.sum(x * 3.0).astype(np.float32))(x).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: f,
        lambda f: lambda x: fad.jvp(f, (x,), (W[0],)),
        lambda f: lambda x: fad.linearize(f, x),
        fad.jacfwd,
        lambda f: fad.jacfwd(f, chunk_size=1),
        lambda f: fad.jacfwd(f, chunk_size=2),
        fad.vmap,
        fad.jit,
        lambda f: fad.vmap(lambda x: fad.jvp(f, (x,), (1.0,))),
        lambda f: fad.jit(fad.jacfwd(f)),
    ],
)
@pytest.mark.parametrize("replay", [False, True])
def test_a_write_to_an_argument_reaches_the_caller(transformed: Any, replay: bool) -> None:
    def f(x: Any) -> Any:
        y = fnp.exp(x)  # keeps its output alone for the backward pass
        x += y
        x *= 3.0
        return y * 2.0

    function = transformed(f)
    with fad.autograd.compiled(replay):
        for _ in range(3):
            x = fad.tensor(X)
            function(x)
            assert_close(x.array, 3.0 * (X + jnp.exp(X)))
    leaf = fad.tensor(X, requires_grad=True)
    with pytest.raises(fad.errors.GradientError, match="leaf"):
        function(leaf)
    x = leaf * 1.0
    function(x)
    (g,) = fad.autograd.grad(x.sum(), leaf)
    assert_close(g, 3.0 * (1.0 + jnp.exp(X)))


# Constants, and values from outside


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
def test_outputs_that_do_not_depend_on_the_input(name: str) -> None:
    f = lambda xp: lambda x: {"a": xp.ones(2), "b": x * 2.0, "c": 1.0}
    assert_close(getattr(fad, name)(f(fnp))(X), getattr(jax, name)(f(jnp))(X))
    assert_close(fad.grad(lambda x: 1.0)(X), jnp.zeros(3))
    assert_close(fad.jvp(lambda x: fnp.ones(2), (X,), (X,)), (jnp.ones(2), jnp.zeros(2)))


def test_functions_returned_from_a_transform_keep_working() -> None:
    _, pull, inner = fad.vjp(lambda x: (fnp.sin(x), fad.vjp(fnp.cos, x)[1]), X, has_aux=True)
    assert_close(pull(X), (jnp.cos(X) * X,))
    assert_close(inner(X)[0], -jnp.sin(X) * X)


def test_closing_over_tracked_values() -> None:
    w = fad.tensor(W, requires_grad=True)
    out = fad.vmap(lambda x: fad.grad(lambda v: fnp.sum(fnp.tanh(w @ v)))(x))(jnp.stack([X, X * 2]))
    (out * out).sum().backward()

    def total(w: Any) -> Any:
        g = jax.vmap(jax.grad(lambda v: jnp.sum(jnp.tanh(w @ v))))(jnp.stack([X, X * 2]))
        return jnp.sum(g * g)

    assert_close(w.grad, jax.grad(total)(W))


# Inside of JAX


def test_transforms_inside_of_jax() -> None:
    f = lambda x: fnp.sum(fnp.sin(x) * x)
    expected = jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x))(X)
    assert_close(jax.jit(fad.hessian(f))(X), expected)
    assert_close(jax.jacfwd(fad.grad(f))(X), expected)
    assert_close(jax.jacrev(jax.jit(fad.grad(f)))(X), expected)
    assert_close(jax.vmap(fad.hessian(f))(jnp.stack([X, X]))[1], expected)
    assert_close(jax.jit(fad.vmap(fad.grad(fnp.sin)))(X), jnp.cos(X))
    assert_close(jax.grad(lambda x: fad.vmap(fad.grad(fnp.sin))(x).sum())(X), -jnp.sin(X))


# Decorated functions keep their name


def test_transformed_functions_keep_name_and_docstring() -> None:
    def named(x: Any) -> Any:
        """Doc."""
        return x

    for transform in (fad.grad, fad.vmap, fad.jacrev, fad.jacfwd, fad.checkpoint, fad.jit):
        assert transform(named).__name__ == "named" and transform(named).__doc__ == "Doc."
