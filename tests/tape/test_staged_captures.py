"""What a staged or checkpointed body reads from outside: numbered by first use, in the state of that time."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from helpers import assert_close, leaf

import fad
import fad.numpy as fnp
from fad.tape.staged import Captures

V = np.array([0.5, 2.0, 3.0], np.float32)


def test_each_tensor_has_one_number() -> None:
    captures = Captures()
    x, y = fad.tensor(V), fad.tensor(V)
    assert [captures.position(t) for t in (x, y, x, y, x)] == [0, 1, 0, 1, 0]
    assert all([a is b for a, b in zip(captures.tensors, (x, y), strict=True)])
    assert Captures().tensors == []


def test_a_tensor_that_was_changed_is_another_capture() -> None:
    captures = Captures()
    x = fad.tensor(V)
    captures.position(x)
    x += 1.0
    assert captures.position(x) == 1 and captures.position(x) == 1
    before, now = captures.tensors
    assert now is x and before is not x
    assert_close((before, now), (V, V + 1))


def test_the_state_of_a_capture_has_its_history() -> None:
    captures = Captures()
    x = leaf(V)
    y = x * 2.0
    captures.position(y)
    y *= 5.0
    captures.tensors[0].sum().backward()
    assert_close(x.grad, np.full(3, 2, np.float32))


def test_bodies_read_what_was_there_when_they_ran() -> None:
    """Through the two that capture: a loop, and a checkpointed body."""
    x, scale = leaf(V), leaf(2.0)
    y = x * 1.0
    kept = fad.checkpoint(lambda v: fnp.sum(v * y * scale))(jnp.ones(3))
    with fad.no_grad():
        y += 100.0
    total = fad.lax.fori_loop(0, 3, lambda _, c: c + scale * 2.0, fad.tensor(0.0))
    assert kept.item() == 2.0 * V.sum() and total.item() == 12.0
    total.backward()
    assert scale.grad.item() == 6.0
    again = fad.checkpoint(lambda v: fnp.sum(v * x))(jnp.ones(3))
    again.backward()
    assert_close(x.grad, np.ones(3, np.float32))
