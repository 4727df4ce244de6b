"""hijax primitives, JAX's own and a user's: their rules are used under all transforms, and they compile.

A hijax primitive is a class with rules, which JAX expands before it compiles. From JAX 0.11 on
`searchsorted`, `interp`, `expm`, `custom_root` are made of some; with flags `custom_jvp`, `custom_vjp` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import hijax

import fad
import fad.numpy as fnp
from fad.core.jaxprs import calls_host

BASE: Any = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive  # type: ignore[attr-defined]
X = jnp.array([0.5, 1.0, 2.0])


class VjpOnly(BASE):
    """The cube; its rule says twice the derivative, so that one sees whether it is used."""

    def __init__(self, aval: Any) -> None:
        self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        super().__init__()

    def expand(self, x: Any) -> Any:
        return x * x * x

    def vjp_fwd(self, nonzero: Any, x: Any) -> Any:
        return self(x), x

    def vjp_bwd_retval(self, x: Any, g: Any) -> Any:
        return (6.0 * x * x * g,)

    def batch(self, axis: Any, args: Any, dims: Any) -> Any:
        return type(self)(jax.typeof(args[0]))(*args), dims[0]


class AllRules(VjpOnly):
    def jvp(self, primals: Any, tangents: Any) -> Any:
        return self(*primals), 6.0 * primals[0] ** 2 * tangents[0]

    def lin(self, nonzero: Any, x: Any) -> Any:
        return self(x), x

    def linearized(self, x: Any, t: Any) -> Any:
        return 6.0 * x * x * t


class NoRules(BASE):
    """A pair of arguments, of which one is a pytree, two results, and a parameter."""

    def __init__(self, x: Any, scale: float) -> None:
        self.in_avals = (x, {"y": x})
        self.out_aval, self.params = (x, x), {"scale": scale}
        super().__init__()

    def expand(self, x: Any, other: Any) -> Any:
        return self.scale * x * other["y"], x + other["y"]


def all_rules(x: Any) -> Any:
    return AllRules(jax.typeof(x))(x)


def vjp_only(x: Any) -> Any:
    return VjpOnly(jax.typeof(x))(x)


Lift = Callable[[Callable[..., Any]], Callable[..., Any]]


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: f(x).sum()


# What is done with f, by fad and by JAX; of these the programs below are made.
BY_FAD: dict[str, Lift] = {
    "jit": fad.jit,
    "grad": lambda f: fad.grad(total(f)),
    "jvp": lambda f: lambda x: fad.jvp(f, (x,), (x,))[1],
    "vmap": lambda f: lambda x: fad.vmap(f)(x[None])[0],
    "jacfwd": lambda f: lambda x: fad.jacfwd(f)(x).sum(0),
    "linearize": lambda f: lambda x: fad.linearize(f, x)[1](x),
    "checkpoint": fad.checkpoint,
    "scan": lambda f: lambda x: fad.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
}
BY_JAX: dict[str, Lift] = {
    "jit": jax.jit,
    "grad": lambda f: jax.grad(total(f)),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None])[0],
    "jacfwd": lambda f: lambda x: jax.jacfwd(f)(x).sum(0),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "checkpoint": lambda f: f,
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
}
STACKS = """jit grad jvp vmap jacfwd linearize checkpoint scan  jit,grad grad,jit jit,jvp vmap,jit jit,vmap
    grad,vmap vmap,grad grad,grad jvp,grad grad,jvp jvp,jvp grad,checkpoint jit,checkpoint grad,scan
    jit,linearize jit,vmap,grad grad,jit,vmap vmap,grad,grad jit,jvp,grad jit,grad,scan
    jit,grad,checkpoint""".split()


def stacked(lifts: dict[str, Lift], stack: str, f: Callable[..., Any]) -> Callable[..., Any]:
    for name in reversed(stack.split(",")):
        f = lifts[name](f)
    return f


@pytest.mark.parametrize("stack", STACKS)
def test_own_primitives_have_their_rules_under_fad(stack: str) -> None:
    expected = stacked(BY_JAX, stack, all_rules)(X)
    found = stacked(BY_FAD, stack, fad.from_jax(all_rules))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("stack", "jit jit,grad vmap,grad jvp,grad jit,vmap,grad linearize".split())
def test_own_primitives_have_their_rules_under_jax(stack: str) -> None:
    expected = stacked(BY_JAX, stack, all_rules)(X)
    twice = fad.to_jax(lambda x: 2.0 * fad.from_jax(all_rules)(x))
    np.testing.assert_allclose(stacked(BY_JAX, stack, twice)(X), 2.0 * expected, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(total(jax.checkpoint(twice)))(X), 12.0 * X * X, rtol=1e-6)


def test_on_the_tape_and_repeated(replay_mode: None) -> None:
    f = fad.from_jax(all_rules)
    seen = set()
    for _ in range(200):
        x = fad.tensor(X, requires_grad=True)
        (3.0 * f(2.0 * x)).sum().backward()
        seen.add(x.grad.numpy().tobytes())  # type: ignore[union-attr]
    (bits,) = seen
    np.testing.assert_allclose(np.frombuffer(bits, np.float32), 144.0 * X * X, rtol=1e-6)


@pytest.mark.parametrize("stack", "grad jit,grad vmap,grad grad,checkpoint grad,grad".split())
def test_a_primitive_with_a_vjp_alone(stack: str) -> None:
    f = fad.from_jax(vjp_only)
    expected = 12.0 * X if stack == "grad,grad" else 6.0 * X * X
    np.testing.assert_allclose(stacked(BY_FAD, stack, f)(X), expected, rtol=1e-6)
    with pytest.raises(NotImplementedError, match="VjpOnly"):
        fad.jvp(f, (X,), (X,))
    with pytest.raises(NotImplementedError, match="VjpOnly"):
        fad.jit(fad.jacfwd(f))(X)


def test_a_primitive_without_rules() -> None:
    def f(x: Any, y: Any) -> Any:
        return NoRules(jax.typeof(x), 3.0)(x, {"y": y})

    product, added = fad.jit(fad.from_jax(f))(X, X)
    np.testing.assert_allclose(product, 3.0 * X * X)
    np.testing.assert_allclose(added, 2.0 * X)
    ours = fad.from_jax(f)
    for transformed in (fad.grad(lambda x: ours(x, x)[0].sum()), fad.vmap(lambda x: ours(x, x))):
        with pytest.raises(NotImplementedError, match="NoRules"):
            transformed(X)


def test_programs_are_looked_into() -> None:
    """A callback in a primitive is seen, and the pattern of its derivative is that of its program."""

    class Printing(AllRules):
        def expand(self, x: Any) -> Any:
            jax.debug.callback(lambda _: None, x)
            return x

    closed = jax.make_jaxpr(lambda x: Printing(jax.typeof(x))(x))(X)
    assert calls_host(closed.jaxpr)
    assert not calls_host(jax.make_jaxpr(all_rules)(X).jaxpr)
    np.testing.assert_array_equal(fad.sparsity(fad.from_jax(all_rules))(X).todense(), np.eye(3))


# JAX's own

XP, FP = jnp.array([0.0, 1.0, 2.5]), jnp.array([1.0, 3.0, 2.0])
A = jnp.array([[0.1, 0.2], [0.3, 0.4]])


def root(lib: Any, ones: Any, a: Any) -> Any:
    """The cube root, by Newton's method."""
    return lib.custom_root(
        lambda y: y**3 - a,
        ones(a),
        lambda f, y: lib.fori_loop(0, 20, lambda _, y: y - f(y) / (3.0 * y * y), y),
        lambda g, y: y / g(ones(y)),
    )


