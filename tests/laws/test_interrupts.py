"""An interrupt from the keyboard at any place in fad: no level is left over, and the next call is right.

Python looks for signals when a function begins, after a call of a function that is not Python's, and where a
loop goes back. At the n-th of these places in fad's bytecode an interrupt is raised, n being random; and a
timer sends real signals. What a ``with`` statement of the user enters is closed by Python code, ``__exit__``,
in which an interrupt can come too: it could not be closed then, so those calls are left out.
"""

from __future__ import annotations

import dis
import functools
import itertools
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from lines import FAD, Moments, interrupt
from replays import MODES, TIMES, assert_bits, assert_idle, bits, in_thread, off, replay

import fad
import fad.numpy as fnp

X = jnp.array([0.5, 1.0, 1.5, 2.0])
ROWS = jnp.stack([X, X + 1.0, X - 1.0])
W = np.array([0.3, -0.7, 1.1, 0.2], np.float32)


class Square(fad.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def vjp(ctx, g):
        return 2.0 * ctx.saved_tensors[0] * g


def f(x: Any) -> Any:
    y = fnp.tanh(x * 0.5) + x[::-1]
    return fnp.sum(y * y + fnp.sin(x))


def writes(x: Any) -> Any:
    y = fnp.zeros(4) + x
    y[1:] = x[:3] * 2.0
    y *= x
    return fnp.sum(y * y)


def dual() -> Any:
    with fad.dual_level():
        out = f(fad.make_dual(X, X + 1.0))
        return list(fad.unpack_dual(out))


def quiet() -> Any:
    w = fad.tensor(W, requires_grad=True)
    with fad.no_grad():
        y = f(w)
        with fad.enable_grad():
            z = f(w)
    (g,) = fad.autograd.grad(z, w)
    return [y, z.detach(), g]


SHARED = fad.tensor(W, requires_grad=True)


def step() -> Any:
    """Forward, backward and an update, of a leaf that stays."""
    SHARED.grad = None
    with fad.no_grad():
        SHARED.copy_(fad.asarray(W))
    losses = []
    for k in range(2):
        loss = f(SHARED * X + float(k))
        loss.backward()
        losses.append(loss.detach())
    with fad.no_grad():
        SHARED.sub_(0.1 * SHARED.grad)
    return [SHARED.detach().clone(), SHARED.grad, losses]


def asked() -> Any:
    w = fad.tensor(W, requires_grad=True)
    (g,) = fad.autograd.grad(f(w * X), w, create_graph=True)
    (h,) = fad.autograd.grad((g * g).sum(), w)
    return [g.detach(), h]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "grad": lambda: fad.grad(f)(X),
    "value_and_grad": lambda: fad.value_and_grad(f)(X),
    "grad of writes": lambda: fad.grad(writes)(X),
    "grad of a Function": lambda: fad.grad(lambda x: fnp.sum(Square.apply(x) * x))(X),
    "grad of grad": lambda: fad.grad(lambda x: fnp.sum(fad.grad(f)(x) * x))(X),
    "vjp": lambda: fad.vjp(f, X)[1](jnp.float32(2.0)),
    "jvp": lambda: fad.jvp(f, (X,), (X,)),
    "jvp of grad": lambda: fad.jvp(fad.grad(f), (X,), (X,)),
    "linearize": lambda: fad.linearize(f, X)[1](X),
    "vmap": lambda: fad.vmap(f)(ROWS),
    "vmap of grad": lambda: fad.vmap(fad.grad(f))(ROWS),
    "vmap of jvp": lambda: fad.vmap(lambda x: fad.jvp(f, (x,), (x,)))(ROWS),
    "hessian": lambda: fad.hessian(f)(X),
    "jacfwd": lambda: fad.jacfwd(lambda x: x * fnp.sin(x))(X),
    "dual_level": dual,
    "modes": quiet,
    "step": step,
    "gradients of gradients": asked,
    "step in a transform": lambda: fad.vmap(lambda x: f(x) * asked()[0].sum())(ROWS),
    "replay off": lambda: _off(fad.grad(f)),
}


def _off(g: Callable[[Any], Any]) -> Any:
    with off():
        return g(X)


@functools.cache
def places_of_signals(code: CodeType) -> dict[int, bool]:
    """Offsets before which Python has looked for signals, and whether that was after a call."""
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def handler(offset: int) -> Any:
        return next((e.target for e in handlers if e.start <= offset < e.end), None)

    found = {}
    for now, after in itertools.pairwise(dis.get_instructions(code)):
        if now.opname.startswith("CALL") or now.opname == "RESUME":
            if handler(now.offset) == handler(after.offset):  # it would be caught at the same place
                found[after.offset] = now.opname != "RESUME"
        elif now.opname.startswith("JUMP_BACKWARD") and handler(now.offset) == handler(now.argval):
            found[now.argval] = False
    return found


