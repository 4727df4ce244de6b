"""``custom_rules``: a function with rules in the form of JAX's custom_jvp, custom_vjp and custom_vmap.

NOTE [a function with rules is a Function]

A Function class with ``jax_rules`` is made of the function and its rules at the first call. What is in JAX's
form and not in a Function's is translated here, around each body: arguments without a derivative go first,
residuals are a pytree, the batch dimension is 0, complex cotangents are conjugated, zeros may be symbolic.
``forward`` is the function where no input needs a gradient, and the rule's ``fwd`` elsewhere; so ``fwd`` may
call the function itself, as it often does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from fad import Function, Tensor
from fad.autograd.function import FunctionCtx
from fad.errors import RuleError, StructureError, describe
from fad.extend import HOST_ERRORS, Static, flatten, map_leaves, partition, unflatten
from fad.extend.types import Array, PyTree

# Leaves that may have a derivative, and those that have none.
SCALARS = (Tensor, jax.Array, np.ndarray, np.generic, float, complex)
INERT = (
    *(bool, int, str, bytes, type, np.dtype, np.integer, np.bool_, slice),
    *(jax.tree_util.PyTreeDef, Static),
)


def custom_rules(
    f: Callable[..., PyTree] | None = None,
    *,
    nondiff_argnums: int | Sequence[int] = (),
    nondiff_argnames: str | Sequence[str] = (),
) -> PyTree:
    """``f`` with rules in JAX's form: ``custom_jvp``, ``custom_vjp`` and ``custom_vmap`` in one.

    The result has these methods. Each may be used or not, in any order; rules that are missing are derived,
    and all of them hold under every transform of fad and of JAX, in any order.

    * ``defvjp(fwd, bwd)``: ``fwd(*args)`` returns ``(out, residuals)``; ``bwd(residuals, g)`` returns a tuple
      with a gradient, or None, for each argument.
    * ``defjvp(rule)``: ``rule(primals, tangents)`` returns ``(out, tangent of out)``.
    * ``defjvps(*rules)``: a rule, or None, for each argument: ``rule(tangent, out, *primals)``.
    * ``defvmap(rule)``, or ``def_vmap``: ``rule(axis_size, in_batched, *args)`` returns
      ``(out, out_batched)``; what is batched is so along dimension 0.

    Bodies compute with JAX arrays, as under ``jax.jit``: ``jax.numpy`` and ``fad.numpy`` both do. Complex
    cotangents are JAX's.

    Arguments:
        f: the function, of pytrees of arrays; anything but an array or a float is passed on as it is.
            Without it, ``custom_rules`` returns a decorator.
        nondiff_argnums, nondiff_argnames: arguments without a derivative. They come first in ``bwd`` and in
            the rule of ``defjvp``, and Python numbers among them stay what they are.

    Returns:
        A function with f's arguments, results, signature and documentation.

    Raises:
        RuleError: a rule takes a wrong number of arguments, or returns something of the wrong form.
        StructureError: f has no such argument as is named.

    Source: ``jax.custom_jvp``, ``jax.custom_vjp``, ``jax.custom_batching.custom_vmap``.

    >>> import fad, jax, jax.numpy as jnp
    >>> @fad.custom_rules
    ... def log1pexp(x):
    ...     return jnp.log1p(jnp.exp(x))
    >>> log1pexp.defvjp(lambda x: (log1pexp(x), x), lambda x, g: (g * jax.nn.sigmoid(x),))
    >>> float(fad.grad(log1pexp)(100.0)), float(jax.jvp(log1pexp, (100.0,), (1.0,))[1])
    (1.0, 1.0)
    """

    def decorate(f: Callable[..., PyTree]) -> PyTree:
        rules = _Definition(f, nondiff_argnums, nondiff_argnames)

        @functools.wraps(f, updated=())
        def function(*args: PyTree, **kwargs: PyTree) -> PyTree:
            return rules(args, kwargs)

        for name in ("defvjp", "defjvp", "defjvps", "defvmap"):
            setattr(function, name, getattr(rules, name))
        function.def_vmap = rules.defvmap  # type: ignore[attr-defined]
        return function

    return decorate if f is None else decorate(f)


class _Definition:
    """A function, its rules, and the Function class that is made of them."""

    def __init__(
        self, f: Callable[..., PyTree], nums: int | Sequence[int], names: str | Sequence[str]
    ) -> None:
        if not callable(f):
            raise TypeError(
                f"custom_rules: the first argument must be a function, got {describe(f)}"
            )
        self.f = f
        self.name: str = getattr(f, "__name__", type(f).__name__)
        self.signature = inspect.signature(f)
        self.nondiff = _positions(self.signature, nums, names)
        kinds = [p.kind for p in self.signature.parameters.values()]
        variadic = inspect.Parameter.VAR_POSITIONAL in kinds
        self.count = None if variadic else sum(k in _POSITIONAL for k in kinds)
        self.fwd: Callable[..., PyTree] | None = None
        self.bwd: Callable[..., PyTree] | None = None
        self.jvp: Callable[..., PyTree] | None = None
        self.vmap: Callable[..., PyTree] | None = None
        self.symbolic_vjp = self.symbolic_jvp = False
        self._made: type[Function] | None = None

    # Its rules

    def defvjp(
        self,
        fwd: Callable[..., PyTree],
        bwd: Callable[..., PyTree],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the reverse rule: ``fwd(*args) -> (out, residuals)`` and ``bwd(residuals, g) -> gradients``.

        Arguments:
            fwd, bwd: the rule. The arguments without a derivative come first in bwd, before the residuals.
            symbolic_zeros: fwd takes, for an array, a ``jax.custom_derivatives.CustomVJPPrimal``; a zero
                cotangent is a ``SymbolicZero``.
            optimize_remat: taken as JAX takes it, and without effect.
        """
        self._check(fwd, "fwd", self.count, "the function's own")
        self._check(bwd, "bwd", len(self.nondiff) + 2, self._form("residuals, g"))
        self.fwd, self.bwd, self.symbolic_vjp, self._made = fwd, bwd, symbolic_zeros, None

    def defjvp(
        self, jvp: Callable[..., PyTree], symbolic_zeros: bool = False
    ) -> Callable[..., PyTree]:
        """Set the forward rule: ``rule(primals, tangents) -> (out, tangent of out)``.

        Arguments:
            jvp: the rule. The arguments without a derivative come first.
            symbolic_zeros: a zero tangent is a ``SymbolicZero``.

        Returns:
            The rule, so that this may be used as a decorator.
        """
        self._check(
            jvp, "the rule of defjvp", len(self.nondiff) + 2, self._form("primals, tangents")
        )
        self.jvp, self.symbolic_jvp, self._made = jvp, symbolic_zeros, None
        return jvp

    def defjvps(self, *jvps: Callable[..., PyTree] | None) -> None:
        """Set the forward rule, by a rule for each argument, or None: ``rule(tangent, out, *primals)``."""
        if self.nondiff:
            raise RuleError(
                f"{self.name}.defjvps: there are arguments without a derivative (nondiff_argnums): use defjvp"
            )
        if self.count not in (None, len(jvps)):
            raise RuleError(
                f"{self.name}.defjvps got {len(jvps)} rules, expected {self.count}: one for each argument, "
                "None where the tangent is zero"
            )
        for k, rule in enumerate(jvps):
            if rule is not None:
                count = None if self.count is None else self.count + 2
                self._check(rule, f"rule {k} of defjvps", count, "(tangent, out, *primals)")

        def jvp(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
            out = self.f(*primals)
            parts = [
                rule(t, out, *primals)
                for rule, t in zip(jvps, tangents, strict=True)
                if rule is not None and t is not None
            ]
            total = jax.tree.map(jnp.zeros_like, out)
            return out, functools.reduce(functools.partial(jax.tree.map, jnp.add), parts, total)

        self.defjvp(jvp)

    def defvmap(self, rule: Callable[..., PyTree]) -> Callable[..., PyTree]:
        """Set the batching rule: ``rule(axis_size, in_batched, *args) -> (out, out_batched)``.

        Returns:
            The rule, so that this may be used as a decorator.
        """
        count = None if self.count is None else self.count + 2
        self._check(rule, "the rule of defvmap", count, "(axis_size, in_batched, *args)")
        self.vmap, self._made = rule, None
        return rule

    def _form(self, last: str) -> str:
        names = list(self.signature.parameters)
        return f"({', '.join([*[names[i] for i in self.nondiff], last])})"

    def _check(self, rule: object, what: str, count: int | None, form: str) -> None:
        """Refuse a rule that cannot take so many arguments."""
        if not callable(rule):
            raise RuleError(f"{self.name}: {what} must be a function, got {describe(rule)}")
        try:
            least, most = _arity(rule)
        except (TypeError, ValueError):  # not written in Python
            return
        if count is not None and not least <= count <= most:
            raise RuleError(
                f"{self.name}: {what} takes {most if most < count else least} positional arguments, "
                f"expected {count}: {form}"
            )

    # Its calls

    def __call__(self, args: tuple[PyTree, ...], kwargs: dict[str, PyTree]) -> PyTree:
        if kwargs or len(args) != self.count:
            args = self._by_position(args, kwargs)
        made = self._made
        if made is None:
            made = self._made = self._make()
        return made.apply(*[self._hold(i, a) for i, a in enumerate(args)])

    def _by_position(
        self, args: tuple[PyTree, ...], kwargs: dict[str, PyTree]
    ) -> tuple[PyTree, ...]:
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}{self.signature}: {error}") from None
        if bound.kwargs:
            raise TypeError(
                f"{self.name}{self.signature}: rules take arguments by position, so there is no place for "
                f"{', '.join(bound.kwargs)}: make it a parameter that can be given by position"
            )
        bound.apply_defaults()
        return bound.args

    def _hold(self, i: int, arg: PyTree) -> PyTree:
        """An argument; numbers of Python in one without a derivative stay what they are."""
        if i not in self.nondiff:
            return arg
        return map_leaves(lambda x: Static(x) if type(x) in (float, complex) else x, arg)

    def _make(self) -> type[Function]:
        """The Function class."""
        members: dict[str, object] = {
            "__module__": getattr(self.f, "__module__", __name__),
            "__doc__": getattr(self.f, "__doc__", None),
            "__wrapped__": staticmethod(self.f),
            "jax_rules": True,
        }
        parameters = [p for p in self.signature.parameters.values() if p.kind in _ANY_POSITIONAL]
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY)
        parameters = [p.replace(default=p.empty) for p in parameters]
        if any(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters):
            context = context.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
            parameters = [
                p.replace(kind=context.kind) if p.kind is p.POSITIONAL_ONLY else p
                for p in parameters
            ]

        def member(body: Callable[..., PyTree], of: Callable[..., PyTree], what: str) -> PyTree:
            @functools.wraps(of, updated=())
            def run(*args: PyTree) -> PyTree:
                try:
                    return body(*args)
                except HOST_ERRORS as error:
                    raise self._host_error(what, error) from error

            run.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
            return run

        forward = member(self._forward, self.f, "the function")
        forward.__signature__ = inspect.Signature([context, *parameters])
        members["forward"] = staticmethod(forward)
        if self.bwd is not None:
            members["vjp"] = staticmethod(member(self._vjp, self.bwd, "bwd"))
        if self.jvp is not None:
            members["jvp"] = staticmethod(member(self._jvp, self.jvp, "the rule of defjvp"))
        if self.vmap is not None:
            members["vmap"] = staticmethod(member(self._vmap, self.vmap, "the rule of defvmap"))
        return type(self.name, (Function,), members)

    def _host_error(self, what: str, error: Exception) -> RuleError:
        return RuleError(
            f"{self.name}: {what} reads a number, and the bodies of custom_rules are compiled, as by "
            "jax.jit: write jnp.where or jax.lax.cond for a branch, name arguments that are no arrays in "
            "nondiff_argnums, or write a fad.Function, whose bodies may read numbers. "
            f"({error})"
        )

    # The bodies of the class

    def _split(self, args: Sequence[PyTree]) -> tuple[list[PyTree], tuple[PyTree, ...]]:
        """Arguments without a derivative, and the others."""
        rest = tuple([a for i, a in enumerate(args) if i not in self.nondiff])
        return [args[i] for i in self.nondiff], rest

    def _pair(self, rule: str, form: str, returned: PyTree) -> tuple[PyTree, PyTree]:
        results = bare_arrays(returned)
        if not isinstance(results, (tuple, list)) or len(results) != 2:
            raise RuleError(
                f"{self.name}: {rule} must return a pair ({form}), got {describe(results)}"
            )
        return results[0], results[1]

    def _forward(self, ctx: FunctionCtx, *args: PyTree) -> PyTree:
        static = [x for x in flatten(args)[0] if not isinstance(x, SCALARS)]
        statics = {id(x): Static(x) for x in static}
        ctx.set_materialize_grads(not (self.symbolic_vjp or self.symbolic_jvp))
        if self.jvp is not None:
            arrays, ctx.saved_data["primals"] = _pack(args, statics, self.name)
            ctx.save_for_forward(*arrays)
        if self.fwd is None or not any(ctx.needs_input_grad):
            out = bare_arrays(self.f(*args))
        else:
            out = self._forward_saving(ctx, self.fwd, args, statics)
        ctx.saved_data["container"] = type(out) if type(out) in (tuple, list) else None
        return out

    def _forward_saving(
        self,
        ctx: FunctionCtx,
        fwd: Callable[..., PyTree],
        args: Sequence[PyTree],
        statics: dict[int, Static],
    ) -> PyTree:
        arguments = list(args)
        if self.symbolic_vjp:
            for i, needs in enumerate(ctx.needs_input_grad):
                if i not in self.nondiff:
                    arguments[i] = jax.tree.map(functools.partial(_primal, needs), args[i])
        out, residuals = self._pair("fwd", "out, residuals", fwd(*arguments))
        if any([isinstance(x, Tensor) for x in flatten(out)[0]]):
            return out  # fwd closes over what is tracked, which is refused
        expected = jax.eval_shape(lambda: _numbers(_alike(bare_arrays(self.f(*args)))))
        shapes = jax.eval_shape(lambda: _numbers(out))
        if _in_words(shapes) != _in_words(expected):
            raise RuleError(
                f"{self.name}: the first of what fwd returns must be what the function returns, got "
                f"{_in_words(shapes)}, expected {_in_words(expected)}"
            )
        tree = (self._split(args)[0], residuals)
        arrays, ctx.saved_data["residuals"] = _pack(
            tree, statics, f"{self.name}: the residuals of fwd"
        )
        ctx.save_for_backward(*arrays)
        if self.symbolic_vjp:
            ctx.saved_data["outputs"] = Static(shapes)
        return out

    def _vjp(self, ctx: FunctionCtx, *cotangents: PyTree) -> tuple[PyTree, ...]:
        assert self.bwd is not None
        nondiff, residuals = ctx.saved_data["residuals"].value.combine(ctx.saved_tensors)
        kind = ctx.saved_data["container"]
        g = cotangents[0] if kind is None else kind(cotangents)
        if self.symbolic_vjp:
            g = _symbolic(g, ctx.saved_data["outputs"].value)
        grads = bare_arrays(self.bwd(*nondiff, residuals, map_leaves(_adjoint, g)))
        count = len(ctx.needs_input_grad) - len(self.nondiff)
        if not isinstance(grads, (tuple, list)) or len(grads) != count:
            got = f"{len(grads)} gradients" if isinstance(grads, (tuple, list)) else describe(grads)
            raise RuleError(
                f"{self.name}: bwd must return a tuple of {count}, a gradient or None for each argument "
                f"that has a derivative; got {got}"
            )
        rest = iter([map_leaves(lambda x: _adjoint(_nonzero(x)), g) for g in grads])
        return tuple(
            [None if i in self.nondiff else next(rest) for i in range(len(ctx.needs_input_grad))]
        )

    def _jvp(self, ctx: FunctionCtx, *tangents: PyTree) -> PyTree:
        assert self.jvp is not None
        args = ctx.saved_data["primals"].value.combine(ctx.saved_tensors)
        nondiff, primals = self._split(args)
        arguments = self._split(tangents)[1]
        if self.symbolic_jvp:
            arguments = tuple([_symbolic(t, p) for t, p in zip(arguments, primals, strict=True)])
        elif self.symbolic_vjp:
            arguments = tuple([_zeros(t, p) for t, p in zip(arguments, primals, strict=True)])
        returned = self.jvp(*nondiff, primals, arguments)
        _, tangent = self._pair("the rule of defjvp", "out, tangent of out", returned)
        return map_leaves(_nonzero, tangent)

    def _vmap(self, info: PyTree, in_dims: Sequence[PyTree], *packed: PyTree) -> PyTree:
        assert self.vmap is not None
        args: list[PyTree] = []
        batched: list[PyTree] = []
        for arg, dims in zip(packed, in_dims, strict=True):
            leaves, structure = flatten(arg)
            places = structure.flatten_up_to(dims)
            moved = [
                x if d is None else jnp.moveaxis(x, d, 0)
                for x, d in zip(leaves, places, strict=True)
            ]
            args.append(unflatten(structure, moved))
            batched.append(unflatten(structure, [d is not None for d in places]))
        returned = self.vmap(info.batch_size, batched, *args)
        out, flags = self._pair("the rule of defvmap", "out, out_batched", returned)
        for flag in jax.tree.leaves(flags, is_leaf=lambda x: x is None):
            if not isinstance(flag, bool):
                raise RuleError(
                    f"{self.name}: the second of what the rule of defvmap returns must say of each output "
                    f"whether it is batched, True or False; got {describe(flag)}"
                )
        return out, jax.tree.map(lambda flag: 0 if flag else None, flags)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANY_POSITIONAL = (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL)
