"""The names of `jax.scipy`, for Tensors and arrays; a module is derived when it is first used.

See docs/namespaces.md.
"""

import jax.scipy

from fad.arrays.namespaces import Namespace, install_tree

_children = install_tree(__name__, "jax.scipy", jax.scipy.__path__)
_namespace = Namespace(__name__, "jax.scipy", _children)
__getattr__, __dir__ = _namespace.get, _namespace.names