@contextmanager
def at_signal(number: int) -> Iterator[Moments]:
    """A block with an interrupt at the ``number``-th place (from 1) in fad where a signal would be seen."""
    moments, returned = Moments(), [False]

    def trace(frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        if event == "return" or event == "call":
            returned[0] = event == "return"
            frame.f_trace_opcodes = code.co_filename.startswith(FAD)
        elif event == "opcode":
            from_python, returned[0] = returned[0], False
            after_call = places_of_signals(code).get(frame.f_lasti)
            if after_call is not None and not (after_call and from_python):
                moments.count += 1
                if moments.count == number:
                    sys.settrace(None)
                    interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield moments
    finally:
        sys.settrace(before)


# Frames that a ``with`` of this file calls, the user's; around them this file is interrupted.
USERS_BLOCKS = {"__exit__", "__enter__"}


def _where(error: BaseException) -> tuple[str, bool]:
    """The frames of fad that were interrupted, and whether that was in a call of a user's ``with``."""
    frames = traceback.extract_tb(error.__traceback__)
    last = max(k for k, f in enumerate(frames) if f.filename == __file__ and f.name != "trace")
    beyond = [f for f in frames[last + 1 :] if f.filename.startswith(FAD)]
    in_block = not beyond or beyond[0].name in USERS_BLOCKS
    return " > ".join(f"{f.filename[len(FAD) + 1 :]}:{f.lineno} {f.name}" for f in beyond), in_block


def interrupted(name: str, mode: str, draw: Callable[[int], list[int]]) -> tuple[int, int]:
    """Interrupt a program that was replayed at some of its places, and check after each of them.

    Returns:
        How many interrupts there were, and at how many places they could have come.
    """
    program = PROGRAMS[name]
    with off():
        expected = bits(program())
    with replay(mode):
        for _ in range(TIMES):
            assert bits(program()) == expected, f"{name}: replay differs before any interrupt"
        with at_signal(0) as moments:
            program()
        count = 0
        for n in draw(moments.count):
            where = "nowhere"
            try:
                with at_signal(n):
                    program()
            except KeyboardInterrupt as error:
                count += 1
                where, in_block = _where(error)
                if in_block:
                    _reset()
            what = f"{name}, {n} of {moments.count}: {where}"
            assert_idle(what)
            for _ in range(2):
                assert bits(program()) == expected, what
                assert_idle(what)
        return count, moments.count


def _reset() -> None:
    """What a user's own block that was interrupted while it was closed has left on."""
    fad.set_grad_enabled(True)
    fad.core.level.state.levels = ()
    fad.autograd.compiled(True)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    fad.autograd.compiled.clear_cache()
    # An interrupt in a finalizer is printed by Python and goes no further.
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interrupt(name: str, rng: np.random.Generator) -> None:
    """At six places of each program, in a thread of its own: what is left over stays there."""
    draw = lambda count: [int(n) for n in rng.integers(1, count + 1, 6)]
    in_thread(lambda: interrupted(name, "background", draw))


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_interrupts(name: str, mode: str, rng: np.random.Generator) -> None:
    """Some 10,000 in all."""
    draw = lambda count: [int(n) for n in rng.integers(1, count + 1, 300)]
    count, _ = in_thread(lambda: interrupted(name, mode, draw), timeout=600.0)
    assert count > 50  # some places lie beyond the end of later calls, which are shorter


def test_an_update_is_made_or_not(rng: np.random.Generator) -> None:
    """An interrupt in the middle of ``w.sub_(g)`` leaves the old values or the new ones."""

    def work() -> None:
        w, g = fad.tensor(W, requires_grad=True), fad.asarray(X)

        def update() -> None:
            with fad.no_grad():
                w.copy_(fad.asarray(W))
                w.sub_(g)

        for _ in range(TIMES):
            update()
        with at_signal(0) as moments:
            update()
        for n in rng.integers(1, moments.count + 1, 20):
            try:
                with at_signal(int(n)):
                    update()
            except KeyboardInterrupt as error:
                if _where(error)[1]:
                    _reset()
            assert bits(w) in (bits(W), bits(W - np.asarray(X)))
            assert_idle(f"place {n}")
            update()
            assert_bits(w, W - np.asarray(X))
            fad.autograd.grad(f(w), w)

    in_thread(work)


def test_interrupts_while_programs_are_new(rng: np.random.Generator) -> None:
    """In the calls in which traces are new, compiled and swapped in, which come only once."""

    def work() -> None:
        for k in range(12):

            def g(x: Any, k: int = k) -> Any:
                y = fnp.tanh(x * 0.5)
                for _ in range(k % 4):
                    y = y * x + fnp.cos(y)
                return fnp.sum(y * (k + 1.0))

            with off():
                expected = bits([fad.grad(g)(X), fad.jvp(g, (X,), (X,))])
            for n in rng.integers(1, 800, TIMES):
                try:
                    with at_signal(int(n)):
                        fad.grad(g)(X), fad.jvp(g, (X,), (X,))
                except KeyboardInterrupt as error:
                    assert_idle(_where(error)[0])
                assert bits([fad.grad(g)(X), fad.jvp(g, (X,), (X,))]) == expected

    in_thread(work)


@pytest.mark.parametrize("name", ["grad", "vmap of jvp", "hessian", "step", "dual_level"])
def test_signals_of_a_timer(name: str, full: bool, rng: np.random.Generator) -> None:
    """They come when the timer says, in JAX's code as well; this alone is not the same each time."""
    program = PROGRAMS[name]
    with off():
        expected = bits(program())
    for _ in range(TIMES):
        assert bits(program()) == expected
    before = signal.signal(signal.SIGALRM, lambda number, frame: interrupt())
    try:
        for delay in rng.uniform(2e-5, 2e-3, 500 if full else 15):
            where = "nowhere"
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                try:
                    program()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt as error:
                where, in_block = _where(error)
                if in_block:
                    _reset()
            assert_idle(where)
            assert bits(program()) == expected, where
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        _reset()
