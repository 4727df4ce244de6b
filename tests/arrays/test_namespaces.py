"""The derived modules: every name of JAX is there, and does to Tensors what JAX does to arrays."""

from __future__ import annotations

import gc
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import pytest
from helpers import MODULES, ROOT

import fad
import fad.lax
import fad.nn
import fad.nn.initializers
import fad.numpy as fnp
import fad.random
import fad.scipy
from fad.arrays import operations
from fad.arrays import special_cases as cases
from fad.arrays.arguments import (
    ARRAY,
    EXPONENT,
    LEAF,
    OPERAND,
    STATIC,
    STRUCTURE,
    Unhashable,
    freeze,
    role_of,
    thaw_all,
)
from fad.arrays.operations import Op
from fad.core import trees

PAGE = ROOT / "docs" / "namespaces.md"


def fad_name(module: str) -> str:
    return module.replace("jax", "fad", 1)


def is_function(value: Any) -> bool:
    if isinstance(value, type) or not callable(value):
        return False
    return type(value).__module__ not in ("typing", "types") or inspect.isroutine(value)


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Names and objects of a JAX module, modules apart."""
    twin = importlib.import_module(module)
    for name in dir(twin):
        if not name.startswith("_") and not inspect.ismodule(getattr(twin, name)):
            yield name, getattr(twin, name)


def tensors(tree: Any) -> Any:
    """The JAX arrays of a pytree as Tensors."""
    return trees.map_leaves(lambda x: fad.asarray(x) if isinstance(x, jax.Array) else x, tree)


def assert_same(out: Any, expected: Any) -> None:
    """Same structure, types of containers, shapes, dtypes, weak types and values."""
    leaves, structure = trees.flatten(out)
    wanted, wanted_structure = jax.tree_util.tree_flatten(expected)
    assert structure == wanted_structure
    for a, b in zip(leaves, wanted, strict=True):
        if not isinstance(b, (jax.Array, np.ndarray)):
            assert type(a) is type(b)
            assert a == b
            continue
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if isinstance(b, jax.Array):
            assert a.aval.weak_type == b.aval.weak_type
        if jnp.issubdtype(b.dtype, jax.dtypes.extended):
            a, b = fad.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(
            np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5, equal_nan=True
        )


def primitives(function: Any) -> list[Any]:
    return list(function.op.primitives.values())


def compilations(function: Any) -> int:
    """How many programs XLA has compiled for a function."""
    return sum(p.call._cache_size() for p in primitives(function) if p.jit)


# Names, signatures, docstrings


@pytest.mark.parametrize("module", MODULES)
def test_every_public_function_is_there(module: str) -> None:
    derived = importlib.import_module(fad_name(module))
    names = dir(derived)
    for name, value in public(module):
        if cases.missing(module, name, value) is not None:
            with pytest.raises(AttributeError, match=name):
                getattr(derived, name)
            assert name not in names
            continue
        assert name in names
        found = getattr(derived, name)
        if not is_function(value):
            replaced = name in cases.CLASSES.get(module, ()) or name in cases.INDEXERS.get(
                module, ()
            )
            assert replaced or found is value or found == value or found != found


@pytest.mark.parametrize("module", MODULES)
def test_signatures_and_docstrings_are_the_twins(module: str) -> None:
    derived = importlib.import_module(fad_name(module))
    for name, value in public(module):
        if not is_function(value) or cases.missing(module, name, value) is not None:
            continue
        found = getattr(derived, name)
        assert found.__doc__ == value.__doc__, name
        assert found.__name__ == name
        assert found.__module__ == fad_name(module)
        assert inspect.signature(found) == inspect.signature(value), name


def test_submodules_are_found() -> None:
    for module in MODULES[9:]:
        child = importlib.import_module(fad_name(module))
        assert child.__name__ == fad_name(module)
        assert child.__spec__ is not None
    assert fnp.linalg is sys.modules["fad.numpy.linalg"]
    assert fad.scipy.stats.norm is sys.modules["fad.scipy.stats.norm"]


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'fad\.numpy' has no attribute 'sinn'"):
        fnp.sinn
    with pytest.raises(AttributeError, match="no attribute"):
        fnp._private
    with pytest.raises(AttributeError, match=r"from_jax"):
        fad.scipy.spatial.transform.Rotation
    with pytest.raises(ImportError):
        from fad.numpy import sinn  # noqa: F401


def test_functions_pickle_by_name() -> None:
    for function in (fnp.sin, fad.scipy.stats.norm.pdf, fad.random.normal, fnp.linalg.svd):
        assert pickle.loads(pickle.dumps(function)) is function


def test_names_that_have_gone_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in MODULES:
            dir(importlib.import_module(fad_name(module)))


def test_tables_name_what_exists() -> None:
    old = {"pgather", "pvary", "psend", "precv"}  # not in all versions of JAX, or deprecated
    tables = [
        cases.HOST, cases.ON_VALUES, cases.BODIES, cases.MAKERS, cases.COLLECTIVES,
        cases.FACTORIES, cases.CLASSES, cases.INDEXERS, cases.MISSING, cases.ROLES,
    ]  # fmt: skip
    for table in tables:
        for module, names in table.items():
            for name in set(names) - old:
                assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    for name in cases.NOT_DRAWING:
        assert hasattr(jax.random, name)
    for module, functions in cases.ROLES.items():
        for name, roles in functions.items():
            parameters = inspect.signature(getattr(importlib.import_module(module), name))
            assert set(roles) <= set(parameters.parameters), name


def test_the_page_names_everything_that_is_treated_specially() -> None:
    page = PAGE.read_text()
    named = set(re.findall(r"`([\w.]+)`", page))
    for table in (
        cases.MISSING, cases.HOST, cases.ON_VALUES, cases.BODIES, cases.MAKERS,
        cases.COLLECTIVES, cases.CLASSES, cases.INDEXERS,
    ):  # fmt: skip
        for module, names in table.items():
            for name in names:
                assert name in named, f"{module}.{name} is not on {PAGE.name}"
    for name in cases.NOT_DRAWING:
        assert name in named
    for reasons in cases.MISSING.values():
        for reason in reasons.values():
            assert reason.split(";")[0] in " ".join(page.split())


# Results


@dataclass
class Case:
    """One call: of `name` in a module, compared with JAX on arrays and on Tensors."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        named = "".join(f",{k}" for k in self.kwargs)
        return f"{self.name}({len(self.args)}{named})"


def case(name: str, *args: Any, **kwargs: Any) -> Case:
    return Case(name, args, kwargs)


_rng = np.random.RandomState(0)
M = jnp.asarray(_rng.rand(3, 3) * 0.5 + 0.2, jnp.float32)
A = M @ M.T + jnp.eye(3)
B = jnp.asarray(_rng.rand(2, 3, 4), jnp.float32)
V = jnp.asarray(_rng.rand(5) * 0.4 + 0.3, jnp.float32)
I = jnp.array([3, 1, 2, 1, 0])  # noqa: E741
BITS = I.astype(bool)
Z = V + 1j * V[::-1]
H = V.astype(jnp.bfloat16)
KEY = jax.random.key(3)
IMAGE = jnp.asarray(_rng.rand(1, 2, 6, 6), jnp.float32)
KERNEL = jnp.asarray(_rng.rand(3, 2, 3, 3), jnp.float32)