_ARRAYS = tuple([t for t in SCALARS if t not in (float, complex)])


def _positions(
    signature: inspect.Signature, nums: int | Sequence[int], names: str | Sequence[str]
) -> list[int]:
    """Which positional arguments are named."""
    parameters = signature.parameters.values()
    positional = [p.name for p in parameters if p.kind in _POSITIONAL]
    kinds = {p.kind for p in parameters}
    count, places = len(positional), set()
    for n in (nums,) if isinstance(nums, int) else nums:
        if not -count <= n < count and inspect.Parameter.VAR_POSITIONAL not in kinds:
            raise StructureError(
                f"custom_rules: nondiff_argnums={nums!r} is out of range: the function takes {count} "
                "positional arguments"
            )
        places.add(n + count if n < 0 else n)
    for name in (names,) if isinstance(names, str) else names:
        if name not in signature.parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise StructureError(
                f"custom_rules: nondiff_argnames={names!r}: the function has no argument {name!r}, it has "
                f"{', '.join(sorted(signature.parameters)) or 'none'}"
            )
        places.update([k for k, other in enumerate(positional) if other == name])
    return sorted(places)


def _arity(f: Callable[..., object]) -> tuple[int, float]:
    """The smallest and the largest number of positional arguments that ``f`` takes."""
    parameters = inspect.signature(f).parameters.values()
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    least = sum(p.default is p.empty for p in positional)
    return least, float("inf") if variadic else len(positional)


