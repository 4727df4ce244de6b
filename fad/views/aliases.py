"""Aliases: from which Tensor a view, a peer or a dual takes its value, and how it is brought up to date."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax

from fad.core.jaxapi import array_type
from fad.core.level import (
    Level,
    bind,
    bodies,
    captured_by_jit,
    constants,
    flush,
    inside,
    layers,
    outlived,
    state,
)
from fad.core.primitive import Primitive
from fad.core.tensor import (
    Storage,
    Tensor,
    bottom,
    given_away,
    meta_of,
    new_tensor,
    storage_of,
    version_of,
)
from fad.core.types import Array, MaybeValue, Operand, Value
from fad.errors import GradientError, LevelError, describe
from fad.tape.anomaly import mode as anomaly
from fad.tape.engine import ZEROS_LIKE
from fad.tape.graph import InputMetadata, alias, extra_of, gradient_edge, node_of
from fad.tape.recorder import ROOT, as_tensor
from fad.tape.saved import RecordedNode
from fad.views.chains import IDENTITY, Step, chain_primitive, form_of, numbers_of, replay

# A value as a constant, at all levels.


def stopped(x: Operand) -> Any:
    """``x`` as a constant: no gradient and no tangent passes through it, at any level."""
    x = outlived(x)
    if not isinstance(x, Tensor):
        return jax.lax.stop_gradient(x) if isinstance(x, jax.Array) else x
    level, value = x.level, x.value
    if level is ROOT:
        given_away(x)
        inner = jax.lax.stop_gradient(value) if isinstance(value, jax.core.Tracer) else value
        return new_tensor(inner, ROOT)
    return level.constant(x, stopped)


# How a view was made, where that forbids to write to it, and the errors that say so.


class Creation(enum.Enum):
    """What is special about how a view was made, for the errors of writes through it."""

    DEFAULT = ""
    NO_GRAD = "no_grad"
    INFERENCE = "inference"
    MULTI_OUTPUT = "multi_output"
    FUNCTION = "function"


DEFAULT = Creation.DEFAULT  # a look-up in the Enum takes longer


def forbidden(t: Tensor, creation: Creation, output_nr: int, indirect: bool) -> str:
    """Why a view of a special kind may not be written to, or used after its base was (``indirect``)."""
    what = (
        "its base or another view of its base has been modified"
        if indirect
        else "is being modified"
    )
    node = t._node
    if node is not None:
        text = f"Output {output_nr} of {node.name()} is a view and {what} inplace."
    elif creation is Creation.INFERENCE:
        text = f"A view was created in inference mode and {what} inplace in normal mode."
    else:
        text = f"A view was created in no_grad mode and {what} inplace with grad mode enabled."
    return f"{text} {_ADVICE[creation]}"


_BLOCK = (
    "Whether the write should be recorded is not clear, so it is refused: put both the view and the "
    "inplace operation inside the {mode} block (not recorded), or both outside (recorded)."
)
_ADVICE: dict[Creation, str] = {
    Creation.NO_GRAD: _BLOCK.format(mode="no_grad"),
    Creation.INFERENCE: _BLOCK.format(mode="inference_mode"),
    Creation.MULTI_OUTPUT: (
        "This view is the output of a function that returns multiple views. Such functions do not "
        "allow the output views to be modified inplace: use an operation that is not in place, or "
        "take the views one by one (x[i])."
    ),
    Creation.FUNCTION: (
        "This view was created inside a custom Function (or because an input was returned as-is), "
        "and following its base would override the backward of that Function: clone the output of "
        "the Function."
    ),
}

# Replacing the primal of a Tensor, which keeps its tangents and its history.


def replace_primal(t: Tensor, data: Operand) -> None:
    """Give ``t`` the value ``data``, which has no history, and keep the history that ``t`` has."""
    data = outlived(data)
    inside = isinstance(data, Tensor) and data.level is not ROOT
    if inside and t._level is ROOT and not t._requires_grad:  # only JAX tracks it
        new: Tensor = bind(_REPLACE_PRIMAL, (outlived(t._value), data))
        t._value, t._level, t._aux = new._value, new._level, new._aux
        return
    value, aux = _with_primal(t._value, t._level, t._aux, data)
    t._value = value
    t._aux = aux
    t._level.note("unrecorded", t)


def _with_primal(
    value: Operand, level: Level, aux: object, data: Operand
) -> tuple[Operand, object]:
    """The value and aux of a Tensor of ``level`` once its primal is ``data``."""
    value, aux, data = level.with_primal(value, aux, data)
    return _inner(value, data, level), aux


def _inner(value: Operand, data: Operand, level: Level) -> Operand:
    """A value of ``level`` with a new primal."""
    value, data = outlived(value), outlived(data)
    if not isinstance(value, Tensor):
        if isinstance(data, Tensor) and data.level is ROOT:
            data = data.value
        if isinstance(data, Tensor):
            raise LevelError(
                f"writing {describe(data)} through a detached Tensor would hide it from the Tensor that "
                "shares its storage, which does not belong to that transform: write to that Tensor"
            )
        if isinstance(value, jax.core.Tracer):  # JAX may be differentiating it
            replaced: Operand = bind(
                _REPLACE_PRIMAL, (new_tensor(value, level), new_tensor(data, level))
            ).value
            return replaced
        return data
    t = new_tensor(value.value, value.level, value.aux)
    t._value, t._aux = _with_primal(value.value, value.level, value.aux, data)
    t._requires_grad, t._node, t._output_nr = value.requires_grad, value.node, value.output_nr
    t._level.note("unrecorded", t)
    return t


@jax.custom_jvp
def _replaced(old: Array, new: Array) -> Array:
    """``new``, with the tangent of ``old``."""
    return new


@_replaced.defjvp
def _replaced_jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
    return primals[1], tangents[0]


_REPLACE_PRIMAL = Primitive("replace_primal", _replaced)

# Aliases: from which Tensor a view takes its value, and how its state is brought up to date.

FEW = 8  # pieces of a Tensor, see `Link.operation`


@dataclasses.dataclass(slots=True, eq=False)
class Link:
    """The source of an alias's value.

    ``base`` is the Tensor that it is a view of, None for a peer, which takes the value of ``Storage.data``.
    Where the shape of that Tensor was changed in place, it is the Tensor that this one is a view of since
    then, see `fad.views.inplace`.
    ``seen`` is the version at which the state of the Tensor was made; ``deferred_error`` the error that the
    use of its history raises. ``detached``: the Tensor has neither history nor tangents, also not for JAX
    transforms around, since it came from `detach` and was not written to.
    """

    _base: Tensor | None
    chain: tuple[Step, ...]
    creation: Creation
    seen: int
    output_nr: int = 0
    deferred_error: str | None = None
    detached: bool = False

    @property
    def base(self) -> Tensor | None:
        base = self._base
        if base is not None:
            moved = link_of(base)
            if moved is not None and moved._base is not None:
                base = self._base = moved._base
        return base

    def sync(self, t: Tensor) -> None:
        """Bring the state of ``t``, which has this link, up to date."""
        if self.seen != t.meta.storage.version:  # type: ignore[union-attr]
            _refresh(t)

    def enter(self, t: Tensor) -> None:
        """`sync` for an argument of an operation; raises the deferred error if the operation is recorded."""
        if self.seen != t.meta.storage.version:  # type: ignore[union-attr]
            _refresh(t)
        if self.deferred_error is not None and t._level.id > state.watermark:
            raise GradientError(self.deferred_error)

    def sync_history(self, t: Tensor) -> None:
        """`sync`, for uses of its place in the graph.

        Raises:
            GradientError: the base of a special view was changed.
        """
        self.sync(t)
        if self.deferred_error is not None:
            raise GradientError(self.deferred_error)

    def operation(self, t: Tensor) -> tuple[Primitive, list[int]] | None:
        """What leads from the base to the view ``t``, with its numbers; the base has the array of then.

        None where there is no such base, where it is not for fad alone to run it again, and where it would
        not be worth it: a base that is written to would be kept in each of its versions, and of a program
        for each of many pieces there would be many.
        """
        base = self.base
        if base is None or base._level is not ROOT or base._lazy is not None:
            return None
        if type(base._value) is not array_type:
            return None
        meta = base.meta
        if meta is None or meta.link is not None or meta.storage.version != self.seen:
            return None
        if t._requires_grad and t._node is None:  # the user made it a leaf
            return None
        if self.seen and base._value.aval.size > FEW * t._value.aval.size:
            return None
        numbers = numbers_of(self.chain)
        if not all([type(n) is int for n in numbers]):
            return None
        if not all([step.op.primitive.deferrable and step.op.pieces <= FEW for step in self.chain]):
            return None
        return chain_primitive(form_of(self.chain)), numbers

    def again(self) -> Link:
        """The same for another handle of the view."""
        return Link(self.base, self.chain, self.creation, self.seen, self.output_nr)


def link_of(t: Tensor) -> Link | None:
    """The Link of an alias; None if ``t`` is not an alias."""
    if bodies.traced:
        t = inside(t)
    return None if t.meta is None else t.meta.link  # type: ignore[return-value]  # see `ViewLink`


def out_of_date(t: object) -> int | None:
    """The version of the state of ``t``, if it is an alias whose base was written to since."""
    meta = t.meta if type(t) is Tensor else None
    if meta is None or meta.link is None or meta.link.seen == meta.storage.version:
        return None
    return int(meta.link.seen)


def has_error(t: Tensor) -> bool:
    """Whether the use of the history of ``t`` raises, see `Link`."""
    t = inside(t) if bodies.traced else t
    link = link_of(t)
    if link is None:
        return False
    link.sync(t)
    return link.deferred_error is not None


# Synchronization


_refreshing = threading.RLock()


def _refresh(t: Tensor) -> None:
    """Bring the state of an alias up to the version of its storage."""
    if bodies.traced and state.body is not None:
        with constants():
            return _refresh(t)
    with _refreshing:
        meta = t.meta
        assert meta is not None
        link = link_of(t)
        assert link is not None
        version = meta.storage.version
        if link.seen == version:
            return
        if link.base is None:
            data = meta.storage.data
            data = outlived(replay(data, link.chain) if link.chain else data)
            plain = (link.detached and not t._requires_grad) or _is_plain(t)
            if plain and isinstance(data, Tensor):
                set_value(t, data)
            else:
                replace_primal(t, data)
        else:
            _replay_on_base(t, link, link.base)
        link.seen = version


def _replay_on_base(t: Tensor, link: Link, base: Tensor) -> None:
    """Replay the chain of a view on its base, as recorded code whatever the grad mode is."""
    link.deferred_error = None
    source: Any = base
    special = link.creation is not Creation.DEFAULT
    if special and base.requires_grad:
        link.deferred_error = forbidden(t, link.creation, link.output_nr, indirect=True)
        source = base.level.lift(base.level.detach(base))
        source = new_tensor(source.value, source.level, source.aux)
    before = (state.watermark, state.base_watermark)
    state.watermark = state.base_watermark = -1
    try:
        out = replay(source, link.chain)
    finally:
        state.watermark, state.base_watermark = before
    tracked = t._requires_grad and t._lazy is None
    node = t._node if tracked else None
    is_leaf = tracked and node is None  # the user made it a leaf
    if node is not None and base.meta.of_leaf and not out.requires_grad:  # type: ignore[union-attr]
        set_value(t, out)  # its history leads to that leaf
        return
    if t.meta is not None and t.meta.retains_grad:
        move_retained(t, t._node, t._output_nr, out)
    set_state(t, out)
    if is_leaf and not out.requires_grad:
        t._requires_grad = True


def _is_plain(t: Tensor) -> bool:
    """Whether no level keeps a history or tangent for an alias, so that it can be of any level."""
    if t._requires_grad or not (t._level is ROOT or t._aux is None):
        return False
    tracked = any([x.requires_grad or x.aux is not None for x in layers(t._value)])
    return not tracked and not isinstance(bottom(t._value), jax.core.Tracer)


# Tensors that are only values


def has_only_values() -> bool:
    """Whether an operation on Tensors that `only_value` accepts is nothing but its call of XLA."""
    return not (bodies.traced or anomaly.watch or state.inference is not None)


def only_value(x: Value) -> Any:
    """The array of a Tensor of level 0 without history; None for anything else."""
    if type(x) is not Tensor:
        return None
    meta = x.meta
    if meta is not None and meta.link is not None:
        if meta.link.deferred_error is not None:
            return None
        meta.link.sync(x)
    if x._level is not ROOT or x._requires_grad or x._lazy is not None:
        return None
    value = x._value
    return value if type(value) is array_type or not isinstance(value, Tensor) else None


# The state of a Tensor


def set_state(t: Tensor, new: Tensor) -> None:
    """Give ``t`` the value, level and history of ``new``."""
    flush()
    place = new.requires_grad, new.node, new._output_nr
    set_value(t, new)
    t._requires_grad, t._node, t._output_nr = place


def set_value(t: Tensor, new: Tensor) -> None:
    """Give ``t`` the value (and tangents, lanes, lower history) of ``new``, not its place in the graph."""
    flush()
    value, level, aux = new.value, new.level, new.aux
    t._value = value
    t._level = level
    t._aux = aux
    t._lazy = None


def note_written_outputs(t: Tensor, storage: Storage, version: int) -> None:
    """Note at the nodes of which ``t`` and its peers are outputs that a write makes this version of them."""
    for x in (t, *[p() for p in storage.peers]):
        node = None if x is None else x.node
        if node is not None:
            node.output_written(x._output_nr, version)  # type: ignore[union-attr]


def move_retained(t: Tensor, node: Any, nr: int, new: Tensor) -> None:
    """``retain_grad`` belongs to the Tensor: move it from its place to that of ``new``."""
    to = node_of(new) if t.meta is not None and t.meta.retains_grad and node is not None else None
    if to is None:
        return
    retained = extra_of(node).retains.pop(nr, None)
    if retained is not None:
        extra_of(to).retains[new.output_nr] = retained


def snapshot(t: Tensor) -> Tensor:
    """What ``t`` is now at all its levels, in a handle of its own; without a history that may not be used."""
    value = t.value  # brings an alias up to date
    if t._level is ROOT and not t._requires_grad and captured_by_jit(t):
        return bind(IDENTITY.primitive, (t,))  # type: ignore[no-any-return]
    copy: Tensor = new_tensor(value, t.level, t.aux) if has_error(t) else alias(t)
    if isinstance(copy.value, Tensor):  # it may be that of the caller, who gets the result
        copy._value = snapshot(copy.value)
    return copy


# Dual Tensors made by hand: they share their values with the Tensors that they were made from.
#
# NOTE [a dual is a pair]
#
#     p = fad.tensor(2.0)
#     with fad.dual_level():
#         d = fad.make_dual(p, fad.tensor(1.0))
#         p.mul_(3.0)
#         assert fad.unpack_dual(d).primal == 6.0
#
# ``make_dual(x, t)`` is always the dual of the present values of ``x`` and ``t``: a write to the dual changes
# both, and a write to one of them is seen in the dual. PyTorch does the same by sharing memory; here the dual
# has a `DualLink`, which makes it again when ``x`` or ``t`` have changed, and passes writes on to them. The
# dual and ``x`` have one `Storage`, so that views of the dual see the writes, and a saved dual that was
# changed is noticed.
#
# If ``x`` requires grad on the eager tape, or in the body of a `jit`, so does the dual: a node of the dual's
# level, which passes gradients on, leads to the place of ``x`` in its graph. So the tape goes on at the level
# of the dual, and a gradient with respect to ``x`` is a dual Tensor: forward over reverse. Other Tensors that
# require grad enter operations of that level in the same way, see `joined`.


class MakeDualBackward(RecordedNode):
    """Leads from a dual Tensor to the graph of its primal."""

    __slots__ = ("_form",)

    def __init__(self, level: Level, x: Tensor) -> None:
        self._start(level, [gradient_edge(x)])
        self._form = InputMetadata(tuple(x.shape), x.dtype)

    @property
    def num_inputs(self) -> int:
        return 1

    def metadata_of_inputs(self) -> list[InputMetadata]:
        return [self._form]

    def run(
        self, cotangents: Sequence[MaybeValue], need: tuple[bool, ...], create_graph: bool
    ) -> Sequence[MaybeValue]:
        return cotangents


class DualLink(Link):
    """Links a dual Tensor to its ``primal`` and ``tangent`` (None is zero); see NOTE [a dual is a pair].

    ``tangent_seen`` is the version of the tangent that the dual has seen.
    """

    __slots__ = ("primal", "tangent", "tangent_seen")

    def __init__(self, primal: Tensor, tangent: Tensor | None) -> None:
        super().__init__(None, (), Creation.DEFAULT, storage_of(primal).version)
        self.primal = primal
        self.tangent = tangent
        self.tangent_seen = self._tangent_version()

    def _tangent_version(self) -> int:
        return 0 if self.tangent is None else version_of(self.tangent)

    def sync(self, t: Tensor) -> None:
        if (
            self.seen != t.meta.storage.version  # type: ignore[union-attr]
            or self.tangent_seen != self._tangent_version()
        ):
            flush()
            _fill(t, self.primal, self.tangent)
            self.note()

    enter = sync_history = sync

    def note(self) -> None:
        """The dual has seen the present versions."""
        self.seen = storage_of(self.primal).version
        self.tangent_seen = self._tangent_version()

    def write(self, t: Tensor, new: Tensor, overwrite: Callable[..., Tensor]) -> None:
        """Give the dual ``t``, and what it was made from, the values of ``new``.

        Arguments:
            overwrite: `fad.views.inplace.overwrite_from`.
        """
        level = t._level
        if not level.alive:  # it is its primal
            overwrite(self.primal, as_tensor(outlived(new)), "a write to a dual")
            return
        if new.level is not level:
            raise LevelError(
                f"a write to a dual ({describe(t)}) of {level!r} from inside of {new.level!r}: it would "
                "change the primal and the tangent that the dual was made from, which do not belong to "
                "that transform. Write to a copy: x.clone()"
            )
        if t._node is not None:
            t._node.output_written(t._output_nr, self.seen + 1)
        primal, tangent = new.value, new.aux
        overwrite(self.primal, as_tensor(primal), "a write to a dual")
        if self.tangent is not None:
            if tangent is None:
                tangent = bind(ZEROS_LIKE, (primal,))
            overwrite(self.tangent, as_tensor(tangent), "a write to a dual")
            tangent = _lowered(self.tangent, level)
        if level.id > state.watermark:
            set_state(t, new)
        else:  # under no_grad it keeps its history
            set_value(t, new_tensor(_lowered(self.primal, level), level, tangent))
        self.note()


def made_dual(level: Level, primal: Operand, tangent: MaybeValue) -> Tensor:
    """The dual of ``level`` of a primal and a tangent, Tensors or arrays; a tangent of None is zero."""
    out: Tensor = new_tensor(None, level)
    _fill(out, primal, tangent)
    shared = isinstance(primal, Tensor) or isinstance(tangent, Tensor)
    if shared and not captured_by_jit(primal):
        link_dual(out, as_tensor(primal), None if tangent is None else as_tensor(tangent))
    return out


def link_dual(t: Tensor, primal: Tensor, tangent: Tensor | None) -> None:
    """Link ``t``, a dual Tensor, to the primal and the tangent that it was made from."""
    meta = meta_of(t)
    meta.storage, meta.link = storage_of(primal), DualLink(primal, tangent)


def _fill(out: Tensor, primal: Operand, tangent: MaybeValue) -> None:
    """Give ``out`` the values of a primal and a tangent, and its place in the graph of the primal."""
    level: Any = out._level
    below = _lowered(primal, level)
    out._value = below
    out._aux = None if tangent is None else _lowered(tangent, level)
    if out._requires_grad and out._node is None:  # the user made it a leaf
        return
    out._node, out._output_nr = None, 0
    recording = level.on_tape and level.alive and level.id > state.watermark
    out._requires_grad = recording and _is_on_tape(below)
    if out._requires_grad:
        out._node = MakeDualBackward(level, below)
        if below._level.on_tape:
            level.tape_id = max(level.tape_id, below._level.id)


def _lowered(x: Operand, level: Any) -> Any:
    """What a Tensor is now, below ``level``, in a handle of its own; the bare array where that is as good."""
    if not isinstance(x, Tensor):
        return x
    x = outlived(x)
    if isinstance(x, Tensor) and not captured_by_jit(x):
        x = level.unpack(snapshot(x))[0]
        if isinstance(x, Tensor) and x.level is ROOT and not x.requires_grad:
            x = x.value
    return x


def _is_on_tape(x: object) -> bool:
    return (
        isinstance(x, Tensor)
        and x._requires_grad
        and (x._level.on_tape or x._level is state.body)
        and x._level.alive
        and not captured_by_jit(x)
    )


def joined(level: Level, args: Sequence[Operand]) -> Sequence[Operand]:
    """Arguments of an operation at ``level``, with those that require grad on the tape below as Tensors of
    ``level`` that lead there.
    """
    join = [isinstance(a, Tensor) and a._level is not level and _is_on_tape(a) for a in args]
    if True not in join:
        return args
    return [made_dual(level, a, None) if j else a for a, j in zip(args, join)]