CASES = [
    *[case(f"numpy.{f}", V) for f in "sin exp log tanh sqrt sign floor isnan square".split()],
    *[case(f"numpy.{f}", V, V + 1) for f in "add multiply divide maximum hypot less".split()],
    *[case(f"numpy.{f}", V, 2.0) for f in "add power subtract minimum arctan2 fmod".split()],
    *[case(f"numpy.{f}", Z) for f in "abs conj real imag angle exp".split()],
    *[case(f"numpy.{f}", M, axis=0) for f in "sum mean max argmax cumsum sort any prod".split()],
    *[case(f"numpy.{f}", B, axis=(0, 2), keepdims=True) for f in "sum mean var std min".split()],
    case("numpy.multiply", H, 2.0),
    case("numpy.multiply", 2.0, H),
    case("numpy.add", I, 1.5),
    case("numpy.add", I, True),
    case("numpy.power", V, 2),
    case("numpy.power", V, jnp.float32(2)),
    case("numpy.sum", M, 1),
    case("numpy.sum", B, axis=-1, dtype=jnp.bfloat16),
    case("numpy.sum", B, axis=1, where=B > 0.5, initial=3.0),
    case("numpy.sum", M, axis=np.int64(1)),
    case("numpy.reshape", B, (4, 6)),
    case("numpy.reshape", B, [4, -1]),
    case("numpy.reshape", B, -1),
    case("numpy.reshape", B, (np.int32(4), 6)),
    case("numpy.reshape", B, np.array([4, 6])),
    case("numpy.reshape", B, jnp.array([4, 6])),
    case("numpy.transpose", B),
    case("numpy.transpose", B, (2, 0, 1)),
    case("numpy.transpose", B, axes=[2, 0, 1]),
    case("numpy.moveaxis", B, 0, -1),
    case("numpy.swapaxes", B, 0, 1),
    case("numpy.squeeze", B[:1], axis=0),
    case("numpy.broadcast_to", V, (2, 5)),
    case("numpy.tile", V, (2, 1)),
    case("numpy.roll", V, 2),
    case("numpy.roll", M, (1, 2), axis=(0, 1)),
    case("numpy.pad", M, 1),
    case("numpy.pad", M, ((1, 2), (0, 1)), mode="constant", constant_values=0.5),
    case("numpy.pad", M, np.array([[1, 2], [0, 1]]), "reflect"),
    case("numpy.concatenate", [V, V, V]),
    case("numpy.concatenate", (M, A), axis=1),
    case("numpy.concatenate", [V, jnp.float32(1)[None]], axis=0, dtype="bfloat16"),
    case("numpy.stack", [V, V], axis=1),
    case("numpy.block", [[M, A], [A, M]]),
    case("numpy.array", [V[0], [V[1]][0], 2.0]),
    case("numpy.array", [[V[0], 1], [V[1], 2]]),
    case("numpy.asarray", V, jnp.float16),
    case("numpy.asarray", [V, V]),
    case("numpy.astype", V, "int32"),
    case("numpy.split", V, [1, 3]),
    case("numpy.split", B, 2, axis=-1),
    case("numpy.array_split", V, 3),
    case("numpy.meshgrid", V, I, indexing="ij"),
    case("numpy.broadcast_arrays", M, V[:3]),
    case("numpy.where", BITS, V, 0.0),
    case("numpy.select", [V > 0.5, V > 0.4], [V, -V], 2.0),
    case("numpy.clip", V, 0.4, 0.5),
    case("numpy.clip", V, max=0.5),
    case("numpy.clip", V, max=0.5, min=0.4),
    case("numpy.take", M, I[1:3], axis=1),
    case("numpy.take", V, 2),
    case("numpy.take_along_axis", M, jnp.argsort(M, 1), axis=1),
    case("numpy.choose", I % 2, [V, -V]),
    case("numpy.diff", V, n=2, prepend=0.0),
    case("numpy.gradient", V, 0.1),
    case("numpy.interp", V, V.sort(), V, left=-1.0),
    case("numpy.histogram", V, 4, (0.0, 1.0)),
    case("numpy.histogram2d", V, V, bins=[2, 3]),
    case("numpy.digitize", V, V.sort()),
    case("numpy.searchsorted", V.sort(), V, side="right"),
    case("numpy.percentile", V, 30, method="lower"),
    case("numpy.quantile", M, jnp.array([0.2, 0.7]), axis=0),
    case("numpy.median", M, axis=1),
    case("numpy.average", M, axis=0, weights=V[:3], returned=True),
    case("numpy.cov", M, ddof=0),
    case("numpy.dot", M, A),
    case("numpy.matmul", A, M, precision="highest"),
    case("numpy.matmul", A, M, precision=jax.lax.Precision.HIGH),
    case("numpy.tensordot", B, B, axes=([0, 2], [0, 2])),
    case("numpy.einsum", "ij,jk->ik", M, A),
    case("numpy.einsum", M, [0, 1], A, [1, 2]),
    case("numpy.einsum", "i,->i", V, 2.0),
    case("numpy.kron", M, A),
    case("numpy.cross", V[:3], V[2:]),
    case("numpy.trace", M, 1),
    case("numpy.diag", V, k=1),
    case("numpy.tril", M, -1),
    case("numpy.polyval", V, M),
    case("numpy.polyfit", V, V**2, 2),
    case("numpy.unwrap", V * 9),
    case("numpy.nan_to_num", jnp.log(V - 0.5), nan=1.0),
    case("numpy.modf", V * 9),
    case("numpy.divmod", V, 0.2),
    case("numpy.ix_", I, I[:2]),
    case("numpy.packbits", BITS),
    case("numpy.bitwise_and", I, 2),
    case("numpy.left_shift", I, 1),
    case("numpy.zeros_like", V),
    case("numpy.full_like", V, 2),
    case("numpy.zeros", (2, 3)),
    case("numpy.full", (2, 3), 1.5),
    case("numpy.full", (2,), V[:2]),
    case("numpy.arange", 3),
    case("numpy.arange", 1.0, 3.0, 0.5),
    case("numpy.linspace", 0.0, 1.0, 5, retstep=True),
    case("numpy.linspace", V[0], V[1], num=4),
    case("numpy.eye", 3, k=1),
    case("numpy.lexsort", (I, V)),
    case("numpy.ravel_multi_index", (I[:2], I[2:4]), (4, 4), mode="clip"),
    case("numpy.unravel_index", I, (2, 3)),
    case("numpy.apply_over_axes", jnp.sum, M, (0, 1)),
    case("numpy.allclose", V, V),
    case("numpy.linalg.svd", M),
    case("numpy.linalg.svd", M, full_matrices=False, compute_uv=False),
    case("numpy.linalg.eigh", A),
    case("numpy.linalg.qr", M, mode="r"),
    case("numpy.linalg.norm", M, "fro"),
    case("numpy.linalg.norm", M, np.inf, axis=0),
    case("numpy.linalg.cond", A, 1),
    case("numpy.linalg.solve", A, V[:3]),
    case("numpy.linalg.slogdet", A),
    case("numpy.linalg.matrix_power", A, 3),
    case("numpy.linalg.multi_dot", [M, A, M]),
    case("numpy.linalg.lstsq", M, V[:3]),
    case("numpy.fft.rfft", V, n=8),
    case("numpy.fft.fft2", M, norm="ortho"),
    case("numpy.fft.fftfreq", 4, d=0.5),
    case("lax.sin", V),
    case("lax.add", V, 1.0),
    case("lax.clamp", 0.4, V, 0.5),
    case("lax.integer_pow", V, 3),
    case("lax.convert_element_type", V, jnp.int8),
    case("lax.dynamic_slice", M, (1, 0), (2, 2)),
    case("lax.dynamic_slice", M, [I[1], I[4]], (2, 2)),
    case("lax.dynamic_update_slice", M, A[:2, :2], (0, 1)),
    case("lax.conv_general_dilated", IMAGE, KERNEL, (1, 1), "SAME"),
    case("lax.conv_general_dilated", IMAGE, KERNEL, [1, 2], [(0, 1), (1, 0)]),
    case("lax.dot_general", B, B, (((2,), (2,)), ((0,), (0,)))),
    case("lax.dot_general", B, B, dimension_numbers=(([2], [2]), ([0], [0]))),
    case("lax.top_k", V, 2),
    case("lax.sort", (I, V), num_keys=1),
    case("lax.transpose", B, np.array([1, 0, 2])),
    case("lax.pad", V, 0.0, [(1, 2, 0)]),
    case("lax.reduce_max", M, (0,)),
    case("lax.reduce", V, 0.0, jax.lax.add, (0,)),
    case("lax.reduce_window", V, -np.inf, jax.lax.max, (2,), (1,), "VALID"),
    case("lax.select_n", I % 2, V, -V),
    case("lax.iota", jnp.int32, 3),
    case("lax.fft", Z, "fft", (5,)),
    case("lax.optimization_barrier", {"a": V, "b": (M, None)}),
    case("lax.stop_gradient", (V, {"m": M})),
    case("lax.linalg.cholesky", A),
    case("lax.linalg.triangular_solve", A, M, left_side=True, lower=True),
    *[case(f"nn.{f}", V) for f in "relu gelu silu softplus softmax selu".split()],
    case("nn.leaky_relu", V, 0.2),
    case("nn.gelu", V, approximate=False),
    case("nn.log_softmax", M, axis=0),
    case("nn.one_hot", I, 4),
    case("nn.logsumexp", M, axis=1, b=A, return_sign=True),
    case("nn.dot_product_attention", B[None], B[None], B[None], is_causal=True),
    case("random.normal", KEY, (2, 3)),
    case("random.normal", KEY, (2, 3), jnp.bfloat16),
    case("random.uniform", KEY, (4,), minval=1.0, maxval=2.0),
    case("random.bernoulli", KEY, 0.3, (4,)),
    case("random.permutation", KEY, 5),
    case("random.permutation", KEY, M, axis=1, independent=True),
    case("random.choice", KEY, 7, (3,), replace=False),
    case("random.choice", KEY, V, (3,), p=V / V.sum()),
    case("random.randint", KEY, (4,), 0, 9),
    case("random.categorical", KEY, M, axis=0),
    case("random.split", KEY, 3),
    case("random.fold_in", KEY, 7),
    case("random.fold_in", KEY, 2**32 - 1),
    case("random.key_data", KEY),
    case("random.key", 5),
    case("random.PRNGKey", 5),
    case("random.normal", jax.random.PRNGKey(1), (2,)),
    case("scipy.special.logsumexp", M, axis=0),
    case("scipy.special.gammaln", V),
    case("scipy.special.betainc", V, V, V),
    case("scipy.special.polygamma", 1, V),
    case("scipy.stats.norm.logpdf", V, loc=0.1, scale=2.0),
    case("scipy.stats.beta.pdf", V, 1.0, 2.0),
    case("scipy.stats.multivariate_normal.logpdf", V[:3], V[:3] * 0, A),
    case("scipy.stats.rankdata", V),
    case("scipy.linalg.cho_factor", A, lower=True),
    case("scipy.linalg.cho_solve", (jnp.linalg.cholesky(A), True), V[:3]),
    case("scipy.linalg.lu_solve", jax.scipy.linalg.lu_factor(A), V[:3]),
    case("scipy.linalg.expm", M),
    case("scipy.linalg.solve_triangular", A, V[:3], lower=True),
    case("scipy.linalg.block_diag", M, A),
    case("scipy.linalg.toeplitz", V),
    case("scipy.fft.dct", V, norm="ortho"),
    case("scipy.signal.convolve", V, V, mode="same"),
    case("scipy.signal.detrend", V),
    case("scipy.ndimage.map_coordinates", M, [V[:2], V[1:3]], 1, mode="nearest"),
    case("scipy.integrate.trapezoid", V, dx=0.5),
    case("scipy.cluster.vq.vq", B[0].T, A),
]

