"""The programs of MLX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn
import mlx.optimizers
import numpy as np

from tests.comparison.features import Absent

VERSION = f"MLX {mx.__version__}"
NAME = "mlx"
X = mx.array([1.0, 2.0, 3.0])
ONE, THREE = mx.array(1.0), mx.array(3.0)


@mx.custom_function
def cube(x: Any) -> Any:
    return x * x * x


@cube.vjp
def _(primals: Any, g: Any, out: Any) -> Any:
    return 2.0 * g * 3.0 * primals * primals


@mx.custom_function
def batched_cube(x: Any) -> Any:
    return x * x * x


@batched_cube.vjp
def _(primals: Any, g: Any, out: Any) -> Any:
    return 2.0 * g * 3.0 * primals * primals


@batched_cube.vmap
def _(x: Any, dim: Any) -> Any:
    return x * x * x, dim


@mx.custom_function
def forward_cube(x: Any) -> Any:
    return x * x * x


@forward_cube.jvp
def _(x: Any, t: Any) -> Any:
    return 2.0 * t * 3.0 * x * x


def jvp(f: Any, x: Any) -> Any:
    return mx.jvp(f, [x], [mx.ones_like(x)])[1][0]


def hessian() -> Any:
    slope = mx.grad(lambda x: (mx.sin(x) * x).sum())
    return mx.vmap(lambda t: mx.jvp(slope, [mx.arange(2.0)], [t])[1][0])(mx.eye(2))


def written(x: Any) -> Any:
    u = 1.0 * x
    u[1:] += x[:-1] ** 2
    return u.sum()


def row(v: Any) -> Any:
    out = mx.zeros(2)
    out[0] = v
    return out


def trained() -> float:
    layer = mlx.nn.Linear(1, 1)
    before = layer.bias.item()
    _, grads = mlx.nn.value_and_grad(layer, lambda x: layer(x).sum())(mx.ones(1))
    mlx.optimizers.SGD(learning_rate=0.1).update(layer, grads)
    return round((before - layer.bias.item()) * 10.0, 4)


def shared() -> Any:
    x = mx.array([1.0, 2.0])
    np.array(x, copy=False)[0] = 5.0
    return x[0]


def refused() -> bool:
    try:
        mx.eval(X[mx.array([0, 7])])
    except (IndexError, ValueError):
        return True
    return False


CELLS: dict[str, Callable[[], Any]] = {
    "gradient through a Python branch on a value": lambda: mx.grad(
        lambda x: x * x if x > 0 else -x
    )(THREE),
    "parameters in a dict": lambda: mx.grad(lambda p: p["w"] ** 2 + p["b"])({"w": THREE, "b": ONE}),
    "Hessian, forward over reverse": hessian,
    "derivatives of order 5 in one pass": Absent("mlx.core.jet"),
    "derivatives of order 3 through a `scan`, in one pass": Absent("mlx.core.jet"),
    "sparse Jacobian, by its pattern": Absent("mlx.core.sparse_jacobian"),
    "derivative of what a solver finds": Absent("mlx.core.custom_root"),
    "a gradient rule is used": lambda: mx.grad(cube)(THREE),
    "second derivative through a gradient rule": lambda: mx.grad(mx.grad(cube))(THREE),
    "forward mode of a gradient rule": lambda: jvp(cube, THREE),
    "reverse mode of a tangent rule": lambda: mx.grad(forward_cube)(THREE),
    "`jvp` of `jvp` through a tangent rule": lambda: jvp(lambda x: jvp(forward_cube, x), THREE),
    "`vmap` of a gradient rule, no batch rule written": lambda: mx.vmap(cube)(X[::2]),
    "`grad` of `vmap` of a gradient rule with a batch rule": lambda: mx.grad(
        lambda x: mx.vmap(batched_cube)(x).sum()
    )(X[::2]),
    "a gradient rule under `checkpoint`": lambda: mx.grad(mx.checkpoint(cube))(THREE),
    "slices written in place, gradient": lambda: mx.grad(written)(X),
    "a mapped value written to an array made inside `vmap`": lambda: mx.vmap(row)(X[:2]),
    "slices written in place, gradient compiled": lambda: mx.compile(mx.grad(written))(X),
    "`backward()`, and `.grad` of a leaf": Absent("mlx.core.array.backward", "mlx.core.array.grad"),
    "a hook changes the gradient of an intermediate value": Absent("mlx.core.array.register_hook"),
    "such a hook inside `grad`": Absent("mlx.core.array.register_hook"),
    "such a hook in compiled code": Absent("mlx.core.array.register_hook"),
    "hooks for saved values": Absent("mlx.core.saved_tensors_hooks"),
    "a NaN in a gradient is an error": Absent("mlx.core.detect_anomaly"),
    "reverse mode of a compiled loop of unknown length": Absent("mlx.core.while_loop"),
    "a write to `x.numpy()` changes `x`": shared,
    "an index out of range, in an array, is an error": refused,
    "float64 without a setting": lambda: str(
        mx.ones(1, mx.float64, stream=mx.cpu).dtype
    ).removeprefix("mlx.core."),
    "a layer and an optimizer": trained,
}
