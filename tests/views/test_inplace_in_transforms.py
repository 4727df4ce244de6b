"""Writes with nested levels, hooks, arguments that share, and threads."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import leaf
from values import assert_close

import fad
import fad.numpy as fnp
from fad.errors import LevelError

V = jnp.array([1.0, 2.0, 3.0])
X = jnp.arange(6.0).reshape(2, 3) + 1


# Parts


def test_real_and_imag_are_assigned():
    z = leaf(jnp.array([1 + 2j, 3 - 1j]))
    y = z * 1
    y.real *= 2
    y.imag = y.real * 3
    y.T.real += 1
    assert_close(y.detach().array, jnp.array([3 + 6j, 7 + 18j]))
    assert y.version == 3
    (y.real + y.imag).sum().backward()
    assert_close(z.grad.array, jnp.array([8.0 + 0j, 8.0 + 0j]))
    x = fad.tensor(V)
    x.real += 1
    assert x.tolist() == [2.0, 3.0, 4.0]
    with pytest.raises(TypeError, match="no imaginary part"):
        x.imag = 1.0


# Levels


def test_detached_tensors_are_updated_inside_of_levels():
    u = fad.tensor(jnp.zeros(3))
    d, v = u.detach(), u[1:]

    def f(w):
        u[0] = w * w
        v.add_(w)
        d.mul_(fad.stop_gradient(w))
        return u.sum() + 0 * d.sum()

    assert float(fad.grad(f)(3.0)) == 8.0
    assert float(fad.grad(f)(1.0)) == 4.0
    assert d.tolist() == u.tolist()
    u.zero_()
    assert float(fad.jvp(f, (3.0,), (1.0,))[1]) == 8.0
    u += 1
    assert d.tolist() == u.tolist() == [28.0, 10.0, 10.0]

    def lanes(w):
        u = fad.tensor(jnp.zeros(2))
        d = u.detach()
        u[0] = w
        d[1] = 2 * w
        return u * d

    assert fad.vmap(lanes)(V).tolist() == [[1.0, 4.0], [4.0, 16.0], [9.0, 36.0]]


def scale(u):
    u[0] *= u[1].clone()


@pytest.mark.parametrize(
    "call",
    [
        fad.jit(scale),
        lambda u: fad.vmap(scale)(u[None]),
        lambda u: fad.vmap(scale, -1)(u.reshape(3, 1)),
        lambda u: fad.jvp(lambda u: (scale(u), u * 1)[1], (u,), (V,)),
    ],
    ids=["jit", "vmap", "vmap last", "jvp"],
)
def test_what_is_saved_of_an_argument_that_is_written_is_its_old_value(call):
    def f(x):
        u = x * 1
        call(u)
        return (u * u).sum()

    def expected(x):
        return (x.at[0].multiply(x[1]) ** 2).sum()

    x = leaf(V)
    f(x).backward()
    gradient, hessian = jax.jit(jax.grad(expected))(V), jax.jit(jax.hessian(expected))(V)
    assert_close(x.grad.array, gradient)
    assert_close(fad.grad(f)(V), gradient)
    assert_close(fad.hessian(f)(V), hessian)
    assert_close(fad.jit(fad.hessian(f))(V), hessian)


def test_retain_grad_of_a_view_stays_with_it():
    x = leaf(V)
    y = x * 1
    v = y[1:]
    v.retain_grad()
    y.mul_(2)
    (y.sum() + (v * v).sum()).backward()
    assert v.grad.tolist() == [8.0, 12.0] and x.grad.tolist() == [2.0, 18.0, 26.0]


class Scale(fad.Function):
    """Changes its input in place, and saves the factor."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.mark_dirty(x)
        ctx.save_for_backward(w)
        return x.mul_(w)

    @staticmethod
    def vjp(ctx, g):
        (w,) = ctx.saved_tensors
        return g * w, None


