"""``check_sparse``: a sparse derivative against dense products, and where its pattern is wrong."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import extend, grad, jacfwd, jacrev, jit, jvp, no_grad, sparse_hessian, sparse_jacobian
from fad.errors import ArgumentError, FadError
from fad.testing.comparison import bare
from fad.testing.finite_differences import random_like

Leaf = tuple[str, tuple[int, ...]]  # the name of an array in messages, and its shape
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
    who = "sparse_hessian" if hessian else "sparse_jacobian"
    derivative = (sparse_hessian if hessian else sparse_jacobian)(f, argnums, pattern=pattern)
    matrices = derivative(*args, **kwargs)
    call = _Dense(f, args, kwargs, argnums, who, hessian)
    sparse = _Sparse(who, matrices, call.outputs, call.arguments, rtol, atol)
    if dense:
        blocks = bare(jacfwd(call, tuple(range(len(call.xs))))(*call.xs))
        rows, cols = np.indices(sparse.shape).reshape(2, -1)
        sparse.compare(rows, cols, _matrix(blocks, call.outputs).ravel())
        return
    wrong = _wrong_row(sparse, call, probes, seed)
    if wrong is None:
        return
    starts = offsets(call.outputs)
    k = int(np.searchsorted(starts, wrong, "right")) - 1
    within = wrong - starts[k]
    by_row = jacrev(lambda *xs: call(*xs)[k].reshape(-1)[within], tuple(range(len(call.xs))))
    row = np.concatenate([np.ravel(block) for block in bare(by_row(*call.xs))])
    every = np.arange(len(row))
    entries = sparse.values(np.full(len(row), wrong), every)
    column = int(np.argmax(np.nan_to_num(np.abs(entries - row), nan=np.inf)))
    sparse.lacking(np.full(len(row), wrong), every, row)
    starts = offsets(call.arguments)
    j = int(np.searchsorted(starts, column, "right")) - 1
    one = np.zeros(call.xs[j].shape, call.dtypes[j])
    one.reshape(-1)[column - starts[j]] = 1
    tangents = tuple([jnp.asarray(one) if i == j else None for i in range(len(call.xs))])
    pushed = np.concatenate([np.ravel(bare(t)) for t in jvp(call, call.xs, tangents)[1]])
    every = np.arange(len(pushed))
    sparse.lacking(every, np.full(len(pushed), column), pushed)
    sparse.compare(np.full(len(row), wrong), np.arange(len(row)), row)
    name = sparse.name(call.outputs, wrong)
    raise SparsityError(
        f"{who}: the products of {name} with random vectors differ from those of the function, and the "
        "entries do not: does it give the same at each call?"
    )


class _Dense:
    """What is differentiated, as a function of flat arrays that returns a tuple: f, or its gradient."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        argnums: int | Sequence[int],
        who: str,
        hessian: bool,
    ) -> None:
        call = extend.Call(who, args, kwargs, argnums)
        self.output = functools.partial(call.run, f, None)
        self.xs = tuple(call.values)
        self.dtypes = [x.dtype for x in self.xs]
        self.arguments: list[Leaf] = [
            (name, tuple(x.shape)) for name, x in zip(call.names, self.xs, strict=True)
        ]
        self.gradient: Callable[..., Any] | None = None
        if hessian:
            self.outputs, self.out_dtypes = self.arguments, self.dtypes
            self.gradient = grad(lambda *xs: self.output(xs), tuple(range(len(self.xs))))
            return
        with no_grad():
            out = self.output(extend.enter(list(self.xs)))
        leaves = [jnp.asarray(bare(x)) for x in extend.flatten(out)[0]]
        names = [f"output{path}" for path in extend.path_names(out)]
        self.outputs = [(name, x.shape) for name, x in zip(names, leaves, strict=True)]
        self.out_dtypes = [x.dtype for x in leaves]

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        if self.gradient is not None:
            return tuple(self.gradient(*xs))
        return tuple(extend.flatten(self.output(xs))[0])


def offsets(leaves: Sequence[Leaf]) -> list[int]:
    """Where the elements of each array begin among the elements of all, and where the last array ends."""
    sizes = [math.prod(shape) for _, shape in leaves]
    return [0, *np.cumsum(sizes, dtype=int).tolist()]


def _matrix(blocks: Sequence[Sequence[Any]], outputs: Sequence[Leaf]) -> np.ndarray:
    """The dense derivative, with a row for each element of all outputs."""
    rows = [
        np.concatenate([b.reshape(size, -1) for b in row], 1)
        for row, size in zip(blocks, np.diff(offsets(outputs)).tolist(), strict=True)
    ]
    return np.concatenate(rows)


