"""Derives fad's array functions from those of JAX, all by one mechanism."""

from __future__ import annotations

import dataclasses
import functools
import traceback
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import jax
import jax.numpy as jnp

from fad.arrays.arguments import (
    ALONG,
    ARRAY,
    LEAF,
    NUMPY_TYPES,
    ONE,
    OPERANDS,
    SEVERAL,
    STATIC,
    Args,
    Form,
    Kwargs,
    Role,
    Unhashable,
    aliases_of,
    along_axes,
    flat_types,
    freeze,
    is_array,
    is_array_type,
    is_list,
    leaf_by_type,
    lists_in,
    plain_list,
    role_of,
    safe_type,
    thaw,
)
from fad.core import trees
from fad.core.borrowed import is_foreign
from fad.core.caches import Table
from fad.core.dataflow import COMPUTED
from fad.core.faces import tool
from fad.core.level import bind, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor, new_tensor
from fad.core.types import Array, ArrayFunction, Binder, PyTree
from fad.errors import ArgumentError, FadError, HostValueError, describe
from fad.errors.advice import say_too
from fad.errors.tracebacks import is_users
from fad.tape.grad_mode import mark_inference
from fad.tape.recorder import ROOT
from fad.views.aliases import snapshot
from fad.views.inplace import write
from fad.views.make_view import shares

# What is added to an error of JAX in a function of a namespace: the call, and what to write instead.


def note_call(
    error: Exception,
    who: str,
    names: Sequence[str],
    args: Sequence[object],
    kwargs: Mapping[str, PyTree],
) -> None:
    """Add to ``error``, which a call has raised, what was called, if neither fad nor the user raised it.

    What to write instead is said in its message; the call alone is a note.

    Arguments:
        error: the error.
        who: the function that was called.
        names: the names of its parameters.
        args: what it was given.
        kwargs: what it was given by name.

    >>> error = TypeError("got an unexpected keyword argument 'axs'")
    >>> note_call(error, "fad.numpy.sum", ["a", "axis"], [1.0], {"axs": 0})
    >>> str(error).splitlines()[2]
    "in fad.numpy.sum(float 1.0, axs=int 0): for 'axs' write axis"
    """
    notes = getattr(error, "__notes__", ())
    if isinstance(error, FadError) or any(note.startswith("in fad.") for note in notes):
        return
    if "\n\nin fad." in str(error):
        return
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and is_users(frames[-1].f_code):
        return
    shown = [*map(_short, args), *[f"{name}={_short(x)}" for name, x in kwargs.items()]]
    values = [*args, *kwargs.values()]
    advice = tool("hints.calls").instead_of_call(str(error), who, names, values)
    call = f"in {who}({', '.join(shown)})"
    if advice:
        say_too(error, f"{call}: {advice}")
    else:
        error.add_note(call)


def _short(x: PyTree) -> str:
    if type(x) in (list, tuple) and x:
        return f"{type(x).__name__} of {', '.join(map(_short, x[:3]))}{', ...' * (len(x) > 3)}"
    return describe(x)


# The parameters of a JAX function, and which argument of a call belongs to which.

# Of an argument: its label (the place of its parameter, or a name of its own), its position, its role, and
# what a list is, see `fad.arrays.arguments`.
Entry = tuple[object, int, int, int]


