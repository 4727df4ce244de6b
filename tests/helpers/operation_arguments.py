"""Arguments for each derived operation: small arrays, at places where it has a derivative."""

from __future__ import annotations

import functools
import importlib
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fad.arrays import special_cases
from fad.arrays.operations import Op
from tests.helpers.helpers import MODULES

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

V = np.array([0.31, 0.57])
U = np.array([0.72, 0.46])
S = np.array(0.37)
A = np.array([[1.7, 0.4], [0.4, 1.2]])
B = np.array([[0.3, 0.9, 0.45], [0.6, 0.2, 0.8]])
C = np.array([[1.5, 0.3], [0.7, 0.9]])
Z = V + 1j * U
N = np.array([1, 0])
M = np.array([1, 1], np.int32)
MASK = V > 0.4

# Tried in turn, after two of `SHAPED`.
GENERAL: list[tuple[Any, ...]] = [
    (V,), (A,), (V, U), (A, A), (V, U, S), (A, V), (S, V), (V, 0), (A, 0), (V, 2), (A, 0, 1),
    (V, N), (A, A, A), ([V, U],), ([A, A],), (A, (0, 1)), (A, (4,)), (B, 1), (V, np.float32), (2, V),
    (A, [0, 0], [1, 2]), (A, (2, 2), (0, 1)), (V, U, U, U), (V, 1, 0), (V, U, 0, 0), ([V, U], 0),
    (B[None], B.T[None]), (MASK, V, U), (V, N, U), (N,), (N, N), (MASK,), (MASK, MASK),
    (MASK, (0,)), (N, (0,)), (V, 0, np.int32),
]  # fmt: skip
SHAPED: list[tuple[Any, ...]] = [(S,), (B,), (Z,), (B, 0.9 * B + 0.05), (Z, Z + 0.2), (B, U[:1])]


def given(*args: Any, **kwargs: Any) -> Arguments:
    """Arguments, as a row of `SPECIAL` has them."""
    return args, kwargs


_SCATTER = given(
    V, np.array([[1]]), U[:1],
    lax.ScatterDimensionNumbers((), (0,), (0,)), unique_indices=True, mode="clip",
)  # fmt: skip
_RAGGED = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
_GATHER = lax.GatherDimensionNumbers((), (0,), (0,))
_CHOLESKY = np.array([[1.3, 0.0], [0.3, 1.1]])

