"""Each line of the table in docs/for-jax-users.md: JAX's decorators raise or err, a Function does not."""

from __future__ import annotations

import functools

import functions
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import hijax

import fad
import fad.numpy as fnp

X = jnp.float32(2.0)
V = jnp.array([0.5, 1.0, 2.0])
OLD = jax.__version_info__ < (0, 11)


# A cube, whose reverse rule is scaled by 2 and whose forward rule is scaled by 5.


@jax.custom_vjp
def reverse_cube(x):
    return x**3


reverse_cube.defvjp(lambda x: (x**3, x), lambda x, g: (2.0 * g * 3.0 * x**2,))


class Cube(functions.Cube):
    vjp = functions.cube_vjp(2.0)


class BothCube(Cube):
    jvp = functions.cube_jvp(5.0)


class VmapCube(Cube):
    @staticmethod
    def vmap(info, in_dims, x):
        VmapCube.batches += 1
        return x * x * x, in_dims[0]


def test_forward_mode_of_a_reverse_rule():
    for transform in (
        lambda f: jax.jvp(f, (X,), (X,))[1],
        lambda f: jax.jacfwd(f)(X) * X,
        lambda f: jax.linearize(f, X)[1](X),
        lambda f: jax.jvp(jax.jit(f), (X,), (X,))[1],
    ):
        with pytest.raises(TypeError, match="forward-mode"):
            transform(reverse_cube)
        assert_close(transform(Cube.apply), 2.0 * 3.0 * X**3)
        assert_close(transform(BothCube.apply), 5.0 * 3.0 * X**3)


def test_reverse_mode_of_a_forward_rule_that_cannot_be_transposed():
    def halve_thrice(t):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] / 2), (0, t))[1]

    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda p, t: (sine(*p), 8.0 * halve_thrice(t[0]) * jnp.cos(p[0])))

    class Sine(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return jnp.sin(x)

        @staticmethod
        def jvp(ctx, t):
            return 8.0 * halve_thrice(t) * jnp.cos(ctx.saved_tensors[0])

        @staticmethod
        def vjp(ctx, g):
            return g * jnp.cos(ctx.saved_tensors[0])

    with pytest.raises(ValueError, match="Reverse-mode"):
        jax.grad(sine)(X)
    assert_close(jax.grad(Sine.apply)(X), jnp.cos(X))
    assert_close(jax.jvp(sine, (X,), (X,)), jax.jvp(Sine.apply, (X,), (X,)))


def test_a_rule_for_each_mode():
    @jax.custom_jvp
    def forward_outside(x):
        return reverse_cube(x)

    forward_outside.defjvp(lambda p, t: (forward_outside(*p), 5.0 * t[0] * 3.0 * p[0] ** 2))

    @jax.custom_vjp
    def reverse_outside(x):
        return forward_outside(x)

    reverse_outside.defvjp(lambda x: (x**3, x), lambda x, g: (2.0 * g * 3.0 * x**2,))

    assert_close(jax.grad(forward_outside)(X), 5.0 * 3.0 * X**2)  # not the reverse rule
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jacfwd(reverse_outside)(X)
    assert_close(jax.grad(BothCube.apply)(X), 2.0 * 3.0 * X**2)
    assert_close(jax.jacfwd(BothCube.apply)(X), 5.0 * 3.0 * X**2)


def test_a_batching_rule_that_can_be_differentiated():
    @custom_vmap
    def cube(x):
        return x**3

    cube.def_vmap(lambda size, batched, x: (x * x * x, True))

    @jax.custom_vjp
    def outside(x):
        return cube(x)

    outside.defvjp(lambda x: (cube(x), x), lambda x, g: (2.0 * g * 3.0 * cube(x) / x,))

    with pytest.raises(ValueError, match="Linearization failed"):
        jax.grad(cube)(X)
    with pytest.raises(ValueError, match="Linearization failed"):
        jax.vmap(jax.grad(cube))(V)
    assert_close(jax.vmap(jax.grad(outside))(V), 2.0 * 3.0 * V**2)
    with pytest.raises(ValueError, match="Linearization failed"):
        jax.grad(jax.grad(outside))(X)
    for transform, expected in (
        (jax.vmap(jax.grad(VmapCube.apply)), 2.0 * 3.0 * V**2),
        (jax.grad(lambda v: jax.vmap(VmapCube.apply)(v).sum()), 2.0 * 3.0 * V**2),
        (jax.vmap(jax.grad(jax.grad(VmapCube.apply))), 2.0 * 6.0 * V),
        (jax.vmap(jax.jacfwd(VmapCube.apply)), 2.0 * 3.0 * V**2),
    ):
        VmapCube.batches = 0
        assert_close(transform(V), expected)
        assert VmapCube.batches


def test_a_traced_parameter_without_a_derivative():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def scale(x, k):
        return x * k

    scale.defvjp(lambda x, k: (x * k, None), lambda k, _, g: (2.0 * g * k,))

    class Scale(fad.Function):
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[1])

        @staticmethod
        def vjp(ctx, g):
            return 2.0 * g * ctx.saved_tensors[0], None

    with pytest.raises(jax.errors.UnexpectedTracerError, match="nondiff_argnums"):
        jax.vmap(jax.grad(scale), (None, 0))(X, V)
    assert_close(jax.vmap(jax.grad(Scale.apply), (None, 0))(X, V), 2.0 * V)
    assert_close(jax.grad(Scale.apply, 1)(X, X), jnp.float32(0.0))


