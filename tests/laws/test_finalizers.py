"""Finalizers that compute, run by the garbage collector in the middle of transforms and steps.

An object in a reference cycle is finalized by the collector, which runs at almost any place: here after each
object that is made. Its ``__del__`` reads a value of the function that runs, computes with it, or begins a
transform or a step of its own. The law: all results are those of a program without finalizers, replay off.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from replays import MODES, TIMES, assert_bits, assert_idle, bits, off, replay

import fad
import fad.numpy as fnp
from fad.errors import LevelError

X = jnp.array([0.5, 1.0, 1.5, 2.0])
ROWS = jnp.stack([X, X + 1.0, X - 1.0])
W = np.array([0.3, -0.7, 1.1, 0.2], np.float32)


@pytest.fixture(autouse=True)
def _eager_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fad.autograd.compiled.clear_cache()
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(1, 1_000, 1_000_000)
    yield
    gc.set_threshold(*before)


class Log:
    """What the finalizers of one run have found."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.failures: list[BaseException] = []


_thread = threading.local()  # ``log``: that of the finalizer that this thread is in


class Finalized:
    """An object in a cycle; its finalizer does ``act(y)`` and notes the result, or what went wrong.

    It does so in the log of the run that made it: what an earlier test dropped may be finalized in this one.
    """

    log = Log()

    def __init__(self, y: Any, act: Callable[[Any], Any]) -> None:
        self.cycle, self.y, self.act = self, y, act
        self.log = getattr(_thread, "log", None) or Finalized.log

    def __del__(self) -> None:
        before = getattr(_thread, "log", None)
        _thread.log = self.log
        try:
            self.log.found.append(self.act(self.y))
        except LevelError:  # a value of a vmap that has ended
            pass
        except BaseException as error:
            self.log.failures.append(error)
        finally:
            _thread.log = before


OTHER = fad.tensor(W, requires_grad=True)


def have_run(enough: Callable[[], bool]) -> bool:
    """Whether the finalizers of what was dropped have run; the thread that compiles may be running some."""
    for _ in range(200):
        gc.collect()
        if enough():
            return True
        time.sleep(0.01)
    return False


def _step(y: Any) -> Any:
    w = fad.tensor(W, requires_grad=True)
    fnp.sum(w * w * 3.0).backward()
    assert bits(w.grad) == bits(6.0 * W)


def _gradient(y: Any) -> Any:
    g = fad.grad(lambda v: fnp.sum(v * v * 3.0))(jnp.asarray(W))
    assert bits(g) == bits(6.0 * W)


def _closes_over(y: Any) -> Any:
    fad.grad(lambda v: fnp.sum(v * y))(X)
    fad.jvp(lambda v: v * y, (X,), (X,))


def _modes(y: Any) -> Any:
    with fad.no_grad():
        z = y * 2.0
    with off():
        return z * y


ACTS: dict[str, Callable[[Any], Any]] = {
    "reads": lambda y: (repr(y), repr(fad.stop_gradient(y)), y.shape, y.dtype),
    "computes": lambda y: fnp.sin(y) * y + 1.0,
    "reads what it computes": lambda y: repr(y * 1.25 + 1.0),
    "looks at the node": lambda y: y.grad_fn,
    "writes to its own": lambda y: (y * 1.0).add_(1.0),
    "differentiates": _gradient,
    "differentiates with it": _closes_over,
    "steps": _step,
    "gradients of a shared leaf": lambda y: fad.autograd.grad(fnp.sum(OTHER * X), OTHER),
    "switches modes": _modes,
    "clears the cache": lambda y: fad.autograd.compiled.clear_cache(),
    "drops another": lambda y: Finalized(y * 2.0, lambda z: z + 1.0) and None,
}


