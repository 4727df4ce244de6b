"""What `gradcheck` checks: a function of the leaves of its inputs that have derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fad import Tensor, extend, tensor
from fad.errors import FadError, describe
from fad.testing.comparison import bare


class GradcheckError(FadError):
    """A derivative is not what finite differences say.

    >>> import fad, numpy as np
    >>> from fad.testing import gradcheck
    >>> gradcheck(lambda x: x * fad.stop_gradient(x), (np.array(3.0),))
    Traceback (most recent call last):
    fad.testing.GradcheckError: Jacobian mismatch
    """


@dataclasses.dataclass
class Problem:
    """A function of the leaves that are checked, and what these are called."""

    func: Callable[..., Any]
    leaves: list[Any]
    structure: Any
    checked: list[int]
    names: list[str]
    spread: bool
    avals: list[Any] | None = None  # shapes and dtypes of the outputs of the first call

    def call(self, xs: Sequence[Any]) -> list[Any]:
        """The outputs of floating or complex dtype, for these values of the checked leaves."""
        leaves = list(self.leaves)
        for k, x in zip(self.checked, xs, strict=True):
            leaves[k] = x
        inputs = extend.unflatten(self.structure, leaves)
        out = self.func(*inputs) if self.spread else self.func(inputs)
        arrays = [
            o for o in extend.flatten(out)[0] if isinstance(o, (Tensor, jax.Array, np.ndarray))
        ]
        arrays = [o for o in arrays if jnp.issubdtype(o.dtype, jnp.inexact)]
        avals = [(tuple(o.shape), o.dtype) for o in arrays]
        if self.avals is None:
            self.avals = avals
        if avals != self.avals:
            raise GradcheckError(
                f"the outputs must have the same shapes and dtypes for all inputs, got {avals} at "
                f"perturbed inputs and {self.avals} before: a derivative is not defined where they "
                "depend on values"
            )
        return arrays

    def numbers(self, xs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`call` from arrays to arrays; the function gets Tensors that require grad, as in PyTorch."""
        return [bare(o) for o in self.call([tensor(x, requires_grad=True) for x in xs])]

    def variables(self) -> list[Tensor]:
        """The checked leaves as fresh Tensors of the eager graph."""
        return [tensor(self.leaves[k], requires_grad=True) for k in self.checked]

    def values(self) -> list[np.ndarray]:
        """The checked leaves as arrays."""
        return [np.asarray(self.leaves[k]) for k in self.checked]


def problem_of(func: Callable[..., Any], inputs: Any, who: str) -> Problem:
    if not callable(func):
        raise TypeError(f"{who}: the first argument must be a function, got {describe(func)}")
    spread = isinstance(inputs, (tuple, list))
    leaves, structure = extend.flatten(tuple(inputs) if spread else inputs)
    names = extend.path_names(tuple(inputs) if spread else inputs)
    tracked = [isinstance(x, Tensor) and x.requires_grad for x in leaves]
    kinds = (Tensor, jax.Array, np.ndarray, np.generic, float, complex)
    checked = []
    for k, x in enumerate(leaves):
        if not isinstance(x, kinds):
            continue
        array = np.asarray(x.detach().array if isinstance(x, Tensor) else x)
        if jnp.issubdtype(array.dtype, jnp.inexact):
            array = np.asarray(array, np.complex128 if np.iscomplexobj(array) else np.float64)
            if tracked[k] or not any(tracked):
                checked.append(k)
            leaves[k] = array if k in checked else tensor(array)
    if not checked:
        raise ValueError(
            f"{who} expects at least one input of floating or complex dtype, got "
            f"{', '.join(map(describe, leaves)) or 'no input'}"
        )
    return Problem(func, leaves, structure, checked, names, spread)
