"""The eager tape: requires_grad, backward, autograd.grad and the grad modes, as PyTorch has them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, bare, is_idle

import fad
import fad.numpy as fnp
from fad.errors import FadError, GradientError


def leaf(data: Any) -> fad.Tensor:
    return fad.tensor(data, requires_grad=True)


# Leaves and histories


def test_tensors_do_not_require_grad_unless_asked() -> None:
    assert not fad.tensor(1.0).requires_grad
    assert not fad.asarray(jnp.ones(2)).requires_grad
    x = leaf([1.0, 2.0])
    assert x.requires_grad and x.is_leaf and x.grad_fn is None and x.grad is None


def test_what_is_computed_from_a_tracked_tensor_is_tracked() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2.0
    assert y.requires_grad and not y.is_leaf and y.output_nr == 0
    assert type(y.grad_fn).__name__ and "Mul" in y.grad_fn.name()
    assert not fad.tensor(3.0).requires_grad and (fad.tensor(3.0) * x).requires_grad


def test_integer_results_are_not_tracked() -> None:
    x = leaf([1.0, 2.0])
    for y in (x > 1.0, fnp.argmax(x), x.astype(int), fnp.sign(x).astype(bool)):
        assert not y.requires_grad and y.is_leaf


def test_requires_grad_needs_a_dtype_with_derivatives() -> None:
    for data in ([1, 2], [True, False]):
        with pytest.raises(TypeError, match=r"floating or complex.*got (int32|bool)"):
            fad.tensor(data, requires_grad=True)
    assert fad.tensor([1j], requires_grad=True).requires_grad


def test_requires_grad_is_switched_on_leaves_only() -> None:
    x = fad.tensor([1.0])
    assert x.requires_grad_() is x and x.requires_grad
    assert not x.requires_grad_(False).requires_grad
    y = leaf([1.0]) * 2.0
    assert y.requires_grad_() is y
    with pytest.raises(GradientError, match=r"leaf.*detach"):
        y.requires_grad_(False)


def test_detach_and_stop_gradient_cut_history() -> None:
    x = leaf([1.0, 2.0])
    y = x * x
    for cut in (y.detach(), fad.stop_gradient(y), fad.stop_gradient({"y": y})["y"]):
        assert not cut.requires_grad and cut.is_leaf
        assert_close(cut, y)
    (x * y.detach()).sum().backward()
    assert_close(x.grad, np.array([1.0, 4.0], np.float32))


def test_clone_keeps_history() -> None:
    x = leaf([1.0, 2.0])
    y = x.clone()
    assert y is not x and y.requires_grad and not y.is_leaf
    y.sum().backward()
    assert_close(x.grad, np.ones(2, np.float32))


# backward


def test_backward_accumulates() -> None:
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    assert_close(x.grad, np.array([2.0, 4.0], np.float32))
    (3.0 * x).sum().backward()
    assert_close(x.grad, np.array([5.0, 7.0], np.float32))
    assert not x.grad.requires_grad
    x.grad = None
    (3.0 * x).sum().backward()
    assert_close(x.grad, np.array([3.0, 3.0], np.float32))


def test_backward_fills_every_leaf_it_reaches() -> None:
    x, w, unused, constant = leaf([1.0, 2.0]), leaf(3.0), leaf(1.0), fad.tensor([5.0, 6.0])
    (x * w * constant).sum().backward()
    assert_close(x.grad, np.array([15.0, 18.0], np.float32))
    assert_close(w.grad, np.float32(17.0))
    assert unused.grad is None and constant.grad is None


def test_backward_takes_a_cotangent() -> None:
    x = leaf([1.0, 2.0])
    (x * x).backward(fad.tensor([1.0, 10.0]))
    assert_close(x.grad, np.array([2.0, 40.0], np.float32))
    (x * x).backward(jnp.array([1.0, 0.0]))
    assert_close(x.grad, np.array([4.0, 40.0], np.float32))


def test_backward_of_a_leaf_gives_it_its_cotangent() -> None:
    x = leaf(3.0)
    x.backward()
    assert_close(x.grad, np.float32(1.0))
    fad.autograd.backward(x, fad.tensor(4.0))
    assert_close(x.grad, np.float32(5.0))


def test_backward_from_several_roots() -> None:
    x = leaf(2.0)
    a, b = x * x, fnp.exp(x)
    fad.autograd.backward([a, b], [None, fad.tensor(2.0)])
    np.testing.assert_allclose(bare(x.grad), 4.0 + 2.0 * np.exp(2.0), rtol=1e-6)


def test_backward_from_a_root_that_another_root_leads_to() -> None:
    x = leaf(2.0)
    y = x * x
    z = y * y
    fad.autograd.backward([y, z])
    assert_close(x.grad, np.float32(4.0 + 32.0))


def test_backward_into_named_inputs_only() -> None:
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    (y * y).backward(inputs=[w])
    assert x.grad is None
    assert_close(w.grad, np.float32(24.0))
    y = x * w
    (y * y).backward(inputs=y)
    assert_close(y.grad, np.float32(12.0))
    assert x.grad is None


def test_a_value_used_in_many_places_gets_the_sum() -> None:
    x = leaf(2.0)
    y = fnp.sin(x)
    z = y * y + y / x - fnp.where(x > 1.0, y, x)
    z.backward()
    expected = jax.grad(lambda x: jnp.sin(x) ** 2 + jnp.sin(x) / x - jnp.sin(x))(2.0)
    assert_close(x.grad, expected)


def test_the_gradient_of_an_unreached_output_is_zero() -> None:
    x = leaf([3.0, 1.0, 2.0])
    parts = fnp.split(x, 3)
    (parts[1] * 2.0).sum().backward()
    assert_close(x.grad, np.array([0.0, 2.0, 0.0], np.float32))


def test_gradients_have_the_dtype_of_their_leaf() -> None:
    x = fad.tensor([1.0, 2.0], dtype=jnp.bfloat16, requires_grad=True)
    w = leaf([3.0, 4.0])
    (x * w).sum().backward()
    assert x.grad.dtype == jnp.bfloat16 and w.grad.dtype == np.float32


def test_a_long_chain_does_not_recurse() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(5_000):
        y = y * 1.0
    y.backward()
    assert_close(x.grad, np.float32(1.0))
    del y  # freeing it does not recurse either
    gc.collect()


def test_a_graph_is_freed_with_its_last_tensor() -> None:
    x = leaf(1.0)
    y = fnp.sin(x) * x
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_a_graph_can_be_freed_without_the_garbage_collector() -> None:
    class Cube(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            x, _ = ctx.saved_tensors
            return 3.0 * x * x * g

    gc.disable()
    try:
        x = leaf(2.0)
        y = Cube.apply(x)
        node = weakref.ref(y.grad_fn)
        y.backward()
        del y
        assert node() is None
    finally:
        gc.enable()
    assert_close(x.grad, np.float32(12.0))


def test_threads_accumulate_without_loss() -> None:
    x = leaf(np.zeros(4, np.float32))

    def work(k: int) -> None:
        for _ in range(20):
            (x * float(k)).sum().backward()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert_close(x.grad, np.full(4, 20.0 * 28.0, np.float32))


# A second pass


def test_a_second_backward_raises_and_says_what_to_pass() -> None:
    x = leaf([1.0, 2.0])
    y = fnp.sin(x).sum()
    y.backward()
    with pytest.raises(GradientError, match=r"second time.*retain_graph=True"):
        y.backward()
    with pytest.raises(GradientError, match="second time"):
        fad.autograd.grad(y, x)
    assert is_idle()


def test_retain_graph_keeps_the_graph() -> None:
    x = leaf(2.0)
    y = fnp.exp(x)
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(bare(x.grad), 2 * np.exp(2.0), rtol=1e-6)
    with pytest.raises(GradientError, match="second time"):
        y.backward()


def test_only_the_part_that_ran_is_freed() -> None:
    x, w = leaf(2.0), leaf(3.0)
    a, b = fnp.sin(x), fnp.cos(w)
    y = a * b
    fad.autograd.grad(y, w)
    # The pass for w did not need the sine.
    a.backward()
    np.testing.assert_allclose(bare(x.grad), np.cos(2.0), rtol=1e-6)


def test_a_backward_that_fails_leaves_no_trace() -> None:
    class Broken(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            raise KeyError("on purpose")

    x = leaf(1.0)
    with pytest.raises(KeyError, match="on purpose"):
        Broken.apply(x).backward()
    with pytest.raises(KeyError, match="on purpose"), fad.no_grad(), fad.enable_grad():
        fad.autograd.grad(Broken.apply(x), x, create_graph=True)
    assert is_idle() and x.grad is None


# autograd.grad


def test_grad_returns_and_does_not_accumulate() -> None:
    x, w = leaf(2.0), leaf(3.0)
    got = fad.autograd.grad(x * x * w, [x, w])
    assert isinstance(got, tuple)
    assert_close(got, (np.float32(12.0), np.float32(4.0)))
    assert x.grad is None and w.grad is None
    assert not got[0].requires_grad


def test_grad_with_respect_to_an_intermediate() -> None:
    x = leaf(2.0)
    y = x * x
    z = fnp.exp(y)
    (gy,) = fad.autograd.grad(z, y, retain_graph=True)
    np.testing.assert_allclose(bare(gy), np.exp(4.0), rtol=1e-6)
    gx, gy, gz = fad.autograd.grad(z, (x, y, z))
    np.testing.assert_allclose(bare([gx, gy, gz]), [4 * np.exp(4.0), np.exp(4.0), 1.0], rtol=1e-6)


def test_grad_of_several_outputs_adds_up() -> None:
    x = leaf([1.0, 2.0])
    (g,) = fad.autograd.grad([x * x, x.sum()], x, [fad.tensor([1.0, 10.0]), None])
    assert_close(g, np.array([3.0, 41.0], np.float32))


def test_create_graph_gives_gradients_with_a_history() -> None:
    x = leaf(0.7)
    expected = [np.cos(0.7), -np.sin(0.7), -np.cos(0.7), np.sin(0.7)]
    y = fnp.sin(x)
    for value in expected:
        (y,) = fad.autograd.grad(y, x, create_graph=True)
        assert y.requires_grad
        np.testing.assert_allclose(bare(y), value, rtol=1e-5)


def test_backward_with_create_graph() -> None:
    x = leaf(2.0)
    (x * x * x).backward(create_graph=True)
    assert x.grad.requires_grad
    first = x.grad
    x.grad = None
    first.backward()
    assert_close(x.grad, np.float32(12.0))


def test_a_gradient_penalty() -> None:
    """The norm of a gradient as part of a loss, a classical use of create_graph."""

    def loss(xp: Any, w: Any, x: Any) -> Any:
        return xp.sum(xp.tanh(x @ w) ** 2)

    w, x = leaf(np.linspace(-1.0, 1.0, 6).reshape(3, 2)), fad.tensor([[0.1, 0.2, 0.3]])
    (g,) = fad.autograd.grad(loss(fnp, w, x), w, create_graph=True)
    ((g * g).sum() + loss(fnp, w, x)).backward()

    def total(w: Any) -> Any:
        g = jax.grad(lambda w: loss(jnp, w, x.array))(w)
        return jnp.sum(g * g) + loss(jnp, w, x.array)

    assert_close(w.grad, jax.grad(total)(w.array))


def test_unused_inputs() -> None:
    x, unused = leaf(2.0), leaf([1.0, 1.0])

    def y() -> Any:
        return x * x

    with pytest.raises(GradientError, match=r"index 1.*not have been used.*allow_unused=True"):
        fad.autograd.grad(y(), [x, unused])
    g, none = fad.autograd.grad(y(), [x, unused], allow_unused=True)
    assert none is None and float(g) == 4.0
    g, zero = fad.autograd.grad(y(), [x, unused], materialize_grads=True)
    assert_close((g, zero), (np.float32(4.0), np.zeros(2, np.float32)))
    with pytest.raises(ValueError, match=r"materialize_grads=True.*allow_unused=False"):
        fad.autograd.grad(y(), x, allow_unused=False, materialize_grads=True)


def test_batched_cotangents_give_a_jacobian() -> None:
    x = leaf([0.5, 1.5])

    def f(xp: Any, x: Any) -> Any:
        return xp.stack([xp.sin(x[0]) * x[1], x[0] * x[1] ** 2, x[1]])

    expected = jax.jacobian(lambda x: f(jnp, x))(x.array)
    y = f(fnp, x)
    (rows,) = fad.autograd.grad(y, x, fnp.eye(3), is_grads_batched=True, retain_graph=True)
    assert_close(rows, expected)
    assert isinstance(rows, fad.Tensor) and not rows.requires_grad
    (rows,) = fad.autograd.grad(y, x, fad.tensor(np.eye(3)), is_grads_batched=True)
    assert_close(rows, expected)


def test_batched_cotangents_with_create_graph() -> None:
    x = leaf([0.5, 1.5])
    y = fnp.sin(x) * x
    (rows,) = fad.autograd.grad(y, x, fnp.eye(2), is_grads_batched=True, create_graph=True)
    assert rows.requires_grad
    (g,) = fad.autograd.grad((rows * rows).sum(), x)

    def total(x: Any) -> Any:
        j = jax.jacobian(lambda x: jnp.sin(x) * x)(x)
        return jnp.sum(j * j)

    assert_close(g, jax.grad(total)(x.array))


def test_batched_cotangents_of_several_outputs_and_unused_inputs() -> None:
    x, unused = leaf(2.0), leaf([1.0])
    got = fad.autograd.grad(
        [x * x, x],
        [x, unused],
        [fad.tensor([1.0, 0.0]), fad.tensor([0.0, 1.0])],
        is_grads_batched=True,
        materialize_grads=True,
    )
    assert_close(got, (np.array([4.0, 1.0], np.float32), np.zeros((2, 1), np.float32)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: (x * x).backward(), ["scalar outputs", r"\(2,\)", "y.sum()"]),
        (
            lambda x: (x * x).backward(fad.tensor([1.0])),
            ["Mismatch in shape", r"\(1,\)", r"\(2,\)"],
        ),
        (lambda x: x.detach().sum().backward(), ["does not require grad", "requires_grad=True"]),
        (lambda x: x.sum().backward(inputs=[]), ["cannot be empty"]),
        (lambda x: fad.autograd.backward([x.sum()], [None, None]), ["1 tensors", "2 gradients"]),
        (lambda x: fad.autograd.grad(x.sum(), x.detach()), ["input 0", "requires_grad_()"]),
        (
            lambda x: fad.autograd.grad(x, x, is_grads_batched=True),
            ["is_grads_batched=True", "grad_outputs"],
        ),
        (
            lambda x: fad.autograd.grad(x, x, fad.tensor(1.0), is_grads_batched=True),
            ["leading batch dimension"],
        ),
    ],
)
def test_bad_calls_say_what_to_pass(call: Callable[[Any], Any], words: list[str]) -> None:
    with pytest.raises(GradientError) as caught:
        call(leaf([1.0, 2.0]))
    for word in words:
        assert word.replace("\\", "") in str(caught.value)
    assert is_idle()


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"output 0 must be a Tensor, got float 3\.0"):
        fad.autograd.backward(3.0)
    with pytest.raises(TypeError, match="input 0 must be a Tensor"):
        fad.autograd.grad(leaf(1.0) * 2.0, 3.0)


def test_the_input_of_a_gradient_must_be_of_the_outputs_level() -> None:
    w = leaf(2.0)

    def f(x: Any) -> Any:
        return fad.autograd.grad(x * w, w, allow_unused=True)[0]

    # None or a constant would be wrong without a word: the result depends on x.
    with pytest.raises(GradientError, match=r"level.*inside"):
        fad.grad(f)(1.0)
    with pytest.raises(GradientError, match=r"level.*inside"):
        fad.vmap(lambda x: (x * w).backward())(jnp.ones(2))
    assert is_idle() and w.grad is None


# Grad modes


def test_no_grad_and_enable_grad() -> None:
    x = leaf(1.0)
    with fad.no_grad():
        assert not fad.is_grad_enabled()
        assert not (x * 2.0).requires_grad
        with fad.enable_grad():
            assert fad.is_grad_enabled() and (x * 2.0).requires_grad
        assert not (x * 2.0).requires_grad
    assert fad.is_grad_enabled() and (x * 2.0).requires_grad


def test_set_grad_enabled_is_a_call_and_a_block() -> None:
    x = leaf(1.0)
    with fad.set_grad_enabled(False):
        assert not (x * 2.0).requires_grad
        with fad.set_grad_enabled(True):
            assert (x * 2.0).requires_grad
    assert fad.is_grad_enabled()
    fad.set_grad_enabled(False)
    try:
        assert not fad.is_grad_enabled() and not (x * 2.0).requires_grad
    finally:
        fad.set_grad_enabled(True)
    assert fad.is_grad_enabled()


def test_inference_mode() -> None:
    x = leaf(1.0)
    with fad.inference_mode():
        assert not (x * 2.0).requires_grad
        with fad.inference_mode(False):
            pass
        assert not fad.is_grad_enabled()
    assert (x * 2.0).requires_grad


MODES = {
    "no_grad": fad.no_grad,
    "no_grad()": fad.no_grad(),
    "inference_mode": fad.inference_mode,
    "inference_mode()": fad.inference_mode(),
    "set_grad_enabled": lambda f: fad.set_grad_enabled(False)(f),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_decorate_functions(mode: Any) -> None:
    x = leaf(1.0)

    @mode
    def double(x: Any, *, scale: float = 2.0) -> Any:
        """Doc."""
        return x * scale

    assert double.__name__ == "double" and double.__doc__ == "Doc."
    assert not double(x, scale=3.0).requires_grad
    assert not double(x).requires_grad  # more than once
    assert fad.is_grad_enabled() and (x * 2.0).requires_grad


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_decorate_generators(mode: Any) -> None:
    x = leaf(1.0)
    seen = []

    @mode
    def steps(x: Any) -> Generator[Any, float | None, str]:
        scale: float | None = None
        try:
            while scale != 0.0:
                try:
                    scale = yield x * (1.0 if scale is None else scale)
                except KeyError:
                    seen.append(fad.is_grad_enabled())
                    scale = 5.0
        finally:
            seen.append(fad.is_grad_enabled())
        return "end"

    g = steps(x)
    first = next(g)
    assert not first.requires_grad and fad.is_grad_enabled()  # suspended: the mode is off
    assert not g.send(3.0).requires_grad and fad.is_grad_enabled()
    assert float(g.throw(KeyError())) == 5.0
    with pytest.raises(StopIteration) as stop:
        g.send(0.0)
    assert stop.value.value == "end"
    g = steps(x)
    next(g)
    g.close()
    assert seen == [False, False, False]
    assert [not v.requires_grad for v, _ in zip(steps(x), range(2))] == [True, True]
    assert fad.is_grad_enabled()


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_decorate_coroutines(mode: Any) -> None:
    x = leaf(1.0)
    inside: list[bool] = []

    @mode
    async def work(x: Any) -> Any:
        inside.append(fad.is_grad_enabled())
        await asyncio.sleep(0.001)
        inside.append(fad.is_grad_enabled())
        return x * 2.0

    async def other() -> None:
        for _ in range(5):
            assert fad.is_grad_enabled() and (x * 2.0).requires_grad
            await asyncio.sleep(0)

    async def both() -> Any:
        result, _ = await asyncio.gather(work(x), other())
        return result

    assert not asyncio.run(both()).requires_grad
    assert inside == [False, False]
    assert is_idle()


def test_modes_are_restored_after_an_exception() -> None:
    @fad.no_grad()
    def fails() -> None:
        raise KeyError

    for action in (fails, lambda: fad.no_grad()(fails)()):
        with pytest.raises(KeyError):
            action()
        assert is_idle()
    with pytest.raises(KeyError), fad.no_grad(), fad.enable_grad(), fad.inference_mode():
        raise KeyError
    assert is_idle()


def test_one_mode_object_may_be_entered_again() -> None:
    mode = fad.no_grad()
    with mode, fad.enable_grad(), mode:
        assert not fad.is_grad_enabled()
    assert fad.is_grad_enabled()


def test_modes_belong_to_their_thread() -> None:
    seen: dict[str, bool] = {}
    inside, done = threading.Event(), threading.Event()

    def work() -> None:
        with fad.no_grad():
            inside.set()
            done.wait(30)
            seen["child"] = fad.is_grad_enabled()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(30)
    seen["parent"] = fad.is_grad_enabled()
    done.set()
    thread.join()
    assert seen == {"child": False, "parent": True}


def test_a_graph_made_in_one_thread_runs_in_another() -> None:
    x = leaf(2.0)
    y = x * x
    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.backward).result()
    assert_close(x.grad, np.float32(4.0))


# PyTorch itself


def programs() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Scalar functions of x (3), w (3, 2) and z (2, complex), in a namespace both libraries have."""
    yield "arithmetic", lambda xp, x, w, z: ((x * 2 - 1) / (x * x + 1)).sum() + (-x).sum() ** 2
    yield "elementwise", lambda xp, x, w, z: (xp.sin(x) * xp.exp(w[:, 0]) + xp.tanh(x)).sum()
    yield "broadcast", lambda xp, x, w, z: (x[:, None] * w + w.sum(0)).sum() * x.mean()
    yield "matmul", lambda xp, x, w, z: ((x @ w) ** 2).sum()
    yield "indexing", lambda xp, x, w, z: (x[1:] * x[:-1]).sum() + w[[0, 2], [1, 0]].sum() * x[-1]
    yield "where", lambda xp, x, w, z: xp.where(x > 0.5, x * x, xp.sin(x)).sum() + w.sum()
    yield "maximum", lambda xp, x, w, z: (xp.maximum(x, w[:, 1]) * x).sum()
    yield "ties", lambda xp, x, w, z: (xp.maximum(x, x * 1) * x).sum()
    yield "abs at zero", lambda xp, x, w, z: xp.abs(x - x[1]).sum() + (w * w).sum()
    yield "stack", lambda xp, x, w, z: (xp.stack([x, w[:, 0], x * x]) ** 3).sum()
    yield "cumsum", lambda xp, x, w, z: (xp.cumsum(x, 0) * w[:, 0]).sum()
    yield "reshape", lambda xp, x, w, z: (w.reshape(2, 3) @ x).sum() + (w.T @ x).sum() ** 2
    yield "max", lambda xp, x, w, z: w.max() * x.min()
    yield "complex", lambda xp, x, w, z: xp.abs(z * z + z).sum() + (z * xp.conj(z)).real.sum()
    yield "complex parts", lambda xp, x, w, z: (z.real * xp.exp(z).imag).sum() * x.sum() + w.sum()


