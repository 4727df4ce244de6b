"""What runs as one compiled program has the bits of what runs operation by operation.

Random programs of small arrays under transforms and on the eager tape, called several times; and what
XLA's algebra would change: quotients that overflow if they are gathered, products that cancel, operands that
are one array.
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import is_idle
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import fad
import fad.numpy as fnp
from fad.methods.functions import asarray
from tests.fuzzing.programs import Program
from tests.fuzzing.repeats import check_bits, check_training, in_32_bits, inputs_of
from tests.fuzzing.stacks import IN_FAD, apply_stack, leaves_of, weigh
from tests.fuzzing.strategies import whole_programs

FULL = settings.get_current_profile_name() == "full"
CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]
PHASES = [Phase.explicit, Phase.generate, Phase.shrink]

# The innermost first.
STACKS: tuple[tuple[str, ...], ...] = (
    (),
    ("grad",),
    ("value_and_grad",),
    ("jvp",),
    ("vmap",),
    ("jacfwd",),
    ("jacrev",),
    ("jacrev", "jacfwd"),
    ("grad", "grad"),
    ("grad", "vmap"),
    ("grad", "jvp"),
    ("vmap", "grad"),
    ("dual_level",),
    ("autograd",),
    ("autograd", "autograd"),
)


# With the flags of these tests (XLA's optimization level 0) LLVM contracts products of complex numbers by
# what it knows of the memory around. At XLA's own level it does not: `test_another_process_...` has them.


def function_of(program: Program, stack: tuple[str, ...]) -> Any:
    return apply_stack(IN_FAD, functools.partial(program.run, IN_FAD), stack)


def backward_of(program: Program) -> Any:
    """The loss and the gradients that `backward` leaves in the inputs."""

    def run(x: Any, n: Any) -> Any:
        leaves = [asarray(v).clone().requires_grad_() for v in leaves_of(x)]
        total = weigh(IN_FAD, program.run(IN_FAD, leaves, n))
        if not isinstance(total, fad.Tensor) or not total.requires_grad:
            return [total]
        total.backward()
        return [total.detach(), *[v.grad for v in leaves if v.grad is not None]]

    return run


@settings(max_examples=400 if FULL else 8, suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs(8), st.sampled_from(STACKS))
def test_random_programs_have_the_same_bits_at_every_call(
    program: Program, stack: tuple[str, ...]
) -> None:
    assume(not program.is_complex)  # see above
    program = in_32_bits(program)
    check_bits(function_of(program, stack), *inputs_of(program))
    assert is_idle()


@settings(max_examples=100 if FULL else 6, suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs(8))
def test_backward_of_random_programs_has_the_same_bits_at_every_call(program: Program) -> None:
    assume(not program.is_complex)
    program = in_32_bits(program)
    check_bits(backward_of(program), *inputs_of(program))
    assert is_idle()


@settings(max_examples=100 if FULL else 4, suppress_health_check=CHECKS, phases=PHASES)
@given(whole_programs())
def test_training_of_random_programs_has_the_same_bits(program: Program) -> None:
    assume(not program.is_complex)
    assume(check_training(program, exact=True))


# What algebra would change: XLA rewrites it at every level of optimization.


def quotients(x: Any, c: Any) -> Any:
    return ((x / c) / c * c).sum()


def cancelling(x: Any, c: Any) -> Any:
    return (((x + c) - c) * c / c - x).sum()


def powers(x: Any, c: Any) -> Any:
    return (fnp.sqrt(x * x) / fnp.exp(fnp.log(fnp.abs(x) + c))).sum()


def sums_and_products(x: Any, c: Any) -> Any:
    return (x * x - c * x + fnp.tanh(x) * c + x * c).sum()


def reductions(x: Any, c: Any) -> Any:
    y = x.reshape(-1, 1) * fnp.cos(x) + c
    return (y.sum(0) * y.T.sum(0)).mean() + (y.T @ y).sum(1).max() + fnp.var(y.T, 0).sum()


def by_a_scalar(x: Any, c: Any) -> Any:
    """Whether XLA divides by a scalar, or multiplies by its inverse, depends on who else uses it."""
    s = x[0]
    return (x / s).sum() + fnp.sin(s) + s * s + (x / c).max()


def half(x: Any, c: Any) -> Any:
    y = (x / c).astype(jnp.bfloat16) / (x + c).astype(jnp.bfloat16)
    return (fnp.tanh(y * y) + y).astype(jnp.float32).sum()


REWRITTEN = [quotients, cancelling, powers, sums_and_products, reductions, by_a_scalar, half]
SIZES = [(1e30, 1e25), (1.0, 0.1), (1e-20, 1e-18), (3.0, 1e8)]


@pytest.mark.sweep("f, at", [*itertools.product(REWRITTEN, SIZES)], sample=7)
def test_algebra_is_left_as_it_is_written(f: Any, at: tuple[float, float]) -> None:
    size, c = at
    xs = [(jnp.asarray(size * np.linspace(0.1, 1.7, 7) + k, jnp.float32),) for k in (0, 1)]
    constant = np.float32(c)

    def on_the_tape(x: Any) -> Any:
        leaf = fad.tensor(x, requires_grad=True)
        value = f(leaf, constant)
        value.backward()
        return value.detach(), leaf.grad

    check_bits(on_the_tape, *xs)
    for transformed in (fad.value_and_grad, fad.grad, fad.jacfwd, fad.hessian):
        check_bits(transformed(lambda x: f(x, constant)), *xs)
    check_bits(
        fad.vmap(fad.grad(lambda x: f(x, constant))), *[(jnp.stack([x, 2 * x]),) for (x,) in xs]
    )


def test_a_small_gradient_stays_what_it_is() -> None:
    c = fad.tensor(1e25)
    with fad.autograd.compiled(wait=True):
        for _ in range(5):
            x = fad.tensor([1e30], requires_grad=True)
            ((x / c) / c * c).sum().backward()
            assert x.grad is not None and abs(x.grad.item() * 1e25 - 1.0) < 1e-5


def test_a_quotient_of_a_quotient_does_not_overflow() -> None:
    with fad.autograd.compiled(wait=True):
        for _ in range(5):
            b = fad.tensor([1e-5], requires_grad=True)
            out = 1e25 / (b / 1e-20)
            assert out.item() == pytest.approx(1e10, rel=1e-5)
            out.sum().backward()
            assert b.grad is not None and np.isfinite(b.grad.item())
            big = 1e25 / (fad.tensor([1e20], requires_grad=True) / 1e20)
            assert np.isfinite(big.item())


SCRIPT = """
import contextlib, sys
import jax.numpy as jnp, numpy as np
import fad, fad.numpy as fnp, fad.nn

