"""What compiled code closes over: it is followed, or refused, and never stale."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, counted, is_idle

import fad
import fad.numpy as fnp
from fad.errors import GradientError, HostValueError, LevelError

X = jnp.array([0.3, -0.5, 0.7])


def test_closing_over_what_is_tracked():
    w = fad.tensor(X, requires_grad=True)
    f = fad.jit(lambda x: x * w)
    f(X).sum().backward()
    assert_close(w.grad, X)
    with pytest.raises(GradientError, match="closes over a Tensor .* grad level"):
        fad.grad(lambda w: fad.jit(lambda x: x * w)(X).sum())(X)
    with pytest.raises(GradientError, match="closes over"):
        fad.vmap(lambda w: fad.jit(lambda x: x * w)(2.0))(X)
    w.requires_grad_(False)
    assert_close(f(X), X * X)


def test_a_tracer_that_is_closed_over_is_not_kept():
    box = [2.0]
    f = fad.jit(lambda x: x * box[0])

    def inside(y):
        box[0] = y
        return f(X).sum()

    for y in (3.0, 4.0):
        assert_close(jax.jit(inside)(y), y * X.sum())
        assert_close(jax.grad(inside)(y), X.sum())
    assert_close(jax.vmap(inside)(X), X * X.sum())
    box[0] = 5.0
    assert_close(f(X + 0), 5.0 * X)


def test_a_tensor_that_compiled_code_closes_over_is_read_at_each_call():
    scale = fad.tensor([1.0, 2.0])
    part = scale[1:]
    double = fad.jit(lambda x: x * scale + part)
    x = jnp.ones(2)
    assert double(x).tolist() == [3.0, 4.0]
    part.mul_(10.0)
    assert double(x).tolist() == [21.0, 40.0]
    outer = fad.jit(lambda x: double(x) + 1.0)
    assert outer(x).tolist() == [22.0, 41.0]
    part += 1
    assert outer(x).tolist() == [23.0, 43.0]
    part -= 1
    assert isinstance(double(x), jax.Array)
    donating = fad.jit(lambda x: x * scale, donate_argnums=0)
    assert donating(jnp.ones(2)).tolist() == [1.0, 20.0]
    scale += 1
    assert donating(jnp.ones(2)).tolist() == [2.0, 21.0]
    factor = fad.tensor(2.0, requires_grad=True)
    scale.mul_(factor)
    double(x).sum().backward()
    assert factor.grad == 23.0 + 21.0 * 2


class Product(fad.Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def vjp(ctx, g):
        return None, None


def newton(s):
    """A step towards s, from a leaf made in the body."""
    p = fad.tensor([1.0, 1.0], requires_grad=True)
    ((p - s) ** 2).sum().backward()
    return p.grad


# Functions of s, and of x, a vector of two numbers like it; for each s a function of x is compiled.
OF_OUTSIDE = {
    "with a number": lambda s: lambda x: x * (s * 2),
    "sum": lambda s: lambda x: x * s.sum(),
    "view": lambda s: lambda x: x * (s[1:] * 2),
    "view made outside": lambda s: (lambda v: lambda x: x * (v + 1))(s[:1]),
    "iterated": lambda s: lambda x: x * list(s)[1],
    "index": lambda s: lambda x: x * s[fnp.argmax(-s)],
    "mask": lambda s: lambda x: fnp.where(s > 3, x, 2 * x),
    "copy": lambda s: lambda x: x * (s.clone() + fad.tensor(s) + copy.deepcopy(s)),
    "detached": lambda s: lambda x: x * (s.detach() * 2) + fad.stop_gradient(s),
    "numpy": lambda s: lambda x: x * np.sin(s),
    "tree": lambda s: lambda x: x * jax.tree.map(lambda a: a * 2, {"s": s})["s"],
    "from_jax": lambda s: lambda x: x * fad.from_jax(jnp.sin)(s),
    "Function": lambda s: lambda x: x * Product.apply(s, s),
    "returned": lambda s: lambda x: s * 2,
    "written": lambda s: lambda x: x * fad.tensor([1.0, 1.0]).mul_(s),
    "functionalized": lambda s: lambda x: x * fad.functionalize(lambda t: t.mul_(2))(s),
    "no_grad": lambda s: lambda x: x * fad.no_grad()(lambda: s * 2)(),
    "nested": lambda s: lambda x: fad.jit(lambda y: y * (s * 2))(x),
    "nested, computed outside": lambda s: lambda x: (lambda t: fad.jit(lambda y: y * t)(x))(s * 2),
    "nested, argument": lambda s: lambda x: x * fad.jit(fnp.sin)(s),
    "nested, no argument": lambda s: lambda x: x * fad.jit(lambda: s * 2)(),
    "scan": lambda s: lambda x: fad.lax.scan(lambda c, _: (c + s * 2, None), x, None, length=2)[0],
    "scan, alone": lambda s: lambda x: fad.lax.scan(lambda c, _: (c * s, c), s, None, length=2)[1],
    "while": lambda s: (
        lambda x: fad.lax.while_loop(lambda c: (c < s * 3).any(), lambda c: c + s, x)
    ),
    "grad": lambda s: fad.grad(lambda x: (x * s).sum()),
    "grad, computed": lambda s: fad.grad(lambda x: (x * x * (s * 2)).sum()),
    "grad of it": lambda s: lambda x: x * fad.grad(lambda t: (t**3).sum())(s),
    "hessian of it": lambda s: lambda x: x @ fad.hessian(lambda t: (t**3).sum())(s),
    "jvp along it": lambda s: lambda x: fad.jvp(fnp.sin, (x,), (s,))[1],
    "jvp of it": lambda s: lambda x: x * fad.jvp(fnp.sin, (s,), (s,))[1],
    "pulled back": lambda s: lambda x: fad.vjp(fnp.sin, x)[1](s)[0],
    "linearized at it": lambda s: lambda x: fad.linearize(fnp.sin, s)[1](x),
    "vmap": lambda s: fad.vmap(fad.grad(lambda x: x * (x * s).sum())),
    "vmap over it": lambda s: lambda x: x * fad.vmap(fnp.sin, chunk_size=1)(s),
    "checkpoint": lambda s: fad.grad(fad.checkpoint(lambda x: (x * (s * 2) * x).sum())),
    "checkpoint of it": lambda s: lambda x: x * fad.checkpoint(lambda t: t * 2)(s),
    "a leaf made inside": lambda s: lambda x: x * newton(s) + newton(x),
}


@pytest.mark.parametrize("make", OF_OUTSIDE.values(), ids=OF_OUTSIDE)
def test_what_a_body_computes_from_a_tensor_outside_is_computed_at_each_call(make):
    s = fad.tensor([1.0, 2.0])
    f = make(s)
    compiled, traces = counted(f)
    x = jnp.array([0.5, -0.25])
    for change in (lambda: None, lambda: s.mul_(3.0), lambda: s[1:].add_(1.0)):
        change()
        expected = f(fad.asarray(x))
        assert_close(compiled(x), expected)
    assert len(traces) <= 2  # one to find what is captured, one with it
    assert is_idle() and fad.core.level.bodies.traced == 0


def test_what_a_body_makes_of_numbers_is_constant():
    scale = fad.tensor([1.0, 2.0])

    def f(x):
        y = fad.tensor([0.0, 0.0])
        y[1] = 5.0
        return x * scale[1:] + y + fad.tensor([1.0, 1.0])

    compiled = fad.jit(f)
    x = jnp.ones(2)
    assert compiled(x).tolist() == [3.0, 8.0]
    scale.mul_(10.0)
    assert compiled(x).tolist() == [21.0, 26.0]


def test_branches_on_what_is_computed_from_a_tensor_outside_raise():
    scale = fad.tensor([1.0, 2.0])
    with pytest.raises(HostValueError, match=r"fad.lax.cond instead of a Python branch"):
        fad.jit(lambda x: x if scale.sum() > 2 else -x)(X)
    with pytest.raises(HostValueError, match="bool mask"):
        fad.jit(lambda x: x[scale > 1])(X[:2])
    assert scale.tolist() == [1.0, 2.0] and is_idle()
    repeat = fad.tensor(3)  # the Tensor itself has a number, and the program is for that one
    f, traces = counted(lambda x: sum(x for _ in range(repeat)))
    for number in (3, 3, 4, 3):
        repeat.fill_(number)
        assert_close(f(X), number * X)
    assert len(traces) == 2


def test_a_detached_tensor_is_as_old_as_what_it_shares():
    scale = fad.tensor([1.0, 2.0])
    out = fad.jit(lambda x: scale.detach().mul_(2.0) * x)(jnp.ones(2))
    assert out.tolist() == scale.tolist() == [2.0, 4.0] and scale.version == 1
    with pytest.raises(
        LevelError, match="from outside was written to in the body of scan.*carry it"
    ):
        fad.lax.map(lambda x: scale.detach().mul_(2.0) * x, jnp.ones((2, 2)))
    assert scale.version == 1


def test_stop_gradient_in_a_body_reads_a_tracked_tensor_at_each_call():
    w = fad.tensor([1.0, 2.0], requires_grad=True)
    f = fad.jit(lambda x: x * (fad.stop_gradient(w) * 2) + w.detach())
    assert f(jnp.ones(2)).tolist() == [3.0, 6.0]
    with fad.no_grad():
        w.mul_(10.0)
    assert f(jnp.ones(2)).tolist() == [30.0, 60.0]
    out = fad.jit(lambda x: x * fad.no_grad()(lambda: w * 2)())(jnp.ones(2))
    assert out.tolist() == [20.0, 40.0] and isinstance(out, jax.Array)


def test_views_of_tensors_outside_are_brought_up_to_date_where_they_are():
    scale = fad.tensor([1.0, 2.0])
    part = scale[1:]
    peer = scale.detach()
    scale.mul_(3.0)  # both are out of date when the trace uses them
    f = fad.jit(lambda x: x * part + peer)
    assert f(jnp.ones(2)).tolist() == [9.0, 12.0]
    assert part.tolist() == [6.0] and peer.tolist() == [3.0, 6.0]
    assert part.level.kind == "eager" and peer.level.kind == "eager"