PROGRAMS = dict(programs())
VALUES = [
    np.array([0.3, 0.7, 1.1], np.float32),
    np.array([[0.5, -1.0], [0.25, 2.0], [1.5, 0.75]], np.float32),
    np.array([0.4 + 0.3j, -1.0 + 0.5j], np.complex64),
]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_pytorchs(torch: Any, program: Callable[..., Any]) -> None:
    mine = [leaf(v) for v in VALUES]
    theirs = [torch.tensor(v, requires_grad=True) for v in VALUES]
    y, t = program(fnp, *mine), program(torch, *theirs)
    assert_close(y, t.detach().numpy())
    first = fad.autograd.grad(y, mine, create_graph=True, allow_unused=True)
    expected = torch.autograd.grad(t, theirs, create_graph=True, allow_unused=True)
    assert [g is None for g in first] == [g is None for g in expected]
    pairs = [(g, e) for g, e in zip(first, expected, strict=True) if g is not None]
    for g, e in pairs:
        assert_close(g, e.detach().resolve_conj().numpy())
    # The gradient of a weighted sum of gradients: a second pass.
    pairs = [(g, e) for g, e in pairs if e.requires_grad]
    second = sum((fnp.abs(g * g) * 0.5).sum() + fnp.real(g).sum() for g, _ in pairs)
    other = sum((torch.abs(e * e) * 0.5).sum() + torch.real(e).sum() for _, e in pairs)
    second.backward()
    other.backward()
    for x, e in zip(mine, theirs, strict=True):
        if e.grad is not None:
            assert_close(x.grad, e.grad.resolve_conj().numpy(), rtol=1e-3)


def test_every_error_of_the_tape_is_fads() -> None:
    assert issubclass(GradientError, FadError) and issubclass(GradientError, RuntimeError)
