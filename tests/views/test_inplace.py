"""Writes to Tensors and to views: what they mean, what gradients pass through them, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, leaf

import fad
import fad.lax as flax
import fad.numpy as fnp
from fad.errors import GradientError, LevelError

X = jnp.arange(1.0, 7.0).reshape(2, 3)
V = jnp.array([0.5, -1.0, 2.0])


# What is a view, and how a write to it changes the base

VIEWS = {
    "int": lambda x: x[1],
    "negative int": lambda x: x[-2],
    "all ints": lambda x: x[0, 2],
    "slice": lambda x: x[:, 1:],
    "steps": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1, ::-2],
    "window and step": lambda x: x[1:, ::2],
    "int and slice": lambda x: x[1, 0:2],
    "newaxis": lambda x: x[:, None, 1:],
    "ellipsis": lambda x: x[..., 0],
    "empty": lambda x: x[2:],
    "reshape": lambda x: x.reshape(3, 2),
    "reshape F": lambda x: x.T.reshape(1, 6, order="F"),
    "view F": lambda x: x.T.view(2, 3),
    "ravel": lambda x: x.ravel(),
    "ravel F": lambda x: fnp.ravel(x.T, order="F"),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(1, 0),
    "permute_dims": lambda x: fnp.permute_dims(x[None], (2, 0, 1)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "moveaxis": lambda x: x.moveaxis(0, 1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "expand_dims": lambda x: x.expand_dims(1),
    "broadcast to itself": lambda x: fnp.broadcast_to(x, (2, 3)),
    "row of a broadcast": lambda x: x.expand(4, 2, 3)[2],
    "diagonal": lambda x: x.diagonal(),
    "offset diagonal": lambda x: x.diagonal(1),
    "diag": lambda x: fnp.diag(x),
    "flip": lambda x: fnp.flip(x, 0),
    "rot90": lambda x: fnp.rot90(x),
    "atleast_3d": lambda x: fnp.atleast_3d(x),
    "broadcast_arrays": lambda x: fnp.broadcast_arrays(x[:, :2], 1.0)[0],
    "chain": lambda x: x.T[1:].view(-1)[::2].reshape(2, 1),
}


def reference(view, x, change):
    """The array after ``change`` of its view, by NumPy on element numbers."""
    x = np.asarray(x)
    where = np.asarray(view(fad.asarray(jnp.arange(x.size).reshape(x.shape))).array)
    out = x.ravel().copy()
    out[where.ravel()] = np.asarray(change(jnp.asarray(out[where]))).ravel()
    return out.reshape(x.shape)


@pytest.mark.sweep("name", list(VIEWS), sample=8)
def test_a_write_to_a_view_is_a_write_to_its_base(name):
    view = VIEWS[name]
    x = fad.tensor(X)
    v = view(x)
    assert v.is_view and v.base is x and x.base is None and not x.is_view
    v.mul_(10.0)
    assert_close(x, reference(view, X, lambda v: 10 * v))
    assert_close(v, 10 * view(fad.asarray(X)))
    v += 1
    view(x).copy_(v * 2)
    assert_close(x, reference(view, X, lambda v: 2 * (10 * v + 1)))
    assert x.version == v.version == 3
    x.zero_()
    assert_close(v, jnp.zeros(v.shape))
    assert_close(v.view_fn(X), view(fad.asarray(X)))
    assert_close(v.replay_on(fad.asarray(2 * X)), 2 * view(fad.asarray(X)))


@pytest.mark.sweep(
    "case", [(n, w) for n in VIEWS for w in ("mul_", "copy_", "sin_", "add_")], sample=4
)
def test_gradients_pass_a_write_to_a_view(case):
    name, write = case
    view = VIEWS[name]
    x, w = leaf(X), leaf(1.5)
    weights = jnp.cos(X)

    def change(v, w):
        return {"mul_": v * w, "copy_": w + 0 * v, "sin_": jnp.sin(v), "add_": v + w}[write]

    def pure(x, w):
        where = view(fad.asarray(jnp.arange(x.size).reshape(x.shape))).array
        flat = x.ravel()
        return flat.at[where.ravel()].set(change(flat[where], w).ravel()).reshape(x.shape)

    def inplace(x, w):
        y = x * 1.0
        getattr(view(y), write)(*(() if write == "sin_" else (w,)))
        return y

    y = inplace(x, w)
    assert (
        y.grad_fn.name() == "CopySlices"
        and y.grad_fn.next_functions[0][0].name() == "MultiplyBackward"
    )
    (y * weights).sum().backward()
    expected = jax.grad(lambda x, w: (pure(x, w) * weights).sum(), (0, 1))
    expected = jax.jit(expected)(X, jnp.float32(1.5))
    assert_close((x.grad, fad.tensor(0.0) if w.grad is None else w.grad), expected)
    scalar = lambda f: lambda x, w: (jnp.exp if f is pure else fnp.exp)(f(x, w) * weights).sum()
    assert_close(
        fad.hessian(scalar(inplace), (0, 1))(X, jnp.float32(1.5)),
        jax.jit(jax.hessian(scalar(pure), (0, 1)))(X, jnp.float32(1.5)),
    )


# Writes


@pytest.mark.parametrize(
    "write, expected",
    [
        (lambda x: x.__iadd__(1), X + 1),
        (lambda x: x.__isub__(X[0]), X - X[0]),
        (lambda x: x.__imul__(X), X * X),
        (lambda x: x.__itruediv__(2), X / 2),
        (lambda x: x.__ifloordiv__(2), X // 2),
        (lambda x: x.__imod__(2), X % 2),
        (lambda x: x.__ipow__(2), X**2),
        (lambda x: x.__imatmul__(jnp.ones((3, 3))), X @ jnp.ones((3, 3))),
        (lambda x: x.__setitem__(0, 5.0), X.at[0].set(5.0)),
        (lambda x: x.__setitem__((slice(None), 1), V[:2]), X.at[:, 1].set(V[:2])),
        (lambda x: x.__setitem__((0, 1), fad.tensor(9.0)), X.at[0, 1].set(9.0)),
        (
            lambda x: x.__setitem__(slice(None), [[1.0, 2.0, 3.0]]),
            jnp.tile(jnp.arange(1.0, 4), (2, 1)),
        ),
        (lambda x: x.__setitem__(X > 2, 0.0), jnp.where(X > 2, 0, X)),
        (lambda x: x.__setitem__(X > 4, V[:2]), X.at[1, 1:].set(V[:2])),
        (lambda x: x.__setitem__(([1, 0], [0, 2]), V[:2]), X.at[[1, 0], [0, 2]].set(V[:2])),
        (lambda x: x.__setitem__(jnp.array([True, False]), 0.0), X.at[0].set(0.0)),
        (lambda x: fnp.add(X, 1.0, out=x), X + 1),
        (lambda x: fnp.sum(X, axis=0, out=x[0]), X.at[0].set(X.sum(0))),
        (
            lambda x: x.scatter_add_(1, jnp.array([[0, 0], [2, 1]]), X),
            X + jnp.array([[3, 0, 0], [0, 5, 4]]),
        ),
        (lambda x: x.index_put_((jnp.array([0, 0]),), 1.0, accumulate=True), X.at[0].add(2.0)),
    ],
)
def test_writes(write, expected):
    x = fad.tensor(X)
    write(x)
    assert_close(x, expected)
    mapped = fad.vmap(lambda x: (y := x.clone(), write(y), y)[2])(fad.asarray(X)[None])
    assert_close(mapped[0], expected)


def test_augmented_assignment_of_a_slice_writes_once():
    x = fad.tensor(X)
    x[0, 1:] += 1
    assert x.version == 1
    x[0][1:] *= 2
    assert x.version == 2
    x[[0, 1]] += 1
    assert x.version == 3
    assert_close(x, X.at[0, 1:].add(1).at[0, 1:].multiply(2) + 1)


def test_the_dtype_of_the_base_stays():
    x = fad.tensor([1, 2, 3])
    x[0] = 7.9
    x += 1
    assert x.dtype == jnp.int32 and x.tolist() == [8, 3, 4]
    for write in (lambda: x.add_(0.5), lambda: x.__itruediv__(2), lambda: x.__setitem__(0, 1j)):
        with pytest.raises(TypeError, match="can't be cast|imaginary"):
            write()
    assert x.tolist() == [8, 3, 4] and x.version == 2
    y = fad.tensor(jnp.ones(2, jnp.bfloat16))
    y += jnp.ones(2)
    assert y.dtype == jnp.bfloat16 and not y.weak_type
    y[0] = fad.tensor(3.0)
    assert y.tolist() == [3.0, 2.0]


# History


def test_nodes_after_a_write():
    x, w = leaf(X), leaf(2.0)
    y = x * 1.0
    v, row = y.T, y[0]
    old = y.grad_fn
    row.mul_(w)
    assert y.grad_fn.name() == "CopySlices" and y.output_nr == 0
    assert y.grad_fn.next_functions[0] == (old, 0)
    assert y.grad_fn.next_functions[-1][0].variable is w
    assert v.grad_fn.name() == "TransposeBackward" and v.grad_fn.next_functions[0][0] is y.grad_fn
    assert row.grad_fn.name() == "GetitemBackward" and row.grad_fn.next_functions[0][0] is y.grad_fn
    assert v.grad_fn is v.grad_fn
    y[jnp.array([0])] = w
    assert y.grad_fn.name() == "IndexPutBackward"
    y.sin_()
    assert y.grad_fn.name() == "SinBackward"


def test_hooks_stay_with_the_values_they_were_put_on_and_retain_grad_stays_with_the_tensor():
    x = leaf(V)
    y = x * 1.0
    seen = []
    y.register_hook(lambda g: seen.append(("before", g.tolist())))
    y.retain_grad()
    y.mul_(2.0)
    y.register_hook(lambda g: seen.append(("after", g.tolist())))
    (y * 3.0).sum().backward()
    assert seen == [("after", [3.0] * 3), ("before", [6.0] * 3)]
    assert_close(y.grad, jnp.full(3, 3.0))
    assert y.retains_grad


def test_writes_in_no_grad_keep_history():
    x = leaf(V)
    with fad.no_grad():
        x.mul_(2.0)
        x[0] = 0.0
    assert x.is_leaf and x.requires_grad and x.version == 2
    assert_close(x.detach(), jnp.array([0.0, -2.0, 4.0]))
    y = x * 1.0
    node = y.grad_fn
    with fad.no_grad():
        y += 1
    assert y.grad_fn is node
    y.sum().backward()
    assert_close(x.grad, jnp.ones(3))


def test_dual_numbers_and_writes():
    with fad.dual_level():
        x = fad.make_dual(fad.tensor(V), fad.tensor(jnp.ones(3)))
        y = fad.tensor(jnp.zeros((2, 3)))
        row = y[0]
        y[0] = x * x
        row[1:] *= x[:2]
        with fad.no_grad():
            y[1] = x
        primal, tangent = fad.unpack_dual(y)
    a, b, c = V
    assert_close(primal, jnp.stack([jnp.array([a * a, b * b * a, c * c * b]), V]))
    assert_close(
        tangent,
        jnp.stack([jnp.array([2 * a, 2 * b * a + b * b, 2 * c * b + c * c]), jnp.ones(3)]),
    )
    assert_close(y, primal)


class AddOne(fad.Function):
    """Changes its input in place; the vjp is scaled by 5."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1.0)

    @staticmethod
    def vjp(ctx, g):
        return 5 * g


