"""The names of `jax.random`, for Tensors and arrays. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace

_namespace = Namespace(__name__, "jax.random")
__getattr__, __dir__ = _namespace.get, _namespace.names
