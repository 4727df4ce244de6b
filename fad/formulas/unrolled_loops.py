"""Loops and branches of ``jax.lax`` as Python, where `fad.extend.uncompiled` says so.

By the names of `jax.lax`. One that Python cannot run (a condition that is batched has no value) raises
HostValueError; scans without a step, IndexError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from fad.extend import Primitive, bind, enter, flatten, has_tensor, leave, map_leaves
from fad.extend.types import PyTree

_ROW = Primitive("getitem", lambda x, i: x[i])
_STACK = Primitive("stack", lambda *rows: jnp.stack(rows))
Body = Callable[..., PyTree]


def _entered(tree: PyTree) -> PyTree:
    """The arrays and numbers of a tree as Tensors, as bodies get them."""
    numbers = (np.number, bool, int, float, complex)
    return enter(map_leaves(lambda x: jnp.asarray(x) if isinstance(x, numbers) else x, tree))


def scan(
    f: Body,
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    **options: object,
) -> PyTree:
    """``jax.lax.scan``."""
    carry, xs = _entered(init), _entered(xs)
    count = int(length) if length is not None else flatten(xs)[0][0].shape[0]
    rows: list[PyTree] = []
    for k in reversed(range(count)) if reverse else range(count):
        carry, y = f(carry, map_leaves(lambda x, k=k: bind(_ROW, (x, k)), xs))
        rows.append(_entered(y))
    return carry, _stacked(rows[::-1] if reverse else rows)


def _stacked(rows: Sequence[PyTree]) -> PyTree:
    return map_leaves(lambda *leaves: bind(_STACK, leaves), rows[0], *rows[1:])


def while_loop(
    cond_fun: Body,
    body_fun: Body,
    init_val: PyTree,
    max_steps: int | None = None,
    **options: object,
) -> PyTree:
    """``jax.lax.while_loop``."""
    carry = _entered(init_val)
    steps = 0
    while steps != max_steps and bool(cond_fun(carry)):
        carry = _entered(body_fun(carry))
        steps += 1
    return carry


def fori_loop(
    lower: PyTree, upper: PyTree, body_fun: Body, init_val: PyTree, **options: object
) -> PyTree:
    """``jax.lax.fori_loop``."""
    carry = _entered(init_val)
    for k in range(int(lower), int(upper)):
        carry = _entered(body_fun(_entered(k), carry))
    return carry


def cond(
    pred: PyTree, true_fun: Body, false_fun: Body, *operands: PyTree, **named: PyTree
) -> PyTree:
    """``jax.lax.cond``."""
    return (true_fun if bool(pred) else false_fun)(*_entered((*operands, *named.values())))


def switch(index: PyTree, branches: Sequence[Body], *operands: PyTree, **named: PyTree) -> PyTree:
    """``jax.lax.switch``."""
    k = min(max(int(index), 0), len(branches) - 1)
    return branches[k](*_entered((*operands, *named.values())))


def mapped(f: Body, xs: PyTree, **options: object) -> PyTree:
    """``jax.lax.map``."""
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]


UNROLLED: dict[str, Callable[..., PyTree]] = {
    "cond": cond,
    "fori_loop": fori_loop,
    "map": mapped,
    "scan": scan,
    "switch": switch,
    "while_loop": while_loop,
}


def unrolled(name: str, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
    """A call of one of `UNROLLED`. As of other functions, arrays alone give arrays."""
    out = UNROLLED[name](*args, **kwargs)
    return out if has_tensor((tuple(args), kwargs)) else leave(out, tensors=False)