# What is returned has a shape that depends on values.
DATA_DEPENDENT = [
    case("numpy.nonzero", I),
    case("numpy.flatnonzero", I),
    case("numpy.argwhere", M > 0.4),
    case("numpy.where", BITS),
    case("numpy.unique", I),
    case("numpy.unique", I, return_index=True, return_counts=True),
    case("numpy.unique_all", I),
    case("numpy.unique_counts", I),
    case("numpy.unique_inverse", I),
    case("numpy.unique_values", I),
    case("numpy.setdiff1d", I, jnp.array([1])),
    case("numpy.setxor1d", I, jnp.array([1, 7])),
    case("numpy.union1d", I, jnp.array([1, 7])),
    case("numpy.intersect1d", I, jnp.array([1, 7]), return_indices=True),
    case("numpy.extract", V > 0.4, V),
    case("numpy.compress", V[:3] > 0.4, M, axis=0),
    case("numpy.repeat", V, I),
    case("numpy.repeat", V, np.array([1, 0, 2, 1, 0])),
    case("numpy.bincount", I),
    case("numpy.bincount", I, weights=V),
    case("numpy.trim_zeros", I),
    case("numpy.delete", V, I[:2]),
    case("numpy.insert", V, I[:2], 9.0),
    case("numpy.arange", I[0]),
    case("numpy.tile", V, I[:2]),
    case("numpy.array_split", V, I[1:3]),
    case("numpy.roots", V),
    case("numpy.choose", I % 2, [V, -V], mode="raise"),
    case("numpy.ravel_multi_index", (I[:2], I[2:4]), (4, 4)),
    case("numpy.polymul", V, V, trim_leading_zeros=True),
]


