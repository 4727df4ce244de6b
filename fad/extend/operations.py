"""A tool: ``operation``, a JAX function as an operation, with hand-written rules where they are better."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp

from fad.errors import RuleError, describe
from fad.extend import Primitive, by_structure, flatten, unflatten
from fad.extend.types import Array, ArrayFunction, PyTree, Rest

P = ParamSpec("P")
R = TypeVar("R")

# The function of an operation, or a rule of it, as users write them.
Body: TypeAlias = Callable[..., PyTree]
# For each leaf of the arguments, the batched dimension.
Dims: TypeAlias = tuple[int | None, ...]


@overload
def operation(f: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def operation(
    *,
    jvp: Body | None = None,
    vjp: tuple[Body, Body] | None = None,
    batch: Body | None = None,
    name: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def operation(
    f: Body | None = None,
    /,
    *,
    jvp: Body | None = None,
    vjp: tuple[Body, Body] | None = None,
    batch: Body | None = None,
    name: str | None = None,
) -> Any:
    """Make an operation from a JAX function; a decorator, with or without arguments.

    An operation is one node of a graph and one compiled call, eagerly, under every transform and when it is
    replayed. Its rules are derived from the function. Where a derived rule is not the best, write it; it must
    give what the derived one gives (`fad.testing.check_operation` compares them). For another derivative,
    write a `fad.Function`.

    Arguments:
        f: a pure JAX function. Its positional arguments are pytrees of arrays and numbers, its keyword
            arguments are static and hashable; it returns a pytree of arrays.
        jvp: ``jvp(primals, tangents, **static)`` returns ``(output, tangent)``, as for ``jax.custom_jvp``.
        vjp: a pair ``(forward, backward)`` as for ``jax.custom_vjp``: ``forward(*args, **static)`` returns
            ``(output, residuals)``, and ``backward(residuals, cotangent, **static)`` a tuple with a
            cotangent for each positional argument, of its structure; None is zero. The convention for
            complex values is JAX's.
        batch: ``batch(size, dims, *args, **static)`` returns ``(output, output_dims)``. ``dims`` is a tuple
            with the batched dimension of each leaf of the arguments, None where it has none;
            ``output_dims`` is one for all outputs, or one for each leaf in a tuple.
        name: what graphs, profiles and errors call it; default the name of f.

    Returns:
        A function with the arguments of ``f`` that takes Tensors too; Tensors come out if one goes in.

    Raises:
        TypeError: ``f`` or a rule is not a function; in a call, a positional argument has a leaf that is
            not an array or a number, or a keyword argument is not hashable.
        RuleError: a rule returns something of another structure than the function does; or a body closes over
            a Tensor that a transform or a graph tracks.

    A rule is used wherever the derived one would be: under ``vmap``, the batched operation has batched rules.
    Higher derivatives come from differentiating the rule's code. Native JAX transforms differentiate ``f``.

    Source: rules have the forms of ``jax.custom_jvp``, ``jax.custom_vjp`` and
    ``jax.custom_batching.custom_vmap``.

    >>> import fad, jax, jax.numpy as jnp
    >>> @fad.extend.operation(jvp=lambda p, t: (jnp.tanh(*p), t[0] * (1.0 - jnp.tanh(*p) ** 2)))
    ... def tanh(x):
    ...     return jnp.tanh(x)
    >>> float(fad.grad(tanh)(0.0))
    1.0
    >>> tanh(fad.tensor(0.0, requires_grad=True)).grad_fn.name()
    'TanhBackward'
    """
    if f is None:
        return functools.partial(operation, jvp=jvp, vjp=vjp, batch=batch, name=name)
    if not callable(f):
        raise TypeError(f"operation: the first argument must be a function, got {describe(f)}")
    called = str(name or getattr(f, "__name__", type(f).__name__))
    for rule, body in (("jvp", jvp), ("batch", batch)):
        if body is not None and not callable(body):
            raise TypeError(f"{called}: {rule} must be a function, got {describe(body)}")
    is_pair = isinstance(vjp, tuple) and len(vjp) == 2 and all(map(callable, vjp))
    if vjp is not None and not is_pair:
        raise TypeError(
            f"{called}: vjp must be a pair of functions (forward, backward), got {vjp!r}"
        )

    def make(rest: Rest, pure: Callable[[Body], Body], **options: PyTree) -> Primitive:
        written = _WrittenRules(called, rest, pure)
        return Primitive(
            called,
            written.on_leaves(pure(f)),
            custom_jvp=None if jvp is None else written.custom_jvp(f, jvp),
            custom_vjp=None if vjp is None else written.custom_vjp(f, *vjp),
            custom_vmap=None if batch is None else written.custom_vmap(f, batch),
            **options,
        )

    return by_structure(f, called, make)


class _WrittenRules:
    """The function of an operation and its rules, for one structure of arguments; see `by_structure`."""

    def __init__(self, name: str, rest: PyTree, pure: Callable[[Body], Body]) -> None:
        self.name = name
        self.rest = rest
        self.pure = pure

    def on_leaves(self, f: Body) -> ArrayFunction:
        """The function ``f`` of pytrees as one of their leaves."""
        return lambda *leaves: f(*self.rest.combine(leaves))

    def pair(self, rule: str, form: str, returned: PyTree) -> tuple[PyTree, PyTree]:
        """What a rule that returns a pair returned; ``form`` says of what."""
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise RuleError(
                f"{self.name}: {rule} must return a pair ({form}), got {describe(returned)}"
            )
        first, second = returned
        return first, second

    def custom_jvp(self, f: Body, rule: Body) -> ArrayFunction:
        plain, rule = self.pure(f), self.pure(rule)

        def jvp(primals: Sequence[PyTree], tangents: Sequence[PyTree]) -> tuple[PyTree, PyTree]:
            returned = rule(primals, tangents)
            out, out_t = self.pair("jvp", "output, tangent", returned)
            self.check("jvp", out, plain, primals)
            self.check("jvp", out_t, plain, primals)
            return out, out_t

        custom = jax.custom_jvp(plain)
        custom.defjvp(jvp)
        return self.on_leaves(custom)

    def custom_vjp(self, f: Body, saving: Body, pulling: Body) -> ArrayFunction:
        plain, saving, pulling = map(self.pure, (f, saving, pulling))

        def forward(*args: PyTree) -> tuple[PyTree, PyTree]:
            out, residuals = self.pair("vjp", "output, residuals", saving(*args))
            self.check("vjp", out, plain, args)
            return out, residuals

        def backward(residuals: PyTree, cotangent: PyTree) -> tuple[PyTree, ...]:
            returned = pulling(residuals, cotangent)
            parts = self.rest.parts()
            if type(returned) is not tuple or len(returned) != len(parts):
                raise RuleError(
                    f"{self.name}: backward must return a tuple of {len(parts)}, a cotangent for each "
                    f"positional argument, got {describe(returned)}"
                )
            who = f"{self.name}: what backward returns for argument"
            each = enumerate(zip(parts, returned, strict=True))
            return tuple([part.combine(part.collect(c, f"{who} {k}")) for k, (part, c) in each])

        custom = jax.custom_vjp(plain)
        custom.defvjp(forward, backward)
        return self.on_leaves(custom)

    def custom_vmap(self, f: Body, rule: Body) -> Callable[[int, Dims], ArrayFunction]:
        plain, rule = self.pure(f), self.pure(rule)

        def batched(size: int, dims: Dims) -> ArrayFunction:
            def batch(*leaves: Array) -> PyTree:
                returned = rule(size, dims, *self.rest.combine(leaves))
                out, out_dims = self.pair("batch", "output, output_dims", returned)
                lanes = [_lane(x, d) for x, d in zip(leaves, dims, strict=True)]
                self.check("batch", out, plain, self.rest.combine(lanes))
                outs, structure = flatten(out)
                if type(out_dims) is not tuple:
                    out_dims = (out_dims,) * len(outs)
                moved = [_lanes_first(o, d, size) for o, d in zip(outs, out_dims, strict=True)]
                return unflatten(structure, moved)

            return batch

        return batched

    def check(self, rule: str, out: PyTree, plain: Body, args: Sequence[PyTree]) -> None:
        """Refuse what has another structure than the function returns."""
        structure = flatten(out)[1]
        expected = jax.tree.structure(jax.eval_shape(plain, *args))
        if structure != expected:
            raise RuleError(
                f"{self.name}: {rule} returned something of structure {structure}, the function returns "
                f"{expected}"
            )


def _lane(x: Array, dim: int | None) -> jax.ShapeDtypeStruct:
    """Shape and dtype of one lane of ``x``."""
    aval = jax.typeof(x)
    shape = aval.shape if dim is None else aval.shape[:dim] + aval.shape[dim + 1 :]
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _lanes_first(x: Array, dim: int | None, size: int) -> Array:
    """``x`` with its ``size`` lanes along dimension 0, also if all share it."""
    return jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