def bits(tree):
    for v in fad.core.trees.flatten(tree)[0]:
        v = np.asarray(v.array if isinstance(v, fad.Tensor) else v)
        print(v.dtype, v.shape, v.tobytes().hex())

def loss(w, x):
    y = fnp.tanh(x @ w / 3.0 + 0.1) * w - fnp.sin(x) / (1.0 + x * x)
    return (fad.nn.softmax(y) * fad.nn.gelu(y.T)).sum() + fnp.var(y.T, 0).mean()

rng = np.random.default_rng(0)
x, w = [jnp.asarray(rng.standard_normal((6, 6)), jnp.float32) for _ in range(2)]
for on in (True, False):
    with fad.autograd.compiled(on, wait=on):
        p = fad.tensor(w, requires_grad=True)
        for _ in range(6):
            total = loss(p, x)
            p.grad = None
            total.backward()
            with fad.no_grad():
                p -= 0.1 * p.grad
            bits(total.detach())
        bits(p.detach())
        for k in range(4):
            bits(fad.value_and_grad(loss)(w + k, x))
            bits(fad.jvp(fad.grad(lambda w: loss(w, x)), (w,), (x,)))
            bits(fad.vmap(fad.grad(loss), (None, 0))(w[:1] * w, jnp.stack([x, w])))
        z = x[0] + 1j * w[0]
        for k in range(4):
            bits(fad.grad(lambda z: fnp.sum(fnp.abs(fnp.tanh(z * z) / (1.0 + z))))(z))
            bits(fad.jvp(lambda z: fnp.exp(fnp.sin(z) * z), (z,), (z * z,)))
        bits(fad.hessian(lambda v: loss(v * w, x))(x[0]))
