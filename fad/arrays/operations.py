"""Derives fad's array functions from those of JAX, all by one mechanism.

NOTE [how an operation finds its Primitive]

`Op` turns one JAX function into a fad function. At the first call it reads the signature and gives
each parameter a role (`arguments.role_of`). A call is then split into leaves, which are the
arguments of a Primitive, and a key, which is everything else; equal keys share one Primitive, and
so one compiled function. A new learning rate is a new leaf and compiles nothing.

The eager fast path does none of this. How a call splits depends, with few exceptions, only on the
types of its arguments and on its keywords. That pair is looked up in ``routes``, and the answer is
either the Primitive itself (all arguments are leaves), or a `Route` that picks leaves and static
values by position and finds the Primitive in one more lookup.

A call without any array (``zeros((3,))``) calls the JAX function directly. Whether it returns Tensors
or JAX arrays is said in NOTE [what makes a Tensor].

A function whose result's shape depends on data cannot be compiled. JAX says so when it is traced;
`Op.call` then runs it without compilation, and remembers that under the key.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Container, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fad.arrays.arguments import (
    ARRAY,
    LEAF,
    STATIC,
    Unhashable,
    flat_types,
    freeze,
    is_array,
    is_array_type,
    leaf_by_type,
    safe_type,
    static_error,
    thaw_all,
    unhashable_message,
)
from fad.arrays.call_notes import note_call
from fad.arrays.dims import ALONG, along
from fad.arrays.keywords import Form
from fad.arrays.lists import Args, Kwargs, Role, is_list, with_arrays
from fad.arrays.numpy_keywords import adapted, is_elementwise, masked
from fad.arrays.plans import Entry, Parameters
from fad.arrays.results import (
    FOLLOWS,
    TENSORS,
    as_tensors,
    making_tensors,
    numpy_alone,
    snapshots,
    write_out,
)
from fad.core.borrowed import is_foreign
from fad.core.dependence import COMPUTED
from fad.core.level import bind
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.types import Array, Binder, PyTree
from fad.errors import HostValueError
from fad.views.masked_parts import without_parts

PRIMITIVES = 1024  # kept for each operation
ROUTES = 256  # kept for each operation
KNOWN = 256  # kept for each route

_EXPECTED = {"dtype": "dtype", "out": "Tensor"}
_NOT_TRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_RECOVERABLE = (*_NOT_TRACEABLE, OverflowError)

_lock = threading.RLock()


def _remember(cache: dict[Hashable, Any], key: Hashable, value: PyTree, limit: int) -> None:
    """Store in a bounded cache, which forgets its oldest entry when it is full."""
    with _lock:
        if len(cache) >= limit and key not in cache:
            del cache[next(iter(cache))]
        cache[key] = value


def _holds_tensor(value: PyTree) -> bool:
    if type(value) in (list, tuple):
        return any(map(_holds_tensor, value))
    return isinstance(value, Tensor)


@dataclasses.dataclass(slots=True, eq=False)
class _StaticResult:
    """A bool or string in a result: part of its structure. It unflattens to the bare value."""

    value: object


jax.tree_util.register_pytree_node(_StaticResult, lambda f: ((), f.value), lambda value, _: value)


def _keep_flags(out: object) -> PyTree:
    """Keep what is no array in a result as it is (``cho_factor`` returns ``lower``)."""
    if isinstance(out, jax.Array):
        return out
    leaves, structure = jax.tree_util.tree_flatten(out)
    if not any(type(leaf) in (bool, str) for leaf in leaves):
        return out
    flagged = [_StaticResult(leaf) if type(leaf) in (bool, str) else leaf for leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, flagged)


def copy_signature(function: Any, jax_function: Any, name: str, where: str) -> Any:
    """Give ``function`` the docstring and (through ``__wrapped__``) the signature of the JAX function."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = where
    function.__doc__ = jax_function.__doc__
    function.__wrapped__ = jax_function
    return function


