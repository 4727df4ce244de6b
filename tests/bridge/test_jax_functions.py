"""``from_jax``: a JAX function as one operation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import fad
import fad.numpy as fnp
from fad.errors import ArgumentError, LevelError, RuleError


def test_from_jax_is_one_operation() -> None:
    f = fad.from_jax(lambda tree: {"y": jnp.sin(tree["x"]) @ tree["w"] + jnp.cos(tree["x"]).sum()})
    x = fad.tensor([0.3, -0.5], requires_grad=True)
    out = f({"x": x, "w": fad.tensor([1.0, 2.0], requires_grad=True)})["y"]
    assert [type(n).__name__ for n, _ in out.grad_fn.next_functions] == ["AccumulateGrad"] * 2


PARAMS = {"w": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "b": jnp.zeros(2)}


def energy(unravel: Any, v: Any) -> Any:
    p = unravel(v)
    return fnp.sum(fnp.tanh(p["w"] @ jnp.array([0.1, 0.2]) + p["b"]))


def test_unravel_of_a_tree_of_tensors_gives_tensors() -> None:
    """What JAX puts into the Tensors of a structure is the result of the function."""
    flat, unravel = ravel_pytree(PARAMS)
    expected = jax.grad(
        lambda v: jnp.tanh(unravel(v)["w"] @ jnp.array([0.1, 0.2]) + unravel(v)["b"]).sum()
    )(flat)
    _, of_tensors = ravel_pytree(jax.tree.map(fad.tensor, PARAMS))
    f = functools.partial(energy, fad.from_jax(of_tensors))
    rows = flat[None]
    t = fad.tensor(flat, requires_grad=True)
    f(t).backward()
    for found in (
        fad.grad(f)(flat),
        fad.jit(fad.grad(f))(flat),
        fad.vmap(fad.grad(f))(rows)[0],
        fad.grad(lambda v: fad.vmap(f)(v).sum())(rows)[0],
        fad.jacfwd(f)(flat),
        jax.grad(fad.to_jax(f))(flat),
        t.grad.array,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert isinstance(fad.from_jax(of_tensors)(flat)["w"], jax.Array)
    assert isinstance(fad.from_jax(of_tensors)(fad.tensor(flat))["w"], fad.Tensor)


def with_rule(f: Any, fwd: Any, bwd: Any) -> Any:
    rule = jax.custom_vjp(f)
    rule.defvjp(fwd, bwd)
    return rule


# Derivatives are three times what they are, which shows what is differentiated: the rule, or its program.
sine = with_rule(jnp.sin, lambda x: (jnp.sin(x), x), lambda x, g: (3.0 * g * jnp.cos(x),))
exponential = with_rule(jnp.exp, lambda x: (jnp.exp(x),) * 2, lambda y, g: (3.0 * g * y,))
calls_itself: Any = with_rule(
    jnp.sin, lambda x: (calls_itself(x), x), lambda x, g: (3.0 * g * jnp.cos(x),)
)
calls_in_bwd = with_rule(jnp.sin, lambda x: (jnp.sin(x), x), lambda x, g: (sine(x) * g,))
product = with_rule(
    lambda x, y: (x * y, jnp.sin(x)),
    lambda x, y: ((x * y, jnp.sin(x)), (x, y)),
    lambda saved, g: (5.0 * g[0] * saved[1] + g[1], 2.0 * g[0] * saved[0]),
)


def rounding(value: Any) -> Any:
    """Straight through; the value in the rule is rounded by ``value``."""
    rule = jax.custom_jvp(lambda x: jnp.round(x))
    rule.defjvp(lambda p, t: (value(rule)(p[0]), t[0]))
    return rule


def repeated(x: Any) -> Any:
    return jax.lax.scan(lambda c, _: (sine(c), None), x, None, length=3)[0]


RULES: dict[str, Any] = {
    "of the argument": sine,
    "of the result": exponential,
    "that calls the function": calls_itself,
    "whose bwd calls another": calls_in_bwd,
    "of two": lambda x: sum(product(x, 2.0 * x)),
    "in a program": lambda x: jnp.tanh(sine(2.0 * x) ** 2 + jax.jit(exponential)(x)) * x,
    "in a loop": repeated,
    "beside what is saved": lambda x: sine(x) * jnp.linalg.inv(jnp.eye(2) * x.sum())[0, 0],
    "custom_jvp": rounding(lambda rule: jnp.round),
    "custom_jvp that calls the function": rounding(lambda rule: rule),
    "with other values in fwd": with_rule(
        jnp.sin, lambda x: (jnp.sin(x) + x**2, x), lambda x, g: (3.0 * g * jnp.cos(x) * x,)
    ),
    "under jax.checkpoint": jax.checkpoint(lambda x: sine(x) * x),
}
CUBE = np.linspace(0.1, 1.3, 8, dtype=np.float32).reshape(2, 2, 2)
IN_PLACES: dict[str, Callable[[Any], Any]] = {
    "alone": fad.from_jax,
    "before others": lambda f: lambda x, g=fad.from_jax(f): fnp.sin(g(x) ** 2 + g(x) * x),
    "compiled": lambda f: fad.jit(fad.from_jax(f)),
    "checkpointed": lambda f: fad.checkpoint(fad.from_jax(f)),
    "checkpointed twice": lambda f: fad.checkpoint(
        lambda x, g=fad.checkpoint(fad.from_jax(f)): g(x) * x
    ),
}


def transformed(transforms: Any, names: Sequence[str], f: Any) -> Any:
    for name in names:
        f = {
            "grad": lambda f=f: transforms.grad(lambda x: f(x).sum()),
            "jvp": lambda f=f: lambda x: transforms.jvp(f, (x,), (0.5 * x,))[1],
            "vmap": lambda f=f: transforms.vmap(f),
            "value": lambda f=f: lambda x: transforms.value_and_grad(lambda x: f(x).sum())(x)[0],
            "primal": lambda f=f: lambda x: transforms.jvp(f, (x,), (0.5 * x,))[0],
        }[name]()
    return f


DERIVED = ("grad", "jvp", "vmap")
ORDERS = [
    *itertools.product((*DERIVED, "value", "primal"), repeat=1),
    *itertools.product((*DERIVED, "value", "primal"), repeat=2),
    *itertools.product(DERIVED, repeat=3),
]


@pytest.mark.sweep("rule, place, names", [*itertools.product(RULES, IN_PLACES, ORDERS)], sample=44)
def test_transforms_of_custom_rules_are_those_of_jax(
    rule: str, place: str, names: tuple[str, ...]
) -> None:
    """In each order of three transforms JAX's values, and numbers where JAX has no forward mode."""
    f = RULES[rule]
    theirs = {
        "before others": lambda x: jnp.sin(f(x) ** 2 + f(x) * x),
        "checkpointed twice": lambda x: f(x) * x,
    }.get(place, f)
    ours = IN_PLACES[place](f)
    try:
        expected = transformed(jax, names, theirs)(CUBE)
    except (TypeError, NotImplementedError):
        assert np.isfinite(transformed(fad, names, ours)(CUBE)).all()
    else:
        result = transformed(fad, names, ours)(CUBE)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", IN_PLACES)