def find(root: Any, name: str) -> Any:
    for part in name.split("."):
        root = getattr(root, part)
    return root


# A Tensor given as a shape has been read: what is made of it is a new array.
FROM_SHAPES = frozenset(
    "numpy.empty numpy.full numpy.indices numpy.ones numpy.zeros lax.empty lax.full".split()
)


def check(case: Case) -> None:
    twin, function = find(jax, case.name), find(fad, case.name)
    expected = twin(*case.args, **case.kwargs)
    out = function(*case.args, **case.kwargs)
    assert_same(out, expected)
    assert not any(isinstance(x, fad.Tensor) for x in trees.flatten(out)[0])
    args, kwargs = tensors((case.args, case.kwargs))
    if not any(isinstance(x, fad.Tensor) for x in trees.flatten((args, kwargs))[0]):
        return
    out = function(*args, **kwargs)
    assert_same(out, expected)
    if case.name not in FROM_SHAPES:
        arrays = [x for x in trees.flatten(out)[0] if hasattr(x, "shape")]
        assert all(isinstance(x, fad.Tensor) for x in arrays)


@pytest.mark.sweep("case", CASES, sample=40, ids=str)
def test_does_what_jax_does(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", DATA_DEPENDENT, ids=str)
def test_data_dependent_shapes(case: Case) -> None:
    check(case)


def test_the_checks_above_can_fail() -> None:
    with pytest.raises(AssertionError):
        assert_same(V, V + 1)
    with pytest.raises(AssertionError):
        assert_same(V, V.astype(jnp.bfloat16))
    with pytest.raises(AssertionError):
        assert_same([V], (V,))
    with pytest.raises(AssertionError):
        assert_same(jnp.asarray(1.0), jnp.asarray(1.0, jnp.float32))


CANDIDATES: list[tuple[Any, ...]] = [
    (V,), (A,), (V, V), (A, A), (I,), (I, I), (BITS,), (V, V, V), (A, A, A), ([V, V],), ([A, A],),
    (V, 0), (V, 1), (A, 0), (A, (0, 1)), (A, (9,)), (V, V, V, V), (I, 2), (V, I), (V, 2, 0),
    (A, 0, 1), (A, 0, 0), (A, 2, 2), (Z,), (I.astype(jnp.uint8),), (A, V[:3]), (V, jnp.float32),
    (A, (3, 3), (0, 1)), (A, [0, 0], [2, 2]), (V, jnp.int32(1), 2), (V, 2, I), ([V, V], 0),
    (V, V[:2], 0, 0), (B, B.swapaxes(1, 2)), (V, 2, "valid"), (2, V), (V, 4, 4), (5,), (3, 3),
    ((2, 3),), ((2, 3), 1.5),
]  # fmt: skip
KEYED: list[tuple[Any, ...]] = [
    (KEY,), (KEY, (2, 3)), (KEY, 2), (KEY, V), (KEY, V, V), (KEY, V, V, V), (KEY, V[:3], A),
    (KEY, (3,), 0, 5), (KEY, 10, jnp.array([0.2, 0.8])),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("module", MODULES)
def test_all_functions(module: str) -> None:
    """Every function, with the first arguments from a list that its twin accepts."""
    skip = cases.COLLECTIVES.get(module, frozenset()) | cases.FACTORIES.get(module, frozenset())
    for name, twin in public(module):
        function = getattr(importlib.import_module(fad_name(module)), name, None)
        if not isinstance(getattr(function, "op", None), Op) or name in skip:
            continue
        for args in KEYED if module == "jax.random" else CANDIDATES:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = twin(*args)
                if all(hasattr(x, "dtype") for x in jax.tree_util.tree_leaves(expected)):
                    break
            except Exception:
                continue
        else:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(Case(f"{module[4:]}.{name}", args))


# Static and array arguments


def test_a_new_number_compiles_nothing() -> None:
    x = fad.asarray(V)
    fnp.multiply(x, 0.1)
    before = compilations(fnp.multiply)
    for rate in (0.2, 0.3, 1e-9):
        fnp.multiply(x, rate)
    assert compilations(fnp.multiply) == before
    fnp.clip(x, 0.1, max=0.2)
    before, count = compilations(fnp.clip), len(primitives(fnp.clip))
    fnp.clip(x, 0.3, max=0.4)
    fnp.clip(x, max=0.5, min=0.4)
    fnp.clip(x, 0.3, 0.4)
    assert (compilations(fnp.clip), len(primitives(fnp.clip))) == (before, count)


def test_calls_of_the_same_meaning_share_a_primitive() -> None:
    x = fad.asarray(B)
    op = Op("sum", "test", jnp.sum)
    for call in (
        lambda: op.function(x, 1),
        lambda: op.function(x, axis=1),
        lambda: op.function(a=x, axis=1),
        lambda: op.function(axis=1, a=x),
        lambda: op.function(B, axis=1),
        lambda: op.function(np.asarray(B), axis=1),
        lambda: op.function(x, axis=np.int64(1)),
    ):
        np.testing.assert_allclose(np.asarray(call()), B.sum(1), rtol=1e-6)
    assert len(op.primitives) == 1


def test_shapes_as_lists_tuples_and_arrays_share_a_primitive() -> None:
    x = fad.asarray(B)
    op = Op("reshape", "test", jnp.reshape)
    for shape in ((4, 6), [4, 6], (np.int32(4), np.int64(6))):
        assert op.function(x, shape).shape == (4, 6)
    assert len(op.primitives) == 1


def test_equal_keys_of_other_types_are_other_functions() -> None:
    seen = []

    def twin(x: Any, flag: Any) -> Any:
        """Records the static values that it is traced with."""
        seen.append(flag)
        return x * 1

    op = Op("record", "test", twin, {"flag": STATIC})
    values = [1, 1.0, True, (1,), (1.0,), (True,), ((1, 2),), ((1.0, 2),), "1", None]
    values += [0.0, -0.0, float("nan"), 2j, jnp.float32, np.dtype("float32"), slice(1, 2)]
    for _ in range(2):
        for value in values:
            op.function(V, value)
            op.function(V, flag=value)
    assert [repr(s) for s in seen if s is not jnp.float32] == [
        repr(v) for v in values if v is not jnp.float32
    ][: len(seen)]
    assert len(op.primitives) == len(values) - 1  # jnp.float32 is the dtype float32


def test_a_static_list_cannot_change_later() -> None:
    shape = [4, 6]
    x = fad.asarray(B)
    assert fnp.reshape(x, shape).shape == (4, 6)
    shape[:] = [6, 4]
    assert fnp.reshape(x, shape).shape == (6, 4)
    assert fnp.reshape(x, (4, 6)).shape == (4, 6)


def test_dtypes_are_one_key() -> None:
    x = fad.asarray(V)
    op = Op("astype", "test", jnp.astype)
    for dtype in (jnp.float16, np.float16, np.dtype("float16")):
        assert op.function(x, dtype).dtype == np.float16
    assert len(op.primitives) == 1


@pytest.mark.parametrize("args", [(V,), (tensors(V),), (np.asarray(V),)], ids=["jax", "fad", "np"])
def test_unhashable_static_arguments_are_named(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"fad\.numpy\.sum.*'axis'.*set \{0\}.*frozenset or a tup"):
        fnp.sum(*args, axis={0})
    with pytest.raises(TypeError, match=r"'axis'.*bytearray"):
        fnp.sum(*args, bytearray(b"0"))


def test_calls_that_do_not_fit_the_signature() -> None:
    x = fad.asarray(V)
    with pytest.raises(TypeError, match=r"fad\.numpy\.sum\(\).*axs"):
        fnp.sum(x, axs=0)
    with pytest.raises(TypeError, match="too many positional"):
        fnp.sin(x, x, x)
    with pytest.raises(TypeError, match="missing"):
        fnp.sum()
    with pytest.raises(TypeError, match="multiple values"):
        fnp.sum(x, 0, axis=0)
    with pytest.raises(TypeError):
        fnp.sin([1.0, x])
    with pytest.raises(TypeError):
        fnp.sin("abc")


def parameter(annotation: Any, name: str = "x", default: Any = inspect.Parameter.empty) -> Any:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


@pytest.mark.parametrize(
    ("annotation", "name", "default", "role"),
    [
        ("ArrayLike", "x", None, ARRAY),
        ("ArrayLike | None", "where", None, ARRAY),
        ("Sequence[ArrayLike]", "arrays", None, ARRAY),
        (jax.Array, "x", None, ARRAY),
        (jax.typing.ArrayLike, "x", None, ARRAY),
        (str(jax.typing.ArrayLike), "x", None, ARRAY),
        ("RealArray", "p", None, ARRAY),
        ("int | ArrayLike", "k", 0, STRUCTURE),
        ("tuple[ArrayLike, bool]", "c_and_lower", None, STRUCTURE),
        ("int | Sequence[int] | np.ndarray", "bp", 0, STATIC),
        ("int", "n", 0, STATIC),
        ("Axis", "axis", None, STATIC),
        ("DTypeLike | None", "dtype", None, STATIC),
        (int, "n", 0, STATIC),
        ("Any", "shape", None, STATIC),
        ("Any", "object", None, ARRAY),
        (inspect.Parameter.empty, "axis", None, STATIC),
        (inspect.Parameter.empty, "x", None, ARRAY),
        (inspect.Parameter.empty, "flag", True, STATIC),
        (inspect.Parameter.empty, "loc", 0, ARRAY),
    ],
)
def test_roles_follow_annotations(annotation: Any, name: str, default: Any, role: int) -> None:
    assert role_of(parameter(annotation, name, default)) == role


@pytest.mark.parametrize("role", [STATIC, STRUCTURE, OPERAND, EXPONENT, ARRAY])
def test_a_key_makes_its_argument_again(role: int) -> None:
    values = [
        1, 2.5, True, None, "a", 1j, float("nan"), (1, 2), [1, (2.0, "x")], slice(1, None, 2),
        {"a": 1, "b": [2]}, np.float32(1.5), np.arange(3), V, (V, [V, 1]), np.dtype("int8"),
        jnp.linalg.eigh(A), jax.lax.Precision.HIGH, Ellipsis, 2**40, np.bool_(True), (),
    ]  # fmt: skip
    for value in values:
        leaves: list[Any] = []
        key = freeze(value, role, leaves)
        hash(key)
        (again,), _ = thaw_all([key], [], leaves)
        expected = np.asarray(value).item() if isinstance(value, np.generic) else value
        leaves_a, _ = jax.tree_util.tree_flatten(again)
        leaves_b, _ = jax.tree_util.tree_flatten(expected)
        assert repr(leaves_a) == repr(leaves_b) or isinstance(value, np.generic)
        if isinstance(value, jax.Array):
            assert key is LEAF


def test_freeze_refuses_what_has_no_hash() -> None:
    with pytest.raises(Unhashable):
        freeze({1, 2}, STATIC, [])


def test_routes_and_primitives_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PRIMITIVES", 4)
    monkeypatch.setattr(operations, "KNOWN", 4)
    op = Op("roll", "test", jnp.roll)
    x = fad.asarray(V)
    for i in range(9):
        np.testing.assert_allclose(np.asarray(op.function(x, i)), jnp.roll(V, i))
    assert len(op.primitives) == 4
    assert all(len(r.known) <= 4 for r in op.routes.values())


def test_threads_share_an_operation() -> None:
    op = Op("roll", "test", jnp.roll)
    failures = []

    def work(seed: int) -> None:
        for i in range(20):
            k = (seed + i) % 5
            if not np.array_equal(np.asarray(op.function(V, k)), np.roll(np.asarray(V), k)):
                failures.append(k)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert len(op.primitives) == 5


# Kinds of functions


def test_results_are_arrays_for_arrays_and_tensors_for_tensors() -> None:
    for value in (V, np.asarray(V)):
        assert isinstance(fnp.sin(value), jax.Array)
        assert isinstance(fnp.concatenate([value, value]), jax.Array)
    assert isinstance(fnp.sin(0.5), jax.Array)
    assert isinstance(fnp.zeros((2,)), jax.Array)
    assert isinstance(fnp.sin(fad.asarray(V)), fad.Tensor)
    assert isinstance(fnp.add(V, fad.asarray(V)), fad.Tensor)
    assert isinstance(fnp.linalg.svd(fad.asarray(M)), type(jnp.linalg.svd(M)))
    assert isinstance(fnp.stack([np.asarray(V), fad.asarray(V)]), fad.Tensor)


def test_weak_types() -> None:
    assert fnp.multiply(fad.asarray(H), 2.0).dtype == jnp.bfloat16
    assert fnp.add(fad.asarray(I), 1.0).dtype == jnp.float32
    assert fnp.multiply(fad.asarray(H), np.float32(2)).dtype == jnp.float32
    assert fnp.where(fad.asarray(BITS), fad.asarray(H), 0.0).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", [n for n, v in public("jax.numpy") if isinstance(v, jnp.ufunc)])
def test_ufuncs(name: str) -> None:
    twin, function = getattr(jnp, name), getattr(fnp, name)
    for attribute in ("nin", "nout", "nargs", "identity"):
        assert getattr(function, attribute) == getattr(twin, attribute)
    for method in ("reduce", "accumulate", "outer", "at", "reduceat"):
        found = getattr(function, method)
        assert inspect.signature(found) == inspect.signature(getattr(twin, method))
    if twin.nin != 2:
        return
    x = I if name.startswith("bitwise") else V
    t = fad.asarray(x)
    assert_same(function.reduce(t), twin.reduce(x))
    assert_same(function.accumulate(t), twin.accumulate(x))
    assert_same(function.outer(t, t), twin.outer(x, x))
    index = jnp.array([0, 2])
    assert_same(
        function.at(t, index, t[:2], inplace=False), twin.at(x, index, x[:2], inplace=False)
    )
    assert_same(function.reduceat(t, index), twin.reduceat(x, index))


def test_answers_from_shapes_are_plain_python() -> None:
    for x in (B, fad.asarray(B)):
        assert fnp.shape(x) == (2, 3, 4)
        assert fnp.ndim(x) == 3
        assert fnp.size(x) == 24
        assert fnp.size(x, 1) == 3
        assert fnp.iscomplexobj(x) is False
        assert fnp.isrealobj(x) is True
        assert fnp.isscalar(x) is jnp.isscalar(B)
        assert fnp.iterable(x) is True
        assert fnp.result_type(x, 2.0) == jnp.float32
        assert fnp.result_type(x, jnp.bfloat16) == jnp.float32
        assert fnp.einsum_path("ijk,ijk", x, x)[0] == jnp.einsum_path("ijk,ijk", B, B)[0]
        assert fad.lax.dtype(x) == jnp.float32
    assert fnp.isscalar(fad.asarray(V[0])) == jnp.isscalar(V[0])
    weak = jnp.asarray(1.0)
    assert fnp.result_type(fad.asarray(weak), jnp.bfloat16) == jnp.bfloat16
    assert fnp.broadcast_shapes((2, 1), (3,)) == (2, 3)
    assert fnp.promote_types("int8", "float16") == jnp.promote_types("int8", "float16")
    assert fnp.issubdtype(jnp.float32, jnp.floating) is True
    assert fnp.can_cast("int8", "int32") is True
    assert fnp.isdtype(jnp.float32, "real floating") is True
    assert_same(fnp.tril_indices_from(fad.asarray(M)), jnp.tril_indices_from(M))
    assert fad.random.key_impl(fad.asarray(KEY)) == jax.random.key_impl(KEY)


def test_what_is_printed_or_stored(tmp_path: Path) -> None:
    x = fad.asarray(V)
    assert fnp.array_str(x) == np.array_str(np.asarray(V))
    assert "0." in fnp.array_repr(x)
    fnp.save(tmp_path / "v.npy", x)
    assert_same(fnp.load(tmp_path / "v.npy"), V)


def test_constants_and_types_are_the_twins_own() -> None:
    for name in "pi inf nan newaxis float32 bfloat16 ndarray finfo iinfo dtype ufunc".split():
        found, twin = getattr(fnp, name), getattr(jnp, name)
        assert found is twin or found != found
    assert fad.lax.Precision is jax.lax.Precision
    with fnp.printoptions(precision=2):
        pass


def test_asarray_returns_a_tensor_as_it_is() -> None:
    x = fad.asarray(V)
    assert fnp.asarray(x) is x
    assert fnp.array(x) is not x
    assert fnp.from_dlpack(x) is x
    assert isinstance(fnp.from_dlpack(np.array(V)), jax.Array)
    assert isinstance(fnp.asarray([1.0, 2.0]), jax.Array)
    assert fnp.asarray([x, x]).shape == (2, 5)


def test_indexing_objects() -> None:
    x = fad.asarray(V)
    assert_same(fnp.r_[x, 1.0, x], jnp.r_[V, 1.0, V])
    assert_same(fnp.r_[0:3, 5.0], jnp.r_[0:3, 5.0])
    assert_same(fnp.c_[x, x], jnp.c_[V, V])
    assert fnp.s_[1:2] == slice(1, 2)
    assert_same(list(fnp.mgrid[0:2, 0:3]), list(jnp.mgrid[0:2, 0:3]))


def test_initializers() -> None:
    x = fad.nn.initializers.normal(0.1)
    expected = jax.nn.initializers.normal(0.1)(KEY, (2, 3), jnp.float32)
    assert_same(x(KEY, (2, 3), jnp.float32), expected)
    drawn = x(fad.asarray(KEY), (2, 3), jnp.float32)
    assert isinstance(drawn, fad.Tensor)
    assert_same(drawn, expected)
    assert_same(
        fad.nn.initializers.he_normal()(KEY, (3, 4)), jax.nn.initializers.he_normal()(KEY, (3, 4))
    )
    assert_same(
        fad.nn.initializers.constant(2.0)(KEY, (2,)), jax.nn.initializers.constant(2.0)(KEY, (2,))
    )
    assert_same(fad.nn.initializers.zeros(KEY, (2,)), jnp.zeros((2,)))
    assert inspect.signature(x).parameters.keys() == {"key", "shape", "dtype", "out_sharding"}


def test_classes_that_hold_arrays() -> None:
    data = jnp.sort(V)
    twin, found = jax.scipy.stats.gaussian_kde(data), fad.scipy.stats.gaussian_kde
    assert_same(found(data)(V), twin(V))
    held = found(fad.asarray(data))
    assert isinstance(held(V), fad.Tensor)
    assert_same(held.logpdf(V), twin.logpdf(V))
    assert_same(held.integrate_box_1d(0.0, 1.0), twin.integrate_box_1d(0.0, 1.0))
    assert_same(held.covariance, twin.covariance)
    interpolator = fad.scipy.interpolate.RegularGridInterpolator
    points, query = (jnp.arange(3.0), jnp.arange(3.0)), jnp.array([[0.5, 1.5]])
    expected = jax.scipy.interpolate.RegularGridInterpolator(points, M)(query)
    assert_same(interpolator(points, M)(query), expected)
    assert_same(interpolator(tensors(points), fad.asarray(M))(query), expected)
    assert isinstance(interpolator(points, fad.asarray(M))(query), fad.Tensor)


def test_under_jax_tracing() -> None:
    def f(x: Any) -> Any:
        return fnp.sum(fnp.where(x > 0.4, fnp.multiply(x, 0.5), 0.0), axis=0)

    assert_same(jax.jit(f)(V), f(V))
    assert_same(jax.vmap(f)(M), jnp.stack([f(row) for row in M]))
    np.testing.assert_allclose(jax.grad(f)(V), jnp.where(V > 0.4, 0.5, 0.0))
    with pytest.raises((TypeError, IndexError)):
        jax.jit(lambda x: fnp.nonzero(x))(V)
    assert_same(fnp.nonzero(V), jnp.nonzero(V))
    assert_same(jax.jit(lambda x: fnp.nonzero(x, size=2))(V), jnp.nonzero(V, size=2))


def test_a_function_that_cannot_be_compiled_is_remembered() -> None:
    op = Op("flatnonzero", "test", jnp.flatnonzero)
    for _ in range(3):
        assert_same(op.function(I), jnp.flatnonzero(I))
    assert [p.jit for p in op.primitives.values()] == [False]
    assert_same(op.function(I, size=2), jnp.flatnonzero(I, size=2))
    assert [p.jit for p in op.primitives.values()] == [False, True]


def test_data_dependent_shapes_under_vmap_are_refused() -> None:
    with pytest.raises(TypeError, match=r"fad\.numpy\.nonzero.*inside vmap.*Pass size= to fix"):
        fad.vmap(fnp.nonzero)(M)
    with pytest.raises(TypeError, match=r"fad\.numpy\.repeat.*total_repeat_length="):
        fad.vmap(lambda n: fnp.repeat(V, n))(jnp.stack([I, I]))
    (out,) = fad.vmap(lambda r: fnp.nonzero(r, size=2))(M)
    assert_same(out, jax.vmap(lambda r: jnp.nonzero(r, size=2))(M)[0])
    assert_same(fnp.nonzero(fad.asarray(M)), jnp.nonzero(M))


def test_numpy_scalars_and_wide_integers() -> None:
    x = fad.asarray(jnp.array([1, 2], jnp.uint32))
    with jax.enable_x64(True):
        assert_same(fnp.add(fad.asarray(np.int64(2**40)), 2**40), jnp.add(np.int64(2**40), 2**40))
    with pytest.raises(OverflowError):
        fnp.add(x, 2**70)
    assert fnp.add(x, np.uint32(3)).dtype == jnp.uint32


# Functions of functions, which may be written in fad


@dataclass
class Body:
    """A call with a body: ``run(jax, array)`` is what ``run(fad, tensor)`` should give."""

    name: str
    run: Callable[[Any, Any], Any]


def _custom_root(m: Any, x: Any) -> Any:
    def solve(f: Any, guess: Any) -> Any:
        return m.lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), guess)

    return m.lax.custom_root(
        lambda y: y * y - x, x, solve, lambda g, y: y / g(m.numpy.ones_like(y))
    )


