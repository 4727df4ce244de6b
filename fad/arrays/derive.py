"""The fad version of one public object of a JAX module, by the tables of `fad.arrays.special_cases`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad.arrays import (
    numpy_functions,
    smooth_deviations,
    smooth_gamma,
    smooth_norms,
    special_cases,
)
from fad.arrays.aliasing import ALIASING
from fad.arrays.arguments import ARRAY, STRUCTURE
from fad.arrays.control_flow import maker, with_bodies, with_known_reducers, with_padding
from fad.arrays.lists import ONE, Function, Role, is_list
from fad.arrays.operations import Op, copy_signature, fast_function
from fad.arrays.results import FOLLOWS, KEYS, TENSORS, as_tensors, making_tensors
from fad.arrays.smooth import mended
from fad.arrays.smooth_functions import IN_LAX, IN_NN, IN_NUMPY
from fad.arrays.smooth_matrices import IN_LINALG
from fad.arrays.smooth_special import IN_SPECIAL
from fad.arrays.torch_operations import FORMS
from fad.arrays.while_loops import fori_loop, while_loop
from fad.core import trees
from fad.core.borrowed import borrow
from fad.core.level import bind
from fad.core.tensor import Tensor
from fad.core.types import Binder, Number, PyTree
from fad.levels.named_axes import bind_collective
from fad.levels.randomness import bind_random
from fad.tape.recorder import as_tensor
from fad.views.inplace import write
from fad.views.make_view import stop_gradient, view_binder
from fad.views.scatter_mul import multiply_in, scatter_mul

# What takes the place of a function of JAX, which has no derivative, or lacks arguments of NumPy's.
_OWN: dict[str, dict[str, Function]] = {
    "jax.lax": {"fori_loop": fori_loop, "scatter_mul": scatter_mul, "while_loop": while_loop},
    "jax.numpy": {**numpy_functions.OWN, "multiply.at": multiply_in},
}

# Their derivatives are right where JAX's formulas break down. See NOTE [smooth] in `fad.arrays.smooth`.
SMOOTH: dict[str, dict[str, Callable[[Function], Function]]] = {
    "jax.lax": {**IN_LAX, **smooth_gamma.IN_LAX},
    "jax.nn": IN_NN,
    "jax.numpy": {**IN_NUMPY, **smooth_deviations.IN_NUMPY},
    "jax.numpy.linalg": {**IN_LINALG, **smooth_norms.IN_LINALG},
    "jax.scipy.cluster.vq": smooth_norms.IN_VQ,
    "jax.scipy.linalg": IN_LINALG,
    "jax.scipy.special": IN_SPECIAL,
    "jax.scipy.stats": smooth_deviations.IN_STATS,
}


def derive(name: str, where: str, module: str, value: PyTree) -> PyTree:
    """The fad version of a public object of a JAX module.

    Arguments:
        name: its name there and here.
        where: the fad module it will live in.
        module: the JAX module.
        value: the object; what is no function (a dtype, a constant) is returned as it is.

    The tables are asked in order: an object that computes when it is indexed or made comes before what is no
    function, and what is evaluated on the host before what is an operation.
    """

    def listed(table: dict[str, frozenset[str]]) -> bool:
        return name in table.get(module, ())

    in_random = module == "jax.random"
    draws = in_random and name not in special_cases.NOT_DRAWING and not listed(special_cases.HOST)
    makes = draws or listed(special_cases.CREATION)
    results = TENSORS if makes else KEYS if in_random else FOLLOWS
    if listed(special_cases.INDEXERS):
        return _Indexer(name, where, value, results)
    if listed(special_cases.CLASSES):
        return _class(name, where, value)
    if not callable(value) or isinstance(value, type) or _is_typing(value):
        return value
    value = _OWN.get(module, {}).get(name, value)
    smooth = SMOOTH.get(module, {}).get(name)
    jax_function = value if smooth is None else mended(smooth, value)
    roles = special_cases.ROLES.get(module, {}).get(name, {})
    binder: Binder = bind_random if draws else bind
    is_view = module in ("jax.numpy", "jax.numpy.linalg") and name in special_cases.VIEWS
    if is_view:
        binder = view_binder(special_cases.VIEWS[name], special_cases.COPIES_UNLESS.get(name))
    collective = listed(special_cases.COLLECTIVES)
    op = Op(name, where, jax_function, roles, binder, collective, results)
    if f"{module}.{name}" in _BY_NAME:
        return _BY_NAME[f"{module}.{name}"](op)
    kinds = [make for table, make in _KINDS if listed(table)]
    if kinds:
        return kinds[0](op)
    if is_view or module == "jax.numpy":
        op.form = FORMS.get(name)
    return _ufunc(op, value) if isinstance(value, jnp.ufunc) else op.function


def _is_typing(value: object) -> bool:
    """Whether a callable is a type alias rather than a function."""
    return type(value).__module__ in ("typing", "types") and not inspect.isroutine(value)


# Evaluated on the host


def _on_host(op: Op, replace: Function) -> Function:
    """A function that is evaluated on the host, with ``replace`` applied to Tensors."""

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        args, kwargs = trees.map_leaves(replace, (args, kwargs))
        if op.name in _OF_ONE and args and is_list(args[0]):
            args = (np.asarray(args[0]), *args[1:])
        # A buffer may be filled again when this has returned.
        return jax.block_until_ready(op.jax_function(*args, **kwargs))

    made = making_tensors(function) if op.results == TENSORS else function
    return copy_signature(made, op.jax_function, op.name, op.where)


_OF_ONE = frozenset(["ndim", "shape", "size"])  # take one array, which may be a list


def _stand_in(x: object) -> object:
    """A Tensor's shape and dtype, as an array that takes no memory."""
    if not isinstance(x, Tensor):
        return x
    if jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return jax.ShapeDtypeStruct(x.shape, x.dtype)
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


