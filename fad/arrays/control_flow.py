"""Functions that take functions (`scan`, `cond`, ...): bodies of JAX, or bodies written in fad."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from inspect import signature

import jax
import jax.numpy as jnp
import numpy as np

from fad.arrays import special_cases
from fad.arrays.arguments import Args, Function, Kwargs
from fad.arrays.operations import FOLLOWS, TENSORS, Op, as_tensors, copy_signature, numpy_alone
from fad.core import trees
from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.level import bind, captured_by_jit, outlived, state
from fad.core.tensor import Tensor
from fad.core.types import PyTree
from fad.errors import HostValueError
from fad.tape.recorder import ROOT
from fad.tape.staged import call_with_bodies


def _staged(
    jax_function: Callable[..., PyTree], args: Args, kwargs: Kwargs, results: int = FOLLOWS
) -> PyTree:
    """A call with the user's functions, as one operation; see NOTE [what makes a Tensor]."""
    out = call_with_bodies(jax_function, args, kwargs)
    tensors = results == TENSORS or numpy_alone(trees.flatten((args, kwargs))[0])
    return as_tensors(out) if tensors else out


def with_bodies(op: Op) -> Function:
    """A function that takes functions: staged as a whole where one of them is the user's."""
    ordinary = op.function

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        is_data = [n in _DATA and n in op.plan.names for n in op.names_of(args, kwargs)]
        marked = list(zip(is_data, (*args, *kwargs.values()), strict=True))
        staged = any([_has_body(x) for data, x in marked if not data])
        f = _to_fad if staged else _jax_function_of  # JAX recognizes some of its own functions
        values = [x if data else _replace(f, x) for data, x in marked]
        kwargs = dict(zip(kwargs, values[len(args) :], strict=True))
        args = tuple(values[: len(args)])
        if staged:
            if state.uncompiled and op.name in _UNROLLED:
                with contextlib.suppress(HostValueError, IndexError):  # Python cannot run it here
                    return tool("formulas.unrolled_loops").unrolled(op.name, args, kwargs)
            args, kwargs = op.with_arrays(args, kwargs) or (args, kwargs)
            return _staged(op.jax_function, args, kwargs, op.results)
        return ordinary(*args, **kwargs)

    return op.wrap(function)


# Loops and branches that run as Python, where `fad.extend.uncompiled` says so.
_UNROLLED = frozenset("cond fori_loop map scan switch while_loop".split())
# The parameters that take data: what can be called there is a model, a pytree like any other.
_DATA = frozenset(
    """elems operands operand b x0 initial_guess init_val init xs init_values init_value""".split()
)


def with_known_reducers(op: Op) -> Function:
    """``reduce_window``: JAX differentiates sums, maxima and minima, which it knows by the function and the
    initial number. With another one, or one that is not known, they begin with the number that JAX knows, and
    it comes in afterwards.
    """
    ordinary = with_bodies(op)
    parameters = signature(op.jax_function)

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        bound = parameters.bind(*args, **kwargs).arguments
        reducer, start = _jax_function_of(bound["computation"]), bound["init_value"]
        if reducer is None:
            return ordinary(*args, **kwargs)
        # The function of JAX behind one whose derivative is mended, see NOTE [smooth] in
        # `fad.formulas.smooth_functions`.
        bound["computation"] = getattr(reducer, "__wrapped__", reducer)
        bound["init_value"] = number = _number_of(start)
        x, name = bound["operand"], getattr(reducer, "__name__", "")
        neutral = _neutral(name, number, x)
        if neutral is None:
            out = ordinary(**bound)
        else:
            out = ordinary(**{**bound, "init_value": neutral})
            number = number if isinstance(number, Tensor) else jnp.asarray(number, x.dtype)
            if name == "add":  # in padding too there is the initial number
                zeros, one = jnp.zeros(x.shape, x.dtype), np.ones((), x.dtype)[()]
                number = number * ordinary(**{**bound, "operand": zeros, "init_value": one})
            out = _for_tensors(reducer)(out, number)
        return as_tensors(out) if isinstance(start, Tensor) else out

    return op.wrap(function)


def with_padding(op: Op) -> Function:
    """``pad``: a function as its mode returns a vector, as in JAX, or writes into it, as in NumPy."""
    ordinary = with_bodies(op)

    def function(
        array: PyTree, pad_width: PyTree, mode: PyTree = "constant", **kwargs: PyTree
    ) -> PyTree:
        if not _has_body(mode):
            return ordinary(array, pad_width, mode, **kwargs)

        def changed(vector: PyTree, *rest: PyTree) -> PyTree:
            out = mode(vector, *rest)
            return vector if out is None else out

        return ordinary(array, pad_width, changed, **kwargs)

    return op.wrap(function)


def _number_of(x: PyTree) -> PyTree:
    """The number in an array without dimensions, where it is known and nothing depends on it; else ``x``."""
    x = outlived(x)
    tracked = isinstance(x, Tensor) and (x.requires_grad or captured_by_jit(x))
    value = x.value if isinstance(x, Tensor) and x.level is ROOT and not tracked else x
    has_value = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    return np.asarray(value)[()] if has_value and value.ndim == 0 else x


_NEUTRAL = {"add": 0.0, "max": -np.inf, "min": np.inf}


