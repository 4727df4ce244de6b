"""The names of `jax.lax`, for Tensors and arrays. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace

_namespace = Namespace(__name__, "jax.lax", ("linalg",))
__getattr__, __dir__ = _namespace.get, _namespace.names