_WEAK: dict[str, Number] = {"i": 0, "f": 0.0, "c": 0j}


def _promoting(x: object) -> object:
    """What promotes as a Tensor does: its dtype, or a Python scalar where it is weakly typed."""
    if not isinstance(x, Tensor):
        return x
    return _WEAK[x.dtype.kind] if x.aval.weak_type else x.dtype


def _some_key(x: object) -> object:
    """A random key of a Tensor's kind."""
    return jax.random.key(0, dtype=x.aval.dtype) if isinstance(x, Tensor) else x


_REPLACED: dict[str, Function] = {"result_type": _promoting, "key_impl": _some_key}


def _value(x: object) -> object:
    return np.asarray(x) if isinstance(x, Tensor) else x


def _stop_gradient(op: Op) -> Function:
    def function(x: object) -> object:
        return stop_gradient(trees.map_leaves(_of_numpy, x))

    return copy_signature(function, op.jax_function, op.name, op.where)


def _of_numpy(x: object) -> object:
    return as_tensor(x) if isinstance(x, np.ndarray) else x


# One function for each table


def _collective(op: Op) -> Function:
    """A function of a named axis: `bind_collective` needs the name as well."""

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        try:
            axis_name = op.plan.signature.bind(*args, **kwargs).arguments["axis_name"]
        except TypeError as error:
            raise TypeError(f"{op.where}.{op.name}(): {error}") from None
        return op.call(args, kwargs, lambda prim, leaves: bind_collective(prim, leaves, axis_name))

    return op.wrap(function)