class Route:
    """How calls with the same argument types and keywords split into leaves and a key."""

    def __init__(
        self, entries: list[Entry], values: Sequence[object], keyword: str | None = None
    ) -> None:
        self.entries = [(position, role) for _, position, role in entries]
        # What one call means by ``dim`` is not what another means by ``axis``.
        self.labels = (keyword, *[label for label, _, _ in entries])
        leaves: list[int] = []
        statics: list[int] = []
        self.tuple = -1
        self.simple = True
        self.arrays = False
        for position, role in self.entries:
            cls = type(values[position])
            if leaf_by_type(cls, role):
                leaves.append(position)
                self.arrays = self.arrays or is_array_type(cls)
            elif safe_type(cls):
                statics.append(position)
            elif cls is tuple and role == STATIC and self.tuple < 0:
                statics.append(position)
                self.tuple = position
            else:
                self.simple = False
        self.numpy = numpy_alone(values)
        self.simple = self.simple and self.arrays and not self.numpy
        self.plain = self.simple and leaves == list(range(len(values)))
        self.leaves = _picker(leaves)
        self.statics = _picker(statics) if len(statics) != 1 else operator.itemgetter(*statics)
        self.known: dict[Hashable, Primitive] = {}

    def quick_key(self, values: Sequence[PyTree]) -> Hashable:
        """A key for ``known``; None if it would not tell this call from all others."""
        if not self.simple:
            return None
        if self.tuple < 0:
            return self.statics(values)
        types = tuple(map(type, values[self.tuple]))
        return (self.statics(values), *types) if flat_types(types) else None


def _picker(positions: list[int]) -> Callable[[Any], Any]:
    """A function that picks ``positions`` out of a tuple, as a tuple."""
    count = len(positions)
    first = positions[0] if positions else 0
    if positions == list(range(first, first + count)):
        return operator.itemgetter(slice(first, first + count))
    return operator.itemgetter(*positions)


