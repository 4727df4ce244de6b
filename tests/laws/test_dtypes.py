"""Dtypes through every transform, on fad's side of the bridge and on JAX's, against plain JAX."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import Product, Sine
from helpers import assert_close

import fad
import fad.numpy as fnp

FLOAT0 = jax.dtypes.float0


def plain(x):
    return 2.0 * x * jnp.sin(x)


def in_fad(x):
    return 2.0 * x * fnp.sin(x)


class ByVjp(fad.Function):
    @staticmethod
    def forward(x):
        return in_fad(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return g * fnp.conj(2.0 * fnp.sin(x) + 2.0 * x * fnp.cos(x))


class ByJvp(ByVjp):
    vjp = None

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * (2.0 * fnp.sin(x) + 2.0 * x * fnp.cos(x))


class InJax(ByVjp):
    jax_rules = True

    @staticmethod
    def forward(x):
        return plain(x)

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return g * jnp.conj(2.0 * jnp.sin(x) + 2.0 * x * jnp.cos(x))


class Derived(ByVjp):
    vjp = None


# What is differentiated: on fad's side, on JAX's side.
SUBJECTS = {
    "operations": (in_fad, fad.to_jax(in_fad)),
    "from_jax": (fad.from_jax(plain), fad.to_jax(fad.from_jax(plain))),
    "jit": (fad.jit(in_fad), jax.jit(fad.to_jax(in_fad))),
    **{F.__name__: (F.apply, F.apply) for F in (ByVjp, ByJvp, InJax, Derived)},
}

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "weak"]
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1}
X = np.array([0.4, -0.9])


def make(dtype):
    if dtype == "weak":
        return 0.4
    values = X * (1.0 + 0.5j) if dtype.startswith("complex") else X
    return jnp.asarray(values, dtype)


def loss(f, xp):
    """A real scalar with a gradient that is not real where the value is complex."""
    return lambda x: xp.sum(xp.real(f(x) * (2.0 + 1.0j if jnp.iscomplexobj(f(x)) else 2.0)))


def grads(module, f, xp):
    g = module.grad(loss(f, xp))
    return {
        "grad": g,
        "vmap of grad": module.vmap(g),
        "grad of vmap": module.grad(loss(module.vmap(f), xp)),
        "vjp": lambda x: module.vjp(f, x)[1](jnp.asarray(x) * 0.5)[0],
    }


def pushes(module, f, xp):
    return {
        "jvp": lambda x: module.jvp(f, (x,), (x,)),
        "vmap of jvp": module.vmap(lambda x: module.jvp(f, (x,), (x,))),
        "vmap": module.vmap(f),
    }


def is_weak(tree):
    return [bool(getattr(x, "weak_type", False)) for x in jax.tree.leaves(tree)]


def seen(tree):
    """``tree`` with float0 as bool, which NumPy can compare."""
    return jax.tree.map(lambda x: np.zeros(x.shape, bool) if x.dtype == FLOAT0 else x, tree)


def conj(tree):
    return jax.tree.map(jnp.conj, tree)


@pytest.mark.sweep("case", list(itertools.product(SUBJECTS, DTYPES)), sample=5, ids="-".join)
def test_floating_and_complex_dtypes(case):
    subject, dtype = case
    ours, native = SUBJECTS[subject]
    with jax.enable_x64(dtype in ("float64", "complex128")):
        x = make(dtype)
        rtol = TOLERANCE.get(dtype, 1e-4)
        for table in (grads, pushes):
            in_jax = table(jax, plain, jnp)
            for side, found in (("fad", table(fad, ours, fnp)), ("jax", table(jax, native, jnp))):
                for name, transform in in_jax.items():
                    if dtype == "weak" and "vmap" in name:
                        continue
                    expected, got = transform(x), found[name](x)
                    if side == "fad" and table is grads:
                        # A gradient of fad's is PyTorch's, the conjugate of JAX's; a pullback maps
                        # conjugates to conjugates.
                        expected = (
                            conj(jax.vjp(plain, x)[1](conj(jnp.asarray(x) * 0.5))[0])
                            if name == "vjp"
                            else conj(expected)
                        )
                    assert_close(got, expected, rtol=rtol, atol=rtol / 10)
                    assert is_weak(got) == is_weak(expected), (side, name)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "int64"])
@pytest.mark.parametrize("subject", ["operations", "from_jax", "ByVjp", "InJax"])
def test_integers_have_no_derivatives(subject, dtype):
    ours, native = SUBJECTS[subject]
    with jax.enable_x64(dtype == "int64"):
        k = jnp.asarray([1, 0], dtype)
        assert_close(fad.vmap(ours)(k), jax.vmap(plain)(k))
        assert_close(jax.vmap(native)(k), jax.vmap(plain)(k))
        for grad, f in ((fad.grad, ours), (jax.grad, native)):
            with pytest.raises(TypeError, match=r"dtype|inexact"):
                grad(lambda k, f=f: f(k).sum())(k)
        # A zero tangent is None in fad, float0 in JAX.
        out, out_t = fad.jvp(ours, (k,), (None,))
        assert_close((out, out_t), (plain(k), jnp.zeros_like(plain(k))))
        zero = np.zeros(k.shape, FLOAT0)
        assert_close(fad.jvp(ours, (k,), (zero,))[1], out_t)
        assert_close(jax.jvp(native, (k,), (zero,)), (out, out_t))
        allowed = jax.grad(lambda k: native(k).sum(), allow_int=True)(k)
        assert allowed.dtype == FLOAT0 and allowed.shape == k.shape


class Counts(fad.Function):
    """An integer and a boolean output beside a floating one."""

    @staticmethod
    def forward(x, k):
        return x * k, k + 1, x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def vjp(ctx, g, k_g, b_g):
        Counts.seen = (k_g, b_g)
        return g * ctx.saved_tensors[0], None


def counts(x, k):
    return x * k, k + 1, x > 0


@pytest.mark.parametrize("subject", ["Function", "operations"])
def test_float0_stays_on_jaxs_side(subject):
    f = Counts.apply if subject == "Function" else counts
    native = Counts.apply if subject == "Function" else fad.to_jax(counts)
    x, k = jnp.array([0.4, -0.9]), jnp.array([2, 3])
    zero = np.zeros(2, FLOAT0)
    # Native: as JAX has it.
    got, expected = jax.jvp(native, (x, k), (x, zero)), jax.jvp(counts, (x, k), (x, zero))
    assert_close(seen(got), seen(expected))
    assert [t.dtype for t in got[1]] == [x.dtype, FLOAT0, FLOAT0]
    pulled = jax.vjp(native, x, k)[1]((x, zero, zero))
    assert pulled[1].dtype == FLOAT0
    assert_close(seen(pulled), seen(jax.vjp(counts, x, k)[1]((x, zero, zero))))
    # In fad: ordinary zeros of the outputs' dtypes, and no cotangent that a rule could trip over.
    out, out_t = fad.jvp(f, (x, k), (x, None))
    assert [t.dtype for t in out_t] == [o.dtype for o in out]
    assert not np.any(out_t[1]) and not np.any(out_t[2])
    for cotangent in (None, zero):
        (pulled,) = fad.vjp(lambda x: f(x, k), x)[1]((x, cotangent, cotangent))
        assert_close(pulled, x * k)
    if subject == "Function":
        for cotangent in Counts.seen:
            assert cotangent is None or cotangent.dtype != FLOAT0
    assert_close(
        fad.vmap(lambda x, k: fad.jvp(f, (x, k), (x, None)))(x, k),
        jax.tree.map(lambda *v: jnp.stack(v), *[fad.jvp(f, (x[i], k[i]), (x[i], None)) for i in (0, 1)]),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cotangents_and_gradients_have_the_dtype_of_the_primal(dtype):
    """JAX checks no cotangent's dtype: a rule that computes in float32 is cast back."""

    class Wide(Sine):
        @staticmethod
        def vjp(ctx, g):
            (x,) = ctx.saved_tensors
            return g.astype("float32") * fnp.cos(x.astype("float32"))

    x = jnp.asarray(X, dtype)
    expected = jnp.cos(x)
    for grad in (fad.grad, jax.grad):
        assert_close(grad(lambda x: Wide.apply(x).sum())(x), expected, rtol=1e-2)
        # A Python number for a cotangent, and a sum in float32.
        mixed = lambda x: (Wide.apply(x).astype("float32") * jnp.float32(1.0)).sum() * 1.0
        assert_close(grad(mixed)(x), expected, rtol=1e-2)
    assert_close(jax.jvp(Wide.apply, (x,), (jnp.ones_like(x),))[1], expected, rtol=1e-2)
    assert_close(fad.vjp(lambda x: Wide.apply(x).sum(), x)[1](1.0)[0], expected, rtol=1e-2)


def test_a_function_with_arguments_of_several_dtypes():
    x, z = jnp.array([0.4, -0.9], jnp.bfloat16), jnp.array([1 + 2j, -0.5j], jnp.complex64)
    f = lambda f, xp: lambda x, z: xp.sum(xp.real(f(x, z) * (1 + 1j)))
    product = lambda x, z: x * z
    expected = jax.grad(f(product, jnp), (0, 1))(x, z)
    assert_close(jax.grad(f(Product.apply, jnp), (0, 1))(x, z), expected, rtol=2e-2)
    assert_close(fad.grad(f(Product.apply, fnp), (0, 1))(x, z), conj(expected), rtol=2e-2)
    assert_close(fad.grad(f(product, fnp), (0, 1))(x, z), conj(expected), rtol=2e-2)
