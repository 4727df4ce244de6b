"""What is saved of a view is made again from its base, and nothing else changes."""

from __future__ import annotations

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import GradientError
from fad.tape import saved

X = np.linspace(-1.0, 1.0, 64 * 128, dtype=np.float32).reshape(64, 128)
VIEWS = {
    "row": lambda x: x.reshape(2, 32, 128)[1],
    "window": lambda x: x[3:60],
    "steps": lambda x: x[::-2, 1:],
    "transpose": lambda x: x.T,
    "chain": lambda x: x[1:].T.reshape(-1)[5:].reshape(1, -1),
    "expand": lambda x: x[:, None].expand(64, 3, 128),
    "diagonal": lambda x: x.reshape(64, 64, 2).diagonal(0, 0, 1),
    "split": lambda x: fnp.split(x, 2)[1],
    "detached": lambda x: x[1:].detach() + x[:-1],
}


def bytes_alive():
    gc.collect()
    return bytes_of_arrays()


def bytes_of_arrays():
    """Of arrays on one device, which are those that the tests here make."""
    arrays = [a for a in jax.live_arrays() if len(a.devices()) == 1]
    return sum({a.unsafe_buffer_pointer(): a.nbytes for a in arrays}.values())


@pytest.fixture(autouse=True, params=["as it is", "at once"])
def _which(request, monkeypatch):
    """Large views, and small ones too, which are made again where tests want everything at once."""
    if request.param == "as it is":
        yield
        return
    monkeypatch.setattr(saved, "LARGE", 0)
    with fad.autograd.compiled(wait=True):
        yield


def product(view):
    return lambda x, w: fnp.sum(view(x) * fnp.sin(view(x) * w) * 2.0)


@pytest.mark.parametrize(
    ("_which", "name"),
    [*[("at once", name) for name in VIEWS], ("as it is", "row"), ("as it is", "chain")],
    indirect=["_which"],
)
def test_derivatives(name):
    view = VIEWS[name]
    f = product(view)
    x, w = (fad.tensor(a, requires_grad=True) for a in (X, np.float32(0.7)))

    def plain(x, w):
        y = fad.to_jax(view)(x)
        return jnp.sum(y * jnp.sin(y * w) * 2.0)

    wanted = jax.jit(jax.grad(plain, (0, 1)))(X, np.float32(0.7))
    second = jax.jit(jax.grad(lambda w: jnp.sum(jax.grad(plain)(X, w) * X)))(np.float32(0.7))
    with fad.autograd.compiled(wait=True):
        for times in (1, 1, 2):
            loss = f(x, w)
            for k in range(times):
                grads = fad.autograd.grad(loss, (x, w), retain_graph=k + 1 < times)
            for g, expected in zip(grads, wanted, strict=True):
                np.testing.assert_allclose(g.array, expected, rtol=2e-4, atol=1e-4)
    (g,) = fad.autograd.grad(f(x, w), x, create_graph=True)
    (h,) = fad.autograd.grad(fnp.sum(g * X), w)
    np.testing.assert_allclose(h.array, second, rtol=2e-4)


def test_memory_is_that_of_the_base():
    """Twenty rows that are saved cost nothing, even if they are all that is left of the base."""
    x, w = (fad.tensor(a, requires_grad=True) for a in (np.stack([X] * 20), X))

    def f(x, w):
        return sum([fnp.sum(x[k] * w) for k in range(20)])

    f(x, w).backward()
    x.grad = w.grad = None
    before = bytes_alive()
    loss = f(x, w)
    assert loss.array.shape == ()
    assert bytes_alive() - before < 2 * X.nbytes
    loss.backward()
    np.testing.assert_allclose(w.grad.array, 20 * X, rtol=1e-5)
    np.testing.assert_allclose(x.grad.array[7], X, rtol=1e-5)


def test_writes_after_the_view_was_saved():
    w = fad.tensor(X, requires_grad=True)
    for written in ("base", "view", "other view"):
        data = fad.tensor(X)
        view = data[1:]
        loss = fnp.sum(view * w[1:])
        if written == "base":
            data.mul_(2.0)
        elif written == "view":
            view.mul_(2.0)
        else:
            data[0] = 0.0
        with pytest.raises(GradientError, match=r"inplace operation: \[float32 \[63, 128\]\]"):
            loss.backward()
        with pytest.raises(GradientError, match=r"\[63, 128\]"):
            _ = loss.grad_fn.next_functions[0][0]._saved_self
        assert w.grad is None
    with fad.autograd.allow_mutation_on_saved_tensors():
        data = fad.tensor(X)
        loss = fnp.sum(data[1:] * w[1:])
        data.mul_(2.0)
        loss.backward()
    np.testing.assert_allclose(w.grad.array[1:], X[1:], rtol=1e-6)


