"""The names of what is passed around, for annotations: values, options, and what is read of JAX's programs.

Nothing here is used at run time. What may be anything has a name too (`PyTree`, `Outputs`): it says in which
way it may. A value that is only passed on is an ``object``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import numpy as np

if TYPE_CHECKING:
    from fad.core.tensor import Tensor

# A nest of containers around values of any types: arguments and results of a user's function.
PyTree: TypeAlias = Any
# What an operation gives: one value, or a tuple of them where it has several. The operation says which.
Outputs: TypeAlias = Any
# A function of flat arrays, as JAX traces it.
ArrayFunction: TypeAlias = Callable[..., Outputs]

# An array, or a tracer of JAX.
Array: TypeAlias = jax.Array
NumpyArray: TypeAlias = np.ndarray[Any, Any]
Number: TypeAlias = bool | int | float | complex
# What has a shape and a dtype at every level.
Value: TypeAlias = "Tensor | jax.Array"
# A tangent or a cotangent: None is zero.
MaybeValue: TypeAlias = "Tensor | jax.Array | None"
# For each input or output, its tangent or cotangent.
MaybeValues: TypeAlias = "Sequence[Tensor | jax.Array | None]"
# What operations and users pass as a value: a Tensor, an array of JAX or NumPy, or a number.
Operand: TypeAlias = "Tensor | jax.typing.ArrayLike"
# What runs an operation on operands, as `fad.core.level.bind` does.
Binder: TypeAlias = "Callable[[Any, Sequence[Operand]], Outputs]"

DType: TypeAlias = np.dtype[Any]
DTypeLike: TypeAlias = jax.typing.DTypeLike
# Where a value is put: a device, its name, or a sharding.
DeviceLike: TypeAlias = "jax.Device | jax.sharding.Sharding | str"
PathLike: TypeAlias = str | os.PathLike[str]
Shape: TypeAlias = tuple[int, ...]
Axes: TypeAlias = int | Sequence[int] | None
# For each input, whether it is differentiated (or needed, or given).
Mask: TypeAlias = tuple[bool, ...]
# For each input, the dimension that a vmap maps over; None where it is the same for all lanes.
Dims: TypeAlias = tuple[int | None, ...]
# The keyword arguments of an operation that are no arrays.
Params: TypeAlias = dict[str, object]


class Operation(Protocol):
    """What `bind` can run: a Primitive or a call of a Function; a program is `Expanding`.

    ``expands``: it is `Expanding` instead.

    >>> import fad
    >>> class Names(fad.extend.Level):
    ...     def process(self, op, args):
    ...         return f"{op.name}: {op.expands}"
    >>> with Names() as level:
    ...     -level.lift(fad.tensor(2.0))
    'negative: False'
    """

    @property
    def name(self) -> str: ...
    @property
    def expands(self) -> bool: ...

    def execute(self, values: Sequence[Operand]) -> Outputs:
        """Run on arrays, tracers and Python scalars (no Tensors); returns an array or a tuple of
        arrays.
        """

    def jvp(
        self, primals: Sequence[Operand], tangents: Sequence[MaybeValue]
    ) -> tuple[Outputs, Outputs]:
        """Outputs and their tangents (None is zero), by binding one level down."""

    def batch(self, values: Sequence[Operand], dims: Dims, level: Any) -> Outputs:
        """Outputs batched along dimension 0, by binding one level down."""


class Expanding(Protocol):
    """An operation without rules: levels run the operations that it consists of."""

    @property
    def name(self) -> str: ...
    @property
    def expands(self) -> bool: ...
    def execute(self, values: Sequence[Operand]) -> Outputs: ...
    def expand(self, args: Sequence[Operand]) -> Outputs: ...


class GraphNode(Protocol):
    """What the core reads of a node of the graph, which is a `fad.tape.graph.Node`."""

    has_parent: bool
    sequence_nr: int

    def name(self) -> str: ...


class ViewLink(Protocol):
    """What brings a view up to date, which is a `fad.views.aliases.Link`.

    ``seen``: the version at which the state of the view was made. ``deferred_error``: the error that the use
    of its history raises, or None.
    """

    seen: int

    @property
    def deferred_error(self) -> str | None: ...
    @property
    def base(self) -> Any: ...

    def sync(self, t: Tensor) -> None:
        """Bring the state of the view ``t`` up to date."""

    def enter(self, t: Tensor) -> None:
        """`sync` for an argument of an operation."""

    def sync_history(self, t: Tensor) -> None:
        """`sync` for uses of the place of ``t`` in the graph."""

    def operation(self, t: Tensor) -> tuple[Any, list[int]] | None:
        """The Primitive that makes the view ``t`` of its base, and its numbers; None where there is none."""

    def again(self) -> ViewLink:
        """The same for another handle of the view."""


class Aval(Protocol):
    """JAX's abstract value: what is known of a value before it is computed."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...


class Atom(Protocol):
    """A variable or a constant in a program of JAX."""

    @property
    def aval(self) -> Any: ...
    def __hash__(self) -> int: ...


class JaxLiteral(Atom, Protocol):
    """A constant in a program of JAX."""

    def __init__(self, val: object, aval: Aval) -> None: ...
    @property
    def val(self) -> Any: ...


class JaxEquation(Protocol):
    """One operation in a program of JAX. `fad.core.jaxapi` alone reads its parameters."""

    @property
    def primitive(self) -> Any: ...
    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def invars(self) -> Sequence[Atom]: ...
    @property
    def outvars(self) -> Sequence[Atom]: ...
    @property
    def effects(self) -> Any: ...
    @property
    def ctx(self) -> Any: ...
    @property
    def source_info(self) -> Any: ...
    @property
    def replace(self) -> Callable[..., JaxEquation]: ...


class JaxBody(Protocol):
    """A program of JAX, without its constants."""

    @property
    def invars(self) -> Sequence[Atom]: ...
    @property
    def constvars(self) -> Sequence[Atom]: ...
    @property
    def outvars(self) -> Sequence[Atom]: ...
    @property
    def eqns(self) -> Sequence[JaxEquation]: ...
    @property
    def effects(self) -> Any: ...
    @property
    def debug_info(self) -> object: ...
    @property
    def replace(self) -> Callable[..., JaxBody]: ...


class JaxProgram(Protocol):
    """A program of JAX with its constants: a closed jaxpr."""

    def __init__(self, jaxpr: JaxBody, consts: Sequence[object]) -> None: ...
    @property
    def jaxpr(self) -> JaxBody: ...
    @property
    def consts(self) -> Sequence[Array]: ...
    @property
    def in_avals(self) -> Sequence[Aval]: ...
    @property
    def out_avals(self) -> Sequence[Aval]: ...
    @property
    def replace(self) -> Callable[..., JaxProgram]: ...
