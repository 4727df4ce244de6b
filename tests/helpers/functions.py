"""Functions that several test modules need. Rules scaled by a factor tell which of them ran."""

from __future__ import annotations

from typing import Any, NamedTuple

import fad
import fad.numpy as fnp


def fit(g: Any, like: Any) -> Any:
    """``g`` summed over the dimensions along which ``like`` was broadcast."""
    extra = g.ndim - like.ndim
    g = g.sum(tuple(range(extra))) if extra else g
    thin = tuple(k for k, n in enumerate(like.shape) if n == 1 and g.shape[k] != 1)
    return g.sum(thin, keepdims=True) if thin else g


def front(x: Any, d: Any, size: int) -> Any:
    """``x`` with its batch in front."""
    if d is None:
        return fnp.broadcast_to(x, (size, *x.shape))
    return fnp.moveaxis(x, d, 0)


class Product(fad.Function):
    """x y, with every rule, for arrays of any shapes that broadcast, and of any dtypes."""

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        x, y = ctx.saved_tensors
        return fit(g * fnp.conj(y), x), fit(g * fnp.conj(x), y)

    @staticmethod
    def jvp(ctx, x_t, y_t):
        x, y = ctx.saved_tensors
        return x_t * y + x * y_t

    @staticmethod
    def vmap(info, in_dims, x, y):
        # Shapes of lanes may differ, so new dimensions go behind the batch.
        x, y = (front(v, d, info.batch_size) for v, d in zip((x, y), in_dims))
        ndim = max(x.ndim, y.ndim)
        x, y = (v.reshape(v.shape[0], *[1] * (ndim - v.ndim), *v.shape[1:]) for v in (x, y))
        return x * y, 0


class Sine(fad.Function):
    """sin(x), with a vjp."""

    @staticmethod
    def forward(x):
        return fnp.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g):
        return g * fnp.cos(ctx.saved_tensors[0])


class Cube(fad.Function):
    """x^3, without rules."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


# Of x^3, but for a factor.


def cube_vjp(factor: float) -> Any:
    return staticmethod(lambda ctx, g: factor * g * 3.0 * ctx.saved_tensors[0] ** 2)


def cube_jvp(factor: float) -> Any:
    return staticmethod(lambda ctx, x_t: factor * x_t * 3.0 * ctx.saved_tensors[0] ** 2)


# exp(x) y, whose derivative is its output. Each derivative passes through the saved output again, so
# a stack of n derivatives shows n factors, one for each rule that ran.

REVERSE, FORWARD = 2.0, 3.0


class Growth(fad.Function):
    """exp(x) y, without rules."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return fnp.exp(x) * y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)


def growth_vjp(ctx: Any, g: Any) -> Any:
    return REVERSE * g * ctx.saved_tensors[0], None


def growth_jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
    return FORWARD * x_t * ctx.saved_tensors[0]


class VjpGrowth(Growth):
    vjp = staticmethod(growth_vjp)


class JvpGrowth(Growth):
    jvp = staticmethod(growth_jvp)


class AllGrowth(VjpGrowth):
    jvp = staticmethod(growth_jvp)
    batches = 0

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        AllGrowth.batches += 1
        return fnp.exp(fnp.moveaxis(x, in_dims[0], 0)) * y, 0


class OneMethodGrowth(fad.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        out = fnp.exp(x) * y
        ctx.save_for_backward(out)
        return out

    vjp = staticmethod(growth_vjp)


class Split(fad.Function):
    """sin(x) and 10 x, which is marked; vjp would be wrong if the mark were not obeyed."""

    @staticmethod
    def forward(x):
        return fnp.sin(x), 10 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def vjp(ctx, g, h):
        return g * fnp.cos(ctx.saved_tensors[0]) + h

    @staticmethod
    def jvp(ctx, x_t):
        return x_t * fnp.cos(ctx.saved_tensors[0]), None


class SplitVjp(Split):
    jvp = None  # type: ignore[assignment]


class Couple(NamedTuple):
    left: Any
    right: Any


class Layer(fad.Function):
    """Pytrees in and out: a dict, a list, a named tuple, None, and things that are no arrays."""

    @staticmethod
    def forward(params, pair, mode, nothing=None):
        assert mode == "linear" and nothing is None
        hidden = params["w"] * pair.left + params["b"][0]
        return {"out": hidden, "rest": [pair.right * 2.0, None, "label", (hidden * hidden,)]}

    @staticmethod
    def setup_context(ctx, inputs, output):
        params, pair, ctx.mode, _ = inputs
        ctx.saved_data["pair"] = pair
        ctx.save_for_backward(params["w"], output["out"])

    @staticmethod
    def vjp(ctx, g):
        w, hidden = ctx.saved_tensors
        assert ctx.mode == "linear" and g["rest"][1] is None and g["rest"][2] is None
        inner = g["out"] + 2 * hidden * g["rest"][3][0]
        pair = ctx.saved_data["pair"]
        given = Couple(inner * w, 2 * g["rest"][0])
        return {"w": inner * pair.left, "b": [inner]}, given, None, None

    @staticmethod
    def jvp(ctx, params_t, pair_t, mode_t, nothing_t):
        w, hidden = ctx.saved_tensors
        assert mode_t is None and nothing_t is None
        pair = ctx.saved_data["pair"]
        out_t = params_t["w"] * pair.left + w * pair_t.left + params_t["b"][0]
        return {"out": out_t, "rest": [2 * pair_t.right, None, None, (2 * hidden * out_t,)]}


class TakeAndCount(fad.Function):
    """Integers in and out, and a mask."""

    @staticmethod
    def forward(x, i):
        return x[i], i + 1, x > 0

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def vjp(ctx, g, g_i, g_positive):
        x, i = ctx.saved_tensors
        assert (g_i.dtype, g_positive.dtype) == (i.dtype, bool)  # zeros
        return fnp.zeros_like(x).at[i].add(g), None

    @staticmethod
    def jvp(ctx, x_t, i_t):
        assert i_t is None
        return x_t[ctx.saved_tensors[1]], None, None


class TimesExp(fad.Function):
    """x exp(y), with a vjp rule that reads an input and the output."""

    @staticmethod
    def forward(x, y):
        return x * fnp.exp(y)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def vjp(ctx, g):
        y, out = ctx.saved_tensors
        return g * fnp.exp(y), g * out
