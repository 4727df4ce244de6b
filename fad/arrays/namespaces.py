"""Modules of array functions: the names of a JAX module, each derived at its first use."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fad.arrays import special_cases
from fad.arrays.arguments import ARRAY, ONE, STRUCTURE, Function, Role, is_list
from fad.arrays.control_flow import maker, with_bodies, with_known_reducers, with_padding
from fad.arrays.operations import (
    FOLLOWS,
    KEYS,
    TENSORS,
    Op,
    as_tensors,
    copy_signature,
    fast_function,
    making_tensors,
)
from fad.arrays.torch_operations import FORMS
from fad.core import trees
from fad.core.borrowed import borrow
from fad.core.faces import module_without_file, tool
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Binder, Number, PyTree
from fad.errors.missing_names import instead_in_module, no_name, no_name_later
from fad.tape.recorder import as_tensor
from fad.tape.vmap import bind_collective, bind_random
from fad.views.chains import Step, ViewOp, Write
from fad.views.inplace import write
from fad.views.make_view import bind_view, has_strides, shares, stop_gradient, view_binder

# Functions of jax.numpy whose results are views, or their argument itself, in a way of their own.
#
# Which functions return views is in `fad.arrays.special_cases.VIEWS`; those here need more than the one rule
# of `fad.views.make_view.view_binder`. The table in docs/views.md says what each returns.


def _reshape(op: Op) -> Function:
    """``reshape``, with NumPy's ``copy``: where it is False, a ValueError if it has to copy."""
    reshape = fast_function(op, view_binder(Write.RESHAPE, has_strides))

    def function(*args: PyTree, copy: bool | None = None, **kwargs: PyTree) -> PyTree:
        if copy:
            return op.function(*args, **kwargs)
        out = reshape(*args, **kwargs)
        if copy is None or not isinstance(out, Tensor):
            return out
        if not any([shares(out, x) for x in (*args, *kwargs.values())]):
            raise ValueError(
                "reshape: copy=False, but the elements are not stored so that this could be a view: "
                "leave copy out, or write x.view(shape)"
            )
        return out

    return op.wrap(function)


def _part(op: Op) -> Function:
    """``real`` and ``imag``: views of complex Tensors; ``real`` of a real Tensor is this Tensor."""
    put, copy = _PUT_PART[op.name], op.function
    second = op.name == "imag"
    parts = ViewOp(
        Primitive(op.name, op.jax_function),
        Write.FUNCTION,
        put,
        whole=False,
        places=lambda addresses, _: 2 * addresses + second,
    )

    def function(x: object, /) -> PyTree:
        if isinstance(x, Tensor):
            if x.dtype.kind == "c":
                return bind_view(x, Step(parts))
            if op.name == "real":
                return x
        return copy(x)

    return op.wrap(function)


_PUT_PART: dict[str, Function] = {
    "real": lambda x, part: jax.lax.complex(part, x.imag),
    "imag": lambda x, part: jax.lax.complex(x.real, part),
}


