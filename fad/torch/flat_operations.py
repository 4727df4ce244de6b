"""Operations of two libraries: a function of flat arrays, with the functions that are derived from it.

NOTE [an operation and those derived from it]

`from_torch` gives fad a function that PyTorch computes, and `to_torch` gives PyTorch one that fad computes.
Both need the same three functions of it: its pullback, its derivative along tangents, and the function of a
batch. Each is made by the library that computes (``torch.func`` or `fad.func`, whose names, arguments and
results are the same), and is again an operation. So the set is closed: any order of any transforms is one
call of the other library. Both take the gradient of PyTorch for complex numbers.

An operation is made for arguments of certain shapes and dtypes, so the shapes of its results are known
without a call, which is what compiled code needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from fad import extend
from fad.errors import ArgumentError, describe
from fad.extend.types import PyTree, Rest

T = TypeVar("T")
Mask: TypeAlias = tuple[bool, ...]

# An array of one of the two libraries: a `torch.Tensor`, or a Tensor or an array.
Flat: TypeAlias = Any
Structs = tuple[jax.ShapeDtypeStruct, ...]


class MadeOnce(Generic[T]):
    """A bounded table: what is made for a key is made once, as long as it is among the last 256."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places = functools.lru_cache(maxsize=256)(lambda *key: [])

    def get(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """What was made for the key; ``make`` makes it where there is none."""
        place: list[T] = self._places(*key)
        if not place:
            place.append(make())
        return place[0]


def spread(mask: Sequence[bool], some: Iterable[T]) -> list[T | None]:
    """None for each, with ``some`` in the masked places."""
    items = iter(some)
    return [next(items) if m else None for m in mask]


class Library(Protocol):
    """``torch.func`` or `fad.func`."""

    vjp: Callable[..., PyTree]
    jvp: Callable[..., PyTree]
    vmap: Callable[..., PyTree]


class FlatOperation:
    """A function of flat arrays of one library: a tuple of arrays comes out.

    Attributes:
        name: the name for errors and graphs.
        fn: the function.
        library: what derives other functions from it.
        arguments, results: shapes and dtypes.
        compiled: whether it, and what is derived from it, is compiled by JAX.
        derived: whether it is a derivative or a batch of another one.
        function: what it is in the library that it is for, once it has been made.
    """

    __slots__ = (
        "_derived",
        "arguments",
        "compiled",
        "derived",
        "fn",
        "function",
        "library",
        "name",
        "results",
    )

    def __init__(
        self,
        name: str,
        fn: Callable[..., tuple[Flat, ...]],
        library: Library,
        arguments: Sequence[jax.ShapeDtypeStruct],
        results: Sequence[jax.ShapeDtypeStruct],
        compiled: bool = False,
        derived: bool = False,
    ) -> None:
        self.name = name
        self.fn = fn
        self.library = library
        self.arguments: Structs = tuple(arguments)
        self.results: Structs = tuple(results)
        self.compiled = compiled
        self.derived = derived
        self.function: Any = None
        self._derived: MadeOnce[FlatOperation] = MadeOnce()

    @property
    def differentiable(self) -> Mask:
        """Which results have a derivative: those of floating or complex dtype."""
        return tuple([jnp.issubdtype(x.dtype, jnp.inexact) for x in self.results])

    def vjp(self, need: Mask, have: Mask) -> FlatOperation:
        """``(*arguments, *cotangents) -> gradients``.

        Arguments:
            need: of which arguments the gradient is wanted.
            have: which results have a cotangent.
        """
        count = len(need)

        def pull(*values: Flat) -> tuple[Flat, ...]:
            primals, cotangents = values[:count], values[count:]
            part, differentiated = _part(self.fn, primals, need, have)
            return tuple(self.library.vjp(part, *differentiated)[1](tuple(cotangents)))

        arguments = (*self.arguments, *compress(self.results, have))
        results = list(compress(self.arguments, need))
        return self._derive(("vjp", need, have), pull, arguments, results)

    def jvp(self, mask: Mask) -> FlatOperation:
        """``(*arguments, *tangents) -> tangents`` of the results that are differentiable.

        Arguments:
            mask: which arguments have a tangent.
        """
        count, have = len(mask), self.differentiable

        def push(*values: Flat) -> tuple[Flat, ...]:
            primals, tangents = values[:count], values[count:]
            part, differentiated = _part(self.fn, primals, mask, have)
            try:
                return tuple(self.library.jvp(part, tuple(differentiated), tuple(tangents))[1])
            except NotImplementedError:  # PyTorch has no forward derivative of something in fn
                return _transposed_twice(self.library, part, differentiated, tangents)

        arguments = (*self.arguments, *compress(self.arguments, mask))
        results = list(compress(self.results, have))
        return self._derive(("jvp", mask), push, arguments, results)

    def batched(self, dims: Sequence[int | None], size: int, randomness: str) -> FlatOperation:
        """The function of ``size`` lanes, which come out along dimension 0.

        Arguments:
            dims: the batch dimension of each argument, None for those without.
            size: how many lanes there are.
            randomness: that of ``vmap``.
        """
        mapped = self.library.vmap(self.fn, tuple(dims), 0, randomness=randomness)
        arguments = [_lanes(x, d, size) for x, d in zip(self.arguments, dims, strict=True)]
        results = [_lanes(x, 0, size) for x in self.results]
        return self._derive(("vmap", tuple(dims), size, randomness), mapped, arguments, results)

    def _derive(
        self,
        key: tuple[str, *tuple[Hashable, ...]],
        fn: Callable[..., tuple[Flat, ...]],
        arguments: Sequence[jax.ShapeDtypeStruct],
        results: Sequence[jax.ShapeDtypeStruct],
    ) -> FlatOperation:
        """The operation with this key, which is made once."""
        name = f"{self.name}.{key[0]}"
        return self._derived.get(
            key,
            lambda: FlatOperation(name, fn, self.library, arguments, results, self.compiled, True),
        )


def flattened(
    f: Callable[..., PyTree],
    rest: Rest,
    kinds: type | tuple[type, ...],
    expected: str,
    advice: str,
) -> tuple[Callable[..., tuple[Flat, ...]], Callable[[Sequence[Flat]], PyTree]]:
    """``f`` as a function of flat arrays, and a function that puts its results into what ``f`` returned last.

    Arguments:
        f: a function of pytrees.
        rest: its arguments, without the arrays.
        kinds: the types of the arrays that it returns.
        expected, advice: what the error says for a result of another type.

    Raises (when it is called):
        ArgumentError: a result is no array.
    """
    form: list[PyTree] = []

    def fn(*arrays: Flat) -> tuple[Flat, ...]:
        args, kwargs = rest.combine(arrays)
        tree = f(*args, **kwargs)
        leaves, structure = extend.flatten(tree)
        form[:] = [structure, extend.skeleton(tree)]
        for x in leaves:
            if not isinstance(x, kinds):
                raise ArgumentError(
                    f"{expected}, got {describe(x)} in what it returns: write {advice}"
                )
        return tuple(leaves)

    return fn, lambda outs: extend.unflatten(form[0], outs, form[1])


def _lanes(struct: jax.ShapeDtypeStruct, dim: int | None, size: int) -> jax.ShapeDtypeStruct:
    if dim is None:
        return struct
    shape = list(struct.shape)
    shape.insert(dim, size)
    return jax.ShapeDtypeStruct(tuple(shape), struct.dtype)


def _part(
    fn: Callable[..., tuple[Flat, ...]], values: Sequence[Flat], mask: Mask, have: Mask
) -> tuple[Callable[..., tuple[Flat, ...]], list[Flat]]:
    """``fn`` of the arguments in ``mask``, with the results in ``have``; and these arguments."""

    def part(*differentiated: Flat) -> tuple[Flat, ...]:
        new = iter(differentiated)
        mixed = [next(new) if m else v for m, v in zip(mask, values, strict=True)]
        return tuple(compress(fn(*mixed), have))

    return part, list(compress(values, mask))


def _transposed_twice(
    library: Library, part: Callable[..., PyTree], primals: Sequence[Flat], tangents: Sequence[Flat]
) -> tuple[Flat, ...]:
    """The derivative along tangents, from pullbacks alone: a pullback is linear in its cotangents."""
    outs, pullback = library.vjp(part, *primals)
    _, again = library.vjp(lambda *g: pullback(g), *[x * 0 for x in outs])
    return tuple(again(tuple(tangents)))
