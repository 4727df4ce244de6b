"""fad: a forward-and-reverse functional transform library on JAX arrays."""

from fad import replay as _replay
from fad import rolling as _rolling
from fad.core import dtypes as _dtypes
from fad.core.faces import Face as _Face
from fad.errors import tracebacks as _tracebacks
from fad.errors.missing_names import missing as _missing
from fad.methods import install as _install

__version__ = "0.1.0"

# The names at the top, by the modules that have them. Their types are in tests/stubs/by_hand/fad.pyi.
_LIBRARY = {
    "": "autograd errors lax nn numpy random scipy",
    "fad.compile.jit": "eval_shape jit make_jaxpr",
    "fad.bridge.jax_functions": "from_jax to_jax",
    "fad.core.dtypes": """bfloat16 cdouble cfloat complex64 complex128 double float16 float32 float64 half
        int8 int16 int32 int64 long short uint8 uint16 uint32 uint64""",
    "fad.core.tensor": "Tensor",
    "fad.functions.function": "Function",
    "fad.methods.views": "view_as_complex view_as_real",
    "fad.tape.grad_mode": "enable_grad inference_mode is_grad_enabled no_grad set_grad_enabled",
    "fad.transforms.vmap": "vmap",
    "fad.transforms.checkpoint": "checkpoint",
    "fad.transforms.jvp": "dual_level jvp linearize make_dual unpack_dual",
    "fad.transforms.functionalize": "functionalize",
    "fad.transforms.grad": "ggnvp grad hessian hvp jacfwd jacrev value_and_grad vjp",
    "fad.views.make_view": "stop_gradient",
}

# What is imported when it is asked for: the contract, PyTorch's names, and tools.
_LATER = {
    "": "extend func implicit testing viz",
    "fad.bridge.custom_rules": "custom_rules",
    "fad.bridge.protocols": "from_dlpack",
    "fad.methods.functions": """arange as_tensor asarray cat empty empty_like eye from_numpy full full_like
        linspace ones ones_like stack tensor where zeros zeros_like""",
    "fad.formulas.safe_where": "safe_where",
    "fad.torch.to_torch": "to_torch",
    "fad.torch.from_torch": "from_torch",
    "fad.sparse.derivatives": "sparse_hessian sparse_jacobian sparse_pattern sparsity",
    "fad.sparse.sparse_pattern": "SparsePattern",
    "fad.laplacians": "laplacian value_and_laplacian",
    "fad.taylor": "derivatives jet",
    "fad.transforms.transposition": "linear_transpose",
    "fad.viz.causes": "why",
}

_face = _Face(__name__, lambda name: _missing(name, __dir__()), _LIBRARY, _LATER)
__all__ = ["__version__", *_face.names]
__getattr__ = _face.find

_replay.install()
_rolling.install()
_install()
_tracebacks.install()

# It is PyTorch's name for `jit`: who calls it is told so, as of other names that are not there.
del globals()["compile"]


# Dtypes that are not in ``__all__``: a star import would take Python's own names away.
bool, float, int = _dtypes.bool_, _dtypes.float_, _dtypes.int_


def __dir__() -> list[str]:
    return sorted([*__all__, "bool", "float", "int"])