def _diag(op: Op) -> Function:
    """``diag``: of a matrix a view, as `diagonal`; of anything else a matrix."""
    make, view = op.function, fast_function(op, view_binder(Write.INDICES))

    def function(v: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
        is_view = isinstance(v, Tensor) and v.ndim == 2 and kwargs.keys() <= {"k"}
        return view(v, *args, **kwargs) if is_view else make(v, *args, **kwargs)

    return op.wrap(function)


def _at_least(op: Op) -> Function:
    """``atleast_1d`` and its like: each result is its argument, or a view of it."""
    ndim = int(op.name.removeprefix("atleast_")[0])
    view = fast_function(op, view_binder(Write.RESHAPE))

    def one(x: PyTree) -> PyTree:
        return x if isinstance(x, Tensor) and x.ndim >= ndim else view(x)

    def function(*arys: PyTree) -> PyTree:
        return one(*arys) if len(arys) == 1 else [one(x) for x in arys]

    return op.wrap(function)


def _broadcast_arrays(op: Op) -> Function:
    """``broadcast_arrays``: each result is a view of its argument."""
    binder = view_binder(Write.BROADCAST)
    one = Op("broadcast_to", op.where, jnp.broadcast_to, binder=binder).function

    def function(*args: PyTree) -> PyTree:
        if not any([isinstance(x, (Tensor, np.ndarray)) for x in args]):
            return op.jax_function(*args)
        shape = jnp.broadcast_shapes(*map(np.shape, args))
        return [as_tensors(one(x, shape)) for x in args]

    return op.wrap(function)


# ``copy=False``: the Tensor itself, if it has the dtype.


def _array(op: Op) -> Function:
    """``array`` and ``astype``, which copy unless it is said that they need not."""
    convert, keeps = op.function, op.name == "array"  # ``array`` without a dtype keeps that of x

    def function(x: object, *args: PyTree, **kwargs: PyTree) -> PyTree:
        plain = len(args) <= 1 and not kwargs.keys() - {"dtype", "copy"}
        if isinstance(x, Tensor) and plain and kwargs.get("copy", True) in (None, False):
            dtype = args[0] if args else kwargs.get("dtype")
            if keeps if dtype is None else jnp.dtype(dtype) == x.dtype:
                return x
        return convert(x, *args, **kwargs)

    return op.wrap(function)


ALIASING: dict[str, Callable[[Op], Function]] = {
    "array": _array,
    "astype": _array,
    "atleast_1d": _at_least,
    "atleast_2d": _at_least,
    "atleast_3d": _at_least,
    "broadcast_arrays": _broadcast_arrays,
    "diag": _diag,
    "imag": _part,
    "real": _part,
    "reshape": _reshape,
}

# The fad version of one public object of a JAX module, by the tables of `fad.arrays.special_cases`.


def _written(module: str, name: str, function: Function) -> Function:
    """What `fad.formulas` has in the place of a function of JAX; it is imported when this is called."""

    @functools.cache
    def written() -> Function:
        made: Function = tool("formulas").written(module, name, function)
        return made

    return functools.wraps(function)(lambda *args, **options: written()(*args, **options))


def derive(name: str, where: str, module: str, value: PyTree) -> PyTree:
    """The fad version of a public object of a JAX module.

    Arguments:
        name: its name there and here.
        where: the fad module it will live in.
        module: the JAX module.
        value: the object; one that is not a function (a dtype, a constant) is returned as it is.

    The tables are asked in order: objects that compute when they are indexed or made come before others
    that are not functions, and functions that are evaluated on the host before operations.
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
        return tool("formulas.array_classes").derived(name, where, value)
    if not callable(value) or isinstance(value, type) or _is_typing(value):
        return value
    if listed(special_cases.LOOPS):
        value = getattr(tool("formulas.while_loops"), name)
    jax_function = _written(module, name, value) if listed(special_cases.WRITTEN) else value
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
        full = f"{op.name}.{method}"
        is_written = full in special_cases.WRITTEN["jax.numpy"]
        function = _written("jax.numpy", full, of_jax) if is_written else of_jax
        function = _at_lists(function) if method == "at" else function
        made = Op(full, op.where, function, roles).function
        made.__name__ = method
        setattr(op.function, method, made)
    for attribute in special_cases.UFUNC_ATTRIBUTES:
        setattr(op.function, attribute, getattr(ufunc, attribute))
    return op.function


def _at_lists(function: Function) -> Function:
    """The method ``at`` of a ufunc, with lists as arrays of indices."""

    def array(index: PyTree) -> PyTree:
        return jnp.asarray(index) if isinstance(index, list) else index

    @functools.wraps(function)
    def call(a: ArrayLike, indices: PyTree, *args: PyTree, **kwargs: PyTree) -> PyTree:
        several = isinstance(indices, tuple)
        indices = tuple(map(array, indices)) if several else array(indices)
        return function(a, indices, *args, **kwargs)

    return call


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

# Modules of array functions: the names of a JAX module, each derived at its first use.


@dataclasses.dataclass(slots=True, eq=False)
class Namespace:
    """A fad module whose names are those of a JAX module.

    Arguments:
        name: the fad module.
        jax_module: the name of the JAX module; it is imported when a name is first looked up.
        children: submodules that fad has too.
        defined: names that JAX's has not, or has with another meaning, and the modules that have them.

    A module uses its ``get`` and ``names`` as ``__getattr__`` and ``__dir__`` (PEP 562). A name
    that was looked up is put into the module, so that the next look-up costs nothing.
    """

    name: str
    jax_module: str
    children: Sequence[str] = ()
    defined: dict[str, str] = dataclasses.field(default_factory=dict)

    def get(self, attribute: str) -> PyTree:
        """The fad version of a public name.

        Raises:
            AttributeError: the JAX module has no such public name, or fad does not have it.
        """
        if attribute == "__all__":  # a star import asks for it
            return self.names()
        if attribute.startswith("_"):
            raise no_name(self.name, attribute, "")
        if attribute in self.children:
            child = importlib.import_module(f"{self.name}.{attribute}")
            setattr(sys.modules[self.name], attribute, child)
            return child
        if attribute in self.defined:
            value = getattr(importlib.import_module(self.defined[attribute]), attribute)
            setattr(sys.modules[self.name], attribute, value)
            return value
        try:
            value = getattr(importlib.import_module(self.jax_module), attribute)
        except AttributeError as error:
            raise self._missing(attribute, str(error)) from None
        reason = special_cases.missing(self.jax_module, attribute, value)
        if reason is not None:
            raise AttributeError(f"fad has no {self.jax_module}.{attribute}: {reason}")
        if isinstance(value, types.ModuleType):
            raise self._missing(attribute)
        result = derive(attribute, self.name, self.jax_module, value)
        setattr(sys.modules[self.name], attribute, result)
        return result

    def _missing(self, attribute: str, of_jax: str = "") -> AttributeError | ImportError:
        """The error for a name that is not there; ``of_jax`` is what JAX says of it."""

        def instead() -> str:
            deprecated = "" if "has no attribute" in of_jax else of_jax
            return instead_in_module(self.name, attribute) or deprecated

        return no_name_later(self.name, attribute, instead, self.names)

    def names(self) -> list[str]:
        """The public names."""
        module = importlib.import_module(self.jax_module)
        public = {*self.children, *self.defined}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name in dir(module):
                if name.startswith("_"):
                    continue
                try:
                    value = getattr(module, name)
                except (AttributeError, Warning):
                    continue
                if isinstance(value, types.ModuleType):
                    continue
                if special_cases.missing(self.jax_module, name, value) is None:
                    public.add(name)
        return sorted(public)


def derived_module(name: str, jax_module: str, children: Sequence[str] = ()) -> None:
    """Make the module of this name, whose names are those of a JAX module."""
    namespace = Namespace(name, jax_module, children)
    doc = f"The names of {jax_module}, for Tensors and arrays. See docs/namespaces.md."
    module_without_file(
        name, doc, bool(children), __getattr__=namespace.get, __dir__=namespace.names
    )


def install_tree(name: str, jax_module: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Make a module for each public submodule of a JAX package, without importing any of them.

    Arguments:
        name: the fad package.
        jax_module: the JAX package.
        paths: where the JAX package's files are.

    Returns:
        The names of the direct submodules.
    """
    children: list[str] = []
    for path in paths:
        for info in pkgutil.iter_modules([path]):
            if not info.name.startswith("_"):
                child, twin = f"{name}.{info.name}", f"{jax_module}.{info.name}"
                inside = install_tree(child, twin, [f"{path}/{info.name}"]) if info.ispkg else ()
                derived_module(child, twin, inside)
                children.append(info.name)
    return tuple(children)
