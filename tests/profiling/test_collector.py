"""What a profile notes: time, levels, compilations and replay, told apart."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fad
import fad.numpy as fnp
from fad import autograd
from fad.autograd import profile


def leaf(data: Any) -> Any:
    return fad.tensor(data, requires_grad=True)


def named(p: profile, kind: str) -> list[str]:
    """The names of the events of one kind, in order."""
    return [e.name for e in p.events() if e.kind == kind]


# Time


def test_own_times_add_up_to_the_time_inside() -> None:
    x = leaf(np.ones((20, 20), np.float32))
    with autograd.compiled(False), profile(sync=True) as p:
        fnp.tanh(x @ x).sum().backward()
    roots = [e.duration for e in p.events() if e.parent is None]
    own = sum([r.own for r in p.key_averages()])
    assert own == pytest.approx(sum(roots), rel=1e-6)
    assert p.outside() == pytest.approx(p.duration - sum(roots), abs=1)
    assert all([e.python >= 0 and e.xla >= 0 and e.end >= e.start for e in p.events()])
    assert all([e.xla > 0 or e.compiling > 0 for e in p.events() if e.made])


def test_what_is_compiled_is_told_from_what_runs() -> None:
    x = fad.tensor(np.ones((3, 7, 5), np.float32))  # of no other test
    odd = fnp.cumprod
    with profile() as first:
        odd(x, axis=1)
    with profile() as second:
        odd(x, axis=1)
    (compiling,), (running,) = first.events(), second.events()
    assert compiling.compiled == 1 and compiling.compiling > 0 and compiling.xla == 0
    assert running.compiled == 0 and running.compiling == 0 and running.xla > 0
    assert "1 compiled" in first.table() and "0 compiled" in second.table()


# Levels


def kinds(p: profile) -> set[tuple[str, str]]:
    return {(e.name, e.level) for e in p.events() if e.kind == "operation"}


def test_operations_are_listed_with_their_level() -> None:
    f = lambda x: fnp.sin(x) * x
    x = jnp.arange(3.0)
    with autograd.compiled(False):
        with profile() as p:
            fad.vmap(fad.grad(f))(x)
        assert {("sin", "vmap/grad"), ("sin", "vmap")} <= kinds(p)
        with profile() as p:
            fad.grad(fad.grad(f))(1.0)
        assert {("sin", "grad/grad"), ("sin", "grad"), ("sin_vjp", "grad")} <= kinds(p)
        with profile() as p:
            fad.jvp(f, (x,), (x,))
        assert ("sin", "jvp") in kinds(p)
        with profile() as p:
            f(x)
            f(fad.asarray(x))
        assert {("sin", "arrays"), ("sin", "eager")} <= kinds(p)


def test_a_compiled_function_is_traced_once_and_then_one_call() -> None:
    f = fad.jit(lambda x: fad.grad(lambda x: fnp.sin(x) * x)(x))
    with profile() as p:
        f(1.0)
    traced = [(e.name, e.level) for e in p.events() if e.kind == "traced"]
    assert {("sin", "staged/grad"), ("sin", "staged"), ("SinBackward", "staged/grad")} <= set(
        traced
    )
    assert sum([e.compiled for e in p.events()]) >= 1 and p.pairs() == []
    x = jnp.float32(1.0)
    for _ in range(3):
        f(x)
    with profile() as p:
        f(x)
    (event,) = p.events()
    assert (event.kind, event.name, event.made) == ("jit", "<lambda>", 4) and event.xla > 0


def test_functions_and_indices() -> None:
    class Cube(fad.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3.0 * g * x * x

    x = leaf([1.0, 2.0])
    with autograd.compiled(False), profile() as p:
        Cube.apply(x).sum().backward()
        fad.grad(lambda x: Cube.apply(x))(2.0)
        u = fad.tensor([1.0, 2.0])
        u[0] = u[1]
    assert x.grad.tolist() == [3.0, 12.0] and u.tolist() == [2.0, 2.0]
    assert named(p, "function") == ["Cube", "Cube"]
    assert [e.name for f, ran in p.pairs() for e in ran if f.name == "Cube"] == ["CubeBackward"] * 2
    assert named(p, "indexing") == ["x[i]", "x[i] = v"]


# Replay


def steps(count: int) -> list[Any]:
    """What a gradient gives, in so many calls."""
    slope = fad.grad(lambda x: fnp.sum(fnp.sin(x) * 1.1))
    return [slope(jnp.arange(3.0)).tolist() for _ in range(count)]


def test_bits_and_replay_are_as_without_a_profile(replay_mode: None) -> None:
    before = steps(6)
    hits = autograd.compiled.cache_info()["hits"]
    with profile(sync=True) as p:
        inside = steps(6)
    hits = autograd.compiled.cache_info()["hits"] - hits
    assert inside == before == steps(6)
    programs = [e for e in p.events() if e.kind in ("replayed", "program")]
    assert len(programs) == hits


@pytest.fixture
def replayed() -> Any:
    """Replay with all programs compiled at first sight; nothing is cached."""
    autograd.compiled.clear_cache()
    with autograd.compiled(wait=True):
        yield


def test_a_replayed_program_is_one_row(replayed: Any) -> None:
    with profile() as first:
        steps(1)
    with profile() as p:
        steps(4)
    assert named(first, "compilation") == ["<lambda>"]
    (row,) = [r for r in p.key_averages() if r.kind == "replayed"]
    assert (row.name, row.calls, row.made) == ("<lambda> (3 operations)", 4, 48)
    assert named(p, "deferred") == ["sin", "multiply", "sum"] * 4
    assert "operation" not in {e.kind for e in p.events()}  # no operation ran by itself
    assert p.traces() == [("<lambda>", 3, "replayed")] * 4
    assert "4 × <lambda> (3 operations): replayed" in p.table()


def test_a_node_that_is_read_is_seen_to_end_a_trace(replayed: Any) -> None:
    def f(x: Any) -> Any:
        y = fnp.sin(x)
        return y * 2.0 if y.grad_fn is not None else y

    with profile() as p:
        fad.grad(f)(1.0)
    name, count, what = p.traces()[0]
    assert (name, count) == ("f", 1)
    assert re.fullmatch(
        r"recorded: grad_fn in test_collector\.py:\d+ reads a value or a node", what
    )
    assert named(p, "deferred") == ["sin"]
    assert [f.name for f, _ in p.pairs()] == ["sin", "multiply"]