def _neutral(name: str, start: PyTree, x: PyTree) -> PyTree:
    """What windows of ``x`` may begin with in place of another number; None: with ``start`` alone."""
    dtype = getattr(x, "dtype", None)
    if name not in _NEUTRAL or np.ndim(start) > 0 or dtype is None or not is_inexact(dtype):
        return None
    is_complex = jnp.issubdtype(dtype, np.complexfloating)
    fits = not is_complex if type(start) is float else getattr(start, "dtype", None) == dtype
    if not fits or (is_complex and name != "add"):
        return None  # JAX's own call, which refuses other dtypes
    number = np.asarray(_NEUTRAL[name], dtype)[()]
    is_number = not isinstance(start, (Tensor, jax.Array))
    # In some dtypes there is no infinity.
    return None if np.isnan(number) or (is_number and start == number) else number


def _is_function(x: object) -> bool:
    """Whether an argument is a function to be called, not a type or an array."""
    return callable(x) and not isinstance(x, (type, Tensor, jax.Array)) and not hasattr(x, "dtype")


def _is_given_function(x: object) -> bool:
    """Whether JAX gives a body a function in ``x``, and not a model that can be called."""
    if not _is_function(x):
        return False
    leaves = trees.flatten(x)[0]
    return isinstance(x, jax.tree_util.Partial) or (len(leaves) == 1 and leaves[0] is x)


def _jax_function_of(x: object) -> PyTree:
    """The JAX function behind ``x``, which is one or is derived from one; else None."""
    op = getattr(x, "op", None)
    if isinstance(op, Op):
        return op.jax_function if op.binder is bind else None
    module = getattr(x, "__module__", None) or ""
    return x if module == "jax" or module.startswith(("jax.", "jaxlib.")) else None


def _for_tensors(x: object) -> Function:
    """A JAX function as a fad one. Arguments in a ``tree_util.Partial`` may be Tensors already."""
    name = getattr(x, "__name__", "jax_function")
    leaves, structure = trees.flatten(x)
    if len(leaves) == 1 and leaves[0] is x:
        return Op(name, "jax", x).function

    def run(leaves: Sequence[PyTree], args: PyTree, kwargs: PyTree) -> PyTree:
        return trees.unflatten(structure, leaves)(*args, **kwargs)

    op = Op(name, "jax", run)
    return lambda *args, **kwargs: op.function(leaves, args, kwargs)


def _replace(f: Function, x: PyTree) -> PyTree:
    """Apply ``f`` to the functions in an argument."""
    if type(x) in (list, tuple):
        return type(x)([_replace(f, v) for v in x])
    return f(x) if _is_function(x) else x


def _has_body(x: PyTree) -> bool:
    """Whether an argument is, or contains, a function that may be written in fad."""
    if type(x) in (list, tuple):
        return any(map(_has_body, x))
    return _is_function(x) and _jax_function_of(x) is None


def _to_fad(x: PyTree) -> PyTree:
    """A function as a body: it takes Tensors, and functions that JAX gives it do so too."""
    if isinstance(getattr(x, "op", None), Op):
        return x
    if _jax_function_of(x) is x:
        return _for_tensors(x)

    def body(*args: PyTree, **kwargs: PyTree) -> PyTree:
        # custom_root hands its function to `solve`.
        operands = [
            _at_level_of(args, _for_tensors(a)) if _is_given_function(a) else a for a in args
        ]
        return x(*operands, **kwargs)

    body.__wrapped__ = x  # type: ignore[attr-defined]
    return body


def _at_level_of(args: PyTree, f: Function) -> Function:
    """``f``, which computes with values of a body, called with numbers too: at the level of the body."""
    levels = [a.level for a in trees.flatten(args)[0] if isinstance(a, Tensor)]

    def lifted(x: object) -> PyTree:
        plain = isinstance(x, (jax.Array, np.ndarray, np.number, float, int, complex))
        return levels[0].lift(jnp.asarray(x)) if plain and levels else x

    return lambda *args, **kwargs: f(*trees.map_leaves(lifted, args), **kwargs)


def maker(op: Op) -> Function:
    """A function that turns a function into another one (``vectorize``)."""
    jax_function = op.jax_function
    first = next(iter(signature(jax_function).parameters))

    def function(*options: PyTree, **named: PyTree) -> PyTree:
        if first in named:
            options = (named.pop(first), *options)
        user_function, options = options[0], options[1:]
        body = _to_fad(user_function)
        model = jax_function(body, *options, **named)  # fails here if the options are wrong

        def method(method_name: str) -> Function:
            def run(body: PyTree, made_with: PyTree, called_with: PyTree) -> PyTree:
                (options, named), (args, kwargs) = made_with, called_with
                return getattr(jax_function(body, *options, **named), method_name)(*args, **kwargs)

            run.__name__ = op.name

            def made(*args: PyTree, **kwargs: PyTree) -> PyTree:  # both steps as one staged call
                return _staged(run, (body, (options, named), (args, kwargs)), {})

            return functools.update_wrapper(made, user_function, updated=())

        made = method("__call__")
        if isinstance(model, jnp.ufunc):
            for method_name in special_cases.UFUNC_METHODS:
                setattr(made, method_name, method(method_name))
            for attribute in special_cases.UFUNC_ATTRIBUTES:
                setattr(made, attribute, getattr(model, attribute))
        return made

    return copy_signature(function, jax_function, op.name, op.where)