def _factory(op: Op) -> Function:
    """A function that returns a function which draws: an initializer with its options."""
    make = op.jax_function

    def draw(key: object, args: PyTree, kwargs: PyTree, options: PyTree, named: PyTree) -> PyTree:
        return make(*options, **named)(key, *args, **kwargs)

    roles: dict[str, Role] = dict.fromkeys(("args", "kwargs", "options", "named"), STRUCTURE)
    binder = bind if op.name == "constant" else bind_random
    drawn = Op(op.name, op.where, draw, roles, binder, results=TENSORS).function

    def function(*options: PyTree, **named: PyTree) -> Function:
        def initializer(key: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
            return drawn(key, args, kwargs, options, named)

        if not any(isinstance(x, Tensor) for x in (*options, *named.values())):
            model = make(*options, **named)  # fails here if the options are wrong
            initializer.__wrapped__ = model  # type: ignore[attr-defined]
        initializer.__name__ = initializer.__qualname__ = op.name
        return initializer

    return copy_signature(function, make, op.name, op.where)


def _class(name: str, where: str, jax_class: Any) -> type:
    """The fad version of a class whose instances contain arrays.

    An instance keeps the arguments that it was made of; each method is one operation, which makes
    the JAX object inside and calls the method on it, with those of other instances that it is given.
    """
    ops: dict[str, Op] = {}

    def operation(attribute: str) -> Op:
        def run(
            options: PyTree, named: PyTree, args: PyTree, kwargs: PyTree, others: PyTree
        ) -> PyTree:
            instance = jax_class(*options, **named)
            found = getattr(instance, attribute)
            given = {**dict(enumerate(args)), **kwargs}
            for place, its_options, its_named in others:
                given[place] = jax_class(*its_options, **its_named)
            args = [given.pop(k) for k in range(len(args))]
            return found(*args, **given) if callable(found) else found

        if attribute not in ops:
            roles: dict[str, Role] = {"options": ARRAY, "args": ARRAY}
            roles.update(named=STRUCTURE, kwargs=STRUCTURE, others=STRUCTURE)
            ops[attribute] = Op(f"{name}.{attribute}", where, run, roles)
        return ops[attribute]

    class Instance:
        __slots__ = ("_named", "_options")

        def __init__(self, *options: PyTree, **named: PyTree) -> None:
            self._options = options
            self._named = named

        def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
            return operation("__call__").function(self._options, self._named, args, kwargs, ())

        def __getattr__(self, attribute: str) -> PyTree:
            if attribute.startswith("_"):
                raise AttributeError(attribute)
            run = operation(attribute)
            if not callable(getattr(jax_class, attribute, None)):
                return run.function(self._options, self._named, (), {}, ())

            def method(*args: PyTree, **kwargs: PyTree) -> PyTree:
                given: list[tuple[int | str, PyTree]] = [*enumerate(args), *kwargs.items()]
                found = {k: a for k, a in given if isinstance(a, Instance)}
                others = tuple([(k, a._options, a._named) for k, a in found.items()])
                args = tuple([0 if k in found else a for k, a in enumerate(args)])
                kwargs = {k: 0 if k in found else a for k, a in kwargs.items()}
                return run.function(self._options, self._named, args, kwargs, others)

            return copy_signature(method, getattr(jax_class, attribute), attribute, where)

    Instance.__name__ = Instance.__qualname__ = name
    Instance.__module__ = where
    Instance.__doc__ = jax_class.__doc__
    return Instance


class _Indexer:
    """An object such as ``r_``, which computes when it is indexed."""

    def __init__(self, name: str, where: str, jax_object: PyTree, results: int) -> None:
        def index(key: PyTree) -> PyTree:
            return jax_object[key]

        self.__doc__ = jax_object.__doc__
        self._function = Op(name, where, index, {"key": STRUCTURE}, results=results).function

    def __getitem__(self, key: object) -> PyTree:
        return self._function(key)


def _ufunc(op: Op, ufunc: Any) -> Function:
    """Adds what a ufunc has besides its call."""
    for method in special_cases.UFUNC_METHODS:
        of_jax = getattr(ufunc, method)
        roles: dict[str, Role] = {"indices": (ARRAY, ONE)} if method == "reduceat" else {}
        found = _OWN["jax.numpy"].get(f"{op.name}.{method}", of_jax)
        found = numpy_functions.at_lists(found) if method == "at" else found
        made = Op(f"{op.name}.{method}", op.where, found, roles).function
        made.__name__ = method
        setattr(op.function, method, made)
    for attribute in special_cases.UFUNC_ATTRIBUTES:
        setattr(op.function, attribute, getattr(ufunc, attribute))
    return op.function


def _same_tensor(op: Op) -> Function:
    """``asarray``: no copy of a Tensor that needs no change, as in JAX, nor of a JAX array."""
    convert = op.function

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if len(args) == 1 and not kwargs and isinstance(args[0], (Tensor, jax.Array)):
            return as_tensors(args[0])
        return convert(*args, **kwargs)

    return op.wrap(function)


def _may_write(op: Op) -> Function:
    """``nan_to_num``: with ``copy=False`` it writes into a Tensor, as NumPy's does into an array."""
    replace, change = op.function, fast_function(op, write)

    def function(x: object, copy: bool = True, *args: PyTree, **kwargs: PyTree) -> PyTree:
        if not copy and isinstance(x, Tensor):
            return change(x, True, *args, **kwargs)
        return replace(x, copy, *args, **kwargs)

    return op.wrap(function)


def _from_dlpack(op: Op) -> Function:
    """A Tensor already is one: going through DLPack would lose its history."""

    def function(x: object, /, *, device: object = None, copy: bool | None = None) -> PyTree:
        if isinstance(x, Tensor):
            return x
        array = op.jax_function(x, device=device, copy=copy)
        return array if copy else borrow(array, x)

    return copy_signature(making_tensors(function), op.jax_function, op.name, op.where)


# What makes a function of an operation: by its name, or by the tables that its name may stand in.
_KINDS: list[tuple[dict[str, frozenset[str]], Callable[[Op], Function]]] = [
    (special_cases.HOST, lambda op: _on_host(op, _REPLACED.get(op.name, _stand_in))),
    (special_cases.ON_VALUES, lambda op: _on_host(op, _value)),
    (special_cases.MAKERS, maker),
    (special_cases.FACTORIES, _factory),
    (special_cases.BODIES, with_bodies),
    (special_cases.COLLECTIVES, _collective),
]
_BY_NAME: dict[str, Callable[[Op], Function]] = {
    **{f"jax.numpy.{name}": make for name, make in ALIASING.items()},
    "jax.lax.reduce_window": with_known_reducers,
    "jax.lax.stop_gradient": _stop_gradient,
    "jax.numpy.asarray": _same_tensor,
    "jax.numpy.from_dlpack": _from_dlpack,
    "jax.numpy.nan_to_num": _may_write,
    "jax.numpy.pad": with_padding,
}
