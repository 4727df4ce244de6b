"""``ctx``: where a forward pass keeps what the rules after it need, and the notes taken of it."""

from __future__ import annotations

import dataclasses
import functools
import typing
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import jax
import numpy as np
from jax.tree_util import PyTreeDef

from fad.core import trees
from fad.core.dtypes import is_inexact
from fad.core.tensor import Tensor
from fad.core.trees import HOLE, Rest, Static, partition
from fad.core.types import Aval, MaybeValue, Operand, PyTree, Value
from fad.errors import RuleError, describe
from fad.views.chains import Step

# Template: a pytree without its arrays, and what a body marked; so calls run on flat lists of arrays.

ARRAYS = (Tensor, jax.Array, np.ndarray, np.inexact)
SCALARS = (*ARRAYS, np.generic, float, complex)


def is_array(x: object) -> bool:
    """Whether ``x`` is an operand of a call; everything else is static."""
    return isinstance(x, ARRAYS)


class View(NamedTuple):
    """What an array among the outputs is beside.

    The input ``of`` itself (``as_is``), or the view of it that ``chain`` makes, with its history or
    ``detached`` from it; with ``of_output``, such a view of the output ``of``; or, without a chain, the same
    as the later output ``of``.
    """

    at: int
    of: int
    chain: tuple[Step, ...] | None
    as_is: bool = False
    detached: bool = False
    of_output: bool = False


class Marks(NamedTuple):
    """What a body says of its outputs, by their numbers.

    ``aliases``: for each, the number of the input that it is (changed in place), or None.
    ``non_differentiable``: those that have no derivative.
    ``views``: a `View` for each that shares storage with an input, or is returned once more after it.
    """

    aliases: tuple[int | None, ...] = ()
    non_differentiable: frozenset[int] = frozenset()
    views: tuple[View, ...] = ()


_NO_MARKS = Marks()


class Template(Rest):
    """What is left of the arguments or of the output of a call: a pytree without its arrays.

    ``marks``: for an output, what the body says of it.
    """

    __slots__ = ("marks",)

    def __init__(
        self, structure: PyTreeDef, leaves: tuple[object, ...], ordered_as: PyTree = None
    ) -> None:
        super().__init__(structure, leaves, ordered_as)
        self.marks = _NO_MARKS

    __hash__ = Rest.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Template) and super().__eq__(other) and self.marks == other.marks
        )

    def __repr__(self) -> str:
        return f"Template({self})"

    def __str__(self) -> str:
        return _in_words(self.structure)

    @property
    def slots(self) -> Sequence[int]:
        """The place of each array among all leaves."""
        if self.flat:
            return range(len(self.leaves))
        return tuple([k for k, x in enumerate(self.leaves) if x is HOLE])

    def marked(self, marks: Marks) -> Template:
        """This template with these marks."""
        if marks == self.marks:
            return self
        made = Template(self.structure, self.leaves)
        made.marks = marks
        return made

    def differentiable(self, outs: Sequence[Value | Aval]) -> tuple[bool, ...]:
        """Which of these outputs have a derivative."""
        without = self.marks.non_differentiable
        return tuple([is_inexact(o.dtype) and k not in without for k, o in enumerate(outs)])

    def combine_only(self, traced: Sequence[object]) -> PyTree:
        """The tree with ``traced`` in it and None for all else."""
        return self.combine(traced, lambda _: None)

    def parts(self) -> list[Template]:
        """A Template for each child of the root."""
        if self.flat and self is not SINGLE:
            return [SINGLE] * len(self.leaves)
        result, start = [], 0
        for child in self.structure.children():
            stop = start + child.num_leaves
            result.append(Template(child, self.leaves[start:stop]))
            start = stop
        return result

    def any_of(self, flags: Sequence[bool]) -> tuple[bool, ...]:
        """For each child of the root, whether one of the flags of its arrays is true."""
        if self.flat and self is not SINGLE:
            return tuple(map(bool, flags))
        it = iter(flags)
        if self.structure.num_leaves == self.structure.num_nodes - 1:
            return tuple([x is HOLE and bool(next(it)) for x in self.leaves])
        return tuple([any([next(it) for x in part.leaves if x is HOLE]) for part in self.parts()])

    def collect(self, tree: PyTree, what: str) -> list[Any]:
        """What ``tree``, which matches this structure, has in the place of each array.

        None may cover a whole subtree; a dict may lack keys. Both mean None for the arrays there.

        Raises:
            RuleError: it does not match; the message begins with ``what``.
        """
        if self is SINGLE:
            return [tree]
        items: list[object] = []
        if not _match(self.structure, tree, items):
            rest: Rest = partition(tree, ())[1]
            got = describe(tree) if rest.structure == trees.LEAF else _in_words(rest.structure)
            raise RuleError(f"{what} must have the structure {self}, got {got}")
        return [f for f, x in zip(items, self.leaves, strict=True) if x is HOLE]


