"""Which values are still referenced."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from repeated import again

import fad
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.replay import next_states

X = jnp.array([0.5, 1.0, 1.5, 2.0])

pytestmark = pytest.mark.usefixtures("fresh_traces")


@pytest.mark.parametrize(
    "transform", [fad.vmap, fad.grad, fad.jacfwd], ids=["vmap", "grad", "jacfwd"]
)
@pytest.mark.parametrize("place", [0, 2, 3])
def test_outputs_that_only_the_tuple_of_the_caller_refers_to(monkeypatch, place, transform):
    """A segment ends between the two uses of the pair that an operation gives."""
    monkeypatch.setattr(next_states, "ends_segment", lambda path, *_: (len(path) + 1) % 4 == place)
    pair = Primitive("pair", lambda x: (jnp.sin(x), jnp.cos(x)), deferrable=True)

    def f(x):
        for _ in range(8):
            both = bind(pair, (x,))
            x = both[0] * 0.5
            x = x + both[1]
            del both
        return x

    again(transform(f), X if transform is fad.vmap else 0.5)