def _is_inexact(x: Array) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.inexact))


def bare_arrays(tree: PyTree) -> PyTree:
    """What a body returned, with Tensors that it made itself as arrays; others stay what they are."""

    def bare(x: PyTree) -> PyTree:
        untracked = isinstance(x, Tensor) and x.level.kind == "eager" and not x.requires_grad
        return x.value if untracked else x

    return map_leaves(bare, tree)


def _alike(tree: PyTree) -> PyTree:
    """``tree`` with arrays of their shapes and dtypes for Tensors."""
    return map_leaves(lambda x: jnp.zeros(x.shape, x.dtype) if isinstance(x, Tensor) else x, tree)


def _pack(tree: PyTree, statics: dict[int, Static], what: str) -> tuple[list[PyTree], Static]:
    """The arrays of ``tree``, and the rest of it, in a form that a context keeps as a constant."""

    def one(x: PyTree) -> PyTree:
        if isinstance(x, SCALARS):
            return x
        if id(x) not in statics and not isinstance(x, INERT):
            raise RuleError(
                f"{what} must be a pytree of arrays, numbers and what the function was called with; got "
                f"{describe(x)} in it"
            )
        return statics.get(id(x)) or Static(x)

    arrays, template = partition(map_leaves(one, tree), SCALARS)
    return arrays, Static(template)