BODIES = [
    Body("apply_along_axis", lambda m, x: m.numpy.apply_along_axis(lambda r: r * r[0], 0, x)),
    Body("apply_over_axes", lambda m, x: m.numpy.apply_over_axes(lambda a, i: a + i, x, (0,))),
    Body("fromfunction", lambda m, x: m.numpy.fromfunction(lambda i: x[0] * i, (3,))),
    Body("piecewise", lambda m, x: m.numpy.piecewise(x, [x < 0.5], [m.numpy.sin, 0.5])),
    Body("vectorize", lambda m, x: m.numpy.vectorize(lambda a: m.numpy.sin(a) * x[0])(x)),
    Body(
        "vectorize_signature",
        lambda m, x: m.numpy.vectorize(lambda a, b: a @ b, signature="(n),(n)->()")(x, x),
    ),
    Body("frompyfunc", lambda m, x: m.numpy.frompyfunc(lambda a, b: a * b, 2, 1)(x, x)),
    Body(
        "frompyfunc_reduce",
        lambda m, x: m.numpy.frompyfunc(lambda a, b: a * b, 2, 1, identity=1).reduce(x),
    ),
    Body("pad", lambda m, x: m.numpy.pad(x, 1, lambda v, w, i, k: v.at[: w[0]].set(x[0]))),
    Body("scan", lambda m, x: m.lax.scan(lambda c, a: (c * a, c + x[0]), x[1], x)),
    Body("cond", lambda m, x: m.lax.cond(x[0] > 0, m.numpy.sin, lambda y: y * x, x)),
    Body("cond_jax", lambda m, x: m.lax.cond(x[0] > 0, jnp.sin, lambda y: y * x, x)),
    Body("switch", lambda m, x: m.lax.switch(1, [m.numpy.sin, lambda y: y * x], x)),
    Body("fori_loop", lambda m, x: m.lax.fori_loop(0, 3, lambda i, y: y * x, x)),
    Body("map", lambda m, x: m.lax.map(lambda y: m.numpy.sin(y) * x[0], x)),
    Body(
        "while_loop",
        lambda m, x: m.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x)),
    ),
    Body("associative_scan", lambda m, x: m.lax.associative_scan(m.numpy.multiply, x)),
    Body("associative_scan_body", lambda m, x: m.lax.associative_scan(lambda a, b: a * b, x)),
    Body("reduce", lambda m, x: m.lax.reduce(x, 0.0, m.lax.add, (0,))),
    Body("reduce_window", lambda m, x: m.lax.reduce_window(x, 0.0, m.lax.add, (2,))),
    Body("custom_root", _custom_root),
    Body(
        "custom_linear_solve",
        lambda m, x: m.lax.custom_linear_solve(
            lambda y: y * x, x, lambda mv, b: b / x, symmetric=True
        ),
    ),
    Body("platform_dependent", lambda m, x: m.lax.platform_dependent(x, default=lambda y: y * x)),
    Body("funm", lambda m, x: m.scipy.linalg.funm(m.numpy.diag(x), m.numpy.sin, disp=False)),
    Body("cg", lambda m, x: m.scipy.sparse.linalg.cg(lambda y: y * x, x)[0]),
    Body("gmres", lambda m, x: m.scipy.sparse.linalg.gmres(lambda y: y * x, x)[0]),
    Body("bicgstab", lambda m, x: m.scipy.sparse.linalg.bicgstab(lambda y: y * x, x)[0]),
    Body("cg_matrix", lambda m, x: m.scipy.sparse.linalg.cg(m.numpy.diag(x), x)[0]),
    Body(
        "minimize",
        lambda m, x: (
            m.scipy.optimize.minimize(lambda y: m.numpy.sum((y - x) ** 2), x * 0, method="BFGS").x
        ),
    ),
]


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.name)
def test_bodies(body: Body) -> None:
    expected = body.run(jax, V)
    out = body.run(fad, fad.asarray(V))
    leaves, _ = trees.flatten(out)
    assert all(isinstance(x, fad.Tensor) for x in leaves)
    for a, b in zip(leaves, jax.tree_util.tree_leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)
    on_arrays = body.run(fad, V)
    for a, b in zip(trees.flatten(on_arrays)[0], leaves, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


NOT_DIFFERENTIABLE = {"while_loop", "minimize", "pad", "funm", "frompyfunc_reduce"}


@pytest.mark.parametrize(
    "body", [b for b in BODIES if b.name not in NOT_DIFFERENTIABLE], ids=lambda b: b.name
)
def test_gradients_reach_what_bodies_close_over(body: Body) -> None:
    def total(module: Any) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            out = body.run(module, x)
            return sum(module.numpy.sum(leaf) for leaf in trees.flatten(out)[0])

        return f

    expected = jax.grad(total(jax))(V)
    np.testing.assert_allclose(
        np.asarray(fad.grad(total(fad))(V)), np.asarray(expected), rtol=2e-3, atol=2e-4
    )


# Collectives and randomness


def test_collectives_under_vmap() -> None:
    calls = {
        "psum": lambda m: lambda x: x / m.lax.psum(x, "i"),
        "pmean": lambda m: lambda x: m.lax.pmean({"a": x, "b": [x * 2]}, axis_name="i"),
        "pmax": lambda m: lambda x: m.lax.pmax(x, "i"),
        "pmin": lambda m: lambda x: m.lax.pmin(x, "i"),
        "all_gather": lambda m: lambda x: m.lax.all_gather(x, "i"),
        "axis_index": lambda m: lambda x: x * m.lax.axis_index("i"),
        "axis_size": lambda m: lambda x: x * m.lax.axis_size("i"),
        "ppermute": lambda m: lambda x: m.lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]),
        "pshuffle": lambda m: lambda x: m.lax.pshuffle(x, "i", [2, 0, 1]),
        "all_to_all": lambda m: lambda x: m.lax.all_to_all(x, "i", 0, 0),
        "psum_of_one": lambda m: lambda x: x * m.lax.psum(1, "i"),
    }
    for name, make in calls.items():
        expected = jax.vmap(make(jax), axis_name="i")(M)
        out = fad.vmap(make(fad), axis_name="i")(M)
        jax.tree_util.tree_map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), out, expected
        )
        assert name


