"""The boundary of a transform: arrays become Tensors inside, and arrays again outside.

A transform makes a `Call` of its arguments. The functions that it is made of come first, for `jit`, `vmap`
and others that do more than a Call does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fad.core import trees
from fad.core.avals import SCALARS, aval_of
from fad.core.borrowed import as_array
from fad.core.dtypes import is_inexact
from fad.core.faces import tool
from fad.core.jaxapi import array_type, float0
from fad.core.level import Level, bind, captured_by_jit, outlived, state
from fad.core.replay_protocol import begin_trace
from fad.core.tensor import Tensor, is_operand, new_tensor
from fad.core.types import MaybeValue, Operand, PyTree, Value
from fad.errors import ArgumentError, LevelError, StructureError, describe
from fad.tape.engine import ZEROS_LIKE
from fad.tape.graph import running
from fad.tape.recorder import ROOT, as_tensor
from fad.views.inplace import check_writable, overwrite_from
from fad.views.make_view import place_of, shares, stand_at, stop_gradient


def is_array(x: object) -> bool:
    """Whether a transform can wrap ``x``: a Tensor or an array."""
    return isinstance(x, (Tensor, jax.Array, np.ndarray))


def enter(tree: PyTree) -> PyTree:
    """``tree`` with its arrays as Tensors. Python scalars stay what they are.

    >>> import jax.numpy as jnp
    >>> from fad import extend
    >>> extend.enter([jnp.ones(2), 3])
    [Tensor([1., 1.], dtype=float32), 3]
    """
    kind = type(tree)
    if kind is array_type:
        return new_tensor(tree, ROOT)
    if kind is Tensor or kind in SCALARS or (kind is dict and not tree):
        return tree
    return trees.map_leaves(
        lambda x: as_tensor(x) if isinstance(x, (jax.Array, np.ndarray)) else x, tree
    )


def has_tensor(tree: PyTree) -> bool:
    """Whether there is a Tensor among the leaves, so that results are Tensors too.

    >>> import fad
    >>> from fad import extend
    >>> extend.has_tensor([1.0, {"x": fad.tensor(2.0)}])
    True
    """
    kind = type(tree)
    if kind is tuple:
        return any([has_tensor(x) for x in tree if type(x) is not array_type])
    if kind in SCALARS or (kind is dict and not tree):
        return False
    return any(isinstance(x, Tensor) for x in trees.flatten(tree)[0])


def lower(x: PyTree) -> PyTree:
    """The value that a level wraps for the user's ``x``: an array, or a Tensor with a history."""
    if type(x) is array_type:
        return x
    x = outlived(x)
    if isinstance(x, Tensor):
        return x.value if _is_bare(x) else x
    return x if isinstance(x, jax.Array) else as_array(x)


def _is_bare(x: Tensor) -> bool:
    """Whether ``x`` is as good as its array."""
    return x.level is ROOT and not x.requires_grad and not captured_by_jit(x)


def leave(tree: PyTree, tensors: bool, tracked: bool = True) -> PyTree:
    """``tree`` as the caller sees it: Tensors if ``tensors``, else arrays where that loses nothing.

    A result that is part of an outer transform or graph stays a Tensor in either case. If it is not
    ``tracked`` it is a constant there; but not in a rule of a Function, whose derivative may need it.

    >>> import fad
    >>> from fad import extend
    >>> extend.leave(fad.tensor([1.0, 2.0]), tensors=False)
    Array([1., 2.], dtype=float32)
    """

    if type(tree) is array_type and not tensors:
        return tree
    if not tracked and running.records is None:
        tree = stop_gradient(tree)

    def one(x: PyTree) -> PyTree:
        x = outlived(x)
        if tensors:
            return as_tensor(x) if isinstance(x, (jax.Array, np.ndarray)) else x
        return x.value if isinstance(x, Tensor) and _is_bare(x) else x

    return trees.map_leaves(one, tree)


def pick(argnums: int | Sequence[int], count: int, who: str) -> tuple[int, ...]:
    """``argnums`` as positions from the left, checked."""
    if type(argnums) is int and 0 <= argnums < count:
        return (argnums,)
    single = isinstance(argnums, (int, np.integer)) and not isinstance(argnums, bool)
    nums = (argnums,) if single else argnums
    if not isinstance(nums, (tuple, list)) or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in nums
    ):
        called = f". Write {who}(f)(x), not {who}(f, x)" if is_array(argnums) else ""
        raise ArgumentError(
            f"{who}: argnums must be an int or a tuple of ints, got {describe(argnums)}{called}"
        )
    if not nums:
        raise StructureError(
            f"{who}: argnums is empty, and must be non-empty: name at least one argument"
        )
    for n in nums:
        if not -count <= n < count:
            raise StructureError(
                f"{who}: argnums={argnums!r} is out of range: the function was called with {count} "
                "positional arguments (positional inputs). Arguments to differentiate are passed by position."
            )
    picked = tuple([int(n) % count for n in nums])
    if len(set(picked)) != len(picked):
        raise StructureError(
            f"{who}: argnums={argnums!r} names an argument twice: its elements must be unique"
        )
    return picked


