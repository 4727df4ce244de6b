"""Python numbers written in place: to a Tensor, to views and through aliases, in 32 and in 64 bits.

Each write means what the operation out of place means, under every transform.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.testing.comparison import bare

VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda y: y,
    "alias": lambda y: y[None],
    "transposed": lambda y: y.T,
    "window": lambda y: y[1:],
    "row": lambda y: y[1],
    "element": lambda y: y[1, 2],
    "strided": lambda y: y[:, ::2],
    "reversed": lambda y: y[::-1],
    "of a view": lambda y: y[1:].T[None, 1:],
    "reshaped": lambda y: y.reshape(-1)[2:5],
}
# Writes, and what they mean out of place.
WRITES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "add_": (lambda v, k: v.add_(k), lambda v, k: v + k),
    "sub_": (lambda v, k: v.sub_(k), lambda v, k: v - k),
    "mul_": (lambda v, k: v.mul_(k), lambda v, k: v * k),
    "div_": (lambda v, k: v.div_(k), lambda v, k: v / k),
    "pow_": (lambda v, k: v.pow_(k), lambda v, k: v**k),
    "maximum_": (lambda v, k: v.maximum_(k), lambda v, k: jnp.maximum(v, k)),
    "fill_": (lambda v, k: v.fill_(k), lambda v, k: jnp.full_like(v, k)),
    "copy_": (lambda v, k: v.copy_(k), lambda v, k: jnp.full_like(v, k)),
    "masked_fill_": (
        lambda v, k: v.masked_fill_(v > 2.5, k),
        lambda v, k: jnp.where(v > 2.5, jnp.asarray(k, v.dtype), v),
    ),
    "addcmul_": (lambda v, k: v.addcmul_(2.0, 1.5, value=k), lambda v, k: v + k * 2.0 * 1.5),
    "lerp_": (lambda v, k: v.lerp_(k, 0.5), lambda v, k: v + 0.5 * (k - v)),
}
NUMBERS = [1.28, 2, True]


@pytest.fixture(params=[False, True], ids=["32 bits", "64 bits"])
def x64(request: pytest.FixtureRequest) -> Iterator[bool]:
    with jax.enable_x64(request.param):
        yield request.param


def put(y: Any, view: Callable[[Any], Any], new: Callable[[Any], Any]) -> Any:
    """``y`` with the view of it changed, in plain JAX: by the numbers of its elements."""
    places = view(jnp.arange(y.size).reshape(y.shape)).ravel()
    part = new(view(y)).astype(y.dtype).ravel()
    return y.ravel().at[places].set(part).reshape(y.shape)


def programs(view: Any, write: str, k: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A function that writes a number to a view, which others alias, and its meaning in JAX."""
    in_place, meaning = WRITES[write]

    def ours(x: Any) -> Any:
        y = x * 1.5
        r = y[None]
        in_place(r, 0.77)
        s = view(y)
        in_place(s, k)
        t = y.T
        t.add_(1)
        return fnp.sin(y).sum() + fnp.cos(s).sum() + (r * r).sum()

    def theirs(x: Any) -> Any:
        y = meaning(x * 1.5, 0.77).astype(x.dtype)
        y = put(y, view, lambda v: meaning(v, k)) + 1
        return jnp.sin(y).sum() + jnp.cos(view(y)).sum() + (y * y).sum()

    return ours, theirs


TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "plain": (lambda f: lambda x: f(fad.tensor(x)), lambda f: f),
    "grad": (fad.grad, jax.grad),
    "jit grad": (lambda f: fad.jit(fad.grad(f)), jax.grad),
    "grad jit": (lambda f: fad.grad(fad.jit(f)), jax.grad),
    "jax.jit": (lambda f: jax.jit(fad.to_jax(fad.grad(f))), jax.grad),
    "vmap grad": (
        lambda f: lambda x: fad.vmap(fad.grad(f))(fnp.stack([x, 2 * x])),
        lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x])),
    ),
    "jit vmap jvp": (
        lambda f: lambda x: fad.jit(fad.vmap(lambda x: fad.jvp(f, (x,), (x,))[1]))(x[None]),
        lambda f: lambda x: jax.vmap(lambda x: jax.jvp(f, (x,), (x,))[1])(x[None]),
    ),
}
BITS = [("float32", False), ("float16", False), ("float32", True), ("float64", True)]
CASES = list(itertools.product(VIEWS, WRITES, NUMBERS, TRANSFORMS, BITS))


