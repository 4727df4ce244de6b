"""The options of each transform, what goes in and what comes out, and the laws between transforms."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, bare, is_idle

import fad
import fad.numpy as fnp
from fad.errors import LevelError
from fad.testing.functions import OneMethodWave

X = jnp.array([0.3, -0.8, 1.2])
W = jnp.array([[0.5, -1.0, 0.2], [1.5, 0.7, -0.4]])
PARAMS = {"w": W, "b": (jnp.array([0.1, -0.2]), jnp.float32(0.3))}


def loss(xp: Any, params: Any, x: Any, scale: Any = 1.0) -> Any:
    """A scalar of parameters in a pytree."""
    b, c = params["b"]
    return xp.sum(xp.tanh(params["w"] @ x + b) * scale) + c * xp.sum(x * x)


def layer(xp: Any, params: Any, x: Any) -> Any:
    """Outputs in a pytree."""
    b, c = params["b"]
    hidden = xp.tanh(params["w"] @ x + b)
    return {"hidden": hidden, "norm": (c * xp.sum(x * x),)}


f_loss, j_loss = functools.partial(loss, fnp), functools.partial(loss, jnp)
f_layer, j_layer = functools.partial(layer, fnp), functools.partial(layer, jnp)


# argnums, has_aux, keyword arguments


@pytest.mark.parametrize(
    "argnums", [0, 1, -1, -2, 2, (0,), (0, 1), (1, 0), (-1, 0), (2, 0, 1), [1]]
)
@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacrev", "jacfwd", "hessian"])
def test_argnums(name: str, argnums: Any) -> None:
    args = (X, X[::-1] * 2.0, jnp.float32(0.5))

    def f(xp: Any, x: Any, y: Any, s: Any) -> Any:
        return xp.sum(xp.sin(x) * y * y) * s * s

    in_jax = tuple(argnums) if isinstance(argnums, list) else argnums
    got = getattr(fad, name)(functools.partial(f, fnp), argnums)(*args)
    assert_close(got, getattr(jax, name)(functools.partial(f, jnp), in_jax)(*args))


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
        expected = getattr(jax, name)(j_loss)(PARAMS, X, scale=jnp.array([1.0, 2.0]))
        assert_close(got, expected)
    got = fad.vmap(lambda x, *, k: x * k)(X, k=X)  # keyword arguments are mapped, as in JAX
    assert_close(got, X * X)


# Pytrees


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_jacobians_of_pytrees(name: str, argnums: Any) -> None:
    got = getattr(fad, name)(f_layer, argnums)(PARAMS, X)
    assert_close(got, getattr(jax, name)(j_layer, argnums)(PARAMS, X))


def test_gradients_and_hessians_of_pytrees() -> None:
    assert_close(fad.grad(f_loss, (0, 1))(PARAMS, X), jax.grad(j_loss, (0, 1))(PARAMS, X))
    assert_close(fad.hessian(f_loss)(PARAMS, X), jax.hessian(j_loss)(PARAMS, X))
    assert_close(fad.hessian(f_loss, (0, 1))(PARAMS, X), jax.hessian(j_loss, (0, 1))(PARAMS, X))


def test_hvp() -> None:
    tangents = (jax.tree.map(jnp.cos, PARAMS), jnp.sin(X))
    got = fad.hvp(f_loss, (PARAMS, X), tangents)
    expected = jax.jvp(jax.grad(j_loss, (0, 1)), (PARAMS, X), tangents)
    assert_close(got, expected)
    # Against the whole Hessian.
    (h,) = fad.hessian(lambda x: f_loss(PARAMS, x), (0,))(X)
    _, (product,) = fad.hvp(lambda x: f_loss(PARAMS, x), (X,), (X,))
    assert_close(product, h[0] @ X)


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


# vmap


IN_DIMS = [
    (0, (X, X)),
    ((0, None), (X, X)),
    ((None, 0), (X, X)),
    ((1, 0), (W, X)),
    ((-1, 0), (W, X)),
    ((-2, None), (W, X)),
    ([1, 0], (W, X)),
    (0, ({"a": X, "b": W.T}, X)),
    (({"a": 0, "b": 1}, None), ({"a": X, "b": W}, X)),
    (({"a": None, "b": -1}, 0), ({"a": X, "b": W}, X)),
    ((0, None), (X, 2.0)),
    ((None, 0), ({"a": X, "b": 3}, X)),
]


@pytest.mark.parametrize(("in_dims", "args"), IN_DIMS)
def test_in_dims(in_dims: Any, args: Any) -> None:
    def f(xp: Any) -> Callable[..., Any]:
        def total(tree: Any) -> Any:
            return sum(xp.sum(xp.sin(v)) for v in jax.tree.leaves(tree, is_leaf=_is_tensor))

        return lambda x, y: total(x) * total(y)

    in_axes = tuple(in_dims) if isinstance(in_dims, list) else in_dims
    got = fad.vmap(f(fnp), in_dims)(*args)
    assert_close(got, jax.vmap(f(jnp), in_axes)(*args))


def _is_tensor(x: Any) -> bool:
    return isinstance(x, fad.Tensor)


OUT_DIMS = [0, 1, -1, 2, -2, (0, 1), (1, None), (0, {"s": -1, "c": None}), (None, None)]


@pytest.mark.parametrize("out_dims", OUT_DIMS[5:])
def test_out_dims_are_a_pytree_prefix(out_dims: Any) -> None:
    def f(xp: Any) -> Callable[..., Any]:
        def g(x: Any, y: Any) -> Any:
            first = xp.stack([y, y * 2.0]) if out_dims[0] is None else xp.stack([x, x * 2.0])
            second = {"s": x * y, "c": xp.cos(y)}
            if out_dims[1] is None:
                second["s"] = y
            return first, second

        return g

    args = (W.T, X[:2])
    got = fad.vmap(f(fnp), (0, None), out_dims)(*args)
    assert_close(got, jax.vmap(f(jnp), (0, None), out_dims)(*args))


@pytest.mark.parametrize("out_dims", OUT_DIMS[:5])
def test_out_dims(out_dims: int) -> None:
    got = fad.vmap(lambda x: fnp.outer(x, x), out_dims=out_dims)(W)
    assert_close(got, jax.vmap(lambda x: jnp.outer(x, x), out_axes=out_dims)(W))


def test_vmap_is_a_stacked_loop() -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": fnp.cumsum(x) * y, "b": fnp.where(x > 0, x, y).sum()}

    batch = jnp.stack([X, X * 2, X - 1, X * X])
    loop = [f(fad.asarray(x), fad.asarray(y)) for x, y in zip(batch, batch[:, 0], strict=True)]
    expected = jax.tree.map(lambda *v: np.stack(v), *[bare(v) for v in loop])
    assert_close(fad.vmap(f)(batch, batch[:, 0]), expected)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 7, 100])
def test_chunk_size_changes_nothing(chunk_size: int) -> None:
    batch = jnp.linspace(-1.0, 1.0, 15).reshape(5, 3)

    def f(x: Any, s: Any) -> Any:
        return {"y": fnp.sin(x) * s, "n": (fnp.sum(x), fnp.outer(x, x))}

    expected = fad.vmap(f, (0, None), {"y": 1, "n": (0, -1)})(batch, 2.0)
    got = fad.vmap(f, (0, None), {"y": 1, "n": (0, -1)}, chunk_size=chunk_size)(batch, 2.0)
    assert_close(got, expected)
    widths = []

    def seen(x: Any) -> Any:
        widths.append(fad.core.level.active_levels()[-1].batch_size)
        return x

    fad.vmap(seen, chunk_size=chunk_size)(batch)
    assert sum(widths) == 5 and max(widths) <= chunk_size
    for transform in (fad.jacrev, fad.jacfwd):
        got = transform(f_layer, (0, 1), chunk_size=chunk_size)(PARAMS, X)
        assert_close(got, jax.jacrev(j_layer, (0, 1))(PARAMS, X))


def test_chunks_under_other_transforms() -> None:
    batch = jnp.linspace(-1.0, 1.0, 10).reshape(5, 2)
    got = fad.grad(lambda x: fnp.sum(fad.vmap(lambda v: v * v.sum(), chunk_size=2)(x)))(batch)
    assert_close(got, jax.grad(lambda x: jnp.sum(jax.vmap(lambda v: v * v.sum())(x)))(batch))


def test_an_empty_batch() -> None:
    for transform in (fad.vmap(fnp.sin), fad.vmap(fnp.sin, chunk_size=2)):
        assert transform(jnp.zeros((0, 3))).shape == (0, 3)
    assert fad.jacrev(lambda x: x[:0])(X).shape == fad.jacfwd(lambda x: x[:0])(X).shape == (0, 3)
    total = lambda x: fnp.sum(x) * fnp.ones(2)
    assert fad.jacrev(total)(X[:0]).shape == fad.jacfwd(total)(X[:0]).shape == (2, 0)


@pytest.mark.parametrize("name", ["jacrev", "jacfwd"])
def test_outputs_that_do_not_depend_on_the_input(name: str) -> None:
    f = lambda xp: lambda x: {"a": xp.ones(2), "b": x * 2.0, "c": 1.0}
    assert_close(getattr(fad, name)(f(fnp))(X), getattr(jax, name)(f(jnp))(X))
    assert_close(fad.grad(lambda x: 1.0)(X), jnp.zeros(3))
    assert_close(fad.jvp(lambda x: fnp.ones(2), (X,), (X,)), (jnp.ones(2), jnp.zeros(2)))


def test_axis_size() -> None:
    got = fad.vmap(lambda x: x * 2.0, in_dims=None, axis_size=4)(X)
    assert_close(got, jax.vmap(lambda x: x * 2.0, in_axes=None, axis_size=4)(X))
    got = fad.vmap(lambda: fad.lax.axis_index("i"), axis_size=3, axis_name="i")()
    assert_close(got, jnp.arange(3))
    assert_close(fad.vmap(lambda x: x, axis_size=3)(X), X)


COLLECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lib, v: v * lib.lax.psum(lib.numpy.sin(v), "i"),
    "psum of a constant": lambda lib, v: v / lib.lax.psum(1, "i"),
    "psum of a tree": lambda lib, v: lib.lax.psum({"a": v, "b": v * v}, "i")["b"] * v,
    "pmean": lambda lib, v: v - lib.lax.pmean(v * v, "i"),
    "pmax": lambda lib, v: lib.numpy.exp(v - lib.lax.pmax(lib.lax.stop_gradient(v), "i")),
    "all_gather": lambda lib, v: v * lib.lax.all_gather(v, "i").sum(0),
    "axis_index": lambda lib, v: v * lib.lax.axis_index("i"),
    "ppermute": lambda lib, v: v * lib.lax.ppermute(v, "i", [(0, 1), (1, 2), (2, 0)]),
    "softmax": lambda lib, v: lib.numpy.exp(v) / lib.lax.psum(lib.numpy.exp(v), "i"),
}


class InFad:
    """fad under the names that `COLLECTIVES` reads."""

    lax, numpy = fad.lax, fnp
    vmap, grad, jvp, jacfwd, jacrev = fad.vmap, fad.grad, fad.jvp, fad.jacfwd, fad.jacrev


class InJax:
    """JAX under the same names."""

    lax, numpy = jax.lax, jnp
    grad, jvp, jacfwd, jacrev = jax.grad, jax.jvp, jax.jacfwd, jax.jacrev

    @staticmethod
    def vmap(f: Any, **kwargs: Any) -> Any:
        return jax.vmap(f, **kwargs)


AROUND: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "alone": lambda lib, f: lib.vmap(f, axis_name="i"),
    "grad outside": lambda lib, f: lib.grad(
        lambda x: lib.numpy.sum(lib.numpy.sin(lib.vmap(f, axis_name="i")(x)))
    ),
    "grad inside": lambda lib, f: lib.vmap(
        lib.grad(lambda v: lib.numpy.sum(lib.numpy.sin(f(v)))), axis_name="i"
    ),
    "jvp outside": lambda lib, f: lambda x: lib.jvp(lib.vmap(f, axis_name="i"), (x,), (x,))[1],
    "jvp inside": lambda lib, f: lib.vmap(lambda v: lib.jvp(f, (v,), (v,))[1], axis_name="i"),
    "both": lambda lib, f: lib.jacfwd(
        lib.vmap(lib.grad(lambda v: lib.numpy.sum(f(v))), axis_name="i")
    ),
    "another vmap": lambda lib, f: (
        lambda x: lib.vmap(lib.vmap(f, axis_name="i"))(lib.numpy.stack([x, x * x]))
    ),
}


@pytest.mark.sweep("case", list(itertools.product(COLLECTIVES, AROUND)), sample=32, ids="-".join)
def test_collectives(case: tuple[str, str]) -> None:
    collective, around = case
    x = jnp.array([[0.3, -0.8], [1.2, 0.4], [-0.5, 0.9]])

    def result(lib: Any) -> Any:
        return AROUND[around](lib, functools.partial(COLLECTIVES[collective], lib))(x)

    assert_close(result(InFad), result(InJax))


def test_nested_axis_names() -> None:
    x = jnp.arange(6.0).reshape(2, 3)

    def f(lib: Any, names: Any) -> Any:
        inner = lambda v: v * lib.lax.psum(v, names) + lib.lax.axis_index("i")
        return lib.vmap(lib.vmap(inner, axis_name="j"), axis_name="i")(x)

    for names in ("i", "j", ("i", "j")):
        assert_close(f(InFad, names), f(InJax, names))
    outer = lambda lib: lib.vmap(
        lambda row: lib.grad(
            lambda r: lib.vmap(lambda v: v * lib.lax.psum(v * v, "i"), axis_name="j")(r).sum()
        )(row),
        axis_name="i",
    )(x)
    assert_close(outer(InFad), outer(InJax))


def test_collectives_under_checkpoint() -> None:
    def total(lib: Any, checkpoint: Any) -> Any:
        f = checkpoint(lambda v: v * lib.lax.psum(lib.numpy.sin(v), "i"))
        return lambda x: lib.numpy.sum(lib.vmap(f, axis_name="i")(x))

    expected = jax.grad(total(InJax, jax.checkpoint))(X)
    assert_close(fad.grad(total(InFad, fad.checkpoint))(X), expected)


def test_chunks_have_no_axis_name() -> None:
    with pytest.raises(ValueError, match=r"chunk_size=2.*'i'.*one chunk"):
        fad.vmap(lambda v: fad.lax.psum(v, "i"), axis_name="i", chunk_size=2)(X)
    assert_close(fad.vmap(lambda v: v, axis_name="i", chunk_size=3)(X), X)


def test_an_unknown_axis_name_is_an_error() -> None:
    with pytest.raises(NameError, match="nope"):
        fad.vmap(lambda v: fad.lax.psum(v, "nope"), axis_name="i")(X)
    assert is_idle()


def test_randomness_modes() -> None:
    key = jax.random.key(0)
    draw = lambda x: x * 0.0 + fad.random.normal(key)
    with pytest.raises(LevelError, match=r"randomness='different'.*split"):
        fad.vmap(draw)(X)
    assert is_idle()
    same = bare(fad.vmap(draw, randomness="same")(X))
    assert np.unique(same).size == 1
    np.testing.assert_allclose(same[0], jax.random.normal(key), rtol=1e-6)
    different = bare(fad.vmap(draw, randomness="different")(X))
    assert np.unique(different).size == 3
    nested = fad.vmap(fad.vmap(draw, randomness="different"), randomness="same")(jnp.zeros((2, 3)))
    assert np.unique(bare(nested)).size == 3
    both = fad.vmap(fad.vmap(draw, randomness="different"), randomness="different")
    assert np.unique(bare(both(jnp.zeros((2, 3))))).size == 6
    keys = jax.random.split(key, 3)
    got = fad.vmap(lambda k: fad.random.uniform(k, (2,)))(keys)  # keys of their own: no mode asked
    assert_close(got, jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys))


def test_chunks_draw_what_the_whole_batch_would() -> None:
    key = jax.random.key(0)

    class Noise(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x + fad.random.normal(key)

    for f in (lambda x: x + fad.random.normal(key), Noise.apply):
        whole = fad.vmap(f, randomness="different")(X)
        assert_close(fad.vmap(f, randomness="different", chunk_size=2)(X), whole)
        assert np.unique(bare(whole) - X).size == 3


def test_random_numbers_in_a_jacobian_are_those_of_the_function() -> None:
    key = jax.random.key(0)
    f = lambda lib: lambda x: x * x * lib.random.normal(key)
    for name in ("jacrev", "jacfwd"):
        assert_close(getattr(fad, name)(f(fad))(X), getattr(jax, name)(f(jax))(X))
    got = fad.hessian(lambda x: fnp.sum(f(fad)(x)))(X)
    assert_close(got, jax.hessian(lambda x: jnp.sum(f(jax)(x)))(X))


def test_random_numbers_under_vmap_and_grad() -> None:
    key = jax.random.key(1)

    def noisy(x: Any) -> Any:
        return fnp.sum(fad.random.normal(key, (2,))) * x * x

    g = fad.vmap(fad.grad(noisy), randomness="different")(X)
    y = fad.vmap(noisy, randomness="different")(X)
    assert_close(g, 2.0 * y / X)


# Complex numbers


def test_the_gradient_of_a_real_function_of_a_complex_number_is_pytorchs() -> None:
    z = jnp.array(1.0 + 2.0j)
    square = lambda z: fnp.real(z * fnp.conj(z))
    assert complex(fad.grad(square)(z)) == 2 + 4j  # JAX's is the conjugate
    value, g = fad.value_and_grad(lambda z: fnp.abs(z) ** 2)(z)
    np.testing.assert_allclose(complex(g), 2 + 4j, rtol=1e-6)
    assert float(value) == pytest.approx(5.0)
    # Steepest descent: a step against the gradient makes the value smaller.
    f = lambda z: fnp.abs(z**2 - 1j)
    assert f(z - 0.01 * fad.grad(f)(z)) < f(z)


Z = jnp.array([0.5 + 1.0j, -0.7 + 0.2j])
COMPLEX: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda xp, z: z * z,
    "exp": lambda xp, z: xp.exp(z * (1 - 2j)),
    "conj": lambda xp, z: xp.conj(z) * z * z,
    "abs": lambda xp, z: xp.abs(z) * z,
    "parts": lambda xp, z: z.real * 1j + z.imag,
    "to real": lambda xp, z: z.real * z.imag,
}


@pytest.mark.parametrize("f", COMPLEX.values(), ids=COMPLEX)
def test_complex_derivatives(f: Callable[[Any, Any], Any]) -> None:
    ff, jf = functools.partial(f, fnp), functools.partial(f, jnp)
    assert_close(fad.jvp(ff, (Z,), (Z * 1j,)), jax.jvp(jf, (Z,), (Z * 1j,)))
    y, pull = fad.vjp(ff, Z)
    expected, jax_pull = jax.vjp(jf, Z)
    assert_close(y, expected)
    g = (jnp.array([1.0, 2.0]) + (0.5j if jnp.iscomplexobj(y) else 0.0)).astype(y.dtype)
    assert_close(pull(g)[0], jnp.conj(jax_pull(jnp.conj(g))[0]))
    # The adjoint law, with the real inner product of complex vectors.
    y_t = fad.jvp(ff, (Z,), (Z * 1j,))[1]
    left = np.real(np.vdot(bare(g), bare(y_t)))
    right = np.real(np.vdot(bare(pull(g)[0]), bare(Z * 1j)))
    np.testing.assert_allclose(left, right, rtol=1e-5)


@pytest.mark.parametrize("f", COMPLEX.values(), ids=COMPLEX)
def test_complex_vjps_are_pytorchs(torch: Any, f: Callable[[Any, Any], Any]) -> None:
    z = torch.tensor(np.asarray(Z), requires_grad=True)
    y = f(torch, z)
    g = torch.ones_like(y) * (2.0 - 1j if y.is_complex() else 2.0)
    (expected,) = torch.autograd.grad(y, z, g)
    _, pull = fad.vjp(functools.partial(f, fnp), Z)
    assert_close(pull(jnp.asarray(g.numpy()))[0], expected.resolve_conj().numpy())


def test_complex_jacobians_are_the_derivative_itself() -> None:
    f = lambda z: fnp.exp(z) * z
    expected = jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True)(Z)
    assert_close(fad.jacfwd(f)(Z), expected)
    assert_close(fad.jacrev(f)(Z), expected)
    assert_close(
        fad.jacrev(fad.jacfwd(f))(Z),
        jax.jacfwd(jax.jacfwd(lambda z: jnp.exp(z) * z, holomorphic=True), holomorphic=True)(Z),
    )


def test_nested_complex_gradients() -> None:
    f = lambda xp, z: xp.sum(xp.abs(z) ** 4)
    h = fad.grad(lambda z: fnp.sum(fnp.abs(fad.grad(functools.partial(f, fnp))(z)) ** 2))(Z)
    # |grad f|^2 = 16 |z|^6, whose gradient is 96 |z|^4 z.
    assert_close(h, 96.0 * jnp.abs(Z) ** 4 * Z, rtol=1e-3)


# vjp_fn and jvp_fn


def test_a_pullback_may_be_called_many_times() -> None:
    y, pull = fad.vjp(f_layer, PARAMS, X)
    _, expected = jax.vjp(j_layer, PARAMS, X)
    for k in (1.0, 2.0, -3.0):
        g = jax.tree.map(lambda v, k=k: k * jnp.cos(v), y)
        assert_close(pull(g), expected(g))


def test_a_pullback_takes_none_for_zero() -> None:
    y, pull = fad.vjp(f_layer, PARAMS, X)
    zero = jax.tree.map(jnp.zeros_like, y)
    g = {"hidden": jnp.ones(2), "norm": (None,)}
    assert_close(pull(g), pull({**zero, "hidden": jnp.ones(2)}))
    assert_close(pull(None), jax.tree.map(jnp.zeros_like, (PARAMS, X)))


def test_a_pullback_inside_other_transforms() -> None:
    _, pull = fad.vjp(lambda x: fnp.sin(x) * x, X)
    _, jax_pull = jax.vjp(lambda x: jnp.sin(x) * x, X)
    basis = jnp.eye(3)
    assert_close(fad.vmap(pull)(basis), jax.vmap(jax_pull)(basis))
    assert_close(fad.jvp(pull, (X,), (X * 2.0,)), jax.jvp(jax_pull, (X,), (X * 2.0,)))
    square = lambda xp, p: lambda g: xp.sum(p(g)[0] ** 2)
    assert_close(fad.grad(square(fnp, pull))(X), jax.grad(square(jnp, jax_pull))(X))
    assert_close(fad.jit(pull)(X), jax_pull(X))


def test_a_pullback_of_a_value_inside_of_another_transform() -> None:
    def f(lib: Any, x: Any) -> Any:
        vjp = fad.vjp if lib is InFad else jax.vjp
        y, pull = vjp(lambda v: lib.numpy.sin(v) * x, x * x)
        return lib.numpy.sum(pull(y)[0] ** 2)

    assert_close(fad.grad(lambda x: f(InFad, x))(X), jax.grad(lambda x: f(InJax, x))(X))
    assert_close(fad.jacfwd(lambda x: f(InFad, x))(X), jax.jacfwd(lambda x: f(InJax, x))(X))


def test_integer_outputs_take_no_cotangent() -> None:
    y, pull = fad.vjp(lambda x: {"value": x * x, "index": fnp.argmax(x)}, X)
    assert y["index"].dtype == np.int32
    assert_close(pull({"value": jnp.ones(3), "index": None}), (2.0 * X,))
    assert_close(pull({"value": jnp.ones(3), "index": jnp.int32(5)}), (2.0 * X,))
    y, y_t = fad.jvp(lambda x: {"value": x * x, "index": fnp.argmax(x)}, (X,), (X,))
    assert y_t["index"].dtype != jax.dtypes.float0 and y_t["index"] == 0


def test_linearize_is_jvp() -> None:
    y, push = fad.linearize(f_layer, PARAMS, X)
    assert_close(y, j_layer(PARAMS, X))
    for k in (1.0, -2.0):
        t = jax.tree.map(lambda v, k=k: k * jnp.cos(v), (PARAMS, X))
        assert_close(push(*t), jax.jvp(j_layer, (PARAMS, X), t)[1])
        assert_close(push(*t), fad.jvp(f_layer, (PARAMS, X), t)[1])
    zero = jax.tree.map(jnp.zeros_like, PARAMS)
    assert_close(push(None, X), push(zero, X))


def test_linearize_runs_the_function_once_and_its_push_composes() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return fnp.sin(x) * fnp.cumsum(x)

    _, push = fad.linearize(f, X)
    _, jax_push = jax.linearize(lambda x: jnp.sin(x) * jnp.cumsum(x), X)
    assert_close(fad.vmap(push)(jnp.eye(3)), jax.vmap(jax_push)(jnp.eye(3)))
    assert_close(fad.jvp(push, (X,), (X,)), jax.jvp(jax_push, (X,), (X,)))
    # Transposed by grad, a push is a pullback.
    assert_close(fad.grad(lambda t: fnp.sum(push(t)))(X), fad.vjp(f, X)[1](jnp.ones(3))[0])
    assert len(runs) == 2


# Laws


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: fnp.sin(x) * fnp.exp(-x * x),
    "reduction": lambda x: fnp.sum(x**3) * x,
    "matrix": lambda x: fnp.asarray(W) @ x,
    "indexing": lambda x: x[1:] * x[:-1],
    "sort": lambda x: fnp.sort(x) * fnp.arange(3.0),
    "where": lambda x: fnp.where(x > 0.5, x * x, fnp.tanh(x)),
    "softmax": lambda x: fad.nn.softmax(x),
    "solve": lambda x: fnp.linalg.solve(fnp.eye(3) + fnp.outer(x, x), x),
    "tree": lambda x: {"a": x * 2.0, "b": (fnp.cumsum(x), fnp.outer(x, x))},
    "scan": lambda x: fad.lax.scan(lambda c, v: (c * v + 1.0, fnp.sin(c)), 1.0 + 0.0 * x[0], x)[1],
}


@pytest.mark.sweep("name", list(FUNCTIONS), sample=6)
def test_laws(name: str, rng: np.random.Generator) -> None:
    f = FUNCTIONS[name]
    v = jnp.asarray(rng.normal(size=3), np.float32)
    y, y_t = fad.jvp(f, (X,), (v,))
    w = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), np.float32), y)
    _, pull = fad.vjp(f, X)
    # <w, J v> = <J^T w, v>
    left = sum(float(jnp.vdot(a, b)) for a, b in zip(*map(jax.tree.leaves, (w, y_t)), strict=True))
    np.testing.assert_allclose(left, float(jnp.vdot(pull(w)[0], v)), rtol=1e-4, atol=1e-5)
    # linearize = jvp
    y_lin, push = fad.linearize(f, X)
    assert_close((y_lin, push(v)), (y, y_t))
    # jacrev = jacfwd, and both give J v
    rev, fwd = fad.jacrev(f)(X), fad.jacfwd(f)(X)
    assert_close(rev, fwd)
    assert_close(jax.tree.map(lambda j: j @ v, fwd), y_t)
    # vmap = a stacked loop
    batch = jnp.stack([X, X * 0.5, v])
    loop = [fad.functionalize(f)(x) for x in batch]
    assert_close(fad.vmap(f)(batch), jax.tree.map(lambda *a: jnp.stack(a), *loop))
    # reverse over reverse = forward over reverse = reverse over forward
    scalar = lambda x: sum(fnp.sum(fnp.sin(a)) for a in jax.tree.leaves(f(x), is_leaf=_is_tensor))
    expected = fad.hessian(scalar)(X)
    assert_close(fad.jacrev(fad.jacrev(scalar))(X), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jacrev(fad.jacfwd(scalar))(X), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jacfwd(fad.jacfwd(scalar))(X), expected, rtol=1e-3, atol=1e-4)
    assert_close(fad.jit(fad.hessian(scalar))(X), expected, rtol=1e-3, atol=1e-4)


# Dual levels


def test_a_dual_level_carries_a_tangent() -> None:
    with fad.dual_level() as level:
        x = fad.make_dual(fad.asarray(X), fad.asarray(X * 2.0))
        y = fnp.sin(x)
        primal, tangent = fad.unpack_dual(y)
        assert_close(tuple(fad.unpack_dual(y, level)), (primal, tangent))
        assert fad.unpack_dual(fad.asarray(X)).tangent is None
        assert fad.unpack_dual(y).primal is not y
    assert_close((primal, tangent), (jnp.sin(X), jnp.cos(X) * X * 2.0))
    assert isinstance(primal, fad.Tensor) and isinstance(tangent, fad.Tensor)
    # After the block the dual reads as its primal.
    assert_close(y, jnp.sin(X))
    assert_close(y + 1.0, jnp.sin(X) + 1.0)
    assert is_idle()


def test_dual_levels_nest() -> None:
    def f(x: Any) -> Any:
        return fnp.sin(x) * x

    with fad.dual_level() as outer:
        with fad.dual_level() as inner:
            x = fad.make_dual(fad.make_dual(0.5, 1.0, outer), 1.0, inner)
            y = f(x)
            first = fad.unpack_dual(y, inner).tangent
            assert fad.unpack_dual(first, inner).tangent is None
        second = fad.unpack_dual(first, outer).tangent
    g = jax.grad(lambda x: jnp.sin(x) * x)
    np.testing.assert_allclose(bare(first), g(0.5), rtol=1e-6)
    np.testing.assert_allclose(bare(second), jax.grad(g)(0.5), rtol=1e-6)


def test_dual_levels_nest_without_limit() -> None:
    def derivative(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def d(x: Any) -> Any:
            with fad.dual_level():
                return fad.unpack_dual(f(fad.make_dual(x, 1.0))).tangent

        return d

    f: Callable[[Any], Any] = lambda x: x**6
    for _ in range(6):
        f = derivative(f)
    assert float(f(jnp.float32(1.5))) == 720.0


def test_the_outer_level_can_be_named_from_inside() -> None:
    with fad.dual_level() as outer:
        x = fad.make_dual(2.0, 1.0)
        with fad.dual_level():
            y = fad.make_dual(x * x, 1.0)
            z = y * x
            inner = fad.unpack_dual(z)
            assert float(inner.tangent) == 2.0
            assert float(fad.unpack_dual(inner.primal, outer).tangent) == 12.0
            assert float(fad.unpack_dual(inner.tangent, outer).tangent) == 1.0


def test_a_dual_tensor_that_requires_grad_is_forward_over_reverse() -> None:
    with fad.dual_level():
        x = fad.make_dual(fad.asarray(X), fad.asarray(jnp.cos(X))).requires_grad_()
        (g,) = fad.autograd.grad(fnp.sum(fnp.sin(x) * x), x)
        got = fad.unpack_dual(g)
    grad = jax.grad(lambda x: jnp.sum(jnp.sin(x) * x))
    assert_close(tuple(got), jax.jvp(grad, (X,), (jnp.cos(X),)))


def test_a_tracked_tensor_in_a_dual_level_is_reverse_over_forward() -> None:
    x = fad.tensor(X, requires_grad=True)
    with fad.dual_level():
        tangent = fad.unpack_dual(fnp.sin(fad.make_dual(x, jnp.cos(X))) * x).tangent
    assert tangent.requires_grad
    tangent.sum().backward()
    assert_close(x.grad, jax.grad(lambda x: jnp.sum(jnp.cos(x) * x * jnp.cos(X)))(X))


def test_make_dual_takes_tracked_tangents() -> None:
    t = fad.tensor(X, requires_grad=True)
    with fad.dual_level():
        out = fad.unpack_dual(fnp.sin(fad.make_dual(X, t))).tangent
    out.sum().backward()
    assert_close(t.grad, jnp.cos(X))


# no_grad and detach


def test_no_grad_around_a_transform_does_not_reach_into_it() -> None:
    x = fad.tensor(X, requires_grad=True)
    with fad.no_grad():
        g = fad.grad(lambda x: fnp.sum(fnp.sin(x)))(x)
        _, t = fad.jvp(fnp.sin, (x,), (x,))
        j = fad.jacrev(fnp.sin)(x)
        h = fad.grad(lambda x: fnp.sum(fad.grad(lambda v: fnp.sum(fnp.sin(v)))(x)))(x)
        _, push = fad.linearize(fnp.sin, x)
        p = push(x)
        assert not fad.is_grad_enabled()
    assert_close((g, t, h), (jnp.cos(X), jnp.cos(X) * X, -jnp.sin(X)))
    assert_close((j, p), (jnp.diag(jnp.cos(X)), jnp.cos(X) * X))
    assert not any(v.requires_grad for v in (g, t, j, h, p))


@pytest.mark.parametrize("transform", [fad.grad, fad.jacrev])
def test_no_grad_inside_is_obeyed_by_every_reverse_transform_around(transform: Any) -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            shift = fnp.sum(fnp.sin(x))
        return fnp.sum(x * x) - shift

    assert_close(transform(f)(X), 2.0 * X)
    # The two outer derivatives of the inner gradient see the constant too.
    assert_close(fad.jacrev(fad.grad(f))(X), 2.0 * jnp.eye(3))
    tape = fad.tensor(X, requires_grad=True)
    f(tape).backward()
    assert_close(tape.grad, 2.0 * X)


def test_no_grad_inside_does_not_stop_tangents() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            return fnp.sin(x)

    assert_close(fad.jvp(f, (X,), (X,))[1], jnp.cos(X) * X)
    assert_close(fad.jacfwd(f)(X), jnp.diag(jnp.cos(X)))
    assert_close(fad.linearize(f, X)[1](X), jnp.cos(X) * X)


def test_no_grad_between_two_levels() -> None:
    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            with fad.no_grad():  # for both
                c = x * y
            return fnp.sum(c * y * x)

        return fnp.sum(fad.grad(inner)(x))

    def in_jax(x: Any) -> Any:
        stop = jax.lax.stop_gradient
        inner = lambda y: jnp.sum(stop(x) * stop(y) * y * x)
        return jnp.sum(jax.grad(inner)(x))

    # x y is a constant in both derivatives, although y = x is one of them.
    def expected(x: Any) -> Any:
        c = jax.lax.stop_gradient(x) * jax.lax.stop_gradient(x)
        return jnp.sum(c * x)

    assert_close(fad.grad(outer)(X), jax.grad(expected)(X))
    del in_jax


def test_no_grad_between_the_levels_stops_only_the_outer() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            g = fad.grad(lambda y: fnp.sum(y**3))(x)
        return fnp.sum(g * x)

    # g = 3 x^2 is computed, and is a constant for the outer derivative.
    assert_close(fad.grad(f)(X), 3.0 * X**2)


def test_enable_grad_inside_a_transform_under_no_grad() -> None:
    x = fad.tensor(X, requires_grad=True)

    def f(v: Any) -> Any:
        with fad.no_grad(), fad.enable_grad():
            y = fnp.sin(v) * x
        return fnp.sum(y)

    with fad.no_grad():
        g = fad.grad(f)(x)
    assert_close(g, jnp.cos(X) * X)
    assert not g.requires_grad  # enable_grad inside restores f's level, not the tape around it


@pytest.mark.parametrize("stop", [fad.stop_gradient, lambda x: x.detach()])
def test_detach_stops_every_derivative(stop: Any) -> None:
    f = lambda x: fnp.sum(x * stop(fnp.sin(x)))
    assert_close(fad.grad(f)(X), jnp.sin(X))
    assert_close(fad.jvp(f, (X,), (X,))[1], jnp.sum(jnp.sin(X) * X))
    assert_close(fad.linearize(f, X)[1](X), jnp.sum(jnp.sin(X) * X))
    assert_close(fad.jacrev(fad.jacfwd(f))(X), jnp.zeros((3, 3)))
    assert_close(fad.vmap(fad.grad(lambda x: x * stop(fnp.sin(x))))(X), jnp.sin(X))
    assert_close(fad.grad(fad.checkpoint(f))(X), jnp.sin(X))
    assert_close(fad.jit(fad.grad(f))(X), jnp.sin(X))


# Values that outlive their level


def test_a_value_that_outlives_grad_reads_as_its_primal() -> None:
    kept = []

    def f(x: Any) -> Any:
        kept.append(fnp.sin(x))
        return fnp.sum(kept[-1])

    fad.grad(f)(X)
    assert_close(kept[0] * 2.0, jnp.sin(X) * 2.0)
    assert isinstance(kept[0] + 1.0, fad.Tensor)
    assert not (kept[0] * 2.0).requires_grad
    # Used in a later transform it is a constant.
    assert_close(fad.grad(lambda x: fnp.sum(x * kept[0]))(X), jnp.sin(X))
    # One that was made inside of two levels.
    kept.clear()
    fad.jvp(lambda x: fad.grad(f)(x), (X,), (X,))
    assert_close(kept[0] + 0.0, jnp.sin(X))
    assert_close(fad.vmap(lambda x: x * 2.0)(kept[0]), jnp.sin(X) * 2.0)


def test_a_value_that_outlives_one_of_two_levels_keeps_the_other() -> None:
    def f(x: Any) -> Any:
        kept = []

        def inner(y: Any) -> Any:
            kept.append(y * x)
            return fnp.sum(y)

        fad.grad(inner)(x)
        return fnp.sum(kept[0])

    assert_close(fad.grad(f)(X), 2.0 * X)
    assert_close(fad.jacfwd(f)(X), 2.0 * X)


def test_a_value_that_outlives_vmap_raises() -> None:
    kept: list[Any] = []
    fad.vmap(lambda x: kept.append(x * 2.0) or x)(X)
    with pytest.raises(LevelError, match=r"batched Tensor.*after its vmap"):
        kept[0] + 1.0
    kept.clear()
    fad.vmap(lambda x: kept.append(fad.asarray(X) * 2.0) or x)(X)  # shared by all lanes
    assert_close(kept[0] + 0.0, X * 2.0)


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


# The tape inside of transforms, and transforms inside of JAX


def test_backward_inside_of_transforms() -> None:
    def slope(x: Any) -> Any:
        leaf = fad.asarray(x).clone().requires_grad_()
        fnp.sin(leaf).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    assert_close(fad.vmap(slope)(X), jnp.cos(X))
    assert_close(fad.jit(slope)(X), jnp.cos(X))
    assert_close(fad.jacfwd(slope)(X), jnp.diag(-jnp.sin(X)))
    assert_close(fad.checkpoint(slope)(X), jnp.cos(X))


def test_transforms_inside_of_jax() -> None:
    f = lambda x: fnp.sum(fnp.sin(x) * x)
    expected = jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x))(X)
    assert_close(jax.jit(fad.hessian(f))(X), expected)
    assert_close(jax.jacfwd(fad.grad(f))(X), expected)
    assert_close(jax.jacrev(jax.jit(fad.grad(f)))(X), expected)
    assert_close(jax.vmap(fad.hessian(f))(jnp.stack([X, X]))[1], expected)
    assert_close(jax.jit(fad.vmap(fad.grad(fnp.sin)))(X), jnp.cos(X))
    assert_close(jax.grad(lambda x: fad.vmap(fad.grad(fnp.sin))(x).sum())(X), -jnp.sin(X))


def test_checkpoint_closes_over_outer_variables() -> None:
    def f(xp: Any, checkpoint: Any, w: Any) -> Any:
        return xp.sum(checkpoint(lambda x: xp.sin(x) * w * w)(w * X))

    got = functools.partial(f, fnp, fad.checkpoint)
    expected = functools.partial(f, jnp, jax.checkpoint)
    assert_close(fad.grad(got)(X), jax.grad(expected)(X))
    assert_close(fad.hessian(got)(X), jax.hessian(expected)(X))


def test_a_checkpointed_body_may_differentiate_a_function_that_saves_an_intermediate_value() -> (
    None
):
    f, plain = (
        lambda x, g=g: g(x, 0.5 * x) for g in (OneMethodWave.apply, lambda x, y: jnp.sin(x) * y)
    )
    expected = jax.jvp(jax.jacrev(plain), (X,), (X,))[1]
    again = fad.checkpoint(fad.jacrev(f))
    assert_close(fad.jvp(again, (X,), (X,))[1], expected)
    assert_close(fad.linearize(again, X)[1](X), expected)
    assert_close(
        fad.vmap(fad.grad(fad.checkpoint(fad.grad(f))))(X), jax.vmap(jax.grad(jax.grad(plain)))(X)
    )


def test_no_grad_inside_of_checkpoint() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            y = fnp.sin(x)
        return fnp.sum(x * y)

    assert_close(fad.grad(fad.checkpoint(f))(X), jnp.sin(X))


# functionalize


def test_functionalize_gives_the_functions_results() -> None:
    f = lambda x, k: {"y": fnp.sin(x) * k}
    assert_close(fad.functionalize(f)(X, k=2.0), {"y": jnp.sin(X) * 2.0})
    assert_close(fad.grad(fad.functionalize(lambda x: fnp.sum(x * x)))(X), 2.0 * X)
    assert_close(fad.vmap(fad.functionalize(fnp.sin))(X), jnp.sin(X))


# Decorated functions keep their name


def test_transformed_functions_keep_name_and_docstring() -> None:
    def named(x: Any) -> Any:
        """Doc."""
        return x

    for transform in (fad.grad, fad.vmap, fad.jacrev, fad.jacfwd, fad.checkpoint, fad.jit):
        assert transform(named).__name__ == "named" and transform(named).__doc__ == "Doc."
