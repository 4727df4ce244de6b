"""Loops and branches of ``jax.lax`` as Python, where `fad.extend.uncompiled` says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.tape.recorder import ROOT, as_tensor

_ROW = Primitive("getitem", lambda x, i: x[i])
_STACK = Primitive("stack", lambda *rows: jnp.stack(rows))
_Body = Callable[..., PyTree]


def _map(f: Callable[..., object], tree: PyTree, *trees: PyTree) -> PyTree:
    return jax.tree_util.tree_map(f, tree, *trees, is_leaf=lambda x: isinstance(x, Tensor))


def _entered(tree: PyTree) -> PyTree:
    """The arrays and numbers of a tree as Tensors, as bodies get them."""
    kinds = (jax.Array, np.ndarray, np.number, bool, int, float, complex)
    return _map(lambda x: as_tensor(x) if isinstance(x, kinds) else x, tree)


def _scan(
    f: _Body,
    init: PyTree,
    xs: PyTree = None,
    length: int | None = None,
    reverse: bool = False,
    **options: object,
) -> PyTree:
    carry, xs = _entered(init), _entered(xs)
    leaves = jax.tree_util.tree_leaves(xs, is_leaf=lambda x: isinstance(x, Tensor))
    count = int(length) if length is not None else leaves[0].shape[0]
    rows: list[PyTree] = []
    for k in reversed(range(count)) if reverse else range(count):
        carry, y = f(carry, _map(lambda x, k=k: bind(_ROW, (x, k)), xs))
        rows.append(_entered(y))
    return carry, _stacked(rows[::-1] if reverse else rows)


def _stacked(rows: Sequence[PyTree]) -> PyTree:
    return _map(lambda *leaves: bind(_STACK, leaves), rows[0], *rows[1:])


def _while_loop(
    cond_fun: _Body,
    body_fun: _Body,
    init_val: PyTree,
    max_steps: int | None = None,
    **options: object,
) -> PyTree:
    carry = _entered(init_val)
    steps = 0
    while steps != max_steps and bool(cond_fun(carry)):
        carry = _entered(body_fun(carry))
        steps += 1
    return carry


def _fori_loop(
    lower: PyTree, upper: PyTree, body_fun: _Body, init_val: PyTree, **options: object
) -> PyTree:
    carry = _entered(init_val)
    for k in range(int(lower), int(upper)):
        carry = _entered(body_fun(_entered(k), carry))
    return carry


def _cond(
    pred: PyTree, true_fun: _Body, false_fun: _Body, *operands: PyTree, **named: PyTree
) -> PyTree:
    return (true_fun if bool(pred) else false_fun)(*_entered((*operands, *named.values())))


def _switch(index: PyTree, branches: Sequence[_Body], *operands: PyTree, **named: PyTree) -> PyTree:
    k = min(max(int(index), 0), len(branches) - 1)
    return branches[k](*_entered((*operands, *named.values())))


def _mapped(f: _Body, xs: PyTree, **options: object) -> PyTree:
    return _scan(lambda carry, x: (carry, f(x)), (), xs)[1]


# By the names of `jax.lax`. One that Python cannot run here (a condition that is batched has no value) raises
# HostValueError; scans without a step, IndexError.
UNROLLED: dict[str, Callable[..., PyTree]] = {
    "cond": _cond,
    "fori_loop": _fori_loop,
    "map": _mapped,
    "scan": _scan,
    "switch": _switch,
    "while_loop": _while_loop,
}


def unrolled(name: str, args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> PyTree:
    """A call of one of `UNROLLED`. As of other functions, arrays alone give arrays."""
    out = UNROLLED[name](*args, **kwargs)
    if any([isinstance(x, Tensor) for x in trees.flatten((args, kwargs))[0]]):
        return out
    return _map(
        lambda x: (
            x.value if isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad else x
        ),
        out,
    )
