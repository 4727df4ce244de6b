"""`Call`: the arguments of a call that a transform makes, from where they enter its level to its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp

from fad.core import jaxapi, trees
from fad.core.avals import aval_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.level import Level, bind
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor, is_operand
from fad.core.types import MaybeValue, Operand, PyTree, Value
from fad.errors import ArgumentError, StructureError, describe
from fad.tape.engine import ZEROS_LIKE
from fad.transforms.boundary import (
    check_arrays,
    check_callable,
    differentiable_leaves,
    enter,
    has_tensor,
    leave,
    lower,
    names_of,
    pick,
    stand_for,
    substitute,
    was_written,
    write_back_to,
)


class Call:
    """The arguments of a call of a function that a transform takes, and what comes of them.

    A transform makes a Call; within its level it makes Tensors of the ``values``, and gives them to `run`, to
    `outputs` and to `written`; outside of it again, it gives what it computed to `write_back` and `result`.

    Arguments:
        who: the transform, for messages.
        args: the positional arguments.
        kwargs: the keyword arguments.
        argnums: which positional arguments are transformed, an int or a sequence of ints; None: all.
        differentiated: their leaves must have a floating or complex dtype.

    ``values``: the leaves of what is transformed, one level down. ``names``: what messages call them.
    ``tensors``: there is a Tensor among the arguments, so that results are Tensors.

    Raises:
        StructureError: ``argnums`` is out of range.
        ArgumentError: a leaf is no array, or not of such a dtype.

    >>> import fad
    >>> from fad import extend
    >>> class PlainLevel(extend.Level):
    ...     def process(self, op, args):
    ...         return extend.map_outputs(self.lift, extend.bind(op, [a.value for a in args]))
    >>> def transformed(f, *args):
    ...     call = extend.Call("transformed", args)
    ...     with PlainLevel() as level:
    ...         inputs = [level.lift(x) for x in call.values]
    ...         outs = call.outputs(call.run(f, level, inputs))
    ...         values = [level.lift(x).value for x in outs]
    ...         written = call.written(inputs, lambda x: x.value)
    ...     call.write_back(written)
    ...     return call.result(values)
    >>> transformed(lambda p: {"y": p["a"] * p["b"]}, {"a": 2.0, "b": fad.tensor(3.0)})
    {'y': Tensor(6., dtype=float32)}
    """

    def __init__(
        self,
        who: str,
        args: Sequence[PyTree],
        kwargs: dict[str, PyTree] | None = None,
        argnums: int | Sequence[int] | None = None,
        differentiated: bool = True,
    ) -> None:
        self.who = who
        self.args, self.kwargs = args, kwargs or {}
        if argnums is None:
            argnums = range(len(args))
            self.nums, self.single = tuple(argnums), False
        else:
            self.nums = pick(argnums, len(args), who)
            self.single = not isinstance(argnums, (tuple, list))
        self.like = [args[n] for n in self.nums]
        self.tensors = has_tensor((args, self.kwargs))
        self._names: list[str] | None = None
        if differentiated:
            self.values, self.structure = differentiable_leaves(args, self.nums, who)
            return
        leaves, self.structure = trees.flatten(tuple(self.like))
        for k, x in enumerate(leaves):
            if not is_operand(x):
                raise ArgumentError(f"{who}: {self.names[k]} must be an array, got {describe(x)}")
        self.values = list(map(lower, leaves))

    @staticmethod
    def check(f: Callable[..., PyTree], who: str, argnums: PyTree = 0) -> None:
        """Refuse what is no function, and ``argnums`` that are arguments: for when a transform is made.

        Raises:
            TypeError: ``f`` cannot be called.
            ArgumentError: ``argnums`` is an array.
        """
        check_callable(f, who, argnums)

    @property
    def names(self) -> list[str]:
        """A name for each of the values, such as "argument 0['w']"."""
        if self._names is None:
            self._names = names_of(self.nums, self.args)
        return self._names

    def tangent(self, k: int, tangent: PyTree) -> MaybeValue:
        """What a user gives as a tangent of the value ``k``, checked, and one level down; None is zero.

        Raises:
            StructureError: it does not have the shape and dtype of the value.
        """
        value = self.values[k]
        if type(tangent) is jaxapi.array_type and type(value) is jaxapi.array_type:
            ours, theirs = value.aval, tangent.aval  # most often nothing is to be converted
            if ours.dtype == theirs.dtype and ours.shape == theirs.shape and is_inexact(ours.dtype):
                return tangent
        checked: MaybeValue = tangent_of(value, tangent, self.who, self.names[k])
        return checked

    def run(self, f: Callable[..., PyTree], level: Level, inputs: Sequence[Tensor]) -> PyTree:
        """What ``f`` returns, with ``inputs``, Tensors of ``level``, in the place of the values."""
        if self.tensors:
            stand_for(inputs, self.like)
        begin_trace(level, inputs, f)
        inside = trees.unflatten(self.structure, inputs, self.like)
        return f(*substitute(self.args, self.nums, inside), **enter(self.kwargs))

    def outputs(self, out: PyTree) -> list[Value]:
        """The leaves of what a function returned, each an array.

        Raises:
            ArgumentError: one is no array.
        """
        outs, self.out_structure = trees.flatten(out)
        check_arrays(outs, self.who)
        self.out_like = trees.skeleton(out)
        return outs

    def written(
        self, inputs: Sequence[Tensor], value_of: Callable[[Tensor], Value]
    ) -> list[MaybeValue]:
        """The new values, one level down, of those inputs that the function wrote to; None for others."""
        return [value_of(x) if was_written(x) else None for x in inputs]

    def write_back(self, written: Sequence[MaybeValue]) -> None:
        """Write to the caller's Tensors what the function wrote to those inside.

        Raises:
            LevelError: they must not be written to.
        """
        write_back_to(self.like, written, self.who)

    def argument(self, leaves: Sequence[PyTree]) -> PyTree:
        """``leaves`` in the structure of what is transformed: of one argument, or of a tuple of them."""
        nested = trees.unflatten(self.structure, leaves, self.like)
        return nested[0] if self.single else nested

    def result(self, leaves: Sequence[PyTree]) -> PyTree:
        """``leaves`` in the structure of the output, as the caller sees them."""
        return leave(trees.unflatten(self.out_structure, leaves, self.out_like), self.tensors)


def zeros_like(x: Operand) -> Value:
    """Zeros with the shape and dtype of ``x``, at its levels.

    >>> import fad
    >>> fad.extend.zeros_like(fad.tensor([1.0, 2.0]))
    Tensor([0., 0.], dtype=float32)
    """
    if not is_operand(x):
        raise ArgumentError(f"an output must be an array to have a tangent, got {describe(x)}")
    return bind(ZEROS_LIKE, (x if isinstance(x, Tensor) else jnp.asarray(x),))


def filled(values: Sequence[MaybeValue], like: Sequence[Operand]) -> list[Value]:
    """``values``, with zeros like those of ``like`` in the place of None."""
    return [zeros_like(x) if v is None else v for v, x in zip(values, like, strict=True)]


def tangent_of(primal: PyTree, tangent: PyTree, who: str, name: str) -> PyTree:
    """A tangent checked against its primal; None is zero."""
    if tangent is None:
        return None
    dtype = getattr(tangent, "dtype", None)
    if dtype == jaxapi.float0:
        return None
    if not is_operand(tangent):
        raise StructureError(
            f"{who}: the tangent of {name} must be an array, got {describe(tangent)}"
        )
    if not is_inexact(primal.dtype):
        raise StructureError(
            f"{who}: {name} has dtype {primal.dtype}, which has no derivatives: its tangent must be "
            f"None, got {describe(tangent)}"
        )
    if dtype is None and not isinstance(tangent, complex):
        # A Python number moves a Python number, which is weakly typed.
        tangent = jnp.asarray(float(tangent)) if aval_of(primal).weak_type else tangent
        if getattr(tangent, "dtype", None) != primal.dtype:
            tangent = as_array(tangent, primal.dtype)
    tangent = lower(tangent)
    if tuple(tangent.shape) != tuple(primal.shape) or tangent.dtype != primal.dtype:
        if tuple(tangent.shape) == tuple(primal.shape):
            advice = f"Convert it: t.astype({str(primal.dtype)!r})."
        else:
            advice = "Broadcast or reshape it: fad.numpy.broadcast_to(t, x.shape)."
        raise StructureError(
            f"{who}: the tangent of {name} must have the shape and dtype of its primal, "
            f"{primal.dtype}{list(primal.shape)}, got {tangent.dtype}{list(tangent.shape)}. {advice}"
        )
    return tangent