def _wrong_row(sparse: _Sparse, call: _Dense, probes: int, seed: int) -> int | None:
    """The row that differs most in products with random vectors; None if none does."""
    draw = np.random.default_rng(seed)
    push = jit(lambda xs, ts: jvp(call, xs, ts)[1])
    data = sparse.data
    sizes = np.diff(offsets(call.outputs))
    real = np.repeat([dtype.kind != "c" for dtype in call.out_dtypes], sizes)
    for _ in range(probes):
        shapes = [
            (shape, dtype) for (_, shape), dtype in zip(call.arguments, call.dtypes, strict=True)
        ]
        vectors = [random_like(np.zeros(shape, dtype), draw) for shape, dtype in shapes]
        expected = np.concatenate(
            [np.ravel(bare(t)) for t in push(call.xs, tuple(map(jnp.asarray, vectors)))]
        )
        v = np.concatenate([np.ravel(x) for x in vectors]).astype(data.dtype)
        terms = data * v[sparse.cols]
        got = np.zeros(sparse.shape[0], terms.dtype)
        scale = np.zeros(sparse.shape[0])
        with np.errstate(invalid="ignore"):
            np.add.at(got, sparse.rows, terms)
            np.add.at(scale, sparse.rows, np.abs(terms))
            got = np.where(real, got.real, got)
            excess = np.abs(got - expected) - sparse.tolerance(np.maximum(scale, np.abs(expected)))
        same = ~np.isfinite(expected) & ~np.isfinite(got)
        excess = np.where(same, -1.0, np.nan_to_num(excess, nan=np.inf))
        if np.max(excess, initial=-1.0) > 0:
            return int(np.argmax(excess))
    return None


class _Sparse:
    """A sparse derivative as one matrix, to be compared with entries of the dense one.

    ``matrices`` has a BCOO for each output and argument. The entries are sorted by rows.
    """

    def __init__(
        self,
        who: str,
        matrices: Any,
        outputs: Sequence[Leaf],
        arguments: Sequence[Leaf],
        rtol: float,
        atol: float,
    ) -> None:
        self.who, self.outputs, self.arguments = who, outputs, arguments
        down, across = offsets(outputs), offsets(arguments)
        self.shape = down[-1], across[-1]
        blocks = jax.tree_util.tree_leaves(matrices, is_leaf=lambda x: hasattr(x, "todense"))
        numbers, data = [np.zeros(0, int)], [np.zeros(0)]
        for k, block in enumerate(blocks):
            i, j = divmod(k, len(arguments))
            places = np.asarray(block.indices, int).T
            out, of = outputs[i][1], arguments[j][1]
            rows = down[i] + _flat(places[: len(out)], out)
            cols = across[j] + _flat(places[len(out) :], of)
            numbers.append(rows * max(self.shape[1], 1) + cols)
            data.append(bare(block.data))
        order = np.argsort(np.concatenate(numbers), kind="stable")
        self.numbers, self.data = np.concatenate(numbers)[order], np.concatenate(data)[order]
        self.rows, self.cols = np.divmod(self.numbers, max(self.shape[1], 1))
        finite = np.abs(self.data[np.isfinite(self.data)])
        self.rtol, self.atol = rtol, atol * max(1.0, float(np.max(finite, initial=0.0)))

    def tolerance(self, scale: np.ndarray) -> np.ndarray:
        """By what numbers of this size may differ."""
        return self.rtol * scale + self.atol

    def _at(self, rows: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which entries of the pattern these are, and whether they are in it."""
        wanted = rows * max(self.shape[1], 1) + cols
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
        entries = self.values(rows, cols)
        with np.errstate(invalid="ignore"):
            far = ~(np.abs(entries - expected) <= self.tolerance(np.abs(expected)))
        wrong = far & self._at(rows, cols)[1] & (np.isfinite(entries) | np.isfinite(expected))
        if wrong.any():
            raise SparsityError(
                f"{self.who} differs from the dense derivative in "
                f"{self._listed(rows, cols, expected, wrong, entries)}"
            )

    def _listed(
        self,
        rows: np.ndarray,
        cols: np.ndarray,
        expected: np.ndarray,
        chosen: np.ndarray,
        values: np.ndarray | None = None,
    ) -> str:
        places = np.flatnonzero(chosen)
        listed = []
        for k in places[:_SHOWN].tolist():
            got = "" if values is None else f"{values[k]:.6}, expected "
            name = self.name(self.outputs, int(rows[k]))
            of = self.name(self.arguments, int(cols[k]))
            listed.append(f"{name} by {of}, which is {got}{expected[k]:.6}")
        more = f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        entries = "1 entry that is" if len(places) == 1 else f"{len(places)} entries that are"
        counted = "" if values is not None else f"{entries} not 0: "
        return counted + "; ".join(listed) + more

    def name(self, leaves: Sequence[Leaf], number: int) -> str:
        """The name of an element in messages."""
        starts = offsets(leaves)
        k = int(np.searchsorted(starts, number, "right")) - 1
        name, shape = leaves[k]
        at = np.unravel_index(number - starts[k], shape) if shape else ()
        return f"{name}[{', '.join(map(str, map(int, at)))}]" if shape else name


def _flat(places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of elements at these places, a row of ``places`` for each dimension."""
    if not shape:
        return np.zeros(places.shape[1], int)
    flat: np.ndarray = np.ravel_multi_index(tuple(places), shape).astype(int)
    return flat