def was_written(handle: PyTree) -> bool:
    """Whether the function changed this handle of an argument in place.

    Raises:
        LevelError: it changed the shape, which the Tensor of the caller keeps.
    """
    if not isinstance(handle, Tensor) or handle.meta is None or not handle.meta.storage.version:
        return False
    link = handle.meta.link
    if link is not None and link.base is not None:
        raise shape_changed(handle, "an argument")
    return True


def shape_changed(t: Tensor, what: str) -> LevelError:
    """That a function has changed the shape of a Tensor that was there before."""
    return LevelError(
        f"the shape of {what} ({describe(t)}) was changed in place in a function that is "
        "being transformed, and the Tensor outside keeps its shape. Use the method without the "
        "underscore, or change a copy (x.clone())"
    )


def check_written(leaves: Sequence[Operand], changed: Sequence[int], who: str) -> None:
    """Refuse arguments that must not be changed in place as the function changes them."""
    for k in changed:
        x = leaves[k]
        if not isinstance(x, Tensor):
            continue
        check_writable(x, who)
        for j, y in enumerate(leaves):
            if j != k and shares(x, y):
                raise LevelError(
                    f"{who}: the function writes to argument leaf {k} ({describe(x)}), which shares its "
                    f"storage with leaf {j}; inside of the function they are separate, and {j} would keep "
                    "its old value. Pass one of them, or x.clone()."
                )


def write_back(originals: Sequence[Value], new: Sequence[MaybeValue], who: str) -> None:
    """Change the caller's Tensors as the function changed its handles of them; None is unchanged."""
    for x, n in zip(originals, new, strict=True):
        if n is not None and isinstance(x, Tensor):
            overwrite_from(x, as_tensor(outlived(n)), who)


def check_chunk_size(chunk_size: object, who: str) -> None:
    """Refuse a chunk size below 1."""
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ArgumentError(
            f"{who}: chunk_size should be None or an int greater than 0, got {chunk_size!r}"
        )


def argument_names(args: Sequence[PyTree], kwargs: dict[str, PyTree]) -> list[str]:
    """A name for each leaf of ``(args, kwargs)``, for messages."""
    named = [
        f"argument {name!r}{path}"
        for name in sorted(kwargs)
        for path in trees.path_names(kwargs[name])
    ]
    return [*names_of(range(len(args)), args), *named]


def names_of(nums: Sequence[int], args: Sequence[PyTree]) -> list[str]:
    """A name for each leaf of the arguments at ``nums``, for messages."""
    return [f"argument {i}{path}" for i in nums for path in trees.path_names(args[i])]