def test_static_arguments():
    @jax.custom_vjp
    def power(x, mode):
        return x**2 if mode == "square" else x**3

    power.defvjp(lambda x, mode: (power(x, mode), x), lambda x, g: (2.0 * g * 2.0 * x, None))

    class Power(fad.Function):
        @staticmethod
        def forward(ctx, x, mode="square", *, options=()):
            ctx.save_for_backward(x)
            assert options in ((), ("fast",))
            return x**2 if mode == "square" else x**3

        @staticmethod
        def vjp(ctx, g):
            return 2.0 * g * 2.0 * ctx.saved_tensors[0], None, None

    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.grad(power)(X, "square")
    assert_close(jax.grad(lambda x: Power.apply(x, "square"))(X), 4.0 * X)
    assert_close(jax.jit(lambda x: Power.apply(x, "cube", options=("fast",)))(X), X**3)


def test_knowing_which_gradients_are_wanted():
    costly = []

    @jax.custom_vjp
    def product(x, y):
        return x * y

    def pull(saved, g):
        costly.append("jax")
        return g * saved[1], g * saved[0]

    product.defvjp(lambda x, y: (x * y, (x, y)), pull)

    class Product(fad.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def vjp(ctx, g):
            x, y = ctx.saved_tensors
            if ctx.needs_input_grad[1]:
                costly.append("fad")
            return g * y, g * x if ctx.needs_input_grad[1] else None

    assert_close(jax.grad(product)(X, X), jax.grad(Product.apply)(X, X))
    assert costly == ["jax"]
    jax.grad(Product.apply, 1)(X, X)
    assert costly == ["jax", "fad"]


def test_the_dtype_of_a_gradient():
    wide = lambda g, x: g.astype(jnp.float32) * jnp.cos(x.astype(jnp.float32))

    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (wide(g, x),))

    class Sine(fad.Function):
        jax_rules = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return jnp.sin(x)

        @staticmethod
        def vjp(ctx, g):
            return wide(g, ctx.saved_tensors[0])

    x = jnp.bfloat16(1.0)
    assert jax.grad(sine)(x).dtype == jnp.float32
    assert jax.grad(Sine.apply)(x).dtype == jnp.bfloat16


def test_second_derivatives_through_scan():
    @jax.custom_jvp
    def growth(x):
        return jnp.exp(x)

    growth.defjvp(lambda p, t: (growth(*p), 3.0 * t[0] * growth(*p)))

    class Growth(fad.Function):
        @staticmethod
        def forward(x):
            return fnp.exp(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def vjp(ctx, g):
            return 3.0 * g * ctx.saved_tensors[0]

    def second(f):
        scanned = lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]
        return jax.grad(jax.grad(scanned))(X)

    assert_close(second(Growth.apply), np.float32(9.0) * jnp.exp(X))
    assert_close(second(growth), np.float32(3.0 if OLD else 9.0) * jnp.exp(X))


def test_refs():
    """A program that writes to a `jax.new_ref` is differentiated in both modes and twice, and batched."""

    def f(x):
        ref = jax.new_ref(jnp.zeros(3))
        ref[...] = x

        def body(c, e):
            ref[0] = ref[0] * e
            return c + ref[...].sum(), None

        c, _ = lax.scan(body, jnp.float32(0.0), x)
        return c * (ref[...] ** 2).sum()

    def g(x):
        y, c = x, 0.0
        for e in x:
            y = y.at[0].multiply(e)
            c = c + y.sum()
        return c * (y**2).sum()

    ours = fad.from_jax(f)
    assert_close(fad.grad(ours)(V), jax.grad(g)(V), rtol=1e-5)
    assert_close(jax.grad(f)(V), jax.grad(g)(V), rtol=1e-5)
    for transform in (lambda lib, f: lib.hessian(f), lambda lib, f: lib.jacfwd(f)):
        with pytest.raises(ValueError, match="out_axes"):
            transform(jax, f)(V)
        assert_close(transform(fad, ours)(V), transform(jax, g)(V), rtol=1e-4)
    batch = jnp.stack([V, 2.0 * V])
    for mapped in (fad.vmap(fad.grad(ours)), fad.jit(fad.vmap(fad.grad(ours)))):
        assert_close(mapped(batch), jax.vmap(jax.grad(g))(batch), rtol=1e-5)
    assert_close(fad.grad(fad.checkpoint(ours))(V), jax.grad(g)(V), rtol=1e-5)
    x = fad.tensor(V, requires_grad=True)
    ours(x).backward()
    assert_close(x.grad.array, jax.grad(g)(V), rtol=1e-5)


