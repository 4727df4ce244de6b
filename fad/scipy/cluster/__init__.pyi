"""The names of jax.scipy.cluster, for Tensors and arrays."""
# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"

from fad.scipy.cluster import vq as vq
