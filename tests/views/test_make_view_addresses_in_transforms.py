"""Arguments of transformed functions: whether their elements are next to each other is known inside too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp

VIEWS: dict[str, Callable[[Any], Any]] = {
    "base": lambda a: a,
    "transposed": lambda a: a.T,
    "rows": lambda a: a[1:],
    "columns": lambda a: a[:, 1:],
    "steps": lambda a: a[:, ::2],
    "of a view": lambda a: a.T[1:].T,
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(0),
    "ravel": fnp.ravel,
    "transposed": lambda x: x.T.reshape(-1),
    "contiguous": lambda x: x.contiguous().reshape(-1),
    "after a write": lambda x: x.mul_(1.0).reshape(-1),
    "of a detached one": lambda x: x.detach().reshape(-1),
}


def argument(view: str) -> tuple[Any, Any]:
    base = fad.tensor(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    return base, VIEWS[view](base)


def program(write: str) -> Callable[[Any], Any]:
    """Writes through a view or a copy, which of both it is depends on the argument."""

    def f(x: Any) -> Any:
        v = WRITES[write](x)
        v[1:3] = -1.0
        return (x * x).sum() + v.sum()

    return f


def _with_tangents(f: Any, x: Any) -> Any:
    with fad.dual_level():
        return fad.unpack_dual(f(fad.make_dual(x, fnp.ones_like(x)))).primal


WRITING: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "jit": fad.jit,
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (fnp.ones_like(x),))[0],
    "jet": lambda f: lambda x: fad.jet(f, (x,), ([fnp.ones_like(x)],))[0],
    "dual level": lambda f: lambda x: _with_tangents(f, x),
    "functionalize": lambda f: fad.transforms.functionalize.functionalized(f, True),
    "jit of a dict": lambda f: lambda x, g=fad.jit(lambda d: f(d["x"])): g({"x": x}),
}


@pytest.mark.sweep("view, write, name", [*itertools.product(VIEWS, WRITES, WRITING)], sample=60)
def test_a_transform_changes_its_argument_as_the_function_does(
    view: str, write: str, name: str
) -> None:
    base, x = argument(view)
    expected = program(write)(x), base
    g = WRITING[name](program(write))
    for _ in range(3):  # compiled code is found in other ways later
        base, x = argument(view)
        assert_close((g(x), base), expected)


def test_compiled_code_is_that_of_an_argument_of_the_same_kind() -> None:
    f = fad.jit(program("reshape"))
    for view in [*VIEWS, *VIEWS]:
        base, x = argument(view)
        expected = program("reshape")(x), base
        again, y = argument(view)
        assert_close((f(y), again), expected)


DERIVATIVES: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "jacfwd": fad.jacfwd,
    "jacrev": fad.jacrev,
    "vjp": lambda f: lambda x: fad.vjp(f, x)[1](fad.tensor(1.0))[0],
    "jit of grad": lambda f: fad.jit(fad.grad(f)),
    "grad of jit": lambda f: fad.grad(fad.jit(f)),
    "grad of checkpoint": lambda f: fad.grad(fad.checkpoint(f)),
    "linearize": lambda f: (
        lambda x: fnp.stack(
            [fad.linearize(f, x)[1](e.reshape(x.shape)) for e in fnp.eye(x.size)]
        ).reshape(x.shape)
    ),
}


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("view", ["transposed", "columns", "of a view"])
def test_derivatives_are_those_of_the_function(view: str, name: str) -> None:
    def f(x: Any) -> Any:
        v = x.reshape(-1)  # a copy
        v[1:3] = -1.0
        return (x * x).sum() + (v * v * v).sum()

    x = argument(view)[1]
    expected = fad.grad(f)(x)
    y = leaf(x.clone())
    w = y.flatten()  # NumPy's, a copy
    w[1:3] = -1.0
    ((y * y).sum() + (w * w * w).sum()).backward()
    assert_close(expected, y.grad)
    assert_close(DERIVATIVES[name](f)(argument(view)[1]), expected)


def test_explain_says_that_an_argument_is_not_contiguous() -> None:
    f = fad.jit(lambda x: x * 2)
    f(fad.zeros(3, 3))
    assert "is compiled for these arguments" in f.explain(fad.zeros(4, 3)[:3])
    assert "is float32[3,3] (a view that is not contiguous)" in f.explain(fad.zeros(3, 3).T)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_lanes_are_parts_of_the_argument(dim: int) -> None:
    """As in a loop over the dimension."""

    def f(x: Any) -> Any:
        v = x.reshape(-1)
        v[1] = -1.0
        return (x * x).sum() + v.sum()

    base, other = (fad.tensor(np.arange(24.0).reshape(2, 3, 4)) for _ in range(2))
    expected = fnp.stack([f(other[(slice(None),) * dim + (k,)]) for k in range(base.shape[dim])])
    assert_close((fad.vmap(f, dim)(base), base), (expected, other))