@pytest.mark.parametrize("rule", [name for name in RULES if "custom_jvp" not in name])
def test_forward_mode_of_a_custom_vjp_is_its_rule_transposed(rule: str, place: str) -> None:
    """Which JAX refuses: also in a Function without rules, where each missing one is derived."""

    class WithoutRules(fad.Function):
        forward = staticmethod(IN_PLACES[place](RULES[rule]))

    tangent, cotangent = 0.5 * CUBE, np.cos(CUBE)
    gradient = lambda f: lambda x: transformed(fad, ["grad"], lambda x: f(x) * cotangent)(x)
    for f in (IN_PLACES[place](RULES[rule]), WithoutRules.apply):
        pushed = fad.jvp(f, (CUBE,), (tangent,))[1]
        np.testing.assert_allclose(
            (pushed * cotangent).sum(), (gradient(f)(CUBE) * tangent).sum(), rtol=1e-4
        )
        forward = fad.jvp(gradient(f), (CUBE,), (tangent,))[1]
        reverse = fad.grad(lambda x: (gradient(f)(x) * tangent).sum())
        assert forward.shape == reverse(CUBE).shape


def looped(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, product(c[1], x)), (0, x))[1]


product = jax.custom_vjp(lambda a, b: a * b)
product.defvjp(lambda a, b: (a * b, (a, b)), lambda r, g: (g * r[1], g * r[0]))
IMAGINARY = jnp.array([1j, 2j])


@pytest.mark.parametrize(
    ("f", "said"),
    [
        (looped, "not possible through a while_loop. Write scan, "),
        (jax.vmap(looped), "not possible through a while_loop. Write scan, "),
        (lambda x: product(x, x * 1j).real, "complex64 and float32 for one value. Write g.real"),
        (lambda x: product(x, IMAGINARY).real, "complex64 for an argument of float32. Write g.r"),
    ],
    ids=["while_loop", "vmap of it", "added", "alone"],
)
def test_what_forward_mode_of_a_custom_vjp_cannot_transpose_is_said(f: Any, said: str) -> None:
    x = jnp.array([0.3, 0.8])
    for forward in (fad.jacfwd, lambda f: fad.jit(fad.jacfwd(f))):
        with pytest.raises(RuleError, match=f"of a jax.custom_vjp is its rule transposed.*{said}"):
            forward(fad.from_jax(f))(x)


