"""Which arguments of a JAX function are arrays, and a hashable key for everything else.

NOTE [a key is a recipe]

`freeze` walks over one argument. Arrays (and, where the parameter takes arrays, Python scalars) go
into a list of leaves; what remains is returned as nested tuples that name the type of every entry, so
that 1, 1.0 and True differ. Such a key is hashable, has nothing in it that a caller could change later,
and is enough to make the argument again: `thaw` does, given new leaves. So one walk yields both
the name of the compiled function to look for and, if it must be made, its arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Hashable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.core.avals import Count
from fad.core.caches import Table
from fad.core.keys import exact
from fad.core.tensor import Tensor
from fad.core.trees import is_leaf
from fad.core.types import NumpyArray, PyTree
from fad.errors import describe

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
_of_arrays = Table(4096)


def _key_of_arrays(cls: type, types: tuple[type, ...]) -> PyTree:
    """The key of a list or tuple with elements of these types; None if some may be no arrays."""
    key = _of_arrays.get((cls, types))
    if key is None and all(map(is_array_type, types)):
        key = _of_arrays.put((cls, types), ("sequence", cls, *[LEAF] * len(types)))
    return key


class Unhashable(Exception):
    """A static value that cannot be part of a key."""

    def __init__(self, value: object) -> None:
        self.value = value


def unhashable_message(who: str, parameter: str, value: object) -> str:
    """The message for a static argument that cannot be part of a key."""
    if isinstance(value, set):
        advice = "a frozenset or a tuple"
    elif callable(value):
        advice = "a function, or an object with __hash__ and __eq__"
    else:
        advice = "a tuple, a number, a string, or an object with __hash__ and __eq__"
    return (
        f"{who}: the argument {parameter!r} is static (it shapes the compiled function), so it "
        f"must be hashable, but got {describe(value)}. Write {advice} instead"
    )


def static_error(who: str, names: Sequence[str], values: Sequence[object]) -> TypeError:
    """What to raise where JAX says that an argument must be hashable: arrays are not.

    Arguments:
        who: the function.
        names, values: the arguments that are static.
    """
    arrays = [(n, v) for n, v in zip(names, values, strict=True) if is_array(v)]
    what = " and ".join([f"{n} is {describe(v)}" for n, v in arrays]) or "an array is given for it"
    return TypeError(
        f"{who}: an argument that shapes the compiled function must be a Python number: {what}. Write "
        "float(x) or int(x); no derivative goes through it"
    )


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
        arrays = _key_of_arrays(type(value), types) if role == ARRAY else None
        if arrays is not None:
            leaves.extend(value)
            return arrays
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


def thaw_all(
    positional: Sequence[object], named: Sequence[tuple[str, PyTree]], leaves: Sequence[object]
) -> tuple[list[PyTree], dict[str, PyTree]]:
    """Positional and named arguments, from their keys, in the order of `freeze`."""
    it = iter(leaves)
    args = [thaw(k, it) for k in positional]
    return args, {name: thaw(k, it) for name, k in named}
