"""Grad modes and inference mode: around functions and generators, in threads and in transforms."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import assert_close, is_idle, leaf

import fad
import fad.numpy as fnp
from fad import autograd
from fad.errors import GradientError

X = jnp.array([0.3, -0.8, 1.2])


# Grad modes and transforms


def test_no_grad_around_a_transform_does_not_reach_into_it() -> None:
    x = fad.tensor(X, requires_grad=True)
    with fad.no_grad():
        g = fad.grad(lambda x: fnp.sum(fnp.sin(x)))(x)
        _, t = fad.jvp(fnp.sin, (x,), (x,))
        j = fad.jacrev(fnp.sin)(x)
        h = fad.grad(lambda x: fnp.sum(fad.grad(lambda v: fnp.sum(fnp.sin(v)))(x)))(x)
        _, push = fad.linearize(fnp.sin, x)
        p = push(x)
        assert not fad.is_grad_enabled()
    assert_close((g, t, h), (jnp.cos(X), jnp.cos(X) * X, -jnp.sin(X)))
    assert_close((j, p), (jnp.diag(jnp.cos(X)), jnp.cos(X) * X))
    assert not any(v.requires_grad for v in (g, t, j, h, p))


@pytest.mark.parametrize("transform", [fad.grad, fad.jacrev])
def test_no_grad_inside_is_obeyed_by_every_reverse_transform_around(transform: Any) -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            shift = fnp.sum(fnp.sin(x))
        return fnp.sum(x * x) - shift

    assert_close(transform(f)(X), 2.0 * X)
    # The two outer derivatives of the inner gradient see the constant too.
    assert_close(fad.jacrev(fad.grad(f))(X), 2.0 * jnp.eye(3))
    tape = fad.tensor(X, requires_grad=True)
    f(tape).backward()
    assert_close(tape.grad, 2.0 * X)


def test_no_grad_inside_does_not_stop_tangents() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            return fnp.sin(x)

    assert_close(fad.jvp(f, (X,), (X,))[1], jnp.cos(X) * X)
    assert_close(fad.jacfwd(f)(X), jnp.diag(jnp.cos(X)))
    assert_close(fad.linearize(f, X)[1](X), jnp.cos(X) * X)


def test_no_grad_between_two_levels() -> None:
    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            with fad.no_grad():  # for both
                c = x * y
            return fnp.sum(c * y * x)

        return fnp.sum(fad.grad(inner)(x))

    def in_jax(x: Any) -> Any:
        stop = jax.lax.stop_gradient
        inner = lambda y: jnp.sum(stop(x) * stop(y) * y * x)
        return jnp.sum(jax.grad(inner)(x))

    # x y is a constant in both derivatives, although y = x is one of them.
    def expected(x: Any) -> Any:
        c = jax.lax.stop_gradient(x) * jax.lax.stop_gradient(x)
        return jnp.sum(c * x)

    assert_close(fad.grad(outer)(X), jax.grad(expected)(X))
    del in_jax


def test_no_grad_between_the_levels_stops_only_the_outer() -> None:
    def f(x: Any) -> Any:
        with fad.no_grad():
            g = fad.grad(lambda y: fnp.sum(y**3))(x)
        return fnp.sum(g * x)

    # g = 3 x^2 is computed, and is a constant for the outer derivative.
    assert_close(fad.grad(f)(X), 3.0 * X**2)


def test_enable_grad_inside_a_transform_under_no_grad() -> None:
    x = fad.tensor(X, requires_grad=True)

    def f(v: Any) -> Any:
        with fad.no_grad(), fad.enable_grad():
            y = fnp.sin(v) * x
        return fnp.sum(y)

    with fad.no_grad():
        g = fad.grad(f)(x)
    assert_close(g, jnp.cos(X) * X)
    assert not g.requires_grad  # enable_grad inside restores f's level, not the tape around it


# Grad modes


def _scanned(f: Any) -> Any:
    return lambda x: fad.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


@pytest.mark.parametrize(
    ("called", "records"),
    [
        (lambda f: f, True),
        (fad.functionalize, True),
        (lambda f: lambda x: fad.vmap(f)(x), True),
        (lambda f: lambda x: fad.jvp(f, (x,), (x,))[0], True),
        (fad.jit, False),
        (fad.checkpoint, False),
        (_scanned, False),
        (lambda f: lambda x: fad.lax.cond(True, f, f, x), False),
    ],
)
def test_enable_grad_in_a_function_that_is_called_under_no_grad(called: Any, records: bool) -> None:
    def f(x: Any) -> Any:
        with fad.enable_grad():
            return fnp.sin(x)

    x = leaf([1.0, 2.0])
    with fad.no_grad():
        assert called(f)(x).requires_grad is records
        with fad.enable_grad():
            assert called(f)(x).requires_grad


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
def test_modes_refuse_asynchronous_code(mode: Any) -> None:
    async def coroutine() -> None: ...

    async def generator() -> Any:
        yield 1.0

    for f in (coroutine, generator):
        with pytest.raises(TypeError, match=rf"{f.__name__} is asynchronous.* write `with fad\."):
            mode(f)
        with pytest.raises(TypeError, match="is asynchronous"):
            mode(functools.partial(f))
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


def test_modes_do_not_decorate_classes() -> None:
    with pytest.raises(TypeError, match="no_grad: decorate the methods of Model, not the class"):

        @fad.no_grad()
        class Model:
            pass


# Inference mode


def test_inference_tensors() -> None:
    x = leaf(2.0)
    with fad.inference_mode():
        assert autograd.is_inference_mode_enabled() and not fad.is_grad_enabled()
        y = x * x
        made = fad.asarray(jnp.ones(()))
        assert y.is_inference() and made.is_inference() and not y.requires_grad
    assert not autograd.is_inference_mode_enabled() and fad.is_grad_enabled()
    with pytest.raises(GradientError, match=r"(?s)cannot be saved for backward.*clone"):
        x * y
    with pytest.raises(GradientError, match="Setting requires_grad=True on inference tensor"):
        y.requires_grad_()
    with pytest.raises(GradientError, match="do not track version counter"):
        y.version
    assert y.detach().is_inference() and not y.clone().is_inference()
    assert not (y * 2.0).is_inference() and not (x + y).is_inference()
    (x * y.clone()).backward()
    assert float(x.grad) == 4.0


def test_inference_tensors_are_refused_before_hooks() -> None:
    x = leaf(2.0)
    with fad.inference_mode():
        y = x * x
    with autograd.save_on_cpu(), pytest.raises(GradientError, match="cannot be saved"):
        x * y


def test_inference_mode_and_transforms() -> None:
    with fad.inference_mode():
        assert float(fad.grad(lambda x: x * x)(3.0)) == 6.0
        assert float(fad.grad(fad.grad(lambda x: x * x * x))(3.0)) == 18.0
        assert float(fad.jvp(lambda x: x * x, (3.0,), (1.0,))[1]) == 6.0
        assert fad.vmap(lambda x: x * x)(jnp.arange(3.0)).tolist() == [0.0, 1.0, 4.0]

    def inside(x: Any) -> Any:
        with fad.inference_mode():
            c = x * x
        return c * x if not isinstance(c, fad.Tensor) or not c.is_inference() else x + c

    assert float(fad.grad(inside)(3.0)) == 1.0
    out, tangent = fad.jvp(inside, (3.0,), (1.0,))
    assert float(out) == 12.0 and float(tangent) == 1.0, "no tangents, as in PyTorch"


def test_inference_mode_off_inside() -> None:
    x = leaf(2.0)
    with fad.inference_mode():
        with fad.inference_mode(False):
            y = x * x
            assert fad.is_grad_enabled() and not y.is_inference()
            with fad.inference_mode():
                assert (x * x).is_inference()
            assert (x * x).requires_grad
        assert not (x * x).requires_grad
    y.backward()
    assert float(x.grad) == 4.0


def test_inference_mode_survives_exceptions_and_reentry() -> None:
    mode = fad.inference_mode()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), mode:
            with mode:
                1 / 0
    assert fad.is_grad_enabled() and not autograd.is_inference_mode_enabled()
    x = leaf(2.0)
    assert (x * x).requires_grad


@pytest.mark.parametrize("view", [lambda x: x[1:], lambda x: x.T, lambda x: x[1:][0]])
def test_a_view_of_an_inference_tensor_is_one(torch: Any, view: Callable[[Any], Any]) -> None:
    value = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for xp in (fad, torch):
        with xp.inference_mode():
            x = xp.tensor(value)
            inside = view(x)
        normal = xp.tensor(value)
        with xp.inference_mode():
            of_normal = view(normal)
        assert inside.is_inference() and view(x).is_inference(), xp
        assert not of_normal.is_inference() and not view(normal).is_inference(), xp
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"):
            view(x).mul_(2.0)
        w = xp.tensor(value, requires_grad=True)
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            view(x) * view(w)