# hijax primitives: classes with all rules, as Functions are


BASE = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive


class HiCube(BASE):
    def __init__(self, x):
        self.in_avals, self.out_aval, self.params = (x,), x, {}
        super().__init__()

    def expand(self, x):
        return x * x * x


class HiReverse(HiCube):
    def vjp_fwd(self, nonzero, x):
        return self(x), x

    def vjp_bwd_retval(self, x, g):
        return (2.0 * g * 3.0 * x**2,)


def hi_jvp(self, primals, tangents):
    return self(*primals), 5.0 * tangents[0] * 3.0 * primals[0] ** 2


class HiForward(HiCube):
    jvp = hi_jvp


class HiBoth(HiReverse):
    jvp = hi_jvp


class ForwardCube(fad.Function):
    """The cube, with a forward rule alone."""

    @staticmethod
    def forward(x):
        return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_forward(*inputs)

    jvp = functions.cube_jvp(5.0)


def applied(kind):
    return lambda x: kind(jax.typeof(x))(x)


def refused(transform, kind, x=X):
    with pytest.raises(NotImplementedError, match=kind.__name__):
        transform(applied(kind))(x)


def forward(f):
    return lambda x: jax.jvp(f, (x,), (jnp.float32(1.0),))[1]


def linearized(f):
    return lambda x: jax.linearize(f, x)[1](jnp.float32(1.0))


SLOPE = 3.0 * X**2


def test_hijax_a_rule_for_each_mode():
    for f in (applied(HiBoth), BothCube.apply):
        assert_close(jax.grad(f)(X), 2.0 * SLOPE)
        assert_close(forward(f)(X), 5.0 * SLOPE)


def test_hijax_forward_mode_of_a_reverse_rule():
    refused(forward, HiReverse)
    assert_close(forward(Cube.apply)(X), 2.0 * SLOPE)


def test_hijax_linearize():
    refused(linearized, HiBoth)
    assert_close(linearized(BothCube.apply)(X), 5.0 * SLOPE)
    if hasattr(hijax, "linearize_from_jvp"):
        lin, back = hijax.linearize_from_jvp
        made = type("HiMade", (HiBoth,), {"lin": lin, "linearized": back})
        assert_close(linearized(applied(made))(X), 5.0 * SLOPE)
    else:
        assert OLD


def test_hijax_reverse_mode_of_a_forward_rule():
    refused(jax.grad, HiForward)
    assert_close(jax.grad(ForwardCube.apply)(X), 5.0 * SLOPE)
    if hasattr(hijax, "vjp_from_jvp"):
        ahead, back = hijax.vjp_from_jvp
        made = type("HiMade", (HiForward,), {"vjp_fwd": ahead, "vjp_bwd_retval": back})
        assert_close(jax.grad(applied(made))(X), 5.0 * SLOPE)
    else:
        assert OLD


def test_hijax_vmap():
    for transform in (jax.vmap, lambda f: jax.hessian(lambda x: f(x).sum())):
        refused(transform, HiBoth, V)
    assert_close(jax.vmap(BothCube.apply)(V), V**3)
    assert jax.hessian(lambda x: BothCube.apply(x).sum())(V).shape == (3, 3)


def test_hijax_under_checkpoint():
    def remade(f):
        return jax.grad(jax.checkpoint(f))

    assert_close(remade(applied(HiBoth))(X), 5.0 * SLOPE)  # not the vjp rule
    refused(remade, HiReverse)
    for f in (BothCube.apply, Cube.apply):
        assert_close(remade(f)(X), 2.0 * SLOPE)
    before = jax.config.jax_remat3
    jax.config.update("jax_remat3", True)
    try:
        assert_close(remade(applied(HiBoth))(X), 2.0 * SLOPE)
    finally:
        jax.config.update("jax_remat3", before)


def test_hijax_shapes_are_stated():
    class Silent(HiCube):
        def __init__(self):
            BASE.__init__(self)

    with pytest.raises(AttributeError, match="in_avals"):
        Silent()
    assert jax.eval_shape(applied(HiCube), V).shape == (3,)
    assert Cube.apply(jnp.zeros((3, 4))).shape == (3, 4)


def test_hijax_the_dtype_of_a_gradient():
    class Wide(HiReverse):
        def vjp_bwd_retval(self, x, g):
            return (g.astype(jnp.float32) * x.astype(jnp.float32),)

    assert jax.grad(applied(Wide))(jnp.bfloat16(1.0)).dtype == jnp.float32


def test_hijax_under_fad():
    f = fad.from_jax(applied(HiBoth))
    assert_close(fad.jit(fad.grad(f))(X), 2.0 * SLOPE)
    assert_close(fad.jvp(f, (X,), (jnp.float32(1.0),))[1], 5.0 * SLOPE)
