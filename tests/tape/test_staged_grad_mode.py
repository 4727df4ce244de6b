"""Grad modes and constants in the bodies of staged functions: as in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fad
import fad.numpy as fnp

Body = Callable[[Any], Any]


def _unrecorded(w: Any) -> Any:
    with fad.no_grad():
        return w * 2.0


# What a body does with its argument.
BODIES: dict[str, Body] = {
    "recorded": lambda w: w * 2.0,
    "no_grad": _unrecorded,
    "no_grad in part": lambda w: w * _unrecorded(w),
    "enable_grad in no_grad": fad.no_grad()(fad.enable_grad()(lambda w: w * 2.0)),
    "detach": lambda w: w.detach() * 2.0,
    "stop_gradient": lambda w: fad.stop_gradient(w) * 2.0,
    "a constant": lambda w: fnp.full((), 3.0),
    "zeros": lambda w: fnp.zeros_like(w),
    "by a comparison": lambda w: fnp.where(w > 0.0, 1.0, 0.0),
    "by integers": lambda w: w.astype(int).astype(float),
    "a step": lambda w: fnp.floor(w),
    "a transform": lambda w: fad.grad(lambda x: x * x * w)(fad.tensor(1.0)),
    "a transform in no_grad": fad.no_grad()(
        lambda w: fad.grad(lambda x: x * x * w)(fad.tensor(1.0))
    ),
}


def _loop(f: Body) -> Body:
    start = lambda w: (0, fnp.zeros(()))
    step = lambda c, w: (c[0] + 1, f(w) + 0.0 * c[1])
    return lambda w: fad.lax.while_loop(lambda c: c[0] < 1, lambda c: step(c, w), start(w))[1]


WAYS: dict[str, Callable[[Body], Body]] = {
    "jit": fad.jit,
    "jit of jit": lambda f: fad.jit(fad.jit(f)),
    "checkpoint": fad.checkpoint,
    "checkpoint with a policy": lambda f: fad.checkpoint(
        f, policy=jax.checkpoint_policies.everything_saveable
    ),
    "cond": lambda f: lambda w: fad.lax.cond(True, f, f, w),
    "switch": lambda f: lambda w: fad.lax.switch(0, [f, f], w),
    "scan": lambda f: lambda w: fad.lax.scan(lambda c, x: (c, f(x)), 0.0, w[None])[1][0],
    "a carry": lambda f: (
        lambda w: fad.lax.scan(
            lambda c, _: (c[1:] + (f(c[1]),), None), (w * 0.0 + 1.0, w, fnp.zeros(())), jnp.ones(1)
        )[0][2]
    ),
    "fori_loop": lambda f: lambda w: fad.lax.fori_loop(0, 1, lambda i, c: f(w), fnp.zeros(())),
    "while_loop": _loop,
    "map": lambda f: lambda w: fad.lax.map(f, w[None])[0],
    "vmap of jit": lambda f: lambda w: fad.vmap(fad.jit(f))(w[None])[0],
    "jit of vmap": lambda f: lambda w: fad.jit(fad.vmap(f))(w[None])[0],
}


@pytest.mark.sweep("way", WAYS, sample=7)
def test_as_in_eager_code(way: str) -> None:
    """What requires grad, and the derivatives."""
    for name, body in BODIES.items():
        run = WAYS[way](body)
        w = fad.tensor(2.5, requires_grad=True)
        expected, found = body(w), run(w)
        assert float(found.detach()) == float(expected.detach()), name
        assert found.requires_grad == expected.requires_grad, name
        if not found.requires_grad:
            assert found.numpy().shape == ()  # it is a number to look at
        of = lambda f: (float(fad.grad(f)(2.5)), float(fad.jvp(f, (2.5,), (1.0,))[1]))
        assert of(run) == of(body), name


def test_second_derivatives() -> None:
    f = lambda w: w * w * _unrecorded(w)
    for g in (f, fad.jit(f)):
        assert float(fad.grad(fad.grad(g))(3.0)) == 12.0
        assert (
            float(fad.hessian(g)(3.0)) == 2 * 6.0 + 4 * 3.0
        )  # forward over reverse: tangents pass
        x = fad.tensor(3.0, requires_grad=True)
        (d,) = fad.autograd.grad(g(x), x, create_graph=True)
        assert float(fad.autograd.grad(d, x)[0]) == 12.0


def test_a_call_under_no_grad_is_the_same_program() -> None:
    """What is traced under ``no_grad`` has no marks, and serves later calls that are recorded too."""
    f = fad.jit(lambda w: w * w)
    w = fad.tensor(3.0, requires_grad=True)
    with fad.no_grad():
        assert not f(w).requires_grad
        assert float(fad.grad(f)(3.0)) == 6.0  # a transform that began inside records
    y = f(w)
    y.backward()
    assert float(w.grad) == 6.0


def test_of_several_results_each_depends_on_its_own(replay_mode: None) -> None:
    """As of eager code: what a result does not depend on is unused in it."""
    f = fad.jit(lambda x, a, c: (x * 2.0, a * x, c * 2.0, a * 3.0))
    for _ in range(6):
        x, a = (fad.tensor(v, requires_grad=True) for v in (2.0, 3.0))
        outs = f(x, a, fad.tensor(1.0))
        assert [o.requires_grad for o in outs] == [True, True, False, True]
        found = [
            fad.autograd.grad(o, [x, a], allow_unused=True, retain_graph=True)
            for o in (outs[0], outs[1], outs[3])
        ]
        numbers = [[g if g is None else float(g) for g in gs] for gs in found]
        assert numbers == [[2.0, None], [3.0, 2.0], [None, 3.0]]
        with pytest.raises(fad.errors.GradientError, match="not have been used"):
            fad.autograd.grad(outs[0], a, retain_graph=True)
        (outs[0] + outs[3]).backward()
        assert (float(x.grad), float(a.grad)) == (2.0, 3.0)