_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Parameters:
    """The parameters of a JAX function: order, name and role of each."""

    def __init__(self, jax_function: Callable[..., PyTree], roles: dict[str, Role]) -> None:
        self.signature = signature(jax_function)
        parameters = self.signature.parameters
        self.names = list(parameters)
        self.count = len([p for p in parameters.values() if p.kind in _BY_POSITION])
        # Of each parameter, and of keywords with roles that ``**`` takes: the role, and what a list is.
        self.roles: dict[str, tuple[int, int]] = {}
        for name in (*parameters, *roles):
            role = roles[name] if name in roles else role_of(parameters[name])
            if not isinstance(role, tuple):
                role = role, lists_in(parameters[name]) if role and name in parameters else 0
            self.roles[name] = role
        named = {n for n, p in parameters.items() if p.kind in _BY_NAME}
        self.aliases = aliases_of(named)
        self.named = named | self.aliases.keys()
        self.entries = functools.lru_cache(maxsize=256)(self._entries)

    def _entries(self, count: int, keywords: tuple[str, ...]) -> list[Entry] | None:
        """An `Entry` for each argument of a call, in the order of the parameters.

        Arguments:
            count: how many arguments are positional.
            keywords: the names of the others.

        Returns:
            None if the call does not fit the signature.
        """
        named = {self.aliases.get(name, name): n for n, name in enumerate(keywords, count)}
        try:
            bound = self.signature.bind_partial(*range(count), **named).arguments
        except TypeError:
            return None
        if len(named) < len(keywords):
            return None
        entries: list[Entry] = []
        for label, (name, parameter) in enumerate(self.signature.parameters.items()):
            if name not in bound:
                continue
            position, (role, lists) = bound[name], self.roles[name]
            if parameter.kind is Parameter.VAR_POSITIONAL:
                entries += [(f"*{n}", n, role, lists) for n in position]
            elif parameter.kind is Parameter.VAR_KEYWORD:
                rest = sorted(position.items())
                entries += [(key, n, self.roles.get(key, (role, 0))[0], 0) for key, n in rest]
            else:
                entries.append((label, position, role, lists))
        return entries

    def renamed(self, kwargs: Kwargs) -> Kwargs:
        """Keywords under JAX's names, and devices that are strings as devices."""
        if isinstance(kwargs.get("device"), str):
            device = tool("methods.placement").device_of(kwargs["device"])
            kwargs = kwargs | {"device": device}
        return {self.aliases.get(name, name): v for name, v in kwargs.items()}


# What the functions of a namespace return: Tensors, or JAX arrays.
#
# NOTE [what makes a Tensor]
#
# A function has one of three roles, by the tables of `fad.arrays.special_cases`:
#
# ``TENSORS``: it makes an array from a shape, numbers, lists or a random key (``zeros``, ``array``,
# ``zeros_like``, a draw). Its results are Tensors, whatever it is given: they can be written to.
# ``FOLLOWS``: all others. A Tensor or a NumPy array among the arguments gives Tensors; JAX arrays alone,
# and Python numbers alone, give JAX arrays.
# ``KEYS``: it handles random keys. Its results are JAX arrays, unless an argument is a Tensor.
#
# The role is applied at the edge. A function that makes arrays has it around its call. NumPy arrays are
# seen in the types of the arguments, by which `fast_function` finds the Primitive anyway: calls with
# them do not take the fast path.

FOLLOWS, TENSORS, KEYS = range(3)
OF_SHAPES = frozenset(["empty_like", "ones_like", "zeros_like"])  # they have no tangent


def _as_tensor(x: object) -> object:
    if not isinstance(x, jax.Array):
        return x
    t = new_tensor(x, ROOT)
    return t if state.inference is None else mark_inference(t)


def as_tensors(out: PyTree) -> PyTree:
    """A result with its JAX arrays as Tensors of level 0."""
    if isinstance(out, (Tensor, jax.Array)):
        return _as_tensor(out)
    return trees.map_leaves(_as_tensor, out)


def making_tensors(function: ArrayFunction) -> Callable[..., PyTree]:
    """``function``, with Tensors as results."""

    def made(*args: PyTree, **kwargs: PyTree) -> PyTree:
        return as_tensors(function(*args, **kwargs))

    return made


def numpy_alone(values: Sequence[object]) -> bool:
    """Whether there is a NumPy array and no Tensor among ``values``."""
    types = set(map(type, values))
    return not NUMPY_TYPES.isdisjoint(types) and Tensor not in types


# ``out=``


def write_out(who: str, out: PyTree, result: PyTree) -> PyTree:
    """Write a result into the Tensor that was given as ``out=``."""
    if not isinstance(out, Tensor):
        raise ArgumentError(
            f"{who}: out must be a Tensor, which can be changed, got {describe(out)}"
        )
    if type(result) in (tuple, list):
        raise ArgumentError(f"{who}: out= is for functions with one result")
    if jnp.shape(result) != out.shape:
        raise ArgumentError(
            f"{who}: out has shape {out.shape}, but the result has shape {jnp.shape(result)}"
        )
    return write(OUT, [out, result])


def snapshots(out: PyTree, args: Args, kwargs: Kwargs) -> tuple[PyTree, PyTree]:
    """Arguments that share memory with ``out``, as snapshots, which a graph may save."""

    def one(a: object) -> PyTree:
        return snapshot(a) if isinstance(a, Tensor) and shares(a, out) else a

    return tuple([one(a) for a in args]), {k: one(v) for k, v in kwargs.items()}


OUT = Primitive("out", lambda _, result: jnp.asarray(result))

