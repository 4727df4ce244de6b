"""The derived modules: every name of JAX is there, and does to Tensors what JAX does to arrays."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import pytest
from helpers import MODULES
from namespace_cases import (
    BITS,
    IMAGE,
    KERNEL,
    A,
    B,
    H,
    I,
    M,
    V,
    assert_same,
    makes_tensors,
    of_numpy,
    public,
    tensors,
)

import fad
import fad.lax
import fad.nn
import fad.numpy as fnp
import fad.random
import fad.scipy
from fad.arrays import special_cases as cases
from fad.arrays.operations import Op
from fad.core import trees


def fad_name(module: str) -> str:
    return module.replace("jax", "fad", 1)


def is_function(value: Any) -> bool:
    if isinstance(value, type) or not callable(value):
        return False
    return type(value).__module__ not in ("typing", "types") or inspect.isroutine(value)


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
def test_signatures_and_docstrings_are_those_of_jax(module: str) -> None:
    derived = importlib.import_module(fad_name(module))
    for name, value in public(module):
        if not is_function(value) or cases.missing(module, name, value) is not None:
            continue
        found = getattr(derived, name)
        if name in ("while_loop", "fori_loop"):  # fad's own, with further arguments
            ours, theirs = inspect.signature(found).parameters, inspect.signature(value).parameters
            assert [*ours][: len(theirs)] == [*theirs], name
            continue
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


@pytest.mark.parametrize("module", [fnp, fad.nn, fad.scipy.special])
def test_a_star_import_takes_all_names(module: Any) -> None:
    taken: dict[str, object] = {}
    exec(f"from {module.__name__} import *", taken)
    assert taken.keys() - {"__builtins__"} == {*dir(module)}


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"fad\.numpy has no 'sinn': did you mean 'sin'"):
        fnp.sinn
    with pytest.raises(AttributeError, match="has no '_private'$"):
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


Z = V + 1j * V[::-1]

KEY = jax.random.key(3)

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


def arrays_in(tree: Any) -> list[Any]:
    return [x for x in trees.flatten(tree)[0] if hasattr(x, "shape")]


def check(case: Case) -> None:
    """Called with JAX arrays, with Tensors, and with NumPy arrays."""
    jax_function, function = find(jax, case.name), find(fad, case.name)
    expected = jax_function(*case.args, **case.kwargs)
    given = (case.args, case.kwargs)
    args, kwargs = tensors(given)
    forms = [given, (args, kwargs)]
    if makes_tensors(case.name) is not None:
        forms.append(of_numpy(given))
    for args, kwargs in forms:
        out = function(*args, **kwargs)
        assert_same(out, expected)
        kinds = set(map(type, arrays_in((args, kwargs))))
        gives_tensors = makes_tensors(case.name) or not kinds.isdisjoint({fad.Tensor, np.ndarray})
        assert all(isinstance(x, fad.Tensor) == gives_tensors for x in arrays_in(out))


@pytest.mark.sweep("case", CASES, sample=30, ids=str)
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
    """Every function, with the first arguments from a list that the JAX function accepts."""
    skip = cases.COLLECTIVES.get(module, frozenset()) | cases.FACTORIES.get(module, frozenset())
    for name, jax_function in public(module):
        function = getattr(importlib.import_module(fad_name(module)), name, None)
        if not isinstance(getattr(function, "op", None), Op) or name in skip:
            continue
        for args in KEYED if module == "jax.random" else CANDIDATES:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = jax_function(*args)
                if all(hasattr(x, "dtype") for x in jax.tree_util.tree_leaves(expected)):
                    break
            except Exception:
                continue
        else:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(Case(f"{module[4:]}.{name}", args))


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
