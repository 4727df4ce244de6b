"""The programs of fad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fad
import fad.numpy as fnp
from tests.comparison.features import Absent

VERSION = f"fad {fad.__version__}"
NAME = "fad"
X = fad.tensor([1.0, 2.0, 3.0])


def loop(x: Any) -> Any:
    return fad.lax.scan(lambda c, _: (fnp.sin(c), None), x, None, length=3)[0]


class Cube(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * g * 3.0 * x * x


class BatchedCube(Cube):
    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return x * x * x, in_dims[0]


class ForwardCube(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        return x * x * x

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2.0 * t * 3.0 * x * x


def written(x: Any) -> Any:
    u = 1.0 * x
    u[1:] += x[:-1] ** 2
    return u.sum()


def row(v: Any) -> Any:
    out = fnp.zeros(2)
    out[0] = v
    return out


def leaf() -> Any:
    x = fad.tensor([1.0, 2.0, 3.0], requires_grad=True)
    written(x).backward()
    return x.grad


def hooked(x: Any) -> Any:
    y = 2.0 * x
    y.register_hook(lambda g: 3.0 * g)
    return y


def hooked_leaf() -> Any:
    x = fad.tensor(1.0, requires_grad=True)
    hooked(x).backward()
    return x.grad


def saved() -> Any:
    x = fad.tensor(3.0, requires_grad=True)
    with fad.autograd.saved_tensors_hooks(lambda t: t.detach().numpy(), fad.tensor):
        y = x * x
    y.backward()
    return x.grad


def nan() -> bool:
    x = fad.tensor(0.0, requires_grad=True)
    with fad.autograd.detect_anomaly():
        try:
            (fnp.sqrt(x) * 0.0).backward()
        except RuntimeError:
            return True
    return False


def jvp_of_jvp() -> Any:
    f = lambda x: fad.jvp(ForwardCube.apply, (x,), (1.0,))[1]
    return fad.jvp(f, (3.0,), (1.0,))[1]


def looped(x: Any) -> Any:
    return fad.lax.while_loop(lambda x: x < 100.0, lambda x: x * x, x)


def solver() -> Any:
    root = fad.implicit.custom_root(lambda x, a: x**2 - a)(lambda x, a: np.sqrt(a.item()))
    return fad.grad(lambda a: root(0.0, a))(2.0)


def shared() -> Any:
    x = fad.tensor([1.0, 2.0])
    x.numpy()[0] = 5.0
    return x[0]


def refused() -> bool:
    try:
        X[fnp.array([0, 7])]
    except IndexError:
        return True
    return False


CELLS: dict[str, Callable[[], Any]] = {
    "gradient through a Python branch on a value": lambda: fad.grad(
        lambda x: x * x if x > 0 else -x
    )(3.0),
    "parameters in a dict": lambda: fad.grad(lambda p: p["w"] ** 2 + p["b"])({"w": 3.0, "b": 1.0}),
    "Hessian, forward over reverse": lambda: fad.hessian(lambda x: (fnp.sin(x) * x).sum())(
        fnp.arange(2.0)
    ),
    "derivatives of order 5 in one pass": lambda: fad.derivatives(fnp.sin, 0.0, 5),
    "derivatives of order 3 through a `scan`, in one pass": lambda: fad.derivatives(loop, 0.5, 3),
    "sparse Jacobian, by its pattern": lambda: fad.sparse_jacobian(lambda x: x * x)(X.array).data,
    "derivative of what a solver finds": solver,
    "a gradient rule is used": lambda: fad.grad(Cube.apply)(3.0),
    "second derivative through a gradient rule": lambda: fad.grad(fad.grad(Cube.apply))(3.0),
    "forward mode of a gradient rule": lambda: fad.jvp(Cube.apply, (3.0,), (1.0,))[1],
    "reverse mode of a tangent rule": lambda: fad.grad(ForwardCube.apply)(3.0),
    "`jvp` of `jvp` through a tangent rule": jvp_of_jvp,
    "`vmap` of a gradient rule, no batch rule written": lambda: fad.vmap(Cube.apply)(
        fnp.array([1.0, 3.0])
    ),
    "`grad` of `vmap` of a gradient rule with a batch rule": lambda: fad.grad(
        lambda x: fad.vmap(BatchedCube.apply)(x).sum()
    )(fnp.array([1.0, 3.0])),
    "a gradient rule under `checkpoint`": lambda: fad.grad(fad.checkpoint(Cube.apply))(3.0),
    "slices written in place, gradient": lambda: fad.grad(written)(X),
    "a mapped value written to an array made inside `vmap`": lambda: fad.vmap(row)(X[:2]),
    "slices written in place, gradient compiled": lambda: fad.jit(fad.grad(written))(X),
    "`backward()`, and `.grad` of a leaf": leaf,
    "a hook changes the gradient of an intermediate value": hooked_leaf,
    "such a hook inside `grad`": lambda: fad.grad(hooked)(1.0),
    "such a hook in compiled code": lambda: fad.jit(fad.grad(hooked), hooks=True)(1.0),
    "hooks for saved values": saved,
    "a NaN in a gradient is an error": nan,
    "reverse mode of a compiled loop of unknown length": lambda: fad.jit(fad.grad(looped))(3.0),
    "a write to `x.numpy()` changes `x`": shared,
    "an index out of range, in an array, is an error": refused,
    "float64 without a setting": lambda: str(fad.tensor([1.0], dtype=fad.float32).double().dtype),
    "a layer and an optimizer": Absent("fad.nn.Linear", "fad.optim"),
}
