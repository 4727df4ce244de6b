"""Arguments of a compiled function: which are static, and the options that say so."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from helpers import assert_close, counted

import fad
import fad.numpy as fnp
from fad.errors import StructureError

X = jnp.array([0.3, -0.5, 0.7])


def scaled(x, mode, k=2):
    return fnp.sin(x) * k if mode == "sin" else fnp.cos(x) * k


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1, 2)},
        {"static_argnums": (1, -1)},
        {"static_argnames": ("mode", "k")},
        {"static_argnums": 1, "static_argnames": "k"},
        {},  # a string is static without being named
    ],
)
def test_static_arguments_by_position_and_by_name(options):
    f, traces = counted(scaled, **options)
    assert_close(f(X, "sin"), 2 * jnp.sin(X))
    assert_close(f(X + 1, mode="sin"), 2 * jnp.sin(X + 1))
    assert_close(f(X, "cos", k=3), 3 * jnp.cos(X))
    before = len(traces)
    assert_close(f(X + 2, "cos", k=3), 3 * jnp.cos(X + 2))
    assert len(traces) == before
    assert_close(f(X, "cos", k=4), 4 * jnp.cos(X))
    assert len(traces) == before + (1 if options else 0)


def test_equal_static_values_of_different_types_are_different_programs():
    f = fad.jit(lambda x, k: x * (10 if k is True else 1), static_argnums=1)
    assert_close(f(X, 1), X)
    assert_close(f(X, True), 10 * X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"static_argnums": 3}, r"static_argnums=3 is out of range: .* 3 positional"),
        ({"static_argnames": "nope"}, "has no argument 'nope', it has k, mode, x"),
        ({"donate_argnums": -4}, "donate_argnums=-4 is out of range"),
        ({"static_argnums": 1, "donate_argnames": "mode"}, "'mode' is both static and donated"),
    ],
)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(StructureError, match=message):
        fad.jit(scaled, **options)


def test_a_static_argument_must_be_hashable():
    with pytest.raises(TypeError, match="a static argument must be hashable, got list"):
        fad.jit(scaled, static_argnums=1)(X, [1])
    with pytest.raises(TypeError, match="must be a function, got int 3"):
        fad.jit(3)


# Tensors of the graph that are given twice, as tied weights are


def tied(p, x):
    loss = (p["enc"] * p["dec"] * x).sum()
    loss.backward()
    with fad.no_grad():
        for t in p.values():
            t.sub_(0.1 * t.grad)
    grads = [p["enc"].grad, p["dec"].grad]
    for t in p.values():
        t.grad = None
    return loss.detach(), grads, p["enc"] is p["dec"]


def test_a_leaf_given_twice_is_one_tensor_in_the_body():
    """What a settled call does too, in turn with one whose leaves differ."""
    step = fad.jit(tied)
    states = []
    for run in (tied, step):
        w, v = (fad.tensor([2.0], requires_grad=True) for _ in range(2))
        x, results = fad.tensor([1.0]), []
        for a, b in ((w, w), (w, w), (w, v), (w, w), (w, v), (v, v), (w, w)):
            loss, grads, _ = run({"enc": a, "dec": b}, x)
            results += [loss, *grads, w.clone(), v.clone()]
        states.append([*map(float, results), w.version, v.version])
        assert bool(run({"enc": w, "dec": w}, x)[2]) and not bool(run({"enc": w, "dec": v}, x)[2])
    assert_close(*states)


def test_a_leaf_given_twice_has_the_gradient_of_both_places():
    w = fad.tensor([2.0], requires_grad=True)
    cube = lambda p, q, r: (p * q * r).sum()

    inside = fad.jit(lambda *p: fad.autograd.grad(cube(*p), p))
    assert [float(g) for g in inside(w, w, w)] == [12.0] * 3
    nested = fad.jit(lambda x: inside(w, x, w))
    assert [float(g) for g in nested(w)] == [12.0] * 3
    fad.jit(cube)(w, w, w).backward()
    assert float(w.grad) == 12.0
    h = w * 1.0
    w.grad = None
    fad.jit(cube)(h, w, h).backward()
    assert float(w.grad) == 12.0


def test_tensors_given_twice_that_nothing_records_are_operands_of_one_program():
    v, w = fad.tensor([2.0]), fad.tensor([3.0])
    compiled, traces = counted(lambda p, q: p * q)
    assert [float(compiled(*p)) for p in ((v, v), (v, w), (w, w))] == [4.0, 6.0, 9.0]
    assert len(traces) == 1
    w.requires_grad_()
    with fad.no_grad():
        assert [float(compiled(*p)) for p in ((w, w), (v, w))] == [9.0, 6.0]
    assert float(compiled(w, w)) == 9.0 and float(compiled(w, v)) == 6.0


def test_donated_arguments_beside_a_leaf_that_is_given_twice():
    w = fad.tensor([2.0], requires_grad=True)
    compiled = fad.jit(lambda p, q, r: p * q + r, donate_argnums=(1, 2))
    assert float(compiled(w, w, fad.tensor([1.0]))) == 5.0
    assert float(w) == 2.0
