"""How arguments are given: which are arrays, lists among them; dimensions; PyTorch's keywords."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import Count
from fad.core.caches import exact
from fad.core.tensor import Tensor
from fad.core.trees import is_leaf
from fad.core.types import ArrayFunction, NumpyArray, PyTree

if TYPE_CHECKING:
    from fad.arrays.operations import Op

# Which arguments of a JAX function are arrays, and a hashable key for all others.
#
# NOTE [a key is a recipe]
#
# `freeze` walks over one argument. Arrays (and, where the parameter takes arrays, Python scalars) go
# into a list of leaves; the rest is returned as nested tuples that name the type of every entry, so that 1,
# 1.0 and True differ. Such a key is hashable, has nothing in it that a caller could change later, and is
# enough to make the argument again: `thaw` does, given new leaves. So one walk yields both the name of the
# compiled function to look for and, if it must be made, its arguments.

# Roles of parameters. An array or Tensor is a leaf in all of them but the first.
STATIC = 0  # scalars and containers are static, and so are integers in arrays where not traced
STRUCTURE = 1  # scalars and containers are static: `int | ArrayLike`
OPERAND = 2  # a scalar is a leaf, scalars inside containers are static
EXPONENT = 3  # a Python int is static, other scalars are leaves
ARRAY = 4  # scalars are leaves, also inside containers

_INSIDE = (STATIC, STRUCTURE, STRUCTURE, ARRAY, ARRAY)  # of each role: that inside of containers

_EXPANDED = re.compile(
    r"[\w.]*\bArray(?: \||,) numpy\.ndarray(?:(?: \||,) [\w.]+)*?(?: \||,) complex"
)
_ARRAYS = frozenset(
    "Array ArrayLike BooleanNumeric DuckTypedArray IntegerArray Key RealArray RealNumeric".split()
)
_NEVER = frozenset("Callable SupportsDType dtype".split())
_OPEN = frozenset("Any Carry PyTree T X object".split())
_STRUCTURAL = frozenset("DimSize PadValueLike bool int slice".split())
_STATIC_NAMES = frozenset(
    """algorithm axes axis axis_index_groups axis_name axisa axisb axisc casting concat_axis
    configs debug dimension_numbers dtype excluded fft_type has_aux implementation length
    lwork max_iterations maxiter method mode new_sizes num ord order out out_sharding perm
    permutation_size restart scatter_dimension shape shapes sharding shardings signature
    size solve_method source split_axis stat_length symmetric tiled to unroll""".split()
)


def annotation_of(parameter: inspect.Parameter) -> str:
    """The annotation as a text, with ``ArrayLike`` for the union that it stands for; "" if there is none."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, type):
        return annotation.__name__
    return _EXPANDED.sub("ArrayLike", str(annotation))


def words_in(annotation: str) -> set[str]:
    """The names in an annotation."""
    return set(re.findall(r"[A-Za-z_]\w*", annotation))


def names_arrays(words: set[str]) -> bool:
    """Whether an annotation with these names is one of arrays, and of nothing that is left open."""
    return bool(words & _ARRAYS) and not words & (_NEVER | _OPEN)


def role_of(parameter: inspect.Parameter) -> int:
    """The role of a parameter, read off its annotation, or else its name and default."""
    words = words_in(annotation_of(parameter))
    if words & _NEVER:
        return STATIC
    if not words or words & _OPEN:
        if parameter.name in _STATIC_NAMES or isinstance(parameter.default, (bool, str)):
            return STATIC
        return ARRAY
    if not words & _ARRAYS:
        return ARRAY if "ndarray" in words and not words & _STRUCTURAL else STATIC
    return STRUCTURE if words & _STRUCTURAL else ARRAY


# Kinds of values.
_TENSOR, _NDARRAY, _SCALAR, _NUMPY_SCALAR, _SEQUENCE, _NAMED, _DICT, _SLICE, _OTHER = range(9)

_KINDS: dict[type, int] = {
    Tensor: _TENSOR,
    np.ndarray: _NDARRAY,
    bool: _SCALAR,
    int: _SCALAR,
    Count: _SCALAR,
    float: _SCALAR,
    complex: _SCALAR,
    list: _SEQUENCE,
    tuple: _SEQUENCE,
    dict: _DICT,
    slice: _SLICE,
    str: _OTHER,
    type(None): _OTHER,
}

