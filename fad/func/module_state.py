"""Modules as functions of their Tensors: `functional_call`, `stack_module_state`.

A module is any object: its Tensors are those among its attributes, in the lists and dicts among them,
and in the attributes of the objects there. One that requires grad is a parameter, another one is a
buffer. Names are PyTorch's: attributes, keys and positions, joined by dots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import fad.numpy as fnp
from fad import Tensor
from fad.errors import GradientError, describe
from fad.extend.types import Operand, PyTree


def functional_call(
    module: Callable[..., PyTree],
    parameter_and_buffer_dicts: Mapping[str, Operand] | Sequence[Mapping[str, Operand]],
    args: PyTree = None,
    kwargs: Mapping[str, PyTree] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> PyTree:
    """Call a module with other Tensors in the places of its own.

    The module has its own Tensors again after the call. A module is called in one thread at a time.

    Arguments:
        module: a callable object with Tensors among its attributes, see `fad.func.module_state`.
        parameter_and_buffer_dicts: from names of Tensors to values; one such dict, or several.
        args: the positional arguments: a tuple, or one argument.
        kwargs: the keyword arguments.
        tie_weights: a value for one of several names of the same Tensor stands for all of them.
        strict: every Tensor of the module must have a value.

    Returns:
        What the module returns.

    Raises:
        GradientError: a name is not one of a Tensor of the module; with ``strict``, one is missing.
        ValueError: a name, or a tied Tensor, has several values.

    Source: ``torch.func.functional_call``.

    >>> import fad
    >>> class Line:
    ...     def __init__(self):
    ...         self.slope = fad.tensor(2.0, requires_grad=True)
    ...     def __call__(self, x):
    ...         return self.slope * x
    >>> def f(values):
    ...     return fad.func.functional_call(Line(), values, 3.0)
    >>> float(fad.grad(f)({"slope": fad.tensor(5.0)})["slope"])
    3.0
    """
    places = _places(module)
    values = _values(parameter_and_buffer_dicts)
    unexpected = sorted(values.keys() - places.keys())
    missing = sorted(places.keys() - values.keys()) if strict else []
    tied = {name: _tied(name, places) if tie_weights else [name] for name in values.keys() & places}
    if tie_weights:
        missing = [m for m in missing if not any([m in names for names in tied.values()])]
    if unexpected or missing:
        problems = [f"Unexpected key(s): {', '.join(map(repr, unexpected))}."] if unexpected else []
        problems += [f"Missing key(s): {', '.join(map(repr, missing))}."] if missing else []
        raise GradientError(
            f"functional_call: {' '.join(problems)} {type(module).__name__} has "
            f"{', '.join(map(repr, places)) or 'no Tensors'}"
        )
    for name, names in tied.items():
        present = [n for n in names if n in values]
        if any([values[n] is not values[name] for n in present]):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(present)}, which are tied. Consider "
                "using tie_weights=False"
            )
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    before: list[Place] = []
    try:
        for name, names in tied.items():
            for n in names:
                owner, key, t = places[n]
                before.append((owner, key, t))
                _put(owner, key, values[name])
        return module(*args, **(kwargs or {}))
    finally:
        for owner, key, t in before:
            _put(owner, key, t)


def stack_module_state(models: Sequence[object]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The Tensors of several modules, stacked, for `fad.vmap` over `functional_call`.

    Arguments:
        models: modules of one class, see `fad.func.module_state`.

    Returns:
        ``(parameters, buffers)``: dicts from names to Tensors with one more dimension, the first. The
        parameters are leaves that require grad.

    Raises:
        GradientError: there are no modules, or they have different classes or Tensors.

    Source: ``torch.func.stack_module_state``.

    >>> import fad
    >>> class Line:
    ...     def __init__(self, slope):
    ...         self.slope = fad.tensor(slope, requires_grad=True)
    ...     def __call__(self, x):
    ...         return self.slope * x
    >>> lines = [Line(1.0), Line(2.0)]
    >>> parameters, buffers = fad.func.stack_module_state(lines)
    >>> def call(parameters, x):
    ...     return fad.func.functional_call(lines[0], parameters, x)
    >>> fad.vmap(call, in_dims=(0, None))(parameters, 3.0).tolist()
    [3.0, 6.0]
    """
    models = list(models)
    if not models:
        raise GradientError("stack_module_state: Expected at least one model, got 0.")
    if len({*map(type, models)}) > 1:
        raise GradientError("stack_module_state: Expected all models to be of the same class.")
    every = [_places(model) for model in models]
    for k, places in enumerate(every):
        if list(places) != list(every[0]):
            raise GradientError(
                f"stack_module_state: model {k} has the Tensors {list(places)}, model 0 has "
                f"{list(every[0])}"
            )
    parameters: dict[str, Tensor] = {}
    buffers: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, (_, _, t) in every[0].items():
        if id(t) in seen:  # a tied one
            continue
        seen.add(id(t))
        tensors = [places[name][2] for places in every]
        grads = {x.requires_grad for x in tensors}
        if len(grads) > 1:
            raise GradientError(f"Expected {name} from each model to have the same .requires_grad")
        stacked = fnp.stack([x.detach() for x in tensors])
        if grads.pop():
            parameters[name] = stacked.requires_grad_()
        else:
            buffers[name] = stacked
    return parameters, buffers


def _values(dicts: object) -> dict[str, Operand]:
    """The one dict of all values."""
    if isinstance(dicts, Mapping):
        return dict(dicts)
    if not isinstance(dicts, Sequence) or not all([isinstance(d, Mapping) for d in dicts]):
        raise TypeError(
            "functional_call: Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, "
            f"but got {describe(dicts)}"
        )
    names = [name for d in dicts for name in d]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
        )
    return {name: value for d in dicts for name, value in d.items()}


# An object, list or dict; the attribute, position or key; what is there.
Place = tuple[object, Any, Tensor]


def _places(module: object) -> dict[str, Place]:
    """Where the Tensors of a module stand, by name, in order; each object is looked through once."""
    places: dict[str, Place] = {}
    seen: set[int] = set()
    stack: list[tuple[str, object]] = [("", module)]
    while stack:
        prefix, owner = stack.pop()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        inner = []
        for key, x in _entries(owner):
            name = f"{prefix}{key}"
            if isinstance(x, Tensor):
                places[name] = (owner, key, x)
            else:
                inner.append((f"{name}.", x))
        stack.extend(reversed(inner))
    return places


_PLAIN = (type, str, bytes, int, float, complex, np.ndarray, np.generic, jax.Array)


def _entries(x: object) -> list[tuple[Any, object]]:
    """The entries of a list or dict, the attributes of another object, that may have Tensors."""
    if isinstance(x, dict):
        return list(x.items())
    if isinstance(x, list):
        return list(enumerate(x))
    if x is None or isinstance(x, _PLAIN) or callable(getattr(x, "__get__", None)):
        return []  # numbers, arrays, classes, functions
    return list(getattr(x, "__dict__", {}).items())


def _put(owner: object, key: Any, value: object) -> None:
    if isinstance(owner, (dict, list)):
        owner[key] = value
    else:
        setattr(owner, key, value)


def _tied(name: str, places: dict[str, Place]) -> list[str]:
    """All names of the Tensor that has this name."""
    return [n for n, place in places.items() if place[2] is places[name][2]]
