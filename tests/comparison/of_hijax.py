"""The programs of JAX with hijax, whose primitives are classes with all rules; other rows are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import hijax

from tests.comparison import of_jax

VERSION = of_jax.VERSION
NAME = "jax"
X = of_jax.X
BASE: Any = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive  # type: ignore[attr-defined]
NEW = jax.__version_info__ >= (0, 11)


class Cube(BASE):
    def __init__(self, x: Any) -> None:
        self.in_avals, self.out_aval, self.params = (x,), x, {}
        super().__init__()

    def expand(self, x: Any) -> Any:
        return x * x * x

    def vjp_fwd(self, nonzero: Any, x: Any) -> Any:
        return self(x), x

    def vjp_bwd_retval(self, x: Any, g: Any) -> Any:
        return (2.0 * g * 3.0 * x * x,)


class BatchedCube(Cube):
    def batch(self, axis_data: Any, args: Any, dims: Any) -> Any:
        return cube(args[0], BatchedCube), dims[0]


class ForwardCube(BASE):
    def __init__(self, x: Any) -> None:
        self.in_avals, self.out_aval, self.params = (x,), x, {}
        super().__init__()

    def expand(self, x: Any) -> Any:
        return x * x * x

    def jvp(self, primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return self(x), 2.0 * t * 3.0 * x * x


def cube(x: Any, kind: Any = Cube) -> Any:
    return kind(jax.typeof(x))(x)


def forward_cube(x: Any) -> Any:
    return cube(x, ForwardCube)


def jvp_of_jvp() -> Any:
    f = lambda x: jax.jvp(forward_cube, (x,), (ONE,))[1]
    return jax.jvp(f, (THREE,), (ONE,))[1]


ONE, THREE = jnp.float32(1.0), jnp.float32(3.0)
CELLS: dict[str, Callable[[], Any]] = {
    **of_jax.CELLS,
    "a gradient rule is used": lambda: jax.grad(cube)(THREE),
    "second derivative through a gradient rule": lambda: jax.grad(jax.grad(cube))(THREE),
    "forward mode of a gradient rule": lambda: jax.jvp(cube, (THREE,), (ONE,))[1],
    "reverse mode of a tangent rule": lambda: jax.grad(forward_cube)(THREE),
    "`jvp` of `jvp` through a tangent rule": jvp_of_jvp,
    "`vmap` of a gradient rule, no batch rule written": lambda: jax.vmap(cube)(X[::2]),
    "`grad` of `vmap` of a gradient rule with a batch rule": lambda: jax.grad(
        lambda x: jax.vmap(lambda v: cube(v, BatchedCube))(x).sum()
    )(X[::2]),
    "a gradient rule under `checkpoint`": lambda: jax.grad(jax.checkpoint(cube))(THREE),
}