NUMPY_TYPES: set[type] = {np.ndarray}  # and its subclasses, of which values have been seen


def _kind_of(value: object) -> int:
    kind = _KINDS.get(type(value))
    return _learn(value) if kind is None else kind


def _learn(value: object) -> int:
    """The kind of a value whose type is new."""
    cls = type(value)
    if isinstance(value, (Tensor, jax.Array)):
        kind = _TENSOR
    elif isinstance(value, np.ndarray):
        kind = _NDARRAY
        NUMPY_TYPES.add(cls)
    elif isinstance(value, np.generic):
        kind = _NUMPY_SCALAR
    elif isinstance(value, tuple) and hasattr(cls, "_fields"):
        kind = _NAMED
    else:
        kind = _OTHER
    if len(_KINDS) < 4096:
        _KINDS[cls] = kind
    return kind


def is_array(value: object) -> bool:
    """Whether ``value`` is a Tensor, a JAX array or tracer, or a NumPy array."""
    return _kind_of(value) <= _NDARRAY


def is_array_type(cls: type) -> bool:
    """Whether values of a type that `freeze` knows are arrays."""
    return _KINDS.get(cls, _OTHER) <= _NDARRAY


def leaf_by_type(cls: type, role: int) -> bool:
    """Whether every value of a type that `freeze` knows is a leaf in this role."""
    kind = _KINDS.get(cls, _OTHER)
    if kind <= _NDARRAY:
        return role != STATIC
    if kind == _SCALAR:  # an int may be too wide: `bind` raises OverflowError, see Op.call
        return role in (ARRAY, OPERAND) or (role == EXPONENT and cls is not int)
    return kind == _NUMPY_SCALAR and role >= OPERAND


_SAFE = frozenset({bool, int, Count, str, type(None), type, type(jnp.float32), type(Ellipsis)})


def safe_type(cls: type) -> bool:
    """Whether equal values of this type are the same value to every function."""
    return cls in _SAFE or issubclass(cls, np.dtype)


@functools.lru_cache(maxsize=4096)
def flat_types(types: tuple[type, ...]) -> bool:
    """Whether all types of a flat sequence are safe."""
    return all(map(safe_type, types))


LEAF = object()  # stands in a key where the argument had an array


class Unhashable(Exception):
    """A static value that cannot be part of a key."""

    def __init__(self, value: object) -> None:
        self.value = value


def freeze(value: PyTree, role: int, leaves: list[PyTree]) -> PyTree:
    """The key of one argument; its arrays are appended to ``leaves``. See NOTE [a key is a recipe].

    Raises:
        Unhashable: a static part of the argument has no hash.
    """
    kind = _kind_of(value)
    if kind == _TENSOR:
        if role == STATIC:
            constant = _constant(value)
            if constant is not None:
                return freeze(constant, STATIC, leaves)
        leaves.append(value)
        return LEAF
    if kind == _OTHER:
        return _freeze_other(value, role, leaves)
    if kind == _SCALAR:
        return _freeze_scalar(value, role, leaves)
    if kind == _SEQUENCE:
        types = tuple(map(type, value))
        if role <= STRUCTURE and flat_types(types):
            return "flat", list if type(value) is list and role else tuple, types, tuple(value)
        inside = _INSIDE[role]
        keys = [freeze(v, inside, leaves) for v in value]
        if role == STATIC and all(k is not LEAF and k[0] in _SAFE for k in keys):
            return "flat", tuple, tuple([k[0] for k in keys]), tuple([k[1] for k in keys])
        return "sequence", list if type(value) is list and role else tuple, *keys
    if kind == _NDARRAY:
        if role == STATIC and value.dtype.kind in "iub":
            if value.ndim == 0:
                return _freeze_scalar(value.item(), role, leaves)
            return "ndarray", value.dtype, value.shape, value.tobytes()
        leaves.append(value)
        return LEAF
    if kind == _NUMPY_SCALAR:
        if role >= OPERAND:
            leaves.append(value)
            return LEAF
        if role == STATIC:
            return _freeze_scalar(value.item(), role, leaves)
        return "ndarray", value.dtype, None, value.tobytes()
    inside = _INSIDE[role]
    if kind == _DICT:
        return (
            "dict",
            tuple([_freeze_other(k, STATIC, leaves) for k in value]),
            *[freeze(v, inside, leaves) for v in value.values()],
        )
    if kind == _NAMED:
        return "named", type(value), *[freeze(v, inside, leaves) for v in value]
    return "slice", *[freeze(v, inside, leaves) for v in (value.start, value.stop, value.step)]


