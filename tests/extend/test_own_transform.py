"""A transform made from outside, by public names: it carries intervals."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import extend

X = jnp.asarray(np.random.default_rng(0).normal(size=(3,)).astype(np.float32))
Y = jnp.asarray(np.random.default_rng(1).normal(size=(3,)).astype(np.float32))


class IntervalLevel(extend.Level):
    """The value of a Tensor is the lower end of an interval, its ``aux`` the upper end."""

    kind = "interval"

    def process(self, op, args):
        if op.expands:
            return op.expand(args)
        name = op.name.removesuffix("_vmap")
        if name not in ENDS:
            raise NotImplementedError(f"no interval is known for {name}")
        ends = [self.ends(a) for a in args]
        low, high = ENDS[name](op, [a for a, _ in ends], [b for _, b in ends])
        return extend.new_tensor(low, self, high)

    def ends(self, x):
        own = isinstance(x, extend.Tensor) and x.level is self
        return (x.value, x.aux) if own else (x, x)

    def detach(self, x):
        return x


def _by_corners(op, low, high):
    corners = [extend.bind(op, [a, b]) for a in (low[0], high[0]) for b in (low[1], high[1])]
    least = most = corners[0]
    for c in corners[1:]:
        least, most = fnp.minimum(least, c), fnp.maximum(most, c)
    return least, most


ENDS = {
    **dict.fromkeys(
        ["add", "exp", "tanh", "sum", "minimum", "maximum"],
        lambda op, *ends: tuple(extend.bind(op, e) for e in ends),
    ),
    "subtract": lambda op, a, b: (extend.bind(op, [a[0], b[1]]), extend.bind(op, [b[0], a[1]])),
    "negative": lambda op, a, b: (extend.bind(op, b), extend.bind(op, a)),
    "multiply": _by_corners,
}


def interval(f):
    """``f`` on intervals: from lower and upper ends to the ends of what can come out."""

    @extend.restores_modes
    def bounds(low, high):
        with IntervalLevel() as level:
            inside = extend.new_tensor(extend.enter(low), level, extend.enter(high))
            found = level.ends(f(inside))
        return extend.leave(found, extend.has_tensor((low, high)))

    return bounds


def curve(x):
    return fnp.sum(fnp.exp(-x) * (x - 0.5) + fnp.tanh(x))


def test_a_transform_of_ones_own():
    low, high = X - 0.1, X + 0.2
    with fad.autograd.compiled(False):
        least, most = interval(curve)(low, high)
    for w in np.linspace(0.0, 1.0, 7):
        assert least <= curve(low + w * (high - low)) <= most
    assert interval(lambda x: x * x)(-1.0, 2.0) == (-2.0, 4.0)


def test_it_composes_with_the_others():
    """Inside of grad and vmap, around them, and within itself."""

    def width(x):
        least, most = interval(curve)(x - 0.1, x + 0.1)
        return most - least

    for replay in (True, False):
        with fad.autograd.compiled(replay):
            for _ in range(4):
                slope = fad.grad(width)(X)
            rows = fad.vmap(fad.grad(width))(jnp.stack([X, Y]))
    step = 1e-2
    each = [(width(X + step * e) - width(X - step * e)) / (2 * step) for e in jnp.eye(3)]
    np.testing.assert_allclose(slope, jnp.stack(each), rtol=2e-2, atol=1e-3)
    np.testing.assert_allclose(rows, jnp.stack([fad.grad(width)(X), fad.grad(width)(Y)]), rtol=1e-5)
    slopes = interval(fad.vmap(lambda x: x * x + x))(X, X)
    np.testing.assert_allclose(slopes[0], X * X + X, rtol=1e-6)
    nested = interval(lambda x: interval(lambda y: x * y)(x, x + 1.0)[1])(2.0, 3.0)
    assert nested == (6.0, 12.0)


def test_an_interval_that_nothing_knows_is_an_error():
    with pytest.raises(NotImplementedError, match="cosh"):
        interval(fnp.cosh)(0.0, 1.0)
    assert fad.grad(fnp.sin)(0.0) == 1.0
