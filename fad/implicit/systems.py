"""Linear systems, at the level of JAX: dense, or by a function or a solver of one's own."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.bridge.jax_functions import from_jax, to_jax
from fad.core import trees
from fad.errors import ArgumentError, MissingLibrary, StructureError, describe
from fad.functions.templates import Static

__all__ = [
    "DENSE",
    "GROSS",
    "System",
    "distance",
    "in_words",
    "largest",
    "library",
    "system_of",
    "where",
]

GROSS = 1e-2  # of the largest element: more than rounding explains

Leaves = Sequence[Any]
Map = Callable[[Leaves], list[Any]]  # a linear one


def library(name: str, who: str) -> Any:
    """A library of the extra ``implicit``.

    Raises:
        MissingLibrary: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibrary(
            f"{who}: this takes {name}, which is not installed: pip install 'fad-jax[implicit]', or pip "
            f"install {name}. A solver of your own needs no library: see fad.implicit.custom_root"
        ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class System:
    """How linear systems are solved.

    Where the solver finds no solution, the result is NaN.

    Arguments:
        solver: a function ``(matvec, b) -> x``, or a solver of lineax; None: the matrix is made, and
            factorized.
        symmetric, positive: what is known of the matrix.
    """

    solver: Static | None = None
    symmetric: bool = False
    positive: bool = False

    def solve(self, who: str, matvec: Map, b: Leaves, structure: Any) -> list[Any]:
        """x with ``matvec(x) = b``, as leaves of a pytree of this structure; all are inexact."""
        if self.solver is None:
            return dense(matvec, b, self.positive)
        chosen = self.solver.value
        mapped = lambda x: trees.unflatten(structure, matvec(trees.flatten(x)[0]))
        run = by_lineax if is_lineax(chosen) else by_function

        def solve(matvec: Any, b: Any) -> Any:
            x = run(who, chosen, matvec, b, self)
            leaves, own = trees.flatten(x)
            error, scale = distance(trees.flatten(matvec(x))[0], trees.flatten(b)[0])
            return trees.unflatten(own, where(error <= GROSS * scale, leaves))

        found = jax.lax.custom_linear_solve(
            mapped,
            trees.unflatten(structure, list(b)),
            solve,
            solve,
            symmetric=self.symmetric or self.positive,
        )
        return trees.flatten(found)[0]


DENSE = System()


def system_of(who: str, given: Any, symmetric: bool = False, positive: bool = False) -> System:
    """The System for what a user gave for ``linear_solve`` or ``solver``.

    Raises:
        ArgumentError: it is neither a function nor a solver of lineax.
    """
    if given is not None and not is_lineax(given) and (isinstance(given, type) or not callable(given)):
        hint = f": write {given.__name__}(...)" if isinstance(given, type) else ""
        raise ArgumentError(
            f"{who}: a linear solver is a function (matvec, b) -> x or a solver of lineax, got "
            f"{describe(given)}{hint}"
        )
    return System(None if given is None else Static(given), symmetric, positive)


def is_lineax(x: Any) -> bool:
    """Whether ``x`` is a solver of lineax; lineax is not imported for it."""
    return any([c.__module__.startswith("lineax.") for c in type(x).__mro__])


def by_lineax(who: str, solver: Any, matvec: Any, b: Any, system: System) -> Any:
    """What a solver of lineax finds."""
    lx = library("lineax", who)
    structs = jax.eval_shape(lambda: b)
    tags = []
    if system.symmetric or system.positive:
        tags.append(lx.symmetric_tag)
    if system.positive:
        tags.append(lx.positive_semidefinite_tag)
    operator = lx.FunctionLinearOperator(matvec, structs, frozenset(tags))
    return lx.linear_solve(operator, b, solver, throw=False).value


def by_function(who: str, solver: Any, matvec: Any, b: Any, system: System) -> Any:
    """What a function of the user's finds."""
    found = to_jax(lambda b: solver(from_jax(matvec), b))(b)
    got, expected = trees.flatten(found), trees.flatten(b)
    shapes = [[getattr(x, "shape", None) for x in leaves] for leaves, _ in (got, expected)]
    if got[1] != expected[1] or shapes[0] != shapes[1]:
        raise StructureError(
            f"{who}: linear_solve returned {in_words(found)}, expected the form of b, {in_words(b)}: return x "
            "with matvec(x) = b alone (solvers such as fad.scipy.sparse.linalg.cg return a pair: take [0])"
        )
    pairs = zip(got[0], expected[0], strict=True)
    return trees.unflatten(got[1], [jnp.asarray(x, dtype=y.dtype) for x, y in pairs])


def dense(matvec: Map, b: Leaves, positive: bool = False) -> list[Any]:
    """x with ``matvec(x) = b``, by the matrix of ``matvec``.

    A complex unknown counts as two real ones, so that the map need not be linear in complex numbers.
    """
    vector = to_vector(b)

    def mapped(v: Any) -> Any:
        return to_vector(matvec(from_vector(v, b)))

    if vector.size == 1:
        return from_vector(vector / mapped(jnp.ones_like(vector)), b)
    basis = jnp.eye(vector.size, dtype=vector.dtype)
    matrix = jax.vmap(mapped, out_axes=1)(basis)
    if positive:
        factor = jax.scipy.linalg.cho_factor(matrix)
        return from_vector(jax.scipy.linalg.cho_solve(factor, vector), b)
    return from_vector(jnp.linalg.solve(matrix, vector), b)


def to_vector(leaves: Leaves) -> Any:
    """The elements of the leaves, real and imaginary parts apart, in a dtype that can be factorized."""
    parts: list[Any] = []
    for x in leaves:
        parts += [x.real, x.imag] if jnp.iscomplexobj(x) else [x]
    dtype = jnp.result_type(jnp.float32, *parts)
    return jnp.concatenate([jnp.ravel(p).astype(dtype) for p in parts])


def from_vector(vector: Any, like: Leaves) -> list[Any]:
    """The leaves whose elements `to_vector` has put into ``vector``."""
    found: list[Any] = []
    start = 0

    def part(x: Any) -> Any:
        nonlocal start
        start += x.size
        return vector[start - x.size : start].reshape(x.shape)

    for x in like:
        if jnp.iscomplexobj(x):
            found.append(jax.lax.complex(part(x), part(x)).astype(x.dtype))
        else:
            found.append(part(x).astype(x.dtype))
    return found


def largest(xs: Leaves) -> Any:
    """The largest modulus among the elements."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(x), initial=0.0).astype(float) for x in xs]))


def distance(xs: Leaves, ys: Leaves) -> tuple[Any, Any]:
    """How far two lists of arrays are apart, and how large their elements are."""
    apart = [x - y for x, y in zip(xs, ys, strict=True)]
    return largest(apart), largest([*xs, *ys])


def where(good: Any, xs: Leaves) -> list[Any]:
    """The arrays, NaN where ``good`` is false."""
    return [jnp.where(good, x, jnp.full_like(x, np.nan)) for x in xs]


def in_words(tree: Any) -> str:
    """The form of a pytree of arrays, for a message."""
    return str(trees.map_leaves(described, tree)).replace("'", "")


def described(x: Any) -> str:
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    return describe(x) if shape is None else f"{dtype}[{','.join(map(str, shape))}]"
