"""The level of forward Laplacians: what it says of its Tensors, and each way of evaluating an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close

import fad
import fad.laplacians.level as laplacian
import fad.numpy as fnp
from fad.laplacians.level import LaplacianLevel
from tests.fuzzing.functions import FUNCTIONS

X = jnp.array([0.3, -0.8, 1.2])


def test_parts_and_layout() -> None:
    with LaplacianLevel() as level:
        x = level.coordinates(X, 4)
        for t in (
            level.with_derivatives(X),
            x,
            x[1:] * 2.0,
            x * x,
            fnp.outer(x, x) @ x,
            fnp.sum(x),
        ):
            parts, rest = level.flatten(t)
            again_parts, again_rest = level.flatten(level.unflatten(rest, iter(parts)))
            assert_close(again_parts, parts)
            assert again_rest == rest
            assert (level.tangent(t) is None) == (rest == ())
        assert level.unpack(X) == (X,)
        assert len(level.unpack(level.coordinates(X[:0], 0))) == 1


def test_compiled_code_makes_the_rows_of_coordinates_itself() -> None:
    # As operands they would be numbers that XLA does not know, and products with them would remain.
    compiled = fad.jit(fad.laplacian(lambda x: fnp.sum(fnp.sin(MATRIX @ x))))
    assert_close(compiled(X), -jnp.sum(MATRIX**2 * jnp.sin(MATRIX @ X)[:, None]))
    ((entry,),) = compiled._entries.values()
    assert not any([a.shape == (1, *X.shape) for a in entry.fixed])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_the_dtype_is_that_of_the_value(dtype: Any) -> None:
    """A sum of half precision is computed in 32 bits, and converted."""
    x = X.astype(dtype)
    for f in (lambda x: fnp.sum(x * x), lambda x: fnp.sum(fnp.sin(x))):
        assert [r.dtype for r in fad.value_and_laplacian(f)(x)] == [dtype, dtype]


def test_only_what_may_not_be_zero_is_computed() -> None:
    with LaplacianLevel() as level:
        x = level.coordinates(X, 0)
        linear = (x + 1.0, x * 2.0, x @ jnp.ones((3, 2)), fnp.sort(x), fnp.maximum(x, 0.0), x[1:])
        assert [len(level.unpack(y)) for y in linear] == [2] * 6
        assert [len(level.unpack(y)) for y in (x * x, fnp.sin(x), 1.0 / x)] == [3] * 3
        assert len(level.unpack(fnp.argmax(x))) == len(level.unpack(x > 0.0)) == 1


MATRIX = jnp.array([[2.0, 0.3, -0.1], [0.2, 1.5, 0.4], [-0.3, 0.1, 1.8]])
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda xp, x: xp.cumsum(x[::-1]) - x,
    "product": lambda xp, x: xp.sin(x) * xp.exp(x),
    "matrix product": lambda xp, x: xp.outer(x, xp.sin(x)) @ xp.outer(xp.cos(x), x),
    "batched matrix product": lambda xp, x: xp.einsum(
        "aij,ajk->aik", xp.outer(x, x * x).reshape(3, 1, 3), xp.outer(x, xp.sin(x)).reshape(3, 3, 1)
    ),
    "convolution": lambda xp, x: xp.convolve(x * x, xp.sin(x)),
    "square of a convolution": lambda xp, x: xp.convolve(x, x) ** 2,
    "elements of one": lambda xp, x: xp.tanh(x) + xp.sqrt(x * x + 1.0) + xp.log1p(x * x),
    "elements with a series": lambda xp, x: (
        xp.exp2(x) + xp.expm1(x) + xp.tan(x) * xp.sinh(x) + xp.cosh(x) / (1.0 + xp.exp(-9.0 * x))
    ),
    "elements where a function is flat": lambda xp, x: xp.tanh(9.0 * x) + fad.nn.sigmoid(12.0 * x),
    "integer powers": lambda xp, x: sum([fad.lax.integer_pow(x, n) for n in (-2, 0, 1, 3)]),
    "elements of two": lambda xp, x: xp.arctan2(xp.sin(x), x + 3.0) / (x * x + 1.0),
    "power": lambda xp, x: (x * x + 1.0) ** x,
    "where": lambda xp, x: xp.where(x > 0.0, x**3, xp.sin(x)),
    "complex": lambda xp, x: xp.abs(xp.exp(1j * x) * (x + 2j)) * xp.cos(x),
    "complex output": lambda xp, x: xp.exp(1j * x) * xp.sum(x * x),
    "softmax": lambda xp, x: xp.exp(x) / xp.sum(xp.exp(x)),
    "norm": lambda xp, x: xp.linalg.norm(x) * x,
    "product of all": lambda xp, x: xp.prod(x),
    "a singular derivative behind one that is zero": lambda xp, x: (
        xp.linalg.svd(fad.lax.stop_gradient(x[0]) * xp.eye(3))[1] * xp.sum(x * x)
    ),
    "slogdet": lambda xp, x: xp.linalg.slogdet(MATRIX + xp.outer(x, xp.sin(x)))[1],
    "slogdet of a batch": lambda xp, x: xp.linalg.slogdet(MATRIX * xp.cos(x)[:, None, None])[1],
    "slogdet of complex numbers": lambda xp, x: (lambda s, v: xp.real(s * (1.0 + 2j) * v) + v * v)(
        *xp.linalg.slogdet(MATRIX + xp.exp(1j * xp.outer(x, x)))
    ),
    "det": lambda xp, x: xp.linalg.det(MATRIX + xp.outer(x, xp.sin(x))),
    "solve": lambda xp, x: xp.linalg.solve(MATRIX + xp.outer(x, x), xp.sin(x)),
    "cholesky": lambda xp, x: xp.linalg.cholesky(2.0 * xp.eye(3) + xp.outer(x, x)),
    "number": lambda xp, x: xp.sum(x) ** 2 * x,
}


def dense(f: Callable[[Any], Any], x: Any) -> Any:
    """The trace of the Hessian of each output, by JAX; one program: faster."""
    hessian = jax.jacfwd(jax.jacfwd(f))
    return jax.jit(lambda x: jnp.trace(jnp.moveaxis(hessian(x), (-2, -1), (0, 1))))(x)


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_the_trace_of_the_hessian(name: str) -> None:
    f = OPERATIONS[name]
    value, found = fad.value_and_laplacian(lambda x: f(fnp, x))(X)
    assert_close(value, f(jnp, X))
    assert_close(found, dense(lambda x: f(jnp, x), X), rtol=1e-3, atol=1e-4)


def test_slogdet_has_its_own_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    rule = laplacian._slogdet
    monkeypatch.setattr(laplacian, "_slogdet", lambda *args: calls.append(1) or rule(*args))
    f = lambda xp, x: xp.linalg.slogdet(xp.outer(x, x) + 5.0 * xp.eye(4))[1]
    x = jnp.arange(4.0)
    assert_close(fad.laplacian(lambda x: f(fnp, x))(x), dense(lambda x: f(jnp, x), x))
    assert calls == [1]


def test_loops_and_branches() -> None:
    def f(lib: Any, xp: Any, x: Any) -> Any:
        y = lib.lax.fori_loop(0, 3, lambda k, y: xp.sin(y * x) + y, x)
        y, _ = lib.lax.scan(lambda y, e: (y * e + x, None), y, x)
        return lib.lax.cond(x[0] > 0.0, lambda y: y * y, lambda y: y, y)

    assert_close(
        fad.laplacian(lambda x: f(fad, fnp, x))(X), dense(lambda x: f(jax, jnp, x), X), rtol=1e-3
    )


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_a_function_gives_what_its_jvp_gives(name: str) -> None:
    function = FUNCTIONS[name]
    f = lambda x: function.apply(x * x, fnp.sin(x) + 2.0)
    trace = lambda h: jnp.trace(jnp.moveaxis(h, (-2, -1), (0, 1)))
    expected = jax.tree.map(trace, fad.jacfwd(fad.jacfwd(f))(X))
    assert_close(fad.laplacian(f)(X), expected, rtol=1e-3, atol=1e-4)


class TenTimes(fad.Function):
    """sin(x), with ten times its derivative, so that it shows which rule runs."""

    @staticmethod
    def forward(x: Any) -> Any:
        return fnp.sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return 10.0 * fnp.cos(ctx.saved_tensors[0]) * t


def test_a_function_is_differentiated_by_its_own_rule() -> None:
    f = lambda x: fnp.sum(TenTimes.apply(x * x))
    value, found = fad.value_and_laplacian(f)(X)
    assert_close(value, jnp.sum(jnp.sin(X * X)))
    assert_close(found, jnp.sum(20.0 * jnp.cos(X * X) - 40.0 * X * X * jnp.sin(X * X)))
    assert_close(fad.jit(fad.vmap(fad.laplacian(f)))(jnp.stack([X, X]))[1], found)
