"""``operation``: a JAX function as an operation of fad, with hand-written rules where they are better."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, overload

import jax

from fad.compile.signatures import OPERANDS
from fad.core import trees
from fad.core.caches import Cache, exact
from fad.core.jaxapi import axis_environment
from fad.core.level import outlived
from fad.core.primitive import Primitive, Rules
from fad.core.tensor import Tensor
from fad.core.trees import partition
from fad.core.types import Array, Dims, Outputs, PyTree
from fad.errors import RuleError, describe
from fad.functions.closures import closure_error_of, is_tracked
from fad.functions.context import Template
from fad.functions.user_rules import pair
from fad.tape.recorder import ROOT
from fad.tape.staged import code_of
from fad.tape.vmap import bind_code

P = ParamSpec("P")
R = TypeVar("R")

# The function of an operation, or a rule of it, as users write them.
Body: TypeAlias = Callable[..., PyTree]


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
    give what the derived one gives (`fad.testing.check_operation` compares them). For another derivative than
    that of the function, write a `fad.Function`.

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
        TypeError: ``f`` is no function, or a rule is none; in a call, a positional argument has a leaf that
            is no array or number, or a keyword argument is not hashable.
        RuleError: a rule returns something of another structure than the function does; or a body closes over
            a Tensor that a transform or a graph tracks.

    A rule is used wherever the derived one would be: under ``vmap``, the batched operation has batched rules.
    Higher derivatives are those of the rule's own code. Native JAX transforms derive their own.

    Source: the forms of the rules are those of ``jax.custom_jvp``, ``jax.custom_vjp`` and
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
    count = _made.get(code_of(f)) or _made.put(code_of(f), _TimesMade())
    count.made += 1
    made_anew = count.made > _FEW
    written = _WrittenRules(called, jvp, vjp, batch, made_anew)
    primitives = Cache()

    @functools.wraps(f, updated=())
    def run(*args: PyTree, **static: object) -> PyTree:
        leaves, rest = partition(args, OPERANDS, rest=Template)
        for x in rest.statics():
            if x is not None:
                raise TypeError(
                    f"{called}: positional arguments are arrays and numbers, got {describe(x)}. Pass what "
                    "is static by keyword."
                )
        try:
            named = tuple([(name, exact(static[name])) for name in sorted(static)])
            key = (rest, named, axis_environment())
        except TypeError as error:
            raise TypeError(
                f"{called}: keyword arguments are static and hashable: {error}"
            ) from None
        primitive = primitives.get(key)
        if primitive is None:
            primitive = primitives.put(key, written.primitive(f, rest, static))
        return primitive.unflatten(bind_code(primitive, [outlived(x) for x in leaves]))

    run.primitives = primitives  # type: ignore[attr-defined]
    if not made_anew:
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


class _WrittenRules:
    """The rules of an operation, as users write them."""

    def __init__(
        self,
        name: str,
        jvp: Body | None,
        vjp: tuple[Body, Body] | None,
        batch: Body | None,
        made_anew: bool,
    ) -> None:
        pair = vjp is None or (isinstance(vjp, tuple) and len(vjp) == 2 and all(map(callable, vjp)))
        if not pair:
            raise TypeError(
                f"{name}: vjp must be a pair of functions (forward, backward), got {vjp!r}"
            )
        for rule, given in (("jvp", jvp), ("batch", batch)):
            if given is not None and not callable(given):
                raise TypeError(f"{name}: {rule} must be a function, got {describe(given)}")
        self.name = name
        self.jvp = jvp
        self.vjp = vjp
        self.batch = batch
        self.made_anew = made_anew

    def primitive(self, f: Body, rest: Template, static: dict[str, object]) -> Primitive:
        """The Primitive for arguments with this rest, and these static ones."""

        def fn(*leaves: Array) -> PyTree:
            return self._arrays(f(*rest.combine(leaves), **static), f)

        given = (self.jvp, self.vjp, self.batch)
        rules = None if given == (None, None, None) else self._flat(fn, rest, static)
        anew = self.made_anew
        return Primitive(self.name, fn, deferrable=not anew, rules=rules, shared=anew)

    def _arrays(self, returned: PyTree, body: Body) -> PyTree:
        """What a body returned, with Tensors that it made itself as arrays.

        Raises:
            RuleError: there is another Tensor: the body closes over what a transform or a graph tracks.
        """

        def one(x: PyTree) -> PyTree:
            if not isinstance(x, Tensor):
                return x
            if x.level is ROOT and not x.requires_grad:
                return x.value
            raise closure_error_of(self.name, self.name, [body], x, is_tracked)

        return trees.map_leaves(one, returned)

    def _flat(self, fn: Body, rest: Template, static: dict[str, object]) -> Rules:
        """The rules as functions of leaves; ``fn`` is the function as one."""
        user_jvp, user_vjp, user_batch = self.jvp, self.vjp, self.batch
        structures: dict[int, trees.PyTreeDef] = {}

        def flat(rule: str, out: PyTree, inputs: Sequence[PyTree]) -> Outputs:
            """The one leaf of what a rule returned, or a tuple of its leaves, as a Primitive has them.

            It must have the structure of the output for these ``inputs``.
            """
            expected: trees.PyTreeDef = jax.tree_util.tree_structure(jax.eval_shape(fn, *inputs))
            leaves, own = trees.flatten(out)
            if own != expected:
                raise RuleError(
                    f"{self.name}: {rule} returned something of structure {own}, the function returns "
                    f"{expected}"
                )
            leaves = [x if isinstance(x, jax.Array) else jax.numpy.asarray(x) for x in leaves]
            if own == trees.LEAF:
                return leaves[0]
            structures[len(leaves)] = own
            return tuple(leaves)

        join = rest.combine

        def jvp(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Outputs, Outputs]:
            assert user_jvp is not None
            found = self._arrays(user_jvp(join(primals), join(tangents), **static), user_jvp)
            out, out_t = pair(f"{self.name}: jvp", "output, tangent", found)
            return flat("jvp", out, primals), flat("jvp", out_t, primals)

        def forward(*leaves: Array) -> tuple[Outputs, PyTree]:
            assert user_vjp is not None
            found = self._arrays(user_vjp[0](*join(leaves), **static), user_vjp[0])
            out, residuals = pair(f"{self.name}: vjp", "output, residuals", found)
            return flat("vjp", out, leaves), residuals

        def backward(residuals: PyTree, cotangents: Outputs) -> tuple[Array | None, ...]:
            assert user_vjp is not None
            if type(cotangents) is tuple:
                cotangents = trees.unflatten(structures[len(cotangents)], cotangents)
            found = self._arrays(user_vjp[1](residuals, cotangents, **static), user_vjp[1])
            return self._cotangents(found, rest)

        def batch(size: int, dims: Dims, *leaves: Array) -> tuple[Outputs, PyTree]:
            assert user_batch is not None
            found = self._arrays(user_batch(size, dims, *join(leaves), **static), user_batch)
            out, out_dims = pair(f"{self.name}: batch", "output, output_dims", found)
            outs = flat("batch", out, [_lane(x, d) for x, d in zip(leaves, dims, strict=True)])
            if type(outs) is tuple and type(out_dims) is not tuple:
                out_dims = (out_dims,) * len(outs)
            return outs, out_dims

        return Rules(
            structures,
            jvp if user_jvp is not None else None,
            (forward, backward) if user_vjp is not None else None,
            batch if user_batch is not None else None,
        )

    def _cotangents(self, found: PyTree, rest: Template) -> tuple[Array | None, ...]:
        """A cotangent for each leaf of the arguments; None stands for a whole argument too."""
        arguments = rest.parts()
        if type(found) is not tuple or len(found) != len(arguments):
            raise RuleError(
                f"{self.name}: backward must return a tuple of {len(arguments)}, a cotangent for each "
                f"positional argument, got {describe(found)}"
            )
        leaves: list[Array | None] = []
        for k, (own, given) in enumerate(zip(arguments, found, strict=True)):
            leaves += own.collect(given, f"{self.name}: what backward returns for argument {k}")
        return tuple(leaves)


def _lane(x: Array, dim: int | None) -> jax.ShapeDtypeStruct:
    """Shape and dtype of one lane of ``x``."""
    aval = jax.typeof(x)
    shape = aval.shape if dim is None else aval.shape[:dim] + aval.shape[dim + 1 :]
    return jax.ShapeDtypeStruct(shape, aval.dtype)