def _in_words(structure: PyTreeDef) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


def _match(structure: PyTreeDef, tree: PyTree, items: list[object]) -> bool:
    """Add an entry to ``items`` for each leaf of ``structure``; False if ``tree`` differs from it."""
    if tree is None:
        items.extend([None] * structure.num_leaves)
        return True
    if structure == trees.LEAF:
        items.append(tree)
        return True
    node: Any = structure.node_data()
    kind, data = node
    children = structure.children()
    if issubclass(kind, (tuple, list)):
        if not isinstance(tree, (tuple, list)):
            return False
        parts = list(tree)
    elif kind is dict:
        if not isinstance(tree, dict) or set(tree) - set(data):
            return False
        parts = [tree.get(key) for key in data]
    else:
        one_level: PyTreeDef
        parts, one_level = jax.tree_util.tree_flatten(tree, is_leaf=lambda x: x is not tree)
        if one_level.node_data() != (kind, data):
            return False
    return len(parts) == len(children) and all(
        [_match(c, g, items) for c, g in zip(children, parts)]
    )


SINGLE = Template.flat_of(None)


def split(tree: PyTree, kinds: tuple[type, ...] = ARRAYS) -> tuple[list[Any], Template]:
    """The arrays of ``tree`` (its leaves of these ``kinds``), in order, and what is left."""
    return partition(tree, kinds, rest=Template)


# ``ctx``: where a forward pass keeps what the rules after it need, and the notes taken of it.

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Saved = TypeVar("Saved", default=Tensor)
else:
    Saved = typing.TypeVar("Saved")


@dataclasses.dataclass(frozen=True, slots=True)
class VmapInfo:
    """The first argument of a vmap rule.

    Attributes:
        batch_size: how many lanes there are.
        randomness: the ``randomness`` of the vmap: "error", "same" or "different".
    """

    batch_size: int
    randomness: str


class _Record:
    """The arguments of the methods of a Context."""

    backward: tuple[Operand | None, ...] = ()
    forward: tuple[Operand | None, ...] | None = None
    dirty: tuple[object, ...] = ()
    non_differentiable: tuple[object, ...] = ()
    zeros_for_none: bool = True
    read_nothing: bool = False  # a rule has asked for saved Tensors, and there are none


