"""fad: a forward-and-reverse functional transform library on JAX arrays."""

from fad import autograd as autograd
from fad import errors as errors
from fad import extend as extend
from fad import func as func
from fad import lax as lax
from fad import nn as nn
from fad import numpy as numpy
from fad import random as random
from fad import replay as _replay
from fad import scipy as scipy
from fad.bridge.compilation import jit as jit
from fad.bridge.custom_rules import custom_rules as custom_rules
from fad.bridge.jax_functions import from_jax as from_jax
from fad.bridge.jax_functions import to_jax as to_jax
from fad.bridge.protocols import from_dlpack as from_dlpack
from fad.core.tensor import Tensor as Tensor
from fad.functions.function import Function as Function
from fad.methods.install import asarray as asarray
from fad.methods.install import tensor as tensor
from fad.tape.grad_mode import enable_grad as enable_grad
from fad.tape.grad_mode import inference_mode as inference_mode
from fad.tape.grad_mode import is_grad_enabled as is_grad_enabled
from fad.tape.grad_mode import no_grad as no_grad
from fad.tape.grad_mode import set_grad_enabled as set_grad_enabled
from fad.transforms.batching import vmap as vmap
from fad.transforms.checkpointing import checkpoint as checkpoint
from fad.transforms.dual_numbers import dual_level as dual_level
from fad.transforms.dual_numbers import make_dual as make_dual
from fad.transforms.dual_numbers import unpack_dual as unpack_dual
from fad.transforms.forward import jvp as jvp
from fad.transforms.functionalization import functionalize as functionalize
from fad.transforms.jacobians import hessian as hessian
from fad.transforms.jacobians import hvp as hvp
from fad.transforms.jacobians import jacfwd as jacfwd
from fad.transforms.jacobians import jacrev as jacrev
from fad.transforms.linearization import linearize as linearize
from fad.transforms.reverse import grad as grad
from fad.transforms.reverse import value_and_grad as value_and_grad
from fad.transforms.reverse import vjp as vjp
from fad.views.make_view import stop_gradient as stop_gradient

__version__ = "0.1.0"
__all__ = [
    "Function",
    "Tensor",
    "__version__",
    "asarray",
    "autograd",
    "checkpoint",
    "custom_rules",
    "dual_level",
    "enable_grad",
    "errors",
    "extend",
    "from_dlpack",
    "from_jax",
    "func",
    "functionalize",
    "grad",
    "hessian",
    "hvp",
    "inference_mode",
    "is_grad_enabled",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linearize",
    "make_dual",
    "nn",
    "no_grad",
    "numpy",
    "random",
    "scipy",
    "set_grad_enabled",
    "stop_gradient",
    "tensor",
    "to_jax",
    "unpack_dual",
    "value_and_grad",
    "vjp",
    "vmap",
]

_replay.install()


def __dir__() -> list[str]:
    return sorted(__all__)
