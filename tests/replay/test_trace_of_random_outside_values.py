"""Random programs of values from outside and inputs of transforms: views, writes, reads, nested transforms.

Each statement may fail, and its error is a result like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replays import MODES, TRANSFORMS, Outside, law, outcome

import fad
import fad.numpy as fnp

FULL = settings.get_current_profile_name() == "full"
X = np.linspace(-1.0, 1.0, 4).astype(np.float32)


def fitting(a: Any, b: Any) -> Any:
    """``b``, or its sum, so that it can be written to ``a``."""
    try:
        fits = np.broadcast_shapes(a.shape, b.shape) == a.shape
    except ValueError:
        fits = False
    return b if fits else fnp.sum(b)


def assign(a: Any, b: Any) -> None:
    a[-1] = fitting(a[-1], b)


def assign_outside(o: Outside, a: Any, b: Any) -> None:
    o.rows[1] = fnp.sum(a) * 0.5
    o.buffer[:2] = fitting(o.buffer[:2], b)


def step_of_the_tape(o: Outside, a: Any) -> Any:
    fnp.sum((o.leaf * fnp.sum(a.detach()) + o.leaf) ** 2).backward()
    return o.leaf.grad


def no_grad(a: Any, inner: Callable[[Any], Any]) -> Any:
    with fad.no_grad():
        return inner(a)


SIMPLE: dict[str, Callable[[Outside, Any, Any], Any]] = {
    "product": lambda o, a, b: a * (b if a.ndim != b.ndim or a.shape == b.shape else fnp.sum(b)),
    "difference": lambda o, a, b: fnp.tanh(a) - fnp.sum(b) * 0.5,
    "first": lambda o, a, b: a[0] if a.ndim else a[None],
    "tail": lambda o, a, b: a[1:] if a.ndim else a.reshape(1),
    "flat": lambda o, a, b: a.reshape(-1),
    "last columns": lambda o, a, b: a[..., -2:],
    "assign": lambda o, a, b: assign(a, b),
    "add in place": lambda o, a, b: [a.add_(fitting(a, b)), None][1],
    "halve in place": lambda o, a, b: [a.mul_(0.5), None][1],
    "assign outside": assign_outside,
    "read": lambda o, a, b: o.log.append(a.detach().tolist()),
    "look": lambda o, a, b: o.log.append(
        (a.shape, a.requires_grad, a.is_leaf, a.version, a.grad_fn is None)
    ),
    "branch": lambda o, a, b: a * 2.0 if float(fnp.sum(a)) > 1.0 else a * 3.0,
    "keep": lambda o, a, b: o.kept.append(a),
    "use kept": lambda o, a, b: o.kept[0] if o.kept else None,
    "detach": lambda o, a, b: a.detach(),
    "clone": lambda o, a, b: a.clone(),
    "step of the tape": lambda o, a, b: step_of_the_tape(o, a),
}
NESTED: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "no_grad": no_grad,
    "grad": lambda a, inner: fad.grad(lambda y: fnp.sum(inner(y) * fnp.sum(y)))(a),
    "jvp": lambda a, inner: fad.jvp(lambda y: inner(y) * 2.0, (a,), (a * 0.5,))[1],
    "vmap": lambda a, inner: fad.vmap(lambda y: fnp.sum(inner(y)) * y)(a),
}

Program = Sequence[Any]
places = st.integers(0, 11)
simple = st.tuples(st.sampled_from([*SIMPLE]), places, places)
nested = st.tuples(st.sampled_from([*NESTED]), places, st.lists(simple, min_size=1, max_size=4))
statements = st.lists(simple | simple | nested, min_size=2, max_size=8)


def run(o: Outside, program: Program, pool: list[Any]) -> None:
    """Run the statements, on values of ``pool``, to which they add what they make."""
    for do, at, rest in program:
        a = pool[at % len(pool)]
        made: list[Any] = []

        def inner(y: Any, rest: Program = rest) -> Any:
            own = [*pool, y]
            run(o, rest, own)
            return own[-1]

        def statement(do: str = do, a: Any = a, rest: Any = rest, made: Any = made) -> None:
            if isinstance(rest, int):
                made.append(SIMPLE[do](o, a, pool[rest % len(pool)]))
            else:
                made.append(NESTED[do](a, inner))

        failed = outcome(statement)
        if failed is not None:
            o.log.append(failed)
        elif made[0] is not None:
            pool.append(made[0])


def call(program: Program, transform: str) -> Any:
    """All that a call gives and leaves behind."""
    o = Outside()

    def f(x: Any) -> Any:
        pool = [o.rows, o.buffer, x, x, o.rows[1]]
        run(o, program, pool)
        return fnp.sum(pool[-1]) + fnp.sum(x * fnp.sum(pool[len(pool) // 2]))

    return o.after(lambda: TRANSFORMS[transform](f)(fad.tensor(X)))


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=2_000 if FULL else 8, suppress_health_check=[HealthCheck.too_slow])
@given(statements, st.sampled_from([*TRANSFORMS]))
def test_random_programs_are_as_without_replay(mode: str, program: Program, transform: str) -> None:
    law(lambda: call(program, transform), calls=4, modes=[mode])
