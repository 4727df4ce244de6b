"""Large gradients are written into saved values that nothing else refers to, and nothing else changes."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad.errors import GradientError
from fad.replay import compiled_backward, donation

SHAPE = (200, 150)  # large: its operations are not deferred
X = np.linspace(-1.0, 1.0, 30_000, dtype=np.float32).reshape(SHAPE)
TIMES = 6


@pytest.fixture(autouse=True)
def given(monkeypatch):
    """How many operands each pass would give away, if it knew no program that takes others."""
    fad.autograd.compiled.clear_cache()
    found = []

    donors = donation._donors

    def counted(large, values, alone):
        numbers = donors(large, values, alone)
        found.append(len(numbers))
        return numbers

    monkeypatch.setattr(donation, "_donors", counted)
    monkeypatch.setattr(donation, "LARGE", 1 << 14)
    with fad.autograd.compiled(wait=True):
        yield found


def net(x, w):
    h = fnp.tanh(x * w)
    return fnp.sum(fnp.exp(fnp.sin(h)) * x)


def gradients(f, *arrays, times=TIMES, keep=lambda *leaves: None):
    """Those of each of several passes, and what was kept of each."""
    leaves = [fad.tensor(a, requires_grad=True) for a in arrays]
    found, kept = [], []
    for _ in range(times):
        loss = f(*leaves)
        kept.append(keep(loss, *leaves))
        loss.backward()
        found.append([np.array(v.grad.array) for v in leaves])
        for v in leaves:
            v.grad = None
    return found, kept


def expected(f, *arrays):
    with fad.autograd.compiled(False):
        return gradients(f, *arrays, times=1)[0][0]


def same(found, wanted):
    for grads in found:
        for a, b in zip(grads, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_and_what_is_given_away(given):
    wanted = expected(net, X, X + 2.0)
    found, _ = gradients(net, X, X + 2.0)
    same(found, wanted)
    assert given[-1] == 2  # for two gradients, two of what tanh, sin and exp have saved


def test_complex_numbers_and_other_dtypes(given):
    def f(x, w):
        return fnp.sum(fnp.real(fnp.exp(fnp.sin(x * 2.0))) * fnp.tanh(w.astype(np.float32)))

    arrays = X + 1j * X, X.astype(np.float16)
    same(gradients(f, *arrays)[0], expected(f, *arrays))
    assert given[-1] > 0


def test_referenced_values_are_not_donated(given):
    """A Tensor in the middle, its array, NumPy's view of it, a detached Tensor, an output that is a view."""
    ways = {
        "tensor": lambda h: h,
        "array": lambda h: h.array,
        "numpy": lambda h: h.detach().numpy(),
        "detached": lambda h: h.detach(),
        "view": lambda h: h[1:],
        "base": lambda h: h.reshape(-1)[1:],
        "to": lambda h: h.detach().to(jax.devices()[0]),
        "device_put": lambda h: jax.device_put(h.detach().array, jax.devices()[0]),
        "part": lambda h: h.detach().array.addressable_data(0),
    }
    for way in ways.values():
        kept = []

        def f(x, way=way, kept=kept):
            h = fnp.tanh(x)
            kept.append(way(h))
            return fnp.sum(h * h)

        (wanted,) = expected(f, X)
        whole = np.asarray(way(fad.asarray(jnp.tanh(X))))
        kept.clear()
        leaf = fad.tensor(X, requires_grad=True)
        for _ in range(TIMES):
            f(leaf).backward()
            np.testing.assert_allclose(leaf.grad.array, wanted, rtol=1e-5, atol=1e-6)
            leaf.grad = None
        for h in kept:
            value = h.detach() if isinstance(h, fad.Tensor) else h
            np.testing.assert_allclose(np.asarray(value), whole, rtol=1e-6)


def test_a_graph_that_is_kept_gives_nothing_away(given):
    leaf = fad.tensor(X, requires_grad=True)
    for _ in range(TIMES):
        loss = fnp.sum(fnp.exp(fnp.tanh(leaf)))
        loss.backward(retain_graph=True)
        assert not given
        once = np.array(leaf.grad.array)
        loss.backward()
        np.testing.assert_allclose(leaf.grad.array, 2.0 * once, rtol=1e-5)
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()
        leaf.grad = None
        given.clear()


