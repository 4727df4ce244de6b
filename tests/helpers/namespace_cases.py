"""Calls of names of JAX's modules, their operands, and the comparison with their counterparts in fad."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fad
import fad.random
from fad.core import trees


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Names and objects of a JAX module, without modules."""
    jax_module = importlib.import_module(module)
    for name in dir(jax_module):
        if not name.startswith("_") and not inspect.ismodule(getattr(jax_module, name)):
            yield name, getattr(jax_module, name)


def tensors(tree: Any) -> Any:
    """The JAX arrays of a pytree as Tensors."""
    return trees.map_leaves(lambda x: fad.asarray(x) if isinstance(x, jax.Array) else x, tree)


def of_numpy(tree: Any) -> Any:
    """The JAX arrays of a pytree, other than random keys, as NumPy arrays."""

    def one(x: Any) -> Any:
        is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended)
        return np.asarray(x) if isinstance(x, jax.Array) and not is_key else x

    return trees.map_leaves(one, tree)


# What makes an array from a shape, numbers or lists, by the contract. All of `random` but the functions
# that handle keys does so too.
MAKERS_OF_ARRAYS: dict[str, str] = {
    "numpy": """arange array asarray bartlett blackman diag_indices diag_indices_from empty empty_like eye
        from_dlpack frombuffer fromfile fromfunction fromiter fromstring full full_like geomspace
        hamming hanning identity indices kaiser linspace load logspace mask_indices meshgrid ones
        ones_like tri tril_indices tril_indices_from triu_indices triu_indices_from zeros zeros_like""",
    "numpy.fft": "fftfreq rfftfreq",
    "lax": "broadcasted_iota empty full full_like iota rng_uniform",
    "nn.initializers": "ones zeros",
    "scipy.linalg": "dft hadamard helmert hilbert invhilbert invpascal pascal",
    "scipy.special": "bernoulli",
}
KEYS = "PRNGKey clone fold_in key key_data split wrap_key_data".split()


def makes_tensors(name: str) -> bool | None:
    """Whether a function makes Tensors of whatever it is given; None if it handles random keys."""
    module, _, function = name.rpartition(".")
    if module == "random":
        return None if function in KEYS else True
    return function in MAKERS_OF_ARRAYS.get(module, "").split()


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


_rng = np.random.RandomState(0)
M = jnp.asarray(_rng.rand(3, 3) * 0.5 + 0.2, jnp.float32)
A = M @ M.T + jnp.eye(3)
B = jnp.asarray(_rng.rand(2, 3, 4), jnp.float32)
V = jnp.asarray(_rng.rand(5) * 0.4 + 0.3, jnp.float32)
I = jnp.array([3, 1, 2, 1, 0])  # noqa: E741
BITS = I.astype(bool)

H = V.astype(jnp.bfloat16)

IMAGE = jnp.asarray(_rng.rand(1, 2, 6, 6), jnp.float32)
KERNEL = jnp.asarray(_rng.rand(3, 2, 3, 3), jnp.float32)