class Context(Generic[Saved]):
    """``ctx``: what a forward pass keeps for the vjp and jvp rules.

    Each pass through the rules has a context of its own, with what forward kept on it; so attributes
    set in a rule are gone after it.

    Attributes:
        saved_data: a dict for anything.
        needs_input_grad: for each argument of forward, whether its gradient may be wanted; in a vjp
            rule, whether it is wanted in this very backward pass.

    Attributes of any other name may be set too. For type checkers a ``Context`` saves Tensors; that of a
    Function with ``jax_rules`` is a ``Context[jax.Array]``.

    Source: ``torch.autograd.function.FunctionCtx``.

    >>> import fad
    >>> class Square(fad.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         ctx.factor = 2.0
    ...         return x * x
    ...     @staticmethod
    ...     def vjp(ctx, g):
    ...         return ctx.factor * ctx.saved_tensors[0] * g
    >>> float(fad.grad(Square.apply)(3.0))
    6.0
    """

    __slots__ = ("__dict__", "_record", "needs_input_grad", "saved_data")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, needs_input_grad: tuple[bool, ...] = ()) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_data: dict[Any, Any] = {}
        self._record = _Record()

    def save_for_backward(self, *tensors: Operand | None) -> None:
        """Keep Tensors for the vjp rule, which reads them as ``ctx.saved_tensors``.

        Numbers and None may stand among them.
        """
        self._record.backward = _check_saved("save_for_backward", tensors)

    def save_for_forward(self, *tensors: Operand | None) -> None:
        """Keep Tensors for the jvp rule; default are those saved for backward."""
        self._record.forward = _check_saved("save_for_forward", tensors)

    @property
    def saved_tensors(self) -> tuple[Saved, ...]:
        """What was saved, in order."""
        if not self._record.backward:
            self._record.read_nothing = True
        return typing.cast("tuple[Saved, ...]", self._record.backward)

    def mark_dirty(self, *tensors: object) -> None:
        """Say that forward changed these inputs in place; they must be outputs too."""
        self._record.dirty = tensors

    def mark_non_differentiable(self, *tensors: object) -> None:
        """Say that these outputs have no derivative."""
        self._record.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether zero cotangents and tangents reach the rules as zeros (default) or as None."""
        self._record.zeros_for_none = bool(value)


def _check_saved(method: str, values: tuple[Operand | None, ...]) -> tuple[Operand | None, ...]:
    for x in values:
        if type(x) is not Tensor:
            break
    else:  # whose dtypes take longer to read
        return values
    for k, x in enumerate(values):
        if x is not None and not hasattr(x, "dtype") and not isinstance(x, (int, float, complex)):
            raise TypeError(
                f"ctx.{method}: argument {k} must be a Tensor, an array, a number or None, got "
                f"{describe(x)}. Keep other things as attributes: ctx.name = value."
            )
    return values


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """Stands in notes for an input, an output, or another array that a body kept."""

    kind: str  # "input", "output", "extra"
    at: int


INPUT, OUTPUT, EXTRA = "input", "output", "extra"

# Leaves that cannot depend on the numbers in an input in a way that has a derivative.
INERT = (bool, int, str, bytes, type, np.dtype, np.integer, np.bool_, slice, PyTreeDef, Static)


@dataclasses.dataclass(slots=True)
class Notes:
    """What a body left on its context, with a `Ref` in the place of each array. Never changed."""

    backward: tuple[object, ...]
    forward: tuple[object, ...] | None = None
    saved_data: dict[Any, object] = dataclasses.field(default_factory=dict)
    attributes: dict[str, object] = dataclasses.field(default_factory=dict)
    zeros_for_none: bool = True
    _read: list[set[int]] | None = dataclasses.field(default=None, init=False, compare=False)

    @staticmethod
    def take(
        ctx: Context, places: dict[int, Ref], arrays: tuple[type, ...]
    ) -> tuple[Notes, list[Any], bool]:
        """Notes of ``ctx``.

        Arguments:
            places: the inputs and outputs of the call, by ``id``.
            arrays: the types whose values become extras where they are not known.

        Returns:
            The notes; the extras; whether the notes are closed: all that was kept are inputs,
            outputs, and values that have no derivative, so that they are valid at any level of the call.
        """
        extras: list[Any] = []
        extra_places: dict[int, Ref] = {}
        closed = True

        def note(x: PyTree) -> object:
            nonlocal closed
            place = places.get(id(x)) or extra_places.get(id(x))
            if place is not None:
                return place
            if isinstance(x, arrays):
                place = extra_places[id(x)] = Ref(EXTRA, len(extras))
                extras.append(x)
                closed = False
                return place
            if x is not None and not isinstance(x, INERT):
                closed = False
            return x

        record = ctx._record
        noted: tuple[Any, Any, Any, Any] = _map(
            note, (record.backward, record.forward, ctx.saved_data, vars(ctx))
        )
        return Notes(*noted, record.zeros_for_none), extras, closed

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def of_places(places: tuple[int, ...]) -> Notes:
        """The notes of a body that has only saved these for backward: inputs, or -1 for its one output."""
        return Notes(tuple([Ref(OUTPUT, 0) if p < 0 else Ref(INPUT, p) for p in places]))

    def context(
        self,
        lookup: Callable[[Ref], MaybeValue],
        wrap: Callable[[Any], PyTree],
        needs_input_grad: tuple[bool, ...],
        forward: bool,
    ) -> Context:
        """A context with what was noted: ``wrap(lookup(ref))`` in the place of each Ref.

        ``forward`` chooses what was saved for the jvp rule.
        """

        def restore(x: object) -> object:
            return wrap(lookup(x)) if isinstance(x, Ref) else x

        ctx: Context[Any] = Context(needs_input_grad)
        saved = self.forward if forward and self.forward is not None else self.backward
        ctx._record.backward = tuple([wrap(lookup(x) if isinstance(x, Ref) else x) for x in saved])
        ctx._record.zeros_for_none = self.zeros_for_none
        ctx.saved_data = _map(restore, self.saved_data)
        vars(ctx).update(_map(restore, self.attributes))
        return ctx

    def without_forward(self) -> Notes:
        """The notes that a vjp rule reads."""
        return dataclasses.replace(self, forward=None) if self.forward is not None else self

    def only_forward(self) -> Notes:
        """The notes that a jvp rule reads."""
        return dataclasses.replace(self, backward=()) if self.forward is not None else self

    def read(
        self, values: Sequence[MaybeValue], outs: Sequence[MaybeValue]
    ) -> tuple[list[MaybeValue], list[MaybeValue]]:
        """The inputs and outputs that were noted, with None in the place of the others."""
        if self._read is None:
            refs = [x for x in self.leaves() if type(x) is Ref]
            self._read = [{x.at for x in refs if x.kind == kind} for kind in (INPUT, OUTPUT)]
        inputs, outputs = self._read
        return (
            [v if i in inputs else None for i, v in enumerate(values)],
            [v if k in outputs else None for k, v in enumerate(outs)],
        )

    def leaves(self) -> list[object]:
        """All that was noted, one by one."""
        noted: list[object] = []
        _map(noted.append, (self.backward, self.forward or (), self.saved_data, self.attributes))
        return noted


def _map(f: Callable[[Any], object], x: PyTree) -> PyTree:
    """Apply ``f`` to the leaves of nested tuples, lists and dicts."""
    kind = type(x)
    if kind is tuple or kind is list:
        return kind([_map(f, v) for v in x])
    if kind is dict:
        return {k: _map(f, v) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind(*[_map(f, v) for v in x])
    return f(x)


def marked(
    who: str,
    ctx: Context,
    handles: Sequence[object],
    outputs: Sequence[Sequence[object]],
    template: Template,
) -> Template:
    """``template`` with what the body marked: outputs that are changed inputs, and those without derivative.

    Arguments:
        who: the name of the Function.
        handles: the inputs, as Tensors of the body.
        outputs: lists of the objects that it may take for its outputs.
    """
    dirty, without = ctx._record.dirty, ctx._record.non_differentiable
    if not dirty and not without:
        return template
    views = template.marks.views
    position = {id(x): k for xs in outputs for k, x in enumerate(xs)}
    as_is = {v.at: v.of for v in views if v.as_is}
    for k, i in as_is.items():
        position.setdefault(id(handles[i]), k)
    aliases: list[int | None] = [None] * len(outputs[0])
    for x in dirty:
        of = as_is.get(position.get(id(x), -1))
        inputs = [i for i, h in enumerate(handles) if h is x or i == of]
        if not inputs and id(x) in position:
            warnings.warn(
                f"{who}: ctx.mark_dirty() received a tensor that was not an input, but the output "
                f"{describe(x)}. Only input Tensors that have been mutated should be passed to "
                "ctx.mark_dirty(): leave this one out",
                stacklevel=2,
            )
        elif not inputs or id(x) not in position:
            raise RuleError(
                f"{who}: ctx.mark_dirty got {describe(x)}, which is not "
                f"{'an output' if inputs else 'an input'}: mark inputs that forward changes in place, and "
                "return them"
            )
        else:
            aliases[position[id(x)]] = inputs[0]
    for x in without:
        if id(x) not in position:
            raise RuleError(
                f"{who}: ctx.mark_non_differentiable got {describe(x)}, which is not an "
                "output: mark the very Tensors that forward returns"
            )
    # An output that is a changed input is not a view of it; an input returned again is the same output.
    kept = [
        View(v.at, aliases.index(v.of), None) if v.as_is and v.of in aliases else v
        for v in views
        if aliases[v.at] is None
    ]
    positions = frozenset([position[id(x)] for x in without])
    changed = tuple(aliases) if any([a is not None for a in aliases]) else ()
    return template.marked(Marks(changed, positions, tuple(kept)))
