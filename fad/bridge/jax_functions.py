"""Between fad and JAX: ``from_jax`` and ``to_jax``."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence

import jax

from fad.compile.signatures import OPERANDS, Arguments
from fad.core import jaxapi, rolling_protocol, trees
from fad.core.caches import Cache, exact
from fad.core.dataflow import COMPUTED
from fad.core.faces import tool
from fad.core.jaxapi import axis_environment
from fad.core.jaxprs import bind_jaxpr, trace
from fad.core.level import Level, modes, outlived, state
from fad.core.primitive import Primitive
from fad.core.tensor import Tensor
from fad.core.trees import Rest, partition
from fad.core.types import Array, Operand, Outputs, PyTree
from fad.errors import ArgumentError, LevelError, RuleError, describe
from fad.functions.context import Template
from fad.functions.rules import bare_arrays, is_tracked, leaves_of
from fad.tape.recorder import ROOT
from fad.tape.staged import code_of
from fad.tape.vmap import bind_code
from fad.transforms.boundary import enter, leave
from fad.views.pytree import flattening


def from_jax(
    f: Callable[..., PyTree],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
) -> Callable[..., PyTree]:
    """A JAX function as a fad function: one Primitive, one compiled call, under every transform.

    Arguments:
        f: a pure function of pytrees of JAX arrays: plain ``jax.numpy`` code, a flax ``apply``, a
            loss from optax. Functions (``F.apply``) in it keep their rules.
        static_argnums, static_argnames: arguments that are not traced, as in ``jax.jit``. What is
            neither an array nor a number is static without being named.

    Returns:
        A function that takes Tensors and arrays; Tensors come out if one goes in.

    Raises:
        TypeError: a static argument is not hashable.
        LevelError: f computes with Tensors, which it makes or closes over. (It may put its arrays into a
            structure that has Tensors, as ``unravel`` of ``ravel_pytree`` does.)

    >>> import fad, jax.numpy as jnp
    >>> f = fad.from_jax(lambda x: jnp.sin(x) ** 2)
    >>> float(fad.grad(f)(fad.tensor(0.0)))
    0.0
    """
    arguments = Arguments(f, "from_jax", static_argnums, static_argnames)
    name = getattr(f, "__name__", type(f).__name__)

    def make(rest: Rest, _: dict[str, PyTree]) -> Primitive:
        def fn(*arrays: Array) -> Outputs:
            inside, inside_kwargs = rest.combine(arrays)
            before, flattening.made = flattening.made, []
            try:
                out = f(*inside, **inside_kwargs)
                return trees.map_leaves(functools.partial(_result, name, flattening.made), out)
            finally:
                flattening.made = before

        primitive = Primitive(name, fn, shared=True)
        primitive.paths = COMPUTED
        return primitive

    return called_by_structure(f, arguments.split, make)


def called_by_structure(
    f: Callable[..., PyTree],
    split: Callable[..., tuple[list[Operand], Hashable]],
    make: Callable[..., Primitive],
) -> Callable[..., PyTree]:
    """The JAX function ``f``, called as a Primitive: one for each structure of arguments.

    Arguments:
        split: from positional and keyword arguments to the operands, and all else as a key.
        make: the Primitive for such a key, and keyword arguments.
    """
    primitives = Cache()

    @functools.wraps(f, updated=())
    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        leaves, rest = split(args, kwargs)
        key = (rest, axis_environment())
        primitive = primitives.get(key)
        if primitive is None:
            primitive = primitives.put(key, make(rest, kwargs))
        return primitive.unflatten(bind_code(primitive, leaves))

    run.primitives = primitives  # type: ignore[attr-defined]
    return run


def by_structure(
    f: Callable[..., PyTree], name: str, make: Callable[..., Primitive]
) -> Callable[..., PyTree]:
    """A JAX function that is called as an operation: one for each structure of its positional arguments, and
    each choice of keyword arguments, which are static.

    Arguments:
        f: the function, of pytrees of arrays and numbers.
        name: what errors call it.
        make: ``make(rest, pure, **options)`` makes the `Primitive` for a structure. ``rest`` is what
            `partition` leaves of the positional arguments. ``pure(body)`` wraps a function of the user's: it
            passes the static arguments, and turns Tensors in the result into arrays. The options
            go to the `Primitive` as they are.

    Returns:
        A function with the arguments of ``f`` that takes Tensors too; Tensors come out if one goes in.

    Raises:
        TypeError: in a call, a positional argument has a leaf that is not an array or a number, or a keyword
            argument is not hashable.
        RuleError: a body closes over a Tensor that a transform or a graph tracks.

    >>> import fad, jax.numpy as jnp
    >>> from fad import extend
    >>> def make(rest, pure, **options):
    ...     return extend.Primitive("sine", lambda *x: pure(jnp.sin)(*rest.combine(x)), **options)
    >>> float(fad.grad(extend.by_structure(jnp.sin, "sine", make))(0.0))
    1.0
    """
    code = code_of(f)
    count = _made.get(code) or _made.put(code, _TimesMade())
    count.made += 1
    anew = count.made > _FEW

    def split_call(
        args: tuple[PyTree, ...], static: dict[str, object]
    ) -> tuple[list[Operand], Hashable]:
        leaves, rest = partition(args, OPERANDS, rest=Template)
        for x in rest.statics():
            if x is not None:
                raise TypeError(
                    f"{name}: positional arguments are arrays and numbers, got {describe(x)}. Pass what "
                    "is static by keyword."
                )
        try:
            named = tuple([(key, exact(static[key])) for key in sorted(static)])
        except TypeError as error:
            raise TypeError(f"{name}: keyword arguments are static and hashable: {error}") from None
        return [outlived(x) for x in leaves], (rest, named)

    def make_one(key: tuple[Template, Hashable], static: dict[str, object]) -> Primitive:
        def pure(body: Callable[..., PyTree]) -> Callable[..., PyTree]:
            def run(*args: PyTree) -> PyTree:
                returned = bare_arrays(body(*args, **static))
                for x in trees.flatten(returned)[0]:
                    if isinstance(x, Tensor):
                        text = tool("hints.functions").closes_over(
                            name, name, [body], x, is_tracked
                        )
                        raise RuleError(text)
                return returned

            return run

        return make(key[0], pure, deferrable=not anew, shared=anew)

    run = called_by_structure(f, split_call, make_one)
    if not anew:
        weakref.finalize(run, count.note_dropped).atexit = False
    return run


class _TimesMade:
    """How many operations were made of functions of one code.

    Where one was dropped, or there are many, others are probably made anew in each step. They are compiled as
    in NOTE [functions made anew], and not deferred: replay looks for operations that repeat.
    """

    __slots__ = ("made",)

    def __init__(self) -> None:
        self.made = 0

    def note_dropped(self) -> None:
        self.made = max(self.made, _FEW)


_FEW = 8
_made = Cache()


def _result(name: str, made: Sequence[Tensor], x: PyTree) -> PyTree:
    """A result of the JAX function ``name``; the array in a Tensor that JAX has put around it."""
    if isinstance(x, Tensor):
        if x.meta is None and any([x is t for t in made]):
            return x.value
        raise LevelError(
            f"from_jax: {name} returned {describe(x)}, so it computes with Tensors, which it makes or "
            "closes over. If it is a function of Tensors, call it as it is, without from_jax; else make the "
            "Tensor that it closes over an argument, or write x.array for its value now"
        )
    if callable(x):
        raise ArgumentError(
            f"from_jax: {name} returned {describe(x)} among its results, which must be arrays: leave it "
            "out, as in fad.from_jax(lambda tree: ravel_pytree(tree)[0])"
        )
    return x


def to_jax(f: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A fad function as a pure JAX function of arrays, for ``jax.jit``, ``jax.grad``, optax and so on.

    Arguments:
        f: a function of Tensors; it must not change anything outside of itself.

    Returns:
        A function that takes and returns pytrees of JAX arrays.

    Raises:
        LevelError: the result depends on a Tensor of a running fad transform that f closes over.
        GradientError: JAX traces f, which calls ``backward()`` for a leaf from outside.

    >>> import fad, fad.numpy as fnp, jax
    >>> float(jax.jit(jax.grad(fad.to_jax(lambda x: x * fnp.cos(x))))(0.0))
    1.0
    """
    if not callable(f):
        raise TypeError(f"to_jax: the first argument must be a function, got {describe(f)}")

    @functools.wraps(f, updated=())
    def wrapped(*args: PyTree, **kwargs: PyTree) -> PyTree:
        if not jaxapi.is_tracing():
            return run(*args, **kwargs)
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=_is_tensor)
        traced = [isinstance(x, jax.core.Tracer) for x in leaves]
        results: list[PyTree] = []

        def flat(*values: Array) -> list[Array]:
            rest = iter(values)
            inside = [next(rest) if t else x for x, t in zip(leaves, traced, strict=True)]
            args, kwargs = jax.tree.unflatten(structure, inside)
            outs, out_structure = jax.tree.flatten(run(*args, **kwargs))
            results.append((outs, out_structure))
            return [x for x in outs if isinstance(x, jax.Array)]

        tracers = [x for x, t in zip(leaves, traced, strict=True) if t]
        closed, _ = rolling_protocol.roll(trace(flat, tracers)[0])
        arrays = iter(bind_jaxpr(closed)(*closed.consts, *tracers))
        outs, out_structure = results[-1]
        outs = [next(arrays) if isinstance(x, jax.Array) else x for x in outs]
        return jax.tree.unflatten(out_structure, outs)

    def run(*args: PyTree, **kwargs: PyTree) -> PyTree:
        level = _ToJaxLevel()  # Tensors made in f have a `born` from its id on
        inside, inside_kwargs = enter((args, kwargs))
        with modes(pure=state.pure if jaxapi.at_top_level() else level, calls={}):
            out = leave(f(*inside, **inside_kwargs), False)
        return trees.map_leaves(lambda x: _bare(x, level.id), out)

    return wrapped


def _is_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


class _ToJaxLevel(Level):
    """Stands for a call of a function that `to_jax` returned."""

    __slots__ = ()

    kind = "to_jax"
    settings = ()


def _bare(x: object, began: int) -> PyTree:
    if isinstance(x, Tensor):
        if x.level is ROOT and all([leaf.born >= began for leaf in leaves_of(x)]):
            return x.value  # recorded in f alone: no code outside differentiates it
        raise LevelError(
            f"to_jax: the result {describe(x)} belongs to {x.level!r} or to the eager graph, so as an "
            "array it would lose its derivative: pass the Tensor that the function closes over as an "
            "argument, or use stop_gradient on it"
        )
    return x
