"""fad.lax's control flow and other functions of functions: fad bodies that close over tracked values."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import IN_FAD, IN_JAX, Fn, assert_close, ramp, transforms
from namespace_cases import V

import fad
import fad.lax as flax
import fad.numpy as fnp
from fad.core import trees


class Tanh(fad.Function):
    """tanh, with a vjp rule of its own."""

    scale = 1.0

    @staticmethod
    def forward(x):
        return fnp.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def vjp(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (1.0 - y * y)


# Each takes a library, an activation and x (a vector of 3); bodies close over x.
LOOPS: dict[str, Any] = {
    "scan": lambda m, act, x: m.lax.scan(lambda c, v: (act(c) * x[0], c * v), x[1], x)[1],
    "scan of a tree": lambda m, act, x: m.lax.scan(
        lambda c, v: ({"a": act(c["a"] + v["p"]), "n": c["n"] + 1}, v["q"] * c["a"] * x[2]),
        {"a": x[0], "n": 0},
        {"p": x, "q": x * x},
        reverse=True,
    )[1],
    "cond": lambda m, act, x: m.lax.cond(x[0] > 0.2, lambda v: act(v) * x, lambda v: v * v, x),
    "cond without operands": lambda m, act, x: m.lax.cond(
        x[0] > 0.2, lambda: act(x) * x[1], lambda: x
    ),
    "switch": lambda m, act, x: m.lax.switch(
        (x[0] > 0.2).astype("int32") + 1, [m.np.sin, act, lambda v: act(v * x[2])], x
    ),
    "fori_loop": lambda m, act, x: m.lax.fori_loop(0, 3, lambda i, c: act(c) * x + i, x),
    "map": lambda m, act, x: m.lax.map(lambda v: act(v) * x[1], x),
    "associative_scan": lambda m, act, x: m.lax.associative_scan(lambda a, b: act(a * b) + a, x),
    "nested": lambda m, act, x: m.lax.scan(
        lambda c, v: (
            m.lax.cond(v > 0.4, lambda c: act(c) * x[0], lambda c: c + v, c),
            m.lax.map(lambda u: act(u * c) * v, x).sum(),
        ),
        x[1],
        x,
    )[1],
    "while_loop": lambda m, act, x: m.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, act(c[1]) * x), (0, x)
    )[1],
}
# JAX's has no reverse mode.
WITH_REVERSE: dict[str, Any] = {
    "while_loop": lambda m, act, x: m.lax.fori_loop(0, 3, lambda i, y: act(y) * x, x)
}


def ours(name: str) -> Fn:
    return lambda x: LOOPS[name](IN_FAD, Tanh.apply, x)


def theirs(name: str) -> Fn:
    return lambda x: WITH_REVERSE.get(name, LOOPS[name])(IN_JAX, jnp.tanh, x)


# Transforms: fad's, and JAX's around fad code.

FAD = transforms(lambda xp: lambda y: xp.sum(xp.sin(y)), lambda xp: xp.cos)


def weigh(f: Fn) -> Fn:
    return lambda x: jnp.sum(jnp.sin(f(x)))


PAIRS: dict[str, tuple[Any, Any]] = {
    **{name: (t.fad, t.jax) for name, t in FAD.items()},
    "jit": (fad.jit, lambda f: f),
    "jax.grad": (lambda f: fad.from_jax(jax.grad(weigh(fad.to_jax(f)))), lambda f: jax.grad(weigh(f))),
    "jax.jacfwd": (lambda f: fad.from_jax(jax.jacfwd(fad.to_jax(f))), jax.jacfwd),
    "jax.vmap": (lambda f: fad.from_jax(jax.vmap(fad.to_jax(f))), jax.vmap),
    "jax.jit": (lambda f: fad.from_jax(jax.jit(fad.to_jax(f))), lambda f: f),
    "jax.checkpoint": (lambda f: fad.from_jax(jax.checkpoint(fad.to_jax(f))), lambda f: f),
}  # fmt: skip


def possible(names: tuple[str, ...]) -> bool:
    """Whether to_jax takes it: it refuses results that are part of an eager graph."""
    return names[0] != "autograd" or not names[-1].startswith("jax.")


def check(loop: str, names: tuple[str, ...]) -> None:
    got, expected = ours(loop), theirs(loop)
    for name in names:
        got, expected = PAIRS[name][0](got), PAIRS[name][1](expected)
    lanes = sum(name in ("vmap", "jax.vmap") for name in names)
    x = jnp.linspace(-0.3, 0.9, 3 * 2**lanes).reshape((2,) * lanes + (3,))
    assert_close(got(x), jax.jit(expected)(x), rtol=1e-3, atol=1e-4)


ONE = [(loop, (n,)) for loop in LOOPS for n in PAIRS if possible((n,))]
TWO = [
    (loop, names)
    for loop in LOOPS
    for names in itertools.product(PAIRS, repeat=2)
    if possible(names)
]


def ids(case: Any) -> str:
    return "-".join((case[0], *case[1]))


@pytest.mark.sweep("case", ONE, sample=12, ids=ids)
def test_every_transform_around_every_loop(case: Any) -> None:
    check(*case)


@pytest.mark.sweep("case", TWO, sample=10, ids=ids)
def test_transforms_of_transforms(case: Any) -> None:
    check(*case)


class ScaledTanh(Tanh):
    """Its derivative is 3 times too large."""

    @staticmethod
    def vjp(ctx, g):
        return 3.0 * Tanh.vjp(ctx, g)


ALONE: dict[str, Any] = {
    "scan": lambda m, act, x: m.lax.scan(lambda c, v: (c, act(v)), 0.0, x)[1],
    "cond": lambda m, act, x: m.lax.cond(x[0] < 9.0, act, lambda v: v, x),
    "fori_loop": lambda m, act, x: m.lax.fori_loop(0, 1, lambda i, c: act(c), x),
    "map": lambda m, act, x: m.lax.map(act, x),
}


@pytest.mark.parametrize("name", ALONE)
def test_the_rule_of_the_user_is_the_one_that_runs(name: str) -> None:
    f = lambda x: ALONE[name](IN_FAD, ScaledTanh.apply, x)
    x = jnp.array([0.3, -0.5, 0.7])
    slope = 3.0 * (1.0 - jnp.tanh(x) ** 2)
    weighted = lambda x: (f(x) * ramp(x)).sum()
    assert_close(fad.grad(weighted)(x), ramp(x) * slope)
    assert_close(fad.grad(fad.checkpoint(weighted))(x), ramp(x) * slope)
    assert_close(fad.jit(fad.grad(weighted))(x), ramp(x) * slope)
    assert_close(jax.grad(fad.to_jax(weighted))(x), ramp(x) * slope)
    assert_close(fad.jvp(f, (x,), (x,))[1], x * slope)
    assert_close(fad.grad(lambda x: fad.vmap(f)(x).sum())(jnp.stack([x, x]))[1], slope)
    t = fad.tensor(x, requires_grad=True)
    weighted(t).backward()
    assert_close(t.grad, ramp(x) * slope)


# Models that can be called, as data


@jax.tree_util.register_dataclass
@dataclass
class Affine:
    w: Any
    b: Any

    def __call__(self, x: Any) -> Any:
        return x * self.w + self.b


def _doubled(model: Affine) -> Affine:
    return jax.tree.map(lambda x: x + x, model)


def _solve(_: Any, b: Affine) -> Affine:
    return jax.tree.map(lambda x: x / 2.0, b)


# Programs of the module that stands for `jax.lax`, of that for `jax.scipy.sparse.linalg`, and of a model.
WITH_MODELS: dict[str, Fn] = {
    "scan, a carry": lambda lax, _, m: lax.scan(
        lambda m, x: (_doubled(m), m(x)), m, jnp.arange(3.0)
    ),
    "scan, in a tuple": lambda lax, _, m: lax.scan(
        lambda c, _: ((c[0], c[0](c[1])), None), (m, m.b), None, 3
    ),
    "scan, xs": lambda lax, _, m: lax.scan(lambda x, m: (m(x), x), 1.0, m),
    "scan, a model for the body": lambda lax, _, m: lax.map(m, jnp.arange(3.0)),
    "map": lambda lax, _, m: lax.map(lambda m: m(2.0), m),
    "associative_scan": lambda lax, _, m: lax.associative_scan(
        lambda f, g: Affine(f.w * g.w, g(f.b)), m
    ),
    "fori_loop": lambda lax, _, m: lax.fori_loop(0, 3, lambda _, m: _doubled(m), m),
    "while_loop": lambda lax, _, m: lax.while_loop(lambda m: m.w[0] < 4.0, _doubled, init_val=m),
    "cond": lambda lax, _, m: lax.cond(m.w[0] > 0.0, lambda m, x: m(x), lambda m, x: x, m, m.b),
    "switch": lambda lax, _, m: lax.switch(1, [lambda m: m, _doubled], m),
    "custom_linear_solve": lambda lax, _, m: lax.custom_linear_solve(
        _doubled, m, _solve, symmetric=True
    ),
    "optimization_barrier": lambda lax, _, m: lax.optimization_barrier(m),
    "cg": lambda _, linalg, m: linalg.cg(_doubled, m, x0=m)[0],
    "gmres": lambda _, linalg, m: linalg.gmres(_doubled, m)[0],
    "bicgstab": lambda _, linalg, m: linalg.bicgstab(_doubled, m)[0],
}


@pytest.mark.parametrize("name", WITH_MODELS)
def test_a_model_that_can_be_called_is_data_where_data_stands(name: str) -> None:
    program, arrays = (
        WITH_MODELS[name],
        Affine(jnp.array([0.5, 2.0, -1.0]), jnp.array([1.0, 0.0, 3.0])),
    )
    linalg = jax.scipy.sparse.linalg
    in_jax = functools.partial(program, jax.lax, linalg)

    def total(program: Fn, m: Affine) -> Any:
        return sum((x * x).sum() for x in jax.tree.leaves(program(m)))

    slope_of = jax.jacfwd(functools.partial(total, in_jax))
    expected, slope = jax.jit(lambda m: (in_jax(m), slope_of(m)))(arrays)
    in_fad = functools.partial(program, flax, fad.scipy.sparse.linalg)
    tensors = jax.tree.map(fad.tensor, arrays)
    for f, m in ((in_fad, arrays), (in_fad, tensors), (fad.jit(in_fad), tensors)):
        found = f(m)
        assert jax.tree.structure(_bare(found)) == jax.tree.structure(expected)
        assert_close(jax.tree.leaves(found), jax.tree.leaves(expected))
    for transform in (fad.grad, lambda f: fad.jit(fad.jacfwd(f))):
        found = transform(functools.partial(total, in_fad))(tensors)
        assert_close(jax.tree.leaves(found), jax.tree.leaves(slope))


def _bare(tree: Any) -> Any:
    return jax.tree.map(lambda x: getattr(x, "array", x), tree, is_leaf=trees.is_leaf)


def test_a_model_that_can_be_called_goes_over_a_named_axis() -> None:
    m = Affine(jnp.arange(3.0), jnp.ones(3))
    found = fad.vmap(lambda m: flax.pmean(m, "rows"), axis_name="rows")(m)
    assert isinstance(found, Affine)
    assert_close((found.w, found.b), (jnp.ones(3), jnp.ones(3)))


# Writes in bodies


def test_loops_with_writes_in_their_bodies():
    def step(u, c):
        u[1:-1] += c * (u[2:] - 2 * u[1:-1] + u[:-2]).clone()
        u[0] = 0.0
        return u

    def pure(u, c):
        u = u.at[1:-1].add(c * (u[2:] - 2 * u[1:-1] + u[:-2]))
        return u.at[0].set(0.0)

    def run(u, c):
        u = u.clone()
        u, _ = flax.scan(lambda u, _: (step(u, c), None), u, None, length=5)
        u = flax.fori_loop(0, 3, lambda i, u: step(u, c), u)
        return (u**2).sum()

    def run_pure(u, c):
        u, _ = jax.lax.scan(lambda u, _: (pure(u, c), None), u, None, length=5)
        u = jax.lax.fori_loop(0, 3, lambda i, u: pure(u, c), u)
        return (u**2).sum()

    u = jnp.linspace(0.0, 1.0, 8) ** 2
    for wrap in (lambda f: f, fad.jit, fad.checkpoint):
        got = fad.grad(wrap(run), (0, 1))(fad.asarray(u), 0.1)
        assert_close(got, jax.grad(run_pure, (0, 1))(u, 0.1))


# Functions of functions, which may be written in fad


@dataclass
class Body:
    """A call with a body: ``run(jax, array)`` is what ``run(fad, tensor)`` should give."""

    name: str
    run: Callable[[Any, Any], Any]


def _custom_root(m: Any, x: Any) -> Any:
    def solve(f: Any, guess: Any) -> Any:
        return m.lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), guess)

    return m.lax.custom_root(
        lambda y: y * y - x, x, solve, lambda g, y: y / g(m.numpy.ones_like(y))
    )


def _root_of_a_number(m: Any, x: Any) -> Any:
    def solve(f: Any, guess: Any) -> Any:
        return m.lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), guess)

    return m.lax.custom_root(lambda y: y * y - x[0], x[0], solve, lambda g, y: y / g(1.0))


BODIES = [
    Body("apply_along_axis", lambda m, x: m.numpy.apply_along_axis(lambda r: r * r[0], 0, x)),
    Body("apply_over_axes", lambda m, x: m.numpy.apply_over_axes(lambda a, i: a + i, x, (0,))),
    Body("fromfunction", lambda m, x: m.numpy.fromfunction(lambda i: x[0] * i, (3,))),
    Body("piecewise", lambda m, x: m.numpy.piecewise(x, [x < 0.5], [m.numpy.sin, 0.5])),
    Body("vectorize", lambda m, x: m.numpy.vectorize(lambda a: m.numpy.sin(a) * x[0])(x)),
    Body(
        "vectorize_signature",
        lambda m, x: m.numpy.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, x),
    ),
    Body("frompyfunc", lambda m, x: m.numpy.frompyfunc(lambda a, b: a * b, 2, 1)(x, x)),
    Body(
        "frompyfunc_reduce",
        lambda m, x: m.numpy.frompyfunc(lambda a, b: a * b, 2, 1, identity=1).reduce(x),
    ),
    Body("pad", lambda m, x: m.numpy.pad(x, 1, lambda v, w, i, k: v.at[: w[0]].set(x[0]))),
    Body("scan", lambda m, x: m.lax.scan(lambda c, a: (c * a, c + x[0]), x[1], x)),
    Body("cond", lambda m, x: m.lax.cond(x[0] > 0, m.numpy.sin, lambda y: y * x, x)),
    Body("cond_jax", lambda m, x: m.lax.cond(x[0] > 0, jnp.sin, lambda y: y * x, x)),
    Body("switch", lambda m, x: m.lax.switch(1, [m.numpy.sin, lambda y: y * x], x)),
    Body("fori_loop", lambda m, x: m.lax.fori_loop(0, 3, lambda i, y: y * x, x)),
    Body("map", lambda m, x: m.lax.map(lambda y: m.numpy.sin(y) * x[0], x)),
    Body(
        "while_loop",
        lambda m, x: m.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x)),
    ),
    Body("associative_scan", lambda m, x: m.lax.associative_scan(m.numpy.multiply, x)),
    Body("associative_scan_body", lambda m, x: m.lax.associative_scan(lambda a, b: a * b, x)),
    Body("reduce", lambda m, x: m.lax.reduce(x, 0.0, m.lax.add, (0,))),
    Body("reduce_window", lambda m, x: m.lax.reduce_window(x, 0.0, m.lax.add, (2,))),
    Body("custom_root", _custom_root),
    Body("custom_root_number", _root_of_a_number),
    Body(
        "custom_linear_solve",
        lambda m, x: m.lax.custom_linear_solve(
            lambda y: y * x, x, lambda mv, b: b / x, symmetric=True
        ),
    ),
    Body("platform_dependent", lambda m, x: m.lax.platform_dependent(x, default=lambda y: y * x)),
    Body("funm", lambda m, x: m.scipy.linalg.funm(m.numpy.diag(x), m.numpy.sin, disp=False)),
    Body("cg", lambda m, x: m.scipy.sparse.linalg.cg(lambda y: y * x, x)[0]),
    Body("gmres", lambda m, x: m.scipy.sparse.linalg.gmres(lambda y: y * x, x)[0]),
    Body("bicgstab", lambda m, x: m.scipy.sparse.linalg.bicgstab(lambda y: y * x, x)[0]),
    Body("cg_matrix", lambda m, x: m.scipy.sparse.linalg.cg(m.numpy.diag(x), x)[0]),
    Body(
        "minimize",
        lambda m, x: (
            m.scipy.optimize.minimize(lambda y: m.numpy.sum((y - x) ** 2), x * 0, method="BFGS").x
        ),
    ),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.name)
def test_bodies(body: Body) -> None:
    expected = (
        body.run(jax, V) if body.name == "minimize" else jax.jit(lambda x: body.run(jax, x))(V)
    )
    out = body.run(fad, fad.asarray(V))
    leaves, _ = trees.flatten(out)
    assert all(isinstance(x, fad.Tensor) for x in leaves)
    for a, b in zip(leaves, jax.tree_util.tree_leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)
    on_arrays = body.run(fad, V)
    for a, b in zip(trees.flatten(on_arrays)[0], leaves, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


NOT_DIFFERENTIABLE = {"while_loop", "minimize", "pad", "funm", "frompyfunc_reduce"}


@pytest.mark.parametrize(
    "body", [b for b in BODIES if b.name not in NOT_DIFFERENTIABLE], ids=lambda b: b.name
)
def test_gradients_reach_what_bodies_close_over(body: Body) -> None:
    def total(module: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            out = body.run(module, x)
            return sum(module.numpy.sum(leaf) for leaf in trees.flatten(out)[0])

        return f

    expected = jax.jit(jax.grad(total(jax)))(V)
    np.testing.assert_allclose(
        np.asarray(fad.grad(total(fad))(V)), np.asarray(expected), rtol=2e-3, atol=2e-4
    )


def _ends(vector: Any, width: Any, axis: int, options: Any) -> None:
    vector[: width[0]] = options.get("padder", 10.0) * vector[width[0]]
    vector[len(vector) - width[1] :] = axis


@pytest.mark.parametrize("width", [2, (1, 2)], ids=str)
@pytest.mark.parametrize("data", [[1.0, 2.0, 3.0], [[1.0, 2.0], [3.0, 4.0]]], ids=["1", "2"])
def test_a_mode_of_pad_may_write_into_its_vector(data: Any, width: Any) -> None:
    x = np.array(data, np.float32)
    expected = np.pad(x, width, _ends, padder=3.0)
    assert_close(fnp.pad(fad.tensor(x), width, _ends, padder=3.0), jnp.asarray(expected))

    def f(x: Any, padder: Any) -> Any:
        return fnp.pad(x, width, mode=_ends, padder=padder)

    assert_close(fad.jit(f)(x, 3.0), jnp.asarray(expected))
    assert_close(fad.vmap(f, (0, None))(jnp.stack([x, x]), 3.0)[1], jnp.asarray(expected))
    got = fad.grad(lambda x, p: (f(x, p) ** 2).sum(), (0, 1))(jnp.asarray(x), 3.0)
    fad.testing.gradcheck(lambda x, p: (f(x, p) ** 2).sum(), (x.astype(float), 3.0))
    assert got[0].shape == x.shape and got[1] > 0


def test_keywords_of_fromfunction_are_the_same_at_each_index() -> None:
    def f(s: Any) -> Any:
        return fnp.fromfunction(lambda i, j, s: i * s + j, (2, 3), s=s)

    expected = np.fromfunction(lambda i, j: i * 2.0 + j, (2, 3))
    np.testing.assert_allclose(f(2.0).array, expected)
    np.testing.assert_allclose(f(fad.tensor(2.0)).array, expected)
    assert_close(fad.jit(fad.grad(lambda s: (f(s) ** 2).sum()))(2.0), jnp.asarray(18.0))


SUMS: dict[str, Any] = {
    "jax": lambda: jnp.add,
    "ufunc": lambda: jnp.frompyfunc(lambda a, b: a + b, 2, 1),
    "partial": lambda: functools.partial(lambda k, a, b: k * a + b, 1.0),
    "fad": lambda: fnp.add,
    "numpy": lambda: np.add,
}


@pytest.mark.parametrize("name", SUMS)
def test_what_makes_functions_takes_any_function(name: str) -> None:
    body, x = SUMS[name](), jnp.array([1.0, 2.0, 4.0])
    made = fnp.frompyfunc(body, 2, 1, identity=0)
    for f, expected in (
        (lambda x: fnp.vectorize(body)(x, x), x + x),
        (lambda x: made(x, x), x + x),
        (lambda x: made.reduce(x), x.sum()),
        (lambda x: made.accumulate(x), jnp.cumsum(x)),
        (lambda x: made.outer(x, x), jnp.add.outer(x, x)),
    ):
        assert_close(f(x), expected)
        assert_close(f(fad.tensor(x)), expected)
    assert_close(fad.grad(lambda x: (fnp.vectorize(body)(x, x) ** 2).sum())(x), 8 * x)


STARTS: dict[str, Callable[[float], Any]] = {
    "float": float,
    "numpy": np.float32,
    "jax": jnp.float32,
    "tensor": fad.tensor,
}


@pytest.mark.sweep("of, name", [*itertools.product(STARTS, ("add", "max", "min"))], sample=6)
def test_windows_have_the_derivatives_that_jax_knows(of: str, name: str) -> None:
    start = {"add": 0.0, "max": -np.inf, "min": np.inf}[name]

    def pooled(module: Any, start: Any) -> Fn:
        def f(x: Any) -> Any:
            window = ((2,), (1,), "SAME")
            return (
                module.lax.reduce_window(x, start, getattr(module.lax, name), *window) ** 2
            ).sum()

        return f

    x = jnp.array([1.0, 3.0, 2.0, 3.0])
    f, oracle = pooled(fad, STARTS[of](start)), pooled(jax, start)
    value, slope, bend = jax.jit(
        lambda x: (oracle(x), jax.grad(oracle)(x), jax.hessian(oracle)(x))
    )(x)
    assert_close(f(x), value)
    assert isinstance(f(x), fad.Tensor) == (of == "tensor")
    assert_close(fad.grad(f)(x), slope)
    assert_close(fad.vmap(fad.hessian(f))(x[None])[0], bend)
    assert_close(fad.jvp(f, (x,), (x,)), (value, slope @ x))
    assert_close(fad.jit(fad.grad(f))(x), slope)


@pytest.mark.parametrize("name", ["add", "max", "min"])
def test_windows_that_begin_with_another_number(name: str) -> None:
    def pooled(module: Any) -> Fn:
        def f(x: Any, start: Any) -> Any:
            reducer = getattr(module.lax, name)
            out = module.lax.reduce_window(x, start, reducer, (3,), (1,), "SAME")
            return (out**2).sum()

        return f

    x, start = jnp.array([1.0, 3.0, 2.0, 4.5, 6.0]), jnp.float32(2.5)
    in_jax = jax.jit(pooled(jax))
    value = in_jax(x, start)
    captured = fad.tensor(start)
    f = fad.jit(lambda x: pooled(fad)(x, captured))
    assert_close(f(x), value)
    assert_close(pooled(fad)(x, start), value)
    gradients = fad.jit(fad.grad(pooled(fad), (0, 1)))(x, start)
    step = 2.0**-6
    for got, direction in zip(
        gradients, [(jnp.eye(5), jnp.zeros(5)), (jnp.zeros((1, 5)), jnp.ones(1))], strict=True
    ):
        ahead, behind = (
            [in_jax(x + s * dx, start + s * d) for dx, d in zip(*direction, strict=True)]
            for s in (step, -step)
        )
        expected = (np.array(ahead) - np.array(behind)) / (2 * step)
        np.testing.assert_allclose(np.ravel(got), expected, rtol=1e-4, atol=1e-3)
    assert_close(fad.vmap(pooled(fad), (None, 0))(x, start[None]), value[None])
    for known in (2.5, np.float32(2.5), start, fad.tensor(start)):
        fixed = lambda x, known=known: pooled(fad)(x, known)
        assert_close(fixed(x), value)
        assert isinstance(fixed(x), fad.Tensor) == isinstance(known, fad.Tensor)
        for transform in (fad.grad, lambda f: fad.jit(fad.grad(f))):
            assert_close(transform(fixed)(x), gradients[0])
    captured += 10.0
    assert_close(f(x), in_jax(x, start + 10.0))
    for wrong in (jnp.ones(2), jnp.int32(1)):
        with pytest.raises((TypeError, ValueError)):
            fad.jit(lambda x, s: pooled(fad)(x, s))(x, wrong)
