"""The rules as the user wrote them: in NumPy, and of complex numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf
from scaled_functions import plain

import fad
import fad.numpy as fnp
from fad.errors import RuleError
from fad.testing import check_function

X = jnp.array([0.3, -0.5, 0.7])
Y = jnp.array([1.5, 2.0, -1.0])
V = jnp.array([1.0, 0.5, -2.0])


# Bodies that leave JAX


class HostSine(fad.Function):
    """sin(x) y in NumPy, forward and vjp."""

    @staticmethod
    def forward(x, y):
        return np.sin(np.asarray(x)) * y.numpy()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return g.numpy() * np.cos(x.numpy()) * y.numpy(), np.asarray(g) * np.sin(x.numpy())


class HostSineOneMethod(fad.Function):
    @staticmethod
    def forward(ctx, x, y):
        a, b = np.asarray(x), np.asarray(y)
        ctx.x, ctx.saved_data["y"] = a, b
        return np.sin(a) * b

    @staticmethod
    def vjp(ctx, g):
        return g.numpy() * np.cos(ctx.x) * ctx.saved_data["y"], g.numpy() * np.sin(ctx.x)


HOSTS = [HostSine, HostSineOneMethod]


@pytest.mark.parametrize("F", HOSTS)
def test_numpy_bodies_work_at_first_order(F):
    f = lambda x, y: (F.apply(x, y) * V).sum()
    expected = jax.grad(lambda x, y: (plain(x, y) * V).sum(), (0, 1))(X, Y)
    assert_close(F.apply(X, Y), plain(X, Y))
    x, y = leaf(X), leaf(Y)
    f(x, y).backward()
    assert_close((x.grad, y.grad), expected)
    assert_close(fad.grad(f, (0, 1))(X, Y), expected)
    assert_close(fad.value_and_grad(f, (0, 1))(X, Y)[1], expected)
    assert_close(fad.vjp(F.apply, X, Y)[1](V), expected)
    # The gradient is a constant to the grad around, which differentiates something else.
    outer = lambda y: (fad.grad(f)(X, Y) * y).sum()
    assert_close(fad.grad(outer)(Y), expected[0])


def raises_host(rule, *words):
    """An error that names the Function, the rule and what to write."""
    return pytest.raises(RuleError, match=rf"{rule} needs concrete values.*{'.*'.join(words)}")


@pytest.mark.parametrize("F", HOSTS)
def test_errors_of_numpy_bodies_name_the_rule_to_write(F):
    name = F.__name__
    f = lambda x, y: F.apply(x, y).sum()
    rows = jnp.stack([X, X])
    for batched in (
        fad.vmap(F.apply),
        fad.vmap(fad.grad(f)),
        fad.grad(lambda x, y: fad.vmap(f)(x, y).sum()),
    ):
        with raises_host(rf"{name}\.forward", r"vmap\(info, in_dims, x, y\)"):
            batched(rows, rows)
    for compiled in (fad.jit(F.apply), jax.jit(F.apply), jax.grad(f), jax.vmap(F.apply)):
        with raises_host(rf"{name}\.forward", "pure_callback"):
            compiled(X, Y)
    with raises_host(rf"{name}\.vjp", r"jvp\(ctx, x_t, y_t\)|jvp rule"):
        fad.jvp(F.apply, (X, Y), (V, V))
    second = lambda x, y: (fad.grad(f)(x, y) * V).sum()
    with raises_host(rf"{name}\.(vjp|forward)", "once_differentiable|save inputs and outputs"):
        fad.grad(second)(X, Y)
    x, y = leaf(X), leaf(Y)
    with raises_host(rf"{name}\.(vjp|forward)", "once_differentiable|save inputs and outputs"):
        fad.autograd.grad(f(x, y), x, create_graph=True)


@pytest.mark.parametrize(
    "read", [lambda x: x.numpy(), lambda x: x.array, lambda x: x.tolist(), np.asarray]
)
def test_a_derivative_is_not_derived_from_a_body_that_leaves_jax(read):
    class Host(fad.Function):
        @staticmethod
        def forward(x):
            return fad.asarray(np.sin(np.asarray(read(x)))) * x

    assert_close(Host.apply(X), jnp.sin(X) * X)
    with raises_host(r"Host\.forward", "write a vjp or jvp rule"):
        fad.grad(lambda x: Host.apply(x).sum())(X)
    with raises_host(r"Host\.forward", "write a vjp or jvp rule"):
        fad.jvp(Host.apply, (X,), (V,))
    out = Host.apply(leaf(X))
    with raises_host(r"Host\.forward", "write a vjp or jvp rule"):
        out.sum().backward()


def test_scalars_taken_out_of_a_body_count_too():
    class Scalar(fad.Function):
        @staticmethod
        def forward(x):
            if x > 0:  # a branch is fine
                return x * float(x)
            return x * x.item()

    for value in (jnp.float32(2.0), jnp.float32(-2.0)):
        assert Scalar.apply(value) == value**2
        with raises_host(r"Scalar\.forward", "write a vjp or jvp rule"):
            fad.grad(Scalar.apply)(value)


def test_rules_of_host_code_that_keep_to_fad_compose():
    class Host(fad.Function):
        """forward leaves JAX; vjp and vmap do not, or need not."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return np.sin(x.numpy())

        @staticmethod
        def vjp(ctx, g):
            return g * fnp.cos(ctx.saved_tensors[0])

    f = lambda x: (Host.apply(x) * x).sum()
    j = lambda x: (jnp.sin(x) * x).sum()
    assert_close(fad.hessian(f)(X), jax.hessian(j)(X))
    assert_close(fad.jacrev(fad.grad(f))(X), jax.hessian(j)(X))
    assert_close(fad.jvp(Host.apply, (X,), (V,)), jax.jvp(jnp.sin, (X,), (V,)))
    x = leaf(X)
    (g,) = fad.autograd.grad(f(x), x, create_graph=True)
    assert_close(fad.autograd.grad(g @ V, x)[0], jax.hessian(j)(X) @ V)

    class Batched(Host):
        @staticmethod
        def forward(x):
            return np.sin(x.numpy())

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vmap(info, in_dims, x):
            return np.sin(x.numpy()), in_dims[0]

    rows = jnp.stack([X, Y])
    total = lambda x: (Batched.apply(x) * V).sum()
    expected = jnp.cos(rows) * V
    assert_close(fad.vmap(fad.grad(total))(rows), expected)
    assert_close(fad.grad(lambda x: fad.vmap(total)(x).sum())(rows), expected)
    assert_close(fad.vmap(Batched.apply)(rows), jnp.sin(rows))