def test_mark_dirty_on_a_view():
    w = leaf(X)
    y = w * 1.0
    v = y[0]
    out = AddOne.apply(v)
    assert out is v and y.grad_fn.name() == "CopySlices"
    assert_close(y.detach(), X.at[0].add(1))
    y.sum().backward()
    assert_close(w.grad, jnp.ones((2, 3)).at[0].set(5.0))
    f = lambda x: (y := x * 1.0, AddOne.apply(y[0]), y.sum())[2]
    for g in (fad.grad(f)(X), fad.jit(fad.grad(f))(X), fad.vmap(fad.grad(f))(X[None])[0]):
        assert_close(g, jnp.ones((2, 3)).at[0].set(5.0))


# Transforms


def test_writing_lanes_makes_a_tensor_of_the_function_batched():
    def f(x):
        y = fad.tensor(jnp.zeros(3))
        view = y[1:]
        y[0] = x
        view += x * 2
        return y

    assert_close(fad.vmap(f)(V), V[:, None] * jnp.array([1.0, 2.0, 2.0]))
    assert_close(fad.vmap(fad.vmap(f))(X), X[..., None] * jnp.array([1.0, 2.0, 2.0]))
    assert_close(fad.vmap(fad.grad(lambda x: (f(x) ** 2).sum()))(V), 18 * V)
    assert_close(fad.jacfwd(f)(2.0), jnp.array([1.0, 2.0, 2.0]))