@pytest.mark.sweep("case", CASES, sample=8, ids=str)
def test_numbers_written_to_views(case: tuple[Any, ...]) -> None:
    view, write, k, transform, (dtype, x64) = case
    with jax.enable_x64(x64):
        x = jnp.asarray(np.linspace(0.5, 1.5, 6).reshape(2, 3), dtype)
        ours, theirs = programs(VIEWS[view], write, k)
        in_fad, in_jax = TRANSFORMS[transform]
        got = np.asarray(bare(in_fad(ours)(x)))
        want = np.asarray(jax.jit(in_jax(theirs))(x))  # one program: faster
    assert got.dtype == want.dtype
    slack = {"float64": 1e-10, "float32": 1e-4, "float16": 5e-2}[dtype]
    np.testing.assert_allclose(got, want, slack, slack)


@pytest.mark.sweep(
    "case", list(itertools.product(VIEWS, WRITES, [(2, 3), (37, 41)])), sample=16, ids=str
)
def test_a_write_of_values_has_the_bits_of_a_recorded_one(
    case: tuple[str, str, tuple[int, int]],
) -> None:
    """It takes the view from the base, instead of what the view holds."""
    view, write, shape = case
    x = np.random.default_rng(1).normal(1.0, 1.0, shape).astype(np.float32)

    def written(y: Any) -> list[Any]:
        base, part = y * 1.5, y[0] * 0.3
        for k in (0.77, part[1], 3):
            WRITES[write][0](VIEWS[view](base), k)
        v = VIEWS[view](base)
        for k in (1.3, part[2]):
            WRITES[write][0](v, k)
        return [np.asarray(z.detach().array) for z in (base, v)]

    with fad.autograd.compiled(False):
        recorded = written(fad.tensor(x, requires_grad=True))
        values = written(fad.tensor(x))
    for a, b in zip(values, recorded, strict=True):
        assert a.tobytes() == b.tobytes()


def test_numbers_added_to_aliases_compiled(x64: bool) -> None:
    """In 64 bits such a number had a dtype and no shape."""

    def f(x: Any) -> Any:
        y = x * 1.0
        r = y[None]
        r.add_(0.77)
        s = y.T
        s.add_(1.28)
        y[1:].sub_(2)
        return (y * y).sum()

    x = jnp.arange(6.0).reshape(2, 3)
    got = fad.jit(fad.grad(f))(x)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, 2 * (x + jnp.array([[2.05], [0.05]])), rtol=1e-6)


@pytest.mark.parametrize("number", [2, 2.5, True, 1j])
@pytest.mark.sweep("dtype", [bool, "int8", "int32", "float32", "complex64"], sample=2)
def test_the_kind_of_a_number_must_fit(number: Any, dtype: Any, x64: bool) -> None:
    """Alike in 32 and 64 bits, compiled or not: a Tensor does not take a number of a higher kind."""
    rank = "bifc".index
    fits = rank(np.asarray(number).dtype.kind) <= rank(np.dtype(dtype).kind)

    def f(x: Any) -> Any:
        y = x.clone()
        y[1:].add_(number)
        y[None].mul_(number)
        return y

    x = fad.tensor(np.ones(3, dtype))
    for run in (f, fad.jit(f), lambda x: fad.vmap(f)(x[None])):
        if fits:
            assert run(x).dtype == dtype
        else:
            with pytest.raises(TypeError, match="can't be cast"):
                run(x)


def test_complex_numbers_are_written(x64: bool) -> None:
    def f(z: Any) -> Any:
        w = z * 1.0
        r = w[None]
        r.add_(0.5 - 1j)
        w.T.mul_(2j)
        w[1:].add_(1)
        return (w * w.conj()).real.sum()

    def meaning(z: Any) -> Any:
        w = (z + (0.5 - 1j)) * 2j
        w = w.at[1:].add(1)
        return (w * w.conj()).real.sum()

    z = jnp.asarray([1 + 2j, -0.5j, 3.0], jnp.complex64)
    for run in (fad.grad(f), fad.jit(fad.grad(f)), fad.grad(fad.jit(f))):
        got = bare(run(z))
        assert got.dtype == np.complex64
        np.testing.assert_allclose(got, np.conj(jax.grad(meaning)(z)), rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, fad.jit], ids=["plain", "jit"])
def test_integers_are_written(wrap: Any, x64: bool) -> None:
    def f(n: Any) -> Any:
        m = n + 0
        m[1:].add_(3)
        m[None].sub_(True)
        m[0] = 7
        m[::2] *= 2
        return m

    n = jnp.arange(4, dtype=jnp.int32)
    got = bare(wrap(f)(fad.tensor(n)))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, [14, 3, 8, 5])