def test_a_function_that_saves_values_may_change_its_input():
    x = leaf(V)
    y = x * 1
    Scale.apply(y, 3.0)
    Scale.apply(y[1:], 2.0)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 6.0, 6.0]

    def f(x):
        y = x * 1
        Scale.apply(y, 3.0)
        return (y * y).sum()

    assert_close(fad.grad(f)(V), 18 * V)
    assert_close(fad.vmap(fad.grad(f))(X), 18 * X)
    assert_close(fad.jit(fad.hessian(f))(V), 18 * jnp.eye(3))


def test_out_may_be_an_argument_or_a_part_of_one():
    x = leaf(V)
    y = x * 1
    assert fnp.multiply(y, x, out=y) is y
    fnp.multiply(y[1:], y[:1], out=y[1:])
    y.sum().backward()
    expected = jax.grad(lambda x: (y := x * x).at[1:].multiply(y[:1]).sum())(V)
    assert_close(x.grad.array, expected)


# Arguments that share, threads


def test_functionalized_arguments_share_what_they_shared():
    def f(a, b, c):
        a[0] += 1
        b.mul_(2)
        c += 1
        return a * 1, b * 1, c * 1

    def arguments():
        x = fad.tensor(X)
        return x, x[0], x.detach()

    given = arguments()
    got = fad.functionalize(f)(*given)
    assert_close([x.array for x in given], [X, X[0], X])
    assert_close([x.array for x in got], [x.array for x in f(*arguments())])
    got = fad.functionalize(f)(given[0], given[0][0], given[0])
    x = fad.tensor(X)
    assert_close([v.array for v in got], [v.array for v in f(x, x[0], x)])


def test_arguments_that_share_are_refused_where_they_are_separate():
    def f(x, y):
        x += 1
        return x * y

    for call in (
        fad.vmap(f),
        fad.jit(f),
        lambda x, y: fad.jvp(f, (x, y), (V, V)),
        fad.vmap(f, (0, None)),
    ):
        x = fad.tensor(V)
        for y in (x, x[:], x.detach()):
            with pytest.raises(LevelError, match="shares its storage with leaf 1"):
                call(x, y)
            assert x.tolist() == [1.0, 2.0, 3.0] and x.version == 0


def test_what_all_lanes_share_and_have_a_part_of_cannot_be_written_to():
    def f(row, whole, scale):
        whole.mul_(10.0)
        return row + whole * scale

    for chunk_size in (None, 1):
        mapped = fad.vmap(f, (0, None, None), chunk_size=chunk_size)
        x, scale = fad.tensor([[1.0, 2.0], [3.0, 4.0]]), fad.tensor([1.0, 2.0])
        for whole in (x[0], x, x.detach(), x[:, 0], x.T):
            with pytest.raises(LevelError, match="writes to argument 1 .* storage with argument 0"):
                mapped(x, whole, scale)
            assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]] and x.version == whole.version == 0
    out = fad.vmap(f, (0, None, None))(x, x[0].clone(), scale)
    assert out.tolist() == [[11.0, 42.0], [13.0, 44.0]]
    out = fad.vmap(lambda row, whole: row + whole, (0, None))(x, x[0])  # to read it is fine
    assert out.tolist() == [[2.0, 4.0], [4.0, 6.0]]
    part = scale[1:]
    fad.vmap(lambda row, a, b: row + a.mul_(2.0) + b, (0, None, None))(x, scale, part)
    assert scale.tolist() == [2.0, 4.0] and part.tolist() == [4.0]


def test_threads_that_write_to_parts_lose_nothing():
    x = fad.tensor(jnp.zeros(40))

    def work(k):
        part = x[10 * k : 10 * k + 10]
        for _ in range(20):
            part.add_(1)
            x[10 * k] += 1

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = np.full(40, 20.0)
    expected[::10] = 40.0
    assert_close(x.array, expected)
    assert x.version == 160