def _primal(needs: bool, x: Array) -> CustomVJPPrimal:
    return CustomVJPPrimal(x, needs and _is_inexact(x))


def _symbolic(tree: PyTree, like: PyTree) -> PyTree:
    """Cotangents or tangents with a SymbolicZero in the place of each None; ``like`` are what they are of."""
    return _filled(tree, like, lambda x: SymbolicZero(jax.typeof(x).to_tangent_aval()))


def _zeros(tree: PyTree, like: PyTree) -> PyTree:
    return _filled(tree, like, lambda x: jnp.zeros_like(x) if _is_inexact(x) else None)


def _filled(tree: PyTree, like: PyTree, zero: Callable[[PyTree], object]) -> PyTree:
    leaves, structure = flatten(like)
    pairs = zip(structure.flatten_up_to(tree), leaves, strict=True)
    return unflatten(
        structure,
        [zero(x) if t is None and isinstance(x, _SHAPED) else t for t, x in pairs],
    )


_SHAPED = (jax.Array, jax.ShapeDtypeStruct)


def _nonzero(x: PyTree) -> PyTree:
    """A leaf of what a rule returned; None for JAX's zeros."""
    if isinstance(x, SymbolicZero) or getattr(x, "dtype", None) == jax.dtypes.float0:
        return None
    return x


def _adjoint(x: PyTree) -> PyTree:
    """A cotangent of fad as JAX's, or the other way about."""
    conjugate: PyTree = jnp.conj
    return conjugate(x) if isinstance(x, _ARRAYS) and jnp.iscomplexobj(x) else x


def _numbers(tree: PyTree) -> PyTree:
    return map_leaves(lambda x: x if isinstance(x, SCALARS) else None, tree)


def _in_words(tree: PyTree) -> str:
    return str(map_leaves(lambda x: f"{x.dtype}{list(x.shape)}", tree)).replace("'", "")