def _constant(value: PyTree) -> NumpyArray | None:
    """The NumPy array behind an integer array where a static value is due; None if it is traced."""
    while isinstance(value, Tensor) and value.aux is None:
        value = value.value
    if isinstance(value, Tensor) or getattr(value.dtype, "kind", "key") not in "iub":
        return None
    try:
        return np.asarray(value)
    except jax.errors.TracerArrayConversionError:
        return None


_INT32 = 2**31


def _freeze_scalar(value: PyTree, role: int, leaves: list[PyTree]) -> PyTree:
    cls = type(value)
    if cls is Count:
        value, cls = int(value), int
    if cls is int:
        if role in (ARRAY, OPERAND) and -_INT32 <= value < _INT32:
            leaves.append(value)
            return LEAF
        return cls, value
    if role >= OPERAND:
        leaves.append(value)
        return LEAF
    if cls is float:  # hex distinguishes -0.0 and nan from 0.0 and each other
        return "float", value.hex()
    if cls is complex:
        return "complex", value.real.hex(), value.imag.hex()
    return cls, value


def _freeze_other(value: object, role: int, leaves: list[PyTree]) -> PyTree:
    if isinstance(value, type) and (hasattr(value, "dtype") or issubclass(value, np.generic)):
        dtype = _dtype(value)
        if dtype is not None:
            return dtype
    if role >= STRUCTURE:
        if hasattr(value, "__jax_array__"):
            return freeze(value.__jax_array__(), role, leaves)
        if not isinstance(value, (str, type(None), type)):
            children, structure = jax.tree_util.tree_flatten(value, is_leaf=is_leaf)
            if not jax.tree_util.treedef_is_leaf(structure):
                inside = _INSIDE[role]
                return "tree", structure, *[freeze(v, inside, leaves) for v in children]
    try:
        key = exact(value)
    except TypeError:
        raise Unhashable(value) from None
    return type(value), value, key


def _dtype(value: type) -> Hashable:
    """The key of a scalar type that names a dtype; None for abstract ones (``jnp.floating``)."""
    try:
        dtype = jnp.dtype(value)
    except TypeError:
        return None
    return type(dtype), dtype, exact(dtype)


def thaw(key: PyTree, leaves: Iterator[PyTree]) -> PyTree:
    """The argument that `freeze` made ``key`` of, with other leaves."""
    if key is LEAF:
        return next(leaves)
    tag = key[0]
    if isinstance(tag, type):
        return key[1]
    if tag == "flat":
        return key[1](key[3])
    if tag == "sequence":
        return key[1]([thaw(k, leaves) for k in key[2:]])
    if tag == "dict":
        names = [thaw(k, leaves) for k in key[1]]
        return dict(zip(names, [thaw(k, leaves) for k in key[2:]], strict=True))
    if tag == "float":
        return float.fromhex(key[1])
    if tag == "complex":
        return complex(float.fromhex(key[1]), float.fromhex(key[2]))
    if tag == "ndarray":
        array = np.frombuffer(key[3], dtype=key[1])
        return array[0] if key[2] is None else array.reshape(key[2])
    children = [thaw(k, leaves) for k in (key[1:] if tag == "slice" else key[2:])]
    if tag == "slice":
        return slice(*children)
    if tag == "named":
        return key[1](*children)
    return jax.tree_util.tree_unflatten(key[1], children)


# Lists where a function takes arrays: NumPy reads a list of numbers, of lists and of arrays as an array.
#
# JAX refuses lists, but for sequences of arrays, as those of ``concatenate``. fad reads them as NumPy does: a
# list of numbers is NumPy's array of it (so the results are Tensors, see NOTE [what makes a Tensor]); a list
# with arrays in it is joined to one array, by an operation of its own, before the call.

# What a list, tuple or range is for a parameter.
ONE = 1  # an array
SEVERAL = 2  # a sequence of arrays, some of which may be lists themselves
OPERANDS = 3  # an array, where the first argument is a string: those of ``einsum``

