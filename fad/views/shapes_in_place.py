"""Changes of shape in place: a Tensor becomes a view of what it was."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from fad.core.level import outside
from fad.core.tensor import Tensor, has_history, meta_of, new_tensor, storage_of
from fad.tape.anomaly import remember_write
from fad.tape.graph import alias
from fad.views.aliases import Link, link_of, note_written_outputs
from fad.views.creation import DEFAULT
from fad.views.inplace import check_writable
from fad.views.pytree import original

_NEVER = -(2**63)  # a version that no storage has


def become_view(t: Tensor, view: Callable[[Tensor], Tensor], who: str) -> Tensor:
    """Make ``t`` the view of itself that ``view`` makes; returns it.

    It shares its elements with its views, and with what it is a view of, as before. A Tensor that was
    no view is one then, of a Tensor that has its place, to which its views turn; see `Link.base`.

    Raises:
        GradientError, LevelError: as for a write, see `fad.views.inplace.write`.
        ValueError: from ``view``.
    """
    t = original(t)
    check_writable(t, who, elements=False)
    storage = storage_of(t)
    with storage.lock:
        made = link_of(view(t))
        assert made is not None
        old = link_of(t)
        link = made
        if old is None or old.base is None:
            link = Link(_in_place_of(t, old), made.chain, DEFAULT, _NEVER)
        else:  # the history of before goes on, whatever the grad mode is
            link.creation = old.creation
        meta = meta_of(t)
        note_written_outputs(t, storage, storage.version + 1)
        storage.version += 1
        remember_write(storage, storage.version)
        link.seen = _NEVER
        meta.link = link
        link.sync(t)
    return outside(t)


def _in_place_of(t: Tensor, link: Any) -> Tensor:
    """A Tensor that is what ``t`` is now, to all its aliases."""
    if t.requires_grad and not has_history(t):  # a leaf, in no_grad; it stays the leaf
        base: Tensor = new_tensor(t.value, t.level, t.aux)
        meta_of(base).of_leaf = True
    else:
        base = alias(t)
    base.born = t.born
    meta, storage = meta_of(base), storage_of(t)
    meta.storage, meta.link = storage, link
    meta.inference = meta_of(t).inference
    storage.peers = [weakref.ref(base) if p() is t else p for p in storage.peers]
    return base