"""


def lines_of(script: str, *arguments: str) -> list[str]:
    """What a script prints in another process, with XLA's own settings, which the other tests do without."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=Path(fad.__file__).resolve().parents[1],
        env={k: v for k, v in os.environ.items() if k != "XLA_FLAGS"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_another_process_has_the_same_bits() -> None:
    lines = lines_of(SCRIPT)
    on, off = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert len(off) > 20
    assert on == off


# Operands that are one array, a view of one, or results of equal operations: at XLA's own level of
# optimization alone does LLVM make use of that. Numbers of failing inputs, of 60 for each function.
TWICE = """
import sys
import jax.numpy as jnp, numpy as np
import fad, fad.numpy as fnp
from tests.fuzzing.operations import OPERATIONS
from tests.fuzzing.stacks import IN_FAD, weigh

A = jnp.asarray([[2.0, 0.3], [0.3, 1.1]], jnp.float32)
INPUTS = [jnp.asarray(v, jnp.float32) for v in np.random.default_rng(0).standard_normal((60, 2))]
TWINS = {
    "one array": lambda y: (y, y),
    "views": lambda y: (y, y.reshape(1, 2).T.reshape(2)),
    "equal results": lambda y: (fnp.sin(y), fnp.sin(y)),
    "a sum of one": lambda y: (y * 1.5, (y * 1.5).reshape(1, 2).sum(0)),
    "matrices": lambda y: (fnp.outer(y, y), fnp.outer(y, y)),
}

def conjugate_gradients(b):
    x, r = 0.0 * b, b
    p = r
    for _ in range(3):
        step = fnp.dot(r, r) / fnp.dot(p, A @ p)
        x, new = x + step * p, r - step * (A @ p)
        p, r = new + fnp.dot(new, new) / fnp.dot(r, r) * p, new
    return fnp.dot(x, x)

def raw(tree):
    return [np.asarray(v).tobytes() for v in tree]

def check(name, f):
    step = fad.value_and_grad(lambda x: weigh(IN_FAD, f(x)))
    with fad.autograd.compiled(False):
        alone = [raw(step(x)) for x in INPUTS]
    with fad.autograd.compiled(wait=True):
        for x in INPUTS[:2]:
            step(x)
        hits = fad.autograd.compiled.cache_info()["hits"]
        whole = [raw(step(x)) for x in INPUTS]
        assert fad.autograd.compiled.cache_info()["hits"] >= hits + len(INPUTS)
    print(name, sum(a != b for a, b in zip(alone, whole)))

if sys.argv[1] == "some":
    chosen = [("matmul", kind) for kind in TWINS] + [("hypot", "one array")]
else:
    chosen = [(name, kind) for name in OPERATIONS for kind in TWINS]
for name, kind in chosen:
    op = OPERATIONS[name]
    if op.arity == 2 and op.accepts(*TWINS[kind](INPUTS[0])):
        check(name + " " + kind, lambda x: op.run(IN_FAD, *TWINS[kind](x), **op.options[0]))
check("conjugate gradients", conjugate_gradients)
"""


def test_values_that_are_used_twice_have_the_same_bits() -> None:
    found = lines_of(TWICE, "all" if FULL else "some")
    assert len(found) >= 7
    assert [line for line in found if not line.endswith(" 0")] == []