Role = int | tuple[int, int]  # the role of a parameter; in a pair, with what a list is
Args = tuple[PyTree, ...]  # of a call: what is given by position, and by name
Kwargs = dict[str, PyTree]
Function = Callable[..., PyTree]

_CONTAINERS = frozenset("Mapping Sequence list tuple".split())
_OF_ARRAYS = re.compile(r"\b(Sequence|list)\[(None \| |typing\.Union\[)?Array")
_SEQUENCES = frozenset([list, tuple, range])
_NUMBERS = frozenset([bool, int, float, complex])


def lists_in(parameter: inspect.Parameter) -> int:
    """What a list is for a parameter, read off its annotation: `ONE`, `SEVERAL`, or 0 for neither."""
    annotation = annotation_of(parameter)
    words = words_in(annotation)
    if parameter.name == "key" or not names_arrays(words):
        return 0
    if not words & _CONTAINERS:
        return ONE
    return SEVERAL if _OF_ARRAYS.search(annotation) else 0


def is_list(value: object) -> bool:
    """Whether ``value`` is a list, tuple or range, and no named tuple."""
    return type(value) in _SEQUENCES


def plain_list(value: object) -> NumpyArray | None:
    """A list of numbers and of such lists as NumPy's array; None if there are other things in it.

    Raises:
        OverflowError: an integer is too wide for JAX's integers.

    >>> plain_list([[1, 2], [3, 4.5]]).tolist()
    [[1.0, 2.0], [3.0, 4.5]]
    """
    if not _all_numbers(value):
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        return array
    return np.asarray(value, jax.dtypes.canonicalize_dtype(array.dtype))


def _all_numbers(value: PyTree) -> bool:
    if type(value) is range:
        return True
    for cls in set(map(type, value)) - _NUMBERS:
        if cls in _SEQUENCES:
            if not all([_all_numbers(v) for v in value if type(v) is cls]):
                return False
        elif not issubclass(cls, (np.ndarray, np.generic)):
            return False
    return True


# Dimensions: with ``dim=`` or ``dims=`` they are PyTorch's, see `fad.formulas.torch_dimensions`.

# Functions of JAX that work along dimensions: with ``dim=`` or ``dims=``, a number has one.
ALONG = frozenset(
    """all amax amin any argmax argmin argsort average count_nonzero cumprod cumsum flip log_softmax
    logsumexp max mean median min nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin
    nanpercentile nanprod nanquantile nanstd nansum nanvar percentile prod ptp quantile softmax sort
    std sum var vector_norm""".split()
)


def along_axes(name: str, function: ArrayFunction, names: Sequence[str]) -> ArrayFunction:
    """A function in `ALONG`, with NumPy's error for an axis out of range: some of JAX's are unclear.

    ``names`` are its parameters, the first of which is the array.
    """

    def call(*args: PyTree, **kwargs: PyTree) -> PyTree:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        if names[0] not in arguments:
            return function(*args, **kwargs)  # which says that it is missing
        axis = arguments.get("axis")
        for a in axis if isinstance(axis, (tuple, list)) else (axis,):
            ndim = max(np.ndim(arguments[names[0]]), "cum" in name)
            if isinstance(a, int) and not -ndim <= a < ndim:
                raise np.exceptions.AxisError(a, ndim)
        return function(*args, **kwargs)

    return call


# PyTorch's keywords in functions of JAX: ``dim=`` and ``keepdim=`` beside ``axis=`` and ``keepdims=``.

# PyTorch's keyword -> JAX's, the first that a function has.
ALIASES = {
    "diagonal": ("k",),
    "dim": ("axis", "axes"),
    "dim1": ("axis1",),
    "dim2": ("axis2",),
    "dims": ("axis", "axes", "reps"),
    "keepdim": ("keepdims",),
    "shifts": ("shift",),
}


def aliases_of(names: Container[str]) -> dict[str, str]:
    """Which of PyTorch's keywords a function with these parameters takes, and for which of them."""
    taken = {}
    for alias, meant in ALIASES.items():
        if alias not in names:
            for name in meant:
                if name in names:
                    taken[alias] = name
                    break
    return taken


class Form(NamedTuple):
    """What a function means where it is called with keywords of PyTorch.

    Attributes:
        keywords: one of these makes the call one of PyTorch's.
        make: returns the operation that PyTorch's function is.
    """

    keywords: frozenset[str]
    make: Callable[[], Op]
