"""The names of `jax.nn`, for Tensors and arrays, and PyTorch's losses. See docs/namespaces.md."""

from fad.arrays.namespaces import Namespace, derived_module
from fad.nn import losses as _losses

derived_module("fad.nn.initializers", "jax.nn.initializers")
_namespace = Namespace(__name__, "jax.nn", ("initializers", "utils"), tuple(_losses.__all__))
__getattr__, __dir__ = _namespace.get, _namespace.names
globals().update({name: getattr(_losses, name) for name in _losses.__all__})