# Derives fad's array functions from those of JAX, all by one mechanism.
#
# NOTE [how an operation finds its Primitive]
#
# `Op` turns one JAX function into a fad function. At the first call it reads the signature and gives
# each parameter a role (`arguments.role_of`). A call is then split into leaves, which are the
# arguments of a Primitive, and a key, which is everything else; equal keys share one Primitive, and
# so one compiled function. A new learning rate is a new leaf and compiles nothing.
#
# The eager fast path does none of this. How a call splits depends, with few exceptions, only on the
# types of its arguments and on its keywords. That pair is looked up in ``routes``, and the answer is
# either the Primitive itself (all arguments are leaves), or a `Route`, by which `Op.find` splits the call
# without the signature.
#
# A call without any array (``zeros((3,))``) calls the JAX function directly. Whether it returns Tensors
# or JAX arrays is said in NOTE [what makes a Tensor].
#
# A function whose result's shape depends on data cannot be compiled. JAX says so when it is traced;
# `Op.call` then runs it without compilation, and remembers that under the key.

PRIMITIVES = 1024  # kept for each operation
ROUTES = 256  # kept for each operation

_EXPECTED = {"dtype": "dtype", "out": "Tensor"}
# Keywords that may mean what they mean in NumPy, also where JAX's function has them.
_AS_IN_NUMPY = frozenset("copy kind order overwrite_input where".split())
_NOT_TRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_RECOVERABLE = (*_NOT_TRACEABLE, OverflowError)


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
    """Keep values of a result that are not arrays as they are (``cho_factor`` returns ``lower``)."""
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
        self.entries = [(position, role) for _, position, role, _ in entries]
        # What one call means by ``dim`` is not what another means by ``axis``.
        self.labels = (keyword, *[entry[0] for entry in entries])
        types = {position: type(value) for position, value in enumerate(values)}
        self.leaves = [i for i, role in self.entries if leaf_by_type(types[i], role)]
        self.arrays = any([is_array_type(types[i]) for i in self.leaves])
        self.numpy = numpy_alone(values)
        # All arguments are leaves, in their order: the types tell the Primitive.
        in_order = self.leaves == list(range(len(values)))
        self.plain = self.arrays and not self.numpy and in_order
        # The other arguments are numbers, names and the like, or tuples of them: these tell it too.
        self.statics = [i for i, _ in self.entries if i not in self.leaves]
        self.tuples = [i for i, role in self.entries if types[i] is tuple and role == STATIC]
        safe = [i in self.tuples or safe_type(types[i]) for i in self.statics]
        self.simple = self.arrays and not self.numpy and all(safe)

    def static_key(self, values: Args) -> Hashable:
        """What tells the Primitive of a call of this route; None if more may do so."""
        if not self.simple:
            return None
        key: list[Hashable] = [self, *[values[i] for i in self.statics]]
        for i in self.tuples:
            types = tuple(map(type, values[i]))
            if not flat_types(types):
                return None
            key.append(types)
        return tuple(key)


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
    primitives: Table = dataclasses.field(default_factory=lambda: Table(PRIMITIVES))
    routes: Table = dataclasses.field(default_factory=lambda: Table(ROUTES))
    by_statics: Table = dataclasses.field(default_factory=lambda: Table(PRIMITIVES))
    variants: dict[Hashable, Op] = dataclasses.field(default_factory=dict)

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
        JAX's keywords, or a call of the operation that it means in NumPy. These come before the route, which
        would fix the roles of what they change. Then it is split into leaves and a key. Without an array
        among the leaves it is JAX's own call; else the Primitive of the key runs. It is stored after it has
        run, so that a call that fails leaves nothing behind.
        """
        binder = binder or self.binder
        values = (*args, *kwargs.values())
        for v in values:
            if hasattr(type(v), "in_call"):  # masked parts, which say how they are computed with
                return v.in_call(self.call, args, kwargs)
        if any(map(is_list, values)):
            listed = self.with_arrays(args, kwargs)
            if listed is not None:
                return self.call(*listed, binder)
        kinds = (*map(type, values), *kwargs)
        route = self.routes.get(kinds)
        if type(route) is not Route:
            plain = self._without_numpy_keywords(args, kwargs)
            if plain is not None:
                op, args, kwargs = plain
                return op.call(args, kwargs, binder)
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
        if primitive is None:
            fn = self._function(keys, len(args), tuple(kwargs), route)
            jit = kwargs.get("device") is None  # compiled code runs where its arguments are
            primitive = Primitive(
                self.name, fn, jit=jit, collective=self.collective, deferrable=True
            )
            if self.results != FOLLOWS:  # what is made of shapes alone requires no grad
                primitive.paths = COMPUTED
                if self.name in OF_SHAPES:
                    primitive.dependence = lambda mask: (False,)
        try:
            out = binder(primitive, leaves)
        except _NOT_TRACEABLE as error:
            if not primitive.jit or self.collective:
                raise self._needs_values(leaves, error) from None
            primitive = Primitive(self.name, primitive.fn, jit=False)
            try:
                out = binder(primitive, leaves)
            except _NOT_TRACEABLE as again:
                raise self._needs_values(leaves, again) from None
            self.routes.clear()
            self.primitives.pop(key, None)
        except (TypeError, ValueError) as error:
            if "hashable" not in str(error):
                raise
            raise self._not_static(args, kwargs, route) from error
        self.primitives.put(key, primitive)
        if not route.plain:
            self.routes.put(kinds, route)
        elif all(k is LEAF for k in keys):
            self.routes.put(kinds, primitive)
        if type(out) is tuple:
            out = primitive.unflatten(out)
        follows_numpy = self.results == FOLLOWS and (route.numpy or numpy_alone(leaves))
        return as_tensors(out) if follows_numpy else out

    def variant(self, key: Hashable, make: Callable[..., ArrayFunction]) -> Op:
        """The operation of what ``make`` makes of the JAX function and the key."""
        if key not in self.variants:
            self.variants[key] = Op(self.name, self.where, make(self.jax_function, key))
        return self.variants[key]

    def _without_numpy_keywords(self, args: Args, kwargs: Kwargs) -> tuple[Op, Args, Kwargs] | None:
        """A call with keywords that NumPy alone has as one without; None if there are none."""
        parameters = self.plan.named
        if parameters - _AS_IN_NUMPY >= kwargs.keys():
            return None
        numpy_keywords = tool("formulas.numpy_keywords")
        plain = numpy_keywords.adapted(self.where, self.name, parameters, args, kwargs)
        if plain is None:
            return None
        dtype, args, kwargs = plain
        return self if dtype is None else self.variant(dtype, numpy_keywords.typed), args, kwargs

    def with_arrays(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs] | None:
        """The arguments of a call, with arrays for lists where NumPy reads a list as an array.

        Returns:
            The arguments and keywords; None if there is nothing to do.
        """
        entries = self.plan.entries(len(args), tuple(kwargs))
        if entries is None:  # the call does not fit, which is an error elsewhere
            return None

        def joined(value: object) -> PyTree:
            plain = plain_list(value)
            return _JOIN.function(value) if plain is None else plain

        values = [*args, *kwargs.values()]
        changed = False
        for _, position, _, of_list in entries:
            value = values[position]
            lists = of_list if is_list(value) else 0
            if lists == OPERANDS and isinstance(values[0], str):
                lists = ONE
            if lists == ONE:
                values[position] = joined(value)
                changed = True
            elif lists == SEVERAL and any(map(is_list, value)):
                values[position] = [joined(v) if is_list(v) else v for v in value]
                changed = True
        if not changed:
            return None
        return tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :], strict=True))

    def _needs_values(self, leaves: Sequence[object], error: Exception) -> Exception:
        """What to raise where values are needed that a transform hides; JAX's own for arrays."""
        if not any(isinstance(x, Tensor) for x in leaves):
            return error
        sizes = [n for n in ("size", "length", "total_repeat_length") if n in self.plan.names]
        advice = f"Pass {sizes[0]}= to fix the shape" if sizes else "Compute it outside"
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
        key = route.static_key(values)
        primitive: Primitive | None = None if key is None else self.by_statics.get(key)
        if primitive is not None:
            return primitive, [values[i] for i in route.leaves]
        keys = tuple([freeze(values[i], role, leaves) for i, role in route.entries])
        if not numpy_alone(leaves) and (route.arrays or any(map(is_array, leaves))):
            primitive = self.primitives.get((route.labels, keys))
            if primitive is not None and key is not None and len(leaves) == len(route.leaves):
                self.by_statics.put(key, primitive)
            return primitive, leaves
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
        for label, position, _, _ in entries:
            name = self.plan.names[label] if isinstance(label, int) else ""
            if name in ("dtype", "out") and isinstance(values[position], bool):
                raise TypeError(
                    f"{who}: {name} is {values[position]}: expected a {_EXPECTED[name]}; to keep the "
                    "dimensions that are reduced, write keepdims=True (or keepdim=True)"
                )
        leaves: list[PyTree] = []
        for _, position, role, _ in entries:  # `freeze` learns each type
            try:
                freeze(values[position], role, leaves)
            except Unhashable as error:
                name, who = self.names_of(args, kwargs)[position], f"{self.where}.{self.name}"
                raise TypeError(tool("hints.calls").unhashable(who, name, error.value)) from None
        return Route(entries, values, self._dim_in(kwargs))

    def _not_static(self, args: PyTree, kwargs: PyTree, route: Route) -> TypeError:
        names, values = self.names_of(args, kwargs), (*args, *kwargs.values())
        static = {names[i]: values[i] for i, role in route.entries if role == STATIC}
        return TypeError(tool("hints.calls").not_static(f"{self.where}.{self.name}", static))

    def names_of(self, args: PyTree, kwargs: PyTree) -> list[str]:
        """The name of the parameter for each argument."""
        names, count = self.plan.names, self.plan.count
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
        """The JAX function for a call with these keywords; see `fad.arrays.arguments`."""
        if self.name in ALONG and "axis" in self.plan.named:
            of_torch = self._dim_in(keywords) is not None
            wrap = tool("formulas.torch_dimensions").along if of_torch else along_axes
            made: ArrayFunction = wrap(self.name, self.jax_function, self.plan.names)
            return made
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
            it = iter(leaves)
            args = [thaw(k, it) for k in positional]
            kwargs = {name: thaw(k, it) for name, k in named}
            return _keep_flags(jax_function(*args, **renamed(kwargs)))

        return fn