LIBRARY: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any]] = {
    "interp": (lambda x: fnp.interp(x, XP, FP), lambda x: jnp.interp(x, XP, FP), X),
    "expm": (fad.scipy.linalg.expm, jax.scipy.linalg.expm, A),
    "custom_root": (
        lambda a: root(fad.lax, fnp.ones_like, a),
        lambda a: root(jax.lax, jnp.ones_like, a),
        X,
    ),
    "einsum": (lambda a: fnp.einsum("ij,jk->ik", a, a), lambda a: a @ a, A),
    "relu": (lambda x: fad.nn.relu(x - 1.5), lambda x: jax.nn.relu(x - 1.5), X),
    "softplus": (fad.nn.softplus, jax.nn.softplus, X),
    "logaddexp": (lambda x: fnp.logaddexp(x, 1.0), lambda x: jnp.logaddexp(x, 1.0), X),
}
COUNTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "searchsorted": (lambda x: fnp.searchsorted(XP, x), lambda x: jnp.searchsorted(XP, x)),
    "digitize": (lambda x: fnp.digitize(x, XP), lambda x: jnp.digitize(x, XP)),
    "histogram": (lambda x: fnp.histogram(x, 3)[0], lambda x: jnp.histogram(x, 3)[0]),
    "nonzero": (lambda x: fnp.nonzero(x, size=3)[0], lambda x: jnp.nonzero(x, size=3)[0]),
}
FLAGS = ("jax_custom_jvp3", "jax_custom_vjp3", "jax_remat3")