# Functions that the general arguments do not fit, or that have a kink there.
SPECIAL: dict[str, Arguments] = {
    "lax.approx_max_k": given(V, 2),
    "lax.clamp": given(0.5 * V, V, 2.0 * V),
    "lax.conv": given(B[None], A[None], (1,), "VALID"),
    "lax.conv_general_dilated": given(B[None], A[None], (1,), "VALID"),
    "lax.conv_general_dilated_local": given(
        B[None], np.linspace(0.1, 0.9, 8).reshape(1, 4, 2), (1,), "VALID", (2,)
    ),
    "lax.conv_general_dilated_patches": given(B[None], (2,), (1,), "VALID"),
    "lax.conv_transpose": given(B.T[None], A[..., None], (1,), "VALID"),
    "lax.conv_with_general_padding": given(B[None], A[None], (1,), ((0, 0),), (1,), (1,)),
    "lax.dot_general": given(A, B, (((1,), (0,)), ((), ()))),
    "lax.dynamic_update_slice": given(V, U[:1], (1,)),
    "lax.fft": given(Z, "fft", (2,)),
    "lax.full": given((2,), S),
    "lax.gather": given(V, np.array([[1], [0]]), _GATHER, (1,)),
    "lax.index_take": given(B, N[None], (1,)),
    "lax.linalg.eigh": given(A),
    "lax.linalg.householder_product": given(A, V),
    "lax.linalg.lu_pivots_to_permutation": given(M, 2),
    "lax.linalg.ormqr": given(A, V, C),
    "lax.linalg.tridiagonal_solve": given(
        np.array([0.0, 0.4]), np.array([2.0, 2.2]), np.array([0.3, 0.0]), V[:, None]
    ),
    "lax.pad": given(V, 0.37, ((1, 0, 0),)),  # JAX has no gradient of the padding alone
    "lax.polygamma": given(np.array([1.0, 2.0]), V),
    "lax.ragged_dot": given(A, C[None], np.array([2], np.int32)),
    "lax.ragged_dot_general": given(A, C[None], np.array([2], np.int32), _RAGGED),
    "lax.reduce_max": given(B, (0, 1)),
    "lax.reduce_min": given(B, (0, 1)),
    "lax.rng_bit_generator": given(np.arange(4, dtype=np.uint32), (2,)),
    "lax.scatter": _SCATTER,
    "lax.scatter_add": _SCATTER,
    "lax.scatter_max": _SCATTER,
    "lax.scatter_min": _SCATTER,
    "lax.scatter_mul": _SCATTER,
    "lax.scatter_sub": _SCATTER,
    "lax.select_n": given(MASK, V, U),
    "lax.sign": given(Z),
    "lax.split": given(V, (1, 1)),
    "lax.squeeze": given(V[None], (0,)),
    "lax.tile": given(V, (2,)),
    "lax.zeta": given(V + 1.5, U),
    "numpy.acosh": given(V + 1.2),
    "numpy.arccosh": given(V + 1.2),
    "numpy.choose": given(N, [V, U]),
    "numpy.dsplit": given(A[None], 2),
    "numpy.fill_diagonal": given(A, S, inplace=False),
    "numpy.intersect1d": given(V, V),
    "numpy.linalg.cross": given(B[0], B[1]),
    "numpy.linalg.pinv": given(B),
    "numpy.linalg.tensorinv": given(A, 1),
    "numpy.place": given(V, MASK, U, inplace=False),
    "numpy.put": given(V, N, U, inplace=False),
    "numpy.put_along_axis": given(V, N, U, 0, inplace=False),
    "numpy.ravel_multi_index": given((N, N), (2, 2), mode="clip"),
    "numpy.setdiff1d": given(V, U),
    "numpy.setxor1d": given(V, U),
    "numpy.sign": given(Z),
    "numpy.union1d": given(V, U),
    **dict.fromkeys(
        [f"numpy.unique{end}" for end in ("", "_all", "_counts", "_inverse", "_values")], given(V)
    ),
    "numpy.unpackbits": given(np.array([5, 9], np.uint8)),
    "scipy.linalg.cho_solve": given((_CHOLESKY, True), V),
    "scipy.linalg.lu_solve": given((A, np.array([0, 1], np.int32)), V),
    "scipy.linalg.svd": given(C, full_matrices=False),
    "scipy.ndimage.map_coordinates": given(B, [V, U], 1),
    "scipy.special.bessel_jn": given(V, v=2),
    "scipy.special.betainc": given(1.2, 0.7, V),
    "scipy.special.expn": given(2, V),
    "scipy.special.hyp1f1": given(1.2, 0.7, V),
    "scipy.special.hyp2f1": given(1.2, 0.7, 2.1, V),
    "scipy.special.loggamma": given(V),
    "scipy.special.owens_t": given(V, U),
    "scipy.special.sph_harm_y": given(N[:1] + 1, N[:1], V[:1], U[:1], n_max=2),
    **dict.fromkeys(
        [f"scipy.stats.beta.{name}" for name in ("cdf", "logcdf", "logpdf", "logsf", "pdf", "sf")],
        given(V, 1.2, 0.7),
    ),
    "scipy.stats.betabinom.logpmf": given(V, 4.0, 1.2, 0.7),
    "scipy.stats.betabinom.pmf": given(V, 4.0, 1.2, 0.7),
    **dict.fromkeys(
        [f"scipy.stats.chi2.{name}" for name in ("cdf", "logcdf", "logsf", "sf")], given(V, 1.5)
    ),
    "scipy.stats.dirichlet.logpdf": given(np.array([0.4, 0.6]), U),
    "scipy.stats.dirichlet.pdf": given(np.array([0.4, 0.6]), U),
    **dict.fromkeys(
        [f"scipy.stats.gamma.{name}" for name in ("cdf", "logcdf", "logsf", "sf")], given(V, 1.5)
    ),
    "scipy.stats.gennorm.cdf": given(V, 1.3),
    "scipy.stats.multinomial.logpmf": given(np.array([1, 2]), 3, np.array([0.4, 0.6])),
    "scipy.stats.multinomial.pmf": given(np.array([1, 2]), 3, np.array([0.4, 0.6])),
    "scipy.stats.nbinom.logpmf": given(V, 1.5, U),
    "scipy.stats.poisson.cdf": given(2, V),
    "scipy.stats.poisson.entropy": given(V),
    **dict.fromkeys(
        [f"scipy.stats.truncnorm.{f}" for f in ("cdf", "logcdf", "logpdf", "logsf", "pdf", "sf")],
        given(V, -0.7, 1.3),
    ),
}  # fmt: skip