def test_writing_lanes_into_a_captured_tensor_is_an_error():
    outside = fad.tensor(jnp.zeros(3))
    with pytest.raises(LevelError, match="captured from outside of the mapped function"):
        fad.vmap(lambda x: outside.__setitem__(0, x))(V)
    with pytest.raises(LevelError, match="captured from outside"):
        fad.vmap(lambda x, y: y[1:].add_(x), (0, None))(V, outside)
    assert outside.version == 0 and outside.tolist() == [0.0] * 3
    fad.vmap(lambda x: (outside.add_(1.0), x)[1])(V)  # the same for all lanes
    assert outside.tolist() == [1.0] * 3


def test_writes_to_captured_tensors_in_code_that_runs_more_than_once_are_errors():
    outside = fad.tensor(jnp.zeros(3))
    view = outside[1:]

    def f(x):
        view.add_(1.0)
        return x * 2

    def g(x):
        outside[0] = x.sum()
        return x * 2

    for body in (f, g):
        for run in (
            lambda: flax.scan(lambda c, x: (body(c), x), V, X),
            lambda: flax.fori_loop(0, 2, lambda i, c: body(c), V),
            lambda: fad.checkpoint(body)(V),
        ):
            with pytest.raises(LevelError, match=r"from outside was written to in the body of"):
                run()
    assert outside.version == 0 and outside.tolist() == [0.0] * 3
    with pytest.raises(LevelError, match="checkpoint: the function changes an argument"):
        fad.checkpoint(lambda x: x.add_(1.0))(V)


