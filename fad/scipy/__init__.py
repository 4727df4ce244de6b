"""The names of `jax.scipy`, for Tensors and arrays; a module is derived when it is first used.

See docs/namespaces.md.
"""

from typing import Any

import jax.scipy

from fad.arrays.namespaces import Namespace, install_tree

_namespace = Namespace(
    __name__, "jax.scipy", install_tree(__name__, "jax.scipy", jax.scipy.__path__)
)


def __getattr__(name: str) -> Any:
    return _namespace.get(name)


def __dir__() -> list[str]:
    return _namespace.names()
