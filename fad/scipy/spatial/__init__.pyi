"""The names of jax.scipy.spatial, for Tensors and arrays."""
# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"

from fad.scipy.spatial import transform as transform
