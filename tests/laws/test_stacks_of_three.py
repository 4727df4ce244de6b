"""What fad has beyond its peers, in stacks of three transforms, beside plain JAX code of the same function.

Loops with a reverse mode, Taylor mode, sparse derivatives, Laplacians, functions that are not taken, hooks in
compiled code: each is a function from four numbers to four, and so is each transform of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp

X = jnp.array([0.3, 0.8, 1.1, 1.7])
V = jnp.array([1.0, -0.5, 0.25, 0.75])
Mapping = Callable[[Any], Any]


def loop(x: Any) -> Any:
    def go_on(carry: Any) -> Any:
        return carry[0] < 4

    def step(carry: Any) -> Any:
        k, y = carry
        return k + 1, y + 0.2 * fnp.sin(y * x)

    return fad.lax.while_loop(go_on, step, (0, x))[1]


def loop_in_jax(x: Any) -> Any:
    y = x
    for _ in range(4):
        y = y + 0.2 * jnp.sin(y * x)
    return y


def branches(x: Any) -> Any:
    return fad.safe_where(x > 1.0, lambda x: fnp.sqrt(x - 1.0) * x, fnp.sin, x)


def branches_in_jax(x: Any) -> Any:
    inside = jnp.where(x > 1.0, x, 2.0)
    return jnp.where(x > 1.0, jnp.sqrt(inside - 1.0) * inside, jnp.sin(x))


def taylor(x: Any) -> Any:
    return sum(fad.derivatives(lambda x: fnp.exp(fnp.sin(x) * x), x, 3))


def nested(x: Any) -> Any:
    functions = [lambda x: jnp.exp(jnp.sin(x) * x)]
    for _ in range(3):
        functions.append(lambda x, f=functions[-1]: jax.jvp(f, (x,), (jnp.ones(4),))[1])
    return sum(f(x) for f in functions)


def curve(x: Any) -> Any:
    value, (first, second) = fad.jet(fnp.tanh, (x * x,), ([x, fnp.cos(x)],))
    return value * first + second


def curve_in_jax(x: Any) -> Any:
    y, t, a = jnp.tanh(x * x), x, jnp.cos(x)
    d = 1 - y * y
    return y * d * t + d * a - 2 * y * d * t * t


def neighbours(xp: Any, x: Any) -> Any:
    return xp.sin(x[1:] * x[:-1]) * x[1:]


def sparse(x: Any) -> Any:
    entries = fad.sparse_jacobian(lambda x: neighbours(fnp, x))(x).data ** 2
    return x * entries.sum()


def dense(x: Any) -> Any:
    return x * (jax.jacfwd(lambda x: neighbours(jnp, x))(x) ** 2).sum()


def curvature(x: Any) -> Any:
    return x * fad.sparse_hessian(lambda x: neighbours(fnp, x).sum())(x).data.sum()


def dense_curvature(x: Any) -> Any:
    return x * jax.hessian(lambda x: neighbours(jnp, x).sum())(x).sum()


GIVEN = np.tri(4, 4, 1, bool) & ~np.tri(4, 4, -1, bool)


def tree(xp: Any, p: Any, y: Any) -> Any:
    a, b = p["a"], p["b"]
    return {"u": xp.sin(a * y[:2]) * b, "w": (a[0] * y[1:], b * b)}


def sparse_tree(x: Any) -> Any:
    """By two arguments, one a pytree, in chunks; and by a pattern that is given, as BCSR."""
    p, f = {"a": x[:2], "b": x[2:]}, lambda p, y: tree(fnp, p, y)
    blocks = jax.tree.leaves(
        fad.sparse_jacobian(f, (0, 1), chunk_size=2)(p, x), is_leaf=lambda m: hasattr(m, "indices")
    )
    band = fad.sparse_jacobian(
        lambda x: x * fnp.concatenate([x[1:], x[:1] * 0.0]), format="bcsr", pattern=GIVEN
    )
    return x * sum((m.data**2).sum() for m in blocks) + band(x).data.sum()


def dense_tree(x: Any) -> Any:
    p, f = {"a": x[:2], "b": x[2:]}, lambda p, y: tree(jnp, p, y)
    blocks = jax.tree.leaves(jax.jacfwd(f, (0, 1))(p, x))
    band = jax.jacfwd(lambda x: x * jnp.concatenate([x[1:], x[:1] * 0.0]))(x)
    return x * sum((m**2).sum() for m in blocks) + band.sum()


def curvature_tree(x: Any) -> Any:
    f = lambda p, y: fnp.sum(tree(fnp, p, y)["u"] * p["a"] ** 2) + fnp.sum(y**3)
    found = fad.sparse_hessian(f, (0, 1), chunk_size=1)({"a": x[:2], "b": x[2:]}, x)
    blocks = jax.tree.leaves(found, is_leaf=lambda m: hasattr(m, "indices"))
    return x * sum((m.data**2).sum() for m in blocks)


def dense_curvature_tree(x: Any) -> Any:
    f = lambda p, y: jnp.sum(tree(jnp, p, y)["u"] * p["a"] ** 2) + jnp.sum(y**3)
    blocks = jax.tree.leaves(jax.hessian(f, (0, 1))({"a": x[:2], "b": x[2:]}, x))
    return x * sum((m**2).sum() for m in blocks)


def of_laplacian(x: Any) -> Any:
    value, bend = fad.value_and_laplacian(lambda x: fnp.tanh(x * x[::-1]) * fnp.sum(x * x))(x)
    return value + bend


def of_hessian(x: Any) -> Any:
    f = lambda x: jnp.tanh(x * x[::-1]) * jnp.sum(x * x)
    return f(x) + jnp.trace(jax.jacfwd(jax.jacfwd(f))(x), axis1=1, axis2=2)


SEEN: list[Any] = []


def hooked(x: Any) -> Any:
    def inside(x: Any) -> Any:
        y = fnp.sin(x) * x
        if y.requires_grad:
            y.register_hook(lambda g: SEEN.append(g) or None)
        return y * y

    return fad.jit(inside, hooks=True)(x)


def hooked_in_jax(x: Any) -> Any:
    return (jnp.sin(x) * x) ** 2


FUNCTIONS: dict[str, tuple[Mapping, Mapping]] = {
    "while_loop": (loop, loop_in_jax),
    "safe_where": (branches, branches_in_jax),
    "derivatives": (taylor, nested),
    "jet": (curve, curve_in_jax),
    "sparse_jacobian": (sparse, dense),
    "sparse_hessian": (curvature, dense_curvature),
    "sparse_jacobian of pytrees": (sparse_tree, dense_tree),
    "sparse_hessian of pytrees": (curvature_tree, dense_curvature_tree),
    "laplacian": (of_laplacian, of_hessian),
    "jit with hooks": (hooked, hooked_in_jax),
}
TRANSFORMS: dict[str, Callable[[Any, Any, Mapping], Mapping]] = {
    "grad": lambda lib, xp, f: lambda x: lib.grad(lambda x: xp.sum(f(x) * V))(x),
    "jvp": lambda lib, xp, f: lambda x: lib.jvp(f, (x,), (V,))[1],
    "vmap": lambda lib, xp, f: lambda x: xp.sum(lib.vmap(f)(xp.stack([x, 0.9 * x])), 0),
    "jit": lambda lib, xp, f: lib.jit(f),
}
CASES = [(name, *stack) for name in FUNCTIONS for stack in itertools.product(TRANSFORMS, repeat=3)]


@pytest.mark.sweep("case", CASES, sample=10, ids="-".join)
def test_it_is_the_function_of_jax(case: tuple[str, str, str, str]) -> None:
    name, *stack = case
    ours, theirs = FUNCTIONS[name]
    for transform in stack:
        ours = TRANSFORMS[transform](fad, fnp, ours)
        theirs = TRANSFORMS[transform](jax, jnp, theirs)
    expected = np.asarray(jax.jit(theirs)(X))  # one program: faster
    for _ in range(2):
        np.testing.assert_allclose(np.asarray(ours(X)), expected, rtol=2e-3, atol=2e-3)
