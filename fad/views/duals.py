"""Dual Tensors made by hand: they share their values with the Tensors that they were made from.

NOTE [a dual is a pair]

    p = fad.tensor(2.0)
    with fad.dual_level():
        d = fad.make_dual(p, fad.tensor(1.0))
        p.mul_(3.0)
        assert fad.unpack_dual(d).primal == 6.0

``make_dual(x, t)`` is always the dual of the present values of ``x`` and ``t``: a write to the dual changes
both, and a write to one of them is seen in the dual. PyTorch does the same by sharing memory; here the dual
has a `DualLink`, which makes it again when ``x`` or ``t`` have changed, and passes writes on to them. The
dual and ``x`` have one `Storage`, so that views of the dual see the writes, and a saved dual that was
changed is noticed.

If ``x`` requires grad on the eager tape, or in the body of a `jit`, so does the dual: a node of the dual's
level, which passes gradients on, leads to the place of ``x`` in its graph. So the tape goes on at the level
of the dual, and a gradient with respect to ``x`` is a dual Tensor: forward over reverse. Other Tensors that
require grad enter operations of that level in the same way, see `joined`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fad.core.level import Level, bind, captured_by_jit, flush, outlived, state
from fad.core.tensor import Tensor, meta_of, new_tensor, storage_of, version_of
from fad.core.types import MaybeValue, Operand
from fad.errors import LevelError, describe
from fad.tape.engine import ZEROS_LIKE
from fad.tape.graph import InputMetadata, gradient_edge
from fad.tape.nodes import RecordedNode
from fad.tape.recorder import ROOT, as_tensor
from fad.views.aliases import Creation, Link, set_state, set_value, snapshot


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
