"""Which function a method of Tensor is: tables of names, and the methods made by them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import fad.nn as fnn
import fad.numpy as fnp
import fad.numpy.linalg as linalg
from fad.arrays import torch_operations
from fad.arrays.operations import fast_function
from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.core.types import Binder, PyTree
from fad.errors import ArgumentError

# Which function a method of Tensor is: tables of names, each with the function of that name or another.

Where = tuple[ModuleType, str]


_special = import_module("fad.scipy.special")  # made by fad.scipy; JAX's is not imported by this


# PyTorch's keywords for the second operand, which has no name in JAX, or others.
_SECOND = frozenset(["exponent", "other", "tensor", "vec2"])


def find(where: Where) -> Any:
    """The function itself; it is derived at the first look-up."""
    module, name = where
    return getattr(module, name)


def say(where: Where, in_place: bool = False) -> str:
    """The docstring of a method that is this function."""
    module, name = where
    full = f"torch.Tensor.{name}" if module is torch_operations else f"{module.__name__}.{name}"
    return f"``{full}`` of this Tensor{', written into it; returns it' * in_place}."


def method_of(where: Where, binder: Binder | None = None) -> Callable[..., PyTree]:
    """A function as a method; it is derived when the method is first called.

    Arguments:
        where: the function.
        binder: what takes the place of `bind`, as `fad.views.inplace.write`; None for the function's own.
    """
    of_torch = where[0] is torch_operations
    function: Callable[..., PyTree] | None = None

    def method(self: Tensor, *args: PyTree, **kwargs: PyTree) -> PyTree:
        nonlocal function
        if kwargs and not args and not of_torch:
            for name in _SECOND.intersection(kwargs):
                args = (kwargs.pop(name),)
        if function is None:
            operation = find(where)
            function = operation if binder is None else fast_function(operation.op, binder)
        return function(self, *args, **kwargs)

    method.__doc__ = say(where, in_place=binder is not None)
    return method


def pairs(names: str) -> dict[str, str]:
    """A table of names; one as ``name=other`` stands for another one.

    >>> pairs("add sub=subtract")
    {'add': 'add', 'sub': 'subtract'}
    """
    parts = [name.partition("=") for name in names.split()]
    return {name: other or name for name, _, other in parts}


def _of(module: ModuleType, names: str) -> dict[str, Where]:
    """Methods of these names: functions of a module, see `pairs`."""
    return {name: (module, function) for name, function in pairs(names).items()}


# Those that have a twin which writes the result into the Tensor: `x.sin()` and `x.sin_()`.
ELEMENTWISE: dict[str, Where] = {
    **_of(
        fnp,
        """abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan
        atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
        bitwise_xor cbrt ceil clip conj conjugate copysign cos cosh cumprod cumsum deg2rad degrees divide
        equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod gcd greater greater_equal
        heaviside hypot i0 invert lcm ldexp left_shift less less_equal log log10 log1p log2 logaddexp
        logaddexp2 logical_and logical_not logical_or logical_xor matmul maximum minimum mod multiply
        nan_to_num negative nextafter not_equal positive pow power rad2deg radians reciprocal remainder
        right_shift rint round sign sin sinc sinh sqrt square subtract tan tanh tril triu true_divide
        trunc
        clamp=clip conj_physical=conj div=true_divide eq=equal fix=trunc ge=greater_equal gt=greater
        le=less_equal lt=less mul=multiply ne=not_equal neg=negative sgn=sign sub=subtract""",
    ),
    **_of(
        fnn,
        """celu elu gelu hard_tanh leaky_relu log_sigmoid relu relu6 selu sigmoid silu softplus""",
    ),
    **_of(
        _special,
        "digamma erf erfc erfinv igamma=gammainc igammac=gammaincc lgamma=gammaln xlogy",
    ),
    **_of(
        torch_operations,
        """addbmm addcdiv addcmul addmm addmv addr baddbmm clamp_max clamp_min frac hardshrink index_add
        index_copy index_fill index_reduce lerp logit masked_fill masked_scatter mvlgamma polygamma renorm
        rsqrt scatter scatter_add scatter_reduce""",
    ),
}
# Those whose name without the underscore means something else in NumPy, which writes in place.
IN_PLACE_ALONE: dict[str, Where] = {
    "fill_diagonal": (torch_operations, "fill_diagonal"),
    "put": (torch_operations, "put"),
}
# Those of PyTorch alone, where they are copies; the functions of this name are views, as in NumPy.
COPIES: dict[str, Where] = _of(fnp, "diag fliplr flipud rot90")
# Those that have no twin in place. The results of some are views: `unstack`, `flatten`, ...
METHODS: dict[str, Where] = {
    **_of(
        fnp,
        """all allclose amax amin angle any argmax argmin argpartition argsort argwhere around array_equal
        average bincount bitwise_count broadcast_to choose corrcoef count_nonzero cov cross
        cumulative_prod cumulative_sum diagflat diagonal diff divmod dot dsplit expand_dims
        frexp hsplit inner isclose iscomplex isfinite isinf isnan isneginf isposinf isreal kron
        matrix_transpose matvec max mean median min modf moveaxis nanargmax nanargmin nancumprod
        nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar
        nonzero outer percentile prod ptp quantile ravel repeat roll rollaxis searchsorted signbit
        sort spacing squeeze std sum swapaxes take take_along_axis tensordot trace trapezoid unique
        unstack unwrap var vdot vecdot vecmat vsplit
        ger=outer tensor_split=array_split""",
    ),
    **_of(linalg, "det matrix_power qr slogdet inverse=inv pinverse=pinv"),
    **_of(import_module("fad.scipy.linalg"), "matrix_exp=expm"),
    **_of(
        torch_operations,
        """aminmax bmm cholesky cholesky_inverse cholesky_solve chunk compress cummax cummin diag_embed
        diagonal_scatter dist gather histc index_select kthvalue log_softmax logcumsumexp logdet logsumexp
        masked_select mm mode movedim msort mv norm prelu repeat_interleave select_scatter slice_scatter
        softmax swapdims take_along_dim topk unfold unique_consecutive where""",
    ),
}

# Methods that are functions of the Tensor, by the tables above.

# What to write for a call that NumPy does not have and PyTorch has.
HINTS = {
    "max": "for the greater of two elements, write x.maximum(y)",
    "min": "for the less of two elements, write x.minimum(y)",
    "repeat": "for PyTorch's x.repeat(2, 3), write x.tile(2, 3)",
    "sort": "for values and indices, write x.sort(dim=-1)",
    "squeeze": "for PyTorch's, which keeps a dimension that is longer, write x.squeeze(dim=0)",
}


def _hinted(where: Where, hint: str) -> Callable[..., PyTree]:
    """`method_of`, whose errors say what else may have been meant."""
    function = method_of(where)

    def method(self: Tensor, *args: PyTree, **kwargs: PyTree) -> PyTree:
        try:
            return function(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            if type(error) not in (TypeError, ValueError):
                raise
            raise ArgumentError(f"{error}; {hint}") from None

    return functools.wraps(function)(method)


def _copy(where: Where) -> Callable[..., PyTree]:
    """`method_of` for a function that returns a view: the method returns a copy."""
    method = method_of(where, bind)
    method.__doc__ = f"A copy of what {say(where)[:-1]} is."
    return method


def _of_complex(where: Where) -> Callable[..., PyTree]:
    """`method_of` for what changes nothing but complex numbers: of others it is the Tensor itself."""
    function = method_of(where)

    def method(self: Tensor, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if args or kwargs or self.dtype.kind == "c":
            return function(self, *args, **kwargs)
        return self

    method.__doc__ = f"{say(where)} Of what is not complex it is the Tensor itself."
    return method


def _member(where: Where, name: str) -> Callable[..., PyTree]:
    if name in HINTS:
        return _hinted(where, HINTS[name])
    if name in ("conj", "conjugate", "positive"):
        return _of_complex(where)
    return _copy(where) if name in COPIES else method_of(where)


MEMBERS: dict[str, object] = {
    name: _member(where, name) for name, where in (ELEMENTWISE | METHODS | COPIES).items()
}
