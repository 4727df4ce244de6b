"""The names of jax.scipy, for Tensors and arrays."""
# Made by `python -m tests.stubs`, from JAX's signatures.
# mypy: disable-error-code="overload-overlap,assignment"

from fad.scipy import cluster as cluster
from fad.scipy import fft as fft
from fad.scipy import integrate as integrate
from fad.scipy import interpolate as interpolate
from fad.scipy import linalg as linalg
from fad.scipy import ndimage as ndimage
from fad.scipy import optimize as optimize
from fad.scipy import signal as signal
from fad.scipy import sparse as sparse
from fad.scipy import spatial as spatial
from fad.scipy import special as special
from fad.scipy import stats as stats
