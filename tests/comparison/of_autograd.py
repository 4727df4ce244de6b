"""The programs of HIPS autograd."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
from autograd.differential_operators import make_jvp
from autograd.extend import defjvp, defvjp, primitive
from autograd.misc.fixed_points import fixed_point

from tests.comparison.features import Absent

VERSION = f"autograd {importlib.metadata.version('autograd')}"
NAME = "autograd"
X = np.array([1.0, 2.0, 3.0])


@primitive
def cube(x: Any) -> Any:
    return x * x * x


defvjp(cube, lambda out, x: lambda g: 2.0 * g * 3.0 * x * x)


@primitive
def forward_cube(x: Any) -> Any:
    return x * x * x


defjvp(forward_cube, lambda t, out, x: 2.0 * t * 3.0 * x * x)


def jvp(f: Any, x: Any) -> Any:
    return make_jvp(f)(x)(1.0)[1]


def written(x: Any) -> Any:
    u = 1.0 * x
    u[1:] += x[:-1] ** 2
    return u.sum()


def solver(a: Any) -> Any:
    return fixed_point(
        lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, lambda x, y: abs(x - y), 1e-10
    )


def hessian() -> Any:
    slope = autograd.grad(lambda x: anp.sum(anp.sin(x) * x))
    return np.stack([make_jvp(slope)(np.arange(2.0))(t)[1] for t in np.eye(2)])


def shared() -> Any:
    x = anp.array([1.0, 2.0])
    x[0] = 5.0  # its arrays are NumPy's
    return x[0]


def refused() -> bool:
    try:
        X[np.array([0, 7])]
    except IndexError:
        return True
    return False


CELLS: dict[str, Callable[[], Any]] = {
    "gradient through a Python branch on a value": lambda: autograd.grad(
        lambda x: x * x if x > 0 else -x
    )(3.0),
    "parameters in a dict": lambda: autograd.grad(lambda p: p["w"] ** 2 + p["b"])(
        {"w": 3.0, "b": 1.0}
    ),
    "Hessian, forward over reverse": hessian,
    "derivatives of order 5 in one pass": Absent("autograd.jet"),
    "derivatives of order 3 through a `scan`, in one pass": Absent("autograd.jet"),
    "sparse Jacobian, by its pattern": Absent("autograd.sparse_jacobian"),
    "derivative of what a solver finds": lambda: autograd.grad(solver)(2.0),
    "a gradient rule is used": lambda: autograd.grad(cube)(3.0),
    "second derivative through a gradient rule": lambda: autograd.grad(autograd.grad(cube))(3.0),
    "forward mode of a gradient rule": lambda: jvp(cube, 3.0),
    "reverse mode of a tangent rule": lambda: autograd.grad(forward_cube)(3.0),
    "`jvp` of `jvp` through a tangent rule": lambda: jvp(lambda x: jvp(forward_cube, x), 3.0),
    "`vmap` of a gradient rule, no batch rule written": Absent("autograd.vmap"),
    "`grad` of `vmap` of a gradient rule with a batch rule": Absent("autograd.vmap"),
    "a gradient rule under `checkpoint`": lambda: autograd.grad(autograd.checkpoint(cube))(3.0),
    "slices written in place, gradient": lambda: autograd.grad(written)(X),
    "a mapped value written to an array made inside `vmap`": Absent("autograd.vmap"),
    "slices written in place, gradient compiled": Absent("autograd.jit"),
    "`backward()`, and `.grad` of a leaf": Absent("autograd.backward"),
    "a hook changes the gradient of an intermediate value": Absent("autograd.register_hook"),
    "such a hook inside `grad`": Absent("autograd.register_hook"),
    "such a hook in compiled code": Absent("autograd.jit"),
    "hooks for saved values": Absent("autograd.saved_tensors_hooks"),
    "a NaN in a gradient is an error": Absent("autograd.detect_anomaly"),
    "reverse mode of a compiled loop of unknown length": Absent("autograd.jit"),
    "a write to `x.numpy()` changes `x`": shared,
    "an index out of range, in an array, is an error": refused,
    "float64 without a setting": lambda: str(
        np.asarray(autograd.grad(lambda x: x * x)(X[0])).dtype
    ),
    "a layer and an optimizer": Absent("autograd.nn"),
}
