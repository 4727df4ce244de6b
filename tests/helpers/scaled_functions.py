"""sin(x) y and x^3 as Functions in several styles, some with scaled derivatives, and as JAX functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from functions import Cube, cube_jvp, cube_vjp

import fad
import fad.numpy as fnp
from tests.fuzzing.functions import VjpWave

SCALE = 3.0  # a rule scaled by this cannot be mistaken for a derivative taken by other means


class Product(VjpWave):
    """sin(x) y, with a vjp."""


class OneMethod(fad.Function):
    """sin(x) y in the one-method style, with an intermediate value saved."""

    runs = []  # a number that changes in compiled code is warned of

    @staticmethod
    def forward(ctx, x, y):
        OneMethod.runs.append(None)
        cosine = fnp.cos(x)
        ctx.save_for_backward(x, y, cosine)
        return fnp.sin(x) * y

    @staticmethod
    def vjp(ctx, g):
        x, y, cosine = ctx.saved_tensors
        return g * cosine * y, g * fnp.sin(x)


def plain(x, y):
    return jnp.sin(x) * y


def scaled(f, k=SCALE):
    """A JAX function with f's values and ``k`` times its derivatives."""

    @jax.custom_jvp
    def g(*args):
        return f(*args)

    @g.defjvp
    def jvp(primals, tangents):
        return g(*primals), jax.tree.map(lambda t: k * t, jax.jvp(f, primals, tangents)[1])

    return g


def cube(x):
    return x**3


class VjpOnly(Cube):
    """Its derivative is scaled, so what is derived from it must be scaled too."""

    vjp = cube_vjp(SCALE)


class JvpOnly(Cube):
    jvp = cube_jvp(SCALE)


class Counted(fad.Function):
    """sin(x) exp(y), in plain jax.numpy; counts how often Python runs each body."""

    jax_rules = True
    runs: dict = {}

    @staticmethod
    def note(name, *arrays):
        assert all(isinstance(a, jax.Array) for a in arrays)
        Counted.runs[name] = Counted.runs.get(name, 0) + 1

    @staticmethod
    def forward(x, y, power=1):
        Counted.note("forward", x, y)
        return jnp.sin(x) ** power * jnp.exp(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        Counted.note("setup", inputs[0], output)
        ctx.save_for_backward(jnp.cos(inputs[0]), jnp.exp(inputs[1]), output)
        ctx.save_for_forward(inputs[0], output, jnp.exp(inputs[1]))
        ctx.power = inputs[2]

    @staticmethod
    def vjp(ctx, g):
        cosine, exp, output = ctx.saved_tensors
        Counted.note("vjp", g, cosine, output)
        assert ctx.power == 1
        return SCALE * g * cosine * exp, SCALE * g * output, None

    @staticmethod
    def jvp(ctx, x_t, y_t, power_t):
        x, output, exp = ctx.saved_tensors
        Counted.note("jvp", x, x_t)
        return SCALE * (x_t * jnp.cos(x) * exp + y_t * output)

    @staticmethod
    def vmap(info, in_dims, x, y, power):
        Counted.note("vmap", x)
        front = [v if d is None else jnp.moveaxis(v, d, 0) for v, d in zip((x, y), in_dims)]
        return jnp.sin(front[0]) * jnp.exp(front[1]), 0
