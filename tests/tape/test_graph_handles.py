"""The handles of hooks: they remove a hook once, and keep nothing alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from helpers import leaf

from fad import autograd


def test_handles_are_removed_once() -> None:
    x = leaf(1.0)
    seen: list[Any] = []
    handle = x.register_hook(seen.append)
    assert isinstance(handle, autograd.RemovableHandle)
    handle.remove()
    handle.remove()
    with x.register_hook(seen.append) as inner:
        (x * 2.0).backward()
        inner.remove()
    (x * 2.0).backward()
    assert len(seen) == 1


def test_a_handle_does_not_keep_the_graph() -> None:
    gc.disable()
    try:
        y = leaf(1.0) * 2.0
        node = weakref.ref(y.grad_fn)
        handle = y.register_hook(print)
        del y
        assert node() is None
        handle.remove()
    finally:
        gc.enable()