# Complex


class Modulus(fad.Function):
    """conj(z) w, with PyTorch's convention for gradients."""

    @staticmethod
    def forward(z, w):
        return fnp.conj(z) * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        z, w = ctx.saved_tensors
        return fnp.conj(g) * w, g * z  # adjoints: <g, conj(dz) w> and <g, conj(z) dw>

    @staticmethod
    def jvp(ctx, z_t, w_t):
        z, w = ctx.saved_tensors
        return fnp.conj(z_t) * w + fnp.conj(z) * w_t


class ModulusVjp(Modulus):
    jvp = None


class ModulusJvp(Modulus):
    vjp = None


class ModulusDerived(ModulusVjp):
    vjp = None


@pytest.mark.parametrize("F", [Modulus, ModulusVjp, ModulusJvp, ModulusDerived])
def test_complex_gradients_are_those_of_pytorch(F):
    z, w = jnp.array([1.0 + 2.0j, -0.5j]), jnp.array([0.3 - 1.0j, 2.0 + 0.1j])
    loss = lambda z, w: fnp.real(F.apply(z, w) * (2.0 + 1.0j)).sum()
    jloss = lambda z, w: jnp.real(jnp.conj(z) * w * (2.0 + 1.0j)).sum()
    expected = jax.tree.map(jnp.conj, jax.grad(jloss, (0, 1))(z, w))
    assert_close(fad.grad(loss, (0, 1))(z, w), expected)
    square = lambda z: fnp.real(F.apply(z, z))
    assert_close(fad.grad(square)(1 + 2j), jnp.asarray(2 + 4j))  # |z|^2
    f, j = F.apply, lambda z, w: jnp.conj(z) * w
    assert_close(fad.jvp(f, (z, w), (w, z)), jax.jvp(j, (z, w), (w, z)))
    # Native JAX has JAX's convention.
    native = lambda z, w: jnp.real(F.apply(z, w) * (2.0 + 1.0j)).sum()
    assert_close(jax.grad(native, (0, 1))(z, w), jax.grad(jloss, (0, 1))(z, w))
    assert_close(jax.jvp(f, (z, w), (w, z)), jax.jvp(j, (z, w), (w, z)))
    x = fad.tensor(z, requires_grad=True)
    loss(x, w).backward()
    assert_close(x.grad, expected[0])


# Rules that read saved Tensors where there are none


class WithoutSetup(fad.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g * ctx.saved_tensors[0]


class SavesNothing(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * g * x


class PureWithoutSetup(WithoutSetup):
    jax_rules = True


@pytest.mark.parametrize("cls", [WithoutSetup, SavesNothing, PureWithoutSetup])
@pytest.mark.parametrize(
    "run",
    [
        lambda f: f(fad.tensor(2.0, requires_grad=True)).backward(),
        lambda f: fad.grad(f)(2.0),
        lambda f: fad.jvp(f, (2.0,), (1.0,)),
        lambda f: fad.vmap(fad.grad(f))(fnp.ones(2)),
        lambda f: fad.jit(fad.grad(f))(2.0),
        lambda f: jax.grad(f)(2.0),
    ],
)
def test_a_rule_that_reads_saved_tensors_where_nothing_was_saved(cls: Any, run: Any) -> None:
    with pytest.raises(
        RuleError, match="backward reads ctx.saved_tensors, and nothing was saved"
    ) as caught:
        run(cls.apply)
    if cls is SavesNothing:
        assert "forward does not call ctx.save_for_backward" in str(caught.value)
        assert "Write ctx.save_for_backward(x) there" in str(caught.value)
    else:
        assert "def setup_context(ctx, inputs, output):" in str(caught.value)


def test_the_checker_says_that_nothing_was_saved() -> None:
    with pytest.raises(
        AssertionError, match="nothing was saved: WithoutSetup has no setup_context"
    ):
        check_function(WithoutSetup, np.ones(2))


def test_errors_of_other_tuples_are_the_users() -> None:
    class F(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ()[0]

    with pytest.raises(IndexError, match="^tuple index out of range$"):
        fad.grad(F.apply)(2.0)
