"""``sparsity``, ``sparse_pattern``, ``sparse_jacobian`` and ``sparse_hessian``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.extend import restores_modes
from fad.extend.types import PyTree
from fad.sparse.formats import check_format
from fad.sparse.plans import HESSIAN, JACOBIAN, Derivative, Prepared
from fad.sparse.sparse_pattern import SparsePattern


def sparsity(f: Callable[..., PyTree], argnums: int | Sequence[int] = 0) -> Callable[..., PyTree]:
    """Which entries of the Jacobian of ``f`` may differ from 0, for any values of its arguments.

    Arguments:
        f: a function that returns arrays, in a pytree. It is traced, not computed.
        argnums: which positional arguments to differentiate, each a pytree of arrays; a tuple adds a tuple
            to the result.

    Returns:
        A function with f's arguments, whose shapes and dtypes count. It returns a
        ``jax.experimental.sparse.BCOO`` of ones (``int8``), of shape ``output.shape + argument.shape``, for
        each output and argument, in the structure that `jacfwd` has.
        An entry that is not in it is 0 at every point. One that is in it may be 0, for instance because two
        terms cancel.

    Raises:
        HostValueError: Python reads a number that f computes, as a branch on one does.
        StructureError: there are no arrays; the pattern is too large.

    >>> import fad, fad.numpy as fnp
    >>> fad.sparsity(fnp.diff)(fnp.zeros(4)).todense().tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """

    def ones(plan: Prepared, *_: PyTree) -> PyTree:
        with jax.ensure_compile_time_eval():
            data = [jnp.ones(len(block.rows), np.int8) for block in plan.blocks]
        return plan.matrices(data, "bcoo", "sparsity")

    return _by_plan(Derivative(f, argnums, "sparsity", False), ones)


def sparse_pattern(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int] = 0,
    *,
    hessian: bool = False,
    pattern: PyTree = None,
) -> Callable[..., SparsePattern]:
    """The pattern of a sparse derivative with its colouring, to keep, to save and to give to others.

    Arguments:
        f: a function as for `sparse_jacobian`, or for `sparse_hessian`. It is traced, not computed.
        argnums: which positional arguments to differentiate.
        hessian: find the pattern of the second derivatives.
        pattern: one that is known, as for `sparse_jacobian`: it is coloured alone.

    Returns:
        A function with f's arguments, whose shapes and dtypes count. It returns a `SparsePattern`.

    Raises:
        HostValueError: Python reads a number that f computes.
        StructureError: there are no arrays; the pattern is too large, or has another structure.

    >>> import fad, fad.numpy as fnp
    >>> pattern = fad.sparse_pattern(fnp.diff)(fnp.zeros(4))
    >>> fad.sparse_jacobian(fnp.diff, pattern=pattern)(fnp.ones(4)).nse
    6
    """
    derivative = Derivative(f, argnums, "sparse_pattern", hessian, pattern)

    return _by_plan(derivative, lambda plan, *_: plan.pattern)


def sparse_jacobian(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int] = 0,
    *,
    format: str = "bcoo",
    chunk_size: int | None = None,
    pattern: PyTree = None,
) -> Callable[..., PyTree]:
    """The Jacobian of ``f`` as sparse matrices, by as many products as its pattern needs colours.

    The pattern and its colouring are found at the first call with arguments of these shapes; later
    calls run one compiled program. It goes forward or in reverse, whichever takes fewer products.

    Arguments:
        f: a function that returns arrays, in a pytree, as for `jit`: without side effects, and without
            branches of Python on values.
        argnums: which positional arguments to differentiate, each a pytree of arrays; a tuple adds a tuple
            to the result.
        format: "bcoo" is a ``jax.experimental.sparse.BCOO`` of shape ``output.shape + argument.shape``.
            "bcsr" is JAX's ``BCSR``, and "scipy" a ``scipy.sparse.csr_array``: matrices with a row for each
            element of the output and a column for each of the argument. Those of SciPy are on the host: not
            in a function that is transformed.
        chunk_size: compute at most so many products at a time, to bound memory.
        pattern: the entries, if they are known: a `SparsePattern`; or what `sparsity` returns; or matrices
            of its shapes: arrays (what is not 0 is an entry), BCOO, BCSR or SciPy's, None for one without
            entries; or one matrix with a row for each element of all outputs and a column for each of all
            arguments. It must have all entries: with one missing, others are wrong too.
            `fad.testing.check_sparse` finds out.

    Returns:
        A function with f's arguments. It returns what `jacfwd` gives, without the entries that are 0 at every
        point: a matrix for each output and argument. Under a transform the data of a matrix is a Tensor,
        which is differentiated and batched as any other.

    Raises:
        HostValueError: Python reads a number that f computes.
        StructureError: there are no arrays; the pattern is too large, or has another structure.
        MissingLibrary: SciPy is not installed, and asked for.

    >>> import fad, fad.numpy as fnp
    >>> jacobian = fad.sparse_jacobian(lambda x: x[1:] * x[:-1])(fnp.array([1.0, 2.0, 3.0]))
    >>> jacobian.todense().tolist(), jacobian.nse
    ([[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]], 4)
    >>> by_each = fad.sparse_jacobian(lambda p: {"y": p["a"] * p["b"]})
    >>> by_each({"a": fnp.array([1.0, 2.0]), "b": fnp.array([3.0, 4.0])})["y"]["a"].todense().tolist()
    [[3.0, 0.0], [0.0, 4.0]]
    """
    return _values(f, argnums, JACOBIAN, format, chunk_size, pattern)


def sparse_hessian(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int] = 0,
    *,
    format: str = "bcoo",
    chunk_size: int | None = None,
    pattern: PyTree = None,
) -> Callable[..., PyTree]:
    """The second derivatives of a scalar function as sparse matrices.

    Each product is one of the Hessian with a vector, forward over reverse. A star colouring needs fewer of
    them than a Jacobian does, as an entry is read from either side of the diagonal.

    Arguments:
        f: a function that returns one real scalar, as for `jit`.
        argnums: which positional arguments to differentiate, each a pytree of arrays of real dtype.
        format, chunk_size, pattern: as for `sparse_jacobian`.

    Returns:
        A function with f's arguments. It returns what `hessian` gives: a matrix for each two arrays.

    Raises:
        HostValueError: Python reads a number that f computes.
        GradientError: an argument is complex.
        StructureError: there are no arrays; the pattern is too large, or has another structure.
        MissingLibrary: SciPy is not installed, and asked for.

    >>> import fad, fad.numpy as fnp
    >>> chain = lambda x: (x[1:] * x[:-1] ** 2).sum()
    >>> fad.sparse_hessian(chain)(fnp.array([1.0, 2.0, 3.0])).todense().tolist()
    [[4.0, 2.0, 0.0], [2.0, 6.0, 4.0], [0.0, 4.0, 0.0]]
    """
    return _values(f, argnums, HESSIAN, format, chunk_size, pattern)


def _values(
    f: Callable[..., PyTree],
    argnums: int | Sequence[int],
    who: str,
    format: str,
    chunk_size: int | None,
    pattern: PyTree,
) -> Callable[..., PyTree]:
    derivative = Derivative(f, argnums, who, who == HESSIAN, pattern, chunk_size)
    check_format(format, who)

    def matrices(plan: Prepared, args: PyTree, kwargs: PyTree) -> PyTree:
        return plan.matrices(plan.run(*args, **kwargs), format, who)

    return _by_plan(derivative, matrices)


def _by_plan(derivative: Derivative, result: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """The function with f's arguments that returns what ``result`` makes of the plan, and of them."""

    @restores_modes
    @functools.wraps(derivative.f, updated=())
    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        return result(derivative.plan(args, kwargs), args, kwargs)

    return function
