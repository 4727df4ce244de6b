"""Random programs of values from outside and inputs of transforms: views, writes, reads, nested transforms.

Each statement may fail, and its error is a result like any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replays import NESTED_TRANSFORMS, assert_idle, bits, off, replay

import fad
import fad.numpy as fnp

FULL = settings.get_current_profile_name() == "full"
X = np.linspace(-1.0, 1.0, 4).astype(np.float32)


class Outside:
    """What the program finds outside of the transform, and what it leaves there."""

    def __init__(self) -> None:
        self.rows = fad.tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 7.0)
        self.buffer = fad.tensor(np.ones(4, np.float32))
        self.leaf = fad.tensor(np.full(4, 0.3, np.float32), requires_grad=True)
        self.kept: list[Any] = []
        self.log: list[Any] = []


def fitting(a: Any, b: Any) -> Any:
    """``b``, or its sum, so that it can be written to ``a``."""
    try:
        fits = np.broadcast_shapes(a.shape, b.shape) == a.shape
    except ValueError:
        fits = False
    return b if fits else fnp.sum(b)


def product(o: Outside, a: Any, b: Any) -> Any:
    return a * (b if a.ndim != b.ndim or a.shape == b.shape else fnp.sum(b))


def difference(o: Outside, a: Any, b: Any) -> Any:
    return fnp.tanh(a) - fnp.sum(b) * 0.5


def first(o: Outside, a: Any, b: Any) -> Any:
    return a[0] if a.ndim else a[None]


def tail(o: Outside, a: Any, b: Any) -> Any:
    return a[1:] if a.ndim else a.reshape(1)


def flat(o: Outside, a: Any, b: Any) -> Any:
    return a.reshape(-1)


def last_columns(o: Outside, a: Any, b: Any) -> Any:
    return a[..., -2:]


def assign(o: Outside, a: Any, b: Any) -> Any:
    a[-1] = fitting(a[-1], b)


def add_in_place(o: Outside, a: Any, b: Any) -> Any:
    a.add_(fitting(a, b))


def halve_in_place(o: Outside, a: Any, b: Any) -> Any:
    a.mul_(0.5)


def assign_row(o: Outside, a: Any, b: Any) -> Any:
    o.rows[1] = fnp.sum(a) * 0.5


def assign_buffer(o: Outside, a: Any, b: Any) -> Any:
    o.buffer[:2] = fitting(o.buffer[:2], b)


def read(o: Outside, a: Any, b: Any) -> Any:
    o.log.append(a.detach().tolist())


def look(o: Outside, a: Any, b: Any) -> Any:
    o.log.append((a.shape, a.requires_grad, a.is_leaf, a.version, a.grad_fn is None))


def branch(o: Outside, a: Any, b: Any) -> Any:
    return a * 2.0 if float(fnp.sum(a)) > 1.0 else a * 3.0


def keep(o: Outside, a: Any, b: Any) -> Any:
    o.kept.append(a)


def use_kept(o: Outside, a: Any, b: Any) -> Any:
    return o.kept[0] if o.kept else None


def detach(o: Outside, a: Any, b: Any) -> Any:
    return a.detach()


def clone(o: Outside, a: Any, b: Any) -> Any:
    return a.clone()


def step_of_the_tape(o: Outside, a: Any, b: Any) -> Any:
    fnp.sum((o.leaf * fnp.sum(a.detach()) + o.leaf) ** 2).backward()
    return o.leaf.grad


SIMPLE = [
    *[product, difference, first, tail, flat, last_columns],
    *[assign, add_in_place, halve_in_place, assign_row, assign_buffer],
    *[read, look, branch, keep, use_kept, detach, clone, step_of_the_tape],
]

Inner = Callable[[Any], Any]


def no_grad(a: Any, inner: Inner) -> Any:
    with fad.no_grad():
        return inner(a)


NESTED: list[Callable[[Any, Inner], Any]] = [
    no_grad,
    lambda a, inner: fad.grad(lambda y: fnp.sum(inner(y) * fnp.sum(y)))(a),
    lambda a, inner: fad.jvp(lambda y: inner(y) * 2.0, (a,), (a * 0.5,))[1],
    lambda a, inner: fad.vmap(lambda y: fnp.sum(inner(y)) * y)(a),
]

Program = Sequence[Any]
places = st.integers(0, 11)
simple = st.tuples(st.sampled_from(SIMPLE), places, places)
nested = st.tuples(st.sampled_from(NESTED), places, st.lists(simple, min_size=1, max_size=4))
statements = st.lists(simple | simple | nested, min_size=2, max_size=8)


def told(error: Exception) -> str:
    """An error, without the numbers of levels."""
    return f"{type(error).__name__}: {re.sub(r'level [0-9]+', 'level', str(error))}"


def run(o: Outside, program: Program, pool: list[Any]) -> None:
    """Run the statements, on values of ``pool``, to which they add what they make."""
    for do, at, rest in program:
        a = pool[at % len(pool)]
        try:
            if isinstance(rest, int):
                made = do(o, a, pool[rest % len(pool)])
            else:

                def inner(y: Any, rest: Program = rest) -> Any:
                    own = [*pool, y]
                    run(o, rest, own)
                    return own[-1]

                made = do(a, inner)
        except Exception as error:  # of any kind: replay must not change it
            o.log.append(told(error))
        else:
            if made is not None:
                pool.append(made)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    **NESTED_TRANSFORMS,
    "jvp of grad": lambda f: lambda x: fad.jvp(fad.grad(f), (x,), (x + 1.0,)),
    "grad of vmap": lambda f: fad.grad(lambda x: fnp.sum(fad.vmap(f)(fnp.stack([x, x * 2.0])))),
}


def shown(x: Any) -> Any:
    """The bits of a value, its version, and whether it requires grad; or the error of looking at them."""
    try:
        return bits([x]), x.requires_grad, x.version
    except Exception as error:
        return type(error).__name__


def results(program: Program, transform: str) -> Any:
    """All that a call gives and leaves behind."""
    o = Outside()

    def f(x: Any) -> Any:
        pool = [o.rows, o.buffer, x, x, o.rows[1]]
        run(o, program, pool)
        return fnp.sum(pool[-1]) + fnp.sum(x * fnp.sum(pool[len(pool) // 2]))

    try:
        found: Any = bits(TRANSFORMS[transform](f)(fad.tensor(X)))
    except Exception as error:
        found = told(error)
    assert_idle()
    left = [o.rows, o.buffer, *o.kept, *([] if o.leaf.grad is None else [o.leaf.grad])]
    return found, o.log, list(map(shown, left))


@pytest.mark.parametrize("mode", ["background", "at once"])
@settings(max_examples=2_000 if FULL else 12, suppress_health_check=[HealthCheck.too_slow])
@given(statements, st.sampled_from([*TRANSFORMS]))
def test_random_programs_give_what_replay_off_gives(
    mode: str, program: Program, transform: str
) -> None:
    with off():
        expected = results(program, transform)
    fad.autograd.compiled.clear_cache()
    with replay(mode):
        for call in range(4):
            assert results(program, transform) == expected, call