def test_collectives_under_native_vmap() -> None:
    out = jax.vmap(lambda x: fad.lax.psum(x, "i"), axis_name="i")(V)
    np.testing.assert_allclose(out, jnp.full(5, V.sum()), rtol=1e-6)
    with pytest.raises(TypeError, match=r"fad\.lax\.psum\(\).*axis_name"):
        fad.lax.psum(V)


def test_randomness_under_vmap() -> None:
    def draw(_: Any) -> Any:
        return fad.random.normal(KEY, (2,))

    with pytest.raises(RuntimeError, match="randomness"):
        fad.vmap(draw)(V)
    same = fad.vmap(draw, randomness="same")(V)
    different = fad.vmap(draw, randomness="different")(V)
    assert len(np.unique(np.asarray(same), axis=0)) == 1
    assert len(np.unique(np.asarray(different), axis=0)) == len(V)
    keys = jax.random.split(KEY, 5)
    mapped = fad.vmap(lambda k: fad.random.normal(k, (2,)))(keys)
    np.testing.assert_allclose(mapped, jax.vmap(lambda k: jax.random.normal(k, (2,)))(keys))
    split = fad.vmap(lambda k: fad.random.key_data(fad.random.split(k)))(keys)
    assert split.shape[:2] == (5, 2)