def _into(op: Op, function: ArrayFunction, args: Args, *, out: PyTree, **kwargs: PyTree) -> PyTree:
    """A call with ``out=``; with ``where=`` too, what is not selected stays as it is in ``out``."""
    args, kwargs = snapshots(out, args, kwargs)
    numpy_keywords = tool("formulas.numpy_keywords") if "where" in kwargs else None
    if numpy_keywords is None or not numpy_keywords.is_elementwise(op.where, op.name):
        return write_out(f"{op.where}.{op.name}", out, function(*args, **kwargs))
    masked = op.variant("where", numpy_keywords.masked).function
    return write_out(op.name, out, masked(out, kwargs.pop("where"), *args, **kwargs))


def fast_function(op: Op, binder: Binder) -> Any:
    """What users call: the fast path of NOTE [how an operation finds its Primitive]."""
    routes, call = op.routes, op.call
    of_torch: Callable[..., PyTree] | None = None

    def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
        nonlocal of_torch
        if kwargs and op.form is not None and not op.form.keywords.isdisjoint(kwargs):
            if of_torch is None:
                other = op.form.make()
                of_torch = other.function if binder is op.binder else fast_function(other, binder)
            return of_torch(*args, **kwargs)
        try:
            values: Any = args
            if kwargs:
                if kwargs.get("out") is not None:
                    return _into(op, function, args, **kwargs)
                values = (*args, *kwargs.values())
                route = routes.get((*map(type, values), *kwargs))
            else:
                route = routes.get(tuple(map(type, args)))
            if type(route) is Primitive:
                primitive: Any = route
            elif route is None:
                return call(args, kwargs, binder)
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


def array_function(
    f: ArrayFunction, *, name: str | None = None, module: str = "", lists: Sequence[str] = ()
) -> Any:
    """A function of JAX as those of `fad.numpy` are made: one operation, called as the function is.

    Its annotations say which arguments are arrays (``Array``, ``ArrayLike``); others are static, by position
    or by name. `operation` has rules of its own, and static arguments by name alone.

    Arguments:
        f: a pure function of JAX, with annotations.
        name: what graphs, profiles and errors call it; default the name of f.
        module: where errors say that it is; default the module of f.
        lists: parameters that are lists or trees of arrays.

    Returns:
        A function with the signature and the docstring of ``f``: Tensors come out if one goes in.

    >>> import fad, jax, jax.numpy as jnp
    >>> def moment(x: jax.Array, order: int = 2) -> jax.Array:
    ...     return jnp.mean(x**order)
    >>> fad.extend.array_function(moment)(fad.tensor([1.0, 3.0], requires_grad=True), 2)
    Tensor(5., dtype=float32, grad_fn=<MomentBackward>)
    """
    made = Op(name or f.__name__, module or f.__module__, f, dict.fromkeys(lists, ARRAY))
    return made.function