def test_the_view_of_the_user_is_his_own():
    """It is what it was when its base is donated, and a view as before."""
    data = fad.tensor(X)
    w = fad.tensor(X, requires_grad=True)
    view = data[1:]
    loss = fnp.sum(view * w[1:])
    assert view.is_view and view.base is data
    kept = loss.grad_fn.next_functions[0][0]._saved_self
    np.testing.assert_array_equal(kept.array, X[1:])
    assert kept is view
    del kept, view
    gc.collect()
    kept = loss.grad_fn.next_functions[0][0]._saved_self
    np.testing.assert_array_equal(kept.array, X[1:])
    assert kept.is_view and kept.base is data
    loss.backward(retain_graph=True)
    kept.mul_(2.0)  # it shares what it is a view of
    np.testing.assert_array_equal(data.array[1:], 2 * X[1:])
    with pytest.raises(GradientError, match="inplace operation"):
        loss.backward()
    view = fad.tensor(X)[1:]
    fad.jit(lambda d: d * 2.0, donate_argnums=0)(view.base)
    np.testing.assert_array_equal(view.array, X[1:])


def test_hooks_for_saved_values_get_the_values():
    seen = []
    w = fad.tensor(X, requires_grad=True)
    with fad.autograd.saved_tensors_hooks(
        lambda t: seen.append(t.shape) or np.asarray(t.detach().array), fad.asarray
    ):
        loss = fnp.sum(fad.tensor(X)[1:] * w[1:])
    assert (63, 128) in seen
    loss.backward()
    np.testing.assert_allclose(w.grad.array[1:], X[1:])


def test_another_thread_and_other_settings():
    w = fad.tensor(X, requires_grad=True)
    for _ in range(4):
        losses = [fnp.sum(fad.tensor(X)[1:].T * w[1:].T * (w[1:].T > 0)) for _ in range(2)]
        found = []

        def work(loss=losses[0], found=found):
            loss.backward()
            found.append(np.array(w.grad.array))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        w.grad = None
        with jax.enable_x64(True):
            losses[1].backward()
        np.testing.assert_allclose(found[0], w.grad.array)
        np.testing.assert_allclose(w.grad.array[1:], X[1:] * (X[1:] > 0))
        w.grad = None


def test_views_in_transforms_and_traces():
    def f(x, data):
        return fnp.sum(data[1:] * x[1:] * x[1:])

    wanted = np.concatenate([0 * X[:1], 2.0 * X[1:] * X[1:]])
    data = fad.tensor(X)
    for _ in range(4):
        np.testing.assert_allclose(fad.grad(f)(X, data), wanted, rtol=1e-5)
        np.testing.assert_allclose(fad.jit(fad.grad(f))(X, X), wanted, rtol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.grad(fad.to_jax(f)))(X, X), wanted, rtol=1e-5)
        leaf = fad.tensor(X, requires_grad=True)
        _, t = fad.jvp(lambda d: fad.grad(f)(X, d), (X,), (X,))
        np.testing.assert_allclose(t, wanted, rtol=1e-5)
        both = fad.vmap(lambda d: f(leaf, d))(jnp.stack([X, 0 * X]))
        (g,) = fad.autograd.grad(both[0], leaf)
        np.testing.assert_allclose(g.array, wanted, rtol=1e-5)


def test_hooks_on_one_saved_view():
    w = fad.tensor(X, requires_grad=True)
    loss = fnp.sum(fad.tensor(X)[1:] * w[1:])
    node = loss.grad_fn.next_functions[0][0]
    shapes = []
    node._raw_saved_self.register_hooks(lambda t: shapes.append(t.shape) or t, lambda t: t * 3.0)
    loss.backward()
    assert shapes == [(63, 128)]
    np.testing.assert_allclose(w.grad.array[1:], 3.0 * X[1:], rtol=1e-6)


def test_views_with_a_history_lead_on():
    """A second derivative goes through the view that a node saved, into its base."""
    x = fad.tensor(X, requires_grad=True)
    y = (x * 2.0)[1:]
    y.retain_grad()
    loss = fnp.sum(y * y * y)
    (g,) = fad.autograd.grad(loss, x, create_graph=True)
    np.testing.assert_allclose(g.array[1:], 24.0 * X[1:] ** 2, rtol=1e-5)
    fnp.sum(g * g).backward()
    np.testing.assert_allclose(x.grad.array[1:], 2 * 24.0 * 48.0 * X[1:] ** 3, rtol=1e-5)


def test_a_view_that_was_made_a_leaf():
    base = fad.tensor(X)
    leaf = base[1:].requires_grad_()
    fnp.sum(leaf * leaf).backward()
    np.testing.assert_allclose(leaf.grad.array, 2 * X[1:])


