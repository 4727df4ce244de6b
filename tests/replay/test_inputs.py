"""Operands of what is replayed: none is taken for another, or for what it was before."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_close
from replays import MODES, TIMES, Table, in_thread, info, law, modes_of, one_mode, outcome

import fad
import fad.numpy as fnp
from fad.replay import inputs

X = jnp.array([0.5, 1.0, 1.5, 2.0])
pytestmark = pytest.mark.usefixtures("fresh_traces")
IN_TURNS = (False,) * TIMES + (True, False) * TIMES


def in_turns(call: Callable[[bool], Any]) -> Callable[[], Any]:
    """The same call again and again, then another one, in turns."""
    return lambda: [call(other) for other in IN_TURNS]


CALLS = Table()


@CALLS.row()
def a_new_number():
    gradient = fad.grad(lambda x, rate: fnp.sum(fnp.sin(x) * rate))
    return [gradient(X, k / 2) for k in range(1, 2 * TIMES)]


@CALLS.row()
def one_object_for_two_arguments():
    g = fad.grad(lambda x, a, b: fnp.sum(x * a - x * x * b))
    return in_turns(lambda other: g(X, X, X + other))()


@CALLS.row()
def a_numpy_array_that_changes_between_two_uses():
    a = np.ones(4, np.float32)

    def f(x):
        y = x * a
        a[:] = 3.0
        z = fnp.sum(y + x * a)
        a[:] = 1.0
        return z

    return fad.grad(f)(X)


@CALLS.row(replayed=None)
def an_operand_that_another_thread_changes():
    v = fad.tensor([0.5, -1.0, 2.0, 1.0])

    def f(x):
        y = fnp.sin(x) + v
        in_thread(lambda: v.add_(1.0))
        assert y.grad_fn
        return (y * x).sum()

    return fad.value_and_grad(f)(X)


@CALLS.row()
def what_an_inner_transform_computes_with():
    w, rows = fad.tensor([1.0, 2.0, 3.0, 4.0]), jnp.stack([X, X + 1.0])

    def f(x, inside):
        y = fnp.sin(x)
        if inside:
            return fnp.sum(fad.vmap(lambda row: fnp.sum(y * row))(rows))
        return fnp.sum(y * w)

    return in_turns(lambda inside: fad.grad(f)(X, inside))()


@CALLS.row()
def one_leaf_for_two_operands():
    """A weight that is used twice is one input, also where two different ones came before."""
    x = fad.tensor(X, requires_grad=True)

    def gradients(tied, at_once):
        a = fad.tensor(X + 1.0, requires_grad=True)
        b = a if tied else fad.tensor(X + 2.0, requires_grad=True)
        y = x * 2.0
        loss = fnp.einsum("i,i,i", y, a, b) if at_once else (y * a * b).sum()
        return fad.autograd.grad(loss, [x, a] if tied else [x, a, b])

    return [in_turns(lambda tied, k=k: gradients(tied, k))() for k in (False, True)]


@CALLS.row()
def numbers_that_are_too_large():
    g = fad.grad(lambda x, n: (fnp.sin(x) + n).sum())
    return [*[g(X, n) for n in range(TIMES)], outcome(lambda: g(X, 2**40))]


@CALLS.row()
def arguments_of_what_is_run_at_once_are_no_inputs():
    """``small`` is an input of what takes it later."""
    large = jnp.ones((inputs.LARGE + 1, 1))

    def f(x, small, other):
        fnp.multiply(small, large)
        y = (x * other)[0] * small
        return fnp.sum(y) / y.shape[0]

    def call(other):
        size = 1 + other
        return fad.value_and_grad(f)(X, fad.tensor(jnp.ones(size)), fad.tensor(X * 2.0))

    return in_turns(call)()


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_as_without_replay(name):
    law(*CALLS[name], calls=2, modes=modes_of(name))
    assert name != "a_new_number" or info("compiled") == 1


OPERANDS = [2.0, 2, X, fad.tensor([3.0, 1.0, 2.0, 4.0]), np.ones(4)]


@pytest.mark.parametrize("pair", [*itertools.permutations(OPERANDS, 2)], ids=str)
def test_operands_of_one_kind_are_not_taken_for_those_of_another(pair):
    """A Python int as exponent is part of the operation, an array is not."""
    g = fad.grad(lambda x, p: fnp.sum(fnp.sin(x) * p + fnp.power(fnp.cos(x), p)))
    law(in_turns(lambda other: g(X - 1.2, pair[other])), True, 1, one_mode(str(pair)))


FORMS = [
    (lambda y: y.sum(initial=1), lambda y: y.sum(1)),
    (lambda y: fnp.max(y, initial=1), lambda y: fnp.max(y, 1)),
    (lambda y: fnp.clip(y, max=3.0), lambda y: fnp.clip(y, 3.0)),
    (lambda y: y.clip(max=3.0), lambda y: y.clip(3.0)),
    (lambda y: y - 2.0, lambda y: 2.0 - y),
    (lambda y: fnp.add(y, 3), lambda y: fnp.subtract(y, 3)),
    (lambda y: fnp.power(y, 2), lambda y: fnp.power(y, 2.0)),
]


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_calls_of_one_form_are_not_taken_for_those_of_another(number, swapped):
    x = jnp.arange(6.0).reshape(2, 3)
    g = fad.value_and_grad(lambda x, k: (FORMS[number][k](x * 2.0) ** 2).sum())
    law(in_turns(lambda other: g(x, other ^ swapped)), True, 1, [MODES[(number + swapped) % 2]])


def _view_of(change):
    base = fad.tensor([1.0, 2.0, 3.0, 4.0])
    view = base[:3]
    change(base)
    return view


def _alias(written):
    base = fad.tensor([1.0, 2.0, 3.0])
    other = base.detach()
    (base, other)[written].mul_(3.0)
    return (other, base)[written]


def _with_deferred_error(w):
    base = fad.tensor([1.0, 2.0, 3.0, 4.0])
    with fad.no_grad():
        view = base[:3]
    base.mul_(w)
    return view


BEHIND = {
    "view": lambda w: _view_of(lambda base: base.add_(10.0)),
    "history": lambda w: _view_of(lambda base: base.mul_(w)),
    "detached": lambda w: _alias(0),
    "base of detached": lambda w: _alias(1),
    "deferred error": _with_deferred_error,
}


@pytest.mark.parametrize("kind", BEHIND)
@pytest.mark.parametrize("on_tape", [False, True])
def test_operands_are_brought_up_to_date(kind, on_tape):
    x = fad.tensor(X[:3], requires_grad=True)
    w = fad.tensor(2.0, requires_grad=True)

    def g(x, v):
        z = x * 2.0 * v
        return (z * z).sum()

    def call(behind):
        v = BEHIND[kind](w) if behind else fad.tensor([1.0, 2.0, 3.0])
        try:
            if on_tape:
                loss = g(x, v) + w
                return [loss, *fad.autograd.grad(loss, [x, w])]
            grads = fad.grad(lambda x: g(x, v))(X[:3])
            further = fad.autograd.grad(grads.sum(), w) if isinstance(grads, fad.Tensor) else []
            return [grads, *further]
        except fad.errors.GradientError as error:
            return str(error)

    found = law(in_turns(call), True, calls=1)
    assert isinstance(found[-2], str) == (kind == "deferred error")


@pytest.mark.parametrize(
    "f",
    [
        fad.jit(fad.grad(lambda x: (x * x).sum())),
        fad.grad(lambda x: fad.vmap(lambda row: (row * row).sum())(x).sum()),
        fad.grad(fad.jit(lambda x: (x[:, 1:] ** 2).sum())),
        fad.vmap(fad.grad(lambda row: (row[1:] ** 2).sum())),
    ],
)
def test_arrays_of_symbolic_sizes_are_exported(f):
    """They are no part of a trace: whether they are small is not known."""
    (n,) = jax.export.symbolic_shape("n")
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    program = jax.export.export(jax.jit(fad.to_jax(f)))(jax.ShapeDtypeStruct((n, 3), np.float32))
    assert_close(program.call(x), f(x))
