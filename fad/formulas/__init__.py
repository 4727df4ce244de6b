"""Functions of arrays, written in JAX, where JAX's have other derivatives, lack arguments, or are not there.

They take the place of JAX's functions in fad's modules: `SMOOTH` has those with derivatives of their own,
each as a function of the function of JAX, and `INSTEAD` those that are called instead. The names of both are
in `fad.arrays.special_cases`, by which this tool is imported when one of them is used.

Modules that are not imported here are looked up by `fad.arrays` for a call that needs them: `numpy_keywords`,
`torch_dimensions`, `torch_functions`, `unrolled_loops`, `array_classes`.
"""

from fad.formulas import (
    numpy_functions,
    scatter_mul,
    smooth_functions,
    smooth_norms,
    smooth_special,
)
from fad.formulas.scatter_mul import combine_at as combine_at
from fad.formulas.smooth_functions import IN_LINALG, Function, mended
from fad.formulas.smooth_norms import vector_norm as vector_norm

INSTEAD: dict[str, dict[str, Function]] = {
    "jax.lax": {"scatter_mul": scatter_mul.scatter_mul},
    "jax.numpy": {**numpy_functions.OWN, "multiply.at": scatter_mul.multiply_in},
}

# Their derivatives are right where JAX's formulas break down. See NOTE [smooth] in
# `fad.formulas.smooth_functions`.
SMOOTH: dict[str, dict[str, Function]] = {
    "jax.lax": {**smooth_functions.IN_LAX, **smooth_special.IN_LAX},
    "jax.nn": smooth_functions.IN_NN,
    "jax.numpy": {**smooth_functions.IN_NUMPY, **smooth_norms.IN_NUMPY},
    "jax.numpy.linalg": {**IN_LINALG, **smooth_norms.IN_LINALG},
    "jax.scipy.cluster.vq": smooth_norms.IN_VQ,
    "jax.scipy.linalg": IN_LINALG,
    "jax.scipy.special": smooth_special.IN_SPECIAL,
    "jax.scipy.stats": smooth_norms.IN_STATS,
}


def written(module: str, name: str, function: Function) -> Function:
    """What takes the place of a function of JAX."""
    instead = INSTEAD.get(module, {})
    return instead[name] if name in instead else mended(SMOOTH[module][name], function)
