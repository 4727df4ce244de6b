"""fad: a forward-and-reverse functional transform library on JAX arrays."""

import importlib
from typing import TYPE_CHECKING

from fad import autograd as autograd
from fad import errors as errors
from fad import extend as extend
from fad import func as func
from fad import implicit as implicit
from fad import lax as lax
from fad import nn as nn
from fad import numpy as numpy
from fad import random as random
from fad import replay as _replay
from fad import scipy as scipy
from fad.bridge.custom_rules import custom_rules as custom_rules
from fad.bridge.jax_functions import from_jax as from_jax
from fad.bridge.jax_functions import to_jax as to_jax
from fad.bridge.protocols import from_dlpack as from_dlpack
from fad.compile.jit import eval_shape as eval_shape
from fad.compile.jit import jit as jit
from fad.compile.jit import make_jaxpr as make_jaxpr
from fad.core import dtypes as _dtypes
from fad.core.dtypes import bfloat16 as bfloat16
from fad.core.dtypes import cdouble as cdouble
from fad.core.dtypes import cfloat as cfloat
from fad.core.dtypes import complex64 as complex64
from fad.core.dtypes import complex128 as complex128
from fad.core.dtypes import double as double
from fad.core.dtypes import float16 as float16
from fad.core.dtypes import float32 as float32
from fad.core.dtypes import float64 as float64
from fad.core.dtypes import half as half
from fad.core.dtypes import int8 as int8
from fad.core.dtypes import int16 as int16
from fad.core.dtypes import int32 as int32
from fad.core.dtypes import int64 as int64
from fad.core.dtypes import long as long
from fad.core.dtypes import short as short
from fad.core.dtypes import uint8 as uint8
from fad.core.dtypes import uint16 as uint16
from fad.core.dtypes import uint32 as uint32
from fad.core.dtypes import uint64 as uint64
from fad.core.tensor import Tensor as Tensor
from fad.errors import tracebacks as _tracebacks
from fad.errors.missing_names import missing as _missing
from fad.functions.function import Function as Function
from fad.methods import install as _install
from fad.methods.functions import arange as arange
from fad.methods.functions import as_tensor as as_tensor
from fad.methods.functions import asarray as asarray
from fad.methods.functions import cat as cat
from fad.methods.functions import empty as empty
from fad.methods.functions import empty_like as empty_like
from fad.methods.functions import eye as eye
from fad.methods.functions import from_numpy as from_numpy
from fad.methods.functions import full as full
from fad.methods.functions import full_like as full_like
from fad.methods.functions import linspace as linspace
from fad.methods.functions import ones as ones
from fad.methods.functions import ones_like as ones_like
from fad.methods.functions import stack as stack
from fad.methods.functions import tensor as tensor
from fad.methods.functions import view_as_complex as view_as_complex
from fad.methods.functions import view_as_real as view_as_real
from fad.methods.functions import where as where
from fad.methods.functions import zeros as zeros
from fad.methods.functions import zeros_like as zeros_like
from fad.sparse.derivatives import sparse_hessian as sparse_hessian
from fad.sparse.derivatives import sparse_jacobian as sparse_jacobian
from fad.sparse.derivatives import sparse_pattern as sparse_pattern
from fad.sparse.derivatives import sparsity as sparsity
from fad.sparse.sparse_pattern import SparsePattern as SparsePattern
from fad.tape.grad_mode import enable_grad as enable_grad
from fad.tape.grad_mode import inference_mode as inference_mode
from fad.tape.grad_mode import is_grad_enabled as is_grad_enabled
from fad.tape.grad_mode import no_grad as no_grad
from fad.tape.grad_mode import set_grad_enabled as set_grad_enabled
from fad.torch.from_torch import from_torch as from_torch
from fad.torch.to_torch import to_torch as to_torch
from fad.transforms.checkpoint import checkpoint as checkpoint
from fad.transforms.functionalize import functionalize as functionalize
from fad.transforms.grad import grad as grad
from fad.transforms.grad import value_and_grad as value_and_grad
from fad.transforms.grad import vjp as vjp
from fad.transforms.jacobians import ggnvp as ggnvp
from fad.transforms.jacobians import hessian as hessian
from fad.transforms.jacobians import hvp as hvp
from fad.transforms.jacobians import jacfwd as jacfwd
from fad.transforms.jacobians import jacrev as jacrev
from fad.transforms.jet import derivatives as derivatives
from fad.transforms.jet import jet as jet
from fad.transforms.jvp import dual_level as dual_level
from fad.transforms.jvp import jvp as jvp
from fad.transforms.jvp import make_dual as make_dual
from fad.transforms.jvp import unpack_dual as unpack_dual
from fad.transforms.laplacian import laplacian as laplacian
from fad.transforms.laplacian import value_and_laplacian as value_and_laplacian
from fad.transforms.linearize import linear_transpose as linear_transpose
from fad.transforms.linearize import linearize as linearize
from fad.transforms.safe_where import safe_where as safe_where
from fad.transforms.vmap import vmap as vmap
from fad.views.make_view import stop_gradient as stop_gradient

if TYPE_CHECKING:
    from fad import viz as viz
    from fad.viz.causes import why as why

__version__ = "0.1.0"
__all__ = [
    "Function",
    "SparsePattern",
    "Tensor",
    "__version__",
    "arange",
    "as_tensor",
    "asarray",
    "autograd",
    "bfloat16",
    "cat",
    "cdouble",
    "cfloat",
    "checkpoint",
    "complex64",
    "complex128",
    "custom_rules",
    "derivatives",
    "double",
    "dual_level",
    "empty",
    "empty_like",
    "enable_grad",
    "errors",
    "eval_shape",
    "extend",
    "eye",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_jax",
    "from_numpy",
    "from_torch",
    "full",
    "full_like",
    "func",
    "functionalize",
    "ggnvp",
    "grad",
    "half",
    "hessian",
    "hvp",
    "implicit",
    "inference_mode",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_grad_enabled",
    "jacfwd",
    "jacrev",
    "jet",
    "jit",
    "jvp",
    "laplacian",
    "lax",
    "linear_transpose",
    "linearize",
    "linspace",
    "long",
    "make_dual",
    "make_jaxpr",
    "nn",
    "no_grad",
    "numpy",
    "ones",
    "ones_like",
    "random",
    "safe_where",
    "scipy",
    "set_grad_enabled",
    "short",
    "sparse_hessian",
    "sparse_jacobian",
    "sparse_pattern",
    "sparsity",
    "stack",
    "stop_gradient",
    "tensor",
    "to_jax",
    "to_torch",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unpack_dual",
    "value_and_grad",
    "value_and_laplacian",
    "view_as_complex",
    "view_as_real",
    "viz",
    "vjp",
    "vmap",
    "where",
    "why",
    "zeros",
    "zeros_like",
]

_replay.install()
_install.install()
_tracebacks.install()

# It is PyTorch's name for `jit`: who calls it is told so, as of other names that are not there.
del globals()["compile"]


# Dtypes that are not in ``__all__``: a star import would take Python's own names away.
bool, float, int = _dtypes.bool_, _dtypes.float_, _dtypes.int_


def __dir__() -> list[str]:
    return sorted([*__all__, "bool", "float", "int"])


def __getattr__(name: str) -> object:
    """``viz`` and ``why``, which are imported when they are asked for: few programs need them."""
    if name == "viz":
        return importlib.import_module("fad.viz")
    if name == "why":
        return importlib.import_module("fad.viz.causes").why
    raise _missing(name, __dir__())
