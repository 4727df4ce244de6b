"""``check_sparse``: a sparse derivative against dense products, and where its pattern is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fad import jacfwd, jacrev, jit
from fad.errors import ArgumentError, FadError
from fad.extend import Call
from fad.sparse.given import Leaf, offsets
from fad.sparse.plans import HESSIAN, JACOBIAN, Derivative
from fad.testing.comparison import bare
from fad.testing.finite_differences import random_like
from fad.transforms.jvp import push_forward

_SHOWN = 4  # entries in a message


class SparsityError(FadError, AssertionError):
    """A sparse derivative differs from the dense one.

    >>> import fad, jax.numpy as jnp
    >>> fad.testing.check_sparse(lambda x: x * x[::-1], jnp.arange(1.0, 4.0), pattern=jnp.eye(3))
    Traceback (most recent call last):
    fad.testing.SparsityError: sparse_jacobian: the pattern lacks ... output[2] by argument 0[0], ...
    """


def check_sparse(
    f: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    hessian: bool = False,
    pattern: Any = None,
    dense: bool = False,
    probes: int = 4,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    seed: int = 0,
    **kwargs: Any,
) -> None:
    """Compare what `sparse_jacobian` or `sparse_hessian` gives with dense products, at one point.

    The sparse derivative and the function itself are each multiplied by random vectors: a few products in
    all, whatever the size. Where they differ, one row and one column of the dense derivative say which
    entries the pattern lacks. An entry that is 0 at this point is not missed: take a point where none is.

    Arguments:
        f: the function.
        args, kwargs: its arguments, the point.
        argnums, hessian, pattern: as for `sparse_pattern`.
        dense: compare with the dense derivative, entry by entry. It takes the memory of one.
        probes: how many random vectors there are.
        rtol, atol: what rounding may do, relative to the terms of a sum, and to the largest entry if that is
            above 1.
        seed: of the vectors.

    Raises:
        SparsityError: they differ; the message has the entries and their values.

    >>> import fad, fad.numpy as fnp, numpy as np
    >>> check_sparse(lambda x: x[1:] * x[:-1], fnp.linspace(1.0, 2.0, 1000))
    >>> check_sparse(fnp.diff, fnp.ones(4), pattern=np.eye(3, 4), dense=True)
    Traceback (most recent call last):
    fad.testing.sparse_checks.SparsityError: sparse_jacobian: the pattern lacks 3 entries that are not 0: ...
    """
    if not isinstance(probes, int) or probes < 1:
        raise ArgumentError(f"check_sparse: probes must be an int greater than 0, got {probes!r}")
    who = HESSIAN if hessian else JACOBIAN
    plan = Derivative(f, argnums, who, hessian, pattern).plan(args, kwargs)
    call, whole = plan.call, plan.pattern
    at = Call(who, args, kwargs, argnums)
    xs, of = at.values, call.of(f, at)
    data = np.zeros(whole.nse, np.result_type(np.float64, *plan.out_dtypes, *call.dtypes))
    for part, block in zip(plan.parts, plan.run(*args, **kwargs), strict=True):
        data[part] = bare(block)
    found = _Found(who, whole, data, call.outputs, call.arguments, rtol, atol)
    if dense:
        blocks = bare(jacfwd(of, tuple(range(len(xs))))(*xs))
        rows, cols = np.indices(whole.shape).reshape(2, -1)
        found.compare(rows, cols, _matrix(blocks, call).ravel())
        return
    wrong = _wrong_row(found, call, of, xs, plan.out_dtypes, probes, seed)
    if wrong is None:
        return
    k = int(np.searchsorted(offsets(call.outputs), wrong, "right")) - 1
    within = wrong - offsets(call.outputs)[k]
    by_row = jacrev(lambda *xs: of(*xs)[k].reshape(-1)[within], tuple(range(len(xs))))
    row = np.concatenate([np.ravel(block) for block in bare(by_row(*xs))])
    every = np.arange(len(row))
    own = found.values(np.full(len(row), wrong), every)
    column = int(np.argmax(np.nan_to_num(np.abs(own - row), nan=np.inf)))
    found.lacking(np.full(len(row), wrong), every, row)
    j = int(np.searchsorted(offsets(call.arguments), column, "right")) - 1
    one = np.zeros(xs[j].shape, call.dtypes[j])
    one.reshape(-1)[column - offsets(call.arguments)[j]] = 1
    ts = [jnp.asarray(one) if i == j else None for i in range(len(xs))]
    pushed = np.concatenate([np.ravel(bare(t)) for t in push_forward(of, xs, ts, False, who)[1]])
    every = np.arange(len(pushed))
    found.lacking(every, np.full(len(pushed), column), pushed)
    found.compare(np.full(len(row), wrong), np.arange(len(row)), row)
    name = found.name(call.outputs, wrong)
    raise SparsityError(
        f"{who}: the products of {name} with random vectors differ from those of the function, and the "
        "entries do not: does it give the same at each call?"
    )


def _matrix(blocks: Sequence[Sequence[Any]], call: Any) -> np.ndarray:
    """The dense derivative, with a row for each element of all outputs."""
    rows = [
        np.concatenate([b.reshape(size, -1) for b in row], 1)
        for row, size in zip(blocks, np.diff(offsets(call.outputs)).tolist(), strict=True)
    ]
    return np.concatenate(rows)


def _wrong_row(
    found: _Found, call: Any, of: Any, xs: Any, dtypes: Sequence[Any], probes: int, seed: int
) -> int | None:
    """The row that differs most in products with random vectors; None if none does."""
    draw = np.random.default_rng(seed)
    push = jit(lambda xs, ts: push_forward(of, xs, ts, False, found.who)[1])
    pattern, data = found.pattern, found.data
    real = np.concatenate(
        [
            np.full(np.diff(offsets(call.outputs))[k], dtype.kind != "c")
            for k, dtype in enumerate(dtypes)
        ]
    )
    for _ in range(probes):
        shapes = [
            (shape, dtype) for (_, shape), dtype in zip(call.arguments, call.dtypes, strict=True)
        ]
        vectors = [random_like(np.zeros(shape, dtype), draw) for shape, dtype in shapes]
        expected = np.concatenate(
            [np.ravel(bare(t)) for t in push(tuple(xs), tuple(map(jnp.asarray, vectors)))]
        )
        v = np.concatenate([np.ravel(x) for x in vectors]).astype(data.dtype)
        terms = data * v[pattern.cols]
        got = np.zeros(pattern.shape[0], terms.dtype)
        scale = np.zeros(pattern.shape[0])
        with np.errstate(invalid="ignore"):
            np.add.at(got, pattern.rows, terms)
            np.add.at(scale, pattern.rows, np.abs(terms))
            got = np.where(real, got.real, got)
            excess = np.abs(got - expected) - found.tolerance(np.maximum(scale, np.abs(expected)))
        same = ~np.isfinite(expected) & ~np.isfinite(got)
        excess = np.where(same, -1.0, np.nan_to_num(excess, nan=np.inf))
        if np.max(excess, initial=-1.0) > 0:
            return int(np.argmax(excess))
    return None


class _Found:
    """A sparse derivative, to be compared with entries of the dense one."""

    def __init__(
        self,
        who: str,
        pattern: Any,
        data: np.ndarray,
        outputs: Sequence[Leaf],
        arguments: Sequence[Leaf],
        rtol: float,
        atol: float,
    ) -> None:
        self.who, self.pattern, self.data = who, pattern, data
        self.outputs, self.arguments = outputs, arguments
        finite = np.abs(data[np.isfinite(data)])
        self.rtol, self.atol = rtol, atol * max(1.0, float(np.max(finite, initial=0.0)))
        self.numbers = pattern.rows * max(pattern.shape[1], 1) + pattern.cols

    def tolerance(self, scale: np.ndarray) -> np.ndarray:
        """By what numbers of this size may differ."""
        return self.rtol * scale + self.atol

    def _at(self, rows: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which entries of the pattern these are, and whether they are in it."""
        wanted = rows * max(self.pattern.shape[1], 1) + cols
        if not len(self.numbers):
            return np.zeros(len(wanted), int), np.zeros(len(wanted), bool)
        at = np.minimum(np.searchsorted(self.numbers, wanted), len(self.numbers) - 1)
        return at, self.numbers[at] == wanted

    def values(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """The values at these places; 0 where no entry is."""
        at, there = self._at(rows, cols)
        if not len(self.numbers):
            return np.zeros(len(rows))
        result: np.ndarray = np.where(there, self.data[at], 0)
        return result

    def lacking(self, rows: np.ndarray, cols: np.ndarray, expected: np.ndarray) -> None:
        """Raise if the pattern lacks one of these entries, which is not 0; NaN may be 0 times infinity."""
        missed = ~self._at(rows, cols)[1] & (np.abs(expected) > self.tolerance(np.zeros(1)))
        if missed.any():
            raise SparsityError(
                f"{self.who}: the pattern lacks {self._listed(rows, cols, expected, missed)}. Give one "
                "with these entries, or none; if none was given, a sparsity rule of a Function may be wrong."
            )

    def compare(self, rows: np.ndarray, cols: np.ndarray, expected: np.ndarray) -> None:
        """Raise if one of these entries differs."""
        self.lacking(rows, cols, expected)
        own = self.values(rows, cols)
        with np.errstate(invalid="ignore"):
            far = ~(np.abs(own - expected) <= self.tolerance(np.abs(expected)))
        wrong = far & self._at(rows, cols)[1] & (np.isfinite(own) | np.isfinite(expected))
        if wrong.any():
            raise SparsityError(
                f"{self.who} differs from the dense derivative in "
                f"{self._listed(rows, cols, expected, wrong, own)}"
            )

    def _listed(
        self,
        rows: np.ndarray,
        cols: np.ndarray,
        expected: np.ndarray,
        chosen: np.ndarray,
        own: np.ndarray | None = None,
    ) -> str:
        places = np.flatnonzero(chosen)
        listed = []
        for k in places[:_SHOWN].tolist():
            got = "" if own is None else f"{own[k]:.6}, expected "
            name = self.name(self.outputs, int(rows[k]))
            of = self.name(self.arguments, int(cols[k]))
            listed.append(f"{name} by {of}, which is {got}{expected[k]:.6}")
        more = f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        entries = "1 entry that is" if len(places) == 1 else f"{len(places)} entries that are"
        counted = "" if own is not None else f"{entries} not 0: "
        return counted + "; ".join(listed) + more

    def name(self, leaves: Sequence[Leaf], number: int) -> str:
        """The name of an element in messages."""
        starts = offsets(leaves)
        k = int(np.searchsorted(starts, number, "right")) - 1
        name, shape = leaves[k]
        at = np.unravel_index(number - starts[k], shape) if shape else ()
        return f"{name}[{', '.join(map(str, map(int, at)))}]" if shape else name
