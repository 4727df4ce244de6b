"""`debug_unwrap`: what the Tensors of transforms wrap."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers import assert_close, bare

import fad

X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def test_the_batch_and_the_levels(torch: Any) -> None:
    def seen(func: Any, tensor: Any) -> list[Any]:
        found: list[Any] = []

        def look(x: Any) -> Any:
            found.append(func.debug_unwrap(x))
            inner = func.debug_unwrap(x, recurse=False)
            found.append(func.debug_unwrap(inner, recurse=False))
            return (x * x).sum()

        func.vmap(look)(tensor(X))
        func.vmap(func.grad(look), in_dims=1)(tensor(X))
        func.grad(lambda x: func.vmap(look)(x).sum())(tensor(X))
        return [*found, func.debug_unwrap(tensor(X))]

    expected = seen(torch.func, torch.tensor)
    for _ in range(4):
        assert_close(list(map(bare, seen(fad.func, fad.tensor))), [t.numpy() for t in expected])


def test_what_is_not_wrapped() -> None:
    x = fad.tensor(X, requires_grad=True)
    assert fad.func.debug_unwrap(x) is x
    assert fad.func.debug_unwrap(2.0) == 2.0
    found = []
    fad.jvp(lambda x: found.append(fad.func.debug_unwrap(x)) or x * 2, (X,), (X,))
    assert_close(found[0], X)
