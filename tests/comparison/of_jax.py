"""The programs of JAX, with its decorators for rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.jet import jet

from tests.comparison.features import Absent

VERSION = f"JAX {jax.__version__}"
NAME = "jax"
X = jnp.array([1.0, 2.0, 3.0])


@jax.custom_vjp
def cube(x: Any) -> Any:
    return x * x * x


cube.defvjp(lambda x: (x * x * x, x), lambda x, g: (2.0 * g * 3.0 * x * x,))


@jax.custom_jvp
def forward_cube(x: Any) -> Any:
    return x * x * x


forward_cube.defjvp(lambda p, t: (p[0] ** 3, 2.0 * t[0] * 3.0 * p[0] ** 2))


@custom_vmap
def batched_cube(x: Any) -> Any:
    return cube(x)


batched_cube.def_vmap(lambda size, mapped, x: (x * x * x, True))


def written(x: Any) -> Any:
    u = 1.0 * x
    u[1:] += x[:-1] ** 2
    return u.sum()


def row(v: Any) -> Any:
    out = jnp.zeros(2)
    out[0] = v
    return out


def jvp_of_jvp() -> Any:
    f = lambda x: jax.jvp(forward_cube, (x,), (1.0,))[1]
    return jax.jvp(f, (3.0,), (1.0,))[1]


def looped(x: Any) -> Any:
    return jax.lax.while_loop(lambda x: x < 100.0, lambda x: x * x, x)


def solver() -> Any:
    def solve(a: Any) -> Any:
        return jax.lax.custom_root(
            lambda x: x**2 - a, 1.0, lambda f, x: jnp.sqrt(a), lambda g, y: y / g(1.0)
        )

    return jax.grad(solve)(2.0)


def series() -> Any:
    primal, terms = jet(jnp.sin, (0.0,), ([1.0, 0.0, 0.0, 0.0, 0.0],))
    return [primal, *terms]


def series_of_a_loop() -> Any:
    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)[0]

    primal, terms = jet(loop, (0.5,), ([1.0, 0.0, 0.0],))
    return [primal, *terms]


def nan() -> bool:
    with jax.debug_nans(True):
        try:
            jax.grad(lambda x: jnp.sqrt(x) * 0.0)(0.0)
        except FloatingPointError:
            return True
    return False


def shared() -> Any:
    x = jnp.array([1.0, 2.0])
    np.asarray(x)[0] = 5.0
    return x[0]


def refused() -> bool:
    try:
        X[jnp.array([0, 7])]
    except IndexError:
        return True
    return False


CELLS: dict[str, Callable[[], Any]] = {
    "gradient through a Python branch on a value": lambda: jax.grad(
        lambda x: x * x if x > 0 else -x
    )(3.0),
    "parameters in a dict": lambda: jax.grad(lambda p: p["w"] ** 2 + p["b"])({"w": 3.0, "b": 1.0}),
    "Hessian, forward over reverse": lambda: jax.hessian(lambda x: (jnp.sin(x) * x).sum())(
        jnp.arange(2.0)
    ),
    "derivatives of order 5 in one pass": series,
    "derivatives of order 3 through a `scan`, in one pass": series_of_a_loop,
    "sparse Jacobian, by its pattern": Absent(
        "jax.sparse_jacobian", "jax.experimental.sparse.jacobian"
    ),
    "derivative of what a solver finds": solver,
    "a gradient rule is used": lambda: jax.grad(cube)(3.0),
    "second derivative through a gradient rule": lambda: jax.grad(jax.grad(cube))(3.0),
    "forward mode of a gradient rule": lambda: jax.jvp(cube, (3.0,), (1.0,))[1],
    "reverse mode of a tangent rule": lambda: jax.grad(forward_cube)(3.0),
    "`jvp` of `jvp` through a tangent rule": jvp_of_jvp,
    "`vmap` of a gradient rule, no batch rule written": lambda: jax.vmap(cube)(X[::2]),
    "`grad` of `vmap` of a gradient rule with a batch rule": lambda: jax.grad(
        lambda x: jax.vmap(batched_cube)(x).sum()
    )(X[::2]),
    "a gradient rule under `checkpoint`": lambda: jax.grad(jax.checkpoint(cube))(3.0),
    "slices written in place, gradient": lambda: jax.grad(written)(X),
    "a mapped value written to an array made inside `vmap`": lambda: jax.vmap(row)(X[:2]),
    "slices written in place, gradient compiled": lambda: jax.jit(jax.grad(written))(X),
    "`backward()`, and `.grad` of a leaf": Absent("jax.Array.backward", "jax.Array.grad"),
    "a hook changes the gradient of an intermediate value": Absent("jax.Array.register_hook"),
    "such a hook inside `grad`": Absent("jax.Array.register_hook"),
    "such a hook in compiled code": Absent("jax.Array.register_hook"),
    "hooks for saved values": Absent("jax.saved_tensors_hooks"),
    "a NaN in a gradient is an error": nan,
    "reverse mode of a compiled loop of unknown length": lambda: jax.jit(jax.grad(looped))(3.0),
    "a write to `x.numpy()` changes `x`": shared,
    "an index out of range, in an array, is an error": refused,
    "float64 without a setting": lambda: str(jnp.ones(1, jnp.float64).dtype),
    "a layer and an optimizer": Absent("jax.nn.Linear", "jax.optim", "jax.nn.Dense"),
}
