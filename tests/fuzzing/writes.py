"""Views, and writes in place, for random programs."""

from __future__ import annotations

import fad
from tests.fuzzing.steps import Aval, Table, is_inexact, is_wide

__all__ = ["VIEWS_AND_WRITES"]

VIEWS_AND_WRITES = Table()
op = VIEWS_AND_WRITES.add


# Views: their results alias their operand


VIEW_INDICES = [{"i": i} for i in (0, -1, slice(1, None), slice(None, None, 2), None, ...)]


@op(1, lambda x: is_inexact(x) and x.ndim and x.shape[0] >= 2, VIEW_INDICES, kind="view",
    put=lambda x, new, i: x.at[i].set(new))  # fmt: skip
def view_index(lib, x, i):
    return x[i]


@op(1, lambda x: is_inexact(x) and x.ndim == 2, kind="view", put=lambda x, new: new.T)
def view_transpose(lib, x):
    return x.T


@op(1, lambda x: is_inexact(x) and x.ndim == 2, kind="view",
    put=lambda x, new: new.reshape(x.shape))  # fmt: skip
def view_reshape(lib, x):
    # A view in every order of the elements, which a reshape is not.
    return x.view(-1) if isinstance(x, fad.Tensor) else x.reshape(-1)


# Writes in place: they change their first operand, and all that shares its memory


def fits_into(x: Aval, v: Aval) -> bool:
    """Whether ``v`` can be broadcast into ``x``."""
    if not is_wide(x) or v.dtype != x.dtype or v.ndim > x.ndim:
        return False
    return all(m in (1, n) for m, n in zip(v.shape[::-1], x.shape[::-1], strict=False))


@op(2, fits_into, kind="write", put=lambda lib, x, v: x + v)
def add_(lib, x, v):
    x.add_(v)


@op(2, fits_into, kind="write", put=lambda lib, x, v: x * v)
def multiply_(lib, x, v):
    x.mul_(v)


@op(2, fits_into, kind="write", put=lambda lib, x, v: x - 0.5 * v)
def subtract_(lib, x, v):
    x -= 0.5 * v


@op(2, lambda x, v: fits_into(x, v) and x.ndim and x.shape[0] >= 2 and v.ndim < x.ndim,
    [{"i": 0}, {"i": -1}, {"i": slice(1, None)}, {"i": ...}],
    kind="write", put=lambda lib, x, v, i: x.at[i].set(v))  # fmt: skip
def set_item_(lib, x, v, i):
    x[i] = v


@op(2, lambda x, v: fits_into(x, v) and x.ndim and x.shape[0] >= 2 and v.ndim < x.ndim,
    [{"i": slice(0, 1)}, {"i": slice(None, None, 2)}],
    kind="write", put=lambda lib, x, v, i: x.at[i].add(v))  # fmt: skip
def add_item_(lib, x, v, i):
    x[i] += v


@op(2, lambda x, v: is_wide(x) and x.shape == v.shape and x.dtype == v.dtype, kind="write",
    put=lambda lib, x, v: v)  # fmt: skip
def copy_(lib, x, v):
    x.copy_(v)
