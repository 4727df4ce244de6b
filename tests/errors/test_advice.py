"""What to write instead, where an error of Python or JAX shows that Tensors and arrays were mixed up."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import HostValueError
from fad.errors.advice import advise


def added(error: BaseException) -> str:
    """What was added to the message of an error."""
    return str(error).partition("\n\n")[2]


def write(x: Any) -> Any:
    y = jnp.zeros(3)
    y[0] = x
    return y.sum()


def test_a_transform_adds_what_to_write_once() -> None:
    with pytest.raises(TypeError) as caught:
        fad.grad(fad.grad(write))(1.0)
    assert added(caught.value).count("A Tensor can be written to") == 1
    with pytest.raises(TypeError) as caught:
        fad.grad(lambda x: (x**2).sum())([1.0, 2.0])
    assert "fad.tensor([...])" in added(caught.value)


def test_errors_outside_of_transforms_are_told_apart() -> None:
    for program, words in (
        (lambda: jax.grad(lambda x: x.requires_grad_().sum())(jnp.ones(2)), "fad.to_jax(f)"),
        (lambda: jax.grad(lambda x: (x * x).sum())(fad.tensor([1.0])), "fad.to_jax(f)"),
        (lambda: jax.jit(write)(1.0), "A Tensor can be written to"),
        (lambda: [1.0] ** 2, ""),  # type: ignore[operator]
        (lambda: jnp.ones(2).no_such_name, ""),
    ):
        with pytest.raises((TypeError, AttributeError)) as caught:
            program()
        advise(caught.value)
        advise(caught.value)
        assert words in added(caught.value) and bool(words) == bool(added(caught.value))
        assert len(getattr(caught.value, "__notes__", [])) <= 2  # one may be of JAX


def test_other_errors_are_left_alone() -> None:
    for error in (KeyError("JAX arrays are immutable"), KeyboardInterrupt()):
        advise(error, inside=True)
        assert not added(error) and not hasattr(error, "__notes__")


KEY = jax.random.key(0)
VECTOR = fad.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "program",
    [
        lambda: fnp.sin(KEY),
        lambda: KEY * VECTOR,
        lambda: VECTOR + KEY,
        lambda: KEY + 1,
        lambda: fnp.sum(KEY),
        lambda: fnp.dot(VECTOR, KEY),
        lambda: -fad.tensor(KEY),
        lambda: fad.tensor(KEY).float(),
        lambda: VECTOR[KEY],
        lambda: VECTOR.__setitem__(0, KEY),
        lambda: VECTOR.copy_(KEY),
        lambda: fad.tensor(KEY, requires_grad=True),
        lambda: fad.tensor(1.0, requires_grad=True).backward(KEY),
        lambda: np.asarray(KEY),
        lambda: fad.jit(lambda k: k + 1)(KEY),
    ],
)
def test_a_random_key_is_no_number(program: Any) -> None:
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        program()
    advise(caught.value)
    assert "draw with it, fad.random.normal(key, shape)" in added(caught.value)
    assert "astype" not in str(caught.value)


def test_a_random_key_has_no_derivative_and_is_not_to_be_converted() -> None:
    for transform in (fad.grad, fad.jacfwd, fad.hessian, fad.laplacian, fad.linearize, fad.vjp):
        with pytest.raises(
            TypeError, match="A random key has no derivative: leave it out"
        ) as caught:
            given = (KEY,) if transform in (fad.linearize, fad.vjp) else ()
            made = transform(fad.random.normal, *given)
            made if given else made(KEY)
        assert "astype" not in str(caught.value)


def test_keys_in_a_tensor_of_keys_can_be_written() -> None:
    keys = fad.tensor(jax.random.split(KEY, 3))
    keys[0] = KEY
    assert (jax.random.key_data(keys.array)[0] == jax.random.key_data(KEY)).all()


def test_a_tensor_as_the_index_of_an_array() -> None:
    for array in (jnp.ones(3), jax.random.split(KEY, 3)):
        with pytest.raises(IndexError) as caught:
            fad.vmap(lambda i, a=array: a[i])(jnp.arange(3))
        assert "write fad.asarray(x)[i]" in added(caught.value)
        found = fad.vmap(lambda i, a=array: fad.asarray(a)[i])(jnp.arange(3))
        assert found.shape == (3,)
    with pytest.raises(IndexError) as caught:
        VECTOR.array[fad.tensor(1)]
    advise(caught.value)
    assert "write fad.asarray(x)[i]" in added(caught.value)


def test_lists_of_tensors_as_the_index_of_an_array() -> None:
    i = fad.tensor([0, 2])
    for transform in (fad.vmap, fad.jit):
        with pytest.raises(TypeError) as caught:
            transform(lambda i: jnp.arange(3.0)[[i, i]])(i)
        assert "write fad.asarray(x)[[i, j]]" in added(caught.value)
        with pytest.raises(HostValueError, match=r"fad.asarray\(a\)\[i\] for an array a"):
            transform(lambda i: np.arange(3.0)[[i, i]])(i)
        found = transform(lambda i: fad.asarray(jnp.arange(3.0))[[i, i]])(i)
        assert found.shape == (2, 2)


def test_where_a_library_of_jax_is_given_tensors_its_own_way_out_is_said() -> None:
    optax = pytest.importorskip("optax", reason="the extra recipes")
    optimizer = optax.adam(0.1)
    leaf = fad.tensor([1.0, 2.0], requires_grad=True)

    @fad.jit
    def step(w: Any, memory: Any) -> Any:
        return optimizer.update(fad.grad(lambda w: (w * w).sum())(w), memory, w)

    for program in (
        lambda: step(jnp.ones(2), optimizer.init(jnp.ones(2))),
        lambda: optimizer.update(leaf, optimizer.init(jnp.ones(2)), leaf),
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            program()
        advise(caught.value)
        assert "In fad.jit write fad.from_jax(optimizer.update)" in added(caught.value)


def test_a_gradient_that_is_read_of_what_a_tree_holds() -> None:
    leaf = fad.tensor(1.0, requires_grad=True)
    with fad.no_grad(), pytest.raises(AttributeError) as caught:
        jax.tree.map(lambda p: p.grad, [leaf])
    advise(caught.value)
    assert "read x.grad before the no_grad block" in added(caught.value)


def test_trees_of_tensors_and_of_arrays() -> None:
    with pytest.raises(ValueError) as caught:
        jax.tree.map(fad.numpy.add, {"w": fad.tensor(1.0)}, {"w": jnp.ones(())})
    advise(caught.value)
    assert "make Tensors of both, jax.tree.map(fad.tensor, tree)" in added(caught.value)


@pytest.mark.parametrize("separate", [True, False])
def test_a_callback_in_a_rule_that_is_differentiated(separate: bool) -> None:
    def call(x: Any) -> Any:
        return jax.pure_callback(
            np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential"
        )

    sine = fad.from_jax(call)

    class Sine(fad.Function):
        if separate:

            @staticmethod
            def forward(x: Any) -> Any:
                return sine(x)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                ctx.save_for_backward(*inputs)

        else:

            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return sine(x)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            return g * Sine.apply(ctx.saved_tensors[0] + np.float32(np.pi / 2))

    second = fad.jit(fad.hessian(lambda x: Sine.apply(x).sum()))
    if separate:
        assert float(second(jnp.ones(1))[0, 0]) == pytest.approx(-np.sin(1.0), rel=1e-5)
    else:
        with pytest.raises(ValueError, match="Pure callbacks") as caught:
            second(jnp.ones(1))
        advise(caught.value)
        assert "write forward without ctx" in added(caught.value)


def test_equinox_is_told_how_its_modules_take_tensors() -> None:
    eqx = pytest.importorskip("equinox", reason="the extra recipes")
    model, x = eqx.nn.MLP(2, 1, 4, 1, key=KEY), jnp.ones(2)
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    apply = fad.from_jax(lambda model, x: model(x))
    tensor = lambda x: isinstance(x, fad.Tensor)
    for wrong in (
        lambda p: apply(eqx.combine(p, rest), x).sum(),
        lambda p: fad.from_jax(eqx.combine(p, rest, is_leaf=tensor))(x).sum(),
    ):
        for transform in (fad.grad, lambda f: fad.jit(fad.grad(f))):
            with pytest.raises((TypeError, ValueError)) as caught:
                transform(wrong)(params)
            assert "fad.from_jax(lambda model, x: model(x))(model, x)" in added(caught.value)
    right = lambda p: apply(eqx.combine(p, rest, is_leaf=tensor), x).sum()
    expected = jax.grad(lambda p: eqx.combine(p, rest)(x).sum())(params)
    for f in (fad.grad(right), fad.jit(fad.grad(right))):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), f(params), expected)


def test_diffrax_is_told_that_a_field_is_code_of_jax() -> None:
    diffrax = pytest.importorskip("diffrax", reason="the extra recipes")

    def solve(p: Any, field: Any = lambda t, u, p: jnp.tanh(-p * u)) -> Any:
        term, y = diffrax.ODETerm(field), jnp.ones(2)
        return diffrax.diffeqsolve(term, diffrax.Euler(), 0.0, 1.0, 0.5, y, args=p).ys.sum()

    with pytest.raises(TypeError) as caught:
        fad.grad(solve)(2.0)
    assert "fad.from_jax(solve)(p)" in added(caught.value)
    assert "equinox" not in added(caught.value)
    np.testing.assert_allclose(fad.grad(fad.from_jax(solve))(2.0), jax.grad(solve)(2.0))


def test_flax_is_told_how_its_models_take_tensors() -> None:
    linen = pytest.importorskip("flax.linen", reason="the extra recipes")
    net = linen.Dense(1)
    variables = net.init(KEY, jnp.ones(2))
    with pytest.raises(TypeError) as caught:
        fad.grad(lambda v: net.apply(v, jnp.ones(2)).sum())(variables)
    assert "fad.from_jax(model.apply)(variables, x)" in added(caught.value)


def test_advice_that_cannot_be_imported_does_not_hide_the_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "fad.hints.mistakes", None)  # what imports it raises

    def f(x):
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="^of the user$"):
        fad.grad(f)(1.0)