@pytest.fixture(params=["none", *FLAGS, "all"])
def flags(request: pytest.FixtureRequest) -> Iterator[str]:
    """JAX's flags that make its custom rules hijax primitives, as far as this version has them."""
    chosen = [f for f in FLAGS if request.param in (f, "all") and hasattr(jax.config, f)]
    before = {f: getattr(jax.config, f) for f in chosen}
    for f in chosen:
        jax.config.update(f, True)
    yield request.param
    for f, value in before.items():
        jax.config.update(f, value)


def agrees(name: str) -> None:
    ours, theirs, x = LIBRARY[name]
    close = {"rtol": 2e-5, "atol": 1e-6}
    np.testing.assert_allclose(fad.jit(ours)(x), jax.jit(theirs)(x), **close)  # type: ignore[arg-type]
    second = jax.jit(jax.vmap(jax.jacrev(jax.grad(total(theirs)))))(x[None])
    for f in (
        fad.jit(fad.vmap(fad.jacrev(fad.grad(total(ours))))),
        jax.jit(jax.vmap(jax.jacrev(jax.grad(total(fad.to_jax(ours)))))),
        fad.vmap(fad.jit(fad.hessian(total(fad.from_jax(theirs))))),
    ):
        np.testing.assert_allclose(f(x[None]), second, **close)  # type: ignore[arg-type]
    first = fad.jit(fad.grad(total(fad.checkpoint(ours))))(x)
    np.testing.assert_allclose(first, jax.jit(jax.grad(total(theirs)))(x), **close)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LIBRARY)
def test_functions_of_jax(name: str) -> None:
    agrees(name)


def test_functions_of_jax_with_flags(flags: str) -> None:
    for name in ("relu", "logaddexp"):
        agrees(name)


def test_patterns_with_flags(flags: str) -> None:
    rolled = fad.from_jax(jax.checkpoint(lambda x: jnp.roll(jax.nn.relu(x), 1)))
    np.testing.assert_array_equal(fad.sparsity(rolled)(X).todense(), np.roll(np.eye(3), 1, 0))


@pytest.mark.parametrize("name", COUNTS)
def test_functions_of_jax_without_derivatives(name: str) -> None:
    ours, theirs = COUNTS[name]
    for f in (ours, fad.jit(ours), jax.jit(fad.to_jax(ours)), fad.jit(fad.from_jax(theirs))):
        np.testing.assert_array_equal(f(X), theirs(X))
    np.testing.assert_array_equal(
        fad.jit(fad.vmap(ours))(jnp.stack([X, 2.0 * X])), jax.vmap(theirs)(jnp.stack([X, 2.0 * X]))
    )


def test_rules_of_users_with_flags(flags: str) -> None:
    """``custom_vjp`` and ``custom_jvp``: the rule is used, once, compiled or not."""

    @jax.custom_vjp
    def by_vjp(x: Any) -> Any:
        return x * x

    by_vjp.defvjp(lambda x: (x * x, x), lambda x, g: (4.0 * x * g,))

    @jax.custom_jvp
    def by_jvp(x: Any) -> Any:
        return x * x

    by_jvp.defjvp(lambda p, t: (p[0] * p[0], 4.0 * p[0] * t[0]))
    for f in (fad.from_jax(by_vjp), fad.from_jax(by_jvp)):
        first = fad.grad(total(f))
        for g in (first, fad.jit(first), fad.vmap(fad.grad(f)), fad.grad(total(fad.checkpoint(f)))):
            np.testing.assert_allclose(g(X), 4.0 * X)
        np.testing.assert_allclose(fad.jit(fad.grad(total(first)))(X), [4.0] * 3)
        np.testing.assert_allclose(jax.jit(jax.grad(total(fad.to_jax(f))))(X), 4.0 * X)
