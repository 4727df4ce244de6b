"""Functions with every style of rules; each stands for a formula that can be said in JAX too."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import fad.nn
import fad.numpy as fnp
from fad.functions.function import Function

__all__ = ["FUNCTIONS", "Cube", "Swish", "forget_late_rules", "late"]


class Wave(Function):
    """sin(x) y, without rules of its own."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return fnp.sin(x) * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


def _wave_vjp(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_tensors
    return g * fnp.cos(x) * y, g * fnp.sin(x)


def _wave_jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
    x, y = ctx.saved_tensors
    return x_t * fnp.cos(x) * y + y_t * fnp.sin(x)


class VjpWave(Wave):
    """With a vjp."""

    vjp = staticmethod(_wave_vjp)


class JvpWave(Wave):
    """With a jvp."""

    jvp = staticmethod(_wave_jvp)


class BothWave(VjpWave):
    """With a vjp and a jvp."""

    jvp = staticmethod(_wave_jvp)


class FullWave(BothWave):
    """With a vjp, a jvp and a vmap rule."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        moved = [
            v if d is None else fnp.moveaxis(v, d, -1) for v, d in zip((x, y), in_dims, strict=True)
        ]
        moved = [v if d is not None else v[..., None] for v, d in zip(moved, in_dims, strict=True)]
        return fnp.sin(moved[0]) * moved[1], -1


class OneMethodWave(Function):
    """In the one-method style, with an intermediate value saved."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        sine = fnp.sin(x)
        ctx.save_for_backward(x, y, sine)
        return sine * y

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y, sine = ctx.saved_tensors
        return g * fnp.cos(x) * y, g * sine


class ArrayWave(Function):
    """With bodies on JAX arrays, a second output, and an intermediate value saved."""

    jax_rules = True

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        sine = jnp.sin(x)
        ctx.save_for_backward(x, y, sine)
        return sine * y, sine

    @staticmethod
    def vjp(ctx: Any, g: Any, h: Any) -> Any:
        x, y, sine = ctx.saved_tensors
        return (g * y + h) * jnp.cos(x), g * sine


class LateWave(Wave):
    """Whose rules come and go after it was made."""


def forget_late_rules() -> None:
    """Let the next call of `late` be as the first one: with rules and without, it rounds differently."""
    wave: Any = LateWave
    if "vjp" in wave.__dict__:
        del wave.vjp, wave.vmap


def late(x: Any, y: Any) -> Any:
    """A call of `LateWave`, with the rules that it did not have at the call before."""
    wave: Any = LateWave
    if "vjp" in wave.__dict__:
        del wave.vjp, wave.vmap
    else:
        wave.vjp, wave.vmap = staticmethod(_wave_vjp), staticmethod(FullWave.vmap)
    return wave.apply(x, y)


FUNCTIONS: dict[str, Any] = {
    "none": Wave,
    "vjp": VjpWave,
    "jvp": JvpWave,
    "all": FullWave,
    "one-method": OneMethodWave,
    "jax_rules": ArrayWave,
}


class Swish(Function):
    """x y sigmoid(x), with a vjp only."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y * fad.nn.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        s = fad.nn.sigmoid(x)
        return g * y * (s + x * s * (1.0 - s)), g * x * s


class Cube(Function):
    """x^3 y, with a jvp only."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x**3 * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_forward(*inputs)

    @staticmethod
    def jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
        x, y = ctx.saved_tensors
        return 3.0 * x * x * y * x_t + x**3 * y_t
