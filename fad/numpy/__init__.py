"""The names of `jax.numpy`, for Tensors and arrays. See docs/namespaces.md."""

import jax.numpy as jnp

from fad.arrays.namespaces import Namespace, derived_module

for _child in ("fft", "linalg"):
    derived_module(f"{__name__}.{_child}", f"jax.numpy.{_child}")
_namespace = Namespace(__name__, "jax.numpy", ("fft", "linalg"))

# Names that the array API requires of a namespace beside its functions.
__array_api_version__ = jnp.__array_api_version__
__array_namespace_info__ = jnp.__array_namespace_info__
__getattr__, __dir__ = _namespace.get, _namespace.names
