"""Dual levels by hand: where they begin and end, and the switch of forward mode."""

from __future__ import annotations

import threading
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close, bare, is_idle

import fad
import fad.numpy as fnp
from fad.autograd import forward_ad
from fad.errors import LevelError

X = np.array([0.3, -0.8, 1.2], dtype=np.float32)
enabled = forward_ad.set_fwd_grad_enabled


def test_outside_of_a_level(torch: Any) -> None:
    x, t = fad.tensor(X), torch.tensor(X)
    assert fad.unpack_dual(x) == (x, None)
    assert torch.autograd.forward_ad.unpack_dual(t) == (t, None)
    assert_close(fad.unpack_dual(jnp.asarray(X)).primal, X)
    with fad.dual_level():
        d = fad.make_dual(x, x)
    primal, tangent = fad.unpack_dual(d)  # its tangent went with its level
    assert tangent is None and primal.level is x.level
    with fad.dual_level():
        assert fad.unpack_dual(d).tangent is None
    with fad.dual_level() as level:
        pass
    with pytest.raises(LevelError, match="must be a running dual level"):
        fad.unpack_dual(d, level)


def test_levels_left_in_another_order_are_all_left() -> None:
    for inner in (fad.dual_level(), fad.no_grad()):
        outer, level = fad.dual_level(), fad.dual_level()
        outer.__enter__()
        first = level.__enter__()
        with pytest.raises(LevelError, match="was left before"):
            outer.__exit__(None, None, None)
        assert not first.alive and is_idle()
        level.__exit__(None, None, None)
        assert is_idle()
        with inner:
            pass
        assert is_idle()


def test_an_error_in_the_block_stays_that_error() -> None:
    outer, inner = fad.dual_level(), fad.dual_level()
    with pytest.raises(KeyError), outer:
        inner.__enter__()
        raise KeyError
    assert is_idle()


def test_enter_and_exit(torch: Any) -> None:
    ours, theirs = forward_ad, torch.autograd.forward_ad
    level = ours.enter_dual_level()
    theirs.enter_dual_level()
    x, t = fad.make_dual(X, X), theirs.make_dual(torch.tensor(X), torch.tensor(X))
    inner = ours.enter_dual_level()
    ours.exit_dual_level(level=inner)
    assert_close(fad.unpack_dual(x * x).tangent, theirs.unpack_dual(t * t).tangent.numpy())
    ours.exit_dual_level(level=level)
    theirs.exit_dual_level()
    for exit_level in (ours.exit_dual_level, theirs.exit_dual_level):
        with pytest.raises(RuntimeError):
            exit_level()
    assert is_idle()


def test_a_level_around_a_function(torch: Any) -> None:
    def tangent(m: Any, tensor: Any) -> Any:
        @m.dual_level()
        def f(x: Any, depth: int) -> Any:
            y = m.make_dual(x, x)
            return m.unpack_dual(y * y).tangent

        return f(tensor(X), 0) + f(tensor(X), 0)

    expected = tangent(torch.autograd.forward_ad, torch.tensor)
    assert_close(tangent(fad, fad.tensor), expected.numpy())


def test_tangents_off(torch: Any) -> None:
    def program(fw: Any, off: Any, tensor: Any) -> Any:
        x, t = tensor(X), tensor(X * 3)
        with fw.dual_level():
            d = fw.make_dual(x, t)
            with off(False):
                y = d * d
                seen = fw.unpack_dual(d).tangent, fw.unpack_dual(y).tangent
                with off(True):
                    again = fw.unpack_dual(d * d).tangent
            z = fw.unpack_dual(y + d)
        return *seen, again, *z

    theirs = torch.autograd.forward_ad
    expected = program(theirs, theirs._set_fwd_grad_enabled, torch.tensor)
    for _ in range(4):
        got = program(fad, enabled, fad.tensor)
        assert got[0] is got[1] is expected[0] is expected[1] is None
        assert_close(list(map(bare, got[2:])), [e.numpy() for e in expected[2:]])
    assert forward_ad.is_fwd_grad_enabled() and theirs._is_fwd_grad_enabled()


def test_tangents_off_inside_of_jvp(torch: Any) -> None:
    def program(off: Any, func: Any, tensor: Any) -> Any:
        def f(x: Any) -> Any:
            with off(False):
                y = func.jvp(lambda x: x * x, (x,), (x,))[1] * x
            return y + x * x

        return func.jvp(f, (tensor(X),), (tensor(X * 3),))

    off = torch.autograd.forward_ad._set_fwd_grad_enabled
    expected = program(off, torch.func, torch.tensor)
    for _ in range(4):
        got = program(enabled, fad, fad.tensor)
        assert_close(tuple(map(bare, got)), tuple(e.numpy() for e in expected))


def test_the_switch_at_once_as_a_decorator_and_in_threads() -> None:
    before = enabled(False)
    assert not forward_ad.is_fwd_grad_enabled()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(forward_ad.is_fwd_grad_enabled()))
    thread.start()
    thread.join()
    assert seen == [True]
    before.__exit__()
    assert forward_ad.is_fwd_grad_enabled()

    @enabled(False)
    def f(x: Any) -> Any:
        assert not forward_ad.is_fwd_grad_enabled()
        return x * x

    assert forward_ad.is_fwd_grad_enabled()
    assert_close(fad.jvp(lambda x: f(x) + x, (X,), (X,))[1], X)
    with pytest.raises(KeyError), enabled(False):
        raise KeyError
    assert forward_ad.is_fwd_grad_enabled() and is_idle()


def test_other_transforms_while_tangents_are_off() -> None:
    with enabled(False):
        assert_close(fad.jvp(fnp.sin, (X,), (X,))[1], np.cos(X) * X)
        assert_close(fad.hessian(lambda x: (x**3).sum())(X), np.diag(6 * X))
        assert_close(fad.linearize(fnp.sin, X)[1](X), np.cos(X) * X)
    with fad.dual_level():
        d = fad.make_dual(X, X)
        with enabled(False):
            y = fad.vmap(lambda a: a * a)(d)
            z = fad.grad(lambda a: (a * a * d).sum())(d)
        assert fad.unpack_dual(y).tangent is None and fad.unpack_dual(z).tangent is None
        assert_close(fad.unpack_dual(z).primal, 2 * X * X)
