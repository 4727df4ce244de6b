"""`Operation`, and the names of what is passed around, for annotations: values, options, JAX's programs.

Nothing but `Operation` is used at run time. What may be anything has a name too (`PyTree`, `Outputs`): it
says in which way it may. A value that is only passed on is an ``object``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import jax
import numpy as np

from fad.errors import GradientError

if TYPE_CHECKING:
    from fad.core.level import LanesLevel, RecorderLevel
    from fad.core.primitive import Primitive
    from fad.core.tensor import Tensor

# A nest of containers around values of any types: arguments and results of a user's function.
PyTree: TypeAlias = Any
# What an operation gives: one value, or a tuple of them where it has several. The operation says which.
Outputs: TypeAlias = Any
# An object of JAX's own, which `fad.core.jaxapi` alone looks into.
JaxObject: TypeAlias = Any
# A function of flat arrays, as JAX traces it.
ArrayFunction: TypeAlias = Callable[..., Outputs]

# An array, or a tracer of JAX.
Array: TypeAlias = jax.Array
NumpyArray: TypeAlias = np.typing.NDArray[Any]
Number: TypeAlias = bool | int | float | complex
# What has a shape and a dtype at every level.
Value: TypeAlias = "Tensor | jax.Array"
# A tangent or a cotangent: None is zero.
MaybeValue: TypeAlias = "Tensor | jax.Array | None"
# What operations and users pass as a value: a Tensor, an array of JAX or NumPy, or a number.
Operand: TypeAlias = "Tensor | jax.typing.ArrayLike"
# What runs a Primitive, or any operation, on operands, as `fad.core.level.bind` does.
Binder: TypeAlias = "Callable[[Primitive, Sequence[Operand]], Outputs]"
Runner: TypeAlias = "Callable[[Operation, Sequence[Operand]], Outputs]"

DType: TypeAlias = np.dtype[np.generic]
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
# The dimension of the lanes of a vmap in what an operation gives: in its output, or in each of several.
OutputDims: TypeAlias = int | Dims | None
# What a level does with the operations that another one consists of.
Use: TypeAlias = Literal["value", "derivative", "transpose"]
# The keyword arguments of an operation that are no arrays.
Params: TypeAlias = dict[str, object]


class Operation:
    """What `bind` runs: a function of flat values, and what levels do with it. docs/contract.md states all.

    A `Primitive` is one, a call of a Function, and a program, which ``expands``. Where there is no rule for
    what is asked, that raises.

    ``name``: what graphs and errors call it.
    ``lineage``: its name, and if it is a derivative, those of the operations that it is derived of, up to one
    that is none; batched or not, they are the same.
    ``expands``: every level runs the operations that it consists of (`expand`), and nothing else of it.
    ``runs_python``: rules of it are Python code of a user, in which other operations are bound.
    ``keeps_numbers``: Python numbers among its operands stay what they are where it is traced.
    ``deferrable``: it is pure, and replay may run it later.
    ``work``: how many operations it consists of.
    ``has_jet``: it has `jet`.

    >>> import fad
    >>> class Twice(fad.extend.Operation):
    ...     name = "twice"
    ...     def execute(self, values):
    ...         return 2.0 * values[0]
    ...     def jvp(self, primals, tangents):
    ...         return [fad.extend.bind(self, [x]) for x in (primals[0], tangents[0])]
    >>> y, slope = fad.jvp(lambda x: fad.extend.bind(Twice(), [x]), (3.0,), (1.0,))
    >>> float(y), float(slope)
    (6.0, 2.0)
    """

    __slots__ = ()

    name: str
    expands = False
    runs_python = False
    keeps_numbers = False
    deferrable = False
    work = 1
    has_jet = False

    @property
    def lineage(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def primitive(self) -> Primitive | None:
        """It, if it is a pure function of JAX, from which a level may derive what it runs; else None."""
        return None

    def execute(self, values: Sequence[Operand]) -> Outputs:
        """Run on arrays, tracers and Python scalars (no Tensors); returns an array or a tuple of
        arrays.
        """
        raise self._without("execute", "run")

    def expand(self, args: Sequence[Operand]) -> Outputs:
        """For one that ``expands``: bind the operations that it consists of."""
        raise self._without("expand", "run by the operations that it consists of")

    def body(self, use: Use = "derivative") -> Callable[[Sequence[Operand]], Outputs] | None:
        """A function that binds what it computes at the level of its arguments, for a level to look at this;
        None where that may not be.

        ``use``: the level takes the value alone, or differentiates what it sees, or will transpose it.
        """
        return None

    def jvp(
        self, primals: Sequence[Operand], tangents: Sequence[MaybeValue]
    ) -> tuple[Outputs, Outputs]:
        """Outputs and their tangents (None is zero), by binding one level down."""
        raise self._without("jvp", "differentiated forwards")

    def jet(
        self, primals: Sequence[Operand], series: Sequence[Sequence[Value] | None], order: int
    ) -> tuple[Outputs, Outputs]:
        """Outputs, and of each a list of at most ``order`` derivatives along a curve, or None, by binding one
        level down: a value and its list, or a tuple of values and a sequence of lists.

        ``series`` has such a list for each input.
        """
        raise self._without("jet", "differentiated along a curve by a rule of its own")

    def linear(
        self, mask: Mask, primals: Sequence[Operand], outs: Sequence[Value]
    ) -> tuple[Operation, Sequence[Operand], Mask]:
        """An operation linear in the tangents of the masked inputs, the operands that it takes before these,
        and which outputs have a tangent among its results.
        """
        raise self._without("linear", "linearized")

    def linear_in(self, mask: Mask) -> tuple[Operation, Mask]:
        """The operation to run in its place where a rule of a Function is transposed, and in which of its
        inputs that is differentiated.

        ``mask`` says which inputs depend on what is transposed: it is linear in these.
        """
        return self, (True,) * len(mask)

    def batch(
        self, values: Sequence[Operand], dims: Dims, level: LanesLevel, run: Runner | None = None
    ) -> tuple[Outputs, OutputDims]:
        """Outputs, and the dimension of the lanes in each; None where all lanes share it.

        Arguments:
            dims: for each of ``values`` the dimension of the lanes.
            level: the vmap.
            run: runs the batched operation one level down; default `bind`.
        """
        raise self._without("batch", "batched")

    def record(self, level: RecorderLevel, args: Sequence[Operand]) -> Outputs:
        """Evaluate at ``level``, of which an argument requires grad, and add a node to the graph."""
        raise self._without("record", "differentiated in reverse")

    def _without(self, method: str, done: str) -> Exception:
        name = getattr(self, "name", type(self).__name__)
        return GradientError(
            f"{name}: this operation has no {method}, so it cannot be {done}. Write the method "
            f"{method} of {type(self).__name__}."
        )


class GraphNode(Protocol):
    """What the core reads of a node of the graph, which is a `fad.tape.graph.Node`."""

    has_parent: bool
    sequence_nr: int

    def name(self) -> str: ...

    def output_written(self, output_nr: int, version: int) -> None:
        """Note that an output was changed in place, where the backward pass would need it as it was."""


class ViewLink(Protocol):
    """What brings a view up to date, which is a `fad.views.aliases.Link`.

    ``seen``: the version at which the state of the view was made. ``deferred_error``: the error that the use
    of its history raises, or None.
    """

    seen: int

    @property
    def deferred_error(self) -> str | None: ...
    @property
    def base(self) -> Tensor | None: ...

    def sync(self, t: Tensor) -> None:
        """Bring the state of the view ``t`` up to date."""

    def enter(self, t: Tensor) -> None:
        """`sync` for an argument of an operation."""

    def sync_history(self, t: Tensor) -> None:
        """`sync` for uses of the place of ``t`` in the graph."""

    def operation(self, t: Tensor) -> tuple[Primitive, list[int]] | None:
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
    def aval(self) -> JaxObject: ...
    def __hash__(self) -> int: ...


class JaxLiteral(Atom, Protocol):
    """A constant in a program of JAX."""

    def __init__(self, val: object, aval: Aval) -> None: ...
    @property
    def val(self) -> JaxObject: ...


class JaxEquation(Protocol):
    """One operation in a program of JAX. `fad.core.jaxapi` alone reads its parameters."""

    @property
    def primitive(self) -> JaxObject: ...
    @property
    def params(self) -> dict[str, JaxObject]: ...
    @property
    def invars(self) -> Sequence[Atom]: ...
    @property
    def outvars(self) -> Sequence[Atom]: ...
    @property
    def effects(self) -> JaxObject: ...
    @property
    def ctx(self) -> JaxObject: ...
    @property
    def source_info(self) -> JaxObject: ...
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
    def effects(self) -> JaxObject: ...
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