def test_writes_to_arguments_reach_the_caller():
    step = fad.jit(lambda x, y: (x[0].add_(y.sum()), y.mul_(2.0))[0])
    x, y = fad.tensor(X), fad.tensor(V)
    view = x.ravel()
    for _ in range(2):
        before, total = x.array, y.array.sum()
        out = step(x, y)
        assert_close(x, before.at[0].add(total))
        assert_close(out, x[0])
    assert_close(y, 4 * V)
    assert_close(view, x.array.ravel())
    assert x.version == y.version == 2
    base = fad.tensor(X)
    step(base.T.T, base[:, 0].clone())
    assert_close(base, X.at[0].add(X[:, 0].sum()))
    for f in (
        fad.vmap(lambda x: x.mul_(2.0)),
        lambda x: fad.jvp(lambda x: x.mul_(2.0), (x,), (x,)),
    ):
        x = fad.tensor(X)
        f(x)
        assert_close(x, 2 * X)
    assert_close(step(X, V), X[0] + V.sum())  # arrays stay what they are
    x = fad.tensor(X)
    pure = fad.functionalize(lambda x: x.mul_(2.0))
    assert_close(pure(x), 2 * X)
    assert_close(x, X)


def test_a_jitted_function_refuses_arguments_that_it_must_not_change():
    step = fad.jit(lambda x, y: x.add_(y))
    x = leaf(V)
    with pytest.raises(GradientError, match="add_: a leaf Variable that requires grad"):
        step(x, fad.tensor(V))
    y = fad.tensor(X)
    with pytest.raises(LevelError, match="shares its storage with leaf 1"):
        step(y[0], y[1])
    with pytest.raises(LevelError, match="shares its storage with leaf 1"):
        step(y, y)
    assert y.version == 0
    z = x * 1.0
    step(z, fad.tensor(V))
    assert z.grad_fn is not None
    z.sum().backward()
    assert_close(x.grad, jnp.ones(3))