# Those in jax.random draw, and so do initializers: arrays/test_namespaces.py has them.
DRAWING = ("jax.nn.initializers", "jax.random")


def names() -> Iterator[str]:
    """The derived operations, without those that need the names of devices, or make constants."""
    for module in MODULES:
        if module in DRAWING:
            continue
        skip = {
            *special_cases.COLLECTIVES.get(module, ()),
            *special_cases.FACTORIES.get(module, ()),
            *special_cases.BODIES.get(module, ()),
        }
        derived = importlib.import_module(module.replace("jax", "fad", 1))
        for name in dir(importlib.import_module(module)):
            if name.startswith("_") or name in skip:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = getattr(derived, name)
            except AttributeError:
                continue
            if isinstance(getattr(found, "op", None), Op):
                yield f"{module[4:]}.{name}"


def found_in(root: Any, name: str) -> Any:
    """``found_in(jax, "numpy.linalg.inv")`` is `jax.numpy.linalg.inv`."""
    return functools.reduce(getattr, name.split("."), root)


@functools.cache
def arguments(name: str, seed: int) -> Arguments | None:
    """Arguments that the JAX function takes; if there are some, those for which it has a derivative."""
    return accepted(name, random.Random(f"{name} {seed}").sample(SHAPED, 2))


def accepted(name: str, first: Sequence[tuple[Any, ...]]) -> Arguments | None:
    """The same, where these are tried first."""
    if name in SPECIAL:
        return SPECIAL[name]
    found: Arguments | None = None
    for args in (*first, *GENERAL):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                f, arrays = on_arrays(found_in(jax, name), (args, {}))
                leaves = jax.tree.leaves(f(*arrays))
        except Exception:  # it takes others
            continue
        outs = [x for x in leaves if isinstance(x, jax.Array)]
        if any(_has_derivative(x) for x in outs):
            return args, {}
        if outs and arrays and found is None:
            found = args, {}
    return found


def on_arrays(function: Any, args: Arguments) -> tuple[Any, list[Any]]:
    """``function`` with the other arguments fixed, and the arrays that it is left to take."""
    leaves, structure = jax.tree.flatten(args)
    at = [k for k, x in enumerate(leaves) if isinstance(x, np.ndarray)]

    def call(*arrays: Any) -> Any:
        full = list(leaves)
        for k, x in zip(at, arrays, strict=True):
            full[k] = x
        positional, named = jax.tree.unflatten(structure, full)
        return function(*positional, **named)

    return call, [jnp.asarray(leaves[k]) for k in at]


def _has_derivative(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, np.inexact) and np.isfinite(x).all() and x.size)
