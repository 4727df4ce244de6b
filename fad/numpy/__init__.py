"""The names of `jax.numpy`, for Tensors and arrays. See docs/namespaces.md."""

from typing import Any

import jax.numpy as jnp

from fad.arrays.namespaces import Namespace

_namespace = Namespace(__name__, "jax.numpy", ("fft", "linalg"))

# Names that the array API requires of a namespace beside its functions.
__array_api_version__ = jnp.__array_api_version__
__array_namespace_info__ = jnp.__array_namespace_info__


def __getattr__(name: str) -> Any:
    return _namespace.get(name)


def __dir__() -> list[str]:
    return _namespace.names()