def test_one_graph_again_and_again_with_views():
    """Its pass is compiled, and what is remembered of it knows which values were views."""
    w = fad.tensor(X, requires_grad=True)
    data = fad.tensor(X)
    with fad.autograd.compiled(wait=True):
        loss = fnp.sum(fnp.sin(data[1:] * w[1:]) * data[:-1])
        for _ in range(5):
            w.grad = None
            loss.backward(retain_graph=True)
            np.testing.assert_allclose(
                w.grad.array[1:], np.cos(X[1:] * X[1:]) * X[1:] * X[:-1], rtol=1e-4, atol=1e-6
            )
        other = fnp.sum(fnp.sin(fad.tensor(X[1:]) * w[1:]) * fad.tensor(X[:-1]))  # no views saved
        for _ in range(5):
            w.grad = None
            other.backward(retain_graph=True)
            np.testing.assert_allclose(
                w.grad.array[1:], np.cos(X[1:] * X[1:]) * X[1:] * X[:-1], rtol=1e-4, atol=1e-6
            )


def test_a_graph_with_views_is_freed_without_the_collector():
    gc.collect()
    before = bytes_alive()
    gc.disable()
    try:
        w = fad.tensor(X, requires_grad=True)
        loss = fnp.sum(fad.tensor(X)[1:] * w[1:])
        assert float(loss) != 0.0
        del loss, w
        assert bytes_of_arrays() - before < X.nbytes
    finally:
        gc.enable()


def test_a_view_that_is_made_a_leaf_after_it_was_saved():
    """The second derivative reaches it, as in PyTorch."""
    view = fad.tensor(X)[1:]
    w = fad.tensor(X[1:], requires_grad=True)
    loss = fnp.sum(view * w)
    view.requires_grad_()
    (g,) = fad.autograd.grad(loss, w, create_graph=True)
    (h,) = fad.autograd.grad(fnp.sum(g * g), view)
    np.testing.assert_allclose(h.array, 2 * X[1:])


@pytest.mark.parametrize("sync", [lambda v: fnp.sum(v), lambda v: v.array, lambda v: v.mul_(10.0)])
def test_a_step_that_is_recorded_after_a_write(sync):
    """What ran as one program, and is recorded when its node is read, raises if its operand was changed."""
    data = X[:64, :64].copy()
    base = fad.tensor(data)
    view = base[1:]
    w = fad.tensor(data[1:], requires_grad=True)
    for _ in range(8):
        w.grad = None
        y = fnp.sin(w) * view
        loss, aside = fnp.sum(y * y), w * view
        loss.backward()
    base.mul_(10.0)
    sync(view)
    with pytest.raises(GradientError, match="inplace operation"):
        fad.autograd.grad(fnp.sum(aside), w)


def test_pieces_share_a_program():
    """Batches that are pieces of one array: a program for each would be compiled otherwise."""
    data = fad.tensor(np.stack([X] * 12))
    w = fad.tensor(X, requires_grad=True)
    for cut in (lambda d: fnp.split(d, 12), lambda d: [d[k] for k in range(12)]):
        fad.autograd.compiled.clear_cache()
        for piece in cut(data):
            w.grad = None
            fnp.sum(fnp.sin(piece.reshape(64, 128) * w) * piece.reshape(64, 128)).backward()
            np.testing.assert_allclose(w.grad.array, X * X * np.cos(X * X), rtol=2e-4, atol=1e-6)
        assert fad.autograd.compiled.cache_info()["compiled"] <= 3


def test_a_base_that_was_given_away():
    w = fad.tensor(X[1:], requires_grad=True)
    base = fad.tensor(X)
    loss = fnp.sum(base[1:] * w)
    fad.jit(lambda d: d * 2.0, donate_argnums=0)(base)
    with pytest.raises(GradientError, match=r"float32 \[63, 128\].*donated or deleted"):
        loss.backward()


def test_a_base_that_is_written_to_is_not_kept_in_every_version():
    w = fad.tensor(X, requires_grad=True)
    data = fad.tensor(np.stack([X] * 20))
    data[0] = 1.0
    before = bytes_alive()
    losses = []
    for k in range(10):
        losses.append(fnp.sum(data[k] * w))
        with fad.no_grad():
            data[k + 1] = 1.0
    assert all([float(x) == float(x) for x in losses])
    assert bytes_alive() - before < 2 * 20 * X.nbytes


def test_a_step_that_is_recorded_again_with_plain_operands():
    """Operands that were neither viewed nor written to, nor need a gradient."""
    data, w = fad.tensor(X[:4]), fad.tensor(X[:4], requires_grad=True)
    for _ in range(8):
        w.grad = None
        y = fnp.sin(w) * data
        loss, aside = fnp.sum(y * y), w * data
        loss.backward()
    (g,) = fad.autograd.grad(fnp.sum(aside), w)
    np.testing.assert_allclose(g.array, X[:4])