def body(act: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A function of four numbers that drops objects with finalizers, if ``act`` is given."""

    def drop(y: Any) -> None:
        if act is not None:
            Finalized(y, act)

    def f(x: Any) -> Any:
        drop(x)
        y = fnp.tanh(x * 0.5) + x[::-1]
        drop(y)
        z = y * y
        total = fnp.sum(z + fnp.sin(x))
        drop(z)
        z[1:] = y[:3] * x[1:]
        drop(total)
        return total + fnp.sum(z * 2.0)

    return f


def _dual(f: Callable[[Any], Any]) -> Any:
    with fad.dual_level():
        return list(fad.unpack_dual(f(fad.make_dual(X, X + 1.0))))


def _tape(f: Callable[[Any], Any]) -> Any:
    w = fad.tensor(W, requires_grad=True)
    losses = []
    for k in range(2):
        loss = f(w * X + float(k))
        loss.backward()
        losses.append(loss.detach())
        with fad.no_grad():
            w.sub_(0.1 * w.grad)
    return [w.detach(), w.grad, losses]


def _twice(f: Callable[[Any], Any]) -> Any:
    w = fad.tensor(W, requires_grad=True)
    (g,) = fad.autograd.grad(f(w * X), w, create_graph=True)
    return [g.detach(), *fad.autograd.grad((g * X).sum(), w)]


WHERE: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "grad": lambda f: fad.grad(f)(X),
    "value_and_grad": lambda f: fad.value_and_grad(f)(X),
    "vjp": lambda f: fad.vjp(f, X)[1](jnp.float32(2.0)),
    "jvp": lambda f: fad.jvp(f, (X,), (X,)),
    "vmap": lambda f: fad.vmap(f)(ROWS),
    "vmap of grad": lambda f: fad.vmap(fad.grad(f))(ROWS),
    "hessian": lambda f: fad.hessian(f)(X),
    "linearize": lambda f: fad.linearize(f, X)[1](X),
    "dual_level": _dual,
    "tape": _tape,
    "gradients of gradients": _twice,
}
# An output whose derivative is read twice over is only looked at.
BATCHED = ("vmap", "vmap of grad", "hessian")
READ = ("grad", "jvp", "dual_level", "tape", "gradients of gradients")


@pytest.mark.sweep(
    "case", [(w, a, m) for w in WHERE for a in ACTS for m in MODES], sample=12, ids=str
)
def test_a_finalizer_that_computes(case: tuple[str, str, str]) -> None:
    where, name, mode = case
    program = WHERE[where]
    with off():
        expected = program(body(None))
    Finalized.log = Log()
    with replay(mode):
        for k in range(TIMES):
            assert_bits(program(body(None)), expected, f"call {k} without finalizers")
            Finalized.log.found.clear()
            assert_bits(program(body(ACTS[name])), expected, f"call {k} with finalizers")
            assert_idle()
            # Those of values of a vmap may find that it has ended.
            assert where in BATCHED or have_run(
                lambda: bool(Finalized.log.found or Finalized.log.failures)
            )
            if Finalized.log.failures:
                raise Finalized.log.failures[0]


@pytest.mark.sweep("where, mode", [(w, m) for w in READ for m in MODES], sample=6)
def test_what_a_finalizer_has_computed_is_right(where: str, mode: str) -> None:
    program = WHERE[where]
    with replay(mode):
        for _ in range(TIMES):
            Finalized.log = Log()
            program(body(lambda y: (y.detach().clone(), fnp.sin(y) * 3.0 + 1.0)))
            assert have_run(lambda: len(Finalized.log.found) >= 4)
            assert not Finalized.log.failures
            with off():
                for y, z in Finalized.log.found:
                    assert_bits(fnp.sin(y) * 3.0 + 1.0, z)


def test_garbage_of_an_earlier_run_notes_nothing_in_this_one() -> None:
    Finalized.log = earlier = Log()
    gc.disable()
    try:
        Finalized(1.0, lambda y: Finalized(y, lambda z: z) and None)
        Finalized.log = Log()
        assert have_run(lambda: len(earlier.found) == 2)
        assert not Finalized.log.found
    finally:
        gc.enable()


@pytest.mark.sweep("where, mode", [(w, m) for w in WHERE for m in MODES], sample=11)
def test_a_finalizer_that_fails(where: str, mode: str) -> None:
    program = WHERE[where]
    with off():
        expected = program(body(None))
    with replay(mode):
        for k in range(TIMES):
            Finalized.log = Log()
            assert_bits(program(body(lambda y: y + jnp.ones(3))), expected, f"call {k}")
            assert_idle()
            assert where in BATCHED or have_run(lambda: bool(Finalized.log.failures))
            for error in Finalized.log.failures:
                assert "(3,)" in str(error)  # of the shapes, and nothing else