# Derivatives: a smoke test; what a derivative is, is tested with the transforms

GRADIENTS = [
    *[f"numpy.{f}" for f in "sin cos tan exp log sqrt tanh arctan sinh square".split()],
    *[f"numpy.{f}" for f in "sum mean prod max var std cumsum cumprod sort median".split()],
    *[f"numpy.{f}" for f in "reciprocal expm1 log1p logaddexp.reduce flip ravel diff".split()],
    *[f"nn.{f}" for f in "relu gelu silu softplus softmax log_softmax elu selu mish".split()],
    *[f"scipy.special.{f}" for f in "erf gammaln expit logit i0 ndtr xlogy digamma".split()],
    *[f"scipy.stats.norm.{f}" for f in "pdf logpdf cdf logcdf sf ppf".split()],
    "numpy.fft.rfft", "numpy.linalg.norm", "lax.logistic", "lax.rsqrt", "lax.cumlogsumexp",
    "scipy.stats.t.logpdf",
]  # fmt: skip
GRADIENT_CASES = [
    *[case(name, V, V) if "xlogy" in name else case(name, V) for name in GRADIENTS[:-1]],
    case("scipy.stats.t.logpdf", V, 2.0),
    *[case(f"numpy.linalg.{f}", A) for f in "cholesky inv det eigvalsh".split()],
    case("numpy.linalg.solve", A, M),
    case("numpy.power", V, 2),
    case("numpy.power", V, 1.5),
    case("numpy.einsum", "ij,jk", M, A),
    case("numpy.concatenate", [V, V]),
    case("numpy.asarray", [V, V]),
    case("numpy.extract", V > 0.4, V),
    case("numpy.compress", np.array([True, False, True]), M, axis=0),
    case("numpy.repeat", V, I),
    case("numpy.where", V > 0.4, V, 0.0),
    case("numpy.take", V, I),
    case("lax.conv_general_dilated", IMAGE, KERNEL, (1, 1), "SAME"),
]


