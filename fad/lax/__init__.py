"""The names of `jax.lax`, for Tensors and arrays. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace, derived_module

derived_module("fad.lax.linalg", "jax.lax.linalg")
_namespace = Namespace(__name__, "jax.lax", ("linalg",))
__getattr__, __dir__ = _namespace.get, _namespace.names
