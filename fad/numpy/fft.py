"""The names of `jax.numpy.fft`, for Tensors and arrays. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace

_namespace = Namespace(__name__, "jax.numpy.fft")
__getattr__, __dir__ = _namespace.get, _namespace.names
