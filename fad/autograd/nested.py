"""``NestedIOFunction``: a Function with methods of its instance, over nested inputs and outputs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self

import jax
from jax import tree_util

from fad import Function, Tensor
from fad.autograd import once_differentiable
from fad.autograd.function import FunctionCtx
from fad.errors import RuleError
from fad.extend.types import PyTree, Value

_STATIC = ("forward", "setup_context", "backward", "vjp", "jvp", "vmap")


class NestedIOFunction(Function):
    """A custom operation whose ``self`` is the ctx, and whose inputs and outputs are nested.

    Subclass it with two methods:

    * ``forward_extended(self, *inputs)`` computes the output. Inputs and outputs are pytrees:
      Tensors in tuples, lists, dicts, or other containers that JAX knows.
    * ``backward_extended(self, *gradients)`` gives the gradients of the inputs: one for each input,
      nested like it (None where there is none), or all of them in one flat sequence. It gets the
      gradients nested as the output was, one argument for each entry of a tuple or list. If it is
      left out, it is derived from ``forward_extended``.

    In them ``self`` is the ctx of one call: attributes set in forward are there in backward. What an
    ``__init__`` set is there in both.

    Call it as ``F.apply(*inputs)``, or with constructor arguments as ``F(...)(*inputs)``. It records,
    and works under every transform, as `fad.Function` does.

    Raises:
        RuleError: when the class is made, and it defines a static rule of `fad.Function`, such as
            ``forward``.

    Source: ``torch.autograd.function.NestedIOFunction``, whose own calls fail in PyTorch 2.13.

    >>> import fad
    >>> class Scale(fad.autograd.NestedIOFunction):
    ...     def __init__(self, factor):
    ...         self.factor = factor
    ...     def forward_extended(self, inputs):
    ...         return {name: [self.factor * x for x in xs] for name, xs in inputs.items()}
    ...     def backward_extended(self, grads):
    ...         return {name: [self.factor * g for g in gs] for name, gs in grads.items()}
    >>> def total(inputs):
    ...     out = Scale(3.0)(inputs)
    ...     return out["a"][0] * out["a"][1] + out["b"][0]
    >>> inputs = {"a": [fad.tensor(2.0), fad.tensor(5.0)], "b": [fad.tensor(1.0)]}
    >>> {name: [float(g) for g in gs] for name, gs in fad.grad(total)(inputs).items()}
    {'a': [45.0, 18.0], 'b': [3.0]}
    """

    _ctx: FunctionCtx
    _saved_structure: tree_util.PyTreeDef
    _input_structure: tree_util.PyTreeDef

    def __init_subclass__(cls, **kwargs: PyTree) -> None:
        name = cls.__name__
        for rule in _STATIC:
            if rule in cls.__dict__:
                instead = "forward_extended" if rule == "forward" else "backward_extended"
                raise RuleError(
                    f"{name} defines {rule}: a NestedIOFunction defines forward_extended and "
                    f"backward_extended; write {instead}, or subclass fad.Function"
                )
        for method in ("forward_extended", "backward_extended"):
            if isinstance(cls.__dict__.get(method), (staticmethod, classmethod)):
                raise RuleError(
                    f"{name}.{method} is a method of the instance: leave @staticmethod out; self is "
                    "the ctx"
                )
        if hasattr(cls, "forward_extended"):
            cls.forward = staticmethod(_forward)
            backward = getattr(cls, "backward_extended", None)
            cls.backward = None
            if backward is not None:
                cls.backward = staticmethod(_backward_of(cls, backward))
        super().__init_subclass__(**kwargs)

    def __init__(self) -> None:
        pass

    def __call__(self, *inputs: PyTree) -> PyTree:
        """`apply` with what ``__init__`` set on this instance."""
        cls = type(self)
        if not hasattr(cls, "forward_extended"):
            raise RuleError(
                f"{cls.__name__} has no forward_extended: write forward_extended(self, *inputs)"
            )
        return super().apply(_InstanceAttributes(cls, dict(vars(self))), *inputs)

    @classmethod
    def apply(cls, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Call the Function on nested inputs; see `NestedIOFunction`.

        Arguments:
            args: the inputs: pytrees of Tensors, arrays, and what forward_extended takes besides.

        Returns:
            The output, nested as forward_extended returned it.

        Raises:
            TypeError: there are keyword arguments, or ``__init__`` needs some.
            RuleError: a method returned something of the wrong form.
        """
        if kwargs:
            raise TypeError(
                f"{cls.__name__}.apply takes positional arguments only, got {', '.join(kwargs)}"
            )
        return cls()(*args)

    # What methods of the class may use, as ctx.

    def _context(self, method: str) -> FunctionCtx:
        ctx = vars(self).get("_ctx")
        if ctx is None:
            raise RuleError(
                f"{type(self).__name__}: self.{method} is for forward_extended and "
                "backward_extended, while they run"
            )
        return ctx

    def save_for_backward(self, *args: PyTree) -> None:
        """Keep nested Tensors for backward_extended, which reads them as ``self.saved_tensors``."""
        ctx = self._context("save_for_backward")
        leaves, self._saved_structure = _flatten(args)
        ctx.save_for_backward(*leaves)

    @property
    def saved_tensors(self) -> PyTree:
        """What was saved, nested as it was: a tuple of the arguments of `save_for_backward`."""
        saved = self._context("saved_tensors").saved_tensors
        structure = vars(self).get("_saved_structure")
        return saved if structure is None else structure.unflatten(saved)

    def mark_dirty(self, *args: PyTree, **kwargs: PyTree) -> None:
        """Say that forward changed the Tensors in these inputs in place; they must be outputs too."""
        self._context("mark_dirty").mark_dirty(*_tensors((args, kwargs)))

    def mark_non_differentiable(self, *args: PyTree, **kwargs: PyTree) -> None:
        """Say that the Tensors in these outputs have no derivative."""
        self._context("mark_non_differentiable").mark_non_differentiable(*_tensors((args, kwargs)))

    def set_materialize_grads(self, value: bool) -> None:
        """Whether zero gradients reach backward_extended as zeros (default) or as None."""
        self._context("set_materialize_grads").set_materialize_grads(value)

    @property
    def saved_data(self) -> dict[object, PyTree]:
        """A dict for anything."""
        return self._context("saved_data").saved_data

    @property
    def needs_input_grad(self) -> tuple[bool, ...]:
        """For each input, whether a gradient of a Tensor in it may be wanted."""
        return self._context("needs_input_grad").needs_input_grad[1:]

    @classmethod
    @contextlib.contextmanager
    def _bound(cls, ctx: FunctionCtx) -> Iterator[Self]:
        """An instance whose attributes are those of ``ctx``, for the time of a method."""
        run = object.__new__(cls)
        run.__dict__ = attributes = vars(ctx)
        attributes["_ctx"] = ctx
        try:
            yield run
        finally:
            attributes.pop("_ctx", None)


