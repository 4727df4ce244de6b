"""The names of `jax.nn.initializers`, for Tensors and arrays. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace

_namespace = Namespace(__name__, "jax.nn.initializers")
__getattr__, __dir__ = _namespace.get, _namespace.names
