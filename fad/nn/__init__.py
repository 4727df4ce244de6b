"""The names of `jax.nn`, for Tensors and arrays. See docs/namespaces.md."""

from typing import Any

from fad.arrays.namespaces import Namespace

_namespace = Namespace(__name__, "jax.nn", ("initializers",))


def __getattr__(name: str) -> Any:
    return _namespace.get(name)


def __dir__() -> list[str]:
    return _namespace.names()