def test_a_value_that_two_graphs_have_saved(given):
    leaf = fad.tensor(X, requires_grad=True)
    for _ in range(TIMES):
        h = fnp.tanh(leaf)
        first, second = fnp.sum(fnp.exp(h)), fnp.sum(h * h)
        del h
        fad.autograd.grad(first, leaf, retain_graph=True)
        first.backward(inputs=[leaf])
        leaf.grad = None
        with pytest.raises(GradientError, match="a second time"):
            second.backward()
        g = fad.autograd.grad(fnp.sum(fnp.exp(fnp.tanh(leaf))), leaf)[0]
        t = np.tanh(X)
        np.testing.assert_allclose(g.array, np.exp(t) * (1.0 - t * t), rtol=1e-4, atol=1e-6)


def test_transforms_and_traces_around(given):
    def f(x):
        return fnp.sum(fnp.exp(fnp.tanh(x)))

    t = np.tanh(X)
    wanted = np.exp(t) * (1.0 - t * t)

    def taped(x):
        leaf = fad.tensor(x, requires_grad=True)
        f(leaf).backward()
        return leaf.grad.array

    for _ in range(TIMES):
        np.testing.assert_allclose(fad.grad(f)(X), wanted, rtol=1e-4, atol=1e-6)
        both = fad.vmap(fad.grad(f))(np.stack([X, X]))
        np.testing.assert_allclose(both[1], wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.jit(taped)(X), wanted, rtol=1e-4, atol=1e-6)


def test_a_pass_that_fails_before_it_runs_has_freed_nothing(monkeypatch):
    leaf = fad.tensor(X, requires_grad=True)

    def fails(*args):
        raise RuntimeError("no trace")

    monkeypatch.setattr(jax, "eval_shape", fails)
    for _ in range(TIMES):  # node by node
        loss = fnp.sum(fnp.exp(fnp.tanh(leaf)))
        loss.backward()
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()
    t = np.tanh(X)
    np.testing.assert_allclose(leaf.grad.array, TIMES * np.exp(t) * (1.0 - t * t), rtol=1e-4)


def test_a_program_that_cannot_be_compiled_is_not_needed(monkeypatch):
    real = jax.jit

    def fails(f, **options):
        if options.get("donate_argnums"):
            raise MemoryError("too large")
        return real(f, **options)

    def f(x):
        return fnp.sum(fnp.exp(fnp.tanh(x)))

    monkeypatch.setattr(jax, "jit", fails)
    same(gradients(f, X)[0], expected(f, X))


def test_data_that_shares_its_memory(given):
    leaf = fad.tensor(X, requires_grad=True)
    data = jnp.asarray(X) + 1.0
    for _ in range(TIMES):
        fnp.sum(leaf * jax.device_put(data, jax.devices()[0])).backward()
        h = fnp.tanh(leaf)
        k = h.detach().to(jax.devices()[0])
        loss = fnp.sum(fnp.exp(h) * k)
        del h, k
        loss.backward()
        leaf.grad = None
    np.testing.assert_allclose(data, X + 1.0)


def test_numbers_that_are_not():
    leaf = fad.tensor(X, requires_grad=True)
    for _ in range(TIMES):
        fnp.sum(fnp.tanh(leaf) * float("nan")).backward()
        assert np.isnan(leaf.grad.array).all()


def test_which_values_are_referenced_may_change(given):
    """No more programs are compiled than a few."""
    leaf = fad.tensor(X, requires_grad=True)
    rng = np.random.default_rng(0)
    wanted = None
    for _ in range(24):
        kept, h = [], leaf
        for k in range(8):
            h = fnp.tanh(fnp.sin(h))
            if k >= rng.integers(8):
                kept.append(h)
        leaf.grad = None
        fnp.sum(h * h).backward()
        wanted = np.array(leaf.grad.array) if wanted is None else wanted
        np.testing.assert_allclose(leaf.grad.array, wanted, rtol=1e-4, atol=1e-6)
    (entry,) = [e for e in structures_with_programs() if e.donating]
    assert 0 < len(entry.donating) <= donation.PATTERNS


def structures_with_programs():
    return compiled_backward.structures.values()


def test_threads(given):
    wanted = expected(net, X, X + 2.0)
    failed = []

    def work():
        try:
            same(gradients(net, X, X + 2.0)[0], wanted)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_several_devices():
    """Where a value is on another device, or in parts, nothing is donated."""
    first, *_, last = jax.devices()
    mesh = jax.make_mesh((2,), ("i",), devices=[first, last])
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    wanted = expected(net, X, X + 2.0)
    for where in (last, spread):
        arrays = [jax.device_put(a, where) for a in (X, X + 2.0)]
        same(gradients(net, *arrays)[0], wanted)