@dataclasses.dataclass(eq=False, repr=False)
class Op:
    """One JAX function as a fad function.

    Arguments:
        name: the name of its Primitives.
        where: the fad module that it lives in.
        jax_function: the JAX function.
        roles: roles that replace those read off the signature, by parameter name.
        binder: `bind`, or what stands in for it.
        collective: whether the function names a mapped axis.
        results: its role in NOTE [what makes a Tensor].

    ``function`` is what users call; it has the signature and docstring of the JAX function. ``form`` is what
    a call with PyTorch's keywords means, where that is something else.
    """

    name: str
    where: str
    jax_function: Callable[..., PyTree]
    roles: dict[str, Role] = dataclasses.field(default_factory=dict)
    binder: Binder = bind
    collective: bool = False
    results: int = FOLLOWS
    form: Form | None = None
    primitives: dict[Hashable, Primitive] = dataclasses.field(default_factory=dict)
    routes: dict[Any, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        function = fast_function(self, self.binder)
        self.function = self.wrap(making_tensors(function) if self.results == TENSORS else function)

    def wrap(self, function: Any) -> Any:
        """``function`` as what users call: with the signature of the JAX function, and this as its ``op``."""
        function.op = self
        return copy_signature(function, self.jax_function, self.name, self.where)

    @functools.cached_property
    def plan(self) -> Parameters:
        """The parameters, read off the JAX function's signature at the first call."""
        return Parameters(self.jax_function, self.roles)

    def call(self, args: Args, kwargs: Kwargs, binder: Binder | None = None) -> PyTree:
        """Run a call whose Primitive is not known from its types alone.

        First it becomes a call that JAX's function takes: without masked parts, with arrays for lists, by
        JAX's keywords, or a call of the operation that it means in PyTorch or NumPy. These come before the
        route, which would fix the roles of what they change. Then it is split into leaves and a key.
        Without an array among the leaves it is JAX's own call; else the Primitive of the key runs. It is
        stored after it has run, so that a call that fails leaves nothing behind.
        """
        binder = binder or self.binder
        elements = without_parts(args, kwargs)
        if elements is not None:
            return self.call(*elements)
        values = (*args, *kwargs.values())
        if any(map(is_list, values)):
            listed = self.with_arrays(args, kwargs)
            if listed is not None:
                return self.call(*listed, binder)
        kinds = (*map(type, values), *kwargs)
        route = self.routes.get(kinds)
        if type(route) is not Route:
            if self.form is not None and not self.form.keywords.isdisjoint(kwargs):
                other = self.form.make()
                return other.call(args, kwargs, other.binder if binder is self.binder else binder)
            of_numpy = adapted(self, args, kwargs) if kwargs else None
            if of_numpy is not None:
                other, args, kwargs = of_numpy
                return other.call(args, kwargs, binder)
            route = self._route(args, kwargs, values)
        leaves: list[PyTree] = []
        keys = tuple([freeze(values[i], role, leaves) for i, role in route.entries])
        key = (route.labels, keys)
        if not (route.arrays or self.collective or any(map(is_array, leaves))):
            if any(map(_holds_tensor, values)):  # as a static argument: it has been read
                return as_tensors(self._function(keys, len(args), tuple(kwargs), route)(*leaves))
            out = self._for_keywords(kwargs)(*args, **self.plan.renamed(kwargs))
            return jax.block_until_ready(out) if any(map(is_foreign, values)) else out
        primitive = self.primitives.get(key)
        new = primitive is None
        if primitive is None:
            fn = self._function(keys, len(args), tuple(kwargs), route)
            jit = kwargs.get("device") is None  # compiled code runs where its arguments are
            primitive = Primitive(
                self.name, fn, jit=jit, collective=self.collective, deferrable=True
            )
            if self.results != FOLLOWS:  # what is made of shapes alone requires no grad
                primitive.paths = COMPUTED
        try:
            out = binder(primitive, leaves)
        except _NOT_TRACEABLE as error:
            if not primitive.jit or self.collective:
                raise self._needs_values(leaves, error) from None
            new, primitive = True, Primitive(self.name, primitive.fn, jit=False)
            try:
                out = binder(primitive, leaves)
            except _NOT_TRACEABLE as again:
                raise self._needs_values(leaves, again) from None
            self.routes.clear()
        except (TypeError, ValueError) as error:
            if "hashable" not in str(error):
                raise
            raise self._not_static(args, kwargs, route) from error
        if new:
            _remember(self.primitives, key, primitive, PRIMITIVES)
        self._remember_route(kinds, route, keys, values, primitive)
        if type(out) is tuple:
            out = primitive.unflatten(out)
        follows_numpy = self.results == FOLLOWS and (route.numpy or numpy_alone(leaves))
        return as_tensors(out) if follows_numpy else out

    def with_arrays(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
        """The arguments of a call, with arrays for lists; None if there is nothing to do."""
        return with_arrays(self.plan, args, kwargs, _JOIN.function)

    def _needs_values(self, leaves: Sequence[object], error: Exception) -> Exception:
        """What to raise where values are needed that a transform hides; JAX's own for arrays."""
        if not any(isinstance(x, Tensor) for x in leaves):
            return error
        known = [n for n in ("size", "length", "total_repeat_length") if n in self.plan.names]
        advice = f"Pass {known[0]}= to fix the shape" if known else "Compute it outside"
        return HostValueError(
            f"{self.where}.{self.name}: what it returns depends on values in a way that cannot be "
            f"traced, so it does not run inside vmap, jit or a staged body. {advice}. ({error})"
        )

    def find(self, route: Route, values: Args) -> tuple[Primitive | None, list[PyTree]]:
        """The Primitive and the leaves of a call with containers.

        The Primitive is None if it is new, or if NumPy arrays decide what is returned.
        """
        leaves: list[PyTree] = []
        if route.numpy:
            return None, leaves
        keys = tuple([freeze(values[i], role, leaves) for i, role in route.entries])
        if not numpy_alone(leaves) and (route.arrays or any(map(is_array, leaves))):
            return self.primitives.get((route.labels, keys)), leaves
        return None, leaves

    def _route(self, args: PyTree, kwargs: PyTree, values: Args) -> Route:
        entries = self.plan.entries(len(args), tuple(kwargs))
        who = f"{self.where}.{self.name}()"
        if entries is None:
            try:
                self.plan.signature.bind(*args, **self.plan.renamed(kwargs))
            except TypeError as error:
                raise TypeError(f"{who}: {error}") from None
            raise TypeError(f"{who}: a parameter is given twice")
        for label, position, _ in entries:
            name = self.plan.names[label] if isinstance(label, int) else ""
            if name in ("dtype", "out") and isinstance(values[position], bool):
                raise TypeError(
                    f"{who}: {name} is {values[position]}: expected a {_EXPECTED[name]}; to keep the "
                    "dimensions that are reduced, write keepdims=True (or keepdim=True)"
                )
        leaves: list[PyTree] = []
        for _, position, role in entries:  # `freeze` learns each type
            try:
                freeze(values[position], role, leaves)
            except Unhashable as error:
                name, who = self.names_of(args, kwargs)[position], f"{self.where}.{self.name}"
                raise TypeError(unhashable_message(who, name, error.value)) from None
        return Route(entries, values, self._dim_in(kwargs))

    def _not_static(self, args: PyTree, kwargs: PyTree, route: Route) -> TypeError:
        static = [i for i, role in route.entries if role == STATIC]
        names, values = self.names_of(args, kwargs), (*args, *kwargs.values())
        who = f"{self.where}.{self.name}"
        return static_error(who, [names[i] for i in static], [values[i] for i in static])

    def names_of(self, args: PyTree, kwargs: PyTree) -> list[str]:
        """The name of the parameter for each argument."""
        names, count = self.plan.names, len(self.plan.positional)
        rest = [*names[count : count + 1], ""][:1]  # of a parameter that takes several
        return [*[*names[:count], *rest * len(args)][: len(args)], *kwargs]

    def _dim_in(self, keywords: Container[str]) -> str | None:
        """The keyword by which a call gives dimensions as PyTorch does, where that means more."""
        if self.name in ALONG:
            for name in ("dim", "dims"):
                if name in keywords and name in self.plan.aliases:
                    return name
        return None

    def _for_keywords(self, keywords: Container[str]) -> Callable[..., PyTree]:
        """The JAX function for a call with these keywords; see `fad.arrays.dims`."""
        if self.name in ALONG and "axis" in self.plan.named:
            of_torch = self._dim_in(keywords) is not None
            return along(self.name, self.jax_function, self.plan.names, of_torch)
        return self.jax_function

    def _function(
        self, keys: tuple[Hashable, ...], count: int, keywords: tuple[str, ...], route: Route
    ) -> Callable[..., PyTree]:
        """The JAX function as a function of leaves alone."""
        jax_function = self._for_keywords(keywords)
        positional = keys[:count]
        names = [keywords[i - count] for i, _ in route.entries[count:]]
        renamed = self.plan.renamed
        named = list(zip(names, keys[count:], strict=True))

        def fn(*leaves: Array) -> PyTree:
            args, kwargs = thaw_all(positional, named, leaves)
            return _keep_flags(jax_function(*args, **renamed(kwargs)))

        return fn

    def _remember_route(
        self,
        kinds: tuple[Hashable, ...],
        route: Route,
        keys: tuple[Hashable, ...],
        values: Args,
        primitive: Primitive,
    ) -> None:
        if self.collective:
            return
        if route.plain:
            if all(k is LEAF for k in keys):
                _remember(self.routes, kinds, primitive, ROUTES)
            return
        if self.routes.get(kinds) is not route:
            _remember(self.routes, kinds, route, ROUTES)
        quick = route.quick_key(values)
        if quick is not None and sum(k is LEAF for k in keys) == len(route.leaves(values)):
            _remember(route.known, quick, primitive, KNOWN)


def fast_function(op: Op, binder: Binder) -> Any:
    """What users call: the fast path of NOTE [how an operation finds its Primitive]."""
    routes, call = op.routes, op.call

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        try:
            values: Any = args
            if kwargs:
                if kwargs.get("out") is not None:
                    out = kwargs.pop("out")
                    args, kwargs = snapshots(out, args, kwargs)
                    if "where" in kwargs and is_elementwise(op.where, op.name):
                        args = (out, kwargs.pop("where"), *args)
                        return write_out(op.name, out, masked(op).function(*args, **kwargs))
                    return write_out(f"{op.where}.{op.name}", out, function(*args, **kwargs))
                values = (*args, *kwargs.values())
                route = routes.get((*map(type, values), *kwargs))
            else:
                route = routes.get(tuple(map(type, args)))
            if type(route) is Primitive:
                primitive: Any = route
            elif route is None:
                return call(args, kwargs, binder)
            elif route.simple:
                try:
                    at = route.tuple
                    key = route.statics(values)
                    primitive = route.known[key if at < 0 else (key, *map(type, values[at]))]
                except (KeyError, TypeError):  # new, or a tuple that has no hash
                    return call(args, kwargs, binder)
                values = route.leaves(values)
            else:
                try:
                    primitive, values = op.find(route, values)
                except Unhashable:
                    return call(args, kwargs, binder)
                if primitive is None:
                    return call(args, kwargs, binder)
            try:
                out = binder(primitive, values)
            except _RECOVERABLE:
                return call(args, kwargs, binder)
            return primitive.unflatten(out) if type(out) is tuple else out
        except (TypeError, ValueError, NotImplementedError) as error:
            note_call(error, f"{op.where}.{op.name}", op.plan.names, args, kwargs)
            raise

    return function


_JOIN = Op("array", "fad.numpy", jnp.array, {"object": ARRAY})