@pytest.mark.sweep("case", GRADIENT_CASES, sample=10, ids=str)
def test_gradients(case: Case) -> None:
    leaves, structure = jax.tree_util.tree_flatten(case.args)
    positions = [
        i for i, x in enumerate(leaves) if isinstance(x, jax.Array) and x.dtype == jnp.float32
    ]

    def loss(root: Any) -> Callable[..., Any]:
        def f(*active: Any) -> Any:
            full = list(leaves)
            for i, x in zip(positions, active, strict=True):
                full[i] = x
            args = jax.tree_util.tree_unflatten(structure, full)
            out = find(root, case.name)(*args, **case.kwargs)
            return root.numpy.sum(root.numpy.abs(out) * 1.5)

        return f

    argnums = tuple(range(len(positions)))
    active = [leaves[i] for i in positions]
    expected = jax.grad(loss(jax), argnums)(*active)
    for a, b in zip(fad.grad(loss(fad), argnums)(*active), expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-4)


# Import


def test_import_derives_nothing() -> None:
    """Names are derived when they are asked for, so importing fad.numpy costs no signature."""
    code = (
        "import fad.numpy, fad.lax, fad.nn, fad.random, sys;"
        "assert 'sinh' not in vars(fad.numpy), 'derived early';"
        "assert 'erf_inv' not in vars(fad.lax);"
        "from fad.numpy import sinh;"
        "assert 'sinh' in vars(fad.numpy);"
        "assert 'jax.scipy.stats' not in sys.modules or 'fad.scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_operations_keep_no_arguments_alive() -> None:
    op = Op("add", "test", jnp.add)
    x = fad.asarray(V + 1)
    op.function(x, x)
    op.function(x, 2.0)
    count = sum(o is x for o in gc.get_referrers(x))
    assert count == 0


def test_what_no_differentiated_input_reaches_is_not_differentiated() -> None:
    """The factorization that solve saves is a constant where b alone moves, at any order."""
    a, b = A[:2, :2], M[:2, :2]

    def pulled(m: Any) -> Any:
        return lambda b: m.vjp(m.numpy.linalg.solve, a, b)[1](b * 0.5)

    def check(f: Callable[[Any], Any]) -> None:
        assert_same(f(fad), f(jax))

    check(lambda m: m.jvp(pulled(m), (b,), (a,))[1])
    check(lambda m: m.vjp(pulled(m), b)[1]((a, b)))
    check(lambda m: m.linearize(pulled(m), b)[1](a))
    check(lambda m: m.vmap(lambda t: m.jvp(pulled(m), (b,), (t,))[1])(jnp.stack([a, b])))
    check(lambda m: m.jvp(m.vmap(pulled(m)), (b[None],), (a[None],))[1])
    check(lambda m: m.jvp(lambda b: m.jvp(pulled(m), (b,), (a,))[1], (b,), (b,))[1])
    check(lambda m: m.vjp(lambda b: m.jvp(pulled(m), (b,), (a,))[1], b)[1]((a, b)))