@dataclasses.dataclass(slots=True)
class _InstanceAttributes:
    """What ``__init__`` set on an instance, as an argument of forward; equal by value."""

    cls: type[NestedIOFunction]
    attributes: dict[str, object]

    def __hash__(self) -> int:
        return hash((self.cls, *self.attributes))


def _forward(ctx: FunctionCtx, settings: _InstanceAttributes, *inputs: PyTree) -> PyTree:
    vars(ctx).update(settings.attributes)
    vars(ctx)["_input_structure"] = _flatten(inputs)[1]
    method: Any = settings.cls
    with settings.cls._bound(ctx) as run:
        return method.forward_extended(run, *inputs)


def _backward_of(cls: Any, method: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``backward_extended`` as the rule of a Function."""
    once = hasattr(method, "once_differentiable")
    method = method.__wrapped__ if once else method  # type: ignore[attr-defined]

    def backward(ctx: FunctionCtx, *gradients: PyTree) -> tuple[PyTree, ...]:
        with cls._bound(ctx) as run:
            grads = method(run, *gradients)
            structure = run._input_structure
        leaves = _flatten(grads)[0]
        count = len(ctx.needs_input_grad) - 1
        if len(leaves) == structure.num_leaves:
            grads = structure.unflatten(leaves)
        elif not isinstance(grads, (tuple, list)) or (count == 1 and len(grads) != 1):
            grads = (grads,)
        return (None, *grads)

    backward.__qualname__ = f"{cls.__name__}.backward_extended"
    return once_differentiable(backward) if once else backward


def _tensors(tree: PyTree) -> list[Value]:
    return [x for x in _flatten(tree)[0] if isinstance(x, (Tensor, jax.Array))]


def _flatten(tree: PyTree) -> tuple[list[PyTree], tree_util.PyTreeDef]:
    """Leaves, None among them, and structure."""
    return tree_util.tree_flatten(tree, is_leaf=lambda x: x is None or isinstance(x, Tensor))