def test_forward_mode_of_a_custom_vjp_leaves_errors_and_dtypes_of_its_rule() -> None:
    def fails(_: Any, g: Any) -> Any:
        raise AssertionError("mine")

    wide = with_rule(jnp.sin, lambda x: (jnp.sin(x), x), lambda x, g: (2 * g.astype("float32"),))
    x = jnp.ones(2, jnp.bfloat16)
    assert fad.jacfwd(fad.from_jax(wide))(x).dtype == jnp.bfloat16
    with pytest.raises(AssertionError, match="mine"):
        fad.jacfwd(fad.from_jax(with_rule(jnp.sin, lambda x: (x, x), fails)))(x)


@pytest.mark.parametrize("f", [sine, exponential], ids=["sine", "exponential"])
def test_second_derivatives_of_a_custom_vjp(f: Any) -> None:
    x, ours = jnp.array([0.3, 0.8]), fad.from_jax(f)
    expected = jax.jacfwd(jax.grad(lambda x: f(x).sum()))(x)
    total = lambda x: ours(x).sum()
    second = [
        fad.hessian(total),
        fad.jacfwd(fad.grad(total)),
        fad.jacrev(fad.grad(total)),
        fad.jit(fad.hessian(total)),
        lambda x: fad.vmap(fad.hessian(total))(x[None])[0],
        lambda x: jnp.stack([fad.hvp(total, (x,), (t,))[1][0] for t in jnp.eye(2)]),
        fad.jacrev(fad.grad(fad.checkpoint(total))),
    ]
    for g in second:
        np.testing.assert_allclose(g(x), expected, rtol=1e-5)


def test_a_custom_vjp_that_names_an_axis() -> None:
    """Also where the Primitive cannot be traced apart from a vmap."""

    def mean(x: Any) -> Any:
        return jnp.sin(x) * jax.lax.pmean(x, "i")

    f = with_rule(mean, lambda x: (mean(x), x), lambda x, g: (3.0 * g * jnp.cos(x),))
    x = jnp.array([0.3, 0.8])

    def second(transforms: Any, f: Any) -> Any:
        product = lambda x: transforms.jvp(transforms.grad(f), (x,), (x,))
        return transforms.vmap(product, axis_name="i")(x)

    np.testing.assert_allclose(second(fad, fad.from_jax(f)), second(jax, f), rtol=1e-5)


C = fad.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * C,
        lambda x: C,
        lambda x: (x, C),
        lambda x: fnp.sin(fnp.array(x)),
        lambda x: x * fad.tensor([1.0, 2.0], requires_grad=True),
    ],
)
def test_a_function_that_computes_with_tensors_is_refused(f: Any) -> None:
    """What it closes over would be a constant of a program, and wrong once it is written to."""
    x = jnp.ones(2)
    for transform in (lambda f: f, fad.jit, fad.vmap, lambda f: functools.partial(fad.vjp, f)):
        with pytest.raises(
            LevelError, match="from_jax: .* computes with Tensors, .* call it as it is"
        ):
            transform(fad.from_jax(f))(x)
    with pytest.raises(LevelError, match="make the Tensor that it closes over an argument"):
        fad.grad(lambda y: fnp.sum(fad.from_jax(lambda x: x * y)(x)))(x)


def test_a_tensor_of_a_structure_that_is_written_to_is_refused() -> None:
    _, unravel = ravel_pytree(jax.tree.map(fad.tensor, PARAMS))

    def f(v: Any) -> Any:
        p = unravel(v)
        p["b"] += C
        return p

    with pytest.raises(LevelError, match="computes with Tensors"):
        fad.from_jax(f)(jnp.arange(6.0))


def test_a_function_among_the_results_is_said() -> None:
    with pytest.raises(
        ArgumentError, match=r"ravel_pytree returned .* leave it out, as in fad.from_jax\(lambda"
    ):
        fad.from_jax(ravel_pytree)(jax.tree.map(fad.tensor, PARAMS))


@pytest.mark.parametrize(
    "constant", [lambda: jnp.array([2.0, 3.0]), lambda: jnp.float32([2.0, 3.0])]
)
@pytest.mark.parametrize("made", [fad.from_jax, fad.extend.operation])
def test_a_rule_is_given_constants_as_arrays_of_jax(made, constant):
    @jax.custom_vjp
    def scaled(x, w):
        return (x * w).sum()

    def bwd(residuals, g):
        x, w = residuals
        return w.at[...].multiply(2.0).sum() * g + 0.0 * w[5], g * x * jnp.ones(2)

    scaled.defvjp(lambda x, w: (scaled(x, w), (x, w)), bwd)
    f = lambda x: scaled(x, constant())
    for g in (fad.grad(made(f)), fad.jit(fad.grad(made(f))), fad.jacrev(made(f))):
        assert float(g(1.5)) == float(jax.grad(f)(1.5)) == 10.0