class Call:
    """The arguments of a call of a transformed function, and its results.

    A transform makes a Call; within its level it makes Tensors of the ``values``, and gives them to `run`, to
    `outputs` and to `written`; outside of it again, it gives what it computed to `write_back` and `result`.

    Arguments:
        who: the transform, for messages.
        args: the positional arguments.
        kwargs: the keyword arguments.
        argnums: which positional arguments are transformed, an int or a sequence of ints; None: all.
        differentiated: their leaves must have a floating or complex dtype.

    ``values``: the leaves of the transformed arguments, one level down. ``names``: their names in messages.
    ``tensors``: there is a Tensor among the arguments, so that results are Tensors. ``aux``: the second
    result of a function that returns a pair, see `run`.

    Raises:
        StructureError: ``argnums`` is out of range.
        ArgumentError: a leaf is not an array, or has another dtype.

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

    aux: PyTree = None
    has_aux = False

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
        self.nums: Sequence[int] = (
            range(len(args)) if argnums is None else pick(argnums, len(args), who)
        )
        self.single = argnums is not None and not isinstance(argnums, (tuple, list))
        self.like: PyTree = tuple([args[n] for n in self.nums])
        self.tensors = has_tensor(args) or (bool(kwargs) and has_tensor(kwargs))
        leaves, self.structure = trees.flatten(self.like)
        self.values: list[PyTree] = [
            x
            if type(x) is array_type and x.dtype.kind == "f"
            else self._lowered(k, x, differentiated)
            for k, x in enumerate(leaves)
        ]

    @staticmethod
    def check(f: Callable[..., PyTree], who: str, argnums: PyTree = 0) -> None:
        """Refuse anything but a function, and an array in the place of ``argnums``: when a transform is
        made.

        Raises:
            TypeError: ``f`` cannot be called.
            ArgumentError: ``argnums`` is an array.
        """
        if type(argnums) is not int and is_array(argnums):
            pick(argnums, 1, who)
        if not callable(f):
            called = f": write {who}(f)(x), not {who}(f(x))" if is_array(f) else ""
            raise TypeError(
                f"{who}: the first argument must be a function, got {describe(f)}{called}"
            )

    def _lowered(self, k: int, leaf: PyTree, differentiated: bool) -> Value:
        """A leaf one level down, after a check that it can be transformed."""
        if not is_operand(leaf):
            advice = (
                ". Only arrays can be differentiated: pass what is not an array as another argument."
                f"{tool('hints.mistakes').how_to_register(leaf)}"
            )
            raise ArgumentError(
                f"{self.who}: {self.names[k]} must be an array, got {describe(leaf)}"
                f"{advice if differentiated else ''}"
            )
        value: Value = lower(leaf)
        if differentiated and not is_inexact(value.dtype):
            problem = tool("hints.gradients").no_derivative(
                self.who, self.names[k], leaf, value.dtype
            )
            raise ArgumentError(problem)
        return value

    @functools.cached_property
    def names(self) -> list[str]:
        """A name for each of the values, such as "argument 0['w']"."""
        return names_of(self.nums, self.args)

    def tangent(self, k: int, tangent: PyTree) -> MaybeValue:
        """The user's tangent for the value ``k``, checked, one level down; None is zero.

        Raises:
            StructureError: it does not have the shape and dtype of the value.
        """
        value = self.values[k]
        if type(tangent) is array_type and type(value) is array_type:
            ours, theirs = value.aval, tangent.aval  # most often nothing is to be converted
            if ours.dtype == theirs.dtype and ours.shape == theirs.shape and is_inexact(ours.dtype):
                return tangent
        checked: MaybeValue = tangent_of(value, tangent, self.who, self.names[k])
        return checked

    def run(
        self,
        f: Callable[..., PyTree],
        level: Level | None,
        inputs: Sequence[Value],
        has_aux: bool = False,
    ) -> PyTree:
        """What ``f`` returns, with ``inputs``, Tensors of ``level``, in the place of the values.

        If such calls repeat, their operations are deferred until the level ends, and run as one; with None
        in the place of the level they are not. With ``has_aux`` f returns a pair, of which the second is put
        into ``aux``.

        Raises:
            ArgumentError: it does not return a pair.
        """
        if self.tensors:
            for x, inside in zip(trees.flatten(self.like)[0], inputs, strict=True):
                stand_at(inside, place_of(x))
        if level is not None and inputs and state.replaying:
            begin_trace(level, inputs, f)
        new = dict(zip(self.nums, trees.unflatten(self.structure, inputs, self.like), strict=True))
        args = [new[n] if n in new else enter(x) for n, x in enumerate(self.args)]
        out = f(*args, **enter(self.kwargs)) if self.kwargs else f(*args)
        self.has_aux = has_aux
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise ArgumentError(
                    f"{self.who}: with has_aux=True the function must return a pair (output, aux), "
                    f"got {describe(out)}"
                )
            out, self.aux = out
        return out

    def outputs(self, out: PyTree) -> list[Value]:
        """The leaves of what a function returned, each an array.

        Raises:
            ArgumentError: one is not an array.
        """
        outs, self.out_structure = trees.flatten(out)
        for k, x in enumerate(outs):
            if not is_operand(x):
                raise ArgumentError(
                    f"{self.who}: output {k} of the function must be an array, got {describe(x)}"
                )
        self.out_like = trees.skeleton(out)
        return outs

    def written(
        self, inputs: Sequence[Tensor], value_of: Callable[[Tensor], Value]
    ) -> list[MaybeValue]:
        """The new values, one level down, of those inputs that the function wrote to; None for others."""
        return [value_of(x) if was_written(x) else None for x in inputs]

    def write_back(self, written: Sequence[MaybeValue]) -> None:
        """Write to the caller's Tensors as the function wrote to its inputs.

        Raises:
            LevelError: they must not be written to.
        """
        leaves = trees.flatten(self.like)[0]
        check_written(leaves, [k for k, n in enumerate(written) if n is not None], self.who)
        write_back(leaves, written, self.who)

    def forget(self) -> None:
        """Drop the arguments and their values: `argument` and `result` need the structure alone."""
        self.args, self.kwargs, self.values = (), {}, []
        self.like = trees.skeleton(self.like)

    def argument(self, leaves: Sequence[PyTree]) -> PyTree:
        """``leaves`` in the structure of the transformed argument, or of the tuple of those."""
        nested = trees.unflatten(self.structure, leaves, self.like)
        return nested[0] if self.single else nested

    def result(self, leaves: Sequence[PyTree]) -> PyTree:
        """``leaves`` in the structure of the output, as the caller sees them."""
        return leave(trees.unflatten(self.out_structure, leaves, self.out_like), self.tensors)

    def and_aux(self, *results: PyTree) -> PyTree:
        """The results, and `aux` behind them if there is one: a tuple where they are several."""
        if self.has_aux:
            results = (*results, leave(self.aux, self.tensors))
        return results if len(results) > 1 else results[0]


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
    if dtype == float0:
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
